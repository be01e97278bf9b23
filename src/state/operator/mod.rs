//! Operator state: lists of elements that belong to no key, kept in memory. A snapshot is a deep copy; an element is a partition, the
//! unit that is dealt out anew when the parallelism changes.

mod descriptor;

pub use descriptor::{OperatorStateDescriptor, OperatorStateMode, OperatorStateSnapshot, RestoredOperatorState};
