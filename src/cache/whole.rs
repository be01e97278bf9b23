//! A file's bytes for somebody who sends them on: from the store, verified, and not kept as a file of their own.

use std::io;

use super::Cache;
use super::error::{CacheError, Result};
use super::fetch::wanted;
use super::{range, tree};
use crate::format::{FileEntry, TaskManifest};
use crate::store::Store;
use crate::types::Key;

impl Cache {
    /// All bytes of a file of the store, and their hash tree. Of a large file nothing is kept here; a bundle that some of them lie in is, since
    /// other files lie there too. For files that fit into memory.
    ///
    /// # Errors
    /// As [`Cache::fetch_file`]; when the bytes do not fit into memory.
    pub fn fetch_bytes(&self, store: &Store, manifest: &TaskManifest, file: &FileEntry) -> Result<(Vec<u8>, Vec<u8>)> {
        let inner = &*self.inner;
        let wanted = wanted(manifest, file);
        let no_memory = || {
            let why = format!("hold the {} bytes of {} in memory (raise its limit: ulimit -v)", file.size, file.path);
            CacheError::io(self.path(), why, io::ErrorKind::OutOfMemory.into())
        };
        let size = usize::try_from(file.size).map_err(|_| no_memory())?;
        let mut bytes = Vec::new();
        // An allocation that fails must not end the process: what was begun would stay open.
        bytes.try_reserve_exact(size).map_err(|_| no_memory())?;
        for extent in &file.extents {
            let blob = wanted.blob(extent)?;
            if (bytes.len() as u64).saturating_add(extent.length) > file.size {
                return Err(wanted.damaged(format!("its extents hold more than its {} bytes", file.size)));
            }
            if blob.bundle {
                bytes.extend_from_slice(&self.read_section(store, manifest, extent)?);
                continue;
            }
            let key = Key::blob(&blob.name);
            let whole = extent.offset == 0 && extent.length == blob.length;
            let run = extent.offset..extent.end().unwrap_or(u64::MAX);
            let mut take = |piece: &[u8]| {
                bytes.extend_from_slice(piece);
                Ok(())
            };
            range::read(store, &key, run, whole, &inner.streams, &mut take)
                .map_err(|e| wanted.store_failed(&key, inner, e))?;
            inner.counters.fetched_bytes.add(extent.length);
        }
        let (found, hashes) = tree::hash_and_tree(&bytes);
        if bytes.len() != size || found != file.digest {
            inner.counters.wrong_fetched.inc();
            let (length, digest) = (bytes.len(), file.digest);
            return Err(wanted.damaged(format!("its {length} bytes have the digest {found} instead of {digest}")));
        }
        Ok((bytes, hashes))
    }
}
