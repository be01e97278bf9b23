//! The two ends between a coordinator and its tasks, whatever carries the words: channels in one process, the store between hosts.

use std::sync::Arc;
use std::time::Duration;

use super::message::{AckReport, Notice, Order, TaskEvent, Trigger};
use crate::error::Result;
use crate::types::{CheckpointNumber, Name};

/// A coordinator's end.
pub trait Gateway: Send {
    /// Tells every task to take a snapshot.
    ///
    /// # Errors
    /// When a task cannot be told: the checkpoint cannot complete then.
    fn trigger(&self, trigger: &Trigger) -> Result<()>;

    /// Tells every task what became of a checkpoint. Those that cannot be told go without.
    ///
    /// # Errors
    /// When nobody can be told.
    fn notify(&self, notice: &Notice) -> Result<()>;

    /// Tells every task to end.
    ///
    /// # Errors
    /// When that cannot be written down. A task that is gone is no error.
    fn stop(&self) -> Result<()>;

    /// What the tasks said since the last call. Waits for the first word, but no longer than `wait`.
    ///
    /// # Errors
    /// When it cannot be known now; nothing is lost, and the next call tells it.
    fn poll(&self, wait: Duration) -> Result<Vec<TaskEvent>>;
}

/// A task's end: one per subtask of a chain.
pub trait TaskSide: Send {
    /// What this task was told since the last call, in order. Never waits.
    ///
    /// # Errors
    /// When it cannot be known now; nothing is lost, and the next call tells it.
    fn poll(&mut self) -> Result<Vec<Order>>;

    /// What reports to the coordinator, for threads that outlive a call.
    fn reporter(&self) -> Arc<dyn Reporter>;
}

/// Tells the coordinator what became of a snapshot.
pub trait Reporter: Send + Sync {
    /// An operator's snapshot is stored: called once its task manifest is in the store.
    ///
    /// # Errors
    /// When the coordinator cannot be told. The task manifest is there all the same; without the word the checkpoint times out.
    fn acked(&self, number: CheckpointNumber, operator: &Name, subtask: u32, report: &AckReport) -> Result<()>;

    /// An operator could not take its snapshot: the checkpoint is to be given up.
    ///
    /// # Errors
    /// When the coordinator cannot be told.
    fn declined(&self, number: CheckpointNumber, operator: &Name, subtask: u32, reason: &str) -> Result<()>;

    /// The task died.
    ///
    /// # Errors
    /// When the coordinator cannot be told.
    fn failed(&self, operator: &Name, subtask: u32, reason: &str) -> Result<()>;

    /// The task came to the end of its input. Said once per operator of its chain.
    ///
    /// # Errors
    /// When the coordinator cannot be told.
    fn finished(&self, operator: &Name, subtask: u32) -> Result<()>;
}
