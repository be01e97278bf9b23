//! Directories that cannot be snapshotted, and names that break the rules: a clear error, and store and cache as they were.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::tool::{Desk, LockHolder, Said, copy_tree, database, load, tree};

/// A desk with one checkpoint of `good`, and a copy of it to spoil.
fn desk() -> (Desk, PathBuf) {
    let desk = Desk::new();
    let good = desk.path("good");
    for round in 1..4 {
        load(&good, "default", round, 2_000);
    }
    desk.snapshot(&good);
    (desk, good)
}

fn snapshot(desk: &Desk, directory: &Path) -> Said {
    desk.run(&["snapshot".as_ref(), "--job".as_ref(), "app".as_ref(), directory.as_os_str()])
}

/// A directory's name, how it is spoilt, and what the error says.
type Spoil<'a> = (&'a str, &'a dyn Fn(&Path), &'a [&'a str]);

/// The first file of a directory whose name begins or ends like this.
fn named(dir: &Path, part: &str) -> PathBuf {
    let names: Vec<String> = database(dir).into_keys().collect();
    let found = names.iter().find(|n| n.starts_with(part) || n.ends_with(part));
    dir.join(found.unwrap_or_else(|| panic!("no {part} in {names:?}")))
}

#[test]
fn directories_that_are_no_whole_database_at_rest_are_refused() {
    let (desk, good) = desk();
    let (store, cache) = (tree(&desk.path("store")), tree(&desk.path("cache")));
    let spoil: [Spoil<'_>; 12] = [
        ("empty", &|d| fs::remove_dir_all(d).and_then(|()| fs::create_dir(d)).unwrap(), &["not a RocksDB directory"]),
        (
            "no-current",
            &|d| fs::remove_file(d.join("CURRENT")).unwrap(),
            &["there is no CURRENT", "RocksDB checkpoint"],
        ),
        ("bad-current", &|d| fs::write(d.join("CURRENT"), "garbage").unwrap(), &["CURRENT does not name a MANIFEST"]),
        (
            "lost-manifest",
            &|d| fs::remove_file(named(d, "MANIFEST-")).unwrap(),
            &["CURRENT names \"MANIFEST-", "not there", "make it again"],
        ),
        (
            "other-manifest",
            &|d| fs::write(d.join("CURRENT"), "MANIFEST-999999\n").unwrap(),
            &["CURRENT names \"MANIFEST-999999\"", "not there"],
        ),
        (
            "empty-manifest",
            &|d| fs::write(named(d, "MANIFEST-"), "").unwrap(),
            &["MANIFEST-", "cut off", "use another checkpoint"],
        ),
        ("lost-sst", &|d| fs::remove_file(named(d, ".sst")).unwrap(), &[".sst", "is not there", "checkpoint again"]),
        (
            "short-sst",
            &|d| fs::File::options().write(true).open(named(d, ".sst")).unwrap().set_len(1000).unwrap(),
            &[".sst has 1000 bytes instead of", "checkpoint again"],
        ),
        (
            "linked-sst",
            &|d| {
                let sst = named(d, ".sst");
                fs::rename(&sst, d.join("away")).unwrap();
                symlink("away", sst).unwrap();
            },
            &[".sst is a symbolic link", "snapshot the directory that holds the file"],
        ),
        (
            "huge-log",
            &|d| fs::File::create(d.join("000099.log")).unwrap().set_len(900 << 30).unwrap(),
            &["000099.log has", "at most", "flush the database"],
        ),
        (
            "log-elsewhere",
            &|d| {
                let elsewhere = d.with_file_name("elsewhere");
                fs::create_dir(&elsewhere).unwrap();
                fs::write(elsewhere.join("000099.log"), "not flushed").unwrap();
                let line = format!("[DBOptions]\n  wal_dir={}\n", elsewhere.display());
                for name in database(d).into_keys().filter(|n| n.starts_with("OPTIONS-")) {
                    let text = fs::read_to_string(d.join(&name)).unwrap();
                    let said = text.replace("[DBOptions]\n", &line);
                    assert_ne!(said, text);
                    fs::write(d.join(name), said).unwrap();
                }
                fs::write(d.join("LOCK"), "").unwrap();
            },
            &["write-ahead log lies in another directory", "elsewhere", "flush the database"],
        ),
        ("odd-name", &|d| fs::write(d.join("what is this"), "").unwrap(), &["\"what is this\"", "move that file away"]),
    ];
    for (name, spoil, words) in spoil {
        let dir = desk.path(name);
        copy_tree(&good, &dir);
        spoil(&dir);
        let said = snapshot(&desk, &dir);
        said.fails(1, words);
        said.fails(1, &[name]);
        assert!(said.out.is_empty(), "{said:?}");
    }
    snapshot(&desk, &desk.path("nowhere")).fails(1, &["nowhere", "no such directory", "name a RocksDB checkpoint"]);
    fs::write(desk.path("a-file"), "").unwrap();
    snapshot(&desk, &desk.path("a-file")).fails(1, &["a-file", "not a directory", "name a RocksDB checkpoint"]);
    assert_eq!(tree(&desk.path("store")), store);
    assert_eq!(tree(&desk.path("cache")), cache);
    // A directory that cannot be stored makes no store either.
    let fresh =
        desk.command(&["snapshot", "--job", "app", "no-current"]).env("CKPTFS_STORE", desk.path("new")).output();
    Said::from(fresh.unwrap()).fails(1, &["there is no CURRENT"]);
    assert!(!desk.path("new").exists());
    assert_eq!(snapshot(&desk, &good).ok(), "chk-2\n", "no number was used up");
}

#[test]
fn a_running_database_is_refused_and_its_process_is_named() {
    let (desk, good) = desk();
    let (store, cache) = (tree(&desk.path("store")), tree(&desk.path("cache")));
    let holder = LockHolder::of(&good.join("LOCK"));
    let who = format!("process {}", holder.pid());
    snapshot(&desk, &good).fails(1, &["the database is running", "LOCK is held", &who, "stop the database"]);
    assert_eq!(tree(&desk.path("store")), store);
    assert_eq!(tree(&desk.path("cache")), cache);
    drop(holder);
    snapshot(&desk, &good).ok();
}

#[test]
fn a_directory_that_changes_under_the_snapshot_is_not_published() {
    let (desk, good) = desk();
    // Large enough that the change falls into the snapshot: it starts once the first bytes of it are in the store.
    let big = desk.path("big");
    for round in 10..14 {
        load(&big, "default", round, 120_000);
    }
    let intent = desk.path("store/intent/app/00000000000000000002.json");
    let child =
        desk.command(&["snapshot", "--job", "app", "big"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    while !intent.exists() {
        std::thread::sleep(Duration::from_micros(200));
    }
    fs::write(big.join("OPTIONS-999999"), "written meanwhile").unwrap();
    let said: Said = child.wait_with_output().unwrap().into();
    said.fails(
        1,
        &["big", "changed under the snapshot", "OPTIONS-999999", "Nothing was published", "stop the database"],
    );
    let listed = desk.ok(&["ls", "app"]);
    assert!(listed.contains("chk-1") && !listed.contains("chk-2"), "{listed}");
    desk.ok(&["verify", "--read"]);
    assert!(desk.path("store/outcome/app/00000000000000000002.json").exists(), "the number was given up");
    assert_eq!(snapshot(&desk, &good).ok(), "chk-3\n");
    assert_eq!(snapshot(&desk, &big).ok(), "chk-4\n");
}

#[test]
fn names_that_break_the_rules_are_wrong_usage() {
    let (desk, _) = desk();
    let (store, cache) = (tree(&desk.path("store")), tree(&desk.path("cache")));
    let long = "x".repeat(201);
    let jobs = ["", ".", "..", "a/b", "/etc", "latest", "manifest.json", "flink", "a\nb", "a\u{1b}[2Jb", &long];
    for job in jobs {
        for args in [
            vec!["snapshot", "--job", job, "good"],
            vec!["open", "--job", job, "--expect", "db=1"],
            vec!["abort", "--job", job, "--checkpoint", "1"],
            vec!["ls", job],
        ] {
            let said = desk.run(&args);
            said.fails(2, &["cannot name a job"]);
            assert!(!said.err.contains('\u{1b}'), "an escape reaches the terminal: {said:?}");
        }
    }
    desk.run(&["snapshot", "--job=-x", "good"]).fails(2, &["starts with a dash"]);
    for checkpoint in [
        "app",
        "app/",
        "app/1",
        "app/chk-0",
        "app/chk-01",
        "app/chk--1",
        "app/chk-99999999999999999999",
        "../chk-1",
        "app/chk-1/db",
        "app/chk-1/db/x",
    ] {
        for verb in [vec!["show"], vec!["path"], vec!["restore", "--copy"], vec!["diff", "app/chk-1"]] {
            let mut args = verb.clone();
            args.push(checkpoint);
            args.extend((verb[0] == "restore").then_some("target"));
            desk.run(&args).fails(2, &["chk-"]);
        }
    }
    for number in ["0", "x", "-1", "18446744073709551615", "99999999999999999999"] {
        desk.run(&["snapshot", "--job", "app", &format!("--number={number}"), "good"]).fails(2, &["--number"]);
    }
    desk.run(&["snapshot", "--job", "app", "--number", "1", "good"])
        .fails(1, &["app/chk-1 exists already", "choose another"]);
    desk.run(&["show", "app/chk-9"]).fails(1, &["app/chk-9 does not exist", "ckptfs ls app"]);
    desk.run(&["ls", "nobody"]).fails(1, &["no job nobody", "ckptfs ls"]);
    desk.run(&["snapshot", "good"]).fails(2, &["--job"]);
    desk.run(&["frobnicate"]).fails(2, &["frobnicate"]);
    assert!(!desk.path("target").exists());
    assert_eq!(tree(&desk.path("store")), store);
    assert_eq!(tree(&desk.path("cache")), cache);
}
