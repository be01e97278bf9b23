//! Who gets what of a keyed state when a job starts: every old handle whose key-group range meets the new subtask's own, whole. Pure.
//!
//! Handles are never sliced: a RocksDB directory is taken as it is, and the one that is built on is clipped afterwards.

use std::cmp::Reverse;

use crate::error::{Error, Kind, Result};
use crate::types::KeyGroupRange;

/// What one subtask of the checkpoint has of an operator's keyed state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldHandle {
    /// Index of the old subtask.
    pub subtask: u32,
    /// Its key groups.
    pub range: KeyGroupRange,
}

/// What one new subtask is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    /// Its own key groups.
    pub mine: KeyGroupRange,
    /// The handles that meet them, in the order of the old ranges.
    pub handles: Vec<OldHandle>,
}

/// The key groups of a subtask.
///
/// # Errors
/// [`Kind::Invalid`] when there cannot be so many subtasks, or not that one.
pub fn range_of(max_parallelism: u32, parallelism: u32, index: u32) -> Result<KeyGroupRange> {
    let range = KeyGroupRange::of_subtask(max_parallelism, parallelism, index);
    range.map_err(|e| Error::with_source(Kind::Invalid, e.to_string(), e))
}

/// Gives a new subtask its handles.
///
/// # Errors
/// [`Kind::Invalid`] as [`range_of`]. [`Kind::Damage`] when two old handles claim the same key group, or one claims groups that there are
/// not: then it cannot be told which rows are right.
pub fn assign(old: &[OldHandle], max_parallelism: u32, new_parallelism: u32, index: u32) -> Result<Assigned> {
    let mine = range_of(max_parallelism, new_parallelism, index)?;
    let mut all = old.to_vec();
    all.sort_by_key(|h| (h.range.first, h.subtask));
    for pair in all.windows(2) {
        if let [a, b] = pair
            && a.range.intersect(&b.range).is_some()
        {
            return Err(Error::new(
                Kind::Damage,
                format!(
                    "subtasks {} and {} both have key group {}: the checkpoint cannot be restored",
                    a.subtask, b.subtask, b.range.first
                ),
            ));
        }
    }
    if let Some(out) = all.iter().find(|h| h.range.first > h.range.last || h.range.last >= max_parallelism) {
        let OldHandle { subtask, range } = out;
        let why = format!(
            "subtask {subtask} has the key groups {range} of {max_parallelism}: the checkpoint cannot be restored"
        );
        return Err(Error::new(Kind::Damage, why));
    }
    let handles = all.into_iter().filter(|h| h.range.intersect(&mine).is_some()).collect();
    Ok(Assigned { mine, handles })
}

impl Assigned {
    /// The only handle, where it is exactly what this subtask had before: then its identity goes on.
    #[must_use]
    pub fn unchanged(&self) -> Option<OldHandle> {
        match self.handles.as_slice() {
            [one] if one.range == self.mine => Some(*one),
            _ => None,
        }
    }

    /// The handle that is built on: of which the most key groups are ours, then of which the largest part is; the first of equals.
    #[must_use]
    pub fn best(&self) -> Option<OldHandle> {
        let score = |h: &OldHandle| (self.of(h).map_or(0, |r| r.count()), Reverse(h.range.count()));
        self.handles.iter().copied().reduce(|best, next| if score(&next) > score(&best) { next } else { best })
    }

    /// The handles that are read beside the best one.
    pub fn others(&self) -> impl Iterator<Item = OldHandle> {
        let best = self.best();
        self.handles.iter().copied().filter(move |h| Some(*h) != best)
    }

    /// The key groups of a handle that are ours.
    #[must_use]
    pub fn of(&self, handle: &OldHandle) -> Option<KeyGroupRange> {
        handle.range.intersect(&self.mine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handles(max: u32, parallelism: u32) -> Vec<OldHandle> {
        (0..parallelism)
            .map(|subtask| OldHandle { subtask, range: range_of(max, parallelism, subtask).unwrap() })
            .collect()
    }

    fn subtasks(handles: impl IntoIterator<Item = OldHandle>) -> Vec<u32> {
        handles.into_iter().map(|h| h.subtask).collect()
    }

    #[test]
    fn row12_ranges_are_those_of_flink() {
        let range = |max, p, i| range_of(max, p, i).map(|r| (r.first, r.last)).unwrap();
        assert_eq!((0..3).map(|i| range(128, 3, i)).collect::<Vec<_>>(), [(0, 42), (43, 85), (86, 127)]);
        assert_eq!((0..3).map(|i| range(10, 3, i)).collect::<Vec<_>>(), [(0, 3), (4, 6), (7, 9)]);
        assert_eq!(range(32768, 32768, 32767), (32767, 32767));
        assert_eq!(range(1, 1, 0), (0, 0));
        for (max, p, i) in [(0, 1, 0), (32769, 1, 0), (4, 0, 0), (4, 5, 0), (4, 2, 2)] {
            assert_eq!(range_of(max, p, i).unwrap_err().kind(), Kind::Invalid, "{max} {p} {i}");
        }
    }

    #[test]
    fn row12_every_handle_that_meets_the_range_is_given_whole() {
        // 2 -> 3 of 128: [0, 63] [64, 127] to [0, 42] [43, 85] [86, 127].
        let old = handles(128, 2);
        let given: Vec<_> = (0..3).map(|i| subtasks(assign(&old, 128, 3, i).unwrap().handles)).collect();
        assert_eq!(given, [vec![0], vec![0, 1], vec![1]]);
        let middle = assign(&old, 128, 3, 1).unwrap();
        assert_eq!(middle.handles[0].range, KeyGroupRange { first: 0, last: 63 }, "a handle was sliced");
        // Only what was there is given: a subtask without keyed state leaves a gap.
        let given = assign(&old[1..], 128, 3, 1).unwrap();
        assert_eq!(subtasks(given.handles.clone()), [1]);
        assert_eq!(given.unchanged(), None);
    }

    #[test]
    fn row12_only_one_handle_of_the_very_range_is_unchanged() {
        let old = handles(128, 3);
        for i in 0..3 {
            assert_eq!(assign(&old, 128, 3, i).unwrap().unchanged(), Some(old[i as usize]));
        }
        assert_eq!(assign(&old, 128, 1, 0).unwrap().unchanged(), None);
        // One handle that has more than our range.
        let half = assign(&handles(128, 1), 128, 2, 0).unwrap();
        assert_eq!((half.handles.len(), half.unchanged()), (1, None));
    }

    #[test]
    fn row12_the_best_handle_has_most_of_our_groups_then_the_larger_part() {
        let handle = |subtask, first, last| OldHandle { subtask, range: KeyGroupRange { first, last } };
        let mine = KeyGroupRange { first: 10, last: 29 };
        let best = |handles: &[OldHandle]| Assigned { mine, handles: handles.to_vec() }.best().map(|h| h.subtask);
        assert_eq!(best(&[handle(0, 0, 15), handle(1, 16, 40)]), Some(1), "14 groups beat 6");
        assert_eq!(best(&[handle(0, 0, 19), handle(1, 20, 29)]), Some(1), "10 of 10 beat 10 of 20");
        assert_eq!(best(&[handle(0, 20, 29), handle(1, 10, 19)]), Some(0), "the first of equals");
        assert_eq!(best(&[]), None);
        let both = Assigned { mine, handles: vec![handle(0, 0, 15), handle(1, 16, 40)] };
        assert_eq!(subtasks(both.others()), [0]);
    }

    #[test]
    fn row12_every_key_group_goes_to_exactly_one_subtask() {
        for max in [1, 2, 7, 128, 129, 200] {
            for (p, q) in (1..=8).flat_map(|p| (1..=8).map(move |q| (p, q))).filter(|(p, q)| p.max(q) <= &max) {
                let old = handles(max, p);
                let mut seen = vec![0; max as usize];
                for i in 0..q {
                    let assigned = assign(&old, max, q, i).unwrap();
                    for handle in &assigned.handles {
                        let ours = assigned.of(handle).unwrap();
                        for group in ours.first..=ours.last {
                            seen[group as usize] += 1;
                        }
                    }
                }
                assert!(seen.iter().all(|n| *n == 1), "{max}: {p} -> {q}: {seen:?}");
            }
        }
    }

    #[test]
    fn row12_handles_that_contradict_each_other_are_refused() {
        let handle = |subtask, first, last| OldHandle { subtask, range: KeyGroupRange { first, last } };
        let e = assign(&[handle(1, 5, 9), handle(0, 0, 5)], 10, 1, 0).unwrap_err();
        assert_eq!(e.kind(), Kind::Damage);
        assert_eq!(e.message(), "subtasks 0 and 1 both have key group 5: the checkpoint cannot be restored");
        assert_eq!(assign(&[handle(0, 0, 10)], 10, 1, 0).unwrap_err().kind(), Kind::Damage);
    }
}
