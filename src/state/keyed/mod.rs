//! Keyed state: values per key, in one column family per state of a RocksDB database. Rows are Flink's: key group, key, namespace.
//!
//! [`KeyedBackend`] is what an operator works with; [`KeyedState`] is what the engine needs of it to take a snapshot, whatever its keys.

mod backend;
mod core;
mod descriptor;
mod encoding;
mod handle;
mod list;
mod map;
mod overlay;
mod timers;
mod ttl;
mod value;

use std::path::Path;
use std::sync::Arc;

pub use backend::{KeyedBackend, KeyedConfig};
pub use descriptor::{Declaration, KeyedDescriptor, StateDescriptor, StateKind, TimeDomain};
pub use encoding::{group_length, group_prefix};
pub use list::ListState;
pub use map::MapState;
pub use timers::{Due, Timer, Timers};
pub use ttl::Ttl;
pub use value::{Aggregate, AggregatingState, ReducingState, ValueState};

use super::error::StateError;
use crate::types::{KeyGroupRange, Uid};

/// Tells the time in milliseconds; what lives for a time goes by it.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

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

#[cfg(test)]
mod tests;
