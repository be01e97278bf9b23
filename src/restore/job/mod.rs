//! A job's state from a checkpoint: for every new subtask the keyed state of its key groups, its part of the operator state, its raw state.
//!
//! - [`assign`] says which old subtask's state a new one needs. Pure.
//! - [`keyed`] makes the RocksDB directory: as it was where the range is the same, else ([`rescale`]) the best old one, clipped, with the
//!   others' rows added. Its files come ([`bring`]) from a local copy that is whole, as a clone over a mount, or as a verified copy.
//! - [`operator`] and [`raw`] hand out the rest.
//! - [`check`] finds the checkpoint and refuses a job that it does not fit, before anything is made.
//!
//! Nothing of a checkpoint is changed by a restore, and nothing is uploaded again, whoever owns the checkpoint from then on:
//! claiming it is the coordinator's affair (`engine::coordinator::ClaimMode`).

mod assign;
mod bring;
mod check;
mod keyed;
mod local;
mod operator;
mod raw;
mod rescale;
mod scratch;
mod states;

use std::collections::BTreeSet;
use std::path::PathBuf;

pub use assign::{Assigned, OldHandle, assign, range_of};
pub use bring::Way;
pub use check::{JobOperator, OldOperator, check_job, check_operators, find, old_operators};
pub use keyed::{KeyedInPlace, RestoredKeyed, keyed_in_place, restore_keyed};
pub use local::LocalCopy;
pub use operator::restore_operator_state;
pub use raw::{RawPart, restore_raw_keyed, restore_raw_operator};

use crate::state::DatabaseOptions;
use crate::types::Name;

/// How a job is restored.
#[derive(Debug, Clone)]
pub struct RestoreOptions {
    /// The job that will run on it: its snapshots find a clone's checkpoint again.
    pub job: Option<Name>,
    /// A mount of the store: directories are then clones, and other subtasks' are read in place. Nothing: all bytes are fetched.
    pub mount: Option<PathBuf>,
    /// Copies of old subtasks' directories on this host, used as far as they are whole.
    pub local: Vec<LocalCopy>,
    /// Number of key groups of the operator.
    pub max_parallelism: u32,
    /// Operators whose state may be left behind.
    pub allow_missing: BTreeSet<Name>,
    /// How databases are opened while they are rescaled.
    pub database: DatabaseOptions,
}

impl RestoreOptions {
    /// Everything from the store, nothing left behind.
    #[must_use]
    pub fn new(max_parallelism: u32) -> Self {
        Self {
            job: None,
            mount: None,
            local: Vec::new(),
            max_parallelism,
            allow_missing: BTreeSet::new(),
            database: DatabaseOptions::default(),
        }
    }
}

#[cfg(test)]
mod tests;
