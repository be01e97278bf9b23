//! What the targets share: an allocator that counts, and a bound on what it may count.

mod memory;

pub use memory::{bounded, within};
