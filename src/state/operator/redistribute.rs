//! Who gets which partitions when the parallelism changes. Pure: partitions may be bytes or places.

use std::collections::BTreeMap;
use std::ops::Range;

use super::descriptor::{OperatorStateDescriptor, OperatorStateMode, RestoredOperatorState};
use crate::state::error::StateError;
use crate::types::KeyGroupRange;

/// The operator state of subtask `index` of `new_parallelism`, out of that of all old subtasks.
///
/// - Split: with the same parallelism every subtask keeps its own. Otherwise all partitions, in the order of the old subtasks, are dealt
///   out in runs whose lengths differ by one at most; who gets the longer ones goes on from state to state, as in Flink.
/// - Union: all partitions to everyone.
/// - Broadcast: one old subtask's copy to everyone; the old subtasks take turns.
///
/// # Errors
/// When the index or the parallelism is out of bounds, or old subtasks have a state of the same name that is not the same.
pub fn redistribute<P: Clone>(
    old: &[Vec<RestoredOperatorState<P>>],
    new_parallelism: u32,
    index: u32,
) -> Result<Vec<RestoredOperatorState<P>>, StateError> {
    // Bounds alone: it is the same rule as for key groups.
    KeyGroupRange::of_subtask(crate::limits::PARALLELISM, new_parallelism, index)?;
    let unchanged = old.len() == new_parallelism as usize;
    let mut start = 0;
    let mut mine = Vec::new();
    for (_, copies) in by_name(old)? {
        let Some((_, first)) = copies.first() else { continue };
        let all = || copies.iter().flat_map(|(_, state)| &state.partitions);
        let partitions: Vec<P> = match first.descriptor.mode {
            OperatorStateMode::Union => all().cloned().collect(),
            OperatorStateMode::Split if unchanged => {
                let own = copies.iter().filter(|(subtask, _)| *subtask == index as usize);
                own.flat_map(|(_, state)| &state.partitions).cloned().collect()
            }
            OperatorStateMode::Split => {
                let share = share(all().count(), new_parallelism, index, &mut start);
                all().skip(share.start).take(share.len()).cloned().collect()
            }
            OperatorStateMode::Broadcast => {
                let full: Vec<_> = copies.iter().filter(|(_, state)| !state.partitions.is_empty()).collect();
                let turn = (index as usize).checked_rem(full.len()).and_then(|i| full.get(i));
                turn.map(|(_, state)| state.partitions.clone()).unwrap_or_default()
            }
        };
        let count = u32::try_from(partitions.len()).unwrap_or(u32::MAX);
        let descriptor = OperatorStateDescriptor { partitions: count, ..first.descriptor.clone() };
        mine.push(RestoredOperatorState { descriptor, partitions });
    }
    Ok(mine)
}

/// The run of `total` partitions that a subtask gets when they are dealt out evenly. The subtasks from `start` on get the longer runs;
/// the first one that got none of the remainder is the next start.
pub fn share(total: usize, parallelism: u32, index: u32, start: &mut u32) -> Range<usize> {
    let parallelism = (parallelism as usize).max(1);
    let (base, remainder) = (total / parallelism, total % parallelism);
    // Runs lie in the order of the turns, which begin at `start`.
    let turn = (index as usize + parallelism - *start as usize % parallelism) % parallelism;
    let first = turn * base + turn.min(remainder);
    let length = base + usize::from(turn < remainder);
    let next = (*start as usize + remainder) % parallelism;
    *start = u32::try_from(next).unwrap_or_default();
    first..first + length
}

/// Copies of each state by name, each with the old subtask that it is of.
type Copies<'a, P> = BTreeMap<&'a str, Vec<(usize, &'a RestoredOperatorState<P>)>>;

fn by_name<P>(old: &[Vec<RestoredOperatorState<P>>]) -> Result<Copies<'_, P>, StateError> {
    let mut names: Copies<'_, P> = BTreeMap::new();
    for (subtask, states) in old.iter().enumerate() {
        for state in states {
            let copies = names.entry(&state.descriptor.name).or_default();
            if let Some((_, first)) = copies.first() {
                first.descriptor.check(&state.descriptor)?;
            }
            copies.push((subtask, state));
        }
    }
    Ok(names)
}
