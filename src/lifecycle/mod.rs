//! The protocol of a checkpoint's life.
//!
//! Each verb is a [`machine::Machine`]: it asks for requests, is told the replies, and ends with a result. It does no I/O and reads
//! no clock, so the same code runs in the [`driver`] and under an exhaustive search. What it relies on: consistent get and list, and create-if-absent.
//!
//! - [`open`]: an intent is created, then looked behind: only a checkpoint whose bases were alive afterwards is open.
//! - [`ack`]: a subtask's task manifest is created once.
//! - [`complete`] and [`abort`]: one of them creates the outcome, once.
//! - [`takeover`]: a new epoch, and the end of what older ones left open.
//! - [`hide`], [`expire`], [`pin`]: out of the view and back; dead for ever; kept for a reader.
//! - [`sweep`] and [`forget`]: what nothing needs is deleted, blobs first, then the records of numbers that are gone.
//! - [`catalog`]: what readers see.

pub mod abort;
pub mod ack;
pub mod catalog;
pub mod complete;
pub mod driver;
pub mod error;
pub mod expire;
pub mod forget;
pub mod hide;
pub mod identity;
pub mod machine;
pub mod open;
pub mod pin;
pub mod retention;
pub mod survey;
pub mod sweep;
pub mod takeover;
#[cfg(test)]
mod tests;

pub use catalog::{Catalog, Checkpoint, JobListing};
pub use driver::run;
pub use error::LifecycleError;
pub use identity::{StoreIdentity, identify};
pub use open::{Base, OpenPlan, Opened};
pub use pin::PinRef;
