//! The real source: a store's catalog and the local cache.

use std::fs::File;
use std::sync::{Arc, OnceLock};

use dashmap::DashSet;

use super::View;
use super::error::ViewError;
use super::source::{Free, Listed, Listing, OnWhole, Parts, Source};
use crate::cache::{Cache, CacheError, LazyFile, Session};
use crate::error::Kind;
use crate::format::records::{PinHolder, PinRecord};
use crate::format::{FileEntry, SubtaskEntry, TaskManifest};
use crate::lifecycle::pin::{Pin, Unpin};
use crate::lifecycle::{self, Catalog, Checkpoint, LifecycleError, PinRef, driver};
use crate::local::process;
use crate::types::now_ms;
use crate::types::{CheckpointNumber, Digest, Name, Uid};

struct Live {
    catalog: Catalog,
    cache: Cache,
    /// The store's id at the first listing. Another one later is another store in the same place: its numbers mean other checkpoints.
    store: OnceLock<Option<Uid>>,
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

impl Live {
    /// The store is there and still the one that was mounted.
    fn same_store(&self) -> Result<(), ViewError> {
        let store = self.catalog.store();
        let now = match lifecycle::identify(store) {
            Ok(identity) => Some(identity.id),
            Err(LifecycleError::NotAStore { .. }) => None,
            Err(e) => return Err(e.into()),
        };
        if *self.store.get_or_init(|| now) == now {
            return Ok(());
        }
        let why =
            format!("{}: the store that is mounted is gone, or another one took its place; mount it anew", store.url());
        Err(ViewError::from_kind(Kind::Conflict, false, why))
    }
}

impl Live {
    /// Says once that a checkpoint is there and cannot be believed.
    fn not_shown(&self, job: &Name, number: CheckpointNumber, why: &dyn std::fmt::Display) {
        if self.said.insert((job.clone(), number)) {
            log::error!("{job}/{number} is not shown, since its outcome cannot be believed: {why}");
        }
    }
}

impl From<Checkpoint> for Listed {
    fn from(c: Checkpoint) -> Self {
        Self { manifest: c.manifest, hidden: c.hidden, expired: c.expired, pinned: c.pinned }
    }
}

/// A file of the cache that is not all here.
struct Lazy(Arc<LazyFile>);

impl Parts for Lazy {
    fn try_read(&self, offset: u64, buffer: &mut [u8]) -> Option<Result<(), ViewError>> {
        self.0.try_read(offset, buffer).map(|read| Ok(read?))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ViewError> {
        Ok(self.0.read(offset, buffer)?)
    }

    fn ahead(&self, offset: u64, length: u64) {
        self.0.ahead(offset, length);
    }
}

impl Source for Live {
    fn store_id(&self) -> Option<Uid> {
        self.store.get().copied().flatten()
    }

    fn jobs(&self) -> Result<Vec<Name>, ViewError> {
        self.same_store()?;
        Ok(self.catalog.jobs()?)
    }

    fn job(&self, job: &Name) -> Result<Listing, ViewError> {
        self.same_store()?;
        let listed = self.catalog.job(job)?;
        for (number, why) in &listed.unreadable {
            self.not_shown(job, *number, why);
        }
        let latest = listed.latest().map(|c| c.number);
        let checkpoints = listed.checkpoints.into_iter().map(|(n, c)| (n, c.into())).collect();
        Ok(Listing { checkpoints, latest })
    }

    fn checkpoint(&self, job: &Name, number: CheckpointNumber) -> Result<Option<Listed>, ViewError> {
        self.same_store()?;
        match self.catalog.checkpoint(job, number) {
            Ok(found) => Ok(Some(found.into())),
            Err(LifecycleError::NoSuchCheckpoint { .. }) => Ok(None),
            Err(e) if e.is_bad_record() => {
                self.not_shown(job, number, &e);
                Ok(None)
            }
            Err(e) => Err(e.into()),
        }
    }

    fn task(&self, job: &Name, n: CheckpointNumber, entry: &SubtaskEntry) -> Result<Arc<TaskManifest>, ViewError> {
        Ok(self.cache.task_manifest(self.catalog.store(), job, n, entry)?)
    }

    fn open_local(&self, digest: &Digest, size: u64) -> Result<Option<File>, ViewError> {
        Ok(self.cache.open_complete(digest, size)?)
    }

    fn is_local(&self, digest: &Digest, size: u64) -> bool {
        self.cache.has(digest, size).unwrap_or_else(|e| {
            log::debug!("cannot look for {digest} in the cache: {e}");
            false
        })
    }

    fn fetch(&self, task: &TaskManifest, file: &FileEntry) -> Result<File, ViewError> {
        Ok(self.cache.fetch_to_read(self.catalog.store(), task, file)?)
    }

    fn open_parts(
        &self,
        task: &Arc<TaskManifest>,
        file: &FileEntry,
        on_whole: OnWhole,
    ) -> Result<Option<Arc<dyn Parts>>, ViewError> {
        let lazy = self.cache.open_lazy(self.catalog.store(), task, file, on_whole)?;
        Ok(lazy.map(|lazy| Arc::new(Lazy(lazy)) as _))
    }

    fn prepare(&self, task: &TaskManifest) -> Result<(), ViewError> {
        Ok(self.cache.fetch_bundles(self.catalog.store(), task)?)
    }

    fn pin(&self, job: &Name, number: CheckpointNumber) -> Result<Option<PinRef>, ViewError> {
        self.same_store()?;
        let store = self.catalog.store();
        lifecycle::identify(store)?.writable()?;
        let random = |e: std::io::Error| ViewError::from_kind(Kind::Other, false, format!("no randomness: {e}"));
        let nonce = Uid::random().map_err(random)?;
        let pin = PinRef { job: job.clone(), number, holder: self.cache.id(), nonce };
        let holder = PinHolder::Mount { host: process::hostname() };
        driver::run(store, Pin::new(pin.clone(), holder, now_ms()))?;
        Ok(Some(pin))
    }

    fn unpin(&self, pin: &PinRef) -> Result<(), ViewError> {
        self.same_store()?;
        Ok(driver::run(self.catalog.store(), Unpin::new(vec![pin.clone()]))?)
    }

    fn own_pins(&self) -> Result<Vec<PinRef>, ViewError> {
        self.same_store()?;
        let pins = self.catalog.pins(None)?;
        let own = |(pin, record): &(PinRef, Option<PinRecord>)| {
            // A cache's clones and writers pin under its id as well.
            pin.holder == self.cache.id() && matches!(record, Some(r) if matches!(r.holder, PinHolder::Mount { .. }))
        };
        Ok(pins.into_iter().filter(own).map(|(pin, _)| pin).collect())
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
        Self::new(Live { catalog, cache, store: OnceLock::new(), said: DashSet::new() })
    }

    /// The view of a store that was opened before, with its cache. It says from the first which store it is.
    #[must_use]
    pub fn of_session(session: &Session) -> Self {
        let store = OnceLock::from(Some(session.store_id));
        let (catalog, cache) = (session.catalog.clone(), session.cache.clone());
        Self::new(Live { catalog, cache, store, said: DashSet::new() })
    }
}
