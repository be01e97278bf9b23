//! How long the phases of a subtask's snapshot took, in milliseconds, as its task manifest's properties tell it. For people: nothing is
//! decided by it. What comes after the manifest is stored it cannot tell; a checkpoint of one subtask has the rest of its time for that.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{CheckpointManifest, TaskManifest};
use crate::limits;

/// Looking at the directory, before the checkpoint is open.
pub const SCAN: &str = "scan_ms";
/// Opening the checkpoint.
pub const OPEN: &str = "open_ms";
/// Reading, hashing and sending what no base has.
pub const UPLOAD: &str = "upload_ms";
/// Packing and sending the bundle, and waiting for what is still on its way.
pub const BUNDLE: &str = "bundle_ms";
/// From the task manifest on until the checkpoint is complete. Not stored.
const PUBLISH: &str = "publish_ms";

/// Of an operator of a job: from the trigger to its barrier, from the first barrier to the last, the sync phase, the async phase.
pub const JOB: [&str; 4] = ["start_delay_ms", "alignment_ms", "sync_ms", "async_ms"];

/// All that are stored, in the order that they come in.
pub const STORED: [&str; 8] = {
    let [delay, alignment, sync, later] = JOB;
    [delay, alignment, sync, later, SCAN, OPEN, UPLOAD, BUNDLE]
};

/// The longest that any subtask of a checkpoint took for each phase, in milliseconds: what its checkpoint manifest tells, so that a listing
/// needs no task manifests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Longest(BTreeMap<String, u64>);

impl Longest {
    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes in what a subtask tells.
    pub fn add(&mut self, task: &TaskManifest) {
        for (name, ms) in stored(task) {
            let longest = self.0.entry(name.to_owned()).or_default();
            *longest = ms.max(*longest);
        }
    }

    /// Phases in the order that they come in. Those of a later version are passed over.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        STORED.iter().filter_map(|name| Some((*name, *self.0.get(*name)?)))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.0.len() > limits::PHASES {
            return Err(format!("{} phases, at most {} may be", self.0.len(), limits::PHASES));
        }
        match self.0.keys().find(|name| name.len() > limits::PHASE_NAME_LEN) {
            Some(name) => Err(format!("the name of a phase has {} bytes", name.len())),
            None => Ok(()),
        }
    }
}

/// A subtask's phases in the order that they come in. What is no number is left out.
fn stored(task: &TaskManifest) -> impl Iterator<Item = (&'static str, u64)> {
    STORED.iter().filter_map(|name| Some((*name, task.properties.get(*name)?.parse().ok()?)))
}

/// Whether a property is one of them.
#[must_use]
pub fn is_phase(property: &str) -> bool {
    STORED.contains(&property)
}

/// A subtask's phases in the order that they come in, with their milliseconds; of a lone one also the rest of the checkpoint's time.
#[must_use]
pub fn of(checkpoint: &CheckpointManifest, task: &TaskManifest) -> Vec<(&'static str, u64)> {
    let mut phases: Vec<(&'static str, u64)> = stored(task).collect();
    if checkpoint.subtasks.len() == 1 && phases.iter().any(|(name, _)| *name == OPEN) {
        let known = phases.iter().filter(|(name, _)| *name != SCAN).fold(0u64, |sum, (_, ms)| sum.saturating_add(*ms));
        let all = checkpoint.completed_ms.saturating_sub(checkpoint.opened_ms);
        phases.push((PUBLISH, all.saturating_sub(known)));
    }
    phases
}

/// The names that any of these have, in the order that they come in: a table's columns.
#[must_use]
pub fn columns(rows: &[Vec<(&'static str, u64)>]) -> Vec<&'static str> {
    let there: BTreeSet<&str> = rows.iter().flatten().map(|(name, _)| *name).collect();
    STORED.into_iter().chain([PUBLISH]).filter(|name| there.contains(name)).collect()
}

/// `start_delay_ms` as `start delay`.
#[must_use]
pub fn words(name: &str) -> String {
    name.trim_end_matches("_ms").replace('_', " ")
}

/// As properties.
pub(crate) fn properties(
    phases: impl IntoIterator<Item = (&'static str, std::time::Duration)>,
) -> BTreeMap<String, String> {
    phases.into_iter().map(|(name, took)| (name.to_owned(), took.as_millis().to_string())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn task(properties: BTreeMap<String, String>) -> TaskManifest {
        let place = json!({"role": "task", "job": "app", "number": 1, "uid": "01".repeat(16), "subtask": ["db", 0]});
        let mut task: TaskManifest = serde_json::from_value(json!({"place": place, "display_name": "db", "blobs": [],
            "files": [], "logical_bytes": 0, "new_bytes": 0}))
        .unwrap();
        task.properties = properties;
        task
    }

    fn checkpoint(subtasks: u64) -> CheckpointManifest {
        let entry = |i: u64| {
            json!({"operator": "db", "display_name": "db", "subtask": i, "manifest": "00".repeat(32),
            "manifest_length": 1, "logical_bytes": 0, "new_bytes": 0, "files": 0})
        };
        serde_json::from_value(json!({"kind": "checkpoint", "epoch": 0, "writer": "02".repeat(16), "bases": [],
            "subtasks": (0..subtasks).map(entry).collect::<Vec<_>>(), "logical_bytes": 0, "new_bytes": 0, "files": 0,
            "opened_ms": 1000, "completed_ms": 1100}))
        .unwrap()
    }

    #[test]
    fn what_is_stored_comes_back_and_a_lone_subtask_has_the_rest() {
        let ms = Duration::from_millis;
        let stored = properties([(UPLOAD, ms(30)), (SCAN, ms(500)), (OPEN, ms(20)), (BUNDLE, ms(5))]);
        let lone = of(&checkpoint(1), &task(stored.clone()));
        assert_eq!(lone, [(SCAN, 500), (OPEN, 20), (UPLOAD, 30), (BUNDLE, 5), ("publish_ms", 45)]);
        assert_eq!(of(&checkpoint(2), &task(stored)).len(), 4, "the others' time is not its own");
        let acked = properties([(UPLOAD, ms(30)), (SCAN, ms(1))]);
        assert_eq!(
            of(&checkpoint(1), &task(acked)),
            [(SCAN, 1), (UPLOAD, 30)],
            "somebody else opened and completed it"
        );
        let clocks = properties([(OPEN, ms(5000))]);
        assert_eq!(of(&checkpoint(1), &task(clocks)), [(OPEN, 5000), ("publish_ms", 0)]);
    }

    #[test]
    fn what_a_store_says_is_a_number_or_nothing() {
        let hostile =
            [(UPLOAD, "-1"), (OPEN, "18446744073709551615"), (SCAN, "1e9"), ("sync_ms", "<b>"), ("x_ms", "7")];
        let hostile = hostile.map(|(k, v)| (k.to_owned(), v.to_owned())).into_iter().collect();
        assert_eq!(of(&checkpoint(1), &task(hostile)), [(OPEN, u64::MAX), ("publish_ms", 0)]);
        assert!(of(&checkpoint(1), &task(BTreeMap::new())).is_empty());
    }

    #[test]
    fn the_longest_of_each_phase_is_kept() {
        let ms = Duration::from_millis;
        let mut longest = Longest::default();
        assert!(longest.is_empty());
        for (upload, bundle) in [(30, 5), (10, 50), (20, 1)] {
            longest.add(&task(properties([(BUNDLE, ms(bundle)), (UPLOAD, ms(upload))])));
        }
        longest.add(&task([(SCAN.to_owned(), "<b>".to_owned())].into()));
        assert_eq!(longest.iter().collect::<Vec<_>>(), [(UPLOAD, 30), (BUNDLE, 50)]);
        let later: Longest = serde_json::from_value(json!({"later_ms": 7, "open_ms": 1})).unwrap();
        assert_eq!((later.iter().collect::<Vec<_>>(), later.check()), (vec![(OPEN, 1)], Ok(())));
    }

    #[test]
    fn columns_stand_in_the_order_of_time() {
        let rows = [vec![(BUNDLE, 1), ("publish_ms", 2)], vec![], vec![(SCAN, 1)], vec![("sync_ms", 1), (SCAN, 1)]];
        assert_eq!(columns(&rows), ["sync_ms", SCAN, BUNDLE, "publish_ms"]);
        assert_eq!(words("start_delay_ms"), "start delay");
    }
}
