//! Clones that are gone: their pins keep blobs for nobody.
//!
//! A directory that is not there may be on a disk that is not mounted. So a clone counts as gone only where the very directory that it was
//! made in is there and has it no more, also not under another name. Clones of other caches, and so of other hosts, are never judged here.

use std::path::{Path, PathBuf};

use super::{Cache, Session};
use crate::error::Result;
use crate::format::clone::{CloneMark, Place};
use crate::format::records::{PinHolder, PinRecord};
use crate::lifecycle::driver;
use crate::lifecycle::pin::{PinRef, Unpin};
use crate::local::dir::Dir;
use crate::local::{FileKind, FileStat, clone_mark};

/// Whether a pin's clone was made with this cache and is gone: removed, destroyed as a database, or never finished by a process that died.
/// What cannot be told is not gone.
#[must_use]
pub fn settled_or_gone(cache: &Cache, pin: &PinRecord) -> bool {
    let (PinHolder::Clone { .. }, Some(holder), Some(nonce)) = (&pin.holder, pin.place.holder, pin.place.nonce) else {
        return false;
    };
    if holder != cache.id() {
        return false;
    }
    match cache.clone_noted(nonce) {
        Ok(Some(mark)) => is_gone(cache, &mark),
        Ok(None) => false,
        Err(e) => {
            log::warn!("the pin of a clone stays, since nothing can be told of it: {e}");
            false
        }
    }
}

/// The clones of this cache and store that are gone. Changes nothing.
///
/// # Errors
/// When the cache cannot be read.
pub fn gone(session: &Session) -> Result<Vec<CloneMark>> {
    let clones = session.cache.clones()?.into_iter();
    Ok(clones.filter(|m| m.store == session.store_id && is_gone(&session.cache, m)).collect())
}

/// Takes away the pins of clones of this cache that are gone, and what is left of half-made ones. Returns them.
///
/// # Errors
/// When the cache cannot be read or the store does not answer.
pub fn drop_gone(session: &Session) -> Result<Vec<CloneMark>> {
    let gone = gone(session)?;
    for mark in &gone {
        if let Some(staging) = staging_of(mark) {
            remove(&staging);
        }
        driver::run(&session.store, Unpin::new(vec![PinRef::from(mark)]))?;
        // Last: until then it is found again.
        session.cache.forget_clone(mark.nonce)?;
    }
    session.cache.forget_dead_makers()?;
    Ok(gone)
}

impl From<&CloneMark> for PinRef {
    fn from(mark: &CloneMark) -> Self {
        Self { job: mark.job.clone(), number: mark.number, holder: mark.holder, nonce: mark.nonce }
    }
}

/// A directory, as it is known again.
#[must_use]
pub fn place_of(stat: &FileStat) -> Place {
    Place { ino: stat.ino, born: stat.btime }
}

/// The name of a clone's directory while it is made.
#[must_use]
pub fn staging_name(name: &str, nonce: crate::types::Uid) -> String {
    format!(".{name}.clone-{nonce}")
}

fn parent_and_name(mark: &CloneMark) -> Option<(&Path, &str)> {
    let path = Path::new(&mark.directory);
    Some((path.parent()?, path.file_name()?.to_str()?))
}

fn staging_of(mark: &CloneMark) -> Option<PathBuf> {
    let (parent, name) = parent_and_name(mark)?;
    Some(parent.join(staging_name(name, mark.nonce)))
}

/// Removes what was not finished. Nothing but what this program wrote is in there.
pub fn remove(staging: &Path) {
    match std::fs::remove_dir_all(staging) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => log::warn!("{} is left behind: {e}", staging.display()),
        _ => {}
    }
}

fn is_gone(cache: &Cache, mark: &CloneMark) -> bool {
    match look(cache, mark) {
        Ok(gone) => gone,
        Err(e) => {
            log::info!("the clone {} may be there: {e}", mark.directory);
            false
        }
    }
}

fn look(cache: &Cache, mark: &CloneMark) -> Result<bool> {
    if cache.is_being_made(mark.nonce)? {
        return Ok(false);
    }
    let Some((parent, name)) = parent_and_name(mark) else { return Ok(false) };
    let parent = Dir::open(parent)?;
    if place_of(&parent.stat_self()?) != mark.parent {
        return Ok(false);
    }
    let staging = staging_name(name, mark.nonce);
    // Under its name first; it may also have been renamed.
    for entry in parent.list()? {
        let itself = entry.kind == FileKind::Dir && (entry.ino == mark.place.ino || entry.name.to_str() == Some(name));
        if itself && entry.name.to_str() != Some(&*staging) && lives(&parent.sub(&entry.name)?, mark)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The directory is that clone and still a database: one that was destroyed leaves our record behind.
fn lives(dir: &Dir, mark: &CloneMark) -> Result<bool> {
    if clone_mark::of(dir)?.is_none_or(|found| found.nonce != mark.nonce) {
        return Ok(false);
    }
    for database in &mark.databases {
        let opened = if database.is_empty() { dir.try_clone() } else { dir.sub_path(Path::new(database)) };
        match opened {
            Ok(dir) if dir.stat("CURRENT")?.is_some() => return Ok(true),
            Ok(_) => {}
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(mark.databases.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CacheOptions;
    use crate::format::clone::{CLONE_MARK, CloneOf};
    use crate::types::{CheckpointNumber, Name, Uid};
    use std::fs;

    struct Yard {
        temp: tempfile::TempDir,
        cache: Cache,
    }

    impl Yard {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let cache = Cache::open(&temp.path().join("cache"), CacheOptions { create: true }).unwrap();
            fs::create_dir(temp.path().join("disk")).unwrap();
            Self { temp, cache }
        }

        fn disk(&self, name: &str) -> PathBuf {
            self.temp.path().join("disk").join(name)
        }

        /// A clone `c` on the disk, noted.
        fn clone(&self, nonce: u8) -> CloneMark {
            let uid = |n| Uid::from_bytes([n; 16]);
            fs::create_dir(self.disk("c")).unwrap();
            let place = |p: &Path| place_of(&Dir::open(p).unwrap().stat_self().unwrap());
            let mut mark = CloneMark::new(CloneOf {
                store: uid(1),
                checkpoint: (Name::encode("app"), CheckpointNumber::new(1).unwrap(), uid(2)),
                pin: (self.cache.id(), uid(nonce)),
                directory: self.disk("c").to_str().unwrap().to_owned(),
                places: (place(&self.disk("c")), place(&self.temp.path().join("disk"))),
            });
            mark.databases.push(String::new());
            fs::write(self.disk("c").join(CLONE_MARK), mark.encode()).unwrap();
            fs::write(self.disk("c").join("CURRENT"), "MANIFEST-000005\n").unwrap();
            drop(self.cache.note_clone(&mark).unwrap());
            mark
        }
    }

    #[test]
    fn removed_destroyed_or_replaced_clones_are_gone() {
        let yard = Yard::new();
        let mark = yard.clone(7);
        assert!(!is_gone(&yard.cache, &mark));
        fs::remove_file(yard.disk("c").join("CURRENT")).unwrap();
        assert!(is_gone(&yard.cache, &mark), "DestroyDB leaves the record alone");
        fs::remove_dir_all(yard.disk("c")).unwrap();
        assert!(is_gone(&yard.cache, &mark));
        let next = yard.clone(8);
        assert!(is_gone(&yard.cache, &mark) && !is_gone(&yard.cache, &next), "another clone has its place");
    }

    #[test]
    fn renamed_clones_and_disks_that_are_away_keep_their_pins() {
        let yard = Yard::new();
        let mark = yard.clone(7);
        fs::rename(yard.disk("c"), yard.disk("d")).unwrap();
        assert!(!is_gone(&yard.cache, &mark), "renamed");
        let (disk, away) = (yard.temp.path().join("disk"), yard.temp.path().join("away"));
        fs::rename(&disk, &away).unwrap();
        assert!(!is_gone(&yard.cache, &mark), "no disk");
        fs::create_dir(&disk).unwrap();
        assert!(!is_gone(&yard.cache, &mark), "the empty mount point of the disk");
        fs::remove_dir(&disk).unwrap();
        fs::rename(&away, &disk).unwrap();
        fs::remove_dir_all(yard.disk("d")).unwrap();
        assert!(is_gone(&yard.cache, &mark));
    }

    #[test]
    fn half_made_ones_are_gone_once_their_maker_is() {
        let yard = Yard::new();
        let mark = yard.clone(7);
        fs::rename(yard.disk("c"), staging_of(&mark).unwrap()).unwrap();
        yard.cache.forget_clone(mark.nonce).unwrap();
        let making = yard.cache.note_clone(&mark).unwrap();
        assert!(!is_gone(&yard.cache, &mark));
        drop(making);
        assert!(is_gone(&yard.cache, &mark));
    }

    #[test]
    fn pins_of_others_are_not_judged() {
        let yard = Yard::new();
        let mark = yard.clone(7);
        fs::remove_dir_all(yard.disk("c")).unwrap();
        let mut place = crate::format::Place::new(crate::format::Role::Pin, &mark.job, 1, mark.uid);
        (place.holder, place.nonce) = (Some(mark.holder), Some(mark.nonce));
        let holder = PinHolder::Clone {
            host: "h".to_owned(),
            directory: mark.directory.clone(),
            job: None,
            epoch: crate::types::Epoch::default(),
        };
        let pin = PinRecord { place, holder, pinned_ms: 0 };
        assert!(settled_or_gone(&yard.cache, &pin));
        let person = PinRecord { holder: PinHolder::Person { note: String::new() }, ..pin.clone() };
        let mut other = pin.clone();
        other.place.holder = Some(Uid::from_bytes([9; 16]));
        let mut unknown = pin;
        unknown.place.nonce = Some(Uid::from_bytes([9; 16]));
        for kept in [person, other, unknown] {
            assert!(!settled_or_gone(&yard.cache, &kept), "{kept:?}");
        }
    }
}
