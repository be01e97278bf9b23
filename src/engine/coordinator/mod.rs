//! The coordinator of a job: when a checkpoint begins, who must acknowledge it, when it is published or given up, and which ones stay.
//!
//! A [`gateway`] carries words to and from the tasks.

pub mod gateway;
pub mod message;
pub mod settings;

pub use gateway::{Gateway, Reporter, TaskSide};
pub use message::{AckReport, Notice, Order, TaskEvent, Trigger, TriggerKind};
pub use settings::CoordinatorSettings;
