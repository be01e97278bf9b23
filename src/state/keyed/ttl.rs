//! Time to live: values carry the time of their last use, 8 bytes in front, and are gone to whoever reads them later than that.

use serde::{Deserialize, Serialize};

use crate::state::error::StateError;

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

/// The time that stands in front of a value, and the value.
pub(super) fn split(bytes: &[u8]) -> Result<(u64, &[u8]), StateError> {
    let split = bytes.split_first_chunk::<8>().map(|(used, rest)| (u64::from_be_bytes(*used), rest));
    split.ok_or_else(|| StateError::decode("value with a time to live", format!("it has {} bytes, not 8", bytes.len())))
}

/// The time that stands in front of a value.
pub(super) fn used_at(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk::<8>().map(|used| u64::from_be_bytes(*used))
}
