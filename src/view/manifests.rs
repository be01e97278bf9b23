//! Task manifests in memory: the ones used last, within a bound. A mount shows thousands of checkpoints with millions of files, and a file's
//! name, digest and size are enough for all but opening it; the rest is read again where it is asked for, from the cache as a rule.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use super::Core;
use super::error::ViewError;
use super::node::Task;
use crate::format::TaskManifest;
use crate::limits;
use crate::types::Digest;
use crate::types::sync::{Mutex, MutexGuard};

/// The last used is last.
#[derive(Default)]
pub(super) struct Manifests(Mutex<VecDeque<(Digest, Arc<TaskManifest>)>>);

impl Manifests {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Digest, Arc<TaskManifest>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The manifest of this digest, if it is in memory.
    fn get(&self, digest: &Digest) -> Option<Arc<TaskManifest>> {
        let mut held = self.lock();
        let at = held.iter().position(|(d, _)| d == digest)?;
        let found = held.remove(at)?;
        let manifest = found.1.clone();
        held.push_back(found);
        Some(manifest)
    }

    /// Keeps one, and lets the oldest go. The newest stays, however large it is.
    pub(super) fn keep(&self, digest: Digest, manifest: &Arc<TaskManifest>) {
        let mut held = self.lock();
        held.retain(|(d, _)| *d != digest);
        held.push_back((digest, manifest.clone()));
        let mut files: usize = held.iter().map(|(_, m)| m.files.len()).sum();
        while (files > limits::VIEW_MANIFEST_FILES || held.len() > limits::VIEW_MANIFESTS) && held.len() > 1 {
            files -= held.pop_front().map_or(0, |(_, m)| m.files.len());
        }
    }
}

impl Core {
    /// What a subtask stored, if that is in memory. Never waits.
    pub(super) fn known_manifest(&self, task: &Task) -> Option<Arc<TaskManifest>> {
        self.manifests.get(&task.listed()?.manifest)
    }

    /// What a subtask stored. May ask the store.
    pub(super) fn manifest(&self, task: &Task) -> Result<Arc<TaskManifest>, ViewError> {
        if let Some(known) = self.known_manifest(task) {
            return Ok(known);
        }
        let listed = task.listed().ok_or(ViewError::Stale)?;
        let manifest = self.source.task(&task.checkpoint.job, task.checkpoint.number, listed)?;
        self.manifests.keep(listed.manifest, &manifest);
        Ok(manifest)
    }
}
