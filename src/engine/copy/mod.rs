//! Copies a completed checkpoint into another store: the same job (or another one), the same number, the same files. Only what the other store
//! lacks is sent, and nothing that was not verified.
//!
//! - The copy is a checkpoint of its store like any other: intent, acks, outcome. Its uid is made of the store's id, job, number and the original's
//!   uid ([`Uid::of_copy`]), so that an interrupted copy is found and gone on with, by whichever host, and one that is there is known.
//! - What a base there has is decided by digest, out of its task manifests: names, sizes and times say nothing.
//! - Both stores are used over one cache, which has files by digest. What is sent is not kept a second time.

mod task;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::SnapshotReport;
use super::budget::Budget;
use super::numbered::{self, Begun, Numbered};
use super::origin::Origin;
use super::pack::Sparse;
use super::phased::Phased;
use super::snapshot;
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::{BaseRef, ExpectedOperator, Intent, SubtaskEntry, TaskManifest};
use crate::lifecycle::{Base, Checkpoint, JobListing, driver};
use crate::limits;
use crate::types::{Digest, Key, KeyParts, Name, Prefix, Progress, RecordKind, Uid};

/// What became of a copy.
#[derive(Debug, Clone)]
pub enum Copied {
    /// It was made.
    Now(SnapshotReport),
    /// It was there.
    Before,
    /// It was there once, or the number was: it has expired, and no number is used twice.
    Over,
}

/// Copies a checkpoint of the store `from` into the store `to`, as a checkpoint of `job`.
///
/// An attempt that fails leaves the number open there, and the next one goes on with it.
///
/// # Errors
/// When both are the same store and job; when another checkpoint has the number there; when a file cannot be read or is damaged: then nothing
/// is published.
pub fn copy(
    (from, to): (&Session, &Session),
    checkpoint: &Checkpoint,
    job: &Name,
    progress: &dyn Progress,
) -> Result<Copied> {
    if from.store_id == to.store_id && *job == checkpoint.job {
        let url = to.store.url();
        let why = format!(
            "{url} is the store that {job}/{} is in: name another one, or another job with --as",
            checkpoint.number
        );
        return Err(Error::new(Kind::Invalid, why));
    }
    let phased = Phased::new(&to.work, progress);
    let result = copy_in_phases((from, to), checkpoint, job, &phased);
    to.work.failed_snapshots.add(u64::from(result.is_err()));
    result
}

fn copy_in_phases(
    (from, to): (&Session, &Session),
    checkpoint: &Checkpoint,
    job: &Name,
    progress: &dyn Progress,
) -> Result<Copied> {
    let begun = Instant::now();
    let number = checkpoint.number;
    let _lock = to.copy_lock(job)?;
    progress.phase("open");
    let uid = Uid::of_copy(to.store_id, job, number, checkpoint.uid);
    let listing = to.catalog.job(job)?;
    if let Some(there) = listing.checkpoints.get(&number) {
        // The original of what is a copy itself is as good.
        let original = Uid::of_copy(from.store_id, &checkpoint.job, number, there.uid) == checkpoint.uid;
        return match there.expired {
            _ if there.uid != uid && !original => Err(Error::new(
                Kind::Conflict,
                format!(
                    "{job}/{number} is another checkpoint in {}, and no number is used twice: copy it --as another job",
                    to.store.url()
                ),
            )),
            true => Ok(Copied::Over),
            false => Ok(Copied::Before),
        };
    }
    let wanted = Numbered {
        job,
        number,
        kind: checkpoint.manifest.kind,
        expected: expected(checkpoint)?,
        labels: checkpoint.manifest.labels.clone(),
        uid: Some(uid),
        origin: origin((from, to), checkpoint, &listing),
        remedy: "copy it --as another job",
    };
    let Begun { intent, bases, resumed } = match numbered::begin(to, &wanted) {
        Ok(begun) => begun,
        Err(e) if e.kind() == Kind::Conflict && to.catalog.is_gone(job, number)? => return Ok(Copied::Over),
        Err(e) => return Err(e),
    };
    progress.plan(checkpoint.manifest.files, checkpoint.manifest.logical_bytes);
    progress.phase("copy");
    let acked = if resumed { acked(to, job, &intent)? } else { BTreeSet::new() };
    let copying = Copying {
        from,
        to,
        intent: &intent,
        bases: &bases,
        resumed,
        acked,
        sparse: if checkpoint.manifest.subtasks.iter().any(|s| s.operator.is_flink()) {
            Sparse::Keep
        } else {
            Sparse::Repack
        },
        elsewhere: OnceLock::new(),
        memory: Budget::new(limits::UPLOAD_MEMORY),
        lanes: Budget::new(limits::PARALLEL_REQUESTS as u64),
        first: OnceLock::new(),
        progress,
    };
    let mut report = match copying.tasks(checkpoint) {
        Ok(report) => report,
        Err(e) => return Err(copying.given_up(checkpoint, job, e)),
    };
    progress.phase("outcome");
    snapshot::complete(to, job, number)?;
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(Copied::Now(report))
}

/// Its operators.
fn expected(checkpoint: &Checkpoint) -> Result<Vec<ExpectedOperator>> {
    let mut expected: Vec<ExpectedOperator> = Vec::new();
    // They stand in the order of operator and index.
    for entry in &checkpoint.manifest.subtasks {
        let parallelism = match expected.last_mut().filter(|last| last.operator == entry.operator) {
            Some(last) => &mut last.parallelism,
            None => {
                expected.push(ExpectedOperator { operator: entry.operator.clone(), parallelism: 0 });
                &mut expected.last_mut().ok_or_else(|| Error::new(Kind::Other, "internal: no operator"))?.parallelism
            }
        };
        if *parallelism != entry.subtask {
            let Checkpoint { job, number, .. } = checkpoint;
            let why = format!("{job}/{number} is not whole: {}/{parallelism} is missing", entry.operator);
            return Err(Error::new(Kind::Damage, why));
        }
        *parallelism = parallelism.saturating_add(1);
    }
    Ok(expected)
}

/// A checkpoint there that may be reused beside the job's newest: the original itself within one store, else the one before, where a
/// history is filled in from behind.
fn origin((from, to): (&Session, &Session), checkpoint: &Checkpoint, there: &JobListing) -> Option<Origin> {
    let original = (from.store_id == to.store_id && !checkpoint.expired).then_some(checkpoint);
    let before = || there.checkpoints.range(..checkpoint.number).map(|(_, c)| c).rfind(|c| !c.expired);
    let base = original.or_else(before)?;
    let base = BaseRef { job: base.job.clone(), number: base.number, uid: base.uid };
    Some(Origin { base, pin: None })
}

/// Who has acknowledged.
fn acked(to: &Session, job: &Name, intent: &Intent) -> Result<BTreeSet<(Name, u32)>> {
    let number =
        intent.place.number.try_into().map_err(|_| Error::new(Kind::Other, "internal: an intent without a number"))?;
    let listed = to.store.list(&Prefix::checkpoint(RecordKind::Task, job, number))?;
    let subtask = |parts: &KeyParts| match parts {
        KeyParts::Task(_, _, operator, subtask) => Some((operator.clone(), *subtask)),
        _ => None,
    };
    Ok(listed.iter().filter_map(|l| subtask(l.key.parts())).collect())
}

/// What the copies of a checkpoint's subtasks share.
struct Copying<'a> {
    from: &'a Session,
    to: &'a Session,
    intent: &'a Intent,
    bases: &'a [Base],
    /// An attempt before may have sent files and acknowledged subtasks.
    resumed: bool,
    acked: BTreeSet<(Name, u32)>,
    /// As whoever stored the original did.
    sparse: Sparse,
    /// Large files of all subtasks of the bases: which subtask of which base has one.
    elsewhere: OnceLock<HashMap<(Digest, u64), (usize, usize)>>,
    /// Large files that are in memory.
    memory: Budget,
    /// Large files that are on their way.
    lanes: Budget,
    /// What failed first: nothing more is begun then, and this is told.
    first: OnceLock<(Kind, String)>,
    progress: &'a dyn Progress,
}

impl Copying<'_> {
    /// Whether more is begun.
    fn goes_on(&self) -> Result<()> {
        match self.first.get() {
            None => Ok(()),
            Some((kind, why)) => Err(Error::new(*kind, why.clone())),
        }
    }

    fn failed(&self, e: Error) -> Error {
        self.first.get_or_init(|| (e.kind(), e.message().to_owned()));
        e
    }

    /// The error that is told. An original that expired meanwhile is no damage, and its number is given up here: nobody would go on with it.
    fn given_up(&self, checkpoint: &Checkpoint, to: &Name, e: Error) -> Error {
        let Checkpoint { job, number, .. } = checkpoint;
        let gone = matches!(e.kind(), Kind::NotFound | Kind::Damage)
            && matches!(self.from.store.head(&Key::expired(job, *number)), Ok(Some(_)));
        if !gone {
            return e;
        }
        if let Err(left) = snapshot::abort(self.to, to, *number, "the original has expired") {
            log::warn!("{to}/{number} stays open in {}: {left}", self.to.store.url());
        }
        let why = format!(
            "{job}/{number} expired while it was copied: copy another (`ckptfs pin` keeps one): {}",
            e.message()
        );
        Error::new(Kind::NotFound, why)
    }

    fn tasks(&self, checkpoint: &Checkpoint) -> Result<SnapshotReport> {
        let mut stored = Stored::default();
        let mut total: Option<SnapshotReport> = None;
        let mut batch = Batch::default();
        for entries in checkpoint.manifest.subtasks.chunks(limits::PARALLEL_REQUESTS) {
            let manifests = driver::parallel(entries.iter().collect(), |entry: &SubtaskEntry| {
                self.from.cache.task_manifest(&self.from.store, &checkpoint.job, checkpoint.number, entry)
            })?;
            for manifest in manifests {
                if batch.is_full(&manifest) {
                    self.store(&mut batch, &mut stored, &mut total)?;
                }
                batch.add(manifest);
            }
            self.store(&mut batch, &mut stored, &mut total)?;
        }
        total.ok_or_else(|| Error::new(Kind::Other, "internal: a checkpoint without subtasks"))
    }

    fn store(&self, batch: &mut Batch, stored: &mut Stored, total: &mut Option<SnapshotReport>) -> Result<()> {
        let Batch { tasks, .. } = std::mem::take(batch);
        let done = driver::parallel(tasks, |task| {
            self.goes_on()?;
            task::store(self, &task, &stored.siblings(&task)).map_err(|e| self.failed(e))
        })?;
        for (report, manifest) in done {
            stored.add(manifest);
            match total {
                Some(total) => total.add(&report),
                None => *total = Some(report),
            }
        }
        Ok(())
    }
}

/// Files that are blobs of their own: digest and size. Only those are worth looking for at other subtasks.
fn large(manifest: &TaskManifest) -> impl Iterator<Item = (Digest, u64)> + '_ {
    let large = |size| size >= limits::OWN_BLOB_IMMUTABLE;
    manifest.files.iter().filter(move |f| large(f.size)).map(|f| (f.digest, f.size))
}

/// Subtasks that are copied at once. A job that was rescaled hands one table to several subtasks: those are not in one batch, so that the
/// second one finds what the first one sent.
#[derive(Default)]
struct Batch {
    tasks: Vec<Arc<TaskManifest>>,
    large: HashSet<(Digest, u64)>,
    /// Bytes that they hold in memory.
    bytes: u64,
}

impl Batch {
    /// Bytes that go into its bundle, at most.
    fn bytes(manifest: &TaskManifest) -> u64 {
        let bytes = manifest.files.iter().map(|f| {
            let beside = f.tree.map_or(0, |e| e.length).saturating_add(f.tail.map_or(0, |t| t.extent.length));
            if task::alone(f) { beside } else { f.size }
        });
        bytes.fold(0, u64::saturating_add)
    }

    fn is_full(&self, next: &TaskManifest) -> bool {
        let bytes = self.bytes.saturating_add(Self::bytes(next));
        !self.tasks.is_empty() && (bytes > limits::COPY_MEMORY || large(next).any(|f| self.large.contains(&f)))
    }

    fn add(&mut self, manifest: Arc<TaskManifest>) {
        self.bytes = self.bytes.saturating_add(Self::bytes(&manifest));
        self.large.extend(large(&manifest));
        self.tasks.push(manifest);
    }
}

/// What other subtasks of the checkpoint have in the other store by now.
#[derive(Default)]
struct Stored {
    manifests: Vec<Arc<TaskManifest>>,
    by_large: HashMap<(Digest, u64), usize>,
}

impl Stored {
    fn add(&mut self, manifest: Arc<TaskManifest>) {
        let before = self.by_large.len();
        for file in large(&manifest) {
            self.by_large.entry(file).or_insert(self.manifests.len());
        }
        if self.by_large.len() > before {
            self.manifests.push(manifest);
        }
    }

    fn siblings(&self, task: &TaskManifest) -> Vec<Arc<TaskManifest>> {
        let shared: BTreeSet<usize> = large(task).filter_map(|f| self.by_large.get(&f).copied()).collect();
        shared.into_iter().filter_map(|i| self.manifests.get(i).cloned()).collect()
    }
}
