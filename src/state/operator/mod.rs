//! Operator state: lists of elements that belong to no key, kept in memory. A snapshot is a deep copy; an element is a partition, the
//! unit that is dealt out anew when the parallelism changes.

mod backend;
mod descriptor;
mod handle;
mod map;
mod redistribute;

pub use backend::OperatorStateBackend;
pub use descriptor::{OperatorStateDescriptor, OperatorStateMode, OperatorStateSnapshot, RestoredOperatorState};
pub use handle::{BroadcastState, OperatorList};
pub use redistribute::{redistribute, share};

#[cfg(test)]
mod tests;
