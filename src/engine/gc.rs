//! Garbage collection: plan first, then execute that plan, then forget the numbers that it emptied.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::phased::Phased;
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::lifecycle::LifecycleError;
use crate::lifecycle::driver::{self, Companion};
use crate::lifecycle::forget::{self, Forget};
use crate::lifecycle::machine::Request;
use crate::lifecycle::sweep::{Execute, Plan, StillThere, SweepOptions, SweepPlan, Swept};
use crate::types::Progress;
use crate::types::{CheckpointNumber, Digest, KeyParts, Name, Uid};

/// How often a plan is begun when other sweeps overtake it: each of them has done this one's work.
const PLANS: u32 = 5;

/// What to do with a plan.
#[derive(Debug, Clone, Copy, Default)]
pub struct GcOptions {
    /// Also delete blobs whose uploader no record knows.
    pub foreign: bool,
    /// Objects that are removed per second at most.
    pub rate: Option<u32>,
    /// Forget dead numbers, however few: the next floor is created as soon as it passes one.
    pub every_number: bool,
}

/// What was done.
#[derive(Debug, Clone, Default)]
pub struct GcReport {
    /// Blobs that were deleted.
    pub swept: Swept,
    /// Staging files of dead writers that were removed; only a `file://` store has such.
    pub leftovers: u64,
    /// Floors that were created.
    pub floors: Vec<(Name, CheckpointNumber)>,
    /// Numbers whose records were deleted.
    pub forgotten: u64,
}

/// Manifests from the cache, removals not faster than told, and somebody who watches.
struct Beside<'a> {
    session: &'a Session,
    progress: &'a dyn Progress,
    rate: Option<u32>,
    begun: Instant,
    removed: AtomicU64,
}

impl<'a> Beside<'a> {
    fn new(session: &'a Session, progress: &'a dyn Progress, rate: Option<u32>) -> Self {
        Self { session, progress, rate: rate.filter(|r| *r > 0), begun: Instant::now(), removed: AtomicU64::new(0) }
    }
}

impl Companion for Beside<'_> {
    fn manifest(&self, digest: &Digest) -> Option<Bytes> {
        self.session.cache.manifest_bytes(digest).ok().flatten().map(Bytes::from)
    }

    fn keep_manifest(&self, digest: &Digest, bytes: &Bytes) {
        // It saves the next sweep a request; a full cache is no reason not to sweep.
        if let Err(e) = self.session.cache.put_manifest(digest, bytes) {
            log::debug!("a task manifest is not kept: {e}");
        }
    }

    fn about_to(&self, requests: &[Request]) {
        let phase = match requests.first() {
            Some(Request::Blobs) => "list blobs",
            Some(Request::List(_)) => "list records",
            Some(Request::Get(_) | Request::Manifest(..)) => "read records",
            Some(Request::Delete(key)) if matches!(key.parts(), KeyParts::Blob(_)) => "delete blobs",
            Some(Request::Delete(_)) => "forget numbers",
            _ => return,
        };
        self.progress.phase(phase);
        let removals = requests.iter().filter(|r| matches!(r, Request::Delete(_))).count() as u64;
        let before = self.removed.fetch_add(removals, Ordering::Relaxed);
        if let Some(rate) = self.rate.filter(|_| removals > 0) {
            // What went before has earned this batch its time.
            let due = Duration::from_secs_f64(before as f64 / f64::from(rate));
            std::thread::sleep(due.saturating_sub(self.begun.elapsed()));
        }
    }
}

/// Looks what could go. Deletes nothing.
///
/// # Errors
/// When anything that could need something cannot be read; when there are blobs and not a single record.
pub fn plan(session: &Session, options: SweepOptions, progress: &dyn Progress) -> Result<SweepPlan> {
    session.ready_to_write()?;
    let phased = Phased::new(&session.work, progress);
    let beside = Beside::new(session, &phased, None);
    let mut tries = PLANS;
    loop {
        tries -= 1;
        match driver::run_beside(&session.store, &beside, Plan::new(options)) {
            // Another sweep forgot meanwhile what this one had listed: its lists are too old, and new ones are soon made.
            Err(LifecycleError::NotSwept { why }) if tries > 0 => log::info!("the sweep is planned anew: {why}"),
            Err(e) => return Err(e.into()),
            Ok(mut plan) => {
                plan.foreign = driver::run_beside(&session.store, &beside, StillThere::new(plan.foreign))?;
                return Ok(plan);
            }
        }
    }
}

/// Deletes what the plan says, and then the records of numbers that nothing needs. Interrupted, the next one goes on.
///
/// # Errors
/// When the store fails.
pub fn execute(session: &Session, plan: &SweepPlan, options: GcOptions, progress: &dyn Progress) -> Result<GcReport> {
    let phased = Phased::new(&session.work, progress);
    let beside = Beside::new(session, &phased, options.rate);
    let swept = driver::run_beside(&session.store, &beside, Execute::new(plan, options.foreign))?;
    session.work.sweeps.inc();
    session.work.swept_blobs.add(swept.blobs);
    session.work.swept_bytes.add(swept.bytes);
    let mut report = GcReport { swept, ..GcReport::default() };
    report.leftovers = session.store.remove_leftovers()?;
    for (job, numbers) in &plan.jobs {
        let least = if options.every_number { 1 } else { forget::step(numbers) };
        let uid = Uid::random().map_err(|e| Error::with_source(Kind::Other, "the kernel gives no randomness", e))?;
        let machine = Forget::new(job.clone(), numbers.clone(), uid, least);
        let forgotten = driver::run_beside(&session.store, &beside, machine)?;
        report.floors.extend(forgotten.floor.map(|f| (job.clone(), f)));
        report.forgotten = report.forgotten.saturating_add(forgotten.numbers);
    }
    Ok(report)
}
