//! The snapshot engine: what a task does for a checkpoint.
//!
//! [`scan`] looks at the directory, [`plan`] decides per file what the bases have already, [`transfer`] hashes, links and uploads the rest,
//! [`pack`] builds the bundle, and [`snapshot`] strings them together between open and complete.

pub mod ahead;
pub mod base;
pub mod budget;
pub mod pack;
pub mod plan;
pub mod scan;
pub mod session;
pub mod snapshot;
pub mod transfer;

pub use session::{Session, SessionOptions};
pub use snapshot::{
    SnapshotReport, SnapshotRequest, abort, acknowledge, complete, open, snapshot_directory, snapshot_scanned,
};

/// Who wants to know how a snapshot or a restore goes on. Called from several threads.
pub trait Progress: Sync {
    /// So many files and bytes lie ahead.
    fn plan(&self, _files: u64, _bytes: u64) {}
    /// A phase begins.
    fn phase(&self, _name: &str) {}
    /// So many bytes are done.
    fn advance(&self, _bytes: u64) {}
}

/// Tells nobody.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {}
