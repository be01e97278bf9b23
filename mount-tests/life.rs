//! Life and death of checkpoints by the verbs, on real databases: hide, expire, pin, sweep.

use serde_json::Value;

use crate::tool::{Desk, copy_tree, load, scan};

/// A job `app` with so many checkpoints, each with tables of its own; what `ldb` reads in each.
fn job(desk: &Desk, checkpoints: u64) -> Vec<String> {
    let db = desk.path("source");
    (1..=checkpoints)
        .map(|round| {
            load(&db, "default", round, 2000);
            assert_eq!(desk.snapshot(&db), format!("chk-{round}"));
            scan(&db, "default")
        })
        .collect()
}

fn json(desk: &Desk, args: &[&str]) -> Value {
    serde_json::from_str(&desk.ok(&[&["--json"], args].concat())).unwrap()
}

fn listed(desk: &Desk) -> Vec<String> {
    let rows = json(desk, &["ls", "app"]);
    rows.as_array().unwrap().iter().map(|r| r["checkpoint"].as_str().unwrap().to_owned()).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

#[test]
fn what_a_policy_lets_go_is_swept_and_the_rest_reads_as_before() {
    let desk = Desk::new();
    let texts = job(&desk, 5);
    // A compaction rewrites everything: what the old ones have, only they need.
    crate::tool::tool("ldb", &[&format!("--db={}", desk.path("source").display()), "compact"]);
    assert_eq!(desk.snapshot(&desk.path("source")), "chk-6");
    desk.run(&["expire", "app"]).fails(2, &["--keep"]);
    desk.run(&["expire", "app/latest"]).fails(2, &["by its number"]);
    desk.run(&["expire", "app/chk-1", "--keep", "3"]).fails(2, &["whole job"]);
    let dry = desk.run(&["expire", "app", "--keep", "2", "--dry-run"]);
    assert!(dry.err.contains("app/chk-4 would expire") && !dry.err.contains("chk-5"), "{}", dry.err);
    assert_eq!(listed(&desk).len(), 6);
    desk.ok(&["expire", "app", "--keep", "2"]);
    assert_eq!(listed(&desk), ["chk-5", "chk-6"]);
    assert_eq!(number(&json(&desk, &["gc"])["doomed"]["bytes"]), 0, "chk-5 still names every old table");
    desk.ok(&["expire", "app/chk-5"]);
    let plan = json(&desk, &["gc"]);
    let bytes = number(&plan["doomed"]["bytes"]);
    assert!(bytes > 5 * 2000 * 192 && plan["deleted"].is_null(), "{plan}");
    let people = desk.run(&["gc"]);
    assert!(people.out.contains("app/chk-1") && people.err.contains("gc --delete"), "{}{}", people.out, people.err);
    let done = json(&desk, &["gc", "--delete", "--forget-all"]);
    assert_eq!(number(&done["deleted"]["bytes"]), bytes);
    assert_eq!(number(&done["deleted"]["forgotten"]), 5);
    assert_eq!(number(&json(&desk, &["gc", "--delete"])["deleted"]["blobs"]), 0, "once is enough");
    desk.ok(&["verify", "--read"]);
    let copy = desk.path("copy");
    desk.ok(&["restore".as_ref(), "--copy".as_ref(), "app/chk-6".as_ref(), copy.as_os_str()]);
    assert_eq!(scan(&copy, "default"), texts[4]);
    // Numbers are never used again, and the next snapshot goes on.
    desk.run(&["snapshot", "--job", "app", "--number", "2", "source"]).fails(1, &["chk-2"]);
    assert_eq!(desk.snapshot(&desk.path("source")), "chk-7");
}

#[test]
fn a_hidden_checkpoint_is_found_by_name_and_comes_back() {
    let desk = Desk::new();
    let texts = job(&desk, 2);
    let mnt = desk.mount("cache");
    desk.ok(&["hide", "app/chk-2"]);
    assert_eq!(listed(&desk), ["chk-1"]);
    assert_eq!(desk.ok(&["path", "app/latest"]).trim(), "app/chk-1");
    assert_eq!(std::fs::read_link(mnt.join("app/latest")).unwrap().to_str().unwrap(), "chk-1");
    assert_eq!(scan(&desk.mounted_db("chk-2"), "default"), texts[1]);
    desk.ok(&["expire", "app", "--hidden-for", "1h"]);
    desk.ok(&["gc", "--delete"]);
    desk.ok(&["unhide", "app/chk-2"]);
    assert_eq!(listed(&desk), ["chk-1", "chk-2"]);
    desk.ok(&["hide", "app/chk-1"]);
    desk.ok(&["expire", "app", "--hidden-for", "0s"]);
    desk.run(&["unhide", "app/chk-1"]).fails(1, &["does not exist"]);
    desk.run(&["hide", "app/chk-9"]).fails(1, &["does not exist"]);
    assert_eq!(listed(&desk), ["chk-2"]);
    desk.unmount();
}

#[test]
fn a_pin_outlives_expiry_and_says_who_holds_what() {
    let desk = Desk::new();
    let texts = job(&desk, 1);
    copy_tree(&desk.path("source"), &desk.path("other"));
    let pin = desk.ok(&["pin", "app/chk-1", "--note", "audit of May"]).trim().to_owned();
    crate::tool::tool("ldb", &[&format!("--db={}", desk.path("source").display()), "compact"]);
    desk.snapshot(&desk.path("source"));
    desk.ok(&["expire", "app/chk-1"]);
    desk.run(&["pin", "app/chk-1"]).fails(1, &["dead"]);
    let plan = desk.run(&["gc", "--delete"]);
    assert!(plan.out.contains("held by a person: audit of May") && plan.out.contains(&pin), "{}", plan.out);
    assert!(desk.ok(&["pins"]).contains("audit of May"));
    assert_eq!(listed(&desk), ["chk-2"]);
    desk.mount("cache");
    assert_eq!(scan(&desk.mounted_db("chk-1"), "default"), texts[0], "unlisted, and found by its name");
    desk.unmount();
    desk.ok(&["verify", "--read", "app/chk-1"]);
    desk.run(&["unpin", "app/chk-2"]).fails(1, &["no person"]);
    desk.ok(&["unpin", "app/chk-1"]);
    desk.run(&["unpin", &pin]).fails(1, &["no"]);
    assert!(number(&json(&desk, &["gc", "--delete"])["deleted"]["blobs"]) > 0);
    desk.mount("cold");
    assert!(!desk.mounted_db("chk-1").exists());
    desk.unmount();
    desk.ok(&["verify", "--read"]);
}

#[test]
fn a_store_that_lost_its_records_is_not_swept() {
    let desk = Desk::new();
    job(&desk, 1);
    for kind in ["intent", "task", "outcome"] {
        std::fs::remove_dir_all(desk.path("store").join(kind)).unwrap();
    }
    let refused = desk.run(&["gc", "--delete"]);
    refused.fails(1, &["not a single record", "--force"]);
    desk.run(&["gc", "--delete", "--force", &"0".repeat(32)]).fails(1, &["is not the id of this store"]);
    let id = refused.err.split("store ").nth(1).unwrap().split(':').next().unwrap().to_owned();
    let told = desk.run(&["gc", "--delete", "--force", &id]);
    assert!(told.err.contains("uploaders that no record knows"), "{}", told.err);
    assert!(number(&json(&desk, &["gc", "--delete", "--foreign", "--force", &id])["deleted"]["blobs"]) > 0);
}

#[test]
fn what_cannot_be_read_ends_the_sweep() {
    let desk = Desk::new();
    job(&desk, 2);
    desk.ok(&["expire", "app/chk-1"]);
    let outcome = desk.path("store/outcome/app/00000000000000000002.json");
    crate::tool::flip(&outcome, 300, 2);
    desk.run(&["gc", "--delete"]).fails(3, &["outcome/app/00000000000000000002.json"]);
    desk.run(&["expire", "app", "--keep", "1"]).fails(3, &["cannot be believed"]);
}
