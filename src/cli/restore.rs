//! `restore`: brings a checkpoint back as a local directory, as a clone or as a copy.

use std::path::PathBuf;

use ckptfs::engine::{Session, SessionOptions};
use ckptfs::error::{Error, Kind, Result};
use ckptfs::format::SubtaskEntry;
use ckptfs::lifecycle::Checkpoint;
use ckptfs::restore::{CloneRequest, Selection, clone, copy};
use ckptfs::types::Name;
use serde_json::json;

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JOB/chk-N or JOB/chk-N/OPERATOR/SUBTASK
    #[arg(value_parser = words::selection)]
    checkpoint: Selection,
    /// A new or empty directory
    directory: PathBuf,
    /// The mount that a clone's links lead into. Default: the mount of this store that is found
    #[arg(long, value_name = "MOUNTPOINT", conflicts_with = "copy")]
    mount: Option<PathBuf>,
    /// The job that will run on the clone: its snapshots then find the checkpoint again
    #[arg(long, value_name = "JOB", value_parser = words::job, conflicts_with = "copy")]
    job: Option<Name>,
    /// Copy every byte, verified; needs no mount and no pin afterwards
    #[arg(long)]
    copy: bool,
    /// Not built yet
    #[arg(long, hide = true)]
    settle: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    if args.settle {
        return Err(Error::new(
            Kind::Unsupported,
            "--settle is not built yet: `restore --copy` makes a directory that needs no mount",
        ));
    }
    let selection = &args.checkpoint;
    // A cache on the same file system lets files be linked and bytes be shared.
    let near = args.directory.parent().map(PathBuf::from);
    let session = Session::open(&SessionOptions { near, ..context.options() })?;
    let checkpoint = selection.resolve(&session.catalog)?;
    let subtasks = selection.subtasks(&checkpoint)?;
    let databases = if args.copy {
        run_copy(context, args, &session, &checkpoint, &subtasks)?
    } else {
        run_clone(context, args, &session, &checkpoint, &subtasks)?
    };
    if !context.json {
        for database in &databases {
            words::line(&database.display().to_string())?;
        }
    }
    Ok(Exit::Done)
}

fn paths(databases: &[PathBuf]) -> Vec<String> {
    databases.iter().map(|d| d.display().to_string()).collect()
}

fn run_clone(
    context: &Context,
    args: &Args,
    session: &Session,
    checkpoint: &Checkpoint,
    subtasks: &[&SubtaskEntry],
) -> Result<Vec<PathBuf>> {
    let request = CloneRequest { directory: args.directory.clone(), mount: args.mount.clone(), job: args.job.clone() };
    let bar = words::Bar::new(context.quiet);
    let report = clone(session, checkpoint, subtasks, &request, &bar)?;
    bar.finish();
    let amount = |a: ckptfs::restore::clone::Amount| {
        let files = if a.files == 1 { "file" } else { "files" };
        format!("{} {files} ({})", a.files, words::size(a.bytes))
    };
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
        &format!("pinned by {pin}, for as long as the directory is there; `ckptfs unpin` ends that"),
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
    args: &Args,
    session: &Session,
    checkpoint: &Checkpoint,
    subtasks: &[&SubtaskEntry],
) -> Result<Vec<PathBuf>> {
    let bar = words::Bar::new(context.quiet);
    let report = copy(session, checkpoint, subtasks, &args.directory, &bar)?;
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
