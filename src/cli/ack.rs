//! `ack`: stores a directory as one subtask's part of an open checkpoint.

use std::path::PathBuf;

use ckptfs::engine::{Session, SessionOptions, SnapshotRequest, acknowledge};
use ckptfs::error::Result;
use ckptfs::format::{CheckpointKind, Labels};
use ckptfs::types::{CheckpointNumber, Name};

use super::Context;
use super::exit::Exit;
use super::snapshot::{report_json, report_words};
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job
    #[arg(long, value_name = "JOB", value_parser = words::job)]
    job: Name,
    /// The checkpoint that `open` printed
    #[arg(long, value_name = "N", value_parser = super::snapshot::number)]
    checkpoint: CheckpointNumber,
    /// The operator
    #[arg(long)]
    operator: String,
    /// The subtask's index
    #[arg(long)]
    subtask: u32,
    /// A native RocksDB checkpoint, or the directory of a stopped database
    directory: PathBuf,
    #[command(flatten)]
    room: super::room::Args,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let job = &args.job;
    let session = Session::open(&SessionOptions { near: Some(args.directory.clone()), ..context.options() })?;
    args.room.apply(&session.cache)?;
    let request = SnapshotRequest {
        job: job.clone(),
        directory: args.directory.clone(),
        operator: args.operator.clone(),
        subtask: args.subtask,
        // The intent has the kind; an ack does not change it.
        kind: CheckpointKind::Checkpoint,
        number: Some(args.checkpoint),
        // As the kind.
        labels: Labels::default(),
    };
    let bar = words::Bar::new(context.quiet);
    let report = acknowledge(&session, &request, args.checkpoint, &bar)?;
    bar.finish();
    report_words(context, &session, job, &report);
    if context.json {
        words::json(&report_json(job, &report))?;
    }
    Ok(Exit::Done)
}
