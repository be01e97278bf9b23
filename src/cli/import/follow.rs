//! `import flink --follow`: takes a job's checkpoints in as they complete, before Flink deletes what they need.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use ckptfs::engine::import::{give_up, is_import};
use ckptfs::engine::life;
use ckptfs::error::{Error, Kind, Result};
use ckptfs::flink::found::{self, Found};
use ckptfs::lifecycle::retention::Retention;
use ckptfs::store::SourceUrl;
use ckptfs::types::CheckpointNumber;

use super::{Importer, report};
use crate::cli::words;

/// How often the job's directory is looked at. Flink's shortest sensible interval is a second; it keeps a checkpoint until the next ones are there.
const EVERY: Duration = Duration::from_secs(1);

/// The longest pause after what failed.
const LONGEST: Duration = Duration::from_secs(30);

/// What is known of a job's checkpoints.
#[derive(Default)]
struct Known {
    /// Taken in, or told to be impossible.
    settled: BTreeSet<CheckpointNumber>,
    /// Begun here by somebody, and not decided.
    begun: BTreeSet<CheckpointNumber>,
    /// Failed, how often, and not to be tried before.
    failed: BTreeMap<CheckpointNumber, (u32, Instant)>,
}

/// Follows a job until the program is ended. Whatever it had begun then, the next one goes on with.
///
/// # Errors
/// When the directory is something else than a job's.
pub(super) fn follow(importer: &Importer<'_>, job: &SourceUrl, keep: Option<usize>) -> Result<()> {
    let mut known = Known { begun: begun(importer), ..Known::default() };
    let mut waiting = false;
    loop {
        match found::look(&importer.sources, job) {
            Ok(Found::Checkpoint(_)) => {
                let why = format!("{job} is a checkpoint: --follow takes the directory above it, the job's");
                return Err(Error::new(Kind::Invalid, why));
            }
            Ok(Found::Job(checkpoints)) => {
                waiting = false;
                let there: BTreeSet<CheckpointNumber> = checkpoints.iter().map(|(number, _)| *number).collect();
                for (number, directory) in checkpoints {
                    one(importer, number, &directory, &mut known, keep)?;
                }
                known.begun.extend(known.failed.keys().copied());
                let missed: Vec<_> = known.begun.difference(&there).copied().collect();
                // An empty directory may be one that is not mounted.
                for number in missed.into_iter().filter(|_| !there.is_empty()) {
                    miss(importer, number, &mut known, "");
                }
            }
            Err(e) if e.kind() == Kind::NotFound => {
                if !waiting {
                    words::tell(importer.context.quiet, &format!("waiting for {job}"));
                }
                waiting = true;
            }
            Err(e) if e.kind() == Kind::Invalid => return Err(e),
            Err(e) => log::warn!("{e}"),
        }
        thread::sleep(EVERY);
    }
}

fn one(
    importer: &Importer<'_>,
    number: CheckpointNumber,
    directory: &SourceUrl,
    known: &mut Known,
    keep: Option<usize>,
) -> Result<()> {
    let early = known.failed.get(&number).is_some_and(|(_, again)| Instant::now() < *again);
    if known.settled.contains(&number) || early {
        return Ok(());
    }
    if !is_there(importer, directory) {
        if known.failed.contains_key(&number) || known.begun.contains(&number) {
            miss(importer, number, known, "");
        }
        return Ok(());
    }
    let taken = found::read(&importer.sources, directory).and_then(|read| importer.checkpoint(&read));
    match taken {
        Ok(done) => {
            known.settled.insert(number);
            known.failed.remove(&number);
            known.begun.remove(&number);
            report::words(importer.context, &importer.job, &done);
            if done.report.is_some() {
                report::followed(importer.context, &importer.job, &done)?;
                if let Some(keep) = keep {
                    expire(importer, keep);
                }
            }
        }
        Err(e) => {
            if !is_there(importer, directory) {
                miss(importer, number, known, &format!(" ({e})"));
                return Ok(());
            }
            if e.kind() == Kind::Conflict {
                // It is decided, whatever is tried.
                known.settled.insert(number);
                words::tell(importer.context.quiet, &e.to_string());
                return Ok(());
            }
            let (times, _) = known.failed.get(&number).copied().unwrap_or((0, Instant::now()));
            if times == 0 || importer.context.verbose > 0 {
                words::tell(false, &format!("{}/{number} is not taken in yet: {e}", importer.job));
            }
            let pause = EVERY.saturating_mul(1 << times.min(5)).min(LONGEST);
            known.failed.insert(number, (times.saturating_add(1), Instant::now() + pause));
        }
    }
    Ok(())
}

/// Whether a checkpoint is complete and not deleted; so too while that cannot be told.
fn is_there(importer: &Importer<'_>, directory: &SourceUrl) -> bool {
    found::is_complete(&importer.sources, directory).unwrap_or(true)
}

/// Flink was faster. The next checkpoint has what is alive of it.
fn miss(importer: &Importer<'_>, number: CheckpointNumber, known: &mut Known, why: &str) {
    let job = &importer.job;
    if let Err(e) = give_up(&importer.session, job, number, "Flink deleted it before it was taken in") {
        log::warn!("{job}/{number} stays open for now: {e}");
        return;
    }
    known.settled.insert(number);
    known.failed.remove(&number);
    known.begun.remove(&number);
    words::tell(false, &format!("{job}/{number} was missed: Flink deleted it before it was taken in{why}"));
}

/// Numbers of the job that an import began and did not end.
fn begun(importer: &Importer<'_>) -> BTreeSet<CheckpointNumber> {
    let (session, job) = (&importer.session, &importer.job);
    let open = session.catalog.job(job).map(|listing| listing.open).unwrap_or_default();
    open.into_iter().filter(|number| is_import(session, job, *number).unwrap_or_default()).collect()
}

/// The policy may fail without an end to following: the next checkpoint tries again.
fn expire(importer: &Importer<'_>, keep: usize) {
    let (session, job) = (&importer.session, &importer.job);
    let retention = Retention { newest: keep, ..Retention::default() };
    let expired = life::not_kept(session, job, retention).and_then(|numbers| {
        numbers
            .iter()
            .try_for_each(|n| life::expire(session, job, *n, &format!("the newest {keep} are kept")).map(drop))
    });
    if let Err(e) = expired {
        log::warn!("older checkpoints of {job} stay for now: {e}");
    }
}
