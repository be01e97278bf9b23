//! The protocol, step by step, on a store in memory.

mod edges;
mod looks;
mod sweep;

use bytes::Bytes;

use super::abort::Abort;
use super::ack::Ack;
use super::catalog::Catalog;
use super::complete::Complete;
use super::driver::{perform, run};
use super::error::LifecycleError;
use super::machine::{Machine, Request, Step};
use super::open::{Open, OpenPlan, Opened};
use super::takeover::TakeOver;
use crate::error::Kind;
use crate::format::records::{ExpiredRecord, FloorRecord};
use crate::format::{
    BaseRef, BlobEntry, CheckpointKind, ExpectedOperator, FileEntry, FilePath, Labels, Place, Role, TaskManifest,
    encode,
};
use crate::store::memory::Memory;
use crate::store::{BlobSource, Store};
use crate::types::{BlobName, CheckpointNumber, Digest, Epoch, Extent, Key, Name, Uid};

const WRITER: Uid = Uid::from_bytes([1; 16]);
const OTHER: Uid = Uid::from_bytes([2; 16]);

fn job() -> Name {
    Name::encode("app")
}

fn n(number: u64) -> CheckpointNumber {
    CheckpointNumber::new(number).unwrap()
}

fn plan(writer: Uid) -> OpenPlan {
    OpenPlan {
        job: job(),
        uids: (0..4).map(|_| Uid::random().unwrap()).collect(),
        writer,
        epoch: None,
        number: None,
        expected: vec![ExpectedOperator { operator: Name::encode("db"), parallelism: 1 }],
        kind: CheckpointKind::Checkpoint,
        detached: false,
        restored_from: None,
        pinned: Vec::new(),
        opened_ms: 0,
    }
}

fn open(store: &Store, writer: Uid) -> Opened {
    run(store, Open::new(plan(writer))).unwrap()
}

fn upload(store: &Store, uid: Uid, content: &[u8]) -> BlobName {
    let name = BlobName { digest: Digest::of(content), uid };
    store.upload_blob(&name, BlobSource::Bytes(Bytes::copy_from_slice(content))).unwrap();
    name
}

/// A task manifest whose files are these blobs.
fn manifest(opened: &Opened, blobs: &[(BlobName, u64)]) -> TaskManifest {
    let mut place = Place::new(Role::Task, &job(), opened.number.get(), opened.intent.place.uid);
    place.subtask = Some((Name::encode("db"), 0));
    let file = |(i, (name, length)): (usize, &(BlobName, u64))| FileEntry {
        path: FilePath::db(&format!("{i:06}.sst")).unwrap(),
        size: *length,
        digest: name.digest,
        extents: vec![Extent { blob: u32::try_from(i).unwrap(), offset: 0, length: *length }],
        tree: None,
        tail: None,
        sst: None,
    };
    TaskManifest {
        place,
        display_name: "db".to_owned(),
        blobs: blobs.iter().map(|(name, length)| BlobEntry { name: *name, length: *length, bundle: false }).collect(),
        files: blobs.iter().enumerate().map(file).collect(),
        logical_bytes: blobs.iter().map(|b| b.1).sum(),
        new_bytes: 0,
        backend: None,
        key_groups: None,
        states: Vec::new(),
        properties: std::collections::BTreeMap::new(),
        other_state: std::collections::BTreeMap::new(),
        origins: std::collections::BTreeMap::new(),
    }
}

fn ack(store: &Store, opened: &Opened, blobs: &[(BlobName, u64)]) -> Result<(), LifecycleError> {
    run(store, Ack::new(manifest(opened, blobs))?).map(drop)
}

fn complete(store: &Store, number: CheckpointNumber) -> Result<super::complete::Completed, LifecycleError> {
    run(store, Complete::new(job(), number, 0))
}

/// Opens, uploads, acknowledges and completes with one blob of its own.
fn completed(store: &Store, content: &[u8]) -> (CheckpointNumber, BlobName) {
    let opened = open(store, WRITER);
    let blob = upload(store, opened.intent.place.uid, content);
    ack(store, &opened, &[(blob, content.len() as u64)]).unwrap();
    complete(store, opened.number).unwrap();
    (opened.number, blob)
}

fn abort(store: &Store, number: CheckpointNumber) -> Result<bool, LifecycleError> {
    run(store, Abort::new(job(), number, "test".to_owned()))
}

fn expire(store: &Store, number: CheckpointNumber, uid: Uid) {
    let record = ExpiredRecord { place: Place::new(Role::Expired, &job(), number.get(), uid), reason: String::new() };
    store.create(&Key::expired(&job(), number), encode(&record).unwrap().into()).unwrap();
}

/// Runs a machine, and something else right before the first request that `at` picks.
fn run_with<M: Machine>(
    store: &Store,
    mut machine: M,
    at: impl Fn(&Request) -> bool,
    mut then: impl FnMut(),
) -> Result<M::Output, LifecycleError> {
    let mut replies = Vec::new();
    let mut happened = false;
    loop {
        match machine.step(std::mem::take(&mut replies)) {
            Step::Done(result) => {
                assert!(happened, "the moment never came");
                return result;
            }
            Step::Ask(requests) => {
                if !happened && requests.iter().any(&at) {
                    happened = true;
                    then();
                }
                for request in requests {
                    replies.push(perform(store, &(), request).unwrap());
                }
            }
        }
    }
}

#[test]
fn labels_are_kept_by_whoever_completes() {
    let store = Memory::store();
    let labels = Labels::new([("release".to_owned(), "1.4".to_owned())]).unwrap();
    let opened = run(&store, Open::new(plan(WRITER)).labelled(labels.clone())).unwrap();
    assert_eq!(opened.intent.labels, labels);
    let blob = upload(&store, opened.intent.place.uid, b"one");
    ack(&store, &opened, &[(blob, 3)]).unwrap();
    // The machine knows job and number alone, as that of another process does.
    assert_eq!(complete(&store, opened.number).unwrap().manifest.labels, labels);
    let listing = Catalog::new(store.clone()).job(&job()).unwrap();
    assert_eq!(listing.latest().unwrap().manifest.labels, labels);
    let (number, _) = completed(&store, b"two");
    assert!(
        Catalog::new(store).job(&job()).unwrap().checkpoints[&number].manifest.labels.is_empty(),
        "they are not handed on"
    );
}

#[test]
fn a_checkpoint_is_seen_when_it_is_complete_and_not_before() {
    let store = Memory::store();
    let opened = open(&store, WRITER);
    let catalog = Catalog::new(store.clone());
    let blob = upload(&store, opened.intent.place.uid, b"bytes");
    ack(&store, &opened, &[(blob, 5)]).unwrap();
    let before = catalog.job(&job()).unwrap();
    assert!(before.checkpoints.is_empty());
    assert_eq!(before.open.iter().copied().collect::<Vec<_>>(), [n(1)]);
    let done = complete(&store, opened.number).unwrap();
    assert!(done.now);
    let after = catalog.job(&job()).unwrap();
    assert_eq!((after.latest().unwrap().number, after.open.len()), (n(1), 0));
    // Completing again, at another time, is no error and changes nothing.
    let again = run(&store, Complete::new(job(), opened.number, 99)).unwrap();
    assert!(!again.now);
    assert_eq!(again.manifest.completed_ms, 0);
}

#[test]
fn the_next_one_may_use_the_bases_blobs_and_nothing_else() {
    let store = Memory::store();
    let (first, old) = completed(&store, b"old");
    let next = open(&store, WRITER);
    assert_eq!(next.intent.bases.iter().map(|b| b.number).collect::<Vec<_>>(), [first]);
    assert!(next.bases[0].manifest.is_some());
    ack(&store, &next, &[(old, 3)]).unwrap();
    complete(&store, next.number).unwrap();

    let stranger = BlobName { digest: Digest::of(b"old"), uid: OTHER };
    store.upload_blob(&stranger, BlobSource::Bytes(Bytes::from_static(b"old"))).unwrap();
    let third = open(&store, WRITER);
    ack(&store, &third, &[(stranger, 3)]).unwrap();
    let e = complete(&store, third.number).unwrap_err();
    assert!(matches!(e, LifecycleError::Dangling { .. }), "{e}");
}

#[test]
fn what_is_not_there_is_not_published() {
    for (upload_it, length) in [(false, 5), (true, 6), (true, 4)] {
        let store = Memory::store();
        let opened = open(&store, WRITER);
        let mut blob = BlobName { digest: Digest::of(b"bytes"), uid: opened.intent.place.uid };
        if upload_it {
            blob = upload(&store, opened.intent.place.uid, b"bytes");
        }
        ack(&store, &opened, &[(blob, length)]).unwrap();
        let e = complete(&store, opened.number).unwrap_err();
        assert!(matches!(e, LifecycleError::Dangling { .. }), "{upload_it} {length}: {e}");
        assert!(Catalog::new(store).job(&job()).unwrap().checkpoints.is_empty());
    }
    // A base's blob under another length.
    let store = Memory::store();
    let (_, old) = completed(&store, b"old");
    let next = open(&store, WRITER);
    ack(&store, &next, &[(old, 2)]).unwrap();
    assert!(matches!(complete(&store, next.number), Err(LifecycleError::Dangling { .. })));
}

#[test]
fn missing_and_unexpected_acks_are_named() {
    let store = Memory::store();
    let opened = open(&store, WRITER);
    let e = complete(&store, opened.number).unwrap_err();
    assert!(e.to_string().contains("db/0"), "{e}");
    let mut stranger = manifest(&opened, &[]);
    stranger.place.subtask = Some((Name::encode("db"), 1));
    let e = run(&store, Ack::new(stranger).unwrap()).unwrap_err();
    assert!(matches!(e, LifecycleError::Unexpected { .. }), "{e}");
}

#[test]
fn an_intent_of_another_attempt_is_damage_and_nothing_is_acknowledged() {
    let store = Memory::store();
    let opened = open(&store, WRITER);
    let mut other = manifest(&opened, &[]);
    other.place.uid = OTHER;
    let e = run(&store, Ack::new(other).unwrap()).unwrap_err();
    assert!(e.kind() == Kind::Damage && e.to_string().contains(&OTHER.to_string()), "{e}");
    assert!(matches!(complete(&store, opened.number), Err(LifecycleError::Incomplete { .. })));
}

#[test]
fn the_first_ack_stands() {
    let store = Memory::store();
    let opened = open(&store, WRITER);
    let (a, b) = (upload(&store, opened.intent.place.uid, b"aa"), upload(&store, opened.intent.place.uid, b"bb"));
    ack(&store, &opened, &[(a, 2)]).unwrap();
    let mut again = manifest(&opened, &[(a, 2)]);
    again.new_bytes = 7;
    let stands = run(&store, Ack::new(again).unwrap()).unwrap();
    assert_eq!(stands.manifest.new_bytes, 0);
    assert!(matches!(ack(&store, &opened, &[(b, 2)]), Err(LifecycleError::OtherAck { .. })));
}

#[test]
fn a_decision_is_taken_once() {
    let store = Memory::store();
    let opened = open(&store, WRITER);
    ack(&store, &opened, &[]).unwrap();
    assert!(abort(&store, opened.number).unwrap());
    assert!(!abort(&store, opened.number).unwrap());
    assert!(matches!(complete(&store, opened.number), Err(LifecycleError::Aborted { .. })));
    // Also where an ack is missing: there is nothing to wait for.
    let second = open(&store, WRITER);
    abort(&store, second.number).unwrap();
    assert!(matches!(complete(&store, second.number), Err(LifecycleError::Aborted { .. })));
    let (number, _) = completed(&store, b"x");
    assert!(matches!(abort(&store, number), Err(LifecycleError::Completed { .. })));
    assert!(matches!(abort(&store, n(77)), Err(LifecycleError::NoSuchCheckpoint { .. })));
}

#[test]
fn a_dead_attempt_of_the_same_writer_is_aborted_and_adopted() {
    let store = Memory::store();
    completed(&store, b"base");
    let dead = open(&store, WRITER);
    let uploaded = upload(&store, dead.intent.place.uid, b"uploaded by the dead");
    let next = open(&store, WRITER);
    assert_eq!(next.aborted, [dead.number]);
    assert_eq!(next.intent.bases.iter().map(|b| b.number).collect::<Vec<_>>(), [n(1), dead.number]);
    assert!(next.bases[1].manifest.is_none());
    ack(&store, &next, &[(uploaded, 20)]).unwrap();
    let done = complete(&store, next.number).unwrap();
    assert_eq!(done.expired, [dead.number]);
    // Expired ones are adopted no more.
    assert_eq!(open(&store, WRITER).intent.bases.iter().map(|b| b.number).collect::<Vec<_>>(), [next.number]);
}

#[test]
fn an_adopted_blob_that_is_not_there_is_not_published() {
    let store = Memory::store();
    let dead = open(&store, WRITER);
    let next = open(&store, WRITER);
    let missing = BlobName { digest: Digest::of(b"never sent"), uid: dead.intent.place.uid };
    ack(&store, &next, &[(missing, 10)]).unwrap();
    assert!(matches!(complete(&store, next.number), Err(LifecycleError::Dangling { .. })));
}

#[test]
fn other_writers_and_detached_numbers_are_left_alone() {
    let store = Memory::store();
    let theirs = open(&store, OTHER);
    let detached = run(&store, Open::new(OpenPlan { detached: true, ..plan(WRITER) })).unwrap();
    let ours = open(&store, WRITER);
    assert_eq!(ours.open_elsewhere, [theirs.number, detached.number]);
    assert!(ours.aborted.is_empty());
    for opened in [theirs, detached] {
        ack(&store, &opened, &[]).unwrap();
        complete(&store, opened.number).unwrap();
    }
}

#[test]
fn a_base_that_expires_after_the_intent_is_given_up() {
    let store = Memory::store();
    let (first, old) = completed(&store, b"one");
    let (second, _) = completed(&store, b"two");
    let uid = super::catalog::outcome(&store, &job(), second).unwrap().unwrap().place.uid;
    let at = |r: &Request| matches!(r, Request::Get(k) if *k == Key::expired(&job(), second));
    let opened = run_with(&store, Open::new(plan(WRITER)), at, || expire(&store, second, uid)).unwrap();
    assert_eq!(opened.intent.bases[0].number, first);
    assert_eq!(opened.number, n(4));
    assert!(matches!(complete(&store, n(3)), Err(LifecycleError::Aborted { .. })));
    let outcome = super::catalog::outcome(&store, &job(), n(3)).unwrap().unwrap();
    assert!(matches!(outcome.verdict, crate::format::Verdict::Aborted { .. }));
    ack(&store, &opened, &[(old, 3)]).unwrap();
    complete(&store, opened.number).unwrap();
}

#[test]
fn a_floor_that_passes_a_base_after_the_intent_is_seen() {
    let store = Memory::store();
    let (first, _) = completed(&store, b"one");
    let at = |r: &Request| matches!(r, Request::Get(k) if *k == Key::expired(&job(), first));
    let floor = || {
        let place = Place::new(Role::Floor, &job(), 2, Uid::random().unwrap());
        let record = FloorRecord { place, survivors: Vec::new(), uids: Vec::new() };
        store.create(&Key::floor(&job(), n(2)), encode(&record).unwrap().into()).unwrap();
    };
    let opened = run_with(&store, Open::new(plan(WRITER)), at, floor).unwrap();
    assert!(opened.intent.bases.iter().all(|b| b.number != first));
    assert!(Catalog::new(store).job(&job()).unwrap().checkpoints.is_empty());
}

#[test]
fn a_coordinator_that_was_taken_over_publishes_nothing() {
    let store = Memory::store();
    completed(&store, b"one");
    let take_over = || {
        let machine = TakeOver::new(job(), Uid::random().unwrap(), OTHER, "host".to_owned());
        run(&store, machine).unwrap()
    };
    // Taken over while it opens: after the intent, before the look.
    let epochs = crate::types::Prefix::job(crate::types::RecordKind::Epoch, &job());
    let seen = std::cell::Cell::new(0);
    let at = |r: &Request| {
        if matches!(r, Request::List(p) if *p == epochs) {
            seen.set(seen.get() + 1);
        }
        seen.get() == 2
    };
    let e = run_with(&store, Open::new(plan(WRITER)), at, || drop(take_over())).unwrap_err();
    assert!(matches!(e, LifecycleError::Fenced { .. }), "{e}");
    // Opened before, taken over, completed after: the take-over's abort was first.
    let opened = open(&store, WRITER);
    ack(&store, &opened, &[]).unwrap();
    let reign = take_over();
    assert_eq!((reign.epoch, reign.aborted), (Epoch(2), vec![opened.number]));
    assert!(matches!(complete(&store, opened.number), Err(LifecycleError::Aborted { .. })));
    // The old epoch's coordinator cannot open any more; one of the ruling epoch can.
    let old = OpenPlan { epoch: Some(Epoch(1)), ..plan(WRITER) };
    assert!(matches!(run(&store, Open::new(old)), Err(LifecycleError::Fenced { .. })));
    run(&store, Open::new(OpenPlan { epoch: Some(Epoch(2)), ..plan(OTHER) })).unwrap();
}

#[test]
fn numbers_are_never_used_twice() {
    let store = Memory::store();
    let (first, _) = completed(&store, b"one");
    let chosen = |number| run(&store, Open::new(OpenPlan { number: Some(number), ..plan(WRITER) }));
    assert!(matches!(chosen(first), Err(LifecycleError::NumberTaken { .. })));
    assert_eq!(chosen(n(10)).unwrap().number, n(10));
    assert_eq!(open(&store, OTHER).number, n(11));
    // A rival takes the number between the list and the create.
    let at = |r: &Request| matches!(r, Request::Create(k, _) if *k == Key::intent(&job(), n(12)));
    let opened = run_with(&store, Open::new(plan(WRITER)), at, || drop(open(&store, OTHER))).unwrap();
    assert_eq!(opened.number, n(13));
}

#[test]
fn a_job_restored_from_another_job_may_use_its_blobs() {
    let store = Memory::store();
    let (first, old) = completed(&store, b"shared");
    let uid = super::catalog::outcome(&store, &job(), first).unwrap().unwrap().place.uid;
    let base = BaseRef { job: job(), number: first, uid };
    let clone = Name::encode("clone");
    let opened =
        run(&store, Open::new(OpenPlan { job: clone.clone(), restored_from: Some(base), ..plan(OTHER) })).unwrap();
    let mut task = manifest(&opened, &[(old, 6)]);
    task.place.job = Some(clone.clone());
    run(&store, Ack::new(task).unwrap()).unwrap();
    run(&store, Complete::new(clone.clone(), opened.number, 0)).unwrap();
    assert_eq!(Catalog::new(store).job(&clone).unwrap().checkpoints.len(), 1);
}

#[test]
fn a_damaged_outcome_is_no_base_and_is_told() {
    let store = Memory::store();
    let (first, _) = completed(&store, b"one");
    let (second, _) = completed(&store, b"two");
    let key = Key::outcome(&job(), second);
    let mut bytes = store.get(&key, 1 << 20).unwrap().unwrap().to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    store.delete(&key).unwrap();
    store.create(&key, bytes.into()).unwrap();
    let opened = open(&store, WRITER);
    assert_eq!(opened.intent.bases.iter().map(|b| b.number).collect::<Vec<_>>(), [first]);
    assert_eq!(opened.unreadable.len(), 1);
    let listing = Catalog::new(store).job(&job()).unwrap();
    assert_eq!((listing.checkpoints.len(), listing.unreadable.len()), (1, 1));
}
