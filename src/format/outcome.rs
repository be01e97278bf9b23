//! The outcome: a checkpoint's end, decided once. Completed carries the checkpoint manifest, the commit record.

use serde::{Deserialize, Serialize};

use super::header::Record;
use super::intent::{BaseRef, CheckpointKind};
use super::labels::Labels;
use super::phases::Longest;
use super::place::{Place, Role};
use crate::limits;
use crate::types::{Digest, Epoch, Name, Uid};

/// The body of `outcome/<job>/<n>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Job, number and uid.
    pub place: Place,
    /// What was decided.
    pub verdict: Verdict,
}

/// What was decided about a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Published.
    Completed(CheckpointManifest),
    /// Given up.
    Aborted {
        /// Why, for people.
        reason: String,
    },
}

/// The checkpoint manifest: what a completed checkpoint consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointManifest {
    /// Checkpoint or savepoint.
    pub kind: CheckpointKind,
    /// The epoch that it was opened in.
    pub epoch: Epoch,
    /// The writer that opened it.
    pub writer: Uid,
    /// The bases of its intent.
    pub bases: Vec<BaseRef>,
    /// One entry per subtask, by operator and subtask.
    pub subtasks: Vec<SubtaskEntry>,
    /// Bytes that its directories hold.
    pub logical_bytes: u64,
    /// Bytes that it uploaded.
    pub new_bytes: u64,
    /// Files in all its directories.
    pub files: u64,
    /// Milliseconds since 1970 by the coordinator's clock at its begin and end. Told to people; nothing is decided by them.
    pub opened_ms: u64,
    /// See `opened_ms`.
    pub completed_ms: u64,
    /// The labels of its intent.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// How long its subtasks took. Told to people; nothing is decided by it.
    #[serde(default, skip_serializing_if = "Longest::is_empty")]
    pub phases: Longest,
}

/// A subtask's line in the checkpoint manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubtaskEntry {
    /// The operator's name.
    pub operator: Name,
    /// The operator's name as its author wrote it.
    pub display_name: String,
    /// Index of the subtask.
    pub subtask: u32,
    /// Digest of the whole task manifest object, header included.
    pub manifest: Digest,
    /// Length of the whole task manifest object in bytes.
    pub manifest_length: u64,
    /// Bytes that its directory holds.
    pub logical_bytes: u64,
    /// Bytes that it uploaded.
    pub new_bytes: u64,
    /// Files in its directory.
    pub files: u64,
}

impl Record for Outcome {
    const WHAT: &'static str = "outcome";
    const VERSION: u32 = 1;

    fn place(&self) -> &Place {
        &self.place
    }

    fn check(&self) -> Result<(), String> {
        self.place.check(Role::Outcome)?;
        match &self.verdict {
            Verdict::Completed(manifest) => manifest.check(),
            Verdict::Aborted { reason } if reason.len() > limits::PROPERTY_LEN => {
                Err("the reason is too long".to_owned())
            }
            Verdict::Aborted { .. } => Ok(()),
        }
    }
}

impl CheckpointManifest {
    fn check(&self) -> Result<(), String> {
        if self.subtasks.is_empty() || self.subtasks.len() > limits::SUBTASKS {
            return Err(format!("{} subtasks (1 to {} may be)", self.subtasks.len(), limits::SUBTASKS));
        }
        if self.bases.len() > limits::BASES {
            return Err(format!("{} bases, at most {} may be", self.bases.len(), limits::BASES));
        }
        self.labels.check()?;
        self.phases.check()?;
        let (mut logical, mut new, mut files) = (0u64, 0u64, 0u64);
        let mut last: Option<(&Name, u32)> = None;
        for s in &self.subtasks {
            let this = (&s.operator, s.subtask);
            if last.is_some_and(|l| l >= this) {
                return Err(format!("subtask {}/{} is out of order or named twice", s.operator, s.subtask));
            }
            last = Some(this);
            if s.display_name.len() > limits::DISPLAY_NAME_LEN || s.subtask >= limits::PARALLELISM {
                return Err(format!("subtask {}/{} is out of bounds", s.operator, s.subtask));
            }
            if s.manifest_length > limits::METADATA_LEN {
                return Err(format!("the task manifest of {}/{} is too large", s.operator, s.subtask));
            }
            // What a task manifest itself may say.
            if s.logical_bytes.max(s.new_bytes) > limits::TASK_BYTES || s.files > limits::FILES_PER_TASK as u64 {
                return Err(format!("the sizes of {}/{} are out of bounds", s.operator, s.subtask));
            }
            let add = |a: u64, b: u64| a.checked_add(b).ok_or_else(|| "its sums do not fit 64 bits".to_owned());
            logical = add(logical, s.logical_bytes)?;
            new = add(new, s.new_bytes)?;
            files = add(files, s.files)?;
        }
        if (logical, new, files) != (self.logical_bytes, self.new_bytes, self.files) {
            return Err("its sums are not those of its subtasks".to_owned());
        }
        Ok(())
    }
}
