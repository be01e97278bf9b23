//! An open directory. What lies below it is reached by its descriptor, never through a symlink, so that nobody
//! can swap a path between a check and its use.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::error::{LocalError, Result, SYNC};
use super::identity::FileStat;
use super::sys;

/// An owned handle of a directory.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

/// What an entry of a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A device, socket or pipe.
    Other,
}

/// How an exchange of two entries ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchanged {
    /// They changed places.
    Yes,
    /// The other one is not there.
    Gone,
    /// The other one is something else than was expected, and stays.
    Another,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// What it is.
    pub kind: FileKind,
    /// Its inode number.
    pub ino: u64,
}

/// How often an open waits for the end of somebody's lease, and how long: two seconds in all.
const LEASE_TRIES: u32 = 2000;
const LEASE_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

const OPEN_DIR: libc::c_int = libc::O_RDONLY | libc::O_DIRECTORY;

/// One component, nothing that could lead elsewhere.
pub(super) fn component(name: &OsStr) -> io::Result<std::ffi::CString> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    sys::cstr(name)
}

impl FileKind {
    pub(super) fn of_mode(mode: u32) -> Self {
        match mode & libc::S_IFMT {
            libc::S_IFREG => Self::File,
            libc::S_IFDIR => Self::Dir,
            libc::S_IFLNK => Self::Symlink,
            _ => Self::Other,
        }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Dir {
    /// Opens a directory that exists. The path itself may pass symlinks: it is the user's.
    ///
    /// # Errors
    /// When it does not exist, is no directory or may not be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let opened = File::options().read(true).custom_flags(libc::O_DIRECTORY).open(path);
        let file = opened.map_err(|e| LocalError::new("open the directory", path, e))?;
        Ok(Self { fd: file.into(), path: path.to_owned() })
    }

    /// Opens a directory, making it and its parents where they are missing. What was made is durable on return.
    ///
    /// # Errors
    /// When a parent is no directory, or may not be written.
    pub fn create(path: impl AsRef<Path>, mode: u32) -> Result<Self> {
        let path = path.as_ref();
        match Self::open(path) {
            Err(e) if e.is_not_found() => {}
            other => return other,
        }
        let absolute = std::path::absolute(path).map_err(|e| LocalError::new("create the directory", path, e))?;
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return Self::open(path);
        };
        let made = Self::create(parent, mode)?.create_sub(name, mode)?;
        Ok(Self { fd: made.fd, path: path.to_owned() })
    }

    /// A directory below this one.
    ///
    /// # Errors
    /// When it does not exist, or is a symlink or no directory.
    pub fn sub(&self, name: impl AsRef<OsStr>) -> Result<Self> {
        let name = name.as_ref();
        let fd = component(name)
            .and_then(|c| sys::openat(self.as_fd(), &c, OPEN_DIR | libc::O_NOFOLLOW, 0))
            .map_err(|e| LocalError::entry("open the directory", &self.path, name, e))?;
        Ok(Self { fd, path: self.path.join(name) })
    }

    /// A directory several components below this one: relative, no `..`, no symlink on the way.
    ///
    /// # Errors
    /// As [`Dir::sub`].
    pub fn sub_path(&self, path: &Path) -> Result<Self> {
        let fail = |e| LocalError::new("open the directory", self.path.join(path), e);
        let c = sys::cstr(path.as_os_str()).map_err(fail)?;
        match sys::open_beneath(self.as_fd(), &c, OPEN_DIR) {
            Ok(fd) => Ok(Self { fd, path: self.path.join(path) }),
            // Sandboxes without openat2 answer ENOSYS or EPERM: one component at a time is as safe.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                let mut dir = self.try_clone()?;
                for part in path.components() {
                    dir = dir.sub(part.as_os_str())?;
                }
                Ok(dir)
            }
            Err(e) => Err(fail(e)),
        }
    }

    /// A directory below this one, made where it is missing. The new entry is durable on return.
    ///
    /// # Errors
    /// When it cannot be made, or something else has the name.
    pub fn create_sub(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<Self> {
        let name = name.as_ref();
        if self.make_sub(name, mode)? {
            self.sync()?;
        }
        self.sub(name)
    }

    /// Makes a directory below this one, without fsync. False: it was there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make_sub(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<bool> {
        let name = name.as_ref();
        match component(name).and_then(|c| sys::mkdir(self.as_fd(), &c, mode)) {
            Ok(()) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            Err(e) => Err(LocalError::entry("create the directory", &self.path, name, e)),
        }
    }

    /// Opens a file for reading; symlinks are refused (ELOOP), pipes do not block.
    ///
    /// # Errors
    /// When it does not exist or may not be read.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> Result<File> {
        self.open_with(name, libc::O_RDONLY | libc::O_NONBLOCK, 0, "open")
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// When it does not exist or may not be written.
    pub fn open_file_rw(&self, name: impl AsRef<OsStr>) -> Result<File> {
        self.open_with(name, libc::O_RDWR | libc::O_NONBLOCK, 0, "open for writing")
    }

    /// Makes a new empty file for reading and writing. EEXIST when the name is taken.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create_file(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<File> {
        self.open_with(name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, mode, "create")
    }

    pub(super) fn open_with(
        &self,
        name: impl AsRef<OsStr>,
        flags: libc::c_int,
        mode: u32,
        what: &'static str,
    ) -> Result<File> {
        let name = name.as_ref();
        let open = || component(name).and_then(|c| sys::openat(self.as_fd(), &c, flags | libc::O_NOFOLLOW, mode));
        let mut tries = 0;
        loop {
            match open() {
                // Somebody asks by a lease whether anybody has it open, which takes no time. Without O_NONBLOCK the kernel would wait.
                Err(e) if e.raw_os_error() == Some(libc::EWOULDBLOCK) && tries < LEASE_TRIES => {
                    tries += 1;
                    std::thread::sleep(LEASE_PAUSE);
                }
                opened => return opened.map(File::from).map_err(|e| LocalError::entry(what, &self.path, name, e)),
            }
        }
    }

    /// What lies under a name; symlinks are not followed. Nothing when there is nothing.
    ///
    /// # Errors
    /// Everything but ENOENT.
    pub fn stat(&self, name: impl AsRef<OsStr>) -> Result<Option<FileStat>> {
        let name = name.as_ref();
        match component(name).and_then(|c| sys::statx(self.as_fd(), &c)) {
            Ok(stat) => Ok(Some(FileStat::from(&stat))),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(e) => Err(LocalError::entry("look at", &self.path, name, e)),
        }
    }

    /// Attributes of the directory itself.
    ///
    /// # Errors
    /// When the kernel cannot say.
    pub fn stat_self(&self) -> Result<FileStat> {
        sys::statx(self.as_fd(), c"").map(|s| FileStat::from(&s)).map_err(|e| LocalError::new("look at", &self.path, e))
    }

    /// Removes a file. False: there was none.
    ///
    /// # Errors
    /// Everything but ENOENT.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> Result<bool> {
        self.unlink(name.as_ref(), 0, "remove")
    }

    /// Removes an empty directory. False: there was none.
    ///
    /// # Errors
    /// Everything but ENOENT; ENOTEMPTY when something is in it.
    pub fn remove_sub(&self, name: impl AsRef<OsStr>) -> Result<bool> {
        self.unlink(name.as_ref(), libc::AT_REMOVEDIR, "remove the directory")
    }

    fn unlink(&self, name: &OsStr, flags: libc::c_int, what: &'static str) -> Result<bool> {
        match component(name).and_then(|c| sys::unlink(self.as_fd(), &c, flags)) {
            Ok(()) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(LocalError::entry(what, &self.path, name, e)),
        }
    }

    /// Renames, replacing what has the new name. Durable only after [`Dir::sync`] of both directories.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn rename(&self, from: impl AsRef<OsStr>, to_dir: &Self, to: impl AsRef<OsStr>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        component(from)
            .and_then(|a| sys::rename(self.as_fd(), &a, to_dir.as_fd(), &component(to)?))
            .map_err(|e| LocalError::entry("rename", &self.path, from, e))
    }

    /// Locks the directory itself against all others who ask, until what comes back is dropped. Nothing: somebody has it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn try_lock(&self) -> Result<Option<Self>> {
        let fail = |e| LocalError::new("lock", &self.path, e);
        // A descriptor of its own, which the lock lives as long as.
        let own = Self { fd: sys::openat(self.as_fd(), c".", OPEN_DIR, 0).map_err(fail)?, path: self.path.clone() };
        match sys::flock(&own, libc::LOCK_EX | libc::LOCK_NB) {
            Ok(()) => Ok(Some(own)),
            Err(e) if e.raw_os_error() == Some(libc::EWOULDBLOCK) => Ok(None),
            Err(e) => Err(fail(e)),
        }
    }

    /// Lets two entries change places in one step, if what then has the name `ours` is `right`; else they change back. Where the file
    /// system has no such step, `theirs` is looked at first and then replaced.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn exchange(
        &self,
        ours: impl AsRef<OsStr>,
        theirs: impl AsRef<OsStr>,
        right: impl Fn(&Self, &OsStr) -> bool,
    ) -> Result<Exchanged> {
        let (ours, theirs) = (ours.as_ref(), theirs.as_ref());
        let fail = |e| LocalError::entry("replace", &self.path, theirs, e);
        let names = component(ours).and_then(|a| Ok((a, component(theirs)?)));
        let (a, b) = names.map_err(fail)?;
        match sys::exchange(self.as_fd(), &a, &b) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(Exchanged::Gone),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP)) => {
                if self.stat(theirs)?.is_none() {
                    return Ok(Exchanged::Gone);
                }
                if !right(self, theirs) {
                    return Ok(Exchanged::Another);
                }
                self.rename(ours, self, theirs)?;
                return Ok(Exchanged::Yes);
            }
            Err(e) => return Err(fail(e)),
        }
        if right(self, ours) {
            return Ok(Exchanged::Yes);
        }
        sys::exchange(self.as_fd(), &a, &b).map_err(fail)?;
        Ok(Exchanged::Another)
    }

    /// Makes a symlink. EEXIST when the name is taken.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn symlink(&self, target: &Path, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref();
        component(name)
            .and_then(|c| sys::symlink(&sys::cstr(target.as_os_str())?, self.as_fd(), &c))
            .map_err(|e| LocalError::entry("create the symbolic link", &self.path, name, e))
    }

    /// Where a symlink points.
    ///
    /// # Errors
    /// When it is none.
    pub fn read_link(&self, name: impl AsRef<OsStr>) -> Result<PathBuf> {
        let name = name.as_ref();
        component(name)
            .and_then(|c| sys::readlink(self.as_fd(), &c))
            .map(|target| OsString::from_vec(target).into())
            .map_err(|e| LocalError::entry("read the symbolic link", &self.path, name, e))
    }

    /// All entries but `.` and `..`, in no order. One that cannot be read fails the whole list.
    ///
    /// # Errors
    /// When the directory cannot be read to its end.
    pub fn list(&self) -> Result<Vec<Entry>> {
        let fail = |e| LocalError::new("list", &self.path, e);
        // A descriptor of its own: the position in a directory belongs to the open file.
        let fd = sys::openat(self.as_fd(), c".", OPEN_DIR, 0).map_err(fail)?;
        let mut entries = Vec::new();
        let mut buffer = vec![0_u8; 64 << 10];
        loop {
            let n = sys::getdents(fd.as_fd(), &mut buffer).map_err(fail)?;
            if n == 0 {
                return Ok(entries);
            }
            let mut rest = buffer.get(..n).unwrap_or_default();
            while !rest.is_empty() {
                let (raw, next) = RawEntry::split(rest)
                    .ok_or_else(|| fail(io::Error::other("the kernel returned a malformed directory entry")))?;
                rest = next;
                if raw.name == b"." || raw.name == b".." {
                    continue;
                }
                let name = OsString::from_vec(raw.name.to_vec());
                let kind = match raw.kind {
                    libc::DT_REG => FileKind::File,
                    libc::DT_DIR => FileKind::Dir,
                    libc::DT_LNK => FileKind::Symlink,
                    libc::DT_UNKNOWN => match self.stat(&name)? {
                        Some(stat) => FileKind::of_mode(stat.mode),
                        None => continue,
                    },
                    _ => FileKind::Other,
                };
                entries.push(Entry { name, kind, ino: raw.ino });
            }
        }
    }

    /// Makes all changes of entries durable. An error is final: never call it again to make it go away.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn sync(&self) -> Result<()> {
        use std::os::fd::AsRawFd;
        // SAFETY: the descriptor is open.
        sys::check(unsafe { libc::fsync(self.fd.as_raw_fd()) })
            .map(drop)
            .map_err(|e| LocalError::new(SYNC, &self.path, e))
    }

    /// Where it was opened. For messages: it may have moved since.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another handle of the same directory.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn try_clone(&self) -> Result<Self> {
        let fd = self.fd.try_clone().map_err(|e| LocalError::new("open the directory", &self.path, e))?;
        Ok(Self { fd, path: self.path.clone() })
    }
}

/// One record of getdents64.
struct RawEntry<'a> {
    ino: u64,
    kind: u8,
    name: &'a [u8],
}

impl<'a> RawEntry<'a> {
    /// `struct linux_dirent64`: inode 8, offset 8, record length 2, type 1, name up to a NUL.
    fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let ino = u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?);
        let length = usize::from(u16::from_ne_bytes(bytes.get(16..18)?.try_into().ok()?));
        let kind = *bytes.get(18)?;
        let name = bytes.get(19..length)?;
        let name = name.get(..name.iter().position(|&b| b == 0)?)?;
        Some((Self { ino, kind, name }, bytes.get(length..)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_waits_for_a_lease_and_a_lock_keeps_others_out() {
        let temp = tempfile::tempdir().unwrap();
        let root = Dir::open(temp.path()).unwrap();
        std::fs::write(temp.path().join("x"), "abc").unwrap();
        let ours = root.open_file("x").unwrap();
        let lease = super::super::lease::alone(&ours).unwrap().unwrap();
        let opened = std::thread::scope(|s| {
            let opener = s.spawn(|| root.open_file("x"));
            std::thread::sleep(std::time::Duration::from_millis(30));
            assert!(!opener.is_finished());
            drop(lease);
            opener.join().unwrap()
        });
        assert_eq!(std::io::read_to_string(opened.unwrap()).unwrap(), "abc");
        let lock = root.try_lock().unwrap().unwrap();
        assert!(root.try_lock().unwrap().is_none() && Dir::open(temp.path()).unwrap().try_lock().unwrap().is_none());
        drop(lock);
        assert!(root.try_lock().unwrap().is_some());
    }

    #[test]
    fn only_what_was_expected_changes_places() {
        let temp = tempfile::tempdir().unwrap();
        let root = Dir::open(temp.path()).unwrap();
        let link = |dir: &Dir, name: &OsStr| dir.read_link(name).is_ok_and(|t| t == Path::new("there"));
        let fresh = || {
            std::fs::write(temp.path().join("ours"), "ours").unwrap();
        };
        fresh();
        assert_eq!(root.exchange("ours", "theirs", link).unwrap(), Exchanged::Gone);
        root.symlink(Path::new("elsewhere"), "theirs").unwrap();
        assert_eq!(root.exchange("ours", "theirs", link).unwrap(), Exchanged::Another);
        assert_eq!(root.read_link("theirs").unwrap(), Path::new("elsewhere"));
        root.remove("theirs").unwrap();
        std::fs::write(temp.path().join("theirs"), "a file").unwrap();
        assert_eq!(root.exchange("ours", "theirs", link).unwrap(), Exchanged::Another);
        assert_eq!(std::fs::read(temp.path().join("theirs")).unwrap(), b"a file");
        root.remove("theirs").unwrap();
        root.symlink(Path::new("there"), "theirs").unwrap();
        assert_eq!(root.exchange("ours", "theirs", link).unwrap(), Exchanged::Yes);
        assert_eq!(std::fs::read(temp.path().join("theirs")).unwrap(), b"ours");
        assert_eq!(root.read_link("ours").unwrap(), Path::new("there"));
        assert!(root.exchange("../ours", "theirs", link).is_err());
    }

    #[test]
    fn makes_lists_renames_removes() {
        let temp = tempfile::tempdir().unwrap();
        let root = Dir::create(temp.path().join("a/b"), 0o700).unwrap();
        let sub = root.create_sub("s", 0o700).unwrap();
        sub.create_file("f", 0o600).unwrap();
        root.symlink(Path::new("s/f"), "link").unwrap();
        let mut entries = root.list().unwrap();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let shown: Vec<_> = entries.iter().map(|e| (e.name.to_str().unwrap(), e.kind)).collect();
        assert_eq!(shown, [("link", FileKind::Symlink), ("s", FileKind::Dir)]);
        assert_eq!(entries[1].ino, sub.stat_self().unwrap().ino);
        sub.rename("f", &root, "g").unwrap();
        assert_eq!(sub.list().unwrap(), []);
        assert_eq!(root.stat("g").unwrap().unwrap().kind(), FileKind::File);
        assert_eq!(root.read_link("link").unwrap(), Path::new("s/f"));
        assert!(root.remove("g").unwrap() && !root.remove("g").unwrap());
        assert!(root.remove_sub("s").unwrap() && !root.remove_sub("s").unwrap());
        assert_eq!(root.stat("g").unwrap(), None);
        root.sync().unwrap();
    }

    #[test]
    fn a_long_list_is_whole() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        // More than one buffer of the kernel's answers.
        let names: std::collections::BTreeSet<String> = (0..3000).map(|i| format!("{i:0200}")).collect();
        for name in &names {
            dir.create_file(name, 0o600).unwrap();
        }
        let listed = dir.list().unwrap();
        assert_eq!(listed.len(), names.len());
        assert!(listed.iter().all(|e| names.contains(e.name.to_str().unwrap()) && e.kind == FileKind::File));
        assert_eq!(dir.list().unwrap().len(), names.len(), "listing twice");
    }

    #[test]
    fn symlinks_and_parents_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("in/deep")).unwrap();
        std::fs::write(temp.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink("..", temp.path().join("in/up")).unwrap();
        std::os::unix::fs::symlink("../secret", temp.path().join("in/link")).unwrap();
        let dir = Dir::open(temp.path().join("in")).unwrap();
        for name in ["", ".", "..", "../secret", "up/secret", "deep/../../secret", "a\0b"] {
            assert!(dir.open_file(name).is_err(), "{name:?}");
            assert!(dir.sub(name).is_err(), "{name:?}");
            assert!(dir.remove(name).is_err() || name == "a\0b", "{name:?}");
        }
        assert_eq!(dir.open_file("link").unwrap_err().errno(), Some(libc::ELOOP));
        assert!(dir.sub("up").is_err());
        for path in ["up", "up/in", "deep/..", "deep/../..", "/", "/etc"] {
            // `deep/..` ends where it began, which is not beneath anything else.
            assert!(dir.sub_path(Path::new(path)).is_err() || path == "deep/..", "{path}");
        }
        assert!(dir.sub_path(Path::new("deep")).is_ok());
    }

    #[test]
    fn errors_say_what_and_where() {
        let error = Dir::open("/nonexistent-ckptfs").unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::NotFound);
        assert!(error.to_string().contains("open the directory /nonexistent-ckptfs"), "{error}");
    }

    #[test]
    fn malformed_entries_are_not_read() {
        assert!(RawEntry::split(&[0; 18]).is_none());
        let mut record = [0_u8; 24];
        record[16] = 25;
        assert!(RawEntry::split(&record).is_none(), "longer than the buffer");
        record[16] = 10;
        assert!(RawEntry::split(&record).is_none(), "shorter than its head");
        record[16] = 24;
        record[19..24].fill(b'x');
        assert!(RawEntry::split(&record).is_none(), "no end of the name");
    }
}
