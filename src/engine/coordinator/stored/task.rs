//! A task's end: looks for intents that expect it, and for what became of those that it took a snapshot for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{decided, ruling};
use crate::engine::coordinator::gateway::{Reporter, TaskSide};
use crate::engine::coordinator::machine::Task;
use crate::engine::coordinator::message::{AckReport, Notice, Order, Trigger, TriggerKind, short};
use crate::error::{Kind, Result};
use crate::format::{CheckpointKind, Intent, Verdict};
use crate::lifecycle::abort::Abort;
use crate::lifecycle::survey::number_of;
use crate::lifecycle::{LifecycleError, ack, catalog, driver};
use crate::store::{Listed, Store, StoreError};
use crate::types::{CheckpointNumber, Epoch, Key, Name, Prefix, RecordKind};

/// A task that hears of its coordinator through the store alone.
#[derive(Debug)]
pub struct StoredTask {
    period: Duration,
    looked: Option<Instant>,
    /// The newest number that was looked at.
    seen: Option<CheckpointNumber>,
    open: BTreeMap<CheckpointNumber, TriggerKind>,
    /// Published ones that policy may expire.
    held: BTreeSet<CheckpointNumber>,
    stopped: bool,
    reporter: Arc<StoredReporter>,
}

#[derive(Debug)]
struct StoredReporter {
    store: Store,
    job: Name,
    epoch: Epoch,
    tasks: Vec<Task>,
}

fn kind_of(intent: &Intent) -> TriggerKind {
    match intent.kind {
        CheckpointKind::Savepoint => TriggerKind::Savepoint { stop: intent.stop },
        CheckpointKind::Checkpoint if intent.bases.is_empty() => TriggerKind::Full,
        CheckpointKind::Checkpoint => TriggerKind::Checkpoint,
    }
}

impl StoredTask {
    /// A task of the reign with this epoch that runs these operators' subtasks. It looks at most once per period, however often it is asked.
    #[must_use]
    pub fn new(store: Store, job: Name, epoch: Epoch, tasks: Vec<Task>, period: Duration) -> Self {
        Self {
            period,
            looked: None,
            seen: None,
            open: BTreeMap::new(),
            held: BTreeSet::new(),
            stopped: false,
            reporter: Arc::new(StoredReporter { store, job, epoch, tasks }),
        }
    }

    fn look(&mut self) -> Result<Vec<Order>> {
        let mut orders = Vec::new();
        let r = Arc::clone(&self.reporter);
        // The epoch first, then outcomes: what was decided before the reign ended is heard before the order to stop.
        let over = ruling(&r.store, &r.job)? > r.epoch;
        let all_known = self.look_for_outcomes(&r, &mut orders);
        if over {
            // What a fenced coordinator began is nothing to work for.
            if all_known {
                self.stopped = true;
                orders.push(Order::Stop);
            }
            return Ok(orders);
        }
        self.look_for_intents(&r, &mut orders);
        self.look_for_tombstones(&r, &mut orders);
        Ok(orders)
    }

    /// What fails is logged and looked for again: the orders that were found must not be lost with it. Says whether nothing failed.
    fn look_for_outcomes(&mut self, r: &StoredReporter, orders: &mut Vec<Order>) -> bool {
        let mut all_known = true;
        for (number, kind) in self.open.clone() {
            let notice = match decided(&r.store, &r.job, number) {
                Ok(None) => continue,
                Ok(Some(Verdict::Completed(_))) => {
                    if !kind.is_savepoint() {
                        self.held.insert(number);
                    }
                    Notice::Complete(number)
                }
                Ok(Some(Verdict::Aborted { .. })) => Notice::Aborted(number),
                Err(e) => {
                    log::warn!("{}/{number}: what became of it is not known now: {e}", r.job);
                    all_known = false;
                    continue;
                }
            };
            self.open.remove(&number);
            orders.push(Order::Notice(notice));
        }
        all_known
    }

    fn look_for_intents(&mut self, r: &StoredReporter, orders: &mut Vec<Order>) {
        let found = match r.begun(self.seen) {
            Ok(found) => found,
            Err(e) => return log::warn!("{}: triggers cannot be looked for now: {e}", r.job),
        };
        for number in found {
            match r.trigger(number) {
                Ok(trigger) => {
                    self.seen = Some(number);
                    if let Some(trigger) = trigger {
                        self.open.insert(number, trigger.kind);
                        orders.push(Order::Trigger(trigger));
                    }
                }
                Err(e) if e.kind() == Kind::Damage => {
                    log::warn!("{}/{number} is not taken part in: {e}", r.job);
                    self.seen = Some(number);
                }
                // In order, or not at all: looked for again.
                Err(e) => return log::warn!("{}/{number} cannot be read now: {e}", r.job),
            }
        }
    }

    /// The newest one is never subsumed.
    fn look_for_tombstones(&mut self, r: &StoredReporter, orders: &mut Vec<Order>) {
        let Some(newest) = self.held.last().copied() else { return };
        for number in self.held.clone().into_iter().filter(|n| *n < newest) {
            if matches!(r.store.head(&Key::expired(&r.job, number)), Ok(Some(_))) {
                self.held.remove(&number);
                orders.push(Order::Notice(Notice::Subsumed(number)));
            }
        }
    }
}

impl TaskSide for StoredTask {
    fn poll(&mut self) -> Result<Vec<Order>> {
        if self.stopped || self.looked.is_some_and(|at| at.elapsed() < self.period) {
            return Ok(Vec::new());
        }
        self.looked = Some(Instant::now());
        self.look()
    }

    fn reporter(&self) -> Arc<dyn Reporter> {
        Arc::<StoredReporter>::clone(&self.reporter)
    }
}

impl StoredReporter {
    /// Numbers that were begun after this one; all that are undecided at the first look.
    fn begun(&self, after: Option<CheckpointNumber>) -> Result<Vec<CheckpointNumber>, StoreError> {
        let intents = Prefix::job(RecordKind::Intent, &self.job);
        let numbers = |listed: Vec<Listed>| listed.into_iter().filter_map(|l| number_of(&l.key));
        if let Some(n) = after {
            return Ok(numbers(self.store.list_after(&intents, &Key::intent(&self.job, n))?).collect());
        }
        // Not one by one: a job has thousands. Outcomes last: what is decided between the lists is seen as decided.
        let begun: Vec<_> = numbers(self.store.list(&intents)?).collect();
        let outcomes = self.store.list(&Prefix::job(RecordKind::Outcome, &self.job))?;
        let outcomes: BTreeSet<_> = numbers(outcomes).collect();
        Ok(begun.into_iter().filter(|n| !outcomes.contains(n)).collect())
    }

    /// What an intent asks of these tasks: nothing, if it is none of this reign's, does not expect them or is decided already.
    fn trigger(&self, number: CheckpointNumber) -> Result<Option<Trigger>, LifecycleError> {
        let Some(intent) = catalog::intent(&self.store, &self.job, number)? else { return Ok(None) };
        let expects = |(operator, subtask): &Task| ack::expects(&intent, &self.job, number, operator, *subtask).is_ok();
        if intent.epoch != self.epoch || !intent.detached || !self.tasks.iter().all(expects) {
            return Ok(None);
        }
        if decided(&self.store, &self.job, number)?.is_some() {
            return Ok(None);
        }
        let (uid, kind) = (intent.place.uid, kind_of(&intent));
        Ok(Some(Trigger { number, uid, timestamp_ms: intent.opened_ms, kind }))
    }

    fn give_up(&self, number: CheckpointNumber, (operator, subtask): &Task, reason: &str) -> Result<()> {
        let reason = short(&format!("{operator}/{subtask}: {reason}"));
        match driver::run(&self.store, Abort::new(self.job.clone(), number, reason)) {
            // Decided: there is nothing left to decline.
            Ok(_) | Err(LifecycleError::Completed { .. }) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Gives up what waits for an ack that will never come.
    fn give_up_all(&self, task: &Task, reason: &str) -> Result<()> {
        for number in self.begun(None)? {
            let Some(trigger) = self.trigger(number)? else { continue };
            let acked = self.store.head(&Key::task(&self.job, trigger.number, &task.0, task.1))?;
            if acked.is_none() {
                self.give_up(trigger.number, task, reason)?;
            }
        }
        Ok(())
    }
}

impl Reporter for StoredReporter {
    /// The task manifest is in the store: that is the word.
    fn acked(&self, _: CheckpointNumber, _: &Name, _: u32, _: &AckReport) -> Result<()> {
        Ok(())
    }

    fn declined(&self, number: CheckpointNumber, operator: &Name, subtask: u32, reason: &str) -> Result<()> {
        self.give_up(number, &(operator.clone(), subtask), reason)
    }

    fn failed(&self, operator: &Name, subtask: u32, reason: &str) -> Result<()> {
        self.give_up_all(&(operator.clone(), subtask), &format!("it failed: {reason}"))
    }

    fn finished(&self, operator: &Name, subtask: u32) -> Result<()> {
        self.give_up_all(&(operator.clone(), subtask), "it has finished")
    }
}
