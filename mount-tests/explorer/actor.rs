//! An actor: plays a script with the machines of `lifecycle`, as the verbs do.

use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use ckptfs::format::records::PinHolder;
use ckptfs::format::{
    BaseRef, BlobEntry, CheckpointKind, ExpectedOperator, FileEntry, FilePath, Outcome, Place, Role as PlaceRole,
    TaskManifest, Verdict, decode_at,
};
use ckptfs::lifecycle::abort::Abort;
use ckptfs::lifecycle::ack::Ack;
use ckptfs::lifecycle::complete::Complete;
use ckptfs::lifecycle::driver::{Answers, perform};
use ckptfs::lifecycle::error::LifecycleError;
use ckptfs::lifecycle::expire::Expire;
use ckptfs::lifecycle::forget::Forget;
use ckptfs::lifecycle::machine::{Machine, Request, Step};
use ckptfs::lifecycle::open::{Open, OpenPlan, Opened};
use ckptfs::lifecycle::pin::{Pin, PinRef, Unpin};
use ckptfs::lifecycle::sweep::{Execute, Plan, SweepOptions, SweepPlan};
use ckptfs::lifecycle::takeover::TakeOver;
use ckptfs::store::{Created, StoreError};
use ckptfs::types::{BlobName, CheckpointNumber, Digest, Epoch, Extent, Key, KeyParts, Name, Prefix, RecordKind, Uid};

use crate::future;
use crate::program::{Answer, Ask, Claim, Future, Keys, Program, job_name};
use crate::script::{End, Op, Role, Snapshot};

/// Length of every blob.
const LENGTH: u64 = 1;

/// What stands beside an actor's identity: two actors that differ in it only are the same.
#[derive(Clone)]
struct Aside<T>(T);

impl<T> fmt::Debug for Aside<T> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// The checkpoint that an actor writes.
#[derive(Debug, Clone)]
struct Writing {
    number: CheckpointNumber,
    uid: Uid,
    bases: Vec<(BaseRef, bool)>,
    adopted: Vec<BlobName>,
    blobs: Vec<BlobName>,
}

#[derive(Debug, Clone)]
enum Stage {
    Begin,
    Learn,
    Open(Box<Running<Open>>),
    /// Reads its bases' task manifests (so many), then asks for adopted blobs.
    Look(usize),
    Upload,
    Ack(Box<Running<Ack>>),
    Complete(Box<Running<Complete>>),
    Abort(Box<Running<Abort>>),
    TakeOver(Box<Running<TakeOver>>),
    Expire(Box<Running<Expire>>),
    Pin(Box<Running<Pin>>, PinRef),
    Unpin(Box<Running<Unpin>>),
    Plan(Box<Running<Plan>>),
    Execute(Box<Running<Execute>>, Box<SweepPlan>),
    Forget(Box<Running<Forget>>, Vec<Name>, Box<SweepPlan>),
    Over,
}

/// An actor in one of its lives.
#[derive(Debug, Clone)]
pub struct Actor {
    role: Aside<Rc<Role>>,
    id: u8,
    life: u8,
    at: usize,
    stage: Stage,
    epoch: Option<(usize, Epoch)>,
    /// Reigns of all its lives.
    reigns: Vec<(usize, Epoch)>,
    pins: Vec<(PinRef, bool)>,
    restored: Option<BaseRef>,
    writing: Option<Writing>,
    /// What it was told of its last number's end.
    told: Option<(usize, CheckpointNumber, bool)>,
    /// Left open for others.
    left: Vec<(usize, Writing)>,
    /// Its sweep has listed the blobs.
    listed: bool,
    said: Aside<String>,
}

/// The uid of the thing that an actor makes at this place of its script.
fn uid(id: u8, life: u8, at: usize, which: u8) -> Uid {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&[id, life, u8::try_from(at + 1).expect("short scripts"), which]);
    Uid::from_bytes(bytes)
}

/// An actor's cache.
fn cache(id: u8) -> Uid {
    let mut bytes = [0xff; 16];
    bytes[0] = id;
    Uid::from_bytes(bytes)
}

fn pin_of(id: u8, life: u8, at: usize, job: usize, n: u64) -> PinRef {
    PinRef { job: job_name(job), number: number(n), holder: cache(id), nonce: uid(id, life, at, 200) }
}

fn number(n: u64) -> CheckpointNumber {
    CheckpointNumber::new(n).expect("a number")
}

fn operator() -> Name {
    Name::encode("db")
}

fn ask(request: &Request) -> Ask {
    match request.clone() {
        Request::List(prefix) => Ask::List(prefix),
        Request::Get(key) | Request::Manifest(key, _) => Ask::Get(key),
        Request::Create(key, bytes) => Ask::Create(key, bytes),
        Request::Head(key) => Ask::Head(key),
        Request::Blobs => Ask::Blobs,
        Request::Delete(key) => Ask::Delete(key),
    }
}

/// One answer, as the driver gets it from a store.
struct Told(Answer);

impl Told {
    fn failed<T>(&self) -> Result<T, StoreError> {
        match &self.0 {
            Answer::Failed => Err(StoreError::ReadOnly { what: "ask", object: "the model".to_owned() }),
            other => unreachable!("{other:?} to another request"),
        }
    }
}

impl Answers for Told {
    fn list(&self, _: &Prefix) -> Result<Vec<Key>, StoreError> {
        if let Answer::Listed(keys) = &self.0 { Ok(keys.clone()) } else { self.failed() }
    }

    fn blobs(&self) -> Result<Vec<(BlobName, u64)>, StoreError> {
        if let Answer::Blobs(blobs) = &self.0 { Ok(blobs.clone()) } else { self.failed() }
    }

    fn get(&self, _: &Key) -> Result<Option<Bytes>, StoreError> {
        if let Answer::Got(bytes) = &self.0 { Ok(bytes.clone()) } else { self.failed() }
    }

    fn head(&self, _: &Key) -> Result<Option<u64>, StoreError> {
        if let Answer::Headed(length) = &self.0 { Ok(*length) } else { self.failed() }
    }

    fn create(&self, _: &Key, _: Bytes) -> Result<Created, StoreError> {
        if let Answer::Created(created) = &self.0 { Ok(created.clone()) } else { self.failed() }
    }

    fn delete(&self, _: &Key) -> Result<(), StoreError> {
        if matches!(self.0, Answer::Deleted) { Ok(()) } else { self.failed() }
    }
}

/// A machine, and what it waits for.
#[derive(Debug, Clone)]
struct Running<M> {
    machine: M,
    asked: Vec<Request>,
}

/// What a machine made of the answers.
enum Went<T> {
    Asks(Vec<Ask>),
    Done(Result<T, LifecycleError>),
    /// The store failed, which ends every machine.
    Failed,
}

impl<M: Machine> Running<M> {
    fn new(machine: M) -> Box<Self> {
        Box::new(Self { machine, asked: Vec::new() })
    }

    /// What the driver's loop does between two waits.
    fn go(&mut self, answers: Vec<Answer>) -> Went<M::Output> {
        let mut replies = Vec::new();
        for (request, answer) in std::mem::take(&mut self.asked).into_iter().zip(answers) {
            match perform(&Told(answer), &(), request) {
                Ok(reply) => replies.push(reply),
                Err(_) => return Went::Failed,
            }
        }
        loop {
            match self.machine.step(std::mem::take(&mut replies)) {
                Step::Done(result) => return Went::Done(result),
                Step::Ask(requests) if requests.is_empty() => {}
                Step::Ask(requests) => {
                    let asks = requests.iter().map(ask).collect();
                    self.asked = requests;
                    return Went::Asks(asks);
                }
            }
        }
    }
}

impl Actor {
    /// An actor before its first step.
    pub fn new(role: Role) -> Self {
        Self {
            id: role.id,
            role: Aside(Rc::new(role)),
            life: 0,
            at: 0,
            stage: Stage::Begin,
            epoch: None,
            reigns: Vec::new(),
            pins: Vec::new(),
            restored: None,
            writing: None,
            told: None,
            left: Vec::new(),
            listed: false,
            said: Aside(String::new()),
        }
    }

    fn op(&self) -> Option<Op> {
        self.role.0.ops.get(self.at).copied()
    }

    /// What it may still do for its current op.
    fn now(&self) -> Future {
        use RecordKind::{Blobs, Expired, Intent, Outcome, Task};
        let Some(op) = self.op() else { return Future::default() };
        let mut now = future::of(op, self.id);
        match (op, &self.stage, &self.writing) {
            // It was told what is open: it begins no other.
            (Op::Checkpoint(snapshot), _, Some(writing)) => {
                let (job, n) = (snapshot.job, Keys::number(writing.number.get()));
                now.creates = Keys::default().with(Task, job, n).with(Outcome, job, n).with(Expired, job, n - 1).with(
                    Blobs,
                    0,
                    Keys::number(u64::from(self.id)),
                );
                let mut reads = Keys::default().with(Intent, job, n).with(Blobs, 0, Keys::ALL);
                for kind in [Task, Outcome, Expired] {
                    reads = reads.with_kind(kind);
                }
                now.reads = now.reads.both(&reads);
            }
            (Op::Sweep, Stage::Execute(..), _) => {
                now = Future { deletes: Keys::default().with_kind(Blobs), ..Future::default() };
            }
            (Op::Sweep | Op::Forget, _, _) if self.listed => now.reads = now.reads.without(Blobs),
            _ => {}
        }
        now
    }

    fn say(&mut self, what: &str) {
        if !self.said.0.is_empty() {
            self.said.0 += "; ";
        }
        self.said.0 += what;
    }

    fn go_on(&mut self, to: Stage) -> Option<Vec<Ask>> {
        self.stage = to;
        None
    }

    /// The op is over.
    fn next(&mut self) -> Option<Vec<Ask>> {
        self.at += 1;
        self.writing = None;
        self.restored = None;
        self.listed = false;
        self.go_on(Stage::Begin)
    }

    fn wait(&mut self, stage: Stage, asks: Vec<Ask>) -> Option<Vec<Ask>> {
        self.stage = stage;
        Some(asks)
    }

    /// The op failed.
    fn failed(&mut self, what: &str, why: Option<&LifecycleError>) -> Option<Vec<Ask>> {
        self.say(&match why {
            None => format!("{what}: the store failed"),
            Some(e) => format!("{what}: {}", kind(e)),
        });
        self.next()
    }

    fn decided(&mut self, completed: bool) {
        self.told = match (self.op(), &self.writing) {
            (Some(Op::Checkpoint(snapshot)), Some(writing)) => Some((snapshot.job, writing.number, completed)),
            (Some(Op::Abort(job, n) | Op::Complete(job, n)), _) => Some((job, number(n), completed)),
            _ => None,
        };
    }

    fn begin(&mut self) -> Option<Vec<Ask>> {
        let Some(op) = self.op() else {
            self.epoch = None;
            return self.wait(Stage::Over, Vec::new());
        };
        let fresh = |which| uid(self.id, self.life, self.at, which);
        let stage = match op {
            Op::TakeOver(job) => {
                let machine = TakeOver::new(job_name(job), fresh(0), cache(self.id), String::new());
                Stage::TakeOver(Running::new(machine))
            }
            Op::Checkpoint(Snapshot { restored: Some((job, n)), .. }) => {
                return self.wait(Stage::Learn, vec![Ask::Get(Key::outcome(&job_name(job), number(n)))]);
            }
            Op::Checkpoint(snapshot) => self.open(snapshot),
            Op::Abort(job, n) => {
                Stage::Abort(Running::new(Abort::new(job_name(job), number(n), "impatient".to_owned())))
            }
            Op::Complete(job, n) => Stage::Complete(Running::new(Complete::new(job_name(job), number(n), 0))),
            Op::Expire(job, n) => Stage::Expire(Running::new(Expire::new(job_name(job), number(n), String::new()))),
            Op::Pin(job, n) | Op::Hold(job, n) => {
                let pin = pin_of(self.id, self.life, self.at, job, n);
                Stage::Pin(Running::new(Pin::new(pin.clone(), PinHolder::Writer, 0)), pin)
            }
            Op::Unpin(job, n) => {
                let (job, n) = (job_name(job), number(n));
                let ours = self.pins.iter().map(|(p, _)| p).filter(|p| p.job == job && p.number == n);
                Stage::Unpin(Running::new(Unpin::new(ours.cloned().collect())))
            }
            Op::UnpinOf(job, n, id, at) => {
                Stage::Unpin(Running::new(Unpin::new(vec![pin_of(id, 0, usize::from(at), job, n)])))
            }
            Op::Sweep | Op::Forget => Stage::Plan(Running::new(Plan::new(SweepOptions::default()))),
        };
        self.go_on(stage)
    }

    fn open(&self, snapshot: Snapshot) -> Stage {
        let plan = OpenPlan {
            job: job_name(snapshot.job),
            uids: (0..self.role.0.tries).map(|i| uid(self.id, self.life, self.at, i)).collect(),
            writer: cache(self.id),
            epoch: self.epoch.filter(|(job, _)| *job == snapshot.job).map(|(_, e)| e),
            number: snapshot.number.map(number),
            expected: vec![ExpectedOperator { operator: operator(), parallelism: 1 }],
            kind: CheckpointKind::Checkpoint,
            detached: snapshot.end == End::Leave,
            restored_from: self.restored.clone(),
            pinned: self.pins.iter().map(|(p, _)| p.clone()).collect(),
            opened_ms: 0,
        };
        Stage::Open(Running::new(Open::new(plan)))
    }

    /// Told that it is open: reads what its bases hold, as the engine does.
    fn opened(&mut self, opened: &Opened, content: &[u8], careless: bool) -> Option<Vec<Ask>> {
        let bases: Vec<String> = opened.bases.iter().map(|b| format!("{}/{}", b.of.job, b.of.number)).collect();
        self.say(&format!("{}/{} is open, bases [{}]", job_of(&opened.intent.place), opened.number, bases.join(" ")));
        let mut gets = Vec::new();
        let mut heads = Vec::new();
        for base in &opened.bases {
            match &base.manifest {
                Some(manifest) => gets.extend(
                    manifest
                        .subtasks
                        .iter()
                        .map(|s| Ask::Get(Key::task(&base.of.job, base.of.number, &s.operator, s.subtask))),
                ),
                // The careless adopt whatever may be there.
                None if careless => {}
                None => heads.extend(content.iter().map(|c| Ask::Head(Key::blob(&blob(*c, base.of.uid))))),
            }
        }
        self.writing = Some(Writing {
            number: opened.number,
            uid: opened.intent.place.uid,
            bases: opened.bases.iter().map(|b| (b.of.clone(), b.manifest.is_some())).collect(),
            adopted: Vec::new(),
            blobs: Vec::new(),
        });
        let read = gets.len();
        gets.extend(heads);
        if gets.is_empty() { self.looked(0, Vec::new()) } else { self.wait(Stage::Look(read), gets) }
    }

    /// What of the bases is reused, adopted, or uploaded.
    fn looked(&mut self, manifests: usize, answers: Vec<Answer>) -> Option<Vec<Ask>> {
        let (Some(Op::Checkpoint(snapshot)), Some(mut writing)) = (self.op(), self.writing.take()) else {
            unreachable!("it looks because it writes")
        };
        let mut known: Vec<BlobName> = Vec::new();
        let aborted: Vec<Uid> = writing.bases.iter().filter(|(_, c)| !c).map(|(b, _)| b.uid).collect();
        let mut names = aborted.iter().flat_map(|uid| snapshot.content.iter().map(|c| blob(*c, *uid)));
        for (i, answer) in answers.into_iter().enumerate() {
            match answer {
                Answer::Got(Some(bytes)) => known.extend(blobs_of(&bytes)),
                Answer::Got(None) => {
                    self.writing = Some(writing);
                    self.say("a base's task manifest is missing");
                    return self.give_up();
                }
                Answer::Headed(found) => {
                    let name = names.next().expect("as many as were asked");
                    if found.is_some() {
                        writing.adopted.push(name);
                    }
                }
                other => unreachable!("{other:?} to read {i} of {manifests}"),
            }
        }
        if snapshot.careless {
            let all = aborted.iter().flat_map(|uid| snapshot.content.iter().map(|c| blob(*c, *uid)));
            known.extend(all);
        }
        let found = |list: &[BlobName], c: u8| list.iter().copied().find(|b| b.digest == Digest::of(&[c]));
        let mut uploads = Vec::new();
        for c in snapshot.content {
            let name = match found(&known, *c).or_else(|| found(&writing.adopted, *c)) {
                Some(name) => name,
                None => {
                    let name = blob(*c, writing.uid);
                    uploads.push(Ask::Upload(name, LENGTH));
                    name
                }
            };
            writing.blobs.push(name);
        }
        writing.adopted.retain(|b| writing.blobs.contains(b));
        self.writing = Some(writing);
        if uploads.is_empty() { self.acknowledge() } else { self.wait(Stage::Upload, uploads) }
    }

    fn acknowledge(&mut self) -> Option<Vec<Ask>> {
        let (Some(Op::Checkpoint(snapshot)), Some(writing)) = (self.op(), &self.writing) else {
            unreachable!("it acknowledges because it writes")
        };
        if snapshot.end == End::Abort {
            return self.give_up();
        }
        let mut place = Place::new(PlaceRole::Task, &job_name(snapshot.job), writing.number.get(), writing.uid);
        place.subtask = Some((operator(), 0));
        let stage = Stage::Ack(Running::new(Ack::new(manifest(place, &writing.blobs)).expect("a whole place")));
        self.go_on(stage)
    }

    fn give_up(&mut self) -> Option<Vec<Ask>> {
        let (Some(Op::Checkpoint(snapshot)), Some(writing)) = (self.op(), &self.writing) else {
            return self.next();
        };
        let abort = Abort::new(job_name(snapshot.job), writing.number, "failed".to_owned());
        self.go_on(Stage::Abort(Running::new(abort)))
    }

    /// One turn; nothing when the next stage begins without answers.
    fn turn(&mut self, answers: Vec<Answer>) -> Option<Vec<Ask>> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Begin => self.begin(),
            Stage::Over => Some(Vec::new()),
            Stage::Learn => {
                let Some(Op::Checkpoint(snapshot)) = self.op() else { unreachable!("it learns for a checkpoint") };
                let Some((job, n)) = snapshot.restored else { unreachable!("it learns of its base") };
                let key = Key::outcome(&job_name(job), number(n));
                let Some(Answer::Got(Some(bytes))) = answers.into_iter().next() else { return self.next() };
                let outcome = decode_at::<Outcome>(&key, &bytes).expect("a whole record").record;
                if let Verdict::Aborted { .. } = outcome.verdict {
                    return self.next();
                }
                self.restored = Some(BaseRef { job: job_name(job), number: number(n), uid: outcome.place.uid });
                let stage = self.open(snapshot);
                self.go_on(stage)
            }
            Stage::Open(mut machine) => match machine.go(answers) {
                Went::Asks(asks) => self.wait(Stage::Open(machine), asks),
                Went::Failed => self.failed("open", None),
                Went::Done(Err(e)) => self.failed("open", Some(&e)),
                Went::Done(Ok(opened)) => {
                    let Some(Op::Checkpoint(snapshot)) = self.op() else { unreachable!("it opens a checkpoint") };
                    self.opened(&opened, snapshot.content, snapshot.careless)
                }
            },
            Stage::Look(manifests) => {
                if matches!(answers.first(), Some(Answer::Failed)) {
                    return self.failed("look", None);
                }
                self.looked(manifests, answers)
            }
            Stage::Upload => self.acknowledge(),
            Stage::Ack(mut machine) => match machine.go(answers) {
                Went::Asks(asks) => self.wait(Stage::Ack(machine), asks),
                Went::Failed => self.failed("ack", None),
                Went::Done(Err(e)) => {
                    self.say(&format!("ack: {}", kind(&e)));
                    self.give_up()
                }
                Went::Done(Ok(_)) => {
                    let (Some(Op::Checkpoint(snapshot)), Some(writing)) = (self.op(), &self.writing) else {
                        unreachable!("it acknowledges a checkpoint")
                    };
                    if snapshot.end == End::Leave {
                        self.left.extend(self.writing.take().map(|w| (snapshot.job, w)));
                        return self.next();
                    }
                    let complete = Complete::new(job_name(snapshot.job), writing.number, 0);
                    self.go_on(Stage::Complete(Running::new(complete)))
                }
            },
            Stage::Complete(mut machine) => match machine.go(answers) {
                Went::Asks(asks) => self.wait(Stage::Complete(machine), asks),
                Went::Failed => self.failed("complete", None),
                Went::Done(Ok(done)) => {
                    self.say(if done.now { "completed" } else { "completed before" });
                    self.decided(true);
                    self.next()
                }
                Went::Done(Err(e)) => {
                    self.say(&format!("complete: {}", kind(&e)));
                    if matches!(e, LifecycleError::Aborted { .. }) { self.next() } else { self.give_up() }
                }
            },
            Stage::Abort(mut machine) => match machine.go(answers) {
                Went::Asks(asks) => self.wait(Stage::Abort(machine), asks),
                Went::Failed => self.failed("abort", None),
                Went::Done(Err(e)) => self.failed("abort", Some(&e)),
                Went::Done(Ok(now)) => {
                    self.say(if now { "aborted" } else { "aborted before" });
                    self.decided(false);
                    self.next()
                }
            },
            Stage::TakeOver(mut machine) => match machine.go(answers) {
                Went::Asks(asks) => self.wait(Stage::TakeOver(machine), asks),
                Went::Failed => self.failed("take-over", None),
                Went::Done(Err(e)) => {
                    // Fenced: this coordinator stops.
                    self.failed("take-over", Some(&e));
                    self.at = self.role.0.ops.len();
                    self.go_on(Stage::Begin)
                }
                Went::Done(Ok(reign)) => {
                    let Some(Op::TakeOver(job)) = self.op() else { unreachable!("it takes over") };
                    self.say(&format!("epoch {} reigns", reign.epoch));
                    self.epoch = Some((job, reign.epoch));
                    self.reigns.push((job, reign.epoch));
                    self.next()
                }
            },
            Stage::Expire(mut machine) => match machine.go(answers) {
                Went::Asks(asks) => self.wait(Stage::Expire(machine), asks),
                Went::Failed => self.failed("expire", None),
                Went::Done(Err(e)) => self.failed("expire", Some(&e)),
                Went::Done(Ok(_)) => {
                    self.say("expired");
                    self.next()
                }
            },
            Stage::Pin(mut machine, pin) => match machine.go(answers) {
                Went::Asks(asks) => self.wait(Stage::Pin(machine, pin), asks),
                Went::Failed => self.failed("pin", None),
                Went::Done(Err(e)) => self.failed("pin", Some(&e)),
                Went::Done(Ok(_)) => {
                    self.say("pinned");
                    self.pins.push((pin, matches!(self.op(), Some(Op::Pin(..)))));
                    self.next()
                }
            },
            Stage::Unpin(mut machine) => match machine.go(answers) {
                Went::Asks(asks) => self.wait(Stage::Unpin(machine), asks),
                Went::Failed => self.failed("unpin", None),
                Went::Done(Err(e)) => self.failed("unpin", Some(&e)),
                Went::Done(Ok(())) => {
                    if let Some(Op::Unpin(job, n)) = self.op() {
                        let (job, n) = (job_name(job), number(n));
                        self.pins.retain(|(p, _)| (&p.job, p.number) != (&job, n));
                    }
                    self.next()
                }
            },
            Stage::Plan(mut machine) => {
                self.listed |= matches!(answers.first(), Some(Answer::Blobs(_)));
                match machine.go(answers) {
                    Went::Asks(asks) => self.wait(Stage::Plan(machine), asks),
                    Went::Failed => self.failed("plan", None),
                    Went::Done(Err(e)) => self.failed("plan", Some(&e)),
                    Went::Done(Ok(plan)) => {
                        self.say(if plan.doomed.is_empty() { "planned: nothing goes" } else { "planned: blobs go" });
                        let execute = Execute::new(&plan, false);
                        self.go_on(Stage::Execute(Running::new(execute), Box::new(needed(plan, self.op()))))
                    }
                }
            }
            Stage::Execute(mut machine, plan) => match machine.go(answers) {
                Went::Asks(asks) => self.wait(Stage::Execute(machine, plan), asks),
                Went::Failed => self.failed("sweep", None),
                Went::Done(Err(e)) => self.failed("sweep", Some(&e)),
                Went::Done(Ok(_)) => {
                    let jobs = plan.jobs.keys().rev().cloned().collect();
                    self.forget(jobs, plan)
                }
            },
            Stage::Forget(mut machine, jobs, plan) => match machine.go(answers) {
                Went::Asks(asks) => self.wait(Stage::Forget(machine, jobs, plan), asks),
                Went::Failed => self.failed("forget", None),
                Went::Done(Err(e)) => self.failed("forget", Some(&e)),
                Went::Done(Ok(forgotten)) => {
                    if forgotten.numbers > 0 {
                        self.say("forgot numbers");
                    }
                    self.forget(jobs, plan)
                }
            },
        }
    }

    fn forget(&mut self, mut jobs: Vec<Name>, mut plan: Box<SweepPlan>) -> Option<Vec<Ask>> {
        if self.op() != Some(Op::Forget) {
            return self.next();
        }
        let Some(job) = jobs.pop() else { return self.next() };
        let numbers = plan.jobs.remove(&job).unwrap_or_default();
        let which = u8::try_from(jobs.len()).expect("few jobs");
        let forget = Forget::new(job, numbers, uid(self.id, self.life, self.at, which), 1);
        self.go_on(Stage::Forget(Running::new(forget), jobs, plan))
    }
}

/// Of a plan that is being carried out, only what is still needed: else two actors that do the same would differ.
fn needed(plan: SweepPlan, op: Option<Op>) -> SweepPlan {
    let jobs = if op == Some(Op::Forget) { plan.jobs } else { std::collections::BTreeMap::new() };
    SweepPlan { jobs, ..SweepPlan::default() }
}

fn job_of(place: &Place) -> String {
    place.job.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn blob(content: u8, uid: Uid) -> BlobName {
    BlobName { digest: Digest::of(&[content]), uid }
}

fn blobs_of(bytes: &Bytes) -> Vec<BlobName> {
    let manifest = ckptfs::format::decode::<TaskManifest>(bytes).expect("a whole record").record;
    manifest.blobs.iter().map(|b| b.name).collect()
}

fn manifest(place: Place, blobs: &[BlobName]) -> TaskManifest {
    let file = |(i, name): (usize, &BlobName)| FileEntry {
        path: FilePath::db(&format!("{i:06}.sst")).expect("a path"),
        size: LENGTH,
        digest: name.digest,
        extents: vec![Extent { blob: u32::try_from(i).expect("few blobs"), offset: 0, length: LENGTH }],
        tree: None,
        tail: None,
        sst: None,
    };
    TaskManifest {
        place,
        display_name: String::new(),
        blobs: blobs.iter().map(|name| BlobEntry { name: *name, length: LENGTH, bundle: false }).collect(),
        files: blobs.iter().enumerate().map(file).collect(),
        logical_bytes: LENGTH * blobs.len() as u64,
        new_bytes: 0,
        backend: None,
        key_groups: None,
        states: Vec::new(),
        properties: std::collections::BTreeMap::new(),
        other_state: std::collections::BTreeMap::new(),
        origins: std::collections::BTreeMap::new(),
    }
}

/// The kind of an error: its first word in code.
fn kind(e: &LifecycleError) -> String {
    let text = format!("{e:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

impl Program for Actor {
    fn step(&mut self, mut answers: Vec<Answer>) -> Vec<Ask> {
        self.said.0.clear();
        loop {
            if let Some(asks) = self.turn(std::mem::take(&mut answers)) {
                return asks;
            }
        }
    }

    fn copy(&self) -> Box<dyn Program> {
        Box::new(self.clone())
    }

    fn claims(&self) -> Vec<Claim> {
        let pinned = self.pins.iter().filter(|(_, reads)| *reads).map(|(p, _)| Claim::Pinned(p.job.clone(), p.number));
        let mut claims: Vec<Claim> = pinned.collect();
        claims.extend(self.reigns.iter().map(|(job, epoch)| Claim::Reigns(job_name(*job), *epoch)));
        claims.extend(self.told.iter().map(|(job, n, completed)| Claim::Decided(job_name(*job), *n, *completed)));
        let job = match self.op() {
            Some(Op::Checkpoint(snapshot)) => snapshot.job,
            _ => 0,
        };
        for (job, writing) in self.writing.iter().map(|w| (job, w)).chain(self.left.iter().map(|(j, w)| (*j, w))) {
            let job = job_name(job);
            let bases = writing.bases.iter().map(|(b, _)| (b.job.clone(), b.number, b.uid)).collect();
            claims.push(Claim::Open(job.clone(), writing.number, writing.uid, bases));
            claims.extend(writing.adopted.iter().map(|b| Claim::Adopts(job.clone(), writing.number, writing.uid, *b)));
        }
        claims
    }

    fn future(&self) -> Future {
        let later = self.role.0.ops.get(self.at + 1..).unwrap_or_default();
        later.iter().fold(self.now(), |all, op| all.and(&future::of(*op, self.id)))
    }

    fn owns(&self, key: &Key) -> bool {
        let own = |w: &Writing| matches!(key.parts(), KeyParts::Task(_, n, ..) if *n == w.number);
        self.writing.as_ref().is_some_and(own)
    }

    fn restarted(&self) -> Box<dyn Program> {
        let mut next = Self::new((*self.role.0).clone());
        next.role = Aside(self.role.0.clone());
        next.life = self.life + 1;
        next.reigns.clone_from(&self.reigns);
        Box::new(next)
    }

    fn said(&self) -> String {
        self.said.0.clone()
    }
}
