//! `du`: what checkpoints hold, added, and would free.

use ckptfs::engine::Session;
use ckptfs::error::{Error, Kind, Result};
use ckptfs::restore::inspect::usage;
use ckptfs::types::Name;
use serde_json::json;

use super::Context;
use super::exit::Exit;
use super::ls::tell_unreadable;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this job
    #[arg(value_parser = words::job)]
    job: Option<Name>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let wanted = &args.job;
    let session = Session::open(&context.options())?;
    let mut listings = Vec::new();
    let mut damaged = false;
    for job in session.catalog.jobs()? {
        let listing = session.catalog.job(&job)?;
        damaged |= tell_unreadable(&listing);
        listings.push(listing);
    }
    if let Some(job) = wanted.as_ref().filter(|j| !listings.iter().any(|l| l.job == **j)) {
        return Err(Error::new(Kind::NotFound, format!("there is no job {job}: `ckptfs ls` lists the jobs")));
    }
    let report = usage(&session, &listings)?;
    let shown: Vec<_> =
        report.checkpoints.iter().filter(|((job, _), _)| wanted.as_ref().is_none_or(|w| w == job)).collect();
    if context.json {
        let rows: Vec<_> = shown
            .iter()
            .map(|((job, n), u)| {
                json!({ "job": job.as_str(), "checkpoint": n.to_string(), "logical_bytes": u.logical, "new_bytes": u.new,
                    "unique_bytes": u.unique, "referenced_bytes": u.referenced })
            })
            .collect();
        words::json(&json!({ "checkpoints": rows, "store_bytes": report.total }))?;
    } else {
        let mut rows = vec![["CHECKPOINT", ">LOGICAL", ">NEW", ">UNIQUE"].map(str::to_owned).to_vec()];
        for ((job, n), u) in shown {
            rows.push(vec![format!("{job}/{n}"), words::size(u.logical), words::size(u.new), words::size(u.unique)]);
        }
        words::table(&rows)?;
        words::line(&format!(
            "{} in all blobs that checkpoints of this store name, each once",
            words::size(report.total)
        ))?;
    }
    Ok(if damaged { Exit::Damage } else { Exit::Done })
}
