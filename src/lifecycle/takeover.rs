//! Take over: create the next epoch, *then* abort what older epochs left open. Only afterwards may the caller choose what to restore.

use super::abort;
use super::error::LifecycleError;
use super::machine::{Machine, Reply, Request, Step, created, got, read, tri, write};
use super::survey::Survey;
use crate::format::records::EpochRecord;
use crate::format::{Intent, Place, Role};
use crate::limits;
use crate::store::Created;
use crate::types::{CheckpointNumber, Epoch, Key, Name, Prefix, RecordKind, Uid};

/// A reign that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reign {
    /// Its epoch.
    pub epoch: Epoch,
    /// Numbers of older epochs that it aborted.
    pub aborted: Vec<CheckpointNumber>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Begin,
    Epochs,
    Create(Epoch),
    Survey,
    Floors,
    Intents(Vec<CheckpointNumber>),
    Abort(Vec<CheckpointNumber>),
}

/// The machine behind a take-over.
#[derive(Debug, Clone)]
pub struct TakeOver {
    job: Name,
    uid: Uid,
    writer: Uid,
    host: String,
    epoch: Epoch,
    tries: u32,
    survey: Survey,
    phase: Phase,
}

impl TakeOver {
    /// A machine that begins a reign with this fresh uid.
    #[must_use]
    pub fn new(job: Name, uid: Uid, writer: Uid, host: String) -> Self {
        let (epoch, survey) = (Epoch::default(), Survey::default());
        Self { job, uid, writer, host, epoch, tries: 0, survey, phase: Phase::Begin }
    }

    fn list_epochs(&mut self) -> Step<Reign> {
        self.phase = Phase::Epochs;
        Step::Ask(vec![Request::List(Prefix::job(RecordKind::Epoch, &self.job))])
    }

    fn read_open(&mut self) -> Step<Reign> {
        let open: Vec<_> = self.survey.undecided().collect();
        let gets = open.iter().map(|n| Request::Get(Key::intent(&self.job, *n))).collect();
        self.phase = Phase::Intents(open);
        Step::Ask(gets)
    }
}

impl Machine for TakeOver {
    type Output = Reign;

    fn step(&mut self, replies: Vec<Reply>) -> Step<Reign> {
        match std::mem::replace(&mut self.phase, Phase::Begin) {
            Phase::Begin => self.list_epochs(),
            Phase::Epochs => {
                let lists = tri!(super::machine::listed(replies));
                let last = lists.first().map(|l| super::survey::highest_epoch(l)).unwrap_or_default();
                let Some(next) = last.0.checked_add(1) else {
                    return Step::Done(Err(LifecycleError::Exhausted { job: self.job.clone() }));
                };
                let record = EpochRecord {
                    place: Place::new(Role::Epoch, &self.job, next, self.uid),
                    writer: self.writer,
                    host: self.host.clone(),
                };
                let bytes = tri!(write(&record));
                self.phase = Phase::Create(Epoch(next));
                Step::Ask(vec![Request::Create(Key::epoch(&self.job, Epoch(next)), bytes)])
            }
            Phase::Create(epoch) => match tri!(created(replies)) {
                Created::New | Created::Ours => {
                    self.epoch = epoch;
                    self.phase = Phase::Survey;
                    Step::Ask(Survey::lists(&self.job))
                }
                Created::Other(_) if self.tries < limits::OPEN_TRIES => {
                    self.tries += 1;
                    self.list_epochs()
                }
                Created::Other(_) => {
                    let (job, own) = (self.job.clone(), epoch);
                    Step::Done(Err(LifecycleError::Fenced { job, ruling: epoch, own }))
                }
            },
            Phase::Survey => {
                self.survey = tri!(Survey::from_lists(replies));
                if self.survey.epoch > self.epoch {
                    let (job, ruling) = (self.job.clone(), self.survey.epoch);
                    return Step::Done(Err(LifecycleError::Fenced { job, ruling, own: self.epoch }));
                }
                if self.survey.floors.is_empty() {
                    return self.read_open();
                }
                self.phase = Phase::Floors;
                Step::Ask(self.survey.floors.gets(&self.job))
            }
            Phase::Floors => {
                let job = self.job.clone();
                tri!(self.survey.floors.take(&job, replies));
                self.read_open()
            }
            Phase::Intents(numbers) => {
                let mut aborts = Vec::new();
                let mut open = Vec::new();
                for (n, bytes) in numbers.iter().zip(tri!(got(replies))) {
                    let key = Key::intent(&self.job, *n);
                    // An intent that cannot be read cannot be aborted under its uid: the caller must know.
                    if let Some(d) = tri!(read::<Intent>(&key, bytes.as_ref()))
                        && d.record.epoch < self.epoch
                    {
                        let reason = format!("epoch {} took over", self.epoch);
                        aborts.push(tri!(abort::request(&self.job, *n, d.record.place.uid, &reason)));
                        open.push(*n);
                    }
                }
                self.phase = Phase::Abort(open);
                Step::Ask(aborts)
            }
            Phase::Abort(open) => {
                let won = |reply: &Reply| matches!(reply, Reply::Created(Created::New | Created::Ours));
                let aborted = open.into_iter().zip(&replies).filter(|(_, r)| won(r)).map(|(n, _)| n).collect();
                Step::Done(Ok(Reign { epoch: self.epoch, aborted }))
            }
        }
    }
}
