//! What a coordinator and its tasks tell each other.

use std::collections::BTreeMap;

use crate::format::phases;
use crate::types::{CheckpointNumber, Name, Uid};

/// What kind of checkpoint is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TriggerKind {
    /// A checkpoint of the policy's, with whatever its bases have.
    Checkpoint,
    /// A checkpoint of the policy's that uses nothing of any base.
    Full,
    /// A checkpoint that the user owns.
    Savepoint {
        /// The job ends with it: no source sends anything after its barrier until it is told of the end.
        stop: bool,
    },
}

impl TriggerKind {
    /// Whether the user owns it.
    #[must_use]
    pub fn is_savepoint(self) -> bool {
        matches!(self, Self::Savepoint { .. })
    }
}

/// A checkpoint begins: its barrier starts at the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Trigger {
    /// Its number.
    pub number: CheckpointNumber,
    /// Its uid, under which tasks upload.
    pub uid: Uid,
    /// Milliseconds since 1970 by the coordinator's clock. Told to operators; nothing is decided by it.
    pub timestamp_ms: u64,
    /// What is wanted.
    pub kind: TriggerKind,
}

/// What became of a checkpoint. A lost notice costs uploads, never state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Notice {
    /// It is published.
    Complete(CheckpointNumber),
    /// It was given up.
    Aborted(CheckpointNumber),
    /// It was published, and newer ones have taken its place.
    Subsumed(CheckpointNumber),
}

impl Notice {
    /// The checkpoint that it is about.
    #[must_use]
    pub fn number(self) -> CheckpointNumber {
        match self {
            Self::Complete(n) | Self::Aborted(n) | Self::Subsumed(n) => n,
        }
    }
}

/// What a task is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// Take a snapshot.
    Trigger(Trigger),
    /// Pass a notice on to the operators.
    Notice(Notice),
    /// End without another word: the job ended, or another coordinator took it over.
    Stop,
}

/// What one operator's snapshot came to, for people and statistics. Nothing is decided by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AckReport {
    /// Bytes that the snapshot holds.
    pub logical_bytes: u64,
    /// Bytes that were uploaded for it.
    pub new_bytes: u64,
    /// Milliseconds from the trigger to the barrier's arrival.
    pub start_delay_ms: u64,
    /// Milliseconds from the first barrier to the last one of all inputs.
    pub alignment_ms: u64,
    /// Milliseconds of the sync phase.
    pub sync_ms: u64,
    /// Milliseconds of the async phase.
    pub async_ms: u64,
}

/// Longest reason in bytes that an outcome or a tombstone is given: enough for an error with its causes. A record may hold more, but
/// is read by every snapshot.
const REASON_LEN: usize = 4096;

/// A reason that fits a record.
pub(super) fn short(reason: &str) -> String {
    let end = (0..=REASON_LEN.min(reason.len())).rev().find(|i| reason.is_char_boundary(*i)).unwrap_or(0);
    reason.get(..end).unwrap_or_default().to_owned()
}

impl AckReport {
    /// The durations as properties of a task manifest, so that a coordinator on another host has them too.
    #[must_use]
    pub fn properties(&self) -> BTreeMap<String, String> {
        let values = [self.start_delay_ms, self.alignment_ms, self.sync_ms, self.async_ms];
        phases::JOB.iter().zip(values).map(|(name, value)| ((*name).to_owned(), value.to_string())).collect()
    }

    /// Reads [`AckReport::properties`] back. What is not there or no number counts as 0.
    #[must_use]
    pub fn from_properties(logical_bytes: u64, new_bytes: u64, properties: &BTreeMap<String, String>) -> Self {
        let [start_delay_ms, alignment_ms, sync_ms, async_ms] =
            phases::JOB.map(|name| properties.get(name).and_then(|text| text.parse().ok()).unwrap_or_default());
        Self { logical_bytes, new_bytes, start_delay_ms, alignment_ms, sync_ms, async_ms }
    }
}

/// What a coordinator is told by or about its tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskEvent {
    /// An operator's snapshot is stored: its task manifest is in the store.
    Acked {
        /// The checkpoint.
        number: CheckpointNumber,
        /// The operator.
        operator: Name,
        /// Its subtask.
        subtask: u32,
        /// What it came to.
        report: AckReport,
    },
    /// A task could not take its snapshot, and goes on.
    Declined {
        /// The checkpoint.
        number: CheckpointNumber,
        /// The operator.
        operator: Name,
        /// Its subtask.
        subtask: u32,
        /// Why, for people.
        reason: String,
    },
    /// Somebody gave a checkpoint up in the store: a task of another process, or a person.
    Aborted {
        /// The checkpoint.
        number: CheckpointNumber,
        /// Why, for people.
        reason: String,
    },
    /// A task died. The job must be restored.
    Failed {
        /// The operator.
        operator: Name,
        /// Its subtask.
        subtask: u32,
        /// Why, for people.
        reason: String,
    },
    /// A task came to the end of its input and will take no more snapshots.
    Finished {
        /// The operator.
        operator: Name,
        /// Its subtask.
        subtask: u32,
    },
}
