//! The calls that change files: their numbers, and where among their arguments the path and the length are.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libc::user_regs_struct as Registers;

use super::sys;

/// Which argument says what is changed.
#[derive(Debug, Clone, Copy)]
enum Place {
    Fd(usize),
    At(usize, usize),
    Path(usize),
}

/// A call that is stopped at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traced {
    number: i64,
    pub(super) name: &'static str,
    place: Place,
    length: Option<usize>,
}

const fn call(number: i64, name: &'static str, place: Place, length: Option<usize>) -> Traced {
    Traced { number, name, place, length }
}

use Place::{At, Fd, Path as By};

/// Opens; of these, only such that create are changes.
pub(super) const OPENS: [Traced; 4] = [
    call(libc::SYS_openat, "openat", At(0, 1), None),
    call(libc::SYS_openat2, "openat2", At(0, 1), None),
    call(libc::SYS_open, "open", By(0), None),
    call(libc::SYS_creat, "creat", By(0), None),
];

/// Cloning is an ioctl among many: the filter looks at its request.
pub(super) const CLONE: Traced = call(libc::SYS_ioctl, "ioctl", Fd(0), None);

pub(super) const CHANGES: [Traced; 39] = [
    call(libc::SYS_write, "write", Fd(0), Some(2)),
    call(libc::SYS_pwrite64, "pwrite64", Fd(0), Some(2)),
    call(libc::SYS_writev, "writev", Fd(0), Some(2)),
    call(libc::SYS_pwritev, "pwritev", Fd(0), Some(2)),
    call(libc::SYS_pwritev2, "pwritev2", Fd(0), Some(2)),
    call(libc::SYS_copy_file_range, "copy_file_range", Fd(2), Some(4)),
    call(libc::SYS_sendfile, "sendfile", Fd(0), Some(3)),
    call(libc::SYS_fsync, "fsync", Fd(0), None),
    call(libc::SYS_fdatasync, "fdatasync", Fd(0), None),
    call(libc::SYS_sync_file_range, "sync_file_range", Fd(0), None),
    call(libc::SYS_syncfs, "syncfs", Fd(0), None),
    call(libc::SYS_ftruncate, "ftruncate", Fd(0), None),
    call(libc::SYS_truncate, "truncate", By(0), None),
    call(libc::SYS_fallocate, "fallocate", Fd(0), None),
    call(libc::SYS_linkat, "linkat", At(2, 3), None),
    call(libc::SYS_link, "link", By(1), None),
    call(libc::SYS_renameat2, "renameat2", At(2, 3), None),
    call(libc::SYS_renameat, "renameat", At(2, 3), None),
    call(libc::SYS_rename, "rename", By(1), None),
    call(libc::SYS_symlinkat, "symlinkat", At(1, 2), None),
    call(libc::SYS_symlink, "symlink", By(1), None),
    call(libc::SYS_unlinkat, "unlinkat", At(0, 1), None),
    call(libc::SYS_unlink, "unlink", By(0), None),
    call(libc::SYS_rmdir, "rmdir", By(0), None),
    call(libc::SYS_mkdirat, "mkdirat", At(0, 1), None),
    call(libc::SYS_mkdir, "mkdir", By(0), None),
    call(libc::SYS_fsetxattr, "fsetxattr", Fd(0), None),
    call(libc::SYS_setxattr, "setxattr", By(0), None),
    call(libc::SYS_lsetxattr, "lsetxattr", By(0), None),
    call(libc::SYS_fremovexattr, "fremovexattr", Fd(0), None),
    call(libc::SYS_removexattr, "removexattr", By(0), None),
    call(libc::SYS_fchmod, "fchmod", Fd(0), None),
    call(libc::SYS_fchmodat, "fchmodat", At(0, 1), None),
    call(libc::SYS_chmod, "chmod", By(0), None),
    call(libc::SYS_fchown, "fchown", Fd(0), None),
    call(libc::SYS_fchownat, "fchownat", At(0, 1), None),
    call(libc::SYS_chown, "chown", By(0), None),
    call(libc::SYS_lchown, "lchown", By(0), None),
    call(libc::SYS_utimensat, "utimensat", At(0, 1), None),
];

impl Traced {
    pub(super) fn of(number: u64) -> Option<Self> {
        let all = OPENS.iter().chain(&CHANGES).chain([&CLONE]);
        all.copied().find(|t| t.number.cast_unsigned() == number)
    }

    pub(super) fn number(&self) -> u32 {
        u32::try_from(self.number).unwrap()
    }

    /// What the call changes. Nothing: a descriptor that is no file.
    pub(super) fn path(&self, tid: i32, regs: &Registers) -> Option<PathBuf> {
        match self.place {
            Fd(i) => of_fd(tid, argument(regs, i)),
            By(i) => Some(from(tid, libc::AT_FDCWD, &sys::text(tid, argument(regs, i))?)),
            // Without a path, it is the descriptor itself that is meant.
            At(dir, path) => match sys::text(tid, argument(regs, path)).filter(|p| !p.is_empty()) {
                Some(path) => Some(from(tid, argument(regs, dir) as i32, &path)),
                None => of_fd(tid, argument(regs, dir)),
            },
        }
    }

    /// The register with the number of bytes, or of pieces.
    pub(super) fn length<'r>(&self, regs: &'r mut Registers) -> Option<&'r mut u64> {
        self.length.map(|i| register(regs, i))
    }
}

fn of_fd(tid: i32, fd: u64) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{tid}/fd/{}", fd as i32)).ok()
}

fn from(tid: i32, dir: i32, path: &[u8]) -> PathBuf {
    let path = Path::new(OsStr::from_bytes(path));
    let base = if path.is_absolute() {
        None
    } else if dir == libc::AT_FDCWD {
        std::fs::read_link(format!("/proc/{tid}/cwd")).ok()
    } else {
        of_fd(tid, u64::from(dir.cast_unsigned()))
    };
    base.unwrap_or_default().join(path)
}

fn register(regs: &mut Registers, index: usize) -> &mut u64 {
    match index {
        0 => &mut regs.rdi,
        1 => &mut regs.rsi,
        2 => &mut regs.rdx,
        3 => &mut regs.r10,
        4 => &mut regs.r8,
        _ => &mut regs.r9,
    }
}

fn argument(regs: &Registers, index: usize) -> u64 {
    *register(&mut { *regs }, index)
}
