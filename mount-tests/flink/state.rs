//! `ckptfs state` on Flink's own checkpoints: what it counts, decodes and finds is what FRocksDB counted (`TRUTH.json`) and what the job
//! itself wrote down (`expected/`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::super::tool::{Desk, Said, copy_tree, flip, load, walk};
use super::import;
use super::truth::{Checkpoint, Tree, trees};

fn tree(name: &str) -> Tree {
    trees().into_iter().find(|t| t.name == name).unwrap()
}

fn told(desk: &Desk, args: &[&str]) -> Value {
    let text = desk.ok(&[&["--json", "state"], args].concat());
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"))
}

fn find<'a>(list: &'a Value, name: &str, value: impl Into<Value>) -> &'a Value {
    let value = value.into();
    list.as_array().unwrap().iter().find(|v| v[name] == value).unwrap_or_else(|| panic!("no {name} {value} in {list}"))
}

/// What is counted is what FRocksDB counted. Gives the number of handles.
fn check_counts(desk: &Desk, path: &str, checkpoint: &Checkpoint) -> usize {
    let listed = told(desk, &[path]);
    let mut sums: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    let mut handles = 0;
    for handle in checkpoint.handles() {
        let truth = &handle.truth;
        let Some(range) = truth["key_group_range"].as_array() else { continue };
        let operator = find(&listed["operators"], "operator", &*handle.operator);
        let subtask = find(&operator["subtasks"], "subtask", handle.subtask);
        assert_eq!(&subtask["key_groups"], &json!(range));
        let states = subtask["states"].as_array().unwrap();
        match truth["rocksdb"].as_object() {
            Some(families) => {
                assert_eq!((states.len(), &subtask["form"]), (families.len(), &json!("rocksdb")));
                for (name, truth) in families {
                    let state = find(&subtask["states"], "state", &**name);
                    let bytes = truth["key_bytes"].as_u64().unwrap() + truth["value_bytes"].as_u64().unwrap();
                    let rows = truth["entries"].as_u64().unwrap();
                    assert_eq!((&state["rows"], &state["bytes"]), (&json!(rows), &json!(bytes)), "{path} {name}");
                    let sum = sums.entry((handle.operator.clone(), name.clone())).or_default();
                    *sum = (sum.0 + rows, sum.1 + bytes);
                }
            }
            None => {
                let rows: u64 = states.iter().map(|s| s["rows"].as_u64().unwrap()).sum();
                assert_eq!((&json!(rows), &subtask["form"]), (&truth["rows"], &json!("canonical")));
            }
        }
        // The committed answers do not have it.
        let described = truth["keyed_backend_meta"]["states"].as_array();
        for (state, told) in described.into_iter().flatten().zip(operator["states"].as_array().unwrap()) {
            assert_eq!(state["name"], told["state"], "in the order of the description");
            let kind = state["options"].get("KEYED_STATE_TYPE").unwrap_or(&state["backend_state_type"]);
            assert_eq!(kind, &told["kind"]);
        }
        handles += 1;
    }
    for ((operator, name), (rows, bytes)) in sums {
        let operator = find(&listed["operators"], "operator", operator);
        let state = find(&operator["states"], "state", name);
        assert_eq!((&state["rows"], &state["bytes"]), (&json!(rows), &json!(bytes)));
    }
    handles
}

/// What is left of copies.
fn copies(desk: &Desk) -> Option<Vec<PathBuf>> {
    let home = desk.path("cache/state");
    home.exists().then(|| fs::read_dir(home).unwrap().map(|e| e.unwrap().path()).collect())
}

#[test]
fn rows_and_bytes_are_those_that_flink_counted() {
    let mut handles = 0;
    for tree in trees() {
        let desk = Desk::new();
        let taken = import(&desk, &tree);
        let (newest, checkpoint) = taken.last().unwrap();
        handles += check_counts(&desk, newest, checkpoint);
        assert_eq!(copies(&desk), Some(Vec::new()), "a copy is left");
        fs::remove_dir(desk.path("cache/state")).unwrap();
        desk.mount("cache");
        for (path, checkpoint) in &taken {
            handles += check_counts(&desk, path, checkpoint);
        }
        assert_eq!(copies(&desk), None, "copied in spite of the mount");
        let text = desk.ok(&["state", newest]);
        assert!(text.contains("TTL<String>") && text.contains("Map<String, Long>"), "{text}");
        desk.unmount();
    }
    assert!(handles > 30, "only {handles} handles were looked at");
}

/// All rows of one subtask's states, put together by key as the job wrote them down.
fn by_key(desk: &Desk, path: &str, operator: &str, subtask: &str) -> Map<String, Value> {
    let listed = told(desk, &[path, operator, "--subtask", subtask]);
    let mut found = Map::new();
    for state in listed["operators"][0]["states"].as_array().unwrap() {
        let name = state["state"].as_str().unwrap();
        let rows = told(desk, &[path, operator, name, "--subtask", subtask, "--limit", "1000000"]);
        let rows = rows.as_array().unwrap();
        assert_eq!(json!(rows.len()), state["rows"], "{operator} {name}");
        for row in rows {
            assert_eq!((&row["subtask"], &row["namespace"]), (&json!(subtask.parse::<u32>().unwrap()), &Value::Null));
            let key = row["key"].as_str().map_or_else(|| row["key"].to_string(), str::to_owned);
            let of_key = found.entry(key).or_insert_with(|| json!({"kg": row["key_group"]}));
            let value = row["value"].clone();
            match (name, row.get("timestamp"), row["user_key"].as_str()) {
                (_, Some(time), _) => {
                    assert!(row.get("value").is_none());
                    let timers = of_key.as_object_mut().unwrap().entry("timers").or_insert_with(|| json!([]));
                    timers.as_array_mut().unwrap().push(time.clone());
                }
                (_, _, Some(user_key)) => of_key[name][user_key] = value,
                ("payload", ..) => of_key["payload_len"] = json!(value.as_str().unwrap().len() / 2 - 1),
                ("seen-ttl", ..) => of_key[name] = value["value"].clone(),
                _ => of_key[name] = value,
            }
        }
    }
    found
}

/// What the job wrote down, without what no state has.
fn written(file: &Path) -> Option<Map<String, Value>> {
    let told: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let mut keys = told["keys"].as_object()?.clone();
    for of_key in keys.values_mut() {
        of_key.as_object_mut().unwrap().remove("payload_sha256");
    }
    // A key whose states were all cleared has its key group alone.
    keys.retain(|_, of_key| of_key.as_object().unwrap().len() > 1);
    Some(keys)
}

/// What the job's operator is called on the mount: Flink 1.20 does not say its name, but its column families tell it.
fn operator_of(checkpoint: &Checkpoint, name: &str) -> String {
    let family = if name == "blob-op" { "payload" } else { "recent-offsets" };
    let mut handles = checkpoint.handles().into_iter();
    handles.find(|handle| handle.truth["rocksdb"].get(family).is_some()).map_or_else(|| name.to_owned(), |h| h.operator)
}

#[test]
fn decoded_rows_are_what_the_job_wrote_down() {
    let (mut keys, mut forms) = (0, Vec::new());
    for tree in trees() {
        let desk = Desk::new();
        let taken = import(&desk, &tree);
        let has = |n: u64| tree.root.parent().unwrap().join(format!("expected/{n}"));
        let Some((path, checkpoint)) = taken.iter().rfind(|(_, c)| has(c.number).is_dir()) else { continue };
        desk.mount("cache");
        for file in walk(&has(checkpoint.number)) {
            let Some(mut expected) = written(&file) else { continue };
            let (name, subtask) = file.file_stem().unwrap().to_str().unwrap().rsplit_once('-').unwrap();
            let operator = operator_of(checkpoint, name);
            let mut found = by_key(&desk, path, &operator, subtask);
            // The job wrote its timers down in the order in which it set them.
            for timers in found.values_mut().chain(expected.values_mut()).filter_map(|k| k.get_mut("timers")) {
                timers.as_array_mut().unwrap().sort_by_key(Value::as_i64);
            }
            for (key, expected) in &expected {
                assert_eq!(found.get(key), Some(expected), "{} {path} {operator}/{subtask}: {key}", tree.name);
            }
            assert_eq!(found.len(), expected.len());
            keys += found.len();
        }
        forms.push(tree.name);
        desk.unmount();
    }
    assert!(keys > 300 && forms.iter().any(|name| name.contains("canonical")), "{keys} keys of {forms:?}");
}

#[test]
fn a_key_is_found_where_it_is() {
    for name in ["incr-p2", "incr-p2-savepoint-canonical"] {
        let desk = Desk::new();
        let (path, _) = import(&desk, &tree(name)).pop().unwrap();
        // Some rows of each subtask, and whether each is found by its key, with others of the key.
        for (operator, state) in [
            ("profile-op", "count"),
            ("profile-op", "per-tag"),
            ("profile-op", "processing_user-timers"),
            ("profile-op", "_timer_state/processing_user-timers"),
            ("blob-op", "payload"),
        ] {
            for subtask in ["0", "1"] {
                let rows = told(&desk, &[&path, operator, state, "--subtask", subtask, "--limit", "2"]);
                assert_eq!(rows.as_array().unwrap().len(), 2);
                for row in rows.as_array().unwrap() {
                    let key = row["key"].as_str().map_or_else(|| row["key"].to_string(), str::to_owned);
                    let of_key = told(&desk, &[&path, operator, state, "--key", &key]);
                    let of_key = of_key.as_array().unwrap();
                    assert!(of_key.contains(row), "{row} is not among {of_key:?}");
                    assert!(of_key.iter().all(|r| r["key"] == row["key"]));
                }
            }
        }
        let state = |args: &[&str]| desk.run(&[&["state", &path], args].concat());
        for (operator, of, key) in [
            ("profile-op", "count", "-77"),
            ("profile-op", "processing_user-timers", "-77"),
            ("blob-op", "payload", "no such key"),
        ] {
            assert_eq!(told(&desk, &[&path, operator, of, "--key", key]), json!([]));
            let said = state(&[operator, of, "--key", key]);
            assert!(said.code == 0 && said.out.is_empty() && said.err.contains("no row"), "{said:?}");
        }
        let row = &told(&desk, &[&path, "profile-op", "count", "--subtask", "1", "--limit", "1"])[0];
        let key = row["key"].to_string();
        let said = state(&["profile-op", "count", "--key", &key, "--subtask", "0"]);
        assert!(said.code == 0 && said.out.is_empty() && said.err.contains("another subtask"), "{said:?}");
        state(&["profile-op", "count", "--key", "x"]).fails(1, &["\"x\" is no key of type Long"]);
        state(&["profile"]).fails(1, &["no operator \"profile\"", "profile-op", "blob-op"]);
        state(&["profile-op", "counts"]).fails(1, &["no state \"counts\"", "recent-offsets", "per-tag"]);
        state(&["profile-op", "count", "--subtask", "7"]).fails(1, &["no subtask \"7\"", "0, 1"]);
        state(&["profile-op", "--key", "1"]).fails(2, &["STATE"]);
        state(&["--mount", "mnt"]).fails(1, &["mnt is no ckptfs mount"]);
    }
}

/// A copy of a tree that may be changed, imported by itself.
fn imported(desk: &Desk, name: &str, change: impl Fn(&Path, &Checkpoint)) -> String {
    let tree = tree(name);
    let checkpoint = tree.checkpoints().into_iter().rfind(|c| c.missing().is_empty()).unwrap();
    let copy = desk.path("tree");
    copy_tree(&tree.root, &copy);
    super::super::tool::tool("chmod", &["-R", "u+w", copy.to_str().unwrap()]);
    change(&copy, &checkpoint);
    let directory = copy.join(checkpoint.directory.strip_prefix(&tree.root).unwrap());
    desk.ok(&["import", "flink", directory.to_str().unwrap(), "--job", "j"]).trim().to_owned()
}

#[test]
fn damaged_tables_are_told() {
    // Damaged before it was taken in: RocksDB finds it.
    let desk = Desk::new();
    let path = imported(&desk, "incr-p2", |copy, checkpoint| {
        for handle in checkpoint.handles() {
            for kind in ["shared_state", "private_state"] {
                for file in handle.truth[kind].as_array().into_iter().flatten() {
                    if file["local_path"].as_str().unwrap().ends_with(".sst") {
                        flip(&copy.join(file["in_tree"].as_str().unwrap()), 10, 1);
                    }
                }
            }
        }
    });
    let damaged = |said: &Said| said.fails(3, &["profile-op/0", "Corruption", "ckptfs verify --read"]);
    damaged(&desk.run(&["state", &path, "profile-op"]));
    damaged(&desk.run(&["state", &path, "profile-op", "count"]));
    assert_eq!(copies(&desk), Some(Vec::new()));
    desk.mount("cache");
    damaged(&desk.run(&["state", &path, "profile-op"]));
    desk.unmount();
    // Damaged in the store: its digest tells.
    let desk = Desk::new();
    let path = imported(&desk, "incr-p2", |_, _| ());
    for blob in walk(&desk.path("store/blobs")) {
        flip(&blob, fs::metadata(&blob).unwrap().len() / 3, 1);
    }
    let cold = desk.command(&["state", &path]).env("CKPTFS_CACHE", desk.path("cold")).output().unwrap();
    Said::from(cold).fails(3, &["damaged"]);
}

#[test]
fn a_serializer_that_is_not_known_hides_only_what_follows() {
    let known = b"base.ListSerializerSnapshot";
    let lost = b"base.LostSerializerSnapshot";
    let patch = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        let at = bytes.windows(known.len()).position(|w| w == known);
        if let Some(at) = at {
            bytes[at..at + lost.len()].copy_from_slice(lost);
            fs::write(path, bytes).unwrap();
        }
    };
    for (name, after, timers) in
        [("incr-p2", "per-tag", "_timer_state/processing_user-timers"), ("incr-p2-savepoint-canonical", "#4", "#5")]
    {
        let desk = Desk::new();
        let whole = imported(&desk, name, |_, _| ());
        let before = told(&desk, &[&whole, "profile-op"]);
        let desk = Desk::new();
        let path = imported(&desk, name, |copy, checkpoint| {
            for handle in checkpoint.handles() {
                for stream in ["meta_state_handle", "delegate"] {
                    let file = handle.truth[stream]["in_tree"].as_str();
                    let keyed = handle.truth["key_group_range"].is_array();
                    file.filter(|_| keyed).into_iter().for_each(|file| patch(&copy.join(file)));
                }
            }
        });
        let listed = told(&desk, &[&path, "profile-op"]);
        let (operator, whole) = (&listed["operators"][0], &before["operators"][0]);
        assert!(operator["notes"].to_string().contains("LostSerializerSnapshot"), "{operator}");
        let rows = |of: &Value, name: &str| find(&of["states"], "state", name)["rows"].clone();
        assert_eq!(rows(operator, after), rows(whole, "per-tag"));
        assert_eq!(find(&operator["states"], "state", after)["value"], Value::Null);
        assert_eq!(rows(operator, "recent-offsets"), rows(whole, "recent-offsets"));
        assert!(told(&desk, &[&path, "profile-op", "count"])[0]["value"].is_u64());
        for state in [after, "recent-offsets", timers] {
            let said = desk.run(&["--json", "state", &path, "profile-op", state, "--limit", "1"]);
            assert!(said.err.contains("LostSerializerSnapshot"), "{said:?}");
            let row = &serde_json::from_str::<Value>(&said.ok()).unwrap()[0];
            let hex = |name: &str| row[name].as_str().is_some_and(|text| text.starts_with("0x"));
            assert!(hex("raw_key") && hex("raw_value") && row.get("key").is_none(), "{row}");
        }
        // The key's serializer stands in front of what is not known.
        let key = told(&desk, &[&path, "profile-op", "count"])[0]["key"].to_string();
        assert!(!told(&desk, &[&path, "profile-op", after, "--key", &key]).as_array().unwrap().is_empty());
    }
}

#[test]
fn other_databases_are_counted_and_shown_in_hex() {
    let desk = Desk::new();
    load(&desk.path("db"), "default", 1, 30);
    let path = format!("app/{}", desk.snapshot(&desk.path("db")).rsplit('/').next().unwrap());
    let listed = told(&desk, &[&path]);
    let state = &listed["operators"][0]["states"][0];
    assert_eq!((&state["state"], &state["rows"], &state["bytes"]), (&json!("default"), &json!(30), &json!(30 * 209)));
    let said = desk.run(&["--json", "state", &path, "db", "default"]);
    assert!(said.err.contains("decoding is for Flink's state") && said.err.contains("more than these 20"), "{said:?}");
    let rows: Value = serde_json::from_str(&said.ok()).unwrap();
    let first = "0x".to_owned() + &"key-0001-00000000".bytes().map(|b| format!("{b:02x}")).collect::<String>();
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["raw_key"]), (20, &json!(first)));
    desk.run(&["state", &path, "db", "default", "--key", "key-0001"]).fails(1, &["--key needs the key's serializer"]);
    // What a killed one left goes with the next.
    let dead = desk.path("cache/state/dead");
    fs::create_dir_all(&dead).unwrap();
    fs::write(dead.join("CURRENT"), "x").unwrap();
    fs::write(desk.path("cache/state/dead.lock"), "").unwrap();
    desk.ok(&["state", &path]);
    assert_eq!(copies(&desk), Some(Vec::new()));
}
