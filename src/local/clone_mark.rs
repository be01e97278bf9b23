//! Reads a clone's record back, from its own directory or from a cache's note.

use std::io::Read;

use super::dir::Dir;
use super::error::{LocalError, Result};
use crate::error::Kind;
use crate::format::clone::{CLONE_MARK, CloneMark};
use crate::limits;

/// The record in a file of a directory; nothing where there is none.
///
/// # Errors
/// When it is there and cannot be read or believed.
pub fn read(dir: &Dir, name: &str) -> Result<Option<CloneMark>> {
    let opened = match dir.open_file(name) {
        Ok(opened) => opened,
        Err(e) if e.is_not_found() => return Ok(None),
        Err(e) => return Err(e),
    };
    let path = dir.path().join(name);
    let mut bytes = Vec::new();
    opened
        .take(limits::CLONE_MARK_LEN as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| LocalError::new("read", &path, e))?;
    let refused = |why| LocalError::refused("read", &path, Kind::Damage, why).remedy("make the clone anew");
    CloneMark::decode(&bytes).map(Some).map_err(refused)
}

/// The record of the clone that a directory is; nothing where it is none.
///
/// # Errors
/// As [`read`].
pub fn of(dir: &Dir) -> Result<Option<CloneMark>> {
    read(dir, CLONE_MARK)
}
