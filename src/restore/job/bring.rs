//! Brings an old subtask's RocksDB directory here: from a local copy that is whole, else over a mount, else as a verified copy. One whole
//! copy serves however damaged another is, so subtasks are mixed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::local;
use super::scratch::Scratch;
use super::{LocalCopy, RestoreOptions};
use crate::cache::{Session, gone};
use crate::error::{Error, Kind, Result};
use crate::format::{SubtaskEntry, TaskManifest};
use crate::lifecycle::Checkpoint;
use crate::restore::clone::{self, CloneRequest};
use crate::restore::copy;
use crate::restore::layout::Layout;
use crate::restore::target::Target;
use crate::types::{Silent, Uid};

/// Where a directory came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A local copy.
    Local,
    /// A clone: hard links of the cache's files, symbolic links into the mount. It pins the checkpoint.
    Clone,
    /// All bytes were fetched.
    Copy,
}

/// An old subtask of the operator.
#[derive(Debug, Clone)]
pub(super) struct Old<'a> {
    pub(super) session: &'a Session,
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) entry: &'a SubtaskEntry,
    pub(super) manifest: Arc<TaskManifest>,
}

/// A directory that is only read.
#[derive(Debug)]
pub(super) enum Readable {
    /// Under the mount: RocksDB's open pins the checkpoint, and only what is read is fetched.
    InPlace(PathBuf),
    /// Its own, removed with the scratch directory that it is in.
    Own(PathBuf),
}

impl Readable {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::InPlace(path) | Self::Own(path) => path,
        }
    }
}

/// Where a subtask's RocksDB directory lies under a mount.
///
/// # Errors
/// When it is no mount of this store that answers.
pub(super) fn in_place(
    session: &Session,
    checkpoint: &Checkpoint,
    entry: &SubtaskEntry,
    mount: &Path,
) -> Result<PathBuf> {
    let point = clone::mount_of(session, mount)?;
    let subtask = Path::new(checkpoint.job.as_str()).join(checkpoint.number.to_string());
    Ok(point.join(subtask).join(entry.operator.as_str()).join(entry.subtask.to_string()).join("db"))
}

impl Old<'_> {
    fn words(&self) -> String {
        format!("{}/{}/{}/{}", self.checkpoint.job, self.checkpoint.number, self.entry.operator, self.entry.subtask)
    }

    fn layout(&self) -> Result<Layout> {
        let layout = Layout::database(self.checkpoint, self.entry, &self.manifest);
        if layout.databases.is_empty() {
            let why = "its task manifest describes keyed state and has no database";
            return Err(Error::new(Kind::Damage, format!("{}: {why}", self.words())));
        }
        Ok(layout)
    }

    fn is_of(&self, copy: &LocalCopy) -> bool {
        copy.operator == self.entry.operator && copy.subtask == self.entry.subtask
    }

    /// Makes a directory of it that can be opened to read and write.
    ///
    /// # Errors
    /// When `target` is not free, or bytes cannot be had or are not what they should be. Nothing is left then.
    pub(super) fn bring(&self, options: &RestoreOptions, target: &Path) -> Result<Way> {
        let layout = self.layout()?;
        if self.take_local(options, target)? {
            return Ok(Way::Local);
        }
        if options.mount.is_some() {
            let (mount, job) = (options.mount.clone(), options.job.clone());
            let request = CloneRequest { directory: target.to_owned(), mount, job };
            clone::clone_laid(self.session, self.checkpoint, &layout, &request, &Silent)?;
            return Ok(Way::Clone);
        }
        copy::copy_laid(self.session, &layout, target, &Silent)?;
        Ok(Way::Copy)
    }

    /// Makes it readable for a while.
    ///
    /// # Errors
    /// As [`Old::bring`].
    pub(super) fn readable(&self, options: &RestoreOptions, scratch: &Scratch) -> Result<Readable> {
        let layout = self.layout()?;
        let own = scratch.path().join(format!("subtask-{}", self.entry.subtask));
        if self.take_local(options, &own)? {
            return Ok(Readable::Own(own));
        }
        if let Some(mount) = &options.mount {
            return in_place(self.session, self.checkpoint, self.entry, mount).map(Readable::InPlace);
        }
        copy::copy_laid(self.session, &layout, &own, &Silent)?;
        Ok(Readable::Own(own))
    }

    /// Whether a local copy was whole and is used.
    fn take_local(&self, options: &RestoreOptions, target: &Path) -> Result<bool> {
        for copy in options.local.iter().filter(|c| self.is_of(c)) {
            let Some(whole) = local::whole(copy, &self.manifest) else { continue };
            let free = Target::free(target)?;
            let random =
                Uid::random().map_err(|e| Error::with_source(Kind::Other, "the kernel gives no randomness", e))?;
            let staging_name = format!(".{}.restore-{random}", free.name);
            let staging = free.parent.create_sub(&staging_name, 0o700)?;
            let filled = whole.fill(&staging).and_then(|()| free.publish(&staging_name));
            match filled {
                Ok(()) => return Ok(true),
                Err(e) => {
                    gone::remove(staging.path());
                    log::warn!("the local copy {} of {} is not used: {e}", copy.directory.display(), self.words());
                }
            }
        }
        Ok(false)
    }
}
