//! Clones that are gone: their pins keep blobs for nobody.
//!
//! A directory that is not there may be on a disk that is not mounted. So a clone counts as gone only where the very directory that it was
//! made in is there and has it no more, also not under another name. Clones of other caches, and so of other hosts, are never judged here.

use std::path::Path;

use super::{pin_of, staging_name};
use crate::cache::{Cache, Session};
use crate::error::Result;
use crate::format::clone::CloneMark;
use crate::format::records::{PinHolder, PinRecord};
use crate::lifecycle::driver;
use crate::lifecycle::pin::{PinRef, Unpin};
use crate::local::{FileKind, clone_mark};
use crate::local::dir::Dir;
use crate::restore::target;

/// Whether a pin's clone was made with this cache and is gone: removed, destroyed as a database, or never finished by a process that died.
/// What cannot be told is not gone.
#[must_use]
pub fn settled_or_gone(cache: &Cache, pin: &PinRecord) -> bool {
    let (PinHolder::Clone { .. }, Some(holder), Some(nonce)) = (&pin.holder, pin.place.holder, pin.place.nonce) else {
        return false;
    };
    if holder != cache.id() {
        return false;
    }
    match cache.clone_noted(nonce) {
        Ok(Some(mark)) => is_gone(cache, &mark),
        Ok(None) => false,
        Err(e) => {
            log::warn!("the pin of a clone stays, since nothing can be told of it: {e}");
            false
        }
    }
}

/// Takes away the pins of clones of this cache that are gone, and what is left of half-made ones. Returns the pins.
///
/// # Errors
/// When the cache cannot be read or the store does not answer.
pub fn drop_gone(session: &Session) -> Result<Vec<PinRef>> {
    let mut dropped = Vec::new();
    for mark in session.cache.clones()?.into_iter().filter(|m| m.store == session.store_id) {
        if !is_gone(&session.cache, &mark) {
            continue;
        }
        remove_staging(&mark);
        let pin = pin_of(&mark);
        driver::run(&session.store, Unpin::new(vec![pin.clone()]))?;
        // Last: until then it is found again.
        session.cache.forget_clone(mark.nonce)?;
        dropped.push(pin);
    }
    Ok(dropped)
}

fn is_gone(cache: &Cache, mark: &CloneMark) -> bool {
    match look(cache, mark) {
        Ok(gone) => gone,
        Err(e) => {
            log::info!("the clone {} may be there: {e}", mark.directory);
            false
        }
    }
}

fn look(cache: &Cache, mark: &CloneMark) -> Result<bool> {
    if cache.is_being_made(mark.nonce)? {
        return Ok(false);
    }
    let path = Path::new(&mark.directory);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else { return Ok(false) };
    let parent = Dir::open(parent)?;
    if super::place_of(&parent.stat_self()?) != mark.parent {
        return Ok(false);
    }
    let staging = staging_name(name, mark.nonce);
    // Under its name first; it may also have been renamed.
    for entry in parent.list()? {
        let itself = entry.kind == FileKind::Dir && (entry.ino == mark.place.ino || entry.name.to_str() == Some(name));
        if itself && entry.name.to_str() != Some(&*staging) && lives(&parent.sub(&entry.name)?, mark)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The directory is that clone and still a database: one that was destroyed leaves our record behind.
fn lives(dir: &Dir, mark: &CloneMark) -> Result<bool> {
    if clone_mark::of(dir)?.is_none_or(|found| found.nonce != mark.nonce) {
        return Ok(false);
    }
    for database in &mark.databases {
        let dir = if database.is_empty() { dir.try_clone()? } else {
            match dir.sub_path(Path::new(database)) {
                Ok(dir) => dir,
                Err(e) if e.is_not_found() => continue,
                Err(e) => return Err(e.into()),
            }
        };
        if dir.stat("CURRENT")?.is_some() {
            return Ok(true);
        }
    }
    Ok(mark.databases.is_empty())
}

fn remove_staging(mark: &CloneMark) {
    let path = Path::new(&mark.directory);
    if let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) {
        target::clean(&parent.join(staging_name(name, mark.nonce)));
    }
}
