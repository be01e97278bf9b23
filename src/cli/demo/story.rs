//! What happens when: count, a checkpoint that fails, a kill, a look at the mount, a restore over it, a savepoint, another parallelism, and
//! a comparison in the end.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ckptfs::engine::coordinator::RestoreFrom;
use ckptfs::engine::{Session, SessionOptions};
use ckptfs::error::{Error, Kind, Result};
use ckptfs::format::{TaskManifest, Verdict};
use ckptfs::lifecycle::{Checkpoint, catalog};
use ckptfs::restore::job::keyed_in_place;
use ckptfs::restore::select::task_manifest;
use ckptfs::types::{CheckpointNumber, Name, Uid};
use serde::Serialize;
use serde_json::json;

use super::super::Context;
use super::super::exit::Exit;
use super::super::words;
use super::job::{COUNT, SINK, offsets_of, operator_state};
use super::life::{Begun, Event, Life, Plan};
use super::operators::{STREAM_MS, add_up, fired};
use super::source::{Position, Source, words as words_of};
use super::stage::Stage;
use super::state::{Counts, Tally, difference};
use super::worker::Line;
use super::{Args, look, source};

/// The look at the mount comes after so many checkpoints.
const LOOK_AFTER: usize = 3;

/// In the first life so many are completed, one of them after the one that fails, before the worker is killed.
const KILL_AFTER: usize = 4;

/// Snapshots of the sink before the one that fails.
const FAILS_AFTER: u32 = 2;

/// In the second life so many are completed before it is stopped.
const STOP_AFTER: usize = 2;

/// Event time beyond which the first and the second life see nothing: something is left to do, however slow checkpoints are.
const FIRST_UNTIL: i64 = STREAM_MS / 100 * 55;
const SECOND_UNTIL: i64 = STREAM_MS / 100 * 85;

/// Words that are told from a checkpoint.
const TOP: usize = 3;

/// A checkpoint of the demo.
#[derive(Debug, Clone, Serialize)]
struct Row {
    number: CheckpointNumber,
    savepoint: bool,
    /// Subtasks of each operator.
    parallelism: usize,
    /// Bytes of text that its sources have read.
    at: u64,
    files: u64,
    logical_bytes: u64,
    new_bytes: u64,
    reused_bytes: u64,
    seconds: f64,
}

struct Play<'a> {
    context: &'a Context,
    job: &'a Name,
    stage: &'a Stage,
    session: &'a Session,
    total: u64,
    rows: Vec<Row>,
    looked: bool,
    /// Given up, and the next one has not completed yet.
    given_up: Option<(CheckpointNumber, Uid)>,
}

/// What a stretch of a life came to.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    /// Checkpoints that were completed in it.
    completed: usize,
    /// One was given up before the last of those.
    failed: bool,
    /// Bytes that were read in it.
    read: u64,
    /// Bytes that had been read by its last checkpoint, in all lives.
    kept: u64,
    /// All is read.
    drained: bool,
}

/// The whole demo.
pub(crate) fn play(context: &Context, args: &Args, job: &Name) -> Result<Exit> {
    let begun = Instant::now();
    if context.verbose == 0 {
        // What the coordinator warns of is part of the story, and told in its words.
        log::set_max_level(log::LevelFilter::Error);
    }
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
    source.write_list(&stage.list())?;
    let session = Session::open(&SessionOptions {
        store: Some(stage.store().to_owned()),
        cache: Some(stage.cache().to_owned()),
        near: Some(stage.directory().to_owned()),
        create: true,
        ..context.options()
    })?;
    stage.mount()?;
    tell(&format!("the store {} is mounted at {}", session.store.url(), stage.mountpoint().display()));

    let rows = Vec::new();
    let mut play = Play { context, job, stage: &stage, session: &session, total, rows, looked: false, given_up: None };
    play.count_until_killed()?;
    play.count_until_stopped(args.corrupt_one_count)?;
    play.count_to_the_end()?;
    let (last, tally) = play.last_counts()?;
    let verdict = match (&args.counts, &args.paths) {
        (Some(counts), Some(paths)) => {
            source.write_paths(paths)?;
            write_tally(counts, &tally)?;
            None
        }
        _ => Some(difference(&tally, &recount(&source)?)),
    };
    play.table(verdict.as_ref().map(Option::is_none))?;
    if let Some(Some(first)) = verdict {
        return Err(Error::new(Kind::Other, format!("the counts differ from a recount: {first}")));
    }
    play.windows(&last, &tally)?;
    tell(&format!("all of it took {:.1} s", begun.elapsed().as_secs_f64()));
    match verdict {
        Some(_) if !context.json => words::line("counts equal").map(|()| Exit::Done),
        _ => Ok(Exit::Done),
    }
}

impl<'a> Play<'a> {
    fn tell(&self, text: &str) {
        words::tell(self.context.quiet, text);
    }

    fn job_directory(&self) -> PathBuf {
        self.stage.mountpoint().join(self.job.as_str())
    }

    /// A life until what is wanted of it has come.
    fn live(&mut self, life: &Life<'_>, enough: impl Fn(Seen) -> bool) -> Result<Seen> {
        let mut seen = Seen { kept: self.rows.last().map_or(0, |r| r.at), ..Seen::default() };
        let mut given_up = false;
        while !enough(seen) {
            match life.next()? {
                Event::Worker(Line::Read(read)) => seen.read = read,
                Event::Worker(Line::Drained) => seen.drained = true,
                Event::Worker(Line::Ready { .. }) | Event::Gone | Event::Ended(_) => {}
                Event::Completed(number) => {
                    self.published(number)?;
                    seen.completed += 1;
                    seen.failed |= given_up;
                    seen.kept = self.rows.last().map_or(0, |r| r.at);
                }
                Event::GivenUp(number) => {
                    self.given_up(number)?;
                    given_up = true;
                }
            }
        }
        Ok(seen)
    }

    /// What is heard of a life after its end was asked for.
    fn rest(&mut self, events: Vec<Event>) -> Result<()> {
        for event in events {
            match event {
                Event::Completed(number) => self.published(number)?,
                Event::GivenUp(number) => self.given_up(number)?,
                Event::Worker(_) | Event::Gone | Event::Ended(_) => {}
            }
        }
        Ok(())
    }

    fn published(&mut self, number: CheckpointNumber) -> Result<()> {
        let checkpoint = self.session.catalog.checkpoint(self.job, number)?;
        let (row, adopted) = self.row(&checkpoint)?;
        self.tell(&format!(
            "{}/{}{}: {} of text counted; {} files, logical {}, new {}, reused {}, {:.2} s",
            self.job,
            row.number,
            if row.savepoint { " (a savepoint)" } else { "" },
            words::size(row.at),
            row.files,
            words::size(row.logical_bytes),
            words::size(row.new_bytes),
            words::size(row.reused_bytes),
            row.seconds
        ));
        if let Some((failed, _)) = self.given_up.take()
            && adopted > 0
        {
            let adopted = words::size(adopted);
            self.tell(&format!("    {adopted} of it {failed} had uploaded: they were adopted and not sent again"));
        }
        self.rows.push(row);
        if self.rows.len() >= LOOK_AFTER && !self.looked {
            self.looked = true;
            for line in look::describe(&self.job_directory(), COUNT)? {
                self.tell(&format!("    {line}"));
            }
        }
        Ok(())
    }

    fn given_up(&mut self, number: CheckpointNumber) -> Result<()> {
        let reason = match catalog::outcome(&self.session.store, self.job, number)?.map(|o| o.verdict) {
            Some(Verdict::Aborted { reason }) => reason,
            _ => "nobody knows why".to_owned(),
        };
        self.tell(&format!("{}/{number} was given up: {}", self.job, words::clean(&reason)));
        if let Some(intent) = catalog::intent(&self.session.store, self.job, number)? {
            self.given_up = Some((number, intent.place.uid));
        }
        Ok(())
    }

    /// What a checkpoint came to; and how many bytes of it the one that was given up had uploaded.
    fn row(&self, checkpoint: &Checkpoint) -> Result<(Row, u64)> {
        let manifest = &checkpoint.manifest;
        let (mut reused_bytes, mut adopted) = (0u64, 0u64);
        for entry in &manifest.subtasks {
            let task = task_manifest(self.session, checkpoint, entry)?;
            let (own, failed) = (checkpoint.uid, self.given_up.map(|(_, uid)| uid));
            reused_bytes = reused_bytes.saturating_add(bytes_from(&task, |uid| uid != own));
            adopted = adopted.saturating_add(bytes_from(&task, |uid| Some(uid) == failed));
        }
        let at = offsets_of(self.session, checkpoint)?.iter().map(|o| o.at.done).sum();
        let row = Row {
            number: checkpoint.number,
            savepoint: manifest.kind == ckptfs::format::CheckpointKind::Savepoint,
            parallelism: manifest.subtasks.iter().filter(|s| s.operator == Name::encode(COUNT)).count(),
            at,
            files: manifest.files,
            logical_bytes: manifest.logical_bytes,
            new_bytes: manifest.new_bytes,
            reused_bytes,
            seconds: f64::from(
                u32::try_from(manifest.completed_ms.saturating_sub(manifest.opened_ms)).unwrap_or(u32::MAX),
            ) / 1e3,
        };
        Ok((row, adopted))
    }

    fn began(&self, begun: &Begun, parallelism: u32) {
        let Begun { from, epoch, seconds, clones, rescaled, unpinned } = begun;
        let tasks = format!("parallelism {parallelism}, epoch {epoch}");
        let Some(from) = from else {
            return self.tell(&format!("a worker process runs the job with {tasks}: its coordinator is this process"));
        };
        let ways = match rescaled {
            0 => format!("{clones} databases are clones over the mount"),
            n => format!(
                "{n} databases are put together for other key groups, {clones} of them on clones over the mount"
            ),
        };
        let pins = match unpinned {
            0 => String::new(),
            n => format!("; the pins of {n} older clones are gone"),
        };
        self.tell(&format!(
            "restored {}/{from} into a new worker process in {seconds:.2} s ({tasks}): {ways}{pins}",
            self.job
        ));
    }

    fn begin(&self, plan: &Plan) -> Result<Life<'a>> {
        let (life, begun) = Life::begin(self.stage, self.session, self.job, plan)?;
        self.began(&begun, plan.parallelism);
        Ok(life)
    }

    /// Counts; one checkpoint fails on the way; then the worker is killed in the middle of its work.
    fn count_until_killed(&mut self) -> Result<()> {
        // The store may be one in which a demo was before.
        let from = RestoreFrom::Nothing;
        let plan = Plan { from, parallelism: 2, until: FIRST_UNTIL, fails_in: Some(FAILS_AFTER), corrupt: false };
        let life = self.begin(&plan)?;
        let (total, all) = (self.total, self.total / 100 * 54);
        let seen = self.live(&life, |seen| {
            // What is read since the last checkpoint is lost with the process, unless this life has read all that is for it.
            let in_the_middle = seen.read > seen.kept.saturating_add(total / 40) || seen.read >= all;
            seen.completed >= KILL_AFTER && seen.failed && in_the_middle
        })?;
        let events = life.kill()?;
        self.tell(&format!(
            "killed the worker process (SIGKILL) at {} of text: the coordinator was told and ended its reign; what came after {} will be counted again",
            words::size(seen.read),
            words::size(seen.kept)
        ));
        self.rest(events)?;
        self.look_after_kill()
    }

    /// Goes on from the mount, until a savepoint stops the job.
    fn count_until_stopped(&mut self, corrupt: bool) -> Result<()> {
        let from = RestoreFrom::Latest;
        let plan = Plan { from, parallelism: 2, until: SECOND_UNTIL, fails_in: None, corrupt };
        let life = self.begin(&plan)?;
        self.live(&life, |seen| seen.completed >= STOP_AFTER)?;
        self.stop(life, "stopped the job with the savepoint")
    }

    /// Goes on with one subtask more, to the end of the text.
    fn count_to_the_end(&mut self) -> Result<()> {
        let from = RestoreFrom::Latest;
        let plan = Plan { from, parallelism: 3, until: STREAM_MS, fails_in: None, corrupt: false };
        let life = self.begin(&plan)?;
        self.live(&life, |seen| seen.drained)?;
        self.stop(life, "all text is read; stopped the job with the savepoint")
    }

    fn stop(&mut self, life: Life<'_>, words: &str) -> Result<()> {
        let (number, events) = life.stop()?;
        self.rest(events)?;
        self.tell(&format!("{words} {}/{number}", self.job));
        Ok(())
    }

    /// The newest checkpoint, by the mount's own word, which is read once: `latest` may move.
    fn latest(&self) -> Result<Checkpoint> {
        let link = self.job_directory().join("latest");
        let target = std::fs::read_link(&link)
            .map_err(|e| Error::with_source(Kind::Other, format!("cannot read {}: {e}", link.display()), e))?;
        let number: CheckpointNumber = target.to_string_lossy().parse().map_err(|e| {
            Error::with_source(Kind::Other, format!("{} points to {}", link.display(), target.display()), e)
        })?;
        Ok(self.session.catalog.checkpoint(self.job, number)?)
    }

    /// The counts of all subtasks of a checkpoint, read where they lie on the mount.
    fn counts(&self, checkpoint: &Checkpoint) -> Result<(usize, f64, Tally)> {
        let (mut tally, mut opened) = (Tally::new(), 0.0);
        let places = keyed_in_place(self.session, checkpoint, &Name::encode(COUNT), &self.stage.mountpoint())?;
        for place in &places {
            let begun = Instant::now();
            let counts = Counts::open_read_only(&place.directory, &place.descriptor)?;
            opened += begun.elapsed().as_secs_f64();
            counts.tally_into(&mut tally)?;
        }
        Ok((places.len(), opened, tally))
    }

    /// Opens the newest checkpoint where it lies, and reads in it.
    fn look_after_kill(&mut self) -> Result<()> {
        let checkpoint = self.latest()?;
        let (databases, opened, tally) = self.counts(&checkpoint)?;
        self.check_kept(&checkpoint)?;
        self.tell(&format!(
            "opened {}/*/db read-only, {databases} databases in {:.1} ms: {} words, most frequent {}",
            self.job_directory().join(checkpoint.number.to_string()).join(COUNT).display(),
            opened * 1e3,
            tally.len(),
            top(&tally)
        ));
        Ok(())
    }

    /// A published checkpoint is never lost.
    fn check_kept(&self, checkpoint: &Checkpoint) -> Result<()> {
        let lost = |what: String| Err(Error::new(Kind::Damage, what));
        match self.rows.last() {
            // One may have been published after the coordinator was last heard.
            Some(row) if checkpoint.number > row.number => Ok(()),
            Some(row) if checkpoint.number < row.number => {
                lost(format!("{} was published, and the newest on the mount is {}", row.number, checkpoint.number))
            }
            _ => Ok(()),
        }
    }

    /// The counts of the last checkpoint, read on the mount.
    fn last_counts(&self) -> Result<(Checkpoint, Tally)> {
        let checkpoint = self.latest()?;
        self.check_kept(&checkpoint)?;
        let (_, _, tally) = self.counts(&checkpoint)?;
        let subtasks = self.job_directory().join(checkpoint.number.to_string()).join(COUNT);
        self.tell(&format!(
            "{}: {} have the final counts of {} words",
            subtasks.display(),
            look::list(&subtasks)?.join("  "),
            tally.len()
        ));
        Ok((checkpoint, tally))
    }

    /// Every word of every window came to the sink once, whatever happened on the way.
    fn windows(&self, last: &Checkpoint, tally: &Tally) -> Result<()> {
        let rows = operator_state(self.session, Some(last), SINK, (0, 1))?.list("windows", fired())?.get()?;
        let windows = add_up(rows);
        let words = windows.values().map(|w| w.words).fold(0, i64::saturating_add);
        let total = add_up_to(windows.values().map(|w| w.times), tally)?;
        self.tell(&format!(
            "{} windows fired into the sink, {words} counts; they add up to all {total} words, each once",
            windows.len()
        ));
        Ok(())
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

/// Bytes of a subtask's files that lie in blobs of certain uploaders.
fn bytes_from(task: &TaskManifest, of: impl Fn(Uid) -> bool) -> u64 {
    let extents = task.files.iter().flat_map(|f| &f.extents);
    let from = extents.filter(|e| {
        let blob = usize::try_from(e.blob).ok().and_then(|i| task.blobs.get(i));
        blob.is_some_and(|b| of(b.name.uid))
    });
    from.fold(0, |sum, e| sum.saturating_add(e.length))
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

/// The number of all words, if what fired adds up to what was counted.
fn add_up_to(fired: impl Iterator<Item = i64>, tally: &Tally) -> Result<u64> {
    let times = fired.fold(0, i64::saturating_add);
    let total = tally.values().fold(0, |sum: u64, n| sum.saturating_add(*n));
    if u64::try_from(times).ok() == Some(total) {
        return Ok(total);
    }
    Err(Error::new(Kind::Damage, format!("the windows that fired have {times} words, and {total} were counted")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_do_not_add_up_are_found() {
        let tally = Tally::from([(b"a".to_vec(), 2), (b"b".to_vec(), 3)]);
        assert_eq!(add_up_to([4, 1].into_iter(), &tally).unwrap(), 5);
        for wrong in [&[4][..], &[4, 2], &[-5], &[]] {
            let e = add_up_to(wrong.iter().copied(), &tally).unwrap_err();
            assert!(e.message().ends_with("and 5 were counted"), "{e}");
        }
    }
}
