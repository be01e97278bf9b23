//! `ls`: jobs, or a job's checkpoints.

use ckptfs::cache::session::open_store;
use ckptfs::error::{Error, Kind, Result};
use ckptfs::format::CheckpointKind;
use ckptfs::lifecycle::{Catalog, Checkpoint, JobListing};
use ckptfs::types::{Name, now_ms};
use serde_json::{Value, json};

use super::Context;
use super::exit::Exit;
use super::labels::{self, Wanted};
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this job's checkpoints
    #[arg(value_parser = words::job)]
    job: Option<Name>,
    /// Only what was completed so long ago at most: jobs by their newest checkpoint, checkpoints by themselves
    #[arg(long, value_name = "DURATION", value_parser = words::duration_ms)]
    since: Option<u64>,
    /// Only what has this label, or any of this key: jobs by their newest checkpoint, checkpoints by themselves. Several: what has all
    #[arg(long = "label", value_name = "KEY[=VALUE]", value_parser = Wanted::parse)]
    labels: Vec<Wanted>,
}

impl Args {
    /// Whether it was completed so long ago at most, and has the labels.
    fn wants(&self, c: &Checkpoint) -> bool {
        let is_since = self.since.is_none_or(|since| now_ms().saturating_sub(c.manifest.completed_ms) <= since);
        is_since && self.labels.iter().all(|wanted| wanted.is_on(&c.manifest.labels))
    }
}

fn kind(c: &Checkpoint) -> &'static str {
    match c.manifest.kind {
        CheckpointKind::Checkpoint => "checkpoint",
        CheckpointKind::Savepoint => "savepoint",
    }
}

fn checkpoint_json(c: &Checkpoint) -> Value {
    json!({
        "checkpoint": c.number.to_string(),
        "number": c.number.get(),
        "uid": c.uid,
        "kind": kind(c),
        "completed_ms": c.manifest.completed_ms,
        "took_ms": c.manifest.completed_ms.saturating_sub(c.manifest.opened_ms),
        "subtasks": c.manifest.subtasks.len(),
        "files": c.manifest.files,
        "logical_bytes": c.manifest.logical_bytes,
        "new_bytes": c.manifest.new_bytes,
        "labels": c.manifest.labels,
        "phases": c.manifest.phases,
    })
}

/// What cannot be believed is never passed over in silence.
pub(crate) fn tell_unreadable(listing: &JobListing) -> bool {
    for (n, why) in &listing.unreadable {
        words::tell(false, &format!("{}/{n} is left out: {why}", listing.job));
    }
    !listing.unreadable.is_empty()
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let store = open_store(&context.options())?;
    let catalog = Catalog::new(store);
    let damaged = match &args.job {
        Some(job) => job_table(context, &catalog, job, args)?,
        None => jobs_table(context, &catalog, args)?,
    };
    Ok(if damaged { Exit::Damage } else { Exit::Done })
}

fn jobs_table(context: &Context, catalog: &Catalog, args: &Args) -> Result<bool> {
    let mut rows = vec![["JOB", ">CHECKPOINTS", "LATEST", ">LOGICAL", "COMPLETED (UTC)"].map(str::to_owned).to_vec()];
    let mut values = Vec::new();
    let mut damaged = false;
    for job in catalog.jobs()? {
        let listing = catalog.job(&job)?;
        damaged |= tell_unreadable(&listing);
        let Some(latest) = listing.latest().filter(|c| args.wants(c)) else { continue };
        let count = listing.visible().count();
        rows.push(vec![
            job.to_string(),
            count.to_string(),
            latest.number.to_string(),
            words::size(latest.manifest.logical_bytes),
            words::time(latest.manifest.completed_ms),
        ]);
        values.push(json!({ "job": job.as_str(), "checkpoints": count, "latest": checkpoint_json(latest) }));
    }
    if context.json {
        words::json(&Value::Array(values))?;
    } else if rows.len() > 1 {
        words::table(&rows)?;
    } else {
        words::tell(context.quiet, "no completed checkpoint yet");
    }
    Ok(damaged)
}

fn job_table(context: &Context, catalog: &Catalog, job: &Name, args: &Args) -> Result<bool> {
    let listing = catalog.job(job)?;
    let damaged = tell_unreadable(&listing);
    if listing.checkpoints.is_empty() && listing.open.is_empty() && !damaged {
        return Err(Error::new(Kind::NotFound, format!("there is no job {job}: `ckptfs ls` lists the jobs")));
    }
    if context.json {
        words::json(&Value::Array(listing.visible().filter(|c| args.wants(c)).map(checkpoint_json).collect()))?;
        return Ok(damaged);
    }
    let head = ["CHECKPOINT", "KIND", "COMPLETED (UTC)", ">SUBTASKS", ">FILES", ">LOGICAL", ">NEW"];
    let shown: Vec<_> = listing.visible().filter(|c| args.wants(c)).collect();
    let labelled = shown.iter().any(|c| !c.manifest.labels.is_empty());
    let mut rows = vec![head.into_iter().chain(labelled.then_some("LABELS")).map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(shown.into_iter().map(|c| {
        let mut row = vec![
            c.number.to_string(),
            kind(c).to_owned(),
            words::time(c.manifest.completed_ms),
            c.manifest.subtasks.len().to_string(),
            c.manifest.files.to_string(),
            words::size(c.manifest.logical_bytes),
            words::size(c.manifest.new_bytes),
        ];
        row.extend(labelled.then(|| labels::cell(&c.manifest.labels)));
        row
    }));
    if rows.len() > 1 {
        words::table(&rows)?;
    }
    for n in &listing.open {
        words::tell(context.quiet, &format!("{job}/{n} is open: begun, and neither completed nor aborted"));
    }
    Ok(damaged)
}
