//! `path`: a checkpoint's path below the mount, with `latest` resolved once: a database is never opened through a name that may flip.

use ckptfs::cache::session::open_store;
use ckptfs::error::Result;
use ckptfs::lifecycle::Catalog;
use ckptfs::restore::Selection;

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JOB/latest or JOB/chk-N, and what follows, e.g. app/latest/db/0
    #[arg(value_parser = words::path)]
    checkpoint: Selection,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let selection = &args.checkpoint;
    let store = open_store(&context.options())?;
    let checkpoint = selection.resolve(&Catalog::new(store))?;
    selection.subtasks(&checkpoint)?;
    let mut path = format!("{}/{}", checkpoint.job, checkpoint.number);
    if let Some((operator, subtask)) = &selection.subtask {
        path.push_str(&format!("/{operator}/{subtask}"));
    }
    for part in &selection.rest {
        path.push('/');
        path.push_str(part);
    }
    if context.json {
        words::json(&serde_json::json!({
            "job": checkpoint.job.as_str(),
            "checkpoint": checkpoint.number.to_string(),
            "number": checkpoint.number.get(),
            "path": path,
        }))?;
    } else {
        words::line(&words::clean(&path))?;
    }
    Ok(Exit::Done)
}
