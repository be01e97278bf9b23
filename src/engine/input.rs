//! What goes into a task manifest: files of a scanned RocksDB directory, and state that is only in memory.

use std::os::unix::fs::FileExt;

use bytes::Bytes;

use super::plan::unreadable;
use super::scan::{Scan, ScannedFile};
use crate::error::{Error, Kind, Result};
use crate::format::{FilePath, rocks};

/// State that an operator wrote: a file of the task manifest whose bytes are here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFile {
    /// Its path below the subtask's directory.
    pub path: FilePath,
    /// Its bytes.
    pub bytes: Bytes,
}

/// One file of the manifest that is to be.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// It lies in a directory.
    File(&'a Scan, &'a ScannedFile),
    /// It lies in memory.
    State(&'a StateFile),
}

impl Input<'_> {
    /// Its path below the subtask's directory.
    #[must_use]
    pub fn path(&self) -> &FilePath {
        match self {
            Self::File(_, file) => &file.path,
            Self::State(state) => &state.path,
        }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self {
            Self::File(_, file) => file.stat.size,
            Self::State(state) => state.bytes.len() as u64,
        }
    }

    /// What the RocksDB MANIFEST says of it.
    #[must_use]
    pub fn sst(&self) -> Option<&rocks::LiveSst> {
        match self {
            Self::File(_, file) => file.sst.as_ref(),
            Self::State(_) => None,
        }
    }

    /// Some of its bytes.
    ///
    /// # Errors
    /// When they cannot be read, or are not there.
    pub fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let length =
            usize::try_from(length).map_err(|_| Error::new(Kind::Resources, "a section does not fit into memory"))?;
        match self {
            Self::File(scan, file) => {
                let mut bytes = vec![0; length];
                scan.open(file)?.read_exact_at(&mut bytes, offset).map_err(|e| unreadable(file, &e))?;
                Ok(bytes)
            }
            Self::State(state) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                let bytes = from.checked_add(length).and_then(|to| state.bytes.get(from..to));
                bytes
                    .map(<[u8]>::to_vec)
                    .ok_or_else(|| Error::new(Kind::Other, "internal: bytes outside of a state file"))
            }
        }
    }
}
