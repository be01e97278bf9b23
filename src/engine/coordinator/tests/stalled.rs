//! A coordinator stalls before any one of its requests, another takes over meanwhile, and the first one goes on: whatever it does then is
//! neither published nor restored, nor does it end what was restored.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::super::message::TriggerKind;
use super::super::reign::{ClaimMode, Reign, RestoreFrom};
use super::super::retained::{Held, Which};
use super::{RIVAL, WRITER, ack_all, begin, completed, job, n, plan};
use crate::error::Kind;
use crate::lifecycle::Catalog;
use crate::metrics::Counter;
use crate::store::memory::Memory;
use crate::store::{Backend, BlobSource, Put, RawListed, Sink, Store, StoreError, StoreOptions};
use crate::types::{CheckpointNumber, Digest};

type Result<T> = std::result::Result<T, StoreError>;
type Moment = Box<dyn FnOnce() + Send>;

/// Lets something happen right before one request.
struct Stalling {
    inner: Arc<dyn Backend>,
    left: AtomicUsize,
    then: Mutex<Option<Moment>>,
}

impl std::fmt::Debug for Stalling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stalling")
    }
}

impl Stalling {
    fn tick(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0
            && let Some(then) = self.then.lock().unwrap().take()
        {
            then();
        }
    }
}

impl Backend for Stalling {
    fn get(&self, key: &str, max_len: u64) -> Result<Option<Bytes>> {
        self.tick();
        self.inner.get(key, max_len)
    }

    fn read(&self, key: &str, range: Range<u64>, size: Option<u64>, sink: Sink<'_>) -> Result<()> {
        self.tick();
        self.inner.read(key, range, size, sink)
    }

    fn head(&self, key: &str) -> Result<Option<u64>> {
        self.tick();
        self.inner.head(key)
    }

    fn list(&self, directory: &str, after: Option<&str>, limit: usize) -> Result<Vec<RawListed>> {
        self.tick();
        self.inner.list(directory, after, limit)
    }

    fn create(&self, key: &str, body: Bytes, durable: bool) -> Result<Put> {
        self.tick();
        self.inner.create(key, body, durable)
    }

    fn replace(&self, key: &str, body: Bytes) -> Result<()> {
        self.inner.replace(key, body)
    }

    fn upload(&self, key: &str, digest: &Digest, source: &BlobSource<'_>, sent: &Counter) -> Result<()> {
        self.tick();
        self.inner.upload(key, digest, source, sent)
    }

    fn delete(&self, keys: &[&str]) -> Result<()> {
        self.tick();
        self.inner.delete(keys)
    }

    fn answers_at_once(&self) -> bool {
        // One request after the other.
        true
    }
}

/// What the stalled one did until it was told that it is fenced, and what it thinks that it published.
fn work(reign: &Reign) -> Vec<CheckpointNumber> {
    let mut published = Vec::new();
    for turn in 1..4 {
        let fenced = |e: crate::error::Error| assert_eq!(e.kind(), Kind::Fenced, "{e}");
        let number = match reign.open(TriggerKind::Checkpoint) {
            Ok(opened) => opened.number,
            Err(e) => {
                fenced(e);
                break;
            }
        };
        ack_all(reign.store(), number);
        match reign.complete(number) {
            Ok(_) => published.push(number),
            Err(e) => {
                fenced(e);
                break;
            }
        }
        if turn == 1 {
            continue;
        }
        // As policy does: the newest one stays.
        let held = Held { which: Which::Own(n(turn - 1)), kind: TriggerKind::Checkpoint };
        if let Err(e) = reign.expire(&held) {
            fenced(e);
            break;
        }
    }
    published
}

fn visible(store: &Store) -> Vec<CheckpointNumber> {
    Catalog::new(store.clone()).job(&job()).unwrap().visible().map(|c| c.number).collect()
}

/// How the run ended: not at all fenced, fenced before or after its last number was published.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    nothing_more: usize,
    lost_one: usize,
    not_reached: usize,
}

/// Before every `step`th request.
fn stall(step: usize, fresh: impl Fn() -> Arc<dyn Backend>) -> Counts {
    let mut counts = Counts::default();
    for at in (0..).step_by(step) {
        let inner = fresh();
        let plain = Store::from_backend(Arc::clone(&inner), "test://", StoreOptions::default());
        let stalling = Arc::new(Stalling { inner, left: AtomicUsize::new(usize::MAX), then: Mutex::new(None) });
        let slow = Store::from_backend(Arc::<Stalling>::clone(&stalling), "test://", StoreOptions::default());
        let old = begin(&slow, WRITER);
        let at_take_over = Arc::new(Mutex::new(None));
        let (seen, store) = (Arc::clone(&at_take_over), plain.clone());
        *stalling.then.lock().unwrap() = Some(Box::new(move || {
            let new = Reign::begin_in(store.clone(), RIVAL, plan(RestoreFrom::Latest)).unwrap();
            *seen.lock().unwrap() = Some((visible(&store), new));
        }));
        stalling.left.store(at, Ordering::SeqCst);
        let published = work(&old);
        let Some((then, new)) = at_take_over.lock().unwrap().take() else {
            counts.not_reached += 1;
            assert_eq!(published, [n(1), n(2), n(3)]);
            return counts;
        };
        // Nothing was published after the take-over, and what was told to be published is.
        assert!(visible(&plain).iter().all(|number| then.contains(number)), "request {at}");
        assert!(published.iter().all(|number| completed(&plain, *number) == Some(true)), "request {at}");
        assert_eq!(new.restored().map(|c| c.number), then.last().copied(), "request {at}");
        // What was restored is alive, and the new one goes on from it.
        if let Some(restored) = new.restored() {
            assert!(visible(&plain).contains(&restored.number), "request {at}");
        }
        let next = new.open(TriggerKind::Checkpoint).unwrap();
        assert_eq!(next.intent.bases.iter().map(|b| b.number).max(), then.last().copied(), "request {at}");
        ack_all(&plain, next.number);
        assert!(new.complete(next.number).unwrap().now);
        assert_eq!(old.open(TriggerKind::Checkpoint).unwrap_err().kind(), Kind::Fenced);
        let again = Reign::begin_in(plain.clone(), WRITER, plan(RestoreFrom::Latest)).unwrap();
        assert_eq!(again.restored().map(|c| c.number), Some(next.number), "request {at}");
        if new.aborted().is_empty() { counts.nothing_more += 1 } else { counts.lost_one += 1 }
    }
    counts
}

#[test]
fn row13_a_stalled_coordinator_publishes_nothing_after_a_take_over() {
    let counts = stall(1, || Arc::new(Memory::new()));
    assert!(counts.nothing_more > 20 && counts.lost_one > 20, "{counts:?}");
    assert_eq!(counts.not_reached, 1);
}

#[test]
fn row13_nor_on_a_disk() {
    let home = tempfile::tempdir().unwrap();
    let next = AtomicUsize::new(0);
    let counts = stall(13, || {
        let path = home.path().join(next.fetch_add(1, Ordering::SeqCst).to_string());
        let store = Store::open(path.to_str().unwrap(), StoreOptions::default()).unwrap();
        store.create_root().unwrap();
        store.backend()
    });
    assert!(counts.nothing_more > 1 && counts.lost_one > 1, "{counts:?}");
    assert_eq!(counts.not_reached, 1);
}

#[test]
fn row13_two_that_take_over_at_once_are_ordered_by_their_epochs() {
    let store = Memory::store();
    begin(&store, WRITER);
    let mut reigns: Vec<Reign> = std::thread::scope(|scope| {
        let racers: Vec<_> = (3..9u8)
            .map(|i| {
                let (store, writer) = (store.clone(), crate::types::Uid::from_bytes([i; 16]));
                scope.spawn(move || {
                    let plan = super::ReignPlan { claim: ClaimMode::Claim, ..plan(RestoreFrom::Latest) };
                    let begun = Reign::begin_in(store, writer, plan);
                    assert!(begun.as_ref().err().is_none_or(|e| e.kind() == Kind::Fenced));
                    begun.ok()
                })
            })
            .collect();
        racers.into_iter().filter_map(|r| r.join().unwrap()).collect()
    });
    reigns.sort_by_key(Reign::epoch);
    assert!(reigns.windows(2).all(|w| w[0].epoch() < w[1].epoch()), "no epoch is ruled twice");
    let last = reigns.pop().unwrap();
    for fenced in &reigns {
        assert_eq!(fenced.open(TriggerKind::Checkpoint).unwrap_err().kind(), Kind::Fenced);
    }
    let number = last.open(TriggerKind::Checkpoint).unwrap().number;
    ack_all(&store, number);
    assert!(last.complete(number).unwrap().now);
}
