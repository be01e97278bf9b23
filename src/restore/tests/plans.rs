//! What a restore would take, compared with what it takes.

use super::*;
use crate::cache::{Cache, CacheOptions};
use crate::error::Kind;
use crate::format::SubtaskEntry;
use crate::limits;
use crate::restore::layout::Layout;
use crate::restore::{RestorePlan, copy, plan, warm};
use crate::types::Silent;

fn all(checkpoint: &Checkpoint) -> Vec<&SubtaskEntry> {
    checkpoint.manifest.subtasks.iter().collect()
}

fn planned(world: &World, cache: Option<&Cache>, checkpoint: &Checkpoint) -> RestorePlan {
    plan(&world.store, cache, checkpoint, &all(checkpoint), None).unwrap()
}

/// Requests and bytes that something asks of the store, manifests included.
fn asked<T>(session: &Session, what: impl FnOnce() -> T) -> (u64, T) {
    let before = session.store.counters().gets.get();
    let done = what();
    (session.store.counters().gets.get() - before, done)
}

/// A table of several chunks that is a part of a larger blob, one without a tail, one without a tree, a log in two pieces, an OPTIONS file.
fn large(part: &mut Part<'_>) {
    let chunk = usize::try_from(limits::FETCH_CHUNK).unwrap();
    part.database(1);
    let whole = noise(40, 2 * chunk + 3000);
    let blob = part.blob(&whole);
    part.file("db/000020.sst", &whole[1000..], &[Extent { blob, offset: 1000, length: whole.len() as u64 - 1000 }]);
    part.whole("db/000021.sst", &noise(41, 3 * 65536));
    let tailless = noise(42, 40 * 65536);
    let hashes = tree::hash_and_tree(&tailless).1;
    let options = b"[Version]\n  rocksdb_version=9.10.0\n";
    let front = noise(43, 700);
    let sections = part.bundle(&[&hashes, options, &front]);
    part.whole("db/000022.sst", &tailless).tree = Some(sections[0]);
    part.file("db/OPTIONS-000007", options, &sections[1..2]);
    let rest = noise(44, 2 << 20);
    let blob = part.blob(&rest);
    let log = [front, rest].concat();
    let extents = [sections[2], Extent { blob, offset: 0, length: 2 << 20 }];
    part.file("db/000030.log", &log, &extents);
}

#[test]
fn a_plan_asks_for_what_the_restore_asks_for() {
    let world = World::new();
    let checkpoint = world.checkpoint("app", large);
    let cold = planned(&world, None, &checkpoint);
    assert_eq!(cold.rocksdb.as_deref(), Some("9.10.0"));
    assert_eq!((cold.whole.files, cold.cached.files), (checkpoint.manifest.files, 0));
    assert_eq!(cold.copy.written, checkpoint.manifest.logical_bytes);
    // A copy by a host that has nothing.
    let session = world.elsewhere("cold");
    let (requests, report) =
        asked(&session, || copy(&session, &checkpoint, &all(&checkpoint), &world.path("copied"), &Silent).unwrap());
    assert_eq!((cold.copy.requests, report.cached_bytes), (requests, 0));
    let manifest = checkpoint.manifest.subtasks[0].manifest_length;
    let task = world.manifest(&checkpoint);
    let bundles: u64 = task.blobs.iter().filter(|b| b.bundle).map(|b| b.length).sum();
    let bundle =
        |f: &FileEntry| f.extents.iter().filter(|e| task.blobs[e.blob as usize].bundle).map(|e| e.length).sum::<u64>();
    let beside: u64 = task.files.iter().map(|f| f.size - bundle(f)).sum();
    assert_eq!(cold.copy.fetched, manifest + bundles + beside);

    // Opening: the manifest, two bundles, the log's blob, what has no tree whole (the small one and that of three chunks), an end.
    let chunks = 3;
    assert_eq!((cold.open.requests, cold.without_tail), (1 + 2 + 1 + (1 + chunks + 1) + 1, 1));
    let opened =
        task.files.iter().filter(|f| ["db/000020.sst", "db/000021.sst", "db/000009.sst"].contains(&f.path.as_str()));
    let whole: u64 = opened.map(|f| f.size).sum::<u64>() - PLAIN as u64;
    let plain = PLAIN as u64;
    // A table of one group needs no tree, and no tail is kept of it: it is read in one piece.
    assert_eq!(cold.open.fetched, manifest + bundles + (2 << 20) + whole + plain + GROUP);
    let measured = cold.measured.unwrap();
    assert!(measured.small > 0 && measured.rate.unwrap() > 0.0);
    assert!(cold.copy.seconds.unwrap() >= 0.0 && cold.open.seconds.is_some());
}

#[test]
fn what_is_here_is_not_fetched_and_no_time_is_claimed_for_it() {
    let world = World::new();
    let checkpoint = world.checkpoint("app", large);
    let session = world.elsewhere("warm");
    // With the bundles alone.
    Layout::of(&session, &checkpoint, &all(&checkpoint)).unwrap().fetch_bundles(&session).unwrap();
    let half = planned(&world, Some(&session.cache), &checkpoint);
    let (requests, _) =
        asked(&session, || copy(&session, &checkpoint, &all(&checkpoint), &world.path("half"), &Silent).unwrap());
    assert_eq!(half.copy.requests, requests);
    // The manifest and two bundles less than a host that has nothing.
    let cold = planned(&world, None, &checkpoint);
    assert!(half.cached.files > 3, "{half:?}");
    assert_eq!((half.open.requests + 3, half.copy.requests + 3), (cold.open.requests, cold.copy.requests));
    warm(&session, &checkpoint, &all(&checkpoint), &Silent).unwrap();
    let (requests, plan) = asked(&session, || planned(&world, Some(&session.cache), &checkpoint));
    assert_eq!(requests, 0, "nothing is measured where nothing is to be fetched");
    assert_eq!((plan.copy.requests, plan.copy.fetched, plan.open.requests, plan.open.fetched), (0, 0, 0, 0));
    assert_eq!((plan.cached, plan.copy.seconds, plan.open.seconds), (plan.whole, None, None));
    assert_eq!((plan.measured, plan.unmeasured), (None, None));
    assert_eq!(plan.rocksdb.as_deref(), Some("9.10.0"));
}

#[test]
fn a_plan_changes_nothing_and_tells_damage_of_manifests_alone() {
    let world = World::new();
    let checkpoint = world.checkpoint("app", large);
    let empty = Cache::open(&world.path("empty"), CacheOptions { create: true }).unwrap();
    let counted = || (world.store.counters().puts.get(), world.store.counters().deletes.get());
    let before = counted();
    let target = world.path("not/there/yet");
    let free = plan(&world.store, Some(&empty), &checkpoint, &all(&checkpoint), Some(&target)).unwrap().free;
    assert!(free.unwrap() > 0 && !world.path("not").exists());
    assert!(names(&world.path("empty/files")).is_empty() && names(&world.path("empty/manifests")).is_empty());
    assert_eq!(counted(), before);
    // A blob that is lost: the plan stands, and says that it could not measure.
    let task = world.manifest(&checkpoint);
    for blob in &task.blobs {
        world.memory.remove(Key::blob(&blob.name).as_str());
    }
    let lost = planned(&world, None, &checkpoint);
    assert!(lost.measured.is_none() && lost.unmeasured.is_some() && lost.copy.seconds.is_none());
    assert_eq!(lost.rocksdb, None);
    world.flip(&task.place.key().unwrap());
    let e = plan(&world.store, None, &checkpoint, &all(&checkpoint), None).unwrap_err();
    assert_eq!(e.kind(), Kind::Damage);
}
