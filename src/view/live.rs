//! The real source: a store's catalog and the local cache.

use std::fs::File;
use std::sync::Arc;

use dashmap::DashSet;

use super::View;
use super::error::ViewError;
use super::source::{Free, Listed, Listing, Source};
use crate::cache::{Cache, CacheError};
use crate::format::{FileEntry, SubtaskEntry, TaskManifest};
use crate::lifecycle::{Catalog, LifecycleError};
use crate::local::process;
use crate::types::{CheckpointNumber, Digest, Name};

struct Live {
    catalog: Catalog,
    cache: Cache,
    /// Checkpoints whose record cannot be believed, once said.
    said: DashSet<(Name, CheckpointNumber)>,
}

impl From<LifecycleError> for ViewError {
    fn from(e: LifecycleError) -> Self {
        Self::from_kind(e.kind(), false, e.to_string())
    }
}

impl From<CacheError> for ViewError {
    fn from(e: CacheError) -> Self {
        Self::from_kind(e.kind(), e.is_no_space(), e.to_string())
    }
}

impl Source for Live {
    fn jobs(&self) -> Result<Vec<Name>, ViewError> {
        Ok(self.catalog.jobs()?)
    }

    fn job(&self, job: &Name) -> Result<Listing, ViewError> {
        let listed = self.catalog.job(job)?;
        for (number, why) in &listed.unreadable {
            if self.said.insert((job.clone(), *number)) {
                log::error!("{job}/{number} is not shown, since its outcome cannot be believed: {why}");
            }
        }
        let latest = listed.latest().map(|c| c.number);
        let checkpoints = listed
            .checkpoints
            .into_iter()
            .map(|(n, c)| (n, Listed { manifest: c.manifest, hidden: c.hidden, expired: c.expired }))
            .collect();
        Ok(Listing { checkpoints, latest })
    }

    fn task(&self, job: &Name, n: CheckpointNumber, entry: &SubtaskEntry) -> Result<Arc<TaskManifest>, ViewError> {
        Ok(self.cache.task_manifest(self.catalog.store(), job, n, entry)?)
    }

    fn open_local(&self, digest: &Digest, size: u64) -> Result<Option<File>, ViewError> {
        Ok(self.cache.open_complete(digest, size)?)
    }

    fn fetch(&self, task: &TaskManifest, file: &FileEntry) -> Result<File, ViewError> {
        Ok(self.cache.fetch_file(self.catalog.store(), task, file)?)
    }

    fn free(&self) -> Free {
        match process::statvfs(self.cache.path()) {
            Ok(room) => Free { available: room.available },
            Err(e) => {
                log::debug!("{e}");
                Free::default()
            }
        }
    }
}

impl View {
    /// The view of a store, with files in this cache. The catalog may be shared.
    #[must_use]
    pub fn of_store(catalog: Catalog, cache: Cache) -> Self {
        Self::new(Live { catalog, cache, said: DashSet::new() })
    }
}
