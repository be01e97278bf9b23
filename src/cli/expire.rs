//! `expire`: a checkpoint dies, or those that a policy does not keep.

use ckptfs::engine::Session;
use ckptfs::engine::life;
use ckptfs::error::Result;
use ckptfs::lifecycle::retention::Retention;
use ckptfs::types::{CheckpointNumber, Name};
use serde_json::json;

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JOB/chk-N, or JOB with a rule
    #[arg(value_name = "JOB[/chk-N]", value_parser = target)]
    what: (Name, Option<CheckpointNumber>),
    /// Keep the newest K checkpoints of the job
    #[arg(long, value_name = "K")]
    keep: Option<usize>,
    /// Keep the newest one of each of the last H hours that have one
    #[arg(long, value_name = "H")]
    keep_hourly: Option<usize>,
    /// Keep the newest one of each of the last D days that have one
    #[arg(long, value_name = "D")]
    keep_daily: Option<usize>,
    /// Only those that were hidden so long ago: 90s, 30m, 24h or 7d
    #[arg(long, value_name = "DURATION", value_parser = words::duration_ms, conflicts_with_all = ["keep", "keep_hourly", "keep_daily"])]
    hidden_for: Option<u64>,
    /// Only say which
    #[arg(long)]
    dry_run: bool,
    /// Why, for whoever reads it later
    #[arg(long, default_value = "expired by hand")]
    reason: String,
}

fn target(text: &str) -> std::result::Result<(Name, Option<CheckpointNumber>), String> {
    if !text.trim_end_matches('/').contains('/') {
        return Ok((words::job(text)?, None));
    }
    let selection = words::numbered(text)?;
    Ok((selection.job, selection.number))
}

impl Args {
    fn retention(&self) -> Retention {
        Retention {
            newest: self.keep.unwrap_or_default(),
            hourly: self.keep_hourly.unwrap_or_default(),
            daily: self.keep_daily.unwrap_or_default(),
        }
    }

    /// What clap cannot say.
    pub(super) fn check(&self) -> std::result::Result<(), &'static str> {
        let ruled = self.keep.is_some() || self.keep_hourly.is_some() || self.keep_daily.is_some();
        match self.what.1 {
            Some(_) if ruled || self.hidden_for.is_some() => Err("a rule is for a whole job, not for one checkpoint"),
            None if self.hidden_for.is_none() && self.retention() == Retention::default() => Err(
                "that would expire every checkpoint of the job: name one as JOB/chk-N, or say how many to keep (--keep K, at least one)",
            ),
            _ => Ok(()),
        }
    }

    fn wanted(&self, session: &Session) -> Result<Vec<CheckpointNumber>> {
        let (job, number) = &self.what;
        match (number, self.hidden_for) {
            (Some(number), _) => Ok(vec![*number]),
            (None, Some(at_least)) => life::hidden_for(session, job, at_least),
            (None, None) => life::not_kept(session, job, self.retention()),
        }
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let session = Session::open(&context.options())?;
    let (job, numbers) = (&args.what.0, args.wanted(&session)?);
    if numbers.is_empty() {
        words::tell(context.quiet, &format!("{job}: nothing to expire"));
    }
    let mut rows = Vec::new();
    for number in numbers {
        let now = if args.dry_run { false } else { life::expire(&session, job, number, &args.reason)? };
        let what = match (args.dry_run, now) {
            (true, _) => "would expire",
            (_, true) => "expired: `ckptfs gc --delete` frees what only it needed",
            (_, false) => "was expired before",
        };
        words::tell(context.quiet, &format!("{job}/{number} {what}"));
        rows.push(json!({ "job": job.as_str(), "checkpoint": number.to_string(), "number": number.get(), "now": now }));
    }
    if context.json {
        words::json(&json!(rows))?;
    }
    Ok(Exit::Done)
}
