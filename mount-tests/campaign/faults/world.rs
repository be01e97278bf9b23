//! Hosts, jobs, what they were told, and how it is counted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ckptfs::cache::{Cache, CacheOptions, Session};
use ckptfs::engine::{self, SnapshotRequest};
use ckptfs::error::{Error, Kind};
use ckptfs::format::{CheckpointKind, Labels};
use ckptfs::lifecycle::{Catalog, Checkpoint};
use ckptfs::restore::copy;
use ckptfs::store::{Store, StoreOptions};
use ckptfs::types::{CheckpointNumber, Name, Silent, Uid};

use super::databases::{Databases, LARGE};
use super::layer::{Layer, MEMORY};
use super::timed::{Slowest, Timed};
use super::truth::{Content, Truth, files};

/// The deadline of a small request under faults.
pub const DEADLINE: Duration = Duration::from_millis(750);

/// From where on blobs go up in parts, in memory, and how large these are.
pub const SINGLE: u64 = 96 << 10;
pub const PART: u64 = 64 << 10;

/// No operation takes longer: the longest makes some tens of requests one after the other, and the machine has other things to do.
pub const LONGEST: Duration = Duration::from_secs(120);

/// How operations ended, by what they were and the kind of their error.
#[derive(Debug, Default)]
pub struct Tally {
    ended: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    slowest: AtomicU64,
}

pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Invalid => "Invalid",
        Kind::NotFound => "NotFound",
        Kind::Conflict => "Conflict",
        Kind::Fenced => "Fenced",
        Kind::Damage => "Damage",
        Kind::Unavailable => "Unavailable",
        Kind::Permission => "Permission",
        Kind::Resources => "Resources",
        Kind::Newer => "Newer",
        Kind::Unsupported => "Unsupported",
        Kind::Other => "Other",
    }
}

impl Tally {
    /// Runs an operation under the clock. Whatever it fails with must be one of the kinds that a faulty store can cause; `may` has the
    /// others that this one may end with.
    pub fn run<T>(&self, what: &'static str, may: &[Kind], run: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let begun = Instant::now();
        let out = run();
        let took = begun.elapsed();
        self.slowest.fetch_max(took.as_millis() as u64, Ordering::Relaxed);
        assert!(took < LONGEST, "{what} took {took:?}");
        let ended = match &out {
            Ok(_) => "ok",
            Err(e) => {
                // A request that was spoiled on its way, or made of a spoiled answer, is refused for good: its body has another digest, it
                // goes on from nowhere, it joins parts that nobody sent.
                let refused = ["XAmzContentSHA256Mismatch", "InvalidArgument", "InvalidPart"];
                let usual = matches!(e.kind(), Kind::Unavailable | Kind::Damage)
                    || e.kind() == Kind::Invalid && refused.iter().any(|code| e.message().contains(code));
                assert!(usual || may.contains(&e.kind()), "{what} failed with {:?}: {e:#}", e.kind());
                assert!(e.message().len() > 20, "{what} failed without words: {e:#}");
                kind_name(e.kind())
            }
        };
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner).entry((what, ended)).or_default() += 1;
        out
    }

    pub fn shown(&self) -> String {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let mut by: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for ((what, how), n) in ended.iter() {
            by.entry(what).or_default().push(format!("{how} {n}"));
        }
        let lines: Vec<String> = by.iter().map(|(what, how)| format!("  {what}: {}", how.join(", "))).collect();
        format!("{}\n  slowest operation {} ms", lines.join("\n"), self.slowest.load(Ordering::Relaxed))
    }

    pub fn succeeded(&self, what: &str) -> u64 {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.iter().filter(|((w, how), _)| *w == what && *how == "ok").map(|(_, n)| n).sum()
    }
}

/// A store with its truth. Several hosts work on it.
pub struct World {
    pub layer: Arc<Layer>,
    pub url: String,
    pub root: PathBuf,
    pub databases: Arc<Databases>,
    pub truth: Truth,
    pub tally: Tally,
    pub slowest: Arc<Slowest>,
    /// A file that goes up in parts.
    pub large: usize,
    next: AtomicU64,
}

pub fn number(n: u64) -> CheckpointNumber {
    CheckpointNumber::new(n).unwrap()
}

impl World {
    /// A checkpoint of a database that nobody worked on, by whoever calls.
    pub fn snapshot(&self, session: &Session, job: &Name, database: u64) -> (CheckpointNumber, Content) {
        let (directory, known) = self.databases.take(database, 0);
        let request = SnapshotRequest {
            job: job.clone(),
            directory: directory.clone(),
            operator: "db".to_owned(),
            subtask: 0,
            kind: CheckpointKind::Checkpoint,
            number: None,
            labels: Labels::default(),
        };
        let number = engine::snapshot_directory(session, &request, &Silent).unwrap().number;
        std::fs::remove_dir_all(directory).unwrap();
        (number, Content::from([(("db".to_owned(), 0), known)]))
    }

    pub fn new(layer: &Arc<Layer>, url: &str, root: &Path, databases: &Arc<Databases>) -> Self {
        std::fs::create_dir_all(root).unwrap();
        Self {
            layer: Arc::clone(layer),
            url: url.to_owned(),
            root: root.to_owned(),
            databases: Arc::clone(databases),
            truth: Truth::default(),
            tally: Tally::default(),
            slowest: Arc::default(),
            large: if url.contains(MEMORY) { 3 << 19 } else { LARGE },
            next: AtomicU64::new(0),
        }
    }

    pub fn fresh(&self, what: &str) -> PathBuf {
        self.root.join(format!("{what}-{}", self.next.fetch_add(1, Ordering::Relaxed)))
    }

    /// A client in a hurry, with a clock.
    pub fn store(&self) -> Store {
        let mut options = StoreOptions { deadline: DEADLINE, attempts: 4, memory: 64 << 20, ..StoreOptions::default() };
        if self.url.contains(MEMORY) {
            // Where no server minds, parts are small: they cost as little as anything else.
            (options.single_put, options.part) = (SINGLE, PART);
        }
        let store = Store::open(&self.url, options.clone()).unwrap();
        let timed = Timed::new(store.backend(), Arc::clone(&self.slowest));
        Store::from_backend(Arc::new(timed), &self.url, options)
    }

    /// A host with a new cache, made in calm. The store is created by the first.
    pub fn session(&self) -> Session {
        let patient = self.patient();
        // The first host proved the store.
        if !patient.created {
            patient.cache.set_probed(patient.store_id).unwrap();
        }
        self.over(patient.cache.clone(), patient.store_id)
    }

    /// A host that was never here, and that meets faults from its first request on.
    pub fn cold(&self, like: &Session) -> Session {
        self.over(Cache::open(&self.fresh("cold"), CacheOptions { create: true }).unwrap(), like.store_id)
    }

    fn over(&self, cache: Cache, store_id: Uid) -> Session {
        let store = self.store();
        Session {
            catalog: Catalog::new(store.clone()),
            store,
            store_id,
            blocks_writing: Vec::new(),
            cache,
            created: false,
            work: std::sync::Arc::default(),
        }
    }

    /// A host that has all the time in the world.
    pub fn patient(&self) -> Session {
        let store = Store::open(&self.url, StoreOptions::default()).unwrap();
        Session::over(store, &self.fresh("cache"), true).unwrap()
    }

    /// A catalog that remembers nothing.
    pub fn fresh_catalog(&self) -> Catalog {
        Catalog::new(self.store())
    }

    /// Every file of a checkpoint as a copy has it.
    pub fn read(&self, session: &Session, checkpoint: &Checkpoint) -> Result<Content, Error> {
        let mut content = Content::new();
        for entry in &checkpoint.manifest.subtasks {
            let target = self.fresh("copy");
            copy(session, checkpoint, &[entry], &target, &Silent)?;
            content.insert((entry.operator.as_str().to_owned(), entry.subtask), files(&target));
            std::fs::remove_dir_all(&target).unwrap();
        }
        Ok(content)
    }

    /// What is said where something was lost or wrong.
    pub fn trace(&self) -> String {
        let trace = self.layer.trace.lock().unwrap_or_else(PoisonError::into_inner);
        trace.iter().rev().take(60).cloned().collect::<Vec<_>>().join("\n  ")
    }
}

pub fn uid() -> Uid {
    Uid::random().unwrap()
}
