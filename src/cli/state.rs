//! `state`: looks into a checkpoint: which states its operators have, and their rows.

mod groups;
mod list;
mod listed;
mod printed;
mod rows;
mod subtask;

use std::path::PathBuf;

use ckptfs::engine::Session;
use ckptfs::error::{Error, Kind, Result};
use ckptfs::lifecycle::Checkpoint;
use ckptfs::restore::inspect::manifests;
use ckptfs::restore::{Reading, Selection};

use super::Context;
use super::exit::Exit;
use super::words;
use subtask::Subtask;

/// From this size on a copy is announced.
const LARGE: u64 = 256 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JOB/chk-N
    #[arg(value_parser = words::checkpoint)]
    checkpoint: Selection,
    /// Only this operator: its name, or its id in hex
    operator: Option<String>,
    /// Print the rows of this state. Timers go by their full or their short name
    state: Option<String>,
    /// Only the rows of this key
    #[arg(long, value_name = "KEY", requires = "state", allow_hyphen_values = true)]
    key: Option<String>,
    /// Most rows that are printed
    #[arg(long, value_name = "N", default_value_t = 20, requires = "state")]
    limit: u64,
    /// Only this subtask
    #[arg(long, value_name = "I")]
    subtask: Option<u32>,
    /// List every subtask for itself
    #[arg(long, conflicts_with = "state")]
    subtasks: bool,
    /// The mount that the state is read through. Default: the mount of this store that is found; without one, it is copied
    #[arg(long, value_name = "MOUNTPOINT")]
    mount: Option<PathBuf>,
}

/// What looking needs throughout.
struct Look<'a> {
    context: &'a Context,
    checkpoint: &'a Checkpoint,
    reading: Reading<'a>,
    bar: words::Bar,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let session = Session::open(&context.options())?;
    let checkpoint = args.checkpoint.resolve(&session.catalog)?;
    let all = checkpoint.manifest.subtasks.iter().zip(manifests(&session, &checkpoint)?);
    // What belongs to no operator has no state to look into.
    let all = all.filter(|(entry, _)| !entry.operator.is_flink());
    let mut subtasks: Vec<_> = all.map(|(entry, manifest)| Subtask { entry, manifest }).collect();
    if let Some(operator) = &args.operator {
        subtasks = of_operator(&checkpoint, subtasks, operator)?;
    }
    if let Some(index) = args.subtask {
        let has: Vec<String> = subtasks.iter().map(|s| s.entry.subtask.to_string()).collect();
        subtasks.retain(|s| s.entry.subtask == index);
        if subtasks.is_empty() {
            let what = args.operator.as_deref().unwrap_or("it");
            return Err(none("subtask", &index.to_string(), what, &has));
        }
    }
    let reading = Reading::new(&session, &checkpoint, args.mount.as_deref())?;
    let look = Look { context, checkpoint: &checkpoint, reading, bar: words::Bar::new(context.quiet) };
    match &args.state {
        None => list::run(&look, &subtasks, args.subtasks)?,
        Some(state) => {
            let wanted = rows::Wanted { state, key: args.key.as_deref(), limit: args.limit };
            rows::run(&look, &subtasks, &wanted)?;
        }
    }
    Ok(Exit::Done)
}

fn of_operator<'a>(checkpoint: &Checkpoint, all: Vec<Subtask<'a>>, wanted: &str) -> Result<Vec<Subtask<'a>>> {
    let mut has: Vec<String> = all.iter().map(|s| s.entry.operator.to_string()).collect();
    has.dedup();
    let named = |s: &Subtask<'_>| {
        [s.entry.operator.as_str(), &s.entry.display_name].contains(&wanted) || s.operator_id() == Some(wanted)
    };
    let found: Vec<_> = all.into_iter().filter(named).collect();
    if found.is_empty() {
        return Err(none("operator", wanted, &format!("{}/{}", checkpoint.job, checkpoint.number), &has));
    }
    Ok(found)
}

/// The error for a name that is not there; says which are.
fn none(what: &str, wanted: &str, of: &str, has: &[String]) -> Error {
    let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
    Error::new(Kind::NotFound, format!("there is no {what} {wanted:?} in {of}: it has {has}"))
}

impl Look<'_> {
    fn tell(&self, text: &str) {
        words::tell(self.context.quiet, text);
    }

    /// Says what will be copied, where that takes long.
    fn announce(&self, subtasks: &[Subtask<'_>]) {
        let bytes = subtasks.iter().map(Subtask::bytes).fold(0, u64::saturating_add);
        if self.reading.mount().is_none() && bytes >= LARGE {
            self.tell(&format!(
                "no mount of the store is found: up to {} are copied into the cache, and removed afterwards; `ckptfs mount --daemon MOUNTPOINT` \
                 spares that",
                words::size(bytes)
            ));
        }
    }
}
