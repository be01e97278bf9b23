//! Verify: every record can be believed, every reference resolves, and with `read` every byte is what its name says. Finds what is
//! missing, short, damaged, unreadable, dangling, unreferenced or foreign, says whom it hurts, and mends what is provably safe to mend.
//!
//! What is found is looked at twice where the first look may have been too early: checkpoints are taken, expired and swept meanwhile.

mod cached;
mod composed;
mod finding;
mod read;
mod records;
mod references;
mod repair;
mod resume;
mod strays;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;

use self::records::{At, Records};
use self::references::References;
use self::resume::Proved;
use super::select::Selection;
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::types::Progress;
use crate::types::{CheckpointNumber, Digest, Hasher, Key, Name, Prefix, RecordKind};

pub use finding::{Finding, FindingKind, Hurt};

/// What to verify: everything, or a part of it.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Only this job.
    pub job: Option<Name>,
    /// Only this checkpoint of it.
    pub number: Option<CheckpointNumber>,
}

/// How to verify.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Read bytes, and which.
    pub read: Option<Read>,
    /// Mend what can be mended safely.
    pub repair: bool,
}

/// Which bytes to read.
#[derive(Debug, Clone)]
pub struct Read {
    /// Out of a hundred blobs, above 0, at most 100. Which they are, their digests and the seed say.
    pub percent: f64,
    /// Another seed picks others.
    pub seed: u64,
    /// A file that remembers what was read and found right, for as long as the reading has not come to its end.
    pub resume: Option<PathBuf>,
}

impl Default for Read {
    /// All of them.
    fn default() -> Self {
        Self { percent: 100.0, seed: 0, resume: None }
    }
}

impl Read {
    /// Whether the sample has what this digest is of.
    fn picks(&self, digest: &Digest) -> bool {
        if self.percent >= 100.0 {
            return true;
        }
        let mixed = Hasher::new().update(&self.seed.to_le_bytes()).update(digest.as_bytes()).finish();
        let [a, b, c, d, ..] = *mixed.as_bytes();
        f64::from(u32::from_le_bytes([a, b, c, d])) < self.percent / 100.0 * 4_294_967_296.0
    }
}

/// What was read, of how much.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// Blobs that were read from the store.
    pub blobs: u64,
    /// Bytes that the store gave.
    pub bytes: u64,
    /// Bytes that a reading before its interruption had read and found right.
    pub resumed_bytes: u64,
    /// Bytes that a complete reading would read.
    pub total_bytes: u64,
}

/// What a verification looked at and found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Checkpoints looked at.
    pub checkpoints: u64,
    /// Metadata objects looked at.
    pub records: u64,
    /// Blobs that are referenced.
    pub blobs: u64,
    /// What was read of them.
    pub reading: Reading,
    /// Files of the cache hashed again.
    pub cache_files: u64,
    /// Findings, in order.
    pub findings: Vec<Finding>,
    /// What could not be told, and why.
    pub notes: Vec<String>,
}

impl Report {
    /// Whether damage is left: found, and not mended.
    #[must_use]
    pub fn damaged(&self) -> bool {
        self.findings.iter().any(Finding::is_open)
    }
}

impl Scope {
    /// Reads `JOB` or `JOB/chk-N`.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: Option<&str>) -> Result<Self> {
        let Some(text) = text else { return Ok(Self::default()) };
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
            return Ok(Self { job: Some(selection.job), number: selection.number });
        }
        Ok(Self { job: Some(super::select::job_name(text.trim_end_matches('/'))?), number: None })
    }

    fn covers(&self, job: &Name, number: CheckpointNumber) -> bool {
        self.job.as_ref().is_none_or(|j| j == job) && self.number.is_none_or(|n| n == number)
    }
}

/// Verifies what the scope covers. What nothing names is told only where that is the whole store.
///
/// # Errors
/// When the store cannot be listed or does not answer, or may not be mended; findings are not errors.
pub fn verify(session: &Session, scope: &Scope, options: &Options, progress: &dyn Progress) -> Result<Report> {
    let mut report = Report::default();
    let resume = options.read.as_ref().and_then(|r| r.resume.as_deref());
    let proved = Proved::open(resume, session.store_id)?;
    progress.phase("records");
    let records = Records::read(session, scope, &mut report)?;
    let subjects = records.subjects(scope);
    if let (Some(job), Some(number), true) =
        (&scope.job, scope.number, subjects.is_empty() && report.findings.is_empty())
    {
        return Err(super::select::no_such(job, number));
    }
    report.checkpoints = subjects.len() as u64;
    progress.phase("manifests");
    let references = References::of(session, &subjects, &mut report)?;
    progress.phase("blobs");
    references.resolve(session, &records, &mut report)?;
    strays::pins(session, &records, &mut report)?;
    strays::bases(session, scope, &records, &mut report)?;
    if scope.job.is_none() {
        strays::blobs(session, &records, &references, &mut report)?;
    }
    if let Some(which) = &options.read {
        progress.phase("read");
        read::Reader::new(session, &references, progress).read(which, &proved, &mut report)?;
        progress.phase("cache");
        cached::read(session, &references, which, &proved, progress, &mut report)?;
    }
    drop_dead(session, &mut report)?;
    report.findings.sort();
    report.findings.dedup();
    if options.repair && report.damaged() {
        repair::allowed(&records.blocks_writing)?;
        repair::repair(session, &references, options, progress, &mut report)?;
    }
    proved.end();
    Ok(report)
}

/// A checkpoint that expired meanwhile, or lost its last pin, may be swept already: what it lost hurts nobody.
fn drop_dead(session: &Session, report: &mut Report) -> Result<()> {
    let mut dead: BTreeMap<At, bool> = BTreeMap::new();
    for hurt in report.findings.iter().filter(|f| f.kind == FindingKind::Missing).flat_map(|f| &f.hurts) {
        if let Entry::Vacant(vacant) = dead.entry((hurt.job.clone(), hurt.number)) {
            let expired = session.store.head(&Key::expired(&hurt.job, hurt.number))?.is_some();
            let pins = Prefix::checkpoint(RecordKind::Pin, &hurt.job, hurt.number);
            vacant.insert(expired && session.store.list(&pins)?.is_empty());
        }
    }
    report.findings.retain_mut(|finding| {
        if finding.kind != FindingKind::Missing || finding.hurts.is_empty() {
            return true;
        }
        finding.hurts.retain(|hurt| dead.get(&(hurt.job.clone(), hurt.number)) != Some(&true));
        !finding.hurts.is_empty()
    });
    Ok(())
}

#[cfg(test)]
mod tests;
