//! What the bases have already: their files by digest and by path, and where those lie.

use std::collections::HashMap;
use std::sync::Arc;

use super::scan::ScannedFile;
use crate::cache::Session;
use crate::error::Result;
use crate::format::{FileEntry, FilePath, TaskManifest};
use crate::lifecycle::Base;
use crate::types::{Digest, Name, Uid};

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
    /// Uids of aborted bases, whose uploads are found by HEAD.
    pub aborted: Vec<Uid>,
}

impl BaseIndex {
    /// Loads what the bases stored for this subtask; where a base does not know it (a rescaled or renamed job), for all its subtasks.
    ///
    /// # Errors
    /// When a manifest cannot be read or believed.
    pub fn load(session: &Session, bases: &[Base], operator: &Name, subtask: u32) -> Result<Self> {
        let mut index = Self {
            store: session.store_id,
            manifests: Vec::new(),
            by_digest: HashMap::new(),
            by_path: HashMap::new(),
            aborted: Vec::new(),
        };
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
                let task = session.cache.task_manifest(&session.store, &base.of.job, base.of.number, entry)?;
                index.add(task);
            }
        }
        Ok(index)
    }

    fn add(&mut self, task: Arc<TaskManifest>) {
        let manifest = self.manifests.len();
        for (file, entry) in task.files.iter().enumerate() {
            let at = BaseFile { manifest, file };
            self.by_digest.entry((entry.digest, entry.size)).or_insert(at);
            self.by_path.entry(entry.path.clone()).or_insert(at);
        }
        self.manifests.push(task);
    }

    /// A base's file with this content.
    #[must_use]
    pub fn by_digest(&self, digest: &Digest, size: u64) -> Option<BaseFile> {
        self.by_digest.get(&(*digest, size)).copied()
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
