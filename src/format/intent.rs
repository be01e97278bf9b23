//! The intent: a checkpoint's begin, and which decided checkpoints it may take blobs from.

use serde::{Deserialize, Serialize};

use super::header::Record;
use super::labels::Labels;
use super::place::{Place, Role};
use crate::limits;
use crate::types::{CheckpointNumber, Epoch, Name, Uid};

/// Who owns a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckpointKind {
    /// Policy may expire it.
    Checkpoint,
    /// The user owns it: policy never expires it.
    Savepoint,
}

/// A decided checkpoint whose blobs the new one may reuse.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BaseRef {
    /// Its job: another one where this job was restored from a checkpoint of that.
    pub job: Name,
    /// Its number.
    pub number: CheckpointNumber,
    /// Its uid.
    pub uid: Uid,
}

/// An operator whose subtasks must all acknowledge.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExpectedOperator {
    /// Its name.
    pub operator: Name,
    /// Its number of subtasks.
    pub parallelism: u32,
}

/// The body of `intent/<job>/<n>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Intent {
    /// Job, number and uid.
    pub place: Place,
    /// The epoch that the coordinator believes to rule.
    pub epoch: Epoch,
    /// The writer: a cache's id.
    pub writer: Uid,
    /// Decided checkpoints whose blobs may be reused.
    pub bases: Vec<BaseRef>,
    /// Who must acknowledge.
    pub expected: Vec<ExpectedOperator>,
    /// Checkpoint or savepoint.
    pub kind: CheckpointKind,
    /// Begun by the verb `open`: ended only by `complete`, `abort` or a take-over.
    pub detached: bool,
    /// Milliseconds since 1970 by the writer's clock. Told to people; nothing is decided by it.
    pub opened_ms: u64,
    /// A savepoint that the job ends with: tasks that find this intent send nothing after its barrier.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop: bool,
    /// What people wrote on it. Nothing is decided by them.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

impl Record for Intent {
    const WHAT: &'static str = "intent";
    const VERSION: u32 = 1;

    fn place(&self) -> &Place {
        &self.place
    }

    fn check(&self) -> Result<(), String> {
        self.place.check(Role::Intent)?;
        if self.bases.len() > limits::BASES {
            return Err(format!("{} bases, at most {} may be", self.bases.len(), limits::BASES));
        }
        for (i, base) in self.bases.iter().enumerate() {
            if base.uid == self.place.uid || self.bases[..i].iter().any(|b| b.uid == base.uid) {
                return Err(format!("base {} is named twice or is the checkpoint itself", base.number));
            }
        }
        if self.expected.is_empty() || self.expected.len() > limits::OPERATORS {
            return Err(format!("{} expected operators (1 to {} may be)", self.expected.len(), limits::OPERATORS));
        }
        if self.stop && self.kind != CheckpointKind::Savepoint {
            return Err("only a savepoint can end a job".to_owned());
        }
        self.labels.check()?;
        let mut subtasks = 0usize;
        let mut seen = std::collections::HashSet::new();
        for e in &self.expected {
            if !seen.insert(&e.operator) {
                return Err(format!("operator {} is expected twice", e.operator));
            }
            if e.parallelism == 0 || e.parallelism > limits::PARALLELISM {
                return Err(format!("operator {} has parallelism {}", e.operator, e.parallelism));
            }
            subtasks = subtasks.saturating_add(e.parallelism as usize);
        }
        if subtasks > limits::SUBTASKS {
            return Err(format!("{subtasks} subtasks, at most {} may be", limits::SUBTASKS));
        }
        Ok(())
    }
}
