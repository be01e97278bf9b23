//! Hard links from an open descriptor, reflinks, copies. The path of the source is never used twice.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use super::dir::{Dir, component};
use super::error::{LocalError, Result};
use super::identity::FileStat;
use super::sys;

/// How a hard link ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linked {
    /// The name is there, and is that inode.
    Linked,
    /// Something had the name already. Nothing changed.
    Exists,
    /// The directory is on another file system.
    CrossDevice,
    /// The inode has as many names as the file system allows.
    TooManyLinks,
    /// The kernel does not let us link this inode: another owner's (`fs.protected_hardlinks`), or sealed.
    NotPermitted,
}

/// Gives an open file a name in `dir`. Not durable before [`Dir::sync`].
///
/// # Errors
/// When the kernel refuses for another reason, or the name turns out to be another inode.
pub fn link_from_fd(file: &File, dir: &Dir, name: impl AsRef<OsStr>) -> Result<Linked> {
    let name = name.as_ref();
    let fail = |e| LocalError::entry("link a file as", dir.path(), name, e);
    let c = component(name).map_err(fail)?;
    if let Err(e) = sys::link_fd(file.as_fd(), dir.as_fd(), &c) {
        return match e.raw_os_error() {
            Some(libc::EEXIST) => Ok(Linked::Exists),
            Some(libc::EXDEV) => Ok(Linked::CrossDevice),
            Some(libc::EMLINK) => Ok(Linked::TooManyLinks),
            // EOPNOTSUPP, ENOSYS: vfat and friends have no hard links.
            Some(libc::EPERM | libc::EACCES | libc::EOPNOTSUPP | libc::ENOSYS) if dir_writable(dir) => {
                Ok(Linked::NotPermitted)
            }
            _ => Err(fail(e)),
        };
    }
    let source = FileStat::of(file).map_err(fail)?;
    match dir.stat(name)? {
        Some(stat) if stat.same_inode(&source) => Ok(Linked::Linked),
        _ => Err(fail(io::Error::other("the name was taken by another file at once: somebody else writes here"))),
    }
}

/// Tells a refused link from a refused directory: the latter is an error, whatever the source is.
fn dir_writable(dir: &Dir) -> bool {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open and the path NUL-terminated.
    unsafe { libc::faccessat(dir.as_fd().as_raw_fd(), c".".as_ptr(), libc::W_OK, libc::AT_EACCESS) == 0 }
}

/// Makes `to` share all blocks of `from`. False where the file system cannot.
///
/// # Errors
/// When the disk fails or is full.
pub fn reflink(from: &File, to: &File) -> io::Result<bool> {
    match sys::ficlone(from.as_fd(), to.as_fd()) {
        Ok(()) => Ok(true),
        Err(e)
            if matches!(
                e.raw_os_error(),
                Some(
                    libc::EOPNOTSUPP
                        | libc::ENOTTY
                        | libc::ENOSYS
                        | libc::EXDEV
                        | libc::EINVAL
                        | libc::EPERM
                        | libc::EACCES
                        | libc::ETXTBSY
                        | libc::EISDIR
                )
            ) =>
        {
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

/// Copies all bytes of `from`, from its first one, to the beginning of `to`, inside the kernel where it can. Returns how many.
///
/// # Errors
/// When reading or writing fails.
pub fn copy_contents(from: &File, to: &File) -> io::Result<u64> {
    use std::io::{Seek, SeekFrom};
    let (mut from, mut to) = (from, to);
    from.seek(SeekFrom::Start(0))?;
    to.seek(SeekFrom::Start(0))?;
    io::copy(&mut from, &mut to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn links_are_the_same_inode() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let file = dir.create_file("a", 0o600).unwrap();
        assert_eq!(link_from_fd(&file, &dir, "b").unwrap(), Linked::Linked);
        assert_eq!(link_from_fd(&file, &dir, "b").unwrap(), Linked::Exists);
        let stat = dir.stat("b").unwrap().unwrap();
        assert!(stat.same_inode(&dir.stat("a").unwrap().unwrap()) && stat.nlink == 2);
        assert!(link_from_fd(&file, &dir, "../c").is_err());
        // What has no name any more cannot get one.
        dir.remove("a").unwrap();
        dir.remove("b").unwrap();
        assert!(link_from_fd(&file, &dir, "c").is_err());
    }

    #[test]
    fn other_devices_are_told_apart() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let file = File::open("/proc/self/status").unwrap();
        assert_eq!(link_from_fd(&file, &dir, "x").unwrap(), Linked::CrossDevice);
    }

    #[test]
    fn too_many_links() {
        // 65,000 on ext4; other file systems take more, or say EMLINK later: stop there.
        let temp = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let file = dir.create_file("a", 0o600).unwrap();
        let last =
            (0..70_000).map(|i| link_from_fd(&file, &dir, format!("{i}")).unwrap()).find(|l| *l != Linked::Linked);
        assert!(matches!(last, None | Some(Linked::TooManyLinks)));
    }

    #[test]
    fn copies_and_reflinks_have_the_bytes() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let mut from = dir.create_file("a", 0o600).unwrap();
        from.write_all(&vec![7; 100_000]).unwrap();
        let to = dir.create_file("b", 0o600).unwrap();
        // Another test covers what this file system cannot do: either answer is right here, and a copy follows.
        let shared = reflink(&from, &to).unwrap();
        assert_eq!(to.metadata().unwrap().len(), if shared { 100_000 } else { 0 });
        let to = dir.create_file("c", 0o600).unwrap();
        assert_eq!(copy_contents(&from, &to).unwrap(), 100_000);
        assert_eq!(std::fs::read(temp.path().join("c")).unwrap(), vec![7; 100_000]);
        assert!(!reflink(&File::open("/proc/self/status").unwrap(), &to).unwrap());
    }
}
