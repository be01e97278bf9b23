//! Retention: which checkpoints a policy lets go. Times are those that the records tell; nothing about safety hangs on them.

use std::collections::BTreeSet;

use super::catalog::{Checkpoint, JobListing};
use crate::format::CheckpointKind;
use crate::types::CheckpointNumber;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// What stays of a job. Whatever one of the rules keeps, stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// So many of the newest.
    pub newest: usize,
    /// The newest one of each of the last so many hours (of UTC) that have one.
    pub hourly: usize,
    /// The newest one of each of the last so many days (of UTC) that have one.
    pub daily: usize,
}

impl Retention {
    /// The numbers that go, oldest first. Savepoints are their user's and hidden ones may come back: neither goes, nor counts.
    #[must_use]
    pub fn goes(&self, listing: &JobListing) -> Vec<CheckpointNumber> {
        let policy: Vec<&Checkpoint> =
            listing.visible().filter(|c| c.manifest.kind == CheckpointKind::Checkpoint).collect();
        let newest_first = || policy.iter().rev();
        let mut stays: BTreeSet<CheckpointNumber> = newest_first().take(self.newest).map(|c| c.number).collect();
        for (length, most) in [(HOUR_MS, self.hourly), (DAY_MS, self.daily)] {
            let mut seen = BTreeSet::new();
            for c in newest_first() {
                let period = c.manifest.completed_ms / length;
                if seen.len() >= most && !seen.contains(&period) {
                    continue;
                }
                if seen.insert(period) {
                    stays.insert(c.number);
                }
            }
        }
        policy.iter().map(|c| c.number).filter(|n| !stays.contains(n)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::format::{CheckpointManifest, Labels};
    use crate::types::{Epoch, Name, Uid};

    fn listing(of: &[(u64, u64, CheckpointKind, bool)]) -> JobListing {
        let job = Name::encode("app");
        let checkpoint = |(n, completed_ms, kind, hidden): &(u64, u64, CheckpointKind, bool)| {
            let number = CheckpointNumber::new(*n).unwrap();
            let manifest = CheckpointManifest {
                kind: *kind,
                epoch: Epoch::default(),
                writer: Uid::from_bytes([1; 16]),
                bases: Vec::new(),
                subtasks: Vec::new(),
                logical_bytes: 0,
                new_bytes: 0,
                files: 0,
                opened_ms: 0,
                completed_ms: *completed_ms,
                labels: Labels::default(),
                phases: Default::default(),
            };
            let (job, uid, manifest) = (job.clone(), Uid::from_bytes([2; 16]), Arc::new(manifest));
            (number, Checkpoint { job, number, uid, manifest, hidden: *hidden, expired: false, pinned: false })
        };
        let checkpoints: BTreeMap<_, _> = of.iter().map(checkpoint).collect();
        JobListing { job, checkpoints, open: BTreeSet::new(), aborted: BTreeMap::new(), unreadable: Vec::new() }
    }

    fn goes(retention: Retention, of: &[(u64, u64, CheckpointKind, bool)]) -> Vec<u64> {
        retention.goes(&listing(of)).into_iter().map(CheckpointNumber::get).collect()
    }

    #[test]
    fn a_day_has_so_many_milliseconds() {
        let of = |second| [(1, 0, CheckpointKind::Checkpoint, false), (2, second, CheckpointKind::Checkpoint, false)];
        let retention = |hourly, daily| Retention { newest: 0, hourly, daily };
        let kept = |retention, second| goes(retention, &of(second)).is_empty();
        assert!(!kept(retention(0, 2), 86_399_999) && kept(retention(0, 2), 86_400_000));
        assert!(!kept(retention(2, 0), 3_599_999) && kept(retention(2, 0), 3_600_000));
    }

    #[test]
    fn each_rule_keeps_what_it_says() {
        use CheckpointKind::{Checkpoint as C, Savepoint as S};
        // Two in the first hour, one later that day, two on the next day.
        let all: Vec<(u64, u64, CheckpointKind, bool)> =
            [(1, 0), (2, 5), (3, 5 * HOUR_MS), (4, DAY_MS), (5, DAY_MS + 1)]
                .into_iter()
                .map(|(n, ms)| (n, ms, C, false))
                .collect();
        let keep = |newest, hourly, daily| Retention { newest, hourly, daily };
        assert_eq!(goes(keep(2, 0, 0), &all), [1, 2, 3]);
        assert_eq!(goes(keep(9, 0, 0), &all), [0; 0]);
        assert_eq!(goes(keep(1, 2, 0), &all), [1, 2, 4]);
        assert_eq!(goes(keep(0, 3, 0), &all), [1, 4]);
        assert_eq!(goes(keep(0, 0, 2), &all), [1, 2, 4]);
        let mut mixed = all.clone();
        (mixed[0].2, mixed[1].3, mixed[4].3) = (S, true, true);
        assert_eq!(goes(keep(1, 0, 0), &mixed), [3], "a savepoint and the hidden ones stay and do not count");
    }
}
