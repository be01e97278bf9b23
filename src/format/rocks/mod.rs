//! Our own bounded reader of what RocksDB stores about its files: CURRENT, the RocksDB MANIFEST, file names, and the
//! tails of table files.
//!
//! It tells which files of which size must be there for a database to open, without RocksDB, without opening
//! anything and whatever the comparator. Everything in it takes bytes from outside: no panic, no allocation beyond a
//! small multiple of the input, bounds from [`crate::limits`].

mod bounds;
mod bytes;
mod crc32c;
mod edit;
mod error;
mod log;
mod name;
mod options;
mod sst;
mod version;

#[cfg(test)]
mod tests;

pub use bounds::{KeyBounds, cut_outward};
pub use error::{CurrentError, RocksManifestError};
pub use name::{FileKind, blob_name, file_kind, manifest_name, parse_current, sst_name, wal_name};
pub use options::rocksdb_version;
pub use sst::{TailPlan, tail_start};
pub use version::{ColumnFamily, LiveBlobFile, LiveFiles, LiveSst, LiveWal, read_manifest};
