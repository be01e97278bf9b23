//! The plan of a sweep: which blobs are there, what is dead, who needs what.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::keep::{Keep, Rank, ToRead};
use super::{At, Doomed, Fate, Held, Numbers, SweepOptions, SweepPlan};
use crate::format::records::{ExpiredRecord, FloorRecord};
use crate::format::{BaseRef, FormatError, Intent, Outcome, TaskBlobs, Verdict};
use crate::lifecycle::error::LifecycleError;
use crate::lifecycle::machine::{Machine, Reply, Request, Step, got, listed, read, tri, writable};
use crate::lifecycle::pin::PinRef;
use crate::lifecycle::survey::number_of;
use crate::limits;
use crate::types::{BlobName, CheckpointNumber, Digest, Key, KeyParts, Name, Prefix, RecordKind, Uid};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Begin,
    Blobs,
    Expired,
    Pins,
    Intents,
    Outcomes,
    Floors,
    FloorBodies(Vec<Key>),
    OpenIntents(Vec<At>),
    OutcomeBodies(Vec<At>),
    Manifests(Vec<ToRead>),
    Tombstones(Vec<At>),
}

/// The machine behind `gc`: it only reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    options: SweepOptions,
    phase: Phase,
    blobs: Vec<(BlobName, u64)>,
    dead: BTreeSet<At>,
    pins: BTreeMap<At, Vec<PinRef>>,
    intents: BTreeSet<At>,
    outcomes: BTreeSet<At>,
    floors: Vec<Key>,
    floor_uids: BTreeSet<Uid>,
    /// Open numbers, and the bases of open ones.
    open: BTreeSet<At>,
    bases: BTreeMap<At, BTreeSet<Uid>>,
    /// Outcomes that are still to be read.
    unread: Vec<At>,
    /// Whose uid is which number.
    uids: BTreeMap<Uid, (At, Fate)>,
    keep: Keep,
    jobs: BTreeMap<Name, Numbers>,
}

fn at(key: &Key) -> Option<At> {
    Some((job_of(key)?.clone(), number_of(key)?))
}

fn job_of(key: &Key) -> Option<&Name> {
    match key.parts() {
        KeyParts::Intent(job, _)
        | KeyParts::Outcome(job, _)
        | KeyParts::Expired(job, _)
        | KeyParts::Pin(job, ..)
        | KeyParts::Floor(job, _) => Some(job),
        _ => None,
    }
}

/// What was listed and went away was forgotten meanwhile, and whoever came after it and uses its blobs is in none of the lists: they
/// are too old to delete by. (To go on without it lost data in the search.)
fn went_away(key: &Key) -> LifecycleError {
    let why = format!(
        "{key} was there and is not any more. Another sweep has forgotten it meanwhile: sweep again. If it stays so, `ckptfs verify` tells what is missing"
    );
    LifecycleError::NotSwept { why }
}

fn missing(key: Key) -> LifecycleError {
    let why = "it was listed and is not there".to_owned();
    LifecycleError::Format { key, source: FormatError::Damaged { what: "record", why } }
}

impl Plan {
    /// A machine that plans a sweep of the whole store.
    #[must_use]
    pub fn new(options: SweepOptions) -> Self {
        Self {
            options,
            phase: Phase::Begin,
            blobs: Vec::new(),
            dead: BTreeSet::new(),
            pins: BTreeMap::new(),
            intents: BTreeSet::new(),
            outcomes: BTreeSet::new(),
            floors: Vec::new(),
            floor_uids: BTreeSet::new(),
            open: BTreeSet::new(),
            bases: BTreeMap::new(),
            unread: Vec::new(),
            uids: BTreeMap::new(),
            keep: Keep::default(),
            jobs: BTreeMap::new(),
        }
    }

    fn ask(&mut self, phase: Phase, requests: Vec<Request>) -> Step<SweepPlan> {
        self.phase = phase;
        Step::Ask(requests)
    }

    fn list(&mut self, phase: Phase, kind: RecordKind) -> Step<SweepPlan> {
        self.ask(phase, vec![Request::List(Prefix::kind(kind))])
    }

    fn floors_listed(&mut self, replies: Vec<Reply>) -> Step<SweepPlan> {
        self.floors = tri!(listed(replies)).concat();
        let records = self.intents.len() + self.outcomes.len() + self.dead.len() + self.floors.len();
        if !self.blobs.is_empty() && records == 0 && !self.options.without_records {
            let why = format!(
                "there are {} blobs and not a single record of a checkpoint. Either the records were lost (then the blobs are all that is left), or this is not the place that you meant. If they shall go: --force with the store's id",
                self.blobs.len()
            );
            return Step::Done(Err(LifecycleError::NotSwept { why }));
        }
        let (keys, gets) = (self.floors.clone(), self.floors.iter().cloned().map(Request::Get).collect());
        self.ask(Phase::FloorBodies(keys), gets)
    }

    fn floors_read(&mut self, keys: &[Key], replies: Vec<Reply>) -> Step<SweepPlan> {
        let bodies = tri!(got(replies));
        let mut by_job: BTreeMap<Name, (Vec<Key>, Vec<Reply>)> = BTreeMap::new();
        for (key, bytes) in keys.iter().zip(bodies) {
            let Some(d) = tri!(read::<FloorRecord>(key, bytes.as_ref())) else {
                return Step::Done(Err(missing(key.clone())));
            };
            let floor = tri!(writable(key, d));
            self.floor_uids.extend(floor.uids);
            if let Some(job) = job_of(key) {
                let entry = by_job.entry(job.clone()).or_default();
                entry.0.push(key.clone());
                entry.1.push(Reply::Got(bytes));
            }
        }
        for (job, (keys, bodies)) in by_job {
            let floors = &mut self.jobs.entry(job.clone()).or_default().floors;
            floors.take_list(&keys);
            tri!(floors.take(&job, bodies));
        }
        // Begun and not decided, whoever may have begun it.
        let open: Vec<At> = self.intents.difference(&self.outcomes).cloned().collect();
        let gets = open.iter().map(|(job, n)| Request::Get(Key::intent(job, *n))).collect();
        self.ask(Phase::OpenIntents(open), gets)
    }

    fn open_read(&mut self, open: &[At], replies: Vec<Reply>) -> Step<SweepPlan> {
        for (at, bytes) in open.iter().zip(tri!(got(replies))) {
            let key = Key::intent(&at.0, at.1);
            let Some(d) = tri!(read::<Intent>(&key, bytes.as_ref())) else {
                return Step::Done(Err(went_away(&key)));
            };
            let intent = tri!(writable(&key, d));
            self.keep.uploads_of(intent.place.uid);
            self.uids.insert(intent.place.uid, (at.clone(), Fate::Unnamed));
            // One that is gone was decided since it was listed, and its successors have its blobs; or it was never told to anybody, and
            // is there to be forgotten.
            if !self.jobs.get(&at.0).is_some_and(|numbers| numbers.floors.gone(at.1)) {
                self.open.insert(at.clone());
            }
            for BaseRef { job, number, uid } in intent.bases {
                self.keep.uploads_of(uid);
                self.bases.entry((job, number)).or_default().insert(uid);
            }
        }
        let wanted = |at: &At| !self.dead.contains(at) || self.pins.contains_key(at) || self.bases.contains_key(at);
        self.unread = self.outcomes.iter().rev().filter(|at| wanted(at)).cloned().collect();
        self.next_outcomes()
    }

    fn next_outcomes(&mut self) -> Step<SweepPlan> {
        let batch = self.unread.split_off(self.unread.len().saturating_sub(limits::SWEEP_BATCH));
        if batch.is_empty() {
            self.keep.in_order();
            return self.next_manifests();
        }
        let gets = batch.iter().map(|(job, n)| Request::Get(Key::outcome(job, *n))).collect();
        self.ask(Phase::OutcomeBodies(batch), gets)
    }

    fn outcomes_read(&mut self, batch: &[At], replies: Vec<Reply>) -> Step<SweepPlan> {
        for (at, bytes) in batch.iter().zip(tri!(got(replies))) {
            let key = Key::outcome(&at.0, at.1);
            let Some(d) = tri!(read::<Outcome>(&key, bytes.as_ref())) else {
                return Step::Done(Err(went_away(&key)));
            };
            let outcome = tri!(writable(&key, d));
            let uid = outcome.place.uid;
            let (dead, pinned, base) =
                (self.dead.contains(at), self.pins.contains_key(at), self.bases.contains_key(at));
            self.uids.insert(uid, (at.clone(), if dead { Fate::Expired } else { Fate::Unnamed }));
            match outcome.verdict {
                Verdict::Completed(manifest) => {
                    let rank = match (dead, base, pinned) {
                        (false, ..) => Rank::Living,
                        (_, true, _) => Rank::Base,
                        (_, _, true) => Rank::Pinned,
                        _ => continue,
                    };
                    self.keep.checkpoint(rank, at, &manifest);
                }
                Verdict::Aborted { .. } if !dead => self.keep.uploads_of(uid),
                Verdict::Aborted { .. } => {}
            }
        }
        self.next_outcomes()
    }

    fn next_manifests(&mut self) -> Step<SweepPlan> {
        let batch = self.keep.next(limits::SWEEP_BATCH);
        if batch.is_empty() {
            return self.learn_uids();
        }
        let gets = batch.iter().map(|t| Request::Manifest(t.key.clone(), t.digest)).collect();
        self.ask(Phase::Manifests(batch), gets)
    }

    fn manifests_read(&mut self, batch: &[ToRead], replies: Vec<Reply>) -> Step<SweepPlan> {
        for (task, bytes) in batch.iter().zip(tri!(got(replies))) {
            let Some(bytes) = bytes else { return Step::Done(Err(went_away(&task.key))) };
            if Digest::of(&bytes) != task.digest {
                let why = "it is not the one that the checkpoint manifest names".to_owned();
                let source = FormatError::Damaged { what: "task-manifest", why };
                return Step::Done(Err(LifecycleError::Format { key: task.key.clone(), source }));
            }
            let Some(d) = tri!(read::<TaskBlobs>(&task.key, Some(&bytes))) else {
                return Step::Done(Err(LifecycleError::Confused));
            };
            for blob in tri!(writable(&task.key, d)).blobs {
                self.keep.blob(task.rank, &task.at, blob.name);
            }
        }
        self.next_manifests()
    }

    /// Dead numbers were not read. Their tombstones say whose blobs are theirs; a floor wants to know it too.
    fn learn_uids(&mut self) -> Step<SweepPlan> {
        let known: HashSet<&At> = self.uids.values().map(|(at, _)| at).collect();
        let unknown: Vec<At> = self.dead.iter().filter(|at| !known.contains(at)).cloned().collect();
        if unknown.is_empty() {
            return self.plan();
        }
        let gets = unknown.iter().map(|(job, n)| Request::Get(Key::expired(job, *n))).collect();
        self.ask(Phase::Tombstones(unknown), gets)
    }

    fn tombstones_read(&mut self, dead: Vec<At>, replies: Vec<Reply>) -> Step<SweepPlan> {
        for (at, bytes) in dead.into_iter().zip(tri!(got(replies))) {
            // That it lies there is what kills. Where it cannot be read, its blobs are nobody's: they are reported and stay.
            if let Ok(Some(d)) = read::<ExpiredRecord>(&Key::expired(&at.0, at.1), bytes.as_ref()) {
                self.uids.insert(d.record.place.uid, (at, Fate::Expired));
            }
        }
        self.plan()
    }

    fn plan(&mut self) -> Step<SweepPlan> {
        let mut plan = SweepPlan::default();
        let mut sizes: BTreeMap<At, (u64, u64)> = BTreeMap::new();
        let alone: HashMap<BlobName, &At> =
            self.keep.pins_alone().iter().flat_map(|(at, names)| names.iter().map(move |n| (*n, at))).collect();
        // Also those whose blobs came after the list: a floor that does not know them would make their blobs foreign for ever.
        let mut with_blobs: HashSet<Uid> = self.keep.uploaders().collect();
        for (name, length) in std::mem::take(&mut self.blobs) {
            if self.keep.keeps(&name) {
                plan.kept_blobs += 1;
                plan.kept_bytes = plan.kept_bytes.saturating_add(length);
                with_blobs.insert(name.uid);
                if let Some(at) = alone.get(&name).filter(|_| !self.keep.uploads_kept(name.uid)) {
                    let sum = sizes.entry((*at).clone()).or_default();
                    *sum = (sum.0 + 1, sum.1.saturating_add(length));
                }
                continue;
            }
            let (at, fate) = match self.uids.get(&name.uid) {
                Some((at, fate)) => (Some(at.clone()), *fate),
                None if self.floor_uids.contains(&name.uid) => (None, Fate::Forgotten),
                None => {
                    plan.foreign.push((name, length));
                    continue;
                }
            };
            let doomed = plan.why.entry(name.uid).or_insert(Doomed { at, fate, blobs: 0, bytes: 0 });
            doomed.blobs += 1;
            doomed.bytes = doomed.bytes.saturating_add(length);
            plan.doomed.push((name, length));
        }
        for (at, pins) in self.pins.iter().filter(|(at, _)| self.dead.contains(at)) {
            let (blobs, bytes) = sizes.get(at).copied().unwrap_or_default();
            plan.held.push(Held { at: at.clone(), pins: pins.clone(), blobs, bytes });
        }
        plan.jobs = self.numbers(&with_blobs);
        Step::Done(Ok(plan))
    }

    fn numbers(&mut self, with_blobs: &HashSet<Uid>) -> BTreeMap<Name, Numbers> {
        let mut jobs = std::mem::take(&mut self.jobs);
        let mut add = |at: &At, what: fn(&mut Numbers) -> &mut BTreeSet<CheckpointNumber>| {
            what(jobs.entry(at.0.clone()).or_default()).insert(at.1);
        };
        self.intents.iter().chain(&self.outcomes).for_each(|at| add(at, |n| &mut n.begun));
        self.dead.iter().for_each(|at| add(at, |n| &mut n.dead));
        let needed = self.pins.keys().chain(&self.open).chain(self.bases.keys());
        needed.for_each(|at| add(at, |n| &mut n.needed));
        for (uid, (at, _)) in self.uids.iter().filter(|(_, (at, _))| self.dead.contains(at)) {
            let numbers = jobs.entry(at.0.clone()).or_default();
            numbers.uids.insert(at.1, *uid);
            if with_blobs.contains(uid) {
                numbers.uids_with_blobs.insert(*uid);
            }
        }
        jobs
    }
}

impl Machine for Plan {
    type Output = SweepPlan;

    fn step(&mut self, replies: Vec<Reply>) -> Step<SweepPlan> {
        match std::mem::replace(&mut self.phase, Phase::Begin) {
            Phase::Begin => self.ask(Phase::Blobs, vec![Request::Blobs]),
            Phase::Blobs => {
                let Some(Reply::Blobs(blobs)) = replies.into_iter().next() else {
                    return Step::Done(Err(LifecycleError::Confused));
                };
                self.blobs = blobs;
                self.list(Phase::Expired, RecordKind::Expired)
            }
            Phase::Expired => {
                self.dead = tri!(listed(replies)).concat().iter().filter_map(at).collect();
                self.list(Phase::Pins, RecordKind::Pin)
            }
            Phase::Pins => {
                for pin in tri!(listed(replies)).concat().iter().filter_map(PinRef::of) {
                    self.pins.entry((pin.job.clone(), pin.number)).or_default().push(pin);
                }
                self.list(Phase::Intents, RecordKind::Intent)
            }
            Phase::Intents => {
                self.intents = tri!(listed(replies)).concat().iter().filter_map(at).collect();
                self.list(Phase::Outcomes, RecordKind::Outcome)
            }
            Phase::Outcomes => {
                self.outcomes = tri!(listed(replies)).concat().iter().filter_map(at).collect();
                self.list(Phase::Floors, RecordKind::Floor)
            }
            Phase::Floors => self.floors_listed(replies),
            Phase::FloorBodies(keys) => self.floors_read(&keys, replies),
            Phase::OpenIntents(open) => self.open_read(&open, replies),
            Phase::OutcomeBodies(batch) => self.outcomes_read(&batch, replies),
            Phase::Manifests(batch) => self.manifests_read(&batch, replies),
            Phase::Tombstones(dead) => self.tombstones_read(dead, replies),
        }
    }
}
