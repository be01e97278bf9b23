//! Local files by digest: link, fetch, verify, evict.
//!
//! ```text
//! <cache>/cache.json           format, id and owner; created once, durably, before everything else
//! <cache>/files/3f/<64 hex>    complete and verified
//! <cache>/manifests/<64 hex>   task manifests, as the store has them
//! <cache>/partial/             what is being written; usually without a name
//! <cache>/partial/<64 hex>     a file that is read before all of it is here, with holes
//! <cache>/jobs/<job>.lock      a writer's lock per job
//! <cache>/jobs/<job>@<store id>.lock   held by who copies checkpoints of a job into another store
//! <cache>/clones/<nonce>.json  clones that were made with it, by their pins
//! <cache>/daemon.lock          one daemon per cache, any number of engines
//! <cache>/probed-<store id>    this store passed its probe
//! <cache>/limits.json          how much of the disk it may take
//! <cache>/room.lock            held by who makes room
//! <cache>/uses                 when files were last used: a hint for eviction
//! ```
//!
//! - Names are digests, never what a store says. An entry is believed by its inode's own record ([`identity`]), else it
//!   is hashed once more; a wrong one is unlinked, never changed: it may be a live database's file.
//! - A cache belongs to one uid. Root may serve another's, and gives away what it creates in it before it has a name.
//! - Nothing is kept under a digest that was not hashed here or recorded by the inode itself.
//!
//! [`identity`]: crate::local::identity

mod bundle;
mod clones;
mod entry;
mod error;
mod evict;
mod fetch;
mod flight;
pub mod gone;
mod lazy;
mod link;
mod manifest;
mod open;
mod probed;
mod range;
mod room;
mod scrub;
pub mod session;
mod stage;
pub mod tree;
mod unkept;
mod uses;
mod whole;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use dashmap::DashMap;

use crate::format::TaskManifest;
use crate::local::{Dir, FileLock, FileStat};
use crate::metrics::Counter;
use crate::types::sync::{Mutex, atomic::AtomicUsize};
use crate::types::{Digest, Name, Uid};

pub use clones::Making;
pub use error::{CacheError, Result};
pub use evict::Evicted;
pub use evict::Occupied;
pub use lazy::LazyFile;
pub use link::{Batch, LinkedIn};
pub use room::CacheLimits;
pub use scrub::{Bad, Examined};
pub use session::{Session, SessionOptions};
pub use stage::{Receiver, TakenIn};

/// Requests that fetching a blob of this length whole takes.
#[must_use]
pub fn requests_to_fetch(length: u64) -> u64 {
    range::requests(length)
}

/// How a cache is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheOptions {
    /// Make it where it is missing or empty.
    pub create: bool,
}

/// Plain counters of what a cache did in this process.
#[derive(Debug, Default)]
pub struct Counters {
    /// Files found complete.
    pub hits: Counter,
    /// Files fetched from the store.
    pub fetched_files: Counter,
    /// Bytes fetched from the store.
    pub fetched_bytes: Counter,
    /// Entries whose bytes were not those of their digest.
    pub discarded: Counter,
    /// What came from the store and was not what it should be: files, ranges, hash trees, task manifests.
    pub wrong_fetched: Counter,
    /// Files that were reflinked or copied because they could not be linked.
    pub degraded_links: Counter,
    /// Files evicted.
    pub evicted_files: Counter,
}

/// A directory of files by digest. Clones share it.
#[derive(Debug, Clone)]
pub struct Cache {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    id: Uid,
    uid: u32,
    gid: u32,
    /// We are root and the cache is somebody else's: what we create is given to them.
    give: bool,
    device: u64,
    root: Dir,
    files: Dir,
    partial: Dir,
    manifests: Dir,
    jobs: Dir,
    clones: Dir,
    /// What this process hashed itself, for file systems that keep no records.
    verified: DashMap<FileKey, Digest>,
    flights: flight::Flights,
    parsed: DashMap<Digest, Weak<TaskManifest>>,
    /// Extra range GETs that may still be begun.
    streams: AtomicUsize,
    /// What is read and does not fit on the disk.
    unkept: unkept::Unkept,
    /// Files that are open before they are here.
    lazy: DashMap<Digest, Weak<LazyFile>>,
    behind: lazy::Behind,
    uses: Mutex<uses::Uses>,
    taken: room::Taken,
    counters: Counters,
}

/// An inode in the state that was hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileKey {
    dev: u64,
    ino: u64,
    size: u64,
    mtime: (i64, u32),
    btime: Option<(i64, u32)>,
}

impl From<&FileStat> for FileKey {
    fn from(s: &FileStat) -> Self {
        Self { dev: s.dev, ino: s.ino, size: s.size, mtime: s.mtime, btime: s.btime }
    }
}

impl Cache {
    /// Opens a cache, or makes one where `options` let it: in a missing or an empty directory.
    ///
    /// # Errors
    /// When there is none, or the directory is not fit to be one: a symlink, another's, writable by others, not empty
    /// and no cache; or the disk refuses.
    pub fn open(path: &Path, options: CacheOptions) -> Result<Self> {
        open::open(path, options).map(|inner| Self { inner: Arc::new(inner) })
    }

    /// Its id: the writer's id in intents, the holder's in pins. Made with the cache, and kept.
    #[must_use]
    pub fn id(&self) -> Uid {
        self.inner.id
    }

    /// The user that it belongs to.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.inner.uid
    }

    /// Where it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Device of its file system.
    #[must_use]
    pub fn device(&self) -> u64 {
        self.inner.device
    }

    /// What it did in this process.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.inner.counters
    }

    /// Makes this process the cache's only daemon, as long as the lock lives.
    ///
    /// # Errors
    /// [`CacheError::Busy`] when there is one already.
    pub fn daemon_lock(&self) -> Result<FileLock> {
        let inner = &*self.inner;
        let name = open::DAEMON_LOCK;
        match inner.lock(&inner.root, name)? {
            Some(lock) => Ok(lock),
            None => {
                let holder = FileLock::holder(&inner.root, name).unwrap_or_default();
                Err(CacheError::Busy { path: inner.path.clone(), what: "the daemon's lock", holder })
            }
        }
    }

    /// Makes this process the only writer of a job from this cache, as long as the lock lives. `None`: another live
    /// one is.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn job_lock(&self, job: &Name) -> Result<Option<FileLock>> {
        self.inner.lock(&self.inner.jobs, &format!("{job}.lock"))
    }

    /// Makes this process the only one that copies checkpoints of a job into a store with this cache, as long as the lock lives. It keeps
    /// nobody from taking snapshots: no name has an `@`. `None`: another live one is.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn copy_lock(&self, job: &Name, store: Uid) -> Result<Option<FileLock>> {
        self.inner.lock(&self.inner.jobs, &format!("{job}@{store}.lock"))
    }
}

#[cfg(test)]
mod tests;
