//! The async phase of a whole subtask: every operator's futures are run, the local copies are recorded, and the snapshot is acknowledged.
//!
//! It is RUNNING, COMPLETED or DISCARDED, and one atomic says which: whoever wins the step away from RUNNING (or from COMPLETED, where
//! reporting failed) owns what is to be cleaned up.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::directory;
use super::environment::OpenCheckpoint;
use super::failure::{Collected, Failure};
use super::futures::{Finalised, OperatorSnapshotFutures};
use super::runner::Sizes;
use crate::engine::cancel::Cancel;
use crate::engine::coordinator::AckReport;
use crate::engine::upload;
use crate::error::{Error, Kind, Result};
use crate::types::{KeyGroupRange, Name};

/// Where an async phase is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AsyncState {
    /// Its futures are being run.
    Running = 0,
    /// They are done, and it reports, or has reported.
    Completed = 1,
    /// It came to nothing.
    Discarded = 2,
}

/// One operator of it.
#[derive(Debug)]
pub struct OperatorPart {
    /// Its name in the store.
    pub id: Name,
    /// Its name as its author writes it.
    pub name: String,
    /// Key groups of its keyed state.
    pub key_groups: Option<KeyGroupRange>,
    /// What is to be run.
    pub futures: OperatorSnapshotFutures,
}

/// Durations that are known when the async phase begins, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Durations {
    /// From the trigger to the barrier's arrival.
    pub start_delay: u64,
    /// From the first barrier to the last one of all inputs.
    pub alignment: u64,
    /// The sync phase.
    pub sync: u64,
}

/// The async phase.
#[derive(Debug)]
pub struct AsyncPart {
    checkpoint: Arc<OpenCheckpoint>,
    operators: Vec<OperatorPart>,
    durations: Durations,
    begun: Instant,
    state: AtomicU8,
    cancel: Cancel,
    /// Local directories that were handed over, and are recorded by nobody yet.
    local: Mutex<Vec<std::path::PathBuf>>,
}

/// How it ended.
#[derive(Debug)]
pub enum Ended {
    /// Every operator acknowledged.
    Acknowledged,
    /// It failed, and the coordinator was told.
    Declined(Error),
    /// It failed, and the coordinator could not be told: the task must fail.
    Unreported(Error),
    /// Somebody closed it before.
    Closed,
}

impl AsyncPart {
    /// The async phase of these operators.
    #[must_use]
    pub fn new(checkpoint: Arc<OpenCheckpoint>, operators: Vec<OperatorPart>, durations: Durations) -> Arc<Self> {
        let (state, cancel, local) = (AtomicU8::new(AsyncState::Running as u8), Cancel::default(), Mutex::default());
        Arc::new(Self { checkpoint, operators, durations, begun: Instant::now(), state, cancel, local })
    }

    /// Where it is.
    #[must_use]
    pub fn state(&self) -> AsyncState {
        match self.state.load(Ordering::Acquire) {
            0 => AsyncState::Running,
            1 => AsyncState::Completed,
            _ => AsyncState::Discarded,
        }
    }

    fn step(&self, from: AsyncState, to: AsyncState) -> bool {
        self.state.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn report(&self) -> AckReport {
        AckReport {
            logical_bytes: 0,
            new_bytes: 0,
            start_delay_ms: self.durations.start_delay,
            alignment_ms: self.durations.alignment,
            sync_ms: self.durations.sync,
            async_ms: u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Runs it to its end.
    pub fn run(&self) -> Ended {
        let result = self.finalise().and_then(|finalised| {
            if self.step(AsyncState::Running, AsyncState::Completed) {
                self.acknowledge(finalised).map(|()| Ended::Acknowledged)
            } else {
                log::debug!("{}: its async phase was closed before it ended", self.checkpoint.number);
                // Whoever closed it may have done so before these directories were handed over.
                self.drop_local().map(|()| Ended::Closed)
            }
        });
        match result {
            Ok(ended) => ended,
            Err(failed) => {
                self.checkpoint.environment().session.work.failed_snapshots.inc();
                self.failed(failed)
            }
        }
    }

    fn finalise(&self) -> Result<Vec<Finalised>, Failed> {
        let mut all = Vec::with_capacity(self.operators.len());
        for operator in &self.operators {
            let (id, name) = (&operator.id, operator.name.as_str());
            let (report, cancel) = (&|| self.report(), &self.cancel);
            let finalised =
                operator.futures.finalise(&self.checkpoint, (id, name), operator.key_groups, (report, cancel));
            let finalised = finalised.map_err(|error| Failed { operator: id.clone(), error })?;
            self.local.lock().unwrap_or_else(PoisonError::into_inner).extend(finalised.local.clone());
            all.push(finalised);
        }
        Ok(all)
    }

    /// The local copies first: a checkpoint that completes has them. Then the acks.
    fn acknowledge(&self, finalised: Vec<Finalised>) -> Result<(), Failed> {
        let environment = self.checkpoint.environment();
        let number = self.checkpoint.number;
        let first = self.operators.first().map(|o| o.id.clone());
        let failed = |operator: &Name| {
            let operator = operator.clone();
            move |error| Failed { operator, error }
        };
        if let (Some(local), Some(first)) = (&environment.local, &first)
            && finalised.iter().any(|f| f.local.is_some())
        {
            local.store(number, self.checkpoint.uid).map_err(failed(first))?;
        }
        for (operator, finalised) in self.operators.iter().zip(finalised) {
            let acked = upload::acknowledge(&environment.session, finalised.finished).map_err(failed(&operator.id))?;
            let report = AckReport { logical_bytes: acked.logical_bytes, new_bytes: acked.new_bytes, ..self.report() };
            let told = environment.reporter.acked(number, &operator.id, environment.subtask, &report);
            told.map_err(failed(&operator.id))?;
        }
        Ok(())
    }

    fn failed(&self, failed: Failed) -> Ended {
        loop {
            let now = self.state();
            if now == AsyncState::Discarded {
                return Ended::Closed;
            }
            if self.step(now, AsyncState::Discarded) {
                break;
            }
        }
        let mut failure = Failure::new(failed.error);
        if let Err(cleaning) = self.clean_up() {
            failure.suppress(cleaning.first);
            cleaning.suppressed.into_iter().for_each(|e| failure.suppress(e));
        }
        let environment = self.checkpoint.environment();
        let number = self.checkpoint.number;
        let error = failure.into_error(format!("the async phase of {number} failed in operator {}", failed.operator));
        log::info!("{error:#}");
        match environment.reporter.declined(number, &failed.operator, environment.subtask, error.message()) {
            Ok(()) => Ended::Declined(error),
            Err(e) => Ended::Unreported(Error::with_source(
                Kind::Other,
                format!("{error}; and the coordinator could not be told: {e}"),
                error,
            )),
        }
    }

    /// Ends it from outside. What it had come to is cleaned up, unless it reports already. Returns what was thrown away.
    ///
    /// # Errors
    /// The first thing that could not be cleaned up, with the later ones.
    pub fn close(&self) -> Result<Option<Sizes>, Failure> {
        if !self.step(AsyncState::Running, AsyncState::Discarded) {
            log::debug!("{}: its async phase has ended already", self.checkpoint.number);
            return Ok(None);
        }
        self.clean_up().map(Some)
    }

    fn clean_up(&self) -> Result<Sizes, Failure> {
        self.cancel.cancel();
        let (mut sizes, mut failures) = (Sizes::default(), Collected::default());
        for operator in &self.operators {
            match operator.futures.cancel() {
                Ok(s) => sizes = sizes.and(s),
                Err(failure) => {
                    failures.take(Err(failure.first));
                    failure.suppressed.into_iter().for_each(|e| failures.take(Err(e)));
                }
            }
        }
        failures.take(self.drop_local().map_err(|f| f.error));
        failures.finish().map(|()| sizes)
    }

    fn drop_local(&self) -> Result<(), Failed> {
        let directories = std::mem::take(&mut *self.local.lock().unwrap_or_else(PoisonError::into_inner));
        let mut failures = Collected::default();
        directories.iter().for_each(|d| failures.take(directory::remove(d)));
        let operator = self.operators.first().map_or_else(|| Name::encode("task"), |o| o.id.clone());
        failures.finish().map_err(|f| Failed { operator, error: f.into_error("cannot remove local copies") })
    }
}

struct Failed {
    operator: Name,
    error: Error,
}
