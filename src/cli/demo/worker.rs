//! The process that works: all subtasks of the job as threads. The coordinator hears of their snapshots through the store.
//!
//! On standard output it says how far it is, for the story only, a line of JSON at a time; when nobody reads that any more, it ends.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ckptfs::engine::{Session, SessionOptions};
use ckptfs::error::{Error, Kind, Result};
use ckptfs::restore::job::Way;
use serde::{Deserialize, Serialize};

use super::job::{self, Setup};
use super::operators::Progress;

/// Time between two lines.
const EVERY: Duration = Duration::from_millis(50);

/// A line of the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Line {
    /// Every subtask has its state and runs.
    Ready {
        /// Seconds that took.
        seconds: f64,
        /// Databases that are clones over the mount.
        clones: usize,
        /// Databases that were put together for other key groups than before.
        rescaled: usize,
    },
    /// So many bytes were read in this life.
    Read(u64),
    /// All is read.
    Drained,
}

/// Works until the coordinator says that the job ends.
pub(crate) fn run(options: SessionOptions, setup: &Path) -> Result<()> {
    let text = std::fs::read(setup)
        .map_err(|e| Error::with_source(Kind::Other, format!("cannot read {}: {e}", setup.display()), e))?;
    let setup: Setup = serde_json::from_slice(&text)
        .map_err(|e| Error::with_source(Kind::Invalid, format!("{} is no setup: {e}", setup.display()), e))?;
    let begun = Instant::now();
    let session = Session::open(&SessionOptions { near: Some(setup.directory.clone()), ..options })?;
    session.ready_to_write()?;
    let sources = setup.parallelism;
    let running = job::start(session, setup)?;
    let clones = running.restored.iter().filter(|r| r.way == Way::Clone).count();
    let rescaled = running.restored.iter().filter(|r| !r.inherits).count();
    say(&Line::Ready { seconds: begun.elapsed().as_secs_f64(), clones, rescaled })?;
    let progress = Arc::clone(&running.progress);
    std::thread::Builder::new()
        .name("tell".to_owned())
        .spawn(move || {
            // Nobody listens any more, and nobody would end this process.
            if tell(&progress, sources).is_err() {
                std::process::exit(1);
            }
        })
        .map_err(|e| Error::with_source(Kind::Resources, format!("no thread: {e}"), e))?;
    let failed: Vec<Error> = running.deployment.join().into_iter().filter_map(|(.., ended)| ended.err()).collect();
    // When one fails, its neighbours fail as well, and say less.
    let told = failed.iter().position(|e| !e.message().ends_with("is gone")).unwrap_or_default();
    failed.into_iter().nth(told).map_or(Ok(()), Err)
}

fn tell(progress: &Progress, sources: u32) -> Result<()> {
    let mut drained = false;
    loop {
        say(&Line::Read(progress.read.load(Ordering::SeqCst)))?;
        if !drained && progress.drained.load(Ordering::SeqCst) >= sources {
            drained = true;
            say(&Line::Drained)?;
        }
        std::thread::sleep(EVERY);
    }
}

fn say(line: &Line) -> Result<()> {
    let fail = |e: std::io::Error| Error::with_source(Kind::Other, format!("nobody listens any more: {e}"), e);
    let mut text = serde_json::to_string(line).map_err(|e| fail(e.into()))?;
    text.push('\n');
    std::io::stdout().lock().write_all(text.as_bytes()).map_err(fail)
}
