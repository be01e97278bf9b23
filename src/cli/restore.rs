//! `restore`: brings a checkpoint back as a local directory.

use std::path::PathBuf;

use ckptfs::engine::{Session, SessionOptions};
use ckptfs::error::Result;
use ckptfs::restore::{Selection, copy};
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
    /// Copy every byte, verified; needs no mount afterwards
    #[arg(long, required = true)]
    copy: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let selection = &args.checkpoint;
    // Linking is no aim here, but a cache on the same file system lets bytes be shared.
    let near = args.directory.parent().map(PathBuf::from);
    let session = Session::open(&SessionOptions { near, ..context.options() })?;
    let checkpoint = selection.resolve(&session.catalog)?;
    let subtasks = selection.subtasks(&checkpoint)?;
    let bar = words::Bar::new(context.quiet);
    let report = copy(&session, &checkpoint, &subtasks, &args.directory, &bar)?;
    bar.finish();
    words::tell(
        context.quiet,
        &format!(
            "{}/{}: {} files, {}, every byte verified, {:.2} s",
            checkpoint.job,
            checkpoint.number,
            report.files,
            words::size(report.bytes),
            report.seconds
        ),
    );
    if context.json {
        words::json(&json!({
            "job": checkpoint.job.as_str(),
            "checkpoint": checkpoint.number.to_string(),
            "files": report.files,
            "bytes": report.bytes,
            "seconds": report.seconds,
            "databases": report.databases.iter().map(|d| d.display().to_string()).collect::<Vec<_>>(),
        }))?;
    } else {
        for database in &report.databases {
            words::line(&database.display().to_string())?;
        }
    }
    Ok(Exit::Done)
}
