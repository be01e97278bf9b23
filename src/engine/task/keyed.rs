//! The snapshot of a keyed state backend: incremental, by RocksDB's own checkpoint.
//!
//! Sync phase: what is not written yet is, a directory is prepared, the states' descriptors are fixed, and RocksDB hard-links its SSTs. The base was
//! fixed when the checkpoint was opened: its intent names it, and while that is open no sweep takes it away. So nothing needs to
//! be confirmed to a task, and a lost notification costs nothing.
//!
//! Async phase: the descriptors in full, new SSTs, the small files: see [`crate::engine::upload`].

use std::path::PathBuf;
use std::sync::Arc;

use super::directory::SnapshotDirectory;
use super::environment::OpenCheckpoint;
use super::futures::{KeyedPart, Shared, StoredKeyed};
use super::runner::{self, Ready, Registry, Resources};
use crate::engine::scan::scan;
use crate::engine::upload::upload_directory;
use crate::error::{Error, Result};
use crate::state::keyed::{KeyedDescriptor, KeyedState};
use crate::types::Name;
use crate::types::progress::Silent;

/// What the sync phase leaves to the async phase.
#[derive(Debug)]
struct Prepared {
    directory: Arc<SnapshotDirectory>,
    descriptor: KeyedDescriptor,
    /// The directory goes on with the result.
    handed_over: bool,
}

impl Resources for Prepared {
    fn release(&mut self) -> Result<()> {
        if self.handed_over { Ok(()) } else { self.directory.clean_up() }
    }
}

/// The sync phase. A backend without a single state has nothing to snapshot, and nothing is written.
///
/// # Errors
/// When the disk refuses, or the backend is closed. Nothing is left behind then.
pub(super) fn snapshot(
    keyed: &mut dyn KeyedState,
    operator: &Name,
    checkpoint: &Arc<OpenCheckpoint>,
    registry: &Registry,
) -> Result<Shared<KeyedPart>> {
    keyed.flush().map_err(Error::from)?;
    if keyed.is_empty() {
        return Ok(Ready::new(KeyedPart::default()));
    }
    let (path, permanent) = place(checkpoint, operator);
    let directory = Arc::new(SnapshotDirectory::prepare(path, permanent)?);
    let descriptor = keyed.descriptor();
    if let Err(e) = keyed.checkpoint(directory.path()) {
        let mut failure = super::failure::Failure::new(e.into());
        if let Err(later) = directory.clean_up() {
            failure.suppress(later);
        }
        return Err(failure.into_error("RocksDB's checkpoint failed"));
    }
    let prepared = Prepared { directory, descriptor, handed_over: false };
    let (checkpoint, operator) = (Arc::clone(checkpoint), operator.clone());
    let what = format!("snapshot of the keyed state of {operator}");
    let future = runner::run(&what, registry, prepared, move |prepared, cancel| {
        let base = checkpoint.base(&operator)?;
        let scanned = scan(prepared.directory.path())?;
        let session = &checkpoint.environment().session;
        let uploaded = upload_directory(session, scanned, base, checkpoint.uid, cancel, &Silent)?;
        prepared.handed_over = true;
        let (descriptor, directory) = (prepared.descriptor.clone(), Arc::clone(&prepared.directory));
        Ok(KeyedPart(Some(StoredKeyed { uploaded, descriptor, directory })))
    })?;
    Ok(future)
}

/// Where the directory is made, and whether it stays. A savepoint is not for recovery on this host.
fn place(checkpoint: &OpenCheckpoint, operator: &Name) -> (PathBuf, bool) {
    let environment = checkpoint.environment();
    match &environment.local {
        Some(local) if !checkpoint.kind.is_savepoint() => (local.directory(checkpoint.number, operator), true),
        _ => {
            let name = format!("{}-{operator}-{}", checkpoint.number, environment.subtask);
            (environment.scratch.join(name), false)
        }
    }
}
