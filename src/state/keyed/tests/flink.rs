//! Known answers: key groups and rows that Flink wrote, and whole databases of its, opened and read by the backend.
//!
//! A part of the answers lies in `mount-tests/fixtures/state`; the databases are read from `CKPTFS_FIXTURES`, or `../shared/fixtures`
//! beside the source tree.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::super::encoding::{read_row, read_timer};
use super::*;
use crate::state::serializer::{BytesSerializer, Serializer, SerializerDescriptor, StringSerializer, VoidNamespace};
use crate::types::key_group_of;

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn committed() -> Value {
    json(&Path::new(env!("CARGO_MANIFEST_DIR")).join("mount-tests/fixtures/state/flink.json"))
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

/// A row of Flink's: its key reads back, gives the same row again, and belongs to the group in front of it.
fn check_row<K: KeySerializer>(keys: &K, family: &str, row: &[u8], max: u32, range: &KeyGroupRange) {
    let key = match family.starts_with("_timer_state/") {
        true => {
            let (time, key, ()) = read_timer(row, max, keys, &VoidNamespace).unwrap();
            let group = key_group_of(keys.hash(&key), max);
            let encoded = super::super::encoding::EncodedKey::new(group, max, keys, &key).unwrap();
            assert_eq!(hex(&encoded.timer(time, &VoidNamespace, &()).unwrap()), hex(row), "{family}");
            key
        }
        false => {
            let (key, (), rest) = read_row(row, max, keys, &VoidNamespace).unwrap();
            assert_eq!(rest.is_empty(), family != "per-tag");
            let group = key_group_of(keys.hash(&key), max);
            let encoded = super::super::encoding::EncodedKey::new(group, max, keys, &key).unwrap();
            let prefix = encoded.row(&VoidNamespace, &()).unwrap();
            assert_eq!(hex(&[&prefix, rest].concat()), hex(row), "{family}");
            key
        }
    };
    assert!(range.contains(key_group_of(keys.hash(&key), max)), "{family}");
}

fn check_handle(handle: &Value, string_keys: bool, rows: impl Iterator<Item = (String, String)>) -> usize {
    let max = number(&handle["max_parallelism"]);
    let range = KeyGroupRange { first: number(&handle["range"][0]), last: number(&handle["range"][1]) };
    let (parallelism, subtask) = (number(&handle["parallelism"]), number(&handle["subtask"]));
    assert_eq!(KeyGroupRange::of_subtask(max, parallelism, subtask).unwrap(), range);
    for group in range.iter() {
        assert_eq!(KeyGroupRange::subtask_of(max, parallelism, group).unwrap(), subtask);
    }
    let mut checked = 0;
    for (family, row) in rows {
        match string_keys {
            true => check_row(&StringSerializer, &family, &unhex(&row), max, &range),
            false => check_row(&LongSerializer, &family, &unhex(&row), max, &range),
        }
        checked += 1;
    }
    checked
}

#[test]
fn row6_key_groups_and_rows_agree_with_flink() {
    let truth = committed();
    let mut rows = 0;
    let handles = truth["handles"].as_array().unwrap();
    for handle in handles {
        let ends = handle["families"].as_object().unwrap().iter().flat_map(|(family, ends)| {
            ["first", "last"].map(|end| (family.clone(), ends[end].as_str().unwrap().to_owned()))
        });
        let samples = handle["rows"].as_object().unwrap().iter().flat_map(|(family, rows)| {
            rows.as_array().unwrap().iter().map(|row| (family.clone(), row[0].as_str().unwrap().to_owned()))
        });
        rows += check_handle(handle, handle["key"] == "string", ends.chain(samples));
    }
    assert_eq!((handles.len(), rows), (26, 544));
    let keys = truth["keys"].as_object().unwrap();
    for (key, group) in keys["long"].as_object().unwrap() {
        assert_eq!(key_group_of(LongSerializer.hash(&key.parse().unwrap()), 128), number(group), "{key}");
    }
    for (key, group) in keys["string"].as_object().unwrap() {
        assert_eq!(key_group_of(StringSerializer.hash(key), 128), number(group), "{key}");
    }
    assert_eq!((keys["long"].as_object().unwrap().len(), keys["string"].as_object().unwrap().len()), (256, 168));
}

/// Where whole Flink checkpoints with known answers lie, if they do.
fn fixtures() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures");
    let root = std::env::var_os("CKPTFS_FIXTURES").map_or_else(beside, PathBuf::from).join("flink");
    root.is_dir().then_some(root)
}

/// Lays a handle's files out as the RocksDB directory that they are of; false if the tree lacks one.
fn lay_out(tree: &Path, handle: &Value, directory: &Path) -> bool {
    fs::create_dir_all(directory).unwrap();
    for list in ["shared_state", "private_state"] {
        for file in handle[list].as_array().into_iter().flatten() {
            let bytes = file["in_tree"].as_str().and_then(|path| fs::read(tree.join(path)).ok());
            let start = usize::try_from(file["start"].as_u64().unwrap_or(0)).unwrap();
            let size = usize::try_from(file["size"].as_u64().unwrap()).unwrap();
            let Some(part) = bytes.as_deref().and_then(|bytes| bytes.get(start..start + size)) else { return false };
            fs::write(directory.join(file["local_path"].as_str().unwrap()), part).unwrap();
        }
    }
    true
}

fn descriptor(handle: &Value, max: u32, key: SerializerDescriptor, states: Vec<StateDescriptor>) -> KeyedDescriptor {
    let range = &handle["key_group_range"];
    KeyedDescriptor {
        key,
        max_parallelism: max,
        range: KeyGroupRange { first: number(&range[0]), last: number(&range[1]) },
        backend: Uid::from_bytes([7; 16]),
        states,
    }
}

fn state<V: Serializer>(name: &str, kind: StateKind, value: &V, ttl: Option<Ttl>) -> StateDescriptor {
    StateDescriptor {
        name: name.to_owned(),
        kind,
        namespace: VoidNamespace.descriptor(),
        value: value.descriptor(),
        user_key: (kind == StateKind::Map).then(|| StringSerializer.descriptor()),
        version: 1,
        ttl,
    }
}

fn timers_of<K: KeySerializer<Item: std::fmt::Display + Ord>>(backend: &KeyedBackend<K>) -> BTreeSet<(String, i64)> {
    let mut found = BTreeSet::new();
    for domain in [TimeDomain::Event, TimeDomain::Processing] {
        let timers = backend.timers(domain, "user-timers", VoidNamespace).unwrap().pop_until(i64::MAX).unwrap();
        found.extend(timers.into_iter().map(|timer| (timer.key.to_string(), timer.timestamp)));
    }
    found
}

fn expected_timers(expected: &Value) -> BTreeSet<(String, i64)> {
    let keys = expected["keys"].as_object().unwrap();
    let of_key = |(key, states): (&String, &Value)| {
        let times = states["timers"].as_array().cloned().unwrap_or_default();
        times.into_iter().map(|time| (key.clone(), time.as_i64().unwrap())).collect::<Vec<_>>()
    };
    keys.iter().flat_map(of_key).collect()
}

const TIMERS: [StateKind; 2] = [StateKind::Timer(TimeDomain::Event), StateKind::Timer(TimeDomain::Processing)];

/// Value, list, map and timers, by `Long` keys.
fn check_profile(bench: &Bench, directory: &Path, handle: &Value, max: u32, expected: &Value) {
    let mut states: Vec<_> = TIMERS.into_iter().map(|kind| state("user-timers", kind, &LongSerializer, None)).collect();
    states.extend(["count", "fired"].map(|name| state(name, StateKind::Value, &LongSerializer, None)));
    states.push(state("last-event", StateKind::Value, &StringSerializer, None));
    states.push(state("recent-offsets", StateKind::List, &LongSerializer, None));
    states.push(state("per-tag", StateKind::Map, &LongSerializer, None));
    let descriptor = descriptor(handle, max, LongSerializer.descriptor(), states);
    let config = bench.config(LongSerializer, (descriptor.range.first, descriptor.range.last), max);
    let backend = KeyedBackend::open(directory, &descriptor, config).unwrap();
    let count = backend.value(Declaration::new("count", LongSerializer)).unwrap();
    let fired = backend.value(Declaration::new("fired", LongSerializer)).unwrap();
    let event = backend.value(Declaration::new("last-event", StringSerializer)).unwrap();
    let offsets = backend.list(Declaration::new("recent-offsets", LongSerializer)).unwrap();
    let tags = backend.map(Declaration::new("per-tag", LongSerializer), StringSerializer).unwrap();
    let keys = expected["keys"].as_object().unwrap();
    let mut counted = 0;
    for (key, states) in keys {
        backend.set_current_key(&key.parse().unwrap()).unwrap();
        assert_eq!(count.get(&()).unwrap(), states["count"].as_i64(), "{key}");
        assert_eq!(fired.get(&()).unwrap(), states["fired"].as_i64(), "{key}");
        assert_eq!(event.get(&()).unwrap().as_deref(), states["last-event"].as_str(), "{key}");
        let of_list = states["recent-offsets"].as_array().map_or(Vec::new(), Clone::clone);
        assert_eq!(offsets.get(&()).unwrap(), of_list.iter().map(|n| n.as_i64().unwrap()).collect::<Vec<_>>());
        let of_map = states["per-tag"].as_object().cloned().unwrap_or_default();
        let of_map: Vec<(String, i64)> = of_map.into_iter().map(|(tag, n)| (tag, n.as_i64().unwrap())).collect();
        assert_eq!(tags.entries(&()).unwrap(), of_map);
        counted += usize::from(states["count"].is_i64());
    }
    assert_eq!(backend.keys("count", &VoidNamespace, &()).unwrap().len(), counted);
    assert_eq!(timers_of(&backend), expected_timers(expected));
}

/// Byte arrays, reducing state and a time to live, by `String` keys.
fn check_blob(bench: &Bench, directory: &Path, handle: &Value, max: u32, expected: &Value) {
    let ttl = Some(Ttl::after_write(3_600_000));
    let mut states: Vec<_> =
        TIMERS.into_iter().map(|kind| state("user-timers", kind, &StringSerializer, None)).collect();
    states.push(state("payload", StateKind::Value, &BytesSerializer, None));
    states.push(state("offset-sum", StateKind::Reducing, &LongSerializer, None));
    states.push(state("seen-ttl", StateKind::Value, &StringSerializer, ttl));
    let descriptor = descriptor(handle, max, StringSerializer.descriptor(), states);
    let config = bench.config(StringSerializer, (descriptor.range.first, descriptor.range.last), max);
    let backend = KeyedBackend::open(directory, &descriptor, config).unwrap();
    let payload = backend.value(Declaration::new("payload", BytesSerializer)).unwrap();
    let sum = backend.reducing(Declaration::new("offset-sum", LongSerializer), |a, b| a + b).unwrap();
    let seen = Declaration::new("seen-ttl", StringSerializer).ttl(Ttl::after_write(3_600_000));
    let seen = backend.value(seen).unwrap();
    for (key, states) in expected["keys"].as_object().unwrap() {
        backend.set_current_key(key).unwrap();
        let length = payload.get(&()).unwrap().map(|bytes| bytes.len() as u64);
        assert_eq!(length, states["payload_len"].as_u64(), "{key}");
        assert_eq!(sum.get(&()).unwrap(), states["offset-sum"].as_i64(), "{key}");
        assert_eq!(seen.get(&()).unwrap().as_deref(), states["seen-ttl"].as_str(), "{key}");
    }
    assert_eq!(timers_of(&backend), expected_timers(expected));
}

#[test]
fn row6_databases_of_flink_are_opened_and_read() {
    let Some(root) = fixtures() else {
        println!("no Flink fixtures here: set CKPTFS_FIXTURES");
        return;
    };
    let bench = Bench::new();
    // Before any of the values was written: none is over its time.
    bench.set_time(0);
    let (mut handles, mut rows) = (0, 0);
    for fixture in
        ["incr-p2", "filemerge-p2", "flink120-p2-savepoint-native", "incr-p2-savepoint-native", "rescale-2to3"]
    {
        let truth = json(&root.join(fixture).join("TRUTH.json"));
        for checkpoint in truth["checkpoints"].as_array().unwrap() {
            for operator in checkpoint["operators"].as_array().unwrap() {
                for subtask in operator["subtasks"].as_array().unwrap() {
                    for handle in subtask["managed_keyed"].as_array().into_iter().flatten() {
                        let families = handle["rocksdb"].as_object().filter(|families| !families.contains_key("error"));
                        let Some(families) = families else { continue };
                        let blob = families.contains_key("payload");
                        let name = if blob { "blob-op" } else { "profile-op" };
                        let (id, index) = (&checkpoint["checkpoint_id"], &subtask["subtask"]);
                        let file = root.join(fixture).join(format!("expected/{id}/{name}-{index}.json"));
                        let directory = bench.path(&format!("{fixture}-{id}-{name}-{index}"));
                        if !file.exists() || !lay_out(&root.join(fixture).join("tree"), handle, &directory) {
                            continue;
                        }
                        let max = number(&operator["max_parallelism"]);
                        let check = if blob { check_blob } else { check_profile };
                        check(&bench, &directory, handle, max, &json(&file));
                        let whole = serde_json::json!({"max_parallelism": max, "range": handle["key_group_range"],
                            "parallelism": operator["parallelism"], "subtask": index});
                        let ends = families.iter().flat_map(|(family, of)| {
                            let ends = ["first_key", "last_key"].map(|end| of[end].as_str().map(str::to_owned));
                            ends.into_iter().flatten().map(|row| (family.clone(), row))
                        });
                        rows += check_handle(&whole, blob, ends);
                        handles += 1;
                        fs::remove_dir_all(directory).unwrap();
                    }
                }
            }
        }
    }
    println!("{handles} databases of Flink read, {rows} rows checked");
    // All but five, whose files Flink itself had deleted.
    assert_eq!((handles, rows), (95, 858));
}
