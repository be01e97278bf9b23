//! `import flink`: a checkpoint that Flink wrote becomes one of a job's.

mod follow;
mod report;
mod tasks;

use std::collections::BTreeSet;

use ckptfs::cache::Session;
use ckptfs::engine::SnapshotReport;
use ckptfs::engine::import::{ImportRequest, Imported, import, imported};
use ckptfs::error::{Error, Kind, Result};
use ckptfs::flink::found::{self, Found, Read};
use ckptfs::flink::place::{Resolver, Rewrite};
use ckptfs::flink::plan::{self, Plan};
use ckptfs::format::{CheckpointKind, ExpectedOperator, Labels};
use ckptfs::store::{Piece, SourceUrl, Sources, StoreOptions};
use ckptfs::types::{CheckpointNumber, Name};

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, clap::Subcommand)]
enum From {
    /// A checkpoint or savepoint of Flink's, or all checkpoints of a job
    Flink(FlinkArgs),
}

#[derive(Debug, clap::Args)]
struct FlinkArgs {
    /// A checkpoint (.../<job id>/chk-42), a savepoint, or the directory of a job's checkpoints (.../<job id>); any URL that a store may have
    path: String,
    /// The job that it becomes a checkpoint of. Default: the name of the job's directory
    #[arg(long, value_name = "JOB", value_parser = words::job)]
    job: Option<Name>,
    /// Where files are that the checkpoint names by another place. A tree that was moved as a whole needs none
    #[arg(long, value_name = "FROM=TO")]
    rewrite: Vec<String>,
    /// Where files are missing, take the state that is whole. Flink cannot restore from that
    #[arg(long)]
    partial: bool,
    /// Take the job's checkpoints in as they complete, until the program is ended
    #[arg(long, conflicts_with = "partial")]
    follow: bool,
    /// With --follow: expire all but the newest K checkpoints of the job here; `gc` then frees what only they needed
    #[arg(long, value_name = "K", requires = "follow", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    #[command(flatten)]
    labels: super::labels::Args,
    #[command(flatten)]
    room: super::room::Args,
}

/// What an import needs throughout.
struct Importer<'a> {
    context: &'a Context,
    session: Session,
    sources: Sources,
    rewrites: Vec<Rewrite>,
    job: Name,
    labels: Labels,
    partial: bool,
}

/// One checkpoint that was taken in, or was there.
struct Done {
    number: CheckpointNumber,
    directory: SourceUrl,
    /// Nothing when it was there already.
    report: Option<SnapshotReport>,
    read: u64,
    /// Files of the source that it names.
    named: BTreeSet<SourceUrl>,
    left_out: Vec<plan::Missing>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let From::Flink(args) = &args.from;
    let labels = args.labels.labels()?;
    let rewrites = args.rewrite.iter().map(|text| Rewrite::parse(text)).collect::<Result<Vec<_>>>()?;
    let sources = Sources::new(StoreOptions { rates: context.rates.rates(), ..StoreOptions::default() });
    let directory = SourceUrl::parse(&args.path)?;
    if args.follow {
        let job = args.job.clone().unwrap_or_else(|| Name::encode(directory.name()));
        let session = super::snapshot::session(context, None)?;
        args.room.apply(&session.cache)?;
        let importer = Importer { context, session, sources, rewrites, job, labels, partial: false };
        let keep = args.keep.and_then(|k| usize::try_from(k).ok());
        follow::follow(&importer, &directory, keep)?;
        return Ok(Exit::Done);
    }
    // Before a store is created for what is no checkpoint.
    let found = found::look(&sources, &directory)?;
    let (checkpoints, job_directory) = match found {
        Found::Checkpoint(directory) => (vec![directory], None),
        Found::Job(checkpoints) => {
            let mut complete = Vec::new();
            for (_, url) in checkpoints {
                if found::is_complete(&sources, &url)? {
                    complete.push(url);
                }
            }
            (complete, Some(directory))
        }
    };
    let Some(first) = checkpoints.first() else {
        return Err(Error::new(
            Kind::NotFound,
            format!("{}: it has no completed checkpoint yet (no chk-* with a _metadata)", args.path),
        ));
    };
    // Read one at a time: they may be large. The first one before a store is made for it.
    let mut read = Some(found::read(&sources, first)?);
    let job = args.job.clone().unwrap_or_else(|| default_job(first, job_directory.as_ref()));
    let session = super::snapshot::session(context, None)?;
    args.room.apply(&session.cache)?;
    let importer = Importer { context, session, sources, rewrites, job, labels, partial: args.partial };
    let (mut done, mut broken) = (Vec::new(), Vec::new());
    let mut names = BTreeSet::new();
    for directory in &checkpoints {
        let again = || found::read(&importer.sources, directory);
        let taken = read.take().map_or_else(again, Ok).and_then(|read| {
            names.extend(plan::names_in(&read.metadata));
            importer.checkpoint(&read)
        });
        match taken {
            Ok(one) => {
                report::words(context, &importer.job, &one);
                done.push(one);
            }
            // Of a job's checkpoints one that is broken is no reason to leave the others.
            Err(e) if job_directory.is_some() && matches!(e.kind(), Kind::Damage | Kind::Conflict) => {
                words::tell(false, e.message());
                broken.push(e);
            }
            Err(e) => return Err(e),
        }
    }
    let orphans = match &job_directory {
        Some(job) => {
            let named = done.iter().flat_map(|d| d.named.iter().cloned()).collect();
            let mut orphans = found::orphans(&importer.sources, job, &named)?;
            // One that is named and broken is none.
            orphans.retain(|file| !names.contains(file.url.name()));
            Some(orphans)
        }
        None => None,
    };
    report::end(context, &importer.job, &done, orphans.as_deref())?;
    match broken.first() {
        None => Ok(Exit::Done),
        Some(first) => Err(Error::new(
            first.kind(),
            format!("{} of {} checkpoints were not taken in, as told above", broken.len(), checkpoints.len()),
        )),
    }
}

/// The directory of the job's checkpoints names it; a savepoint's directory itself.
fn default_job(checkpoint: &SourceUrl, job: Option<&SourceUrl>) -> Name {
    let above = checkpoint.name().starts_with("chk-").then(|| checkpoint.parent()).flatten();
    let named = job.cloned().or(above).unwrap_or_else(|| checkpoint.clone());
    Name::encode(if named.name().is_empty() { "flink" } else { named.name() })
}

/// Whether the user owns it: Flink says so in what follows the `_metadata`'s body.
fn kind(read: &Read) -> CheckpointKind {
    let owned = read.metadata.properties.windows(SAVEPOINT.len()).any(|w| w == SAVEPOINT);
    if owned { CheckpointKind::Savepoint } else { CheckpointKind::Checkpoint }
}

const SAVEPOINT: &[u8] = b"SavepointType";

impl Importer<'_> {
    fn checkpoint(&self, read: &Read) -> Result<Done> {
        let resolver = Resolver::new(&self.sources, read.directory.clone(), &self.rewrites);
        let mut plan = plan::plan(&read.metadata, &resolver)?;
        let named = named(&plan);
        let digest = read.digest.to_hex();
        let before = self.sources.bytes_read.get();
        let mut done = Done {
            number: read.number,
            directory: read.directory.clone(),
            report: None,
            read: 0,
            named,
            left_out: Vec::new(),
        };
        match imported(&self.session, &self.job, read.number)? {
            Imported::From(there) if there == digest => return Ok(done),
            Imported::InPart if self.partial => return Ok(done),
            Imported::No => {}
            Imported::GivenUp => return Err(self.taken(read, "was given up")),
            Imported::Expired => return Err(self.taken(read, "has expired")),
            Imported::InPart => return Err(self.taken(read, "was imported in part")),
            Imported::From(_) | Imported::Other => {
                return Err(self.taken(read, &format!("is another checkpoint than {}", read.directory)));
            }
        }
        if !plan.missing.is_empty() && !self.partial {
            return Err(report::missing(read, &plan.missing));
        }
        done.left_out = plan.leave_out_what_is_broken();
        let operators =
            plan.operators.iter().map(|o| ExpectedOperator { operator: o.name.clone(), parallelism: o.parallelism });
        let mut operators: Vec<_> = operators.collect();
        operators.sort_by(|a, b| a.operator.cmp(&b.operator));
        let (job, labels) = (self.job.clone(), self.labels.clone());
        let request = ImportRequest { job, number: read.number, kind: kind(read), operators, labels };
        let bar = words::Bar::new(self.context.quiet);
        let tasks = tasks::Tasks { importer: self, read, plan: &plan, left_out: done.left_out.len() };
        let report = import(
            (&self.session, &self.sources),
            &request,
            &mut |operator, subtask| tasks.task(operator, subtask),
            |stored| tasks.last(stored),
            &bar,
        );
        bar.finish();
        let report = report.inspect_err(|_| {
            let (job, number) = (&self.job, read.number);
            log::warn!(
                "{job}/{number} is not complete: once what is wrong is mended, the same import again goes on with it; \
                 `ckptfs abort --job {job} --checkpoint {number}` gives it up"
            );
        })?;
        done.report = Some(report);
        done.read = self.sources.bytes_read.get() - before + read.length;
        Ok(done)
    }
}

impl Importer<'_> {
    fn taken(&self, read: &Read, why: &str) -> Error {
        let (job, number) = (&self.job, read.number);
        Error::new(
            Kind::Conflict,
            format!("{job}/{number} {why}, and no number is used twice: import it as another --job"),
        )
    }
}

fn named(plan: &Plan) -> BTreeSet<SourceUrl> {
    let files = plan.operators.iter().flat_map(|o| o.tasks.values()).flat_map(|t| t.files.values());
    let there = files.chain(plan.own.values()).filter_map(|piece| match piece {
        Piece::There { file, .. } => Some(file.url.clone()),
        Piece::Here(_) => None,
    });
    there.collect()
}
