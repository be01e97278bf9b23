//! A coordinator and its tasks on different hosts, with nothing between them but the store.
//!
//! There is no message: every word is a record of the protocol that is there anyway. The intent is the trigger, the task manifest
//! the ack, the outcome the notice of completion or abort, the tombstone the notice of being subsumed, and a higher epoch the order to
//! stop. A task declines by giving the checkpoint up itself, with its reason. Both ends look once per period.
//!
//! There is no record of a task that dies or comes to its end: checkpoints then miss its ack, and whoever started its process
//! sees that.

mod coordinator;
mod task;

use crate::error::Result;
use crate::lifecycle::LifecycleError;
use crate::lifecycle::catalog;
use crate::store::Store;
use crate::types::{CheckpointNumber, Epoch, KeyParts, Name, Prefix, RecordKind};

pub use coordinator::StoredGateway;
pub use task::StoredTask;

/// The highest epoch of a job; 0 where no coordinator ever ruled.
///
/// # Errors
/// When the store cannot be listed.
pub fn ruling(store: &Store, job: &Name) -> Result<Epoch> {
    let listed = store.list(&Prefix::job(RecordKind::Epoch, job))?;
    let epochs = listed.iter().filter_map(|l| if let KeyParts::Epoch(_, k) = l.key.parts() { Some(*k) } else { None });
    Ok(epochs.max().unwrap_or_default())
}

/// What became of a number, once that is decided.
fn decided(
    store: &Store,
    job: &Name,
    number: CheckpointNumber,
) -> Result<Option<crate::format::Verdict>, LifecycleError> {
    Ok(catalog::outcome(store, job, number)?.map(|o| o.verdict))
}
