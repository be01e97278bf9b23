//! Keyed state: values per key, in one column family per state of a RocksDB database. Rows are Flink's: key group, key, namespace.
//!
//! [`KeyedBackend`] is what an operator works with; [`KeyedState`] is what the engine needs of it to take a snapshot, whatever its keys.

mod descriptor;
mod ttl;

use std::path::Path;

pub use descriptor::{Declaration, KeyedDescriptor, StateDescriptor, StateKind, TimeDomain};
pub use ttl::Ttl;

use super::error::StateError;
use crate::types::{KeyGroupRange, Uid};

/// A keyed backend as the engine sees it.
pub trait KeyedState: Send {
    /// What is stored about it with a snapshot. It is as of now: ask in the same step in which the checkpoint is taken.
    fn descriptor(&self) -> KeyedDescriptor;

    /// Whether it has no state at all: nothing was registered, and nothing restored.
    fn is_empty(&self) -> bool;

    /// Hands what was written to RocksDB.
    ///
    /// # Errors
    /// When RocksDB cannot write, or the backend is closed. What was written stays and is tried again by the next flush.
    fn flush(&mut self) -> Result<(), StateError>;

    /// RocksDB's own checkpoint in a directory that must not exist. All that was written is in it.
    ///
    /// # Errors
    /// When the directory exists, linking or writing fails, or the backend is closed.
    fn checkpoint(&self, directory: &Path) -> Result<(), StateError>;

    /// Its key groups.
    fn range(&self) -> KeyGroupRange;

    /// Identity of its database.
    fn uid(&self) -> Uid;

    /// Closes the database. What is asked of it later fails; closing it again does nothing.
    fn close(&mut self);
}
