//! Takes another program's checkpoint in: opens a checkpoint under the same number, stores what each subtask had, and publishes it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use super::SnapshotReport;
use super::foreign::{self, ForeignTask, Import};
use super::input::{ForeignContent, ForeignFile};
use super::numbered::{self, Begun, Numbered};
use super::phased::Phased;
use super::snapshot;
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::{CheckpointKind, ExpectedOperator, Labels, TaskManifest, Verdict};
use crate::lifecycle::{self, driver};
use crate::limits;
use crate::store::{Piece, Sources};
use crate::types::{CheckpointNumber, Digest, Key, Name, Progress};

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
    /// What people write on it. One that an attempt before had begun keeps the labels that it was begun with.
    pub labels: Labels,
}

/// A subtask of it, once its turn has come.
pub type Prepare<'a> = dyn FnMut(&ExpectedOperator, u32) -> Result<ForeignTask<'a>> + 'a;

/// Takes it in. `prepare` gives each subtask, and `last` what belongs to none, once all of them are stored.
///
/// The number is another program's, and can be used only once: so an attempt that fails leaves it open, and the next one goes on with it.
///
/// # Errors
/// When anything cannot be read or stored: then nothing is published. When the number was given up before.
pub fn import<'a>(
    (session, sources): (&Session, &Sources),
    request: &ImportRequest,
    prepare: &mut Prepare<'a>,
    last: impl FnOnce(&[Arc<TaskManifest>]) -> Result<ForeignTask<'a>>,
    progress: &dyn Progress,
) -> Result<SnapshotReport> {
    let phased = Phased::new(&session.work, progress);
    let result = import_in_phases((session, sources), request, prepare, last, &phased);
    session.work.failed_snapshots.add(u64::from(result.is_err()));
    result
}

fn import_in_phases<'a>(
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
    let number = Numbered {
        job,
        number: request.number,
        kind: request.kind,
        expected,
        labels: request.labels.clone(),
        uid: None,
        origin: None,
        remedy: "import it as another --job",
    };
    let Begun { intent, bases, .. } = numbered::begin(session, &number)?;
    let import = Import { session, sources, intent: &intent, bases: &bases };
    let mut report = tasks(&import, request, prepare, last, progress)?;
    progress.phase("outcome");
    snapshot::complete(session, job, request.number)?;
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
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
        Some(sum) => sum.add(&report),
    };
    progress.phase("read and store");
    let mut batch = Batch::default();
    let all = request.operators.iter().flat_map(|operator| (0..operator.parallelism).map(move |i| (operator, i)));
    for (operator, subtask) in all {
        let task = prepare(operator, subtask)?;
        let origins = origins(&task);
        let bytes = in_memory(&task);
        let full = batch.bytes.saturating_add(bytes) > limits::IMPORT_MEMORY && !batch.tasks.is_empty();
        if full || batch.tasks.len() >= limits::PARALLEL_REQUESTS || origins.iter().any(|o| batch.origins.contains(o)) {
            batch.store(import, &mut stored, &mut by_origin, progress)?.into_iter().for_each(&mut add);
        }
        batch.bytes = batch.bytes.saturating_add(bytes);
        batch.origins.extend(origins.iter().copied());
        batch.tasks.push((task, origins));
    }
    batch.store(import, &mut stored, &mut by_origin, progress)?.into_iter().for_each(&mut add);
    let (report, _) = foreign::store(import, last(&stored)?, &[], progress)?;
    add(report);
    total.ok_or_else(|| Error::new(Kind::Other, "internal: a checkpoint without subtasks"))
}

/// Subtasks that are stored at once. A job that was rescaled hands one table to several subtasks: those are not in one batch, so that the
/// second one finds what the first one stored.
#[derive(Default)]
struct Batch<'a> {
    tasks: Vec<(ForeignTask<'a>, Vec<Digest>)>,
    origins: HashSet<Digest>,
    /// Bytes that they hold in memory.
    bytes: u64,
}

impl Batch<'_> {
    fn store(
        &mut self,
        import: &Import<'_>,
        stored: &mut Vec<Arc<TaskManifest>>,
        by_origin: &mut HashMap<Digest, usize>,
        progress: &dyn Progress,
    ) -> Result<Vec<SnapshotReport>> {
        self.origins.clear();
        self.bytes = 0;
        let done = driver::parallel(mem::take(&mut self.tasks), |(task, origins)| {
            let shared: BTreeSet<usize> = origins.iter().filter_map(|origin| by_origin.get(origin).copied()).collect();
            let siblings: Vec<_> = shared.into_iter().filter_map(|i| stored.get(i).cloned()).collect();
            foreign::store(import, task, &siblings, progress)
        })?;
        let mut reports = Vec::with_capacity(done.len());
        for (report, manifest) in done {
            for origin in manifest.origins.values() {
                by_origin.entry(*origin).or_insert(stored.len());
            }
            stored.push(manifest);
            reports.push(report);
        }
        Ok(reports)
    }
}

fn in_memory(task: &ForeignTask<'_>) -> u64 {
    let here = task.files.iter().filter(|file| matches!(&file.content, ForeignContent::Piece(Piece::Here(_))));
    here.map(ForeignFile::size).sum()
}

fn origins(task: &ForeignTask<'_>) -> Vec<Digest> {
    let origins = task.files.iter().filter_map(|file| match &file.content {
        ForeignContent::Piece(piece) => piece.origin(),
        ForeignContent::Within { .. } => None,
    });
    origins.collect()
}

/// Whether an import began this number.
///
/// # Errors
/// When the store does not answer.
pub fn is_import(session: &Session, job: &Name, number: CheckpointNumber) -> Result<bool> {
    let intent = lifecycle::catalog::intent(&session.store, job, number)?;
    Ok(intent.is_some_and(|intent| intent.detached && intent.expected.iter().any(|e| e.operator.is_flink())))
}

/// Gives a number up that an import began: what it needs is gone.
///
/// # Errors
/// When the store does not answer.
pub fn give_up(session: &Session, job: &Name, number: CheckpointNumber, reason: &str) -> Result<()> {
    let begun = lifecycle::catalog::intent(&session.store, job, number)?.is_some();
    if begun && lifecycle::catalog::outcome(&session.store, job, number)?.is_none() {
        snapshot::abort(session, job, number, reason)?;
    }
    Ok(())
}

/// What is known of a number: whether it was imported, and from what.
///
/// # Errors
/// When the store does not answer.
pub fn imported(session: &Session, job: &Name, number: CheckpointNumber) -> Result<Imported> {
    let Some(outcome) = lifecycle::catalog::outcome(&session.store, job, number)? else { return Ok(Imported::No) };
    let Verdict::Completed(manifest) = outcome.verdict else { return Ok(Imported::GivenUp) };
    let Some(entry) = manifest.subtasks.iter().find(|s| s.operator.is_flink()) else { return Ok(Imported::Other) };
    if session.store.head(&Key::expired(job, number))?.is_some() {
        return Ok(Imported::Expired);
    }
    let task = session.cache.task_manifest(&session.store, job, number, entry)?;
    if task.properties.contains_key(LEFT_OUT) {
        return Ok(Imported::InPart);
    }
    Ok(task.properties.get(IMPORTED_FROM).map_or(Imported::Other, |value| Imported::From(value.clone())))
}

/// The property of an imported checkpoint: digest of what named its files.
pub const IMPORTED_FROM: &str = "flink.metadata";

/// The property of one that was not taken in whole: how many files were missing.
pub const LEFT_OUT: &str = "flink.left-out";

/// What is known of a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Imported {
    /// It is not decided.
    No,
    /// It was given up.
    GivenUp,
    /// Its life has ended.
    Expired,
    /// Something was left out when it was imported.
    InPart,
    /// It is completed, and was not imported.
    Other,
    /// It was imported, and this is its [`IMPORTED_FROM`].
    From(String),
}
