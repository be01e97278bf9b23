//! The snapshot engine: what a task does for a checkpoint.
//!
//! [`scan`] looks at the directory, [`plan`] decides per file what the bases have already, [`transfer`] hashes, links and uploads the rest,
//! [`pack`] builds the bundle, and [`snapshot`] strings them together between open and complete. [`life`] and [`gc`] are what comes
//! after: hide, expire, pin, and the sweep. [`coordinator`] begins and ends the checkpoints of a job. [`import`] and [`copy`] bring checkpoints from
//! elsewhere.

pub mod ahead;
pub mod base;
pub mod budget;
pub mod cancel;
pub mod coordinator;
pub mod copied;
pub mod copy;
pub mod foreign;
mod foreign_db;
pub mod gc;
pub mod import;
pub mod input;
pub mod life;
pub mod link;
mod numbered;
pub mod origin;
pub mod pack;
mod phased;
pub mod plan;
pub mod scan;
pub mod snapshot;
#[cfg(feature = "rocksdb")]
pub mod task;
pub mod transfer;
pub mod upload;

pub use crate::cache::session::{Session, SessionOptions};
pub use crate::types::progress::{Progress, Silent};
pub use snapshot::{
    SnapshotReport, SnapshotRequest, abort, acknowledge, complete, open, snapshot_directory, snapshot_scanned,
};
