//! `doctor`: will it work here? Each finding with what to do. Exit code 1 when something would fail.

use std::path::PathBuf;

use ckptfs::error::{Error, Kind, Result};
use ckptfs::restore::doctor::{Finding, Question, Severity, examine};
use serde_json::json;

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A directory that is to be snapshotted or restored: can its files be linked?
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let question = Question { session: context.options(), directory: args.dir.clone() };
    let findings = examine(&question);
    if context.json {
        let list: Vec<_> = findings
            .iter()
            .map(|f| json!({"check": f.check, "severity": f.severity.as_str(), "says": f.says, "remedy": f.remedy}))
            .collect();
        words::json(&json!({ "findings": list }))?;
    } else {
        for f in &findings {
            words::line(&words::clean(&line(f)))?;
        }
    }
    match findings.iter().filter(|f| f.severity == Severity::Fails).count() {
        0 => Ok(Exit::Done),
        1 => Err(Error::new(Kind::Unsupported, "one thing would fail; it says above what to do")),
        n => Err(Error::new(Kind::Unsupported, format!("{n} things would fail; they say above what to do"))),
    }
}

fn line(f: &Finding) -> String {
    let remedy = if f.remedy.is_empty() { String::new() } else { format!("\n         -> {}", f.remedy) };
    format!("{:7}  {}: {}{remedy}", f.severity.as_str(), f.check, f.says)
}
