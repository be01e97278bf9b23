//! What keeps blobs: collected while records are read, asked once per blob.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{At, Names};
use crate::format::CheckpointManifest;
use crate::types::{BlobName, Digest, Key, Uid};

/// Who keeps something, in the order in which it is read: what the living keep is not counted for the pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Completed and not dead.
    Living,
    /// A base of an open one.
    Base,
    /// Dead and pinned.
    Pinned,
}

/// A task manifest that names blobs to keep.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ToRead {
    pub rank: Rank,
    pub at: At,
    pub key: Key,
    pub digest: Digest,
}

/// Everything that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Keep {
    names: Names,
    /// Uploads of open ones, of their bases, and of aborted ones that are not dead.
    uids: BTreeSet<Uid>,
    /// Blobs that only a pin keeps, by the checkpoint that is pinned.
    pinned: BTreeMap<At, Names>,
    to_read: VecDeque<ToRead>,
}

impl Keep {
    pub(super) fn uploads_of(&mut self, uid: Uid) {
        self.uids.insert(uid);
    }

    /// All that a completed checkpoint names.
    pub(super) fn checkpoint(&mut self, rank: Rank, at: &At, manifest: &CheckpointManifest) {
        let (job, number) = at;
        self.to_read.extend(manifest.subtasks.iter().map(|s| ToRead {
            rank,
            at: at.clone(),
            key: Key::task(job, *number, &s.operator, s.subtask),
            digest: s.manifest,
        }));
    }

    /// The manifests to read, in the order of their ranks.
    pub(super) fn in_order(&mut self) {
        self.to_read.make_contiguous().sort_by_key(|t| t.rank);
    }

    pub(super) fn next(&mut self, most: usize) -> Vec<ToRead> {
        self.to_read.drain(..self.to_read.len().min(most)).collect()
    }

    pub(super) fn blob(&mut self, rank: Rank, at: &At, name: BlobName) {
        if self.names.insert(name) && rank == Rank::Pinned {
            self.pinned.entry(at.clone()).or_default().insert(name);
        }
    }

    pub(super) fn keeps(&self, name: &BlobName) -> bool {
        self.names.contains(name) || self.uids.contains(&name.uid)
    }

    /// The pinned checkpoint that alone keeps a blob.
    pub(super) fn pins_alone(&self) -> &BTreeMap<At, Names> {
        &self.pinned
    }

    /// Whose blobs are named by those who keep something.
    pub(super) fn uploaders(&self) -> impl Iterator<Item = Uid> + '_ {
        self.names.iter().map(|name| name.uid)
    }

    pub(super) fn uploads_kept(&self, uid: Uid) -> bool {
        self.uids.contains(&uid)
    }
}
