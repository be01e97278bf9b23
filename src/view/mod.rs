//! The tree that the mount shows: names, inodes, attributes, open files. No FUSE types.
//!
//! ```text
//! / -> <job> -> latest, chk-N -> manifest.json, <operator> -> <subtask> -> manifest.json, db/, operator/, raw-keyed/, raw-operator/
//! ```
//!
//! The root and the jobs change, and are asked of the store ([`job`]); below a checkpoint nothing ever does ([`tree`]).
//! What memory or the local disk can answer is answered by the `try_` calls and never waits for the store; what cannot,
//! they answer with nothing, and the caller takes the full call to a thread that may wait.

mod error;
mod flight;
mod forget;
mod inode;
mod job;
mod live;
mod manifests;
mod node;
mod open;
mod pins;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod xattr;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

pub use error::ViewError;
pub use inode::ROOT;
pub use node::{Attr, CONTENT_MTIME_MS, Kind};
pub use open::{Content, Hold, Opened};
pub use source::{Free, Listed, Listing, OnWhole, Parts, Source};

use job::Jobs;
use node::{Entry, Node};

use crate::types::Name;

const LATEST: &str = "latest";
const MANIFEST: &str = "manifest.json";
const FLINK: &str = "flink";

/// What a name stands for may have changed: whoever remembers it should forget it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalidation {
    /// Inode of the directory.
    pub parent: u64,
    /// The name in it.
    pub name: String,
}

/// How long an answer stays true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// It may be wrong at once.
    Nothing,
    /// What changes now and then, and is answered from memory: a second, so that a path below it does not cost requests for each step.
    Moment,
    /// The attributes never change, the name may stop existing at once.
    Attributes,
    /// The attributes never change, the name stays for a second.
    Lives,
    /// It never changes (but for an [`Invalidation`]).
    All,
}

/// An answered lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What was found.
    pub attr: Attr,
    /// The job that it belongs to, if it is a directory of one.
    pub job: Option<Name>,
    /// For how long.
    pub lasting: Lasting,
}

/// A directory's names as they were at one moment.
#[derive(Clone)]
pub struct Names {
    ino: u64,
    parent: u64,
    entries: Arc<[Entry]>,
    /// For how long they stay true.
    pub lasting: Lasting,
}

impl Names {
    /// Inode of the directory.
    #[must_use]
    pub fn directory(&self) -> u64 {
        self.ino
    }
}

/// One of the names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item<'a> {
    /// The name.
    pub name: &'a str,
    /// What it stands for now.
    pub attr: Attr,
    /// The job that it belongs to, if it is a directory of one.
    pub job: Option<Name>,
    /// For how long.
    pub lasting: Lasting,
}

/// What `statfs` tells, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Distinct bytes that are known to be stored.
    pub used: u64,
    /// Room on the cache's disk.
    pub free: u64,
    /// Inodes that are known.
    pub files: u64,
}

type Sink = Box<dyn Fn(Invalidation) + Send + Sync>;

struct Core {
    source: Box<dyn Source>,
    inodes: inode::Inodes,
    jobs: Jobs,
    sink: RwLock<Option<Sink>>,
    /// Bytes of all files that are known, each counted once.
    file_bytes: AtomicU64,
    newest_ms: AtomicU64,
    silent: AtomicBool,
    pins: pins::Pins,
    manifests: manifests::Manifests,
}

/// The tree. Clones are the same tree.
#[derive(Clone)]
pub struct View(Arc<Core>);

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("inodes", &self.0.inodes.len()).finish_non_exhaustive()
    }
}

impl Core {
    fn store_answers(&self) {
        if self.silent.swap(false, Ordering::Relaxed) {
            log::info!("the store answers again");
        }
    }

    fn store_is_silent(&self, what: &str, error: &ViewError) {
        if !self.silent.swap(true, Ordering::Relaxed) {
            log::warn!(
                "cannot list {what}; the last known ones are shown (see the attribute user.ckptfs.listed): {error}"
            );
        }
    }

    fn attr_of(&self, node: &Node, asked: Option<u64>) -> Attr {
        node.attr(asked, self.newest_ms.load(Ordering::Relaxed))
    }

    fn found(&self, node: &Node, parent: &Node) -> Found {
        Found { attr: self.attr_of(node, None), job: node.job().cloned(), lasting: lasting(parent, node) }
    }

    fn node(&self, ino: u64) -> Result<Node, ViewError> {
        self.inodes.get(ino).ok_or(ViewError::Stale)
    }

    fn parent_of(node: &Node) -> u64 {
        match node {
            Node::Directory(d) => d.parent,
            _ => ROOT,
        }
    }

    fn names_of(node: &Node, ino: u64, entries: Arc<[Entry]>) -> Names {
        let lasting = if matches!(node, Node::Directory(_)) { Lasting::All } else { Lasting::Nothing };
        Names { ino, parent: Self::parent_of(node), entries, lasting }
    }
}

fn lasting(parent: &Node, node: &Node) -> Lasting {
    match (parent, node) {
        (_, Node::Latest(_)) => Lasting::Nothing,
        (Node::Root, _) => Lasting::Moment,
        (Node::Job(job), Node::Directory(d)) if job.lives(d.checkpoint.number) => Lasting::Lives,
        (Node::Job(_), _) => Lasting::Attributes,
        _ => Lasting::All,
    }
}

impl View {
    /// A view of what a source has.
    #[must_use]
    pub fn new(source: impl Source) -> Self {
        let core = Core {
            source: Box::new(source),
            inodes: inode::Inodes::default(),
            jobs: Jobs::default(),
            sink: RwLock::default(),
            file_bytes: AtomicU64::new(0),
            newest_ms: AtomicU64::new(0),
            silent: AtomicBool::new(false),
            pins: pins::Pins::default(),
            manifests: manifests::Manifests::default(),
        };
        core.inodes.root(Node::Root);
        Self(Arc::new(core))
    }

    /// Tells `sink` from now on which names to forget. It must not wait for the view.
    pub fn on_invalidation(&self, sink: impl Fn(Invalidation) + Send + Sync + 'static) {
        *self.0.sink.write().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(sink));
    }

    /// What `stat` tells. From memory.
    ///
    /// # Errors
    /// [`ViewError::Stale`] for a number that was never given out.
    pub fn attr(&self, ino: u64) -> Result<Found, ViewError> {
        let node = self.0.node(ino)?;
        let lasting = match node {
            Node::Root | Node::Job(_) => Lasting::Moment,
            _ => Lasting::All,
        };
        Ok(Found { attr: self.0.attr_of(&node, Some(ino)), job: node.job().cloned(), lasting })
    }

    /// A name in a directory, where memory or the local disk has the answer.
    #[must_use]
    pub fn try_lookup(&self, parent: u64, name: &str) -> Option<Result<Found, ViewError>> {
        let core = &self.0;
        let directory = match core.node(parent) {
            Ok(node) => node,
            Err(e) => return Some(Err(e)),
        };
        let node = match &directory {
            Node::Root => match core.known_job(name) {
                Some(job) => Ok(Node::Job(job)),
                // What is no name of a job needs no asking.
                None if Name::parse(name).is_err() => Err(ViewError::NotFound),
                None => return None,
            },
            Node::Job(job) => core.known_in_job(job, name)?,
            Node::Directory(d) => match core.known_entries(d)? {
                Ok(entries) => Core::find(&entries, name),
                Err(e) => Err(e),
            },
            _ => Err(ViewError::NotADirectory),
        };
        Some(node.map(|node| self.found(&node, &directory)))
    }

    /// A name in a directory. May wait for the store.
    ///
    /// # Errors
    /// [`ViewError::NotFound`], or what kept the store from answering.
    pub fn lookup(&self, parent: u64, name: &str) -> Result<Found, ViewError> {
        if let Some(known) = self.try_lookup(parent, name) {
            return known;
        }
        let core = &self.0;
        let directory = core.node(parent)?;
        let node = match &directory {
            Node::Root => {
                core.fresh_jobs()?;
                core.known_job(name).map(Node::Job).ok_or(ViewError::NotFound)?
            }
            Node::Job(job) => core.fresh_in_job(job, name)?,
            Node::Directory(d) => Core::find(&core.entries(d)?, name)?,
            _ => return Err(ViewError::NotADirectory),
        };
        Ok(self.found(&node, &directory))
    }

    fn found(&self, node: &Node, directory: &Node) -> Found {
        if let Node::Blob(blob) = node {
            self.0.look_for_local(blob);
        }
        self.0.found(node, directory)
    }

    /// Call it after the answer of a lookup or a listing has gone out: if the file became local meanwhile, the name
    /// is taken back once more, since the first time may have come before the answer.
    pub fn answered(&self, parent: u64, name: &str, ino: u64) {
        if inode::is_lazy(ino)
            && let Some(Node::Blob(blob)) = self.0.inodes.get(ino)
            && blob.is_local()
        {
            self.0.invalidate(parent, name);
        }
    }

    /// Whether a number is a lazy one: given out before the file was local.
    #[must_use]
    pub fn is_lazy(ino: u64) -> bool {
        inode::is_lazy(ino)
    }

    /// Where a symbolic link points. From memory.
    ///
    /// # Errors
    /// [`ViewError::NotALink`].
    pub fn readlink(&self, ino: u64) -> Result<String, ViewError> {
        match self.0.node(ino)? {
            Node::Latest(latest) => Ok(latest.target.to_string()),
            _ => Err(ViewError::NotALink),
        }
    }

    /// Whether an inode is a directory, and whether its names ever change.
    ///
    /// # Errors
    /// [`ViewError::NotADirectory`].
    pub fn directory(&self, ino: u64) -> Result<Lasting, ViewError> {
        match self.0.node(ino)? {
            Node::Root | Node::Job(_) => Ok(Lasting::Nothing),
            Node::Directory(_) => Ok(Lasting::All),
            _ => Err(ViewError::NotADirectory),
        }
    }

    /// A directory's names, where memory has them.
    #[must_use]
    pub fn try_names(&self, ino: u64) -> Option<Result<Names, ViewError>> {
        match self.0.node(ino) {
            Ok(Node::Root | Node::Job(_)) => None,
            Ok(Node::Directory(d)) => self
                .0
                .known_entries(&d)
                .map(|known| known.map(|entries| Core::names_of(&Node::Directory(d), ino, entries))),
            Ok(_) => Some(Err(ViewError::NotADirectory)),
            Err(e) => Some(Err(e)),
        }
    }

    /// A directory's names. Of the root and of a job, as they are in a listing that begins after this call. May wait for the store.
    ///
    /// # Errors
    /// [`ViewError::NotADirectory`], or what kept the store from answering.
    pub fn names(&self, ino: u64) -> Result<Names, ViewError> {
        let core = &self.0;
        let node = core.node(ino)?;
        let entries = match &node {
            Node::Root => {
                core.fresh_jobs()?;
                core.root_entries().into()
            }
            Node::Job(job) => core.job_entries(job)?.into(),
            Node::Directory(d) => core.entries(d)?,
            _ => return Err(ViewError::NotADirectory),
        };
        Ok(Core::names_of(&node, ino, entries))
    }

    /// The name at a place of a listing; `.` and `..` come first. Nothing after the last.
    #[must_use]
    pub fn item<'a>(&self, names: &'a Names, at: u64) -> Option<Item<'a>> {
        let own = |name, ino| {
            let Found { attr, job, .. } = self.attr(ino).ok()?;
            Some(Item { name, attr, job, lasting: Lasting::Nothing })
        };
        match at {
            0 => own(".", names.ino),
            1 => own("..", names.parent),
            _ => {
                let entry = usize::try_from(at).ok()?.checked_sub(2).and_then(|at| names.entries.get(at))?;
                if let Node::Blob(blob) = &entry.node {
                    self.0.look_for_local(blob);
                }
                let (attr, job) = (self.0.attr_of(&entry.node, None), entry.node.job().cloned());
                Some(Item { name: &entry.name, attr, job, lasting: names.lasting })
            }
        }
    }

    /// Opens a file that is local or in memory. Nothing: it has to be fetched.
    #[must_use]
    pub fn try_open(&self, ino: u64) -> Option<Result<Opened, ViewError>> {
        self.0.try_open(ino)
    }

    /// Opens a file; one that is not local is fetched whole and verified first. May wait for the store.
    ///
    /// # Errors
    /// [`ViewError::IsADirectory`], damage, or what kept the store from answering.
    pub fn open(&self, ino: u64) -> Result<Opened, ViewError> {
        self.0.open(ino)
    }

    /// The value of an extended attribute: `user.ckptfs.` and `digest`, `size`, `residency`, `refs`, `listed`, `store`.
    ///
    /// # Errors
    /// [`ViewError::NoData`] for other `user.` attributes, [`ViewError::NotSupported`] for other namespaces.
    pub fn xattr(&self, ino: u64, name: &str) -> Result<Vec<u8>, ViewError> {
        self.0.xattr(ino, name)
    }

    /// What `statfs` tells. Never asks the store. What no subtask that was looked into holds is taken from what the
    /// checkpoints say that they uploaded.
    #[must_use]
    pub fn space(&self) -> Space {
        let core = &self.0;
        let uploaded = core.known_jobs().iter().fold(0u64, |sum, job| sum.saturating_add(job.stored_bytes()));
        Space {
            used: uploaded.max(core.file_bytes.load(Ordering::Relaxed)),
            free: core.source.free().available,
            files: core.inodes.len() as u64,
        }
    }
}
