//! Reads and writes Flink's `_metadata`: which operators a checkpoint has, and where the state of each of their subtasks lies.
//!
//! What was read keeps every tag and every number, so that writing it gives the same bytes. Versions 2 to 6 are Flink 1.3 to 2.3. The
//! properties at the end are a Java object, kept as they are.

mod handles;
mod java;
mod read;
mod read_handle;
mod streams;
mod tags;
#[cfg(test)]
mod tests;
mod types;
mod write;
mod write_handle;

pub use handles::{
    Change, ChangelogStream, ChannelHandle, Distribution, KeyGroupRange, KeyGroupStream, KeyedHandle, LocalFile,
    MergingDirectories, OperatorHandle, OperatorState, Scope, StreamHandle,
};
pub use read::read;
pub use streams::{Part, Place, Role, Within, map_streams, streams};
pub use types::{CheckpointMetadata, MasterState, Operator, Subtask};
pub use write::{WriteError, write};
