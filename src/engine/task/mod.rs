//! What a subtask does for a checkpoint.
//!
//! - [`chain`]: a barrier comes; it goes on; every operator takes its sync phase, from the tail to the head; one async phase begins.
//! - [`operator`]: the hook, raw state, operator state, keyed state: four [`futures`].
//! - [`runner`]: the async work of one future, with one owner of its clean-up.
//! - [`keyed`]: RocksDB's checkpoint into a [`directory`], and what of it is sent.
//! - [`async_part`]: all futures of the chain, local copies, acks.
//! - [`gate`] aligns the barriers of several inputs, [`data`] is what flows, and [`run`] is a subtask's loop.
//! - [`local_state`]: snapshots that stay on the host for recovery.

pub mod async_part;
pub mod chain;
pub mod data;
pub mod deploy;
pub mod directory;
pub mod environment;
pub mod failure;
pub mod futures;
pub mod gate;
mod keyed;
pub mod local_state;
pub mod operator;
pub mod run;
pub mod runner;

pub use chain::{Arrival, Barrier, Downstream, Subtask, Taken};
pub use data::{Collector, Edge, Outputs, Record};
pub use deploy::{Deployment, Link, Make, Surroundings, Vertex, expected};
pub use environment::{Environment, OpenCheckpoint};
pub use gate::{Gate, GateSender, gate};
pub use local_state::LocalStateStore;
pub use operator::{ChainedOperator, Produced, SnapshotContext, StreamOperator};
pub use run::{Ending, Input, Run};

#[cfg(test)]
mod tests;
