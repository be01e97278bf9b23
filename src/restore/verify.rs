//! Verify: every record can be believed, every reference resolves, and with `--read` every byte is what its name says.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

use super::composed::Composed;
use super::select::Selection;
use crate::cache::Scrubbed;
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::records::{
    EpochRecord, ExpiredRecord, FloorRecord, HeadRecord, HiddenRecord, PinRecord, StoreRecord,
};
use crate::format::{BlobEntry, FileEntry, FormatError, Intent, Outcome, TaskManifest, bundle, decode_at};
use crate::lifecycle::{Checkpoint, JobListing, driver};
use crate::limits;
use crate::store::StoreError;
use crate::types::Progress;
use crate::types::{BlobName, CheckpointNumber, Digest, Hasher, Key, KeyParts, Name, Prefix, RecordKind};

/// What is wrong with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// It is named and not there.
    Missing,
    /// It is there with another length.
    Short,
    /// Its bytes are not what they should be.
    Damaged,
    /// It could not be read.
    Unreadable,
    /// The cache's copy was damaged; it was dropped and fetched anew.
    CacheMended,
}

impl FindingKind {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Short => "short",
            Self::Damaged => "damaged",
            Self::Unreadable => "unreadable",
            Self::CacheMended => "cache copy damaged, fetched anew",
        }
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// The object in the store (or the digest in the cache).
    pub object: String,
    /// Files that it belongs to: `JOB/chk-N/OPERATOR/SUBTASK/db/000012.sst`, the first few.
    pub files: Vec<String>,
    /// More words.
    pub detail: String,
}

/// What a verification looked at and found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Checkpoints looked at.
    pub checkpoints: u64,
    /// Metadata objects read.
    pub records: u64,
    /// Blobs that are referenced.
    pub blobs: u64,
    /// Bytes read from blobs in the store.
    pub bytes_read: u64,
    /// Files of the cache hashed again.
    pub cache_files: u64,
    /// Findings, in order.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether damage was found, mended or not.
    #[must_use]
    pub fn damaged(&self) -> bool {
        !self.findings.is_empty()
    }
}

#[derive(Debug, Default)]
struct Named {
    length: u64,
    bundle: bool,
    files: Vec<String>,
    /// Sections of bundles and their digests, where a file is one section.
    sections: Vec<(u64, u64, Digest, String)>,
}

/// Names kept per blob for messages.
const FILES_SHOWN: usize = 8;

/// What to verify.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Only this job.
    pub job: Option<Name>,
    /// Only this checkpoint of it.
    pub number: Option<CheckpointNumber>,
    /// Read every byte.
    pub read: bool,
}

impl Scope {
    /// Reads `JOB` or `JOB/chk-N`.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: Option<&str>, read: bool) -> Result<Self> {
        let Some(text) = text else { return Ok(Self { job: None, number: None, read }) };
        if text.trim_end_matches('/').contains('/') {
            let selection = Selection::parse(text)?;
            selection.exact()?;
            selection.whole()?;
            if selection.number.is_none() {
                return Err(Error::new(
                    Kind::Invalid,
                    format!("{text:?}: resolve latest first with `ckptfs path {text}`"),
                ));
            }
            return Ok(Self { job: Some(selection.job), number: selection.number, read });
        }
        Ok(Self { job: Some(super::select::job_name(text.trim_end_matches('/'))?), number: None, read })
    }

    fn covers(&self, job: &Name, number: CheckpointNumber) -> bool {
        self.job.as_ref().is_none_or(|j| j == job) && self.number.is_none_or(|n| n == number)
    }
}

/// Verifies what the scope covers.
///
/// # Errors
/// When the store cannot be listed or does not answer; findings are not errors.
pub fn verify(session: &Session, scope: &Scope, progress: &dyn Progress) -> Result<Report> {
    let mut report = Report::default();
    progress.phase("records");
    records(session, scope, &mut report)?;
    let mut checkpoints = Vec::new();
    for listing in listings(session, scope, &mut report)? {
        let covered = listing.checkpoints.into_values().filter(|c| !c.expired && scope.covers(&c.job, c.number));
        checkpoints.extend(covered);
    }
    if let (Some(job), Some(number), true) =
        (&scope.job, scope.number, checkpoints.is_empty() && report.findings.is_empty())
    {
        return Err(super::select::no_such(job, number));
    }
    report.checkpoints = checkpoints.len() as u64;
    let mut named: BTreeMap<BlobName, Named> = BTreeMap::new();
    let mut composed = Composed::default();
    let mut digests: BTreeMap<Digest, (u64, String)> = BTreeMap::new();
    for checkpoint in &checkpoints {
        references(session, checkpoint, &mut named, &mut digests, &mut composed, &mut report);
    }
    report.blobs = named.len() as u64;
    progress.phase("blobs");
    resolve(session, &named, &mut report)?;
    if scope.read {
        let bytes = named.values().map(|n| n.length).sum();
        progress.plan(named.len() as u64, bytes);
        read_blobs(session, &named, &mut report, progress)?;
        let known = report.findings.iter().map(|f| f.object.clone()).collect();
        report.findings.extend(composed.check(&session.store, &known)?.into_iter().map(|lie| Finding {
            kind: FindingKind::Damaged,
            object: lie.object,
            files: vec![lie.path],
            detail: "the blobs are whole, but the file's extents do not hold its bytes".to_owned(),
        }));
        progress.phase("cache");
        scrub(session, &checkpoints, &digests, &mut report)?;
    }
    report.findings.sort();
    report.findings.dedup();
    Ok(report)
}

fn listings(session: &Session, scope: &Scope, report: &mut Report) -> Result<Vec<JobListing>> {
    let jobs = match &scope.job {
        Some(job) => vec![job.clone()],
        None => session.catalog.jobs()?,
    };
    let mut out = Vec::new();
    for job in jobs {
        match session.catalog.job(&job) {
            Ok(listing) => {
                let nothing =
                    listing.checkpoints.is_empty() && listing.unreadable.is_empty() && listing.open.is_empty();
                if scope.job.is_some() && nothing {
                    return Err(Error::new(
                        Kind::NotFound,
                        format!("there is no job {job}: `ckptfs ls` lists the jobs"),
                    ));
                }
                out.push(listing);
            }
            // A floor that cannot be believed; it is among the records.
            Err(e) if e.kind() == Kind::Damage => report.findings.push(Finding {
                kind: FindingKind::Damaged,
                object: format!("the records of job {job}"),
                files: Vec::new(),
                detail: e.to_string(),
            }),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(out)
}

/// Reads and decodes every metadata object in the scope.
fn records(session: &Session, scope: &Scope, report: &mut Report) -> Result<()> {
    let kinds = [
        RecordKind::Epoch,
        RecordKind::Intent,
        RecordKind::Task,
        RecordKind::Outcome,
        RecordKind::Hidden,
        RecordKind::Expired,
        RecordKind::Pin,
        RecordKind::Floor,
        RecordKind::Head,
    ];
    let mut keys = vec![Key::store()];
    for kind in kinds {
        let prefix = match &scope.job {
            Some(job) if kind != RecordKind::Head => Prefix::job(kind, job),
            _ => Prefix::kind(kind),
        };
        keys.extend(session.store.list(&prefix)?.into_iter().map(|l| l.key).filter(|k| in_scope(k, scope)));
    }
    report.records = keys.len() as u64;
    let found = driver::parallel(keys, |key| match session.store.get(&key, limits::METADATA_LEN) {
        Ok(Some(bytes)) => Ok(check_record(&key, &bytes).err().map(|e| (key, e.to_string()))),
        // Deleted since it was listed.
        Ok(None) => Ok(None),
        Err(e) if e.kind() == Kind::Damage => Ok(Some((key, e.to_string()))),
        Err(e) => Err(e),
    })?;
    report.findings.extend(found.into_iter().flatten().map(|(key, detail)| Finding {
        kind: FindingKind::Damaged,
        object: key.to_string(),
        files: Vec::new(),
        detail,
    }));
    Ok(())
}

fn in_scope(key: &Key, scope: &Scope) -> bool {
    match key.parts() {
        KeyParts::Store | KeyParts::Blob(_) => true,
        KeyParts::Epoch(job, _) | KeyParts::Head(job) | KeyParts::Floor(job, _) => {
            scope.job.as_ref().is_none_or(|j| j == job)
        }
        KeyParts::Intent(job, n)
        | KeyParts::Task(job, n, ..)
        | KeyParts::Outcome(job, n)
        | KeyParts::Hidden(job, n, _)
        | KeyParts::Expired(job, n)
        | KeyParts::Pin(job, n, ..) => scope.covers(job, *n),
    }
}

fn check_record(key: &Key, bytes: &[u8]) -> Result<(), FormatError> {
    match key.parts() {
        KeyParts::Store => decode_at::<StoreRecord>(key, bytes).map(drop),
        KeyParts::Epoch(..) => decode_at::<EpochRecord>(key, bytes).map(drop),
        KeyParts::Intent(..) => decode_at::<Intent>(key, bytes).map(drop),
        KeyParts::Task(..) => decode_at::<TaskManifest>(key, bytes).map(drop),
        KeyParts::Outcome(..) => decode_at::<Outcome>(key, bytes).map(drop),
        KeyParts::Hidden(..) => decode_at::<HiddenRecord>(key, bytes).map(drop),
        KeyParts::Expired(..) => decode_at::<ExpiredRecord>(key, bytes).map(drop),
        KeyParts::Pin(..) => decode_at::<PinRecord>(key, bytes).map(drop),
        KeyParts::Floor(..) => decode_at::<FloorRecord>(key, bytes).map(drop),
        KeyParts::Head(_) => decode_at::<HeadRecord>(key, bytes).map(drop),
        KeyParts::Blob(_) => Ok(()),
    }
}

/// Collects what a checkpoint names. Task manifests come from the store itself: the cache's copy proves nothing about it.
fn references(
    session: &Session,
    checkpoint: &Checkpoint,
    named: &mut BTreeMap<BlobName, Named>,
    digests: &mut BTreeMap<Digest, (u64, String)>,
    composed: &mut Composed,
    report: &mut Report,
) {
    for entry in &checkpoint.manifest.subtasks {
        let key = Key::task(&checkpoint.job, checkpoint.number, &entry.operator, entry.subtask);
        let home = format!("{}/{}/{}/{}", checkpoint.job, checkpoint.number, entry.operator, entry.subtask);
        let mut finding = |kind, detail: String| {
            let files = vec![format!("{home}/manifest.json")];
            report.findings.push(Finding { kind, object: key.to_string(), files, detail });
        };
        let bytes = match session.store.get(&key, limits::METADATA_LEN) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                finding(FindingKind::Missing, "the checkpoint manifest names it".to_owned());
                continue;
            }
            Err(e) => {
                finding(FindingKind::Unreadable, e.to_string());
                continue;
            }
        };
        if Digest::of(&bytes) != entry.manifest {
            finding(FindingKind::Damaged, "its digest is not the one in the checkpoint manifest".to_owned());
            continue;
        }
        match decode_at::<TaskManifest>(&key, &bytes) {
            Ok(decoded) => collect(&decoded.record, &home, named, digests, composed),
            Err(e) => finding(FindingKind::Damaged, e.to_string()),
        }
    }
}

fn collect(
    manifest: &TaskManifest,
    home: &str,
    named: &mut BTreeMap<BlobName, Named>,
    digests: &mut BTreeMap<Digest, (u64, String)>,
    composed: &mut Composed,
) {
    let entries: Vec<&BlobEntry> = manifest.blobs.iter().collect();
    for blob in &entries {
        let n = named.entry(blob.name).or_default();
        n.length = blob.length;
        n.bundle = blob.bundle;
        if blob.bundle {
            digests.entry(blob.name.digest).or_insert((blob.length, format!("{home} (bundle)")));
        }
    }
    for file in &manifest.files {
        let path = format!("{home}/{}", file.path);
        digests.entry(file.digest).or_insert((file.size, path.clone()));
        composed.add(manifest, file, &path);
        for extent in &file.extents {
            let Some(n) = entries.get(extent.blob as usize).and_then(|b| named.get_mut(&b.name)) else { continue };
            if n.files.len() < FILES_SHOWN && !n.files.contains(&path) {
                n.files.push(path.clone());
            }
        }
        if let [extent] = file.extents.as_slice()
            && let Some(n) = entries.get(extent.blob as usize).and_then(|b| named.get_mut(&b.name))
            && n.bundle
        {
            n.sections.push((extent.offset, extent.length, file.digest, path));
        }
    }
}

/// One listing tells the lengths of all blobs.
fn resolve(session: &Session, named: &BTreeMap<BlobName, Named>, report: &mut Report) -> Result<()> {
    let sizes: HashMap<Key, u64> = session.store.blob_sizes()?;
    for (name, n) in named {
        let key = Key::blob(name);
        let finding = match sizes.get(&key) {
            Some(found) if *found == n.length => continue,
            Some(found) => (FindingKind::Short, format!("{found} bytes instead of {}", n.length)),
            None => (FindingKind::Missing, format!("{} bytes", n.length)),
        };
        report.findings.push(Finding {
            kind: finding.0,
            object: key.to_string(),
            files: n.files.clone(),
            detail: finding.1,
        });
    }
    Ok(())
}

fn read_blobs(
    session: &Session,
    named: &BTreeMap<BlobName, Named>,
    report: &mut Report,
    progress: &dyn Progress,
) -> Result<()> {
    let known: BTreeSet<String> = report.findings.iter().map(|f| f.object.clone()).collect();
    let todo: Vec<_> = named.iter().filter(|(name, _)| !known.contains(Key::blob(name).as_str())).collect();
    let read = Mutex::new(0u64);
    let results = driver::parallel(todo, |(name, n)| {
        let finding = read_blob(session, name, n, progress)?;
        if let Ok(mut read) = read.lock() {
            *read += n.length;
        }
        Ok::<_, Error>(finding)
    })?;
    report.bytes_read = read.into_inner().unwrap_or_default();
    report.findings.extend(results.into_iter().flatten());
    Ok(())
}

fn read_blob(session: &Session, name: &BlobName, n: &Named, progress: &dyn Progress) -> Result<Option<Finding>> {
    let key = Key::blob(name);
    let finding =
        |kind, files: Vec<String>, detail: String| Some(Finding { kind, object: key.to_string(), files, detail });
    let mut hasher = Hasher::new();
    let mut whole = Vec::new();
    let read = session.store.read_to(&key, n.length, &mut |bytes| {
        hasher.update(bytes);
        if n.bundle {
            whole.extend_from_slice(bytes);
        }
        progress.advance(bytes.len() as u64);
        Ok(())
    });
    match read {
        Ok(()) => {}
        Err(StoreError::NotFound { .. }) => {
            return Ok(finding(FindingKind::Missing, n.files.clone(), "it went away".to_owned()));
        }
        Err(e) if e.kind() == Kind::Damage => return Ok(finding(FindingKind::Damaged, n.files.clone(), e.to_string())),
        Err(e) => return Err(e.into()),
    }
    let found = hasher.finish();
    if found != name.digest {
        return Ok(finding(FindingKind::Damaged, n.files.clone(), format!("its bytes have the digest {found}")));
    }
    for (offset, length, digest, path) in &n.sections {
        if bundle::section(&whole, *offset, *length).map(Digest::of) != Some(*digest) {
            let detail = format!("the bundle is whole, but [{offset}, {length}] is not the file's bytes");
            return Ok(finding(FindingKind::Damaged, vec![path.clone()], detail));
        }
    }
    Ok(None)
}

/// Hashes the cache's copies again, and fetches anew what the disk lost.
fn scrub(
    session: &Session,
    checkpoints: &[Checkpoint],
    digests: &BTreeMap<Digest, (u64, String)>,
    report: &mut Report,
) -> Result<()> {
    let results = driver::parallel(digests.keys().copied().collect(), |d| session.cache.scrub(&d).map(|s| (d, s)))?;
    let mut lost = BTreeSet::new();
    for (digest, scrubbed) in results {
        report.cache_files += u64::from(scrubbed != Scrubbed::Absent);
        if scrubbed == Scrubbed::Discarded {
            lost.insert(digest);
        }
    }
    if lost.is_empty() {
        return Ok(());
    }
    for checkpoint in checkpoints {
        for entry in &checkpoint.manifest.subtasks {
            let manifest = super::select::task_manifest(session, checkpoint, entry)?;
            let bundles: Vec<Digest> = manifest.blobs.iter().filter(|b| b.bundle).map(|b| b.name.digest).collect();
            if bundles.iter().any(|d| lost.contains(d)) {
                mend(session, report, &bundles, &mut lost, digests, || {
                    Ok(session.cache.fetch_bundles(&session.store, &manifest)?)
                });
            }
            let files: Vec<&FileEntry> = manifest.files.iter().filter(|f| lost.contains(&f.digest)).collect();
            for file in files {
                let fetch = || Ok(session.cache.fetch_file(&session.store, &manifest, file).map(drop)?);
                mend(session, report, &[file.digest], &mut lost, digests, fetch);
            }
        }
    }
    Ok(())
}

fn mend(
    session: &Session,
    report: &mut Report,
    which: &[Digest],
    lost: &mut BTreeSet<Digest>,
    digests: &BTreeMap<Digest, (u64, String)>,
    fetch: impl FnOnce() -> Result<()>,
) {
    let fetched = fetch();
    for digest in which {
        if !lost.remove(digest) {
            continue;
        }
        let file = digests.get(digest).map(|(_, path)| path.clone()).unwrap_or_default();
        let (kind, detail) = match &fetched {
            Ok(()) => (FindingKind::CacheMended, "the cache's disk lost bytes".to_owned()),
            Err(e) => (FindingKind::Damaged, format!("the cache's copy was wrong and could not be fetched anew: {e}")),
        };
        let hex = digest.to_hex();
        let object = session.cache.path().join("files").join(&hex[..2]).join(&hex).display().to_string();
        report.findings.push(Finding { kind, object, files: vec![file], detail });
    }
}
