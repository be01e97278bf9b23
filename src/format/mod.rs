//! Stored bytes to types and back. Pure and bounded: no decoder here does I/O, trusts a length or panics.
//!
//! Metadata objects are two lines of JSON, a [`header`] and the body that it covers. What the bodies hold:
//! [`intent`], [`task`] (the task manifest), [`outcome`] (with the checkpoint manifest) and the small [`records`]; [`labels`] stand in two of them, [`phases`] in a third.
//! A [`signature`] in the header says who wrote it. A [`bundle`] packs the small files of a subtask's snapshot. A [`clone`] has a record of
//! its own on the local disk. [`rocks`] reads what RocksDB stores about its own files.

pub mod bundle;
pub mod clone;
pub mod header;
pub mod intent;
pub mod labels;
pub mod outcome;
pub mod phases;
pub mod place;
pub mod records;
pub mod rocks;
pub mod signature;
mod states;
pub mod task;

pub use header::{Decoded, FormatError, Record, decode, decode_at, encode, refusal, whole_at};
pub use intent::{BaseRef, CheckpointKind, ExpectedOperator, Intent};
pub use labels::Labels;
pub use outcome::{CheckpointManifest, Outcome, SubtaskEntry, Verdict};
pub use place::{Place, Role};
pub use task::{BlobEntry, FileEntry, FilePath, SstInfo, Tail, TaskBlobs, TaskManifest};

#[cfg(test)]
mod tests;
