//! `restore --plan`, with the real program: what it says, that it is so, and that nothing changes by it.

use std::fs;

use serde_json::Value;

use crate::tool::{Desk, Said, database, load, tree};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn a_plan_says_what_a_restore_takes_and_does_nothing() {
    let desk = Desk::new();
    let db = desk.path("source");
    for round in 1..4 {
        load(&db, "default", round, 10_000);
    }
    let named = format!("app/{}", desk.snapshot(&db));
    let options = database(&db).into_iter().filter(|(name, _)| name.starts_with("OPTIONS-")).max().unwrap().1;
    let options = String::from_utf8(options).unwrap();
    let version = options.lines().find_map(|l| l.trim().strip_prefix("rocksdb_version=")).unwrap();
    let cold =
        |args: &[&str]| -> Said { desk.command(args).env("CKPTFS_CACHE", desk.path("cold")).output().unwrap().into() };
    let before = tree(&desk.path("store"));
    let plan = json(&cold(&["--json", "restore", "--plan", &named, "new/db"]).ok());
    assert!(!desk.path("cold").exists() && !desk.path("new").exists());
    assert_eq!(tree(&desk.path("store")), before);
    let (whole, copy, open) = (&plan["whole"], &plan["copy"], &plan["clone_or_open"]);
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{plan}"));
    assert_eq!((number(&whole["files"]), number(&plan["cached"]["files"])), (database(&db).len() as u64, 0));
    assert_eq!(plan["rocksdb_version"], version);
    assert_eq!(number(&copy["written_bytes"]), number(&whole["bytes"]));
    assert!(number(&copy["fetched_bytes"]) > number(&whole["bytes"]) && number(&plan["free_bytes"]) > 0);
    // Opening takes a fraction of it.
    assert!(number(&open["fetched_bytes"]) * 10 < number(&copy["fetched_bytes"]), "{plan}");
    assert!(number(&open["requests"]) < number(&copy["requests"]));
    assert!(copy["seconds"].as_f64().unwrap() > 0.0 && plan["measured"]["small_reads"].as_u64().unwrap() > 0, "{plan}");
    // For people, within a terminal.
    let said = cold(&["restore", "--plan", &named]).ok();
    for word in ["written by RocksDB", "clone, or open in place", "whole copy", "measured just now"] {
        assert!(said.contains(word), "{said}");
    }
    assert!(said.lines().all(|line| line.chars().count() <= 120), "{said}");

    // Then it is done, and nothing is left to do.
    cold(&["warm", &named]).ok();
    let warm = json(&cold(&["--json", "restore", "--plan", &named]).ok());
    for way in ["copy", "clone_or_open"] {
        assert_eq!((&warm[way]["requests"], &warm[way]["seconds"]), (&0.into(), &Value::Null), "{warm}");
    }
    assert_eq!((&warm["cached"], &warm["measured"]), (&warm["whole"], &Value::Null));
    let said = cold(&["restore", "--plan", &named]).ok();
    assert!(!said.contains("measured"), "{said}");

    // Wrong ways to ask.
    cold(&["restore", "--plan", "--copy", &named, "x"]).fails(2, &["--copy"]);
    cold(&["restore", "--plan", "app"]).fails(2, &["names no checkpoint"]);
    cold(&["restore", &named]).fails(2, &[]);
    cold(&["restore", "--plan", "app/chk-9"]).fails(1, &["does not exist"]);
    // A blob that is lost is no reason to say nothing.
    fs::remove_dir_all(desk.path("cold")).unwrap();
    fs::remove_dir_all(desk.path("store/blobs")).unwrap();
    let lost = cold(&["restore", "--plan", &named]).ok();
    assert!(lost.contains("could not be measured"), "{lost}");
}
