//! A file on its way into the cache: without a name in `partial/`, hashed while it is written, and named by its digest only
//! when that is the one that was promised.

use std::fs::File;
use std::io::{self, Seek, Write};

use super::error::{CacheError, Result};
use super::open::FILE_MODE;
use super::{Cache, Inner};
use crate::local::identity::{self, FileStat};
use crate::local::link::{Linked, link_from_fd};
use crate::local::memory;
use crate::local::publish::Staged;
use crate::types::{Digest, Hasher};

/// Whether a sealed file must outlive a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// Synced, with its inode's record.
    Durable,
    /// Not synced, and therefore without a record: after a crash it is hashed again before it is believed.
    ForNow,
}

/// Where it is written.
enum Place<'a> {
    Disk(Staged<'a>),
    /// It will never have a name, and is gone when whoever reads it closes it.
    Memory(File),
}

/// A file that is being written. Dropped, it is gone.
pub(super) struct Stage<'a> {
    cache: &'a Inner,
    place: Place<'a>,
    hasher: Hasher,
    written: u64,
}

impl<'a> Stage<'a> {
    pub(super) fn new(cache: &'a Inner) -> Result<Self> {
        let staged = Staged::new(&cache.partial, FILE_MODE).map_err(|e| cache.failed("a new file", 0, e))?;
        cache.adopt(staged.file()).map_err(|e| CacheError::write(&cache.path, "a new file", 0, e))?;
        Ok(Self { cache, place: Place::Disk(staged), hasher: Hasher::new(), written: 0 })
    }

    /// For a file that the disk has no room for.
    pub(super) fn in_memory(cache: &'a Inner) -> Result<Self> {
        let file = memory::file().map_err(|e| CacheError::io(&cache.path, "hold a file in memory", e))?;
        Ok(Self { cache, place: Place::Memory(file), hasher: Hasher::new(), written: 0 })
    }

    pub(super) fn file(&self) -> &File {
        match &self.place {
            Place::Disk(staged) => staged.file(),
            Place::Memory(file) => file,
        }
    }

    /// Appends, and hashes what it appends.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file().write_all(bytes)?;
        self.hasher.update(bytes);
        self.written = self.written.saturating_add(bytes.len() as u64);
        if let Place::Disk(_) = self.place {
            self.cache.taken.add(bytes.len() as u64);
        }
        Ok(())
    }

    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Digest of all that was written.
    pub(super) fn digest(&self) -> Digest {
        self.hasher.finish()
    }

    /// Names the file by a digest that it is known to have. The file comes back read-only; it is another's where one
    /// was faster. One in memory gets no name.
    pub(super) fn seal(self, digest: &Digest, keep: Keep) -> Result<File> {
        let length = self.written;
        self.seal_known(digest, length, keep)
    }

    /// [`Stage::seal`] of a file that got its bytes in another way than by [`Stage::write`].
    pub(super) fn seal_known(self, digest: &Digest, length: u64, keep: Keep) -> Result<File> {
        let cache = self.cache;
        let fail = |e| CacheError::write(&cache.path, digest.to_string(), length, e);
        let staged = match self.place {
            Place::Disk(staged) => staged,
            Place::Memory(mut file) => return file.rewind().map(|()| file).map_err(fail),
        };
        let file = staged.file();
        if keep == Keep::Durable {
            // Without a name yet: nobody else can have changed it since. The record is made before the sync, so that both reach
            // the disk before the name does.
            let recorded = identity::record(file, digest).map_err(fail)?;
            file.sync_all().map_err(fail)?;
            if recorded {
                return cache.name(file, digest, length, keep);
            }
        }
        cache.vouch(&FileStat::of(file).map_err(fail)?, digest);
        cache.name(file, digest, length, keep)
    }
}

impl Inner {
    /// Gives a file its digest's name and opens it anew for reading. What has the name already stays if it is right.
    pub(super) fn name(&self, file: &File, digest: &Digest, length: u64, keep: Keep) -> Result<File> {
        let name = digest.to_hex();
        // Eviction or a damaged entry may come between; somebody who does that three times in a row is no accident.
        for _ in 0..3 {
            let dir = self.make_files_dir(digest)?;
            match link_from_fd(file, &dir, &name).map_err(|e| self.failed(&name, length, e))? {
                Linked::Linked | Linked::Exists => {}
                other => {
                    let e = io::Error::other(format!("the cache's own file system does not link: {other:?}"));
                    return Err(CacheError::io(&self.path, format!("name {name}"), e));
                }
            }
            if keep == Keep::Durable {
                self.sync_files_dir(&dir)?;
            }
            if let Some(file) = self.open_complete(digest, length)? {
                return Ok(file);
            }
        }
        let e = io::Error::other("it went away as soon as it was there: somebody empties the cache");
        Err(CacheError::io(&self.path, format!("keep {name}"), e))
    }
}

/// A file that was taken into the cache: its digest, its hash tree, and itself.
pub type TakenIn = (Digest, Vec<u8>, File);

/// Takes the bytes of a file, in order.
pub type Receiver<'a> = dyn FnMut(&[u8]) -> io::Result<()> + 'a;

impl Cache {
    /// Takes in a file of this size that nobody has hashed yet: `fill` brings its bytes.
    ///
    /// # Errors
    /// What `fill` fails with; when it brings more or fewer bytes; when the disk refuses.
    pub fn take_in<E: From<CacheError>>(
        &self,
        size: u64,
        fill: impl FnOnce(&mut Receiver<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<TakenIn, E> {
        let mut stage = Stage::new(&self.inner)?;
        let mut full = None;
        let filled = fill(&mut |bytes| {
            let kept = |e: &io::Error| e.raw_os_error().map_or_else(|| e.kind().into(), io::Error::from_raw_os_error);
            stage.write(bytes).inspect_err(|e| full = Some(kept(e)))
        });
        if let Some(e) = full {
            return Err(CacheError::write(&self.inner.path, "a new file", size, e).into());
        }
        filled?;
        let digest = stage.digest();
        let fail = |e| CacheError::write(&self.inner.path, digest.to_string(), size, e);
        if stage.written() != size {
            let why = io::Error::other(format!("{} bytes came, {size} were announced", stage.written()));
            return Err(fail(why).into());
        }
        let mut whole = stage.file();
        whole.rewind().map_err(fail)?;
        let (_, tree) = super::tree::hash_and_tree_of(whole, size).map_err(fail)?;
        let file = stage.seal(&digest, Keep::Durable)?;
        Ok((digest, tree, file))
    }

    /// Keeps these bytes, durably.
    ///
    /// # Errors
    /// [`CacheError::Mismatch`] when they are not those of the digest; or the disk refuses.
    pub fn put_bytes(&self, digest: &Digest, bytes: &[u8]) -> Result<()> {
        self.inner.put_bytes(digest, bytes, Keep::Durable).map(drop)
    }

    /// Keeps a copy of bytes that the store has as well: after a power cut it is hashed again before it is believed.
    ///
    /// # Errors
    /// As [`Cache::put_bytes`].
    pub fn put_copy(&self, digest: &Digest, bytes: &[u8]) -> Result<()> {
        self.inner.put_bytes(digest, bytes, Keep::ForNow).map(drop)
    }
}

impl Inner {
    /// Syncs an entry's bytes, unless it has a record: that is never named, nor made, before they are on the disk.
    pub(super) fn make_durable(&self, file: &File, digest: &Digest) -> Result<()> {
        let fail = |e| CacheError::io(&self.path, format!("sync {digest}"), e);
        if identity::recorded(file).map_err(fail)? == Some(*digest) {
            return Ok(());
        }
        file.sync_all().map_err(fail)
    }

    pub(super) fn put_bytes(&self, digest: &Digest, bytes: &[u8], keep: Keep) -> Result<File> {
        let length = bytes.len() as u64;
        let found = Digest::of(bytes);
        if found != *digest {
            return Err(CacheError::Mismatch { expected: *digest, why: format!("it holds {found}") });
        }
        if let Some(file) = self.open_complete(digest, length)? {
            if keep == Keep::Durable {
                self.make_durable(&file, digest)?;
                self.sync_files_dir(&self.make_files_dir(digest)?)?;
            }
            return Ok(file);
        }
        let mut stage = Stage::new(self)?;
        stage.write(bytes).map_err(|e| CacheError::write(&self.path, digest.to_string(), length, e))?;
        stage.seal(digest, keep)
    }
}
