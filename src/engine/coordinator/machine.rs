//! The coordinator as a pure state machine: it is told what happened and says what to do. It reads no clock and does no I/O.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::message::{AckReport, Trigger, TriggerKind};
use super::retained::{Held, Retained, Which};
use super::settings::CoordinatorSettings;
use crate::types::{CheckpointNumber, Name, Uid};

/// An operator's subtask.
pub type Task = (Name, u32);

/// Milliseconds until an abort that the store did not take is tried again: as long as the store's own longest pause between retries.
pub const RETRY_MS: u64 = 3_000;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// It is so late, in milliseconds by any clock that never goes back.
    Tick(u64),
    /// Somebody wants a checkpoint now, and an answer under this id.
    Request {
        /// The id of the answer.
        id: u64,
        /// What is wanted.
        kind: TriggerKind,
    },
    /// A checkpoint is open: its bases were alive.
    Opened {
        /// Its number.
        number: CheckpointNumber,
        /// Its uid.
        uid: Uid,
        /// When, in milliseconds since 1970, for operators.
        timestamp_ms: u64,
    },
    /// None could be opened.
    OpenFailed {
        /// Why.
        reason: String,
    },
    /// A task could not be told of a checkpoint.
    TriggerFailed {
        /// The checkpoint.
        number: CheckpointNumber,
        /// Why.
        reason: String,
    },
    /// A snapshot is stored.
    Acked {
        /// The checkpoint.
        number: CheckpointNumber,
        /// Whose.
        task: Task,
        /// What it came to.
        report: AckReport,
    },
    /// A snapshot failed.
    Declined {
        /// The checkpoint.
        number: CheckpointNumber,
        /// Whose.
        task: Task,
        /// Why.
        reason: String,
    },
    /// Somebody else gave a checkpoint up.
    AbortedElsewhere {
        /// The checkpoint.
        number: CheckpointNumber,
        /// Why.
        reason: String,
    },
    /// A checkpoint is published.
    CompleteDone {
        /// The checkpoint.
        number: CheckpointNumber,
    },
    /// A checkpoint could not be published, or it is not known whether it was.
    CompleteFailed {
        /// The checkpoint.
        number: CheckpointNumber,
        /// Why.
        reason: String,
    },
    /// A checkpoint is given up, for ever.
    Aborted {
        /// The checkpoint.
        number: CheckpointNumber,
    },
    /// It is not known whether a checkpoint was given up.
    AbortFailed {
        /// The checkpoint.
        number: CheckpointNumber,
    },
    /// A checkpoint that was to expire still lives.
    ExpireFailed {
        /// Which.
        held: Held,
    },
    /// Completed checkpoints from before this coordinator, that policy may expire.
    Recovered {
        /// Oldest first.
        checkpoints: Vec<Held>,
    },
    /// A task died.
    TaskFailed {
        /// Whose.
        task: Task,
        /// Why.
        reason: String,
    },
    /// A task came to the end of its input.
    TaskFinished {
        /// Whose.
        task: Task,
    },
    /// The job is to end now.
    Cancel,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Open the next number.
    Open(TriggerKind),
    /// Tell the tasks of it.
    Trigger(Trigger),
    /// Publish it.
    Complete(CheckpointNumber),
    /// Give it up.
    Abort {
        /// The checkpoint.
        number: CheckpointNumber,
        /// Why.
        reason: String,
    },
    /// Tell the tasks that it is published.
    NotifyComplete(CheckpointNumber),
    /// Tell the tasks that it was given up.
    NotifyAborted(CheckpointNumber),
    /// Tell the tasks that newer ones took its place.
    NotifySubsumed(CheckpointNumber),
    /// End its life in the store.
    Expire(Held),
    /// An ack or a decline that changed nothing.
    Tell {
        /// The checkpoint.
        number: CheckpointNumber,
        /// Whose.
        task: Task,
        /// Why it changed nothing.
        verdict: Verdict,
    },
    /// Answer a request.
    Answer {
        /// Its id.
        id: u64,
        /// The number of the published checkpoint, or why there is none.
        result: Result<CheckpointNumber, String>,
    },
    /// The job must be restored, by a new coordinator, or given up: this one triggers nothing more.
    FailJob {
        /// Why.
        reason: String,
    },
    /// The job ended.
    Stop,
}

/// Why an ack changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The same task acknowledged before: the first one stands.
    Duplicate,
    /// The checkpoint is decided, or about to be.
    Late,
    /// No such checkpoint was ever triggered here.
    Unknown,
    /// The job has no such task.
    Unexpected,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Triggers, also by the clock.
    Running,
    /// Takes the savepoint that ends the job, and nothing else.
    Stopping,
    /// The job failed.
    Failed,
    /// The job ended.
    Ended,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// Acks are missing.
    Collecting,
    /// All acks are in; the store decides.
    Completing,
    /// To be given up; the store has not said yes. Tried again at this time.
    Aborting { reason: String, again_at: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pending {
    kind: TriggerKind,
    request: Option<u64>,
    deadline: u64,
    missing: BTreeSet<Task>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    kind: TriggerKind,
    request: Option<u64>,
}

/// The machine. See [`Input`] and [`Action`].
#[derive(Debug, Clone)]
pub struct Coordinator {
    settings: CoordinatorSettings,
    tasks: BTreeSet<Task>,
    now: u64,
    mode: Mode,
    /// When the next periodic trigger is due; nothing before the first tick.
    due: Option<u64>,
    completed_at: Option<u64>,
    queue: VecDeque<Wanted>,
    opening: Option<Wanted>,
    pending: BTreeMap<CheckpointNumber, Pending>,
    newest: Option<CheckpointNumber>,
    failures: u32,
    finished: BTreeSet<Task>,
    retained: Retained,
    actions: Vec<Action>,
}

fn shown((operator, subtask): &Task) -> String {
    format!("{operator}/{subtask}")
}

impl Coordinator {
    /// A coordinator of a job that runs these tasks.
    #[must_use]
    pub fn new(settings: CoordinatorSettings, tasks: BTreeSet<Task>) -> Self {
        Self {
            settings,
            tasks,
            now: 0,
            mode: Mode::Running,
            due: None,
            completed_at: None,
            queue: VecDeque::new(),
            opening: None,
            pending: BTreeMap::new(),
            newest: None,
            failures: 0,
            finished: BTreeSet::new(),
            retained: Retained::default(),
            actions: Vec::new(),
        }
    }

    /// Numbers that are not decided yet.
    pub fn pending(&self) -> impl Iterator<Item = CheckpointNumber> + '_ {
        self.pending.keys().copied()
    }

    /// Completed checkpoints that policy may expire one day, oldest first.
    pub fn retained(&self) -> impl Iterator<Item = &Held> {
        self.retained.iter()
    }

    /// Failures since the last completed checkpoint.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// When the next [`Input::Tick`] may have something to do; nothing when only other inputs have.
    #[must_use]
    pub fn next_tick(&self) -> Option<u64> {
        let timers = self.pending.values().filter_map(|p| match &p.phase {
            Phase::Collecting => Some(p.deadline),
            Phase::Completing => None,
            Phase::Aborting { again_at, .. } => Some(*again_at),
        });
        let periodic = self.may_trigger().then(|| self.due.unwrap_or(self.now).max(self.pause_ends()));
        timers.chain(periodic).min()
    }

    /// What follows from what happened, in the order to do it in.
    pub fn step(&mut self, input: Input) -> Vec<Action> {
        match input {
            Input::Tick(now) => self.tick(now),
            Input::Request { id, kind } => self.request(id, kind),
            Input::Opened { number, uid, timestamp_ms } => self.opened(number, uid, timestamp_ms),
            Input::OpenFailed { reason } => self.open_failed(&reason),
            Input::TriggerFailed { number, reason } | Input::CompleteFailed { number, reason } => {
                self.give_up(number, &reason, true);
            }
            Input::Acked { number, task, report: _ } => self.acked(number, task),
            Input::Declined { number, task, reason } => self.declined(number, task, &reason),
            Input::AbortedElsewhere { number, reason } => self.aborted_elsewhere(number, &reason),
            Input::CompleteDone { number } => self.completed(number),
            Input::Aborted { number } => self.aborted(number),
            Input::AbortFailed { number } => self.abort_failed(number),
            Input::ExpireFailed { held } => self.retained.add(held),
            Input::Recovered { checkpoints } => {
                for held in checkpoints {
                    self.retained.add(held);
                }
            }
            Input::TaskFailed { task, reason } => self.fail_job(format!("{} failed: {reason}", shown(&task))),
            Input::TaskFinished { task } => self.task_finished(task),
            Input::Cancel => self.end("the job was cancelled"),
        }
        self.schedule();
        std::mem::take(&mut self.actions)
    }

    fn tick(&mut self, now: u64) {
        self.now = self.now.max(now);
        let now = self.now;
        if self.due.is_none() {
            self.due = Some(now.saturating_add(self.interval()));
        }
        let mut late = Vec::new();
        for (number, p) in &mut self.pending {
            match &mut p.phase {
                Phase::Aborting { reason, again_at } if *again_at <= now => {
                    *again_at = now.saturating_add(RETRY_MS);
                    self.actions.push(Action::Abort { number: *number, reason: reason.clone() });
                }
                Phase::Collecting if p.deadline <= now => {
                    let missing: Vec<String> = p.missing.iter().take(20).map(shown).collect();
                    let after = self.settings.timeout_ms;
                    late.push((*number, format!("no ack from {} within {after} ms", missing.join(", "))));
                }
                _ => {}
            }
        }
        for (number, reason) in late {
            self.give_up(number, &reason, true);
        }
    }

    /// A pause longer than the interval is the interval.
    fn interval(&self) -> u64 {
        self.settings.interval_ms.max(self.settings.min_pause_ms)
    }

    fn pause_ends(&self) -> u64 {
        self.completed_at.map_or(0, |at| at.saturating_add(self.settings.min_pause_ms))
    }

    /// Whether the clock alone stands between now and a periodic trigger.
    fn may_trigger(&self) -> bool {
        self.mode == Mode::Running
            && self.settings.interval_ms > 0
            && self.finished.is_empty()
            && self.opening.is_none()
            && self.pending.len() < self.settings.max_concurrent
    }

    fn request(&mut self, id: u64, kind: TriggerKind) {
        let refused = match self.mode {
            Mode::Running if !self.finished.is_empty() => Some("some of its tasks have finished"),
            Mode::Running => None,
            Mode::Stopping => Some("it is being stopped with a savepoint"),
            Mode::Failed => Some("it failed"),
            Mode::Ended => Some("it has ended"),
        };
        if let Some(why) = refused {
            let result = Err(format!("the job takes no checkpoint now: {why}"));
            return self.actions.push(Action::Answer { id, result });
        }
        let wanted = Wanted { kind, request: Some(id) };
        match kind {
            TriggerKind::Savepoint { stop } => {
                if stop {
                    // Nothing else may be triggered after it, nor complete later than it.
                    self.mode = Mode::Stopping;
                    self.empty_queue("the job is being stopped with a savepoint");
                    self.give_up_all("the job is being stopped with a savepoint");
                }
                let before = self.queue.iter().take_while(|w| w.kind.is_savepoint()).count();
                self.queue.insert(before, wanted);
            }
            TriggerKind::Checkpoint | TriggerKind::Full => self.queue.push_back(wanted),
        }
    }

    fn empty_queue(&mut self, why: &str) {
        for wanted in std::mem::take(&mut self.queue) {
            self.not_published(wanted, why);
        }
    }

    /// Opens what is wanted, one after the other: savepoints at once, others when there is room, periodic ones after the pause.
    fn schedule(&mut self) {
        if self.opening.is_some() || !matches!(self.mode, Mode::Running | Mode::Stopping) {
            return;
        }
        let room = self.pending.len() < self.settings.max_concurrent;
        let next = self.queue.front().copied().filter(|w| w.kind.is_savepoint() || room);
        if next.is_some() {
            self.queue.pop_front();
        }
        let periodic = || {
            let due = self.due.is_some_and(|due| due <= self.now) && self.pause_ends() <= self.now;
            (self.may_trigger() && due).then_some(Wanted { kind: TriggerKind::Checkpoint, request: None })
        };
        let Some(wanted) = next.or_else(periodic) else { return };
        if wanted.request.is_none() {
            // At the interval's own rate, unless that is past already.
            let by_rate = self.due.map(|due| due.saturating_add(self.interval())).filter(|next| *next > self.now);
            self.due = Some(by_rate.unwrap_or(self.now.saturating_add(self.interval())));
        }
        self.opening = Some(wanted);
        self.actions.push(Action::Open(wanted.kind));
    }

    fn opened(&mut self, number: CheckpointNumber, uid: Uid, timestamp_ms: u64) {
        self.newest = self.newest.max(Some(number));
        let wanted = self.opening.take();
        let Wanted { kind, request } = wanted.unwrap_or(Wanted { kind: TriggerKind::Checkpoint, request: None });
        let deadline = self.now.saturating_add(self.settings.timeout_ms);
        let (missing, phase) = (self.tasks.clone(), Phase::Collecting);
        self.pending.insert(number, Pending { kind, request, deadline, missing, phase });
        let of_now = match self.mode {
            Mode::Running => wanted.is_some(),
            Mode::Stopping => kind == TriggerKind::Savepoint { stop: true },
            Mode::Failed | Mode::Ended => false,
        };
        if let Some(task) = self.finished.first() {
            let reason = format!("{} finished before it began", shown(task));
            self.give_up(number, &reason, false);
        } else if of_now {
            self.actions.push(Action::Trigger(Trigger { number, uid, timestamp_ms, kind }));
        } else {
            self.give_up(number, "nobody wants it any more", false);
        }
    }

    fn open_failed(&mut self, reason: &str) {
        let Some(wanted) = self.opening.take() else { return };
        let reason = format!("no checkpoint could be opened: {reason}");
        self.not_published(wanted, &reason);
        if !wanted.kind.is_savepoint() {
            self.count_failure(&reason);
        }
    }

    fn acked(&mut self, number: CheckpointNumber, task: Task) {
        let verdict = if !self.tasks.contains(&task) {
            Verdict::Unexpected
        } else if let Some(p) = self.pending.get_mut(&number) {
            match p.phase {
                Phase::Collecting if p.missing.remove(&task) => {
                    if p.missing.is_empty() {
                        p.phase = Phase::Completing;
                        self.actions.push(Action::Complete(number));
                    }
                    return;
                }
                Phase::Collecting | Phase::Completing => Verdict::Duplicate,
                Phase::Aborting { .. } => Verdict::Late,
            }
        } else {
            self.unknown(number)
        };
        self.actions.push(Action::Tell { number, task, verdict });
    }

    fn unknown(&self, number: CheckpointNumber) -> Verdict {
        if Some(number) <= self.newest { Verdict::Late } else { Verdict::Unknown }
    }

    fn declined(&mut self, number: CheckpointNumber, task: Task, reason: &str) {
        let verdict = match self.pending.get(&number).map(|p| &p.phase) {
            _ if !self.tasks.contains(&task) => Verdict::Unexpected,
            Some(Phase::Collecting) => return self.give_up(number, &format!("{}: {reason}", shown(&task)), true),
            Some(Phase::Completing | Phase::Aborting { .. }) => Verdict::Late,
            None => self.unknown(number),
        };
        self.actions.push(Action::Tell { number, task, verdict });
    }

    /// The store decided already: what is left is to tell the tasks.
    fn aborted_elsewhere(&mut self, number: CheckpointNumber, reason: &str) {
        let Some(p) = self.pending.get_mut(&number).filter(|p| p.phase == Phase::Collecting) else { return };
        let counts = !p.kind.is_savepoint();
        p.phase = Phase::Aborting { reason: reason.to_owned(), again_at: u64::MAX };
        self.aborted(number);
        if counts {
            self.count_failure(&format!("{number}: {reason}"));
        }
    }

    /// Begins to give a number up. Whoever waits for it is answered when the store has decided.
    fn give_up(&mut self, number: CheckpointNumber, reason: &str, counts: bool) {
        let Some(p) = self.pending.get_mut(&number) else { return };
        if matches!(p.phase, Phase::Aborting { .. }) {
            return;
        }
        let counts = counts && !p.kind.is_savepoint();
        p.phase = Phase::Aborting { reason: reason.to_owned(), again_at: self.now.saturating_add(RETRY_MS) };
        self.actions.push(Action::Abort { number, reason: reason.to_owned() });
        if counts {
            self.count_failure(&format!("{number}: {reason}"));
        }
    }

    /// All that still wait for acks. What is about to complete may: its outcome decides.
    fn give_up_all(&mut self, reason: &str) {
        let collecting = |(n, p): (&CheckpointNumber, &Pending)| (p.phase == Phase::Collecting).then_some(*n);
        let numbers: Vec<_> = self.pending.iter().filter_map(collecting).collect();
        for number in numbers {
            self.give_up(number, reason, false);
        }
    }

    fn count_failure(&mut self, reason: &str) {
        self.failures = self.failures.saturating_add(1);
        if self.failures > self.settings.tolerable_failures {
            let failures = self.failures;
            self.fail_job(format!("{failures} checkpoints failed in a row, the last one since {reason}"));
        }
    }

    fn fail_job(&mut self, reason: String) {
        if !matches!(self.mode, Mode::Running | Mode::Stopping) {
            return;
        }
        self.mode = Mode::Failed;
        self.empty_queue(&reason);
        self.give_up_all(&reason);
        self.actions.push(Action::FailJob { reason });
    }

    fn completed(&mut self, number: CheckpointNumber) {
        let Some(p) = self.pending.remove(&number) else { return };
        self.completed_at = Some(self.now);
        self.failures = 0;
        let mut gone = Vec::new();
        if !p.kind.is_savepoint() {
            self.retained.add(Held { which: Which::Own(number), kind: p.kind });
            gone = self.retained.subsume(self.settings.retained);
            self.actions.extend(gone.iter().map(|held| Action::Expire(*held)));
            let older = |(n, p): (&CheckpointNumber, &Pending)| {
                (*n < number && p.phase == Phase::Collecting && !p.kind.is_savepoint()).then_some(*n)
            };
            let older: Vec<_> = self.pending.iter().filter_map(older).collect();
            for n in older {
                self.give_up(n, &format!("{number} completed before it"), false);
            }
        }
        self.actions.push(Action::NotifyComplete(number));
        for held in gone {
            if let Which::Own(n) = held.which {
                self.actions.push(Action::NotifySubsumed(n));
            }
        }
        if let Some(id) = p.request {
            self.actions.push(Action::Answer { id, result: Ok(number) });
        }
        if self.mode == Mode::Ended {
            self.drop_retained();
        } else if (self.mode, p.kind) == (Mode::Stopping, TriggerKind::Savepoint { stop: true }) {
            self.end("the job was stopped with a savepoint");
        }
    }

    fn aborted(&mut self, number: CheckpointNumber) {
        let Some(p) = self.pending.remove(&number) else { return };
        self.actions.push(Action::NotifyAborted(number));
        let reason = match p.phase {
            Phase::Aborting { reason, .. } => reason,
            Phase::Collecting | Phase::Completing => "it was given up".to_owned(),
        };
        self.not_published(Wanted { kind: p.kind, request: p.request }, &format!("{number} was given up: {reason}"));
    }

    /// Answers whoever waits; a job that was to stop with it goes on.
    fn not_published(&mut self, wanted: Wanted, reason: &str) {
        if let Some(id) = wanted.request {
            self.actions.push(Action::Answer { id, result: Err(reason.to_owned()) });
        }
        if self.mode == Mode::Stopping && wanted.kind == (TriggerKind::Savepoint { stop: true }) {
            self.mode = Mode::Running;
            self.due = Some(self.now.saturating_add(self.interval()));
        }
    }

    fn abort_failed(&mut self, number: CheckpointNumber) {
        let again = self.now.saturating_add(RETRY_MS);
        if let Some(Phase::Aborting { again_at, .. }) = self.pending.get_mut(&number).map(|p| &mut p.phase) {
            *again_at = again;
        }
    }

    fn task_finished(&mut self, task: Task) {
        if !self.tasks.contains(&task) || !matches!(self.mode, Mode::Running | Mode::Stopping) {
            return;
        }
        let waiting: Vec<_> = self
            .pending
            .iter()
            .filter(|(_, p)| p.phase == Phase::Collecting && p.missing.contains(&task))
            .map(|(n, _)| *n)
            .collect();
        for number in waiting {
            self.give_up(number, &format!("{} finished before its snapshot", shown(&task)), false);
        }
        self.finished.insert(task);
        self.empty_queue("some of the job's tasks have finished");
        if self.finished == self.tasks {
            self.end("the job has finished");
        }
    }

    fn end(&mut self, why: &str) {
        if !matches!(self.mode, Mode::Running | Mode::Stopping) {
            return;
        }
        self.mode = Mode::Ended;
        self.empty_queue(why);
        self.give_up_all(why);
        self.drop_retained();
        self.actions.push(Action::Stop);
    }

    fn drop_retained(&mut self) {
        if !self.settings.retain_on_cancel {
            let gone = self.retained.take();
            self.actions.extend(gone.into_iter().map(Action::Expire));
        }
    }
}
