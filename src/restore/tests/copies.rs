//! Copies and warm caches: every byte as it was stored, and nothing where one is not to be had.

use super::looks::two;
use super::*;
use crate::cache::CacheLimits;
use crate::error::Kind;
use crate::format::SubtaskEntry;
use crate::restore::layout::Layout;
use crate::restore::{copy, warm};
use crate::types::Silent;

const LOGICAL: u64 = 16 + 40 + (LARGE + SMALL + PLAIN) as u64;

fn all(checkpoint: &Checkpoint) -> Vec<&SubtaskEntry> {
    checkpoint.manifest.subtasks.iter().collect()
}

#[test]
fn a_database_is_copied_byte_for_byte() {
    let world = World::new();
    let checkpoint = world.database("app");
    let (target, told) = (world.path("db"), Told::default());
    let report = copy(&world.session, &checkpoint, &all(&checkpoint), &target, &told).unwrap();
    assert_eq!(read_all(&target), files_of(1));
    assert_eq!((report.files, report.bytes, report.cached_bytes), (5, LOGICAL, 0));
    assert_eq!(report.databases, std::slice::from_ref(&target));
    assert!(report.seconds > 0.0 && report.seconds < 60.0);
    assert_eq!(told.all(), (vec!["copy".to_owned()], vec![(5, LOGICAL)], LOGICAL));
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(target.join("CURRENT")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o644);
    // What came out of the bundle is in the cache now.
    let report = copy(&world.session, &checkpoint, &all(&checkpoint), &world.path("again"), &Silent).unwrap();
    assert_eq!(report.cached_bytes, 16 + 40 + SMALL as u64);
    warm(&world.session, &checkpoint, &all(&checkpoint), &Silent).unwrap();
    let report = copy(&world.session, &checkpoint, &all(&checkpoint), &world.path("warm"), &Silent).unwrap();
    assert_eq!(report.cached_bytes, LOGICAL);
    assert_eq!(read_all(&world.path("warm")), files_of(1));
    let e = copy(&world.session, &checkpoint, &all(&checkpoint), &target, &Silent).unwrap_err();
    assert_eq!(e.kind(), Kind::Invalid);
    assert_eq!(names(&world.path("")), ["again", "cache", "db", "warm"]);
}

#[test]
fn several_subtasks_are_laid_out_as_on_the_mount() {
    let world = World::new();
    let checkpoint = two(&world);
    let target = world.path("t");
    std::fs::create_dir(&target).unwrap();
    let report = copy(&world.session, &checkpoint, &all(&checkpoint), &target, &Silent).unwrap();
    assert_eq!((report.files, report.bytes), (11, 2 * LOGICAL + 14));
    assert_eq!(report.databases, [target.join("db/0/db"), target.join("db/1/db")]);
    assert_eq!(read_all(&target.join("db/0/db")), files_of(1));
    assert_eq!(read_all(&target.join("db/1/db")), files_of(101));
    assert_eq!(std::fs::read(target.join("op/0/operator/list/0")).unwrap(), b"operator state");
}

#[test]
fn composed_files_are_put_together() {
    let world = World::new();
    let bytes = noise(5, 5000);
    let checkpoint = world.checkpoint("app", |part| {
        let bundle = part.bundle(&[&bytes[..1000], &bytes[1000..1500]]);
        let blob = part.blob(&bytes[1500..]);
        part.file("db/000001.sst", &bytes, &[bundle[0], bundle[1], (blob, 0, 3500).into()]);
        part.file("db/000002.sst", b"", &[]);
    });
    let target = world.path("db");
    let report = copy(&world.session, &checkpoint, &all(&checkpoint), &target, &Silent).unwrap();
    assert_eq!((report.files, report.bytes, report.databases.len()), (2, 5000, 0));
    let expected = [("000001.sst", bytes), ("000002.sst", Vec::new())];
    assert_eq!(read_all(&target), expected.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect());
}

#[test]
fn a_damaged_blob_is_named_and_nothing_is_left() {
    let world = World::new();
    let checkpoint = world.database("app");
    let blobs = world.manifest(&checkpoint).blobs.clone();
    let (large, target) = (Key::blob(&blobs[1].name), world.path("db"));
    world.flip(&large);
    let before = names(&world.path(""));
    let e = copy(&world.session, &checkpoint, &all(&checkpoint), &target, &Silent).unwrap_err();
    assert_eq!(e.kind(), Kind::Damage);
    let words = format!("db/000007.sst is damaged in the store (in {large})");
    assert!(e.to_string().contains(&words), "{e}");
    assert_eq!(names(&world.path("")), before);
    world.memory.remove(large.as_str());
    assert!(copy(&world.session, &checkpoint, &all(&checkpoint), &target, &Silent).is_err());
    world.flip(&Key::blob(&blobs[0].name));
    assert!(copy(&world.elsewhere("cold"), &checkpoint, &all(&checkpoint), &target, &Silent).is_err());
    assert!(!target.exists());
}

#[test]
fn a_copy_of_the_cache_that_is_bad_behind_its_record_is_not_believed() {
    let world = World::new();
    let checkpoint = world.database("app");
    warm(&world.session, &checkpoint, &all(&checkpoint), &Silent).unwrap();
    let digest = world.manifest(&checkpoint).file("db/000007.sst").unwrap().digest;
    let entry = World::entry(&world.session, &digest);
    let file = std::fs::File::options().write(true).open(&entry).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    // Longer than what was there: none of it may stay behind the store's bytes.
    std::os::unix::fs::FileExt::write_all_at(&file, b"lost", 70_000).unwrap();
    file.set_modified(time).unwrap();
    drop(file);
    assert!(
        world.session.cache.open_complete(&digest, LARGE as u64).unwrap().is_some(),
        "its record still vouches for it"
    );
    let target = world.path("db");
    copy(&world.session, &checkpoint, &all(&checkpoint), &target, &Silent).unwrap();
    assert_eq!(read_all(&target), files_of(1));
    assert!(!entry.exists());
}

#[test]
fn a_cache_is_warm_once_it_has_each_content() {
    let world = World::new();
    let checkpoint = world.checkpoint("app", |part| {
        part.database(1);
        let twice = part.blob(b"twice");
        part.file("db/000010.sst", b"twice", &[(twice, 0, 5).into()]);
        part.file("db/000011.sst", b"twice", &[(twice, 0, 5).into()]);
    });
    let told = Told::default();
    let report = warm(&world.session, &checkpoint, &all(&checkpoint), &told).unwrap();
    let bytes = LOGICAL + 5;
    assert_eq!((report.files, report.bytes, report.fetched_bytes), (6, bytes, bytes));
    assert!(report.seconds > 0.0 && report.seconds < 60.0);
    assert_eq!(told.all(), (vec!["fetch".to_owned()], vec![(6, bytes)], bytes));
    for file in &world.manifest(&checkpoint).files {
        assert!(world.session.cache.has(&file.digest, file.size).unwrap(), "{}", file.path);
    }
    let large = world.manifest(&checkpoint).file("db/000007.sst").unwrap().digest;
    std::fs::remove_file(World::entry(&world.session, &large)).unwrap();
    let report = warm(&world.session, &checkpoint, &all(&checkpoint), &Silent).unwrap();
    assert_eq!((report.files, report.bytes, report.fetched_bytes), (6, bytes, LARGE as u64));
    let report = warm(&world.session, &checkpoint, &all(&checkpoint), &Silent).unwrap();
    assert_eq!(report.fetched_bytes, 0);
}

#[test]
fn a_cache_that_is_too_small_is_not_begun_with() {
    let world = World::new();
    let checkpoint = world.database("app");
    for (size, fits) in [(LOGICAL - 1, false), (LOGICAL, true)] {
        let cache = world.elsewhere(&format!("cache{size}"));
        cache.cache.set_limits(CacheLimits { size: Some(size), ..cache.cache.limits() }).unwrap();
        let result = warm(&cache, &checkpoint, &all(&checkpoint), &Silent);
        assert_eq!(result.is_ok(), fits, "{size}");
        if let Err(e) = result {
            let words = format!("{LOGICAL} bytes do not fit into the cache");
            assert!(e.kind() == Kind::Resources && e.to_string().contains(&words), "{e}");
            assert!(e.to_string().contains(&format!("which may take {size}")), "{e}");
            assert_eq!(cache.cache.counters().fetched_files.get(), 0);
        }
    }
}

/// A file system in memory of so many KiB, which goes when dropped.
struct Small(PathBuf);

impl Small {
    fn at(path: PathBuf, kib: u32) -> Self {
        std::fs::create_dir(&path).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "none"]).arg(&path);
        assert!(mount.status().unwrap().success(), "these tests need root to mount a small tmpfs");
        Self(path)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_cache_is_no_reason_to_copy_nothing() {
    let world = World::new();
    let bytes = noise(5, 300_000);
    let checkpoint = world.checkpoint("app", |part| {
        let bundle = part.bundle(&[&bytes[..200_000], &bytes[200_000..]]);
        part.file("db/000001.log", &bytes[..200_000], &bundle[..1]);
        part.file("db/000002.log", &bytes[200_000..], &bundle[1..]);
    });
    let small = Small::at(world.path("small"), 200);
    let cold = world.elsewhere("small/cache");
    let target = world.path("db");
    let report = copy(&cold, &checkpoint, &all(&checkpoint), &target, &Silent).unwrap();
    assert_eq!((report.files, report.cached_bytes), (2, 0));
    assert_eq!(std::fs::read(target.join("000001.log")).unwrap(), bytes[..200_000]);
    assert_eq!(std::fs::read(target.join("000002.log")).unwrap(), bytes[200_000..]);
    // A target that is full is one.
    let full = copy(&world.session, &checkpoint, &all(&checkpoint), &world.path("small/db"), &Silent).unwrap_err();
    assert_eq!(full.kind(), Kind::Resources);
    drop((cold, small));
}

#[test]
fn a_large_file_is_read_in_one_stream() {
    let world = World::new();
    let bytes = vec![7; 9 << 20];
    let checkpoint = world.single("app", &bytes);
    let manifest = world.manifest(&checkpoint);
    assert_eq!(manifest.files[0].size, 9 << 20);
    let before = world.store.counters().gets.get();
    copy(&world.session, &checkpoint, &all(&checkpoint), &world.path("db"), &Silent).unwrap();
    assert_eq!(world.store.counters().gets.get() - before, 1);
    assert_eq!(std::fs::read(world.path("db/1.sst")).unwrap(), bytes);
}

#[test]
fn a_bundle_that_is_damaged_is_found_before_anything_is_read_of_it() {
    let world = World::new();
    let checkpoint = world.database("app");
    let manifest = world.manifest(&checkpoint);
    world.flip(&Key::blob(&manifest.blobs[0].name));
    let entry = &checkpoint.manifest.subtasks[0];
    let layout = Layout::part(&checkpoint, entry, &manifest, &|path| path.as_str() == "db/000009.sst");
    assert_eq!(layout.fetch_bundles(&world.session).unwrap_err().kind(), Kind::Damage);
}

#[test]
fn a_part_of_a_blob_is_copied_as_it_is_served() {
    let world = World::new();
    let bytes = noise(9, 3000);
    let checkpoint = world.checkpoint("app", |part| {
        let blob = part.blob(&bytes);
        part.file("db/000001.sst", &bytes[..1000], &[(blob, 0, 1000).into()]);
        part.file("db/000002.sst", &bytes[2000..], &[(blob, 2000, 1000).into()]);
        part.file("db/000003.sst", &bytes[1..2000], &[(blob, 1, 999).into(), (blob, 1000, 1000).into()]);
    });
    let target = world.path("db");
    copy(&world.session, &checkpoint, &all(&checkpoint), &target, &Silent).unwrap();
    let expected = [("000001.sst", &bytes[..1000]), ("000002.sst", &bytes[2000..]), ("000003.sst", &bytes[1..2000])];
    assert_eq!(
        read_all(&target),
        expected.into_iter().map(|(name, bytes)| (name.to_owned(), bytes.to_vec())).collect()
    );
    warm(&world.session, &checkpoint, &all(&checkpoint), &Silent).unwrap();
}
