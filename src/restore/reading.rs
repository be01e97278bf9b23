//! Where a subtask's files are read when somebody looks into a checkpoint: on a mount of its store, where there is one, else in a copy
//! inside the cache that goes away again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::layout::Layout;
use super::{clone, copy};
use crate::cache::{Session, gone};
use crate::error::{Error, Kind, Result};
use crate::format::{FilePath, SubtaskEntry, TaskManifest};
use crate::lifecycle::Checkpoint;
use crate::local::dir::Dir;
use crate::local::lock::FileLock;
use crate::types::{Progress, Uid};

/// Where copies lie, below the cache.
const HOME: &str = "state";

/// Behind the name of a copy, for the lock that says that somebody uses it.
const LOCK: &str = ".lock";

/// How a checkpoint's files are read.
#[derive(Debug)]
pub struct Reading<'a> {
    session: &'a Session,
    checkpoint: &'a Checkpoint,
    mount: Option<PathBuf>,
}

/// A subtask's files, as long as it lives.
#[derive(Debug)]
pub struct Brought {
    root: PathBuf,
    /// The copy's lock, where it is one.
    lock: Option<(Dir, String, FileLock)>,
}

impl<'a> Reading<'a> {
    /// Through the given mount, or one that is found, or copies.
    ///
    /// # Errors
    /// When the given mount is none of this store, does not answer or does not let us in.
    pub fn new(session: &'a Session, checkpoint: &'a Checkpoint, given: Option<&Path>) -> Result<Self> {
        Ok(Self { session, checkpoint, mount: clone::mount_if_any(session, given)? })
    }

    /// The mount; nothing where files are copied.
    #[must_use]
    pub fn mount(&self) -> Option<&Path> {
        self.mount.as_deref()
    }

    /// Bytes of these files, which is what a copy of them takes.
    #[must_use]
    pub fn size(manifest: &TaskManifest, wanted: &dyn Fn(&FilePath) -> bool) -> u64 {
        manifest.files.iter().filter(|f| wanted(&f.path)).fold(0, |sum, f| sum.saturating_add(f.size))
    }

    /// Brings these files of a subtask to where they can be read. On a mount all of the subtask is there.
    ///
    /// # Errors
    /// When bytes cannot be had or are not what they should be, or the disk is full.
    pub fn bring(
        &self,
        entry: &SubtaskEntry,
        manifest: &Arc<TaskManifest>,
        wanted: &dyn Fn(&FilePath) -> bool,
        progress: &dyn Progress,
    ) -> Result<Brought> {
        if let Some(mount) = &self.mount {
            let root = mount.join(self.checkpoint.job.as_str()).join(self.checkpoint.number.to_string());
            let root = root.join(entry.operator.as_str()).join(entry.subtask.to_string());
            if root.is_dir() {
                return Ok(Brought { root, lock: None });
            }
        }
        let layout = Layout::part(self.checkpoint, entry, manifest, wanted);
        let (files, bytes) = layout.size();
        progress.plan(files, bytes);
        progress.phase("copy");
        let brought = Brought::empty(self.session)?;
        copy::fill(self.session, &Dir::open(&brought.root)?, &layout, progress)?;
        Ok(brought)
    }
}

impl Brought {
    /// An empty directory for a copy. What killed processes left is taken away first.
    fn empty(session: &Session) -> Result<Self> {
        let home = Dir::open(session.cache.path())?;
        home.make_sub(HOME, 0o700)?;
        let home = home.sub(HOME)?;
        for entry in home.list()? {
            let name = entry.name.to_string_lossy();
            let Some(dead) = name.strip_suffix(LOCK) else { continue };
            if let Some(_held) = FileLock::try_exclusive(&home, &entry.name)? {
                gone::remove(&home.path().join(dead));
                home.remove(&entry.name)?;
            }
        }
        let random = Uid::random().map_err(|e| Error::with_source(Kind::Other, "the kernel gives no randomness", e))?;
        let name = random.to_string();
        let lock = format!("{name}{LOCK}");
        let held = FileLock::try_exclusive(&home, &lock)?
            .ok_or_else(|| Error::new(Kind::Conflict, "another process uses a copy of this name: try again"))?;
        let root = home.path().join(&name);
        home.create_sub(&name, 0o700)?;
        Ok(Self { root, lock: Some((home, lock, held)) })
    }

    /// The subtask's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root
    }
}

impl Drop for Brought {
    fn drop(&mut self) {
        if let Some((home, lock, _)) = &self.lock {
            gone::remove(&self.root);
            if let Err(e) = home.remove(lock) {
                log::warn!("{e}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::tests::{World, names};
    use crate::types::Silent;

    #[test]
    fn what_a_mount_has_is_read_there() {
        let world = World::new();
        let checkpoint = world.database("app");
        let mount = world.path("mount");
        let reading = Reading { session: &world.session, checkpoint: &checkpoint, mount: Some(mount.clone()) };
        assert_eq!(reading.mount(), Some(mount.as_path()));
        let (entry, manifest) = (&checkpoint.manifest.subtasks[0], world.manifest(&checkpoint));
        let home = mount.join("app/chk-1/db/0");
        // Not shown there: it is copied.
        let copied = reading.bring(entry, &manifest, &|_| true, &Silent).unwrap();
        assert!(copied.path().starts_with(world.session.cache.path()) && copied.path().join("db/CURRENT").exists());
        std::fs::create_dir_all(&home).unwrap();
        let brought = reading.bring(entry, &manifest, &|_| true, &Silent).unwrap();
        assert_eq!((brought.path(), names(&home)), (home.as_path(), Vec::new()));
        drop(brought);
        assert!(home.exists(), "a mount's directory is nobody's to remove");
    }
}
