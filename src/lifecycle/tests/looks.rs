//! What `open`, the sweep and the driver see when the store holds more than the usual, and what they must not take for it.

use std::sync::Mutex;

use super::*;
use crate::format::records::{PinHolder, PinRecord};
use crate::lifecycle::driver::Companion;
use crate::lifecycle::expire::Expire;
use crate::lifecycle::machine::Reply;
use crate::lifecycle::pin::{Pin, PinRef, Unpin};
use crate::lifecycle::survey::Survey;
use crate::lifecycle::sweep::{Execute, Plan, SweepOptions, SweepPlan, Swept};
use crate::limits;

fn planned(store: &Store) -> SweepPlan {
    run(store, Plan::new(SweepOptions::default())).unwrap()
}

fn dies(store: &Store, number: CheckpointNumber) {
    run(store, Expire::new(job(), number, String::new())).unwrap();
}

fn pinned(store: &Store, number: CheckpointNumber) -> PinRef {
    let pin = PinRef { job: job(), number, holder: OTHER, nonce: Uid::random().unwrap() };
    run(store, Pin::new(pin.clone(), PinHolder::Writer, 0)).unwrap();
    pin
}

/// A checkpoint that names a blob of an older one.
fn names(store: &Store, blob: BlobName, length: u64) -> CheckpointNumber {
    let opened = open(store, WRITER);
    ack(store, &opened, &[(blob, length)]).unwrap();
    complete(store, opened.number).unwrap();
    opened.number
}

#[test]
fn what_a_dead_base_of_an_open_one_names_is_kept_whoever_uploaded_it() {
    let store = Memory::store();
    let (first, blob) = completed(&store, b"shared");
    let second = names(&store, blob, 6);
    let opened = open(&store, WRITER);
    assert_eq!(opened.intent.bases.iter().map(|b| b.number).collect::<Vec<_>>(), [second]);
    for number in [first, second] {
        dies(&store, number);
    }
    let plan = planned(&store);
    assert_eq!((plan.doomed.len(), plan.kept_blobs), (0, 1));
    let needed: Vec<_> = plan.jobs[&job()].needed.iter().copied().collect();
    assert_eq!(needed, [second, opened.number], "the open one and its base");
    ack(&store, &opened, &[(blob, 6)]).unwrap();
    complete(&store, opened.number).unwrap();
    assert_eq!(run(&store, Execute::new(&planned(&store), false)).unwrap(), Swept::default());
}

#[test]
fn a_pin_is_charged_with_what_nothing_else_keeps() {
    let store = Memory::store();
    let opened = open(&store, WRITER);
    let uid = opened.intent.place.uid;
    let (shared, own, more) =
        (upload(&store, uid, b"shared"), upload(&store, uid, b"own"), upload(&store, uid, b"more"));
    ack(&store, &opened, &[(shared, 6), (own, 3), (more, 4)]).unwrap();
    complete(&store, opened.number).unwrap();
    names(&store, shared, 6);
    pinned(&store, opened.number);
    dies(&store, opened.number);
    let plan = planned(&store);
    assert_eq!((plan.held.len(), plan.held[0].blobs, plan.held[0].bytes), (1, 2, 7));
}

#[test]
fn a_pin_is_not_charged_with_what_an_older_one_keeps() {
    let store = Memory::store();
    let (_, blob) = completed(&store, b"shared");
    let second = names(&store, blob, 6);
    pinned(&store, second);
    dies(&store, second);
    let plan = planned(&store);
    assert_eq!((plan.held.len(), plan.held[0].blobs, plan.held[0].bytes), (1, 0, 0));
    assert_eq!(plan.kept_blobs, 1);
}

#[test]
fn a_pin_is_not_charged_with_uploads_that_stay_anyway() {
    let store = Memory::store();
    let aborted = open(&store, WRITER);
    let uploaded = upload(&store, aborted.intent.place.uid, b"uploaded");
    abort(&store, aborted.number).unwrap();
    let second = names(&store, uploaded, 8);
    pinned(&store, second);
    dies(&store, second);
    assert_eq!(planned(&store).held[0].bytes, 8);
    // Not dead yet, it keeps its uploads itself.
    store.delete(&Key::expired(&job(), aborted.number)).unwrap();
    let plan = planned(&store);
    assert_eq!((plan.held[0].blobs, plan.held[0].bytes, plan.kept_blobs), (0, 0, 1));
}

#[test]
fn a_dead_attempt_keeps_nothing_under_a_pin() {
    let store = Memory::store();
    let aborted = open(&store, WRITER);
    let uid = aborted.intent.place.uid;
    let uploaded = upload(&store, uid, b"uploaded");
    abort(&store, aborted.number).unwrap();
    expire(&store, aborted.number, uid);
    let mut place = Place::new(Role::Pin, &job(), aborted.number.get(), uid);
    (place.holder, place.nonce) = (Some(OTHER), Some(OTHER));
    let pin = PinRecord { place, holder: PinHolder::Writer, pinned_ms: 0 };
    store.create(&pin.place.key().unwrap(), encode(&pin).unwrap().into()).unwrap();
    let plan = planned(&store);
    assert_eq!((plan.doomed.as_slice(), plan.kept_blobs), (&[(uploaded, 8)][..], 0));
}

#[test]
fn any_record_of_a_checkpoint_says_that_this_is_the_place() {
    let place = |role, uid| Place::new(role, &job(), 3, uid);
    let open_only = |store: &Store| drop(open(store, OTHER));
    let outcome_only = |store: &Store| {
        let opened = open(store, OTHER);
        abort(store, opened.number).unwrap();
        store.delete(&Key::intent(&job(), opened.number)).unwrap();
    };
    let expired_only = |store: &Store| expire(store, n(3), OTHER);
    let floor_only = |store: &Store| {
        let record = FloorRecord { place: place(Role::Floor, OTHER), survivors: Vec::new(), uids: Vec::new() };
        store.create(&Key::floor(&job(), n(3)), encode(&record).unwrap().into()).unwrap();
    };
    for (i, only) in [&open_only as &dyn Fn(&Store), &outcome_only, &expired_only, &floor_only].iter().enumerate() {
        let store = Memory::store();
        upload(&store, WRITER, b"whose?");
        let refused = run(&store, Plan::new(SweepOptions::default()));
        assert!(matches!(refused, Err(LifecycleError::NotSwept { .. })), "{i}: {refused:?}");
        only(&store);
        assert_eq!(planned(&store).foreign.len(), 1, "{i}");
    }
}

#[test]
fn a_number_is_taken_by_its_intent_or_its_outcome_alone() {
    let store = Memory::store();
    let opened = open(&store, OTHER);
    let chosen = |number| run(&store, Open::new(OpenPlan { number: Some(number), ..plan(WRITER) }));
    let taken = |e: LifecycleError| matches!(e, LifecycleError::NumberTaken { what: "it was begun before", .. });
    assert!(taken(chosen(opened.number).unwrap_err()));
    abort(&store, opened.number).unwrap();
    store.delete(&Key::intent(&job(), opened.number)).unwrap();
    assert!(taken(chosen(opened.number).unwrap_err()));
}

#[test]
fn a_run_of_dead_attempts_is_adopted_as_far_as_an_intent_has_room() {
    let store = Memory::store();
    completed(&store, b"base");
    for _ in 0..limits::BASES + 3 {
        open(&store, WRITER);
    }
    let bases = open(&store, WRITER).intent.bases;
    assert_eq!(bases.len(), 1 + limits::BASES - 2);
    assert_eq!(bases[0].number, n(1));
}

#[test]
fn a_dead_base_is_not_used_under_the_pin_of_another_number() {
    let store = Memory::store();
    let (first, blob) = completed(&store, b"one");
    let (second, _) = completed(&store, b"two");
    let other = pinned(&store, second);
    dies(&store, first);
    let from = BaseRef { job: job(), number: first, uid: blob.uid };
    let of = |pins: Vec<PinRef>| OpenPlan {
        job: Name::encode("clone"),
        restored_from: Some(from.clone()),
        pinned: pins,
        ..plan(OTHER)
    };
    let opened = run(&store, Open::new(of(vec![other.clone()]))).unwrap();
    assert!(opened.intent.bases.iter().all(|b| b.uid != blob.uid), "it is lost");
    assert_eq!(opened.number, n(2), "and the number with it");
    // Nor is the right one overlooked behind it: but what is dead is not pinned any more.
    let late = PinRef { job: job(), number: first, holder: OTHER, nonce: WRITER };
    assert!(matches!(
        run(&store, Pin::new(late, PinHolder::Writer, 0)),
        Err(LifecycleError::Dead { why: "it is expired", .. })
    ));
}

#[test]
fn a_floor_of_the_job_that_was_restored_is_looked_at() {
    let store = Memory::store();
    let (first, blob) = completed(&store, b"one");
    let from = BaseRef { job: job(), number: first, uid: blob.uid };
    let plan = OpenPlan { job: Name::encode("clone"), restored_from: Some(from), ..plan(OTHER) };
    let at = |r: &Request| matches!(r, Request::Get(k) if *k == Key::expired(&job(), first));
    let opened = run_with(&store, Open::new(plan), at, || {
        let place = Place::new(Role::Floor, &job(), 2, Uid::random().unwrap());
        let record = FloorRecord { place, survivors: Vec::new(), uids: Vec::new() };
        store.create(&Key::floor(&job(), n(2)), encode(&record).unwrap().into()).unwrap();
    });
    assert!(opened.unwrap().intent.bases.iter().all(|b| b.uid != blob.uid));
}

#[test]
fn who_chose_the_number_or_has_no_try_left_is_told_that_the_base_died() {
    for (number, uids) in [(Some(n(9)), 4), (None, 1)] {
        let store = Memory::store();
        let (first, blob) = completed(&store, b"one");
        let uids = (0..uids).map(|_| Uid::random().unwrap()).collect();
        let plan = OpenPlan { number, uids, ..plan(WRITER) };
        let at = |r: &Request| matches!(r, Request::Get(k) if *k == Key::expired(&job(), first));
        let refused = run_with(&store, Open::new(plan), at, || expire(&store, first, blob.uid)).unwrap_err();
        assert!(matches!(refused, LifecycleError::NoUsableBase { tries: 1, .. }), "{refused}");
    }
}

#[derive(Default)]
struct Shelf {
    kept: Mutex<Vec<Digest>>,
    has: Option<(Digest, Bytes)>,
}

impl Companion for Shelf {
    fn manifest(&self, digest: &Digest) -> Option<Bytes> {
        self.has.as_ref().filter(|(of, _)| of == digest).map(|(_, bytes)| bytes.clone())
    }

    fn keep_manifest(&self, digest: &Digest, bytes: &Bytes) {
        assert_eq!(Digest::of(bytes), *digest);
        self.kept.lock().unwrap().push(*digest);
    }
}

#[test]
fn a_companion_keeps_the_manifests_that_are_what_they_should_be() {
    let store = Memory::store();
    let (first, _) = completed(&store, b"one");
    let key = Key::task(&job(), first, &Name::encode("db"), 0);
    let bytes = store.get(&key, 1 << 20).unwrap().unwrap();
    let (digest, other) = (Digest::of(&bytes), Digest::of(b"another"));
    let ask = |shelf: &Shelf, digest| match perform(&store, shelf, Request::Manifest(key.clone(), digest)) {
        Ok(Reply::Got(bytes)) => bytes.unwrap(),
        reply => panic!("{reply:?}"),
    };
    let shelf = Shelf::default();
    assert_eq!((ask(&shelf, other), ask(&shelf, digest)), (bytes.clone(), bytes));
    assert_eq!(*shelf.kept.lock().unwrap(), [digest]);
    let full = Shelf { has: Some((other, Bytes::from_static(b"another"))), ..Shelf::default() };
    assert_eq!(ask(&full, other), Bytes::from_static(b"another"));
    assert!(full.kept.lock().unwrap().is_empty());
}

#[test]
fn a_machine_that_is_told_something_else_is_confused() {
    let mut unpin = Unpin::new(vec![PinRef { job: job(), number: n(1), holder: OTHER, nonce: WRITER }]);
    assert!(matches!(unpin.step(Vec::new()), Step::Ask(asked) if asked.len() == 1));
    assert!(matches!(unpin.step(vec![Reply::Listed(Vec::new())]), Step::Done(Err(LifecycleError::Confused))));
}

#[test]
fn every_floor_counts_and_not_only_the_highest() {
    let mut survey = Survey::default();
    let floor = |number: u64, survivors: &[u64]| {
        let place = Place::new(Role::Floor, &job(), number, WRITER);
        let record = FloorRecord { place, survivors: survivors.iter().copied().map(n).collect(), uids: Vec::new() };
        Reply::Got(Some(encode(&record).unwrap().into()))
    };
    let keys = [3, 7].map(|f| Key::floor(&job(), n(f)));
    survey.floors.take_list(&keys);
    survey.floors.take(&job(), vec![floor(3, &[1]), floor(7, &[1, 2, 4, 5, 6])]).unwrap();
    assert_eq!(survey.floors.alive_below_highest(), [1, 4, 5, 6].map(n).into());
    survey.intents = [1, 2, 3, 4, 5, 6, 8].map(n).into();
    (survey.outcomes, survey.expired) = ([4, 6].map(n).into(), [5, 6].map(n).into());
    assert_eq!(survey.undecided().collect::<Vec<_>>(), [1, 8].map(n));
    assert_eq!(survey.decided().collect::<Vec<_>>(), [4].map(n));
    assert_eq!(survey.next_number(), Some(n(9)));
    survey.intents.remove(&n(8));
    assert_eq!(survey.next_number(), Some(n(8)), "above the highest floor");
    assert_eq!(Survey::default().next_number(), Some(CheckpointNumber::FIRST));
}

#[test]
fn a_take_over_that_was_taken_over_ends() {
    let store = Memory::store();
    let opened = open(&store, WRITER);
    let epochs = crate::types::Prefix::job(crate::types::RecordKind::Epoch, &job());
    let seen = std::cell::Cell::new(0);
    // It looks once for the last epoch, and once behind its own.
    let at = |r: &Request| {
        seen.set(seen.get() + u32::from(matches!(r, Request::List(p) if *p == epochs)));
        seen.get() == 2
    };
    let reign = || TakeOver::new(job(), Uid::random().unwrap(), OTHER, "host".to_owned());
    let rival = std::cell::RefCell::new(None);
    let ended = run_with(&store, reign(), at, || *rival.borrow_mut() = Some(run(&store, reign()).unwrap()));
    assert!(matches!(ended, Err(LifecycleError::Fenced { ruling: Epoch(2), own: Epoch(1), .. })), "{ended:?}");
    assert_eq!(rival.into_inner().unwrap().aborted, [opened.number]);
}
