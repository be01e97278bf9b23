//! Which checkpoint, and whether the job fits it.

use std::collections::BTreeSet;

use super::kit::{Task, World, descriptor, range};
use crate::error::Kind;
use crate::lifecycle::abort::Abort;
use crate::lifecycle::driver;
use crate::restore::job::{JobOperator, check_job, find};
use crate::types::{CheckpointNumber, Key, Name};

fn job() -> Name {
    Name::encode("app")
}

fn operator(name: &str, max_parallelism: u32, parallelism: u32) -> JobOperator {
    JobOperator { name: Name::encode(name), max_parallelism, parallelism, stateful: true }
}

#[test]
fn row12_an_aborted_checkpoint_is_refused() {
    let world = World::new();
    let e = find(&world.session, &job(), None).unwrap_err();
    assert_eq!((e.kind(), e.message().contains("no completed checkpoint")), (Kind::NotFound, true), "{e}");
    let completed = world.checkpoint(&[Task::default()]);
    let aborted = world.open(&[(&Name::encode("count"), 1)]).number;
    let open = find(&world.session, &job(), Some(aborted)).unwrap_err();
    assert_eq!((open.kind(), open.message().contains("not complete")), (Kind::NotFound, true), "{open}");
    driver::run(&world.session.store, Abort::new(job(), aborted, "the disk was full".to_owned())).unwrap();
    let e = find(&world.session, &job(), Some(aborted)).unwrap_err();
    assert_eq!(e.kind(), Kind::NotFound);
    assert!(e.message().starts_with("app/chk-2 was aborted (the disk was full) and holds nothing to restore"), "{e}");
    let never = find(&world.session, &job(), Some(CheckpointNumber::new(9).unwrap())).unwrap_err();
    assert_eq!(never.kind(), Kind::NotFound);
    // `latest` passes it by.
    for number in [None, Some(completed.number)] {
        assert_eq!(find(&world.session, &job(), number).unwrap().uid, completed.uid);
    }
}

#[test]
fn row12_the_newest_is_not_passed_over_because_it_is_damaged() {
    let world = World::new();
    let first = world.checkpoint(&[Task::default()]);
    let second = world.checkpoint(&[Task::default()]);
    world.memory.plant(Key::outcome(&job(), second.number).as_str(), "{}\n{}");
    let session = world.elsewhere();
    let e = find(&session, &job(), None).unwrap_err();
    assert_eq!(e.kind(), Kind::Damage);
    assert!(e.message().contains("app/chk-2 may be the newest") && e.message().contains("say app/chk-1"), "{e}");
    assert_eq!(find(&session, &job(), Some(first.number)).unwrap().number, first.number);
}

#[test]
fn row12_a_job_is_held_against_what_the_checkpoint_has() {
    let world = World::new();
    let dir = world.fresh();
    super::keyed::database(&dir, 128, &BTreeSet::from([1]), &["count"]);
    let keyed = |i| Task {
        database: Some(dir.clone()),
        keyed: Some(descriptor(128, range(128, 2, i), &["count"])),
        ..Task::default()
    };
    let source = Task { files: vec![("raw-operator/0".to_owned(), b"offset".to_vec())], ..Task::default() };
    let checkpoint = world.checkpoint_of(&[
        (Name::encode("count"), &[keyed(0), keyed(1)]),
        (Name::encode("source"), &[source]),
        (Name::encode("map"), &[Task::default()]),
    ]);
    let check = |job: &[JobOperator], allowed: &[&str]| {
        let allowed = allowed.iter().map(|n| Name::encode(n)).collect();
        check_job(&world.session, &checkpoint, job, &allowed).map_err(|e| (e.kind(), e.message().to_owned()))
    };
    let old = check(&[operator("count", 128, 3), operator("source", 4, 1)], &[]).unwrap();
    let told: Vec<_> = old.iter().map(|o| (o.name.as_str(), o.parallelism, o.max_parallelism, o.has_state)).collect();
    assert_eq!(told, [("count", 2, Some(128), true), ("map", 1, None, false), ("source", 1, None, true)]);
    let (kind, said) = check(&[operator("count", 64, 3), operator("source", 4, 1)], &[]).unwrap_err();
    assert_eq!(kind, Kind::Invalid);
    assert!(said.starts_with("the job cannot be restored from app/chk-1: operator count (count) was stored with a max_parallelism of 128 and cannot be restored with 64"), "{said}");
    let (_, said) = check(&[operator("count", 128, 3)], &[]).unwrap_err();
    assert!(said.contains("operator source (source) has state in the checkpoint and is not in the job"), "{said}");
    check(&[operator("count", 128, 3)], &["source"]).unwrap();
}
