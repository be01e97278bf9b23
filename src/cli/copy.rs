//! `copy`: checkpoints into another store.

use std::path::PathBuf;

use ckptfs::cache::Session;
use ckptfs::engine::SessionOptions;
use ckptfs::engine::copy::{Copied, copy};
use ckptfs::error::{Error, Kind, Result};
use ckptfs::lifecycle::Checkpoint;
use ckptfs::restore::Selection;
use ckptfs::store::Environment;
use ckptfs::types::Name;
use serde_json::{Value, json};

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JOB/chk-N, several of them, or JOB for all of its checkpoints that are in the view, oldest first
    #[arg(required = true, value_name = "CHECKPOINT", value_parser = what)]
    checkpoints: Vec<What>,
    /// The other store: any URL that --store takes. One that does not exist is created
    #[arg(long, value_name = "URL")]
    to: String,
    /// The key file of the other store
    #[arg(long, env = "CKPTFS_TO_KEY_FILE", value_name = "FILE")]
    to_key_file: Option<PathBuf>,
    /// The job that they become checkpoints of there. Default: the same
    #[arg(long = "as", value_name = "JOB", value_parser = words::job)]
    as_job: Option<Name>,
    #[command(flatten)]
    room: super::room::Args,
}

/// What is to be copied.
#[derive(Debug, Clone)]
enum What {
    /// All that is in the view.
    Job(Name),
    One(Selection),
}

fn what(text: &str) -> std::result::Result<What, String> {
    if text.trim_end_matches('/').contains('/') {
        return words::checkpoint(text).map(What::One);
    }
    words::job(text).map(What::Job)
}

impl What {
    fn job(&self) -> &Name {
        match self {
            Self::Job(job) => job,
            Self::One(selection) => &selection.job,
        }
    }
}

impl Args {
    /// What clap cannot check.
    pub(crate) fn check(&self) -> std::result::Result<(), &'static str> {
        let first = self.checkpoints.first().map(What::job);
        if self.as_job.is_some() && self.checkpoints.iter().any(|w| Some(w.job()) != first) {
            return Err("--as takes checkpoints of one job: two jobs have the same numbers");
        }
        Ok(())
    }
}

/// One that was looked after.
struct Done {
    checkpoint: Checkpoint,
    job: Name,
    copied: Copied,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let from = Session::open(&context.options())?;
    args.room.apply(&from.cache)?;
    let checkpoints = chosen(&from, &args.checkpoints)?;
    let options = SessionOptions {
        store: Some(args.to.clone()),
        key_file: args.to_key_file.clone(),
        create: true,
        environment: Environment::prefixed("CKPTFS_TO_"),
        ..context.options()
    };
    let to = from.beside(&options).map_err(|e| e.context("--to"))?;
    // Before anything is read for it.
    to.may_write().map_err(|e| e.context("--to (its key file is --to-key-file or CKPTFS_TO_KEY_FILE)"))?;
    if to.created {
        words::tell(context.quiet, &format!("created the store {}", to.store.url()));
    }
    let several = checkpoints.len() > 1;
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    let count = checkpoints.len();
    for (checkpoint, asked) in checkpoints {
        match one(context, args, (&from, &to), checkpoint, asked) {
            Ok(one) => {
                tell(context, &to, &one);
                done.push(one);
            }
            Err(e) if several && is_its_own(&e) => {
                words::tell(false, e.message());
                failed.push(e);
            }
            Err(e) => return Err(e),
        }
    }
    end(context, (&from, &to), &done)?;
    match failed.first() {
        None => Ok(Exit::Done),
        Some(first) => {
            let why = format!("{} of {count} checkpoints were not copied, as told above", failed.len());
            Err(Error::new(first.kind(), why))
        }
    }
}

/// Whether one checkpoint alone cannot be copied: it is damaged, has expired, or its number is taken. That is no reason to leave the others.
fn is_its_own(e: &Error) -> bool {
    matches!(e.kind(), Kind::Damage | Kind::Conflict | Kind::NotFound)
}

/// The checkpoints, oldest first, each once, and whether it was asked for by its number.
fn chosen(from: &Session, asked: &[What]) -> Result<Vec<(Checkpoint, bool)>> {
    let mut chosen: Vec<(Checkpoint, bool)> = Vec::new();
    for what in asked {
        let (more, by_number) = match what {
            What::One(selection) => (vec![selection.resolve(&from.catalog)?], true),
            What::Job(job) => {
                let listing = from.catalog.job(job)?;
                for (number, why) in &listing.unreadable {
                    log::warn!("{job}/{number} cannot be believed and is not copied: {why}");
                }
                let visible: Vec<Checkpoint> = listing.visible().cloned().collect();
                if visible.is_empty() {
                    let why = format!("job {job} has no completed checkpoint: `ckptfs ls` lists the jobs");
                    return Err(Error::new(Kind::NotFound, why));
                }
                (visible, false)
            }
        };
        for checkpoint in more {
            let same = |c: &Checkpoint| (&c.job, c.number) == (&checkpoint.job, checkpoint.number);
            if !chosen.iter().any(|(c, _)| same(c)) {
                chosen.push((checkpoint, by_number));
            }
        }
    }
    // An incremental history stays incremental.
    chosen.sort_by(|(a, _), (b, _)| (&a.job, a.number).cmp(&(&b.job, b.number)));
    Ok(chosen)
}

fn one(
    context: &Context,
    args: &Args,
    (from, to): (&Session, &Session),
    checkpoint: Checkpoint,
    asked: bool,
) -> Result<Done> {
    let job = args.as_job.clone().unwrap_or_else(|| checkpoint.job.clone());
    let number = checkpoint.number;
    let bar = words::Bar::new(context.quiet);
    let copied = copy((from, to), &checkpoint, &job, &bar);
    bar.finish();
    let url = to.store.url();
    let copied = copied.map_err(|e| e.context(format!("{}/{number}", checkpoint.job))).inspect_err(|e| {
        // Of what has expired, or cannot be begun, nothing is open.
        if !matches!(e.kind(), Kind::Invalid | Kind::Conflict | Kind::NotFound) {
            log::warn!(
                "{job}/{number} is not complete in {url}: once what is wrong is mended, the same copy again goes on with it; \
                 `ckptfs --store {url} abort --job {job} --checkpoint {number}` gives it up"
            );
        }
    })?;
    if asked && matches!(copied, Copied::Over) {
        let why = format!("{job}/{number} has expired in {url}, and no number is used twice: copy it --as another job");
        return Err(Error::new(Kind::Conflict, why));
    }
    Ok(Done { checkpoint, job, copied })
}

fn tell(context: &Context, to: &Session, done: &Done) {
    let (job, number) = (&done.job, done.checkpoint.number);
    let text = match &done.copied {
        Copied::Now(report) => format!(
            "{job}/{number}: {} files, logical {}, sent {}, there before {}, {:.2} s",
            report.files,
            words::size(report.logical_bytes),
            words::size(report.new_bytes),
            words::size(report.reused_bytes.saturating_add(report.adopted_bytes)),
            report.seconds
        ),
        Copied::Before => format!("{job}/{number}: is in {} already", to.store.url()),
        Copied::Over => format!("{job}/{number}: has expired in {}, and is left out", to.store.url()),
    };
    words::tell(context.quiet, &text);
}

fn end(context: &Context, (from, to): (&Session, &Session), done: &[Done]) -> Result<()> {
    if !context.json {
        for one in done.iter().filter(|one| !matches!(one.copied, Copied::Over)) {
            words::line(&format!("{}/{}", one.job, one.checkpoint.number))?;
        }
        return Ok(());
    }
    let checkpoints: Vec<Value> = done.iter().map(value).collect();
    words::json(&json!({"from": from.store.url(), "to": to.store.url(), "checkpoints": checkpoints}))
}

fn value(done: &Done) -> Value {
    let (state, report) = match &done.copied {
        Copied::Now(report) => ("copied", Some(report)),
        Copied::Before => ("there", None),
        Copied::Over => ("expired", None),
    };
    let mut value = json!({
        "job": done.job.as_str(),
        "checkpoint": done.checkpoint.number.to_string(),
        "number": done.checkpoint.number.get(),
        "from_job": done.checkpoint.job.as_str(),
        "from_uid": done.checkpoint.uid,
        "state": state,
    });
    if let (Some(report), Some(fields)) = (report, value.as_object_mut()) {
        let more = json!({
            "uid": report.uid,
            "files": report.files,
            "logical_bytes": report.logical_bytes,
            "sent_bytes": report.new_bytes,
            "there_bytes": report.reused_bytes.saturating_add(report.adopted_bytes),
            "seconds": report.seconds,
        });
        fields.extend(more.as_object().cloned().unwrap_or_default());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_checkpoints_are_told_apart() {
        assert!(matches!(what("app").unwrap(), What::Job(job) if job.as_str() == "app"));
        assert!(matches!(what("app/").unwrap(), What::Job(_)));
        assert!(matches!(what("app/chk-3").unwrap(), What::One(s) if s.number.is_some()));
        assert!(matches!(what("app/latest").unwrap(), What::One(s) if s.number.is_none()));
        for bad in ["", "app/3", "app/chk-1/db/0", "..", "-x"] {
            assert!(what(bad).is_err(), "{bad}");
        }
    }
}
