//! `check`: is each job's newest checkpoint young enough? For whoever alerts without a daemon. Exit code 1 when one is not.

use ckptfs::cache::session::open_store;
use ckptfs::error::{Error, Kind, Result};
use ckptfs::lifecycle::{Catalog, Checkpoint};
use ckptfs::types::{Age, Name, now_ms};
use serde_json::json;

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this job; it must be there
    #[arg(value_parser = words::job)]
    job: Option<Name>,
    /// How old the newest completed checkpoint may be, by its writer's clock: 90s, 10m, 1h
    #[arg(long, value_name = "DURATION", value_parser = words::duration_ms)]
    max_age: u64,
}

/// A job, its newest checkpoint, and its age in milliseconds.
type Found = (Name, Option<Checkpoint>, Option<u64>);

fn is_late(found: &Found, max_age: u64) -> bool {
    found.2.is_none_or(|age| age > max_age)
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let catalog = Catalog::new(open_store(&context.options())?);
    let jobs = match &args.job {
        Some(job) => vec![job.clone()],
        None => catalog.jobs()?,
    };
    if jobs.is_empty() {
        return Err(Error::new(Kind::NotFound, "the store has no job: nothing can be young enough"));
    }
    let mut found: Vec<Found> = Vec::new();
    for job in jobs {
        let latest = catalog.latest(&job)?;
        // A clock that is ahead of ours makes it no younger than now.
        let age = latest.as_ref().map(|c| now_ms().saturating_sub(c.manifest.completed_ms));
        found.push((job, latest, age));
    }
    let late: Vec<&Found> = found.iter().filter(|f| is_late(f, args.max_age)).collect();
    if context.json {
        let rows: Vec<_> = found
            .iter()
            .map(|f| {
                let (job, latest, age) = f;
                json!({ "job": job.as_str(), "checkpoint": latest.as_ref().map(|c| c.number.to_string()),
                    "age_ms": age, "late": is_late(f, args.max_age) })
            })
            .collect();
        words::json(&json!({ "jobs": rows, "max_age_ms": args.max_age }))?;
    } else {
        for (job, latest, age) in &found {
            let line = match (latest, age) {
                (Some(c), Some(age)) => format!("{job}: {} is {} old", c.number, Age(*age)),
                _ => format!("{job}: no checkpoint is completed and in the view"),
            };
            words::line(&words::clean(&line))?;
        }
    }
    if late.is_empty() {
        return Ok(Exit::Done);
    }
    let names: Vec<&str> = late.iter().map(|(job, ..)| job.as_str()).collect();
    let more = Age(args.max_age);
    Err(Error::new(Kind::Other, format!("older than {more}: {}", names.join(", "))))
}
