//! From a checkpoint to a running database, and the questions that people ask before: what is in it, is it whole.

mod composed;
pub mod copy;
pub mod doctor;
pub mod inspect;
pub mod select;
pub mod verify;

pub use copy::{CopyReport, copy};
pub use select::Selection;
