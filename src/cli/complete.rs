//! `complete`: publishes a checkpoint whose subtasks have all acknowledged.

use ckptfs::engine::{self, Session};
use ckptfs::error::Result;
use ckptfs::types::{CheckpointNumber, Name};
use serde_json::json;

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// The job
    #[arg(long, value_name = "JOB", value_parser = words::job)]
    pub(super) job: Name,
    /// The checkpoint that `open` printed
    #[arg(long, value_name = "N", value_parser = super::snapshot::number)]
    pub(super) checkpoint: CheckpointNumber,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let job = &args.job;
    let session = Session::open(&context.options())?;
    let done = engine::complete(&session, job, args.checkpoint)?;
    let m = &done.manifest;
    let when = if done.now { "" } else { " (it was complete before)" };
    words::tell(
        context.quiet,
        &format!(
            "{job}/{}: {} subtasks, {} files, logical {}, new {}{when}",
            args.checkpoint,
            m.subtasks.len(),
            m.files,
            words::size(m.logical_bytes),
            words::size(m.new_bytes)
        ),
    );
    if context.json {
        words::json(&json!({
            "job": job.as_str(),
            "checkpoint": args.checkpoint.to_string(),
            "number": args.checkpoint.get(),
            "uid": done.uid,
            "subtasks": m.subtasks.len(),
            "files": m.files,
            "logical_bytes": m.logical_bytes,
            "new_bytes": m.new_bytes,
            "now": done.now,
        }))?;
    } else {
        words::line(&args.checkpoint.to_string())?;
    }
    Ok(Exit::Done)
}
