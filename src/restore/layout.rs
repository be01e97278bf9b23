//! Which files a restored directory has, and where. A single subtask that is nothing but a RocksDB directory becomes the directory itself;
//! otherwise the layout is the mount's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::select::task_manifest;
use crate::cache::Session;
use crate::error::{Error, Result};
use crate::format::clone::CLONE_MARK;
use crate::format::{FileEntry, FilePath, SubtaskEntry, TaskManifest};
use crate::lifecycle::{Checkpoint, driver};
use crate::local::dir::Dir;

/// A file and its place.
#[derive(Debug, Clone)]
pub(super) struct Laid {
    /// The manifest that it stands in.
    pub(super) manifest: Arc<TaskManifest>,
    /// Its entry.
    pub(super) file: FileEntry,
    /// Its path below the restored directory.
    pub(super) below: PathBuf,
    /// Its path below the mount point.
    pub(super) mounted: PathBuf,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Layout {
    /// The files.
    pub(super) files: Vec<Laid>,
    /// RocksDB directories, below the restored one.
    pub(super) databases: Vec<PathBuf>,
    /// RocksDB's ids of these databases, as far as they are known.
    pub(super) backends: Vec<String>,
}

impl Layout {
    /// Lays these subtasks out.
    ///
    /// # Errors
    /// When a manifest cannot be read or believed.
    pub(super) fn of(session: &Session, checkpoint: &Checkpoint, subtasks: &[&SubtaskEntry]) -> Result<Self> {
        let manifests =
            driver::parallel(subtasks.to_vec(), |s| Ok::<_, Error>((s, task_manifest(session, checkpoint, s)?)))?;
        let plain = match manifests.as_slice() {
            [(_, one)] => one.files.iter().all(|f| f.path.db_file().is_some()),
            _ => false,
        };
        let mut layout = Self { files: Vec::new(), databases: Vec::new(), backends: Vec::new() };
        for (entry, manifest) in manifests {
            let subtask = PathBuf::from(entry.operator.as_str()).join(entry.subtask.to_string());
            let home = if plain { PathBuf::new() } else { subtask.clone() };
            if manifest.files.iter().any(|f| f.path.db_file() == Some("CURRENT")) {
                layout.databases.push(if plain { home.clone() } else { home.join("db") });
                layout.backends.extend(manifest.backend.clone());
            }
            let mounted = Path::new(checkpoint.job.as_str()).join(checkpoint.number.to_string()).join(&subtask);
            // A clone's own record was never part of a checkpoint: one that a store has does not stand in for ours.
            for file in manifest.files.iter().filter(|f| f.path.db_file() != Some(CLONE_MARK)) {
                let below = match file.path.db_file() {
                    Some(name) if plain => PathBuf::from(name),
                    _ => home.join(file.path.as_str()),
                };
                let mounted = mounted.join(file.path.as_str());
                layout.files.push(Laid { manifest: Arc::clone(&manifest), file: file.clone(), below, mounted });
            }
        }
        Ok(layout)
    }

    /// Lays out the RocksDB directory of one subtask and nothing else that it has: it becomes the restored directory.
    pub(super) fn database(checkpoint: &Checkpoint, entry: &SubtaskEntry, manifest: &Arc<TaskManifest>) -> Self {
        let mut layout = Self { files: Vec::new(), databases: Vec::new(), backends: Vec::new() };
        let subtask = Path::new(checkpoint.job.as_str()).join(checkpoint.number.to_string());
        let subtask = subtask.join(entry.operator.as_str()).join(entry.subtask.to_string());
        for file in &manifest.files {
            let Some(name) = file.path.db_file().filter(|n| *n != CLONE_MARK) else { continue };
            let mounted = subtask.join(file.path.as_str());
            layout.files.push(Laid {
                manifest: Arc::clone(manifest),
                file: file.clone(),
                below: PathBuf::from(name),
                mounted,
            });
        }
        if manifest.file("db/CURRENT").is_some() {
            layout.databases.push(PathBuf::new());
            layout.backends.extend(manifest.backend.clone());
        }
        layout
    }

    /// Lays out some files of one subtask, under their own paths.
    pub(super) fn part(
        checkpoint: &Checkpoint,
        entry: &SubtaskEntry,
        manifest: &Arc<TaskManifest>,
        wanted: &dyn Fn(&FilePath) -> bool,
    ) -> Self {
        let subtask = Path::new(checkpoint.job.as_str()).join(checkpoint.number.to_string());
        let subtask = subtask.join(entry.operator.as_str()).join(entry.subtask.to_string());
        let laid = manifest.files.iter().filter(|f| wanted(&f.path)).map(|file| Laid {
            manifest: Arc::clone(manifest),
            file: file.clone(),
            below: PathBuf::from(file.path.as_str()),
            mounted: subtask.join(file.path.as_str()),
        });
        Self { files: laid.collect(), databases: Vec::new(), backends: Vec::new() }
    }

    /// The databases below the restored directory, which may be one itself.
    pub(super) fn databases_in(&self, target: &Path) -> Vec<PathBuf> {
        let place = |below: &PathBuf| if below.as_os_str().is_empty() { target.to_owned() } else { target.join(below) };
        self.databases.iter().map(place).collect()
    }

    /// Number and bytes of the files.
    pub(super) fn size(&self) -> (u64, u64) {
        (self.files.len() as u64, self.files.iter().fold(0, |a, l| a.saturating_add(l.file.size)))
    }

    /// The directories below the restored one that the files lie in, parents first.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        let mut dirs: Vec<PathBuf> = self
            .files
            .iter()
            .filter_map(|l| l.below.parent())
            .flat_map(|p| p.ancestors().filter(|a| !a.as_os_str().is_empty()))
            .map(Path::to_path_buf)
            .collect();
        dirs.sort();
        dirs.dedup();
        dirs
    }

    /// Brings the bundles here once, before many threads ask for their sections.
    ///
    /// # Errors
    /// When one cannot be had. They only save requests: what the cache has no room for is read from the store.
    pub(super) fn fetch_bundles(&self, session: &Session) -> Result<()> {
        let mut manifests: Vec<&Arc<TaskManifest>> = self.files.iter().map(|l| &l.manifest).collect();
        manifests.dedup_by(|a, b| Arc::ptr_eq(a, b));
        for manifest in manifests {
            match session.cache.fetch_bundles(&session.store, manifest) {
                Err(e) if e.is_no_space() => log::warn!("the cache is full, every file is read from the store: {e}"),
                other => other?,
            }
        }
        Ok(())
    }
}

impl Laid {
    /// The directory that it lies in, below an open one.
    ///
    /// # Errors
    /// When it is not there.
    pub(super) fn home(&self, root: &Dir) -> Result<Dir> {
        match self.below.parent().filter(|p| !p.as_os_str().is_empty()) {
            Some(parent) => Ok(root.sub_path(parent)?),
            None => Ok(root.try_clone()?),
        }
    }

    /// Its name there.
    pub(super) fn name(&self) -> &std::ffi::OsStr {
        self.below.file_name().unwrap_or_default()
    }

    /// All its bytes are in bundles, which are here.
    pub(super) fn bundled(&self) -> bool {
        let bundle = |i: u32| self.manifest.blobs.get(i as usize).is_some_and(|b| b.bundle);
        self.file.extents.iter().all(|e| bundle(e.blob))
    }
}

/// Makes these directories.
///
/// # Errors
/// When the disk refuses.
pub(super) fn make(root: &Dir, directories: &[PathBuf]) -> Result<()> {
    for dir in directories {
        let parent = match dir.parent().filter(|p| !p.as_os_str().is_empty()) {
            Some(parent) => root.sub_path(parent)?,
            None => root.try_clone()?,
        };
        parent.create_sub(dir.file_name().unwrap_or_default(), 0o755)?;
    }
    Ok(())
}

/// Makes the names in them durable, and those in the root.
///
/// # Errors
/// When the disk fails.
pub(super) fn sync(root: &Dir, directories: &[PathBuf]) -> Result<()> {
    for dir in directories {
        root.sub_path(dir)?.sync()?;
    }
    Ok(root.sync()?)
}
