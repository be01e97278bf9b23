//! Mounts of ours, as mountinfo and their own attributes tell, and files that are reached through a symbolic link into one. Nothing is
//! opened here for reading: that would fetch it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use super::error::{LocalError, Result};
use super::identity::FileStat;
use super::mount::FS_TYPE;
use super::mounts::{self, Mount};
use super::{process, sys, xattr};
use crate::format::rocks::{FileKind as Table, file_kind};

/// The root's attribute that tells the id of the store that is shown.
pub const STORE: &str = "user.ckptfs.store";

/// A file's attribute that tells the digest of its bytes.
pub const DIGEST: &str = "user.ckptfs.digest";

/// Flag of open(2) for files that may not be reached through a link in their place.
pub const NO_FOLLOW: i32 = libc::O_NOFOLLOW;

/// How long a mount may take to answer before it counts as away: a daemon that is stopped would keep us for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// A ckptfs mount that root or this user made. What it says of its files may be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnMount {
    /// Where.
    pub point: PathBuf,
    /// Device of its file system.
    pub dev: u64,
    /// Who mounted it.
    pub user: u32,
    /// Others may read it too.
    pub others: bool,
}

/// Whether and what a mount answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It shows the store with this id, in the text that the mount gave; nothing for a daemon that does not say.
    Store(Option<String>),
    /// Its daemon is dead, or does not answer.
    Away(String),
}

impl OwnMount {
    fn of(mount: &Mount) -> Option<Self> {
        if mount.fs_type != FS_TYPE {
            return None;
        }
        let user = mount.super_option("user_id")?.parse().ok()?;
        let ours = user == 0 || user == process::euid();
        let others = mount.super_options.split(',').any(|o| o == "allow_other");
        ours.then(|| Self { point: mount.point.clone(), dev: mount.dev, user, others })
    }

    /// Whether the kernel lets this user in.
    #[must_use]
    pub fn lets_in(&self, user: u32) -> bool {
        self.others || self.user == user
    }

    /// Asks it which store it shows.
    #[must_use]
    pub fn ask(&self) -> Answer {
        let (point, dev) = (self.point.clone(), self.dev);
        let (tell, told) = mpsc::channel();
        let asked = std::thread::Builder::new().name("ask-mount".to_owned()).spawn(move || {
            let answer = Reached::open(&point).and_then(|root| {
                if root.stat.dev != dev {
                    return Err(io::Error::other("something else is mounted over it"));
                }
                Ok(root.attribute(STORE)?.map(|v| String::from_utf8_lossy(&v).into_owned()))
            });
            let _ = tell.send(answer);
        });
        match asked.and_then(|_| told.recv_timeout(PATIENCE).map_err(|_| io::ErrorKind::TimedOut.into())) {
            Ok(Ok(store)) => Answer::Store(store),
            Ok(Err(e)) if e.raw_os_error() == Some(libc::ENOTCONN) => Answer::Away("its daemon is dead".to_owned()),
            Ok(Err(e)) => Answer::Away(e.to_string()),
            Err(_) => Answer::Away(format!("it did not answer within {} s", PATIENCE.as_secs())),
        }
    }
}

/// All of them; of those stacked on one place the topmost.
///
/// # Errors
/// When /proc cannot be read.
pub fn all() -> Result<Vec<OwnMount>> {
    let mut found: Vec<OwnMount> = Vec::new();
    for mount in mounts::mounts()? {
        found.retain(|m| m.point != mount.point);
        found.extend(OwnMount::of(&mount));
    }
    Ok(found)
}

/// A file or directory that was found and not opened: what is asked of it is asked of the same one.
#[derive(Debug)]
pub struct Reached {
    fd: OwnedFd,
    /// What the kernel says of it.
    pub stat: FileStat,
}

impl AsFd for Reached {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Reached {
    /// Finds what a path names. Its last component is not followed.
    ///
    /// # Errors
    /// Whatever the kernel says; ENOTCONN on a mount whose daemon is dead.
    pub fn open(path: &Path) -> io::Result<Self> {
        let fd = sys::open_path(&sys::cstr(path.as_os_str())?)?;
        let stat = FileStat::of(&fd)?;
        Ok(Self { fd, stat })
    }

    /// An attribute's value; nothing where it has none of that name.
    ///
    /// # Errors
    /// Whatever else the kernel says.
    pub fn attribute(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        // A descriptor that was not opened for reading answers no fgetxattr; its place in /proc does.
        let place = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        xattr::get_at(OsStr::new(&place), name)
    }
}

/// What a symbolic link says must be absolute and plain, so that it means the same for everybody.
#[must_use]
pub fn is_plain(target: &Path) -> bool {
    target.is_absolute() && target.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)))
}

/// The tables of a RocksDB directory that are symbolic links and lead nowhere now, with where they lead. A directory without links costs one listing.
///
/// # Errors
/// When the directory cannot be listed.
pub fn dangling(directory: &Path) -> Result<Vec<(PathBuf, PathBuf, io::Error)>> {
    let dir = super::Dir::open(directory)?;
    let mut out: Vec<(PathBuf, PathBuf, io::Error)> = Vec::new();
    let mut asked: Vec<PathBuf> = Vec::new();
    let table =
        |name: &OsStr| name.to_str().is_some_and(|n| matches!(file_kind(n), Table::Sst(_) | Table::BlobFile(_)));
    for entry in dir.list()?.into_iter().filter(|e| e.kind == super::FileKind::Symlink && table(&e.name)) {
        let target = dir.read_link(&entry.name)?;
        // One of each directory tells: a mount is there or is not.
        let home = target.parent().unwrap_or(Path::new("/")).to_owned();
        if asked.contains(&home) {
            continue;
        }
        asked.push(home);
        if let Some(e) = away(&directory.join(&target)) {
            out.push((directory.join(&entry.name), target, e));
        }
    }
    Ok(out)
}

/// Why a path leads nowhere now; nothing where it leads to something. Asked with a deadline, since a daemon that is stopped answers nothing.
#[must_use]
pub fn away(target: &Path) -> Option<io::Error> {
    let target = target.to_owned();
    let (tell, told) = mpsc::channel();
    let asked = std::thread::Builder::new().name("look".to_owned()).spawn(move || {
        let _ = tell.send(std::fs::metadata(&target));
    });
    match asked.and_then(|_| told.recv_timeout(PATIENCE).map_err(|_| io::ErrorKind::TimedOut.into())) {
        Ok(Ok(_)) => None,
        Ok(Err(e)) | Err(e) => Some(e),
    }
}

/// An error that says which mount a link needs and what to do.
#[must_use]
pub fn away_error(link: &Path, target: &Path, e: io::Error) -> LocalError {
    let what = "follow the symbolic link";
    let place = mounts::mount_of(target).ok().flatten().filter(|m| m.fs_type == FS_TYPE);
    let remedy = match place {
        Some(m) if e.kind() == io::ErrorKind::NotFound => format!(
            "the checkpoint is not on the mount {}: mount the store that the clone was made from, or make the clone anew",
            m.point.display()
        ),
        Some(m) => format!("the mount {} is dead: `ckptfs mount` there again", m.point.display()),
        None => "the clone needs its mount: `ckptfs mount` it at the same place, with the same store".to_owned(),
    };
    let shown = PathBuf::from(format!("{} -> {}", link.display(), target.display()));
    LocalError::away(what, shown, e).remedy(format!("{remedy}; do not repair the database"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_others_are_not_believed() {
        let mount = |fs_type: &str, options: &str| Mount {
            id: 1,
            dev: 7,
            root: "/".into(),
            point: "/mnt".into(),
            options: "ro".to_owned(),
            fs_type: fs_type.to_owned(),
            source: "ckptfs".to_owned(),
            super_options: options.to_owned(),
        };
        let mine = format!("ro,user_id={},group_id=0", process::euid());
        let found = OwnMount::of(&mount(FS_TYPE, &mine)).unwrap();
        assert!(found.lets_in(process::euid()) && !found.lets_in(process::euid() + 1) && !found.others);
        let roots = OwnMount::of(&mount(FS_TYPE, "ro,user_id=0,group_id=0,allow_other")).unwrap();
        assert!(roots.others && roots.lets_in(12345));
        assert_eq!(OwnMount::of(&mount(FS_TYPE, "ro,user_id=54321,group_id=0,allow_other")), None);
        assert_eq!(OwnMount::of(&mount("fuse.sshfs", &mine)), None);
        assert_eq!(OwnMount::of(&mount(FS_TYPE, "ro")), None);
    }

    #[test]
    fn links_into_nothing_are_found_and_explained() {
        let temp = tempfile::tempdir().unwrap();
        let here = temp.path();
        std::fs::write(here.join("a"), b"a").unwrap();
        assert!(dangling(here).unwrap().is_empty());
        std::os::unix::fs::symlink(here.join("a"), here.join("000009.sst")).unwrap();
        assert!(dangling(here).unwrap().is_empty());
        for n in 0..3 {
            std::os::unix::fs::symlink(here.join(format!("away/{n}")), here.join(format!("00000{n}.sst"))).unwrap();
        }
        let mut found = dangling(here).unwrap();
        assert_eq!(found.len(), 1, "one of each directory");
        let (link, target, e) = found.pop().unwrap();
        let e = away_error(&link, &target, e);
        let text = e.to_string();
        assert!(text.contains("ckptfs mount") && text.contains(".sst -> ") && text.contains("repair"), "{text}");
        assert_eq!(e.kind(), crate::error::Kind::Unavailable);
    }

    #[test]
    fn only_plain_absolute_paths_mean_the_same_for_all() {
        assert!(is_plain(Path::new("/mnt/app/chk-1/db/0/db/000008.sst")));
        for bad in ["mnt/x", "/mnt/../x", "../x", ""] {
            assert!(!is_plain(Path::new(bad)), "{bad}");
        }
    }

    #[test]
    fn what_is_reached_is_not_opened() {
        let temp = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let path = temp.path().join("f");
        let file = std::fs::File::create(&path).unwrap();
        xattr::set(&file, "user.x", b"1").unwrap();
        let reached = Reached::open(&path).unwrap();
        std::fs::rename(&path, temp.path().join("g")).unwrap();
        assert_eq!(reached.attribute("user.x").unwrap(), Some(b"1".to_vec()));
        assert_eq!(reached.attribute("user.y").unwrap(), None);
        let link = temp.path().join("l");
        std::os::unix::fs::symlink("g", &link).unwrap();
        assert_eq!(Reached::open(&link).unwrap().stat.kind(), super::super::FileKind::Symlink);
    }
}
