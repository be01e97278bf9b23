//! Clones that were made with this cache: `clones/<nonce of the pin>.json`, the same record that lies in the clone. It finds a clone's
//! checkpoint when a native RocksDB checkpoint of the clone is snapshotted, and tells a clone that is gone from one on a disk that is away.

use super::error::{CacheError, Result};
use super::{Cache, Inner};
use crate::format::clone::CloneMark;
use crate::local::{Durability, FileKind, FileLock, clone_mark};
use crate::types::Uid;

fn file(nonce: Uid) -> String {
    format!("{nonce}.json")
}

fn lock_file(nonce: Uid) -> String {
    format!("{nonce}.lock")
}

/// Held while a clone is made: what is not locked is either whole or was left by a process that died.
#[derive(Debug)]
pub struct Making<'a> {
    cache: &'a Inner,
    nonce: Uid,
    lock: Option<FileLock>,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        if self.lock.take().is_some() {
            let _ = self.cache.clones.remove(lock_file(self.nonce));
        }
    }
}

impl Making<'_> {
    /// Notes what became known of the clone since: its directory.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn note_again(&self, mark: &CloneMark) -> Result<()> {
        self.cache.note(mark, true)
    }
}

impl Inner {
    fn note(&self, mark: &CloneMark, again: bool) -> Result<()> {
        let name = file(mark.nonce);
        if again {
            self.clones.publish_replace(&name, &mark.encode(), 0o600, Durability::Full)?;
        } else {
            self.clones.publish_new(&name, &mark.encode(), 0o600, Durability::Full)?;
        }
        if let Some((uid, gid)) = self.give_to() {
            crate::local::process::lchown_at(&self.clones, &name, uid, gid)?;
        }
        Ok(())
    }
}

impl Cache {
    /// Notes a clone that is about to be made, durably, before its directory and its pin are: so that what is left of one that never came to
    /// be is found.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn note_clone(&self, mark: &CloneMark) -> Result<Making<'_>> {
        let inner = &*self.inner;
        let lock = inner.lock(&inner.clones, &lock_file(mark.nonce))?;
        inner.note(mark, false)?;
        Ok(Making { cache: inner, nonce: mark.nonce, lock })
    }

    /// All clones that were noted, in no order. A note that cannot be read is passed over, and its clone's pin stays.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn clones(&self) -> Result<Vec<CloneMark>> {
        let mut out = Vec::new();
        for entry in self.inner.clones.list()? {
            let Some(nonce) = entry.name.to_str().and_then(|n| n.strip_suffix(".json")) else { continue };
            let Ok(nonce) = nonce.parse::<Uid>() else { continue };
            match self.clone_noted(nonce) {
                Ok(mark) => out.extend(mark),
                Err(e) => log::warn!("{e}"),
            }
        }
        Ok(out)
    }

    /// The clone whose pin has this nonce.
    ///
    /// # Errors
    /// When there is a note that cannot be read.
    pub fn clone_noted(&self, nonce: Uid) -> Result<Option<CloneMark>> {
        let dir = &self.inner.clones;
        let Some(mark) = clone_mark::read(dir, &file(nonce))? else { return Ok(None) };
        if mark.nonce == nonce {
            Ok(Some(mark))
        } else {
            let other = std::io::Error::other("it is another clone's note");
            Err(CacheError::io(self.path(), format!("read clones/{}", file(nonce)), other))
        }
    }

    /// Whether a process is making this clone now.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn is_being_made(&self, nonce: Uid) -> Result<bool> {
        let name = lock_file(nonce);
        if self.inner.clones.stat(&name)?.is_none() {
            return Ok(false);
        }
        let free = FileLock::try_exclusive(&self.inner.clones, &name)?;
        if free.is_some() {
            self.inner.clones.remove(&name)?;
        }
        Ok(free.is_none())
    }

    /// Removes the locks of makers that died before they noted anything: no note leads to them.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn forget_dead_makers(&self) -> Result<()> {
        let dir = &self.inner.clones;
        for entry in dir.list()? {
            let nonce = entry.name.to_str().and_then(|n| n.strip_suffix(".lock")?.parse::<Uid>().ok());
            let Some(nonce) = nonce.filter(|_| entry.kind == FileKind::File) else { continue };
            if dir.stat(file(nonce))?.is_some() {
                continue;
            }
            // Held until it is gone: a maker that comes meanwhile finds that it locked no name, and makes it anew.
            let free = FileLock::try_exclusive(dir, &entry.name)?;
            if free.is_some() && dir.stat(file(nonce))?.is_none() {
                dir.remove(&entry.name)?;
            }
        }
        Ok(())
    }

    /// Forgets a clone, once its pin is taken away.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn forget_clone(&self, nonce: Uid) -> Result<()> {
        self.inner.clones.remove(file(nonce))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CacheOptions;
    use crate::format::clone::{CloneOf, Place};
    use crate::types::{CheckpointNumber, Name};

    fn mark(nonce: u8) -> CloneMark {
        let place = Place { ino: 1, born: None };
        let uid = |n| Uid::from_bytes([n; 16]);
        CloneMark::new(CloneOf {
            store: uid(1),
            checkpoint: (Name::encode("app"), CheckpointNumber::new(1).unwrap(), uid(2)),
            pin: (uid(3), uid(nonce)),
            directory: "/x".to_owned(),
            places: (place, place),
        })
    }

    #[test]
    fn notes_outlive_their_maker_and_say_whether_it_lives() {
        let temp = tempfile::tempdir().unwrap();
        let cache = Cache::open(&temp.path().join("c"), CacheOptions { create: true }).unwrap();
        let (a, b) = (mark(7), mark(8));
        assert_eq!(cache.clones().unwrap(), []);
        let making = cache.note_clone(&a).unwrap();
        drop(cache.note_clone(&b).unwrap());
        assert!(cache.is_being_made(a.nonce).unwrap() && !cache.is_being_made(b.nonce).unwrap());
        drop(making);
        assert!(!cache.is_being_made(a.nonce).unwrap());
        assert_eq!(cache.clones().unwrap().len(), 2);
        cache.forget_clone(b.nonce).unwrap();
        cache.forget_clone(b.nonce).unwrap();
        assert_eq!(cache.clones().unwrap(), std::slice::from_ref(&a));
        // A note that was damaged is nobody's, and does not keep others from being read.
        std::fs::write(temp.path().join("c/clones").join(file(b.nonce)), b"{}").unwrap();
        std::fs::copy(
            temp.path().join("c/clones").join(file(a.nonce)),
            temp.path().join("c/clones").join(file(Uid::from_bytes([9; 16]))),
        )
        .unwrap();
        assert_eq!(cache.clones().unwrap(), [a]);
    }

    #[test]
    fn a_lock_of_a_maker_that_died_before_its_note_goes() {
        let temp = tempfile::tempdir().unwrap();
        let cache = Cache::open(&temp.path().join("c"), CacheOptions { create: true }).unwrap();
        let clones = temp.path().join("c/clones");
        let (noted, unnoted, made) = (mark(7), mark(8), mark(9));
        drop(cache.note_clone(&noted).unwrap());
        for dead in [&noted, &unnoted] {
            std::fs::write(clones.join(lock_file(dead.nonce)), b"process 1").unwrap();
        }
        let making = cache.inner.lock(&cache.inner.clones, &lock_file(made.nonce)).unwrap();
        std::fs::write(clones.join("x.lock"), b"").unwrap();
        cache.forget_dead_makers().unwrap();
        let there = |name: String| clones.join(name).exists();
        assert!(!there(lock_file(unnoted.nonce)), "nothing leads to it");
        assert!(there(lock_file(noted.nonce)) && there(lock_file(made.nonce)) && there("x.lock".to_owned()));
        drop(making);
        cache.forget_dead_makers().unwrap();
        assert!(!there(lock_file(made.nonce)));
    }

    #[test]
    fn a_lock_left_by_a_dead_maker_is_free() {
        let temp = tempfile::tempdir().unwrap();
        let cache = Cache::open(&temp.path().join("c"), CacheOptions { create: true }).unwrap();
        let a = mark(7);
        std::fs::write(temp.path().join("c/clones").join(lock_file(a.nonce)), b"process 1").unwrap();
        assert!(!cache.is_being_made(a.nonce).unwrap());
    }
}
