//! Directories that must not stay: what other subtasks' rows are read from, and a new subtask's own while it is not finished.

use std::path::{Path, PathBuf};

use crate::cache::{Session, gone};
use crate::error::{Error, Kind, Result};
use crate::local::dir::Dir;
use crate::types::Uid;

/// A directory beside another one that goes away when it is dropped.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one beside `directory`, on its file system.
    pub(super) fn beside(directory: &Path) -> Result<Self> {
        let random = Uid::random().map_err(|e| Error::with_source(Kind::Other, "the kernel gives no randomness", e))?;
        let invalid = || Error::new(Kind::Invalid, format!("{}: name a new directory for it", directory.display()));
        let name = directory.file_name().and_then(|n| n.to_str()).ok_or_else(invalid)?;
        let parent = directory.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = format!(".{name}.rescale-{random}");
        Dir::open(parent)?.create_sub(&name, 0o700)?;
        Ok(Self(parent.join(name)))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        gone::remove(&self.0);
    }
}

/// A new subtask's directory that is not finished: dropped, it is taken away, with the pin of the clone that it was.
#[derive(Debug)]
pub(super) struct Unfinished<'a> {
    session: &'a Session,
    directory: &'a Path,
    cloned: bool,
    finished: bool,
}

impl<'a> Unfinished<'a> {
    pub(super) fn new(session: &'a Session, directory: &'a Path, cloned: bool) -> Self {
        Self { session, directory, cloned, finished: false }
    }

    pub(super) fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        gone::remove(self.directory);
        // What is left of it the next clone or `gc` takes away.
        if self.cloned
            && let Err(e) = gone::drop_gone(self.session)
        {
            log::warn!("the pin of a clone that was given up stays for now: {e}");
        }
    }
}
