//! The loop, with tasks in threads: over channels, and over a store alone.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::super::gateway::{Gateway, TaskSide};
use super::super::local::LocalGateway;
use super::super::machine::{Coordinator, Input};
use super::super::message::Notice::{Complete, Subsumed};
use super::super::message::{AckReport, Notice, Order, TaskEvent, Trigger, TriggerKind};
use super::super::reign::Reign;
use super::super::run::{Control, RunEnd, control, run};
use super::super::settings::CoordinatorSettings;
use super::super::stored::{StoredGateway, StoredTask};
use super::{RIVAL, Task, WRITER, begin, completed, intent, job, n, reason, settings, store_ack, task, tasks};
use crate::error::{Error, Kind};
use crate::lifecycle::Catalog;
use crate::metrics::Counter;
use crate::store::memory::Memory;
use crate::store::{Backend, BlobSource, Put, RawListed, Sink, Store, StoreError, StoreOptions};
use crate::types::{CheckpointNumber, Digest, Epoch};

const PATIENCE: Duration = Duration::from_secs(60);
const CHECKPOINT: TriggerKind = TriggerKind::Checkpoint;
const SAVEPOINT: TriggerKind = TriggerKind::Savepoint { stop: false };
const STOP: TriggerKind = TriggerKind::Savepoint { stop: true };

/// What a task does with a trigger.
type Behaviour = Arc<dyn Fn(&Task, CheckpointNumber) -> Does + Send + Sync>;

enum Does {
    Ack,
    Decline,
    Fail,
    Nothing,
}

fn acks() -> Behaviour {
    Arc::new(|_, _| Does::Ack)
}

/// Polls until it is told to stop. Says what it was told.
fn work(store: &Store, of: &Task, mut side: impl TaskSide, behaviour: &Behaviour) -> Vec<Order> {
    let mut heard = Vec::new();
    let (reporter, (operator, subtask)) = (side.reporter(), of);
    while heard.last() != Some(&Order::Stop) {
        for order in side.poll().unwrap() {
            heard.push(order);
            let Order::Trigger(trigger) = order else { continue };
            let number = trigger.number;
            match behaviour(of, number) {
                Does::Ack => {
                    store_ack(store, of, number, format!("{of:?}").as_bytes()).unwrap();
                    // Nobody may be there to hear it.
                    let _ = reporter.acked(number, operator, *subtask, &AckReport::default());
                }
                Does::Decline => reporter.declined(number, operator, *subtask, "disk full").unwrap(),
                Does::Fail => reporter.failed(operator, *subtask, "killed").unwrap(),
                Does::Nothing => {}
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    heard
}

/// A test that fails ends, and does not hang with its coordinator.
struct HaltOnPanic(Control);

impl Drop for HaltOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.halt();
        }
    }
}

fn coordinate(
    reign: &Reign,
    gateway: &dyn Gateway,
    settings: CoordinatorSettings,
    people: impl FnOnce(&Control) + Send,
) -> (RunEnd, usize) {
    let mut machine = Coordinator::new(settings, reign.tasks());
    let (control, commands) = control();
    let begun = Instant::now();
    let clock = move || u64::try_from(begun.elapsed().as_millis()).unwrap();
    let mut acked = 0;
    let mut observe = |input: &Input| acked += usize::from(matches!(input, Input::Acked { .. }));
    let end = std::thread::scope(|scope| {
        scope.spawn(move || {
            let guard = HaltOnPanic(control);
            people(&guard.0);
        });
        run(reign, &mut machine, gateway, &clock, commands, &mut observe)
    });
    (end, acked)
}

/// A whole run in one process: its end, and what each task heard.
fn local(
    store: &Store,
    settings: CoordinatorSettings,
    behaviour: &Behaviour,
    people: impl FnOnce(&Control) + Send,
) -> (RunEnd, Vec<Vec<Order>>) {
    let reign = begin(store, WRITER);
    let (gateway, sides) = LocalGateway::new(3);
    std::thread::scope(|scope| {
        let workers: Vec<_> = sides
            .into_iter()
            .zip(tasks())
            .map(|(side, of)| scope.spawn(move || work(store, &of, side, behaviour)))
            .collect();
        let (end, _) = coordinate(&reign, &gateway, settings, people);
        drop(gateway);
        (end, workers.into_iter().map(|w| w.join().unwrap()).collect())
    })
}

fn untimed() -> CoordinatorSettings {
    CoordinatorSettings { timeout_ms: 60_000, ..settings() }
}

fn notices(heard: &[Order]) -> Vec<Notice> {
    heard.iter().filter_map(|o| if let Order::Notice(notice) = o { Some(*notice) } else { None }).collect()
}

#[test]
fn row11_a_job_runs_is_asked_for_savepoints_and_stops_with_one() {
    let store = Memory::store();
    let (end, heard) = local(&store, untimed(), &acks(), |control| {
        assert_eq!(control.take(CHECKPOINT).wait(PATIENCE).unwrap(), n(1));
        assert_eq!(control.take(SAVEPOINT).wait(PATIENCE).unwrap(), n(2));
        assert_eq!(control.take(TriggerKind::Full).wait(PATIENCE).unwrap(), n(3));
        assert_eq!(control.take(STOP).wait(PATIENCE).unwrap(), n(4));
        // Too late.
        assert!(control.take(CHECKPOINT).wait(PATIENCE).is_err());
    });
    assert!(matches!(end, RunEnd::Stopped), "{end:?}");
    for heard in heard {
        let told = [Complete(n(1)), Complete(n(2)), Complete(n(3)), Subsumed(n(1)), Complete(n(4))];
        assert_eq!(notices(&heard), told);
        assert_eq!(heard.last(), Some(&Order::Stop));
    }
    let next = begin(&store, RIVAL);
    assert_eq!(next.restored().map(|c| c.number), Some(n(4)));
    assert_eq!(next.recovered().len(), 1);
}

#[test]
fn row11_checkpoints_come_by_the_clock() {
    let store = Memory::store();
    let every = CoordinatorSettings { interval_ms: 30, retained: 2, ..untimed() };
    let taken = || {
        let listing = Catalog::new(store.clone()).job(&job()).unwrap();
        listing.visible().map(|c| c.number).collect::<Vec<_>>()
    };
    let (end, heard) = local(&store, every, &acks(), |control| {
        while taken().last().is_none_or(|last| *last < n(4)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        control.cancel();
    });
    assert!(matches!(end, RunEnd::Stopped), "{end:?}");
    let by_clock = |o: &&Order| matches!(o, Order::Trigger(t) if t.kind == CHECKPOINT);
    assert!(heard.iter().all(|h| h.iter().filter(by_clock).count() >= 4), "{heard:?}");
    assert_eq!(taken().len(), 2);
}

#[test]
fn row11_a_declined_checkpoint_is_given_up_and_the_next_one_completes() {
    let store = Memory::store();
    let behaviour: Behaviour = Arc::new(|of, number| match (of, number.get()) {
        (of, 1) if *of == task("count", 1) => Does::Decline,
        _ => Does::Ack,
    });
    let tolerant = CoordinatorSettings { tolerable_failures: 1, ..untimed() };
    let (_, heard) = local(&store, tolerant, &behaviour, |control| {
        let e = control.take(CHECKPOINT).wait(PATIENCE).unwrap_err();
        assert_eq!(e.message(), "no checkpoint was taken: chk-1 was given up: count/1: disk full");
        assert_eq!(control.take(CHECKPOINT).wait(PATIENCE).unwrap(), n(2));
        control.cancel();
    });
    assert_eq!(reason(&store, n(1)), "count/1: disk full");
    for heard in heard {
        assert_eq!(notices(&heard), [Notice::Aborted(n(1)), Notice::Complete(n(2))]);
    }
}

#[test]
fn row11_an_ack_that_never_comes_fails_the_job_in_the_end() {
    let store = Memory::store();
    let behaviour: Behaviour = Arc::new(|of, _| if *of == task("count", 1) { Does::Nothing } else { Does::Ack });
    let hasty = CoordinatorSettings { interval_ms: 1, timeout_ms: 1500, tolerable_failures: 1, ..settings() };
    let (end, _) = local(&store, hasty, &behaviour, |_| ());
    let RunEnd::Failed { reason: words } = end else { panic!("{end:?}") };
    let expected = "2 checkpoints failed in a row, the last one since chk-2: no ack from count/1 within 1500 ms";
    assert_eq!(words, expected);
    assert_eq!(reason(&store, n(1)), "no ack from count/1 within 1500 ms");
    assert_eq!([1, 2].map(|i| completed(&store, n(i))), [Some(false); 2]);
}

#[test]
fn row11_a_task_that_dies_ends_the_run_with_nothing_left_open() {
    let store = Memory::store();
    let behaviour: Behaviour = Arc::new(|of, number| match number.get() {
        2 if *of == task("count", 0) => Does::Fail,
        2 => Does::Nothing,
        _ => Does::Ack,
    });
    let (end, heard) = local(&store, untimed(), &behaviour, |control| {
        assert_eq!(control.take(CHECKPOINT).wait(PATIENCE).unwrap(), n(1));
        assert!(control.take(CHECKPOINT).wait(PATIENCE).is_err());
    });
    assert!(matches!(&end, RunEnd::Failed { reason } if reason == "count/0 failed: killed"), "{end:?}");
    assert!(heard.iter().all(|h| h.last() == Some(&Order::Stop)));
    assert_eq!(reason(&store, n(2)), "count/0 failed: killed");
    assert_eq!(begin(&store, WRITER).restored().map(|c| c.number), Some(n(1)));
}

/// A gateway that loses every notice.
struct Forgetful(LocalGateway);

impl Gateway for Forgetful {
    fn trigger(&self, trigger: &Trigger) -> Result<(), Error> {
        self.0.trigger(trigger)
    }

    fn notify(&self, _: &Notice) -> Result<(), Error> {
        Err(Error::new(Kind::Unavailable, "lost"))
    }

    fn stop(&self) -> Result<(), Error> {
        self.0.stop()
    }

    fn poll(&self, wait: Duration) -> Result<Vec<TaskEvent>, Error> {
        self.0.poll(wait)
    }
}

#[test]
fn row11_a_lost_notice_costs_nothing() {
    let store = Memory::store();
    let reign = begin(&store, WRITER);
    let (gateway, sides) = LocalGateway::new(3);
    let behaviour = acks();
    std::thread::scope(|scope| {
        let (store, behaviour) = (&store, &behaviour);
        for (side, of) in sides.into_iter().zip(tasks()) {
            scope.spawn(move || {
                let heard = work(store, &of, side, behaviour);
                assert_eq!(notices(&heard), []);
            });
        }
        let (end, _) = coordinate(&reign, &Forgetful(gateway), untimed(), |control| {
            assert_eq!(control.take(CHECKPOINT).wait(PATIENCE).unwrap(), n(1));
            assert_eq!(control.take(CHECKPOINT).wait(PATIENCE).unwrap(), n(2));
            control.cancel();
        });
        assert!(matches!(end, RunEnd::Stopped), "{end:?}");
    });
    // The second one took from the first what it had.
    assert_eq!(intent(&store, n(2)).bases.iter().map(|b| b.number).collect::<Vec<_>>(), [n(1)]);
}

/// A store that goes away right after it said yes to the first outcome, before anybody hears it.
struct Leaving {
    inner: Arc<dyn Backend>,
    gone: AtomicBool,
    once: AtomicBool,
}

impl std::fmt::Debug for Leaving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Leaving")
    }
}

impl Leaving {
    fn there(&self, key: &str) -> Result<(), StoreError> {
        if !self.gone.load(Ordering::SeqCst) {
            return Ok(());
        }
        let (object, why) = (key.to_owned(), "it is away".to_owned());
        Err(StoreError::Unavailable { what: "ask", object, why, waited: Duration::ZERO })
    }
}

impl Backend for Leaving {
    fn get(&self, key: &str, max_len: u64) -> Result<Option<Bytes>, StoreError> {
        self.there(key)?;
        self.inner.get(key, max_len)
    }

    fn read(&self, key: &str, range: Range<u64>, size: Option<u64>, sink: Sink<'_>) -> Result<(), StoreError> {
        self.there(key)?;
        self.inner.read(key, range, size, sink)
    }

    fn head(&self, key: &str) -> Result<Option<u64>, StoreError> {
        self.there(key)?;
        self.inner.head(key)
    }

    fn list(&self, directory: &str, after: Option<&str>, limit: usize) -> Result<Vec<RawListed>, StoreError> {
        self.there(directory)?;
        self.inner.list(directory, after, limit)
    }

    fn create(&self, key: &str, body: Bytes, durable: bool) -> Result<Put, StoreError> {
        self.there(key)?;
        let put = self.inner.create(key, body, durable)?;
        if key.starts_with("outcome/") && !self.once.swap(true, Ordering::SeqCst) {
            self.gone.store(true, Ordering::SeqCst);
        }
        self.there(key)?;
        Ok(put)
    }

    fn replace(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        self.there(key)?;
        self.inner.replace(key, body)
    }

    fn upload(&self, key: &str, digest: &Digest, source: &BlobSource<'_>, sent: &Counter) -> Result<(), StoreError> {
        self.there(key)?;
        self.inner.upload(key, digest, source, sent)
    }

    fn delete(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.inner.delete(keys)
    }
}

#[test]
fn row11_a_yes_that_was_lost_with_the_store_is_found_again() {
    let (gone, once) = (AtomicBool::new(false), AtomicBool::new(false));
    let leaving = Arc::new(Leaving { inner: Arc::new(Memory::new()), gone, once });
    let options = StoreOptions { attempts: 1, ..StoreOptions::default() };
    let store = Store::from_backend(Arc::<Leaving>::clone(&leaving), "test://", options);
    let tolerant = CoordinatorSettings { tolerable_failures: 1, ..untimed() };
    let (_, heard) = local(&store, tolerant, &acks(), |control| {
        let asked = control.take(CHECKPOINT);
        while !leaving.gone.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(asked.wait(Duration::from_millis(300)).unwrap_err().kind(), Kind::Unavailable);
        leaving.gone.store(false, Ordering::SeqCst);
        assert_eq!(asked.wait(PATIENCE).unwrap(), n(1));
        assert_eq!(control.take(CHECKPOINT).wait(PATIENCE).unwrap(), n(2));
        control.cancel();
    });
    for heard in heard {
        assert_eq!(notices(&heard), [Complete(n(1)), Complete(n(2)), Subsumed(n(1))]);
    }
}

#[test]
fn row13_a_coordinator_that_is_taken_over_stops_its_tasks() {
    let store = Memory::store();
    let (end, heard) = local(&store, untimed(), &acks(), |control| {
        assert_eq!(control.take(CHECKPOINT).wait(PATIENCE).unwrap(), n(1));
        assert_eq!(begin(&store, RIVAL).epoch(), Epoch(2));
        assert_eq!(control.take(CHECKPOINT).wait(PATIENCE).unwrap_err().kind(), Kind::NotFound);
    });
    let RunEnd::Fenced(e) = end else { panic!("{end:?}") };
    assert_eq!(e.kind(), Kind::Fenced);
    assert!(heard.iter().all(|h| h.last() == Some(&Order::Stop)));
    assert_eq!(completed(&store, n(2)), None, "it was not even begun");
}

/// Each task and each coordinator on a host of its own: nothing is shared but the directory of the store.
#[test]
fn row13_a_job_over_several_hosts_survives_its_coordinator() {
    let home = tempfile::tempdir().unwrap();
    let open = || {
        let store = Store::open(home.path().join("store").to_str().unwrap(), StoreOptions::default()).unwrap();
        store.create_root().unwrap();
        store
    };
    let period = Duration::from_millis(2);
    let silent = Arc::new(AtomicBool::new(false));
    let host = |epoch: Epoch, of: Task| {
        let (store, silent) = (open(), Arc::clone(&silent));
        let quiet = of == task("count", 1);
        let behaviour: Behaviour =
            Arc::new(move |_, _| if quiet && silent.load(Ordering::SeqCst) { Does::Nothing } else { Does::Ack });
        let side = StoredTask::new(store.clone(), job(), epoch, vec![of.clone()], period);
        std::thread::spawn(move || work(&store, &of, side, &behaviour))
    };

    let first = begin(&open(), WRITER);
    let workers: Vec<_> = tasks().into_iter().map(|of| host(first.epoch(), of)).collect();
    let gateway = StoredGateway::new(&first, period);
    let (end, acked) = coordinate(&first, &gateway, untimed(), |control| {
        assert_eq!(control.take(CHECKPOINT).wait(PATIENCE).unwrap(), n(1));
        // The coordinator dies with one open that cannot complete yet.
        silent.store(true, Ordering::SeqCst);
        assert!(control.take(CHECKPOINT).wait(Duration::from_millis(300)).is_err());
        control.halt();
    });
    assert!(matches!(end, RunEnd::Halted), "{end:?}");
    assert!(acked >= 3);
    assert_eq!(completed(&open(), n(2)), None);

    let second = begin(&open(), RIVAL);
    assert_eq!((second.aborted(), second.restored().map(|c| c.number)), (&[n(2)][..], Some(n(1))));
    for worker in workers {
        let heard = worker.join().unwrap();
        assert_eq!(notices(&heard)[0], Notice::Complete(n(1)));
        // It may have looked right between the new epoch and the abort.
        assert!(notices(&heard)[1..].iter().all(|notice| *notice == Notice::Aborted(n(2))), "{heard:?}");
        assert_eq!(heard.last(), Some(&Order::Stop));
    }
    silent.store(false, Ordering::SeqCst);
    let workers: Vec<_> = tasks().into_iter().map(|of| host(second.epoch(), of)).collect();
    let gateway = StoredGateway::new(&second, period);
    let (end, acked) = coordinate(&second, &gateway, untimed(), |control| {
        assert_eq!(control.take(CHECKPOINT).wait(PATIENCE).unwrap(), n(3));
        assert_eq!(control.take(STOP).wait(PATIENCE).unwrap(), n(4));
    });
    assert!(matches!(end, RunEnd::Stopped), "{end:?}");
    assert_eq!(acked, 6);
    for worker in workers {
        let heard = worker.join().unwrap();
        assert!(heard.contains(&Order::Notice(Notice::Complete(n(4)))), "{heard:?}");
    }
    assert_eq!(begin(&open(), WRITER).restored().map(|c| c.number), Some(n(4)));
}
