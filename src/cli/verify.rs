//! `verify`: every reference resolves; with `--read`, every byte is right. Exit code 3 when damage was found.

use ckptfs::engine::Session;
use ckptfs::error::Result;
use ckptfs::restore::verify::{Scope, verify};
use serde_json::json;

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JOB or JOB/chk-N; default: everything
    #[arg(value_parser = scope)]
    what: Option<Scope>,
    /// Read every byte in the store, and the cache's copies again
    #[arg(long)]
    read: bool,
}

fn scope(text: &str) -> std::result::Result<Scope, String> {
    Scope::parse(Some(text), false).map_err(|e| e.message().to_owned())
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let scope = Scope { read: args.read, ..args.what.clone().unwrap_or_default() };
    let session = Session::open(&context.options())?;
    let bar = words::Bar::new(context.quiet);
    let report = verify(&session, &scope, &bar)?;
    bar.finish();
    if context.json {
        let findings: Vec<_> = report
            .findings
            .iter()
            .map(|f| json!({ "kind": f.kind.as_str(), "object": f.object, "files": f.files, "detail": f.detail }))
            .collect();
        words::json(&json!({
            "checkpoints": report.checkpoints,
            "records": report.records,
            "blobs": report.blobs,
            "bytes_read": report.bytes_read,
            "cache_files": report.cache_files,
            "findings": findings,
        }))?;
    } else {
        for f in &report.findings {
            words::line(&words::clean(&format!("{}: {}: {}", f.kind.as_str(), f.object, f.detail)))?;
            for file in &f.files {
                words::line(&words::clean(&format!("    {file}")))?;
            }
        }
        let read = if args.read {
            format!(", {} read, {} cached files hashed again", words::size(report.bytes_read), report.cache_files)
        } else {
            ", no byte of them read (--read does)".to_owned()
        };
        let found = match report.findings.len() {
            0 => "nothing is wrong".to_owned(),
            1 => "1 finding".to_owned(),
            n => format!("{n} findings"),
        };
        words::tell(
            context.quiet,
            &format!(
                "{} checkpoints, {} records, {} blobs{read}: {found}",
                report.checkpoints, report.records, report.blobs
            ),
        );
    }
    Ok(if report.damaged() { Exit::Damage } else { Exit::Done })
}
