//! What stands behind an inode number.

use std::sync::{Arc, OnceLock, PoisonError};

use super::inode;
use super::job::Job;
use crate::format::{CheckpointManifest, SubtaskEntry};
use crate::types::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use crate::types::{CheckpointNumber, Digest, Name};

/// Modification time of every file that is identified by its content. It has to be the same in all checkpoints that hold the file, on all
/// hosts and after every restart, so it is a constant: 1980-01-01, the oldest time that no archiver finds implausible.
pub const CONTENT_MTIME_MS: u64 = 315_532_800_000;

/// What kind of thing an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file.
    File,
    /// A symbolic link.
    Link,
}

/// What `stat` tells, without owner and mode, which are the mount's matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The number.
    pub ino: u64,
    /// The kind.
    pub kind: Kind,
    /// Bytes; 0 for directories, so that `du --apparent-size` counts files only.
    pub size: u64,
    /// Names. At least 2 for content. 1 for directories, which says that it does not count their subdirectories (as on btrfs).
    pub nlink: u32,
    /// Milliseconds since 1970.
    pub mtime_ms: u64,
}

/// Something in the tree.
#[derive(Clone)]
pub(super) enum Node {
    Root,
    Job(Arc<Job>),
    Latest(Arc<Latest>),
    Directory(Arc<Directory>),
    Text(Arc<Text>),
    /// A file of one checkpoint only.
    File(Arc<StateFile>),
    /// A file that is identified by its content, in any number of checkpoints.
    Blob(Arc<Blob>),
}

/// A name in a directory.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) name: Box<str>,
    pub(super) node: Node,
}

/// The link to the newest checkpoint. Another target is another inode.
pub(super) struct Latest {
    pub(super) ino: u64,
    pub(super) target: CheckpointNumber,
    pub(super) mtime_ms: u64,
}

/// A checkpoint that was looked into.
pub(super) struct Checkpoint {
    pub(super) job: Name,
    pub(super) number: CheckpointNumber,
    pub(super) manifest: Arc<CheckpointManifest>,
    /// Open files that are its own.
    pub(super) opens: AtomicU64,
    /// Number of the link that pointed to it when it was the newest; 0 if none ever did.
    pub(super) link: AtomicU64,
    /// Files by content that it names, as far as its subtasks were looked into.
    pub(super) blobs: Mutex<Vec<Arc<Blob>>>,
    /// The directory that Flink restores from, once it was looked into: it has files by content once more, under their digests.
    pub(super) flink: OnceLock<u64>,
}

impl Checkpoint {
    /// Whether any file that it names is open.
    pub(super) fn in_use(&self) -> bool {
        self.opens.load(Ordering::SeqCst) > 0
            || self
                .blobs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .any(|b| b.opens.load(Ordering::SeqCst) > 0)
    }
}

/// Where the entries of a directory come from.
pub(super) enum What {
    /// The checkpoint's manifest.
    Checkpoint,
    /// A run of the checkpoint manifest's subtasks.
    Operator(std::ops::Range<usize>),
    /// The task manifest of one of the checkpoint manifest's subtasks.
    Subtask(usize),
    /// The directory that Flink restores from: the task manifest of one of the subtasks, and the files of all others.
    Flink(usize),
    /// They were there when it was made.
    Inner,
}

/// A directory below a job: it never changes.
pub(super) struct Directory {
    pub(super) ino: u64,
    pub(super) parent: u64,
    pub(super) path: Box<str>,
    pub(super) checkpoint: Arc<Checkpoint>,
    pub(super) what: What,
    /// Sorted by name.
    pub(super) entries: OnceLock<Arc<[Entry]>>,
    /// Held while the entries are made.
    pub(super) making: Mutex<()>,
}

/// A subtask that was looked into.
pub(super) struct Task {
    pub(super) checkpoint: Arc<Checkpoint>,
    /// Its place in the checkpoint manifest's list.
    pub(super) at: usize,
    /// Place of its first file by content in the task manifest's list.
    pub(super) first: u32,
    /// The directory that its files by content lie in.
    pub(super) home: OnceLock<Arc<Directory>>,
    /// Whether its small things were brought; held while they are.
    pub(super) prepared: Mutex<bool>,
}

impl Task {
    /// What the checkpoint manifest says of it.
    pub(super) fn listed(&self) -> Option<&SubtaskEntry> {
        self.checkpoint.manifest.subtasks.get(self.at)
    }
}

/// A manifest as text.
pub(super) struct Text {
    pub(super) ino: u64,
    pub(super) size: u64,
    pub(super) checkpoint: Arc<Checkpoint>,
    /// The subtask's manifest; the checkpoint's where there is none.
    pub(super) task: Option<Arc<Task>>,
}

/// A file of one checkpoint only.
pub(super) struct StateFile {
    pub(super) ino: u64,
    pub(super) task: Arc<Task>,
    /// Its place in the manifest's list.
    pub(super) index: u32,
    pub(super) digest: Digest,
    pub(super) size: u64,
    /// Whether it was opened before: then looking for it costs a few system calls, and never reading it once more.
    pub(super) seen: AtomicBool,
}

/// A name of a file that is identified by its content.
#[derive(Clone)]
pub(super) struct BlobName {
    pub(super) task: Arc<Task>,
    /// Its place in the task manifest's list.
    pub(super) index: u32,
}

impl BlobName {
    /// Directory and name. Nothing while the directory is made: then nobody was told of it yet.
    pub(super) fn place(&self, blob: &Arc<Blob>) -> Option<(u64, Box<str>)> {
        let home = self.task.home.get()?;
        let entries = home.entries.get()?;
        let is = |e: &&Entry| matches!(&e.node, Node::Blob(b) if Arc::ptr_eq(b, blob));
        // The manifest is in the order of the paths, as the directory is: so its place there is the one here, as a rule.
        let at = usize::try_from(self.index.checked_sub(self.task.first)?).ok()?;
        let entry = entries.get(at).filter(is).or_else(|| entries.iter().find(is))?;
        Some((home.ino, entry.name.clone()))
    }
}

/// A file that is identified by its content.
pub(super) struct Blob {
    /// Its local number.
    pub(super) ino: u64,
    pub(super) digest: Digest,
    pub(super) size: u64,
    /// Whether lookups answer the local number. Never goes back: programs such as `cp` refuse a file whose number changes between a look
    /// and its opening. One that was evicted is fetched whole by the next open.
    pub(super) local: AtomicBool,
    pub(super) opens: AtomicU64,
    pub(super) names: Mutex<Vec<BlobName>>,
}

impl Blob {
    pub(super) fn is_local(&self) -> bool {
        self.local.load(Ordering::SeqCst)
    }

    /// The number that a lookup answers now.
    pub(super) fn number(&self) -> u64 {
        if self.is_local() { self.ino } else { inode::lazy(self.ino) }
    }

    pub(super) fn names(&self) -> Vec<BlobName> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn attr(&self, ino: u64) -> Attr {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner).len();
        // Two or more, so that `du` counts it once and RocksDB's delete scheduler never truncates it.
        let nlink = u32::try_from(names).unwrap_or(u32::MAX).max(2);
        Attr { ino, kind: Kind::File, size: self.size, nlink, mtime_ms: CONTENT_MTIME_MS }
    }
}

impl Node {
    /// Whose directory it is. The mount gates what lies below by it.
    pub(super) fn job(&self) -> Option<&Name> {
        match self {
            Self::Job(job) => Some(&job.name),
            Self::Directory(directory) => Some(&directory.checkpoint.job),
            Self::Root | Self::Latest(_) | Self::Text(_) | Self::File(_) | Self::Blob(_) => None,
        }
    }

    /// What `stat` tells. `asked` is the number that it was asked by, where it was.
    pub(super) fn attr(&self, asked: Option<u64>, root_mtime_ms: u64) -> Attr {
        let directory = |ino, mtime_ms| Attr { ino, kind: Kind::Directory, size: 0, nlink: 1, mtime_ms };
        match self {
            Self::Root => directory(inode::ROOT, root_mtime_ms),
            Self::Job(job) => directory(job.ino, job.mtime_ms()),
            Self::Latest(l) => Attr {
                ino: l.ino,
                kind: Kind::Link,
                size: l.target.to_string().len() as u64,
                nlink: 1,
                mtime_ms: l.mtime_ms,
            },
            Self::Directory(d) => directory(d.ino, d.checkpoint.manifest.completed_ms),
            Self::Text(t) => Attr {
                ino: t.ino,
                kind: Kind::File,
                size: t.size,
                nlink: 1,
                mtime_ms: t.checkpoint.manifest.completed_ms,
            },
            Self::File(f) => Attr {
                ino: f.ino,
                kind: Kind::File,
                size: f.size,
                nlink: 1,
                mtime_ms: f.task.checkpoint.manifest.completed_ms,
            },
            Self::Blob(b) => b.attr(asked.unwrap_or_else(|| b.number())),
        }
    }
}
