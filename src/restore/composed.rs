//! Files that are not just one section of a bundle: are the bytes that their extents name theirs? A manifest may lie about whole blobs.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::format::{FileEntry, TaskManifest};
use crate::lifecycle::driver;
use crate::limits;
use crate::store::Store;
use crate::types::{BlobName, Digest, Hasher, Key};

/// What a file should be, and where it lies.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    digest: Digest,
    /// Blob, offset, length.
    parts: Vec<(BlobName, u64, u64)>,
    /// It is a blob of its own: the names tell.
    whole: bool,
}

/// A file that is not what it claims.
#[derive(Debug)]
pub(super) struct Lie {
    /// The object that its bytes are in, where it has any.
    pub(super) object: String,
    /// The file.
    pub(super) path: String,
}

/// Claims of many manifests, each once.
#[derive(Debug, Default)]
pub(super) struct Composed(BTreeMap<Claim, String>);

impl Composed {
    /// Notes a file's claim.
    pub(super) fn add(&mut self, manifest: &TaskManifest, file: &FileEntry, path: &str) {
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
        self.0.entry(Claim { digest: file.digest, parts, whole }).or_insert_with(|| path.to_owned());
    }

    /// Checks every claim on blobs other than `damaged`, of which more is known already.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(super) fn check(&self, store: &Store, damaged: &BTreeSet<String>) -> Result<Vec<Lie>> {
        let known = |claim: &Claim| claim.parts.iter().any(|p| damaged.contains(Key::blob(&p.0).as_str()));
        let todo: Vec<_> = self.0.iter().filter(|(claim, _)| !known(claim)).collect();
        let lies = driver::parallel(todo, |(claim, path)| {
            let object = claim.parts.first().map(|p| Key::blob(&p.0).to_string()).unwrap_or_default();
            let lie = Lie { object, path: path.clone() };
            Ok::<_, crate::error::Error>((claim.found(store)? != claim.digest).then_some(lie))
        })?;
        Ok(lies.into_iter().flatten().collect())
    }
}

impl Claim {
    fn found(&self, store: &Store) -> Result<Digest> {
        if let ([part], true) = (self.parts.as_slice(), self.whole) {
            return Ok(part.0.digest);
        }
        let mut hasher = Hasher::new();
        for (blob, offset, length) in &self.parts {
            let end = offset.saturating_add(*length);
            let mut at = *offset;
            while at < end {
                let next = end.min(at.saturating_add(limits::FETCH_CHUNK));
                hasher.update(&store.get_range(&Key::blob(blob), at..next)?);
                at = next;
            }
        }
        Ok(hasher.finish())
    }
}
