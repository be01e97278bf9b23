//! What the view needs from below: listings, task manifests, files. The real one stands in [`super::live`]; tests have one in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use super::error::ViewError;
use crate::format::{CheckpointManifest, FileEntry, SubtaskEntry, TaskManifest};
use crate::lifecycle::PinRef;
use crate::types::{CheckpointNumber, Digest, Name, Uid};

/// A completed checkpoint, as a listing found it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The commit record.
    pub manifest: Arc<CheckpointManifest>,
    /// Out of the view, but found by name.
    pub hidden: bool,
    /// Dead for ever.
    pub expired: bool,
    /// Somebody pins it: found by its name although it is dead.
    pub pinned: bool,
}

/// The completed checkpoints of a job that are not gone.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// By number.
    pub checkpoints: BTreeMap<CheckpointNumber, Listed>,
    /// What `latest` points to.
    pub latest: Option<CheckpointNumber>,
}

/// Space on the disk that fetched files go to, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Free {
    /// What we may still write.
    pub available: u64,
}

/// A file that is read before all of it is local.
pub trait Parts: Send + Sync {
    /// Fills the buffer, if what it takes is local and verified. Never asks the store. Nothing: it is not.
    ///
    /// # Errors
    /// When the local disk fails.
    fn try_read(&self, offset: u64, buffer: &mut [u8]) -> Option<Result<(), ViewError>>;

    /// Fills the buffer with verified bytes. May wait for the store.
    ///
    /// # Errors
    /// When the store does not answer, or its bytes are damaged.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ViewError>;

    /// Has bytes brought that will be read soon. Never waits.
    fn ahead(&self, offset: u64, length: u64);
}

/// Called once a file that was opened in parts is local as a whole.
pub type OnWhole = Box<dyn Fn() + Send + Sync>;

/// Where checkpoints and their files come from.
pub trait Source: Send + Sync + 'static {
    /// The store's id, where it is known. Never asks the store.
    fn store_id(&self) -> Option<Uid> {
        None
    }

    /// The jobs that the store has now. Asks the store.
    ///
    /// # Errors
    /// When the store does not answer.
    fn jobs(&self) -> Result<Vec<Name>, ViewError>;

    /// A job's checkpoints now. Asks the store.
    ///
    /// # Errors
    /// When the store does not answer.
    fn job(&self, job: &Name) -> Result<Listing, ViewError>;

    /// One checkpoint now. Nothing where there is none, or its record cannot be believed. Asks the store.
    ///
    /// # Errors
    /// When the store does not answer.
    fn checkpoint(&self, job: &Name, number: CheckpointNumber) -> Result<Option<Listed>, ViewError> {
        Ok(self.job(job)?.checkpoints.remove(&number))
    }

    /// What a subtask stored. May ask the store.
    ///
    /// # Errors
    /// When the store does not answer, or the manifest is damaged.
    fn task(&self, job: &Name, n: CheckpointNumber, entry: &SubtaskEntry) -> Result<Arc<TaskManifest>, ViewError>;

    /// A file that is local, whole and verified. Never asks the store.
    ///
    /// # Errors
    /// When the local disk fails.
    fn open_local(&self, digest: &Digest, size: u64) -> Result<Option<File>, ViewError>;

    /// Whether a file is local, whole and verified. Never asks the store.
    fn is_local(&self, digest: &Digest, size: u64) -> bool {
        matches!(self.open_local(digest, size), Ok(Some(_)))
    }

    /// A file, fetched whole and verified where it is not local yet.
    ///
    /// # Errors
    /// When the store does not answer, its bytes are damaged, or the disk is full.
    fn fetch(&self, task: &TaskManifest, file: &FileEntry) -> Result<File, ViewError>;

    /// A file that can be read in parts. Nothing: it must be fetched whole. May ask the store for its hash tree.
    ///
    /// # Errors
    /// As [`Source::fetch`].
    fn open_parts(
        &self,
        task: &Arc<TaskManifest>,
        file: &FileEntry,
        on_whole: OnWhole,
    ) -> Result<Option<Arc<dyn Parts>>, ViewError> {
        let _ = (task, file, on_whole);
        Ok(None)
    }

    /// Brings all small things of a subtask in a few requests: a database will ask for most of them at once.
    ///
    /// # Errors
    /// As [`Source::fetch`].
    fn prepare(&self, task: &TaskManifest) -> Result<(), ViewError> {
        let _ = task;
        Ok(())
    }

    /// Keeps a checkpoint's blobs. Nothing where this source needs no pins.
    ///
    /// # Errors
    /// Of kind [`crate::error::Kind::NotFound`] when it is dead; when the store takes no pin or does not answer.
    fn pin(&self, job: &Name, number: CheckpointNumber) -> Result<Option<PinRef>, ViewError> {
        let _ = (job, number);
        Ok(None)
    }

    /// Ends a pin.
    ///
    /// # Errors
    /// When the store does not answer.
    fn unpin(&self, pin: &PinRef) -> Result<(), ViewError> {
        let _ = pin;
        Ok(())
    }

    /// Pins of this mount's cache that are in the store.
    ///
    /// # Errors
    /// When the store does not answer.
    fn own_pins(&self) -> Result<Vec<PinRef>, ViewError> {
        Ok(Vec::new())
    }

    /// Room on the disk of the cache. Never asks the store.
    fn free(&self) -> Free;
}
