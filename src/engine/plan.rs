//! Decides per file: a base has it, it is small and goes into the bundle, or it must be looked at and perhaps sent.

use std::io::Read;

use super::base::{BaseFile, BaseIndex};
use super::scan::{Scan, ScannedFile, changed};
use crate::error::{Error, Kind, Result};
use crate::limits;
use crate::local::error::remedied;
use crate::types::Digest;

/// What is to be done with a file.
#[derive(Debug)]
pub enum Decision {
    /// A base has these bytes, by the inode's own record or by their digest.
    Reuse(BaseFile),
    /// Small: its bytes are here and go into the bundle.
    Pack {
        /// The bytes.
        bytes: Vec<u8>,
        /// Their digest.
        digest: Digest,
    },
    /// Large: to be read, hashed, and sent unless a base has it after all.
    Send,
}

/// Whether a file is stored as a blob of its own.
#[must_use]
pub fn own_blob(file: &ScannedFile) -> bool {
    if file.immutable() {
        file.stat.size >= limits::OWN_BLOB_IMMUTABLE
    } else {
        file.stat.size > limits::OWN_BLOB_OTHER
    }
}

/// Decides about one file. Reads it only when it is small and not known.
///
/// # Errors
/// When it cannot be read or changed since the scan.
pub fn decide(scan: &Scan, file: &ScannedFile, base: &BaseIndex) -> Result<Decision> {
    if let Some(found) = file.recorded(base.store).and_then(|digest| base.by_digest(&digest, file.stat.size)) {
        return Ok(Decision::Reuse(found));
    }
    if own_blob(file) {
        return Ok(Decision::Send);
    }
    let opened = scan.open(file)?;
    let mut bytes = Vec::new();
    (&opened).take(file.stat.size + 1).read_to_end(&mut bytes).map_err(|e| unreadable(file, &e))?;
    if bytes.len() as u64 != file.stat.size {
        return Err(changed(&scan.path, &format!("{} was written to", file.name)));
    }
    let digest = Digest::of(&bytes);
    Ok(match base.by_digest(&digest, file.stat.size) {
        Some(found) => Decision::Reuse(found),
        None => Decision::Pack { bytes, digest },
    })
}

/// The error of a file that cannot be read.
#[must_use]
pub fn unreadable(file: &ScannedFile, e: &std::io::Error) -> Error {
    let kind = if e.kind() == std::io::ErrorKind::PermissionDenied { Kind::Permission } else { Kind::Other };
    Error::new(kind, format!("cannot read {}: {}", file.path, remedied(e)))
}
