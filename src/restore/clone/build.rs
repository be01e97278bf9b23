//! Fills a clone's directory as its plan says.

use std::ffi::OsStr;

use super::plan::{Plan, Way, is_table};
use super::{Amount, Owner};
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::lifecycle::driver;
use crate::local::Linked;
use crate::local::dir::Dir;
use crate::local::identity::{self, FileStat};
use crate::local::link::link_from_fd;
use crate::restore::copy::write_verified;
use crate::restore::layout::{Laid, Layout};
use crate::types::Progress;

/// What was made.
#[derive(Debug, Default)]
pub(super) struct Built {
    pub(super) linked: Amount,
    pub(super) copied: Amount,
    pub(super) symlinked: Amount,
}

#[derive(Debug, Clone, Copy)]
enum Made {
    Linked,
    Copied,
    Symlinked,
}

pub(super) fn build(
    session: &Session,
    layout: &Layout,
    plan: &Plan,
    staging: &Dir,
    owner: Owner,
    progress: &dyn Progress,
) -> Result<Built> {
    let made = driver::parallel(layout.files.iter().zip(&plan.ways).collect(), |(laid, way)| {
        let home = laid.home(staging)?;
        let made = match way {
            Way::Symlink(target) => {
                home.symlink(target, laid.name())?;
                Made::Symlinked
            }
            // What was evicted or got too many names since the plan is copied.
            Way::Link if link(session, laid, &home, laid.name())? => Made::Linked,
            Way::Link | Way::Copy => {
                copy(session, laid, &home, laid.name())?;
                Made::Copied
            }
        };
        if !matches!(made, Made::Linked) {
            owner.adopt(&home, laid.name())?;
        }
        progress.advance(laid.file.size);
        Ok::<_, Error>((made, laid.file.size))
    })?;
    let mut built = Built::default();
    for (made, bytes) in made {
        match made {
            Made::Linked => built.linked.add(bytes),
            Made::Copied => built.copied.add(bytes),
            Made::Symlinked => built.symlinked.add(bytes),
        }
    }
    Ok(built)
}

fn look(laid: &Laid, e: std::io::Error) -> Error {
    Error::with_source(Kind::Other, format!("cannot look at {}: {e}", laid.file.path), e)
}

/// Links the cache's file. False: it has none, or the file system does not let us.
pub(super) fn link(session: &Session, laid: &Laid, home: &Dir, name: &OsStr) -> Result<bool> {
    let Some(file) = session.cache.open_complete(&laid.file.digest, laid.file.size)? else { return Ok(false) };
    let (before, recorded) = identity::recorded_of(&file).map_err(|e| look(laid, e))?;
    if recorded.is_none() {
        // Small ones are hashed by every process that needs them, and not synced: the clone must outlive a power cut, and its
        // snapshots hash nothing again.
        file.sync_data().map_err(|e| look(laid, e))?;
        identity::record_since(&file, &laid.file.digest, &before).map_err(|e| look(laid, e))?;
    }
    Ok(link_from_fd(&file, home, name)? == Linked::Linked)
}

/// Writes a verified copy, of which its inode says what it is.
pub(super) fn copy(session: &Session, laid: &Laid, home: &Dir, name: &OsStr) -> Result<()> {
    let out = home.create_file(name, 0o644)?;
    write_verified(session, &laid.manifest, &laid.file, &out, &home.path().join(name))?;
    if is_table(laid) {
        let stat = FileStat::of(&out).map_err(|e| look(laid, e))?;
        identity::record_since(&out, &laid.file.digest, &stat).map_err(|e| look(laid, e))?;
    }
    Ok(())
}
