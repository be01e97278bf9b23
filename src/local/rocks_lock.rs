//! Whether a process holds a POSIX lock on a file, as RocksDB does on LOCK while a database is open.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;

use super::dir::Dir;
use super::error::{LocalError, Result};
use super::identity::FileStat;
use super::sys;

/// The process that holds a POSIX write lock on the file: 0 when it is in another namespace, `None` when nobody does or there is no such file.
///
/// Closing any descriptor of the file would drop this process's own lock, so it is opened only when this process has it not open. The
/// kernel's table of all locks is read only then: it stops every CPU of the machine for tens of milliseconds.
///
/// # Errors
/// When the file or the kernel's table cannot be read.
pub fn posix_holder(dir: &Dir, name: impl AsRef<OsStr>) -> Result<Option<u32>> {
    let name = name.as_ref();
    let Some(stat) = dir.stat(name)? else { return Ok(None) };
    if open_here(&stat) {
        let table = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        if let Some(holder) = table.lines().find_map(|line| holder_of(line, stat.ino)) {
            return Ok(Some(holder));
        }
    }
    // A missing permission to open it is no proof that nobody holds it; the scan looks for changes anyway.
    let file = match dir.open_file(name) {
        Ok(file) => file,
        Err(e) if e.errno() == Some(libc::EACCES) => return Ok(None),
        Err(e) => return Err(e),
    };
    sys::posix_lock_holder(&file).map_err(|e| LocalError::entry("look at the lock", dir.path(), name, e))
}

/// Whether this process has the inode open. Where that cannot be told, it may.
fn open_here(stat: &FileStat) -> bool {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return true };
    entries.filter_map(|e| std::fs::metadata(e.ok()?.path()).ok()).any(|m| m.ino() == stat.ino)
}

/// `1: POSIX  ADVISORY  WRITE 1234 fd:00:5678 0 EOF`. The inode alone is compared: btrfs and overlays show another device there than stat.
/// Two inodes of one number, one of them locked, would only refuse a snapshot that could be taken.
fn holder_of(line: &str, ino: u64) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1).filter(|w| *w != "->");
    let (kind, _, mode, pid, place) = (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
    let inode: u64 = place.rsplit(':').next()?.parse().ok()?;
    (kind == "POSIX" && mode == "WRITE" && inode == ino).then(|| pid.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_has_open_is_found() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let file = dir.create_file("LOCK", 0o600).unwrap();
        let stat = FileStat::of(&file).unwrap();
        assert!(open_here(&stat));
        drop(file);
        assert!(!open_here(&stat));
        assert_eq!(posix_holder(&dir, "LOCK").unwrap(), None);
    }

    #[test]
    fn the_kernels_table_is_read() {
        assert_eq!(holder_of("1: POSIX  ADVISORY  WRITE 1234 fd:00:5678 0 EOF", 5678), Some(1234));
        assert_eq!(holder_of("1: POSIX  ADVISORY  READ 1234 fd:00:5678 0 EOF", 5678), None);
        assert_eq!(holder_of("1: FLOCK  ADVISORY  WRITE 1234 fd:00:5678 0 EOF", 5678), None);
        assert_eq!(holder_of("1: POSIX  ADVISORY  WRITE 1234 fd:00:5679 0 EOF", 5678), None);
        assert_eq!(holder_of("", 1), None);
    }
}
