//! Ack: a subtask's task manifest is created once. The same files again are a duplicate, and the first stands.

use bytes::Bytes;

use super::error::LifecycleError;
use super::machine::{Machine, Reply, Request, Step, created, got, read, tri, write};
use crate::format::{FormatError, Intent, TaskManifest};
use crate::store::Created;
use crate::types::{CheckpointNumber, Digest, Key, Name};

/// Whether an intent expects this subtask.
///
/// # Errors
/// [`LifecycleError::Unexpected`] says who is expected.
pub fn expects(
    intent: &Intent,
    job: &Name,
    number: CheckpointNumber,
    operator: &Name,
    subtask: u32,
) -> Result<(), LifecycleError> {
    if intent.expected.iter().any(|e| e.operator == *operator && subtask < e.parallelism) {
        return Ok(());
    }
    let expected: Vec<String> =
        intent.expected.iter().take(20).map(|e| format!("{}={}", e.operator, e.parallelism)).collect();
    Err(LifecycleError::Unexpected {
        job: job.clone(),
        number,
        operator: operator.clone(),
        subtask,
        expected: expected.join(" "),
    })
}

/// An ack that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acked {
    /// The stored task manifest's bytes: this one's, or those of an equal ack before it.
    pub bytes: Bytes,
    /// Their digest.
    pub digest: Digest,
    /// The task manifest that stands.
    pub manifest: TaskManifest,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Begin,
    Intent,
    Create(Bytes),
}

/// The machine behind `ack`, once everything is uploaded and durable.
#[derive(Debug, Clone)]
pub struct Ack {
    job: Name,
    number: CheckpointNumber,
    operator: Name,
    subtask: u32,
    manifest: TaskManifest,
    phase: Phase,
}

impl Ack {
    /// A machine that acknowledges with this manifest, whose place says for whom.
    ///
    /// # Errors
    /// When the manifest's place is incomplete.
    pub fn new(manifest: TaskManifest) -> Result<Self, LifecycleError> {
        let place = &manifest.place;
        let (Some(job), Some((operator, subtask)), Ok(number)) =
            (place.job.clone(), place.subtask.clone(), CheckpointNumber::new(place.number))
        else {
            return Err(LifecycleError::Confused);
        };
        Ok(Self { job, number, operator, subtask, manifest, phase: Phase::Begin })
    }

    fn key(&self) -> Key {
        Key::task(&self.job, self.number, &self.operator, self.subtask)
    }

    fn done(bytes: Bytes, manifest: TaskManifest) -> Step<Acked> {
        let digest = Digest::of(&bytes);
        Step::Done(Ok(Acked { bytes, digest, manifest }))
    }
}

/// Whether two acks say the same: paths, sizes and digests. Which blobs they lie in may differ between attempts.
fn same_files(a: &TaskManifest, b: &TaskManifest) -> bool {
    a.place == b.place
        && a.files.len() == b.files.len()
        && a.files.iter().zip(&b.files).all(|(x, y)| (&x.path, x.size, x.digest) == (&y.path, y.size, y.digest))
}

impl Machine for Ack {
    type Output = Acked;

    fn step(&mut self, replies: Vec<Reply>) -> Step<Acked> {
        match std::mem::replace(&mut self.phase, Phase::Begin) {
            Phase::Begin => {
                self.phase = Phase::Intent;
                Step::Ask(vec![Request::Get(Key::intent(&self.job, self.number))])
            }
            Phase::Intent => {
                let key = Key::intent(&self.job, self.number);
                let bytes = tri!(got(replies)).into_iter().next().flatten();
                let (job, number) = (self.job.clone(), self.number);
                let Some(intent) = tri!(read::<Intent>(&key, bytes.as_ref())) else {
                    return Step::Done(Err(LifecycleError::NoSuchCheckpoint { job, number }));
                };
                let (found, own) = (intent.record.place.uid, self.manifest.place.uid);
                if found != own {
                    // An intent never changes: one of the two answers was another store's.
                    let why = format!("it is attempt {found}, and was attempt {own} when this subtask began");
                    return Step::Done(Err(LifecycleError::Format {
                        key,
                        source: FormatError::Damaged { what: "intent", why },
                    }));
                }
                tri!(expects(&intent.record, &job, number, &self.operator, self.subtask));
                let bytes = tri!(write(&self.manifest));
                self.phase = Phase::Create(bytes.clone());
                Step::Ask(vec![Request::Create(self.key(), bytes)])
            }
            Phase::Create(bytes) => match tri!(created(replies)) {
                Created::New | Created::Ours => Self::done(bytes, self.manifest.clone()),
                Created::Other(first) => match tri!(read::<TaskManifest>(&self.key(), Some(&first))) {
                    Some(d) if same_files(&d.record, &self.manifest) => Self::done(first, d.record),
                    _ => Step::Done(Err(LifecycleError::OtherAck {
                        job: self.job.clone(),
                        number: self.number,
                        operator: self.operator.clone(),
                        subtask: self.subtask,
                    })),
                },
            },
        }
    }
}
