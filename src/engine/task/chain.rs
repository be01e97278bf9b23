//! The checkpoints of one subtask: its chain of operators, what it does when a barrier comes, and whom it tells of the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use super::async_part::{AsyncPart, Durations, Ended, OperatorPart};
use super::data::{Collector, Record, Rest};
use super::environment::{Environment, OpenCheckpoint};
use super::failure::{Collected, Failure, guarded};
use super::operator::{ChainedOperator, Produced, StreamOperator};
use crate::engine::coordinator::{Notice, Trigger};
use crate::error::{Error, Kind, Result};
use crate::limits;
use crate::types::{CheckpointNumber, Name};

/// A barrier: where a checkpoint cuts the stream.
pub type Barrier = Trigger;

/// What lies downstream of a chain.
pub trait Downstream {
    /// Sends a barrier to every output.
    ///
    /// # Errors
    /// When an output is gone.
    fn barrier(&mut self, barrier: &Barrier) -> Result<()>;

    /// Tells every output that no barrier of this checkpoint will come.
    ///
    /// # Errors
    /// When an output is gone.
    fn cancelled(&mut self, number: CheckpointNumber) -> Result<()>;
}

/// What a barrier led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The async phase runs.
    Running,
    /// It came out of order: a newer one was here before.
    Late,
    /// It had been given up before it came.
    Aborted,
    /// The sync phase failed, and the coordinator was told.
    Declined,
}

/// How a barrier arrived, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arrival {
    /// Since its trigger.
    pub start_delay: u64,
    /// Since the first of all inputs brought it.
    pub alignment: u64,
}

type Running = Arc<Mutex<BTreeMap<CheckpointNumber, Arc<AsyncPart>>>>;

/// A chain of operators, the head first, with its checkpoints.
pub struct Subtask {
    environment: Arc<Environment>,
    chain: Vec<ChainedOperator>,
    last: Option<CheckpointNumber>,
    aborted: BTreeSet<CheckpointNumber>,
    /// The highest that was ever forgotten of them: it and all below count as aborted.
    forgotten: Option<CheckpointNumber>,
    running: Running,
    threads: Vec<JoinHandle<()>>,
    /// The first async phase whose failure could not be reported.
    fatal: Arc<Mutex<Option<Error>>>,
}

impl std::fmt::Debug for Subtask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subtask").field("chain", &self.chain).field("last", &self.last).finish_non_exhaustive()
    }
}

impl Subtask {
    /// A subtask that has taken no checkpoint yet.
    #[must_use]
    pub fn new(environment: Arc<Environment>, chain: Vec<ChainedOperator>) -> Self {
        Self {
            environment,
            chain,
            last: None,
            aborted: BTreeSet::new(),
            forgotten: None,
            running: Running::default(),
            threads: Vec::new(),
            fatal: Arc::default(),
        }
    }

    /// An operator of the chain, for what its author does with it between checkpoints.
    pub fn operator(&mut self, index: usize) -> Option<&mut (dyn StreamOperator + 'static)> {
        self.chain.get_mut(index).map(|o| &mut *o.operator)
    }

    /// The chain.
    #[must_use]
    pub fn chain(&self) -> &[ChainedOperator] {
        &self.chain
    }

    fn running(&self) -> std::sync::MutexGuard<'_, BTreeMap<CheckpointNumber, Arc<AsyncPart>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_aborted(&mut self, number: CheckpointNumber) -> bool {
        self.aborted.remove(&number) || self.forgotten.is_some_and(|f| number <= f)
    }

    /// A barrier is here, from all inputs. The barrier goes on before the snapshot is taken, so that the tasks downstream begin
    /// theirs meanwhile.
    ///
    /// # Errors
    /// When an output is gone, or the coordinator cannot be told that the sync phase failed: the task must fail then.
    pub fn checkpoint(
        &mut self,
        barrier: &Barrier,
        arrival: Arrival,
        downstream: &mut dyn Downstream,
    ) -> Result<Taken> {
        self.reap()?;
        let number = barrier.number;
        if self.last.is_some_and(|last| last >= number) {
            log::info!("the barrier of {number} came after a newer one: nothing is taken");
            self.aborted.remove(&number);
            return Ok(Taken::Late);
        }
        self.last = Some(number);
        if self.is_aborted(number) {
            downstream.cancelled(number)?;
            return Ok(Taken::Aborted);
        }
        let checkpoint =
            Arc::new(OpenCheckpoint::new(Arc::clone(&self.environment), number, barrier.uid, barrier.kind));
        for operator in self.chain.iter_mut().filter(|o| !o.operator.is_closed()) {
            let prepared =
                guarded("prepare_snapshot_pre_barrier", || operator.operator.prepare_snapshot_pre_barrier(number));
            if let Err(e) = prepared {
                let (id, name) = (operator.id.clone(), operator.name.clone());
                // The tasks downstream wait for a barrier that will not come.
                downstream.cancelled(number)?;
                let e = e.context(format!("Could not complete snapshot {} for operator {name}", number.get()));
                return self.decline(number, &id, &e);
            }
        }
        downstream.barrier(barrier)?;
        let begun = Instant::now();
        let mut parts = Vec::with_capacity(self.chain.len());
        for operator in self.chain.iter_mut().rev().filter(|o| !o.operator.is_closed()) {
            match operator.snapshot(&checkpoint, barrier.timestamp_ms) {
                Ok(futures) => parts.push(OperatorPart {
                    key_groups: operator.key_groups(),
                    id: operator.id.clone(),
                    name: operator.name.clone(),
                    futures,
                }),
                Err(e) => {
                    let id = operator.id.clone();
                    return self.give_up(number, &id, &parts, Failure::new(e));
                }
            }
        }
        let sync = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let durations = Durations { start_delay: arrival.start_delay, alignment: arrival.alignment, sync };
        let part = AsyncPart::new(checkpoint, parts, durations);
        self.register(number, &part)?;
        self.start(number, part)?;
        Ok(Taken::Running)
    }

    /// Whatever futures the sync phase had made are cancelled, and the coordinator is told.
    fn give_up(
        &self,
        number: CheckpointNumber,
        operator: &Name,
        parts: &[OperatorPart],
        mut failure: Failure,
    ) -> Result<Taken> {
        for part in parts {
            if let Err(cancelled) = part.futures.cancel() {
                failure.suppress(cancelled.first);
                cancelled.suppressed.into_iter().for_each(|e| failure.suppress(e));
            }
        }
        if failure.suppressed.is_empty() {
            return self.decline(number, operator, &failure.first);
        }
        let message = failure.to_string();
        self.decline(number, operator, &Error::with_source(failure.first.kind(), message, failure))
    }

    fn decline(&self, number: CheckpointNumber, operator: &Name, e: &Error) -> Result<Taken> {
        let told = self.environment.reporter.declined(number, operator, self.environment.subtask, e.message());
        told.map(|()| Taken::Declined)
    }

    pub(super) fn register(&self, number: CheckpointNumber, part: &Arc<AsyncPart>) -> Result<()> {
        let mut running = self.running();
        if running.contains_key(&number) {
            let what = format!("a snapshot of {number} runs already");
            return Err(Error::new(Kind::Conflict, what));
        }
        running.insert(number, Arc::clone(part));
        Ok(())
    }

    fn start(&mut self, number: CheckpointNumber, part: Arc<AsyncPart>) -> Result<()> {
        let (running, fatal) = (Arc::clone(&self.running), Arc::clone(&self.fatal));
        let cleaner = Arc::clone(&part);
        let spawned = std::thread::Builder::new().name(format!("async {number}")).spawn(move || {
            let ended = part.run();
            running.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
            if let Ended::Unreported(e) = ended {
                fatal.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
            }
        });
        match spawned {
            Ok(thread) => {
                self.threads.push(thread);
                Ok(())
            }
            Err(e) => {
                self.running().remove(&number);
                let e =
                    Error::with_source(Kind::Resources, format!("no thread for the async phase of {number}: {e}"), e);
                let first = cleaner.close().err().map(|failure| failure.into_error("while cleaning up"));
                first.into_iter().for_each(|later| log::warn!("{later}"));
                Err(e)
            }
        }
    }

    /// Forgets threads that are done.
    fn reap(&mut self) -> Result<()> {
        self.threads.retain(|t| !t.is_finished());
        match self.fatal.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// Passes a notice on: to the operators first, and then, whatever they say, to the local state store.
    ///
    /// # Errors
    /// The first failure with the later ones. All were told.
    pub fn notify(&mut self, notice: Notice) -> Result<(), Failure> {
        let mut failures = Collected::default();
        if let Notice::Aborted(number) = notice {
            failures.take(self.abort(number));
        }
        for operator in &mut self.chain {
            let name = operator.name.clone();
            let told = guarded("a notification", || match notice {
                Notice::Complete(n) => operator.operator.notify_complete(n),
                Notice::Aborted(n) => operator.operator.notify_aborted(n),
                Notice::Subsumed(n) => operator.operator.notify_subsumed(n),
            });
            failures.take(told.map_err(|e| e.context(format!("operator {name}"))));
        }
        if let Some(local) = &self.environment.local {
            failures.take(match notice {
                Notice::Complete(n) => local.confirm(n),
                Notice::Aborted(n) | Notice::Subsumed(n) => local.abort(n),
            });
        }
        failures.finish()
    }

    /// Ends the async phase of a checkpoint; one that has not come yet is remembered, so that its barrier is refused.
    fn abort(&mut self, number: CheckpointNumber) -> Result<()> {
        let running = self.running().remove(&number);
        if let Some(part) = running {
            return part.close().map(drop).map_err(|f| f.into_error(format!("cannot give {number} up cleanly")));
        }
        if self.last.is_none_or(|last| number > last) {
            self.aborted.insert(number);
            while self.aborted.len() > limits::ABORTED_REMEMBERED {
                self.forgotten = self.forgotten.max(self.aborted.pop_first());
            }
        }
        Ok(())
    }

    /// A record goes through the chain.
    ///
    /// # Errors
    /// The operator's own, with its name.
    pub fn process(&mut self, record: Record, outputs: &mut dyn Collector) -> Result<()> {
        Rest { chain: &mut self.chain, outputs }.collect(record)
    }

    /// A watermark goes through the chain.
    ///
    /// # Errors
    /// As [`Subtask::process`].
    pub fn watermark(&mut self, timestamp: i64, outputs: &mut dyn Collector) -> Result<()> {
        Rest { chain: &mut self.chain, outputs }.watermark(timestamp)
    }

    /// The head sends some records.
    ///
    /// # Errors
    /// As [`Subtask::process`].
    pub fn produce(&mut self, outputs: &mut dyn Collector) -> Result<Produced> {
        let Some((head, chain)) = self.chain.split_first_mut() else { return Ok(Produced::End) };
        let mut rest = Rest { chain, outputs };
        guarded("produce", || head.operator.produce(&mut rest))
    }

    /// The input ended, for every operator from the head on.
    ///
    /// # Errors
    /// As [`Subtask::process`].
    pub fn finish(&mut self, outputs: &mut dyn Collector) -> Result<()> {
        for i in 0..self.chain.len() {
            let Some((operator, chain)) = self.chain.get_mut(i..).and_then(<[_]>::split_first_mut) else { break };
            let mut rest = Rest { chain, outputs };
            guarded("finish", || operator.operator.finish(&mut rest))?;
        }
        Ok(())
    }

    /// The operators' names in the store, with the subtask's index.
    #[must_use]
    pub fn identities(&self) -> Vec<(Name, u32)> {
        self.chain.iter().map(|o| (o.id.clone(), self.environment.subtask)).collect()
    }

    /// Waits until all async phases have ended.
    ///
    /// # Errors
    /// When one could not report its failure.
    pub fn wait(&mut self) -> Result<()> {
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                return Err(Error::new(Kind::Other, "internal: an async phase panicked"));
            }
        }
        self.reap()
    }

    /// Ends everything: what runs is cancelled, the backends are closed.
    pub fn close(&mut self) {
        let running: Vec<_> = std::mem::take(&mut *self.running()).into_values().collect();
        for part in running {
            if let Err(failure) = part.close() {
                log::warn!("{failure}");
            }
        }
        self.chain.iter_mut().for_each(ChainedOperator::close);
        if let Err(e) = self.wait() {
            log::warn!("{e}");
        }
    }
}

impl Drop for Subtask {
    fn drop(&mut self) {
        self.close();
    }
}
