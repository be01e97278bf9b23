//! Reads entries again in spite of their inodes' records: finds what the disk lost since they were sealed.

use super::error::{CacheError, Result};
use super::{Cache, FileKey};
use crate::local::identity::{self, FileStat};
use crate::types::Digest;

/// What a second look at an entry found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scrubbed {
    /// There is no such entry.
    Absent,
    /// Its bytes are those of its digest.
    Good,
    /// They were not: the entry is gone now, and the next reader fetches it anew.
    Discarded,
}

impl Cache {
    /// Hashes an entry whatever its record says.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn scrub(&self, digest: &Digest) -> Result<Scrubbed> {
        let inner = &self.inner;
        let Some(dir) = inner.files_dir(digest)? else { return Ok(Scrubbed::Absent) };
        let file = match dir.open_file(digest.to_hex()) {
            Ok(file) => file,
            Err(e) if e.is_not_found() => return Ok(Scrubbed::Absent),
            Err(e) => return Err(e.into()),
        };
        let fail = |e| CacheError::io(&inner.path, format!("read {digest}"), e);
        let stat = FileStat::of(&file).map_err(fail)?;
        let (found, length) = identity::hash(&file).map_err(fail)?;
        if found == *digest {
            return Ok(Scrubbed::Good);
        }
        // The record vouched for bytes that are not there any more; no name of the inode may be believed by it.
        identity::forget(&file).map_err(fail)?;
        inner.verified.remove(&FileKey::from(&stat));
        inner.discard(&dir, digest, Some(&stat), &format!("its {length} bytes have the digest {found}"))?;
        Ok(Scrubbed::Discarded)
    }

    /// Takes an entry away that a reader found to be wrong.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn discard(&self, digest: &Digest) -> Result<()> {
        self.scrub(digest).map(|_| ())
    }
}
