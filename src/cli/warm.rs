//! `warm`: brings a checkpoint's files into the cache.

use ckptfs::engine::Session;
use ckptfs::error::Result;
use ckptfs::restore::{Selection, warm};
use serde_json::json;

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JOB/chk-N or JOB/chk-N/OPERATOR/SUBTASK
    #[arg(value_parser = words::selection)]
    checkpoint: Selection,
    #[command(flatten)]
    room: super::room::Args,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let session = Session::open(&context.options())?;
    args.room.apply(&session.cache)?;
    let checkpoint = args.checkpoint.resolve(&session.catalog)?;
    let subtasks = args.checkpoint.subtasks(&checkpoint)?;
    let bar = words::Bar::new(context.quiet);
    let report = warm(&session, &checkpoint, &subtasks, &bar)?;
    bar.finish();
    session.cache.tidy();
    words::tell(
        context.quiet,
        &format!(
            "{}/{}: {} files, {}, are in the cache {} ({} fetched and verified), {:.2} s",
            checkpoint.job,
            checkpoint.number,
            report.files,
            words::size(report.bytes),
            session.cache.path().display(),
            words::size(report.fetched_bytes),
            report.seconds
        ),
    );
    if context.json {
        words::json(&json!({
            "job": checkpoint.job.as_str(),
            "checkpoint": checkpoint.number.to_string(),
            "files": report.files,
            "bytes": report.bytes,
            "fetched_bytes": report.fetched_bytes,
            "seconds": report.seconds,
        }))?;
    }
    Ok(Exit::Done)
}
