//! Pin, expire, hide, sweep and forget on a store in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::format::records::PinHolder;
use crate::lifecycle::expire::Expire;
use crate::lifecycle::forget::{Forget, Forgotten};
use crate::lifecycle::hide::{Hide, Unhide};
use crate::lifecycle::pin::{Pin, PinRef, Unpin};
use crate::lifecycle::sweep::{Execute, Fate, Numbers, Plan, StillThere, SweepOptions, SweepPlan, Swept};
use crate::store::StoreOptions;

fn dies(store: &Store, number: CheckpointNumber) -> Result<bool, LifecycleError> {
    run(store, Expire::new(job(), number, "test".to_owned()))
}

fn planned(store: &Store) -> SweepPlan {
    run(store, Plan::new(SweepOptions::default())).unwrap()
}

fn sweep(store: &Store) -> Swept {
    run(store, Execute::new(&planned(store), false)).unwrap()
}

/// Sweeps, and forgets whatever may be.
fn gc(store: &Store) -> Option<CheckpointNumber> {
    let plan = planned(store);
    run(store, Execute::new(&plan, false)).unwrap();
    let numbers = plan.jobs.get(&job()).cloned().unwrap_or_default();
    run(store, Forget::new(job(), numbers, Uid::random().unwrap(), 1)).unwrap().floor
}

fn pin_of(number: CheckpointNumber) -> PinRef {
    PinRef { job: job(), number, holder: OTHER, nonce: Uid::random().unwrap() }
}

fn pinned(store: &Store, pin: &PinRef) -> Result<Uid, LifecycleError> {
    run(store, Pin::new(pin.clone(), PinHolder::Person { note: "test".to_owned() }, 0))
}

fn blobs(store: &Store) -> Vec<BlobName> {
    store.blobs().unwrap().into_iter().map(|(name, _)| name).collect()
}

/// A checkpoint that takes over a blob and brings one.
fn grown(store: &Store, old: BlobName, length: u64, content: &[u8]) -> (CheckpointNumber, BlobName) {
    let opened = open(store, WRITER);
    let blob = upload(store, opened.intent.place.uid, content);
    ack(store, &opened, &[(old, length), (blob, content.len() as u64)]).unwrap();
    complete(store, opened.number).unwrap();
    (opened.number, blob)
}

#[test]
fn what_only_the_dead_needed_goes() {
    let store = Memory::store();
    let (first, shared) = completed(&store, b"shared");
    let (second, own) = grown(&store, shared, 6, b"only second");
    let (_, newest) = grown(&store, shared, 6, b"newest");
    assert_eq!(sweep(&store), Swept::default(), "all live");
    assert!(dies(&store, first).unwrap() && dies(&store, second).unwrap());
    assert!(!dies(&store, first).unwrap(), "it was dead before");
    let plan = planned(&store);
    assert_eq!(plan.doomed, [(own, 11)]);
    let why = plan.why.get(&own.uid).unwrap();
    assert_eq!((why.at.clone(), why.fate, why.blobs, why.bytes), (Some((job(), second)), Fate::Expired, 1, 11));
    assert_eq!((plan.kept_blobs, plan.kept_bytes), (2, 12));
    assert_eq!(sweep(&store), Swept { blobs: 1, bytes: 11 });
    let mut left = blobs(&store);
    left.sort();
    let mut kept = vec![shared, newest];
    kept.sort();
    assert_eq!(left, kept);
    assert_eq!(sweep(&store), Swept::default());
}

#[test]
fn open_ones_their_bases_and_attempts_that_may_be_adopted_are_kept() {
    let store = Memory::store();
    let (first, base) = completed(&store, b"base");
    let opened = open(&store, WRITER);
    let early = upload(&store, opened.intent.place.uid, b"on its way");
    dies(&store, first).unwrap();
    assert_eq!(sweep(&store), Swept::default(), "the open one names it as its base");
    assert!(matches!(dies(&store, opened.number), Err(LifecycleError::Undecided { .. })));
    abort(&store, opened.number).unwrap();
    assert_eq!(sweep(&store), Swept { blobs: 1, bytes: 4 }, "the base goes, the upload may be adopted");
    assert_eq!(blobs(&store), [early]);
    let next = open(&store, WRITER);
    ack(&store, &next, &[(early, 10)]).unwrap();
    complete(&store, next.number).unwrap();
    assert_eq!(sweep(&store), Swept::default(), "named by a completed one");
    let _ = base;
}

#[test]
fn a_pin_keeps_the_dead_and_comes_too_late_for_them() {
    let store = Memory::store();
    let (first, only) = completed(&store, b"only first");
    completed(&store, b"second");
    let pin = pin_of(first);
    pinned(&store, &pin).unwrap();
    let other = run(&store, Pin::new(pin.clone(), PinHolder::Writer, 0));
    assert!(matches!(other, Err(LifecycleError::NameTaken { .. })), "a name is used once");
    dies(&store, first).unwrap();
    let plan = planned(&store);
    assert_eq!(plan.doomed, []);
    assert_eq!(plan.held.len(), 1);
    assert_eq!((&plan.held[0].at.1, &plan.held[0].pins[..], plan.held[0].bytes), (&first, &[pin.clone()][..], 10));
    assert!(Catalog::new(store.clone()).checkpoint(&job(), first).unwrap().pinned);
    // Nobody can begin to read it now, not even beside the other pin.
    let late = pin_of(first);
    assert!(matches!(pinned(&store, &late), Err(LifecycleError::Dead { .. })));
    assert_eq!(Catalog::new(store.clone()).pins(None).unwrap().len(), 1, "what was refused leaves nothing");
    run(&store, Unpin::new(vec![pin])).unwrap();
    assert_eq!(sweep(&store), Swept { blobs: 1, bytes: 10 });
    assert!(!blobs(&store).contains(&only));
    assert!(Catalog::new(store).checkpoint(&job(), first).is_err());
}

#[test]
fn a_pin_that_a_tombstone_overtakes_is_refused() {
    let store = Memory::store();
    let (first, _) = completed(&store, b"first");
    let at = |r: &Request| matches!(r, Request::Get(k) if *k == Key::expired(&job(), first));
    let machine = Pin::new(pin_of(first), PinHolder::Writer, 0);
    let refused = run_with(&store, machine, at, || drop(dies(&store, first)));
    assert!(matches!(refused, Err(LifecycleError::Dead { .. })));
}

#[test]
fn an_expired_base_may_be_used_under_an_own_pin_while_it_is_there() {
    let store = Memory::store();
    let (first, blob) = completed(&store, b"cloned from");
    let uid = blob.uid;
    let pin = pin_of(first);
    pinned(&store, &pin).unwrap();
    dies(&store, first).unwrap();
    let from = BaseRef { job: job(), number: first, uid };
    let clone = Name::encode("clone");
    let of_clone =
        || OpenPlan { job: clone.clone(), restored_from: Some(from.clone()), pinned: vec![pin.clone()], ..plan(OTHER) };
    let opened = run(&store, Open::new(of_clone())).unwrap();
    assert_eq!(opened.intent.bases, std::slice::from_ref(&from));
    let mut task = manifest(&opened, &[(blob, 11)]);
    task.place.job = Some(clone.clone());
    run(&store, Ack::new(task).unwrap()).unwrap();
    run(&store, Complete::new(clone.clone(), opened.number, 0)).unwrap();
    // The pin goes after the intent was created: the look sees it, and the next try does without that base.
    let at = |r: &Request| matches!(r, Request::Get(k) if *k == pin.key());
    let opened = run_with(&store, Open::new(of_clone()), at, || {
        run(&store, Unpin::new(vec![pin.clone()])).unwrap();
    });
    assert!(opened.unwrap().intent.bases.iter().all(|b| b.uid != uid));
    assert_eq!(sweep(&store), Swept::default(), "the clone's checkpoint names it");
}

#[test]
fn the_pin_of_a_base_is_found_behind_those_of_others() {
    let store = Memory::store();
    let (first, blob) = completed(&store, b"cloned from");
    let (second, _) = completed(&store, b"another");
    let (right, other) = (pin_of(first), pin_of(second));
    pinned(&store, &right).unwrap();
    pinned(&store, &other).unwrap();
    dies(&store, first).unwrap();
    let from = BaseRef { job: job(), number: first, uid: blob.uid };
    let (job, restored_from) = (Name::encode("clone"), Some(from.clone()));
    let plan = OpenPlan { job, restored_from, pinned: vec![other, right], ..plan(OTHER) };
    assert_eq!(run(&store, Open::new(plan)).unwrap().intent.bases, [from]);
}

#[test]
fn a_base_whose_number_is_another_checkpoints_is_lost() {
    let store = Memory::store();
    let (first, _) = completed(&store, b"another");
    let from = BaseRef { job: job(), number: first, uid: Uid::from_bytes([7; 16]) };
    let plan = OpenPlan { job: Name::encode("clone"), restored_from: Some(from), ..plan(OTHER) };
    let opened = run(&store, Open::new(plan)).unwrap();
    // What it has is the attempt that it gave up.
    assert!(opened.number == n(2) && opened.intent.bases.iter().all(|b| b.job != job()), "{opened:?}");
}

#[test]
fn a_floor_that_would_list_too_many_survivors_is_not_made() {
    let most = crate::limits::FLOOR_ENTRIES as u64;
    let mut numbers = Numbers { begun: (1..=most + 1).map(n).collect(), ..Numbers::default() };
    // All that is dead lies above as many survivors as a floor may have.
    numbers.dead.insert(n(most + 1));
    numbers.uids.insert(n(most + 1), WRITER);
    let step = Forget::new(job(), numbers, OTHER, 1).step(Vec::new());
    assert!(matches!(step, Step::Done(Ok(done)) if done == Forgotten::default()));
}

#[test]
fn hidden_ones_come_back_and_keep_everything() {
    let store = Memory::store();
    let (first, _) = completed(&store, b"first");
    let listing = || Catalog::new(store.clone()).job(&job()).unwrap();
    assert!(run(&store, Hide::new(job(), first, OTHER, 0)).unwrap());
    assert!(listing().visible().next().is_none() && listing().checkpoints[&first].hidden);
    assert_eq!(sweep(&store), Swept::default());
    assert_eq!(open(&store, WRITER).intent.bases.len(), 1, "it may be a base");
    assert!(run(&store, Unhide::new(job(), first)).unwrap());
    assert!(!run(&store, Unhide::new(job(), first)).unwrap());
    assert_eq!(listing().visible().count(), 1);
    dies(&store, first).unwrap();
    assert!(matches!(run(&store, Hide::new(job(), first, WRITER, 0)), Err(LifecycleError::Dead { .. })));
}

#[test]
fn nothing_is_deleted_when_anything_cannot_be_read() {
    let damage = |store: &Store, key: &Key| {
        let mut bytes = store.get(key, 1 << 20).unwrap().unwrap().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        store.delete(key).unwrap();
        store.create(key, bytes.into()).unwrap();
    };
    let keys = |n: CheckpointNumber, open: CheckpointNumber| {
        [Key::outcome(&job(), n), Key::task(&job(), n, &Name::encode("db"), 0), Key::intent(&job(), open)]
    };
    for which in 0..3 {
        let store = Memory::store();
        let (first, _) = completed(&store, b"first");
        let (second, _) = completed(&store, b"second");
        let opened = open(&store, OTHER);
        dies(&store, first).unwrap();
        damage(&store, &keys(second, opened.number)[which]);
        let refused = run(&store, Plan::new(SweepOptions::default()));
        assert!(matches!(refused, Err(LifecycleError::Format { .. })), "{which}: {refused:?}");
    }
}

#[test]
fn blobs_without_any_record_are_left_alone_and_foreign_ones_told() {
    let store = Memory::store();
    let stranger = upload(&store, OTHER, b"whose?");
    assert!(matches!(run(&store, Plan::new(SweepOptions::default())), Err(LifecycleError::NotSwept { .. })));
    assert_eq!(run(&store, Plan::new(SweepOptions { without_records: true })).unwrap().foreign, [(stranger, 6)]);
    completed(&store, b"first");
    let plan = planned(&store);
    assert_eq!((plan.foreign.clone(), plan.doomed.len()), (vec![(stranger, 6)], 0));
    assert_eq!(run(&store, Execute::new(&plan, false)).unwrap(), Swept::default());
    assert_eq!(run(&store, Execute::new(&plan, true)).unwrap(), Swept { blobs: 1, bytes: 6 });
}

#[test]
fn what_went_away_since_the_list_is_not_told_as_foreign() {
    let store = Memory::store();
    completed(&store, b"first");
    let strangers = [b"stay", b"goes", b"rest"].map(|content| upload(&store, OTHER, content));
    let foreign = planned(&store).foreign;
    store.delete(&Key::blob(&strangers[1])).unwrap();
    let there: Vec<_> = foreign.iter().filter(|(name, _)| *name != strangers[1]).copied().collect();
    assert_eq!((foreign.len(), there.len()), (3, 2));
    assert_eq!(run(&store, StillThere::new(foreign)).unwrap(), there);
    assert_eq!(run(&store, StillThere::new(Vec::new())).unwrap(), []);
}

fn records(store: &Store) -> Vec<String> {
    let all = store.list(&crate::types::Prefix::all()).unwrap();
    all.into_iter().map(|l| l.key.to_string()).filter(|k| !k.starts_with("blobs/")).collect()
}

#[test]
fn floors_forget_the_dead_and_list_the_survivors() {
    let store = Memory::store();
    let (one, shared) = completed(&store, b"shared");
    let (two, _) = grown(&store, shared, 6, b"kept for good");
    let (three, _) = grown(&store, shared, 6, b"three");
    let (four, _) = grown(&store, shared, 6, b"four");
    for n in [one, three] {
        dies(&store, n).unwrap();
    }
    assert_eq!(gc(&store), Some(n(4)));
    let floor = store.get(&Key::floor(&job(), n(4)), 1 << 20).unwrap().unwrap();
    let floor: FloorRecord = crate::format::decode(&floor).unwrap().record;
    assert_eq!(floor.survivors, [two]);
    assert_eq!(floor.uids, [shared.uid], "its blob lives on in others");
    assert!(
        records(&store).iter().all(|k| !k.contains(&one.key()) && !k.contains(&three.key())),
        "{:?}",
        records(&store)
    );
    assert_eq!(gc(&store), None, "nothing to do");
    let listed: Vec<_> = Catalog::new(store.clone()).job(&job()).unwrap().checkpoints.into_keys().collect();
    assert_eq!(listed, [two, four]);
    // A survivor dies later: its floor lies in between, and the highest one alone is not to be believed.
    dies(&store, two).unwrap();
    assert_eq!(gc(&store), Some(n(3)));
    assert!(Catalog::new(store.clone()).checkpoint(&job(), two).is_err());
    let given = OpenPlan { number: Some(two), ..plan(OTHER) };
    assert!(matches!(run(&store, Open::new(given)), Err(LifecycleError::NumberTaken { .. })));
    // The blob's uploader is long forgotten, and known to a floor.
    dies(&store, four).unwrap();
    let plan = planned(&store);
    assert!(plan.why[&shared.uid].fate == Fate::Forgotten && plan.foreign.is_empty());
}

#[test]
fn unused_numbers_below_a_floor_can_still_be_begun() {
    let store = Memory::store();
    let given = |number| OpenPlan { number: Some(n(number)), ..plan(WRITER) };
    let opened = run(&store, Open::new(given(5))).unwrap();
    abort(&store, opened.number).unwrap();
    dies(&store, n(5)).unwrap();
    // Between the sweep's looks and its floor somebody begins an unused number.
    let plan = planned(&store);
    let early = run(&store, Open::new(given(3))).unwrap();
    let numbers = plan.jobs[&job()].clone();
    assert_eq!(run(&store, Forget::new(job(), numbers, OTHER, 1)).unwrap().floor, Some(n(6)));
    let blob = upload(&store, early.intent.place.uid, b"bytes");
    ack(&store, &early, &[(blob, 5)]).unwrap();
    complete(&store, early.number).unwrap();
    assert_eq!(sweep(&store), Swept::default());
    assert_eq!(Catalog::new(store).checkpoint(&job(), n(3)).unwrap().number, n(3));
}

/// What a sweep forgets between the lists of a reader that knows the outcome is dead, whichever list came first.
#[test]
fn what_is_forgotten_amid_a_listing_is_not_back_from_the_dead() {
    let memory = Arc::new(Memory::new());
    let store = Store::from_backend(memory.clone(), "memory://", StoreOptions::default());
    let (one, _) = completed(&store, b"one");
    let (two, _) = completed(&store, b"two");
    let catalog = Catalog::new(store.clone());
    assert_eq!(catalog.job(&job()).unwrap().checkpoints.len(), 2);
    dies(&store, one).unwrap();
    let (floors, begun) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    memory.fail_when(move |what, key| {
        if what == "list" && key.starts_with("floor/") {
            floors.store(true, Ordering::SeqCst);
        }
        if what == "list" && key.starts_with("expired/") && !begun.swap(true, Ordering::SeqCst) {
            // A listing that asks for floors beside the tombstones has asked by then.
            let waited = Instant::now();
            while !floors.load(Ordering::SeqCst) && waited.elapsed() < Duration::from_millis(200) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(20));
            assert!(gc(&store).is_some());
        }
        false
    });
    let shown: Vec<_> = catalog.job(&job()).unwrap().checkpoints.into_keys().collect();
    assert_eq!(shown, [two]);
}

#[test]
fn pinned_and_needed_numbers_are_survivors() {
    let store = Memory::store();
    let (one, _) = completed(&store, b"one");
    let (two, _) = completed(&store, b"two");
    completed(&store, b"three");
    let pin = pin_of(one);
    pinned(&store, &pin).unwrap();
    for n in [one, two] {
        dies(&store, n).unwrap();
    }
    assert_eq!(gc(&store), Some(n(3)));
    assert!(Catalog::new(store.clone()).checkpoint(&job(), one).is_ok());
    run(&store, Unpin::new(vec![pin])).unwrap();
    assert_eq!(gc(&store), Some(n(2)));
    assert!(records(&store).iter().all(|k| !k.contains(&one.key())));
}

#[test]
fn what_a_dead_sweeper_left_is_deleted_by_the_next() {
    let store = Memory::store();
    let (one, _) = completed(&store, b"one");
    completed(&store, b"two");
    dies(&store, one).unwrap();
    let plan = planned(&store);
    run(&store, Execute::new(&plan, false)).unwrap();
    // It dies before its first delete of a record.
    let mut machine = Forget::new(job(), plan.jobs[&job()].clone(), OTHER, 1);
    let Step::Ask(create) = machine.step(Vec::new()) else { panic!("it creates a floor") };
    for request in create {
        perform(&store, &(), request).unwrap();
    }
    assert!(records(&store).iter().any(|k| k.contains(&one.key()) && k.starts_with("expired/")));
    assert_eq!(gc(&store), None);
    assert!(records(&store).iter().all(|k| !k.contains(&one.key())), "{:?}", records(&store));
}
