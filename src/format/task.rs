//! The task manifest: what one subtask stored for a checkpoint, and where.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::header::Record;
use super::place::{Place, Role};
use super::states;
use crate::limits;
use crate::types::{BlobName, Digest, Extent, KeyGroupRange, Name};

/// The body of `task/<job>/<n>/<operator>/<subtask>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskManifest {
    /// Job, number, uid, operator and subtask.
    pub place: Place,
    /// The operator's name as its author wrote it.
    pub display_name: String,
    /// Blobs that the files lie in; extents point into this list by index.
    pub blobs: Vec<BlobEntry>,
    /// The files, by path.
    pub files: Vec<FileEntry>,
    /// Bytes that the directory holds: the sum of the files' sizes.
    pub logical_bytes: u64,
    /// Bytes that this snapshot uploaded as blobs.
    pub new_bytes: u64,
    /// Identity of the RocksDB instance, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Key groups that the keyed state covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_groups: Option<KeyGroupRange>,
    /// Descriptors of the registered states, opaque here.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "states::read")]
    pub states: Vec<serde_json::Value>,
    /// Free properties.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// Room for channel, coordinator and master state: paths of files that hold it, by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub other_state: BTreeMap<String, Vec<FilePath>>,
    /// Where files were imported from: by path a digest of place, range and version. The same origin again need not be read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub origins: BTreeMap<FilePath, Digest>,
}

/// A blob that files of the manifest lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlobEntry {
    /// Its name.
    pub name: BlobName,
    /// Its length in bytes.
    pub length: u64,
    /// Whether it is a bundle: fetched whole when the directory is first opened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bundle: bool,
}

/// A file of the directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path below the subtask's directory.
    pub path: FilePath,
    /// Size in bytes.
    pub size: u64,
    /// Digest of its bytes.
    pub digest: Digest,
    /// Where the bytes are, in order.
    pub extents: Vec<Extent>,
    /// Where its BLAKE3 hash tree (64 KiB groups, pre-order, without root) is, for blobs of more than one group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Extent>,
    /// A second copy of its end, for opening it without a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
    /// What the RocksDB MANIFEST says of it, for SSTs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sst: Option<SstInfo>,
}

/// A copy of a file's end in a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// Offset in the file, a multiple of 64 KiB; the tail goes on to the end.
    pub start: u64,
    /// Where the copy is.
    pub extent: Extent,
}

/// What the RocksDB MANIFEST says of an SST.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SstInfo {
    /// The column family's name.
    pub column_family: String,
    /// The level.
    pub level: u32,
    /// Smallest user key in hex, cut to 64 bytes.
    pub smallest: String,
    /// Largest user key in hex, cut outward to 64 bytes; nothing when there is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest: Option<String>,
}

/// A file's path below its subtask's directory: `db/<file>`, `operator/<state>/<partition>`, `raw-keyed/<key-group>` or
/// `raw-operator/<partition>`; of an imported checkpoint also `db-<n>/<file>` (a subtask with several databases), `keyed/<key-group>`,
/// `stream/<file>` (a stream as it was stored) and `flink/<file>`. Nothing else parses, so nothing a store says can leave the directory.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilePath(String);

impl FilePath {
    /// A file of the RocksDB directory.
    ///
    /// # Errors
    /// When the name is not one that may stand there.
    pub fn db(file: &str) -> Result<Self, String> {
        Self::parse(&format!("db/{file}"))
    }

    /// Checks a path.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = |why: &str| {
            Err(format!("{:?} is not a path of a state file: {why}", text.chars().take(256).collect::<String>()))
        };
        if text.len() > limits::FILE_PATH_LEN {
            return bad("it is too long");
        }
        let parts: Vec<&str> = text.split('/').collect();
        let number = |t: &str| {
            t == "0" || (t.len() <= 9 && !t.starts_with('0') && !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit()))
        };
        match parts.as_slice() {
            [kind, file] if is_kind_of_files(kind, number) => match file_name(file) {
                Ok(()) => Ok(Self(text.to_owned())),
                Err(why) => bad(why),
            },
            ["operator", state, partition] if Name::parse(state).is_ok() && number(partition) => {
                Ok(Self(text.to_owned()))
            }
            ["raw-keyed" | "raw-operator" | "keyed", n] if number(n) => Ok(Self(text.to_owned())),
            _ => bad(
                "only db/<file>, operator/<state>/<partition>, raw-keyed/<key-group>, raw-operator/<partition>, db-<n>/<file>, \
                 keyed/<key-group>, stream/<file> and flink/<file> may be",
            ),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of a file of the RocksDB directory, if it is one.
    #[must_use]
    pub fn db_file(&self) -> Option<&str> {
        self.0.strip_prefix("db/")
    }

    /// The name of a file of any RocksDB directory of the subtask, if it is one.
    #[must_use]
    pub fn rocks_file(&self) -> Option<&str> {
        let (kind, file) = self.0.split_once('/')?;
        (kind == "db" || kind.starts_with("db-")).then_some(file)
    }
}

fn is_kind_of_files(kind: &str, number: impl Fn(&str) -> bool) -> bool {
    matches!(kind, "db" | "stream" | "flink") || kind.strip_prefix("db-").is_some_and(|n| n != "0" && number(n))
}

/// Whether a name may stand in a RocksDB directory that is stored.
///
/// # Errors
/// Why not.
pub fn file_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name == "." || name == ".." {
        return Err("it would leave its directory");
    }
    if name.len() > limits::FILE_NAME_LEN {
        return Err("the file's name is longer than 255 bytes");
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
        return Err("only letters, digits, dot, dash and underscore may stand in a file's name");
    }
    Ok(())
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FilePath({})", self.0)
    }
}

impl Serialize for FilePath {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl Record for TaskManifest {
    const WHAT: &'static str = "task-manifest";
    const VERSION: u32 = 1;

    fn place(&self) -> &Place {
        &self.place
    }

    fn check(&self) -> Result<(), String> {
        self.place.check(Role::Task)?;
        if self.display_name.len() > limits::DISPLAY_NAME_LEN {
            return Err("the display name is too long".to_owned());
        }
        if self.place.subtask.as_ref().is_some_and(|(_, i)| *i >= limits::PARALLELISM) {
            return Err("the subtask's index is out of bounds".to_owned());
        }
        self.check_blobs()?;
        self.check_files()?;
        self.check_extras()
    }
}

impl TaskManifest {
    fn check_blobs(&self) -> Result<(), String> {
        if self.blobs.len() > limits::BLOBS_PER_TASK {
            return Err(format!("{} blobs, at most {} may be", self.blobs.len(), limits::BLOBS_PER_TASK));
        }
        let bundles = self.blobs.iter().filter(|b| b.bundle).count();
        if bundles > limits::BUNDLES_PER_MANIFEST {
            return Err(format!("{bundles} bundles, at most {} may be", limits::BUNDLES_PER_MANIFEST));
        }
        let mut names = HashSet::with_capacity(self.blobs.len());
        for b in &self.blobs {
            if b.length > limits::BLOB_LEN {
                return Err(format!("blob {} has {} bytes, at most {} may be", b.name, b.length, limits::BLOB_LEN));
            }
            if !names.insert(b.name) {
                return Err(format!("blob {} is listed twice", b.name));
            }
        }
        Ok(())
    }

    fn check_files(&self) -> Result<(), String> {
        if self.files.len() > limits::FILES_PER_TASK {
            return Err(format!("{} files, at most {} may be", self.files.len(), limits::FILES_PER_TASK));
        }
        let mut total = 0u64;
        let mut last: Option<&FilePath> = None;
        for f in &self.files {
            if last.is_some_and(|l| *l >= f.path) {
                return Err(format!("file {} is out of order or named twice", f.path));
            }
            last = Some(&f.path);
            self.check_file(f).map_err(|why| format!("file {}: {why}", f.path))?;
            total = total.saturating_add(f.size);
        }
        if total > limits::TASK_BYTES {
            return Err(format!("{total} bytes in all files, at most {} may be", limits::TASK_BYTES));
        }
        if total != self.logical_bytes {
            return Err(format!("its files hold {total} bytes, not {}", self.logical_bytes));
        }
        Ok(())
    }

    fn check_file(&self, f: &FileEntry) -> Result<(), String> {
        if f.extents.len() > limits::EXTENTS_PER_FILE {
            return Err(format!("{} extents, at most {} may be", f.extents.len(), limits::EXTENTS_PER_FILE));
        }
        let mut sum = 0u64;
        for e in &f.extents {
            self.check_extent(e)?;
            if e.length == 0 {
                return Err("an extent is empty".to_owned());
            }
            sum = sum.saturating_add(e.length);
        }
        if sum != f.size {
            return Err(format!("its extents hold {sum} bytes, not {}", f.size));
        }
        if let Some(tree) = &f.tree {
            self.check_extent(tree)?;
        }
        if let Some(tail) = &f.tail {
            self.check_extent(&tail.extent)?;
            if !tail.start.is_multiple_of(limits::GROUP) || tail.start.checked_add(tail.extent.length) != Some(f.size) {
                return Err("its tail does not go from a group boundary to its end".to_owned());
            }
        }
        if let Some(sst) = &f.sst {
            let hex = |t: &str| {
                t.len() <= limits::KEY_BOUND * 2
                    && t.len().is_multiple_of(2)
                    && t.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            };
            if !hex(&sst.smallest) || !sst.largest.as_deref().is_none_or(hex) {
                return Err("its key bounds are not hex of at most 64 bytes".to_owned());
            }
            if sst.column_family.len() > limits::DISPLAY_NAME_LEN {
                return Err("its column family's name is too long".to_owned());
            }
        }
        Ok(())
    }

    fn check_extent(&self, e: &Extent) -> Result<(), String> {
        let blob = self.blobs.get(e.blob as usize).ok_or_else(|| format!("there is no blob {}", e.blob))?;
        match e.end() {
            Some(end) if end <= blob.length => Ok(()),
            _ => Err(format!(
                "[{}, {}, {}] lies outside of the blob's {} bytes",
                e.blob, e.offset, e.length, blob.length
            )),
        }
    }

    fn check_extras(&self) -> Result<(), String> {
        if self.properties.len() > limits::PROPERTIES || self.states.len() > limits::PROPERTIES {
            return Err("too many properties or states".to_owned());
        }
        if !states::fit(&self.states) {
            return Err(format!("more than {} values in its states", limits::STATE_VALUES));
        }
        if self.properties.iter().any(|(k, v)| k.len() > limits::PROPERTY_LEN || v.len() > limits::PROPERTY_LEN) {
            return Err("a property is too long".to_owned());
        }
        if let Some(path) = self.origins.keys().find(|path| self.file(path.as_str()).is_none()) {
            return Err(format!("it knows where {path} is from, which it has not"));
        }
        if let Some(range) = self.key_groups {
            KeyGroupRange::new(range.first, range.last).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Where a file is in the list.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&FileEntry> {
        self.files.binary_search_by(|f| f.path.as_str().cmp(path)).ok().and_then(|i| self.files.get(i))
    }
}
/// What a task manifest says of blobs alone: all that a sweep needs of it, in a fraction of the time and memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskBlobs {
    /// The manifest's place.
    pub place: Place,
    /// The blobs that it names.
    pub blobs: Vec<BlobEntry>,
}

impl Record for TaskBlobs {
    const WHAT: &'static str = TaskManifest::WHAT;
    const VERSION: u32 = TaskManifest::VERSION;

    fn place(&self) -> &Place {
        &self.place
    }

    fn check(&self) -> Result<(), String> {
        self.place.check(Role::Task)?;
        if self.blobs.len() > limits::BLOBS_PER_TASK {
            return Err(format!("{} blobs, at most {} may be", self.blobs.len(), limits::BLOBS_PER_TASK));
        }
        Ok(())
    }
}
