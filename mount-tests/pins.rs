//! What is open on a mount is not swept: its pins, their end, and what a killed daemon leaves.

use std::fs::File;
use std::process::Child;

use serde_json::Value;

use crate::kit::{passthrough, soon};
use crate::tool::{Desk, load, scan, tool};

/// Two checkpoints that share nothing, and what `ldb` reads in the first.
fn desk() -> (Desk, String) {
    let desk = Desk::new();
    let db = desk.path("source");
    for round in 0..3 {
        load(&db, "default", round, 2000);
    }
    desk.snapshot(&db);
    let text = scan(&db, "default");
    tool("ldb", &[&format!("--db={}", db.display()), "compact"]);
    desk.snapshot(&db);
    (desk, text)
}

/// Pins of mounts.
fn pins(desk: &Desk) -> Vec<String> {
    let rows: Value = serde_json::from_str(&desk.ok(&["--json", "pins"])).unwrap();
    let rows = rows.as_array().unwrap().iter().filter(|r| r["holder"] == "mount");
    rows.map(|r| r["pin"].as_str().unwrap().to_owned()).collect()
}

fn mount(desk: &Desk, cache: &str, idle: &str) -> Child {
    let mut args = vec!["mount", "mnt", "--pin-idle", idle];
    if !passthrough() {
        args.push("--no-passthrough");
    }
    let child = desk.command(&args).env("CKPTFS_CACHE", desk.path(cache)).spawn().unwrap();
    assert!(soon(|| desk.path("mnt/app").exists()));
    child
}

fn freed(desk: &Desk) -> u64 {
    let done: Value = serde_json::from_str(&desk.ok(&["--json", "gc", "--delete"])).unwrap();
    done["deleted"]["blobs"].as_u64().unwrap()
}

#[test]
fn an_open_database_is_pinned_and_read_to_its_end_although_it_expired() {
    let (desk, text) = desk();
    let mut daemon = mount(&desk, "cold", "1s");
    let db = desk.mounted_db("chk-1");
    assert!(pins(&desk).is_empty());
    assert!(std::fs::read_dir(&db).unwrap().count() > 3 && pins(&desk).is_empty(), "looking is free");
    let current = File::open(db.join("CURRENT")).unwrap();
    let held = pins(&desk);
    assert!(held.len() == 1 && held[0].starts_with("pin/app/00000000000000000001/"), "{held:?}");
    desk.ok(&["expire", "app/chk-1"]);
    assert_eq!(freed(&desk), 0);
    assert_eq!(scan(&db, "default"), text, "its tables are fetched now, after the sweep");
    assert_eq!(pins(&desk), held, "one pin, however many files");
    drop(current);
    assert!(soon(|| pins(&desk).is_empty()), "{:?}", pins(&desk));
    assert!(freed(&desk) > 0);
    assert!(File::open(db.join("CURRENT")).is_err(), "who comes now comes too late");
    // The kernel is told by another thread, and forgets within a second by itself.
    assert!(soon(|| !db.exists()));
    desk.unmount();
    daemon.wait().unwrap();
    desk.ok(&["verify", "--read"]);
}

#[test]
fn a_table_alone_gets_a_pin_behind_it() {
    let (desk, _) = desk();
    let mut daemon = mount(&desk, "cold", "1h");
    let db = desk.mounted_db("chk-2");
    let table =
        std::fs::read_dir(&db).unwrap().map(|e| e.unwrap().path()).find(|p| p.extension().is_some_and(|e| e == "sst"));
    let table = File::open(table.unwrap()).unwrap();
    assert!(soon(|| pins(&desk).iter().any(|p| p.starts_with("pin/app/00000000000000000002/"))));
    drop(table);
    desk.unmount();
    daemon.wait().unwrap();
    assert!(pins(&desk).is_empty(), "the end of a mount ends its pins");
}

#[test]
fn the_pins_of_a_killed_daemon_are_kept_and_taken_over() {
    let (desk, _) = desk();
    let mut daemon = mount(&desk, "cold", "1h");
    drop(File::open(desk.mounted_db("chk-1").join("CURRENT")).unwrap());
    let held = pins(&desk);
    assert_eq!(held.len(), 1);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    desk.ok(&["expire", "app/chk-1"]);
    assert_eq!(freed(&desk), 0, "passthrough readers outlive a daemon");
    let mut daemon = mount(&desk, "cold", "1h");
    assert!(desk.mounted_db("chk-1").join("CURRENT").exists(), "found by its name");
    assert_eq!(pins(&desk), held);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let mut daemon = mount(&desk, "cold", "100ms");
    assert!(soon(|| pins(&desk).is_empty()), "as if its last file had just been closed");
    desk.unmount();
    daemon.wait().unwrap();
    assert!(freed(&desk) > 0);
}
