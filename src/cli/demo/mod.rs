//! `demo`: a job of the engine counts words, takes checkpoints, one of which fails, is killed, is restored from the mount, stopped with a
//! savepoint, and restored with another parallelism; then its counts are compared with a recount.
//!
//! The job: [`source`] is the text, [`records`] what flows, [`operators`] what it flows through, [`state`] the keyed state, [`job`] how it is
//! put together, [`worker`] the process that it runs in. Around it: [`life`] is a reign with its coordinator, [`stage`] the processes and
//! directories, [`look`] the view of the mount, and [`story`] what happens when.

mod job;
mod life;
mod look;
mod operators;
mod records;
mod source;
mod stage;
mod state;
mod story;
mod worker;

use std::path::PathBuf;

use ckptfs::error::{Error, Kind, Result};
use ckptfs::restore::select::job_name;

use super::Context;
use super::exit::Exit;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A directory with text. Default: the sources of the crates that cargo has fetched
    directory: Option<PathBuf>,
    /// The job's name in the store
    #[arg(long, default_value = "demo")]
    job: String,
    /// Count at most so many MiB of text
    #[arg(long, value_name = "MIB", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    text: u64,
    /// Where the databases, the mount and, unless they are given, store and cache go meanwhile. Default: the system's temporary directory
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Leave them there, unmounted
    #[arg(long)]
    keep: bool,
    /// Write the final counts into this file, `word count` a line, and leave the comparison to the caller
    #[arg(long, value_name = "FILE", requires = "paths")]
    counts: Option<PathBuf>,
    /// Write the paths of the counted files into this file, one a line
    #[arg(long, value_name = "FILE", requires = "counts")]
    paths: Option<PathBuf>,
    /// Be the worker process that is set up so
    #[arg(long, hide = true, value_name = "SETUP")]
    worker: Option<PathBuf>,
    /// Spoil a count after the restore, to see the comparison fail
    #[arg(long, hide = true)]
    corrupt_one_count: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let job = job_name(&args.job)?;
    match &args.worker {
        Some(setup) => worker::run(context.options(), setup).map(|()| Exit::Done),
        None => story::play(context, args, &job),
    }
}

/// The text to count: what the user names, or Rust.
fn source(args: &Args) -> Result<(PathBuf, source::Source)> {
    let most = args.text << 20;
    match &args.directory {
        Some(directory) if !directory.is_dir() => {
            Err(Error::new(Kind::NotFound, format!("{} is no directory with text", directory.display())))
        }
        Some(directory) => Ok((directory.clone(), source::Source::find(directory, "", most)?)),
        None => {
            let directory = source::cargo_sources()?;
            let found = source::Source::find(&directory, ".rs", most)?;
            Ok((directory, found))
        }
    }
}
