//! Complete: all acks are in, every byte is vouched for, *then* the outcome is created.
//!
//! A blob is vouched for by a completed base that names it with the same length, or by HEAD finding it under the own uid or an aborted
//! base's. Nothing else may be published, whatever a task manifest says.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::error::LifecycleError;
use super::machine::{Machine, Reply, Request, Step, created, got, headed, listed, read, tri, writable, write};
use crate::format::phases::Longest;
use crate::format::{CheckpointManifest, Intent, Outcome, Place, Role, SubtaskEntry, TaskManifest, Verdict};
use crate::limits;
use crate::store::Created;
use crate::types::{BlobName, CheckpointNumber, Digest, Key, KeyParts, Name, Prefix, RecordKind, Uid};

/// A published checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed {
    /// Its outcome.
    pub manifest: CheckpointManifest,
    /// Its uid.
    pub uid: Uid,
    /// Whether this call published it; `false` when it was before.
    pub now: bool,
    /// Older aborted numbers that it expired.
    pub expired: Vec<CheckpointNumber>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Begin,
    Intent,
    Acks,
    Tasks(Vec<(Name, u32)>),
    Bases,
    BaseTasks(Vec<Key>),
    Heads(Vec<BlobName>),
    Create,
    OlderOutcomes,
    OlderRead(Vec<CheckpointNumber>),
    Expire(Vec<CheckpointNumber>),
}

/// The machine behind `complete`.
#[derive(Debug, Clone)]
pub struct Complete {
    job: Name,
    number: CheckpointNumber,
    completed_ms: u64,
    phase: Phase,
    intent: Option<Intent>,
    tasks: Vec<SubtaskEntry>,
    phases: Longest,
    needed: BTreeMap<BlobName, u64>,
    vouched: BTreeMap<BlobName, u64>,
    aborted_bases: BTreeSet<Uid>,
    base_tasks: VecDeque<(Key, Digest)>,
    result: Option<Completed>,
    older: VecDeque<CheckpointNumber>,
    aborted_older: Vec<(CheckpointNumber, Uid)>,
}

impl Complete {
    /// A machine that publishes this number. `completed_ms` is the caller's clock, for people.
    #[must_use]
    pub fn new(job: Name, number: CheckpointNumber, completed_ms: u64) -> Self {
        Self {
            job,
            number,
            completed_ms,
            phase: Phase::Begin,
            intent: None,
            tasks: Vec::new(),
            phases: Longest::default(),
            needed: BTreeMap::new(),
            vouched: BTreeMap::new(),
            aborted_bases: BTreeSet::new(),
            base_tasks: VecDeque::new(),
            result: None,
            older: VecDeque::new(),
            aborted_older: Vec::new(),
        }
    }

    fn ask(&mut self, phase: Phase, requests: Vec<Request>) -> Step<Completed> {
        self.phase = phase;
        Step::Ask(requests)
    }

    fn dangling(&self, why: String) -> Step<Completed> {
        Step::Done(Err(LifecycleError::Dangling { job: self.job.clone(), number: self.number, why }))
    }

    fn intent_read(&mut self, replies: Vec<Reply>) -> Step<Completed> {
        let key = Key::intent(&self.job, self.number);
        let mut bodies = tri!(got(replies)).into_iter();
        let (bytes, decided) = (bodies.next().flatten(), bodies.next().flatten());
        let Some(decoded) = tri!(read::<Intent>(&key, bytes.as_ref())) else {
            let (job, number) = (self.job.clone(), self.number);
            return Step::Done(Err(LifecycleError::NoSuchCheckpoint { job, number }));
        };
        self.intent = Some(tri!(writable(&key, decoded)));
        // Only for the words: whoever gave it up is told to a caller who would else look for acks in vain. The create decides.
        if let Ok(Some(outcome)) = read::<Outcome>(&Key::outcome(&self.job, self.number), decided.as_ref())
            && let Verdict::Aborted { reason } = outcome.record.verdict
        {
            let (job, number) = (self.job.clone(), self.number);
            return Step::Done(Err(LifecycleError::Aborted { job, number, reason }));
        }
        let list = Request::List(Prefix::checkpoint(RecordKind::Task, &self.job, self.number));
        self.ask(Phase::Acks, vec![list])
    }

    fn acks_listed(&mut self, replies: Vec<Reply>) -> Step<Completed> {
        let lists = tri!(listed(replies));
        let acked: BTreeSet<(Name, u32)> = lists
            .iter()
            .flatten()
            .filter_map(|k| if let KeyParts::Task(_, _, o, i) = k.parts() { Some((o.clone(), *i)) } else { None })
            .collect();
        let Some(intent) = &self.intent else { return Step::Done(Err(LifecycleError::Confused)) };
        let expected: BTreeSet<(Name, u32)> =
            intent.expected.iter().flat_map(|e| (0..e.parallelism).map(|i| (e.operator.clone(), i))).collect();
        let missing: Vec<String> = expected.difference(&acked).take(20).map(|(o, i)| format!("{o}/{i}")).collect();
        if !missing.is_empty() {
            return Step::Done(Err(LifecycleError::Incomplete {
                job: self.job.clone(),
                number: self.number,
                missing: missing.join(", "),
            }));
        }
        let wanted: Vec<_> = expected.into_iter().collect();
        let gets = wanted.iter().map(|(o, i)| Request::Get(Key::task(&self.job, self.number, o, *i))).collect();
        self.ask(Phase::Tasks(wanted), gets)
    }

    fn tasks_read(&mut self, wanted: Vec<(Name, u32)>, replies: Vec<Reply>) -> Step<Completed> {
        let Some(intent) = &self.intent else { return Step::Done(Err(LifecycleError::Confused)) };
        let own = intent.place.uid;
        let bases = intent.bases.clone();
        for ((operator, subtask), bytes) in wanted.into_iter().zip(tri!(got(replies))) {
            let key = Key::task(&self.job, self.number, &operator, subtask);
            let Some(bytes) = bytes else {
                return self.dangling(format!("the ack {key} was listed and is not there"));
            };
            let Some(d) = tri!(read::<TaskManifest>(&key, Some(&bytes))) else {
                return Step::Done(Err(LifecycleError::Confused));
            };
            let manifest = tri!(writable(&key, d));
            if manifest.place.uid != own {
                return self.dangling(format!("the ack {key} is for another attempt ({})", manifest.place.uid));
            }
            for blob in &manifest.blobs {
                if *self.needed.entry(blob.name).or_insert(blob.length) != blob.length {
                    return self.dangling(format!("blob {} is said to have two lengths", blob.name));
                }
            }
            self.phases.add(&manifest);
            self.tasks.push(SubtaskEntry {
                operator,
                display_name: manifest.display_name,
                subtask,
                manifest: Digest::of(&bytes),
                manifest_length: bytes.len() as u64,
                logical_bytes: manifest.logical_bytes,
                new_bytes: manifest.new_bytes,
                files: manifest.files.len() as u64,
            });
        }
        if bases.is_empty() {
            return self.heads();
        }
        let gets = bases.iter().map(|b| Request::Get(Key::outcome(&b.job, b.number))).collect();
        self.ask(Phase::Bases, gets)
    }

    /// The bases' outcomes: completed ones vouch by their task manifests, the same subtask's first.
    fn bases_read(&mut self, replies: Vec<Reply>) -> Step<Completed> {
        let bases = self.intent.as_ref().map(|i| i.bases.clone()).unwrap_or_default();
        let mut queue = Vec::new();
        for (base, bytes) in bases.iter().zip(tri!(got(replies))) {
            let key = Key::outcome(&base.job, base.number);
            let Some(d) = tri!(read::<Outcome>(&key, bytes.as_ref())) else {
                return self.dangling(format!("its base {}/{} is not there any more", base.job, base.number));
            };
            if d.record.place.uid != base.uid {
                return self.dangling(format!("its base {}/{} is another one now", base.job, base.number));
            }
            match d.record.verdict {
                Verdict::Aborted { .. } => {
                    self.aborted_bases.insert(base.uid);
                }
                Verdict::Completed(manifest) => {
                    for s in manifest.subtasks {
                        let likely = self.tasks.iter().any(|t| t.operator == s.operator && t.subtask == s.subtask);
                        let key = Key::task(&base.job, base.number, &s.operator, s.subtask);
                        queue.push((!likely, key, s.manifest));
                    }
                }
            }
        }
        queue.sort();
        self.base_tasks = queue.into_iter().map(|(_, key, digest)| (key, digest)).collect();
        self.next_base_tasks()
    }

    fn unresolved(&self) -> bool {
        let own = self.intent.as_ref().map(|i| i.place.uid);
        self.needed
            .keys()
            .any(|b| Some(b.uid) != own && !self.aborted_bases.contains(&b.uid) && !self.vouched.contains_key(b))
    }

    fn next_base_tasks(&mut self) -> Step<Completed> {
        if self.base_tasks.is_empty() || !self.unresolved() {
            return self.heads();
        }
        // Those of the same subtasks come first and nearly always resolve everything; the rest is for rescaled jobs.
        let batch = self.base_tasks.len().min(limits::PARALLEL_REQUESTS.max(self.tasks.len()));
        let keys: Vec<Key> = self.base_tasks.iter().take(batch).map(|(k, _)| k.clone()).collect();
        let gets = keys.iter().cloned().map(Request::Get).collect();
        self.ask(Phase::BaseTasks(keys), gets)
    }

    fn base_tasks_read(&mut self, keys: &[Key], replies: Vec<Reply>) -> Step<Completed> {
        for (key, bytes) in keys.iter().zip(tri!(got(replies))) {
            let Some((_, digest)) = self.base_tasks.pop_front() else {
                return Step::Done(Err(LifecycleError::Confused));
            };
            let Some(bytes) = bytes else {
                return self.dangling(format!("{key} of its base is not there any more"));
            };
            if Digest::of(&bytes) != digest {
                return self.dangling(format!("{key} of its base is not what the base's checkpoint manifest names"));
            }
            if let Some(d) = tri!(read::<TaskManifest>(key, Some(&bytes))) {
                self.vouched.extend(d.record.blobs.iter().map(|b| (b.name, b.length)));
            }
        }
        self.next_base_tasks()
    }

    fn heads(&mut self) -> Step<Completed> {
        let own = self.intent.as_ref().map(|i| i.place.uid);
        let mut ask = Vec::new();
        for (blob, length) in &self.needed {
            match self.vouched.get(blob) {
                Some(l) if l == length => {}
                Some(l) => {
                    return self.dangling(format!("blob {blob} has {l} bytes in its base, not {length}"));
                }
                None if Some(blob.uid) == own || self.aborted_bases.contains(&blob.uid) => ask.push(*blob),
                None => {
                    return self
                        .dangling(format!("blob {blob} is named by none of its bases and was not uploaded for it"));
                }
            }
        }
        let heads = ask.iter().map(|b| Request::Head(Key::blob(b))).collect();
        self.ask(Phase::Heads(ask), heads)
    }

    fn heads_read(&mut self, asked: &[BlobName], replies: Vec<Reply>) -> Step<Completed> {
        for (blob, found) in asked.iter().zip(tri!(headed(replies))) {
            let length = self.needed.get(blob).copied();
            if found != length {
                let found = found.map_or("not there".to_owned(), |l| format!("there with {l} bytes"));
                let length = length.unwrap_or_default();
                return self.dangling(format!("blob {blob} of {length} bytes is {found}"));
            }
        }
        let Some(intent) = &self.intent else { return Step::Done(Err(LifecycleError::Confused)) };
        let sum = |f: fn(&SubtaskEntry) -> u64| self.tasks.iter().map(f).fold(0u64, u64::saturating_add);
        let manifest = CheckpointManifest {
            kind: intent.kind,
            epoch: intent.epoch,
            writer: intent.writer,
            bases: intent.bases.clone(),
            logical_bytes: sum(|t| t.logical_bytes),
            new_bytes: sum(|t| t.new_bytes),
            files: sum(|t| t.files),
            opened_ms: intent.opened_ms,
            completed_ms: self.completed_ms,
            labels: intent.labels.clone(),
            subtasks: self.tasks.clone(),
            phases: self.phases.clone(),
        };
        let uid = intent.place.uid;
        let place = Place::new(Role::Outcome, &self.job, self.number.get(), uid);
        let outcome = Outcome { place, verdict: Verdict::Completed(manifest.clone()) };
        let bytes = tri!(write(&outcome));
        self.result = Some(Completed { manifest, uid, now: true, expired: Vec::new() });
        self.ask(Phase::Create, vec![Request::Create(Key::outcome(&self.job, self.number), bytes)])
    }

    fn outcome_created(&mut self, replies: Vec<Reply>) -> Step<Completed> {
        if let Created::Other(bytes) = tri!(created(replies)) {
            let key = Key::outcome(&self.job, self.number);
            let Some(d) = tri!(read::<Outcome>(&key, Some(&bytes))) else {
                return Step::Done(Err(LifecycleError::Confused));
            };
            let uid = d.record.place.uid;
            return match d.record.verdict {
                // Somebody else completed the same acks: the checkpoint is published, which is what was wanted.
                Verdict::Completed(manifest) => {
                    Step::Done(Ok(Completed { manifest, uid, now: false, expired: Vec::new() }))
                }
                Verdict::Aborted { reason } => {
                    let (job, number) = (self.job.clone(), self.number);
                    Step::Done(Err(LifecycleError::Aborted { job, number, reason }))
                }
            };
        }
        let lists = [RecordKind::Outcome, RecordKind::Expired].map(|k| Request::List(Prefix::job(k, &self.job)));
        self.ask(Phase::OlderOutcomes, lists.into())
    }

    /// From here on the checkpoint is published: what fails now is left for the next one or the sweep.
    fn older_listed(&mut self, replies: Vec<Reply>) -> Step<Completed> {
        let Ok(lists) = listed(replies) else { return self.done() };
        let numbers = |i: usize| -> BTreeSet<CheckpointNumber> {
            lists.get(i).into_iter().flatten().filter_map(super::survey::number_of).collect()
        };
        let expired = numbers(1);
        let older = numbers(0).into_iter().rev().filter(|n| *n < self.number && !expired.contains(n));
        self.older = older.collect();
        self.next_older()
    }

    /// Walks down to the next completed one: what lies below it was its own to expire.
    fn next_older(&mut self) -> Step<Completed> {
        let batch: Vec<_> = self.older.drain(..self.older.len().min(2)).collect();
        if batch.is_empty() {
            return self.expire();
        }
        let gets = batch.iter().map(|n| Request::Get(Key::outcome(&self.job, *n))).collect();
        self.ask(Phase::OlderRead(batch), gets)
    }

    fn older_read(&mut self, numbers: &[CheckpointNumber], replies: Vec<Reply>) -> Step<Completed> {
        let Ok(bodies) = got(replies) else { return self.done() };
        for (n, bytes) in numbers.iter().zip(bodies) {
            if let Ok(Some(d)) = read::<Outcome>(&Key::outcome(&self.job, *n), bytes.as_ref()) {
                match d.record.verdict {
                    Verdict::Aborted { .. } => self.aborted_older.push((*n, d.record.place.uid)),
                    Verdict::Completed(_) => return self.expire(),
                }
            }
        }
        self.next_older()
    }

    fn expire(&mut self) -> Step<Completed> {
        let mut creates = Vec::new();
        let mut numbers = Vec::new();
        for (n, uid) in std::mem::take(&mut self.aborted_older) {
            let reason = format!("it was aborted, and {} completed", self.number);
            if let Ok(create) = super::expire::request(&self.job, n, uid, &reason) {
                creates.push(create);
                numbers.push(n);
            }
        }
        if creates.is_empty() {
            return self.done();
        }
        self.ask(Phase::Expire(numbers), creates)
    }

    fn done(&mut self) -> Step<Completed> {
        Step::Done(self.result.take().ok_or(LifecycleError::Confused))
    }
}

impl Machine for Complete {
    type Output = Completed;

    fn step(&mut self, replies: Vec<Reply>) -> Step<Completed> {
        match std::mem::replace(&mut self.phase, Phase::Begin) {
            Phase::Begin => {
                let keys = [Key::intent(&self.job, self.number), Key::outcome(&self.job, self.number)];
                self.ask(Phase::Intent, keys.map(Request::Get).into())
            }
            Phase::Intent => self.intent_read(replies),
            Phase::Acks => self.acks_listed(replies),
            Phase::Tasks(wanted) => self.tasks_read(wanted, replies),
            Phase::Bases => self.bases_read(replies),
            Phase::BaseTasks(keys) => self.base_tasks_read(&keys, replies),
            Phase::Heads(asked) => self.heads_read(&asked, replies),
            Phase::Create => self.outcome_created(replies),
            Phase::OlderOutcomes => self.older_listed(replies),
            Phase::OlderRead(numbers) => self.older_read(&numbers, replies),
            Phase::Expire(numbers) => {
                if let Some(result) = &mut self.result {
                    result.expired = numbers;
                }
                self.done()
            }
        }
    }
}
