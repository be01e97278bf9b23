//! The local directory of a RocksDB snapshot, with one owner of its removal.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::{Error, Kind, Result};

const ONGOING: u8 = 0;
const COMPLETED: u8 = 1;
const DELETED: u8 = 2;

/// A directory that RocksDB's checkpoint is made in.
#[derive(Debug)]
pub struct SnapshotDirectory {
    path: PathBuf,
    /// Whether it is kept for local recovery when the snapshot completes.
    permanent: bool,
    state: AtomicU8,
}

fn failed(what: &str, path: &Path, e: std::io::Error) -> Error {
    let kind = match e.kind() {
        std::io::ErrorKind::PermissionDenied => Kind::Permission,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Kind::Resources,
        _ => Kind::Other,
    };
    Error::with_source(kind, format!("cannot {what} {}: {e}", path.display()), e)
}

impl SnapshotDirectory {
    /// Makes room for a checkpoint: the parent is made, and the directory itself must not be there, as RocksDB wants it. What an
    /// earlier process left there is removed.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn prepare(path: PathBuf, permanent: bool) -> Result<Self> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|e| failed("make", parent, e))?;
        }
        remove(&path)?;
        // RocksDB builds it beside, under this name, and renames it.
        let mut building = path.clone().into_os_string();
        building.push(".tmp");
        remove(Path::new(&building))?;
        Ok(Self { path, permanent, state: AtomicU8::new(ONGOING) })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The snapshot is whole. A permanent directory is handed over and stays; a temporary one stays to be removed.
    #[must_use]
    pub fn complete(&self) -> Option<PathBuf> {
        let moved = |from, to| self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok();
        (self.permanent && moved(ONGOING, COMPLETED)).then(|| self.path.clone())
    }

    /// Removes it, unless it was handed over or is removed already.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn clean_up(&self) -> Result<()> {
        match self.state.compare_exchange(ONGOING, DELETED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => remove(&self.path),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for SnapshotDirectory {
    fn drop(&mut self) {
        if let Err(e) = self.clean_up() {
            log::warn!("a snapshot's directory stays behind: {e}");
        }
    }
}

/// Removes a directory with all that is in it, if it is there.
///
/// # Errors
/// When the disk refuses.
pub fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|e| failed("remove", path, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row8_a_directory_that_is_not_completed_is_removed_once() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, permanent| {
            let prepared = SnapshotDirectory::prepare(dir.path().join(name), permanent).unwrap();
            std::fs::create_dir(prepared.path()).unwrap();
            std::fs::write(prepared.path().join("CURRENT"), "x").unwrap();
            prepared
        };
        let given_up = make("a/chk-1", true);
        given_up.clean_up().unwrap();
        assert!(!given_up.path().exists() && given_up.complete().is_none(), "removed: nothing to hand over");
        let kept = make("a/chk-2", true);
        assert_eq!(kept.complete(), Some(dir.path().join("a/chk-2")));
        assert_eq!(kept.complete(), None, "handed over once");
        kept.clean_up().unwrap();
        drop(kept);
        assert!(dir.path().join("a/chk-2").exists());
        let temporary = make("b/chk-3", false);
        assert_eq!(temporary.complete(), None);
        drop(temporary);
        assert!(!dir.path().join("b/chk-3").exists());
    }

    #[test]
    fn row7_the_leaf_must_not_exist_and_what_a_dead_process_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("x/chk-1/old")).unwrap();
        std::fs::create_dir_all(dir.path().join("x/chk-1.tmp")).unwrap();
        let prepared = SnapshotDirectory::prepare(dir.path().join("x/chk-1"), false).unwrap();
        assert!(!prepared.path().exists() && !dir.path().join("x/chk-1.tmp").exists() && dir.path().join("x").exists());
    }
}
