//! What happens when something is wrong: damage, loss, a panic.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::Arc;

use ckptfs::format::{FileEntry, SubtaskEntry, TaskManifest};
use ckptfs::types::{CheckpointNumber, Digest, Name};
use ckptfs::view::{Free, Listing, Source, View, ViewError};

use crate::kit::{Bed, Kept, ls, noise, soon};

const EIO: Option<i32> = Some(libc::EIO);

fn flip(path: &std::path::Path, at: u64) {
    // What is stored is read-only.
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn one_flipped_bit_in_the_store_is_an_io_error_and_never_a_wrong_byte() {
    let bed = Bed::new();
    let (big, small) = (noise(1, 1_000_003), noise(2, 300));
    let files = [("db/000001.sst", big.clone()), ("db/000002.sst", noise(3, 200_000)), ("db/OPTIONS-1", small.clone())];
    bed.publish("app", 1, &files, &mut Kept::default());
    let blob = bed.stored(&big);
    for at in [0, 65_535, 65_536, 500_000, 1_000_002] {
        flip(&blob, at);
        let mounted = bed.mount();
        let db = bed.db("app", "chk-1");
        assert_eq!(fs::read(db.join("000001.sst")).unwrap_err().raw_os_error(), EIO, "bit at {at}");
        assert!(fs::read(db.join("000002.sst")).unwrap() == files[1].1, "others are not touched");
        flip(&blob, at);
        mounted.unmount().unwrap();
    }
    let mounted = bed.mount();
    assert!(fs::read(bed.db("app", "chk-1").join("000001.sst")).unwrap() == big, "mended");
    mounted.unmount().unwrap();
}

#[test]
fn damaged_bundles_and_manifests_are_io_errors_and_lost_blobs_too() {
    let bed = Bed::new();
    let big = noise(1, 200_000);
    bed.publish(
        "app",
        1,
        &[("db/000001.sst", big.clone()), ("db/CURRENT", b"hello there".to_vec())],
        &mut Kept::default(),
    );
    let cache = bed.cold();
    let bundles: Vec<_> =
        walk(&bed.root().join("store/blobs")).into_iter().filter(|p| *p != bed.stored(&big)).collect();
    assert_eq!(bundles.len(), 1);
    let task = walk(&bed.root().join("store/task")).pop().unwrap();
    flip(&task, 300);
    let mounted = bed.mount_with(&cache);
    assert_eq!(ls(&bed.point.join("app/chk-1/db")), ["0"]);
    assert_eq!(fs::read_dir(bed.db("app", "chk-1")).unwrap_err().raw_os_error(), EIO);
    flip(&task, 300);
    flip(&bundles[0], 9);
    let current = bed.db("app", "chk-1").join("CURRENT");
    assert_eq!(fs::read(&current).unwrap_err().raw_os_error(), EIO);
    flip(&bundles[0], 9);
    assert_eq!(fs::read(&current).unwrap(), b"hello there", "nothing remembers the error");
    let blob = bed.stored(&big);
    let aside = bed.root().join("aside");
    fs::rename(&blob, &aside).unwrap();
    let sst = bed.db("app", "chk-1").join("000001.sst");
    assert_eq!(fs::read(&sst).unwrap_err().raw_os_error(), EIO);
    fs::rename(&aside, &blob).unwrap();
    assert!(fs::read(&sst).unwrap() == big);
    let outcome = walk(&bed.root().join("store/outcome")).pop().unwrap();
    flip(&outcome, 400);
    mounted.unmount().unwrap();
    let mounted = bed.mount_with(&cache);
    assert!(!bed.point.join("app/chk-1").exists(), "a checkpoint that cannot be believed is not shown");
    mounted.unmount().unwrap();
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { out.extend(walk(&path)) } else { out.push(path) }
    }
    out
}

#[test]
fn the_last_known_listing_is_served_while_the_store_is_away() {
    let bed = Bed::new();
    bed.publish("app", 1, &[("db/CURRENT", b"x".to_vec())], &mut Kept::default());
    let mounted = bed.mount();
    assert_eq!(ls(&bed.point.join("app")), ["chk-1", "latest"]);
    fs::read(bed.db("app", "chk-1").join("CURRENT")).unwrap();
    let (store, away) = (bed.root().join("store"), bed.root().join("store-away"));
    fs::rename(&store, &away).unwrap();
    // A file where the store was: listing it fails, and an absent directory would be an empty store.
    fs::write(&store, b"").unwrap();
    assert_eq!(ls(&bed.point), ["app"]);
    assert_eq!(ls(&bed.point.join("app")), ["chk-1", "latest"]);
    assert_eq!(fs::read(bed.db("app", "chk-1").join("CURRENT")).unwrap(), b"x");
    fs::remove_file(&store).unwrap();
    fs::rename(&away, &store).unwrap();
    mounted.unmount().unwrap();
}

/// A source that panics where a real one would wait, and where it would look at the local disk.
struct Panics;

impl Source for Panics {
    fn jobs(&self) -> Result<Vec<Name>, ViewError> {
        Ok(vec![Name::parse("good").unwrap(), Name::parse("bad").unwrap()])
    }

    fn job(&self, job: &Name) -> Result<Listing, ViewError> {
        assert!(job.as_str() == "good", "planted");
        Ok(Listing::default())
    }

    fn task(&self, _: &Name, _: CheckpointNumber, _: &SubtaskEntry) -> Result<Arc<TaskManifest>, ViewError> {
        Err(ViewError::NotFound)
    }

    fn open_local(&self, _: &Digest, _: u64) -> Result<Option<File>, ViewError> {
        Ok(None)
    }

    fn fetch(&self, _: &TaskManifest, _: &FileEntry) -> Result<File, ViewError> {
        Err(ViewError::NotFound)
    }

    fn free(&self) -> Free {
        panic!("planted")
    }
}

#[test]
fn a_handler_that_panics_answers_an_io_error_and_nothing_else_is_hurt() {
    let bed = Bed::new();
    let mounted = ckptfs::fuse::mount(&bed.request(), View::new(Panics)).unwrap();
    for round in 1..=20 {
        assert_eq!(fs::read_dir(bed.point.join("bad")).unwrap().next().unwrap().unwrap_err().raw_os_error(), EIO);
        // On an event thread: as many as there may be, and more.
        assert_eq!(ckptfs::local::process::statvfs(&bed.point).unwrap_err().errno(), EIO);
        assert_eq!(ls(&bed.point.join("good")), [""; 0]);
        // The caller has its answer a moment before the panic is counted.
        assert!(soon(|| mounted.counters().panics.get() == round * 2));
    }
    mounted.unmount().unwrap();
}
