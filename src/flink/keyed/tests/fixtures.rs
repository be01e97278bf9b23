//! Whole Flink checkpoints with known answers, and the part of them that is committed.
//!
//! The part lies in `mount-tests/fixtures/flink-keyed`; whole ones are read from `CKPTFS_FIXTURES`, or `../shared/fixtures` beside the
//! source tree.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn file(path: &Path) -> Json {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Where whole Flink checkpoints with known answers lie, if they do.
fn whole() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures");
    let root = std::env::var_os("CKPTFS_FIXTURES").map_or_else(beside, PathBuf::from).join("flink");
    root.is_dir().then_some(root)
}

fn items<'a>(value: &'a Json, name: &str) -> impl Iterator<Item = &'a Json> + use<'a> {
    value[name].as_array().into_iter().flatten()
}

/// The bytes of a stream: a file, a part of one, or inside `_metadata` behind their name and length.
fn stream(tree: &Path, metadata: &Path, handle: &Json) -> Vec<u8> {
    let size = usize::try_from(handle["size"].as_u64().unwrap()).unwrap();
    if let Some(path) = handle["in_tree"].as_str() {
        let start = usize::try_from(handle["start"].as_u64().unwrap_or(0)).unwrap();
        return fs::read(tree.join(path)).unwrap()[start..start + size].to_vec();
    }
    let (name, all) = (handle["handle_name"].as_str().unwrap().as_bytes(), fs::read(metadata).unwrap());
    let start = all.windows(name.len()).position(|window| window == name).unwrap() + name.len();
    assert_eq!(all[start..start + 4], u32::try_from(size).unwrap().to_be_bytes());
    all[start + 4..start + 4 + size].to_vec()
}

fn check_samples(meta: &BackendMeta, max: u32, samples: &Json, keys: &Json) -> usize {
    let mut rows = 0;
    for (name, samples) in samples.as_object().into_iter().flatten() {
        for sample in samples.as_array().unwrap() {
            let part = |at: usize, name: &str| sample[at].as_str().or(sample[name].as_str()).map(unhex);
            // Long values are not in the answers.
            let (key, value) = (part(0, "key_hex").unwrap(), part(1, "value_hex"));
            check_row(meta, meta.state(name).unwrap(), max, (&key, value.as_deref()), keys);
            rows += 1;
        }
    }
    rows
}

/// Every row of these key groups, put together again, is what the job wrote down of their keys. Gives the number of rows.
fn check_groups<'a>(meta: &BackendMeta, groups: impl Iterator<Item = &'a [u8]>, keys: &Json) -> usize {
    let mut found = serde_json::Map::new();
    let mut rows = 0;
    for group in groups {
        for row in KeyGroupRows::new(meta, group).unwrap() {
            let row = row.unwrap();
            let state = &meta.states[usize::from(row.state)];
            let (text, key, value) = check_row(meta, state, 128, (&row.key, Some(row.value)), keys);
            let value = value.unwrap().json();
            let of_key = found.entry(text).or_insert_with(|| json!({"kg": key.key_group}));
            match (&*state.name, key.timestamp, key.user_key) {
                (_, Some(timestamp), _) => {
                    let timers = of_key.as_object_mut().unwrap().entry("timers").or_insert_with(|| json!([]));
                    timers.as_array_mut().unwrap().push(json!(timestamp));
                }
                (name, _, Some(user_key)) => of_key[name][user_key.to_string()] = value,
                ("payload", ..) => of_key["payload_len"] = json!(value.as_str().unwrap().len() / 2 - 1),
                ("seen-ttl", ..) => of_key["seen-ttl"] = value["value"].clone(),
                (name, ..) => of_key[name] = value,
            }
            rows += 1;
        }
    }
    let mut expected = keys.clone();
    for of_key in expected.as_object_mut().unwrap().values_mut() {
        of_key.as_object_mut().unwrap().remove("payload_sha256");
    }
    // The job wrote its timers down in the order in which it set them.
    let all = found.values_mut().chain(expected.as_object_mut().unwrap().values_mut());
    for timers in all.filter_map(|of_key| of_key.get_mut("timers")) {
        timers.as_array_mut().unwrap().sort_by_key(Json::as_i64);
    }
    // A key whose states were all cleared has its key group alone.
    let mut expected = expected.as_object().unwrap().clone();
    expected.retain(|_, of_key| of_key.as_object().unwrap().len() > 1);
    for (key, expected) in &expected {
        assert_eq!(found.get(key), Some(expected), "{key}");
    }
    assert_eq!(found.len(), expected.len());
    rows
}

/// What is committed of them.
pub(super) fn committed() -> Json {
    file(&Path::new(env!("CARGO_MANIFEST_DIR")).join("mount-tests/fixtures/flink-keyed/rows.json"))
}

#[test]
fn committed_rows_read_as_flink_and_the_job_say() {
    let truth = committed();
    let meta = |of: &Json| {
        let meta = &truth["metas"][of["meta"].as_str().unwrap()];
        check_meta(&unhex(meta["hex"].as_str().unwrap()), &meta["truth"])
    };
    let check =
        |handle| check_samples(&meta(handle), number(&handle["max_parallelism"]), &handle["rows"], &handle["keys"]);
    let rows: usize = items(&truth, "handles").map(check).sum();
    let check = |group: &Json| {
        let bytes = unhex(group["hex"].as_str().unwrap());
        let mut rows = KeyGroupRows::new(&meta(group), &bytes).unwrap();
        assert!(rows.by_ref().all(|row| row.is_ok()));
        assert_eq!(rows.length(), bytes.len());
        check_groups(&meta(group), [&*bytes].into_iter(), &group["keys"])
    };
    let of_groups: usize = items(&truth, "key_groups").map(check).sum();
    assert_eq!((rows, of_groups), (243, 99));
}

/// What was checked.
#[derive(Debug, Default)]
struct Counts {
    handles: usize,
    rows: usize,
    savepoints: usize,
}

fn check_handle(
    handle: &Json,
    [tree, metadata]: [&Path; 2],
    max: u32,
    keys: impl Fn(&str) -> Json,
    counts: &mut Counts,
) {
    let canonical = !handle["delegate"].is_null();
    let bytes = stream(tree, metadata, if canonical { &handle["delegate"] } else { &handle["meta_state_handle"] });
    let meta = check_meta(&bytes, &handle["keyed_backend_meta"]);
    let keys = keys(if meta.state("payload").is_some() { "blob-op" } else { "profile-op" });
    counts.handles += 1;
    counts.rows += check_samples(&meta, max, &handle["sample_rows"], &keys);
    if !canonical {
        assert_eq!(meta.length, bytes.len());
        return;
    }
    let offsets = items(handle, "key_group_offsets").map(|offset| usize::try_from(offset.as_u64().unwrap()).unwrap());
    let offsets: Vec<usize> = offsets.filter(|offset| *offset > 0).collect();
    assert_eq!(offsets.iter().min(), Some(&meta.length));
    let found = check_groups(&meta, offsets.iter().map(|offset| &bytes[*offset..]), &keys);
    assert_eq!(handle["rows"], json!(found));
    counts.savepoints += 1;
}

#[test]
fn every_keyed_handle_reads_as_flink_and_the_job_say() {
    let Some(root) = whole() else {
        println!("no Flink fixtures here: set CKPTFS_FIXTURES");
        return;
    };
    let mut counts = Counts::default();
    for fixture in fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let (truth, tree) = (file(&fixture.join("TRUTH.json")), fixture.join("tree"));
        for checkpoint in items(&truth, "checkpoints") {
            let metadata = tree.join(checkpoint["metadata"].as_str().unwrap());
            let id = &checkpoint["checkpoint_id"];
            for operator in items(checkpoint, "operators") {
                let max = number(&operator["max_parallelism"]);
                for subtask in items(operator, "subtasks") {
                    let index = &subtask["subtask"];
                    let keys =
                        |name: &str| file(&fixture.join(format!("expected/{id}/{name}-{index}.json")))["keys"].clone();
                    for handle in items(subtask, "managed_keyed") {
                        check_handle(handle, [&tree, &metadata], max, keys, &mut counts);
                    }
                }
            }
        }
    }
    assert!(counts.handles > 90 && counts.rows > 1_000 && counts.savepoints == 4, "{counts:?}");
}
