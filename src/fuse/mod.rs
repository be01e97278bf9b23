//! The kernel's side of the view: requests, errno, passthrough, invalidation, mount.
//!
//! Event threads answer what memory and the local disk can answer, and hand everything else with its reply to a pool of threads
//! that may wait, under a deadline. A handler that panics answers EIO and hurts nothing else.

mod ahead;
mod attr;
mod errno;
mod filesystem;
mod handles;
mod inner;
mod mounted;
mod notify;
mod passthrough;
mod pool;
mod watchdog;

pub use attr::JobAccess;
pub use mounted::{MountRequest, Mounted, Unmounted, mount, place, umount};
