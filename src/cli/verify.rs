//! `verify`: every reference resolves; with `--read`, every byte is right; with `--repair`, what can be mended safely is. Exit code 3
//! when damage was found and is left.

use std::path::PathBuf;

use ckptfs::engine::Session;
use ckptfs::error::Result;
use ckptfs::restore::verify::{Finding, FindingKind, Hurt, Options, Read, Report, Scope, verify};
use serde_json::{Value, json};

use super::Context;
use super::exit::Exit;
use super::words;

/// Rows of one finding in the table, and findings of what nothing needs; JSON has all of them.
const ROWS: usize = 8;

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Findings: missing, short (another length), damaged, unreadable, dangling pin: exit code 3 unless all of them were mended. \
unreferenced (garbage that `ckptfs gc` frees) and foreign (no checkpoint made it) are told and are no damage; both only when the whole \
store is verified.

--read reads the store, never the cache in its place, and hashes the cache's own entries as well. Hash trees and tails in bundles are \
compared with the files that they are of.

--repair writes only bytes that their digest proves: a blob or a task manifest that the cache still has is put back into the store, \
a damaged cache entry is fetched anew. Nothing is deleted and no other record is ever made.")]
pub(crate) struct Args {
    /// JOB or JOB/chk-N; default: everything
    #[arg(value_parser = scope)]
    what: Option<Scope>,
    /// Read every byte in the store, and the cache's copies again
    #[arg(long)]
    read: bool,
    /// With --read: only so many of a hundred blobs, say 5 or 0.5. Digest and seed decide which, so that the same are picked again
    #[arg(long, value_name = "PERCENT", value_parser = percent, requires = "read")]
    sample: Option<f64>,
    /// With --sample: another number picks other blobs
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "sample")]
    seed: u64,
    /// With --read: remember in this file what was read and found right. The same command goes on from there after an interruption; the
    /// file is removed once the reading has come to its end, whatever it found
    #[arg(long, value_name = "FILE", requires = "read")]
    resume: Option<PathBuf>,
    /// Mend what can be mended safely, and say what was done. With --read also what only reading finds
    #[arg(long)]
    repair: bool,
}

fn scope(text: &str) -> std::result::Result<Scope, String> {
    Scope::parse(Some(text)).map_err(|e| e.message().to_owned())
}

fn percent(text: &str) -> std::result::Result<f64, String> {
    let wrong = || "a number above 0, at most 100".to_owned();
    text.trim_end_matches('%').parse().ok().filter(|p: &f64| *p > 0.0 && *p <= 100.0).ok_or_else(wrong)
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let scope = args.what.clone().unwrap_or_default();
    let read = Read { percent: args.sample.unwrap_or(100.0), seed: args.seed, resume: args.resume.clone() };
    let options = Options { read: args.read.then_some(read), repair: args.repair };
    let session = Session::open(&context.options())?;
    let bar = words::Bar::new(context.quiet);
    let report = verify(&session, &scope, &options, &bar)?;
    bar.finish();
    if context.json {
        words::json(&report_json(&report, &options))?;
    } else {
        table(&report)?;
        for note in &report.notes {
            words::tell(context.quiet, note);
        }
        words::tell(context.quiet, &summary(&report, &options));
    }
    Ok(if report.damaged() { Exit::Damage } else { Exit::Done })
}

fn hurt_json(hurt: &Hurt) -> Value {
    json!({
        "job": hurt.job.as_str(),
        "checkpoint": hurt.number.to_string(),
        "operator": hurt.subtask.as_ref().map(|(operator, _)| operator.as_str()),
        "subtask": hurt.subtask.as_ref().map(|(_, subtask)| subtask),
        "files": hurt.files,
        "more_files": hurt.more,
    })
}

fn report_json(report: &Report, options: &Options) -> Value {
    let findings: Vec<_> = report
        .findings
        .iter()
        .map(|f| {
            json!({
                "kind": f.kind.as_str(),
                "object": f.object,
                "place": if f.in_cache() { "cache" } else { "store" },
                "damage": f.kind.is_damage(),
                "hurts": f.hurts.iter().map(hurt_json).collect::<Vec<_>>(),
                "files": f.files(),
                "detail": f.detail,
                "mended": f.mended,
            })
        })
        .collect();
    json!({
        "checkpoints": report.checkpoints,
        "records": report.records,
        "blobs": report.blobs,
        "blobs_read": report.reading.blobs,
        "bytes_read": report.reading.bytes,
        "bytes_read_before": report.reading.resumed_bytes,
        "bytes_total": report.reading.total_bytes,
        "sample_percent": options.read.as_ref().map(|r| r.percent),
        "cache_files": report.cache_files,
        "findings": findings,
        "notes": report.notes,
    })
}

/// Where a finding hurts, as on the mount: `app/chk-42/db/0/db/000012.sst`.
fn places(finding: &Finding) -> Vec<String> {
    let mut places = Vec::new();
    for hurt in &finding.hurts {
        if hurt.files.is_empty() {
            places.push(hurt.to_string());
        }
        places.extend(hurt.files.iter().map(|file| format!("{hurt}/{file}")));
        if hurt.more > 0 {
            places.push(format!("{hurt}: {} more files", hurt.more));
        }
    }
    places
}

fn table(report: &Report) -> Result<()> {
    if report.findings.is_empty() {
        return Ok(());
    }
    let mut rows = vec![["KIND", "HURTS", "OBJECT", "WHAT"].map(str::to_owned).to_vec()];
    let mut left_out = 0;
    for kind in [FindingKind::Unreferenced, FindingKind::Foreign] {
        left_out += report.findings.iter().filter(|f| f.kind == kind).count().saturating_sub(ROWS);
    }
    let mut seen = std::collections::BTreeMap::new();
    for f in &report.findings {
        let count = seen.entry(f.kind).or_insert(0_usize);
        *count += 1;
        if !f.kind.is_damage() && *count > ROWS {
            continue;
        }
        let what = match &f.mended {
            Some(done) => format!("{}; mended: {done}", f.detail),
            None => f.detail.clone(),
        };
        let places = places(f);
        let first = places.first().map_or("-", String::as_str).to_owned();
        rows.push(vec![f.kind.as_str().to_owned(), first, f.object.clone(), what]);
        for place in places.iter().take(ROWS).skip(1) {
            rows.push(vec![String::new(), place.clone()]);
        }
        if places.len() > ROWS {
            rows.push(vec![String::new(), format!("and {} more (--json has all)", places.len() - ROWS)]);
        }
    }
    words::table(&rows)?;
    if left_out > 0 {
        words::line(&format!("and {left_out} more that nothing needs (--json has all)"))?;
    }
    Ok(())
}

fn count(n: usize, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
}

fn summary(report: &Report, options: &Options) -> String {
    let reading = &report.reading;
    let read = match &options.read {
        None => ", no byte of them read (--read does)".to_owned(),
        Some(which) => {
            let mut text = format!(", {} read", words::size(reading.bytes));
            if which.percent < 100.0 {
                text += &format!(" of {} (a sample of {} %)", words::size(reading.total_bytes), which.percent);
            }
            if reading.resumed_bytes > 0 {
                text += &format!(", {} before the interruption", words::size(reading.resumed_bytes));
            }
            let cached = usize::try_from(report.cache_files).unwrap_or(usize::MAX);
            text + &format!(", {} hashed again", count(cached, "cached file", "cached files"))
        }
    };
    let open = report.findings.iter().filter(|f| f.is_open()).count();
    let mended = report.findings.iter().filter(|f| f.mended.is_some()).count();
    let spare = report.findings.iter().filter(|f| !f.kind.is_damage()).count();
    let mut found = Vec::new();
    if mended > 0 {
        found.push(format!("{mended} mended"));
    }
    match (open, mended) {
        (0, 0) => found.push("nothing is wrong".to_owned()),
        (0, _) => found.push("nothing is left".to_owned()),
        (n, 0) => found.push(count(n, "finding", "findings")),
        (n, _) => found.push(format!("{n} left")),
    }
    if spare > 0 {
        found.push(format!("{} that nothing needs", count(spare, "object", "objects")));
    }
    format!(
        "{} checkpoints, {} records, {} blobs{read}: {}",
        report.checkpoints,
        report.records,
        report.blobs,
        found.join(", ")
    )
}
