//! Files of real jobs, compared with what Flink's own classes say of them.
//!
//! Some lie in `mount-tests/fixtures/flink`; all of them are read from `CKPTFS_FIXTURES`, or `../shared/fixtures` beside the source tree.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::super::{
    ChannelHandle, Distribution, KeyedHandle, LocalFile, Operator, OperatorHandle, Scope, StreamHandle, Subtask, read,
    write,
};
use super::{committed, made};
use crate::types::digest::to_hex;

fn sha256(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

/// The same list on both sides, entry by entry.
fn each<T>(found: &[T], told: &Value, one: impl Fn(&T, &Value)) {
    assert_eq!(found.len(), list(told).len(), "{told}");
    found.iter().zip(list(told)).for_each(|(found, told)| one(found, told));
}

fn stream(found: &StreamHandle, told: &Value) {
    let size = told["size"].as_u64();
    match found {
        StreamHandle::Null => assert!(told.is_null(), "{told}"),
        StreamHandle::Inline { name, bytes } => {
            assert_eq!(
                (&told["class"], &told["handle_name"]),
                (&"ByteStreamStateHandle".into(), &name.as_str().into())
            );
            assert_eq!(told["sha256"], sha256(bytes), "{name}");
        }
        StreamHandle::File { path, .. } => {
            assert_eq!((&told["class"], &told["path"]), (&"FileStateHandle".into(), &path.as_str().into()));
        }
        StreamHandle::Relative { path, .. } => {
            let told = (&told["class"], &told["relative_path"]);
            assert_eq!(told, (&"RelativeFileStateHandle".into(), &path.as_str().into()));
        }
        StreamHandle::Segment { start, scope, path, logical_id, .. } => {
            assert_eq!((&told["class"], &told["path"]), (&"SegmentFileStateHandle".into(), &path.as_str().into()));
            assert_eq!((number(&told["start"]), &told["logical_id"]), (*start, &logical_id.as_str().into()));
            assert_eq!(told["scope"], if *scope == Scope::Shared { "SHARED" } else { "EXCLUSIVE" });
        }
        StreamHandle::EmptySegment => assert_eq!(told["class"], "EmptySegmentFileStateHandle"),
        StreamHandle::KeyGroups(_) => panic!("no real file has one: {told}"),
    }
    assert_eq!(found.size(), size, "{told}");
}

fn files(found: &[LocalFile], told: &Value) {
    // Flink's classes keep the order of the file.
    each(found, told, |found, told| {
        assert_eq!(told["local_path"], found.path);
        stream(&found.stream, told);
    });
}

fn keyed(found: &KeyedHandle, told: &Value) {
    let range = list(&told["key_group_range"]);
    let groups = |first: u32, count: u64| {
        assert_eq!((number(&range[0]), number(&range[1])), (first.into(), u64::from(first) + count - 1), "{range:?}");
    };
    match found {
        KeyedHandle::Incremental {
            checkpoint_id,
            backend_id,
            key_groups,
            checkpointed_size,
            meta,
            shared,
            private,
            handle_id,
        } => {
            assert_eq!(told["class"], "IncrementalRemoteKeyedStateHandle");
            assert_eq!(told["handle_checkpoint_id"], *checkpoint_id);
            assert_eq!(told["backend_identifier"], backend_id.as_str());
            groups(key_groups.first, key_groups.count.into());
            assert_eq!(told["checkpointed_size"], checkpointed_size.unwrap());
            assert_eq!(told["state_handle_id"], handle_id.as_deref().unwrap());
            stream(meta, &told["meta_state_handle"]);
            files(shared, &told["shared_state"]);
            files(private, &told["private_state"]);
        }
        KeyedHandle::Savepoint(state) => {
            assert_eq!(told["class"], "KeyGroupsSavepointStateHandle");
            groups(state.first, state.offsets.len() as u64);
            each(&state.offsets, &told["key_group_offsets"], |found, told| assert_eq!(told, found));
            stream(&state.stream, &told["delegate"]);
        }
        KeyedHandle::KeyGroups { state, handle_id } => {
            assert_eq!(told["class"], "KeyGroupsStateHandle");
            assert_eq!(told["state_handle_id"], handle_id.as_deref().unwrap());
            groups(state.first, state.offsets.len() as u64);
            each(&state.offsets, &told["key_group_offsets"], |found, told| assert_eq!(told, found));
            stream(&state.stream, &told["delegate"]);
        }
        KeyedHandle::Changelog { key_groups, checkpointed_size, materialized, non_materialized, .. } => {
            assert_eq!(told["class"], "ChangelogStateBackendHandleImpl");
            assert_eq!(told["checkpointed_size"], *checkpointed_size);
            groups(key_groups.first, key_groups.count.into());
            each(materialized, &told["materialized"], keyed);
            each(non_materialized, &told["non_materialized"], keyed);
        }
        KeyedHandle::ChangelogInMemory { key_groups, from, to, changes, handle_id } => {
            assert_eq!(told["class"], "InMemoryChangelogStateHandle");
            assert_eq!((&told["from"], &told["to"]), (&(*from).into(), &(*to).into()));
            assert_eq!(told["state_handle_id"], handle_id.as_str());
            groups(key_groups.first, key_groups.count.into());
            each(changes, &told["changes"], |found, told| {
                assert_eq!(
                    (&told["key_group"], number(&told["size"])),
                    (&found.key_group.into(), found.bytes.len() as u64)
                );
                assert_eq!(told["sha256"], sha256(&found.bytes));
            });
        }
        KeyedHandle::ChangelogFiles { key_groups, streams, checkpointed_size, handle_id, storage_id, .. } => {
            assert_eq!(told["class"], "ChangelogStateHandleStreamImpl");
            assert_eq!(told["checkpointed_size"], *checkpointed_size);
            assert_eq!(told["state_handle_id"], handle_id.as_str());
            assert_eq!(told["storage_id"], storage_id.as_deref().unwrap());
            groups(key_groups.first, key_groups.count.into());
            each(streams, &told["handles"], |found, told| {
                assert_eq!(number(&told["offset"]), found.offset);
                stream(&found.stream, told);
            });
        }
    }
}

fn channel(found: &ChannelHandle, told: &Value, (class, group, channel): (&str, &str, &str)) {
    match found {
        ChannelHandle::Plain { subtask, group: g, channel: c, offsets, size, stream: at } => {
            assert_eq!(told["class"], class);
            assert_eq!(
                (&told["subtask"], &told[group], &told[channel]),
                (&(*subtask).into(), &(*g).into(), &(*c).into())
            );
            assert_eq!(number(&told["state_size"]), *size);
            each(offsets, &told["offsets"], |found, told| assert_eq!(number(told), *found));
            stream(at, &told["delegate"]);
        }
        ChannelHandle::Merged { subtask, size, stream: at, offsets } => {
            assert_eq!(told["class"], format!("Merged{class}"));
            assert_eq!((&told["subtask"], number(&told["state_size"])), (&(*subtask).into(), *size));
            assert_eq!(told["channel_offsets_hex"], to_hex(offsets));
            stream(at, &told["delegate"]);
        }
    }
}

fn operator_state(found: &OperatorHandle, told: &Value) {
    let partitions = told["partitions"].as_object().unwrap();
    assert_eq!(found.states.len(), partitions.len());
    for state in &found.states {
        let told = &partitions[&state.name];
        each(&state.offsets, &told["offsets"], |found, told| assert_eq!(number(told), *found));
        assert_eq!(
            told["mode"],
            match state.distribution {
                Distribution::Split => "SPLIT_DISTRIBUTE",
                Distribution::Union => "UNION",
                Distribution::Broadcast => "BROADCAST",
            }
        );
    }
    stream(&found.stream, &told["delegate"]);
    let class = match &found.merging {
        None => "OperatorStreamStateHandle",
        Some(merging) => {
            assert_eq!(told["task_owned_dir"]["directory"], merging.task_owned);
            assert_eq!(told["shared_dir"]["directory"], merging.shared);
            if merging.empty {
                "EmptyFileMergingOperatorStreamStateHandle"
            } else {
                "FileMergingOperatorStreamStateHandle"
            }
        }
    };
    assert_eq!(told["class"], class);
}

fn subtask(found: &Subtask, told: &Value) {
    assert_eq!((number(&told["subtask"]), told["finished"].as_bool()), (found.index.into(), Some(found.finished)));
    for (name, found) in [("managed_operator", &found.managed_operator), ("raw_operator", &found.raw_operator)] {
        each(found.as_slice(), &told[name], |found, told| operator_state(found, told));
    }
    for (name, found) in [("managed_keyed", &found.managed_keyed), ("raw_keyed", &found.raw_keyed)] {
        each(found.as_slice(), &told[name], |found, told| keyed(found, told));
    }
    let input = ("InputChannelStateHandle", "gate", "channel");
    each(&found.input_channels, &told["input_channel_handles"], |found, told| channel(found, told, input));
    let output = ("ResultSubpartitionStateHandle", "partition", "subpartition");
    each(&found.result_subpartitions, &told["result_subpartition_handles"], |found, told| channel(found, told, output));
}

fn operator(found: &Operator, told: &Value, version: u64) {
    let label = |name: &str| told[name].as_str().filter(|text| version >= 5 && !text.is_empty());
    assert_eq!((found.name.as_deref(), found.uid.as_deref()), (label("name"), label("uid")));
    assert_eq!(
        (number(&told["parallelism"]), number(&told["max_parallelism"])),
        (found.parallelism.into(), found.max_parallelism.into())
    );
    assert_eq!(told["fully_finished"], found.fully_finished);
    stream(&found.coordinator, &told["coordinator_state"]);
    let told: BTreeMap<u64, &Value> =
        list(&told["subtasks"]).iter().map(|told| (number(&told["subtask"]), told)).collect();
    assert_eq!(told.len(), found.subtasks.len());
    found.subtasks.iter().for_each(|found| subtask(found, told[&u64::from(found.index)]));
}

/// Compares every `_metadata` below a directory of fixtures, and says how many there were.
fn compare(root: &Path) -> usize {
    let mut compared = 0;
    for fixture in fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let truth: Value = serde_json::from_slice(&fs::read(fixture.join("TRUTH.json")).unwrap()).unwrap();
        for told in list(&truth["checkpoints"]) {
            // Those that were made here are alone.
            let alone = fixture.join("_metadata");
            let whole = fixture.join("tree").join(told["metadata"].as_str().unwrap());
            let bytes = fs::read(if alone.exists() { alone } else { whole }).unwrap();
            let digest = sha256(&bytes);
            assert_eq!(told["metadata_sha256"].as_str().unwrap_or(&digest), digest);
            let found = read(&bytes).unwrap();
            let version = number(&told["metadata_version"]);
            assert_eq!((u64::from(found.version), &told["checkpoint_id"]), (version, &found.checkpoint_id.into()));
            assert_eq!(found.master_states.len(), list(&told["master_states"]).len());
            let operators: BTreeMap<&str, &Value> =
                list(&told["operators"]).iter().map(|told| (told["operator_id"].as_str().unwrap(), told)).collect();
            assert_eq!(operators.len(), found.operators.len());
            found.operators.iter().for_each(|found| operator(found, operators[found.hex().as_str()], version));
            assert_eq!(&found.properties[..4], [0xAC, 0xED, 0, 5]);
            assert!(write(&found).unwrap() == bytes, "{} is not written as it was", fixture.display());
            compared += 1;
        }
    }
    compared
}

#[test]
fn committed_files_are_what_flink_says_and_written_as_they_were() {
    assert_eq!(compare(&committed()), 7);
    assert_eq!(compare(&made()), 11);
}

#[test]
fn all_real_files_are_what_flink_says_and_written_as_they_were() {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures");
    let told = std::env::var_os("CKPTFS_FIXTURES").map(PathBuf::from);
    let root = told.clone().unwrap_or_else(beside).join("flink");
    // A clone alone has none; a variable that names a place without them is a mistake.
    if told.is_none() && !root.is_dir() {
        println!("no Flink fixtures here: set CKPTFS_FIXTURES");
        return;
    }
    assert!(compare(&root) >= 30);
}
