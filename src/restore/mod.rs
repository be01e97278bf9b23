//! From a checkpoint to a running database, and the questions that people ask before: what is in it, is it whole.

pub mod clone;
pub mod copy;
pub mod doctor;
pub mod inspect;
#[cfg(feature = "rocksdb")]
pub mod job;
mod layout;
pub mod reading;
pub mod select;
mod target;
#[cfg(test)]
mod tests;
pub mod verify;
pub mod warm;

pub use clone::{CloneReport, CloneRequest, SettleReport, clone, settle};
pub use copy::{CopyReport, copy};
pub use reading::{Brought, Reading};
pub use select::Selection;
pub use warm::{WarmReport, warm};
