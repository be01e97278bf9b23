//! Scripts: what the actors of a configuration do, in plain data. [`super::actor`] plays them with the machines.

use super::search::Luck;

/// The first and the second job.
pub const A: usize = 0;
pub const B: usize = 1;

/// One thing that an actor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Begins a reign; later checkpoints of this actor are of its epoch.
    TakeOver(usize),
    /// Opens, uploads or reuses, acknowledges, and completes.
    Checkpoint(Snapshot),
    /// Gives a number up, whoever began it.
    Abort(usize, u64),
    /// Completes a number, whoever began it.
    Complete(usize, u64),
    /// Ends a number's life.
    Expire(usize, u64),
    /// Pins a checkpoint. When it is granted, the actor reads until it unpins or for ever.
    Pin(usize, u64),
    /// Pins a checkpoint as its writer's base, or a clone; others may take that pin away.
    Hold(usize, u64),
    /// Takes the own pin away.
    Unpin(usize, u64),
    /// Takes away the pin that this actor's first process made as its this-many-th thing.
    UnpinOf(usize, u64, u8, u8),
    /// Plans a sweep and deletes.
    Sweep,
    /// Plans a sweep, deletes, and forgets.
    Forget,
}

/// One checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    pub job: usize,
    /// The caller's number.
    pub number: Option<u64>,
    /// What it holds: one blob per byte.
    pub content: &'static [u8],
    /// The checkpoint that the job was restored from, and whether its pin is the actor's.
    pub restored: Option<(usize, u64)>,
    pub end: End,
    /// Believes that aborted bases have uploaded everything.
    pub careless: bool,
}

/// How a checkpoint is ended by who began it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Complete,
    /// A task failed.
    Abort,
    /// Left open: detached, for another process.
    Leave,
}

impl Snapshot {
    pub const fn of(job: usize, content: &'static [u8]) -> Self {
        Self { job, number: None, content, restored: None, end: End::Complete, careless: false }
    }

    pub const fn numbered(mut self, n: u64) -> Self {
        self.number = Some(n);
        self
    }

    pub const fn from(mut self, job: usize, n: u64) -> Self {
        self.restored = Some((job, n));
        self
    }

    pub const fn careless(mut self) -> Self {
        self.careless = true;
        self
    }

    pub const fn ending(mut self, end: End) -> Self {
        self.end = end;
        self
    }
}

/// An actor.
#[derive(Debug, Clone)]
pub struct Role {
    pub name: &'static str,
    /// Its id in uids; that of its cache is the same.
    pub id: u8,
    pub ops: Vec<Op>,
    pub luck: Luck,
    /// How often it begins a checkpoint anew when it loses a base.
    pub tries: u8,
}

/// Some actors on one store.
#[derive(Debug, Clone)]
pub struct Config {
    pub name: &'static str,
    /// Played one after the other to make the store that the others begin with.
    pub before: Vec<Role>,
    pub roles: Vec<Role>,
    /// Without reduction, and whatever its actors ask.
    pub loose: bool,
}
