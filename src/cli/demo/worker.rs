//! The process that counts: the one that is killed, and the one that goes on.
//!
//! It says on standard output how far it is, a line of JSON at a time; when nobody reads that any more, it ends.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ckptfs::engine::{Session, Silent, SnapshotReport, SnapshotRequest, snapshot_directory};
use ckptfs::error::{Error, Kind, Result};
use ckptfs::format::CheckpointKind;
use ckptfs::types::{CheckpointNumber, Name};
use serde::{Deserialize, Serialize};

use super::source::{Position, Source};
use super::state::Counts;

/// A checkpoint is due after so much time, or after this part of the text.
const EVERY: Duration = Duration::from_secs(4);
const PARTS: u64 = 8;

/// Most bytes of text that one batch counts: some thousand words.
const BATCH: u64 = 16 << 10;

/// A line of the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Line {
    /// So many bytes are counted.
    At(u64),
    /// A checkpoint is published.
    Checkpoint(Row),
    /// All is counted, and the last checkpoint has it.
    Done,
}

/// A checkpoint of the demo.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) number: CheckpointNumber,
    /// Bytes of text that it has counted.
    pub(crate) at: u64,
    pub(crate) files: u64,
    pub(crate) logical_bytes: u64,
    pub(crate) new_bytes: u64,
    pub(crate) reused_bytes: u64,
    pub(crate) seconds: f64,
}

impl Row {
    fn new(report: &SnapshotReport, at: u64, seconds: f64) -> Self {
        Self {
            number: report.number,
            at,
            files: report.files,
            logical_bytes: report.logical_bytes,
            new_bytes: report.new_bytes,
            reused_bytes: report.reused_bytes,
            seconds,
        }
    }
}

/// What the worker is told.
#[derive(Debug)]
pub(crate) struct Task<'a> {
    pub(crate) session: Session,
    pub(crate) job: &'a Name,
    /// The database; begun where there is none.
    pub(crate) database: &'a Path,
    /// The list of files.
    pub(crate) list: &'a Path,
    /// Spoil one count first.
    pub(crate) corrupt: bool,
}

/// Counts from where the database's position is to the end.
pub(crate) fn run(task: &Task<'_>) -> Result<()> {
    let source = Source::read_list(task.list)?;
    let total = source.bytes();
    let counts = Counts::open(task.database, !task.database.exists())?;
    if task.corrupt {
        counts.corrupt()?;
    }
    let mut at = counts.position()?;
    let mut last = (at.done, Instant::now());
    let tick = total / 64;
    let mut told = at.done;
    loop {
        let before = at;
        let pieces = batch(&source, &mut at)?;
        let ended = pieces.is_empty();
        if !ended {
            counts.add(&pieces, at)?;
        }
        if ended && before.done == last.0 {
            break;
        }
        if ended || at.done - last.0 >= total / PARTS || last.1.elapsed() >= EVERY {
            say(&Line::Checkpoint(checkpoint(task, &counts, at)?))?;
            last = (at.done, Instant::now());
            told = at.done;
        } else if at.done - told >= tick {
            say(&Line::At(at.done))?;
            told = at.done;
        }
    }
    say(&Line::Done)
}

/// Pieces of one batch, by the index of their file.
fn batch(source: &Source, at: &mut Position) -> Result<Vec<(u64, Vec<u8>)>> {
    let mut pieces = Vec::new();
    let mut left = BATCH;
    while left > 0
        && let Some((piece, next)) = source.piece(*at, left)?
    {
        left = left.saturating_sub(piece.len() as u64);
        pieces.push((next.file, piece));
        *at = next;
    }
    Ok(pieces)
}

fn checkpoint(task: &Task<'_>, counts: &Counts, at: Position) -> Result<Row> {
    let begun = Instant::now();
    let directory = PathBuf::from(format!("{}.checkpoint", task.database.display()));
    remove(&directory)?;
    counts.checkpoint(&directory)?;
    let request = SnapshotRequest {
        job: task.job.clone(),
        directory: directory.clone(),
        operator: "db".to_owned(),
        subtask: 0,
        kind: CheckpointKind::Checkpoint,
        number: None,
    };
    let report = snapshot_directory(&task.session, &request, &Silent)?;
    // The cache has links to its SSTs; the directory itself is not needed any more.
    remove(&directory)?;
    Ok(Row::new(&report, at.done, begun.elapsed().as_secs_f64()))
}

fn remove(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::with_source(Kind::Other, format!("cannot remove {}: {e}", directory.display()), e))
        }
        _ => Ok(()),
    }
}

fn say(line: &Line) -> Result<()> {
    let fail = |e: std::io::Error| Error::with_source(Kind::Other, format!("nobody listens any more: {e}"), e);
    let mut text = serde_json::to_string(line).map_err(|e| fail(e.into()))?;
    text.push('\n');
    std::io::stdout().lock().write_all(text.as_bytes()).map_err(fail)
}
