//! What lies in `files/`: found, believed, thrown away.

use std::fs::File;

use super::error::{CacheError, Result};
use super::{Cache, FileKey, Inner};
use crate::limits;
use crate::local::identity::{self, FileStat};
use crate::local::{Dir, FileKind};
use crate::types::Digest;

impl Cache {
    /// A complete, verified local file, open for reading only. A file whose inode does not say its digest is hashed once more;
    /// a wrong one is unlinked, and the answer is `None`, as if it had never been there.
    ///
    /// # Errors
    /// [`CacheError::Damaged`] when the file is right but has another size than the caller was told; or the disk fails.
    pub fn open_complete(&self, digest: &Digest, size: u64) -> Result<Option<File>> {
        let found = self.inner.open_complete(digest, size)?;
        if found.is_some() {
            self.inner.counters.hits.inc();
        }
        Ok(found)
    }

    /// Whether a file is here, complete and verified. Looking is no use of it.
    ///
    /// # Errors
    /// As [`Cache::open_complete`].
    pub fn has(&self, digest: &Digest, size: u64) -> Result<bool> {
        Ok(self.inner.find_complete(digest, size)?.is_some())
    }

    /// Says that this process hashed a file while it was as `stat` tells: believed until it changes, also where the file
    /// system keeps no records.
    pub fn vouch(&self, stat: &FileStat, digest: &Digest) {
        self.inner.vouch(stat, digest);
    }
}

impl Inner {
    pub(super) fn open_complete(&self, digest: &Digest, size: u64) -> Result<Option<File>> {
        let found = self.find_complete(digest, size)?;
        if found.is_some() {
            self.touch(digest);
        }
        Ok(found)
    }

    /// [`Inner::open_complete`] by who only looks: that is no use.
    fn find_complete(&self, digest: &Digest, size: u64) -> Result<Option<File>> {
        let Some(dir) = self.files_dir(digest)? else { return Ok(None) };
        let name = digest.to_hex();
        let file = match dir.open_file(&name) {
            Ok(file) => file,
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) if dir.stat(&name)?.is_some_and(|s| s.kind() != FileKind::File) => {
                self.discard(&dir, digest, None, &e.to_string())?;
                return Ok(None);
            }
            Err(e) => return Err(e.into()),
        };
        let fail = |e| CacheError::io(&self.path, format!("read {name}"), e);
        let stat = FileStat::of(&file).map_err(fail)?;
        if stat.nlink == 0 {
            // It was evicted while we waited for it.
            return Ok(None);
        }
        if stat.kind() != FileKind::File {
            self.discard(&dir, digest, Some(&stat), "it is not a regular file")?;
            return Ok(None);
        }
        if !self.believed(&file, &stat, digest)?
            && let Err(why) = self.rehash(&file, &stat, digest).map_err(fail)?
        {
            self.discard(&dir, digest, Some(&stat), &why)?;
            return Ok(None);
        }
        if stat.size != size {
            // The entry is right, so whoever promised another size is wrong.
            return Err(CacheError::Damaged {
                file: format!("the file {digest}"),
                blob: "any".to_owned(),
                checkpoint: "a checkpoint".to_owned(),
                why: format!("its manifest says {size} bytes, and the bytes of that digest are {}", stat.size),
            });
        }
        Ok(Some(file))
    }

    /// Whether the inode is known to hold the digest, without reading it.
    pub(super) fn believed(&self, file: &File, stat: &FileStat, digest: &Digest) -> Result<bool> {
        if self.verified.get(&FileKey::from(stat)).is_some_and(|d| *d == *digest) {
            return Ok(true);
        }
        let recorded = identity::recorded(file).map_err(|e| CacheError::io(&self.path, "read an inode's record", e))?;
        Ok(recorded == Some(*digest))
    }

    /// Reads the whole file once, and remembers that it is right.
    fn rehash(&self, file: &File, stat: &FileStat, digest: &Digest) -> std::io::Result<Result<(), String>> {
        let (found, length) = identity::hash(file)?;
        if found != *digest || length != stat.size {
            return Ok(Err(format!("its {length} bytes have the digest {found}")));
        }
        if !FileStat::of(file)?.unchanged(stat) {
            return Ok(Err("it changed while it was read".to_owned()));
        }
        if stat.size <= limits::VOUCHED_ONLY {
            self.vouch(stat, digest);
            return Ok(Ok(()));
        }
        // A record must not reach the disk before the bytes: after a crash it would vouch for others.
        file.sync_data()?;
        if !identity::record_since(file, digest, stat)? {
            self.vouch(stat, digest);
        }
        Ok(Ok(()))
    }

    /// Remembers for this process what it hashed.
    pub(super) fn vouch(&self, stat: &FileStat, digest: &Digest) {
        if self.verified.len() >= limits::VERIFIED_FILES {
            self.verified.clear();
        }
        self.verified.insert(FileKey::from(stat), *digest);
    }

    /// Unlinks an entry that is not what its name says; the inode itself is left alone: a live database may have it too.
    pub(super) fn discard(&self, dir: &Dir, digest: &Digest, seen: Option<&FileStat>, why: &str) -> Result<()> {
        let name = digest.to_hex();
        if let Some(seen) = seen
            && !dir.stat(&name)?.is_some_and(|now| now.same_inode(seen))
        {
            // Somebody put another one there meanwhile.
            return Ok(());
        }
        log::warn!("removed {} from the cache, it will be fetched anew: {why}", dir.path().join(&name).display());
        dir.remove(&name)?;
        self.counters.discarded.inc();
        Ok(())
    }
}
