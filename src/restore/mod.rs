//! From a checkpoint to a running database, and the questions that people ask before: what is in it, is it whole.

pub mod clone;
pub mod copy;
pub mod doctor;
pub mod inspect;
#[cfg(feature = "rocksdb")]
pub mod job;
mod layout;
mod measure;
pub mod plan;
pub mod reading;
pub mod select;
mod target;
#[cfg(test)]
mod tests;
pub mod verify;
pub mod warm;

pub use clone::{CloneReport, CloneRequest, SettleReport, clone, settle};
pub use copy::{CopyReport, copy};
pub use measure::Measured;
pub use plan::{RestorePlan, Way, plan};
pub use reading::{Brought, Reading};
pub use select::Selection;
pub use warm::{WarmReport, warm};
