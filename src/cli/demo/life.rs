//! One life of the job: a reign with its coordinator in this process, and the process that works for it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use ckptfs::engine::Session;
use ckptfs::engine::coordinator::{
    ClaimMode, Control, Coordinator, CoordinatorSettings, Input, Reign, ReignPlan, RestoreFrom, RunEnd, StoredGateway,
    TriggerKind, control, run,
};
use ckptfs::error::{Error, Kind, Result};
use ckptfs::types::{CheckpointNumber, Name};

use super::job::{self, COUNT, PERIOD, Setup};
use super::stage::Stage;
use super::worker::Line;

/// From one periodic checkpoint to the next.
const INTERVAL_MS: u64 = 1_000;

/// A savepoint that takes longer than this is not worth waiting for.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a process may take to end after the job has.
const FAREWELL: Duration = Duration::from_secs(30);

fn settings() -> CoordinatorSettings {
    CoordinatorSettings {
        interval_ms: INTERVAL_MS,
        min_pause_ms: INTERVAL_MS / 2,
        timeout_ms: 60_000,
        tolerable_failures: 3,
        // All of them: the demo shows what they share.
        retained: 1_000,
        ..CoordinatorSettings::default()
    }
}

/// What happens in it.
#[derive(Debug)]
pub(crate) enum Event {
    /// The worker says something.
    Worker(Line),
    /// The worker's process ended.
    Gone,
    /// A checkpoint is published.
    Completed(CheckpointNumber),
    /// A checkpoint was given up.
    GivenUp(CheckpointNumber),
    /// The coordinator ended.
    Ended(RunEnd),
}

/// How a life is to be led.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// From nothing, or from the newest checkpoint.
    pub(crate) from: RestoreFrom,
    pub(crate) parallelism: u32,
    /// Event time at which nothing more comes in it.
    pub(crate) until: i64,
    /// Snapshots of one of the sink's subtasks until the one that fails.
    pub(crate) fails_in: Option<u32>,
    /// Spoil one count first.
    pub(crate) corrupt: bool,
}

/// What a life began with.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) from: Option<CheckpointNumber>,
    pub(crate) epoch: u64,
    pub(crate) seconds: f64,
    pub(crate) clones: usize,
    pub(crate) rescaled: usize,
    /// Pins of clones of earlier lives that were taken away.
    pub(crate) unpinned: usize,
}

/// A job that runs.
pub(crate) struct Life<'a> {
    stage: &'a Stage,
    control: Control,
    events: Receiver<Event>,
}

impl<'a> Life<'a> {
    /// Takes the job over, starts a worker with what is to be restored, and coordinates it once it works.
    pub(crate) fn begin(stage: &'a Stage, session: &Session, job: &Name, plan: &Plan) -> Result<(Self, Begun)> {
        let reign = Reign::begin(
            session,
            ReignPlan {
                job: job.clone(),
                expected: job::expected(plan.parallelism),
                restore: plan.from.clone(),
                claim: ClaimMode::Claim,
                pinned: Vec::new(),
            },
        )?;
        let reign = Arc::new(reign);
        let from = reign.restored().map(|c| c.number);
        let setup = Setup {
            job: job.clone(),
            epoch: reign.epoch().0,
            parallelism: plan.parallelism,
            list: stage.list(),
            directory: stage.path(&format!("life-{}", reign.epoch().0)),
            restore: from,
            mount: stage.mountpoint(),
            until: plan.until,
            fails_in: plan.fails_in,
            corrupt: plan.corrupt,
        };
        let (tell, events) = channel();
        stage.work(&setup, {
            let tell = tell.clone();
            move |line| {
                let _ = tell.send(line.map_or(Event::Gone, Event::Worker));
            }
        })?;
        let (seconds, clones, rescaled) = match events.recv() {
            Ok(Event::Worker(Line::Ready { seconds, clones, rescaled })) => (seconds, clones, rescaled),
            _ => return Err(worker_failed(stage)),
        };
        // Every task has its state: what earlier lives ran on is of no use any more.
        let unpinned = reign.drop_old_clones()?;
        let (control, commands) = control();
        let epoch = reign.epoch().0;
        let coordinator = std::thread::Builder::new()
            .name("coordinator".to_owned())
            .spawn(move || {
                let gateway = StoredGateway::new(&reign, PERIOD);
                let mut coordinator = Coordinator::new(settings(), reign.tasks());
                let begun = Instant::now();
                let clock = || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                let end = run(&reign, &mut coordinator, &gateway, &clock, commands, &mut |input| observe(&tell, input));
                // The next reign may begin: the lock is free.
                drop(gateway);
                drop(reign);
                let _ = tell.send(Event::Ended(end));
            })
            .map_err(|e| Error::with_source(Kind::Resources, format!("no thread for the coordinator: {e}"), e))?;
        stage.coordinated(control.clone(), coordinator);
        Ok((Self { stage, control, events }, Begun { from, epoch, seconds, clones, rescaled, unpinned }))
    }

    /// What happens next.
    pub(crate) fn next(&self) -> Result<Event> {
        match self.events.recv() {
            Ok(Event::Gone) => Err(worker_failed(self.stage)),
            Ok(Event::Ended(end)) => Err(coordinator_ended(end)),
            Ok(event) => Ok(event),
            Err(_) => Err(Error::new(Kind::Other, "internal: nobody is left to say anything")),
        }
    }

    /// SIGKILL, and the coordinator is told of what this process sees: the worker's end. Says what happened until the coordinator ended.
    pub(crate) fn kill(self) -> Result<Vec<Event>> {
        self.stage.kill_worker()?;
        self.control.failed((Name::encode(COUNT), 0), "its process was killed");
        self.to_the_end(|end| matches!(end, RunEnd::Failed { .. }))
    }

    /// Ends it with a savepoint. Says what happened until the coordinator ended.
    pub(crate) fn stop(self) -> Result<(CheckpointNumber, Vec<Event>)> {
        let number = self.control.take(TriggerKind::Savepoint { stop: true }).wait(PATIENCE)?;
        let events = self.to_the_end(|end| matches!(end, RunEnd::Stopped))?;
        let status = self.stage.wait_worker(FAREWELL)?;
        if !status.success() {
            return Err(Error::new(Kind::Other, format!("the worker process ended: {status}")));
        }
        Ok((number, events))
    }

    fn to_the_end(&self, wanted: impl Fn(&RunEnd) -> bool) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            match self.events.recv() {
                Ok(Event::Ended(end)) if wanted(&end) => break,
                Ok(Event::Ended(end)) => return Err(coordinator_ended(end)),
                Ok(event) => events.push(event),
                Err(_) => return Err(Error::new(Kind::Other, "internal: the coordinator is gone")),
            }
        }
        self.stage.coordinator_gone();
        Ok(events)
    }
}

fn observe(tell: &Sender<Event>, input: &Input) {
    // Who tells the story may have left it.
    let _ = match input {
        Input::CompleteDone { number } => tell.send(Event::Completed(*number)),
        Input::AbortedElsewhere { number, .. } | Input::Aborted { number } => tell.send(Event::GivenUp(*number)),
        _ => return,
    };
}

fn worker_failed(stage: &Stage) -> Error {
    let status = stage.wait_worker(FAREWELL).map_or_else(|e| e.to_string(), |s| s.to_string());
    Error::new(Kind::Other, format!("the worker process ended ({status}) and said why above"))
}

fn coordinator_ended(end: RunEnd) -> Error {
    match end {
        RunEnd::Fenced(e) => e.context("another coordinator took the demo's job over"),
        RunEnd::Failed { reason } => Error::new(Kind::Other, format!("the job failed: {reason}")),
        RunEnd::Stopped | RunEnd::Halted => Error::new(Kind::Other, "the job was ended"),
    }
}
