//! Operator state: the partitions of all old subtasks, dealt out anew.

use std::collections::HashSet;
use std::sync::Arc;

use super::states::{self, OldTask};
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::{FileEntry, TaskManifest};
use crate::lifecycle::{Checkpoint, driver};
use crate::state::RestoredOperatorState;
use crate::state::operator::redistribute;
use crate::types::Name;

/// Where the partitions of operator states lie.
const FRONT: &str = "operator/";

/// The operator state of a new subtask.
///
/// # Errors
/// When the parallelism does not fit, bytes cannot be had or are not what they should be, or a partition is missing or of no state.
pub fn restore_operator_state(
    session: &Session,
    checkpoint: &Checkpoint,
    operator: &Name,
    index: u32,
    parallelism: u32,
) -> Result<Vec<RestoredOperatorState>> {
    let tasks = states::tasks(session, checkpoint, operator)?;
    let old = tasks.iter().map(|task| {
        let subtask = task.manifest.place.subtask.as_ref().map_or(0, |s| s.1);
        of_task(task).map_err(|e| e.context(format!("{}/{}/{operator}/{subtask}", checkpoint.job, checkpoint.number)))
    });
    let old: Vec<_> = old.collect::<Result<_>>()?;
    let dealt = redistribute(&old, parallelism, index);
    let dealt =
        dealt.map_err(|e| Error::from(e).context(format!("{}/{}/{operator}", checkpoint.job, checkpoint.number)))?;
    // Only what is this subtask's is read.
    driver::parallel(dealt, |RestoredOperatorState { descriptor, partitions }| {
        let bytes = partitions.iter().map(|(manifest, file)| states::read(session, manifest, file));
        Ok(RestoredOperatorState { descriptor, partitions: bytes.collect::<Result<_>>()? })
    })
}

/// Where a partition is.
type Place = (Arc<TaskManifest>, FileEntry);

/// What one old subtask had.
fn of_task(task: &OldTask) -> Result<Vec<RestoredOperatorState<Place>>> {
    let damaged = |why: String| Error::new(Kind::Damage, why);
    let mut named = HashSet::new();
    let mut states = Vec::with_capacity(task.states.operator.len());
    for descriptor in &task.states.operator {
        let name = Name::encode(&descriptor.name);
        let mut partitions = Vec::new();
        for partition in 0..descriptor.partitions {
            let path = format!("{FRONT}{name}/{partition}");
            let file = task.manifest.file(&path);
            let file = file.ok_or_else(|| {
                let (name, all) = (&descriptor.name, descriptor.partitions);
                damaged(format!("the operator state {name:?} has {all} partitions, and {path} is not there"))
            })?;
            partitions.push((Arc::clone(&task.manifest), file.clone()));
            if !named.insert(path) {
                return Err(damaged(format!("the operator state {:?} is described twice", descriptor.name)));
            }
        }
        states.push(RestoredOperatorState { descriptor: descriptor.clone(), partitions });
    }
    let mut files = task.manifest.files.iter().map(|f| f.path.as_str()).filter(|p| p.starts_with(FRONT));
    if let Some(strange) = files.find(|p| !named.contains(*p)) {
        return Err(damaged(format!("{strange} belongs to no operator state that is described")));
    }
    Ok(states)
}
