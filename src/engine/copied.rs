//! A file of a checkpoint in another store: its bytes, which are verified before anybody gets them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;

use super::input::part;
use crate::cache::{Session, tree};
use crate::error::{Error, Kind, Result};
use crate::format::{FileEntry, TaskManifest};
use crate::limits;
use crate::store::BlobSource;
use crate::types::{Digest, Hasher};

/// A file of a checkpoint in another store.
#[derive(Debug, Clone, Copy)]
pub struct CopiedFile<'a> {
    /// That store, and the cache.
    pub session: &'a Session,
    /// The task manifest that names it.
    pub manifest: &'a TaskManifest,
    /// The file.
    pub entry: &'a FileEntry,
}

/// Bytes of a file that were found to be those of its digest.
#[derive(Debug)]
pub struct Verified {
    held: Held,
    /// Their hash tree.
    pub tree: Vec<u8>,
    size: u64,
}

#[derive(Debug)]
enum Held {
    Here(Bytes),
    There(File),
}

impl CopiedFile<'_> {
    /// Its bytes: the cache's file where there is one, else in memory up to [`limits::READ_ONCE`], else brought into the cache.
    ///
    /// # Errors
    /// When they cannot be had, or are not those of the digest: the error says which file.
    pub fn bytes(&self) -> Result<Verified> {
        self.read_and_check().map_err(|e| {
            let path = self.entry.path.as_str();
            if e.message().contains(path) { e } else { e.context(path) }
        })
    }

    fn read_and_check(&self) -> Result<Verified> {
        let Self { session, manifest, entry } = *self;
        let cache = &session.cache;
        if let Some(local) = cache.open_complete(&entry.digest, entry.size)? {
            if let Some(verified) = self.check(local)? {
                return Ok(verified);
            }
            // Its disk lost bytes behind its record: the store has others.
            cache.discard(&entry.digest)?;
        }
        if entry.size <= limits::READ_ONCE {
            let (bytes, tree) = cache.fetch_bytes(&session.store, manifest, entry)?;
            return Ok(Verified { held: Held::Here(bytes.into()), tree, size: entry.size });
        }
        let fetched = cache.fetch_file(&session.store, manifest, entry)?;
        // What was sent before can go.
        cache.tidy();
        self.check(fetched)?.ok_or_else(|| {
            let (path, cache) = (&entry.path, cache.path().display());
            let why =
                format!("{path}: what was read back from the cache {cache} is not what was written: its disk is bad");
            Error::new(Kind::Damage, why)
        })
    }

    /// Reads a whole file once.
    fn check(&self, file: File) -> Result<Option<Verified>> {
        let size = self.entry.size;
        let (digest, tree) = tree::hash_and_tree_of(&file, size).map_err(|e| self.unreadable(e))?;
        Ok((digest == self.entry.digest).then_some(Verified { held: Held::There(file), tree, size }))
    }

    fn unreadable(&self, e: io::Error) -> Error {
        let (digest, path) = (self.entry.digest, &self.entry.path);
        Error::with_source(Kind::Other, format!("cannot read {digest} ({path}) in the cache: {e}"), e)
    }
}

fn unreadable(e: io::Error) -> Error {
    Error::with_source(Kind::Other, format!("cannot read a file of the cache: {e}"), e)
}

impl Verified {
    /// The bytes as a store takes them.
    #[must_use]
    pub fn source(&self) -> BlobSource<'_> {
        match &self.held {
            Held::Here(bytes) => BlobSource::Bytes(bytes.clone()),
            Held::There(file) => BlobSource::File(file, self.size),
        }
    }

    /// Some of them.
    ///
    /// # Errors
    /// When they are outside of the file or cannot be read.
    pub fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let file = match &self.held {
            Held::Here(bytes) => return part(bytes, offset, length),
            Held::There(file) => file,
        };
        let length = self.within(offset, length)?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset).map_err(unreadable)?;
        Ok(bytes)
    }

    /// The digest of some of them.
    ///
    /// # Errors
    /// As [`Verified::read`].
    pub fn digest_of(&self, offset: u64, length: u64) -> Result<Digest> {
        let file = match &self.held {
            Held::Here(bytes) => {
                let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
                let run = bytes.get(at(offset)..at(offset).saturating_add(at(length)));
                return run.map(Digest::of).ok_or_else(outside);
            }
            Held::There(file) => file,
        };
        self.within(offset, length)?;
        let mut hasher = Hasher::new();
        let mut buffer = vec![0; 128 << 10];
        let (mut at, end) = (offset, offset.saturating_add(length));
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let piece = buffer.get_mut(..most).unwrap_or_default();
            file.read_exact_at(piece, at).map_err(unreadable)?;
            hasher.update(piece);
            at = at.saturating_add(piece.len() as u64);
        }
        Ok(hasher.finish())
    }

    fn within(&self, offset: u64, length: u64) -> Result<usize> {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.size);
        inside.then(|| usize::try_from(length).ok()).flatten().ok_or_else(outside)
    }
}

fn outside() -> Error {
    Error::new(Kind::Damage, "a part of a file lies outside of it")
}

/// A file that is a part of another one of the same task manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// That one's place in the list.
    pub(super) of: usize,
    /// Where it begins there.
    pub(super) offset: u64,
}

/// Which files are parts of others, by their places: an imported stream of Flink's and its key groups. Their bytes are sent once.
pub(super) fn parts(manifest: &TaskManifest) -> Vec<Option<Part>> {
    let mut parts = vec![None; manifest.files.len()];
    let single = |(i, f): (usize, &FileEntry)| match f.extents.as_slice() {
        [e] => Some((e.blob, e.offset, e.length, i)),
        _ => None,
    };
    let mut runs: Vec<_> = manifest.files.iter().enumerate().filter_map(single).collect();
    // Where two begin together, the longer one holds the other.
    runs.sort_unstable_by_key(|(blob, offset, length, i)| (*blob, *offset, u64::MAX - length, *i));
    let mut whole: Option<(u32, u64, u64, usize)> = None;
    for (blob, offset, length, i) in runs {
        let end = offset.saturating_add(length);
        match whole {
            Some((of, from, to, at)) if of == blob && from <= offset && end <= to => {
                if let Some(part) = parts.get_mut(i).filter(|_| (from, to) != (offset, end)) {
                    *part = Some(Part { of: at, offset: offset - from });
                }
            }
            _ => whole = Some((blob, offset, end, i)),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{BlobEntry, FilePath, Place, Role};
    use crate::types::{BlobName, Extent, Name, Uid};

    /// Blob, offset and length.
    type Run = (u32, u64, u64);

    fn manifest(files: &[(&str, &[Run])]) -> TaskManifest {
        let uid = Uid::from_bytes([1; 16]);
        let blob = |n: u8| BlobEntry { name: BlobName { digest: Digest::of(&[n]), uid }, length: 1000, bundle: false };
        let files = files.iter().map(|(path, extents)| FileEntry {
            path: FilePath::parse(path).unwrap(),
            size: extents.iter().map(|e| e.2).sum(),
            digest: Digest::of(path.as_bytes()),
            extents: extents
                .iter()
                .map(|(blob, offset, length)| Extent { blob: *blob, offset: *offset, length: *length })
                .collect(),
            tree: None,
            tail: None,
            sst: None,
        });
        TaskManifest {
            place: Place::new(Role::Task, &Name::encode("app"), 1, uid),
            display_name: String::new(),
            blobs: vec![blob(0), blob(1)],
            files: files.collect(),
            logical_bytes: 0,
            new_bytes: 0,
            backend: None,
            key_groups: None,
            states: Vec::new(),
            properties: Default::default(),
            other_state: Default::default(),
            origins: Default::default(),
        }
    }

    #[test]
    fn a_stream_holds_its_key_groups_and_nothing_else_is_a_part() {
        let found = parts(&manifest(&[
            ("keyed/0", &[(0, 10, 20)]),
            ("keyed/1", &[(0, 30, 70)]),
            ("keyed/2", &[(1, 30, 10)]),
            ("keyed/3", &[(0, 95, 10)]),
            ("keyed/4", &[(0, 10, 5), (0, 20, 5)]),
            ("keyed/5", &[]),
            ("stream/a", &[(0, 0, 100)]),
            ("stream/b", &[(0, 0, 100)]),
        ]));
        let part = |offset| Some(Part { of: 6, offset });
        assert_eq!(found, [part(10), part(30), None, None, None, None, None, None]);
    }
}
