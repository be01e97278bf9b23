//! Identifiers and small values that every layer speaks: digests, names, numbers, extents.

pub mod digest;
pub mod extent;
pub mod key;
pub mod key_group;
pub mod name;
#[cfg(test)]
pub(crate) mod noise;
pub mod number;
pub mod parallel;
pub mod progress;
pub mod signing;
pub mod size;
pub(crate) mod sync;
pub mod time;
pub mod uid;

pub use digest::{Digest, Hasher};
pub use extent::Extent;
pub use key::{Key, KeyParts, Prefix, RecordKind};
pub use key_group::{KeyGroupRange, default_max_parallelism, key_group_of};
pub use name::{Name, NameError};
pub use number::{CheckpointNumber, Epoch};
pub use parallel::{Beside, beside, parallel};
pub use progress::{Progress, Silent};
pub use signing::{KeyRing, KeyRingError, Signature};
pub use size::{Age, Size, is_hidden};
pub use time::{Utc, now_ms};
pub use uid::{BlobName, Uid};
