//! Settling: a clone's links become local files, whatever its database does meanwhile; and the cache keeps to its limits under a mount.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use serde_json::Value;

use crate::clone::{Tables, pins, put, run, scanned, snapshot_of_little, source, tables};
use crate::kit::soon;
use crate::tool::{Desk, database, walk};

const LEFT: &str = ".ckptfs-settle-000099.sst";

/// A clone of a checkpoint whose tables are links into a mount with the cache `far`.
fn cold_clone(desk: &Desk) -> (String, Vec<String>) {
    let source = source(desk);
    let chk = desk.snapshot(&source);
    desk.mount("far");
    run(desk, "far", &["restore", &format!("app/{chk}"), "clone", "--mount", "mnt"]).ok();
    assert_eq!(tables(&desk.path("clone")), Tables { symlinks: 3, hard: 1, own: 0 });
    (chk, scanned(&source))
}

fn settle(desk: &Desk, cache: &str, directory: &str) -> Value {
    let said = run(desk, cache, &["restore", "--json", "--settle", directory]).ok();
    serde_json::from_str(&said).unwrap()
}

#[test]
fn a_settled_clone_needs_neither_mount_nor_pin() {
    let desk = Desk::new();
    let (chk, wanted) = cold_clone(&desk);
    let clone = desk.path("clone");
    put(&clone, "a");
    fs::write(clone.join(LEFT), "half").unwrap();
    // What a killed settle left is none of the database's files.
    let report = snapshot_of_little(&desk, "far", "app2", &clone);
    let second = report["checkpoint"].as_str().unwrap();
    assert!(!desk.ok(&["show", &format!("app2/{second}/db/0")]).contains("settle"));
    assert_eq!(pins(&desk).len(), 2, "the clone's and the mount's");

    let report = settle(&desk, "far", "clone");
    assert_eq!((&report["linked"]["files"], &report["settled"]), (&3.into(), &true.into()), "{report}");
    assert_eq!(tables(&clone), Tables { symlinks: 0, hard: 4, own: 1 }, "with what was put");
    assert!(!clone.join(LEFT).exists());
    assert_eq!(pins(&desk).len(), 1, "the mount's");
    desk.unmount();
    assert_eq!(scanned(&clone), wanted);
    // It is known where it came from as long as that lives.
    put(&clone, "b");
    snapshot_of_little(&desk, "far", "app2", &clone);
    assert_eq!(settle(&desk, "far", "clone")["linked"]["files"], 0, "again");
    desk.ok(&["expire", &format!("app/{chk}")]);
    desk.ok(&["expire", "app2", "--keep", "1"]);
    desk.ok(&["gc", "--delete"]);
    assert_eq!(scanned(&clone), wanted);
    assert_eq!(settle(&desk, "far", "clone")["settled"], true, "although its checkpoint is gone");
}

#[test]
fn where_the_cache_cannot_be_linked_it_copies_and_what_is_not_ours_stays() {
    let desk = Desk::new();
    let (_, wanted) = cold_clone(&desk);
    let clone = desk.path("clone");
    symlink("/dev/null", clone.join("somebodys")).unwrap();
    // Another file system; and a cache that is too small for a table.
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    let cache = shm.path().join("cache");
    let command = |args: &[&str]| {
        let mut command = desk.command(args);
        command.env("CKPTFS_CACHE", &cache);
        let said: crate::tool::Said = command.output().unwrap().into();
        serde_json::from_str::<Value>(&said.ok()).unwrap()
    };
    let report = command(&["restore", "--json", "--settle", "clone", "--cache-size", "1MiB"]);
    assert_eq!((&report["copied"]["files"], &report["settled"]), (&3.into(), &false.into()), "{report}");
    assert!(report["foreign"].to_string().contains("somebodys"), "{report}");
    assert_eq!(pins(&desk).len(), 1, "it is not settled");
    fs::remove_file(clone.join("somebodys")).unwrap();
    assert_eq!(command(&["restore", "--json", "--settle", "clone"])["settled"], true);
    assert!(pins(&desk).is_empty());
    desk.unmount();
    assert_eq!(scanned(&clone), wanted);
    assert_eq!(tables(&clone), Tables { symlinks: 0, hard: 1, own: 3 });
    for path in walk(&clone).iter().filter(|p| p.extension().is_some_and(|e| e == "sst")) {
        assert_eq!(fs::metadata(path).unwrap().uid(), fs::metadata(&clone).unwrap().uid());
    }
}

#[test]
fn what_is_no_clone_of_this_store_is_refused() {
    let desk = Desk::new();
    cold_clone(&desk);
    let before = crate::tool::tree(&desk.path("clone"));
    run(&desk, "far", &["restore", "--settle", "source"]).fails(1, &["no clone", "restore"]);
    run(&desk, "far", &["restore", "--settle", "nowhere"]).fails(1, &["nowhere"]);
    run(&desk, "far", &["restore", "--settle"]).fails(2, &["CHECKPOINT"]);
    run(&desk, "far", &["restore", "app/chk-1"]).fails(2, &["DIRECTORY"]);
    run(&desk, "far", &["restore", "app/chk-1", "x", "--copy", "--settle"]).fails(2, &["cannot be used with"]);
    let other = Desk::new();
    other.snapshot(&source(&other));
    let clone = desk.path("clone");
    other.run(&["restore", "--settle", clone.to_str().unwrap()]).fails(1, &["another store", "--store"]);
    assert_eq!(crate::tool::tree(&clone), before);
    // In one go, also without a mount's help from then on.
    run(&desk, "far", &["restore", "app/chk-1", "local", "--settle"]).ok();
    assert_eq!(tables(&desk.path("local")).symlinks, 0);
    desk.unmount();
}

/// The database reads, writes and compacts while its links are replaced: some of them it deletes itself.
#[cfg(feature = "rocksdb")]
#[test]
fn a_running_database_is_settled_under_its_hands() {
    use ckptfs::state::{Database, DatabaseOptions};
    let desk = Desk::new();
    let options = DatabaseOptions { create: true, ..DatabaseOptions::default() };
    let origin = Database::open(&desk.path("live"), &["default"], &options).unwrap();
    for round in 0..12_u64 {
        let mut batch = origin.batch();
        for key in 0..2000 {
            let value = crate::kit::noise(round * 2000 + key, 200);
            batch.put("default", format!("{round:02}-{key:08}").as_bytes(), &value).unwrap();
        }
        batch.commit().unwrap();
        origin.checkpoint(&desk.path(&format!("native-{round}"))).unwrap();
    }
    let chk = desk.snapshot(&desk.path("native-11"));
    drop(origin);
    desk.mount("far");
    run(&desk, "far", &["restore", &format!("app/{chk}"), "clone", "--mount", "mnt"]).ok();
    let clone = desk.path("clone");
    assert!(tables(&clone).symlinks >= 10);
    let db = Database::open(&clone, &["default"], &DatabaseOptions::default()).unwrap();
    let all =
        |db: &Database| db.scan("default").unwrap().map(Result::unwrap).filter(|(k, _)| !k.starts_with(b"new")).count();
    assert_eq!(all(&db), 24_000);
    let report = std::thread::scope(|s| {
        let settled = s.spawn(|| settle(&desk, "far", "clone"));
        for n in 0..200_u64 {
            let mut batch = db.batch();
            batch.put("default", format!("new{n}").as_bytes(), b"value").unwrap();
            batch.commit().unwrap();
        }
        db.compact("default").unwrap();
        settled.join().unwrap()
    });
    let sum = report["linked"]["files"].as_u64().unwrap() + report["deleted"].as_u64().unwrap();
    assert!(report["settled"] == true && sum <= 12, "{report}");
    assert_eq!(tables(&clone).symlinks, 0);
    assert_eq!(all(&db), 24_000);
    drop(db);
    desk.unmount();
    // When it is opened, RocksDB removes tables that it does not know: none came back after it was deleted.
    let there = || -> Vec<String> {
        database(&clone).into_keys().filter(|n| n.ends_with(".sst") || n.contains("settle")).collect()
    };
    let before = there();
    let db = Database::open(&clone, &["default"], &DatabaseOptions::default()).unwrap();
    assert_eq!(all(&db), 24_000);
    assert_eq!(there(), before);
}

#[test]
fn a_clone_is_settled_by_one_at_a_time_and_links_that_were_linked_again_keep_the_pin() {
    let desk = Desk::new();
    cold_clone(&desk);
    let clone = desk.path("clone");
    let lock = ckptfs::local::dir::Dir::open(&clone).unwrap().try_lock().unwrap().unwrap();
    run(&desk, "far", &["restore", "--settle", "clone"]).fails(1, &["another process settles"]);
    assert_eq!(tables(&clone).symlinks, 3);
    drop(lock);
    // As a RocksDB checkpoint of the clone does, within it.
    fs::create_dir(clone.join("native")).unwrap();
    let link = fs::read_dir(&clone).unwrap().map(|e| e.unwrap().path()).find(|p| p.is_symlink()).unwrap();
    symlink(fs::read_link(&link).unwrap(), clone.join("native").join(link.file_name().unwrap())).unwrap();
    let report = settle(&desk, "far", "clone");
    assert_eq!(report["settled"], false, "{report}");
    assert!(report["foreign"].to_string().contains("native/"), "{report}");
    assert_eq!((tables(&clone).symlinks, pins(&desk).len()), (0, 1));
    fs::remove_dir_all(clone.join("native")).unwrap();
    assert_eq!(settle(&desk, "far", "clone")["settled"], true);
    assert!(pins(&desk).is_empty());
    desk.unmount();
}

fn taken(cache: &Path) -> u64 {
    ["files", "partial", "manifests"]
        .iter()
        .flat_map(|sub| walk(&cache.join(sub)))
        .filter_map(|p| fs::metadata(p).ok())
        .filter(|m| m.nlink() == 1)
        .map(|m| m.blocks() * 512)
        .sum()
}

#[test]
fn a_mount_keeps_to_its_caches_limit_and_reads_on() {
    const LIMIT: u64 = 3 << 20;
    let desk = Desk::new();
    let source = source(&desk);
    let chk = desk.snapshot(&source);
    let wanted = database(&source);
    run(&desk, "far", &["mount", "mnt", "--daemon", "--cache-size", "3MiB", "--cache-free", "0"]).ok();
    let far = desk.path("far");
    for _ in 0..3 {
        assert!(database(&desk.mounted_db(&chk)) == wanted, "every byte, however often it had to be fetched");
        assert!(soon(|| taken(&far) <= LIMIT), "{} bytes", taken(&far));
    }
    // Another process fills it, and keeps to the same limit.
    run(&desk, "far", &["warm", &format!("app/{chk}")]).fails(1, &["do not fit", "--cache-size"]);
    run(&desk, "far", &["restore", &format!("app/{chk}"), "copy", "--copy"]).ok();
    assert!(taken(&far) <= LIMIT, "{} bytes", taken(&far));
    // What was whole once and went is brought again, under the same number: `cp` refuses files whose number changes.
    let db = desk.mounted_db(&chk);
    for table in database(&db).into_keys().filter(|n| n.ends_with(".sst")) {
        let number = std::os::unix::fs::MetadataExt::ino(&fs::symlink_metadata(db.join(&table)).unwrap());
        let mut file = fs::File::open(db.join(&table)).unwrap();
        let mut first = [0; 10];
        std::io::Read::read_exact(&mut file, &mut first).unwrap();
        assert!(first == wanted[&table][..10], "{table}");
        assert_eq!(std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap()), number, "{table}");
    }
    assert!(soon(|| taken(&far) <= LIMIT), "{} bytes", taken(&far));
    // More room, and all of it stays.
    run(&desk, "far", &["warm", &format!("app/{chk}"), "--cache-size", "default"]).ok();
    assert!(taken(&far) > 6_000_000);
    desk.unmount();
}

#[cfg(feature = "rocksdb")]
#[test]
fn a_limit_smaller_than_a_database_hurts_nobody_who_has_it_open() {
    use ckptfs::state::{Database, DatabaseOptions};
    let desk = Desk::new();
    let source = source(&desk);
    let chk = desk.snapshot(&source);
    // All of it local, and read through the mount.
    run(&desk, "far", &["warm", &format!("app/{chk}")]).ok();
    desk.mount("far");
    let db = Database::open_read_only(&desk.mounted_db(&chk), &["default"], &DatabaseOptions::default()).unwrap();
    let count = db.scan("default").unwrap().count();
    let large = || walk(&desk.path("far/files")).iter().filter(|p| fs::metadata(p).unwrap().len() > 1_000_000).count();
    let mut copies = 0;
    let mut evict = || {
        copies += 1;
        let copy = format!("copy-{copies}");
        run(&desk, "far", &["restore", "--copy", &format!("app/{chk}"), &copy, "--cache-size", "1MiB"]).ok();
    };
    evict();
    assert_eq!(large(), 3, "what is open is not evicted, by whichever process");
    assert_eq!(db.scan("default").unwrap().count(), count);
    drop(db);
    assert!(soon(|| {
        evict();
        large() == 0
    }));
    // The daemon has learned of the limit by now. What was evicted is fetched again.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(crate::tool::crate_scan(&desk.mounted_db(&chk), "default"), count);
    desk.unmount();
}
