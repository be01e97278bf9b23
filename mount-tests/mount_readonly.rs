//! Read-only means it: whatever would change something fails with the very errno that a read-only bind mount of ext4 gives, and
//! nothing changes.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::kit::{Bed, Kept, is_root, noise, run};

/// errno of a system call, 0 when it succeeded.
macro_rules! errno {
    ($call:expr) => {{
        // SAFETY: every call below is given descriptors and NUL-terminated strings that outlive it, or plain numbers.
        let result = unsafe { $call };
        if result as i64 == -1 { std::io::Error::last_os_error().raw_os_error().unwrap() } else { 0 }
    }};
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// What is tried in one tree: a directory, a file in it, and what the calls are about: `file`, `dir` or `root`.
struct Place {
    dir: PathBuf,
    file: PathBuf,
    target: PathBuf,
}

type Try = (&'static str, fn(&Place) -> i32);

fn opened(place: &Place, flags: i32) -> i32 {
    errno!(libc::open(c(&place.target).as_ptr(), flags, 0o644))
}

fn on_fd(path: &Path, call: impl FnOnce(i32) -> i32) -> i32 {
    call(File::open(path).unwrap().as_raw_fd())
}

fn flags(path: &Path, request: libc::Ioctl) -> i32 {
    // Room for the largest argument, `struct fsxattr`.
    let mut argument = [0_u64; 8];
    on_fd(path, |fd| errno!(libc::ioctl(fd, request, argument.as_mut_ptr())))
}

const FS_IOC_SETFLAGS: libc::Ioctl = 0x4008_6602;
const FS_IOC_FSSETXATTR: libc::Ioctl = 0x401c_5820;
const FICLONE: libc::Ioctl = 0x4004_9409;

const TRIES: &[Try] = &[
    ("open for writing", |p| opened(p, libc::O_WRONLY)),
    ("open for both", |p| opened(p, libc::O_RDWR)),
    ("open and truncate", |p| opened(p, libc::O_RDONLY | libc::O_TRUNC)),
    ("open to append", |p| opened(p, libc::O_WRONLY | libc::O_APPEND)),
    ("open an existing one with O_CREAT", |p| opened(p, libc::O_WRONLY | libc::O_CREAT)),
    ("open with O_EXCL", |p| opened(p, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)),
    ("O_TMPFILE", |p| opened(p, libc::O_WRONLY | libc::O_TMPFILE)),
    ("creat", |p| errno!(libc::creat(c(&p.dir.join("new")).as_ptr(), 0o644))),
    ("open a new one only to read", |p| {
        errno!(libc::open(c(&p.dir.join("new")).as_ptr(), libc::O_RDONLY | libc::O_CREAT, 0o644))
    }),
    ("truncate", |p| errno!(libc::truncate(c(&p.target).as_ptr(), 0))),
    ("ftruncate", |p| on_fd(&p.target, |fd| errno!(libc::ftruncate(fd, 0)))),
    ("write", |p| on_fd(&p.target, |fd| errno!(libc::write(fd, b"x".as_ptr().cast(), 1)))),
    ("pwrite", |p| on_fd(&p.target, |fd| errno!(libc::pwrite(fd, b"x".as_ptr().cast(), 1, 0)))),
    ("fallocate", |p| on_fd(&p.target, |fd| errno!(libc::fallocate(fd, 0, 0, 4096)))),
    ("punch a hole", |p| on_fd(&p.target, |fd| errno!(libc::fallocate(fd, 3, 0, 4096)))),
    ("copy_file_range", |p| {
        let from = File::open(&p.file).unwrap();
        let null = std::ptr::null_mut::<libc::off64_t>();
        on_fd(&p.target, |fd| errno!(libc::copy_file_range(from.as_raw_fd(), null, fd, null, 10, 0)))
    }),
    ("clone", |p| {
        let from = File::open(&p.file).unwrap();
        on_fd(&p.target, |fd| errno!(libc::ioctl(fd, FICLONE, from.as_raw_fd())))
    }),
    ("map for writing", |p| {
        on_fd(&p.file, |fd| {
            errno!(libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0))
        })
    }),
    ("mkdir", |p| errno!(libc::mkdir(c(&p.dir.join("new")).as_ptr(), 0o755))),
    ("mkdir of what is there", |p| errno!(libc::mkdir(c(&p.target).as_ptr(), 0o755))),
    ("rmdir", |p| errno!(libc::rmdir(c(&p.target).as_ptr()))),
    ("unlink", |p| errno!(libc::unlink(c(&p.target).as_ptr()))),
    ("unlink of nothing", |p| errno!(libc::unlink(c(&p.dir.join("nothing")).as_ptr()))),
    ("unlink of too long a name", |p| errno!(libc::unlink(c(&p.dir.join("n".repeat(256))).as_ptr()))),
    ("rename", |p| errno!(libc::rename(c(&p.target).as_ptr(), c(&p.dir.join("new")).as_ptr()))),
    ("rename over", |p| errno!(libc::rename(c(&p.file).as_ptr(), c(&p.target).as_ptr()))),
    ("rename without replacing", |p| {
        let (from, to) = (c(&p.target), c(&p.dir.join("new")));
        errno!(libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::RENAME_NOREPLACE))
    }),
    ("exchange", |p| {
        let (from, to) = (c(&p.target), c(&p.file));
        errno!(libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::RENAME_EXCHANGE))
    }),
    ("link", |p| errno!(libc::link(c(&p.target).as_ptr(), c(&p.dir.join("new")).as_ptr()))),
    ("symlink", |p| errno!(libc::symlink(c"x".as_ptr(), c(&p.dir.join("new")).as_ptr()))),
    ("symlink over what is there", |p| errno!(libc::symlink(c"x".as_ptr(), c(&p.target).as_ptr()))),
    ("mkfifo", |p| errno!(libc::mkfifo(c(&p.dir.join("new")).as_ptr(), 0o644))),
    ("mknod of a file", |p| errno!(libc::mknod(c(&p.dir.join("new")).as_ptr(), libc::S_IFREG | 0o644, 0))),
    ("mknod of a device", |p| errno!(libc::mknod(c(&p.dir.join("new")).as_ptr(), libc::S_IFCHR | 0o644, 259))),
    ("chmod", |p| errno!(libc::chmod(c(&p.target).as_ptr(), 0o777))),
    ("fchmod", |p| on_fd(&p.target, |fd| errno!(libc::fchmod(fd, 0o777)))),
    ("chown", |p| errno!(libc::chown(c(&p.target).as_ptr(), 1, 1))),
    ("lchown", |p| errno!(libc::lchown(c(&p.target).as_ptr(), 1, 1))),
    ("fchown", |p| on_fd(&p.target, |fd| errno!(libc::fchown(fd, 1, 1)))),
    ("utimensat", |p| errno!(libc::utimensat(libc::AT_FDCWD, c(&p.target).as_ptr(), std::ptr::null(), 0))),
    ("futimens", |p| on_fd(&p.target, |fd| errno!(libc::futimens(fd, std::ptr::null())))),
    ("setxattr", |p| errno!(libc::setxattr(c(&p.target).as_ptr(), c"user.x".as_ptr(), b"y".as_ptr().cast(), 1, 0))),
    ("lsetxattr", |p| {
        errno!(libc::lsetxattr(c(&p.target).as_ptr(), c"trusted.x".as_ptr(), b"y".as_ptr().cast(), 1, 0))
    }),
    ("fsetxattr", |p| {
        on_fd(&p.target, |fd| errno!(libc::fsetxattr(fd, c"user.x".as_ptr(), b"y".as_ptr().cast(), 1, 0)))
    }),
    ("removexattr", |p| errno!(libc::removexattr(c(&p.target).as_ptr(), c"user.x".as_ptr()))),
    ("lremovexattr", |p| errno!(libc::lremovexattr(c(&p.target).as_ptr(), c"user.ckptfs.digest".as_ptr()))),
    ("access for writing", |p| errno!(libc::access(c(&p.target).as_ptr(), libc::W_OK))),
    ("set flags", |p| flags(&p.target, FS_IOC_SETFLAGS)),
    ("set project", |p| flags(&p.target, FS_IOC_FSSETXATTR)),
    ("an unknown ioctl", |p| flags(&p.target, 0x4008_7fff)),
    ("bind a socket", |p| {
        // A path in `sun_path` is short: bind relative to the directory.
        let dir = File::open(&p.dir).unwrap();
        let path = format!("/proc/self/fd/{}/new", dir.as_raw_fd());
        std::os::unix::net::UnixListener::bind(path).err().and_then(|e| e.raw_os_error()).unwrap_or(0)
    }),
    ("fsync, which changes nothing", |p| on_fd(&p.target, |fd| errno!(libc::fsync(fd)))),
    ("syncfs, which changes nothing", |p| on_fd(&p.target, |fd| errno!(libc::syncfs(fd)))),
];

fn places(root: &Path) -> [(&'static str, Place); 3] {
    let dir = root.join("app/chk-1/db/0/db");
    let file = dir.join("000001.sst");
    let at =
        |target: &Path, within: &Path| Place { dir: within.to_owned(), file: file.clone(), target: target.to_owned() };
    [("file", at(&file, &dir)), ("directory", at(&dir, dir.parent().unwrap())), ("root", at(root, root))]
}

/// A tree as the mount's, on the local disk, bound read-only beside itself.
struct Bound(PathBuf);

impl Bound {
    fn new(bed: &Bed) -> Self {
        let (tree, bound) = (bed.root().join("tree"), bed.root().join("bound"));
        let db = tree.join("app/chk-1/db/0/db");
        fs::create_dir_all(&db).unwrap();
        fs::create_dir(&bound).unwrap();
        fs::write(db.join("000001.sst"), noise(1, 200_000)).unwrap();
        fs::set_permissions(db.join("000001.sst"), fs::Permissions::from_mode(0o440)).unwrap();
        let (from, to) = (tree.to_str().unwrap(), bound.to_str().unwrap());
        run("mount", &["--bind", from, to]);
        run("mount", &["-o", "remount,bind,ro,nosuid,nodev,noexec", to]);
        Self(bound)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = ckptfs::local::mount::unmount(&self.0, true);
    }
}

#[test]
fn every_change_fails_as_on_a_read_only_bind_mount_of_ext4_and_changes_nothing() {
    let bed = Bed::new();
    let bytes = noise(1, 200_000);
    bed.publish("app", 1, &[("db/000001.sst", bytes.clone())], &mut Kept::default());
    let mounted = bed.mount();
    let file = bed.db("app", "chk-1").join("000001.sst");
    let before = fs::metadata(&file).unwrap();
    let mut differ = Vec::new();
    let mut erofs = 0;
    // Another user than root can bind nothing; then only what must be EROFS anywhere is looked at.
    let bound = is_root().then(|| Bound::new(&bed));
    for (what, place) in places(&bed.point) {
        for (name, attempt) in TRIES {
            let got = attempt(&place);
            if got == libc::EROFS {
                erofs += 1;
            }
            assert!(got != 0 || name.ends_with("changes nothing"), "{name} on {what} succeeded");
            assert_ne!(got, libc::ENOSYS, "{name} on {what}");
            if let Some(bound) = &bound {
                let [(_, a), (_, b), (_, c)] = places(&bound.0);
                let twin = match what {
                    "file" => a,
                    "directory" => b,
                    _ => c,
                };
                let want = attempt(&twin);
                if got != want {
                    differ.push(format!("{name} on {what}: errno {got}, ext4 says {want}"));
                }
            }
        }
    }
    drop(bound);
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(erofs > 60, "only {erofs} were EROFS");
    let after = fs::metadata(&file).unwrap();
    assert_eq!((after.mode(), after.uid(), after.mtime()), (before.mode(), before.uid(), before.mtime()));
    assert!(fs::read(&file).unwrap() == bytes);
    mounted.unmount().unwrap();
}
