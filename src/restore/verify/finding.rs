//! What a verification finds: typed, with the object and whom it hurts.

use std::fmt;

use crate::types::{CheckpointNumber, Digest, Key, Name};

/// What is wrong with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// It is named and not there.
    Missing,
    /// It is there with another length.
    Short,
    /// Its bytes are not what they should be.
    Damaged,
    /// It is there and cannot be read: by this user, by this version, or because it is no file.
    Unreadable,
    /// A pin on a checkpoint that is not there: it keeps nothing.
    DanglingPin,
    /// A blob that nothing needs any more: the sweep deletes it.
    Unreferenced,
    /// An object that no checkpoint of this store ever made. Left alone.
    Foreign,
}

impl FindingKind {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Short => "short",
            Self::Damaged => "damaged",
            Self::Unreadable => "unreadable",
            Self::DanglingPin => "dangling pin",
            Self::Unreferenced => "unreferenced",
            Self::Foreign => "foreign",
        }
    }

    /// Whether something that somebody needs is not as it should be. What nothing needs is told, and is no damage.
    #[must_use]
    pub fn is_damage(self) -> bool {
        !matches!(self, Self::Unreferenced | Self::Foreign)
    }
}

/// A checkpoint, or one subtask of it, that a finding hurts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hurt {
    /// The job.
    pub job: Name,
    /// The checkpoint.
    pub number: CheckpointNumber,
    /// Operator and subtask; nothing where the whole checkpoint is hurt.
    pub subtask: Option<(Name, u32)>,
    /// Paths of files below the subtask's directory, the first few.
    pub files: Vec<String>,
    /// How many more files there are.
    pub more: usize,
}

impl fmt::Display for Hurt {
    /// `app/chk-42/db/0`, as on the mount.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.job, self.number)?;
        match &self.subtask {
            Some((operator, subtask)) => write!(f, "/{operator}/{subtask}"),
            None => Ok(()),
        }
    }
}

impl Hurt {
    /// A whole checkpoint.
    pub(super) fn checkpoint(job: &Name, number: CheckpointNumber) -> Self {
        Self { job: job.clone(), number, subtask: None, files: Vec::new(), more: 0 }
    }

    /// A subtask by its manifest.
    pub(super) fn manifest(job: &Name, number: CheckpointNumber, operator: &Name, subtask: u32) -> Self {
        let subtask = Some((operator.clone(), subtask));
        Self { job: job.clone(), number, subtask, files: vec!["manifest.json".to_owned()], more: 0 }
    }
}

/// Where an object lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Object {
    /// In the store.
    Stored(Key),
    /// In the store, a task manifest that an outcome names by this digest.
    Manifest(Key, Digest),
    /// In the store, and whole: it is not what a manifest says of it.
    Said,
    /// In the local cache.
    Cached(Digest),
    /// In the store, under a key that is none of ours.
    Strange,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// The object's key in the store, or the path of the cache's file.
    pub object: String,
    pub(super) at: Object,
    /// Whom it hurts, in order.
    pub hurts: Vec<Hurt>,
    /// More words.
    pub detail: String,
    /// What was done about it; nothing while it is as it was.
    pub mended: Option<String>,
}

impl Finding {
    pub(super) fn stored(kind: FindingKind, key: &Key, hurts: Vec<Hurt>, detail: impl Into<String>) -> Self {
        let at = Object::Stored(key.clone());
        Self { kind, object: key.to_string(), at, hurts, detail: detail.into(), mended: None }
    }

    /// Whether it is in the local cache, not in the store.
    #[must_use]
    pub fn in_cache(&self) -> bool {
        matches!(self.at, Object::Cached(_))
    }

    /// Whether damage is left.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.kind.is_damage() && self.mended.is_none()
    }

    /// All files that it names, by their paths on the mount.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        self.hurts.iter().flat_map(|hurt| hurt.files.iter().map(move |file| format!("{hurt}/{file}"))).collect()
    }
}
