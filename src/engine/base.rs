//! What the bases have already: their files by digest and by path, and where those lie.
//!
//! A base vouches for blobs that were there when it was completed. Where a look costs little, those that are lost or have another
//! length by now are treated as not there: their files are stored again, and the damage goes no further.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::scan::ScannedFile;
use crate::cache::Session;
use crate::error::{Kind, Result};
use crate::format::{FileEntry, FilePath, TaskManifest};
use crate::lifecycle::Base;
use crate::store::Store;
use crate::types::{BlobName, Digest, Extent, Name, Uid};

/// A file of a base: which manifest, which entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BaseFile {
    manifest: usize,
    file: usize,
}

/// The bases' task manifests, indexed.
#[derive(Debug)]
pub struct BaseIndex {
    /// The store that they are in.
    pub store: Uid,
    manifests: Vec<Arc<TaskManifest>>,
    by_digest: HashMap<(Digest, u64), BaseFile>,
    by_path: HashMap<FilePath, BaseFile>,
    by_origin: HashMap<(Digest, u64), BaseFile>,
    /// Uids of aborted bases, whose uploads are found by HEAD.
    pub aborted: Vec<Uid>,
    /// Blobs that are not in the store as the bases' manifests say.
    pub lost: HashSet<BlobName>,
}

impl BaseIndex {
    /// An index that knows nothing: everything is new.
    #[must_use]
    pub fn empty(store: Uid) -> Self {
        Self {
            store,
            manifests: Vec::new(),
            by_digest: HashMap::new(),
            by_path: HashMap::new(),
            by_origin: HashMap::new(),
            aborted: Vec::new(),
            lost: HashSet::new(),
        }
    }

    /// Loads what the bases stored for this subtask; where a base does not know it (a rescaled or renamed job), for all its subtasks.
    ///
    /// # Errors
    /// When a manifest cannot be read. One that is lost or damaged is left out.
    pub fn load(session: &Session, bases: &[Base], operator: &Name, subtask: u32) -> Result<Self> {
        let mut index = Self::empty(session.store_id);
        for base in bases {
            let Some(manifest) = &base.manifest else {
                index.aborted.push(base.of.uid);
                continue;
            };
            let same = manifest.subtasks.iter().filter(|s| s.operator == *operator && s.subtask == subtask);
            let mut wanted: Vec<_> = same.collect();
            if wanted.is_empty() {
                wanted = manifest.subtasks.iter().collect();
            }
            for entry in wanted {
                match session.cache.task_manifest(&session.store, &base.of.job, base.of.number, entry) {
                    Ok(task) => index.add(task),
                    // A damaged base helps nobody, and must not keep the next checkpoint from being whole.
                    Err(e) if e.kind() == Kind::Damage => log::warn!("nothing of it is reused: {e}"),
                    Err(e) => return Err(e.into()),
                }
            }
        }
        Ok(index)
    }

    /// The index without these blobs: files that lie in them are not there, for all that it knows.
    #[must_use]
    pub fn without(self, lost: HashSet<BlobName>) -> Self {
        let mut index = Self { aborted: self.aborted, lost: self.lost, ..Self::empty(self.store) };
        index.lost.extend(lost);
        self.manifests.into_iter().for_each(|task| index.add(task));
        index
    }

    /// Blobs that the store has lost, or has with another length, and that the index has still; nothing where a look costs much.
    #[must_use]
    pub fn look(&self, store: &Store) -> HashSet<BlobName> {
        let named = self.manifests.iter().flat_map(|task| &task.blobs).filter(|b| !self.lost.contains(&b.name));
        let blobs: HashMap<BlobName, u64> = named.map(|b| (b.name, b.length)).collect();
        let names: Vec<BlobName> = blobs.keys().copied().collect();
        let found = match store.blob_lengths(&names) {
            Ok(Some(found)) => found,
            Ok(None) => return HashSet::new(),
            Err(e) => {
                log::warn!("whether the store still has what this checkpoint reuses cannot be told: {e}");
                return HashSet::new();
            }
        };
        let lost = names.iter().zip(found).filter(|(name, found)| *found != blobs.get(*name).copied());
        let lost: HashSet<BlobName> = lost.map(|(name, _)| *name).collect();
        if !lost.is_empty() {
            log::warn!(
                "{} blobs of the checkpoint before are not in the store as they should be, and are stored again for this one: \
                 run `ckptfs verify` to see what that checkpoint has lost",
                lost.len()
            );
        }
        lost
    }

    /// Knows what another subtask of the same checkpoint stored, too.
    pub fn add(&mut self, task: Arc<TaskManifest>) {
        let manifest = self.manifests.len();
        for (file, entry) in task.files.iter().enumerate() {
            // A lost bundle is packed anew from the directory, file by file. A lost blob must be sent again whole.
            let blob = |i: u32| usize::try_from(i).ok().and_then(|i| task.blobs.get(i));
            let gone = |e: &Extent| blob(e.blob).is_some_and(|b| !b.bundle && self.lost.contains(&b.name));
            if !self.lost.is_empty() && entry.extents.iter().any(gone) {
                continue;
            }
            let at = BaseFile { manifest, file };
            self.by_digest.entry((entry.digest, entry.size)).or_insert(at);
            self.by_path.entry(entry.path.clone()).or_insert(at);
            if let Some(origin) = task.origins.get(&entry.path) {
                self.by_origin.entry((*origin, entry.size)).or_insert(at);
            }
        }
        self.manifests.push(task);
    }

    /// A base's file with this content.
    #[must_use]
    pub fn by_digest(&self, digest: &Digest, size: u64) -> Option<BaseFile> {
        self.by_digest.get(&(*digest, size)).copied()
    }

    /// A base's file that was imported from there.
    #[must_use]
    pub fn by_origin(&self, origin: &Digest, size: u64) -> Option<BaseFile> {
        self.by_origin.get(&(*origin, size)).copied()
    }

    /// A base's file at this path.
    #[must_use]
    pub fn by_path(&self, path: &FilePath) -> Option<BaseFile> {
        self.by_path.get(path).copied()
    }

    /// Whether a base has a file of this name and size. It may still be another one.
    #[must_use]
    pub fn seems_to_have(&self, file: &ScannedFile) -> bool {
        self.by_path(&file.path).and_then(|at| self.entry(at)).is_some_and(|e| e.size == file.stat.size)
    }

    /// The manifest that a file stands in.
    #[must_use]
    pub fn manifest(&self, at: BaseFile) -> Option<&TaskManifest> {
        self.manifests.get(at.manifest).map(|m| &**m)
    }

    /// The entry itself.
    #[must_use]
    pub fn entry(&self, at: BaseFile) -> Option<&FileEntry> {
        self.manifest(at)?.files.get(at.file)
    }
}
