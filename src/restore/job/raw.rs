//! Raw state: what an operator wrote as it pleased. Keyed by key group, or in partitions.

use std::sync::Arc;

use super::assign::range_of;
use super::states::{self, OldTask};
use crate::cache::Session;
use crate::error::Result;
use crate::lifecycle::Checkpoint;
use crate::limits;
use crate::state::operator::share;
use crate::types::Name;

/// One piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawPart {
    /// Its key group; its number among the partitions that this subtask is given.
    pub number: u32,
    /// What was written.
    pub bytes: Vec<u8>,
}

/// The raw keyed state of a new subtask's key groups, in their order.
///
/// # Errors
/// When the parallelism does not fit, or bytes cannot be had or are not what they should be.
pub fn restore_raw_keyed(
    session: &Session,
    checkpoint: &Checkpoint,
    operator: &Name,
    index: u32,
    parallelism: u32,
    max_parallelism: u32,
) -> Result<Vec<RawPart>> {
    let mine = range_of(max_parallelism, parallelism, index)?;
    let mut parts = Vec::new();
    for task in states::tasks(session, checkpoint, operator)? {
        for (group, file) in task.numbered("raw-keyed/") {
            if mine.contains(group) {
                parts.push(RawPart { number: group, bytes: states::read(session, &task.manifest, file)? });
            }
        }
    }
    parts.sort_by_key(|p| p.number);
    Ok(parts)
}

/// The raw operator state of a new subtask: its own partitions where the parallelism is the same, else its run of
/// all, dealt out as lists of operator state are.
///
/// # Errors
/// As [`restore_raw_keyed`].
pub fn restore_raw_operator(
    session: &Session,
    checkpoint: &Checkpoint,
    operator: &Name,
    index: u32,
    parallelism: u32,
) -> Result<Vec<RawPart>> {
    let tasks = states::tasks(session, checkpoint, operator)?;
    let old: Vec<Vec<_>> = tasks
        .iter()
        .map(|t: &OldTask| {
            t.numbered("raw-operator/").map(|(_, file)| (Arc::clone(&t.manifest), file.clone())).collect()
        })
        .collect();
    range_of(limits::PARALLELISM, parallelism, index)?;
    let mine: Vec<_> = if u32::try_from(old.len()) == Ok(parallelism) {
        old.into_iter().skip(index as usize).take(1).flatten().collect()
    } else {
        let all: Vec<_> = old.into_iter().flatten().collect();
        let run = share(all.len(), parallelism, index, &mut 0);
        all.into_iter().skip(run.start).take(run.len()).collect()
    };
    let parts = (0..)
        .zip(mine)
        .map(|(number, (manifest, file))| Ok(RawPart { number, bytes: states::read(session, &manifest, &file)? }));
    parts.collect()
}
