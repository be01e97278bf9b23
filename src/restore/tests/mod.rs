//! Restores and their questions in one process: a store in memory that can be damaged, caches on a real file system, and checkpoints whose
//! every byte is known.

mod clones;
mod copies;
mod doctor;
mod looks;
mod plans;
mod settled;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::cache::{Session, tree};
use crate::format::bundle::BundleBuilder;
use crate::format::records::PinHolder;
use crate::format::{
    BlobEntry, CheckpointKind, CheckpointManifest, ExpectedOperator, FileEntry, FilePath, Labels, Outcome, Place,
    Record, Role, SubtaskEntry, Tail, TaskManifest, Verdict, encode,
};
use crate::lifecycle::abort::Abort;
use crate::lifecycle::ack::Ack;
use crate::lifecycle::complete::Complete;
use crate::lifecycle::expire::Expire;
use crate::lifecycle::open::{Open, OpenPlan, Opened};
use crate::lifecycle::pin::{Pin, PinRef};
use crate::lifecycle::{Checkpoint, driver};
use crate::limits::GROUP;
use crate::store::memory::Memory;
use crate::store::{Store, StoreOptions};
pub(super) use crate::types::noise::noise;
use crate::types::{BlobName, CheckpointNumber, Digest, Extent, Key, Name, Progress, Uid};

/// Bytes of the table that has a tree and a tail: three groups and some.
pub(super) const LARGE: usize = 3 * 65536 + 100;
/// Bytes of its tail.
pub(super) const LARGE_TAIL: u64 = 65536 + 100;
/// Bytes of the table that lies in the bundle.
pub(super) const SMALL: usize = 100;
/// Bytes of the table that is just a blob.
pub(super) const PLAIN: usize = 500;
pub(super) const CURRENT: &[u8] = b"MANIFEST-000004\n";

pub(super) fn name(text: &str) -> Name {
    Name::encode(text)
}

pub(super) fn n(number: u64) -> CheckpointNumber {
    CheckpointNumber::new(number).unwrap()
}

/// Phases, plans, and the bytes that a piece of work advanced by.
type Progressed = (Vec<String>, Vec<(u64, u64)>, u64);

/// What was told of a piece of work.
#[derive(Debug, Default)]
pub(super) struct Told(Mutex<Progressed>);

impl Told {
    pub(super) fn all(&self) -> Progressed {
        self.0.lock().unwrap().clone()
    }
}

impl Progress for Told {
    fn plan(&self, files: u64, bytes: u64) {
        self.0.lock().unwrap().1.push((files, bytes));
    }

    fn phase(&self, name: &str) {
        self.0.lock().unwrap().0.push(name.to_owned());
    }

    fn advance(&self, bytes: u64) {
        self.0.lock().unwrap().2 += bytes;
    }
}

/// A store, and caches and directories below one that goes away.
pub(super) struct World {
    temp: tempfile::TempDir,
    pub(super) memory: Arc<Memory>,
    pub(super) store: Store,
    pub(super) session: Session,
}

impl World {
    pub(super) fn new() -> Self {
        // Records of digests need user attributes, which a /tmp in memory may not have.
        let temp = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let memory = Arc::new(Memory::new());
        let options = StoreOptions { attempts: 1, ..StoreOptions::default() };
        let store = Store::from_backend(Arc::clone(&memory) as _, "memory://", options);
        let session = Session::over(store.clone(), &temp.path().join("cache"), true).unwrap();
        Self { temp, memory, store, session }
    }

    pub(super) fn path(&self, below: &str) -> PathBuf {
        self.temp.path().join(below)
    }

    /// The same store with another cache.
    pub(super) fn elsewhere(&self, cache: &str) -> Session {
        Session::over(self.store.clone(), &self.path(cache), true).unwrap()
    }

    pub(super) fn plan(&self, job: &str, operators: &[(&str, u32)]) -> OpenPlan {
        let expected = |(operator, parallelism): &(&str, u32)| ExpectedOperator {
            operator: name(operator),
            parallelism: *parallelism,
        };
        OpenPlan {
            job: name(job),
            uids: (0..4).map(|_| Uid::random().unwrap()).collect(),
            writer: self.session.cache.id(),
            epoch: None,
            number: None,
            expected: operators.iter().map(expected).collect(),
            kind: CheckpointKind::Checkpoint,
            detached: false,
            restored_from: None,
            pinned: Vec::new(),
            opened_ms: 0,
        }
    }

    pub(super) fn open(&self, job: &str, operators: &[(&str, u32)]) -> Opened {
        driver::run(&self.store, Open::new(self.plan(job, operators))).unwrap()
    }

    pub(super) fn ack(&self, manifest: TaskManifest) {
        driver::run(&self.store, Ack::new(manifest).unwrap()).unwrap();
    }

    pub(super) fn complete(&self, job: &str, number: CheckpointNumber) -> Checkpoint {
        driver::run(&self.store, Complete::new(name(job), number, 0)).unwrap();
        self.session.catalog.checkpoint(&name(job), number).unwrap()
    }

    pub(super) fn abort(&self, job: &str, number: u64) {
        assert!(driver::run(&self.store, Abort::new(name(job), n(number), "test".to_owned())).unwrap());
    }

    pub(super) fn expire(&self, job: &str, number: u64) {
        assert!(driver::run(&self.store, Expire::new(name(job), n(number), "test".to_owned())).unwrap());
    }

    pub(super) fn pin(&self, job: &str, number: u64, nonce: u8) -> Key {
        let nonce = Uid::from_bytes([nonce; 16]);
        let pin = PinRef { job: name(job), number: n(number), holder: self.session.cache.id(), nonce };
        driver::run(&self.store, Pin::new(pin.clone(), PinHolder::Writer, 0)).unwrap();
        pin.key()
    }

    /// A completed checkpoint of the one subtask `db/0`, made by `make`.
    pub(super) fn checkpoint(&self, job: &str, make: impl FnOnce(&mut Part<'_>)) -> Checkpoint {
        let opened = self.open(job, &[("db", 1)]);
        let mut part = self.part(&opened, "db", 0);
        make(&mut part);
        self.ack(part.finish());
        self.complete(job, opened.number)
    }

    /// One whose only subtask is the database that [`Part::database`] makes.
    pub(super) fn database(&self, job: &str) -> Checkpoint {
        self.checkpoint(job, |part| part.database(1))
    }

    /// Says that a checkpoint is complete whatever its blobs are, as a damaged writer could.
    pub(super) fn force(&self, opened: &Opened, manifests: &[TaskManifest]) {
        let entry = |manifest: &TaskManifest| {
            let bytes = encode(manifest).unwrap();
            self.memory.plant(manifest.place.key().unwrap().as_str(), bytes.clone());
            let (operator, subtask) = manifest.place.subtask.clone().unwrap();
            SubtaskEntry {
                operator,
                display_name: manifest.display_name.clone(),
                subtask,
                manifest: Digest::of(&bytes),
                manifest_length: bytes.len() as u64,
                logical_bytes: manifest.logical_bytes,
                new_bytes: manifest.new_bytes,
                files: manifest.files.len() as u64,
            }
        };
        let subtasks: Vec<SubtaskEntry> = manifests.iter().map(entry).collect();
        let place = Place { role: Role::Outcome, ..opened.intent.place.clone() };
        let manifest = CheckpointManifest {
            kind: CheckpointKind::Checkpoint,
            epoch: opened.intent.epoch,
            writer: opened.intent.writer,
            bases: opened.intent.bases.clone(),
            logical_bytes: subtasks.iter().map(|s| s.logical_bytes).sum(),
            new_bytes: subtasks.iter().map(|s| s.new_bytes).sum(),
            files: subtasks.iter().map(|s| s.files).sum(),
            subtasks,
            opened_ms: 0,
            completed_ms: 0,
            labels: Labels::default(),
            phases: Default::default(),
        };
        self.put(&Outcome { place, verdict: Verdict::Completed(manifest) });
    }

    /// One with nothing but a table of these bytes.
    pub(super) fn single(&self, job: &str, bytes: &[u8]) -> Checkpoint {
        self.checkpoint(job, |part| {
            part.whole("db/1.sst", bytes);
        })
    }

    pub(super) fn part(&self, opened: &Opened, operator: &str, subtask: u32) -> Part<'_> {
        let place = &opened.intent.place;
        let mut own = Place::new(Role::Task, place.job.as_ref().unwrap(), place.number, place.uid);
        own.subtask = Some((name(operator), subtask));
        Part { world: self, place: own, blobs: Vec::new(), files: Vec::new(), backend: None }
    }

    /// The only manifest of a checkpoint.
    pub(super) fn manifest(&self, checkpoint: &Checkpoint) -> Arc<TaskManifest> {
        super::select::task_manifest(&self.session, checkpoint, &checkpoint.manifest.subtasks[0]).unwrap()
    }

    /// Puts a record at its place, as a stranger could.
    pub(super) fn put<R: Record>(&self, record: &R) -> Key {
        let key = record.place().key().unwrap();
        self.memory.plant(key.as_str(), encode(record).unwrap());
        key
    }

    pub(super) fn object(&self, key: &Key) -> Option<Vec<u8>> {
        self.store.backend().get(key.as_str(), u64::MAX).unwrap().map(|bytes| bytes.to_vec())
    }

    /// Changes the last byte of an object.
    pub(super) fn flip(&self, key: &Key) {
        let mut bytes = self.object(key).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        self.memory.plant(key.as_str(), bytes);
    }

    /// Where a cache keeps what has this digest.
    pub(super) fn entry(session: &Session, digest: &Digest) -> PathBuf {
        session.cache.path().join("files").join(&digest.to_hex()[..2]).join(digest.to_hex())
    }
}

/// What a subtask stores, file by file.
pub(super) struct Part<'a> {
    world: &'a World,
    pub(super) place: Place,
    pub(super) blobs: Vec<BlobEntry>,
    pub(super) files: Vec<FileEntry>,
    pub(super) backend: Option<String>,
}

impl Part<'_> {
    fn store(&mut self, bytes: Vec<u8>, bundle: bool) -> u32 {
        let name = BlobName { digest: Digest::of(&bytes), uid: self.place.uid };
        self.blobs.push(BlobEntry { name, length: bytes.len() as u64, bundle });
        self.world.memory.plant(Key::blob(&name).as_str(), bytes);
        u32::try_from(self.blobs.len() - 1).unwrap()
    }

    /// A blob; its place in the list.
    pub(super) fn blob(&mut self, bytes: &[u8]) -> u32 {
        self.store(bytes.to_vec(), false)
    }

    /// A bundle, and where its sections are.
    pub(super) fn bundle(&mut self, sections: &[&[u8]]) -> Vec<Extent> {
        let mut builder = BundleBuilder::default();
        let places: Vec<_> = sections.iter().map(|section| builder.add(section)).collect();
        let blob = self.store(builder.finish(), true);
        places.into_iter().map(|(offset, length)| Extent { blob, offset, length }).collect()
    }

    /// A file of these bytes that lies there.
    pub(super) fn file(&mut self, path: &str, bytes: &[u8], extents: &[Extent]) -> &mut FileEntry {
        self.files.push(FileEntry {
            path: FilePath::parse(path).unwrap(),
            size: bytes.len() as u64,
            digest: Digest::of(bytes),
            extents: extents.to_vec(),
            tree: None,
            tail: None,
            sst: None,
        });
        self.files.last_mut().unwrap()
    }

    /// A file that is a blob of its own.
    pub(super) fn whole(&mut self, path: &str, bytes: &[u8]) -> &mut FileEntry {
        let blob = self.blob(bytes);
        self.file(path, bytes, &[Extent { blob, offset: 0, length: bytes.len() as u64 }])
    }

    /// Two small files and one small table in a bundle, a large table with tree and tail in it, and a table that is just a blob.
    pub(super) fn database(&mut self, seed: u64) {
        let (log, large) = (noise(seed, 40), noise(seed + 1, LARGE));
        let (small, plain) = (noise(seed + 2, SMALL), noise(seed + 3, PLAIN));
        let (_, hashes) = tree::hash_and_tree(&large);
        let tail = &large[LARGE - usize::try_from(LARGE_TAIL).unwrap()..];
        let bundle = self.bundle(&[CURRENT, &log, &small, &hashes, tail]);
        self.file("db/000004.log", &log, &bundle[1..2]);
        let table = self.whole("db/000007.sst", &large);
        table.tree = Some(bundle[3]);
        table.tail = Some(Tail { start: 2 * GROUP, extent: bundle[4] });
        self.file("db/000008.sst", &small, &bundle[2..3]);
        self.whole("db/000009.sst", &plain);
        self.file("db/CURRENT", CURRENT, &bundle[..1]);
        self.backend = Some("rocks".to_owned());
    }

    pub(super) fn finish(mut self) -> TaskManifest {
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        let bytes = self.files.iter().map(|f| f.size).sum();
        TaskManifest {
            display_name: self.place.subtask.as_ref().unwrap().0.to_string(),
            new_bytes: self.blobs.iter().filter(|b| b.name.uid == self.place.uid).map(|b| b.length).sum(),
            place: self.place,
            blobs: self.blobs,
            files: self.files,
            logical_bytes: bytes,
            backend: self.backend,
            key_groups: None,
            states: Vec::new(),
            properties: BTreeMap::new(),
            other_state: BTreeMap::new(),
            origins: BTreeMap::new(),
        }
    }
}

/// The names in a directory, in order.
pub(super) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut all: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

/// The bytes of [`Part::database`]'s files, by name.
pub(super) fn files_of(seed: u64) -> BTreeMap<String, Vec<u8>> {
    [
        ("000004.log", noise(seed, 40)),
        ("000007.sst", noise(seed + 1, LARGE)),
        ("000008.sst", noise(seed + 2, SMALL)),
        ("000009.sst", noise(seed + 3, PLAIN)),
        ("CURRENT", CURRENT.to_vec()),
    ]
    .into_iter()
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .collect()
}

/// The files of a directory without those of ours.
pub(super) fn read_all(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let plain = names(directory).into_iter().filter(|name| !name.starts_with('.'));
    plain.map(|name| (name.clone(), std::fs::read(directory.join(&name)).unwrap())).collect()
}
