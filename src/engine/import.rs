//! Takes another program's checkpoint in: opens a checkpoint under the same number, stores what each subtask had, and publishes it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::SnapshotReport;
use super::foreign::{self, ForeignTask, Import};
use super::input::ForeignContent;
use super::snapshot;
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::{CheckpointKind, ExpectedOperator, TaskManifest, Verdict};
use crate::lifecycle;
use crate::store::Sources;
use crate::types::{CheckpointNumber, Digest, Name, Progress};

/// A checkpoint to be taken in.
#[derive(Debug, Clone)]
pub struct ImportRequest {
    /// The job.
    pub job: Name,
    /// The number that it has.
    pub number: CheckpointNumber,
    /// Checkpoint or savepoint.
    pub kind: CheckpointKind,
    /// Its operators. [`Name::flink`] is not among them.
    pub operators: Vec<ExpectedOperator>,
}

/// A subtask of it, once its turn has come.
pub type Prepare<'a> = dyn FnMut(&ExpectedOperator, u32) -> Result<ForeignTask<'a>> + 'a;

/// Takes it in. `prepare` gives each subtask, and `last` what belongs to none, once all of them are stored.
///
/// # Errors
/// When anything cannot be read or stored: then nothing is published. What was uploaded helps the next attempt.
pub fn import<'a>(
    (session, sources): (&Session, &Sources),
    request: &ImportRequest,
    prepare: &mut Prepare<'a>,
    last: impl FnOnce(&[Arc<TaskManifest>]) -> Result<ForeignTask<'a>>,
    progress: &dyn Progress,
) -> Result<SnapshotReport> {
    let begun = Instant::now();
    let job = &request.job;
    let _lock = session.writer_lock(job)?;
    progress.phase("open");
    let mut expected = request.operators.clone();
    expected.push(ExpectedOperator { operator: Name::flink(), parallelism: 1 });
    expected.sort_by(|a, b| a.operator.cmp(&b.operator));
    let opened = snapshot::open_from(session, job, Some(request.number), expected, (request.kind, false), None)?;
    let import = Import { session, sources, intent: &opened.intent, bases: &opened.bases };
    let stored = tasks(&import, request, prepare, last, progress).and_then(|mut report| {
        progress.phase("outcome");
        snapshot::complete(session, job, request.number)?;
        report.seconds = begun.elapsed().as_secs_f64();
        report.open_elsewhere.clone_from(&opened.open_elsewhere);
        report.aborted.clone_from(&opened.aborted);
        Ok(report)
    });
    if let Err(e) = &stored
        && let Err(second) = snapshot::abort(session, job, request.number, e.message())
    {
        log::warn!("{job}/{} stays open for now: {second}", request.number);
    }
    stored
}

fn tasks<'a>(
    import: &Import<'_>,
    request: &ImportRequest,
    prepare: &mut Prepare<'a>,
    last: impl FnOnce(&[Arc<TaskManifest>]) -> Result<ForeignTask<'a>>,
    progress: &dyn Progress,
) -> Result<SnapshotReport> {
    let mut stored: Vec<Arc<TaskManifest>> = Vec::new();
    let mut by_origin: HashMap<Digest, usize> = HashMap::new();
    let mut total: Option<SnapshotReport> = None;
    let mut add = |report: SnapshotReport| match &mut total {
        None => total = Some(report),
        Some(sum) => {
            sum.files += report.files;
            sum.logical_bytes = sum.logical_bytes.saturating_add(report.logical_bytes);
            sum.new_bytes = sum.new_bytes.saturating_add(report.new_bytes);
            sum.reused_bytes = sum.reused_bytes.saturating_add(report.reused_bytes);
            sum.adopted_bytes = sum.adopted_bytes.saturating_add(report.adopted_bytes);
        }
    };
    progress.phase("read and store");
    for operator in &request.operators {
        for subtask in 0..operator.parallelism {
            let task = prepare(operator, subtask)?;
            // A job that was rescaled hands one table to several subtasks.
            let shared = task.files.iter().filter_map(|file| match &file.content {
                ForeignContent::Piece(piece) => by_origin.get(&piece.origin()?).copied(),
                ForeignContent::Within { .. } => None,
            });
            let mut shared: Vec<usize> = shared.collect();
            shared.sort_unstable();
            shared.dedup();
            let siblings: Vec<_> = shared.into_iter().filter_map(|i| stored.get(i).cloned()).collect();
            let (report, manifest) = foreign::store(import, task, &siblings, progress)?;
            manifest.origins.values().for_each(|origin| {
                by_origin.entry(*origin).or_insert(stored.len());
            });
            stored.push(manifest);
            add(report);
        }
    }
    let (report, _) = foreign::store(import, last(&stored)?, &[], progress)?;
    add(report);
    total.ok_or_else(|| Error::new(Kind::Other, "internal: a checkpoint without subtasks"))
}

/// The property of a checkpoint's own task manifest, where it is completed: says whether it was imported from the same before.
///
/// # Errors
/// When the store does not answer.
pub fn property(session: &Session, job: &Name, number: CheckpointNumber, key: &str) -> Result<Imported> {
    let Some(outcome) = lifecycle::catalog::outcome(&session.store, job, number)? else { return Ok(Imported::No) };
    let Verdict::Completed(manifest) = outcome.verdict else { return Ok(Imported::No) };
    let Some(entry) = manifest.subtasks.iter().find(|s| s.operator.is_flink()) else { return Ok(Imported::Other) };
    let task = session.cache.task_manifest(&session.store, job, number, entry)?;
    Ok(task.properties.get(key).map_or(Imported::Other, |value| Imported::From(value.clone())))
}

/// What is known of a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Imported {
    /// It is not completed.
    No,
    /// It is completed, and was not imported.
    Other,
    /// It was imported, and has this property.
    From(String),
}
