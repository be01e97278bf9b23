//! What can be mended is mended from the cache, and nothing else is touched.

use super::*;
use crate::format::header::encode_requiring;
use crate::format::records::HeadRecord;
use crate::format::{Place, Role};
use crate::lifecycle::Checkpoint;
use crate::restore::tests::{World, n, name};
use crate::restore::warm;
use crate::types::{BlobName, Uid};

fn warmed() -> (World, Checkpoint, Vec<BlobName>) {
    let world = World::new();
    let checkpoint = world.database("app");
    let all: Vec<_> = checkpoint.manifest.subtasks.iter().collect();
    warm(&world.session, &checkpoint, &all, &Silent).unwrap();
    let blobs = world.manifest(&checkpoint).blobs.iter().map(|b| b.name).collect();
    (world, checkpoint, blobs)
}

fn mended(report: &Report) -> Vec<(FindingKind, String, Option<String>)> {
    report.findings.iter().map(|f| (f.kind, f.object.clone(), f.mended.clone())).collect()
}

#[test]
fn blobs_are_uploaded_again_from_the_cache() {
    for with_read in [false, true] {
        let (world, _, blobs) = warmed();
        let (large, bundle) = (Key::blob(&blobs[1]), Key::blob(&blobs[0]));
        let before = (world.object(&large).unwrap(), world.object(&bundle).unwrap());
        world.memory.remove(large.as_str());
        world.memory.plant(bundle.as_str(), "short");
        let report = mend(&world, with_read).unwrap();
        let again = Some("uploaded again from the cache".to_owned());
        let expected =
            [(FindingKind::Missing, large.to_string(), again.clone()), (FindingKind::Short, bundle.to_string(), again)];
        assert_eq!(mended(&report), expected);
        assert!(!report.damaged());
        assert_eq!((world.object(&large).unwrap(), world.object(&bundle).unwrap()), before);
        finds(&read(&world), &[]);
    }
    let (world, _, blobs) = warmed();
    let large = Key::blob(&blobs[1]);
    world.flip(&large);
    assert!(read(&world).damaged(), "nothing is mended unasked");
    assert!(read(&world).damaged());
    assert!(!mend(&world, true).unwrap().damaged());
    finds(&read(&world), &[]);
}

#[test]
fn what_the_cache_has_not_stays_a_finding() {
    let (world, _, blobs) = warmed();
    let (large, plain) = (Key::blob(&blobs[1]), Key::blob(&blobs[2]));
    world.memory.remove(large.as_str());
    world.memory.remove(plain.as_str());
    std::fs::remove_file(World::entry(&world.session, &blobs[1].digest)).unwrap();
    let entry = World::entry(&world.session, &blobs[2].digest);
    let mut bytes = std::fs::read(&entry).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&entry, bytes).unwrap();
    let report = mend(&world, false).unwrap();
    let expected = [large.to_string(), plain.to_string()].map(|key| (FindingKind::Missing, key, None));
    let mut found = mended(&report);
    found.sort();
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(found, expected);
    assert!(report.damaged() && world.object(&large).is_none() && world.object(&plain).is_none());
}

#[test]
fn a_store_that_may_not_be_written_ends_it() {
    let (world, _, blobs) = warmed();
    let large = Key::blob(&blobs[1]);
    world.memory.remove(large.as_str());
    world.memory.fail_when(|what, key| what == "upload" && key.starts_with("blobs/"));
    let e = mend(&world, false).unwrap_err();
    assert_eq!(e.kind(), Kind::Unavailable);
    assert!(e.to_string().contains(&format!("cannot mend {large}")), "{e}");
    let probed = format!("probed-{}", world.session.store_id);
    std::fs::remove_file(world.session.cache.path().join(probed)).unwrap();
    world.memory.fail_when(|what, _| what == "create");
    assert_eq!(
        mend(&world, false).unwrap_err().kind(),
        Kind::Unavailable,
        "the race is run before anything is written"
    );
    assert!(world.object(&large).is_none());
    world.memory.fail_when(|_, _| false);
    // A record that only newer versions may write beside.
    let head = HeadRecord { place: Place::new(Role::Head, &name("app"), 0, Uid::from_bytes([1; 16])), newest: 1 };
    let newer = encode_requiring(&head, &[], &["tomorrow"]).unwrap();
    let key = Key::head(&name("app"));
    world.memory.plant(key.as_str(), newer);
    let e = mend(&world, false).unwrap_err();
    assert_eq!(e.kind(), Kind::Newer);
    assert!(e.to_string().contains("tomorrow") && e.to_string().contains(key.as_str()), "{e}");
    assert!(world.object(&large).is_none());
    // Where there is nothing to mend, nothing is refused.
    let large = world.object(&Key::blob(&blobs[2])).unwrap();
    assert!(!large.is_empty());
    let (whole, ..) = warmed();
    whole.memory.plant(key.as_str(), encode_requiring(&head, &[], &["tomorrow"]).unwrap());
    assert!(!mend(&whole, true).unwrap().damaged());
}

#[test]
fn a_task_manifest_is_written_again_where_the_cache_has_it() {
    let (world, checkpoint, _) = warmed();
    let key = Key::task(&name("app"), n(1), &name("db"), 0);
    let before = world.object(&key).unwrap();
    let hurt: &[(&str, &[&str])] = &[("app/chk-1/db/0", &["manifest.json"])];
    let again = "written again from the cache, which has the bytes that the checkpoint manifest names";
    world.memory.remove(key.as_str());
    finds_one(&look(&world), FindingKind::Missing, &key, hurt, "the checkpoint manifest names it");
    let report = mend(&world, false).unwrap();
    assert_eq!(mended(&report), [(FindingKind::Missing, key.to_string(), Some(again.to_owned()))]);
    assert_eq!(world.object(&key).unwrap(), before);
    world.flip(&key);
    let report = mend(&world, true).unwrap();
    assert_eq!(mended(&report), [(FindingKind::Damaged, key.to_string(), Some(again.to_owned()))]);
    assert_eq!((report.blobs, report.reading.blobs), (3, 3), "the cache's tells what it said");
    assert_eq!(world.object(&key).unwrap(), before);
    // The cache's own is gone: nobody knows what it said.
    let digest = checkpoint.manifest.subtasks[0].manifest;
    std::fs::remove_file(world.session.cache.path().join("manifests").join(digest.to_hex())).unwrap();
    world.memory.remove(key.as_str());
    let report = mend(&world, false).unwrap();
    assert_eq!(mended(&report), [(FindingKind::Missing, key.to_string(), None)]);
    assert_eq!(report.blobs, 0);
    assert!(world.object(&key).is_none());
}

#[test]
fn entries_of_the_cache_are_fetched_anew() {
    let (world, _, blobs) = warmed();
    let spoil = |digest: &Digest| {
        let entry = World::entry(&world.session, digest);
        let mut bytes = std::fs::read(&entry).unwrap();
        bytes[9] ^= 1;
        std::fs::write(&entry, bytes).unwrap();
        entry
    };
    for (blob, what) in [(blobs[1], "a file"), (blobs[0], "a bundle")] {
        let entry = spoil(&blob.digest);
        let report = mend(&world, true).unwrap();
        let anew = Some("fetched anew from the store".to_owned());
        assert_eq!(mended(&report), [(FindingKind::Damaged, entry.display().to_string(), anew)], "{what}");
        assert_eq!(Digest::of(&std::fs::read(&entry).unwrap()), blob.digest);
        assert!(!report.damaged());
        finds(&read(&world), &[]);
    }
    // Where the store has lost it as well, it goes.
    let entry = spoil(&blobs[1].digest);
    world.memory.remove(Key::blob(&blobs[1]).as_str());
    let report = mend(&world, true).unwrap();
    let found = mended(&report);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0], (FindingKind::Missing, Key::blob(&blobs[1]).to_string(), None));
    let (kind, object, done) = &found[1];
    assert_eq!((*kind, object.as_str()), (FindingKind::Damaged, &*entry.display().to_string()));
    assert!(done.as_ref().unwrap().starts_with("removed; it cannot be fetched anew: "), "{done:?}");
    assert!(!entry.exists() && report.damaged());
}

#[test]
fn what_is_mended_is_looked_at_again() {
    let (world, _, blobs) = warmed();
    let large = Key::blob(&blobs[1]);
    world.memory.remove(large.as_str());
    // The store takes the upload and has nothing then.
    let (memory, key) = (std::sync::Arc::clone(&world.memory), large.to_string());
    let lose = std::sync::Arc::clone(&memory);
    let seen = std::sync::atomic::AtomicU32::new(0);
    memory.fail_when(move |what, of| {
        if what == "head" && of == key && seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1 {
            lose.remove(of);
        }
        false
    });
    let report = mend(&world, false).unwrap();
    let missing = "it should have 196708 bytes";
    let detail = format!("{missing}; it could not be mended: it was uploaded again, and {missing}");
    finds_one(&report, FindingKind::Missing, &large, &[("app/chk-1/db/0", &["db/000007.sst"])], &detail);
    assert!(report.damaged() && report.findings[0].mended.is_none());
}

#[test]
fn an_entry_that_the_store_does_not_give_now_ends_it() {
    let (world, _, blobs) = warmed();
    let entry = World::entry(&world.session, &blobs[1].digest);
    let mut bytes = std::fs::read(&entry).unwrap();
    bytes[9] ^= 1;
    std::fs::write(&entry, bytes).unwrap();
    // Its blob is read once to be verified, and once to be fetched.
    let (key, reads) = (Key::blob(&blobs[1]).to_string(), std::sync::atomic::AtomicU32::new(0));
    world.memory.fail_when(move |what, of| {
        what == "read" && of == key && reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0
    });
    assert_eq!(mend(&world, true).unwrap_err().kind(), Kind::Unavailable);
}

#[test]
fn strays_and_pins_are_left_alone() {
    let (world, ..) = warmed();
    world.memory.plant("notes.txt", "mine");
    let pin = world.pin("app", 1, 1);
    world.memory.remove(Key::outcome(&name("app"), n(1)).as_str());
    let before = world.store.list_all(&Prefix::all()).unwrap();
    let report = mend(&world, true).unwrap();
    assert!(report.findings.iter().any(|f| f.kind == FindingKind::DanglingPin && f.object == pin.as_str()));
    assert!(report.findings.iter().all(|f| f.mended.is_none()), "{report:?}");
    assert_eq!(world.store.list_all(&Prefix::all()).unwrap(), before);
}
