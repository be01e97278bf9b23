//! Opening files: what is local at once, what is not after it was fetched whole and verified.

use std::collections::HashSet;
use std::fs::File;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::error::ViewError;
use super::node::{Blob, BlobName, Node, StateFile, Task, Text};
use super::source::Parts;
use super::{Core, Invalidation, inode, text, tree};
use crate::error::Kind;

/// Text that is longer is made by a worker: it takes longer than an event thread should.
const TEXT_AT_ONCE: u64 = 1 << 20;

/// How an opened file's bytes reach the reader.
pub enum Content {
    /// From this file, by passthrough where that is to be had.
    Local(File),
    /// From this file by the daemon: the inode is a lazy one. The kernel may keep the pages.
    Served(File),
    /// By the daemon, which brings what is not local: the inode is a lazy one. The kernel may keep the pages.
    Parts(Arc<dyn Parts>),
    /// From memory by the daemon. The kernel may keep the pages.
    Text(Arc<[u8]>),
}

/// An open file. Dropping it says that it was closed.
pub struct Opened {
    /// The bytes.
    pub content: Content,
    /// Keeps the view's count of open files.
    pub hold: Hold,
}

/// Counts a file as open until it is dropped.
pub struct Hold(Node);

impl Hold {
    fn new(node: Node) -> Self {
        match &node {
            Node::Blob(b) => b.opens.fetch_add(1, Ordering::SeqCst),
            Node::File(f) => f.task.checkpoint.opens.fetch_add(1, Ordering::SeqCst),
            _ => 0,
        };
        Self(node)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        match &self.0 {
            Node::Blob(b) => b.opens.fetch_sub(1, Ordering::SeqCst),
            Node::File(f) => f.task.checkpoint.opens.fetch_sub(1, Ordering::SeqCst),
            _ => 0,
        };
    }
}

/// Names of a file by content that stand for different uploads of it, the newest first: its upload lives longest.
fn uploads(blob: &Blob) -> Vec<BlobName> {
    let mut seen = HashSet::new();
    let mut names = blob.names();
    names.reverse();
    names.retain(|name| {
        let blobs = &name.task.manifest.blobs;
        let entry = name.entry();
        entry.is_some_and(|e| {
            seen.insert(e.extents.iter().filter_map(|x| blobs.get(x.blob as usize)).map(|b| b.name).collect::<Vec<_>>())
        })
    });
    names
}

impl Core {
    fn opened(&self, ino: u64, node: Node, file: File) -> Opened {
        let content = match &node {
            Node::Blob(blob) => {
                self.completed(blob);
                self.want_pin(blob);
                if inode::is_lazy(ino) { Content::Served(file) } else { Content::Local(file) }
            }
            Node::File(state) => {
                state.seen.store(true, Ordering::Relaxed);
                Content::Local(file)
            }
            _ => Content::Local(file),
        };
        Opened { content, hold: Hold::new(node) }
    }

    fn open_text(node: &Arc<Text>) -> Result<Opened, ViewError> {
        Ok(Opened { content: Content::Text(text::bytes(node)?), hold: Hold::new(Node::Text(node.clone())) })
    }

    /// Opens what is known to be local.
    pub(super) fn try_open(&self, ino: u64) -> Option<Result<Opened, ViewError>> {
        let node = self.inodes.get(ino);
        let (digest, size) = match &node {
            None => return Some(Err(ViewError::Stale)),
            Some(Node::Root | Node::Job(_) | Node::Directory(_)) => return Some(Err(ViewError::IsADirectory)),
            Some(Node::Latest(_)) => return Some(Err(ViewError::NotADirectory)),
            Some(Node::Text(text)) => return (text.size <= TEXT_AT_ONCE).then(|| Self::open_text(text)),
            // What this process has not seen whole yet may have to be read to be believed: not at once.
            Some(Node::Blob(blob)) if blob.is_local() => (blob.digest, blob.size),
            Some(Node::File(file)) if file.seen.load(Ordering::Relaxed) && self.is_pinned(&file.task.checkpoint) => {
                let entry = file.entry()?;
                (entry.digest, entry.size)
            }
            Some(Node::Blob(_) | Node::File(_)) => return None,
        };
        match self.source.open_local(&digest, size) {
            Ok(Some(file)) => Some(Ok(self.opened(ino, node?, file))),
            Ok(None) => None,
            Err(e) => Some(Err(e)),
        }
    }

    /// Opens; fetches the file where it is not local.
    pub(super) fn open(self: &Arc<Self>, ino: u64) -> Result<Opened, ViewError> {
        match self.inodes.get(ino) {
            Some(Node::Text(text)) => Self::open_text(&text),
            Some(Node::Blob(blob)) => {
                if let Some(file) = self.source.open_local(&blob.digest, blob.size)? {
                    return Ok(self.opened(ino, Node::Blob(blob), file));
                }
                // A local number promises the kernel a whole file.
                if inode::is_lazy(ino)
                    && let Some(parts) = self.open_parts(&blob)?
                {
                    self.want_pin(&blob);
                    return Ok(Opened { content: Content::Parts(parts), hold: Hold::new(Node::Blob(blob)) });
                }
                let file = self.fetch_blob(&blob)?;
                Ok(self.opened(ino, Node::Blob(blob), file))
            }
            Some(Node::File(file)) => {
                let checkpoint = &file.task.checkpoint;
                self.pin(&checkpoint.job, checkpoint.number)?;
                self.prepare(&file.task);
                let fetched = self.fetch_file(&file)?;
                Ok(self.opened(ino, Node::File(file), fetched))
            }
            _ => self.try_open(ino).unwrap_or(Err(ViewError::Stale)),
        }
    }

    fn fetch_file(&self, file: &StateFile) -> Result<File, ViewError> {
        let entry = file.entry().ok_or(ViewError::Stale)?;
        self.source.fetch(&file.task.manifest, entry)
    }

    /// Brings what a database will ask for first. What fails is told by the file that needs it.
    fn prepare(&self, task: &Task) {
        let mut prepared = task.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if !*prepared {
            match self.source.prepare(&task.manifest) {
                Ok(()) => *prepared = true,
                Err(e) => log::info!("not all bundles were brought: {e}"),
            }
        }
    }

    /// Opens a file to be read in parts, from any of its uploads. Nothing: it must be fetched whole.
    fn open_parts(self: &Arc<Self>, blob: &Arc<Blob>) -> Result<Option<Arc<dyn Parts>>, ViewError> {
        let mut opened = None;
        let mut failed = None;
        for name in uploads(blob) {
            let (Some(entry), manifest) = (name.entry(), &name.task.manifest) else { continue };
            if opened.is_none() {
                self.prepare(&name.task);
            }
            let (core, whole) = (Arc::downgrade(self), Arc::downgrade(blob));
            let on_whole = Box::new(move || {
                if let (Some(core), Some(blob)) = (core.upgrade(), whole.upgrade()) {
                    core.completed(&blob);
                }
            });
            match self.source.open_parts(manifest, entry, on_whole) {
                // Another upload of the same is one more place to fetch it from.
                Ok(Some(parts)) => drop(opened.get_or_insert(parts)),
                Ok(None) => {}
                Err(e) => drop(failed.get_or_insert(e)),
            }
        }
        match (opened, failed) {
            (None, Some(e)) => Err(e),
            (opened, _) => Ok(opened),
        }
    }

    /// The same content may have been uploaded more than once: an upload that is lost or damaged is no reason to
    /// give up while another one is named.
    fn fetch_blob(&self, blob: &Blob) -> Result<File, ViewError> {
        let mut failed = None;
        for name in uploads(blob) {
            let (Some(entry), manifest) = (name.entry(), &name.task.manifest) else { continue };
            match self.source.fetch(manifest, entry) {
                Ok(file) => return Ok(file),
                Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Damage) => {
                    log::error!("cannot fetch {} from the store: {e}", blob.digest);
                    // Damage is the graver news.
                    if failed.as_ref().is_none_or(|f: &ViewError| f.kind() != Kind::Damage) {
                        failed = Some(e);
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Err(failed.unwrap_or_else(|| tree::lost(&blob.digest)))
    }

    /// A file by content is local: from now on lookups answer its local number, and what the kernel knows is taken back.
    pub(super) fn completed(&self, blob: &Blob) {
        if blob.local.swap(true, Ordering::SeqCst) {
            return;
        }
        for name in blob.names() {
            if let Some(file) = name.entry().and_then(|e| e.path.db_file()) {
                self.invalidate(name.parent, file);
            }
        }
    }

    pub(super) fn invalidate(&self, parent: u64, name: &str) {
        if let Some(sink) = &*self.sink.read().unwrap_or_else(PoisonError::into_inner) {
            sink(Invalidation { parent, name: name.to_owned() });
        }
    }
}
