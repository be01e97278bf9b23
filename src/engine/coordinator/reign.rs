//! One coordinator's reign: what the machine decided, done in the store, within one epoch.
//!
//! The order of [`Reign::begin`] is the safety: the epoch is created, then what older ones left open is aborted, *then* it is chosen what to
//! restore. Whatever a stalled older coordinator does afterwards is neither published nor restored: its opens meet the higher
//! epoch, its open numbers are decided.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::machine::Task;
use super::message::{TriggerKind, short};
use super::retained::{Held, Which};
use super::stored::ruling;
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::records::PinHolder;
use crate::format::{BaseRef, CheckpointKind, ExpectedOperator};
use crate::lifecycle::abort::Abort;
use crate::lifecycle::complete::{Complete, Completed};
use crate::lifecycle::expire::Expire;
use crate::lifecycle::open::Open;
use crate::lifecycle::pin::Unpin;
use crate::lifecycle::takeover::TakeOver;
use crate::lifecycle::{Catalog, Checkpoint, JobListing, LifecycleError, OpenPlan, Opened, PinRef, driver};
use crate::limits;
use crate::local::lock::FileLock;
use crate::local::process;
use crate::store::Store;
use crate::types::{CheckpointNumber, Epoch, Name, Prefix, RecordKind, Uid, now_ms};

/// What a job starts from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RestoreFrom {
    /// Its newest checkpoint in the view, savepoints included; from nothing, where it has none.
    #[default]
    Latest,
    /// Nothing, whatever is there.
    Nothing,
    /// This one, of this or another job.
    Checkpoint(Name, CheckpointNumber),
}

/// Whether policy may expire what a job was restored from by name. Nothing is uploaded anew either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ClaimMode {
    /// It may, once newer ones have taken its place.
    Claim,
    /// It stays its user's.
    #[default]
    NoClaim,
}

/// What a reign begins with.
#[derive(Debug, Clone)]
pub struct ReignPlan {
    /// The job.
    pub job: Name,
    /// Its operators and their parallelism: who must acknowledge.
    pub expected: Vec<ExpectedOperator>,
    /// What to restore.
    pub restore: RestoreFrom,
    /// Whether what is restored by name may expire.
    pub claim: ClaimMode,
    /// Own pins, under which what was restored may be a base although it is expired.
    pub pinned: Vec<PinRef>,
}

/// How giving a number up ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    /// It is aborted, now or before.
    Aborted,
    /// It is completed: an answer that seemed lost was a yes.
    Completed,
}

/// A reign that has begun.
#[derive(Debug)]
pub struct Reign {
    store: Store,
    writer: Uid,
    epoch: Epoch,
    plan: ReignPlan,
    aborted: Vec<CheckpointNumber>,
    restored: Option<Checkpoint>,
    /// What was restored is no base any more: a newer one of this reign is, or it died. To name it all the same would cost a number at
    /// every open.
    passed: AtomicBool,
    recovered: Vec<Held>,
    /// Two coordinators with one cache would take each other's numbers for a dead process's.
    _lock: Option<FileLock>,
}

fn fresh() -> Result<Uid> {
    Uid::random().map_err(|e| Error::with_source(Kind::Other, "the kernel gives no randomness", e))
}

impl Reign {
    /// Takes the job over, and then chooses what to restore. The writer is the session's cache.
    ///
    /// # Errors
    /// [`Kind::Fenced`] when another coordinator took it over meanwhile, [`Kind::Conflict`] when one with the same cache runs, [`Kind::Damage`] when
    /// the newest checkpoint cannot be believed, [`Kind::NotFound`] when the named one is not there; the store's.
    pub fn begin(session: &Session, plan: ReignPlan) -> Result<Self> {
        session.ready_to_write()?;
        let lock = session.writer_lock(&plan.job)?;
        let reign = Self::begin_in(session.store.clone(), session.cache.id(), plan)?;
        Ok(Self { _lock: Some(lock), ..reign })
    }

    /// The same for a writer that has no cache: one that no other process uses.
    ///
    /// # Errors
    /// As [`Reign::begin`].
    pub fn begin_in(store: Store, writer: Uid, plan: ReignPlan) -> Result<Self> {
        let take_over = TakeOver::new(plan.job.clone(), fresh()?, writer, process::hostname());
        let begun = driver::run(&store, take_over)?;
        if !begun.aborted.is_empty() {
            log::info!(
                "{}: epoch {} gave up {} open numbers of older ones",
                plan.job,
                begun.epoch,
                begun.aborted.len()
            );
        }
        let catalog = Catalog::new(store.clone());
        let listing = catalog.job(&plan.job)?;
        let restored = match &plan.restore {
            RestoreFrom::Nothing => None,
            RestoreFrom::Latest => latest(&listing)?,
            RestoreFrom::Checkpoint(job, number) => Some(catalog.checkpoint(job, *number)?),
        };
        let recovered = recovered(&plan, &listing, restored.as_ref());
        let (epoch, aborted) = (begun.epoch, begun.aborted);
        let passed = AtomicBool::new(false);
        Ok(Self { store, writer, epoch, plan, aborted, restored, passed, recovered, _lock: None })
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &Name {
        &self.plan.job
    }

    /// The writer that its checkpoints are opened by.
    #[must_use]
    pub fn writer(&self) -> Uid {
        self.writer
    }

    /// Its epoch, which tasks on other hosts must be started with.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Numbers of older epochs that it gave up.
    #[must_use]
    pub fn aborted(&self) -> &[CheckpointNumber] {
        &self.aborted
    }

    /// What every task must be restored from; nothing: from scratch.
    #[must_use]
    pub fn restored(&self) -> Option<&Checkpoint> {
        self.restored.as_ref()
    }

    /// Completed checkpoints from before it that policy may expire, for [`super::Input::Recovered`].
    #[must_use]
    pub fn recovered(&self) -> Vec<Held> {
        self.recovered.clone()
    }

    /// Every subtask of every operator.
    #[must_use]
    pub fn tasks(&self) -> BTreeSet<Task> {
        self.plan.expected.iter().flat_map(|e| (0..e.parallelism).map(|i| (e.operator.clone(), i))).collect()
    }

    /// Whether the reign still stands.
    ///
    /// # Errors
    /// [`Kind::Fenced`] when a higher epoch rules; the store's.
    pub fn look(&self) -> Result<()> {
        let ruling = ruling(&self.store, &self.plan.job)?;
        if ruling > self.epoch {
            let (job, own) = (self.plan.job.clone(), self.epoch);
            return Err(LifecycleError::Fenced { job, ruling, own }.into());
        }
        Ok(())
    }

    /// Opens the next number.
    ///
    /// # Errors
    /// [`Kind::Fenced`] when a higher epoch rules: the number is aborted then. The store's.
    pub fn open(&self, kind: TriggerKind) -> Result<Opened> {
        let uids: Result<Vec<Uid>> = (0..limits::OPEN_TRIES).map(|_| fresh()).collect();
        let restored = self.restored.as_ref().filter(|_| !self.passed.load(Ordering::Relaxed));
        let restored_from = restored.map(|c| BaseRef { job: c.job.clone(), number: c.number, uid: c.uid });
        let plan = OpenPlan {
            job: self.plan.job.clone(),
            uids: uids?,
            writer: self.writer,
            epoch: Some(self.epoch),
            number: None,
            expected: self.plan.expected.clone(),
            kind: if kind.is_savepoint() { CheckpointKind::Savepoint } else { CheckpointKind::Checkpoint },
            // Several may be open at once, and tasks of other processes work for it: it is no dead process's.
            detached: true,
            restored_from: restored_from.clone(),
            pinned: self.plan.pinned.clone(),
            opened_ms: now_ms(),
        };
        let open = match kind {
            TriggerKind::Full => Open::new(plan).full(),
            TriggerKind::Savepoint { stop: true } => Open::new(plan).stopping(),
            TriggerKind::Checkpoint | TriggerKind::Savepoint { stop: false } => Open::new(plan),
        };
        let opened = driver::run(&self.store, open)?;
        for (n, why) in &opened.unreadable {
            log::warn!("{}/{n} cannot be believed and is not a base: {why}", self.plan.job);
        }
        if kind != TriggerKind::Full && restored_from.is_some_and(|base| !opened.intent.bases.contains(&base)) {
            self.passed.store(true, Ordering::Relaxed);
        }
        Ok(opened)
    }

    /// Publishes a number that all tasks have acknowledged.
    ///
    /// # Errors
    /// [`Kind::Fenced`] when a higher epoch's coordinator gave it up. Any other error may hide a yes: [`Reign::abort`] tells.
    pub fn complete(&self, number: CheckpointNumber) -> Result<Completed> {
        match driver::run(&self.store, Complete::new(self.plan.job.clone(), number, now_ms())) {
            Ok(completed) => {
                self.passed.store(true, Ordering::Relaxed);
                Ok(completed)
            }
            Err(e @ LifecycleError::Aborted { .. }) => {
                self.look()?;
                Err(e.into())
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Gives a number up.
    ///
    /// # Errors
    /// When it is not known what became of it.
    pub fn abort(&self, number: CheckpointNumber, reason: &str) -> Result<Ended> {
        match driver::run(&self.store, Abort::new(self.plan.job.clone(), number, short(reason))) {
            Ok(_) => Ok(Ended::Aborted),
            Err(LifecycleError::Completed { .. }) => Ok(Ended::Completed),
            Err(e) => Err(e.into()),
        }
    }

    /// Ends a completed checkpoint's life, unless somebody hid it: a hidden one may come back. Says whether it is dead.
    ///
    /// # Errors
    /// [`Kind::Fenced`] when a higher epoch rules: it may have been restored from it. The store's.
    pub fn expire(&self, held: &Held) -> Result<bool> {
        let (job, number) = match (held.which, &self.restored) {
            (Which::Own(number), _) => (&self.plan.job, number),
            (Which::Restored, Some(c)) => (&c.job, c.number),
            (Which::Restored, None) => return Ok(false),
        };
        self.look()?;
        if !self.store.list(&Prefix::checkpoint(RecordKind::Hidden, job, number))?.is_empty() {
            return Ok(false);
        }
        let reason = format!("policy of job {} in epoch {}", self.plan.job, self.epoch);
        driver::run(&self.store, Expire::new(job.clone(), number, reason))?;
        Ok(true)
    }

    /// Takes away the pins of clones that the job ran on in older epochs. To be called once every task is restored, and not before: until then
    /// the old clones may be all that is left of a state. Says how many.
    ///
    /// # Errors
    /// [`Kind::Fenced`] when a higher epoch rules; the store's.
    pub fn drop_old_clones(&self) -> Result<usize> {
        self.look()?;
        let pins = Catalog::new(self.store.clone()).pins(None)?;
        let old = pins.into_iter().filter_map(|(pin, record)| match record?.holder {
            PinHolder::Clone { job: Some(job), epoch, .. } if job == self.plan.job && epoch < self.epoch => Some(pin),
            _ => None,
        });
        let old: Vec<PinRef> = old.filter(|p| !self.plan.pinned.contains(p)).collect();
        let count = old.len();
        driver::run(&self.store, Unpin::new(old))?;
        Ok(count)
    }
}

/// The default restore. A newer one that cannot be believed is not passed over in silence: state would go back without a word.
fn latest(listing: &JobListing) -> Result<Option<Checkpoint>> {
    let latest = listing.latest();
    if let Some((n, why)) = listing.unreadable.iter().max_by_key(|(n, _)| *n)
        && latest.is_none_or(|c| c.number < *n)
    {
        let job = &listing.job;
        let what = format!(
            "{job}/{n} is the job's newest checkpoint and cannot be believed ({why}): name the checkpoint to restore from"
        );
        return Err(Error::new(Kind::Damage, what));
    }
    Ok(latest.cloned())
}

fn recovered(plan: &ReignPlan, listing: &JobListing, restored: Option<&Checkpoint>) -> Vec<Held> {
    let by_name = matches!(plan.restore, RestoreFrom::Checkpoint(..)).then_some(restored).flatten();
    let (own, foreign) = match by_name {
        Some(c) if c.job == plan.job => (Some(c), None),
        other => (None, other),
    };
    let policy = listing.visible().filter_map(|c| {
        let named = own.is_some_and(|own| own.number == c.number);
        let which = Which::Own(c.number);
        match c.manifest.kind {
            _ if named && plan.claim == ClaimMode::NoClaim => None,
            CheckpointKind::Checkpoint => Some(Held { which, kind: TriggerKind::Checkpoint }),
            CheckpointKind::Savepoint => named.then_some(Held { which, kind: TriggerKind::Savepoint { stop: false } }),
        }
    });
    let foreign = foreign.filter(|_| plan.claim == ClaimMode::Claim).map(|c| {
        let kind = match c.manifest.kind {
            CheckpointKind::Checkpoint => TriggerKind::Checkpoint,
            CheckpointKind::Savepoint => TriggerKind::Savepoint { stop: false },
        };
        Held { which: Which::Restored, kind }
    });
    foreign.into_iter().chain(policy).collect()
}
