//! What goes into a task manifest: files of a scanned RocksDB directory, state that is only in memory, files of other checkpoints.

use std::os::unix::fs::FileExt;

use bytes::Bytes;

use super::copied::CopiedFile;
use super::plan::unreadable;
use super::scan::{Scan, ScannedFile};
use crate::error::{Error, Kind, Result};
use crate::format::{FilePath, SstInfo, rocks};
use crate::store::{Piece, Sources};
use crate::types::digest::to_hex;

/// State that an operator wrote: a file of the task manifest whose bytes are here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFile {
    /// Its path below the subtask's directory.
    pub path: FilePath,
    /// Its bytes.
    pub bytes: Bytes,
}

/// A file of another program's checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignFile {
    /// Its path below the subtask's directory.
    pub path: FilePath,
    /// Where its bytes are.
    pub content: ForeignContent,
    /// What the RocksDB MANIFEST says of it, for live SSTs.
    pub sst: Option<rocks::LiveSst>,
}

/// Where the bytes of a foreign file are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForeignContent {
    /// In a source, or in memory.
    Piece(Piece),
    /// They are a part of another file of the same subtask, which lies in memory by now.
    Within {
        /// That file's place in the list.
        of: usize,
        /// Where they begin in it.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
}

impl ForeignFile {
    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.content {
            ForeignContent::Piece(piece) => piece.len(),
            ForeignContent::Within { bytes, .. } => bytes.len() as u64,
        }
    }

    /// Some of its bytes.
    fn read(&self, sources: &Sources, offset: u64, length: u64) -> Result<Vec<u8>> {
        let bytes = match &self.content {
            ForeignContent::Piece(Piece::There { file, offset: from, .. }) => {
                return Ok(sources.read(file, from.saturating_add(offset), length)?.to_vec());
            }
            ForeignContent::Piece(Piece::Here(bytes)) | ForeignContent::Within { bytes, .. } => bytes,
        };
        part(bytes, offset, length)
    }
}

pub(super) fn part(bytes: &Bytes, offset: u64, length: u64) -> Result<Vec<u8>> {
    let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let part = bytes.get(at(offset)..at(offset).saturating_add(at(length)));
    part.map(<[u8]>::to_vec).ok_or_else(|| Error::new(Kind::Other, "internal: bytes outside of a state file"))
}

/// One file of the manifest that is to be.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// It lies in a directory.
    File(&'a Scan, &'a ScannedFile),
    /// It lies in memory.
    State(&'a StateFile),
    /// It lies elsewhere.
    Foreign(&'a Sources, &'a ForeignFile),
    /// It is a file of a checkpoint in another store.
    Copied(CopiedFile<'a>),
}

impl Input<'_> {
    /// Its path below the subtask's directory.
    #[must_use]
    pub fn path(&self) -> &FilePath {
        match self {
            Self::File(_, file) => &file.path,
            Self::State(state) => &state.path,
            Self::Foreign(_, file) => &file.path,
            Self::Copied(file) => &file.entry.path,
        }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self {
            Self::File(_, file) => file.stat.size,
            Self::State(state) => state.bytes.len() as u64,
            Self::Foreign(_, file) => file.size(),
            Self::Copied(file) => file.entry.size,
        }
    }

    /// What the RocksDB MANIFEST says of it.
    #[must_use]
    pub fn sst(&self) -> Option<SstInfo> {
        match self {
            Self::File(_, file) => file.sst.as_ref().map(sst_info),
            Self::State(_) => None,
            Self::Foreign(_, file) => file.sst.as_ref().map(sst_info),
            Self::Copied(file) => file.entry.sst.clone(),
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
            Self::State(state) => part(&state.bytes, offset, length as u64),
            Self::Foreign(sources, file) => file.read(sources, offset, length as u64),
            Self::Copied(file) => file.bytes()?.read(offset, length as u64),
        }
    }
}

fn sst_info(sst: &rocks::LiveSst) -> SstInfo {
    let bounds = rocks::cut_outward(&sst.smallest, &sst.largest);
    SstInfo {
        column_family: sst.column_family_name.to_string(),
        level: sst.level,
        smallest: to_hex(&bounds.smallest),
        largest: bounds.largest.as_deref().map(to_hex),
    }
}
