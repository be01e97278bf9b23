//! What Flink's own classes said of a checkpoint.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ckptfs::types::Name;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A folder of checkpoints.
pub struct Tree {
    pub name: String,
    pub root: PathBuf,
    truth: Value,
}

/// One of them.
pub struct Checkpoint {
    pub directory: PathBuf,
    pub job: String,
    pub number: u64,
    root: PathBuf,
    truth: Value,
}

/// A handle of a subtask's.
pub struct Handle {
    /// The operator's name on the mount.
    pub operator: String,
    pub subtask: u64,
    pub truth: Value,
    /// What its stream and its parts are called on the mount.
    name: String,
    root: PathBuf,
}

/// A subtask's handles, and what their streams are called on the mount.
const KINDS: [(&str, &str); 6] = [
    ("managed_keyed", "keyed"),
    ("managed_operator", "operator"),
    ("raw_keyed", "raw-keyed"),
    ("raw_operator", "raw-operator"),
    ("input_channel_handles", "input-"),
    ("result_subpartition_handles", "output-"),
];

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// The committed trees, and all where there are more.
pub fn trees() -> Vec<Tree> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR"));
    let told = std::env::var_os("CKPTFS_FIXTURES").map(PathBuf::from);
    let all = told.clone().unwrap_or_else(|| beside.join("../shared/fixtures")).join("flink");
    let all = if all.is_dir() { all } else { beside.join("mount-tests/fixtures/flink-trees") };
    assert!(told.is_none() || all.starts_with(told.unwrap()), "CKPTFS_FIXTURES has no flink/");
    let mut out = Vec::new();
    for entry in fs::read_dir(&all).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(text) = fs::read(folder.join("TRUTH.json")) else { continue };
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        out.push(Tree { name, root: folder.join("tree"), truth: serde_json::from_slice(&text).unwrap() });
    }
    assert!(out.len() >= 4, "{} has only {} trees", all.display(), out.len());
    out.sort_by(|a, b| a.name.cmp(&b.name));
    out
}

pub fn bytes_below(directory: &Path) -> u64 {
    let below = fs::read_dir(directory).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() { bytes_below(&path) } else { path.metadata().unwrap().len() }
    });
    below.sum()
}

impl Tree {
    /// In the order of their numbers.
    pub fn checkpoints(&self) -> Vec<Checkpoint> {
        let of = |truth: &Value| {
            let metadata = self.root.join(truth["metadata"].as_str().unwrap());
            Checkpoint {
                directory: metadata.parent().unwrap().to_owned(),
                job: self.name.clone(),
                number: truth["checkpoint_id"].as_u64().unwrap(),
                root: self.root.clone(),
                truth: truth.clone(),
            }
        };
        let mut out: Vec<Checkpoint> = self.truth["checkpoints"].as_array().unwrap().iter().map(of).collect();
        out.sort_by_key(|c| c.number);
        out
    }
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|t| !t.is_empty()).map(str::to_owned)
}

/// Everything below a value that has a digest or is missing.
fn files(value: &Value, out: &mut Vec<Value>) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("sha256") || fields.contains_key("missing") {
                out.push(value.clone());
            }
            fields.values().for_each(|v| files(v, out));
        }
        Value::Array(items) => items.iter().for_each(|v| files(v, out)),
        _ => {}
    }
}

impl Checkpoint {
    pub fn metadata_length(&self) -> u64 {
        self.truth["metadata_size"].as_u64().unwrap()
    }

    /// The keyed and operator handles.
    pub fn handles(&self) -> Vec<Handle> {
        let mut out = Vec::new();
        for operator in list(&self.truth["operators"]) {
            let display = text(&operator["uid"]).or_else(|| text(&operator["name"]));
            let display = display.unwrap_or_else(|| operator["operator_id"].as_str().unwrap().to_owned());
            for subtask in list(&operator["subtasks"]) {
                let mut shared = Vec::new();
                for (kind, name) in KINDS {
                    for (n, truth) in list(&subtask[kind]).into_iter().enumerate() {
                        // The channels of a subtask share a file, which is shown once.
                        if name.ends_with('-') && shared.contains(&truth["delegate"]["path"]) {
                            continue;
                        }
                        shared.push(truth["delegate"]["path"].clone());
                        out.push(Handle {
                            operator: Name::encode(&display).to_string(),
                            subtask: subtask["subtask"].as_u64().unwrap(),
                            truth,
                            name: if name.ends_with('-') { format!("{name}{n}") } else { name.to_owned() },
                            root: self.root.clone(),
                        });
                    }
                }
            }
        }
        out
    }

    /// The files that it names, below the tree.
    pub fn files(&self) -> Vec<String> {
        let mut all = Vec::new();
        files(&self.truth["operators"], &mut all);
        all.iter().filter_map(|f| f["in_tree"].as_str().map(str::to_owned)).collect()
    }

    /// What is not there: operator, subtask, the name in the `_metadata`.
    pub fn missing(&self) -> Vec<(String, u64, String)> {
        let mut out = Vec::new();
        for handle in self.handles() {
            let mut all = Vec::new();
            files(&handle.truth, &mut all);
            for file in all.iter().filter(|f| f["missing"] == true) {
                out.push((handle.operator.clone(), handle.subtask, file["path"].as_str().unwrap().to_owned()));
            }
        }
        out
    }

    /// Bytes of the files that none of the checkpoints before has, and of the `_metadata`.
    pub fn new_bytes(&self, before: &[Self]) -> u64 {
        let paths = |c: &Self| -> BTreeMap<String, u64> {
            let mut all = Vec::new();
            c.handles().iter().for_each(|h| files(&h.truth, &mut all));
            all.iter().filter_map(|f| Some((f["in_tree"].as_str()?.to_owned(), f["size"].as_u64()?))).collect()
        };
        let known: BTreeMap<_, _> = before.iter().flat_map(paths).collect();
        let new = paths(self).into_iter().filter(|(path, _)| !known.contains_key(path));
        new.map(|(_, size)| size).sum::<u64>() + self.metadata_length()
    }
}

impl Handle {
    /// Path below the subtask's directory, SHA-256 and size of its files.
    pub fn files(&self) -> Vec<(String, String, u64)> {
        let file = |path: String, f: &Value| {
            let size = f["read_bytes"].as_u64().or_else(|| f["size"].as_u64()).unwrap_or_else(|| panic!("{f}"));
            (path, f["sha256"].as_str().unwrap_or_else(|| panic!("{f}")).to_owned(), size)
        };
        if !self.truth["delegate"].is_null() {
            let empty = self.truth["delegate"]["sha256"].is_null();
            return if empty {
                Vec::new()
            } else {
                vec![file(format!("stream/{}", self.name), &self.truth["delegate"])]
            };
        }
        let mut out = Vec::new();
        for (n, database) in self.databases().iter().enumerate() {
            let numbered = |name: &str| if n == 0 { name.to_owned() } else { format!("{name}-{n}") };
            out.push(file(format!("stream/{}", numbered("meta")), &database["meta_state_handle"]));
            for kind in ["shared_state", "private_state"] {
                let path = |f: &Value| format!("{}/{}", numbered("db"), f["local_path"].as_str().unwrap());
                out.extend(list(&database[kind]).iter().map(|f| file(path(f), f)));
            }
        }
        let changes = list(&self.truth["non_materialized"]).into_iter().flat_map(|c| list(&c["handles"]));
        out.extend(changes.enumerate().map(|(n, f)| file(format!("stream/changelog-{n}"), &f)));
        out
    }

    /// Path below the subtask's directory and in the tree, of the files that a database has.
    pub fn in_tree(&self) -> Vec<(String, String)> {
        let files = list(&self.truth["shared_state"]).into_iter().chain(list(&self.truth["private_state"]));
        let pair = |f: Value| Some((format!("db/{}", f["local_path"].as_str()?), f["in_tree"].as_str()?.to_owned()));
        files.filter_map(pair).collect()
    }

    /// The RocksDB handles in it: itself, or what its changes begin from.
    pub fn databases(&self) -> Vec<Value> {
        let materialized = list(&self.truth["materialized"]);
        if materialized.is_empty() && !self.truth["meta_state_handle"].is_null() {
            return vec![self.truth.clone()];
        }
        materialized
    }

    /// Path and bytes of the parts of its stream that are shown as files of their own, cut here from the file of the tree.
    pub fn parts(&self) -> Vec<(String, Vec<u8>)> {
        let delegate = &self.truth["delegate"];
        let Some(in_tree) = delegate["in_tree"].as_str() else { return Vec::new() };
        let start = usize::try_from(delegate["start"].as_u64().unwrap_or(0)).unwrap();
        let size = usize::try_from(delegate["size"].as_u64().unwrap()).unwrap();
        let whole = fs::read(self.root.join(in_tree)).unwrap()[start..start + size].to_vec();
        let mut places = Vec::new();
        if let Some(states) = self.truth["partitions"].as_object() {
            for (state, told) in states {
                for (n, offset) in list(&told["offsets"]).iter().enumerate() {
                    let raw = self.name == "raw-operator";
                    let path =
                        if raw { format!("raw-operator/{n}") } else { format!("operator/{}/{n}", Name::encode(state)) };
                    places.push((path, offset.as_u64().unwrap()));
                }
            }
        }
        let first = self.truth["key_group_range"][0].as_u64().unwrap_or(0);
        for (group, offset) in (first..).zip(list(&self.truth["key_group_offsets"])) {
            // -1, and in a savepoint 0: nothing was written for the group.
            if let Some(offset) = offset.as_u64().filter(|o| *o > 0 || self.name == "raw-keyed") {
                places.push((format!("{}/{group}", self.name), offset));
            }
        }
        let end_of = |from: u64| {
            let next = places.iter().map(|(_, o)| *o).filter(|o| *o > from).min();
            next.map_or(whole.len(), |o| usize::try_from(o).unwrap())
        };
        let cut = |(path, from): &(String, u64)| {
            (path.clone(), whole[usize::try_from(*from).unwrap()..end_of(*from)].to_vec())
        };
        places.iter().map(cut).collect()
    }
}
