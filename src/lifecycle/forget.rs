//! Forget: create a floor, *then* delete the records of the numbers that it passes, the tombstones last.
//!
//! A number is gone if any floor above it does not list it. So a floor may pass only what is dead, unpinned, and no base of an open
//! one, and whose blobs are deleted or kept by others. Everything else below it is a survivor, the numbers that nobody has used
//! included: somebody may be about to begin one.

use std::collections::BTreeSet;

use super::error::LifecycleError;
use super::machine::{Machine, Reply, Request, Step, created, deleted, listed, tri, write};
use super::survey::number_of;
use super::sweep::Numbers;
use crate::format::records::FloorRecord;
use crate::format::{Place, Role};
use crate::limits;
use crate::store::Created;
use crate::types::{CheckpointNumber, Key, Name, Prefix, RecordKind, Uid};

/// What was forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Forgotten {
    /// The floor that was created.
    pub floor: Option<CheckpointNumber>,
    /// Numbers whose records are gone.
    pub numbers: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Begin,
    Floor(CheckpointNumber, BTreeSet<CheckpointNumber>),
    Lists,
    Records,
    Tombstones,
}

/// The machine that forgets a job's dead numbers, after the sweep that saw them deleted their blobs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Forget {
    job: Name,
    numbers: Numbers,
    uid: Uid,
    least: usize,
    phase: Phase,
    going: BTreeSet<CheckpointNumber>,
    /// What is still to be deleted, from the last to the first.
    records: Vec<Key>,
    tombstones: Vec<Key>,
    result: Forgotten,
}

/// Dead numbers that the next floor of a job must pass to be worth it.
#[must_use]
pub fn step(numbers: &Numbers) -> usize {
    limits::FLOOR_STEP.saturating_mul(1 + numbers.floors.len() / 4)
}

impl Forget {
    /// A machine for a job as the sweep saw it. `uid` is fresh. `least`: how many numbers a floor must pass; see [`step`].
    #[must_use]
    pub fn new(job: Name, numbers: Numbers, uid: Uid, least: usize) -> Self {
        Self {
            job,
            numbers,
            uid,
            least: least.max(1),
            phase: Phase::Begin,
            going: BTreeSet::new(),
            records: Vec::new(),
            tombstones: Vec::new(),
            result: Forgotten::default(),
        }
    }

    fn ask(&mut self, phase: Phase, requests: Vec<Request>) -> Step<Forgotten> {
        self.phase = phase;
        Step::Ask(requests)
    }

    fn known(&self) -> impl Iterator<Item = CheckpointNumber> + '_ {
        self.numbers.begun.union(&self.numbers.dead).copied()
    }

    fn passable(&self, n: CheckpointNumber) -> bool {
        let numbers = &self.numbers;
        numbers.dead.contains(&n)
            && !numbers.needed.contains(&n)
            && numbers.uids.contains_key(&n)
            && !numbers.floors.gone(n)
    }

    /// The highest number that a floor can pass: what lies below must fit into its list of survivors.
    fn top(&self, candidates: &BTreeSet<CheckpointNumber>, begin: CheckpointNumber) -> Option<CheckpointNumber> {
        let (mut top, mut survivors, mut passed, mut gaps) = (None, 0_usize, 0_usize, 0_u64);
        let mut next = begin.get();
        for n in candidates {
            gaps = gaps.saturating_add(n.get().saturating_sub(next));
            next = next.max(n.get().saturating_add(1));
            if gaps > limits::FLOOR_GAP || survivors.max(passed) >= limits::FLOOR_ENTRIES {
                break;
            }
            if self.passable(*n) {
                (top, passed) = (Some(*n), passed + 1);
            } else {
                survivors += 1;
            }
        }
        top.filter(|_| passed >= self.least)
    }

    /// The next floor and the numbers that it passes.
    fn floor(&self) -> Option<(FloorRecord, BTreeSet<CheckpointNumber>)> {
        let floors = &self.numbers.floors;
        // Below the highest floor only its survivors are left; from there on, every number.
        let begin = floors.highest().unwrap_or(CheckpointNumber::FIRST);
        let mut candidates = floors.alive_below_highest();
        candidates.extend(self.known().filter(|n| !floors.gone(*n)));
        let mut floor = self.top(&candidates, begin)?.next()?;
        while floors.has(floor) {
            floor = floor.next()?;
        }
        let (passed, mut survivors): (BTreeSet<_>, BTreeSet<_>) =
            candidates.into_iter().filter(|n| *n < floor).partition(|n| self.passable(*n));
        // Nobody has used these: somebody may be about to.
        let unused = (begin.get()..floor.get()).filter_map(|n| CheckpointNumber::new(n).ok());
        survivors.extend(unused.filter(|n| !passed.contains(n)));
        let uids = passed.iter().filter_map(|n| self.numbers.uids.get(n));
        let record = FloorRecord {
            place: Place::new(Role::Floor, &self.job, floor.get(), self.uid),
            survivors: survivors.into_iter().collect(),
            uids: uids.filter(|u| self.numbers.uids_with_blobs.contains(u)).copied().collect(),
        };
        Some((record, passed))
    }

    fn begin(&mut self) -> Step<Forgotten> {
        // What an earlier floor passed, and its maker did not come to delete.
        self.going =
            self.known().filter(|n| self.numbers.floors.gone(*n) && !self.numbers.needed.contains(n)).collect();
        let Some((record, passed)) = self.floor() else { return self.list() };
        let bytes = tri!(write(&record));
        let Ok(floor) = CheckpointNumber::new(record.place.number) else {
            return Step::Done(Err(LifecycleError::Confused));
        };
        self.ask(Phase::Floor(floor, passed), vec![Request::Create(Key::floor(&self.job, floor), bytes)])
    }

    fn list(&mut self) -> Step<Forgotten> {
        if self.going.is_empty() {
            return Step::Done(Ok(self.result.clone()));
        }
        let kinds =
            [RecordKind::Task, RecordKind::Hidden, RecordKind::Intent, RecordKind::Outcome, RecordKind::Expired];
        self.ask(Phase::Lists, kinds.map(|kind| Request::List(Prefix::job(kind, &self.job))).into())
    }

    fn lists_read(&mut self, replies: Vec<Reply>) -> Step<Forgotten> {
        let mut lists = tri!(listed(replies));
        let going = |key: &Key| number_of(key).is_some_and(|n| self.going.contains(&n));
        let take = |keys: Vec<Key>| keys.into_iter().rev().filter(going).collect::<Vec<_>>();
        let Some(expired) = lists.pop() else { return Step::Done(Err(LifecycleError::Confused)) };
        (self.tombstones, self.records) = (take(expired), take(lists.concat()));
        self.result.numbers = self.going.len() as u64;
        self.delete()
    }

    /// The tombstones last: while anything else of a number is there, it must be seen to be dead.
    fn delete(&mut self) -> Step<Forgotten> {
        let (phase, keys) = if self.records.is_empty() {
            (Phase::Tombstones, &mut self.tombstones)
        } else {
            (Phase::Records, &mut self.records)
        };
        let batch = keys.split_off(keys.len().saturating_sub(limits::DELETE_BATCH));
        if batch.is_empty() {
            return Step::Done(Ok(self.result.clone()));
        }
        self.ask(phase, batch.into_iter().rev().map(Request::Delete).collect())
    }
}

impl Machine for Forget {
    type Output = Forgotten;

    fn step(&mut self, replies: Vec<Reply>) -> Step<Forgotten> {
        match std::mem::replace(&mut self.phase, Phase::Begin) {
            Phase::Begin => self.begin(),
            Phase::Floor(floor, passed) => {
                // Another one's floor passes what it saw; this one comes with the next sweep.
                if let Created::New | Created::Ours = tri!(created(replies)) {
                    self.result.floor = Some(floor);
                    self.going.extend(passed);
                }
                self.list()
            }
            Phase::Lists => self.lists_read(replies),
            Phase::Records | Phase::Tombstones => {
                tri!(deleted(&replies));
                self.delete()
            }
        }
    }
}
