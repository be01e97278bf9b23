//! Stores what one subtask has for a checkpoint: the files of its database and the state that it wrote, up to its ack.
//!
//! A one-shot snapshot packs the bundle while the last blobs are on their way ([`store_directory`]). The engine's futures do it in
//! parts: [`upload_directory`], then [`finish`] with what the other futures brought, then [`acknowledge`].

use std::collections::{BTreeMap, HashSet};

use super::ahead::Ahead;
use super::base::BaseIndex;
use super::cancel::Cancel;
use super::input::{Input, StateFile};
use super::pack::{self, Content, Packed, Sparse};
use super::phased::Phased;
use super::plan::{Decision, decide};
use super::scan::Scan;
use super::snapshot::SnapshotReport;
use super::transfer::{Counts, Scope, Stored, Transfer};
use crate::cache::{Batch, Session};
use crate::error::{Error, Kind, Result};
use crate::format::{Intent, Place, Role, TaskManifest, phases};
use crate::lifecycle::{Base, ack, driver};
use crate::limits;
use crate::types::{BlobName, CheckpointNumber, Digest, KeyGroupRange, Name, Progress, Uid, beside};

/// Whose snapshot it is.
#[derive(Debug, Clone, Copy)]
pub struct Task<'a> {
    /// The job.
    pub job: &'a Name,
    /// The checkpoint.
    pub number: CheckpointNumber,
    /// The operator's name as its author writes it.
    pub operator: &'a str,
    /// Index of the subtask.
    pub subtask: u32,
}

/// What a task manifest says beside its files.
#[derive(Debug, Clone, Default)]
pub struct Described {
    /// The database's identity.
    pub backend: Option<String>,
    /// Key groups of the keyed state.
    pub key_groups: Option<KeyGroupRange>,
    /// Descriptors of the states.
    pub states: Vec<serde_json::Value>,
    /// Free properties.
    pub properties: BTreeMap<String, String>,
}

/// Stores a directory as the whole of a subtask, its ack included.
pub(super) fn store_directory<'a>(
    session: &'a Session,
    scan: &Scan,
    ahead: impl FnOnce() -> Ahead<'a>,
    intent: &Intent,
    bases: &[Base],
    task: &Task<'_>,
    progress: &Phased<'_>,
) -> Result<SnapshotReport> {
    let operator = Name::encode(task.operator);
    let mut base = BaseIndex::load(session, bases, &operator, task.subtask)?;
    let mut ahead = Some(ahead);
    let links = session.cache.batch();
    let (packed, bundle, reused, counts) = loop {
        let ahead = || ahead.take().map_or_else(Ahead::default, |ahead| ahead());
        match store_files(session, scan, ahead, &base, intent.place.uid, &links, progress)? {
            Ok(stored) => break stored,
            // What was sent meanwhile is there already when it is sent again.
            Err(Lost(blobs)) => base = base.without(blobs),
        }
    };
    let properties = phases::properties(progress.so_far().into_iter().chain([(phases::SCAN, scan.took)]));
    let described = Described { backend: scan.db_id.clone(), properties, ..Described::default() };
    let mut manifest = draft(task, intent.place.uid, described);
    manifest.new_bytes = counts.uploaded.into_inner();
    packed.fill(&mut manifest, &inputs(Some(scan), &[]), bundle)?;
    progress.phase("ack");
    let finished = Finished {
        manifest,
        reused_bytes: reused,
        adopted_bytes: counts.adopted.into_inner(),
        degraded_links: counts.degraded.into_inner(),
    };
    // The cache waits for its disk beside the store: the ack does not depend on it.
    std::thread::scope(|scope| {
        let kept = beside(scope, || links.finish());
        let acked = acknowledge(session, finished);
        kept.join()?;
        acked
    })
}

pub(super) fn draft(task: &Task<'_>, uid: Uid, described: Described) -> TaskManifest {
    let mut place = Place::new(Role::Task, task.job, task.number.get(), uid);
    place.subtask = Some((Name::encode(task.operator), task.subtask));
    TaskManifest {
        place,
        display_name: task.operator.to_owned(),
        blobs: Vec::new(),
        files: Vec::new(),
        logical_bytes: 0,
        new_bytes: 0,
        backend: described.backend,
        key_groups: described.key_groups,
        states: described.states,
        properties: described.properties,
        other_state: BTreeMap::new(),
        origins: BTreeMap::new(),
    }
}

fn inputs<'a>(scan: Option<&'a Scan>, states: &'a [StateFile]) -> Vec<Input<'a>> {
    let files = scan.into_iter().flat_map(|scan| scan.files.iter().map(move |file| Input::File(scan, file)));
    files.chain(states.iter().map(Input::State)).collect()
}

/// A directory whose large files are sent.
#[derive(Debug)]
pub struct Uploaded {
    scan: Scan,
    base: BaseIndex,
    contents: Vec<Content>,
    reused: u64,
    counts: Counts,
}

impl Uploaded {
    /// Bytes of the directory, and bytes that were sent for it.
    #[must_use]
    pub fn sizes(&self) -> (u64, u64) {
        let state = self.scan.files.iter().map(|f| f.stat.size).sum();
        (state, self.counts.uploaded.load(std::sync::atomic::Ordering::Relaxed))
    }
}

/// Sends what a base has not of a directory's large files. The small ones go into the bundle, with whatever [`finish`] is given.
///
/// # Errors
/// When the directory changes, a file cannot be read or sent, or the snapshot is cancelled.
pub fn upload_directory(
    session: &Session,
    scan: Scan,
    mut base: BaseIndex,
    uid: Uid,
    cancel: &Cancel,
    progress: &dyn Progress,
) -> Result<Uploaded> {
    loop {
        let links = session.cache.batch();
        let transfer = Transfer::new(session, Some(&scan), &base, uid, &links, cancel, progress);
        let (contents, lost) = std::thread::scope(|scope| -> Result<_> {
            let look = beside(scope, || base.look(&session.store));
            let contents = contents(scope, &scan, &base, (&transfer, Ahead::default), progress)?;
            Ok((contents, look.join()))
        })?;
        let counts = transfer.finish()?;
        links.finish()?;
        if lost.is_empty() {
            scan.check_unchanged()?;
            let reused = reused_bytes(&scan, &base, &contents);
            return Ok(Uploaded { scan, base, contents, reused, counts });
        }
        // What was sent meanwhile is there already when it is sent again.
        base = base.without(lost);
    }
}

/// A task manifest that everything was uploaded for, and that is not stored yet.
#[derive(Debug)]
pub struct Finished {
    /// The manifest.
    pub manifest: TaskManifest,
    /// Bytes of files that a base had.
    pub reused_bytes: u64,
    /// Bytes that an aborted attempt had uploaded.
    pub adopted_bytes: u64,
    /// Files that could not be hard-linked into the cache.
    pub degraded_links: u64,
}

/// Packs and sends the bundle: what [`upload_directory`] left, and the state files, which are in the order of their paths. The manifest is
/// then whole.
///
/// # Errors
/// When something cannot be read or sent, or the snapshot is cancelled.
pub fn finish(
    session: &Session,
    keyed: std::result::Result<Uploaded, BaseIndex>,
    states: &[StateFile],
    (task, uid): (&Task<'_>, Uid),
    described: Described,
    (cancel, progress): (&Cancel, &dyn Progress),
) -> Result<Finished> {
    let (scan, base, mut contents, reused, before) = match keyed {
        Ok(Uploaded { scan, base, contents, reused, counts }) => (Some(scan), base, contents, reused, counts),
        Err(base) => (None, base, Vec::new(), 0, Counts::default()),
    };
    let inputs = inputs(scan.as_ref(), states);
    let links = session.cache.batch();
    let transfer = Transfer::new(session, scan.as_ref(), &base, uid, &links, cancel, progress);
    let small = |c: &Content| if let Content::Small(bytes, _) = c { bytes.len() as u64 } else { 0 };
    let mut room = limits::BUNDLE_LEN.saturating_sub(contents.iter().map(small).sum());
    let (packed, bundle) = std::thread::scope(|scope| -> Result<_> {
        for state in states {
            let digest = Digest::of(&state.bytes);
            let size = state.bytes.len() as u64;
            contents.push(if let Some(at) = base.by_digest(&digest, size) {
                Content::Base(at)
            } else if size > limits::OWN_BLOB_OTHER || size > room {
                Content::Blob(transfer.store_state(scope, digest, &state.bytes)?)
            } else {
                room -= size;
                Content::Small(state.bytes.to_vec(), digest)
            });
        }
        let packed = pack::pack(session, &inputs, &base, contents, Sparse::Repack)?;
        let bytes = packed.bundle.clone();
        let bundle = if bytes.is_empty() { None } else { Some(transfer.send_bundle(bytes)?) };
        Ok((packed, bundle))
    })?;
    let counts = transfer.finish()?;
    links.finish()?;
    let mut manifest = draft(task, uid, described);
    manifest.new_bytes = before.uploaded.into_inner().saturating_add(counts.uploaded.into_inner());
    packed.fill(&mut manifest, &inputs, bundle)?;
    Ok(Finished {
        manifest,
        reused_bytes: reused,
        adopted_bytes: before.adopted.into_inner().saturating_add(counts.adopted.into_inner()),
        degraded_links: before.degraded.into_inner(),
    })
}

/// Creates the ack.
///
/// # Errors
/// When the checkpoint is decided, does not expect the subtask, or another ack of it says something else.
pub fn acknowledge(session: &Session, finished: Finished) -> Result<SnapshotReport> {
    let acked = driver::run(&session.store, ack::Ack::new(finished.manifest)?)?;
    let place = &acked.manifest.place;
    let internal = || Error::new(Kind::Other, "internal: an ack without its place");
    let key = place.key().ok_or_else(internal)?;
    // The checkpoint manifest will name the digest of what is stored: the signed object, where there are keys.
    let stored = session.store.signed(&key, acked.bytes)?;
    session.cache.put_manifest(&Digest::of(&stored), &stored)?;
    session.cache.tidy();
    let work = &session.work;
    work.snapshots.inc();
    work.logical_bytes.add(acked.manifest.logical_bytes);
    work.new_bytes.add(acked.manifest.new_bytes);
    work.reused_bytes.add(finished.reused_bytes);
    Ok(SnapshotReport {
        number: CheckpointNumber::new(place.number).map_err(|_| internal())?,
        uid: place.uid,
        files: acked.manifest.files.len() as u64,
        logical_bytes: acked.manifest.logical_bytes,
        new_bytes: acked.manifest.new_bytes,
        reused_bytes: finished.reused_bytes,
        adopted_bytes: finished.adopted_bytes,
        seconds: 0.0,
        degraded_links: finished.degraded_links,
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
    links: &Batch<'_>,
    progress: &dyn Progress,
) -> Result<std::result::Result<StoredFiles, Lost>> {
    progress.phase("hash and upload");
    let cancel = Cancel::default();
    let transfer = Transfer::new(session, Some(scan), base, uid, links, &cancel, progress);
    // The bundle is packed and sent while the last blobs are on their way.
    let stored = std::thread::scope(|scope| -> Result<_> {
        let look = beside(scope, || base.look(&session.store));
        let contents = contents(scope, scan, base, (&transfer, || ahead()), progress)?;
        let reused = reused_bytes(scan, base, &contents);
        progress.phase("bundle");
        let packed = pack::pack(session, &inputs(Some(scan), &[]), base, contents, Sparse::Repack)?;
        let lost = look.join();
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
        Content::Small(..) | Content::Blob(_) | Content::Within(..) => 0,
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
            (Decision::Pack { bytes, digest }, _) => match super::transfer::grown_from(base, &file.path, &bytes) {
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
