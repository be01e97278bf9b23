//! `diff`: two checkpoints, file by file.

use ckptfs::engine::Session;
use ckptfs::error::Result;
use ckptfs::restore::Selection;
use ckptfs::restore::inspect::{Change, difference};
use serde_json::json;

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JOB/chk-A
    #[arg(value_parser = words::checkpoint)]
    first: Selection,
    /// JOB/chk-B
    #[arg(value_parser = words::checkpoint)]
    second: Selection,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let session = Session::open(&context.options())?;
    let (a, b) = (args.first.resolve(&session.catalog)?, args.second.resolve(&session.catalog)?);
    let d = difference(&session, &a, &b)?;
    let word = |c: Change| match c {
        Change::Added => "added",
        Change::Removed => "removed",
        Change::Changed => "changed",
    };
    if context.json {
        let files: Vec<_> = d
            .files
            .iter()
            .map(|(path, change, was, is)| json!({ "path": path, "change": word(*change), "size_before": was, "size_after": is }))
            .collect();
        words::json(&json!({ "files": files, "same_files": d.same_files, "same_bytes": d.same_bytes }))?;
        return Ok(Exit::Done);
    }
    let mut rows = vec![["", "PATH", ">BEFORE", ">AFTER"].map(str::to_owned).to_vec()];
    for (path, change, was, is) in &d.files {
        let sign = match change {
            Change::Added => "+",
            Change::Removed => "-",
            Change::Changed => "~",
        };
        let cell = |n: u64, there: bool| if there { words::size(n) } else { String::new() };
        rows.push(vec![
            sign.to_owned(),
            path.clone(),
            cell(*was, *change != Change::Added),
            cell(*is, *change != Change::Removed),
        ]);
    }
    if rows.len() > 1 {
        words::table(&rows)?;
    }
    words::line(&format!("{} files with {} are the same", d.same_files, words::size(d.same_bytes)))?;
    Ok(Exit::Done)
}
