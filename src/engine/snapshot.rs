//! The verbs: snapshot a directory in one shot, or open, acknowledge, complete and abort over several processes.

use std::path::PathBuf;
use std::time::Instant;

use super::ahead::Ahead;
use super::origin::{self, Origin};
use super::phased::Phased;
use super::scan::{Scan, scan};
use super::upload::{Task, store_directory};
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::{CheckpointKind, ExpectedOperator, Intent, Labels, Verdict};
use crate::lifecycle::complete::Completed;
use crate::lifecycle::{
    self, Base, LifecycleError, OpenPlan, Opened, abort as abort_machine, ack, complete as complete_machine, driver,
};
use crate::limits;
use crate::types::Progress;
use crate::types::{Beside, CheckpointNumber, Name, Uid, beside, now_ms};

/// A snapshot of one directory as a whole checkpoint.
#[derive(Debug, Clone)]
pub struct SnapshotRequest {
    /// The job.
    pub job: Name,
    /// A RocksDB checkpoint, or the directory of a stopped database.
    pub directory: PathBuf,
    /// The operator's name as its author writes it.
    pub operator: String,
    /// Index of the subtask.
    pub subtask: u32,
    /// Checkpoint or savepoint.
    pub kind: CheckpointKind,
    /// The number; nothing for the next.
    pub number: Option<CheckpointNumber>,
    /// What people write on it. Of an acknowledgement it is not asked: the intent has them.
    pub labels: Labels,
}

/// What a snapshot came to.
#[derive(Debug, Clone)]
pub struct SnapshotReport {
    /// The checkpoint's number.
    pub number: CheckpointNumber,
    /// The checkpoint's uid.
    pub uid: Uid,
    /// Files in the directory.
    pub files: u64,
    /// Bytes in the directory.
    pub logical_bytes: u64,
    /// Bytes uploaded for it, bundle included, metadata objects not.
    pub new_bytes: u64,
    /// Bytes of files that a base had.
    pub reused_bytes: u64,
    /// Bytes that an aborted attempt had uploaded and this one adopted.
    pub adopted_bytes: u64,
    /// Seconds from the begin of the scan to the publication (or the ack).
    pub seconds: f64,
    /// Files that could not be hard-linked into the cache and were copied.
    pub degraded_links: u64,
    /// Undecided numbers of other writers that were seen.
    pub open_elsewhere: Vec<CheckpointNumber>,
    /// Attempts of a dead process of this writer that were aborted first.
    pub aborted: Vec<CheckpointNumber>,
}

impl SnapshotReport {
    /// Adds what another subtask of the same checkpoint came to.
    pub(super) fn add(&mut self, other: &Self) {
        self.files = self.files.saturating_add(other.files);
        self.logical_bytes = self.logical_bytes.saturating_add(other.logical_bytes);
        self.new_bytes = self.new_bytes.saturating_add(other.new_bytes);
        self.reused_bytes = self.reused_bytes.saturating_add(other.reused_bytes);
        self.adopted_bytes = self.adopted_bytes.saturating_add(other.adopted_bytes);
    }
}

/// Opens a checkpoint: bases are chosen, the intent is created and looked behind.
///
/// # Errors
/// See [`LifecycleError`].
pub fn open(
    session: &Session,
    job: &Name,
    number: Option<CheckpointNumber>,
    expected: Vec<ExpectedOperator>,
    kind: CheckpointKind,
    detached: bool,
    labels: Labels,
) -> Result<Opened> {
    session.ready_to_write()?;
    let origin = origin::of(session, job, None)?;
    open_from(session, job, number, expected, Begin { kind, detached, labels }, origin)
}

/// As what a checkpoint begins.
pub(super) struct Begin {
    pub(super) kind: CheckpointKind,
    pub(super) detached: bool,
    pub(super) labels: Labels,
}

pub(super) fn open_from(
    session: &Session,
    job: &Name,
    number: Option<CheckpointNumber>,
    expected: Vec<ExpectedOperator>,
    begin: Begin,
    origin: Option<Origin>,
) -> Result<Opened> {
    let uids: std::io::Result<Vec<Uid>> = (0..limits::OPEN_TRIES).map(|_| Uid::random()).collect();
    let uids = uids.map_err(|e| Error::with_source(Kind::Other, "the kernel gives no randomness", e))?;
    open_as(session, job, (number, uids), expected, begin, origin)
}

/// The same with these uids, one per try.
pub(super) fn open_as(
    session: &Session,
    job: &Name,
    (number, uids): (Option<CheckpointNumber>, Vec<Uid>),
    expected: Vec<ExpectedOperator>,
    Begin { kind, detached, labels }: Begin,
    origin: Option<Origin>,
) -> Result<Opened> {
    session.ready_to_write()?;
    let (restored_from, pinned) = origin.map(|o| (Some(o.base), o.pin)).unwrap_or_default();
    let plan = OpenPlan {
        job: job.clone(),
        uids,
        writer: session.cache.id(),
        epoch: None,
        number,
        expected,
        kind,
        detached,
        restored_from,
        pinned: pinned.into_iter().collect(),
        opened_ms: now_ms(),
    };
    let opened = driver::run(&session.store, lifecycle::open::Open::new(plan).labelled(labels))?;
    for (n, why) in &opened.unreadable {
        log::warn!("{job}/{n} cannot be believed and is not a base: {why}");
    }
    Ok(opened)
}

/// Publishes a checkpoint whose subtasks have all acknowledged.
///
/// # Errors
/// See [`LifecycleError`].
pub fn complete(session: &Session, job: &Name, number: CheckpointNumber) -> Result<Completed> {
    session.ready_to_write()?;
    Ok(driver::run(&session.store, complete_machine::Complete::new(job.clone(), number, now_ms()))?)
}

/// Gives a checkpoint up. Returns whether it was this call that did.
///
/// # Errors
/// When it is completed, or was never begun.
pub fn abort(session: &Session, job: &Name, number: CheckpointNumber, reason: &str) -> Result<bool> {
    session.ready_to_write()?;
    Ok(driver::run(&session.store, abort_machine::Abort::new(job.clone(), number, reason.to_owned()))?)
}

/// Takes a directory and publishes it as a checkpoint of one subtask.
///
/// # Errors
/// When the directory is not a whole RocksDB database at rest, or the store fails; nothing is published then.
pub fn snapshot_directory(
    session: &Session,
    request: &SnapshotRequest,
    progress: &dyn Progress,
) -> Result<SnapshotReport> {
    progress.phase("scan");
    snapshot_scanned(session, request, &scan(&request.directory)?, progress)
}

/// The same for a directory that was looked at before; it must not have changed since.
///
/// # Errors
/// As [`snapshot_directory`].
pub fn snapshot_scanned(
    session: &Session,
    request: &SnapshotRequest,
    scanned: &Scan,
    progress: &dyn Progress,
) -> Result<SnapshotReport> {
    let result = snapshot_in_phases(session, request, scanned, &Phased::new(&session.work, progress));
    session.work.failed_snapshots.add(u64::from(result.is_err()));
    result
}

fn snapshot_in_phases(
    session: &Session,
    request: &SnapshotRequest,
    scanned: &Scan,
    progress: &Phased<'_>,
) -> Result<SnapshotReport> {
    let begun = Instant::now();
    let operator = Name::encode(&request.operator);
    let parallelism = request
        .subtask
        .checked_add(1)
        .filter(|p| *p <= limits::PARALLELISM)
        .ok_or_else(|| Error::new(Kind::Invalid, format!("subtask {} is out of bounds", request.subtask)))?;
    let _lock = session.writer_lock(&request.job)?;
    progress.phase("open");
    let expected = vec![ExpectedOperator { operator: operator.clone(), parallelism }];
    if request.subtask > 0 {
        return Err(Error::new(
            Kind::Invalid,
            "a one-shot snapshot is subtask 0: for several subtasks use `ckptfs open`, `ack` and `complete`",
        ));
    }
    let (number, result) = std::thread::scope(|scope| {
        // A remote store stages nothing.
        let ahead = session.store.answers_at_once().then(|| beside(scope, || Ahead::look(session, scanned)));
        let ahead = || ahead.map(Beside::join).unwrap_or_default();
        let origin = origin::of(session, &request.job, Some(scanned))?;
        let begin = Begin { kind: request.kind, detached: false, labels: request.labels.clone() };
        let opened = open_from(session, &request.job, request.number, expected, begin, origin)?;
        let number = opened.number;
        let task = Task { job: &request.job, number, operator: &request.operator, subtask: request.subtask };
        let stored = store_directory(session, scanned, ahead, &opened.intent, &opened.bases, &task, progress);
        let result = stored.and_then(|mut report| {
            progress.phase("outcome");
            complete(session, &request.job, number)?;
            report.seconds = begun.elapsed().as_secs_f64();
            report.open_elsewhere.clone_from(&opened.open_elsewhere);
            report.aborted.clone_from(&opened.aborted);
            Ok(report)
        });
        Ok::<_, Error>((number, result))
    })?;
    let e = match result {
        Ok(report) => return Ok(report),
        Err(e) => e,
    };
    // Uploads stay, for the next attempt to adopt. If this fails too, that attempt will abort the number.
    match abort(session, &request.job, number, e.message()) {
        Ok(true) => Err(e),
        Ok(false) => Err(given_up(session, &request.job, number, e)),
        Err(second) if second.kind() == Kind::NotFound => Err(given_up(session, &request.job, number, e)),
        Err(second) => {
            log::warn!("{}/{} stays open for now: {second}", request.job, number);
            Err(e)
        }
    }
}

/// The error of an attempt, where what it needed is gone: if somebody else gave the attempt up, a sweep may take what only it needed, which is
/// no loss and is to be told as what it is.
fn given_up(session: &Session, job: &Name, number: CheckpointNumber, e: Error) -> Error {
    if !matches!(e.kind(), Kind::NotFound | Kind::Damage) {
        return e;
    }
    let reason = match lifecycle::catalog::outcome(&session.store, job, number).map(|o| o.map(|o| o.verdict)) {
        // Our own word, whose answer was lost, says nothing.
        Ok(Some(Verdict::Aborted { reason })) if !e.message().starts_with(reason.trim_end_matches('…')) => reason,
        Ok(None) if matches!(lifecycle::catalog::intent(&session.store, job, number), Ok(None)) => {
            "and is forgotten".to_owned()
        }
        _ => return e,
    };
    log::info!("{job}/{number}: {e}");
    LifecycleError::Aborted { job: job.clone(), number, reason }.into()
}

/// Takes a directory as one subtask's part of an open checkpoint.
///
/// # Errors
/// When the checkpoint is not open or does not expect the subtask; otherwise as [`snapshot_directory`].
pub fn acknowledge(
    session: &Session,
    request: &SnapshotRequest,
    number: CheckpointNumber,
    progress: &dyn Progress,
) -> Result<SnapshotReport> {
    let result = acknowledge_in_phases(session, request, number, &Phased::new(&session.work, progress))
        .map_err(|e| given_up(session, &request.job, number, e));
    session.work.failed_snapshots.add(u64::from(result.is_err()));
    result
}

fn acknowledge_in_phases(
    session: &Session,
    request: &SnapshotRequest,
    number: CheckpointNumber,
    progress: &Phased<'_>,
) -> Result<SnapshotReport> {
    let begun = Instant::now();
    progress.phase("scan");
    let scanned = scan(&request.directory)?;
    session.ready_to_write()?;
    let intent = open_intent(session, &request.job, number)?;
    ack::expects(&intent, &request.job, number, &Name::encode(&request.operator), request.subtask)?;
    let bases = bases_of(session, &intent)?;
    let task = Task { job: &request.job, number, operator: &request.operator, subtask: request.subtask };
    let mut report = store_directory(session, &scanned, Ahead::default, &intent, &bases, &task, progress)?;
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

/// The intent of a number that is begun and not decided.
pub(super) fn open_intent(session: &Session, job: &Name, number: CheckpointNumber) -> Result<Intent> {
    let no_such = || LifecycleError::NoSuchCheckpoint { job: job.clone(), number };
    if let Some(outcome) = lifecycle::catalog::outcome(&session.store, job, number)? {
        return Err(match outcome.verdict {
            Verdict::Completed(_) => LifecycleError::Completed { job: job.clone(), number },
            Verdict::Aborted { reason } => LifecycleError::Aborted { job: job.clone(), number, reason },
        }
        .into());
    }
    lifecycle::catalog::intent(&session.store, job, number)?.ok_or_else(|| no_such().into())
}

/// The bases that an intent names. They were alive when it was opened, and an open intent keeps them.
pub(super) fn bases_of(session: &Session, intent: &Intent) -> Result<Vec<Base>> {
    let mut bases = Vec::new();
    for of in &intent.bases {
        let outcome = lifecycle::catalog::outcome(&session.store, &of.job, of.number)?;
        let Some(outcome) = outcome.filter(|o| o.place.uid == of.uid) else {
            let (job, number) = (of.job.clone(), of.number);
            return Err(LifecycleError::NoSuchCheckpoint { job, number }.into());
        };
        let manifest = match outcome.verdict {
            Verdict::Completed(manifest) => Some(manifest),
            Verdict::Aborted { .. } => None,
        };
        bases.push(Base { of: of.clone(), manifest });
    }
    Ok(bases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::SessionOptions;

    #[test]
    fn what_is_gone_of_an_attempt_that_somebody_gave_up_is_told_as_that() {
        let dir = tempfile::tempdir().unwrap();
        let store = Some(format!("file://{}", dir.path().join("store").display()));
        let cache = Some(dir.path().join("cache"));
        let session = Session::open(&SessionOptions { store, cache, create: true, ..Default::default() }).unwrap();
        let job = Name::parse("app").unwrap();
        let expected = || vec![ExpectedOperator { operator: Name::encode("db"), parallelism: 1 }];
        let begin = || {
            open(&session, &job, None, expected(), CheckpointKind::Checkpoint, true, Labels::default()).unwrap().number
        };
        let number = begin();
        let told = |number, kind, words: &str| given_up(&session, &job, number, Error::new(kind, words)).to_string();
        let gone = "a blob does not exist";
        assert_eq!(told(number, Kind::NotFound, gone), gone, "nobody gave it up");
        abort(&session, &job, number, "the host was lost").unwrap();
        for kind in [Kind::NotFound, Kind::Damage] {
            let said = told(number, kind, gone);
            assert!(said.contains("the host was lost") && !said.contains(gone), "{said}");
        }
        assert_eq!(told(number, Kind::Unavailable, gone), gone, "the store's silence has another reason");
        let own = "the host was lost: its disk is gone";
        assert_eq!(told(number, Kind::Damage, own), own, "our own word, whose answer did not come, says nothing");
        let forgotten = CheckpointNumber::new(number.get() + 7).unwrap();
        assert!(told(forgotten, Kind::NotFound, gone).contains("is forgotten"));
    }
}
