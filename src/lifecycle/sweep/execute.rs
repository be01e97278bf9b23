//! Deletes what a plan says. Whatever was doomed stays so, however late this runs: the dead do not come back, and who needed
//! something then was seen.

use super::SweepPlan;
use crate::lifecycle::error::LifecycleError;
use crate::lifecycle::machine::{Machine, Reply, Request, Step, deleted, tri};
use crate::limits;
use crate::types::{BlobName, Key};

/// What was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Swept {
    /// Blobs.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The machine behind `gc --delete`. Interrupted, it is begun anew by the next sweep.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Execute {
    /// From the last to the first.
    left: Vec<(BlobName, u64)>,
    asked: Swept,
    swept: Swept,
}

impl Execute {
    /// A machine that deletes a plan's doomed blobs, and its foreign ones where `foreign` says so.
    #[must_use]
    pub fn new(plan: &SweepPlan, foreign: bool) -> Self {
        let foreign = if foreign { plan.foreign.as_slice() } else { &[] };
        let left = plan.doomed.iter().chain(foreign).rev().copied().collect();
        Self { left, asked: Swept::default(), swept: Swept::default() }
    }
}

impl Machine for Execute {
    type Output = Swept;

    fn step(&mut self, replies: Vec<Reply>) -> Step<Swept> {
        tri!(deleted(&replies));
        self.swept = self.asked;
        let batch = self.left.split_off(self.left.len().saturating_sub(limits::DELETE_BATCH));
        if batch.is_empty() {
            return Step::Done(Ok::<_, LifecycleError>(self.swept));
        }
        let bytes = batch.iter().fold(self.asked.bytes, |sum, (_, n)| sum.saturating_add(*n));
        self.asked = Swept { blobs: self.asked.blobs.saturating_add(batch.len() as u64), bytes };
        Step::Ask(batch.iter().rev().map(|(name, _)| Request::Delete(Key::blob(name))).collect())
    }
}
