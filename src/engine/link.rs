//! Tables that are symbolic links into a mount, as a clone has them and RocksDB's native checkpoint of a clone (it hard-links the links).
//! The mount says their digest, so that they need not be read: believed only of a mount that root or this user made, and only where a base
//! names it too. All other symbolic links are refused.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::scan::{changed, from_local};
use crate::error::{Error, Kind, Result};
use crate::local::dir::{Dir, FileKind as Inode};
use crate::local::identity::FileStat;
use crate::local::own_mount::{self, Answer, OwnMount, Reached};
use crate::types::{Digest, Uid};

/// A link that was followed.
#[derive(Debug, Clone)]
pub struct Link {
    /// The file of the mount.
    pub target: PathBuf,
    /// The link itself.
    pub stat: FileStat,
    /// The store that the mount shows, where it says so.
    pub store: Option<Uid>,
    /// The mount point.
    pub mount: PathBuf,
}

/// The mounts that links were found to lead into.
#[derive(Debug, Default)]
pub(super) struct Links {
    mounts: Option<Vec<OwnMount>>,
    stores: HashMap<PathBuf, Option<Uid>>,
}

fn refused(dir: &Dir, name: &str, why: &str) -> Error {
    let path = dir.path().display();
    Error::new(
        Kind::Invalid,
        format!("{path}: {name} is a symbolic link{why}: snapshot the directory that holds the file itself"),
    )
}

impl Links {
    /// Follows a link: what it is, what it leads to, and the digest that the mount says.
    pub(super) fn follow(&mut self, dir: &Dir, name: &str, mutable: bool) -> Result<(Link, FileStat, Option<Digest>)> {
        let gone = || changed(dir.path(), &format!("{name} went away"));
        let own = dir.stat(name).map_err(from_local)?.ok_or_else(gone)?;
        let target = dir.read_link(name).map_err(from_local)?;
        // RocksDB changes such a file: nothing outside may stand for it.
        if mutable || !own_mount::is_plain(&target) {
            return Err(refused(dir, name, ""));
        }
        let away = |e: std::io::Error| from_local(own_mount::away_error(&dir.path().join(name), &target, e));
        let Some((mount, store)) = self.mount_of(&target)? else {
            return Err(match own_mount::away(&target) {
                Some(e) => away(e),
                None => refused(dir, name, " that leads out of it, and not into a ckptfs mount of yours or root's"),
            });
        };
        let reached = Reached::open(&target).map_err(away)?;
        if reached.stat.dev != mount.dev || reached.stat.kind() != Inode::File {
            return Err(refused(dir, name, " that leads to no file of the mount"));
        }
        let digest = reached.attribute(own_mount::DIGEST).map_err(away)?;
        let digest = digest.and_then(|d| std::str::from_utf8(&d).ok()?.parse().ok());
        Ok((Link { target, stat: own, store, mount: mount.point }, reached.stat, digest))
    }

    /// The mount of ours that a path lies on, and the store that it shows.
    fn mount_of(&mut self, target: &Path) -> Result<Option<(OwnMount, Option<Uid>)>> {
        if self.mounts.is_none() {
            self.mounts = Some(own_mount::all().map_err(from_local)?);
        }
        let on = self.mounts.iter().flatten().filter(|m| target.starts_with(&m.point));
        let Some(mount) = on.max_by_key(|m| m.point.components().count()).cloned() else { return Ok(None) };
        if let Some(store) = self.stores.get(&mount.point) {
            return Ok(Some((mount, *store)));
        }
        let store = match mount.ask() {
            Answer::Store(id) => id.and_then(|id| id.parse().ok()),
            Answer::Away(why) => {
                let point = mount.point.display();
                return Err(Error::new(
                    Kind::Unavailable,
                    format!(
                        "{}: it is a file of the mount {point}, which does not answer ({why}): `ckptfs umount {point}`, then `ckptfs mount` it again",
                        target.display()
                    ),
                ));
            }
        };
        self.stores.insert(mount.point.clone(), store);
        Ok(Some((mount, store)))
    }
}

impl Link {
    /// Opens the file of the mount, which fetches it where it is not local.
    pub(super) fn open(&self, name: &str, seen: &FileStat) -> Result<File> {
        let fail = |e: std::io::Error| {
            let shown = self.target.display();
            Error::with_source(Kind::Unavailable, format!("cannot open {name}, which is {shown}: {e}"), e)
        };
        let opened = File::options().read(true).custom_flags(own_mount::NO_FOLLOW).open(&self.target).map_err(fail)?;
        let now = FileStat::of(&opened).map_err(fail)?;
        // Its inode number may be another one by now: the mount has one for files that are local and one for those that are not.
        if (now.dev, now.size, now.kind()) == (seen.dev, seen.size, Inode::File) {
            return Ok(opened);
        }
        Err(changed(&self.target, "another file is there"))
    }
}
