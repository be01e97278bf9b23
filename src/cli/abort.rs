//! `abort`: gives an open checkpoint up. What was uploaded stays, for the next attempt to adopt.

use ckptfs::engine::{self, Session};
use ckptfs::error::Result;
use serde_json::json;

use super::Context;
use super::complete;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    which: complete::Args,
    /// Why, for whoever reads it later
    #[arg(long, default_value = "aborted by hand")]
    reason: String,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let job = &args.which.job;
    let session = Session::open(&context.options())?;
    let now = engine::abort(&session, job, args.which.checkpoint, &args.reason)?;
    let what = if now { "aborted" } else { "was aborted before" };
    words::tell(context.quiet, &format!("{job}/{} {what}", args.which.checkpoint));
    if context.json {
        words::json(&json!({ "job": job.as_str(), "checkpoint": args.which.checkpoint.to_string(), "now": now }))?;
    }
    Ok(Exit::Done)
}
