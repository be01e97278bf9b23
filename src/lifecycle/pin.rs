//! Pin: create the pin, *then* look whether the checkpoint still lives.
//!
//! The order is the safety: the sweep decides what is dead first and looks for pins afterwards. So either it sees this pin, or this
//! look sees the tombstone. Who was told that a pin holds may read until it is taken away.

use super::error::LifecycleError;
use super::machine::{Machine, Reply, Request, Step, created, deleted, got, listed, read, tri, writable, write};
use super::survey::Floors;
use crate::format::records::{PinHolder, PinRecord};
use crate::format::{Outcome, Place, Role, Verdict};
use crate::store::Created;
use crate::types::{CheckpointNumber, Key, KeyParts, Name, Uid};

/// Which pin.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PinRef {
    /// The job of the checkpoint that it holds.
    pub job: Name,
    /// The checkpoint's number.
    pub number: CheckpointNumber,
    /// Who holds it: a cache's id, or one made for the purpose.
    pub holder: Uid,
    /// Fresh for every pin: no name is ever used twice, or a stalled removal would take a later pin away.
    pub nonce: Uid,
}

impl PinRef {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::pin(&self.job, self.number, self.holder, self.nonce)
    }

    /// The pin that lies at a key.
    #[must_use]
    pub fn of(key: &Key) -> Option<Self> {
        let KeyParts::Pin(job, number, holder, nonce) = key.parts() else { return None };
        Some(Self { job: job.clone(), number: *number, holder: *holder, nonce: *nonce })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Begin,
    Outcome,
    Create(Uid),
    LookExpired(Uid),
    LookFloors(Uid),
    LookFloorBodies(Uid, Floors),
    GiveUp(&'static str),
}

/// The machine behind `pin`. It ends with the pinned checkpoint's uid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pin {
    pin: PinRef,
    holder: PinHolder,
    pinned_ms: u64,
    phase: Phase,
}

impl Pin {
    /// A machine that pins with this name, which nobody has used. `pinned_ms` is the caller's clock, for people.
    #[must_use]
    pub fn new(pin: PinRef, holder: PinHolder, pinned_ms: u64) -> Self {
        Self { pin, holder, pinned_ms, phase: Phase::Begin }
    }

    fn no_such(&self) -> LifecycleError {
        LifecycleError::NoSuchCheckpoint { job: self.pin.job.clone(), number: self.pin.number }
    }

    fn ask(&mut self, phase: Phase, requests: Vec<Request>) -> Step<Uid> {
        self.phase = phase;
        Step::Ask(requests)
    }

    fn create(&mut self, replies: Vec<Reply>) -> Step<Uid> {
        let key = Key::outcome(&self.pin.job, self.pin.number);
        let bytes = tri!(got(replies)).into_iter().next().flatten();
        let Some(outcome) =
            tri!(read::<Outcome>(&key, bytes.as_ref()).and_then(|d| d.map(|d| writable(&key, d)).transpose()))
        else {
            return Step::Done(Err(self.no_such()));
        };
        if let Verdict::Aborted { reason } = outcome.verdict {
            let (job, number) = (self.pin.job.clone(), self.pin.number);
            return Step::Done(Err(LifecycleError::Aborted { job, number, reason }));
        }
        let uid = outcome.place.uid;
        let mut place = Place::new(Role::Pin, &self.pin.job, self.pin.number.get(), uid);
        (place.holder, place.nonce) = (Some(self.pin.holder), Some(self.pin.nonce));
        let record = PinRecord { place, holder: self.holder.clone(), pinned_ms: self.pinned_ms };
        let create = Request::Create(self.pin.key(), tri!(write(&record)));
        self.ask(Phase::Create(uid), vec![create])
    }

    fn look(&mut self, uid: Uid, replies: Vec<Reply>) -> Step<Uid> {
        match tri!(created(replies)) {
            Created::New | Created::Ours => {
                let get = Request::Get(Key::expired(&self.pin.job, self.pin.number));
                self.ask(Phase::LookExpired(uid), vec![get])
            }
            Created::Other(_) => Step::Done(Err(LifecycleError::NameTaken { key: self.pin.key() })),
        }
    }

    fn looked(&mut self, uid: Uid, floors: &Floors) -> Step<Uid> {
        if floors.gone(self.pin.number) { self.give_up("a floor passed it") } else { Step::Done(Ok(uid)) }
    }

    fn give_up(&mut self, why: &'static str) -> Step<Uid> {
        let delete = Request::Delete(self.pin.key());
        self.ask(Phase::GiveUp(why), vec![delete])
    }
}

impl Machine for Pin {
    type Output = Uid;

    fn step(&mut self, replies: Vec<Reply>) -> Step<Uid> {
        match std::mem::replace(&mut self.phase, Phase::Begin) {
            Phase::Begin => {
                let get = Request::Get(Key::outcome(&self.pin.job, self.pin.number));
                self.ask(Phase::Outcome, vec![get])
            }
            Phase::Outcome => self.create(replies),
            Phase::Create(uid) => self.look(uid, replies),
            Phase::LookExpired(uid) => {
                if tri!(got(replies)).into_iter().flatten().next().is_some() {
                    return self.give_up("it is expired");
                }
                let list = Floors::list(&self.pin.job);
                self.ask(Phase::LookFloors(uid), vec![list])
            }
            Phase::LookFloors(uid) => {
                let mut floors = Floors::default();
                floors.take_list(&tri!(listed(replies)).concat());
                let gets = floors.gets(&self.pin.job);
                if gets.is_empty() {
                    return self.looked(uid, &floors);
                }
                self.ask(Phase::LookFloorBodies(uid, floors), gets)
            }
            Phase::LookFloorBodies(uid, mut floors) => {
                let job = self.pin.job.clone();
                tri!(floors.take(&job, replies));
                self.looked(uid, &floors)
            }
            Phase::GiveUp(why) => {
                let (job, number) = (self.pin.job.clone(), self.pin.number);
                Step::Done(Err(LifecycleError::Dead { job, number, why }))
            }
        }
    }
}

/// The machine behind `unpin`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Unpin {
    pins: Vec<PinRef>,
    asked: bool,
}

impl Unpin {
    /// A machine that takes these pins away. Those that are not there are gone already.
    #[must_use]
    pub fn new(pins: Vec<PinRef>) -> Self {
        Self { pins, asked: false }
    }
}

impl Machine for Unpin {
    type Output = ();

    fn step(&mut self, replies: Vec<Reply>) -> Step<()> {
        if self.asked || self.pins.is_empty() {
            return Step::Done(deleted(&replies));
        }
        self.asked = true;
        Step::Ask(self.pins.iter().map(|p| Request::Delete(p.key())).collect())
    }
}
