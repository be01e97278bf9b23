//! `gc`: says what a sweep would delete and why; deletes when told.

use std::collections::BTreeMap;

use ckptfs::cache::gone;
use ckptfs::engine::Session;
use ckptfs::engine::gc::{self, GcOptions, GcReport};
use ckptfs::error::{Error, Kind, Result};
use ckptfs::lifecycle::sweep::{At, Doomed, Fate, SweepOptions, SweepPlan};
use ckptfs::types::Uid;
use serde_json::json;

use super::Context;
use super::exit::Exit;
use super::pin::holder;
use super::words::{self, Bar};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Delete what the plan says; without it, nothing is changed
    #[arg(long)]
    delete: bool,
    /// Also delete blobs whose uploader no record knows: another program's, or what a lost record had named
    #[arg(long)]
    foreign: bool,
    /// Sweep although there are blobs and not a single record of a checkpoint; STORE-ID is the store's id (`doctor` and the refusal print it)
    #[arg(long, value_name = "STORE-ID")]
    force: Option<Uid>,
    /// Objects that are deleted per second at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Forget every dead number at once. Without it the records of dead numbers are deleted some hundreds at a time, since
    /// every such step leaves one small record for ever
    #[arg(long)]
    forget_all: bool,
}

fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Expired => "expired",
        Fate::Unnamed => "uploaded and not used",
        Fate::Forgotten => "forgotten",
    }
}

/// The doomed by checkpoint, most bytes first.
fn by_checkpoint(plan: &SweepPlan) -> Vec<(Option<At>, Fate, u64, u64)> {
    let mut sums: BTreeMap<(Option<At>, Fate), (u64, u64)> = BTreeMap::new();
    for Doomed { at, fate, blobs, bytes } in plan.why.values() {
        let sum = sums.entry((at.clone(), *fate)).or_default();
        *sum = (sum.0.saturating_add(*blobs), sum.1.saturating_add(*bytes));
    }
    let mut rows: Vec<_> = sums.into_iter().map(|((at, fate), (n, bytes))| (at, fate, n, bytes)).collect();
    rows.sort_by_key(|r| std::cmp::Reverse(r.3));
    rows
}

fn name(at: Option<&At>) -> String {
    at.map_or_else(|| "(long gone)".to_owned(), |(job, n)| format!("{job}/{n}"))
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let session = Session::open(&context.options())?;
    let without_records = match &args.force {
        None => false,
        Some(id) if *id == session.store_id => true,
        Some(id) => {
            let why = format!(
                "{id} is not the id of this store, which is {}: look whether it is the one that you meant",
                session.store_id
            );
            return Err(Error::new(Kind::Invalid, why));
        }
    };
    gone_clones(context, &session, args.delete)?;
    let bar = Bar::new(context.quiet);
    let plan = gc::plan(&session, SweepOptions { without_records }, &bar)
        .map_err(|e| e.context(format!("store {}", session.store_id)))?;
    bar.finish();
    if !context.json {
        show(context, &session, &plan)?;
    }
    let report = if args.delete {
        let bar = Bar::new(context.quiet);
        let options = GcOptions { foreign: args.foreign, rate: args.rate, every_number: args.forget_all };
        let report = gc::execute(&session, &plan, options, &bar)?;
        bar.finish();
        Some(report)
    } else {
        None
    };
    if context.json {
        return json_report(&session, &plan, report.as_ref());
    }
    match report {
        Some(report) => tell(context, &report),
        None if plan.doomed.is_empty() && plan.foreign.is_empty() => {}
        None => words::tell(context.quiet, "nothing was deleted: `ckptfs gc --delete` does it"),
    }
    Ok(Exit::Done)
}

/// The pins of clones of this host that are gone hold nothing for anybody.
fn gone_clones(context: &Context, session: &Session, delete: bool) -> Result<()> {
    let clones = if delete { gone::drop_gone(session)? } else { gone::gone(session)? };
    for clone in clones {
        let (of, at) = (format!("{}/{}", clone.job, clone.number), &clone.directory);
        let what = if delete {
            format!("the clone of {of} in {at} is gone, and so is its pin")
        } else {
            format!("the clone of {of} in {at} is gone: with `--delete` its pin goes first, and more may go then")
        };
        words::tell(context.quiet, &what);
    }
    Ok(())
}

fn show(context: &Context, session: &Session, plan: &SweepPlan) -> Result<()> {
    let mut rows = vec![["UPLOADED FOR", "WHY IT GOES", ">BLOBS", ">BYTES"].map(str::to_owned).to_vec()];
    for (at, why, blobs, bytes) in by_checkpoint(plan) {
        rows.push(vec![name(at.as_ref()), fate(why).to_owned(), blobs.to_string(), words::size(bytes)]);
    }
    if rows.len() > 1 {
        words::table(&rows)?;
    }
    words::line(&format!(
        "{} in {} blobs can go; {} in {} blobs are needed",
        words::size(plan.doomed_bytes()),
        plan.doomed.len(),
        words::size(plan.kept_bytes),
        plan.kept_blobs
    ))?;
    for held in &plan.held {
        let all = session.catalog.pins(Some(&held.at.0))?;
        for pin in &held.pins {
            let record = all.iter().find(|(p, _)| p == pin).and_then(|(_, r)| r.as_ref());
            words::line(&words::clean(&format!(
                "{} is expired and held by {}: {} in {} blobs that nothing else needs ({})",
                name(Some(&held.at)),
                holder(record),
                words::size(held.bytes),
                held.blobs,
                pin.key()
            )))?;
        }
    }
    if !plan.foreign.is_empty() {
        words::tell(
            context.quiet,
            &format!(
                "{} in {} blobs are of uploaders that no record knows (`--foreign` deletes them too); the first is {}",
                words::size(plan.foreign_bytes()),
                plan.foreign.len(),
                plan.foreign.first().map(|(n, _)| n.to_string()).unwrap_or_default()
            ),
        );
    }
    Ok(())
}

fn tell(context: &Context, report: &GcReport) {
    let mut text = format!("deleted {} blobs, {}", report.swept.blobs, words::size(report.swept.bytes));
    if report.forgotten > 0 {
        text.push_str(&format!("; forgot {} numbers", report.forgotten));
    }
    if report.leftovers > 0 {
        text.push_str(&format!("; removed {} unfinished files of dead writers", report.leftovers));
    }
    words::tell(context.quiet, &text);
}

fn json_report(session: &Session, plan: &SweepPlan, report: Option<&GcReport>) -> Result<Exit> {
    let doomed: Vec<_> = by_checkpoint(plan)
        .into_iter()
        .map(|(at, why, blobs, bytes)| {
            json!({ "checkpoint": at.as_ref().map(|a| name(Some(a))), "why": fate(why), "blobs": blobs, "bytes": bytes })
        })
        .collect();
    let held: Vec<_> = plan
        .held
        .iter()
        .map(|h| {
            json!({ "checkpoint": name(Some(&h.at)), "blobs": h.blobs, "bytes": h.bytes,
                "pins": h.pins.iter().map(|p| p.key().to_string()).collect::<Vec<_>>() })
        })
        .collect();
    let foreign: Vec<_> =
        plan.foreign.iter().map(|(n, length)| json!({ "blob": n.to_string(), "bytes": length })).collect();
    let done = report.map(|r| {
        json!({ "blobs": r.swept.blobs, "bytes": r.swept.bytes, "leftovers": r.leftovers, "forgotten": r.forgotten,
            "floors": r.floors.iter().map(|(job, f)| json!({ "job": job.as_str(), "floor": f.get() })).collect::<Vec<_>>() })
    });
    words::json(&json!({
        "store": session.store_id,
        "doomed": { "blobs": plan.doomed.len(), "bytes": plan.doomed_bytes(), "by_checkpoint": doomed },
        "kept": { "blobs": plan.kept_blobs, "bytes": plan.kept_bytes },
        "held": held,
        "foreign": foreign,
        "deleted": done,
    }))?;
    Ok(Exit::Done)
}
