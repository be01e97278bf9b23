//! Open: create an intent that names its bases, *then* look whether they were alive.
//!
//! The order is the safety: the sweep decides what is dead first and looks for intents afterwards. So either it sees this intent, or
//! this look sees the tombstone. Looking first and creating later loses data.

use std::collections::BTreeMap;

use super::abort;
use super::error::LifecycleError;
use super::machine::{Machine, Reply, Request, Step, created, got, listed, read, tri, writable, write};
use super::pin::PinRef;
use super::survey::{Floors, Survey, highest_epoch};
use crate::format::records::PinRecord;
use crate::format::{
    BaseRef, CheckpointKind, CheckpointManifest, ExpectedOperator, Intent, Labels, Outcome, Place, Role, Verdict,
};
use crate::limits;
use crate::store::Created;
use crate::types::{CheckpointNumber, Epoch, Key, Name, Prefix, RecordKind, Uid};

/// What to open.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OpenPlan {
    /// The job.
    pub job: Name,
    /// Fresh uids, one per try; no uid is ever used for two numbers.
    pub uids: Vec<Uid>,
    /// The writer: the cache's id, whose lock for this job the caller holds.
    pub writer: Uid,
    /// The caller's epoch; nothing for the current one.
    pub epoch: Option<Epoch>,
    /// The number; nothing for the next.
    pub number: Option<CheckpointNumber>,
    /// Who will acknowledge.
    pub expected: Vec<ExpectedOperator>,
    /// Checkpoint or savepoint.
    pub kind: CheckpointKind,
    /// Begun by the verb `open`.
    pub detached: bool,
    /// The checkpoint that the job was restored from, where it is another job's or not the newest.
    pub restored_from: Option<BaseRef>,
    /// Own pins: while one is there, its checkpoint may be a base although it is expired.
    pub pinned: Vec<PinRef>,
    /// The writer's clock, for people.
    pub opened_ms: u64,
}

/// A base that was alive after the intent was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// Which checkpoint.
    pub of: BaseRef,
    /// Its manifest; nothing for an aborted one, whose uploads are found by HEAD.
    pub manifest: Option<CheckpointManifest>,
}

/// An open checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Its intent.
    pub intent: Intent,
    /// Its number.
    pub number: CheckpointNumber,
    /// Its bases, completed ones first.
    pub bases: Vec<Base>,
    /// Undecided numbers of other writers, which only `abort` or a take-over ends.
    pub open_elsewhere: Vec<CheckpointNumber>,
    /// Numbers that this call aborted since their writer was dead.
    pub aborted: Vec<CheckpointNumber>,
    /// Decided numbers whose outcome could not be believed.
    pub unreadable: Vec<(CheckpointNumber, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Begin,
    Survey,
    Floors,
    Undecided(Vec<CheckpointNumber>),
    AbortDead(Vec<(CheckpointNumber, Uid)>),
    Decided(Vec<CheckpointNumber>),
    AdoptIntents(Vec<CheckpointNumber>),
    CreateIntent(Box<Intent>),
    LookEpoch(Box<Intent>),
    LookExpired(Box<Intent>),
    LookPins(Box<Intent>, Vec<BaseRef>),
    LookOutcomes(Box<Intent>),
    LookFloors(Box<Intent>),
    LookFloorBodies(Box<Intent>),
    GiveUp(Box<Intent>, GiveUp),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum GiveUp {
    Fenced(Epoch),
    Retry(String),
}

/// The machine behind `open`.
#[derive(Debug, Clone)]
pub struct Open {
    plan: OpenPlan,
    full: bool,
    stop: bool,
    labels: Labels,
    phase: Phase,
    tries: u32,
    survey: Survey,
    epoch: Epoch,
    completed: Option<(BaseRef, CheckpointManifest)>,
    adopted: Vec<BaseRef>,
    aborted_seen: Vec<(CheckpointNumber, Uid)>,
    open_elsewhere: Vec<CheckpointNumber>,
    aborted: Vec<CheckpointNumber>,
    unreadable: Vec<(CheckpointNumber, String)>,
    looked: BTreeMap<Uid, Option<CheckpointManifest>>,
    base_floors: Vec<(Name, Floors)>,
}

impl Open {
    /// A machine for this plan.
    #[must_use]
    pub fn new(plan: OpenPlan) -> Self {
        Self {
            plan,
            full: false,
            stop: false,
            labels: Labels::default(),
            phase: Phase::Begin,
            tries: 0,
            survey: Survey::default(),
            epoch: Epoch::default(),
            completed: None,
            adopted: Vec::new(),
            aborted_seen: Vec::new(),
            open_elsewhere: Vec::new(),
            aborted: Vec::new(),
            unreadable: Vec::new(),
            looked: BTreeMap::new(),
            base_floors: Vec::new(),
        }
    }

    /// Names no base, so that everything is uploaded anew.
    #[must_use]
    pub fn full(mut self) -> Self {
        self.full = true;
        self
    }

    /// Says in the intent that the job ends with it. Only a savepoint may.
    #[must_use]
    pub fn stopping(mut self) -> Self {
        self.stop = true;
        self
    }

    /// Writes these labels into the intent; completion copies them into the checkpoint manifest.
    #[must_use]
    pub fn labelled(mut self, labels: Labels) -> Self {
        self.labels = labels;
        self
    }

    fn ask(&mut self, phase: Phase, requests: Vec<Request>) -> Step<Opened> {
        self.phase = phase;
        Step::Ask(requests)
    }

    fn get_intents(&self, numbers: &[CheckpointNumber]) -> Vec<Request> {
        numbers.iter().map(|n| Request::Get(Key::intent(&self.plan.job, *n))).collect()
    }

    fn begin(&mut self) -> Step<Opened> {
        self.completed = None;
        self.adopted.clear();
        self.aborted_seen.clear();
        self.open_elsewhere.clear();
        self.unreadable.clear();
        self.looked.clear();
        let lists = Survey::lists(&self.plan.job);
        self.ask(Phase::Survey, lists)
    }

    /// The lists are in: is this coordinator fenced, is the number free, are there floors to read?
    fn surveyed(&mut self) -> Step<Opened> {
        self.epoch = self.plan.epoch.unwrap_or(self.survey.epoch);
        if self.survey.epoch > self.epoch {
            return Step::Done(Err(self.fenced(self.survey.epoch)));
        }
        if self.survey.floors.is_empty() {
            return self.floors_read();
        }
        let gets = self.survey.floors.gets(&self.plan.job);
        self.ask(Phase::Floors, gets)
    }

    fn floors_read(&mut self) -> Step<Opened> {
        if let Some(number) = self.plan.number {
            let what = if self.survey.intents.contains(&number) || self.survey.outcomes.contains(&number) {
                Some("it was begun before")
            } else if self.survey.expired.contains(&number) {
                Some("it is expired")
            } else if self.survey.floors.gone(number) {
                Some("it is below the job's floor")
            } else {
                None
            };
            if let Some(what) = what {
                return Step::Done(Err(LifecycleError::NumberTaken { job: self.plan.job.clone(), number, what }));
            }
        }
        let undecided: Vec<_> = self.survey.undecided().collect();
        if undecided.is_empty() {
            return self.walk_decided();
        }
        let gets = self.get_intents(&undecided);
        self.ask(Phase::Undecided(undecided), gets)
    }

    /// An undecided number of this writer is a dead attempt, since the caller holds the writer's lock: it is aborted and adopted.
    fn undecided_read(&mut self, numbers: &[CheckpointNumber], replies: Vec<Reply>) -> Step<Opened> {
        let mut dead = Vec::new();
        for (n, bytes) in numbers.iter().zip(tri!(got(replies))) {
            let key = Key::intent(&self.plan.job, *n);
            match read::<Intent>(&key, bytes.as_ref()) {
                Ok(Some(d)) if d.record.writer == self.plan.writer && !d.record.detached => {
                    dead.push((*n, d.record.place.uid));
                }
                Ok(Some(_)) => self.open_elsewhere.push(*n),
                // Forgotten between list and get, or damaged: neither this writer's business nor its base.
                Ok(None) => {}
                Err(e) => self.unreadable.push((*n, e.to_string())),
            }
        }
        if dead.is_empty() {
            return self.walk_decided();
        }
        let creates: Result<Vec<_>, _> = dead
            .iter()
            .map(|(n, uid)| abort::request(&self.plan.job, *n, *uid, "its process ended before it was decided"))
            .collect();
        let creates = tri!(creates);
        self.ask(Phase::AbortDead(dead), creates)
    }

    fn dead_aborted(&mut self, dead: Vec<(CheckpointNumber, Uid)>, replies: Vec<Reply>) -> Step<Opened> {
        for ((n, _), reply) in dead.into_iter().zip(replies) {
            self.survey.outcomes.insert(n);
            if let Reply::Created(Created::New) = reply {
                self.aborted.push(n);
            }
        }
        self.walk_decided()
    }

    /// Reads outcomes from the newest on, until one is completed. Several at a time: aborted ones come in runs.
    fn walk_decided(&mut self) -> Step<Opened> {
        let unread = |n: &CheckpointNumber| {
            !self.aborted_seen.iter().any(|(a, _)| a == n) && !self.unreadable.iter().any(|(u, _)| u == n)
        };
        let next: Vec<_> = self.survey.decided().filter(unread).take(4).collect();
        if next.is_empty() {
            return self.adopt();
        }
        let gets = next.iter().map(|n| Request::Get(Key::outcome(&self.plan.job, *n))).collect();
        self.ask(Phase::Decided(next), gets)
    }

    fn decided_read(&mut self, numbers: &[CheckpointNumber], replies: Vec<Reply>) -> Step<Opened> {
        for (n, bytes) in numbers.iter().zip(tri!(got(replies))) {
            let key = Key::outcome(&self.plan.job, *n);
            let outcome = match read::<Outcome>(&key, bytes.as_ref()) {
                Ok(Some(d)) => tri!(writable(&key, d)),
                Ok(None) => {
                    self.survey.outcomes.remove(n);
                    continue;
                }
                Err(e) => {
                    self.unreadable.push((*n, e.to_string()));
                    continue;
                }
            };
            let uid = outcome.place.uid;
            match outcome.verdict {
                Verdict::Completed(manifest) => {
                    self.completed = Some((BaseRef { job: self.plan.job.clone(), number: *n, uid }, manifest));
                    return self.adopt();
                }
                Verdict::Aborted { .. } => self.aborted_seen.push((*n, uid)),
            }
        }
        self.walk_decided()
    }

    /// Which aborted attempts are this writer's? Their intents say.
    fn adopt(&mut self) -> Step<Opened> {
        let numbers: Vec<_> = self.aborted_seen.iter().map(|(n, _)| *n).take(limits::BASES - 2).collect();
        if numbers.is_empty() {
            return self.create_intent();
        }
        let gets = self.get_intents(&numbers);
        self.ask(Phase::AdoptIntents(numbers), gets)
    }

    fn adopted_read(&mut self, numbers: &[CheckpointNumber], replies: Vec<Reply>) -> Step<Opened> {
        for (n, bytes) in numbers.iter().zip(tri!(got(replies))) {
            let key = Key::intent(&self.plan.job, *n);
            if let Ok(Some(d)) = read::<Intent>(&key, bytes.as_ref())
                && d.record.writer == self.plan.writer
                && self.aborted_seen.contains(&(*n, d.record.place.uid))
            {
                self.adopted.push(BaseRef { job: self.plan.job.clone(), number: *n, uid: d.record.place.uid });
            }
        }
        self.create_intent()
    }

    fn create_intent(&mut self) -> Step<Opened> {
        let job = self.plan.job.clone();
        let Some(uid) = self.plan.uids.get(self.tries as usize).copied() else {
            let why = "every number that was tried was taken by somebody else".to_owned();
            return Step::Done(Err(LifecycleError::NoUsableBase { job, tries: self.tries, why }));
        };
        self.tries += 1;
        let number = match self.plan.number.or_else(|| self.survey.next_number()) {
            Some(n) => n,
            None => return Step::Done(Err(LifecycleError::Exhausted { job })),
        };
        let mut bases: Vec<BaseRef> = Vec::new();
        let candidates =
            self.completed.iter().map(|(b, _)| b).chain(&self.plan.restored_from).chain(&self.adopted).cloned();
        for base in candidates {
            if !self.full && !bases.iter().any(|b| b.uid == base.uid) {
                bases.push(base);
            }
        }
        let intent = Intent {
            place: Place::new(Role::Intent, &job, number.get(), uid),
            epoch: self.epoch,
            writer: self.plan.writer,
            bases,
            expected: self.plan.expected.clone(),
            kind: self.plan.kind,
            detached: self.plan.detached,
            opened_ms: self.plan.opened_ms,
            stop: self.stop,
            labels: self.labels.clone(),
        };
        let create = Request::Create(Key::intent(&job, number), tri!(write(&intent)));
        // The intent says what came of them. A further try begins afresh.
        (self.survey, self.completed) = (Survey::default(), None);
        (self.adopted, self.aborted_seen) = (Vec::new(), Vec::new());
        self.ask(Phase::CreateIntent(Box::new(intent)), vec![create])
    }

    fn intent_created(&mut self, intent: Box<Intent>, replies: Vec<Reply>) -> Step<Opened> {
        match tri!(created(replies)) {
            Created::New | Created::Ours => {
                let list = Request::List(Prefix::job(RecordKind::Epoch, &self.plan.job));
                self.ask(Phase::LookEpoch(intent), vec![list])
            }
            Created::Other(_) => match self.plan.number {
                Some(number) => {
                    let job = self.plan.job.clone();
                    Step::Done(Err(LifecycleError::NumberTaken { job, number, what: "a rival has just begun it" }))
                }
                None => self.begin(),
            },
        }
    }

    fn epoch_looked(&mut self, intent: Box<Intent>, replies: Vec<Reply>) -> Step<Opened> {
        let lists = tri!(listed(replies));
        let ruling = lists.first().map(|l| highest_epoch(l)).unwrap_or_default();
        if ruling > self.epoch {
            return self.give_up(intent, GiveUp::Fenced(ruling));
        }
        let gets = intent.bases.iter().map(|b| Request::Get(Key::expired(&b.job, b.number))).collect();
        self.ask(Phase::LookExpired(intent), gets)
    }

    fn expired_looked(&mut self, intent: Box<Intent>, replies: Vec<Reply>) -> Step<Opened> {
        let expired = tri!(got(replies));
        let dead: Vec<BaseRef> =
            intent.bases.iter().zip(&expired).filter(|(_, e)| e.is_some()).map(|(b, _)| b.clone()).collect();
        if dead.is_empty() {
            return self.look_outcomes(intent);
        }
        // A pin that is there now was there before the intent: the sweep sees one of them.
        let pins: Option<Vec<Request>> = dead.iter().map(|b| self.own_pin(b).map(|p| Request::Get(p.key()))).collect();
        match pins {
            Some(gets) => self.ask(Phase::LookPins(intent, dead), gets),
            None => self.lose(intent, &dead, "expired meanwhile"),
        }
    }

    fn own_pin(&self, base: &BaseRef) -> Option<&PinRef> {
        self.plan.pinned.iter().find(|p| p.job == base.job && p.number == base.number)
    }

    fn pins_looked(&mut self, intent: Box<Intent>, dead: &[BaseRef], replies: Vec<Reply>) -> Step<Opened> {
        for (base, bytes) in dead.iter().zip(tri!(got(replies))) {
            let Some(pin) = self.own_pin(base) else { return Step::Done(Err(LifecycleError::Confused)) };
            let found = read::<PinRecord>(&pin.key(), bytes.as_ref());
            if !matches!(found, Ok(Some(d)) if d.record.place.uid == base.uid) {
                return self.lose(intent, dead, "expired, and its pin is gone");
            }
        }
        self.look_outcomes(intent)
    }

    /// Bases that cannot be used are not named again.
    fn lose(&mut self, intent: Box<Intent>, dead: &[BaseRef], how: &str) -> Step<Opened> {
        if let Some(from) = &self.plan.restored_from
            && dead.iter().any(|b| b.uid == from.uid)
        {
            self.plan.restored_from = None;
        }
        let names: Vec<String> = dead.iter().map(|b| format!("{}/{}", b.job, b.number)).collect();
        self.give_up(intent, GiveUp::Retry(format!("{} {how}", names.join(", "))))
    }

    fn look_outcomes(&mut self, intent: Box<Intent>) -> Step<Opened> {
        let gets = intent.bases.iter().map(|b| Request::Get(Key::outcome(&b.job, b.number))).collect();
        self.ask(Phase::LookOutcomes(intent), gets)
    }

    fn outcomes_looked(&mut self, intent: Box<Intent>, replies: Vec<Reply>) -> Step<Opened> {
        let outcomes = tri!(got(replies));
        for (base, bytes) in intent.bases.iter().zip(&outcomes) {
            let key = Key::outcome(&base.job, base.number);
            let found = match read::<Outcome>(&key, bytes.as_ref()) {
                Ok(Some(d)) if d.record.place.uid == base.uid => d.record.verdict,
                Ok(_) => {
                    let lost = [base.clone()];
                    return self.lose(intent, &lost, "is not there any more");
                }
                Err(e) => return self.give_up(intent, GiveUp::Retry(e.to_string())),
            };
            self.looked.insert(
                base.uid,
                match found {
                    Verdict::Completed(manifest) => Some(manifest),
                    Verdict::Aborted { .. } => None,
                },
            );
        }
        self.base_floors = vec![(self.plan.job.clone(), Floors::default())];
        for base in &intent.bases {
            if !self.base_floors.iter().any(|(j, _)| *j == base.job) {
                self.base_floors.push((base.job.clone(), Floors::default()));
            }
        }
        let lists = self.base_floors.iter().map(|(job, _)| Floors::list(job)).collect();
        self.ask(Phase::LookFloors(intent), lists)
    }

    fn floors_looked(&mut self, intent: Box<Intent>, replies: Vec<Reply>) -> Step<Opened> {
        let mut gets = Vec::new();
        for ((job, floors), keys) in self.base_floors.iter_mut().zip(tri!(listed(replies))) {
            floors.take_list(&keys);
            gets.extend(floors.gets(job));
        }
        if gets.is_empty() { self.opened(*intent) } else { self.ask(Phase::LookFloorBodies(intent), gets) }
    }

    fn floor_bodies_looked(&mut self, intent: Box<Intent>, mut replies: Vec<Reply>) -> Step<Opened> {
        for (job, floors) in &mut self.base_floors {
            let rest = replies.split_off(floors.gets(job).len().min(replies.len()));
            tri!(floors.take(job, replies));
            replies = rest;
        }
        let gone = |job: &Name, n| self.base_floors.iter().any(|(j, f)| j == job && f.gone(n));
        let own = intent.place.number.try_into().is_ok_and(|n| gone(&self.plan.job, n));
        let lost: Vec<BaseRef> = intent.bases.iter().filter(|b| gone(&b.job, b.number)).cloned().collect();
        if own {
            return self.give_up(intent, GiveUp::Retry("a floor passed it".to_owned()));
        }
        if !lost.is_empty() {
            return self.lose(intent, &lost, "was passed by a floor");
        }
        self.opened(*intent)
    }

    fn opened(&mut self, intent: Intent) -> Step<Opened> {
        let Ok(number) = CheckpointNumber::new(intent.place.number) else {
            return Step::Done(Err(LifecycleError::Confused));
        };
        let bases = intent.bases.iter().map(|b| Base { of: b.clone(), manifest: self.looked.remove(&b.uid).flatten() });
        let mut bases: Vec<_> = bases.collect();
        bases.sort_by_key(|b| b.manifest.is_none());
        Step::Done(Ok(Opened {
            number,
            bases,
            intent,
            open_elsewhere: std::mem::take(&mut self.open_elsewhere),
            aborted: std::mem::take(&mut self.aborted),
            unreadable: std::mem::take(&mut self.unreadable),
        }))
    }

    fn give_up(&mut self, intent: Box<Intent>, why: GiveUp) -> Step<Opened> {
        let reason = match &why {
            GiveUp::Fenced(ruling) => format!("epoch {ruling} took over"),
            GiveUp::Retry(why) => why.clone(),
        };
        let Ok(number) = CheckpointNumber::new(intent.place.number) else {
            return Step::Done(Err(LifecycleError::Confused));
        };
        let create = tri!(abort::request(&self.plan.job, number, intent.place.uid, &reason));
        self.ask(Phase::GiveUp(intent, why), vec![create])
    }

    fn given_up(&mut self, why: GiveUp) -> Step<Opened> {
        match why {
            GiveUp::Fenced(ruling) => Step::Done(Err(self.fenced(ruling))),
            GiveUp::Retry(why) if self.plan.number.is_some() || self.tries as usize >= self.plan.uids.len() => {
                Step::Done(Err(LifecycleError::NoUsableBase { job: self.plan.job.clone(), tries: self.tries, why }))
            }
            GiveUp::Retry(_) => self.begin(),
        }
    }

    fn fenced(&self, ruling: Epoch) -> LifecycleError {
        LifecycleError::Fenced { job: self.plan.job.clone(), ruling, own: self.epoch }
    }
}

impl Machine for Open {
    type Output = Opened;

    fn step(&mut self, replies: Vec<Reply>) -> Step<Opened> {
        match std::mem::replace(&mut self.phase, Phase::Begin) {
            Phase::Begin => self.begin(),
            Phase::Survey => {
                self.survey = tri!(Survey::from_lists(replies));
                self.surveyed()
            }
            Phase::Floors => {
                let job = self.plan.job.clone();
                tri!(self.survey.floors.take(&job, replies));
                self.floors_read()
            }
            Phase::Undecided(numbers) => self.undecided_read(&numbers, replies),
            Phase::AbortDead(dead) => self.dead_aborted(dead, replies),
            Phase::Decided(numbers) => self.decided_read(&numbers, replies),
            Phase::AdoptIntents(numbers) => self.adopted_read(&numbers, replies),
            Phase::CreateIntent(intent) => self.intent_created(intent, replies),
            Phase::LookEpoch(intent) => self.epoch_looked(intent, replies),
            Phase::LookExpired(intent) => self.expired_looked(intent, replies),
            Phase::LookPins(intent, dead) => self.pins_looked(intent, &dead, replies),
            Phase::LookOutcomes(intent) => self.outcomes_looked(intent, replies),
            Phase::LookFloors(intent) => self.floors_looked(intent, replies),
            Phase::LookFloorBodies(intent) => self.floor_bodies_looked(intent, replies),
            Phase::GiveUp(_, why) => self.given_up(why),
        }
    }
}
