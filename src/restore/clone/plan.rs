//! Decides per file how it comes into a clone, before anything is pinned or made.

use std::path::{Path, PathBuf};

use super::reach::mount_for;
use super::{Amount, Owner};
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::rocks::{self, FileKind};
use crate::lifecycle::driver;
use crate::local::Linked;
use crate::local::dir::Dir;
use crate::local::identity::FileStat;
use crate::local::link::link_from_fd;
use crate::local::own_mount::{self, OwnMount, Reached};
use crate::restore::layout::{Laid, Layout};

/// Others than owner and group may write it: such an inode is not shared.
const WRITABLE_BY_ALL: u32 = 0o002;

/// How one file comes into the clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// A hard link of the cache's file.
    Link,
    /// A copy, verified.
    Copy,
    /// A symbolic link to this file of the mount.
    Symlink(PathBuf),
}

/// The ways of all files, in the layout's order.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) ways: Vec<Way>,
    /// The mount that symbolic links lead into, if there are any.
    pub(super) mount: Option<OwnMount>,
    /// What the cache has and cannot be linked.
    pub(super) unlinkable: Amount,
}

/// A table: RocksDB never writes to it again.
pub(super) fn is_table(laid: &Laid) -> bool {
    let name = laid.file.path.db_file();
    name.is_some_and(|n| matches!(rocks::file_kind(n), FileKind::Sst(_) | FileKind::BlobFile(_)))
}

impl Plan {
    pub(super) fn new(
        session: &Session,
        layout: &Layout,
        staging: &Dir,
        owner: Owner,
        mount: Option<&Path>,
    ) -> Result<Self> {
        let mut plan =
            Self { ways: Vec::with_capacity(layout.files.len()), mount: None, unlinkable: Amount::default() };
        let mut links_work = None;
        let mut lacking = Vec::new();
        for laid in &layout.files {
            let way = if is_table(laid) {
                let local = session.cache.open_complete(&laid.file.digest, laid.file.size)?;
                let linkable = match &local {
                    Some(file) => linkable(file, staging, owner, &mut links_work)?,
                    None => false,
                };
                if local.is_some() && !linkable {
                    plan.unlinkable.add(laid.file.size);
                }
                match (linkable, laid.bundled()) {
                    (true, _) => Way::Link,
                    // Its bytes came with the bundle: a few of them, that need no mount.
                    (false, true) => Way::Copy,
                    (false, false) => {
                        lacking.push(laid);
                        Way::Symlink(PathBuf::new())
                    }
                }
            } else {
                Way::Copy
            };
            plan.ways.push(way);
        }
        if lacking.is_empty() {
            return Ok(plan);
        }
        let found = mount_for(session, mount, owner).map_err(|e| lacking_words(layout, &lacking, e))?;
        for (way, laid) in plan.ways.iter_mut().zip(&layout.files) {
            if let Way::Symlink(target) = way {
                *target = found.point.join(&laid.mounted);
            }
        }
        driver::parallel(lacking, |laid| check_target(&found, laid))?;
        plan.mount = Some(found);
        Ok(plan)
    }
}

/// Whether the file may be linked into the clone. Device numbers are a hint (overlayfs has several): the first link tells.
pub(super) fn linkable(
    file: &std::fs::File,
    staging: &Dir,
    owner: Owner,
    links_work: &mut Option<bool>,
) -> Result<bool> {
    const PROBE: &str = ".probe";
    let stat = FileStat::of(file)
        .map_err(|e| Error::with_source(Kind::Other, format!("cannot look at a file of the cache: {e}"), e))?;
    if stat.uid != owner.uid || stat.mode & WRITABLE_BY_ALL != 0 {
        return Ok(false);
    }
    if let Some(work) = *links_work {
        return Ok(work);
    }
    let work = match link_from_fd(file, staging, PROBE)? {
        Linked::Linked => {
            staging.remove(PROBE)?;
            true
        }
        // This inode has too many names; the next may not.
        Linked::TooManyLinks => return Ok(false),
        Linked::Exists | Linked::CrossDevice | Linked::NotPermitted => false,
    };
    *links_work = Some(work);
    Ok(work)
}

/// The mount must show this file with these bytes: a stale or strange one would be found out by a corrupt database.
fn check_target(mount: &OwnMount, laid: &Laid) -> Result<()> {
    let target = mount.point.join(&laid.mounted);
    let strange = |why: String| {
        let shown = target.display();
        Error::new(
            Kind::Conflict,
            format!("{shown}: {why}. Is another store mounted there? Unmount and mount it again, or use --copy"),
        )
    };
    let look = |e: std::io::Error| {
        Error::with_source(
            Kind::Unavailable,
            format!("the mount does not show {}: {e}. Unmount and mount it again, or use --copy", target.display()),
            e,
        )
    };
    let reached = Reached::open(&target).map_err(look)?;
    if reached.stat.dev != mount.dev || reached.stat.size != laid.file.size {
        return Err(strange(format!("it has {} bytes instead of {}", reached.stat.size, laid.file.size)));
    }
    let digest = reached.attribute(own_mount::DIGEST).map_err(look)?;
    if digest.as_deref() == Some(laid.file.digest.to_hex().as_bytes()) {
        Ok(())
    } else {
        Err(strange("the mount says another digest of it than the checkpoint".to_owned()))
    }
}

/// Why a mount is needed at all.
fn lacking_words(layout: &Layout, lacking: &[&Laid], e: Error) -> Error {
    let bytes = lacking.iter().fold(0_u64, |a, l| a.saturating_add(l.file.size));
    e.context(format!(
        "{} of {} files ({bytes} bytes) cannot be hard-linked from the cache, and would be links into a mount of this store",
        lacking.len(),
        layout.files.len()
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::local::xattr;
    use crate::restore::tests::{LARGE, World, noise};

    #[test]
    fn what_a_mount_shows_is_the_checkpoints_file() {
        let world = World::new();
        let checkpoint = world.database("app");
        let all: Vec<_> = checkpoint.manifest.subtasks.iter().collect();
        let layout = Layout::of(&world.session, &checkpoint, &all).unwrap();
        let laid = &layout.files[1];
        let point = world.path("mount");
        let path = point.join("app/chk-1/db/0/db/000007.sst");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let dev = point.metadata().unwrap().dev();
        let mount = OwnMount { point, dev, user: 0, others: false };
        let said = |mount: &OwnMount| check_target(mount, laid).map_err(|e| (e.kind(), e.to_string()));
        let (kind, text) = said(&mount).unwrap_err();
        assert!(kind == Kind::Unavailable && text.contains("the mount does not show"), "{text}");
        let show = |bytes: &[u8], digest: Option<&str>| {
            std::fs::write(&path, bytes).unwrap();
            if let Some(digest) = digest {
                xattr::set(std::fs::File::open(&path).unwrap(), own_mount::DIGEST, digest.as_bytes()).unwrap();
            }
        };
        let right = laid.file.digest.to_hex();
        show(&noise(2, LARGE), None);
        let another = "the mount says another digest of it than the checkpoint";
        let (kind, text) = said(&mount).unwrap_err();
        assert!(kind == Kind::Conflict && text.contains(another), "{text}");
        show(&noise(2, LARGE), Some("another"));
        assert!(said(&mount).unwrap_err().1.contains(another));
        show(&noise(2, LARGE), Some(&right));
        assert_eq!(said(&mount), Ok(()));
        let (kind, _) = said(&OwnMount { dev: dev + 1, ..mount.clone() }).unwrap_err();
        assert_eq!(kind, Kind::Conflict, "it is not on the mount");
        show(&noise(2, LARGE)[1..], Some(&right));
        let (kind, text) = said(&mount).unwrap_err();
        let words = format!("it has {} bytes instead of {LARGE}", LARGE - 1);
        assert!(kind == Kind::Conflict && text.contains(&words), "{text}");
    }

    #[test]
    fn tables_are_linked_where_owner_mode_and_file_system_allow_it() {
        let world = World::new();
        let (file, staging) = (world.path("file"), world.path("staging"));
        std::fs::create_dir(&staging).unwrap();
        std::fs::write(&file, b"x").unwrap();
        let (dir, file) = (Dir::open(&staging).unwrap(), std::fs::File::open(&file).unwrap());
        let stat = FileStat::of(&file).unwrap();
        let owner = Owner { uid: stat.uid, gid: stat.gid, give: false };
        let tried = |owner, mut known: Option<bool>| {
            let linkable = linkable(&file, &dir, owner, &mut known).unwrap();
            assert!(dir.list().unwrap().is_empty(), "the probe goes");
            (linkable, known)
        };
        assert_eq!(tried(owner, None), (true, Some(true)));
        assert_eq!((tried(owner, Some(false)), tried(owner, Some(true))), ((false, Some(false)), (true, Some(true))));
        let other = Owner { uid: stat.uid + 1, ..owner };
        assert_eq!((tried(other, None), tried(other, Some(true))), ((false, None), (false, Some(true))));
        let shm = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut known = None;
        assert!(!linkable(&file, &Dir::open(shm.path()).unwrap(), owner, &mut known).unwrap());
        assert_eq!(known, Some(false), "another file system");
    }
}
