//! ckptfs: a checkpoint file system for stateful stream processors.
//!
//! The crate is a stack of layers; a module imports only from those below it, and an outside crate has one
//! home (a test holds the code to that). From the bottom: [`types`] and [`limits`], [`format`] (stored bytes), [`local`]
//! (durable local files), [`store`] (the object store), [`lifecycle`] (the protocol), [`cache`] (local files
//! by digest), [`engine`] (taking snapshots), [`restore`], [`view`] (the tree that the mount shows) and [`fuse`] (the kernel's side of it).

#![warn(missing_docs)]

pub mod cache;
pub mod engine;
pub mod error;
pub mod flink;
pub mod format;
pub mod fuse;
pub mod lifecycle;
pub mod limits;
pub mod local;
pub mod metrics;
pub mod restore;
#[cfg(feature = "rocksdb")]
pub mod state;
pub mod status;
pub mod store;
pub mod types;
pub mod view;

/// The programs of `docs/EMBEDDING.md`: `cargo test --doc` compiles and runs them as they stand there.
#[cfg(doctest)]
#[doc = include_str!("../docs/EMBEDDING.md")]
pub struct Embedding;
