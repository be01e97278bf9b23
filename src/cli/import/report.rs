//! What an import says.

use ckptfs::error::{Error, Kind, Result};
use ckptfs::flink::found::Read;
use ckptfs::flink::plan::Missing;
use ckptfs::store::SourceFile;
use ckptfs::types::Name;
use serde_json::json;

use super::super::{Context, snapshot, words};
use super::Done;

/// Orphans that people are told by name.
const NAMED: usize = 10;

fn whose(missing: &Missing) -> String {
    let subtask = missing.subtask.map_or(String::new(), |n| format!("/{n}"));
    format!("{}{subtask}: {} ({}): {}", missing.operator, missing.path, missing.name, missing.why)
}

/// The error of a checkpoint that is not whole.
pub(super) fn missing(read: &Read, missing: &[Missing]) -> Error {
    let list: Vec<String> = missing.iter().map(|m| format!("  {}", whose(m))).collect();
    Error::new(
        Kind::Damage,
        format!(
            "{}: {} of its files are not there or have another length, and nothing of it was imported. If they lie elsewhere \
             now, say so with --rewrite FROM=TO; --partial takes the state that is whole\n{}",
            read.directory,
            missing.len(),
            list.join("\n")
        ),
    )
}

/// What became of one checkpoint.
pub(super) fn words(context: &Context, job: &Name, done: &Done) {
    let number = done.number;
    let Some(report) = &done.report else {
        words::tell(context.quiet, &format!("{job}/{number}: was imported before"));
        return;
    };
    for missing in &done.left_out {
        words::tell(context.quiet, &format!("left out: {}", whose(missing)));
    }
    words::tell(
        context.quiet,
        &format!(
            "{job}/{number}: {} files, logical {}, new {}, reused {}, read {}, {:.2} s",
            report.files,
            words::size(report.logical_bytes),
            words::size(report.new_bytes),
            words::size(report.reused_bytes),
            words::size(done.read),
            report.seconds
        ),
    );
}

/// A checkpoint of a job that is followed, for scripts: at once, and in one line.
pub(super) fn followed(context: &Context, job: &Name, done: &Done) -> Result<()> {
    if context.json {
        words::line(&value(job, done).to_string())
    } else {
        words::line(&format!("{job}/{}", done.number))
    }
}

fn value(job: &Name, done: &Done) -> serde_json::Value {
    let mut value = done.report.as_ref().map_or_else(
        || json!({"job": job.as_str(), "checkpoint": done.number.to_string(), "number": done.number.get()}),
        |report| snapshot::report_json(job, report),
    );
    let left_out: Vec<String> = done.left_out.iter().map(whose).collect();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("from".to_owned(), json!(done.directory.to_string()));
        fields.insert("imported".to_owned(), json!(done.report.is_some()));
        fields.insert("read_bytes".to_owned(), json!(done.read));
        fields.insert("left_out".to_owned(), json!(left_out));
    }
    value
}

/// What the import came to.
pub(super) fn end(context: &Context, job: &Name, done: &[Done], orphans: Option<&[SourceFile]>) -> Result<()> {
    let bytes = |files: &[SourceFile]| files.iter().map(|file| file.size).fold(0, u64::saturating_add);
    if let Some(orphans) = orphans.filter(|o| !o.is_empty()) {
        let names: Vec<String> = orphans.iter().take(NAMED).map(|file| file.url.to_string()).collect();
        let more = orphans.len().saturating_sub(NAMED);
        let more = if more > 0 { format!("\n  and {more} more (--json lists all)") } else { String::new() };
        words::tell(
            context.quiet,
            &format!(
                "{} files with {} that none of these checkpoints names:\n  {}{more}",
                orphans.len(),
                words::size(bytes(orphans)),
                names.join("\n  ")
            ),
        );
    }
    if !context.json {
        for one in done {
            words::line(&format!("{job}/{}", one.number))?;
        }
        return Ok(());
    }
    let checkpoints: Vec<_> = done.iter().map(|one| value(job, one)).collect();
    let orphans = orphans.map(|orphans| {
        let names: Vec<String> = orphans.iter().map(|file| file.url.to_string()).collect();
        json!({"count": orphans.len(), "bytes": bytes(orphans), "names": names})
    });
    words::json(&json!({"checkpoints": checkpoints, "orphans": orphans}))
}
