//! `restore`: brings a checkpoint back as a local directory, as a clone or as a copy; settles clones.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ckptfs::cache::session::{default_cache, open_store};
use ckptfs::cache::{Cache, CacheOptions};
use ckptfs::engine::{Session, SessionOptions};
use ckptfs::error::{Error, Kind, Result};
use ckptfs::format::SubtaskEntry;
use ckptfs::lifecycle::{Catalog, Checkpoint};
use ckptfs::restore::{CloneRequest, RestorePlan, Selection, Way, clone, copy, plan, settle};
use ckptfs::types::Name;
use serde_json::json;

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JOB/chk-N or JOB/chk-N/OPERATOR/SUBTASK; with --settle alone, the directory of a clone
    checkpoint: OsString,
    /// A new or empty directory
    #[arg(required_unless_present_any = ["settle", "plan"])]
    directory: Option<PathBuf>,
    /// The mount that a clone's links lead into. Default: the mount of this store that is found
    #[arg(long, value_name = "MOUNTPOINT", conflicts_with = "copy")]
    mount: Option<PathBuf>,
    /// The job that will run on the clone: its snapshots then find the checkpoint again
    #[arg(long, value_name = "JOB", value_parser = words::job, conflicts_with = "copy")]
    job: Option<Name>,
    /// Copy every byte, verified; needs no mount and no pin afterwards
    #[arg(long)]
    copy: bool,
    /// Replace a clone's links into the mount by local files, while its database runs or not; then it needs neither mount nor pin
    #[arg(long, conflicts_with = "copy")]
    settle: bool,
    /// Say what it would take, and do nothing: files, bytes and requests, how fast the store is, what is free where DIRECTORY would be
    #[arg(long, conflicts_with_all = ["copy", "settle", "mount", "job"])]
    plan: bool,
    #[command(flatten)]
    room: super::room::Args,
}

/// What is wanted.
enum Wanted {
    /// A checkpoint, in a new directory.
    Restore(Selection, PathBuf),
    /// A clone that is there.
    Settle(PathBuf),
    /// To be told what it takes, there.
    Plan(Selection, Option<PathBuf>),
}

impl Args {
    fn wanted(&self) -> std::result::Result<Wanted, String> {
        let named = || self.checkpoint.to_str().ok_or("a checkpoint's name is UTF-8: JOB/chk-N");
        if self.plan {
            return words::selection(named()?).map(|selection| Wanted::Plan(selection, self.directory.clone()));
        }
        let Some(directory) = &self.directory else {
            if self.job.is_some() || self.mount.is_some() {
                return Err("--job and --mount are for a clone that is made now: JOB/chk-N DIR".to_owned());
            }
            return Ok(Wanted::Settle(PathBuf::from(&self.checkpoint)));
        };
        words::selection(named()?).map(|selection| Wanted::Restore(selection, directory.clone()))
    }

    /// What clap cannot check.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        self.wanted().map(drop)
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let (selection, directory) = match args.wanted().map_err(|why| Error::new(Kind::Invalid, why))? {
        Wanted::Settle(directory) => {
            let session = session(context, args, &directory)?;
            run_settle(context, &session, &directory)?;
            return Ok(Exit::Done);
        }
        Wanted::Plan(selection, directory) => {
            run_plan(context, &selection, directory.as_deref())?;
            return Ok(Exit::Done);
        }
        Wanted::Restore(selection, directory) => (selection, directory),
    };
    let session = session(context, args, &directory)?;
    let checkpoint = selection.resolve(&session.catalog)?;
    let subtasks = selection.subtasks(&checkpoint)?;
    let databases = if args.copy {
        run_copy(context, &directory, &session, &checkpoint, &subtasks)?
    } else {
        let databases = run_clone(context, args, &directory, &session, &checkpoint, &subtasks)?;
        if args.settle {
            run_settle(context, &session, &directory)?;
        }
        databases
    };
    session.cache.tidy();
    if !context.json {
        for database in &databases {
            words::line(&database.display().to_string())?;
        }
    }
    Ok(Exit::Done)
}

/// A cache on the same file system lets files be linked and bytes be shared.
fn session(context: &Context, args: &Args, directory: &Path) -> Result<Session> {
    let near = directory.parent().map(PathBuf::from);
    let session = Session::open(&SessionOptions { near, ..context.options() })?;
    args.room.apply(&session.cache)?;
    Ok(session)
}

/// Nothing is made, not even a cache.
fn run_plan(context: &Context, selection: &Selection, directory: Option<&Path>) -> Result<()> {
    let near = directory.and_then(Path::parent).map(PathBuf::from);
    let options = SessionOptions { near, ..context.options() };
    let store = open_store(&options)?;
    let path = options.cache.clone().map_or_else(|| default_cache(options.near.as_deref()), Ok)?;
    let cache = match Cache::open(&path, CacheOptions { create: false }) {
        Ok(cache) => Some(cache),
        Err(e) if e.kind() == Kind::NotFound => None,
        Err(e) => return Err(e.into()),
    };
    let checkpoint = selection.resolve(&Catalog::new(store.clone()))?;
    let subtasks = selection.subtasks(&checkpoint)?;
    let plan = plan(&store, cache.as_ref(), &checkpoint, &subtasks, directory)?;
    if context.json {
        return words::json(&plan_json(&checkpoint, &plan));
    }
    plan_words(&checkpoint, &plan, directory)
}

fn plan_json(checkpoint: &Checkpoint, plan: &RestorePlan) -> serde_json::Value {
    let way = |way: &Way| json!({ "requests": way.requests, "fetched_bytes": way.fetched, "written_bytes": way.written, "seconds": way.seconds });
    let measured = plan.measured.map(|m| {
        json!({ "latency_seconds": m.latency, "small_reads": m.small, "bytes_per_second": m.rate, "large_reads": m.large, "read_bytes": m.bytes })
    });
    json!({
        "job": checkpoint.job.as_str(),
        "checkpoint": checkpoint.number.to_string(),
        "whole": { "files": plan.whole.files, "bytes": plan.whole.bytes },
        "cached": { "files": plan.cached.files, "bytes": plan.cached.bytes },
        "clone_or_open": way(&plan.open),
        "tables_without_tail": plan.without_tail,
        "copy": way(&plan.copy),
        "measured": measured,
        "unmeasured": plan.unmeasured,
        "free_bytes": plan.free,
        "rocksdb_version": plan.rocksdb,
    })
}

fn plan_words(checkpoint: &Checkpoint, plan: &RestorePlan, directory: Option<&Path>) -> Result<()> {
    let by = plan.rocksdb.as_ref().map_or_else(String::new, |version| format!(", written by RocksDB {version}"));
    words::line(&format!("{}/{}: {}{by}", checkpoint.job, checkpoint.number, amount(plan.whole)))?;
    words::line(&format!("{} are in the cache", amount(plan.cached)))?;
    let mut rows = vec![["WAY", ">REQUESTS", ">FETCHED", ">WRITTEN", ">ABOUT"].map(str::to_owned).to_vec()];
    for (name, way) in [("clone, or open in place", &plan.open), ("whole copy", &plan.copy)] {
        let time = match way.seconds {
            None => "-".to_owned(),
            Some(s) if s < 0.1 => "under 0.1 s".to_owned(),
            Some(s) => format!("{s:.1} s"),
        };
        let cells = [way.requests.to_string(), words::size(way.fetched), words::size(way.written), time];
        rows.push([vec![name.to_owned()], cells.to_vec()].concat());
    }
    words::table(&rows)?;
    if plan.without_tail > 0 {
        words::line(&format!(
            "at least: {} tables have no stored tail, and opening them reads more than their last 64 KiB",
            plan.without_tail
        ))?;
    }
    if let Some(m) = plan.measured {
        let rate = m.rate.map_or_else(String::new, |rate| {
            let (whole, bytes) = (m.large, words::size(m.bytes));
            // Beyond what fits, it is fast enough.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "of a positive number; it saturates"
            )]
            let rate = words::size(rate as u64);
            format!(", {rate}/s ({whole} reads at once, {bytes})")
        });
        words::line(&format!(
            "measured just now: {:.1} ms until an answer (the middle one of {} small reads){rate}",
            m.latency * 1000.0,
            m.small
        ))?;
    }
    if let Some(why) = &plan.unmeasured {
        words::line(&format!("how long it takes could not be measured: {why}"))?;
    }
    if let (Some(free), Some(directory)) = (plan.free, directory) {
        let short = match (plan.open.written > free, plan.copy.written > free) {
            (true, _) => ": not enough",
            (false, true) => ": enough for a clone alone",
            (false, false) => "",
        };
        words::line(&format!("{} are free where {} would be{short}", words::size(free), directory.display()))?;
    }
    Ok(())
}

fn amount(a: ckptfs::restore::clone::Amount) -> String {
    let files = if a.files == 1 { "file" } else { "files" };
    format!("{} {files} ({})", a.files, words::size(a.bytes))
}

fn run_settle(context: &Context, session: &Session, directory: &Path) -> Result<()> {
    let bar = words::Bar::new(context.quiet);
    let report = settle(session, directory, &bar)?;
    bar.finish();
    let mut text = format!(
        "{}: {} hard-linked from the cache, {} copied",
        directory.display(),
        amount(report.linked),
        amount(report.copied)
    );
    if report.deleted > 0 {
        text.push_str(&format!(", {} links were deleted by RocksDB meanwhile", report.deleted));
    }
    if report.settled {
        text.push_str(
            "; it needs neither the mount nor its pin any more (a database that runs on it reads what it has open through the mount until it is opened again)",
        );
    }
    words::tell(context.quiet, &format!("{text}, {:.2} s", report.seconds));
    for link in &report.foreign {
        let link = link.display();
        words::tell(
            context.quiet,
            &format!("{link} is a link that no clone of this checkpoint has: it stays, and so does the pin"),
        );
    }
    if context.json {
        words::json(&json!({
            "way": "settle",
            "linked": { "files": report.linked.files, "bytes": report.linked.bytes },
            "copied": { "files": report.copied.files, "bytes": report.copied.bytes },
            "deleted": report.deleted,
            "foreign": paths(&report.foreign),
            "settled": report.settled,
            "seconds": report.seconds,
        }))?;
    }
    Ok(())
}

fn paths(databases: &[PathBuf]) -> Vec<String> {
    databases.iter().map(|d| d.display().to_string()).collect()
}

fn run_clone(
    context: &Context,
    args: &Args,
    directory: &Path,
    session: &Session,
    checkpoint: &Checkpoint,
    subtasks: &[&SubtaskEntry],
) -> Result<Vec<PathBuf>> {
    let request = CloneRequest { directory: directory.to_owned(), mount: args.mount.clone(), job: args.job.clone() };
    let bar = words::Bar::new(context.quiet);
    let report = clone(session, checkpoint, subtasks, &request, &bar)?;
    bar.finish();
    let mut text = format!(
        "{}/{}: a clone: {} hard-linked from the cache, {} copied, {} linked into the mount",
        checkpoint.job,
        checkpoint.number,
        amount(report.linked),
        amount(report.copied),
        amount(report.symlinked)
    );
    if let Some(mount) = &report.mount {
        text.push_str(&format!(" {}, which it needs until RocksDB has replaced them", mount.display()));
    }
    words::tell(context.quiet, &format!("{text}, {:.2} s", report.seconds));
    if report.unlinkable.files > 0 {
        words::tell(
            context.quiet,
            &format!(
                "{} lie in the cache {} and could not be linked: it is on another file system, or belongs to another user than the clone",
                amount(report.unlinkable),
                session.cache.path().display()
            ),
        );
    }
    let pin = report.pin.key();
    words::tell(
        context.quiet,
        &format!(
            "pinned by {pin}, for as long as the directory is there; `ckptfs unpin {pin}` ends that, and the clone loses what it links to"
        ),
    );
    if context.json {
        words::json(&json!({
            "job": checkpoint.job.as_str(),
            "checkpoint": checkpoint.number.to_string(),
            "way": "clone",
            "linked": { "files": report.linked.files, "bytes": report.linked.bytes },
            "copied": { "files": report.copied.files, "bytes": report.copied.bytes },
            "symlinked": { "files": report.symlinked.files, "bytes": report.symlinked.bytes },
            "unlinkable": { "files": report.unlinkable.files, "bytes": report.unlinkable.bytes },
            "mount": report.mount.as_ref().map(|m| m.display().to_string()),
            "pin": pin.as_str(),
            "seconds": report.seconds,
            "databases": paths(&report.databases),
        }))?;
    }
    Ok(report.databases)
}

fn run_copy(
    context: &Context,
    directory: &Path,
    session: &Session,
    checkpoint: &Checkpoint,
    subtasks: &[&SubtaskEntry],
) -> Result<Vec<PathBuf>> {
    let bar = words::Bar::new(context.quiet);
    let report = copy(session, checkpoint, subtasks, directory, &bar)?;
    bar.finish();
    let fetched = report.bytes.saturating_sub(report.cached_bytes);
    words::tell(
        context.quiet,
        &format!(
            "{}/{}: {} files, {} ({} from the cache, {} fetched), every byte verified, {:.2} s",
            checkpoint.job,
            checkpoint.number,
            report.files,
            words::size(report.bytes),
            words::size(report.cached_bytes),
            words::size(fetched),
            report.seconds
        ),
    );
    if context.json {
        words::json(&json!({
            "job": checkpoint.job.as_str(),
            "checkpoint": checkpoint.number.to_string(),
            "way": "copy",
            "files": report.files,
            "bytes": report.bytes,
            "cached_bytes": report.cached_bytes,
            "fetched_bytes": fetched,
            "seconds": report.seconds,
            "databases": paths(&report.databases),
        }))?;
    }
    Ok(report.databases)
}
