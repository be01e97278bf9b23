//! Throws away what was not used for longest. Counted are real blocks; a file that has another name as well costs nothing here, and
//! unlinking it would free nothing.

use std::fmt;

use super::error::Result;
use super::{Cache, Inner, uses};
use crate::limits::CACHE_RECENT_S;
use crate::local::process::Room;
use crate::local::{Dir, FileKind, FileLock, FileStat, lease};
use crate::types::Digest;

/// What an eviction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evicted {
    /// Files that were unlinked, or whose bytes were given back.
    pub files: u64,
    /// Bytes on the disk that they had.
    pub bytes: u64,
    /// Bytes on the disk that what is left has, without files that have other names.
    pub left: u64,
}

impl fmt::Display for Evicted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files with {} bytes left the cache, which has {} bytes now", self.files, self.bytes, self.left)
    }
}

/// Where a file lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Whole,
    Part,
    Manifest,
}

/// A file that costs room.
#[derive(Debug)]
pub(super) struct Candidate {
    place: Place,
    digest: Digest,
    stat: FileStat,
    used: u64,
    gone: bool,
}

impl Candidate {
    fn bytes(&self) -> u64 {
        self.stat.on_disk()
    }
}

/// All that costs room.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) bytes: u64,
    files: Vec<Candidate>,
}

/// What a cache takes of its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupied {
    /// Bytes on the disk of its files that have no other name.
    pub bytes: u64,
    /// How many such files there are.
    pub files: u64,
    /// Bytes that are free on its disk.
    pub free: u64,
}

impl Cache {
    /// The room on its disk.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn disk(&self) -> Result<Room> {
        self.inner.room()
    }

    /// Looks at all its files and at its disk.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn occupied(&self) -> Result<Occupied> {
        let held = self.inner.held()?;
        Ok(Occupied { bytes: held.bytes, files: held.files.len() as u64, free: self.inner.room()?.available })
    }
}

impl Held {
    /// Bytes that can go without hurting anybody who works now.
    pub(super) fn stale(&self) -> u64 {
        let recent = uses::now().saturating_sub(CACHE_RECENT_S);
        self.files.iter().filter(|c| !c.gone && c.used < recent).map(Candidate::bytes).sum()
    }
}

impl Inner {
    /// Looks at everything in the cache.
    pub(super) fn held(&self) -> Result<Held> {
        let known = self.load_uses()?;
        let mut held = Held::default();
        let mut found = |place, digest: Digest, stat: FileStat| {
            if stat.nlink <= 1 {
                // Never used that anybody knows of: since it was made.
                let made = u64::try_from(stat.btime.unwrap_or(stat.mtime).0).unwrap_or_default();
                let used = known.get(&digest).copied().unwrap_or(made);
                let candidate = Candidate { place, digest, stat, used, gone: false };
                held.bytes = held.bytes.saturating_add(candidate.bytes());
                held.files.push(candidate);
            }
        };
        for sub in self.files.list()?.iter().filter(|e| e.kind == FileKind::Dir) {
            named(&self.files.sub(&sub.name)?, |digest, stat| found(Place::Whole, digest, stat))?;
        }
        named(&self.partial, |digest, stat| found(Place::Part, digest, stat))?;
        named(&self.manifests, |digest, stat| found(Place::Manifest, digest, stat))?;
        Ok(held)
    }

    /// What is open counts as used: it may have been opened long ago.
    pub(super) fn use_open(&self, held: &mut Held) -> Result<()> {
        let recent = uses::now().saturating_sub(CACHE_RECENT_S);
        for candidate in held.files.iter_mut().filter(|c| c.used < recent) {
            if candidate.place == Place::Whole && self.is_open(candidate).unwrap_or(true) {
                self.touch(&candidate.digest);
                candidate.used = uses::now();
            }
        }
        Ok(())
    }

    /// Throws away what is over, and some more, so that not each new file asks for it again.
    pub(super) fn evict(&self, held: &mut Held, over: super::room::Over) -> Result<Evicted> {
        let mut done = Evicted { left: held.bytes, ..Evicted::default() };
        if over.is_none() {
            return Ok(done);
        }
        held.files.sort_by_key(|c| (c.used, c.digest));
        let stays = held.bytes.saturating_sub(over.bytes);
        // A file whose bytes were given back still has its inode.
        let mut unlinked = 0_u64;
        let bytes = over.bytes.saturating_add(if over.bytes > 0 { stays / 16 } else { 0 });
        for candidate in &mut held.files {
            if done.bytes >= bytes && unlinked >= over.files {
                break;
            }
            // One that cannot go is no reason to keep the others.
            let freed = self.throw_away(candidate).unwrap_or_else(|e| {
                log::debug!("{} stays in the cache: {e}", candidate.digest);
                None
            });
            if let Some((freed, removed)) = freed {
                candidate.gone = true;
                unlinked += u64::from(removed);
                done.files = done.files.saturating_add(1);
                done.bytes = done.bytes.saturating_add(freed);
                done.left = done.left.saturating_sub(freed);
            }
        }
        Ok(done)
    }

    fn is_open(&self, candidate: &Candidate) -> Result<bool> {
        let Some(dir) = self.files_dir(&candidate.digest)? else { return Ok(false) };
        let file = match dir.open_file(candidate.digest.to_hex()) {
            Ok(file) => file,
            Err(e) if e.is_not_found() => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        Ok(lease::alone(&file).is_ok_and(|alone| alone.is_none()))
    }

    /// Bytes that were freed, and whether an inode was. Nothing: it is in use, has another name, or went away.
    fn throw_away(&self, candidate: &Candidate) -> Result<Option<(u64, bool)>> {
        match candidate.place {
            Place::Whole => match self.files_dir(&candidate.digest)? {
                Some(dir) => self.unlink(&dir, candidate),
                None => Ok(None),
            },
            Place::Manifest => self.unlink(&self.manifests, candidate),
            Place::Part => self.give_back(candidate),
        }
    }

    /// Unlinks a file if it is still the one that was looked at, with no other name, and open nowhere.
    fn unlink(&self, dir: &Dir, candidate: &Candidate) -> Result<Option<(u64, bool)>> {
        let name = candidate.digest.to_hex();
        let file = match dir.open_file(&name) {
            Ok(file) => file,
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        // Held until the name is gone: nobody opens it in between.
        let alone = match lease::alone(&file) {
            Ok(Some(alone)) => alone,
            Ok(None) => {
                self.touch(&candidate.digest);
                return Ok(None);
            }
            Err(e) => {
                log::debug!("{name} stays in the cache: {e}");
                return Ok(None);
            }
        };
        match dir.stat(&name)? {
            Some(now) if now.same_inode(&candidate.stat) && now.nlink <= 1 => {}
            _ => return Ok(None),
        }
        let removed = dir.remove(&name)?;
        drop(alone);
        self.forget_use(&candidate.digest);
        Ok(removed.then_some((candidate.bytes(), true)))
    }

    /// Gives back the bytes of a file that is here in parts.
    fn give_back(&self, candidate: &Candidate) -> Result<Option<(u64, bool)>> {
        if let Some(open) = self.lazy.get(&candidate.digest).and_then(|l| l.upgrade()) {
            return Ok(open.give_back()?.map(|freed| (freed, false)));
        }
        let name = candidate.digest.to_hex();
        // Held by another process that reads it, or by one of our threads that is closing it: next time.
        let Some(held) = FileLock::try_exclusive(&self.partial, &name)? else { return Ok(None) };
        let removed = self.partial.remove(&name)?;
        drop(held);
        self.forget_use(&candidate.digest);
        Ok(removed.then_some((candidate.bytes(), true)))
    }
}

/// Calls `f` with every file of a directory that is named by a digest.
fn named(dir: &Dir, mut f: impl FnMut(Digest, FileStat)) -> Result<()> {
    for entry in dir.list()? {
        let digest = entry.name.to_str().and_then(|n| n.parse::<Digest>().ok());
        if let (Some(digest), FileKind::File) = (digest, entry.kind)
            && let Some(stat) = dir.stat(&entry.name)?
        {
            f(digest, stat);
        }
    }
    Ok(())
}
