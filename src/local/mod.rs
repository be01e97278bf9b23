//! Durable local files: publish, link, list, lock, extended attributes. The only home of `unsafe`.
//!
//! Everything is done relative to an open directory ([`Dir`]) and never through a symlink below it. A file becomes
//! visible whole or not at all ([`publish`]), and an fsync that failed is never tried again: the kernel
//! may have dropped the dirty pages, and the second call would lie.

pub mod clone_mark;
pub mod dir;
pub(crate) mod error;
pub mod holes;
pub mod identity;
pub mod lease;
pub mod link;
pub mod lock;
pub mod memory;
pub mod mount;
pub mod mounts;
pub mod own_mount;
pub mod private;
pub mod process;
pub mod publish;
pub mod rocks_lock;
pub mod signal;
pub mod supervisor;
mod sys;
pub mod watch;
pub mod xattr;

pub use dir::{Dir, Entry, FileKind};
pub use error::{LocalError, Result, no_thread};
pub use identity::FileStat;
pub use link::Linked;
pub use lock::FileLock;
pub use publish::{Durability, Published};
