//! `snapshot`: a directory becomes a checkpoint in one shot.

use std::path::PathBuf;

use ckptfs::engine::{Session, SessionOptions, SnapshotReport, SnapshotRequest, snapshot_scanned};
use ckptfs::error::Result;
use ckptfs::format::CheckpointKind;
use ckptfs::types::{CheckpointNumber, Name};
use serde_json::json;

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job that the checkpoint belongs to
    #[arg(long, value_name = "JOB", value_parser = words::job)]
    job: Name,
    /// A native RocksDB checkpoint, or the directory of a stopped database
    directory: PathBuf,
    /// The operator's name on the mount
    #[arg(long, default_value = "db")]
    operator: String,
    /// The subtask's index
    #[arg(long, default_value_t = 0)]
    subtask: u32,
    /// The user owns it: policy never expires it
    #[arg(long)]
    savepoint: bool,
    /// The checkpoint's number; default: the next. Numbers are never used twice
    #[arg(long, value_name = "N", value_parser = new_number)]
    number: Option<CheckpointNumber>,
    #[command(flatten)]
    labels: super::labels::Args,
    #[command(flatten)]
    room: super::room::Args,
}

/// A number as people write it: `42` or `chk-42`.
pub(crate) fn number(text: &str) -> std::result::Result<CheckpointNumber, String> {
    let text = if text.starts_with("chk-") { text.to_owned() } else { format!("chk-{text}") };
    text.parse().map_err(|e: ckptfs::types::number::NumberError| e.to_string())
}

/// A number that a person gives a new checkpoint. The default is the one after the highest, for ever: a slip of the finger must not use
/// them up.
pub(crate) fn new_number(text: &str) -> std::result::Result<CheckpointNumber, String> {
    const MOST: u64 = 1 << 62;
    let n = number(text)?;
    if n.get() > MOST {
        Err(format!("{n} would leave no numbers for later checkpoints: at most {MOST}"))
    } else {
        Ok(n)
    }
}

/// Opens store and cache for a verb that may create them.
pub(crate) fn session(context: &Context, near: Option<PathBuf>) -> Result<Session> {
    let session = Session::open(&SessionOptions { near, create: true, ..context.options() })?;
    if session.created {
        words::tell(context.quiet, &format!("created the store {}", session.store.url()));
    }
    Ok(session)
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let job = &args.job;
    let labels = args.labels.labels()?;
    // Before a store is created for a directory that cannot be stored.
    let scanned = ckptfs::engine::scan::scan(&args.directory)?;
    let session = session(context, Some(args.directory.clone()))?;
    args.room.apply(&session.cache)?;
    let request = SnapshotRequest {
        job: job.clone(),
        directory: args.directory.clone(),
        operator: args.operator.clone(),
        subtask: args.subtask,
        kind: if args.savepoint { CheckpointKind::Savepoint } else { CheckpointKind::Checkpoint },
        number: args.number,
        labels,
    };
    let bar = words::Bar::new(context.quiet);
    let report = snapshot_scanned(&session, &request, &scanned, &bar)?;
    bar.finish();
    report_words(context, &session, job, &report);
    if context.json {
        words::json(&report_json(job, &report))?;
    } else {
        words::line(&report.number.to_string())?;
    }
    Ok(Exit::Done)
}

/// The line that a snapshot ends with, and what a person should know besides.
pub(crate) fn report_words(context: &Context, session: &Session, job: &Name, report: &SnapshotReport) {
    for n in &report.aborted {
        words::tell(
            context.quiet,
            &format!("{job}/{n} was left open by a process that ended; it was aborted and its uploads adopted"),
        );
    }
    for n in &report.open_elsewhere {
        words::tell(
            context.quiet,
            &format!("{job}/{n} is open elsewhere; `ckptfs complete` or `ckptfs abort` ends it"),
        );
    }
    if report.degraded_links > 0 {
        let cache = session.cache.path().display();
        words::tell(
            context.quiet,
            &format!(
                "{} files were copied into the cache {cache} instead of linked: it lies on another file system, or they belong to another user",
                report.degraded_links
            ),
        );
    }
    let adopted = if report.adopted_bytes > 0 {
        format!(", adopted {}", words::size(report.adopted_bytes))
    } else {
        String::new()
    };
    words::tell(
        context.quiet,
        &format!(
            "{job}/{}: {} files, logical {}, new {}, reused {}{adopted}, {:.2} s",
            report.number,
            report.files,
            words::size(report.logical_bytes),
            words::size(report.new_bytes),
            words::size(report.reused_bytes),
            report.seconds
        ),
    );
}

/// The same for scripts.
pub(crate) fn report_json(job: &Name, report: &SnapshotReport) -> serde_json::Value {
    json!({
        "job": job.as_str(),
        "checkpoint": report.number.to_string(),
        "number": report.number.get(),
        "uid": report.uid,
        "files": report.files,
        "logical_bytes": report.logical_bytes,
        "new_bytes": report.new_bytes,
        "reused_bytes": report.reused_bytes,
        "adopted_bytes": report.adopted_bytes,
        "degraded_links": report.degraded_links,
        "seconds": report.seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_does_not_use_the_numbers_up() {
        assert_eq!(new_number("42").unwrap(), new_number("chk-42").unwrap());
        assert!(new_number(&(1_u64 << 62).to_string()).is_ok());
        for bad in ["0", "-1", "chk-", "18446744073709551614", "4611686018427387905"] {
            assert!(new_number(bad).is_err(), "{bad}");
        }
    }
}
