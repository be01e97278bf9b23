//! Keeps local files: hard-linked where that is allowed, else reflinked or copied, and says which.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use super::error::{CacheError, Result};
use super::open::first_byte;
use super::stage::{Keep, Stage};
use super::{Cache, Inner};
use crate::limits;
use crate::local::link::{Linked, link_from_fd, reflink};
use crate::local::{Dir, FileKind, FileStat, identity};
use crate::types::{Digest, parallel};

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// Others than owner and group may write it: no name of ours makes such an inode trustworthy.
const WRITABLE_BY_ALL: u32 = 0o002;

/// How a local file came into the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkedIn {
    /// Its inode has a name in the cache now.
    Linked,
    /// The cache had it already.
    Present,
    /// Its blocks are shared, its inode is not: another owner's file, or too many links.
    Reflinked,
    /// Its bytes were copied: another file system or owner.
    Copied,
}

impl LinkedIn {
    /// Whether it cost more than a link: to be reported.
    #[must_use]
    pub fn is_degraded(self) -> bool {
        matches!(self, Self::Reflinked | Self::Copied)
    }
}

/// Files that are kept together: their directories are synced once, by [`Batch::finish`], and nothing counts before.
/// May be used by several threads.
#[derive(Debug)]
pub struct Batch<'a> {
    cache: &'a Inner,
    touched: Mutex<BTreeMap<String, Dir>>,
}

impl Cache {
    /// Begins to keep several files.
    #[must_use]
    pub fn batch(&self) -> Batch<'_> {
        Batch { cache: &self.inner, touched: Mutex::new(BTreeMap::new()) }
    }

    /// Keeps one immutable local file, durably. See [`Batch::link_in`].
    ///
    /// # Errors
    /// As [`Batch::link_in`].
    pub fn link_in(&self, file: &File, digest: &Digest) -> Result<LinkedIn> {
        let batch = self.batch();
        let linked = batch.link_in(file, digest)?;
        batch.finish()?;
        Ok(linked)
    }
}

impl Batch<'_> {
    /// Keeps an immutable local file under the digest that it was hashed to. The open file is linked, never its path; a linked inode
    /// is not changed in any way. A file that neither its inode's record nor this process vouches for is hashed first.
    ///
    /// # Errors
    /// [`CacheError::Mismatch`] when it holds something else, changes meanwhile or is not a regular file;
    /// [`CacheError::NoSpace`] when a copy does not fit.
    pub fn link_in(&self, file: &File, digest: &Digest) -> Result<LinkedIn> {
        let cache = self.cache;
        let mismatch = |why: &str| CacheError::Mismatch { expected: *digest, why: why.to_owned() };
        let fail = |e| CacheError::io(&cache.path, format!("look at a file to be kept as {digest}"), e);
        let before = FileStat::of(file).map_err(fail)?;
        if before.kind() != FileKind::File {
            return Err(mismatch("it is not a regular file"));
        }
        if let Some(found) = cache.open_complete(digest, before.size)? {
            cache.make_durable(&found, digest)?;
            // Whoever put it there may not have synced the directory yet.
            self.touch(digest)?;
            return Ok(LinkedIn::Present);
        }
        let own = before.uid == cache.uid && before.mode & WRITABLE_BY_ALL == 0;
        let believed = cache.believed(file, &before, digest)?;
        // A copy is hashed while it is made. Device numbers are a hint (overlayfs has several): the link itself will tell.
        let own = own && (believed || before.dev == cache.device);
        if own && !believed {
            let (found, length) = identity::hash(file).map_err(fail)?;
            if found != *digest || length != before.size {
                return Err(mismatch(&format!("its {length} bytes have the digest {found}")));
            }
            file.sync_data().map_err(fail)?;
            if !identity::record_since(file, digest, &before).map_err(fail)? {
                cache.vouch(&before, digest);
            }
        }
        if own && let Some(linked) = self.link(file, digest, &before)? {
            return Ok(linked);
        }
        let how = cache.copy_in(file, digest, &before)?;
        cache.counters.degraded_links.inc();
        Ok(how)
    }

    /// `None`: the file system does not let us.
    fn link(&self, file: &File, digest: &Digest, before: &FileStat) -> Result<Option<LinkedIn>> {
        let cache = self.cache;
        let name = digest.to_hex();
        // Its bytes must be on the disk before its name counts. RocksDB synced them: then this is nearly free.
        file.sync_data().map_err(|e| CacheError::io(&cache.path, format!("sync a file to be kept as {digest}"), e))?;
        let dir = cache.make_files_dir(digest)?;
        let linked = link_from_fd(file, &dir, &name).map_err(|e| cache.failed(&name, before.size, e))?;
        match linked {
            Linked::Linked => {}
            Linked::Exists => {
                // Somebody was faster. If theirs is wrong it is gone now, and a copy takes its place.
                let Some(found) = cache.open_complete(digest, before.size)? else { return Ok(None) };
                cache.make_durable(&found, digest)?;
                self.touch(digest)?;
                return Ok(Some(LinkedIn::Present));
            }
            Linked::CrossDevice | Linked::TooManyLinks | Linked::NotPermitted => return Ok(None),
        }
        let after = FileStat::of(file)
            .map_err(|e| CacheError::io(&cache.path, format!("look at a file to be kept as {digest}"), e))?;
        if !after.unchanged(before) {
            cache.discard(&dir, digest, Some(&after), "the file changed while it was linked")?;
            let why = "it changed while it was linked: only files that nobody writes any more can be kept".to_owned();
            return Err(CacheError::Mismatch { expected: *digest, why });
        }
        cache.touch(digest);
        self.touch(digest)?;
        Ok(Some(LinkedIn::Linked))
    }

    fn touch(&self, digest: &Digest) -> Result<()> {
        let name = first_byte(digest);
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        if let std::collections::btree_map::Entry::Vacant(vacant) = touched.entry(name) {
            vacant.insert(self.cache.make_files_dir(digest)?);
        }
        Ok(())
    }

    /// Makes all names durable.
    ///
    /// # Errors
    /// When the disk fails: then nothing of the batch counts.
    pub fn finish(self) -> Result<()> {
        let touched = self.touched.into_inner().unwrap_or_else(PoisonError::into_inner);
        let above = (!touched.is_empty()).then_some(&self.cache.files);
        parallel(limits::PARALLEL_SYNCS, touched.values().chain(above).collect(), Dir::sync)?;
        Ok(())
    }
}

impl Inner {
    fn copy_in(&self, file: &File, digest: &Digest, before: &FileStat) -> Result<LinkedIn> {
        let mismatch = |why: String| CacheError::Mismatch { expected: *digest, why };
        let mut stage = Stage::new(self)?;
        let fail = |e| CacheError::write(&self.path, digest.to_string(), before.size, e);
        // Shared blocks are as good as a copy, and are believed only if the source is: otherwise they would have to be read.
        if self.believed(file, before, digest)? && reflink(file, stage.file()).map_err(fail)? {
            let same = FileStat::of(file).map_err(fail)?.unchanged(before);
            if !same || FileStat::of(stage.file()).map_err(fail)?.size != before.size {
                return Err(mismatch("it changed while its blocks were shared".to_owned()));
            }
            stage.seal_known(digest, before.size, Keep::Durable)?;
            return Ok(LinkedIn::Reflinked);
        }
        let mut buffer = vec![0; PIECE];
        loop {
            match file.read_at(&mut buffer, stage.written()) {
                Ok(0) => break,
                Ok(n) => stage.write(buffer.get(..n).unwrap_or_default()).map_err(fail)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(CacheError::io(&self.path, format!("read a file to be kept as {digest}"), e)),
            }
        }
        let found = stage.digest();
        if found != *digest {
            return Err(mismatch(format!("its {} bytes have the digest {found}", stage.written())));
        }
        stage.seal(digest, Keep::Durable)?;
        Ok(LinkedIn::Copied)
    }
}
