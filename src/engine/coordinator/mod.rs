//! The coordinator of a job: when a checkpoint begins, who must acknowledge it, when it is published or given up, and which ones stay.
//!
//! [`machine`] decides and does nothing; [`reign`] does what it decided, in the store and within one epoch; a [`gateway`] carries words
//! to and from the tasks, by channels ([`local`]) or through the store alone ([`stored`]); [`run`] strings them together.

pub mod gateway;
pub mod local;
pub mod machine;
pub mod message;
pub mod reign;
pub mod retained;
pub mod run;
pub mod settings;
pub mod stored;

#[cfg(test)]
mod tests;

pub use gateway::{Gateway, Reporter, TaskSide};
pub use local::{LocalGateway, LocalTask};
pub use machine::{Action, Coordinator, Input, Task, Verdict};
pub use message::{AckReport, Notice, Order, TaskEvent, Trigger, TriggerKind};
pub use reign::{ClaimMode, Ended, Reign, ReignPlan, RestoreFrom};
pub use retained::{Held, Which};
pub use run::{Asked, Commands, Control, RunEnd, control, run};
pub use settings::CoordinatorSettings;
pub use stored::{StoredGateway, StoredTask};
