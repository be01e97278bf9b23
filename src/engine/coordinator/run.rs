//! The loop of a coordinator: hears tasks and people, asks the machine what follows, and does it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::gateway::Gateway;
use super::machine::{Action, Coordinator, Input, Task};
use super::message::{Notice, TaskEvent, TriggerKind};
use super::reign::{Ended, Reign};
use crate::error::{Error, Kind, Result};
use crate::types::CheckpointNumber;

/// Longest wait for tasks in one turn: how late a command or a tick may be.
const TURN: Duration = Duration::from_millis(20);

/// Time between two looks for a higher epoch. Nothing hangs on it: every open, completion and expiry looks itself. Short enough that the tasks of a
/// fenced coordinator do not work in vain for long, long enough to be no load.
const LOOK: Duration = Duration::from_secs(5);

type Answer = Result<CheckpointNumber, String>;

enum Command {
    Take(TriggerKind, Sender<Answer>),
    Failed(Task, String),
    Cancel,
    Halt,
}

/// What people have of a running coordinator. Clones are the same.
#[derive(Clone)]
pub struct Control(Sender<Command>);

/// The other end of a [`Control`], for [`run`].
pub struct Commands(Receiver<Command>);

/// A checkpoint that was asked for.
pub struct Asked(Receiver<Answer>);

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Control")
    }
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Commands")
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asked")
    }
}

/// A control and its other end.
#[must_use]
pub fn control() -> (Control, Commands) {
    let (tell, hear) = channel();
    (Control(tell), Commands(hear))
}

impl Control {
    /// Asks for a checkpoint now. A savepoint with `stop` ends the job.
    #[must_use]
    pub fn take(&self, kind: TriggerKind) -> Asked {
        let (tell, hear) = channel();
        // A coordinator that is gone drops the sender: the asker is told so.
        let _ = self.0.send(Command::Take(kind, tell));
        Asked(hear)
    }

    /// Says that a task died, by whoever saw its process end: one that is killed says nothing itself. The job must be restored then.
    pub fn failed(&self, task: Task, reason: &str) {
        let _ = self.0.send(Command::Failed(task, reason.to_owned()));
    }

    /// Ends the job without a savepoint.
    pub fn cancel(&self) {
        let _ = self.0.send(Command::Cancel);
    }

    /// Ends the coordinator and nothing else, as if its process had died: what is open stays so until another one takes over.
    pub fn halt(&self) {
        let _ = self.0.send(Command::Halt);
    }
}

impl Asked {
    /// Waits until it is published.
    ///
    /// # Errors
    /// [`Kind::Conflict`] with the reason when it was given up, [`Kind::NotFound`] when the coordinator ended first, [`Kind::Unavailable`] when the
    /// wait was too long.
    pub fn wait(&self, patience: Duration) -> Result<CheckpointNumber> {
        match self.0.recv_timeout(patience) {
            Ok(Ok(number)) => Ok(number),
            Ok(Err(reason)) => Err(Error::new(Kind::Conflict, format!("no checkpoint was taken: {reason}"))),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::new(Kind::NotFound, "no checkpoint was taken: the coordinator ended"))
            }
            Err(RecvTimeoutError::Timeout) => {
                let ms = patience.as_millis();
                Err(Error::new(Kind::Unavailable, format!("the checkpoint is not complete after {ms} ms")))
            }
        }
    }
}

/// How a coordinator ended.
#[derive(Debug)]
pub enum RunEnd {
    /// The job ended: it was cancelled, stopped with a savepoint, or finished.
    Stopped,
    /// The job failed. Whoever restores it begins a new reign first: what is still open is decided by that.
    Failed {
        /// Why.
        reason: String,
    },
    /// Another coordinator took the job over.
    Fenced(Error),
    /// It was halted.
    Halted,
}

/// Hears what the coordinator hears, before it acts: for people and statistics.
pub type Observer<'a> = &'a mut dyn FnMut(&Input);

/// Coordinates until the job ends, fails or is taken over. The tasks are told to stop then, except after a halt. `clock` gives
/// milliseconds and never goes back.
pub fn run(
    reign: &Reign,
    coordinator: &mut Coordinator,
    gateway: &dyn Gateway,
    clock: &dyn Fn() -> u64,
    commands: Commands,
    observe: Observer<'_>,
) -> RunEnd {
    // It takes the commands with it: whoever asks later is told that nobody is there.
    let turning = Loop { reign, coordinator, gateway, clock, commands, observe, asked: Vec::new(), end: None };
    let end = turning.turn_until_end();
    if !matches!(end, RunEnd::Halted)
        && let Err(e) = gateway.stop()
    {
        log::warn!("{}: tasks of epoch {} may not know that they are to stop: {e}", reign.job(), reign.epoch());
    }
    end
}

struct Loop<'a> {
    reign: &'a Reign,
    coordinator: &'a mut Coordinator,
    gateway: &'a dyn Gateway,
    clock: &'a dyn Fn() -> u64,
    commands: Commands,
    observe: Observer<'a>,
    asked: Vec<(u64, Sender<Answer>)>,
    end: Option<RunEnd>,
}

impl Loop<'_> {
    fn turn_until_end(mut self) -> RunEnd {
        self.take_in(Input::Recovered { checkpoints: self.reign.recovered() });
        self.take_in(Input::Tick((self.clock)()));
        let mut looked = Instant::now();
        let mut last_id = 0;
        loop {
            if let Some(end) = self.end.take() {
                return end;
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look();
                continue;
            }
            while self.end.is_none()
                && let Ok(command) = self.commands.0.try_recv()
            {
                match command {
                    Command::Halt => return RunEnd::Halted,
                    Command::Cancel => self.take_in(Input::Cancel),
                    Command::Failed(task, reason) => self.take_in(Input::TaskFailed { task, reason }),
                    Command::Take(kind, tell) => {
                        last_id += 1;
                        self.asked.push((last_id, tell));
                        self.take_in(Input::Request { id: last_id, kind });
                    }
                }
            }
            if self.end.is_none() {
                self.hear();
            }
        }
    }

    /// What the tasks say first, then the time: an ack that came in time is not late because the store was slow.
    fn hear(&mut self) {
        let now = (self.clock)();
        let until_tick = self.coordinator.next_tick().map(|at| Duration::from_millis(at.saturating_sub(now)));
        let wait = until_tick.unwrap_or(TURN).min(TURN);
        match self.gateway.poll(wait) {
            Ok(events) => {
                for event in events {
                    self.take_in(input_of(event));
                }
            }
            Err(e) => {
                log::warn!("{}: nothing can be heard from the tasks now: {e}", self.reign.job());
                std::thread::sleep(wait);
            }
        }
        self.take_in(Input::Tick((self.clock)()));
    }

    fn look(&mut self) {
        match self.reign.look() {
            Err(e) if e.kind() == Kind::Fenced => self.end = Some(RunEnd::Fenced(e)),
            Err(e) => log::warn!("{}: it is not known who rules: {e}", self.reign.job()),
            Ok(()) => {}
        }
    }

    /// One input and all that follows from it.
    fn take_in(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            if self.fenced() {
                return;
            }
            (self.observe)(&input);
            for action in self.coordinator.step(input) {
                if self.fenced() {
                    return;
                }
                inputs.extend(self.perform(action));
            }
        }
    }

    /// What ends by itself still does what it said; who is fenced does nothing more.
    fn fenced(&self) -> bool {
        matches!(self.end, Some(RunEnd::Fenced(_)))
    }

    /// An error's words, unless it is the end of the reign.
    fn words(&mut self, e: Error) -> Option<String> {
        if e.kind() == Kind::Fenced {
            self.end = Some(RunEnd::Fenced(e));
            return None;
        }
        Some(format!("{e:#}"))
    }

    fn perform(&mut self, action: Action) -> Option<Input> {
        match action {
            Action::Open(kind) => match self.reign.open(kind) {
                Ok(opened) => {
                    let (number, intent) = (opened.number, opened.intent);
                    Some(Input::Opened { number, uid: intent.place.uid, timestamp_ms: intent.opened_ms })
                }
                Err(e) => self.words(e).map(|reason| Input::OpenFailed { reason }),
            },
            Action::Trigger(trigger) => match self.gateway.trigger(&trigger) {
                Ok(()) => None,
                Err(e) => self.words(e).map(|reason| Input::TriggerFailed { number: trigger.number, reason }),
            },
            Action::Complete(number) => match self.reign.complete(number) {
                Ok(_) => Some(Input::CompleteDone { number }),
                Err(e) => self.words(e).map(|reason| Input::CompleteFailed { number, reason }),
            },
            Action::Abort { number, reason } => {
                log::warn!("{}/{number} is given up: {reason}", self.reign.job());
                match self.reign.abort(number, &reason) {
                    Ok(Ended::Aborted) => Some(Input::Aborted { number }),
                    Ok(Ended::Completed) => Some(Input::CompleteDone { number }),
                    Err(e) => {
                        let words = self.words(e)?;
                        log::warn!("{}/{number} stays open for now: {words}", self.reign.job());
                        Some(Input::AbortFailed { number })
                    }
                }
            }
            Action::NotifyComplete(n) => self.notify(Notice::Complete(n)),
            Action::NotifyAborted(n) => self.notify(Notice::Aborted(n)),
            Action::NotifySubsumed(n) => self.notify(Notice::Subsumed(n)),
            Action::Expire(held) => match self.reign.expire(&held) {
                Ok(_) => None,
                Err(e) => {
                    let words = self.words(e)?;
                    log::warn!("{}: {:?} stays for now: {words}", self.reign.job(), held.which);
                    Some(Input::ExpireFailed { held })
                }
            },
            Action::Tell { number, task: (operator, subtask), verdict } => {
                log::debug!(
                    "{}/{number}: the word of {operator}/{subtask} changes nothing ({verdict:?})",
                    self.reign.job()
                );
                None
            }
            Action::Answer { id, result } => {
                if let Some(at) = self.asked.iter().position(|(asked, _)| *asked == id) {
                    // Who asked may have gone.
                    let _ = self.asked.swap_remove(at).1.send(result);
                }
                None
            }
            Action::FailJob { reason } => {
                // Who runs it is told by its end.
                log::info!("job {} fails: {reason}", self.reign.job());
                self.end = Some(RunEnd::Failed { reason });
                None
            }
            Action::Stop => {
                self.end = Some(RunEnd::Stopped);
                None
            }
        }
    }

    fn notify(&mut self, notice: Notice) -> Option<Input> {
        if let Err(e) = self.gateway.notify(&notice) {
            log::warn!("{}: {notice:?} is lost, which costs uploads at most: {e}", self.reign.job());
        }
        None
    }
}

fn input_of(event: TaskEvent) -> Input {
    match event {
        TaskEvent::Acked { number, operator, subtask, report } => {
            Input::Acked { number, task: (operator, subtask), report }
        }
        TaskEvent::Declined { number, operator, subtask, reason } => {
            Input::Declined { number, task: (operator, subtask), reason }
        }
        TaskEvent::Aborted { number, reason } => Input::AbortedElsewhere { number, reason },
        TaskEvent::Failed { operator, subtask, reason } => Input::TaskFailed { task: (operator, subtask), reason },
        TaskEvent::Finished { operator, subtask } => Input::TaskFinished { task: (operator, subtask) },
    }
}
