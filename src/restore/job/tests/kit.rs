//! A store in memory with checkpoints of real databases.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::cache::Session;
use crate::format::{BlobEntry, CheckpointKind, ExpectedOperator, FileEntry, FilePath, Place, Role, TaskManifest};
use crate::lifecycle::ack::Ack;
use crate::lifecycle::complete::Complete;
use crate::lifecycle::open::{Open, OpenPlan, Opened};
use crate::lifecycle::{Checkpoint, driver};
use crate::restore::job::RestoreOptions;
use crate::state::keyed::{StateKind, TimeDomain};
use crate::state::serializer::SerializerDescriptor;
use crate::state::{Database, DatabaseOptions, KeyedDescriptor, StateDescriptor};
use crate::store::memory::Memory;
use crate::store::{BlobSource, Store, StoreOptions};
use crate::types::{BlobName, Digest, Extent, KeyGroupRange, Name, Uid};

/// Family and key to value.
pub(super) type Rows = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// Column families: of a value, a list, a map and a timer.
pub(super) const FAMILIES: [&str; 4] = ["count", "words", "by name", "_timer_state/event_window"];

pub(super) fn operator() -> Name {
    Name::encode("count")
}

/// What one subtask has.
#[derive(Debug, Clone, Default)]
pub(super) struct Task {
    pub(super) database: Option<PathBuf>,
    pub(super) keyed: Option<KeyedDescriptor>,
    pub(super) states: Vec<serde_json::Value>,
    pub(super) files: Vec<(String, Vec<u8>)>,
}

/// A store, and caches and directories below one that goes away.
pub(super) struct World {
    temp: tempfile::TempDir,
    pub(super) memory: Arc<Memory>,
    store: Store,
    pub(super) session: Session,
    next: std::cell::Cell<u32>,
}

impl World {
    pub(super) fn new() -> Self {
        // Records of digests need user attributes, which a /tmp in memory may not have.
        let temp = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let memory = Arc::new(Memory::new());
        let store = Store::from_backend(Arc::clone(&memory) as _, "memory://", StoreOptions::default());
        let session = session(&store, &temp.path().join("cache"));
        Self { temp, memory, store, session, next: std::cell::Cell::new(0) }
    }

    /// A path that nothing is at, in a directory of its own.
    pub(super) fn fresh(&self) -> PathBuf {
        let n = self.next.replace(self.next.get() + 1);
        let home = self.temp.path().join(format!("d{n}"));
        std::fs::create_dir(&home).unwrap();
        home.join("db")
    }

    /// Another host: the same store, an empty cache.
    pub(super) fn elsewhere(&self) -> Session {
        session(&self.store, &self.fresh())
    }

    pub(super) fn open(&self, operators: &[(&Name, u32)]) -> Opened {
        let expected = operators.iter().map(|(o, p)| ExpectedOperator { operator: (*o).clone(), parallelism: *p });
        let plan = OpenPlan {
            job: Name::encode("app"),
            uids: (0..4).map(|_| Uid::random().unwrap()).collect(),
            writer: self.session.cache.id(),
            epoch: None,
            number: None,
            expected: expected.collect(),
            kind: CheckpointKind::Checkpoint,
            detached: false,
            restored_from: None,
            pinned: Vec::new(),
            opened_ms: 0,
        };
        driver::run(&self.store, Open::new(plan)).unwrap()
    }

    /// A completed checkpoint of one operator.
    pub(super) fn checkpoint(&self, tasks: &[Task]) -> Checkpoint {
        self.checkpoint_of(&[(operator(), tasks)])
    }

    pub(super) fn checkpoint_of(&self, operators: &[(Name, &[Task])]) -> Checkpoint {
        let mut expected: Vec<_> = operators.iter().map(|(o, t)| (o, u32::try_from(t.len()).unwrap())).collect();
        expected.sort();
        let opened = self.open(&expected);
        for (operator, tasks) in operators {
            for (index, task) in (0..).zip(*tasks) {
                let manifest = self.manifest(&opened, operator, index, task);
                driver::run(&self.store, Ack::new(manifest).unwrap()).unwrap();
            }
        }
        let job = Name::encode("app");
        driver::run(&self.store, Complete::new(job.clone(), opened.number, 0)).unwrap();
        self.session.catalog.checkpoint(&job, opened.number).unwrap()
    }

    fn manifest(&self, opened: &Opened, operator: &Name, index: u32, task: &Task) -> TaskManifest {
        let mut contents: Vec<(FilePath, Vec<u8>)> =
            task.files.iter().map(|(path, bytes)| (FilePath::parse(path).unwrap(), bytes.clone())).collect();
        for entry in task.database.iter().flat_map(|d| std::fs::read_dir(d).unwrap()) {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name != "LOCK" && !name.starts_with("LOG") {
                contents.push((FilePath::db(&name).unwrap(), std::fs::read(entry.path()).unwrap()));
            }
        }
        contents.sort();
        let uid = opened.intent.place.uid;
        let mut blobs: Vec<BlobEntry> = Vec::new();
        let mut files = Vec::new();
        for (path, bytes) in contents {
            let (digest, size) = (Digest::of(&bytes), bytes.len() as u64);
            let mut extents = Vec::new();
            if size > 0 {
                let name = BlobName { digest, uid };
                let at = blobs.iter().position(|b| b.name == name).unwrap_or_else(|| {
                    self.store.upload_blob(&name, BlobSource::Bytes(Bytes::from(bytes))).unwrap();
                    blobs.push(BlobEntry { name, length: size, bundle: false });
                    blobs.len() - 1
                });
                extents.push(Extent { blob: u32::try_from(at).unwrap(), offset: 0, length: size });
            }
            files.push(FileEntry { path, size, digest, extents, tree: None, tail: None, sst: None });
        }
        let mut place = Place::new(Role::Task, &Name::encode("app"), opened.number.get(), uid);
        place.subtask = Some((operator.clone(), index));
        let keyed = task.keyed.iter().map(|k| serde_json::json!({ "keyed": k }));
        TaskManifest {
            place,
            display_name: operator.to_string(),
            logical_bytes: files.iter().map(|f: &FileEntry| f.size).sum(),
            blobs,
            files,
            new_bytes: 0,
            backend: None,
            key_groups: task.keyed.as_ref().map(|k| k.range),
            states: keyed.chain(task.states.iter().cloned()).collect(),
            properties: BTreeMap::new(),
            other_state: BTreeMap::new(),
            origins: BTreeMap::new(),
        }
    }
}

fn session(store: &Store, cache: &Path) -> Session {
    Session::over(store.clone(), cache, true).unwrap()
}

pub(super) fn range(max: u32, parallelism: u32, index: u32) -> KeyGroupRange {
    KeyGroupRange::of_subtask(max, parallelism, index).unwrap()
}

/// What a row of a key group begins with, written down a second time.
pub(super) fn row_key(group: u32, max: u32, key: &str) -> Vec<u8> {
    let group = u16::try_from(group).unwrap();
    let mut bytes = if max > 128 { group.to_be_bytes().to_vec() } else { vec![u8::try_from(group).unwrap()] };
    bytes.extend_from_slice(key.as_bytes());
    bytes
}

pub(super) fn group_of(key: &[u8], max: u32) -> u32 {
    if max > 128 { u32::from(u16::from_be_bytes([key[0], key[1]])) } else { u32::from(key[0]) }
}

fn state(name: &str, kind: StateKind) -> StateDescriptor {
    StateDescriptor {
        name: name.to_owned(),
        kind,
        namespace: SerializerDescriptor::basic("void"),
        value: SerializerDescriptor::basic("long"),
        user_key: None,
        version: 1,
        ttl: None,
    }
}

/// Describes the states of these families.
pub(super) fn descriptor(max_parallelism: u32, range: KeyGroupRange, families: &[&str]) -> KeyedDescriptor {
    let states = families.iter().map(|family| match *family {
        "words" => state("words", StateKind::List),
        "by name" => state("by name", StateKind::Map),
        "_timer_state/event_window" => state("window", StateKind::Timer(TimeDomain::Event)),
        other => state(other, StateKind::Value),
    });
    KeyedDescriptor {
        key: SerializerDescriptor::basic("string"),
        max_parallelism,
        range,
        backend: Uid::random().unwrap(),
        states: states.collect(),
    }
}

pub(super) fn small(create: bool) -> DatabaseOptions {
    DatabaseOptions { create, table_size: 1 << 10, ..DatabaseOptions::default() }
}

pub(super) fn options(max_parallelism: u32) -> RestoreOptions {
    RestoreOptions { database: small(false), ..RestoreOptions::new(max_parallelism) }
}

/// Everything a database has.
pub(super) fn all_rows(directory: &Path) -> Rows {
    let families = Database::families(directory).unwrap();
    let names: Vec<&str> = families.iter().map(String::as_str).collect();
    let db = Database::open_read_only(directory, &names, &small(false)).unwrap();
    let mut rows = Rows::new();
    for family in names {
        for row in db.scan(family).unwrap() {
            let (key, value) = row.unwrap();
            assert_eq!(rows.insert((family.to_owned(), key.to_vec()), value.to_vec()), None);
        }
    }
    rows
}

/// The names in the directory that a path is in.
pub(super) fn beside(path: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(path.parent().unwrap()).unwrap();
    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}
