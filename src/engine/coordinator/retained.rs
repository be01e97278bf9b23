//! Which completed checkpoints stay: the newest N, and at least one that is no savepoint.

use std::collections::VecDeque;

use super::message::TriggerKind;
use crate::types::CheckpointNumber;

/// Which completed checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Which {
    /// The checkpoint of another job that this one was restored from and may expire.
    Restored,
    /// One of this job.
    Own(CheckpointNumber),
}

/// A completed checkpoint that policy may expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Held {
    /// Which one.
    pub which: Which,
    /// What it is. A savepoint stands here only when the job was restored from it and claims it.
    pub kind: TriggerKind,
}

/// Whether `next` may go: never the latest; else a savepoint may, anything may once the latest is the savepoint that the job ended with,
/// and of the others all but the latest one that is no savepoint.
#[must_use]
pub fn can_subsume(next: &Held, latest: &Held, latest_checkpoint: Option<&Held>) -> bool {
    next != latest
        && (next.kind.is_savepoint()
            || matches!(latest.kind, TriggerKind::Savepoint { stop: true })
            || Some(next) != latest_checkpoint)
}

/// Completed checkpoints that policy may expire, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Retained(VecDeque<Held>);

impl Retained {
    /// Takes one in; one that is there already is not taken twice. Own ones stand by number, whatever the order they completed in.
    pub fn add(&mut self, held: Held) {
        let at = self.0.partition_point(|h| h.which < held.which);
        if self.0.get(at).is_none_or(|h| h.which != held.which) {
            self.0.insert(at, held);
        }
    }

    /// Takes the oldest ones out until no more than `keep` stay, as far as they may go.
    pub fn subsume(&mut self, keep: usize) -> Vec<Held> {
        let Some(latest) = self.0.back().copied() else { return Vec::new() };
        let latest_checkpoint = self.0.iter().rev().find(|h| !h.kind.is_savepoint()).copied();
        let mut surplus = self.0.len().saturating_sub(keep);
        let mut gone = Vec::new();
        self.0.retain(|next| {
            let goes = surplus > 0 && can_subsume(next, &latest, latest_checkpoint.as_ref());
            if goes {
                surplus -= 1;
                gone.push(*next);
            }
            !goes
        });
        gone
    }

    /// Takes all out.
    pub fn take(&mut self) -> Vec<Held> {
        std::mem::take(&mut self.0).into()
    }

    /// Those that stay, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Held> {
        self.0.iter()
    }
}
