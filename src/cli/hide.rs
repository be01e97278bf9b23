//! `hide` and `unhide`: out of the view, and back.

use ckptfs::engine::Session;
use ckptfs::engine::life;
use ckptfs::error::Result;
use ckptfs::restore::Selection;
use serde_json::json;

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JOB/chk-N
    #[arg(value_name = "JOB/chk-N", value_parser = words::numbered)]
    checkpoint: Selection,
}

fn tell(context: &Context, args: &Args, hidden: bool, now: bool) -> Result<Exit> {
    let (job, number) = words::number_of(&args.checkpoint)?;
    let what = match (hidden, now) {
        (true, _) => "hidden: no longer listed, still found by its name; `ckptfs unhide` brings it back",
        (false, true) => "back in the view",
        (false, false) => "was not hidden",
    };
    words::tell(context.quiet, &format!("{job}/{number} is {what}").replace("is was", "was"));
    if context.json {
        words::json(&json!({ "job": job.as_str(), "checkpoint": number.to_string(), "hidden": hidden, "now": now }))?;
    }
    Ok(Exit::Done)
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let (job, number) = words::number_of(&args.checkpoint)?;
    let session = Session::open(&context.options())?;
    life::hide(&session, &job, number)?;
    tell(context, args, true, true)
}

pub(crate) fn back(context: &Context, args: &Args) -> Result<Exit> {
    let (job, number) = words::number_of(&args.checkpoint)?;
    let session = Session::open(&context.options())?;
    let now = life::unhide(&session, &job, number)?;
    tell(context, args, false, now)
}
