//! Abort: create the outcome as aborted, unless it is decided already. What was uploaded stays: another attempt may have adopted it.

use super::error::LifecycleError;
use super::machine::{Machine, Reply, Request, Step, created, got, read, tri, write};
use crate::format::{Intent, Outcome, Place, Role, Verdict};
use crate::store::Created;
use crate::types::{CheckpointNumber, Key, Name, Uid};

/// The request that aborts a number.
pub(super) fn request(job: &Name, number: CheckpointNumber, uid: Uid, reason: &str) -> Result<Request, LifecycleError> {
    let outcome = Outcome {
        place: Place::new(Role::Outcome, job, number.get(), uid),
        verdict: Verdict::Aborted { reason: reason.to_owned() },
    };
    Ok(Request::Create(Key::outcome(job, number), write(&outcome)?))
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Begin,
    Intent,
    Create,
}

/// The machine behind `abort`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Abort {
    job: Name,
    number: CheckpointNumber,
    reason: String,
    phase: Phase,
}

impl Abort {
    /// A machine that aborts this number.
    #[must_use]
    pub fn new(job: Name, number: CheckpointNumber, reason: String) -> Self {
        Self { job, number, reason, phase: Phase::Begin }
    }
}

impl Machine for Abort {
    /// Whether it was aborted now; `false` when it was before.
    type Output = bool;

    fn step(&mut self, replies: Vec<Reply>) -> Step<bool> {
        match self.phase {
            Phase::Begin => {
                self.phase = Phase::Intent;
                Step::Ask(vec![Request::Get(Key::intent(&self.job, self.number))])
            }
            Phase::Intent => {
                let key = Key::intent(&self.job, self.number);
                let bytes = tri!(got(replies)).into_iter().next().flatten();
                let Some(intent) = tri!(read::<Intent>(&key, bytes.as_ref())) else {
                    let (job, number) = (self.job.clone(), self.number);
                    return Step::Done(Err(LifecycleError::NoSuchCheckpoint { job, number }));
                };
                let create = tri!(request(&self.job, self.number, intent.record.place.uid, &self.reason));
                self.phase = Phase::Create;
                Step::Ask(vec![create])
            }
            Phase::Create => match tri!(created(replies)) {
                Created::New => Step::Done(Ok(true)),
                Created::Ours => Step::Done(Ok(false)),
                Created::Other(bytes) => {
                    let key = Key::outcome(&self.job, self.number);
                    match tri!(read::<Outcome>(&key, Some(&bytes))).map(|d| d.record.verdict) {
                        Some(Verdict::Completed(_)) => {
                            let (job, number) = (self.job.clone(), self.number);
                            Step::Done(Err(LifecycleError::Completed { job, number }))
                        }
                        Some(Verdict::Aborted { .. }) | None => Step::Done(Ok(false)),
                    }
                }
            },
        }
    }
}
