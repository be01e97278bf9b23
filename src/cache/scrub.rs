//! Reads entries again in spite of their inodes' records: finds what the disk lost since they were sealed.

use std::fs::File;

use super::error::{CacheError, Result};
use super::{Cache, FileKey};
use crate::local::identity::{self, FileStat};
use crate::types::Digest;

/// What a second look at an entry found.
#[derive(Debug)]
pub enum Examined {
    /// There is no such entry.
    Absent,
    /// Its bytes are those of its digest: the open file and its length.
    Good(File, u64),
    /// They are not. Nobody believes the entry by its record any more: the next reader hashes it, and fetches it anew.
    Bad(Bad),
}

/// A wrong entry.
#[derive(Debug)]
pub struct Bad {
    stat: FileStat,
    /// What is wrong with it.
    pub why: String,
}

impl Cache {
    /// Hashes an entry whatever its record says, and leaves it where it is.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn examine(&self, digest: &Digest) -> Result<Examined> {
        let inner = &self.inner;
        let Some(dir) = inner.files_dir(digest)? else { return Ok(Examined::Absent) };
        let file = match dir.open_file(digest.to_hex()) {
            Ok(file) => file,
            Err(e) if e.is_not_found() => return Ok(Examined::Absent),
            Err(e) => return Err(e.into()),
        };
        let fail = |e| CacheError::io(&inner.path, format!("read {digest}"), e);
        let stat = FileStat::of(&file).map_err(fail)?;
        let (found, length) = identity::hash(&file).map_err(fail)?;
        if found == *digest {
            return Ok(Examined::Good(file, length));
        }
        // The record vouched for bytes that are not there any more; no name of the inode may be believed by it.
        identity::forget(&file).map_err(fail)?;
        inner.verified.remove(&FileKey::from(&stat));
        Ok(Examined::Bad(Bad { stat, why: format!("its {length} bytes have the digest {found}") }))
    }

    /// Takes an entry away that a reader found to be wrong: the next reader fetches it anew.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn discard(&self, digest: &Digest) -> Result<()> {
        if let Examined::Bad(bad) = self.examine(digest)?
            && let Some(dir) = self.inner.files_dir(digest)?
        {
            self.inner.discard(&dir, digest, Some(&bad.stat), &bad.why)?;
        }
        Ok(())
    }
}
