//! A clone's links become files: of those that lead to its checkpoint, and of no others.

use std::os::unix::fs::{MetadataExt, symlink};

use super::clones::{all, cloned, pins, request};
use super::looks::two;
use super::*;
use crate::cache::CacheLimits;
use crate::error::Kind;
use crate::restore::clone::Amount;
use crate::restore::{clone, settle, warm};
use crate::types::Silent;

fn amount(files: u64, bytes: usize) -> Amount {
    Amount { files, bytes: bytes as u64 }
}

/// Puts a link into some mount in a file's place, as a clone makes it where the cache lacks the file.
fn unsettle(database: &Path, subtask: u32, files: &[&str]) {
    for file in files {
        std::fs::remove_file(database.join(file)).unwrap();
        symlink(format!("/away/app/chk-1/db/{subtask}/db/{file}"), database.join(file)).unwrap();
    }
}

#[test]
fn links_become_files_of_the_cache() {
    let world = World::new();
    let checkpoint = world.database("app");
    cloned(&world, &checkpoint, "db");
    let directory = world.path("db");
    unsettle(&directory, 0, &["000007.sst", "000009.sst"]);
    let large = world.manifest(&checkpoint).file("db/000007.sst").unwrap().digest;
    let entry = World::entry(&world.session, &large);
    std::fs::remove_file(&entry).unwrap();
    // Half-made by one that was killed.
    std::fs::write(directory.join(".ckptfs-settle-000001.sst"), b"half").unwrap();
    assert_eq!(pins(&world).len(), 1);
    let told = Told::default();
    let report = settle(&world.session, &directory, &told).unwrap();
    assert_eq!((report.linked, report.copied), (amount(2, LARGE + PLAIN), amount(0, 0)));
    assert_eq!((report.deleted, report.foreign.len(), report.settled), (0, 0, true));
    assert!(report.seconds > 0.0 && report.seconds < 60.0);
    let bytes = (LARGE + PLAIN) as u64;
    assert_eq!(told.all(), (vec!["plan".to_owned(), "fetch".to_owned()], vec![(2, bytes)], bytes));
    assert_eq!(read_all(&directory), files_of(1));
    assert!(directory.join("000007.sst").symlink_metadata().unwrap().is_file());
    assert_eq!(entry.metadata().unwrap().ino(), directory.join("000007.sst").metadata().unwrap().ino());
    assert_eq!(
        names(&directory),
        [".ckptfs-clone.json", "000004.log", "000007.sst", "000008.sst", "000009.sst", "CURRENT"]
    );
    assert!(pins(&world).is_empty());
    // Again: nothing is to be done, and its checkpoint may be gone.
    world.pin("app", 1, 1);
    world.memory.remove(Key::outcome(&name("app"), n(1)).as_str());
    let report = settle(&world.session, &directory, &Silent).unwrap();
    assert_eq!((report.linked, report.copied, report.settled), (amount(0, 0), amount(0, 0), true));
    assert_eq!((report.deleted, report.foreign.len()), (0, 0));
    assert_eq!(pins(&world).len(), 1, "another's pin stays");
}

#[test]
fn a_clone_that_was_never_linked_loses_its_pin() {
    let world = World::new();
    let checkpoint = world.database("app");
    cloned(&world, &checkpoint, "db");
    assert_eq!(pins(&world).len(), 1);
    assert!(settle(&world.session, &world.path("db"), &Silent).unwrap().settled);
    assert!(pins(&world).is_empty());
}

#[test]
fn links_that_lead_elsewhere_stay_and_keep_the_pin() {
    let world = World::new();
    let checkpoint = world.database("app");
    cloned(&world, &checkpoint, "db");
    let directory = world.path("db");
    unsettle(&directory, 0, &["000007.sst"]);
    let elsewhere = "/away/app/chk-2/db/0/db/000009.sst";
    std::fs::remove_file(directory.join("000009.sst")).unwrap();
    symlink(elsewhere, directory.join("000009.sst")).unwrap();
    symlink("/away/app/chk-1/db/0/db/000007.sst", directory.join("000099.sst")).unwrap();
    let report = settle(&world.session, &directory, &Silent).unwrap();
    assert_eq!((report.linked, report.copied, report.settled), (amount(1, LARGE), amount(0, 0), false));
    let mut foreign = report.foreign.clone();
    foreign.sort();
    assert_eq!(foreign, [PathBuf::from("000009.sst"), PathBuf::from("000099.sst")]);
    assert_eq!(std::fs::read_link(directory.join("000009.sst")).unwrap(), Path::new(elsewhere));
    assert_eq!(pins(&world).len(), 1);
}

#[test]
fn every_database_of_a_clone_is_settled() {
    let world = World::new();
    let checkpoint = two(&world);
    let report = cloned(&world, &checkpoint, "clone");
    for (subtask, database) in (0..).zip(&report.databases) {
        unsettle(database, subtask, &["000007.sst"]);
    }
    let report = settle(&world.session, &world.path("clone"), &Silent).unwrap();
    assert_eq!((report.linked, report.settled), (amount(2, 2 * LARGE), true));
    assert_eq!(read_all(&world.path("clone/db/0/db")), files_of(1));
    assert_eq!(read_all(&world.path("clone/db/1/db")), files_of(101));
}

#[test]
fn which_subtask_a_database_is_its_links_tell() {
    let world = World::new();
    let checkpoint = two(&world);
    warm(&world.session, &checkpoint, &all(&checkpoint), &Silent).unwrap();
    let (one, directory) = (&all(&checkpoint)[1..2], world.path("db"));
    clone(&world.session, &checkpoint, one, &request(&directory), &Silent).unwrap();
    unsettle(&directory, 1, &["000007.sst"]);
    assert!(settle(&world.session, &directory, &Silent).unwrap().settled);
    assert_eq!(read_all(&directory), files_of(101));
}

#[test]
fn what_cannot_be_linked_is_copied() {
    let world = World::new();
    let checkpoint = world.database("app");
    cloned(&world, &checkpoint, "db");
    let directory = world.path("db");
    let limit = |size| {
        let cache = &world.session.cache;
        cache.set_limits(CacheLimits { size: Some(size), ..cache.limits() }).unwrap();
    };
    let inodes = || {
        let digest = world.manifest(&checkpoint).file("db/000007.sst").unwrap().digest;
        let entry = World::entry(&world.session, &digest);
        [entry.metadata().unwrap().ino(), directory.join("000007.sst").metadata().unwrap().ino()]
    };
    for (size, linked) in [(LARGE as u64 - 1, 0), (LARGE as u64, 1)] {
        limit(size);
        unsettle(&directory, 0, &["000007.sst"]);
        let report = settle(&world.session, &directory, &Silent).unwrap();
        assert_eq!((report.linked.files, report.copied.files), (linked, 1 - linked), "{size}");
        assert_eq!((report.linked.bytes + report.copied.bytes, report.settled), (LARGE as u64, true));
        assert_eq!(inodes()[0] == inodes()[1], linked == 1);
        assert_eq!(read_all(&directory), files_of(1));
    }
    // The cache is another user's than the clone.
    unsettle(&directory, 0, &["000007.sst"]);
    std::os::unix::fs::chown(&directory, Some(12345), Some(23456)).unwrap();
    let large = world.manifest(&checkpoint).file("db/000007.sst").unwrap().clone();
    std::fs::remove_file(World::entry(&world.session, &large.digest)).unwrap();
    let report = settle(&world.session, &directory, &Silent).unwrap();
    assert_eq!((report.linked, report.copied), (amount(0, 0), amount(1, LARGE)));
    let file = directory.join("000007.sst").metadata().unwrap();
    assert_eq!((file.uid(), file.gid()), (12345, 23456));
    assert!(
        !world.session.cache.has(&large.digest, large.size).unwrap(),
        "nothing is fetched for a link that cannot be"
    );
}

#[test]
fn what_is_damaged_is_not_tried_twice() {
    let world = World::new();
    let checkpoint = world.database("app");
    cloned(&world, &checkpoint, "db");
    let directory = world.path("db");
    unsettle(&directory, 0, &["000007.sst"]);
    let blob = world.manifest(&checkpoint).blobs[1].name;
    std::fs::remove_file(World::entry(&world.session, &blob.digest)).unwrap();
    world.flip(&Key::blob(&blob));
    let before = world.store.counters().gets.get();
    let e = settle(&world.session, &directory, &Silent).unwrap_err();
    assert_eq!(e.kind(), Kind::Damage);
    assert_eq!(world.store.counters().gets.get() - before, 1, "the blob, once");
}

/// Takes a link away, or puts another in its place, once the work was planned.
struct Meanwhile(PathBuf, bool);

impl Progress for Meanwhile {
    fn phase(&self, name: &str) {
        if name == "fetch" {
            std::fs::remove_file(&self.0).unwrap();
            if self.1 {
                symlink("/elsewhere", &self.0).unwrap();
            }
        }
    }
}

#[test]
fn a_link_that_was_deleted_meanwhile_stays_so() {
    let world = World::new();
    let checkpoint = world.database("app");
    cloned(&world, &checkpoint, "db");
    let directory = world.path("db");
    unsettle(&directory, 0, &["000007.sst", "000009.sst"]);
    let report = settle(&world.session, &directory, &Meanwhile(directory.join("000007.sst"), false)).unwrap();
    assert_eq!((report.deleted, report.linked, report.copied), (1, amount(1, PLAIN), amount(0, 0)));
    assert!(report.settled && !directory.join("000007.sst").exists());
    assert_eq!(names(&directory), [".ckptfs-clone.json", "000004.log", "000008.sst", "000009.sst", "CURRENT"]);
    unsettle(&directory, 0, &["000009.sst"]);
    let report = settle(&world.session, &directory, &Meanwhile(directory.join("000009.sst"), true)).unwrap();
    assert_eq!((report.deleted, report.linked, report.settled), (1, amount(0, 0), false));
    assert_eq!(report.foreign, [PathBuf::from("000009.sst")]);
    assert_eq!(std::fs::read_link(directory.join("000009.sst")).unwrap(), Path::new("/elsewhere"));
}

#[test]
fn what_is_no_clone_of_this_checkpoint_is_refused() {
    let world = World::new();
    let checkpoint = world.database("app");
    cloned(&world, &checkpoint, "db");
    let directory = world.path("db");
    unsettle(&directory, 0, &["000007.sst"]);
    std::fs::create_dir(world.path("plain")).unwrap();
    let refused = |session: &Session, at: &Path| {
        let e = settle(session, at, &Silent).unwrap_err();
        (e.kind(), e.to_string())
    };
    let (kind, text) = refused(&world.session, &world.path("plain"));
    assert!(kind == Kind::Invalid && text.contains("it is no clone"), "{text}");
    let other = World::new();
    let (kind, text) = refused(&other.session, &directory);
    assert!(kind == Kind::Invalid && text.contains("of another store than memory://"), "{text}");
    let mut newer = world.session.clone();
    newer.blocks_writing = vec!["tomorrow".to_owned()];
    assert_eq!(refused(&newer, &directory).0, Kind::Newer);
    {
        let dir = crate::local::dir::Dir::open(&directory).unwrap();
        let _lock = dir.try_lock().unwrap().unwrap();
        let (kind, text) = refused(&world.session, &directory);
        assert!(kind == Kind::Conflict && text.contains("another process settles this clone"), "{text}");
    }
    // Its number is another checkpoint's.
    let key = Key::outcome(&name("app"), n(1));
    let mut outcome = crate::lifecycle::catalog::outcome(&world.store, &name("app"), n(1)).unwrap().unwrap();
    outcome.place.uid = Uid::from_bytes([1; 16]);
    world.put(&outcome);
    let (kind, text) = refused(&world.elsewhere("other"), &directory);
    assert!(kind == Kind::Conflict && text.contains("app/chk-1 is another checkpoint"), "{text}");
    world.memory.remove(key.as_str());
    assert_eq!(refused(&world.elsewhere("third"), &directory).0, Kind::NotFound);
    assert_eq!(
        std::fs::read_link(directory.join("000007.sst")).unwrap(),
        Path::new("/away/app/chk-1/db/0/db/000007.sst")
    );
}

#[test]
fn what_the_store_lost_leaves_the_links_as_they_were() {
    let world = World::new();
    let checkpoint = world.database("app");
    cloned(&world, &checkpoint, "db");
    let directory = world.path("db");
    unsettle(&directory, 0, &["000007.sst"]);
    let manifest = world.manifest(&checkpoint);
    std::fs::remove_file(World::entry(&world.session, &manifest.blobs[1].name.digest)).unwrap();
    world.memory.remove(Key::blob(&manifest.blobs[1].name).as_str());
    assert!(settle(&world.session, &directory, &Silent).is_err());
    assert!(directory.join("000007.sst").is_symlink() && pins(&world).len() == 1);
}
