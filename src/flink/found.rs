//! What lies in a directory that Flink wrote into: one checkpoint, or a job's.

use std::collections::BTreeSet;

use super::metadata::{self, CheckpointMetadata};
use crate::error::{Error, Kind, Result};
use crate::limits;
use crate::store::{SourceFile, SourceUrl, Sources, StoreError};
use crate::types::{CheckpointNumber, Digest};

/// The file that a checkpoint is.
pub const METADATA: &str = "_metadata";

const WHAT: &str =
    "Name a checkpoint (.../<job id>/chk-42), a savepoint, or the directory of a job's checkpoints (.../<job id>)";

/// Directories of a job whose files no checkpoint owns alone.
const COMMON: [&str; 2] = ["shared", "taskowned"];

/// Deepest level of those: file merging has one directory per subtask.
const LEVELS: usize = 3;

/// What a directory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A checkpoint or a savepoint.
    Checkpoint(SourceUrl),
    /// A job's `chk-*`, the oldest first. None yet, maybe; and one that is being written, or deleted, has no `_metadata`.
    Job(Vec<(CheckpointNumber, SourceUrl)>),
}

/// A checkpoint that was read.
#[derive(Debug, Clone)]
pub struct Read {
    /// Its directory.
    pub directory: SourceUrl,
    /// What it says.
    pub metadata: CheckpointMetadata,
    /// Its own number.
    pub number: CheckpointNumber,
    /// Digest of the `_metadata`.
    pub digest: Digest,
    /// Length of the `_metadata` in bytes.
    pub length: u64,
}

/// Looks what a directory holds.
///
/// # Errors
/// When it is neither; the message says what it looked for.
pub fn look(sources: &Sources, directory: &SourceUrl) -> Result<Found> {
    if sources.look(&directory.join(METADATA))?.is_some() {
        return Ok(Found::Checkpoint(directory.clone()));
    }
    if directory.name() == METADATA && sources.look(directory)?.is_some() {
        return directory.parent().map(Found::Checkpoint).ok_or_else(|| nothing(directory));
    }
    let listing = sources.list(directory)?;
    if listing.files.is_empty() && listing.directories.is_empty() {
        let why = format!("{directory}: nothing lies there. {WHAT}");
        return Err(Error::new(Kind::NotFound, why));
    }
    let numbered =
        listing.directories.iter().filter_map(|d| Some((d.name().parse::<CheckpointNumber>().ok()?, d.clone())));
    let mut checkpoints: Vec<_> = numbered.collect();
    checkpoints.sort();
    if checkpoints.is_empty() && !listing.directories.iter().any(|d| COMMON.contains(&d.name())) {
        return Err(nothing(directory));
    }
    Ok(Found::Job(checkpoints))
}

/// Whether a checkpoint's directory has the file that it is.
///
/// # Errors
/// When it cannot be looked at.
pub fn is_complete(sources: &Sources, directory: &SourceUrl) -> Result<bool> {
    Ok(sources.look(&directory.join(METADATA))?.is_some())
}

fn nothing(directory: &SourceUrl) -> Error {
    Error::new(
        Kind::NotFound,
        format!("{directory}: there is no _metadata in it, nor chk-* directories that have one. {WHAT}"),
    )
}

/// Reads a checkpoint's `_metadata`.
///
/// # Errors
/// When it cannot be read or is not one.
pub fn read(sources: &Sources, directory: &SourceUrl) -> Result<Read> {
    let url = directory.join(METADATA);
    let file = sources.look(&url)?.ok_or_else(|| nothing(directory))?;
    let most = limits::FLINK_METADATA_LEN as u64;
    if file.size > most {
        return Err(Error::new(Kind::Resources, format!("{url} has {} bytes, at most {most} may be", file.size)));
    }
    let bytes = sources.read(&file, 0, file.size)?;
    let metadata = metadata::read(&bytes).map_err(|e| Error::with_source(e.kind(), format!("{url}: {e}"), e))?;
    let number = u64::try_from(metadata.checkpoint_id).ok().and_then(|n| CheckpointNumber::new(n).ok());
    let number = number.ok_or_else(|| {
        Error::new(Kind::Damage, format!("{url}: {} is no number of a checkpoint", metadata.checkpoint_id))
    })?;
    Ok(Read { directory: directory.clone(), metadata, number, digest: Digest::of(&bytes), length: file.size })
}

/// Files of a job that none of these names.
///
/// # Errors
/// When a directory cannot be listed.
pub fn orphans(sources: &Sources, job: &SourceUrl, named: &BTreeSet<SourceUrl>) -> Result<Vec<SourceFile>> {
    let mut level: Vec<SourceUrl> = COMMON.iter().map(|name| job.join(name)).collect();
    let mut out = Vec::new();
    for _ in 0..LEVELS {
        let mut next = Vec::new();
        for directory in level {
            let listing = match sources.list(&directory) {
                Ok(listing) => listing,
                Err(StoreError::NotFound { .. }) => continue,
                Err(e) => return Err(e.into()),
            };
            out.extend(listing.files.into_iter().filter(|file| !named.contains(&file.url)));
            next.extend(listing.directories);
        }
        level = next;
    }
    out.sort_by(|a, b| a.url.cmp(&b.url));
    Ok(out)
}
