//! A reign against a store: what is chosen, what the intents say, and what a fenced one may not do.

use super::super::message::TriggerKind;
use super::super::reign::{ClaimMode, Ended, Reign, RestoreFrom};
use super::super::retained::{Held, Which};
use super::{RIVAL, WRITER, ack_all, begin, completed, intent, job, n, plan, reason, store_ack, task, tasks};
use crate::error::Kind;
use crate::format::CheckpointKind;
use crate::format::records::PinHolder;
use crate::lifecycle::expire::Expire;
use crate::lifecycle::hide::Hide;
use crate::lifecycle::pin::Pin;
use crate::lifecycle::{Catalog, PinRef, driver};
use crate::store::Store;
use crate::store::memory::Memory;
use crate::types::{CheckpointNumber, Epoch, Key, Name, Uid};

const CHECKPOINT: TriggerKind = TriggerKind::Checkpoint;
const SAVEPOINT: TriggerKind = TriggerKind::Savepoint { stop: false };

/// Opens, acknowledges and completes.
fn taken(reign: &Reign, kind: TriggerKind) -> CheckpointNumber {
    let number = reign.open(kind).unwrap().number;
    ack_all(reign.store(), number);
    assert!(reign.complete(number).unwrap().now);
    number
}

fn restored(reign: &Reign) -> Option<CheckpointNumber> {
    reign.restored().map(|c| c.number)
}

fn bases(store: &Store, number: CheckpointNumber) -> Vec<u64> {
    intent(store, number).bases.iter().map(|b| b.number.get()).collect()
}

fn own(number: u64, kind: TriggerKind) -> Held {
    Held { which: Which::Own(n(number)), kind }
}

fn dead(store: &Store, number: CheckpointNumber) -> bool {
    store.head(&Key::expired(&job(), number)).unwrap().is_some()
}

#[test]
fn row13_a_take_over_ends_what_is_open_and_then_chooses() {
    let store = Memory::store();
    let first = begin(&store, WRITER);
    assert_eq!((first.epoch(), restored(&first)), (Epoch(1), None));
    assert_eq!(first.tasks(), tasks());
    let one = taken(&first, CHECKPOINT);
    let (two, three) = (first.open(CHECKPOINT).unwrap().number, first.open(SAVEPOINT).unwrap().number);
    ack_all(&store, two);
    let second = begin(&store, RIVAL);
    assert_eq!((second.epoch(), restored(&second)), (Epoch(2), Some(one)));
    assert_eq!(second.aborted(), [two, three]);
    assert_eq!(reason(&store, two), "epoch 2 took over");
    // All acks are in, and it is too late.
    let fenced = first.complete(two).unwrap_err();
    assert_eq!((fenced.kind(), completed(&store, two)), (Kind::Fenced, Some(false)));
    assert_eq!(first.open(CHECKPOINT).unwrap_err().kind(), Kind::Fenced);
    assert_eq!(first.look().unwrap_err().kind(), Kind::Fenced);
    assert_eq!(first.expire(&own(one.get(), CHECKPOINT)).unwrap_err().kind(), Kind::Fenced);
    assert_eq!(first.drop_old_clones().unwrap_err().kind(), Kind::Fenced);
    assert!(!dead(&store, one));
    // A late ack of the old reign changes nothing.
    store_ack(&store, &task("source", 0), three, b"late").unwrap();
    assert_eq!(taken(&second, CHECKPOINT), n(4));
    assert_eq!(restored(&begin(&store, WRITER)), Some(n(4)));
}

#[test]
fn row11_several_are_open_at_once_and_none_ends_another() {
    let store = Memory::store();
    let reign = begin(&store, WRITER);
    let numbers = [CHECKPOINT, CHECKPOINT, SAVEPOINT].map(|kind| reign.open(kind).unwrap().number);
    assert_eq!(numbers, [n(1), n(2), n(3)]);
    assert_eq!(numbers.map(|n| completed(&store, n)), [None; 3]);
    ack_all(&store, n(2));
    reign.complete(n(2)).unwrap();
    ack_all(&store, n(1));
    assert!(reign.complete(n(1)).unwrap().now);
    assert_eq!(reign.abort(n(3), "too late").unwrap(), Ended::Aborted);
    assert_eq!(reign.abort(n(2), "too late").unwrap(), Ended::Completed);
}

#[test]
fn row11_an_intent_says_what_kind_is_wanted() {
    let store = Memory::store();
    let reign = begin(&store, WRITER);
    taken(&reign, CHECKPOINT);
    for (kind, number, stored, stop, named) in [
        (CHECKPOINT, 2, CheckpointKind::Checkpoint, false, vec![1]),
        (TriggerKind::Full, 3, CheckpointKind::Checkpoint, false, vec![]),
        (SAVEPOINT, 4, CheckpointKind::Savepoint, false, vec![1]),
        (TriggerKind::Savepoint { stop: true }, 5, CheckpointKind::Savepoint, true, vec![1]),
    ] {
        let opened = reign.open(kind).unwrap();
        assert_eq!(opened.number, n(number));
        let intent = intent(&store, opened.number);
        assert_eq!((intent.kind, intent.stop, intent.detached, intent.epoch), (stored, stop, true, Epoch(1)));
        assert_eq!(bases(&store, opened.number), named);
    }
}

#[test]
fn row11_uploads_of_a_failed_checkpoint_are_adopted_by_the_next() {
    let store = Memory::store();
    let reign = begin(&store, WRITER);
    taken(&reign, CHECKPOINT);
    let failed = reign.open(CHECKPOINT).unwrap().number;
    store_ack(&store, &task("source", 0), failed, b"sent").unwrap();
    reign.abort(failed, "disk full").unwrap();
    assert_eq!(bases(&store, reign.open(CHECKPOINT).unwrap().number), [1, 2]);
    // Not by another writer, who cannot know what the first one still sends.
    let other = begin(&store, RIVAL);
    assert_eq!(bases(&store, other.open(CHECKPOINT).unwrap().number), [1]);
}

#[test]
fn row11_what_was_restored_is_a_base_until_a_newer_one_is() {
    let store = Memory::store();
    let first = begin(&store, WRITER);
    taken(&first, CHECKPOINT);
    taken(&first, CHECKPOINT);
    let from = |number| Reign::begin_in(store.clone(), WRITER, plan(RestoreFrom::Checkpoint(job(), number))).unwrap();
    let reign = from(n(1));
    assert_eq!(bases(&store, reign.open(CHECKPOINT).unwrap().number), [2, 1]);
    assert_eq!(taken(&reign, CHECKPOINT), n(4));
    assert!(reign.expire(&own(1, CHECKPOINT)).unwrap());
    // No number is lost to a base that is dead.
    assert_eq!(taken(&reign, CHECKPOINT), n(5));
    assert_eq!(bases(&store, n(5)), [4]);
    // A person ends it before: one number is lost, and no more.
    let reign = from(n(2));
    driver::run(&store, Expire::new(job(), n(2), "by hand".to_owned())).unwrap();
    let opened = reign.open(CHECKPOINT).unwrap().number;
    assert_eq!((opened, completed(&store, n(6))), (n(7), Some(false)));
    assert_eq!(reign.open(CHECKPOINT).unwrap().number, n(8));
}

#[test]
fn row11_a_long_reason_does_not_keep_a_checkpoint_open() {
    let store = Memory::store();
    let reign = begin(&store, WRITER);
    let number = reign.open(CHECKPOINT).unwrap().number;
    assert_eq!(reign.abort(number, &"ü".repeat(1 << 20)).unwrap(), Ended::Aborted);
    assert_eq!(reason(&store, number), "ü".repeat(2048));
}

#[test]
fn row11_a_savepoint_or_a_hidden_one_is_not_policys() {
    let store = Memory::store();
    let reign = begin(&store, WRITER);
    taken(&reign, CHECKPOINT);
    taken(&reign, SAVEPOINT);
    let hidden = taken(&reign, CHECKPOINT);
    taken(&reign, CHECKPOINT);
    driver::run(&store, Hide::new(job(), hidden, Uid::random().unwrap(), 1)).unwrap();
    let next = begin(&store, WRITER);
    assert_eq!(next.recovered(), [own(1, CHECKPOINT), own(4, CHECKPOINT)]);
    // Hidden since: it may come back.
    assert!(!next.expire(&own(3, CHECKPOINT)).unwrap());
    assert!(next.expire(&own(1, CHECKPOINT)).unwrap());
    assert_eq!([1, 2, 3, 4].map(|i| dead(&store, n(i))), [true, false, false, false]);
    assert_eq!(begin(&store, WRITER).recovered(), [own(4, CHECKPOINT)]);
}

#[test]
fn row12_what_was_restored_by_name_is_policys_only_when_it_is_claimed() {
    let store = Memory::store();
    let reign = begin(&store, WRITER);
    taken(&reign, CHECKPOINT);
    taken(&reign, SAVEPOINT);
    taken(&reign, CHECKPOINT);
    let begin_from = |job: Name, from: u64, claim| {
        let restore = RestoreFrom::Checkpoint(super::job(), n(from));
        let plan = super::ReignPlan { job, claim, ..plan(restore) };
        let reign = Reign::begin_in(store.clone(), WRITER, plan).unwrap();
        assert_eq!(restored(&reign), Some(n(from)));
        reign
    };
    let recovered = |from, claim| begin_from(job(), from, claim).recovered();
    assert_eq!(recovered(1, ClaimMode::NoClaim), [own(3, CHECKPOINT)]);
    assert_eq!(recovered(1, ClaimMode::Claim), [own(1, CHECKPOINT), own(3, CHECKPOINT)]);
    assert_eq!(recovered(2, ClaimMode::NoClaim), [own(1, CHECKPOINT), own(3, CHECKPOINT)]);
    let claimed = [own(1, CHECKPOINT), own(2, SAVEPOINT), own(3, CHECKPOINT)];
    assert_eq!(recovered(2, ClaimMode::Claim), claimed);
    // A new job, from this one's savepoint: its base, and after a claim its to expire.
    let clone = Name::encode("clone");
    assert_eq!(begin_from(clone.clone(), 2, ClaimMode::NoClaim).recovered(), []);
    let claims = begin_from(clone, 2, ClaimMode::Claim);
    let held = Held { which: Which::Restored, kind: SAVEPOINT };
    assert_eq!(claims.recovered(), [held]);
    let opened = claims.open(CHECKPOINT).unwrap();
    assert_eq!(opened.intent.bases.iter().map(|b| (b.job.clone(), b.number)).collect::<Vec<_>>(), [(job(), n(2))]);
    assert!(claims.expire(&held).unwrap());
    assert!(dead(&store, n(2)));
}

#[test]
fn row12_an_aborted_missing_or_damaged_checkpoint_is_not_restored() {
    let store = Memory::store();
    let reign = begin(&store, WRITER);
    taken(&reign, CHECKPOINT);
    let aborted = reign.open(CHECKPOINT).unwrap().number;
    reign.abort(aborted, "x").unwrap();
    for number in [aborted, n(77)] {
        let from = plan(RestoreFrom::Checkpoint(job(), number));
        let e = Reign::begin_in(store.clone(), WRITER, from).unwrap_err();
        assert_eq!(e.kind(), Kind::NotFound);
        assert!(e.message().contains(&format!("words/{number} does not exist")), "{e}");
    }
    assert_eq!(restored(&Reign::begin_in(store.clone(), WRITER, plan(RestoreFrom::Nothing)).unwrap()), None);
    // The newest one rots: the job does not silently go back to an older state.
    let reign = begin(&store, WRITER);
    let newest = taken(&reign, CHECKPOINT);
    let key = Key::outcome(&job(), newest);
    let mut bytes = store.get(&key, 1 << 20).unwrap().unwrap().to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    store.delete(&key).unwrap();
    store.create(&key, bytes.into()).unwrap();
    let e = Reign::begin_in(store.clone(), WRITER, plan(RestoreFrom::Latest)).unwrap_err();
    assert_eq!(e.kind(), Kind::Damage);
    let named = Reign::begin_in(store, WRITER, plan(RestoreFrom::Checkpoint(job(), n(1)))).unwrap();
    assert_eq!(restored(&named), Some(n(1)));
}

#[test]
fn row13_old_clones_are_let_go_once_the_job_is_restored() {
    let store = Memory::store();
    let one = taken(&begin(&store, WRITER), CHECKPOINT);
    let reign = begin(&store, WRITER);
    let pin = |runs: Option<&str>, epoch| {
        let fresh = || Uid::random().unwrap();
        let pin = PinRef { job: job(), number: one, holder: fresh(), nonce: fresh() };
        let (host, directory) = ("h".to_owned(), "/d".to_owned());
        let holder = PinHolder::Clone { host, directory, job: runs.map(Name::encode), epoch: Epoch(epoch) };
        driver::run(&store, Pin::new(pin.clone(), holder, 0)).unwrap();
        pin
    };
    let old = pin(Some("words"), 1);
    let kept = [pin(Some("words"), 2), pin(Some("other"), 1), pin(None, 0)];
    assert_eq!(reign.drop_old_clones().unwrap(), 1);
    let left: Vec<PinRef> = Catalog::new(store).pins(None).unwrap().into_iter().map(|(p, _)| p).collect();
    assert!(!left.contains(&old) && kept.iter().all(|p| left.contains(p)), "{left:?}");
}
