//! Local recovery: the RocksDB checkpoints of a subtask's newest snapshots stay on its host, as hard links that cost no bytes.
//!
//! ```text
//! <root>/<job>/<subtask>/chk_<n>/uid              whose snapshot it is
//! <root>/<job>/<subtask>/chk_<n>/<operator>/      a RocksDB directory
//! ```
//!
//! There is one root: with several on different devices, links would become copies. A copy is only ever believed after each of its
//! files was found to be what the store's task manifest says.

use std::path::{Path, PathBuf};

use super::directory::remove;
use crate::error::{Error, Kind, Result};
use crate::types::{CheckpointNumber, Name, Uid};

/// The local snapshots of one subtask.
#[derive(Debug, Clone)]
pub struct LocalStateStore {
    home: PathBuf,
}

fn failed(what: &str, path: &Path, e: std::io::Error) -> Error {
    Error::with_source(Kind::Other, format!("cannot {what} {}: {e}", path.display()), e)
}

impl LocalStateStore {
    /// The store of a subtask below a root that lies on the device of its databases.
    #[must_use]
    pub fn new(root: &Path, job: &Name, subtask: u32) -> Self {
        Self { home: root.join(job.as_str()).join(subtask.to_string()) }
    }

    fn checkpoint(&self, number: CheckpointNumber) -> PathBuf {
        self.home.join(format!("chk_{}", number.get()))
    }

    /// Where an operator's database is snapshotted to.
    #[must_use]
    pub fn directory(&self, number: CheckpointNumber, operator: &Name) -> PathBuf {
        self.checkpoint(number).join(operator.as_str())
    }

    /// Says whose snapshot lies there, now that it is whole. Before the ack, so that a checkpoint that completes has its local copy.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn store(&self, number: CheckpointNumber, uid: Uid) -> Result<()> {
        let place = self.checkpoint(number);
        let (draft, path) = (place.join("uid.tmp"), place.join("uid"));
        std::fs::create_dir_all(&place).map_err(|e| failed("make", &place, e))?;
        std::fs::write(&draft, uid.to_string()).map_err(|e| failed("write", &draft, e))?;
        std::fs::rename(&draft, &path).map_err(|e| failed("write", &path, e))
    }

    /// A whole local copy of an operator's database in the checkpoint with this uid. One that cannot be told whose it is is removed.
    #[must_use]
    pub fn retrieve(&self, number: CheckpointNumber, uid: Uid, operator: &Name) -> Option<PathBuf> {
        let directory = self.directory(number, operator);
        if !directory.is_dir() {
            return None;
        }
        let said = std::fs::read_to_string(self.checkpoint(number).join("uid")).unwrap_or_default();
        if said == uid.to_string() {
            return Some(directory);
        }
        if let Err(e) = self.abort(number) {
            log::warn!("a local copy that is not to be believed stays behind: {e}");
        }
        None
    }

    /// A checkpoint is complete: older copies are removed.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn confirm(&self, number: CheckpointNumber) -> Result<()> {
        self.prune(|n| n < number.get())
    }

    /// A checkpoint was aborted: its copy is removed, and no other.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn abort(&self, number: CheckpointNumber) -> Result<()> {
        remove(&self.checkpoint(number))
    }

    /// Removes all copies but one, when the job is restored: none of them will be confirmed any more.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn keep_only(&self, number: Option<CheckpointNumber>) -> Result<()> {
        self.prune(|n| number.is_none_or(|keep| keep.get() != n))
    }

    fn prune(&self, goes: impl Fn(u64) -> bool) -> Result<()> {
        let entries = match std::fs::read_dir(&self.home) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(failed("list", &self.home, e)),
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|n| n.strip_prefix("chk_")).and_then(|n| n.parse().ok());
            if number.is_some_and(&goes) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(n: u64) -> CheckpointNumber {
        CheckpointNumber::new(n).unwrap()
    }

    #[test]
    fn row10_confirm_prunes_the_older_and_abort_removes_one() {
        let dir = tempfile::tempdir().unwrap();
        let (job, operator, uid) = (Name::encode("job"), Name::encode("count"), Uid::random().unwrap());
        let store = LocalStateStore::new(dir.path(), &job, 3);
        for i in 1..=4 {
            std::fs::create_dir_all(store.directory(n(i), &operator)).unwrap();
            store.store(n(i), uid).unwrap();
        }
        let there = |store: &LocalStateStore| -> Vec<u64> {
            (1..=4).filter(|i| store.retrieve(n(*i), uid, &operator).is_some()).collect()
        };
        store.confirm(n(2)).unwrap();
        assert_eq!(there(&store), [2, 3, 4], "what is newer may complete yet");
        store.abort(n(3)).unwrap();
        assert_eq!(there(&store), [2, 4]);
        store.keep_only(Some(n(2))).unwrap();
        assert_eq!(there(&store), [2]);
        store.keep_only(None).unwrap();
        assert_eq!(there(&store), [] as [u64; 0]);
        LocalStateStore::new(dir.path(), &job, 9).confirm(n(1)).unwrap();
    }

    #[test]
    fn row10_a_copy_of_another_attempt_or_without_its_record_is_removed_and_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let (job, operator) = (Name::encode("job"), Name::encode("count"));
        let store = LocalStateStore::new(dir.path(), &job, 0);
        let (mine, other) = (Uid::random().unwrap(), Uid::random().unwrap());
        for (i, uid) in [(1, Some(other)), (2, None)] {
            std::fs::create_dir_all(store.directory(n(i), &operator)).unwrap();
            if let Some(uid) = uid {
                store.store(n(i), uid).unwrap();
            }
            assert_eq!(store.retrieve(n(i), mine, &operator), None);
            assert!(!store.directory(n(i), &operator).exists());
        }
    }
}
