//! What went wrong with a cached file: what was tried, on what, why, and what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Kind;
use crate::format::{FormatError, TaskManifest};
use crate::local::LocalError;
use crate::local::error::remedied;
use crate::store::StoreError;
use crate::types::{BlobName, Digest, Key};

/// The layer's result.
pub type Result<T, E = CacheError> = std::result::Result<T, E>;

/// A cache could not be opened, or a file neither found in it nor brought into it.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The directory is not one that may be a cache.
    #[error("{} cannot be the cache: {why} ({remedy})", path.display())]
    Refused {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What to do.
        remedy: String,
        /// What kind of wrong.
        kind: Kind,
    },
    /// Another live process holds a lock of this cache that only one may hold.
    #[error(
        "{what} of the cache {} is held by another process{} (wait for it, stop it, or choose another cache with --cache)",
        path.display(),
        holder.as_deref().map(|h| format!(": {h}")).unwrap_or_default()
    )]
    Busy {
        /// The cache.
        path: PathBuf,
        /// What is locked.
        what: &'static str,
        /// What the holder noted of itself.
        holder: Option<String>,
    },
    /// The disk or the quota is full. Nothing half-written was left.
    #[error(
        "no space for {what} ({length} bytes) on the file system of the cache {}: {source} (free space there, give the \
         cache a smaller limit with --cache-size, or move it to a larger disk with --cache)",
        path.display()
    )]
    NoSpace {
        /// The cache.
        path: PathBuf,
        /// What was being written.
        what: String,
        /// How long it is.
        length: u64,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The cache's own directory failed.
    #[error("cannot {what} in the cache {}: {}", path.display(), remedied(.source))]
    Io {
        /// A verb phrase.
        what: String,
        /// The cache.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A local file or directory failed.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// Bytes are not those that the manifest promises. Nothing of them was kept.
    #[error("{file} of {checkpoint} is damaged in the store: {why} (blob {blob}; run ckptfs verify)")]
    Damaged {
        /// The file, or which part of it.
        file: String,
        /// Keys of the blobs that it lies in.
        blob: String,
        /// The checkpoint and subtask.
        checkpoint: String,
        /// How it shows.
        why: String,
    },
    /// The store has no such object, which a completed checkpoint names.
    #[error(
        "{checkpoint} needs {key}, and the store does not have it: the checkpoint was expired and swept meanwhile, or the \
         store lost it (run ckptfs verify)"
    )]
    Absent {
        /// The missing object's key.
        key: String,
        /// The checkpoint and subtask.
        checkpoint: String,
    },
    /// A manifest was refused.
    #[error("{key}: {source}")]
    Format {
        /// Key of the object.
        key: String,
        /// Why.
        source: FormatError,
    },
    /// The store failed.
    #[error("{file} of {checkpoint}: {source}")]
    Store {
        /// What was fetched.
        file: String,
        /// The checkpoint and subtask.
        checkpoint: String,
        /// The store's error.
        source: Box<StoreError>,
    },
    /// A local file does not hold what the caller says, or changed while it was looked at.
    #[error("a file that was to be kept as {expected} does not hold that: {why}")]
    Mismatch {
        /// The digest that was claimed.
        expected: Digest,
        /// How it shows.
        why: String,
    },
    /// Another thread fetched the same file at the same time, and this is what it met.
    #[error("{0}")]
    Shared(Arc<CacheError>),
}

impl CacheError {
    /// What a caller can do about it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Refused { kind, .. } => *kind,
            Self::Busy { .. } | Self::Mismatch { .. } => Kind::Conflict,
            Self::NoSpace { .. } => Kind::Resources,
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Kind::Permission,
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::OutOfMemory => {
                    Kind::Resources
                }
                _ => Kind::Other,
            },
            Self::Local(e) => e.kind(),
            Self::Damaged { .. } | Self::Absent { .. } => Kind::Damage,
            Self::Format { source, .. } => source.kind(),
            Self::Store { source, .. } => source.kind(),
            Self::Shared(e) => e.kind(),
        }
    }

    /// The disk or the quota is full.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::NoSpace { .. } => true,
            Self::Io { source, .. } => no_space(source),
            Self::Local(e) => e.is_no_space(),
            Self::Shared(e) => e.is_no_space(),
            _ => false,
        }
    }

    /// Writing failed: told apart are a full disk and everything else.
    pub(super) fn write(path: &Path, what: impl Into<String>, length: u64, source: io::Error) -> Self {
        let (path, what) = (path.to_owned(), what.into());
        if no_space(&source) {
            Self::NoSpace { path, what, length, source }
        } else {
            Self::Io { what: format!("write {what}"), path, source }
        }
    }

    /// The same for an error of `local`.
    pub(super) fn local(path: &Path, what: impl Into<String>, length: u64, source: LocalError) -> Self {
        if source.is_no_space() {
            let source = io::Error::from(io::ErrorKind::StorageFull);
            Self::NoSpace { path: path.to_owned(), what: what.into(), length, source }
        } else {
            Self::Local(source)
        }
    }

    pub(super) fn io(path: &Path, what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), path: path.to_owned(), source }
    }
}

impl From<CacheError> for crate::error::Error {
    fn from(e: CacheError) -> Self {
        Self::with_source(e.kind(), e.to_string(), e)
    }
}

fn no_space(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The checkpoint and subtask that a manifest belongs to, for messages.
pub(super) fn place(manifest: &TaskManifest) -> String {
    let p = &manifest.place;
    let job = p.job.as_ref().map(ToString::to_string).unwrap_or_default();
    match &p.subtask {
        Some((operator, subtask)) => format!("{job}/chk-{}/{operator}/{subtask}", p.number),
        None => format!("{job}/chk-{}", p.number),
    }
}

/// Keys of blobs, for messages: the first few.
pub(super) fn blob_keys<'a>(names: impl IntoIterator<Item = &'a BlobName>) -> String {
    let names: Vec<String> = names.into_iter().take(4).map(|n| Key::blob(n).to_string()).collect();
    names.join(", ")
}
