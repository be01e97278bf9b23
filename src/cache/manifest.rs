//! Task manifests, kept as the store has them. They are small and immutable, are checked against their digest whenever they
//! are read, and are shared in memory while anybody uses them.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::error::{CacheError, Result};
use super::stage::Stage;
use super::{Cache, Inner};
use crate::format::{Record, SubtaskEntry, TaskManifest, decode_at};
use crate::limits;
use crate::local::FileKind;
use crate::local::link::{Linked, link_from_fd};
use crate::store::{Store, StoreError};
use crate::types::{CheckpointNumber, Digest, Key, Name};

impl Cache {
    /// A subtask's task manifest, as the checkpoint manifest names it by digest: the local one, else the store's, which is kept.
    ///
    /// # Errors
    /// [`CacheError::Damaged`] when the store's object has another digest, [`CacheError::Format`] when it does not parse or
    /// belongs elsewhere, [`CacheError::Absent`] when there is none.
    pub fn task_manifest(
        &self,
        store: &Store,
        job: &Name,
        number: CheckpointNumber,
        subtask: &SubtaskEntry,
    ) -> Result<Arc<TaskManifest>> {
        let key = Key::task(job, number, &subtask.operator, subtask.subtask);
        let digest = &subtask.manifest;
        if let Some(known) = self.inner.parsed.get(digest).and_then(|w| w.upgrade()) {
            known.place().belongs_at(&key).map_err(|why| {
                let what = TaskManifest::WHAT;
                CacheError::Format { key: key.to_string(), source: crate::format::FormatError::Misplaced { what, why } }
            })?;
            return Ok(known);
        }
        let bytes = match self.manifest_bytes(digest)? {
            Some(bytes) => bytes,
            None => self.fetch_manifest(store, &key, subtask)?,
        };
        let decoded = decode_at::<TaskManifest>(&key, &bytes)
            .map_err(|source| CacheError::Format { key: key.to_string(), source })?;
        let manifest = Arc::new(decoded.record);
        if self.inner.parsed.len() >= limits::PARSED_MANIFESTS {
            self.inner.parsed.retain(|_, weak| weak.strong_count() > 0);
        }
        self.inner.parsed.insert(*digest, Arc::downgrade(&manifest));
        Ok(manifest)
    }

    fn fetch_manifest(&self, store: &Store, key: &Key, subtask: &SubtaskEntry) -> Result<Vec<u8>> {
        let checkpoint = || key.to_string();
        let damaged = |why: String| CacheError::Damaged {
            file: "the task manifest".to_owned(),
            blob: key.to_string(),
            checkpoint: checkpoint(),
            why,
        };
        let bytes = match store.get(key, limits::METADATA_LEN) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Err(CacheError::Absent { key: key.to_string(), checkpoint: checkpoint() }),
            Err(StoreError::Damaged { why, .. } | StoreError::Untrusted { why, .. }) => return Err(damaged(why)),
            Err(source) => {
                let file = "the task manifest".to_owned();
                return Err(CacheError::Store { file, checkpoint: checkpoint(), source: Box::new(source) });
            }
        };
        let found = Digest::of(&bytes);
        if found != subtask.manifest || bytes.len() as u64 != subtask.manifest_length {
            self.inner.counters.wrong_fetched.inc();
            let (length, want) = (bytes.len(), subtask.manifest_length);
            return Err(damaged(format!(
                "its {length} bytes have the digest {found} instead of {want} bytes and {}",
                subtask.manifest
            )));
        }
        // It was verified in memory: a full disk is no reason to refuse it.
        if let Err(e) = self.put_manifest(&subtask.manifest, &bytes) {
            log::warn!("{key} is not kept: {e}");
        }
        Ok(bytes.to_vec())
    }

    /// Keeps a task manifest's whole object.
    ///
    /// # Errors
    /// [`CacheError::Mismatch`] when the bytes are not those of the digest; or the disk refuses.
    pub fn put_manifest(&self, digest: &Digest, bytes: &[u8]) -> Result<()> {
        let inner = &*self.inner;
        let found = Digest::of(bytes);
        if found != *digest || bytes.len() as u64 > limits::METADATA_LEN {
            let why = format!("its {} bytes have the digest {found}", bytes.len());
            return Err(CacheError::Mismatch { expected: *digest, why });
        }
        let name = digest.to_hex();
        let length = bytes.len() as u64;
        let mut stage = Stage::new(inner)?;
        stage.write(bytes).map_err(|e| CacheError::write(&inner.path, &name, length, e))?;
        // No sync: it is hashed whenever it is read, and can be had again.
        match link_from_fd(stage.file(), &inner.manifests, &name).map_err(|e| inner.failed(&name, length, e))? {
            Linked::Linked | Linked::Exists => Ok(()),
            other => {
                let e = std::io::Error::other(format!("the cache's own file system does not link: {other:?}"));
                Err(CacheError::io(&inner.path, format!("name {name}"), e))
            }
        }
    }

    /// A task manifest's whole object, if it is here; verified. A damaged one is removed.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn manifest_bytes(&self, digest: &Digest) -> Result<Option<Vec<u8>>> {
        let inner: &Inner = &self.inner;
        let name = digest.to_hex();
        let file = match inner.manifests.open_file(&name) {
            Ok(file) => file,
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) if inner.manifests.stat(&name)?.is_some_and(|s| s.kind() != FileKind::File) => {
                log::warn!("removed a damaged task manifest from the cache: {e}");
                inner.manifests.remove(&name)?;
                return Ok(None);
            }
            Err(e) => return Err(e.into()),
        };
        let fail = |e| CacheError::io(&inner.path, format!("read the task manifest {name}"), e);
        let length = file.metadata().map_err(fail)?.len();
        let mut bytes = Vec::new();
        if length <= limits::METADATA_LEN {
            bytes.resize(usize::try_from(length).unwrap_or_default(), 0);
            match file.read_exact_at(&mut bytes, 0) {
                // Cut off meanwhile: as damaged as any other.
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => bytes.clear(),
                other => other.map_err(fail)?,
            }
        }
        if Digest::of(&bytes) == *digest {
            inner.touch(digest);
            return Ok(Some(bytes));
        }
        log::warn!("removed the damaged task manifest {name} from the cache, it will be fetched anew");
        inner.manifests.remove(&name)?;
        inner.counters.discarded.inc();
        Ok(None)
    }
}
