//! Tests of reading and writing `_metadata`: files of real jobs, values by hand, bytes by hand, and bytes that somebody tampered with.

mod bytes;
mod hostile;
mod places;
mod real;
mod values;

use std::path::{Path, PathBuf};

/// Flink's own files that are here with the sources.
fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("mount-tests/fixtures/flink")
}

/// Files of rarer kinds, which `scripts/flink.sh fixtures` made.
fn made() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("mount-tests/fixtures/flink-made")
}

/// The smallest of the former: a canonical savepoint.
fn small() -> Vec<u8> {
    let path = "incr-p2-savepoint-canonical/tree/savepoint-a61c78-5a70557000cf/_metadata";
    std::fs::read(committed().join(path)).unwrap()
}
