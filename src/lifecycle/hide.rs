//! Hide and unhide: out of the view and back. The sweep does not know of it: a hidden checkpoint keeps its blobs and may be a base.

use super::error::LifecycleError;
use super::machine::{Machine, Reply, Request, Step, created, deleted, got, listed, read, tri, writable, write};
use crate::format::records::HiddenRecord;
use crate::format::{Outcome, Place, Role, Verdict};
use crate::store::Created;
use crate::types::{CheckpointNumber, Key, Name, Prefix, RecordKind, Uid};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Begin,
    Look,
    Create,
}

/// The machine behind `hide`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hide {
    job: Name,
    number: CheckpointNumber,
    nonce: Uid,
    hidden_ms: u64,
    phase: Phase,
}

impl Hide {
    /// A machine that hides with this fresh nonce. `hidden_ms` is the caller's clock, for people.
    #[must_use]
    pub fn new(job: Name, number: CheckpointNumber, nonce: Uid, hidden_ms: u64) -> Self {
        Self { job, number, nonce, hidden_ms, phase: Phase::Begin }
    }
}

impl Machine for Hide {
    /// Whether it was in the view before.
    type Output = bool;

    fn step(&mut self, replies: Vec<Reply>) -> Step<bool> {
        match self.phase {
            Phase::Begin => {
                self.phase = Phase::Look;
                Step::Ask(vec![
                    Request::Get(Key::outcome(&self.job, self.number)),
                    Request::Get(Key::expired(&self.job, self.number)),
                ])
            }
            Phase::Look => {
                let (job, number) = (self.job.clone(), self.number);
                let mut bodies = tri!(got(replies)).into_iter();
                let (outcome, expired) = (bodies.next().flatten(), bodies.next().flatten());
                let key = Key::outcome(&job, number);
                let Some(outcome) = tri!(
                    read::<Outcome>(&key, outcome.as_ref()).and_then(|d| d.map(|d| writable(&key, d)).transpose())
                ) else {
                    return Step::Done(Err(LifecycleError::NoSuchCheckpoint { job, number }));
                };
                if let Verdict::Aborted { reason } = outcome.verdict {
                    return Step::Done(Err(LifecycleError::Aborted { job, number, reason }));
                }
                if expired.is_some() {
                    return Step::Done(Err(LifecycleError::Dead { job, number, why: "it is expired" }));
                }
                let mut place = Place::new(Role::Hidden, &job, number.get(), outcome.place.uid);
                place.nonce = Some(self.nonce);
                let record = HiddenRecord { place, hidden_ms: self.hidden_ms };
                let create = Request::Create(Key::hidden(&job, number, self.nonce), tri!(write(&record)));
                self.phase = Phase::Create;
                Step::Ask(vec![create])
            }
            Phase::Create => match tri!(created(replies)) {
                Created::New | Created::Ours => Step::Done(Ok(true)),
                Created::Other(_) => {
                    let key = Key::hidden(&self.job, self.number, self.nonce);
                    Step::Done(Err(LifecycleError::NameTaken { key }))
                }
            },
        }
    }
}

/// The machine behind `unhide`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Unhide {
    job: Name,
    number: CheckpointNumber,
    found: bool,
    phase: Phase,
}

impl Unhide {
    /// A machine that brings it back, whoever hid it.
    #[must_use]
    pub fn new(job: Name, number: CheckpointNumber) -> Self {
        Self { job, number, found: false, phase: Phase::Begin }
    }
}

impl Machine for Unhide {
    /// Whether it was hidden.
    type Output = bool;

    fn step(&mut self, replies: Vec<Reply>) -> Step<bool> {
        match self.phase {
            Phase::Begin => {
                self.phase = Phase::Look;
                Step::Ask(vec![Request::List(Prefix::checkpoint(RecordKind::Hidden, &self.job, self.number))])
            }
            Phase::Look => {
                let keys = tri!(listed(replies)).concat();
                if keys.is_empty() {
                    return Step::Done(Ok(false));
                }
                (self.found, self.phase) = (true, Phase::Create);
                Step::Ask(keys.into_iter().map(Request::Delete).collect())
            }
            Phase::Create => Step::Done(deleted(&replies).map(|()| self.found)),
        }
    }
}
