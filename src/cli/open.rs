//! `open`: begins a checkpoint that several processes or hosts will acknowledge.

use ckptfs::engine;
use ckptfs::error::{Error, Kind, Result};
use ckptfs::format::{CheckpointKind, ExpectedOperator};
use ckptfs::types::{CheckpointNumber, Name};
use serde_json::json;

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job
    #[arg(long, value_name = "JOB", value_parser = words::job)]
    job: Name,
    /// Who will acknowledge, e.g. `--expect counter=4`; may be given several times
    #[arg(long, required = true, num_args = 1.., value_name = "OPERATOR=PARALLELISM")]
    expect: Vec<String>,
    /// The user owns it: policy never expires it
    #[arg(long)]
    savepoint: bool,
    /// The checkpoint's number; default: the next
    #[arg(long, value_name = "N", value_parser = super::snapshot::new_number)]
    number: Option<CheckpointNumber>,
    #[command(flatten)]
    labels: super::labels::Args,
}

fn expected(text: &str) -> Result<ExpectedOperator> {
    let parsed = text.rsplit_once('=').and_then(|(o, p)| Some((o, p.parse().ok().filter(|p| *p > 0)?)));
    match parsed {
        Some((operator, parallelism)) if !operator.is_empty() => {
            Ok(ExpectedOperator { operator: Name::encode(operator), parallelism })
        }
        _ => Err(Error::new(Kind::Invalid, format!("--expect {text:?}: write OPERATOR=PARALLELISM, say counter=4"))),
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let job = &args.job;
    let expect = args.expect.iter().map(|e| expected(e)).collect::<Result<Vec<_>>>()?;
    let labels = args.labels.labels()?;
    let session = super::snapshot::session(context, None)?;
    let _lock = session.writer_lock(job)?;
    let kind = if args.savepoint { CheckpointKind::Savepoint } else { CheckpointKind::Checkpoint };
    let opened = engine::open(&session, job, args.number, expect, kind, true, labels)?;
    for n in &opened.open_elsewhere {
        words::tell(context.quiet, &format!("{job}/{n} is open as well"));
    }
    if context.json {
        words::json(&json!({
            "job": job.as_str(),
            "checkpoint": opened.number.to_string(),
            "number": opened.number.get(),
            "uid": opened.intent.place.uid,
            "bases": opened.intent.bases.iter().map(|b| format!("{}/{}", b.job, b.number)).collect::<Vec<_>>(),
        }))?;
    } else {
        words::line(&opened.number.to_string())?;
    }
    Ok(Exit::Done)
}
