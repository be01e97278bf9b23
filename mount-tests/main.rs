//! The one test binary beyond the unit tests: the house's rules, stored formats, real mounts and real servers.
//! Mount tests fail, and do not skip, where `/dev/fuse` is missing.
//!
//! `CKPTFS_TEST_PASSTHROUGH=0` runs them without passthrough; run by another user than root, they mount through fusermount3.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::print_stdout, missing_docs, unreachable_pub)]

mod bad_manifest;
mod bad_place;
mod bad_source;
mod bad_store;
mod clients;
mod clone;
mod copy;
mod dedup;
#[cfg(feature = "rocksdb")]
mod demo;
mod documents;
mod flink;
mod flips;
mod formats;
mod json;
mod killed;
mod kills;
mod kit;
mod labels;
mod layers;
mod lazy;
mod life;
mod link;
mod mount_basic;
mod mount_faults;
mod mount_life;
mod mount_readonly;
mod operating;
mod owners;
mod pins;
mod plan;
#[cfg(feature = "rocksdb")]
mod rescale;
mod rules;
mod s3;
mod security;
mod settle;
mod soak;
mod status;
mod tool;
mod two_hosts;
mod verify;
