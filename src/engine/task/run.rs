//! The loop of a subtask: records, barriers and orders, until its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::chain::{Arrival, Subtask};
use super::data::Outputs;
use super::gate::{Arrived, Gate};
use super::operator::Produced;
use crate::engine::coordinator::{Notice, Order, TaskSide, Trigger, TriggerKind};
use crate::error::{Error, Kind, Result};

/// Longest that a task waits for input before it looks for orders.
const WAIT: Duration = Duration::from_millis(5);
/// Records between two looks for orders, where they are quick ones.
const RECORDS: usize = 256;
/// Longest between two looks for orders, one record aside: a barrier must not wait for 256 records that take a tenth of a second each.
const TURN: Duration = Duration::from_millis(10);

/// Where a subtask's records come from.
#[derive(Debug)]
pub enum Input {
    /// From its head, a source: its barriers start here.
    Source,
    /// From the tasks upstream.
    Gate(Gate),
}

/// How a subtask ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its input ended.
    Finished,
    /// It was told to stop.
    Stopped,
}

/// What a subtask is run with.
pub struct Run {
    /// The chain.
    pub subtask: Subtask,
    /// Where records come from.
    pub input: Input,
    /// Where they go.
    pub outputs: Outputs,
    /// Its end of the coordinator's words.
    pub side: Box<dyn TaskSide>,
    /// Set by whoever wants it dead: it ends at the next step, and cleans nothing up that a killed process would not.
    pub killed: Arc<AtomicBool>,
    /// Milliseconds since 1970.
    pub clock: fn() -> u64,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("subtask", &self.subtask).finish_non_exhaustive()
    }
}

/// A source between the barrier of its last savepoint and the word that it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Open,
    HeldFor(crate::types::CheckpointNumber),
}

impl Run {
    /// Runs it to its end.
    ///
    /// # Errors
    /// When an operator fails, a neighbour is gone, or the coordinator cannot be reached: the job must be restored.
    pub fn run(mut self) -> Result<Ending> {
        let mut flow = Flow::Open;
        loop {
            if self.killed.load(Ordering::Acquire) {
                return Err(Error::new(Kind::Other, "the task was killed"));
            }
            for order in self.side.poll()? {
                match order {
                    Order::Trigger(trigger) => {
                        if matches!(self.input, Input::Source) {
                            self.checkpoint(&trigger)?;
                            if trigger.kind == (TriggerKind::Savepoint { stop: true }) {
                                flow = Flow::HeldFor(trigger.number);
                            }
                        }
                    }
                    Order::Notice(notice) => {
                        self.notify(notice);
                        match notice {
                            Notice::Complete(n) if flow == Flow::HeldFor(n) => return self.finish(),
                            Notice::Aborted(n) if flow == Flow::HeldFor(n) => flow = Flow::Open,
                            _ => {}
                        }
                    }
                    Order::Stop => {
                        // Neighbours hear it a moment later, and must not take this one for dead.
                        self.outputs.leave();
                        if let Input::Gate(gate) = std::mem::replace(&mut self.input, Input::Source) {
                            gate.leave();
                        }
                        self.subtask.wait()?;
                        return Ok(Ending::Stopped);
                    }
                }
            }
            let ended = match &self.input {
                Input::Source if flow == Flow::Open => self.produce()?,
                Input::Source => {
                    std::thread::sleep(WAIT);
                    false
                }
                Input::Gate(_) => self.consume()?,
            };
            if ended {
                return self.finish();
            }
        }
    }

    fn checkpoint(&mut self, trigger: &Trigger) -> Result<()> {
        let start_delay = (self.clock)().saturating_sub(trigger.timestamp_ms);
        self.subtask.checkpoint(trigger, Arrival { start_delay, alignment: 0 }, &mut self.outputs)?;
        Ok(())
    }

    fn notify(&mut self, notice: Notice) {
        // What an operator makes of a notice is its own; the job goes on.
        if let Err(failure) = self.subtask.notify(notice) {
            log::warn!("a notice of {} failed: {failure}", notice.number());
        }
    }

    fn produce(&mut self) -> Result<bool> {
        let begun = Instant::now();
        for _ in 0..RECORDS {
            match self.subtask.produce(&mut self.outputs)? {
                Produced::Some if begun.elapsed() >= TURN => break,
                Produced::Some => {}
                Produced::Nothing => {
                    std::thread::sleep(WAIT);
                    break;
                }
                Produced::End => return Ok(true),
            }
        }
        Ok(false)
    }

    fn consume(&mut self) -> Result<bool> {
        let begun = Instant::now();
        for _ in 0..RECORDS {
            let Input::Gate(gate) = &self.input else { break };
            if begun.elapsed() >= TURN {
                break;
            }
            match gate.next(WAIT)? {
                Arrived::Record(record) => self.subtask.process(record, &mut self.outputs)?,
                Arrived::Watermark(t) => self.subtask.watermark(t, &mut self.outputs)?,
                Arrived::Barrier(barrier, arrival) => {
                    let start_delay = (self.clock)().saturating_sub(barrier.timestamp_ms);
                    let arrival = Arrival { start_delay, ..arrival };
                    self.subtask.checkpoint(&barrier, arrival, &mut self.outputs)?;
                    break;
                }
                Arrived::Cancelled(number) => {
                    self.notify(Notice::Aborted(number));
                    super::chain::Downstream::cancelled(&mut self.outputs, number)?;
                }
                Arrived::End => return Ok(true),
                Arrived::Nothing => break,
            }
        }
        Ok(false)
    }

    /// The input ended: what runs still reports, and the tasks downstream are told.
    fn finish(mut self) -> Result<Ending> {
        self.subtask.finish(&mut self.outputs)?;
        self.outputs.end()?;
        self.subtask.wait()?;
        let reporter = self.side.reporter();
        for (operator, index) in self.subtask.identities() {
            reporter.finished(&operator, index)?;
        }
        Ok(Ending::Finished)
    }
}
