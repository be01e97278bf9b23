//! Copy: a checkpoint or a subtask as ordinary files, every byte verified on its way.

use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::layout::{self, Layout};
use super::target::Target;
use crate::cache::{Session, gone};
use crate::error::{Error, Kind, Result};
use crate::format::{BlobEntry, FileEntry, SubtaskEntry, TaskManifest};
use crate::lifecycle::{Checkpoint, driver};
use crate::limits;
use crate::local::{self, LocalError, dir::Dir};
use crate::types::Progress;
use crate::types::{Extent, Hasher, Key, Uid};

/// What a copy came to.
#[derive(Debug, Clone)]
pub struct CopyReport {
    /// Files written.
    pub files: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Those of files that the cache had; the others were fetched.
    pub cached_bytes: u64,
    /// Seconds.
    pub seconds: f64,
    /// RocksDB directories that can be opened now.
    pub databases: Vec<PathBuf>,
}

/// Copies subtasks of a checkpoint to a directory that does not exist or is empty. A single subtask that is nothing but a RocksDB directory
/// becomes that directory; otherwise the layout is the mount's.
///
/// # Errors
/// When the target is not free, bytes cannot be had or are not what they should be, or the disk is full. The target is then as it was.
pub fn copy(
    session: &Session,
    checkpoint: &Checkpoint,
    subtasks: &[&SubtaskEntry],
    target: &Path,
    progress: &dyn Progress,
) -> Result<CopyReport> {
    Target::free(target)?;
    let layout = Layout::of(session, checkpoint, subtasks)?;
    copy_laid(session, &layout, target, progress)
}

/// The same for what is laid out already.
///
/// # Errors
/// As [`copy`].
pub(super) fn copy_laid(
    session: &Session,
    layout: &Layout,
    target: &Path,
    progress: &dyn Progress,
) -> Result<CopyReport> {
    let begun = Instant::now();
    let free = Target::free(target)?;
    let (files, bytes) = layout.size();
    progress.plan(files, bytes);
    progress.phase("copy");
    let mut cached_bytes = 0u64;
    for laid in &layout.files {
        if session.cache.open_complete(&laid.file.digest, laid.file.size)?.is_some() {
            cached_bytes = cached_bytes.saturating_add(laid.file.size);
        }
    }
    let random = Uid::random().map_err(|e| Error::with_source(Kind::Other, "the kernel gives no randomness", e))?;
    let staging_name = format!(".{}.restore-{random}", free.name);
    let staging = free.parent.create_sub(&staging_name, 0o700)?;
    let filled = fill(session, &staging, layout, progress).and_then(|()| free.publish(&staging_name));
    if let Err(e) = filled {
        gone::remove(staging.path());
        return Err(e);
    }
    let databases = layout.databases_in(target);
    Ok(CopyReport { files, bytes, cached_bytes, seconds: begun.elapsed().as_secs_f64(), databases })
}

pub(super) fn fill(session: &Session, staging: &Dir, layout: &Layout, progress: &dyn Progress) -> Result<()> {
    let dirs = layout.directories();
    layout::make(staging, &dirs)?;
    layout.fetch_bundles(session)?;
    driver::parallel(layout.files.iter().collect(), |laid| {
        let home = laid.home(staging)?;
        let out = home.create_file(laid.name(), 0o644)?;
        write_verified(session, &laid.manifest, &laid.file, &out, &home.path().join(laid.name()))?;
        progress.advance(laid.file.size);
        Ok::<_, Error>(())
    })?;
    layout::sync(staging, &dirs)
}

fn disk(path: &Path, e: std::io::Error) -> Error {
    LocalError::new("write", path, e).into()
}

/// What is asked of the store for a file that the cache has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ask<'a> {
    /// A blob from front to back: one request.
    Whole(&'a BlobEntry),
    /// A run of a blob: one request.
    Range(&'a BlobEntry, Range<u64>),
    /// A section of a bundle, which was fetched before.
    Section(&'a Extent),
}

impl Ask<'_> {
    /// The bytes that one request brings; nothing where there is none.
    pub(super) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Whole(blob) => Some(blob.length),
            Self::Range(_, range) => Some(range.end.saturating_sub(range.start)),
            Self::Section(_) => None,
        }
    }
}

/// What is asked for a file, in the order of its bytes.
pub(super) fn asks<'a>(manifest: &'a TaskManifest, file: &'a FileEntry) -> Result<Vec<Ask<'a>>> {
    let mut asks = Vec::with_capacity(file.extents.len());
    for extent in &file.extents {
        let blob = manifest.blobs.get(extent.blob as usize);
        let blob =
            blob.ok_or_else(|| Error::new(Kind::Damage, format!("{}: there is no blob {}", file.path, extent.blob)))?;
        if blob.bundle {
            asks.push(Ask::Section(extent));
        } else if extent.offset == 0 && extent.length == blob.length {
            asks.push(Ask::Whole(blob));
        } else {
            let (mut from, end) = (extent.offset, extent.offset.saturating_add(extent.length));
            while from < end {
                let next = end.min(from.saturating_add(limits::FETCH_CHUNK));
                asks.push(Ask::Range(blob, from..next));
                from = next;
            }
        }
    }
    Ok(asks)
}

/// Writes a file from the cache's copy or straight from the store, and compares its digest.
pub(super) fn write_verified(
    session: &Session,
    manifest: &TaskManifest,
    file: &FileEntry,
    out: &File,
    path: &Path,
) -> Result<()> {
    if let Some(local) = session.cache.open_complete(&file.digest, file.size)? {
        let cloned = local::link::reflink(&local, out).map_err(|e| disk(path, e))?;
        let digest = if cloned {
            local::identity::hash(out).map_err(|e| disk(path, e))?.0
        } else {
            copy_hashed(&local, out, path)?
        };
        if digest == file.digest {
            return out.sync_data().map_err(|e| disk(path, e));
        }
        // The cache's copy is bad behind its record: the store has another.
        session.cache.discard(&file.digest)?;
        out.set_len(0).map_err(|e| disk(path, e))?;
    }
    let mut hasher = Hasher::new();
    let mut at = 0u64;
    for ask in asks(manifest, file)? {
        match ask {
            Ask::Whole(blob) => {
                let mut failed = None;
                let read = session.store.read_to(&Key::blob(&blob.name), blob.length, &mut |bytes| {
                    hasher.update(bytes);
                    let written = out.write_all_at(bytes, at);
                    at += bytes.len() as u64;
                    // With its number, by which the remedy is found.
                    let same = |e: &std::io::Error| {
                        e.raw_os_error().map_or_else(|| e.kind().into(), std::io::Error::from_raw_os_error)
                    };
                    written.inspect_err(|e| failed = Some(same(e)))
                });
                if let Some(e) = failed {
                    return Err(disk(path, e));
                }
                read?;
            }
            Ask::Range(blob, range) => {
                let bytes = session.store.get_range(&Key::blob(&blob.name), range)?;
                hasher.update(&bytes);
                out.write_all_at(&bytes, at).map_err(|e| disk(path, e))?;
                at += bytes.len() as u64;
            }
            Ask::Section(extent) => {
                // The file's digest vouches for it.
                let bytes = session.cache.read_section(&session.store, manifest, extent)?;
                hasher.update(&bytes);
                out.write_all_at(&bytes, at).map_err(|e| disk(path, e))?;
                at += bytes.len() as u64;
            }
        }
    }
    if hasher.finish() != file.digest || at != file.size {
        let keys: Vec<String> = file
            .extents
            .iter()
            .filter_map(|e| manifest.blobs.get(e.blob as usize))
            .map(|b| Key::blob(&b.name).to_string())
            .collect();
        let message = format!(
            "{} is damaged in the store (in {}): `ckptfs verify --read` finds what else is; restore an older checkpoint",
            file.path,
            keys.join(", ")
        );
        return Err(Error::new(Kind::Damage, message));
    }
    out.sync_data().map_err(|e| disk(path, e))
}

/// Copies bytes and hashes them on their way.
pub(super) fn copy_hashed(mut from: impl Read, mut to: impl Write, path: &Path) -> Result<crate::types::Digest> {
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(n) => {
                let bytes = buffer.get(..n).unwrap_or_default();
                hasher.update(bytes);
                to.write_all(bytes).map_err(|e| disk(path, e))?;
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => {
                return Err(Error::with_source(
                    Kind::Other,
                    format!("cannot read the cache's copy of {}: {e}", path.display()),
                    e,
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::types::Digest;

    /// Gives a byte at a time, and fails once, or always, in between.
    struct Slow(Vec<u8>, io::ErrorKind, u32);

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.len() == 2 && self.2 > 0 {
                self.2 -= 1;
                return Err(self.1.into());
            }
            let Some(byte) = self.0.pop() else { return Ok(0) };
            buffer[0] = byte;
            Ok(1)
        }
    }

    #[test]
    fn a_signal_does_not_end_a_copy_and_a_bad_disk_does() {
        let mut out = Vec::new();
        let path = Path::new("/x/y");
        let found = copy_hashed(Slow(b"4321".to_vec(), io::ErrorKind::Interrupted, 3), &mut out, path).unwrap();
        assert_eq!((out.as_slice(), found), (&b"1234"[..], Digest::of(b"1234")));
        let e = copy_hashed(Slow(b"4321".to_vec(), io::ErrorKind::TimedOut, 1), &mut Vec::new(), path).unwrap_err();
        assert!(e.kind() == Kind::Other && e.to_string().contains("cannot read the cache's copy of /x/y"), "{e}");
    }
}
