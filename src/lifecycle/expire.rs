//! Expire: a decided checkpoint dies, for ever. Nothing is deleted by it: that is the sweep's.

use super::error::LifecycleError;
use super::machine::{Machine, Reply, Request, Step, created, got, read, tri, writable, write};
use crate::format::records::ExpiredRecord;
use crate::format::{Outcome, Place, Role};
use crate::store::Created;
use crate::types::{CheckpointNumber, Key, Name, Uid};

/// The request that creates the tombstone of a decided number.
pub(super) fn request(job: &Name, number: CheckpointNumber, uid: Uid, reason: &str) -> Result<Request, LifecycleError> {
    let record = ExpiredRecord { place: Place::new(Role::Expired, job, number.get(), uid), reason: reason.to_owned() };
    Ok(Request::Create(Key::expired(job, number), write(&record)?))
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Begin,
    Outcome,
    Create,
}

/// The machine behind `expire`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Expire {
    job: Name,
    number: CheckpointNumber,
    reason: String,
    phase: Phase,
}

impl Expire {
    /// A machine that ends this number's life.
    #[must_use]
    pub fn new(job: Name, number: CheckpointNumber, reason: String) -> Self {
        Self { job, number, reason, phase: Phase::Begin }
    }
}

impl Machine for Expire {
    /// Whether it died now; `false` when it was dead before.
    type Output = bool;

    fn step(&mut self, replies: Vec<Reply>) -> Step<bool> {
        match self.phase {
            Phase::Begin => {
                self.phase = Phase::Outcome;
                Step::Ask(vec![Request::Get(Key::outcome(&self.job, self.number))])
            }
            Phase::Outcome => {
                let key = Key::outcome(&self.job, self.number);
                let bytes = tri!(got(replies)).into_iter().next().flatten();
                let Some(outcome) =
                    tri!(read::<Outcome>(&key, bytes.as_ref()).and_then(|d| d.map(|d| writable(&key, d)).transpose()))
                else {
                    // An open one still writes: whoever gives it up aborts it.
                    let (job, number) = (self.job.clone(), self.number);
                    return Step::Done(Err(LifecycleError::Undecided { job, number }));
                };
                let uid = outcome.place.uid;
                let create = tri!(request(&self.job, self.number, uid, &self.reason));
                self.phase = Phase::Create;
                Step::Ask(vec![create])
            }
            Phase::Create => Step::Done(Ok(matches!(tri!(created(replies)), Created::New))),
        }
    }
}
