//! A snapshot's way to be told to stop: whoever reads or sends for it looks here before the next piece.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Kind, Result};

/// Shared by all that work for one snapshot. Once cancelled, for ever.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Stops whatever looks here.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was told to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Goes on, or stops.
    ///
    /// # Errors
    /// [`Kind::Conflict`] once it is cancelled.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::new(Kind::Conflict, "the snapshot was cancelled")) } else { Ok(()) }
    }
}
