//! Clone: a local directory that RocksDB opens read-write at once. What the cache has is hard-linked, what it lacks is a symbolic link into
//! the mount, where a file is fetched when it is opened. RocksDB never writes to a table, so its own compactions replace the links one by one.
//!
//! The clone pins its checkpoint: its links need the blobs, and its next snapshot reuses them. The pin is noted in the cache before it is
//! created, and stands in the clone: so that one whose clone never came to be, or is gone, is found ([`crate::cache::gone`]).

mod build;
mod plan;
mod reach;

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::layout::{self, Layout};
use super::target::Target;
use crate::cache::gone::{self, place_of, staging_name};
#[doc(inline)]
pub use crate::cache::gone::{drop_gone, settled_or_gone};
use crate::cache::{Making, Session};
use crate::error::{Error, Kind, Result};
use crate::format::SubtaskEntry;
use crate::format::clone::{CLONE_MARK, CloneMark, CloneOf};
use crate::format::records::PinHolder;
use crate::lifecycle::pin::{Pin, PinRef, Unpin};
use crate::lifecycle::{Checkpoint, driver};
use crate::local::dir::Dir;
use crate::local::{Durability, process};
use crate::types::{Epoch, KeyParts, Name, Prefix, Progress, RecordKind, Uid};

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
    fn add(&mut self, bytes: u64) {
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
    let begun = Instant::now();
    session.ready_to_write()?;
    let target = Target::free(&request.directory)?;
    let owner = Owner::of(&target, &request.directory)?;
    // What died before is taken away first: it may be what the same person tried a minute ago.
    if let Err(e) = gone::drop_gone(session) {
        log::warn!("clones that are gone keep their pins for now: {e}");
    }
    progress.phase("plan");
    let layout = Layout::of(session, checkpoint, subtasks)?;
    layout.fetch_bundles(session)?;
    let epoch = epoch_of(session, request.job.as_ref())?;
    let mut half = Half::begin(session, checkpoint, &target, &layout, request.job.clone())?;
    let dirs = layout.directories();
    layout::make(&half.staging, &dirs)?;
    let plan = plan::Plan::new(session, &layout, &half.staging, owner, request.mount.as_deref())?;
    half.pin(session, epoch)?;
    progress.phase("clone");
    let (files, bytes) = layout.size();
    progress.plan(files, bytes);
    let built = build::build(session, &layout, &plan, &half.staging, owner, progress)?;
    half.leave_marks(&layout, owner)?;
    owner.give_tree(&half.staging, &dirs)?;
    layout::sync(&half.staging, &dirs)?;
    target.publish(&half.staging_name)?;
    let pin = half.done();
    Ok(CloneReport {
        linked: built.linked,
        copied: built.copied,
        symlinked: built.symlinked,
        unlinkable: plan.unlinkable,
        mount: plan.mount.filter(|_| built.symlinked.files > 0).map(|m| m.point),
        pin,
        seconds: begun.elapsed().as_secs_f64(),
        databases: layout
            .databases
            .iter()
            .map(|d| if d.as_os_str().is_empty() { request.directory.clone() } else { request.directory.join(d) })
            .collect(),
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
        let (us, group) = (process::euid(), process::egid());
        let Some(there) = &target.there else { return Ok(Self { uid: us, gid: group, give: false }) };
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

/// A clone that is being made. Dropped before it is done, it takes away all that it made.
struct Half<'a> {
    session: &'a Session,
    staging: Dir,
    staging_name: String,
    mark: CloneMark,
    making: Option<Making<'a>>,
    pinned: bool,
    done: bool,
}

impl<'a> Half<'a> {
    fn begin(
        session: &'a Session,
        checkpoint: &Checkpoint,
        target: &Target,
        layout: &Layout,
        job: Option<Name>,
    ) -> Result<Self> {
        let nonce = Uid::random().map_err(|e| Error::with_source(Kind::Other, "the kernel gives no randomness", e))?;
        let directory = target.absolute()?;
        let text = |path: &Path| {
            path.to_str().map(str::to_owned).ok_or_else(|| {
                Error::new(
                    Kind::Invalid,
                    format!(
                        "{}: its pin must say where a clone is: name a directory whose path is UTF-8",
                        path.display()
                    ),
                )
            })
        };
        let directory = text(&directory)?;
        let staging_name = staging_name(&target.name, nonce);
        let staging = target.parent.create_sub(&staging_name, 0o700)?;
        let placed = staging.stat_self().and_then(|own| Ok((place_of(&own), place_of(&target.parent.stat_self()?))));
        let places = match placed {
            Ok(places) => places,
            Err(e) => {
                gone::remove(staging.path());
                return Err(e.into());
            }
        };
        let mut mark = CloneMark::new(CloneOf {
            store: session.store_id,
            checkpoint: (checkpoint.job.clone(), checkpoint.number, checkpoint.uid),
            pin: (session.cache.id(), nonce),
            directory,
            places,
        });
        mark.runs = job;
        mark.databases = layout.databases.iter().map(|d| d.to_string_lossy().into_owned()).collect();
        mark.backends.clone_from(&layout.backends);
        let mut half = Self { session, staging, staging_name, mark, making: None, pinned: false, done: false };
        if let Some(there) = target.there.as_ref().filter(|t| t.mode & 0o777 != 0o700) {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(there.mode & 0o777);
            let changed = std::fs::set_permissions(half.staging.path(), mode);
            changed.map_err(|e| Error::with_source(Kind::Other, format!("cannot prepare the clone: {e}"), e))?;
        }
        half.making = Some(session.cache.note_clone(&half.mark)?);
        Ok(half)
    }

    fn pin_ref(&self) -> PinRef {
        PinRef::from(&self.mark)
    }

    fn pin(&mut self, session: &Session, epoch: Epoch) -> Result<()> {
        let holder = PinHolder::Clone {
            host: process::hostname(),
            directory: self.mark.directory.clone(),
            job: self.mark.runs.clone(),
            epoch,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        // An answer that is lost may be that of a pin that is there.
        self.pinned = true;
        let uid = driver::run(&session.store, Pin::new(self.pin_ref(), holder, now))?;
        if uid == self.mark.uid {
            return Ok(());
        }
        let (job, number) = (&self.mark.job, self.mark.number);
        Err(Error::new(Kind::Conflict, format!("{job}/{number} became another checkpoint meanwhile: try again")))
    }

    /// The clone's own record, where a snapshot of each of its databases looks for it.
    fn leave_marks(&self, layout: &Layout, owner: Owner) -> Result<()> {
        let text = self.mark.encode();
        let leave = |dir: &Dir| {
            dir.publish_new(CLONE_MARK, &text, 0o644, Durability::FileOnly)?;
            owner.adopt(dir, std::ffi::OsStr::new(CLONE_MARK))
        };
        leave(&self.staging)?;
        let below = layout.databases.iter().filter(|d| !d.as_os_str().is_empty());
        below.map(|d| self.staging.sub_path(d)).try_for_each(|d| leave(&d?))
    }

    fn done(mut self) -> PinRef {
        self.done = true;
        self.pin_ref()
    }
}

impl Drop for Half<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        gone::remove(self.staging.path());
        if self.pinned
            && let Err(e) = driver::run(&self.session.store, Unpin::new(vec![self.pin_ref()]))
        {
            // The note stays: the next clone, or `gc`, takes the pin away.
            log::warn!("the pin of a clone that was given up stays for now: {e}");
            return;
        }
        if self.making.is_some()
            && let Err(e) = self.session.cache.forget_clone(self.mark.nonce)
        {
            log::warn!("{e}");
        }
    }
}
