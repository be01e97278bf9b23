//! What is open, by the handle that the kernel has for it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dashmap::DashMap;
use fuser::BackingId;

use super::ahead::Reader;
use super::passthrough::Backing;
use crate::view::{Hold, Lasting, Names};

/// An open file's bytes.
pub(super) enum Bytes {
    /// The kernel reads them itself.
    Passthrough(Arc<Backing<BackingId>>),
    /// From a whole local file.
    File(File),
    /// From a file that is not all local.
    Parts(Reader),
    /// From memory.
    Text(Arc<[u8]>),
}

/// An open file.
pub(super) struct OpenFile {
    pub(super) ino: u64,
    pub(super) size: u64,
    pub(super) bytes: Bytes,
    /// Whether its inode's mode counts it.
    pub(super) in_modes: bool,
    /// Counts it as open in the view.
    pub(super) _hold: Hold,
}

impl OpenFile {
    /// Reads what is there of a range, and never less: an early end of the file is an error.
    pub(super) fn read<'a>(&'a self, offset: u64, size: u32, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        let there = self.size.saturating_sub(offset).min(u64::from(size));
        let length = usize::try_from(there).map_err(io::Error::other)?;
        match &self.bytes {
            Bytes::Text(text) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                Ok(text.get(start..).and_then(|rest| rest.get(..length)).unwrap_or_default())
            }
            Bytes::File(file) => {
                buffer.resize(length, 0);
                file.read_exact_at(buffer, offset)?;
                Ok(buffer)
            }
            Bytes::Parts(_) | Bytes::Passthrough(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// An open directory.
pub(super) struct OpenDirectory {
    pub(super) ino: u64,
    pub(super) lasting: Lasting,
    /// The names as they were when the reader began at the front, so that a listing in several pieces is one listing.
    pub(super) names: Mutex<Option<Arc<Names>>>,
}

/// Something open.
#[derive(Clone)]
pub(super) enum Open {
    File(Arc<OpenFile>),
    Directory(Arc<OpenDirectory>),
}

/// The table of handles.
#[derive(Default)]
pub(super) struct Handles {
    open: DashMap<u64, Open>,
    next: AtomicU64,
}

impl Handles {
    pub(super) fn insert(&self, open: Open) -> u64 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.open.insert(handle, open);
        handle
    }

    pub(super) fn file(&self, handle: u64) -> Option<Arc<OpenFile>> {
        match &*self.open.get(&handle)? {
            Open::File(file) => Some(file.clone()),
            Open::Directory(_) => None,
        }
    }

    pub(super) fn directory(&self, handle: u64) -> Option<Arc<OpenDirectory>> {
        match &*self.open.get(&handle)? {
            Open::Directory(directory) => Some(directory.clone()),
            Open::File(_) => None,
        }
    }

    pub(super) fn remove(&self, handle: u64) -> Option<Open> {
        self.open.remove(&handle).map(|(_, open)| open)
    }
}
