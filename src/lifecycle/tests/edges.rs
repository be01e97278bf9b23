//! The protocol at its edges: bounds at their very values, and what is seen beside records that cannot be believed.

use std::sync::Arc;

use super::*;
use crate::error::Kind;
use crate::format::records::PinHolder;
use crate::lifecycle::expire::Expire;
use crate::lifecycle::forget::{self, Forget};
use crate::lifecycle::hide::Hide;
use crate::lifecycle::identity::{self, may_write};
use crate::lifecycle::machine::Reply;
use crate::lifecycle::pin::{Pin, PinRef};
use crate::lifecycle::survey::Floors;
use crate::lifecycle::sweep::{Numbers, SweepPlan};
use crate::limits;
use crate::store::{Created, StoreOptions};
use crate::types::KeyRing;

/// Another store over the same objects, with or without keys.
fn over(memory: &Arc<Memory>, keys: Option<KeyRing>) -> Store {
    Store::from_backend(memory.clone(), "memory://", StoreOptions { keys, ..StoreOptions::default() })
}

fn ring() -> KeyRing {
    KeyRing::parse("0123456789abcdef".repeat(4).as_bytes()).unwrap()
}

fn damage(store: &Store, key: &Key) {
    let mut bytes = store.get(key, 1 << 20).unwrap().unwrap().to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    store.delete(key).unwrap();
    store.create(key, bytes.into()).unwrap();
}

#[test]
fn the_latest_is_the_newest_that_is_completed_and_in_the_view() {
    let memory = Arc::new(Memory::new());
    let store = over(&memory, None);
    let catalog = || Catalog::new(store.clone());
    let latest = || catalog().latest(&job()).unwrap().map(|c| c.number);
    assert_eq!(latest(), None);
    let done: Vec<_> = [b"1", b"2", b"3", b"4"].map(|content| completed(&store, content).0).into();
    let gone = open(&store, WRITER);
    abort(&store, gone.number).unwrap();
    assert_eq!(latest(), Some(done[3]), "what was aborted is passed over");
    damage(&store, &Key::outcome(&job(), done[3]));
    assert_eq!(latest(), Some(done[2]), "and what cannot be believed");
    run(&store, Hide::new(job(), done[2], OTHER, 0)).unwrap();
    assert_eq!(latest(), Some(done[1]), "and what is hidden");
    run(&store, Expire::new(job(), done[1], String::new())).unwrap();
    assert_eq!(latest(), Some(done[0]), "and what is dead");
    let bad = catalog().checkpoint(&job(), done[3]).unwrap_err();
    assert!(bad.is_bad_record() && bad.kind() == Kind::Damage, "{bad}");
    assert!(matches!(catalog().checkpoint(&job(), n(77)), Err(LifecycleError::NoSuchCheckpoint { .. })));
    assert_eq!(catalog().checkpoint(&job(), done[2]).unwrap().number, done[2]);
    // A store that does not answer is not one with fewer checkpoints.
    let newest = Key::outcome(&job(), done[0]).to_string();
    memory.fail_when(move |what, key| what == "get" && key == newest);
    let silent = catalog().latest(&job()).unwrap_err();
    assert!(silent.kind() == Kind::Unavailable && !silent.is_bad_record(), "{silent}");
    assert_eq!(catalog().job(&job()).unwrap_err().kind(), Kind::Unavailable);
}

#[test]
fn jobs_are_those_with_a_decided_checkpoint() {
    let store = Memory::store();
    assert_eq!(Catalog::new(store.clone()).jobs().unwrap(), []);
    completed(&store, b"one");
    completed(&store, b"two");
    let of = |name: &str| OpenPlan { job: Name::encode(name), ..plan(WRITER) };
    run(&store, Open::new(of("begun"))).unwrap();
    let early = run(&store, Open::new(of("Early"))).unwrap();
    run(&store, super::super::abort::Abort::new(Name::encode("Early"), early.number, String::new())).unwrap();
    assert_eq!(Catalog::new(store).jobs().unwrap(), [Name::encode("Early"), job()]);
}

#[test]
fn a_pin_that_cannot_be_believed_holds_and_a_silent_store_is_an_error() {
    let memory = Arc::new(Memory::new());
    identity::create(&over(&memory, Some(ring())), WRITER).unwrap();
    let plain = over(&memory, None);
    let (first, _) = completed(&plain, b"one");
    let pin = PinRef { job: job(), number: first, holder: OTHER, nonce: WRITER };
    run(&plain, Pin::new(pin.clone(), PinHolder::Writer, 7)).unwrap();
    let pins = |store: &Store| Catalog::new(store.clone()).pins(Some(&job()));
    let read = pins(&plain).unwrap();
    assert_eq!((read[0].0.clone(), read[0].1.as_ref().unwrap().pinned_ms), (pin.clone(), 7));
    // To whoever has a key, it is not signed.
    assert_eq!(pins(&over(&memory, Some(ring()))).unwrap(), [(pin.clone(), None)]);
    memory.fail_when(|what, key| what == "get" && key.starts_with("pin/"));
    assert_eq!(pins(&plain).unwrap_err().kind(), Kind::Unavailable);
}

#[test]
fn an_unsigned_record_is_a_bad_one_and_no_other_failure_is() {
    let memory = Arc::new(Memory::new());
    let keyed = over(&memory, Some(ring()));
    identity::create(&keyed, WRITER).unwrap();
    completed(&over(&memory, None), b"one");
    let outcome = keyed.get(&Key::outcome(&job(), n(1)), 1 << 20).unwrap_err();
    assert!(LifecycleError::from(outcome).is_bad_record());
    // To a machine it is a damaged record, and not a failure of the store.
    let told = perform(&keyed, &(), Request::Get(Key::outcome(&job(), n(1)))).unwrap();
    let Reply::Got(Some(bytes)) = told else { panic!("{told:?}") };
    let refused = crate::format::decode::<crate::format::Outcome>(&bytes).unwrap_err();
    assert!(matches!(refused, crate::format::FormatError::Refused { .. }), "{refused}");
    assert!(!LifecycleError::Confused.is_bad_record());
    assert!(!LifecycleError::NoSuchCheckpoint { job: job(), number: n(1) }.is_bad_record());
}

#[test]
fn a_store_says_what_it_asks_of_writers() {
    let asks = |of: &[&str]| may_write(&of.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
    assert!(asks(&[]).is_ok());
    assert!(matches!(asks(&["signature"]), Err(LifecycleError::KeyNeeded)));
    assert!(matches!(asks(&["wings"]), Err(LifecycleError::NewerForWriters { needs, .. }) if needs == "wings"));
    let both = asks(&["signature", "wings"]);
    assert!(matches!(both, Err(LifecycleError::NewerForWriters { needs, .. }) if needs == "signature, wings"));
    // A signed store may be written by who has the key, and read by everybody.
    let memory = Arc::new(Memory::new());
    let keyed = over(&memory, Some(ring()));
    let id = identity::create(&keyed, WRITER).unwrap();
    assert_eq!((id.id, id.writable().is_ok()), (WRITER, true));
    assert!(identity::identify(&keyed).unwrap().writable().is_ok());
    let stranger = identity::identify(&over(&memory, None)).unwrap();
    assert_eq!(stranger.blocks_writing, ["signature"]);
    assert!(matches!(stranger.writable(), Err(LifecycleError::KeyNeeded)));
    // A rival's record that came first is as good.
    assert_eq!(identity::create(&keyed, OTHER).unwrap().id, WRITER);
    // What else it asks of writers is not the key's business.
    let memory = Arc::new(Memory::new());
    let place = Place { role: Role::Store, job: None, number: 0, uid: OTHER, subtask: None, holder: None, nonce: None };
    let record = crate::format::records::StoreRecord { place, created_by: String::new() };
    let bytes = crate::format::header::encode_requiring(&record, &[], &["signature", "wings"]).unwrap();
    over(&memory, Some(ring())).create(&Key::store(), bytes.into()).unwrap();
    let needs = |keys| identity::identify(&over(&memory, keys)).unwrap().blocks_writing;
    assert_eq!(needs(Some(ring())), ["wings"]);
    assert_eq!(needs(None), ["signature", "wings"]);
}

#[test]
fn floors_become_rarer_and_pass_no_wide_gap() {
    let with_floors = |floors: u64| {
        let mut numbers = Numbers::default();
        let keys: Vec<Key> = (1..=floors).map(|f| Key::floor(&job(), n(f))).collect();
        numbers.floors.take_list(&keys);
        numbers
    };
    let steps = [0, 3, 4, 7, 8, 40].map(|floors| forget::step(&with_floors(floors)) / limits::FLOOR_STEP);
    assert_eq!(steps, [1, 1, 2, 2, 3, 11]);
    // One dead number behind a gap of unused ones.
    let behind = |gap: u64| {
        let dead = n(gap + 1);
        let mut numbers = Numbers::default();
        numbers.begun.insert(dead);
        numbers.dead.insert(dead);
        numbers.uids.insert(dead, OTHER);
        let Step::Ask(asked) = Forget::new(job(), numbers, WRITER, 1).step(Vec::new()) else { return None };
        let [Request::Create(key, bytes)] = asked.as_slice() else { panic!("{asked:?}") };
        let floor: FloorRecord = crate::format::decode_at(key, bytes).unwrap().record;
        Some((floor.place.number, floor.survivors.len() as u64))
    };
    let gap = limits::FLOOR_GAP;
    assert_eq!((behind(0), behind(gap), behind(gap + 1)), (Some((2, 0)), Some((gap + 2, gap)), None));
}

#[test]
fn floors_say_how_many_they_are() {
    let mut floors = Floors::default();
    assert!(floors.is_empty() && floors.highest().is_none());
    floors.take_list(&[Key::floor(&job(), n(9)), Key::floor(&job(), n(3)), Key::floor(&job(), n(4))]);
    assert_eq!((floors.len(), floors.highest(), floors.is_empty()), (3, Some(n(9)), false));
    assert!(floors.has(n(3)) && !floors.has(n(5)));
}

#[test]
fn a_plan_sums_its_bytes() {
    let blob = |uid| BlobName { digest: Digest::of(b"x"), uid };
    let mut plan = SweepPlan::default();
    assert_eq!((plan.doomed_bytes(), plan.foreign_bytes()), (0, 0));
    plan.doomed = vec![(blob(WRITER), 5), (blob(OTHER), 7)];
    plan.foreign = vec![(blob(OTHER), 11), (blob(WRITER), 13)];
    assert_eq!((plan.doomed_bytes(), plan.foreign_bytes()), (12, 24));
    plan.doomed.push((blob(OTHER), u64::MAX));
    assert_eq!(plan.doomed_bytes(), u64::MAX, "a lie about a length does not wrap around");
}

#[test]
fn what_cannot_be_believed_is_read_once_and_the_walk_goes_on() {
    let store = Memory::store();
    let (first, _) = completed(&store, b"one");
    // More than one batch of outcomes that are no base, the newest of them damaged.
    let theirs: Vec<_> = (0..4).map(|_| open(&store, OTHER).number).collect();
    for number in &theirs {
        abort(&store, *number).unwrap();
    }
    damage(&store, &Key::outcome(&job(), theirs[3]));
    let mut machine = Open::new(plan(WRITER));
    let (mut replies, mut asked) = (Vec::new(), Vec::new());
    let opened = loop {
        match machine.step(std::mem::take(&mut replies)) {
            Step::Done(result) => break result.unwrap(),
            Step::Ask(requests) => {
                asked.extend(requests.iter().filter_map(|r| match r {
                    Request::Get(key) if matches!(key.parts(), crate::types::KeyParts::Outcome(..)) => {
                        super::super::survey::number_of(key)
                    }
                    _ => None,
                }));
                assert!(asked.len() < 20, "{asked:?}");
                replies.extend(requests.into_iter().map(|request| perform(&store, &(), request).unwrap()));
            }
        }
    };
    let of = opened.intent.bases.iter().map(|b| b.number).collect::<Vec<_>>();
    assert_eq!((of, opened.unreadable.len()), (vec![first], 1));
    // Each once, newest first, and the base once more behind the intent.
    let mut expected: Vec<_> = theirs.iter().rev().copied().collect();
    expected.extend([first, first]);
    assert_eq!(asked, expected);
}

#[test]
fn a_take_over_gives_up_when_rivals_win_every_time() {
    let mut machine = TakeOver::new(job(), Uid::random().unwrap(), WRITER, "host".to_owned());
    let (mut replies, mut creates) = (Vec::new(), 0);
    let end = loop {
        match machine.step(std::mem::take(&mut replies)) {
            Step::Done(result) => break result,
            Step::Ask(requests) => replies.extend(requests.iter().map(|request| match request {
                Request::List(_) => Reply::Listed(vec![Key::epoch(&job(), Epoch(creates))]),
                Request::Create(key, _) => {
                    creates += 1;
                    assert_eq!(*key, Key::epoch(&job(), Epoch(creates)));
                    Reply::Created(Created::Other(Bytes::from_static(b"a rival's")))
                }
                other => panic!("{other:?}"),
            })),
        }
    };
    assert!(matches!(end, Err(LifecycleError::Fenced { ruling: Epoch(17), own: Epoch(17), .. })), "{end:?}");
    assert_eq!(creates, u64::from(limits::OPEN_TRIES) + 1);
}

#[test]
fn a_take_over_leaves_its_own_epochs_checkpoints_open() {
    let store = Memory::store();
    let older = open(&store, WRITER);
    let intents = crate::types::Prefix::job(crate::types::RecordKind::Intent, &job());
    let at = |r: &Request| matches!(r, Request::List(p) if *p == intents);
    let machine = TakeOver::new(job(), Uid::random().unwrap(), OTHER, "host".to_owned());
    // Under the new epoch somebody begins before the take-over has listed what is open.
    let own = std::cell::RefCell::new(None);
    let reign = run_with(&store, machine, at, || {
        let plan = OpenPlan { epoch: Some(Epoch(1)), ..plan(OTHER) };
        *own.borrow_mut() = Some(run(&store, Open::new(plan)).unwrap());
    });
    assert_eq!(reign.unwrap().aborted, [older.number]);
    let own = own.into_inner().unwrap();
    ack(&store, &own, &[]).unwrap();
    complete(&store, own.number).unwrap();
}

#[test]
fn an_ack_with_more_or_fewer_files_is_another_one() {
    let store = Memory::store();
    let opened = open(&store, WRITER);
    let (a, b) = (upload(&store, opened.intent.place.uid, b"aa"), upload(&store, opened.intent.place.uid, b"bb"));
    ack(&store, &opened, &[(a, 2)]).unwrap();
    for other in [&[(a, 2), (b, 2)][..], &[], &[(b, 2)]] {
        assert!(matches!(ack(&store, &opened, other), Err(LifecycleError::OtherAck { .. })), "{other:?}");
    }
    ack(&store, &opened, &[(a, 2)]).unwrap();
}

#[test]
fn what_is_deleted_is_not_there() {
    let store = Memory::store();
    let (first, _) = completed(&store, b"one");
    let key = Key::outcome(&job(), first);
    assert!(matches!(perform(&store, &(), Request::Delete(key.clone())), Ok(Reply::Deleted)));
    assert_eq!(store.get(&key, 1 << 20).unwrap(), None);
}

/// Completes, and counts the task manifests of other numbers that it read.
fn base_tasks_read(store: &Store, number: CheckpointNumber) -> usize {
    let mut machine = super::super::complete::Complete::new(job(), number, 0);
    let (mut replies, mut read) = (Vec::new(), 0);
    loop {
        match machine.step(std::mem::take(&mut replies)) {
            Step::Done(result) => {
                assert!(result.unwrap().now);
                return read;
            }
            Step::Ask(requests) => {
                read += requests.iter().filter(|r| matches!(r, Request::Get(k) if of_another(k, number))).count();
                replies.extend(requests.into_iter().map(|request| perform(store, &(), request).unwrap()));
            }
        }
    }
}

fn of_another(key: &Key, number: CheckpointNumber) -> bool {
    matches!(key.parts(), crate::types::KeyParts::Task(_, n, ..) if *n != number)
}

#[test]
fn bases_are_read_no_further_than_they_must_vouch() {
    let store = Memory::store();
    // The base has many subtasks in front of the one that the next checkpoint has, too.
    let (many, one) = (Name::encode("a"), Name::encode("db"));
    let parallelism = 2 * u32::try_from(limits::PARALLEL_REQUESTS).unwrap();
    let expected = vec![
        ExpectedOperator { operator: many.clone(), parallelism },
        ExpectedOperator { operator: one.clone(), parallelism: 1 },
    ];
    let opened = run(&store, Open::new(OpenPlan { expected, ..plan(WRITER) })).unwrap();
    let shared = upload(&store, opened.intent.place.uid, b"shared");
    let of = |subtask: (Name, u32), blobs: &[(BlobName, u64)]| {
        let mut task = manifest(&opened, blobs);
        task.place.subtask = Some(subtask);
        run(&store, Ack::new(task).unwrap()).unwrap();
    };
    for i in 0..parallelism {
        of((many.clone(), i), &[]);
    }
    of((one, 0), &[(shared, 6)]);
    complete(&store, opened.number).unwrap();
    // Nothing of a base is named.
    let own = open(&store, WRITER);
    let blob = upload(&store, own.intent.place.uid, b"own");
    ack(&store, &own, &[(blob, 3)]).unwrap();
    assert_eq!(base_tasks_read(&store, own.number), 0);
    // Its own subtask's blob: one batch, with that subtask in it.
    let base = BaseRef { job: job(), number: opened.number, uid: opened.intent.place.uid };
    let next = run(&store, Open::new(OpenPlan { restored_from: Some(base), ..plan(WRITER) })).unwrap();
    ack(&store, &next, &[(shared, 6)]).unwrap();
    assert_eq!(base_tasks_read(&store, next.number), limits::PARALLEL_REQUESTS);
    // An aborted attempt's uploads are looked for by their names.
    let dead = open(&store, WRITER);
    let uploaded = upload(&store, dead.intent.place.uid, b"uploaded by the dead");
    let adopts = open(&store, WRITER);
    assert_eq!(adopts.aborted, [dead.number]);
    ack(&store, &adopts, &[(uploaded, 20)]).unwrap();
    assert_eq!(base_tasks_read(&store, adopts.number), 0);
}

#[test]
fn the_subtasks_that_the_base_shares_are_read_before_those_that_share_a_number() {
    let store = Memory::store();
    let (more, db) = (Name::encode("a"), Name::encode("db"));
    let parallelism = u32::try_from(limits::PARALLEL_REQUESTS).unwrap() + 8;
    let expects = |names: &[&Name]| {
        names.iter().map(|name| ExpectedOperator { operator: (*name).clone(), parallelism }).collect::<Vec<_>>()
    };
    let base = run(&store, Open::new(OpenPlan { expected: expects(&[&more, &db]), ..plan(WRITER) })).unwrap();
    let shared = upload(&store, base.intent.place.uid, b"shared");
    let acks = |opened: &Opened, operator: &Name, blobs: &[(BlobName, u64)]| {
        for i in 0..parallelism {
            let mut task = manifest(opened, blobs);
            task.place.subtask = Some((operator.clone(), i));
            run(&store, Ack::new(task).unwrap()).unwrap();
        }
    };
    acks(&base, &more, &[]);
    acks(&base, &db, &[(shared, 6)]);
    complete(&store, base.number).unwrap();
    let next = run(&store, Open::new(OpenPlan { expected: expects(&[&db]), ..plan(WRITER) })).unwrap();
    acks(&next, &db, &[(shared, 6)]);
    assert_eq!(base_tasks_read(&store, next.number), parallelism as usize);
}
