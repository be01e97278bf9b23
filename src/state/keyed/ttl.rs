//! Time to live: values carry the time of their last use, 8 bytes in front, and are gone to whoever reads them later than that.

use serde::{Deserialize, Serialize};

/// How long values live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ttl {
    /// Milliseconds after the last use; a value as old as this is gone.
    pub ms: u64,
    /// Whether reading is a use, too.
    #[serde(default)]
    pub refresh_on_read: bool,
}

impl Ttl {
    /// Values live this long after they were written.
    #[must_use]
    pub fn after_write(ms: u64) -> Self {
        Self { ms, refresh_on_read: false }
    }

    /// Values live this long after they were written or read.
    #[must_use]
    pub fn after_use(ms: u64) -> Self {
        Self { ms, refresh_on_read: true }
    }

    /// Whether a value that was last used at `used` is gone at `now`.
    #[must_use]
    pub fn expired(&self, used: u64, now: u64) -> bool {
        used.saturating_add(self.ms) <= now
    }
}
