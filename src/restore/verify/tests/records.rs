//! Records that cannot be believed, whom that hurts, and which checkpoints are alive by what the others say.

use super::*;
use crate::format::header::encode_requiring;
use crate::format::records::{EpochRecord, ExpiredRecord, FloorRecord, HeadRecord};
use crate::format::{Place, Role};
use crate::lifecycle::driver;
use crate::lifecycle::hide::Hide;
use crate::restore::tests::{World, n, name};
use crate::store::StoreError;
use crate::types::{Epoch, Uid};

const NOBODY: Uid = Uid::from_bytes([9; 16]);

fn floor(world: &World, job: &str, at: u64, survivors: &[u64]) -> Key {
    let survivors = survivors.iter().map(|number| n(*number)).collect();
    let place = Place::new(Role::Floor, &name(job), at, NOBODY);
    world.put(&FloorRecord { place, survivors, uids: Vec::new() })
}

fn hide(world: &World, job: &str, number: u64) -> Key {
    driver::run(&world.store, Hide::new(name(job), n(number), NOBODY, 0)).unwrap();
    Key::hidden(&name(job), n(number), NOBODY)
}

/// One checkpoint after the other, with a blob of its own each.
fn checkpoints(world: &World, job: &str, count: u8) {
    for i in 0..count {
        world.single(job, &[i; 9]);
    }
}

fn alive(world: &World, scope: Option<&str>) -> u64 {
    let scope = Scope::parse(scope).unwrap();
    verify(&world.session, &scope, &Options::default(), &Silent).map_or(0, |report| report.checkpoints)
}

#[test]
fn every_kind_of_record_is_read_and_hurts_what_its_key_says() {
    let world = World::new();
    checkpoints(&world, "app", 2);
    let (job, db) = (name("app"), name("db"));
    let hidden = hide(&world, "app", 2);
    let pin = world.pin("app", 1, 1);
    let open = world.open("app", &[("db", 1), ("op", 2)]);
    world.ack(world.part(&open, "op", 1).finish());
    let epoch = EpochRecord { place: Place::new(Role::Epoch, &job, 1, NOBODY), writer: NOBODY, host: String::new() };
    let epoch = world.put(&epoch);
    let head = world.put(&HeadRecord { place: Place::new(Role::Head, &job, 0, NOBODY), newest: 3 });
    let floor = floor(&world, "app", 1, &[]);
    checkpoints(&world, "old", 2);
    world.expire("old", 1);
    let expired = Key::expired(&name("old"), n(1));
    assert!(!look(&world).damaged());
    let manifest: &[&str] = &["manifest.json"];
    let none: &[&str] = &[];
    let first = Key::task(&job, n(1), &db, 0);
    for (key, what, hurt) in [
        (Key::store(), "store", vec![]),
        (epoch, "epoch", vec![]),
        (floor, "floor", vec![]),
        (head, "head", vec![]),
        (Key::intent(&job, n(1)), "intent", vec![("app/chk-1", none)]),
        (hidden, "hidden", vec![("app/chk-2", none)]),
        (expired, "expired", vec![("old/chk-1", none)]),
        (pin, "pin", vec![("app/chk-1", none)]),
        (Key::outcome(&job, n(2)), "outcome", vec![("app/chk-2/db/0", manifest)]),
        (Key::task(&job, n(3), &name("op"), 1), "task-manifest", vec![("app/chk-3/op/1", manifest)]),
        (first, "task-manifest", vec![("app/chk-1/db/0", manifest)]),
    ] {
        world.flip(&key);
        let report = look(&world);
        let found: Vec<Told> = report.findings.iter().filter(|f| f.kind.is_damage()).map(told).collect();
        let [(kind, object, hurts_found, detail)] = found.as_slice() else { panic!("{key}: {found:?}") };
        assert_eq!((*kind, object.as_str(), hurts_found), (FindingKind::Damaged, key.as_str(), &hurts(&hurt)));
        assert!(detail.starts_with(&format!("damaged {what}: ")), "{detail}");
        assert!(report.damaged());
        world.flip(&key);
    }
    assert!(!look(&world).damaged());
}

#[test]
fn an_outcome_without_task_manifests_hurts_its_checkpoint() {
    let world = World::new();
    checkpoints(&world, "app", 1);
    let key = Key::outcome(&name("app"), n(9));
    world.memory.plant(key.as_str(), "{}");
    let report = look(&world);
    let [finding] = report.findings.as_slice() else { panic!("{report:?}") };
    let (kind, object, hurt, _) = told(finding);
    assert_eq!((kind, object, hurt), (FindingKind::Damaged, key.to_string(), hurts(&[("app/chk-9", &[])])));
}

#[test]
fn what_a_newer_version_wrote_is_unreadable() {
    let world = World::new();
    checkpoints(&world, "app", 1);
    let place = Place::new(Role::Expired, &name("app"), 7, NOBODY);
    let record = ExpiredRecord { place, reason: String::new() };
    let key = Key::expired(&name("app"), n(7));
    world.memory.plant(key.as_str(), encode_requiring(&record, &["tomorrow"], &[]).unwrap());
    let detail = "expired needs tomorrow, which this version of ckptfs does not know: upgrade ckptfs";
    finds_one(&look(&world), FindingKind::Unreadable, &key, &[("app/chk-7", &[])], detail);
    world.memory.plant(key.as_str(), encode_requiring(&record, &[], &["tomorrow"]).unwrap());
    finds(&look(&world), &[]);
}

#[test]
fn what_was_deleted_since_it_was_listed_is_no_finding() {
    let world = World::new();
    checkpoints(&world, "app", 1);
    hide(&world, "app", 1);
    let memory = std::sync::Arc::clone(&world.memory);
    world.memory.fail_when(move |what, key| {
        if what == "get" && key.starts_with("hidden/") {
            memory.remove(key);
        }
        false
    });
    let records = world.store.list_all(&Prefix::all()).unwrap().ours.len() as u64 - 1;
    let report = look(&world);
    assert_eq!((report.findings.len(), report.records), (0, records));
}

#[test]
fn task_manifests_that_nobody_names_are_read_unless_they_are_dead() {
    let world = World::new();
    checkpoints(&world, "app", 1);
    // Aborted, open, dead, and beside a completed one's.
    let aborted = world.open("app", &[("db", 1)]);
    world.ack(world.part(&aborted, "db", 0).finish());
    world.abort("app", 2);
    let open = world.open("app", &[("db", 1)]);
    world.ack(world.part(&open, "db", 0).finish());
    checkpoints(&world, "old", 3);
    world.expire("old", 2);
    floor(&world, "old", 2, &[]);
    let key = |job: &str, number: u64, operator: &str, subtask: u32| {
        Key::task(&name(job), n(number), &name(operator), subtask)
    };
    assert!(!look(&world).damaged());
    // Of what is dead nobody needs a manifest, named or not.
    let bad = [key("app", 1, "db", 1), key("app", 1, "op", 0), key("app", 2, "db", 0), key("app", 3, "db", 0)];
    for key in bad.iter().chain(&[
        key("old", 1, "db", 0),
        key("old", 1, "x", 0),
        key("old", 2, "db", 0),
        key("old", 2, "x", 0),
    ]) {
        world.memory.plant(key.as_str(), "{}");
    }
    let damaged = |report: &Report| {
        let all = report.findings.iter().filter(|f| f.kind.is_damage());
        all.map(|f| (f.kind, f.object.clone(), f.hurts.iter().map(Hurt::to_string).collect())).collect::<Vec<_>>()
    };
    let hurt = ["app/chk-1/db/1", "app/chk-1/op/0", "app/chk-2/db/0", "app/chk-3/db/0"];
    let expected: Vec<_> = bad
        .iter()
        .zip(hurt)
        .map(|(key, hurt)| (FindingKind::Damaged, key.to_string(), vec![hurt.to_owned()]))
        .collect();
    assert_eq!(damaged(&look(&world)), expected);
    // Once, where its checkpoint names it.
    let named = key("app", 1, "db", 0);
    world.memory.plant(named.as_str(), "{}");
    let report = look(&world);
    let told: Vec<_> =
        report.findings.iter().filter(|f| f.object == named.as_str()).map(|f| f.detail.as_str()).collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told, ["damaged task-manifest: its digest is not the one in the checkpoint manifest"]);
}

#[test]
fn floors_say_who_is_gone() {
    let world = World::new();
    checkpoints(&world, "app", 4);
    checkpoints(&world, "other", 2);
    assert_eq!(alive(&world, Some("app")), 4);
    let third = floor(&world, "app", 3, &[2]);
    assert_eq!(
        (alive(&world, Some("app")), alive(&world, Some("app/chk-1")), alive(&world, Some("app/chk-3"))),
        (3, 0, 1)
    );
    // Any floor above it that does not list it.
    let second = floor(&world, "app", 2, &[1]);
    assert_eq!(alive(&world, Some("app")), 3);
    world.memory.remove(second.as_str());
    floor(&world, "app", 4, &[1, 2, 3]);
    assert_eq!(alive(&world, Some("app")), 3);
    // One that cannot be read may pass any number below it, of its job.
    world.memory.remove(Key::floor(&name("app"), n(4)).as_str());
    world.memory.plant(third.as_str(), "{}");
    assert_eq!((alive(&world, Some("app")), alive(&world, Some("other")), alive(&world, None)), (2, 2, 4));
}

#[test]
fn pins_keep_what_is_expired_alive() {
    let world = World::new();
    checkpoints(&world, "app", 3);
    hide(&world, "app", 3);
    world.pin("app", 1, 1);
    world.expire("app", 1);
    world.expire("app", 2);
    assert_eq!(alive(&world, None), 2);
    assert_eq!((alive(&world, Some("app/chk-1")), alive(&world, Some("app/chk-2"))), (1, 0));
    assert_eq!(alive(&world, Some("app/chk-3")), 1, "hidden ones are verified");
    // A pin that cannot be read may be one.
    let key = Key::pin(&name("app"), n(2), NOBODY, NOBODY);
    world.memory.plant(key.as_str(), "{}");
    assert_eq!(alive(&world, Some("app/chk-2")), 1);
}

#[test]
fn a_scope_reads_the_records_of_its_numbers() {
    let world = World::new();
    checkpoints(&world, "app", 2);
    checkpoints(&world, "other", 1);
    for number in [1, 2] {
        hide(&world, "app", number);
        world.pin("app", number, 1);
        world.expire("app", number);
    }
    let place = Place::new(Role::Epoch, &name("app"), 1, NOBODY);
    world.put(&EpochRecord { place, writer: NOBODY, host: String::new() });
    assert_eq!(Key::epoch(&name("app"), Epoch(1)).as_str(), "epoch/app/00000000000000000001.json");
    floor(&world, "app", 1, &[]);
    let records = |text| {
        let scope = Scope::parse(Some(text)).unwrap();
        verify(&world.session, &scope, &Options::default(), &Silent).unwrap().records
    };
    // Store, head, epoch and floor; of each number intent, task manifest, outcome, hidden, pin and tombstone.
    assert_eq!((records("app"), records("app/chk-1"), records("app/chk-2")), (16, 10, 10));
    assert_eq!(records("other"), 5);
}

#[test]
fn a_job_whose_only_number_is_open_is_one() {
    let world = World::new();
    let opened = world.open("app", &[("db", 1)]);
    let of = |text| verify(&world.session, &Scope::parse(Some(text)).unwrap(), &Options::default(), &Silent);
    assert_eq!(of("app").unwrap().checkpoints, 0);
    assert_eq!(of("app/chk-1").unwrap_err().kind(), Kind::NotFound);
    // What cannot be read is there.
    world.memory.plant(Key::outcome(&name("app"), opened.number).as_str(), "{}");
    let report = of("app/chk-1").unwrap();
    assert_eq!((report.checkpoints, report.findings.len()), (0, 1));
}

#[test]
fn an_error_about_one_object_is_a_finding_and_one_about_the_store_is_none() {
    let world = World::new();
    let (there, away) = (Key::store(), Key::head(&name("app")));
    let of = |key: &Key, e: StoreError| super::super::records::failed(&world.store, key, e).map(|(kind, _)| kind);
    let why = || "w".to_owned();
    let damaged = || StoreError::Damaged { object: why(), why: why() };
    assert_eq!(of(&there, damaged()).unwrap(), FindingKind::Damaged);
    assert_eq!(of(&away, damaged()).unwrap(), FindingKind::Unreadable);
    let missing = || StoreError::NotFound { what: "read", object: why(), why: why() };
    assert_eq!(of(&there, missing()).unwrap(), FindingKind::Missing);
    let denied = StoreError::Permission { what: "read", object: why(), why: why() };
    assert_eq!(of(&there, denied).unwrap(), FindingKind::Unreadable);
    let silent = StoreError::Unavailable { what: "read", object: why(), why: why(), waited: std::time::Duration::ZERO };
    assert_eq!(of(&there, silent).unwrap_err().kind(), Kind::Unavailable);
    let unsupported = StoreError::Unsupported { store: why(), why: why() };
    assert_eq!(of(&there, unsupported).unwrap_err().kind(), Kind::Unsupported);
}
