//! What happens when: count, look, kill, open on the mount, restore, go on, compare.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ckptfs::engine::{Session, SessionOptions, Silent};
use ckptfs::error::{Error, Kind, Result};
use ckptfs::lifecycle::Checkpoint;
use ckptfs::types::{CheckpointNumber, Name};
use serde_json::json;

use super::super::Context;
use super::super::exit::Exit;
use super::super::words;
use super::source::{Position, Source, words as words_of};
use super::stage::Stage;
use super::state::{Counts, Tally, difference};
use super::worker::{Line, Row};
use super::{Args, look, source};

/// The look at the mount comes after so many checkpoints.
const LOOK_AFTER: usize = 3;

/// The process is killed when there are so many checkpoints, it is well into the text, and it has counted on since the last one.
const KILL_AFTER: usize = 4;

/// Words that are told from a checkpoint.
const TOP: usize = 3;

struct Play<'a> {
    context: &'a Context,
    job: &'a Name,
    stage: &'a Stage,
    session: &'a Session,
    total: u64,
    rows: Vec<Row>,
    looked: bool,
}

/// The whole demo.
pub(crate) fn play(context: &Context, args: &Args, job: &Name) -> Result<Exit> {
    let tell = |text: &str| words::tell(context.quiet, text);
    let (directory, source) = source(args)?;
    let total = source.bytes();
    tell(&format!(
        "counting the words of {} in {} files below {}",
        words::size(total),
        source.texts.len(),
        directory.display()
    ));
    let parent = args.work.clone().unwrap_or_else(std::env::temp_dir);
    let stage = Stage::new(context, &parent, args.keep)?;
    let list = stage.path("list");
    source.write_list(&list)?;
    let session = Session::open(&SessionOptions {
        store: Some(stage.store().to_owned()),
        cache: Some(stage.cache().to_owned()),
        near: Some(stage.directory().to_owned()),
        create: true,
        ..context.options()
    })?;
    stage.mount()?;
    tell(&format!("the store {} is mounted at {}", session.store.url(), stage.mountpoint().display()));

    let mut play = Play { context, job, stage: &stage, session: &session, total, rows: Vec::new(), looked: false };
    play.count_until_killed(&list)?;
    let database = play.restore()?;
    play.count_to_the_end(&list, &database, args.corrupt_one_count)?;
    let tally = play.last_counts()?;
    let verdict = match (&args.counts, &args.paths) {
        (Some(counts), Some(paths)) => {
            source.write_paths(paths)?;
            write_tally(counts, &tally)?;
            None
        }
        _ => Some(difference(&tally, &recount(&source)?)),
    };
    play.table(verdict.as_ref().map(Option::is_none))?;
    match verdict {
        Some(Some(first)) => Err(Error::new(Kind::Other, format!("the counts differ from a recount: {first}"))),
        Some(None) if !context.json => words::line("counts equal").map(|()| Exit::Done),
        _ => Ok(Exit::Done),
    }
}

impl Play<'_> {
    fn tell(&self, text: &str) {
        words::tell(self.context.quiet, text);
    }

    fn job_directory(&self) -> PathBuf {
        self.stage.mountpoint().join(self.job.as_str())
    }

    fn published(&mut self, row: Row) -> Result<()> {
        self.tell(&format!(
            "{}/{}: {} of text counted; {} files, logical {}, new {}, reused {}, {:.2} s",
            self.job,
            row.number,
            words::size(row.at),
            row.files,
            words::size(row.logical_bytes),
            words::size(row.new_bytes),
            words::size(row.reused_bytes),
            row.seconds
        ));
        self.rows.push(row);
        if self.rows.len() >= LOOK_AFTER && !self.looked {
            self.looked = true;
            for line in look::describe(&self.job_directory())? {
                self.tell(&format!("    {line}"));
            }
        }
        Ok(())
    }

    /// Counts, and kills the process in the middle of its work.
    fn count_until_killed(&mut self, list: &Path) -> Result<()> {
        let mut lines = self.stage.work(self.job.as_str(), list, &self.stage.path("db"), false)?;
        loop {
            match lines.next()? {
                Some(Line::Checkpoint(row)) => self.published(row)?,
                Some(Line::At(at)) => {
                    let kept = self.rows.last().map_or(0, |r| r.at);
                    let in_the_middle = at > self.total / 5 * 2 && at > kept.saturating_add(self.total / 40);
                    if self.rows.len() >= KILL_AFTER && in_the_middle {
                        self.stage.kill_worker()?;
                        self.tell(&format!(
                            "killed the counting process (SIGKILL) at {} of text; what came after {} will be counted again",
                            words::size(at),
                            words::size(kept)
                        ));
                        return Ok(());
                    }
                }
                Some(Line::Done) => {
                    return Err(Error::new(
                        Kind::Other,
                        "all was counted before the process could be killed: count more text",
                    ));
                }
                None => return Err(self.worker_failed()),
            }
        }
    }

    fn worker_failed(&self) -> Error {
        let status = self.stage.wait_worker().map_or_else(|e| e.to_string(), |s| s.to_string());
        Error::new(Kind::Other, format!("the counting process ended ({status}) and said why above"))
    }

    /// The newest checkpoint, by the mount's own word, which is read once: `latest` may move.
    fn latest(&self) -> Result<(Checkpoint, PathBuf)> {
        let link = self.job_directory().join("latest");
        let target = std::fs::read_link(&link)
            .map_err(|e| Error::with_source(Kind::Other, format!("cannot read {}: {e}", link.display()), e))?;
        let number: CheckpointNumber = target.to_string_lossy().parse().map_err(|e| {
            Error::with_source(Kind::Other, format!("{} points to {}", link.display(), target.display()), e)
        })?;
        let checkpoint = self.session.catalog.checkpoint(self.job, number)?;
        Ok((checkpoint, self.job_directory().join(target).join("db/0/db")))
    }

    /// Opens the newest checkpoint where it lies, reads in it, and makes a database of it that can be written.
    fn restore(&mut self) -> Result<PathBuf> {
        let (checkpoint, path) = self.latest()?;
        let begun = Instant::now();
        let counts = Counts::open_read_only(&path)?;
        let opened = begun.elapsed();
        let at = counts.position()?;
        let tally = counts.tally()?;
        self.tell(&format!("opened {} read-only in {:.1} ms", path.display(), opened.as_secs_f64() * 1e3));
        self.tell(&format!(
            "    it has {} words, stands at byte {} of file {}, and its most frequent words are {}",
            tally.len(),
            at.byte,
            at.file.saturating_add(1),
            top(&tally)
        ));
        self.check_kept(&checkpoint, at)?;
        drop(counts);
        let database = self.stage.path("restored");
        let subtasks: Vec<_> = checkpoint.manifest.subtasks.iter().collect();
        let report = ckptfs::restore::copy(self.session, &checkpoint, &subtasks, &database, &Silent)?;
        self.tell(&format!(
            "restored {}/{} into {}: {} files, {}, every byte verified, {:.2} s; counting goes on",
            self.job,
            checkpoint.number,
            database.display(),
            report.files,
            words::size(report.bytes),
            report.seconds
        ));
        Ok(database)
    }

    /// A published checkpoint is never lost, and what it holds is what its process said.
    fn check_kept(&self, checkpoint: &Checkpoint, at: Position) -> Result<()> {
        let lost = |what: String| Err(Error::new(Kind::Damage, what));
        match self.rows.last() {
            // The process may have died between publishing a checkpoint and saying so.
            Some(row) if checkpoint.number > row.number => Ok(()),
            Some(row) if checkpoint.number < row.number => {
                lost(format!("{} was published, and the newest on the mount is {}", row.number, checkpoint.number))
            }
            Some(row) if row.at != at.done => {
                lost(format!("{} was at byte {} and is at byte {}", row.number, row.at, at.done))
            }
            _ => Ok(()),
        }
    }

    fn count_to_the_end(&mut self, list: &Path, database: &Path, corrupt: bool) -> Result<()> {
        let mut lines = self.stage.work(self.job.as_str(), list, database, corrupt)?;
        loop {
            match lines.next()? {
                Some(Line::Checkpoint(row)) => self.published(row)?,
                Some(Line::At(_)) => {}
                Some(Line::Done) => break,
                None => return Err(self.worker_failed()),
            }
        }
        let status = self.stage.wait_worker()?;
        if status.success() {
            Ok(())
        } else {
            Err(Error::new(Kind::Other, format!("the counting process ended: {status}")))
        }
    }

    /// The counts of the last checkpoint, read on the mount.
    fn last_counts(&self) -> Result<Tally> {
        let (checkpoint, path) = self.latest()?;
        let counts = Counts::open_read_only(&path)?;
        self.check_kept(&checkpoint, counts.position()?)?;
        let tally = counts.tally()?;
        if let Some(first) = difference(&tally, &counts.tally_of_files()?) {
            return Err(Error::new(Kind::Damage, format!("the counts by file do not add up: {first}")));
        }
        self.tell(&format!("{}/{} has the final counts: {} words", self.job, checkpoint.number, tally.len()));
        Ok(tally)
    }

    fn table(&self, equal: Option<bool>) -> Result<()> {
        if self.context.json {
            return words::json(&json!({ "job": self.job.as_str(), "checkpoints": self.rows, "counts_equal": equal }));
        }
        let head = ["CHECKPOINT", ">FILES", ">LOGICAL", ">NEW", ">REUSED", ">SECONDS"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.rows.iter().map(|r| {
            vec![
                format!("{}/{}", self.job, r.number),
                r.files.to_string(),
                words::size(r.logical_bytes),
                words::size(r.new_bytes),
                words::size(r.reused_bytes),
                format!("{:.2}", r.seconds),
            ]
        }));
        words::table(&rows)
    }
}

fn top(tally: &Tally) -> String {
    let mut most: Vec<_> = tally.iter().map(|(word, count)| (*count, word)).collect();
    most.sort_unstable_by(|a, b| b.cmp(a));
    let shown = most.iter().take(TOP).map(|(count, word)| format!("{} ({count})", String::from_utf8_lossy(word)));
    shown.collect::<Vec<_>>().join(", ")
}

/// Counts everything again, in memory, without a database.
fn recount(source: &Source) -> Result<Tally> {
    let mut tally = Tally::new();
    let mut at = Position::default();
    while let Some((piece, next)) = source.piece(at, 1 << 20)? {
        at = next;
        for word in words_of(&piece) {
            match tally.get_mut(word) {
                Some(count) => *count += 1,
                None => drop(tally.insert(word.to_vec(), 1)),
            }
        }
    }
    Ok(tally)
}

fn write_tally(to: &Path, tally: &Tally) -> Result<()> {
    let write = || {
        let mut out = std::io::BufWriter::new(std::fs::File::create(to)?);
        for (word, count) in tally {
            out.write_all(word)?;
            writeln!(out, " {count}")?;
        }
        out.flush()
    };
    write().map_err(|e| Error::with_source(Kind::Other, format!("cannot write {}: {e}", to.display()), e))
}
