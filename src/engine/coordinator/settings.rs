//! What a coordinator goes by.

use crate::error::{Error, Kind, Result};

/// When checkpoints are taken, how long they may take, and how many stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorSettings {
    /// Milliseconds from one periodic trigger to the next; 0: only when asked.
    pub interval_ms: u64,
    /// Least milliseconds from the end of the last completed checkpoint to the next periodic trigger.
    pub min_pause_ms: u64,
    /// Milliseconds after which an open checkpoint is given up.
    pub timeout_ms: u64,
    /// Most checkpoints that are open at once, from 1 on. Savepoints are not held up by it.
    pub max_concurrent: usize,
    /// Failed checkpoints in a row that the job survives; savepoints do not count.
    pub tolerable_failures: u32,
    /// Completed checkpoints that stay, from 1 on. Savepoints are their user's and do not count.
    pub retained: usize,
    /// Whether they stay when the job is cancelled or ends. Those of a job that failed always stay.
    pub retain_on_cancel: bool,
}

impl Default for CoordinatorSettings {
    fn default() -> Self {
        Self {
            interval_ms: 60_000,
            min_pause_ms: 0,
            timeout_ms: 600_000,
            max_concurrent: 1,
            tolerable_failures: 0,
            retained: 1,
            retain_on_cancel: true,
        }
    }
}

impl CoordinatorSettings {
    /// Checks them.
    ///
    /// # Errors
    /// When no checkpoint could ever be open, complete or stay.
    pub fn check(&self) -> Result<()> {
        for (what, value) in [
            ("max_concurrent", self.max_concurrent as u64),
            ("retained", self.retained as u64),
            ("timeout_ms", self.timeout_ms),
        ] {
            if value == 0 {
                return Err(Error::new(
                    Kind::Invalid,
                    format!("a coordinator cannot work with {what} = 0: set 1 or more"),
                ));
            }
        }
        Ok(())
    }
}
