//! What checkpoints hold and share: unique bytes, and the difference between two.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::select::task_manifest;
use crate::cache::Session;
use crate::error::{Error, Result};
use crate::format::{FilePath, TaskManifest};
use crate::lifecycle::{Checkpoint, JobListing, driver};
use crate::types::{BlobName, CheckpointNumber, Digest, Name};

/// All task manifests of a checkpoint, in the order of its subtasks.
///
/// # Errors
/// When one cannot be read or believed.
pub fn manifests(session: &Session, checkpoint: &Checkpoint) -> Result<Vec<Arc<TaskManifest>>> {
    let entries: Vec<_> = checkpoint.manifest.subtasks.iter().collect();
    driver::parallel(entries, |entry| task_manifest(session, checkpoint, entry))
}

/// A checkpoint's place among all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes that its directories hold.
    pub logical: u64,
    /// Bytes that it uploaded.
    pub new: u64,
    /// Bytes of the blobs that only it names: what its removal would free.
    pub unique: u64,
    /// Bytes of all blobs that it names.
    pub referenced: u64,
}

/// Usage of every checkpoint of these jobs, and the bytes that all of them together reference.
#[derive(Debug, Clone, Default)]
pub struct UsageReport {
    /// Per checkpoint.
    pub checkpoints: BTreeMap<(Name, CheckpointNumber), Usage>,
    /// Bytes of all blobs that any of them names, each once.
    pub total: u64,
}

/// Looks at all jobs of the store, since blobs may be shared between jobs.
///
/// # Errors
/// When anything that counts cannot be read: a wrong "would free" is worse than none.
pub fn usage(session: &Session, listings: &[JobListing]) -> Result<UsageReport> {
    usage_of(session, listings, |_, _| {})
}

/// [`usage`], and shows each checkpoint with its task manifests, which are read once.
///
/// # Errors
/// As [`usage`].
pub fn usage_of(
    session: &Session,
    listings: &[JobListing],
    mut see: impl FnMut(&Checkpoint, &[Arc<TaskManifest>]),
) -> Result<UsageReport> {
    let mut owners: HashMap<BlobName, (u64, Option<(Name, CheckpointNumber)>)> = HashMap::new();
    let mut report = UsageReport::default();
    for checkpoint in listings.iter().flat_map(|l| l.checkpoints.values()).filter(|c| !c.expired) {
        let id = (checkpoint.job.clone(), checkpoint.number);
        let mut own: HashMap<BlobName, u64> = HashMap::new();
        let manifests = manifests(session, checkpoint)?;
        see(checkpoint, &manifests);
        for manifest in manifests {
            own.extend(manifest.blobs.iter().map(|b| (b.name, b.length)));
        }
        let referenced = own.values().fold(0u64, |a, b| a.saturating_add(*b));
        for (name, length) in own {
            // The first to name a blob owns it, until a second does.
            owners.entry(name).and_modify(|(_, owner)| *owner = None).or_insert_with(|| (length, Some(id.clone())));
        }
        let (logical, new) = (checkpoint.manifest.logical_bytes, checkpoint.manifest.new_bytes);
        report.checkpoints.insert(id, Usage { logical, new, unique: 0, referenced });
    }
    for (length, owner) in owners.into_values() {
        report.total = report.total.saturating_add(length);
        if let Some(usage) = owner.and_then(|id| report.checkpoints.get_mut(&id)) {
            usage.unique = usage.unique.saturating_add(length);
        }
    }
    Ok(report)
}

/// What became of a file between two checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Only the second has it.
    Added,
    /// Only the first has it.
    Removed,
    /// Both have the name, with other bytes.
    Changed,
}

/// The difference between two checkpoints.
#[derive(Debug, Clone, Default)]
pub struct Difference {
    /// Files that differ: path from the checkpoint's root, what became of it, size in the first and in the second.
    pub files: Vec<(String, Change, u64, u64)>,
    /// Files that are the same.
    pub same_files: u64,
    /// Their bytes.
    pub same_bytes: u64,
}

/// Compares by content: the same name with the same bytes is the same file, wherever the bytes lie.
///
/// # Errors
/// When a manifest cannot be read or believed.
pub fn difference(session: &Session, a: &Checkpoint, b: &Checkpoint) -> Result<Difference> {
    let (a, b) = (files(session, a)?, files(session, b)?);
    let mut out = Difference::default();
    for (path, (digest, size)) in &a {
        match b.get(path) {
            None => out.files.push((path.clone(), Change::Removed, *size, 0)),
            Some((d, s)) if d == digest && s == size => {
                out.same_files += 1;
                out.same_bytes = out.same_bytes.saturating_add(*size);
            }
            Some((_, other)) => out.files.push((path.clone(), Change::Changed, *size, *other)),
        }
    }
    out.files
        .extend(b.iter().filter(|(p, _)| !a.contains_key(*p)).map(|(p, (_, s))| (p.clone(), Change::Added, 0, *s)));
    out.files.sort();
    Ok(out)
}

type Files = BTreeMap<String, (Digest, u64)>;

fn files(session: &Session, checkpoint: &Checkpoint) -> Result<Files, Error> {
    let mut out = Files::new();
    for (entry, manifest) in checkpoint.manifest.subtasks.iter().zip(manifests(session, checkpoint)?) {
        for f in &manifest.files {
            let path: &FilePath = &f.path;
            out.insert(format!("{}/{}/{path}", entry.operator, entry.subtask), (f.digest, f.size));
        }
    }
    Ok(out)
}
