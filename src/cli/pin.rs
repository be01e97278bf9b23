//! `pin`, `unpin`, `pins`: keeps a checkpoint's bytes for somebody.

use ckptfs::engine::Session;
use ckptfs::engine::life;
use ckptfs::error::{Error, Kind, Result};
use ckptfs::format::records::{PinHolder, PinRecord};
use ckptfs::lifecycle::PinRef;
use ckptfs::restore::Selection;
use ckptfs::types::{CheckpointNumber, Key, Name};
use serde_json::{Value, json};

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JOB/chk-N
    #[arg(value_name = "JOB/chk-N", value_parser = words::numbered)]
    checkpoint: Selection,
    /// What it is for, for whoever wonders later why the bytes stay
    #[arg(long, default_value = "")]
    note: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UnpinArgs {
    /// A pin as `pins` prints it, or JOB/chk-N for all pins that people made of it
    #[arg(value_name = "PIN", value_parser = which)]
    what: Which,
}

#[derive(Debug, Clone)]
enum Which {
    One(PinRef),
    OfPeople(Name, CheckpointNumber),
}

fn which(text: &str) -> std::result::Result<Which, String> {
    if let Some(pin) = Key::parse(text).as_ref().and_then(PinRef::of) {
        return Ok(Which::One(pin));
    }
    let (job, number) = words::number_of(&words::numbered(text)?).map_err(|e| e.to_string())?;
    Ok(Which::OfPeople(job, number))
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Only this job's checkpoints
    #[arg(value_parser = words::job)]
    job: Option<Name>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let (job, number) = words::number_of(&args.checkpoint)?;
    let session = Session::open(&context.options())?;
    let pin = life::pin(&session, &job, number, PinHolder::Person { note: args.note.clone() })?;
    words::tell(context.quiet, &format!("{job}/{number} is pinned; `ckptfs unpin {}` ends it", pin.key()));
    if context.json {
        words::json(&json!({ "job": job.as_str(), "checkpoint": number.to_string(), "pin": pin.key().as_str() }))?;
    } else {
        words::line(pin.key().as_str())?;
    }
    Ok(Exit::Done)
}

pub(crate) fn unpin(context: &Context, args: &UnpinArgs) -> Result<Exit> {
    let session = Session::open(&context.options())?;
    let pins = match &args.what {
        Which::One(pin) => {
            // Told apart from a slip of the pen.
            life::pin_record(&session, pin)?;
            vec![pin.clone()]
        }
        Which::OfPeople(job, number) => {
            let by_people =
                |r: &Option<PinRecord>| matches!(r, Some(r) if matches!(r.holder, PinHolder::Person { .. }));
            let all = session.catalog.pins(Some(job))?;
            all.into_iter().filter(|(p, r)| p.number == *number && by_people(r)).map(|(p, _)| p).collect()
        }
    };
    if pins.is_empty() {
        let why = "no person pinned it: `ckptfs pins` lists all pins, those of mounts and clones too, by the names that end them";
        return Err(Error::new(Kind::NotFound, why));
    }
    life::unpin(&session, pins.clone())?;
    for pin in &pins {
        words::tell(context.quiet, &format!("{} is gone", pin.key()));
    }
    if context.json {
        words::json(&json!(pins.iter().map(|p| p.key().to_string()).collect::<Vec<_>>()))?;
    }
    Ok(Exit::Done)
}

/// Who holds a pin, in words.
pub(super) fn holder(record: Option<&PinRecord>) -> String {
    record.map_or_else(|| PinHolder::UNREADABLE.to_owned(), |r| r.holder.to_string())
}

fn kind(record: Option<&PinRecord>) -> &'static str {
    match record.map(|r| &r.holder) {
        None => "unreadable",
        Some(PinHolder::Mount { .. }) => "mount",
        Some(PinHolder::Clone { .. }) => "clone",
        Some(PinHolder::Writer) => "writer",
        Some(PinHolder::Person { .. }) => "person",
    }
}

pub(crate) fn list(context: &Context, args: &ListArgs) -> Result<Exit> {
    let session = Session::open(&context.options())?;
    let pins = session.catalog.pins(args.job.as_ref())?;
    if context.json {
        let row = |(pin, record): &(PinRef, Option<PinRecord>)| {
            json!({ "pin": pin.key().as_str(), "job": pin.job.as_str(), "checkpoint": pin.number.to_string(),
                "holder": kind(record.as_ref()), "who": holder(record.as_ref()),
                "pinned_ms": record.as_ref().map(|r| r.pinned_ms) })
        };
        words::json(&Value::Array(pins.iter().map(row).collect()))?;
        return Ok(Exit::Done);
    }
    let mut rows = vec![["CHECKPOINT", "SINCE (UTC)", "HELD BY", "PIN"].map(str::to_owned).to_vec()];
    rows.extend(pins.iter().map(|(pin, record)| {
        vec![
            format!("{}/{}", pin.job, pin.number),
            record.as_ref().map(|r| words::time(r.pinned_ms)).unwrap_or_default(),
            holder(record.as_ref()),
            pin.key().to_string(),
        ]
    }));
    if rows.len() > 1 {
        words::table(&rows)?;
    } else {
        words::tell(context.quiet, "nothing is pinned");
    }
    Ok(Exit::Done)
}
