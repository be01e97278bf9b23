//! Where a restore goes: a directory that does not exist or is empty, filled beside it and renamed at the end, so that what was cut off
//! is never taken for whole.

use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, Result};
use crate::local::dir::Dir;
use crate::local::identity::FileStat;

/// A place that is free.
#[derive(Debug)]
pub(super) struct Target {
    /// The directory that it lies in.
    pub(super) parent: Dir,
    /// Its name there.
    pub(super) name: String,
    /// The empty directory that is there now.
    pub(super) there: Option<FileStat>,
}

impl Target {
    /// Looks at a place.
    ///
    /// # Errors
    /// When something is there, or its parent is not.
    pub(super) fn free(path: &Path) -> Result<Self> {
        let invalid = |why: &str| Error::new(Kind::Invalid, format!("{}: {why}", path.display()));
        let name = path.file_name().and_then(|n| n.to_str()).ok_or_else(|| invalid("name a new directory for it"))?;
        let mut there = None;
        if let Ok(meta) = std::fs::symlink_metadata(path) {
            if !meta.is_dir() {
                return Err(invalid("it exists and is not a directory: name a new one"));
            }
            let dir = Dir::open(path)?;
            if !dir.list()?.is_empty() {
                return Err(invalid("it is not empty, and nothing is ever written over: name a new directory"));
            }
            there = Some(dir.stat_self()?);
        }
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !parent.exists() {
            return Err(Error::new(
                Kind::NotFound,
                format!("{}: there is no such directory to restore into: create it first", parent.display()),
            ));
        }
        Ok(Self { parent: Dir::open(parent)?, name: name.to_owned(), there })
    }

    /// Its absolute path, with the symlinks of its parents resolved.
    ///
    /// # Errors
    /// When a parent is gone.
    pub(super) fn absolute(&self) -> Result<PathBuf> {
        let parent = self.parent.path();
        let resolved = parent.canonicalize();
        let resolved = resolved
            .map_err(|e| Error::with_source(Kind::Other, format!("cannot resolve {}: {e}", parent.display()), e))?;
        Ok(resolved.join(&self.name))
    }

    /// Gives what was filled its name. Durable on return.
    ///
    /// # Errors
    /// When somebody put something there meanwhile, or the disk fails.
    pub(super) fn publish(&self, staging: &str) -> Result<()> {
        self.parent.rename(staging, &self.parent, &self.name)?;
        Ok(self.parent.sync()?)
    }
}
