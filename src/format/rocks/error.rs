//! Why a RocksDB MANIFEST or CURRENT could not be read.

/// Why a RocksDB MANIFEST could not be replayed. Offsets are bytes from the start of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RocksManifestError {
    /// The bytes contradict the format or each other in a way that RocksDB refuses too.
    #[error(
        "cannot read the RocksDB MANIFEST: {what} (record at byte {offset}); it is damaged, and RocksDB will not open \
         this database either: use another checkpoint"
    )]
    Damaged {
        /// Start of the record that is wrong.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A well-formed record uses something that this reader does not know and must not skip.
    #[error(
        "cannot read the RocksDB MANIFEST: {what} (record at byte {offset}) is unknown here and may not be skipped; \
         a newer RocksDB wrote it: upgrade ckptfs"
    )]
    Unknown {
        /// Start of the record.
        offset: u64,
        /// What is unknown.
        what: String,
    },
    /// More of something than a database that opens in useful time has.
    #[error("cannot read the RocksDB MANIFEST: more than {limit} {what}; this is beyond what ckptfs handles")]
    Limit {
        /// What there is too much of, in the plural.
        what: &'static str,
        /// The bound from [`crate::limits`].
        limit: u64,
    },
    /// The records that are whole do not describe a database.
    #[error(
        "cannot read the RocksDB MANIFEST: it has no {missing}; it is cut off or not a MANIFEST, and RocksDB will not \
         open this database either: use another checkpoint"
    )]
    Incomplete {
        /// The entry that every MANIFEST has.
        missing: &'static str,
    },
}

/// Why the content of CURRENT does not name a MANIFEST.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot read CURRENT of a RocksDB directory: its content is not `MANIFEST-` with a number and a newline; \
     it is damaged or was copied half: take the directory again"
)]
pub struct CurrentError;

/// A `Damaged` error.
pub(super) fn damaged(offset: u64, what: impl Into<String>) -> RocksManifestError {
    RocksManifestError::Damaged { offset, what: what.into() }
}

/// A `Limit` error.
pub(super) fn limit(what: &'static str, limit: usize) -> RocksManifestError {
    RocksManifestError::Limit { what, limit: u64::try_from(limit).unwrap_or(u64::MAX) }
}
