//! Opening files: what is local at once, what is not after it was fetched whole and verified.

use std::collections::HashSet;
use std::fs::File;
use std::sync::{Arc, PoisonError};

use super::error::ViewError;
use super::node::{Blob, Node, StateFile, Task, Text};
use super::source::Parts;
use super::{Core, Invalidation, inode, text, tree};
use crate::error::Kind;
use crate::format::{FileEntry, TaskManifest};
use crate::limits;
use crate::types::sync::atomic::Ordering;

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

/// One of the uploads of a file by content.
struct Upload {
    task: Arc<Task>,
    manifest: Arc<TaskManifest>,
    entry: FileEntry,
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

    fn open_text(node: &Arc<Text>, task: Option<&TaskManifest>) -> Result<Opened, ViewError> {
        Ok(Opened { content: Content::Text(text::bytes(node, task)?), hold: Hold::new(Node::Text(node.clone())) })
    }

    /// The uploads of a file by content that its newest names stand for, the newest first: it lives longest. Their manifests are read as
    /// they are asked for.
    fn uploads<'a>(&'a self, blob: &Blob, names: usize) -> impl Iterator<Item = Result<Upload, ViewError>> + use<'a> {
        let mut seen = HashSet::new();
        blob.names().into_iter().rev().take(names).filter_map(move |name| {
            let manifest = match self.manifest(&name.task) {
                Ok(manifest) => manifest,
                Err(e) => return Some(Err(e)),
            };
            let entry = manifest.files.get(usize::try_from(name.index).ok()?)?.clone();
            let blobs = entry.extents.iter().filter_map(|x| manifest.blobs.get(x.blob as usize));
            let fresh = seen.insert(blobs.map(|b| b.name).collect::<Vec<_>>());
            fresh.then(|| Ok(Upload { task: name.task.clone(), entry, manifest }))
        })
    }

    /// Opens what is known to be local.
    pub(super) fn try_open(&self, ino: u64) -> Option<Result<Opened, ViewError>> {
        let node = self.inodes.get(ino);
        let (digest, size) = match &node {
            None => return Some(Err(ViewError::Stale)),
            Some(Node::Root | Node::Job(_) | Node::Directory(_)) => return Some(Err(ViewError::IsADirectory)),
            Some(Node::Latest(_)) => return Some(Err(ViewError::NotADirectory)),
            Some(Node::Text(text)) if text.size > TEXT_AT_ONCE => return None,
            Some(Node::Text(text)) => {
                let Some(task) = &text.task else { return Some(Self::open_text(text, None)) };
                return self.known_manifest(task).map(|manifest| Self::open_text(text, Some(&manifest)));
            }
            // What this process has not seen whole yet may have to be read to be believed: not at once.
            Some(Node::Blob(blob)) if blob.is_local() => (blob.digest, blob.size),
            Some(Node::File(file)) if file.seen.load(Ordering::Relaxed) && self.is_pinned(&file.task.checkpoint) => {
                (file.digest, file.size)
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
            Some(Node::Text(text)) => {
                let manifest = text.task.as_ref().map(|task| self.manifest(task)).transpose()?;
                Self::open_text(&text, manifest.as_deref())
            }
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
        if let Some(local) = self.source.open_local(&file.digest, file.size)? {
            return Ok(local);
        }
        let manifest = self.manifest(&file.task)?;
        let index = usize::try_from(file.index).unwrap_or(usize::MAX);
        self.source.fetch(&manifest, manifest.files.get(index).ok_or(ViewError::Stale)?)
    }

    /// Brings what a database will ask for first. What fails is told by the file that needs it.
    fn prepare(&self, task: &Task) {
        let mut prepared = task.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if !*prepared {
            match self.manifest(task).and_then(|manifest| self.source.prepare(&manifest)) {
                Ok(()) => *prepared = true,
                Err(e) => log::info!("not all bundles were brought: {e}"),
            }
        }
    }

    /// Opens a file to be read in parts, from any of its uploads. Nothing: it must be fetched whole.
    fn open_parts(self: &Arc<Self>, blob: &Arc<Blob>) -> Result<Option<Arc<dyn Parts>>, ViewError> {
        let mut opened = None;
        let mut failed = None;
        // A few are enough to fall back on: a file may have a thousand names, most of them of the same upload.
        for upload in self.uploads(blob, limits::LAZY_UPLOADS) {
            let upload = match upload {
                Ok(upload) => upload,
                Err(e) => {
                    failed.get_or_insert(e);
                    continue;
                }
            };
            if opened.is_none() {
                self.prepare(&upload.task);
            }
            let (core, whole) = (Arc::downgrade(self), Arc::downgrade(blob));
            let on_whole = Box::new(move || {
                if let (Some(core), Some(blob)) = (core.upgrade(), whole.upgrade()) {
                    core.completed(&blob);
                }
            });
            match self.source.open_parts(&upload.manifest, &upload.entry, on_whole) {
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
        for upload in self.uploads(blob, usize::MAX) {
            match upload.and_then(|upload| self.source.fetch(&upload.manifest, &upload.entry)) {
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
    pub(super) fn completed(&self, blob: &Arc<Blob>) {
        if blob.local.swap(true, Ordering::SeqCst) {
            return;
        }
        for name in blob.names() {
            if let Some((parent, file)) = name.place(blob) {
                self.invalidate(parent, &file);
            }
            if let Some(parent) = name.task.checkpoint.flink.get() {
                self.invalidate(*parent, &blob.digest.to_hex());
            }
        }
    }

    pub(super) fn invalidate(&self, parent: u64, name: &str) {
        if let Some(sink) = &*self.sink.read().unwrap_or_else(PoisonError::into_inner) {
            sink(Invalidation { parent, name: name.to_owned() });
        }
    }
}
