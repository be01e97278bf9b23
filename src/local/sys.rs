//! Thin, safe faces of the system calls that std does not have.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

/// A C string of a name or path.
pub(super) fn cstr(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// -1 becomes the errno.
pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Repeats what a signal interrupted.
pub(super) fn retry(mut call: impl FnMut() -> libc::c_int) -> io::Result<libc::c_int> {
    loop {
        match check(call()) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Takes a descriptor that a system call just returned.
fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: `fd` was returned by a successful call a moment ago and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// openat(2), O_CLOEXEC always.
pub(super) fn openat(dir: BorrowedFd<'_>, name: &CStr, flags: libc::c_int, mode: u32) -> io::Result<OwnedFd> {
    // SAFETY: the directory is open for the call and `name` is NUL-terminated.
    retry(|| unsafe { libc::openat(dir.as_raw_fd(), name.as_ptr(), flags | libc::O_CLOEXEC, mode) }).map(own)
}

/// open(2) that only finds what a path names: no FUSE daemon is told of an open, no last symlink is followed.
pub(super) fn open_path(path: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: `path` is NUL-terminated.
    retry(|| unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) }).map(own)
}

/// openat2(2) that stays below `dir` and follows no symlink.
pub(super) fn open_beneath(dir: BorrowedFd<'_>, path: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: `open_how` is plain numbers, for which zero is a valid value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::from((flags | libc::O_CLOEXEC).cast_unsigned());
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS;
    loop {
        // SAFETY: all pointers are to live values, and the size is that of the structure passed.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                dir.as_raw_fd(),
                path.as_ptr(),
                std::ptr::from_mut(&mut how),
                size_of::<libc::open_how>(),
            )
        };
        match libc::c_int::try_from(fd) {
            Ok(fd) if fd >= 0 => return Ok(own(fd)),
            _ => {
                let e = io::Error::last_os_error();
                // EAGAIN: a rename raced with the walk; the kernel asks for another try.
                if !matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) {
                    return Err(e);
                }
            }
        }
    }
}

/// linkat(2) from an open file, by its place in /proc: works without privilege, for unnamed files too.
pub(super) fn link_fd(file: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let from = cstr(OsStr::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))?;
    // SAFETY: both strings are NUL-terminated and the descriptors are open.
    let linked = check(unsafe {
        libc::linkat(libc::AT_FDCWD, from.as_ptr(), dir.as_raw_fd(), name.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    });
    match linked {
        // No /proc here: the direct way needs CAP_DAC_READ_SEARCH or, since Linux 6.10, the opener's credentials.
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) && !std::path::Path::new("/proc/self/fd").exists() => {
            // SAFETY: as above; the empty string is a valid NUL-terminated path.
            check(unsafe {
                libc::linkat(file.as_raw_fd(), c"".as_ptr(), dir.as_raw_fd(), name.as_ptr(), libc::AT_EMPTY_PATH)
            })
            .map(drop)
        }
        other => other.map(drop),
    }
}

/// unlinkat(2).
pub(super) fn unlink(dir: BorrowedFd<'_>, name: &CStr, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: the directory is open and `name` is NUL-terminated.
    check(unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), flags) }).map(drop)
}

/// mkdirat(2).
pub(super) fn mkdir(dir: BorrowedFd<'_>, name: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: the directory is open and `name` is NUL-terminated.
    check(unsafe { libc::mkdirat(dir.as_raw_fd(), name.as_ptr(), mode) }).map(drop)
}

/// renameat(2).
pub(super) fn rename(from: BorrowedFd<'_>, a: &CStr, to: BorrowedFd<'_>, b: &CStr) -> io::Result<()> {
    // SAFETY: both directories are open and both names are NUL-terminated.
    check(unsafe { libc::renameat(from.as_raw_fd(), a.as_ptr(), to.as_raw_fd(), b.as_ptr()) }).map(drop)
}

/// renameat2(2): both names change places, in one step.
pub(super) fn exchange(dir: BorrowedFd<'_>, a: &CStr, b: &CStr) -> io::Result<()> {
    let fd = dir.as_raw_fd();
    // SAFETY: the directory is open and both names are NUL-terminated.
    let result = unsafe { libc::renameat2(fd, a.as_ptr(), fd, b.as_ptr(), libc::RENAME_EXCHANGE) };
    check(result).map(drop)
}

/// symlinkat(2).
pub(super) fn symlink(target: &CStr, dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: the directory is open and both strings are NUL-terminated.
    check(unsafe { libc::symlinkat(target.as_ptr(), dir.as_raw_fd(), name.as_ptr()) }).map(drop)
}

/// readlinkat(2), whole targets only.
pub(super) fn readlink(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Vec<u8>> {
    let mut target = vec![0_u8; 4097];
    // SAFETY: the kernel writes at most `target.len()` bytes into the live buffer.
    let n = unsafe { libc::readlinkat(dir.as_raw_fd(), name.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    target.truncate(n);
    Ok(target)
}

/// statx(2) of a name below `dir`, or of `dir` itself when the name is empty. Symlinks are not followed.
pub(super) fn statx(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<libc::statx> {
    // SAFETY: `statx` is plain numbers, for which zero is a valid value.
    let mut out: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the descriptor is open, `name` NUL-terminated, and the buffer is a live `statx`.
    retry(|| unsafe {
        libc::statx(
            dir.as_raw_fd(),
            name.as_ptr(),
            flags,
            libc::STATX_BASIC_STATS | libc::STATX_BTIME,
            std::ptr::from_mut(&mut out),
        )
    })?;
    Ok(out)
}

/// getdents64(2): the next entries of a directory, zero bytes at its end.
pub(super) fn getdents(dir: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into the live buffer.
    let n = unsafe { libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// FICLONE: `to` shares all blocks of `from`.
pub(super) fn ficlone(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open; this ioctl takes the source descriptor by value.
    check(unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) }).map(drop)
}

/// flock(2).
pub(super) fn flock(file: impl AsFd, operation: libc::c_int) -> io::Result<()> {
    let file = file.as_fd();
    // SAFETY: the descriptor is open.
    retry(|| unsafe { libc::flock(file.as_raw_fd(), operation) }).map(drop)
}

/// The process whose POSIX lock is in the way of a write lock on the whole file; 0 for one in another namespace.
pub(super) fn posix_lock_holder(file: impl AsFd) -> io::Result<Option<u32>> {
    let file = file.as_fd();
    // SAFETY: `flock` is plain numbers, for which zero is a valid value: the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    // Whether a *read* lock could be had: a write lock cannot be asked for on a descriptor open for reading on every file system.
    lock.l_type = libc::c_short::try_from(libc::F_RDLCK).unwrap_or_default();
    // SAFETY: the descriptor is open and the pointer is to a live `flock`.
    retry(|| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, std::ptr::from_mut(&mut lock)) })?;
    if libc::c_int::from(lock.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    Ok(Some(u32::try_from(lock.l_pid).unwrap_or(0)))
}

/// Begins to write a file's dirty pages to the disk, without waiting: a hint.
pub(super) fn start_writeback(file: BorrowedFd<'_>) {
    // SAFETY: the descriptor is open; no memory is passed.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

/// fstatfs(2).
pub(super) fn fstatfs(file: BorrowedFd<'_>) -> io::Result<libc::statfs> {
    // SAFETY: `statfs` is plain numbers, for which zero is a valid value.
    let mut out: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and the buffer is a live `statfs`.
    retry(|| unsafe { libc::fstatfs(file.as_raw_fd(), std::ptr::from_mut(&mut out)) })?;
    Ok(out)
}
