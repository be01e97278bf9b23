//! Where bytes are: a run of one blob.

use serde::{Deserialize, Serialize};

/// A run of bytes in a blob; stored as `[blob, offset, length]`. `blob` is an index into the `blobs` list of
/// the same task manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "(u32, u64, u64)", into = "(u32, u64, u64)")]
pub struct Extent {
    /// Index into the manifest's `blobs`.
    pub blob: u32,
    /// First byte within the blob.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl Extent {
    /// One past the last byte, or nothing when it does not fit 64 bits.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.length)
    }
}

impl From<(u32, u64, u64)> for Extent {
    fn from((blob, offset, length): (u32, u64, u64)) -> Self {
        Self { blob, offset, length }
    }
}

impl From<Extent> for (u32, u64, u64) {
    fn from(e: Extent) -> Self {
        (e.blob, e.offset, e.length)
    }
}
