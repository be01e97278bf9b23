//! What the mount counts.

use crate::metrics::Counter;

/// Plain counters of one mount.
#[derive(Debug, Default)]
pub struct Counters {
    /// LOOKUPs.
    pub lookups: Counter,
    /// GETATTRs.
    pub getattrs: Counter,
    /// READDIRs and READDIRPLUSes.
    pub readdirs: Counter,
    /// Opens of files that the kernel reads itself.
    pub opens_passthrough: Counter,
    /// Opens of files that the daemon serves.
    pub opens_served: Counter,
    /// READs that were answered with data.
    pub reads: Counter,
    /// READs that waited for the store.
    pub lazy_reads: Counter,
    /// Bytes in READs.
    pub read_bytes: Counter,
    /// READs on passthrough files: hints, answered with no data.
    pub hints: Counter,
    /// Times that the kernel refused to take a file for passthrough.
    pub passthrough_refused: Counter,
    /// Requests that waited in the worker pool.
    pub waited: Counter,
    /// Requests that were given up at their deadline.
    pub deadlines: Counter,
    /// Handlers that panicked.
    pub panics: Counter,
    /// Names and inodes that the kernel was told to forget.
    pub invalidations: Counter,
}
