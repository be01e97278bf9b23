//! Brings whole files from the store: once per digest and process, hashed while they are written, named only when right.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::error::{CacheError, Result, blob_keys, place};
use super::flight::Joined;
use super::range;
use super::stage::{Keep, Stage};
use super::{Cache, Inner};
use crate::format::{BlobEntry, FileEntry, TaskManifest};
use crate::limits;
use crate::store::{Store, StoreError};
use crate::types::{BlobName, Digest, Extent, Key};

/// Bytes that are read from a bundle at once.
const PIECE: usize = 1 << 20;

/// How often we wait for others before we fetch without regard to them.
const LOOKS: u32 = 8;

/// A file that is wanted, and where its bytes are.
pub(super) struct Wanted<'a> {
    pub(super) manifest: &'a TaskManifest,
    /// What messages call it.
    pub(super) label: &'a str,
    pub(super) digest: Digest,
    pub(super) size: u64,
    pub(super) extents: &'a [Extent],
    /// Extents in bundles are read from the bundles, which are fetched for it; else from the blobs themselves.
    pub(super) unpack: bool,
}

impl Cache {
    /// A file of a task manifest: the local one, or fetched whole, verified and kept. Threads that want the same file wait for
    /// one fetch; processes may fetch it twice, and one of them wins.
    ///
    /// # Errors
    /// [`CacheError::Damaged`] when the store's bytes are not those of the manifest, [`CacheError::Absent`] when it has none,
    /// [`CacheError::NoSpace`] when they do not fit. Nothing is left behind then.
    pub fn fetch_file(&self, store: &Store, manifest: &TaskManifest, file: &FileEntry) -> Result<File> {
        self.inner.fetch(store, &wanted(manifest, file))
    }
}

impl Cache {
    /// [`Cache::fetch_file`] for somebody who needs it only while it is open: what the disk has no room for is held in memory at least as
    /// long as anybody has it open, up to [`limits::UNKEPT_LEN`] each and [`limits::UNKEPT_TOTAL`] together.
    ///
    /// # Errors
    /// As [`Cache::fetch_file`].
    pub fn fetch_to_read(&self, store: &Store, manifest: &TaskManifest, file: &FileEntry) -> Result<File> {
        match self.fetch_file(store, manifest, file) {
            Err(full) if full.is_no_space() && file.size <= limits::UNKEPT_LEN => {
                let unkept = &self.inner.unkept;
                let fail = |e| CacheError::io(&self.inner.path, "hold a file in memory", e);
                if let Some(held) = unkept.get(&file.digest, file.size).map_err(fail)? {
                    return Ok(held);
                }
                let Some(coming) = unkept.room(file.size) else { return Err(full) };
                log::warn!("{} is held in memory: {full}", file.path);
                // Its bytes alone: there is no room for the bundles that they lie in.
                let wanted = Wanted { unpack: false, ..wanted(manifest, file) };
                let got = self.inner.download(store, &wanted, &BTreeMap::new(), Stage::in_memory(&self.inner)?)?;
                unkept.hold(file.digest, &got, coming).map_err(fail)
            }
            other => other,
        }
    }
}

/// A file of a manifest, to be fetched whole.
pub(super) fn wanted<'a>(manifest: &'a TaskManifest, file: &'a FileEntry) -> Wanted<'a> {
    Wanted {
        manifest,
        label: file.path.as_str(),
        digest: file.digest,
        size: file.size,
        extents: &file.extents,
        unpack: true,
    }
}

impl Wanted<'_> {
    pub(super) fn blob(&self, extent: &Extent) -> Result<&BlobEntry> {
        let blob = usize::try_from(extent.blob).ok().and_then(|i| self.manifest.blobs.get(i));
        let blob = blob.ok_or_else(|| self.damaged(format!("its manifest has no blob {}", extent.blob)))?;
        match extent.end() {
            Some(end) if end <= blob.length => Ok(blob),
            _ => Err(self.damaged(format!("its manifest names bytes outside of the blob {}", blob.name))),
        }
    }

    fn sources(&self) -> Vec<BlobName> {
        self.extents.iter().filter_map(|e| self.blob(e).ok()).map(|b| b.name).collect()
    }

    pub(super) fn damaged(&self, why: impl Into<String>) -> CacheError {
        let names = self.extents.iter().filter_map(|e| self.manifest.blobs.get(e.blob as usize)).map(|b| &b.name);
        CacheError::Damaged {
            file: self.label.to_owned(),
            blob: blob_keys(names),
            checkpoint: place(self.manifest),
            why: why.into(),
        }
    }

    /// What the store said, told about the file.
    pub(super) fn store_failed(&self, key: &Key, cache: &Inner, e: StoreError) -> CacheError {
        match e {
            StoreError::NotFound { .. } => {
                CacheError::Absent { key: key.to_string(), checkpoint: place(self.manifest) }
            }
            StoreError::Damaged { why, .. } => self.damaged(why),
            StoreError::Sink { source, .. } => CacheError::write(&cache.path, self.label, self.size, source),
            other => CacheError::Store {
                file: self.label.to_owned(),
                checkpoint: place(self.manifest),
                source: Box::new(other),
            },
        }
    }
}

impl Inner {
    pub(super) fn fetch(&self, store: &Store, wanted: &Wanted<'_>) -> Result<File> {
        if let Some(file) = self.open_complete(&wanted.digest, wanted.size)? {
            self.counters.hits.inc();
            return Ok(file);
        }
        // Before we lead: a manifest may say that a file is its own bundle, and we would wait for ourselves.
        let bundles = self.bundles_of(store, wanted)?;
        let sources = wanted.sources();
        for _ in 0..LOOKS {
            match self.flights.join(&wanted.digest, &sources) {
                Joined::Failed(e) => return Err(CacheError::Shared(e)),
                Joined::LookAgain => {}
                Joined::Lead(leader) => {
                    // Somebody may have ended between our look and our lead.
                    let fetched = match self.open_complete(&wanted.digest, wanted.size) {
                        Ok(None) => self.download_with_room(store, wanted, &bundles),
                        Ok(Some(file)) => Ok(file),
                        Err(e) => Err(e),
                    };
                    return match fetched {
                        Ok(file) => {
                            leader.end(None);
                            Ok(file)
                        }
                        Err(e) => {
                            let e = Arc::new(e);
                            leader.end(Some(&e));
                            Err(CacheError::Shared(e))
                        }
                    };
                }
            }
            if let Some(file) = self.open_complete(&wanted.digest, wanted.size)? {
                return Ok(file);
            }
        }
        // Others kept failing with other uploads of the same bytes: what they met says nothing about ours.
        self.download_with_room(store, wanted, &bundles)
    }

    /// A full disk may be full of what nobody uses.
    fn download_with_room(&self, store: &Store, wanted: &Wanted<'_>, bundles: &BTreeMap<u32, File>) -> Result<File> {
        match self.download(store, wanted, bundles, Stage::new(self)?) {
            Err(e) if e.is_no_space() && matches!(self.make_room(), Ok(Some(done)) if done.bytes > 0) => {
                self.download(store, wanted, bundles, Stage::new(self)?)
            }
            other => other,
        }
    }

    /// The bundles that a file lies in, open and verified, by index.
    fn bundles_of(&self, store: &Store, wanted: &Wanted<'_>) -> Result<BTreeMap<u32, File>> {
        let mut bundles = BTreeMap::new();
        for extent in wanted.extents {
            let blob = wanted.blob(extent)?;
            if wanted.unpack && blob.bundle && !bundles.contains_key(&extent.blob) {
                bundles.insert(extent.blob, self.bundle(store, wanted.manifest, extent.blob)?);
            }
        }
        Ok(bundles)
    }

    fn download(
        &self,
        store: &Store,
        wanted: &Wanted<'_>,
        bundles: &BTreeMap<u32, File>,
        mut stage: Stage<'_>,
    ) -> Result<File> {
        if let [extent] = wanted.extents {
            let blob = wanted.blob(extent)?;
            let whole = extent.offset == 0 && extent.length == blob.length;
            if whole && blob.name.digest != wanted.digest {
                return Err(wanted.damaged(format!("its manifest says {} of it and keeps another blob", wanted.digest)));
            }
        }
        for extent in wanted.extents {
            let blob = wanted.blob(extent)?;
            let sum = stage.written().checked_add(extent.length).filter(|sum| *sum <= wanted.size);
            if sum.is_none() {
                return Err(wanted.damaged(format!("its extents hold more than its {} bytes", wanted.size)));
            }
            match bundles.get(&extent.blob) {
                Some(bundle) => self.copy_extent(wanted, bundle, extent, &mut stage)?,
                None => {
                    let key = Key::blob(&blob.name);
                    let end = extent.end().unwrap_or(u64::MAX);
                    let whole = extent.offset == 0 && extent.length == blob.length;
                    range::read(store, &key, extent.offset..end, whole, &self.streams, &mut |b| stage.write(b))
                        .map_err(|e| wanted.store_failed(&key, self, e))?;
                    self.counters.fetched_bytes.add(extent.length);
                }
            }
        }
        if stage.written() != wanted.size {
            self.counters.wrong_fetched.inc();
            return Err(wanted.damaged(format!("it has {} bytes instead of {}", stage.written(), wanted.size)));
        }
        let found = stage.digest();
        if found != wanted.digest {
            self.counters.wrong_fetched.inc();
            return Err(wanted.damaged(format!("its bytes have the digest {found} instead of {}", wanted.digest)));
        }
        // What can be unpacked again costs no sync.
        let unpacked = wanted.unpack && wanted.extents.iter().all(|e| bundles.contains_key(&e.blob));
        let keep = if unpacked { Keep::ForNow } else { Keep::Durable };
        let file = stage.seal(&wanted.digest, keep)?;
        self.counters.fetched_files.inc();
        Ok(file)
    }

    fn copy_extent(&self, wanted: &Wanted<'_>, bundle: &File, extent: &Extent, stage: &mut Stage<'_>) -> Result<()> {
        let mut buffer = vec![0; PIECE];
        let mut at = extent.offset;
        let mut left = extent.length;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let piece = buffer.get_mut(..want).unwrap_or_default();
            bundle.read_exact_at(piece, at).map_err(|e| CacheError::io(&self.path, "read a bundle", e))?;
            stage.write(piece).map_err(|e| CacheError::write(&self.path, wanted.label, wanted.size, e))?;
            at = at.saturating_add(want as u64);
            left = left.saturating_sub(want as u64);
        }
        Ok(())
    }
}
