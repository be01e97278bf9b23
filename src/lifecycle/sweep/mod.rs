//! Sweep: delete the blobs that nothing needs. Nothing else deletes a blob.
//!
//! The order of its looks is the safety, and each of these rules lost data in the search when it was left out:
//!
//! 1. the blobs are listed **first**: one that is uploaded later is not in the list, and is not touched;
//! 2. **then** it is decided what is dead: the tombstones are listed;
//! 3. **then** it is looked again who needs something: pins, then intents, then outcomes, each list over all jobs and ended before the
//!    next begins. Whoever creates a record looks for the tombstone afterwards, so that either the sweep sees the record, or its
//!    creator sees the tombstone.
//!
//! What cannot be read ends the sweep with nothing deleted.

mod execute;
mod foreign;
mod keep;
mod plan;

use std::collections::{BTreeMap, BTreeSet};

pub use execute::{Execute, Swept};
pub use foreign::StillThere;
pub use plan::Plan;

use super::pin::PinRef;
use super::survey::Floors;
use crate::types::{BlobName, CheckpointNumber, Name, Uid};

/// A number of a job.
pub type At = (Name, CheckpointNumber);

/// What a sweep may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SweepOptions {
    /// Also when there are blobs and not a single record.
    pub without_records: bool,
}

/// Why blobs are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fate {
    /// Its checkpoint is expired.
    Expired,
    /// Uploaded for a completed checkpoint that does not name it: an upload was given up or done twice.
    Unnamed,
    /// Its number is forgotten: a floor lists its uid.
    Forgotten,
}

/// Blobs of one uploader that go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Doomed {
    /// The uploader's number, where it is still known.
    pub at: Option<At>,
    /// Why.
    pub fate: Fate,
    /// Number of blobs.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A dead checkpoint that lives on for its pins, and what it keeps that nothing else does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Held {
    /// The checkpoint.
    pub at: At,
    /// Its pins.
    pub pins: Vec<PinRef>,
    /// Number of blobs.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a sweep found, and will do.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SweepPlan {
    /// Blobs that go.
    pub doomed: Vec<(BlobName, u64)>,
    /// The same by uploader.
    pub why: BTreeMap<Uid, Doomed>,
    /// Blobs that stay.
    pub kept_blobs: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Dead checkpoints that are pinned.
    pub held: Vec<Held>,
    /// Blobs of uploaders that no record knows.
    pub foreign: Vec<(BlobName, u64)>,
    /// What each job's next floor is made from.
    pub jobs: BTreeMap<Name, Numbers>,
}

impl SweepPlan {
    /// Bytes that go.
    #[must_use]
    pub fn doomed_bytes(&self) -> u64 {
        self.doomed.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// Bytes of foreign blobs.
    #[must_use]
    pub fn foreign_bytes(&self) -> u64 {
        self.foreign.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }
}

/// A job's numbers, as a sweep saw them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Numbers {
    /// Numbers with an intent or an outcome.
    pub begun: BTreeSet<CheckpointNumber>,
    /// Dead ones.
    pub dead: BTreeSet<CheckpointNumber>,
    /// Those that somebody needs: pinned, open, or a base of an open one.
    pub needed: BTreeSet<CheckpointNumber>,
    /// Uids of dead ones, where they were learned.
    pub uids: BTreeMap<CheckpointNumber, Uid>,
    /// Uids of dead ones that still have blobs, which others keep.
    pub uids_with_blobs: BTreeSet<Uid>,
    /// Floors that are there.
    pub floors: Floors,
}

/// Names of blobs. In order, so that machines in the same state print the same: the search tells states apart by that.
type Names = BTreeSet<BlobName>;
