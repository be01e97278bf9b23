//! The verbs: snapshot a directory in one shot, or open, acknowledge, complete and abort over several processes.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::ahead::Ahead;
use super::base::BaseIndex;
use super::origin::{self, Origin};
use super::pack::{self, Content, Packed};
use super::plan::{Decision, decide};
use super::scan::{Scan, scan};
use super::transfer::{Counts, Scope, Stored, Transfer};
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::{CheckpointKind, ExpectedOperator, Intent, Place, Role, TaskManifest, Verdict};
use crate::lifecycle::complete::Completed;
use crate::lifecycle::{
    self, Base, LifecycleError, OpenPlan, Opened, abort as abort_machine, ack, complete as complete_machine, driver,
};
use crate::limits;
use crate::types::Progress;
use crate::types::{BlobName, CheckpointNumber, Digest, Key, Name, Uid};

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

/// Milliseconds since 1970, for people.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
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
) -> Result<Opened> {
    session.ready_to_write()?;
    let origin = origin::of(session, job, None)?;
    open_from(session, job, number, expected, (kind, detached), origin)
}

fn open_from(
    session: &Session,
    job: &Name,
    number: Option<CheckpointNumber>,
    expected: Vec<ExpectedOperator>,
    (kind, detached): (CheckpointKind, bool),
    origin: Option<Origin>,
) -> Result<Opened> {
    session.ready_to_write()?;
    let (restored_from, pinned) = origin.map(|o| (Some(o.base), o.pin)).unwrap_or_default();
    let uids: std::io::Result<Vec<Uid>> = (0..limits::OPEN_TRIES).map(|_| Uid::random()).collect();
    let plan = OpenPlan {
        job: job.clone(),
        uids: uids.map_err(|e| Error::with_source(Kind::Other, "the kernel gives no randomness", e))?,
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
    let opened = driver::run(&session.store, lifecycle::open::Open::new(plan))?;
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
        let ahead = session.store.answers_at_once().then(|| scope.spawn(|| Ahead::look(session, scanned)));
        let ahead = || ahead.and_then(|a| a.join().ok()).unwrap_or_default();
        let origin = origin::of(session, &request.job, Some(scanned))?;
        let opened = open_from(session, &request.job, request.number, expected, (request.kind, false), origin)?;
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
    if let Err(e) = &result {
        // Uploads stay, for the next attempt to adopt. If this fails too, that attempt will abort the number.
        if let Err(second) = abort(session, &request.job, number, e.message()) {
            log::warn!("{}/{} stays open for now: {second}", request.job, number);
        }
    }
    result
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
fn open_intent(session: &Session, job: &Name, number: CheckpointNumber) -> Result<Intent> {
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
fn bases_of(session: &Session, intent: &Intent) -> Result<Vec<Base>> {
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

struct Task<'a> {
    job: &'a Name,
    number: CheckpointNumber,
    operator: &'a str,
    subtask: u32,
}

fn store_directory<'a>(
    session: &'a Session,
    scan: &Scan,
    ahead: impl FnOnce() -> Ahead<'a>,
    intent: &Intent,
    bases: &[Base],
    task: &Task<'_>,
    progress: &dyn Progress,
) -> Result<SnapshotReport> {
    let operator = Name::encode(task.operator);
    let mut base = BaseIndex::load(session, bases, &operator, task.subtask)?;
    let mut ahead = Some(ahead);
    let (packed, bundle, reused, counts) = loop {
        let ahead = || ahead.take().map_or_else(Ahead::default, |ahead| ahead());
        match store_files(session, scan, ahead, &base, intent.place.uid, progress)? {
            Ok(stored) => break stored,
            // What was sent meanwhile is there already when it is sent again.
            Err(Lost(blobs)) => base = base.without(blobs),
        }
    };
    let mut place = Place::new(Role::Task, task.job, task.number.get(), intent.place.uid);
    place.subtask = Some((operator, task.subtask));
    let mut manifest = TaskManifest {
        place,
        display_name: task.operator.to_owned(),
        blobs: Vec::new(),
        files: Vec::new(),
        logical_bytes: 0,
        new_bytes: counts.uploaded.into_inner(),
        backend: scan.db_id.clone(),
        key_groups: None,
        states: Vec::new(),
        properties: BTreeMap::new(),
        other_state: BTreeMap::new(),
    };
    packed.fill(&mut manifest, scan, bundle)?;
    progress.phase("ack");
    let acked = driver::run(&session.store, ack::Ack::new(manifest)?)?;
    // The checkpoint manifest will name the digest of what is stored: the signed object, where there are keys.
    let key = Key::task(task.job, task.number, &Name::encode(task.operator), task.subtask);
    let stored = session.store.signed(&key, acked.bytes)?;
    session.cache.put_manifest(&Digest::of(&stored), &stored)?;
    Ok(SnapshotReport {
        number: task.number,
        uid: intent.place.uid,
        files: acked.manifest.files.len() as u64,
        logical_bytes: acked.manifest.logical_bytes,
        new_bytes: acked.manifest.new_bytes,
        reused_bytes: reused,
        adopted_bytes: counts.adopted.into_inner(),
        seconds: 0.0,
        degraded_links: counts.degraded.into_inner(),
        open_elsewhere: Vec::new(),
        aborted: Vec::new(),
    })
}

/// Blobs of the base that are not in the store any more.
struct Lost(HashSet<BlobName>);

type StoredFiles = (Packed, Option<BlobName>, u64, Counts);

/// Stores the files that the base has not. Whether the store still has the base's blobs is looked at meanwhile, on the cheap.
fn store_files<'a>(
    session: &'a Session,
    scan: &Scan,
    ahead: impl FnOnce() -> Ahead<'a>,
    base: &BaseIndex,
    uid: Uid,
    progress: &dyn Progress,
) -> Result<std::result::Result<StoredFiles, Lost>> {
    progress.phase("hash and upload");
    let transfer = Transfer::new(session, scan, base, uid, progress);
    // The bundle is packed and sent while the last blobs are on their way.
    let stored = std::thread::scope(|scope| -> Result<_> {
        let look = scope.spawn(|| base.look(&session.store));
        let contents = contents(scope, scan, base, (&transfer, || ahead()), progress)?;
        let reused = reused_bytes(scan, base, &contents);
        progress.phase("bundle");
        let packed = pack::pack(session, scan, base, contents)?;
        let lost = look.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if !lost.is_empty() {
            return Ok(Err(Lost(lost)));
        }
        let bytes = packed.bundle.clone();
        let bundle = if bytes.is_empty() { None } else { Some(transfer.send_bundle(bytes)?) };
        // All files were read by now, and must have held still until they were.
        scan.check_unchanged()?;
        Ok(Ok((packed, bundle, reused)))
    })?;
    // Everything that the ack names must be durable before the ack is: creating it sees to that.
    let counts = transfer.finish()?;
    Ok(stored.map(|(packed, bundle, reused)| (packed, bundle, reused, counts)))
}

fn reused_bytes(scan: &Scan, base: &BaseIndex, contents: &[Content]) -> u64 {
    let reused = scan.files.iter().zip(contents).map(|(file, content)| match content {
        Content::Base(_) => file.stat.size,
        Content::Grown(at, ..) => base.entry(*at).map_or(0, |e| e.size),
        Content::Small(..) | Content::Blob(_) => 0,
    });
    reused.sum()
}

/// Decides about every file, and hashes and begins to send the large ones, several at a time.
fn contents<'s, 'a>(
    scope: &'s Scope<'s, '_>,
    scan: &'s Scan,
    base: &BaseIndex,
    (transfer, ahead): (&'s Transfer<'a>, impl FnOnce() -> Ahead<'a>),
    progress: &dyn Progress,
) -> Result<Vec<Content>> {
    let mut decisions = Vec::with_capacity(scan.files.len());
    let mut to_send = Vec::new();
    let mut packed = 0u64;
    for (i, file) in scan.files.iter().enumerate() {
        let mut decision = decide(scan, file, base)?;
        if let Decision::Pack { bytes, .. } = &decision {
            let length = bytes.len() as u64;
            if packed.saturating_add(length) > limits::BUNDLE_LEN {
                // The bundle is full: it is built in memory and fetched whole. What is left is sent by itself.
                decision = Decision::Send;
            } else {
                packed += length;
            }
        }
        if matches!(decision, Decision::Send) {
            to_send.push(i);
        }
        decisions.push(decision);
    }
    let bytes = to_send.iter().filter_map(|i| scan.files.get(*i)).map(|f| f.stat.size).sum();
    progress.plan(to_send.len() as u64, bytes);
    transfer.take_ahead(ahead());
    let stored = driver::parallel(to_send, |i| match scan.files.get(i) {
        Some(file) => transfer.store(scope, file).map(|s| (i, s)),
        None => Err(Error::new(Kind::Other, "internal: a file of the scan is not in it")),
    })?;
    let mut stored: BTreeMap<usize, Stored> = stored.into_iter().collect();
    let mut contents = Vec::with_capacity(decisions.len());
    for (i, (file, decision)) in scan.files.iter().zip(decisions).enumerate() {
        contents.push(match (decision, stored.remove(&i)) {
            (Decision::Reuse(at), _) | (Decision::Send, Some(Stored::Base(at))) => Content::Base(at),
            (Decision::Send, Some(Stored::Blob(sent))) => Content::Blob(sent),
            (Decision::Send, Some(Stored::Grown { base, digest, rest })) => Content::Grown(base, digest, rest),
            (Decision::Pack { bytes, digest }, _) => match super::transfer::grown_from(base, file, &bytes) {
                Some((at, front)) => {
                    let rest = bytes.get(front..).unwrap_or_default().to_vec();
                    Content::Grown(at, digest, super::transfer::Rest::Bytes(rest))
                }
                None => Content::Small(bytes, digest),
            },
            (Decision::Send, None) => return Err(Error::new(Kind::Other, "internal: a file was not stored")),
        });
    }
    Ok(contents)
}
