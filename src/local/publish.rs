//! Whole files that appear at once and stay: written without a name, synced, then linked.
//!
//! Where the file system has no O_TMPFILE, a staging name (`.tmp-` and 32 hex digits) stands in. It is locked while its
//! writer lives, so that leftovers can be told from work in progress.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use super::dir::{Dir, component};
use super::error::{LocalError, Result};
use super::sys;
use crate::types::Uid;

/// What is on the disk when a publish returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The file and its name.
    Full,
    /// The file; its name after the caller's [`Dir::sync`].
    FileOnly,
    /// Nothing: for hints and caches that can be made anew.
    None,
}

/// How a create-if-absent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// The file is there and is ours.
    Created,
    /// Something had the name already. Nothing changed.
    Exists,
}

const STAGING: &str = ".tmp-";

/// Whether a file name is one of our staging names.
#[must_use]
pub fn is_staging(name: impl AsRef<OsStr>) -> bool {
    let hex = |b: &u8| b.is_ascii_digit() || (b'a'..=b'f').contains(b);
    name.as_ref()
        .as_bytes()
        .strip_prefix(STAGING.as_bytes())
        .is_some_and(|rest| rest.len() == 32 && rest.iter().all(hex))
}

/// A file that is being written and has no name that anybody looks for. Dropped without being published, it is gone.
#[derive(Debug)]
pub struct Staged<'a> {
    dir: &'a Dir,
    file: File,
    /// Set where the file system has no unnamed files.
    name: Option<CString>,
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = sys::unlink(self.dir.as_fd(), name, 0);
        }
    }
}

impl<'a> Staged<'a> {
    /// A new empty file in `dir`, open for reading and writing.
    ///
    /// # Errors
    /// When the directory may not be written.
    pub fn new(dir: &'a Dir, mode: u32) -> Result<Self> {
        match sys::openat(dir.as_fd(), c".", libc::O_TMPFILE | libc::O_RDWR, mode) {
            Ok(fd) => Ok(Self { dir, file: fd.into(), name: None }),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => {
                Self::named(dir, mode)
            }
            Err(e) => {
                // In a directory that was just removed, ext4 says EPERM; ENOENT lets callers make it anew.
                let gone = e.raw_os_error() == Some(libc::EPERM) && dir.stat_self().is_ok_and(|stat| stat.nlink == 0);
                let e = if gone { io::Error::from_raw_os_error(libc::ENOENT) } else { e };
                Err(LocalError::new("write a file in", dir.path(), e))
            }
        }
    }

    fn named(dir: &'a Dir, mode: u32) -> Result<Self> {
        let fail = |e| LocalError::new("write a file in", dir.path(), e);
        let name = format!("{STAGING}{}", Uid::random().map_err(fail)?);
        let file = dir.create_file(&name, mode)?;
        let name = sys::cstr(OsStr::new(&name)).map_err(fail)?;
        let staged = Self { dir, file, name: Some(name) };
        sys::flock(&staged.file, libc::LOCK_EX | libc::LOCK_NB).map_err(fail)?;
        Ok(staged)
    }

    /// The file, to be filled.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Has the disk begin with what was written so far, so that it works while the rest is made. Nothing is durable by it.
    pub fn start_writeback(&self) {
        sys::start_writeback(self.file.as_fd());
    }

    /// Makes its bytes durable.
    ///
    /// # Errors
    /// When the disk fails: then the file must not get a name.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| LocalError::new("write a file in", self.dir.path(), e))
    }

    /// Gives the file as it is a name in any directory of the same file system, if that is free. Durable after the caller's
    /// [`Dir::sync`], if [`Staged::sync`] came first.
    ///
    /// # Errors
    /// When the directory is gone or may not be written.
    pub fn link_into(&self, dir: &Dir, name: impl AsRef<OsStr>) -> Result<Published> {
        let name = name.as_ref();
        let fail = |e| LocalError::entry("publish", dir.path(), name, e);
        let c = component(name).map_err(fail)?;
        match sys::link_fd(self.file.as_fd(), dir.as_fd(), &c) {
            Ok(()) => Ok(Published::Created),
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => Ok(Published::Exists),
            Err(e) => Err(fail(e)),
        }
    }

    /// Makes the file durable as `durability` asks and gives it its name, if that is free. The file comes back open.
    ///
    /// # Errors
    /// When a sync fails: then nothing was published, and the same file must not be tried again.
    pub fn publish(self, name: impl AsRef<OsStr>, durability: Durability) -> Result<(Published, File)> {
        let name = name.as_ref();
        let fail = |e| LocalError::entry("publish", self.dir.path(), name, e);
        component(name).map_err(fail)?;
        if durability != Durability::None {
            self.file.sync_data().map_err(fail)?;
        }
        let published = self.link_into(self.dir, name)?;
        if durability == Durability::Full {
            self.dir.sync()?;
        }
        let file = self.file.try_clone().map_err(fail)?;
        Ok((published, file))
    }

    /// Gives the file its name, replacing what has it.
    ///
    /// # Errors
    /// As [`Staged::publish`].
    pub fn replace(self, name: impl AsRef<OsStr>, durability: Durability) -> Result<()> {
        let name = name.as_ref();
        let fail = |e| LocalError::entry("publish", self.dir.path(), name, e);
        component(name).map_err(fail)?;
        if durability != Durability::None {
            self.file.sync_data().map_err(fail)?;
        }
        // An unnamed file cannot be renamed over another: it takes a staging name first.
        let mut this = self;
        if this.name.is_none() {
            let staging = sys::cstr(OsStr::new(&format!("{STAGING}{}", Uid::random().map_err(fail)?))).map_err(fail)?;
            sys::flock(&this.file, libc::LOCK_EX | libc::LOCK_NB).map_err(fail)?;
            sys::link_fd(this.file.as_fd(), this.dir.as_fd(), &staging).map_err(fail)?;
            this.name = Some(staging);
        }
        let staging = this.name.take().unwrap_or_default();
        let renamed = component(name).and_then(|c| sys::rename(this.dir.as_fd(), &staging, this.dir.as_fd(), &c));
        if let Err(e) = renamed {
            let error = fail(e);
            this.name = Some(staging);
            return Err(error);
        }
        if durability == Durability::Full {
            this.dir.sync()?;
        }
        Ok(())
    }
}

/// What a file shall hold.
pub trait Contents {
    /// Writes it all.
    ///
    /// # Errors
    /// Whatever writing gives.
    fn write_to(self, file: &mut File) -> io::Result<()>;
}

impl Contents for &[u8] {
    fn write_to(self, file: &mut File) -> io::Result<()> {
        file.write_all(self)
    }
}

impl<const N: usize> Contents for &[u8; N] {
    fn write_to(self, file: &mut File) -> io::Result<()> {
        file.write_all(self)
    }
}

impl Contents for &Vec<u8> {
    fn write_to(self, file: &mut File) -> io::Result<()> {
        file.write_all(self)
    }
}

impl<F: FnOnce(&mut File) -> io::Result<()>> Contents for F {
    fn write_to(self, file: &mut File) -> io::Result<()> {
        self(file)
    }
}

impl Dir {
    fn stage(&self, name: &OsStr, contents: impl Contents, mode: u32) -> Result<Staged<'_>> {
        let mut staged = Staged::new(self, mode)?;
        contents.write_to(&mut staged.file).map_err(|e| LocalError::entry("write", self.path(), name, e))?;
        Ok(staged)
    }

    /// Creates a whole file if nothing has its name: readers see all of it or none.
    ///
    /// # Errors
    /// When it cannot be written or synced; then nothing was published.
    pub fn publish_new(
        &self,
        name: impl AsRef<OsStr>,
        contents: impl Contents,
        mode: u32,
        durability: Durability,
    ) -> Result<Published> {
        self.stage(name.as_ref(), contents, mode)?.publish(name, durability).map(|(published, _)| published)
    }

    /// Creates or replaces a whole file: for hints and caches, never for what somebody decided by.
    ///
    /// # Errors
    /// When it cannot be written or synced.
    pub fn publish_replace(
        &self,
        name: impl AsRef<OsStr>,
        contents: impl Contents,
        mode: u32,
        durability: Durability,
    ) -> Result<()> {
        self.stage(name.as_ref(), contents, mode)?.replace(name, durability)
    }

    /// Removes a staging file whose writer is gone. False: it is being written, or is no longer there.
    ///
    /// # Errors
    /// When it cannot be opened or removed.
    pub fn remove_staging(&self, name: impl AsRef<OsStr>) -> Result<bool> {
        let name = name.as_ref();
        if !is_staging(name) {
            return Ok(false);
        }
        let file = match self.open_file(name) {
            Ok(file) => file,
            Err(e) if e.is_not_found() => return Ok(false),
            Err(e) => return Err(e),
        };
        match sys::flock(&file, libc::LOCK_EX | libc::LOCK_NB) {
            Ok(()) => self.remove(name),
            Err(e) if e.raw_os_error() == Some(libc::EWOULDBLOCK) => Ok(false),
            Err(e) => Err(LocalError::entry("lock", self.path(), name, e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        (temp, dir)
    }

    fn read(dir: &Dir, name: &str) -> Vec<u8> {
        std::fs::read(dir.path().join(name)).unwrap()
    }

    #[test]
    fn the_first_wins_and_nothing_is_left() {
        let (_temp, dir) = dir();
        for level in [Durability::Full, Durability::FileOnly, Durability::None] {
            let name = format!("{level:?}");
            assert_eq!(dir.publish_new(&name, b"one", 0o444, level).unwrap(), Published::Created);
            assert_eq!(dir.publish_new(&name, b"two", 0o444, level).unwrap(), Published::Exists);
            assert_eq!(read(&dir, &name), b"one");
            dir.publish_replace(&name, b"three", 0o444, level).unwrap();
            assert_eq!(read(&dir, &name), b"three");
        }
        assert_eq!(dir.list().unwrap().len(), 3);
    }

    #[test]
    fn named_staging_does_the_same() {
        let (_temp, dir) = dir();
        for (round, expected) in [Published::Created, Published::Exists].into_iter().enumerate() {
            let staged = Staged::named(&dir, 0o600).unwrap();
            staged.file().write_all(format!("{round}").as_bytes()).unwrap();
            let entries = dir.list().unwrap();
            let staging = entries.iter().find(|e| is_staging(&e.name)).unwrap();
            // Its writer lives: nobody takes it for a leftover.
            assert!(!dir.remove_staging(&staging.name).unwrap());
            assert_eq!(staged.publish("f", Durability::Full).unwrap().0, expected);
        }
        Staged::named(&dir, 0o600).unwrap().replace("g", Durability::Full).unwrap();
        drop(Staged::named(&dir, 0o600).unwrap());
        assert_eq!(read(&dir, "f"), b"0");
        assert_eq!(dir.list().unwrap().len(), 2);
    }

    #[test]
    fn leftovers_go_and_others_stay() {
        let (_temp, dir) = dir();
        let left = format!("{STAGING}{}", "ab".repeat(16));
        dir.create_file(&left, 0o600).unwrap();
        for name in ["x", ".tmp-", ".tmp-abc", &format!("{STAGING}{}", "AB".repeat(16)), &format!("{left}.json")] {
            dir.create_file(name, 0o600).unwrap();
            assert!(!dir.remove_staging(name).unwrap(), "{name}");
        }
        assert!(dir.remove_staging(&left).unwrap());
        assert!(!dir.remove_staging(&left).unwrap());
        assert_eq!(dir.list().unwrap().len(), 5);
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let (_temp, dir) = dir();
        let failing = |_: &mut File| Err(io::Error::other("no"));
        let error = dir.publish_new("f", failing, 0o600, Durability::Full).unwrap_err();
        assert!(error.to_string().contains("/f: no"), "{error}");
        assert!(dir.publish_new("../f", b"x", 0o600, Durability::None).is_err());
        assert_eq!(dir.list().unwrap(), []);
    }

    #[test]
    fn one_of_many_wins() {
        let (_temp, dir) = dir();
        let won: usize = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..8_u8)
                .map(|i| {
                    let dir = &dir;
                    scope.spawn(move || dir.publish_new("f", &vec![i; 100], 0o600, Durability::None).unwrap())
                })
                .collect();
            racers.into_iter().map(|r| usize::from(r.join().unwrap() == Published::Created)).sum()
        });
        assert_eq!(won, 1);
        let bytes = read(&dir, "f");
        assert!(bytes.len() == 100 && bytes.iter().all(|b| *b == bytes[0]));
    }
}
