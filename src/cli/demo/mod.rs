//! `demo`: a job counts words into RocksDB, takes checkpoints, is killed, and is restored from the mount; then its counts are compared
//! with a recount.
//!
//! [`source`] is the text, [`state`] what the job keeps, [`worker`] the process that counts, [`stage`] the processes and directories, [`look`]
//! the view of the mount, and [`story`] what happens when.

mod look;
mod source;
mod stage;
mod state;
mod story;
mod worker;

use std::path::PathBuf;

use ckptfs::engine::{Session, SessionOptions};
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
    /// Be the counting process on this database
    #[arg(long, hide = true, value_name = "DB", requires = "list")]
    worker: Option<PathBuf>,
    /// What the counting process reads
    #[arg(long, hide = true, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Spoil a count after the restore, to see the comparison fail
    #[arg(long, hide = true)]
    corrupt_one_count: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let job = job_name(&args.job)?;
    let (Some(database), Some(list)) = (&args.worker, &args.list) else {
        return story::play(context, args, &job);
    };
    let session = Session::open(&SessionOptions { near: database.parent().map(PathBuf::from), ..context.options() })?;
    let task = worker::Task { session, job: &job, database, list, corrupt: args.corrupt_one_count };
    worker::run(&task)?;
    Ok(Exit::Done)
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
