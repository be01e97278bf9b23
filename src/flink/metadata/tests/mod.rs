//! Tests of reading and writing `_metadata`: files of real jobs, values by hand, bytes by hand, and bytes that somebody tampered with.

mod bytes;
mod hostile;
mod places;
mod real;
mod sha256;
mod values;

use std::path::{Path, PathBuf};

/// Flink's own files that are here with the sources.
fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("mount-tests/fixtures/flink")
}

/// The smallest of them: a canonical savepoint.
fn small() -> Vec<u8> {
    let path = "incr-p2-savepoint-canonical/tree/savepoint-a61c78-5a70557000cf/_metadata";
    std::fs::read(committed().join(path)).unwrap()
}
