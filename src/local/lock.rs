//! Locks that last as long as a process: the kernel gives them up when it dies, so that none is ever stale.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::dir::Dir;
use super::error::{LocalError, Result};
use super::identity::FileStat;
use super::sys;

/// How often a waiting locker looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Longest note in a lock file: a process id and a path.
const INFO_LEN: usize = 4096;

/// An exclusive lock on a file; dropped, it is free.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

impl FileLock {
    /// Takes the lock if it is free. The file is made where it is missing (mode 0600) and stays.
    ///
    /// # Errors
    /// When the file cannot be opened; a lock that is held is `None`.
    pub fn try_exclusive(dir: &Dir, name: impl AsRef<OsStr>) -> Result<Option<Self>> {
        let name = name.as_ref();
        loop {
            let file = dir.open_with(name, libc::O_RDWR | libc::O_CREAT | libc::O_NONBLOCK, 0o600, "open the lock")?;
            let fail = |e| LocalError::entry("lock", dir.path(), name, e);
            match sys::flock(&file, libc::LOCK_EX | libc::LOCK_NB) {
                Ok(()) => {}
                Err(e) if e.raw_os_error() == Some(libc::EWOULDBLOCK) => return Ok(None),
                Err(e) => return Err(fail(e)),
            }
            // Whoever removed and made the file anew holds another inode's lock: take that one.
            let held = FileStat::of(&file).map_err(fail)?;
            if dir.stat(name)?.is_some_and(|now| now.same_inode(&held)) {
                return Ok(Some(Self { file }));
            }
        }
    }

    /// The locked file. The lock lives as long as it is open.
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }

    /// Takes the lock, waiting for it at most `patience`.
    ///
    /// # Errors
    /// As [`FileLock::try_exclusive`]; `None` when it is still held.
    pub fn wait_exclusive(dir: &Dir, name: impl AsRef<OsStr>, patience: Duration) -> Result<Option<Self>> {
        let name = name.as_ref();
        let begun = Instant::now();
        loop {
            if let Some(lock) = Self::try_exclusive(dir, name)? {
                return Ok(Some(lock));
            }
            if begun.elapsed() >= patience {
                return Ok(None);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Notes who holds it, for [`FileLock::holder`].
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write_info(&self, info: &str) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all_at(info.as_bytes(), 0)
    }

    /// What the last holder noted. A hint: the lock itself says whether it still lives.
    ///
    /// # Errors
    /// When the file cannot be read; `None` when there is none.
    pub fn holder(dir: &Dir, name: impl AsRef<OsStr>) -> Result<Option<String>> {
        let name = name.as_ref();
        let file = match dir.open_file(name) {
            Ok(file) => file,
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut buffer = vec![0; INFO_LEN];
        let n = file.read_at(&mut buffer, 0).map_err(|e| LocalError::entry("read", dir.path(), name, e))?;
        buffer.truncate(n);
        Ok(Some(String::from_utf8_lossy(&buffer).trim().to_owned()).filter(|s| !s.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let lock = FileLock::try_exclusive(&dir, "lock").unwrap().unwrap();
        lock.write_info("pid 7").unwrap();
        assert!(FileLock::try_exclusive(&dir, "lock").unwrap().is_none());
        assert!(FileLock::wait_exclusive(&dir, "lock", Duration::from_millis(50)).unwrap().is_none());
        assert_eq!(FileLock::holder(&dir, "lock").unwrap().as_deref(), Some("pid 7"));
        // Its file is replaced: the old lock says nothing about the new one.
        dir.remove("lock").unwrap();
        let other = FileLock::try_exclusive(&dir, "lock").unwrap().unwrap();
        drop(lock);
        assert!(FileLock::try_exclusive(&dir, "lock").unwrap().is_none());
        drop(other);
        assert!(FileLock::try_exclusive(&dir, "lock").unwrap().is_some());
        assert_eq!(FileLock::holder(&dir, "nothing").unwrap(), None);
    }

    #[test]
    fn who_waits_gets_it() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let lock = FileLock::try_exclusive(&dir, "lock").unwrap().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| FileLock::wait_exclusive(&dir, "lock", Duration::from_secs(30)));
            std::thread::sleep(Duration::from_millis(60));
            drop(lock);
            assert!(waiter.join().unwrap().unwrap().is_some());
        });
    }

    #[test]
    fn symlinks_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        dir.symlink(std::path::Path::new("elsewhere"), "lock").unwrap();
        assert!(FileLock::try_exclusive(&dir, "lock").is_err());
        assert!(dir.stat("elsewhere").unwrap().is_none());
    }
}
