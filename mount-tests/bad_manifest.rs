//! Records that an enemy wrote: right digests, right keys, and hostile content. Nothing outside the target is touched, nothing hangs or
//! panics, the good checkpoint beside them goes on.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant;

use ckptfs::types::Digest;
use serde_json::{Value, json};

use crate::tool::{Desk, database, load, tree};

/// A desk with two checkpoints, of which the second will be forged.
struct Forgery {
    desk: Desk,
    task: String,
    outcome: String,
}

const NUMBER: &str = "00000000000000000002";

impl Forgery {
    fn new() -> Self {
        let desk = Desk::new();
        for round in 1..3 {
            load(&desk.path("good"), "default", round, 1_500);
            desk.snapshot(&desk.path("good"));
        }
        let read = |p: PathBuf| fs::read_to_string(p).unwrap().lines().nth(1).unwrap().to_owned();
        let task = read(desk.path(&format!("store/task/app/{NUMBER}/db/0.json")));
        let outcome = read(desk.path(&format!("store/outcome/app/{NUMBER}.json")));
        Self { desk, task, outcome }
    }

    fn put(&self, kind: &str, key: &str, body: &str) -> (Digest, usize) {
        let header = json!({
            "ckptfs": format!("{kind}/1"), "length": body.len(), "blake3": Digest::of(body.as_bytes()).to_hex(),
            "requires": [], "requires_write": [], "encoding": "plain",
        });
        let object = format!("{header}\n{body}\n");
        let path = self.desk.path("store").join(key);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(&path, &object).unwrap();
        (Digest::of(object.as_bytes()), object.len())
    }

    /// Puts this body at the task manifest's key, and an outcome that vouches for it.
    fn task(&self, body: &str) {
        let (digest, length) = self.put("task-manifest", &format!("task/app/{NUMBER}/db/0.json"), body);
        let mut outcome: Value = serde_json::from_str(&self.outcome).unwrap();
        let entry = &mut outcome["verdict"]["completed"]["subtasks"][0];
        entry["manifest"] = digest.to_hex().into();
        // No more than may be said, or the outcome itself is refused.
        entry["manifest_length"] = length.min(64 << 20).into();
        self.outcome(&outcome.to_string());
    }

    fn outcome(&self, body: &str) {
        self.put("outcome", &format!("outcome/app/{NUMBER}.json"), body);
    }

    /// What every verb makes of it. `shown`: the checkpoint manifest itself can be believed. `lies`: so can the task
    /// manifest, but not what it says of its blobs.
    fn judge(&self, what: &str, shown: bool, lies: bool) {
        let begun = Instant::now();
        let desk = &self.desk;
        let outside = tree(&desk.path("outside"));
        let listed = desk.run(&["ls", "app"]);
        assert_eq!(listed.code, if shown { 0 } else { 3 }, "{what}: {listed:?}");
        assert!(listed.out.contains("chk-1") && listed.out.contains("chk-2") == shown, "{what}: {listed:?}");
        let said = desk.run(&["verify", "--read"]);
        assert_eq!(said.code, 3, "{what}: {said:?}");
        let key = if shown { format!("task/app/{NUMBER}/db/0.json") } else { format!("outcome/app/{NUMBER}.json") };
        let names = if lies { "db/0/db/" } else { &key };
        assert!(said.out.contains(names), "{what}: {said:?}");
        assert!(said.out.len() < 20_000 && said.err.len() < 20_000, "{what}: a message without end");
        let said = desk.run(&["restore", "--copy", "app/chk-2", "outside/target"]);
        assert_eq!(said.code, 3, "{what}: {said:?}");
        assert!(said.err.len() < 5_000, "{what}: a message without end");
        let said = desk.run(&["show", "app/chk-2/db/0"]);
        assert_eq!(said.code, if lies { 0 } else { 3 }, "{what}: {said:?}");
        assert_eq!(tree(&desk.path("outside")), outside, "{what}");
        for cache in ["cache", "fresh"] {
            let mount = desk.mount(cache);
            assert_eq!(mount.join("app/chk-2").exists(), shown, "{what}");
            if shown {
                let db = desk.mounted_db("chk-2");
                match fs::read_dir(&db) {
                    Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EIO), "{what}"),
                    Ok(entries) => {
                        assert!(lies, "{what}: a manifest that cannot be believed is listed");
                        let failed = entries.filter(|e| fs::read(e.as_ref().unwrap().path()).is_err()).count();
                        assert!(failed > 0, "{what}: every file can be read");
                    }
                }
            }
            assert_eq!(fs::read_dir(desk.mounted_db("chk-1")).unwrap().count(), self.files_of_first(), "{what}");
            desk.ok(&["umount", "mnt"]);
        }
        fs::remove_dir_all(desk.path("fresh")).unwrap();
        desk.run(&["restore", "--copy", "app/chk-1", "first"]).ok();
        fs::remove_dir_all(desk.path("first")).unwrap();
        assert!(begun.elapsed().as_secs() < 60, "{what} took {} s", begun.elapsed().as_secs());
    }

    fn files_of_first(&self) -> usize {
        let body = fs::read_to_string(self.desk.path("store/task/app/00000000000000000001/db/0.json")).unwrap();
        serde_json::from_str::<Value>(body.lines().nth(1).unwrap()).unwrap()["files"].as_array().unwrap().len()
    }
}

/// What is changed in a record, and how.
type Edit<'a> = (&'a str, &'a dyn Fn(&mut Value));

/// `[[[[...]]]]`.
fn nested(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

#[test]
fn hostile_task_manifests_are_refused_by_every_verb() {
    let forgery = Forgery::new();
    fs::create_dir(forgery.desk.path("outside")).unwrap();
    let original: Value = serde_json::from_str(&forgery.task).unwrap();
    let edited = |edit: &dyn Fn(&mut Value)| {
        let mut v = original.clone();
        edit(&mut v);
        v.to_string()
    };
    for path in [
        "../escaped",
        "db/..",
        "db/../../../escaped",
        "/etc/passwd",
        "db//etc/passwd",
        "db/a\u{0}b",
        "db/",
        "",
        ".",
        "db/sub/file",
        "operator/../0",
        "raw-keyed/-1",
        "db/\u{202e}gnp",
        "db/a\nb",
        "manifest.json",
        &format!("db/{}", "x".repeat(256)),
    ] {
        forgery.task(&edited(&|v| v["files"][0]["path"] = path.into()));
        forgery.judge(&format!("path {path:?}"), true, false);
    }
    let huge = |v: &mut Value, n: u64| {
        // Consistent within itself: the blob, the extent, the file and the sum.
        let file =
            v["files"].as_array().unwrap().iter().position(|f| f["path"].as_str().unwrap().ends_with(".sst")).unwrap();
        let old = v["files"][file]["size"].as_u64().unwrap();
        let blob = v["files"][file]["extents"][0][0].as_u64().unwrap() as usize;
        v["blobs"][blob]["length"] = n.into();
        v["files"][file]["extents"][0][2] = n.into();
        v["files"][file]["size"] = n.into();
        v["files"][file].as_object_mut().unwrap().remove("tail");
        v["logical_bytes"] = (v["logical_bytes"].as_u64().unwrap() - old).saturating_add(n).into();
    };
    let twice = |v: &mut Value| {
        let again = v["files"][0].clone();
        v["logical_bytes"] = (v["logical_bytes"].as_u64().unwrap() + again["size"].as_u64().unwrap()).into();
        v["files"].as_array_mut().unwrap().insert(0, again);
    };
    let many = |v: &mut Value| {
        let file = json!({"path": "db/x", "size": 0, "digest": Digest::of(b"").to_hex(), "extents": []});
        v["files"] = (0..150_000)
            .map(|i| {
                let mut f = file.clone();
                f["path"] = format!("db/{i:06}").into();
                f
            })
            .collect();
        v["logical_bytes"] = 0.into();
    };
    let edits: [Edit<'_>; 12] = [
        ("a file named twice", &twice),
        ("150,000 files", &many),
        ("a size of 2^64-1", &|v| huge(v, u64::MAX)),
        ("an extent outside of its blob", &|v| v["files"][0]["extents"][0][1] = (u64::MAX - 3).into()),
        ("an extent of no blob", &|v| v["files"][0]["extents"][0][0] = 4_000_000_000_u64.into()),
        ("a negative size", &|v| v["files"][0]["size"] = (-1).into()),
        ("a size of 1e300", &|v| v["files"][0]["size"] = 1e300.into()),
        ("another job's manifest", &|v| v["place"]["job"] = "other".into()),
        ("another number's manifest", &|v| v["place"]["number"] = 1.into()),
        ("another operator", &|v| v["place"]["subtask"][0] = "../..".into()),
        ("a display name of a megabyte", &|v| v["display_name"] = "x".repeat(1 << 20).into()),
        ("no files at all but bytes", &|v| v["files"] = json!([])),
    ];
    for (what, edit) in edits {
        forgery.task(&edited(edit));
        forgery.judge(what, true, false);
    }
    let with = |field: &str, value: &str| forgery.task.replacen('{', &format!("{{\"{field}\":{value},"), 1);
    for (what, body) in [
        ("deeply nested states", with("states", &nested(1 << 20))),
        ("a field twice", with("logical_bytes", "0")),
        ("only brackets", nested(1 << 20)),
        ("more than may be read", with("nonsense", &format!("\"{}\"", "x".repeat(65 << 20)))),
        ("no JSON", "\u{0}\u{1b}[2J".to_owned()),
    ] {
        forgery.task(&body);
        forgery.judge(what, true, false);
    }
    // A field that nobody knows is passed over, however deep it is: newer versions may add some.
    forgery.task(&with("nonsense", &nested(1 << 20)));
    forgery.desk.ok(&["verify", "--read"]);
    forgery.desk.ok(&["restore", "--copy", "app/chk-2", "unharmed"]);
    assert!(database(&forgery.desk.path("unharmed")) == database(&forgery.desk.path("good")));
    // What it says of its blobs is only seen when they are read.
    for n in [1 << 40, 200_000] {
        forgery.task(&edited(&|v| huge(v, n)));
        forgery.judge(&format!("a file of {n} bytes in a smaller blob"), true, true);
    }
    let swapped = |v: &mut Value| {
        let (a, b) = (v["files"][0]["digest"].clone(), v["files"][1]["digest"].clone());
        (v["files"][0]["digest"], v["files"][1]["digest"]) = (b, a);
    };
    forgery.task(&edited(&swapped));
    forgery.judge("two files with each other's digests", true, true);
    forgery.task(&forgery.task);
    forgery.outcome(&forgery.outcome);
}

#[test]
fn hostile_checkpoint_manifests_are_left_out_and_reported() {
    let forgery = Forgery::new();
    fs::create_dir(forgery.desk.path("outside")).unwrap();
    let original: Value = serde_json::from_str(&forgery.outcome).unwrap();
    let edits: [Edit<'_>; 10] = [
        ("an operator that climbs", &|m| m["subtasks"][0]["operator"] = "..".into()),
        ("an operator with a slash", &|m| m["subtasks"][0]["operator"] = "a/b".into()),
        ("an operator with NUL", &|m| m["subtasks"][0]["operator"] = "a\u{0}b".into()),
        ("a reserved operator", &|m| m["subtasks"][0]["operator"] = "manifest.json".into()),
        ("a subtask beyond bounds", &|m| m["subtasks"][0]["subtask"] = 4_000_000_000_u64.into()),
        ("a subtask twice", &|m| {
            let again = m["subtasks"][0].clone();
            m["subtasks"].as_array_mut().unwrap().push(again);
        }),
        ("sums that overflow", &|m| {
            m["subtasks"][0]["logical_bytes"] = u64::MAX.into();
            m["logical_bytes"] = u64::MAX.into();
        }),
        ("a task manifest of 2^63 bytes", &|m| m["subtasks"][0]["manifest_length"] = (1_u64 << 63).into()),
        ("sums that do not add up", &|m| m["files"] = 77.into()),
        ("no subtasks but bytes", &|m| m["subtasks"] = json!([])),
    ];
    for (what, edit) in edits {
        let mut v = original.clone();
        edit(&mut v["verdict"]["completed"]);
        forgery.outcome(&v.to_string());
        forgery.judge(what, false, false);
    }
    for (what, edit) in [
        ("another job", &(|v: &mut Value| v["place"]["job"] = "other".into()) as &dyn Fn(&mut Value)),
        ("another number", &|v| v["place"]["number"] = 1.into()),
        ("two verdicts", &|v| v["verdict"]["aborted"] = json!({"reason": "x"})),
        ("no verdict", &|v| v["verdict"] = json!({})),
    ] {
        let mut v = original.clone();
        edit(&mut v);
        forgery.outcome(&v.to_string());
        forgery.judge(what, false, false);
    }
    forgery.outcome(&nested(1 << 20));
    forgery.judge("only brackets", false, false);
    // Nothing of a forged name reaches a terminal.
    let mut v = original.clone();
    v["verdict"]["completed"]["subtasks"][0]["display_name"] = "\u{1b}[2J\u{202e}evil".into();
    forgery.outcome(&v.to_string());
    for args in [&["ls", "app"][..], &["show", "app/chk-2"], &["du"]] {
        let said = forgery.desk.run(args);
        assert_eq!(said.code, 0, "{said:?}");
        assert!(!said.out.contains(['\u{1b}', '\u{202e}']), "{said:?}");
    }
    forgery.outcome(&forgery.outcome);
    forgery.desk.ok(&["verify", "--read"]);
    let (from, to) = ("app/chk-2", forgery.desk.path("restored"));
    forgery.desk.ok(&["restore".as_ref(), "--copy".as_ref(), from.as_ref(), to.as_os_str()]);
    assert!(database(&to) == database(&forgery.desk.path("good")));
}
