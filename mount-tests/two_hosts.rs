//! Two hosts and one store: one takes checkpoints, the other has an empty cache and nothing but the store's URL.

use std::fs;

use crate::kit::is_root;
use crate::s3::{Weed, Who};
use crate::tool::{Desk, copy_tree, database, load, scan, tool};

/// Writes with cache `a`, reads with empty caches: through the mount as writer and as somebody who may only read, by `ldb`, and by copy.
fn two_hosts(desk: &mut Desk, mut become_reader: impl FnMut(&mut Desk)) {
    let db = desk.path("source");
    for round in 1..4 {
        load(&db, "default", round, 10_000);
    }
    tool("ldb", &[&format!("--db={}", db.display()), "create_column_family", "other"]);
    load(&db, "other", 9, 3_000);
    let first = database(&db);
    copy_tree(&db, &desk.path("first"));
    desk.env.insert("CKPTFS_CACHE".into(), desk.path("a").display().to_string());
    let chk_1 = desk.snapshot(&db);
    load(&db, "default", 4, 10_000);
    let second = database(&db);
    copy_tree(&db, &desk.path("second"));
    let chk_2 = desk.snapshot(&db);
    desk.env.remove("CKPTFS_CACHE");
    // The other host has neither the files nor the cache.
    fs::remove_dir_all(&db).unwrap();
    fs::remove_dir_all(desk.path("a")).unwrap();

    for cache in ["b", "read-only"] {
        if cache == "read-only" {
            become_reader(desk);
        }
        assert!(!desk.path(cache).exists());
        desk.mount(cache);
        for (chk, files, from) in [(&chk_1, &first, "first"), (&chk_2, &second, "second")] {
            let mounted = desk.mounted_db(chk);
            assert!(database(&mounted) == *files, "every byte of {chk} with cache {cache}");
            for family in ["default", "other"] {
                assert!(scan(&mounted, family) == scan(&desk.path(from), family), "ldb scan of {family} in {chk}");
            }
            #[cfg(feature = "rocksdb")]
            assert_eq!(
                crate::tool::crate_scan(&mounted, "default"),
                scan(&desk.path(from), "default").lines().count(),
                "the crate iterates all of it"
            );
        }
        let latest = fs::read_link(desk.path("mnt/app/latest")).unwrap();
        assert_eq!(latest.to_str(), Some(chk_2.as_str()));
        desk.unmount();
    }
    // Still read-only: looking and copying need no more.
    let copied = desk.path("copied");
    let from = format!("app/{chk_1}");
    desk.ok(&["restore".as_ref(), "--copy".as_ref(), from.as_ref(), copied.as_os_str()]);
    assert!(database(&copied) == first);
    desk.ok(&["verify", "--read"]);
    assert_eq!(desk.ok(&["path", "app/latest"]).trim(), format!("app/{chk_2}"));
}

#[test]
fn over_s3_a_second_host_reads_every_byte_and_so_does_one_that_may_only_read() {
    let weed = Weed::start();
    let mut desk = Desk::new();
    weed.serve(&mut desk, "two/hosts", Who::Writer);
    two_hosts(&mut desk, |desk| weed.serve(desk, "two/hosts", Who::Reader));
    // Nothing of the store is there for who may not write, and it says so.
    let before = desk.ok(&["--json", "ls", "app"]);
    let refused = desk.run(&["snapshot", "--job", "app", "first"]);
    refused.fails(1, &["s3://bucket/two/hosts", "permission denied", "check the credentials"]);
    assert_eq!(desk.ok(&["--json", "ls", "app"]), before);
}

#[test]
fn over_a_directory_a_second_host_reads_every_byte_and_so_does_one_that_may_only_read() {
    let mut desk = Desk::new();
    two_hosts(&mut desk, |desk| desk.forbid_writing_the_store());
    let why = if is_root() { "read-only" } else { "Permission denied" };
    desk.run(&["snapshot", "--job", "app", "first"]).fails(1, &["store", why]);
    if !is_root() {
        tool("chmod", &["-R", "u+w", &desk.path("store").display().to_string()]);
    }
}
