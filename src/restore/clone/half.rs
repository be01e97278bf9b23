//! A clone that is being made. Dropped before it is done, it takes away all that it made; of one whose process was killed, its note tells
//! the next clone or sweep.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Owner;
use crate::cache::gone::{self, place_of, staging_name};
use crate::cache::{Making, Session};
use crate::error::{Error, Kind, Result};
use crate::format::clone::{CLONE_MARK, CloneMark, CloneOf, Place};
use crate::format::records::PinHolder;
use crate::lifecycle::pin::{Pin, PinRef, Unpin};
use crate::lifecycle::{Checkpoint, driver};
use crate::local::dir::Dir;
use crate::local::{Durability, process};
use crate::restore::layout::Layout;
use crate::restore::target::Target;
use crate::types::{Epoch, Name, Uid};

pub(super) struct Half<'a> {
    session: &'a Session,
    making: Making<'a>,
    mark: CloneMark,
    /// The directory while it is made, and its name beside the target.
    staging: PathBuf,
    pub(super) name: String,
    pinned: bool,
    done: bool,
}

impl<'a> Half<'a> {
    /// Notes the clone, before anything else is there.
    pub(super) fn begin(
        session: &'a Session,
        checkpoint: &Checkpoint,
        target: &Target,
        layout: &Layout,
        job: Option<Name>,
    ) -> Result<Self> {
        let nonce = Uid::random().map_err(|e| Error::with_source(Kind::Other, "the kernel gives no randomness", e))?;
        let absolute = target.absolute()?;
        let Some(directory) = absolute.to_str().map(str::to_owned) else {
            let shown = absolute.display();
            let why = "a clone's pin says where it is: name a directory whose path is UTF-8";
            return Err(Error::new(Kind::Invalid, format!("{shown}: {why}")));
        };
        let name = staging_name(&target.name, nonce);
        // Not known before it is there; nothing has this number.
        let unknown = Place { ino: 0, born: None };
        let mut mark = CloneMark::new(CloneOf {
            store: session.store_id,
            checkpoint: (checkpoint.job.clone(), checkpoint.number, checkpoint.uid),
            pin: (session.cache.id(), nonce),
            directory,
            places: (unknown, place_of(&target.parent.stat_self()?)),
        });
        mark.runs = job;
        mark.databases = layout.databases.iter().map(|d| d.to_string_lossy().into_owned()).collect();
        mark.backends.clone_from(&layout.backends);
        let making = session.cache.note_clone(&mark)?;
        let staging = target.parent.path().join(&name);
        Ok(Self { session, making, mark, staging, name, pinned: false, done: false })
    }

    /// Makes the directory, beside the target.
    pub(super) fn make(&mut self, target: &Target) -> Result<Dir> {
        let staging = target.parent.create_sub(&self.name, 0o700)?;
        if let Some(there) = target.there.as_ref().filter(|t| t.mode & 0o777 != 0o700) {
            let mode = std::fs::Permissions::from_mode(there.mode & 0o777);
            std::fs::set_permissions(&self.staging, mode).map_err(|e| {
                Error::with_source(Kind::Other, format!("cannot prepare {}: {e}", self.staging.display()), e)
            })?;
        }
        self.mark.place = place_of(&staging.stat_self()?);
        self.making.note_again(&self.mark)?;
        Ok(staging)
    }

    fn pin_ref(&self) -> PinRef {
        PinRef::from(&self.mark)
    }

    /// Pins the checkpoint.
    pub(super) fn pin(&mut self, epoch: Epoch) -> Result<()> {
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
        let uid = driver::run(&self.session.store, Pin::new(self.pin_ref(), holder, now))?;
        if uid == self.mark.uid {
            return Ok(());
        }
        let (job, number) = (&self.mark.job, self.mark.number);
        Err(Error::new(Kind::Conflict, format!("{job}/{number} became another checkpoint meanwhile: try again")))
    }

    /// Leaves the clone's own record where a snapshot of each of its databases looks for it.
    pub(super) fn leave_marks(&self, staging: &Dir, layout: &Layout, owner: Owner) -> Result<()> {
        let text = self.mark.encode();
        let leave = |dir: &Dir| {
            dir.publish_new(CLONE_MARK, &text, 0o644, Durability::FileOnly)?;
            owner.adopt(dir, std::ffi::OsStr::new(CLONE_MARK))
        };
        leave(staging)?;
        let below = layout.databases.iter().filter(|d| !d.as_os_str().is_empty());
        below.map(|d| staging.sub_path(d)).try_for_each(|d| leave(&d?))
    }

    /// It has its name now.
    pub(super) fn done(mut self) -> PinRef {
        self.done = true;
        self.pin_ref()
    }
}

impl Drop for Half<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        gone::remove(&self.staging);
        if self.pinned
            && let Err(e) = driver::run(&self.session.store, Unpin::new(vec![self.pin_ref()]))
        {
            // The note stays: the next clone, or `gc`, takes the pin away.
            log::warn!("the pin of a clone that was given up stays for now: {e}");
            return;
        }
        if let Err(e) = self.session.cache.forget_clone(self.mark.nonce) {
            log::warn!("{e}");
        }
    }
}
