//! Files that are not just one section of a bundle: are the bytes that their extents name theirs? A manifest may lie about whole blobs.

use std::collections::BTreeMap;

use super::references::User;
use crate::format::{FileEntry, TaskManifest};
use crate::limits;
use crate::store::{Store, StoreError};
use crate::types::{BlobName, Digest, Hasher, Key};

/// What a file should be, and where it lies.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) digest: Digest,
    /// Blob, offset, length.
    pub(super) parts: Vec<(BlobName, u64, u64)>,
    /// It is a blob of its own: the names tell.
    whole: bool,
}

/// Claims of many manifests, each once.
#[derive(Debug, Default)]
pub(super) struct Composed(pub(super) BTreeMap<Claim, User>);

impl Composed {
    /// Notes a file's claim.
    pub(super) fn add(&mut self, manifest: &TaskManifest, file: &FileEntry, user: User) {
        let blob = |i: u32| usize::try_from(i).ok().and_then(|i| manifest.blobs.get(i));
        let mut whole = false;
        if let [extent] = file.extents.as_slice()
            && let Some(blob) = blob(extent.blob)
        {
            if blob.bundle {
                return;
            }
            whole = extent.offset == 0 && extent.length == blob.length;
        }
        let part = |e: &crate::types::Extent| blob(e.blob).map(|b| (b.name, e.offset, e.length));
        let parts = file.extents.iter().filter_map(part).collect();
        self.0.entry(Claim { digest: file.digest, parts, whole }).or_insert(user);
    }
}

impl Claim {
    /// Bytes that must be read to tell.
    pub(super) fn length(&self) -> u64 {
        if self.whole { 0 } else { self.parts.iter().fold(0, |sum, (_, _, length)| sum.saturating_add(*length)) }
    }

    /// The digest of what lies there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn found(&self, store: &Store, mut read: impl FnMut(u64)) -> Result<Digest, StoreError> {
        if let ([part], true) = (self.parts.as_slice(), self.whole) {
            return Ok(part.0.digest);
        }
        let mut hasher = Hasher::new();
        for (blob, offset, length) in &self.parts {
            let end = offset.saturating_add(*length);
            let mut at = *offset;
            while at < end {
                let next = end.min(at.saturating_add(limits::FETCH_CHUNK));
                let bytes = store.get_range(&Key::blob(blob), at..next)?;
                read(bytes.len() as u64);
                hasher.update(&bytes);
                at = next;
            }
        }
        Ok(hasher.finish())
    }

    /// What stands for the claim where it was proved before.
    pub(super) fn mark(&self) -> Digest {
        let mut hasher = Hasher::new();
        hasher.update(b"composed\0").update(self.digest.as_bytes());
        for (blob, offset, length) in &self.parts {
            hasher.update(blob.to_string().as_bytes()).update(&offset.to_le_bytes()).update(&length.to_le_bytes());
        }
        hasher.finish()
    }
}
