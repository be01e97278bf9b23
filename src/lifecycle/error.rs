//! Why a step of the protocol did not go through.

use crate::error::Kind;
use crate::format::FormatError;
use crate::store::StoreError;
use crate::types::{CheckpointNumber, Epoch, Key, Name};

/// Why a step of the protocol did not go through.
#[derive(Debug, thiserror::Error)]
pub enum LifecycleError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record could not be believed.
    #[error("{key}: {source}")]
    Format {
        /// Where it lies.
        key: Key,
        /// What is wrong.
        source: FormatError,
    },
    /// A record could not be written.
    #[error(transparent)]
    Unwritable(FormatError),
    /// The store is empty or something else lies there.
    #[error(
        "{url} is not a ckptfs store: there is no ckptfs.json. Check the URL; `ckptfs snapshot` creates a store, and so do `import` and `copy`"
    )]
    NotAStore {
        /// The store's URL.
        url: String,
    },
    /// Other objects lie where a store was to be created.
    #[error("{url} holds other objects and no ckptfs.json: name an empty place for a new store")]
    NotOurs {
        /// The store's URL.
        url: String,
    },
    /// A newer version asks this one not to write.
    #[error(
        "{key} asks writers for {needs}, which this version of ckptfs does not know: upgrade ckptfs before writing to this store"
    )]
    NewerForWriters {
        /// The record that asks.
        key: Key,
        /// What it asks for.
        needs: String,
    },
    /// A signed store, and no key to sign with.
    #[error("the store is signed: name its key file with --key-file or CKPTFS_KEY_FILE before writing to it")]
    KeyNeeded,
    /// A higher epoch rules the job.
    #[error("job {job} was taken over by epoch {ruling} (this is epoch {own}): stop this coordinator")]
    Fenced {
        /// The job.
        job: Name,
        /// The epoch that rules.
        ruling: Epoch,
        /// The epoch that tried.
        own: Epoch,
    },
    /// The number was used before.
    #[error("{job}/{number} exists already ({what}): numbers are never used twice, choose another or none")]
    NumberTaken {
        /// The job.
        job: Name,
        /// The number.
        number: CheckpointNumber,
        /// How it was used.
        what: &'static str,
    },
    /// There is no such checkpoint.
    #[error("{job}/{number} does not exist: `ckptfs ls {job}` lists what is there")]
    NoSuchCheckpoint {
        /// The job.
        job: Name,
        /// The number.
        number: CheckpointNumber,
    },
    /// It is open: begun and not decided, or it never was.
    #[error(
        "{job}/{number} is not a decided checkpoint: an open one is ended by `ckptfs abort`; `ckptfs ls {job}` lists what is there"
    )]
    Undecided {
        /// The job.
        job: Name,
        /// The number.
        number: CheckpointNumber,
    },
    /// It is dead.
    #[error("{job}/{number} is dead ({why}): what is dead stays so. `ckptfs ls {job}` lists what lives")]
    Dead {
        /// The job.
        job: Name,
        /// The number.
        number: CheckpointNumber,
        /// How it died.
        why: &'static str,
    },
    /// A name that was to be used once is used.
    #[error("{key} is there already: the name was to be used once; try again with a fresh one")]
    NameTaken {
        /// The key.
        key: Key,
    },
    /// Nothing may be deleted.
    #[error("nothing was deleted: {why}")]
    NotSwept {
        /// Why, and what to do.
        why: String,
    },
    /// It was aborted.
    #[error("{job}/{number} was aborted ({reason}): open another")]
    Aborted {
        /// The job.
        job: Name,
        /// The number.
        number: CheckpointNumber,
        /// Why.
        reason: String,
    },
    /// It was completed.
    #[error("{job}/{number} is completed already: nothing can be added to it, and it cannot be aborted")]
    Completed {
        /// The job.
        job: Name,
        /// The number.
        number: CheckpointNumber,
    },
    /// Acks are missing.
    #[error("{job}/{number} cannot complete: no ack from {missing}. `ckptfs ack` them, or `ckptfs abort` it")]
    Incomplete {
        /// The job.
        job: Name,
        /// The number.
        number: CheckpointNumber,
        /// Who is missing.
        missing: String,
    },
    /// A subtask acknowledged twice, with other files.
    #[error("{operator}/{subtask} has acknowledged {job}/{number} before with other files: the first ack stands")]
    OtherAck {
        /// The job.
        job: Name,
        /// The number.
        number: CheckpointNumber,
        /// The operator.
        operator: Name,
        /// The subtask.
        subtask: u32,
    },
    /// A subtask that nobody expects.
    #[error("{job}/{number} does not expect {operator}/{subtask}: it was opened for {expected}")]
    Unexpected {
        /// The job.
        job: Name,
        /// The number.
        number: CheckpointNumber,
        /// The operator.
        operator: Name,
        /// The subtask.
        subtask: u32,
        /// Who is expected.
        expected: String,
    },
    /// A blob that nothing vouches for.
    #[error("{job}/{number} must not be published: {why}")]
    Dangling {
        /// The job.
        job: Name,
        /// The number.
        number: CheckpointNumber,
        /// Which blob, and what was found.
        why: String,
    },
    /// Base after base died while it was being opened.
    #[error(
        "job {job}: no number could be opened in {tries} tries, the last because {why}. Something expires checkpoints as fast as they are opened"
    )]
    NoUsableBase {
        /// The job.
        job: Name,
        /// How often it was tried.
        tries: u32,
        /// The last reason.
        why: String,
    },
    /// No more numbers.
    #[error("job {job} has no number left")]
    Exhausted {
        /// The job.
        job: Name,
    },
    /// The driver and a machine disagree: a bug.
    #[error("internal: a machine was given a reply that it did not ask for")]
    Confused,
}

impl LifecycleError {
    /// A record is there and cannot be believed: the one that it is about is lost, and the others are not.
    #[must_use]
    pub fn is_bad_record(&self) -> bool {
        matches!(self, Self::Format { .. }) || self.kind() == Kind::Damage
    }

    /// The coarse kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Store(e) => e.kind(),
            Self::Format { source, .. } => source.kind(),
            Self::Unwritable(source) => source.kind(),
            Self::NotAStore { .. } | Self::NoSuchCheckpoint { .. } | Self::Dead { .. } => Kind::NotFound,
            Self::NotOurs { .. } | Self::Unexpected { .. } | Self::KeyNeeded => Kind::Invalid,
            Self::NewerForWriters { .. } => Kind::Newer,
            Self::Fenced { .. } => Kind::Fenced,
            Self::NumberTaken { .. }
            | Self::Aborted { .. }
            | Self::Completed { .. }
            | Self::Incomplete { .. }
            | Self::OtherAck { .. }
            | Self::Undecided { .. }
            | Self::NameTaken { .. }
            | Self::NotSwept { .. }
            | Self::NoUsableBase { .. } => Kind::Conflict,
            Self::Dangling { .. } => Kind::Damage,
            Self::Exhausted { .. } | Self::Confused => Kind::Other,
        }
    }
}

crate::error::into_public!(LifecycleError);
