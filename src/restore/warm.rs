//! Warm: every file of a checkpoint into the cache, verified, so that a mount serves it at native speed and without the store.

use std::collections::HashSet;
use std::time::Instant;

use super::layout::{Laid, Layout};
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::SubtaskEntry;
use crate::lifecycle::{Checkpoint, driver};
use crate::types::Progress;

/// What warming came to.
#[derive(Debug, Clone)]
pub struct WarmReport {
    /// Files, each content once.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that the cache did not have.
    pub fetched_bytes: u64,
    /// Seconds.
    pub seconds: f64,
}

/// Fetches what the cache does not have of these subtasks.
///
/// # Errors
/// When bytes cannot be had or are not what they should be, or the cache's disk is full. What was fetched before stays.
pub fn warm(
    session: &Session,
    checkpoint: &Checkpoint,
    subtasks: &[&SubtaskEntry],
    progress: &dyn Progress,
) -> Result<WarmReport> {
    let begun = Instant::now();
    let layout = Layout::of(session, checkpoint, subtasks)?;
    let mut seen = HashSet::new();
    let files: Vec<&Laid> = layout.files.iter().filter(|laid| seen.insert(laid.file.digest)).collect();
    let mut report = WarmReport { files: files.len() as u64, bytes: 0, fetched_bytes: 0, seconds: 0.0 };
    let mut missing = Vec::new();
    for laid in files {
        report.bytes = report.bytes.saturating_add(laid.file.size);
        if session.cache.open_complete(&laid.file.digest, laid.file.size)?.is_none() {
            report.fetched_bytes = report.fetched_bytes.saturating_add(laid.file.size);
            missing.push(laid);
        }
    }
    if let Some(limit) = session.cache.limits().size.filter(|limit| report.bytes > *limit) {
        return Err(Error::new(
            Kind::Resources,
            format!(
                "{} bytes do not fit into the cache {}, which may take {limit}: warm single subtasks (JOB/chk-N/OPERATOR/SUBTASK), or give it more with --cache-size",
                report.bytes,
                session.cache.path().display()
            ),
        ));
    }
    progress.plan(missing.len() as u64, report.fetched_bytes);
    progress.phase("fetch");
    layout.fetch_bundles(session)?;
    driver::parallel(missing, |laid| {
        session.cache.fetch_file(&session.store, &laid.manifest, &laid.file)?;
        progress.advance(laid.file.size);
        Ok::<_, Error>(())
    })?;
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}
