//! Clone: a local directory that RocksDB opens read-write at once. What the cache has is hard-linked, what it lacks is a symbolic link into
//! the mount, where a file is fetched when it is opened. RocksDB never writes to a table, so its own compactions replace the links one by one.
//!
//! The clone pins its checkpoint: its links need the blobs, and its next snapshot reuses them. The pin is noted in the cache before it is
//! created, and stands in the clone: so that one whose clone never came to be, or is gone, is found ([`crate::cache::gone`]).

mod build;
mod half;
mod plan;
mod reach;
mod settle;

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::layout::{self, Layout};
use super::target::Target;
use crate::cache::Session;
use crate::cache::gone;
#[doc(inline)]
pub use crate::cache::gone::{drop_gone, settled_or_gone};
use crate::error::{Error, Kind, Result};
use crate::format::SubtaskEntry;
use crate::lifecycle::Checkpoint;
use crate::lifecycle::pin::PinRef;
use crate::local::FileStat;
use crate::local::dir::Dir;
use crate::local::process;
use crate::types::{Epoch, KeyParts, Name, Prefix, Progress, RecordKind};
pub use settle::{SettleReport, settle};

/// Where a clone goes.
#[derive(Debug, Clone)]
pub struct CloneRequest {
    /// A directory that does not exist or is empty; an empty one says who owns the clone.
    pub directory: PathBuf,
    /// The mount that symbolic links lead into; nothing for the one of this store that is found.
    pub mount: Option<PathBuf>,
    /// The job that will run on it, where there is one: its snapshots find the checkpoint again.
    pub job: Option<Name>,
}

/// How many files, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Amount {
    pub(super) fn add(&mut self, bytes: u64) {
        self.files = self.files.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What a clone came to.
#[derive(Debug, Clone)]
pub struct CloneReport {
    /// Files that are hard links of the cache's.
    pub linked: Amount,
    /// Small files, which were copied.
    pub copied: Amount,
    /// Files that are symbolic links into the mount.
    pub symlinked: Amount,
    /// Files that the cache has and that could not be linked: another file system or owner.
    pub unlinkable: Amount,
    /// The mount that it needs, if it needs one.
    pub mount: Option<PathBuf>,
    /// The pin that keeps its checkpoint.
    pub pin: PinRef,
    /// Seconds.
    pub seconds: f64,
    /// RocksDB directories that can be opened now.
    pub databases: Vec<PathBuf>,
}

/// The user and group that a clone belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    uid: u32,
    gid: u32,
    /// We are somebody else, and may give files away.
    give: bool,
}

/// Makes a clone of subtasks of a checkpoint.
///
/// # Errors
/// When the target is not free, the checkpoint dies meanwhile, or files that the cache lacks have no mount to lead into. Nothing is left then.
pub fn clone(
    session: &Session,
    checkpoint: &Checkpoint,
    subtasks: &[&SubtaskEntry],
    request: &CloneRequest,
    progress: &dyn Progress,
) -> Result<CloneReport> {
    Target::free(&request.directory)?;
    let layout = Layout::of(session, checkpoint, subtasks)?;
    clone_laid(session, checkpoint, &layout, request, progress)
}

/// The mount, when it is one of this store that answers and lets us in.
///
/// # Errors
/// What is wrong with it, and what to do.
#[cfg(feature = "rocksdb")]
pub(super) fn mount_of(session: &Session, mount: &Path) -> Result<PathBuf> {
    let us = Owner { uid: process::euid(), gid: process::egid(), give: false };
    Ok(reach::mount_for(session, Some(mount), us)?.point)
}

/// A mount of this store that answers and lets us in; nothing when there is none.
///
/// # Errors
/// When the one that is given is not such a mount.
pub(super) fn mount_if_any(session: &Session, given: Option<&Path>) -> Result<Option<PathBuf>> {
    let us = Owner { uid: process::euid(), gid: process::egid(), give: false };
    match reach::mount_for(session, given, us) {
        Ok(mount) => Ok(Some(mount.point)),
        Err(e) if given.is_some() => Err(e),
        Err(e) => {
            log::debug!("{e}");
            Ok(None)
        }
    }
}

/// The same for what is laid out already.
///
/// # Errors
/// As [`clone`].
pub(super) fn clone_laid(
    session: &Session,
    checkpoint: &Checkpoint,
    layout: &Layout,
    request: &CloneRequest,
    progress: &dyn Progress,
) -> Result<CloneReport> {
    let begun = Instant::now();
    // Not the race: a cold host would wait for it, and no other record has a pin's name.
    session.may_write()?;
    let target = Target::free(&request.directory)?;
    let owner = Owner::of(&target, &request.directory)?;
    // What died before is taken away first: it may be what the same person tried a minute ago.
    if let Err(e) = gone::drop_gone(session) {
        log::warn!("clones that are gone keep their pins for now: {e}");
    }
    progress.phase("plan");
    layout.fetch_bundles(session)?;
    let epoch = epoch_of(session, request.job.as_ref())?;
    let mut half = half::Half::begin(session, checkpoint, &target, layout, request.job.clone())?;
    let staging = half.make(&target)?;
    let dirs = layout.directories();
    layout::make(&staging, &dirs)?;
    let plan = plan::Plan::new(session, layout, &staging, owner, request.mount.as_deref())?;
    half.pin(epoch)?;
    progress.phase("clone");
    let (files, bytes) = layout.size();
    progress.plan(files, bytes);
    let built = build::build(session, layout, &plan, &staging, owner, progress)?;
    half.leave_marks(&staging, layout, owner)?;
    owner.give_tree(&staging, &dirs)?;
    layout::sync(&staging, &dirs)?;
    target.publish(&half.name)?;
    let pin = half.done();
    Ok(CloneReport {
        linked: built.linked,
        copied: built.copied,
        symlinked: built.symlinked,
        unlinkable: plan.unlinkable,
        mount: plan.mount.filter(|_| built.symlinked.files > 0).map(|m| m.point),
        pin,
        seconds: begun.elapsed().as_secs_f64(),
        databases: layout.databases_in(&request.directory),
    })
}

/// The epoch of the job that will run on it.
fn epoch_of(session: &Session, job: Option<&Name>) -> Result<Epoch> {
    let Some(job) = job else { return Ok(Epoch::default()) };
    let listed = session.store.list(&Prefix::job(RecordKind::Epoch, job))?;
    let epochs = listed.iter().filter_map(|l| if let KeyParts::Epoch(_, k) = l.key.parts() { Some(*k) } else { None });
    Ok(epochs.max().unwrap_or_default())
}

impl Owner {
    fn of(target: &Target, path: &Path) -> Result<Self> {
        match &target.there {
            Some(there) => Self::there(there, path),
            None => Ok(Self { uid: process::euid(), gid: process::egid(), give: false }),
        }
    }

    /// The owner of a directory that is there.
    fn there(there: &FileStat, path: &Path) -> Result<Self> {
        Self::as_seen_by((process::euid(), process::egid()), there, path)
    }

    fn as_seen_by((us, group): (u32, u32), there: &FileStat, path: &Path) -> Result<Self> {
        if us != 0 && there.uid != us {
            return Err(Error::new(
                Kind::Permission,
                format!(
                    "{}: the directory belongs to user {}, and a clone belongs to its directory's owner: run as that user, or name a new directory",
                    path.display(),
                    there.uid
                ),
            ));
        }
        Ok(Self { uid: there.uid, gid: there.gid, give: us == 0 && (there.uid, there.gid) != (us, group) })
    }

    /// Gives a file or link its owner.
    fn adopt(self, dir: &Dir, name: &std::ffi::OsStr) -> Result<()> {
        if self.give {
            process::lchown_at(dir, name, self.uid, self.gid)?;
        }
        Ok(())
    }

    fn give_tree(self, root: &Dir, dirs: &[PathBuf]) -> Result<()> {
        if !self.give {
            return Ok(());
        }
        let give = |dir: &Dir| {
            process::fchown(dir, self.uid, self.gid).map_err(|e| {
                Error::with_source(
                    Kind::Permission,
                    format!("cannot give {} to its owner: {e}", dir.path().display()),
                    e,
                )
            })
        };
        for dir in dirs {
            give(&root.sub_path(dir)?)?;
        }
        give(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::tests::World;

    #[test]
    fn only_root_clones_for_others() {
        let world = World::new();
        let path = world.path("cache");
        let stat = FileStat { uid: 7, gid: 8, ..Dir::open(&path).unwrap().stat_self().unwrap() };
        let owner = |us, group| Owner::as_seen_by((us, group), &stat, &path);
        let of = |give| Owner { uid: 7, gid: 8, give };
        assert_eq!(owner(7, 8).unwrap(), of(false));
        assert_eq!(owner(7, 9).unwrap(), of(false), "its group stays the one that the kernel gives");
        assert_eq!(owner(0, 0).unwrap(), of(true));
        let e = owner(9, 8).unwrap_err();
        assert!(e.kind() == Kind::Permission && e.to_string().contains("belongs to user 7"), "{e}");
        let roots = FileStat { uid: 0, gid: 8, ..stat };
        assert!(Owner::as_seen_by((0, 9), &roots, &path).unwrap().give, "another group");
        assert!(!Owner::as_seen_by((0, 8), &roots, &path).unwrap().give);
    }
}
