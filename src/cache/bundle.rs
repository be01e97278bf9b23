//! Bundles: fetched whole, kept under their own digest (the next snapshot re-packs from them), and unpacked.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::error::{CacheError, Result, blob_keys, place};
use super::fetch::Wanted;
use super::{Cache, Inner};
use crate::format::bundle::MAGIC;
use crate::format::{BlobEntry, FileEntry, TaskManifest};
use crate::limits;
use crate::store::Store;
use crate::types::{Extent, Key, parallel};

impl Cache {
    /// Fetches all bundles that a manifest names, several at once, and unpacks the files that lie in them. What is here already
    /// costs a look.
    ///
    /// # Errors
    /// As [`Cache::fetch_file`], the first one that is met.
    pub fn fetch_bundles(&self, store: &Store, manifest: &TaskManifest) -> Result<()> {
        let bundles: Vec<u32> = (0..).zip(&manifest.blobs).filter(|(_, b)| b.bundle).map(|(i, _)| i).collect();
        parallel(limits::BUNDLES_AT_ONCE, bundles, |index| self.inner.bundle(store, manifest, index).map(drop))?;
        for file in manifest.files.iter().filter(|f| lies_in_bundles(manifest, f)) {
            self.fetch_file(store, manifest, file)?;
        }
        Ok(())
    }

    /// The bytes of a section of a bundle: a hash tree, a tail, a small file. The bundle is verified as a whole.
    ///
    /// # Errors
    /// As [`Cache::fetch_file`]; [`CacheError::Damaged`] when the manifest names no bundle or bytes outside of it.
    pub fn read_extent(&self, store: &Store, manifest: &TaskManifest, extent: &Extent) -> Result<Vec<u8>> {
        let blob = usize::try_from(extent.blob).ok().and_then(|i| manifest.blobs.get(i));
        let damaged = |why: &str| CacheError::Damaged {
            file: format!("the section [{}, {}, {}]", extent.blob, extent.offset, extent.length),
            blob: blob_keys(blob.map(|b| &b.name)),
            checkpoint: place(manifest),
            why: why.to_owned(),
        };
        let Some(BlobEntry { length, bundle: true, .. }) = blob else {
            return Err(damaged("its manifest names no bundle there"));
        };
        if extent.offset < MAGIC.len() as u64 || extent.end().is_none_or(|end| end > *length) {
            return Err(damaged("it lies outside of the bundle"));
        }
        let bundle = self.inner.bundle(store, manifest, extent.blob)?;
        let mut magic = *MAGIC;
        let fail = |e| CacheError::io(self.path(), "read a bundle", e);
        bundle.read_exact_at(&mut magic, 0).map_err(fail)?;
        if magic != *MAGIC {
            return Err(damaged("the blob is no bundle"));
        }
        // The bundle is there and this long: the length is no longer a mere claim.
        let mut bytes = vec![0; usize::try_from(extent.length).map_err(|_| damaged("it is too long"))?];
        bundle.read_exact_at(&mut bytes, extent.offset).map_err(fail)?;
        Ok(bytes)
    }
}

impl Cache {
    /// [`Cache::read_extent`] of a section that the caller verifies by itself: where the disk has no room for the bundle, its bytes alone.
    ///
    /// # Errors
    /// As [`Cache::read_extent`]; and the store's, where its bytes alone cannot be had either.
    pub fn read_section(&self, store: &Store, manifest: &TaskManifest, extent: &Extent) -> Result<Vec<u8>> {
        let full = match self.read_extent(store, manifest, extent) {
            Err(e) if e.is_no_space() => e,
            other => return other,
        };
        let blob = usize::try_from(extent.blob).ok().and_then(|i| manifest.blobs.get(i));
        let (Some(blob), Some(end)) = (blob, extent.end()) else { return Err(full) };
        let section = store.get_range(&Key::blob(&blob.name), extent.offset..end);
        section.map(Into::into).map_err(|source| CacheError::Store {
            file: "a section of a bundle".to_owned(),
            checkpoint: place(manifest),
            source: Box::new(source),
        })
    }
}

impl Inner {
    /// A bundle, open and verified, as a file of the cache.
    pub(super) fn bundle(&self, store: &Store, manifest: &TaskManifest, index: u32) -> Result<File> {
        let blob =
            usize::try_from(index).ok().and_then(|i| manifest.blobs.get(i)).ok_or_else(|| CacheError::Damaged {
                file: "a bundle".to_owned(),
                blob: String::new(),
                checkpoint: place(manifest),
                why: format!("its manifest has no blob {index}"),
            })?;
        let wanted = Wanted {
            manifest,
            label: "a bundle",
            digest: blob.name.digest,
            size: blob.length,
            extents: &[Extent { blob: index, offset: 0, length: blob.length }],
            unpack: false,
        };
        self.fetch(store, &wanted)
    }
}

/// A file that needs nothing but bundles.
fn lies_in_bundles(manifest: &TaskManifest, file: &FileEntry) -> bool {
    file.extents.iter().all(|e| manifest.blobs.get(e.blob as usize).is_some_and(|b| b.bundle))
}
