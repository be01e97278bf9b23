//! What an actor asks of the model store and is told. No type of `lifecycle` stands here, so that a copy with a planted fault is
//! explored by the same search as the shipped code.

use std::fmt::Debug;

use bytes::Bytes;
use ckptfs::store::Created;
use ckptfs::types::{BlobName, CheckpointNumber, Epoch, Key, KeyParts, Name, Prefix, RecordKind, Uid};

/// A request of an actor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ask {
    List(Prefix),
    /// All blobs with their lengths.
    Blobs,
    Get(Key),
    Head(Key),
    Create(Key, Bytes),
    Delete(Key),
    /// A blob of this length; not create-if-absent, its name is its own.
    Upload(BlobName, u64),
}

/// Its answer.
#[derive(Debug, Clone)]
pub enum Answer {
    Listed(Vec<Key>),
    Blobs(Vec<(BlobName, u64)>),
    Got(Option<Bytes>),
    Headed(Option<u64>),
    Created(Created),
    Deleted,
    Uploaded,
    /// The store failed.
    Failed,
}

/// What an actor has been promised, which must hold in every state that it is in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Claim {
    /// Its pin was granted: the checkpoint can be read.
    Pinned(Name, CheckpointNumber),
    /// It was told that this number is open under this uid with these bases, until it is decided.
    Open(Name, CheckpointNumber, Uid, Vec<(Name, CheckpointNumber, Uid)>),
    /// It was told that this number is decided: completed, or aborted.
    Decided(Name, CheckpointNumber, bool),
    /// It found this blob of an aborted base for the open number, until that is decided.
    Adopts(Name, CheckpointNumber, Uid, BlobName),
    /// It rules: nothing of an older epoch is published any more.
    Reigns(Name, Epoch),
}

/// Number of record kinds, and of jobs.
const KINDS: usize = 10;
const JOBS: usize = 2;

/// Keys by kind, job and number: one bit per number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keys([[u32; JOBS]; KINDS]);

pub fn job_name(job: usize) -> Name {
    Name::encode(if job == 0 { "a" } else { "b" })
}

fn job_index(name: &Name) -> usize {
    usize::from(*name != job_name(0))
}

impl Keys {
    /// No number in particular.
    pub const ALL: u32 = u32::MAX;

    pub fn number(n: u64) -> u32 {
        1 << n.min(31)
    }

    pub fn with(mut self, kind: RecordKind, job: usize, numbers: u32) -> Self {
        self.0[kind as usize][job] |= numbers;
        self
    }

    pub fn without(mut self, kind: RecordKind) -> Self {
        self.0[kind as usize] = [0; JOBS];
        self
    }

    /// Of all jobs.
    pub fn with_kind(self, kind: RecordKind) -> Self {
        (0..JOBS).fold(self, |k, job| k.with(kind, job, Self::ALL))
    }

    pub fn of(key: &Key) -> Self {
        let keys = Self::default();
        match key.parts() {
            // By who uploads: the first byte of a uid is its actor.
            KeyParts::Blob(b) => keys.with(RecordKind::Blobs, 0, Self::number(u64::from(b.uid.as_bytes()[0]))),
            KeyParts::Epoch(j, e) => keys.with(RecordKind::Epoch, job_index(j), Self::number(e.0)),
            KeyParts::Intent(j, n) => keys.with(RecordKind::Intent, job_index(j), Self::number(n.get())),
            KeyParts::Task(j, n, _, _) => keys.with(RecordKind::Task, job_index(j), Self::number(n.get())),
            KeyParts::Outcome(j, n) => keys.with(RecordKind::Outcome, job_index(j), Self::number(n.get())),
            KeyParts::Hidden(j, n, _) => keys.with(RecordKind::Hidden, job_index(j), Self::number(n.get())),
            KeyParts::Expired(j, n) => keys.with(RecordKind::Expired, job_index(j), Self::number(n.get())),
            KeyParts::Pin(j, n, _, _) => keys.with(RecordKind::Pin, job_index(j), Self::number(n.get())),
            KeyParts::Floor(j, n) => keys.with(RecordKind::Floor, job_index(j), Self::number(n.get())),
            KeyParts::Store | KeyParts::Head(_) => keys.with_kind(RecordKind::Head),
        }
    }

    pub fn under(prefix: &Prefix) -> Self {
        let mut keys = Self::default();
        for kind in [
            RecordKind::Blobs,
            RecordKind::Epoch,
            RecordKind::Intent,
            RecordKind::Task,
            RecordKind::Outcome,
            RecordKind::Hidden,
            RecordKind::Expired,
            RecordKind::Pin,
            RecordKind::Floor,
            RecordKind::Head,
        ] {
            if Prefix::kind(kind) == *prefix || *prefix == Prefix::all() {
                keys = keys.with_kind(kind);
            }
            for job in 0..JOBS {
                if prefix.as_str().starts_with(Prefix::job(kind, &job_name(job)).as_str()) {
                    keys = keys.with(kind, job, Self::ALL);
                }
            }
        }
        keys
    }

    pub fn and(mut self, other: &Self) -> Self {
        for (mine, theirs) in self.0.iter_mut().flatten().zip(other.0.iter().flatten()) {
            *mine |= theirs;
        }
        self
    }

    /// Those that are in both.
    pub fn both(mut self, other: &Self) -> Self {
        for (mine, theirs) in self.0.iter_mut().flatten().zip(other.0.iter().flatten()) {
            *mine &= theirs;
        }
        self
    }

    pub fn meets(&self, other: &Self) -> bool {
        self.0.iter().flatten().zip(other.0.iter().flatten()).any(|(a, b)| a & b != 0)
    }

    pub fn within(&self, other: &Self) -> bool {
        self.0.iter().flatten().zip(other.0.iter().flatten()).all(|(a, b)| a & !b == 0)
    }
}

/// What an actor may still do. The search holds it to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Future {
    pub creates: Keys,
    pub deletes: Keys,
    /// Acks aside.
    pub reads: Keys,
    /// Completes numbers that it did not begin.
    pub completes: bool,
}

impl Future {
    pub fn and(&self, other: &Self) -> Self {
        Self {
            creates: self.creates.and(&other.creates),
            deletes: self.deletes.and(&other.deletes),
            reads: self.reads.and(&other.reads),
            completes: self.completes || other.completes,
        }
    }

    pub fn within(&self, other: &Self) -> bool {
        self.creates.within(&other.creates) && self.deletes.within(&other.deletes) && self.reads.within(&other.reads)
    }
}

/// An actor: a script over machines. Its `Debug` form is its identity: two that print the same behave the same.
pub trait Program: Debug {
    /// Takes the answers to what it asked before and says what it asks next; nothing when it is over.
    fn step(&mut self, answers: Vec<Answer>) -> Vec<Ask>;

    fn copy(&self) -> Box<dyn Program>;

    fn claims(&self) -> Vec<Claim>;

    /// What it may still do, from now on and without being restarted.
    fn future(&self) -> Future;

    /// Whether a key is an ack of the number that it is writing.
    fn owns(&self, key: &Key) -> bool;

    /// The process that comes after this one was killed.
    fn restarted(&self) -> Box<dyn Program>;

    /// What the last step ended with, for the trace.
    fn said(&self) -> String;
}
