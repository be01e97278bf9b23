//! The demo's job in one worker process: source and words in one chain, the count, the sink. Its coordinator is another process, of which
//! it hears through the store alone.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ckptfs::engine::Session;
use ckptfs::engine::task::{ChainedOperator, Deployment, Link, Make, Record, Surroundings, Vertex};
use ckptfs::error::{Error, Kind, Result};
use ckptfs::format::ExpectedOperator;
use ckptfs::lifecycle::Checkpoint;
use ckptfs::restore::job::{RestoreOptions, RestoredKeyed, restore_keyed, restore_operator_state};
use ckptfs::state::operator::OperatorStateBackend;
use ckptfs::types::{CheckpointNumber, Epoch, KeyGroupRange, Name};
use serde::{Deserialize, Serialize};

use super::operators::{Count, Offset, Part, Progress, Read, Sink, Words, offsets};
use super::records::{MAX_PARALLELISM, count_of, head};
use super::source::{Position, Source};
use super::state::{Counts, database};

/// Operators by name. The first two are one chain.
pub(crate) const SOURCE: &str = "source";
const WORDS: &str = "words";
pub(crate) const COUNT: &str = "count";
pub(crate) const SINK: &str = "sink";

/// Parts of the text, which the source's subtasks share out: as many for two as for three of them.
const PARTS: u32 = 12;

/// Both ends look into the store once in this time.
pub(crate) const PERIOD: Duration = Duration::from_millis(50);

/// What a worker process is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) job: Name,
    /// The reign that it works for.
    pub(crate) epoch: u64,
    pub(crate) parallelism: u32,
    /// The list of files.
    pub(crate) list: PathBuf,
    /// Where its databases go.
    pub(crate) directory: PathBuf,
    /// What it is restored from, over this mount.
    pub(crate) restore: Option<CheckpointNumber>,
    pub(crate) mount: PathBuf,
    /// Event time at which nothing more comes.
    pub(crate) until: i64,
    /// Snapshots of one of the sink's subtasks until the one that fails.
    pub(crate) fails_in: Option<u32>,
    /// Spoil one count first.
    pub(crate) corrupt: bool,
}

/// Who must acknowledge a checkpoint.
pub(crate) fn expected(parallelism: u32) -> Vec<ExpectedOperator> {
    let of = |name: &str| ExpectedOperator { operator: Name::encode(name), parallelism };
    [SOURCE, WORDS, COUNT, SINK].map(of).to_vec()
}

/// The offsets of all parts as a checkpoint has them.
pub(crate) fn offsets_of(session: &Session, checkpoint: &Checkpoint) -> Result<Vec<Offset>> {
    Ok(operator_state(session, Some(checkpoint), SOURCE, (0, 1))?.list("offsets", offsets())?.get()?)
}

/// An operator's state for one subtask of so many; empty, where there is no checkpoint.
pub(crate) fn operator_state(
    session: &Session,
    from: Option<&Checkpoint>,
    name: &str,
    (index, of): (u32, u32),
) -> Result<OperatorStateBackend> {
    let Some(checkpoint) = from else { return Ok(OperatorStateBackend::new()) };
    let parts = restore_operator_state(session, checkpoint, &Name::encode(name), index, of)?;
    Ok(OperatorStateBackend::restore(parts)?)
}

/// What the subtasks are made of.
struct World {
    session: Session,
    setup: Setup,
    from: Option<Checkpoint>,
    parts: Vec<Source>,
    progress: Arc<Progress>,
    restored: Mutex<Vec<RestoredKeyed>>,
}

/// A job that runs.
pub(crate) struct Running {
    pub(crate) deployment: Deployment,
    pub(crate) progress: Arc<Progress>,
    /// Each counting subtask's database, where it was brought here.
    pub(crate) restored: Vec<RestoredKeyed>,
}

/// Restores the job, where there is something to restore, and starts it.
pub(crate) fn start(session: Session, setup: Setup) -> Result<Running> {
    let from = setup.restore.map(|n| session.catalog.checkpoint(&setup.job, n)).transpose()?;
    let (parallelism, epoch) = (setup.parallelism, Epoch(setup.epoch));
    let around = Surroundings {
        session: session.clone(),
        job: setup.job.clone(),
        scratch: setup.directory.join("scratch"),
        local: None,
    };
    let (parts, progress) = (Source::read_list(&setup.list)?.split(PARTS), Arc::<Progress>::default());
    let world = Arc::new(World { session, setup, from, parts, progress, restored: Mutex::default() });
    let vertex = |operators: &[&str], make: fn(&World, u32) -> Result<Vec<ChainedOperator>>| {
        let world = Arc::clone(&world);
        let make: Make = Box::new(move |index| make(&world, index));
        Vertex { operators: operators.iter().map(|o| (*o).to_owned()).collect(), parallelism, make }
    };
    let vertices = vec![
        vertex(&[SOURCE, WORDS], |world, i| {
            let words = ChainedOperator::new(WORDS, Box::new(Words));
            Ok(vec![ChainedOperator::new(SOURCE, Box::new(world.source(i)?)), words])
        }),
        vertex(&[COUNT], |world, i| Ok(vec![ChainedOperator::new(COUNT, Box::new(Count::new(world.counts(i)?)))])),
        vertex(&[SINK], |world, i| Ok(vec![ChainedOperator::new(SINK, Box::new(world.sink(i)?))])),
    ];
    let links = [
        Link { from: 0, to: 1, partition: Box::new(|_| Box::new(|r: &Record, of| count_of(&r.value, of))) },
        Link { from: 1, to: 2, partition: Box::new(|_| Box::new(|r: &Record, of| sink_of(&r.value, of))) },
    ];
    let deployment = Deployment::start_stored(&around, vertices, &links, (epoch, PERIOD))?;
    let restored = std::mem::take(&mut *world.restored.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Running { deployment, progress: Arc::clone(&world.progress), restored })
}

/// The sink's subtask that takes a window in.
fn sink_of(value: &[u8], of: usize) -> Result<usize> {
    let window = usize::try_from(head(value)?.div_euclid(super::operators::WINDOW_MS)).unwrap_or_default();
    window.checked_rem(of).ok_or_else(|| Error::new(Kind::Other, "internal: there is no sink"))
}

impl World {
    fn state(&self, name: &str, index: u32) -> Result<OperatorStateBackend> {
        operator_state(&self.session, self.from.as_ref(), name, (index, self.setup.parallelism))
    }

    /// With the parts that the checkpoint gives it; in the beginning every n-th is its own.
    fn source(&self, index: u32) -> Result<Read> {
        let state = self.state(SOURCE, index)?;
        let mine = match &self.from {
            Some(_) => state.list("offsets", offsets())?.get()?,
            None => {
                let own = (0..PARTS).filter(|part| part % self.setup.parallelism == index);
                own.map(|part| Offset { part, at: Position::default() }).collect()
            }
        };
        let part = |offset: Offset| {
            let text = usize::try_from(offset.part).ok().and_then(|i| self.parts.get(i)).cloned();
            let no_such = || Error::new(Kind::Invalid, format!("the text has no part {}", offset.part));
            Ok(Part { index: offset.part, text: text.ok_or_else(no_such)?, at: offset.at })
        };
        let parts = mine.into_iter().map(part).collect::<Result<_>>()?;
        Read::new(parts, state, self.setup.until, &self.progress)
    }

    fn counts(&self, index: u32) -> Result<Counts> {
        let Setup { parallelism, directory, .. } = &self.setup;
        let directory = directory.join(format!("{COUNT}-{index}"));
        let counts = self.restored(index, &directory)?;
        let counts = match counts {
            Some(counts) => counts,
            None => {
                let range = KeyGroupRange::of_subtask(MAX_PARALLELISM, *parallelism, index);
                let range = range.map_err(|e| Error::with_source(Kind::Invalid, e.to_string(), e))?;
                Counts::create(&directory, range)?
            }
        };
        if self.setup.corrupt && index == 0 {
            counts.corrupt()?;
        }
        Ok(counts)
    }

    fn restored(&self, index: u32, directory: &std::path::Path) -> Result<Option<Counts>> {
        let Some(checkpoint) = &self.from else { return Ok(None) };
        let Setup { job, mount, parallelism, .. } = &self.setup;
        let options = RestoreOptions {
            job: Some(job.clone()),
            mount: Some(mount.clone()),
            database: database(),
            ..RestoreOptions::new(MAX_PARALLELISM)
        };
        let operator = Name::encode(COUNT);
        let restored = restore_keyed(&self.session, checkpoint, &operator, index, *parallelism, &options, directory)?;
        let Some(restored) = restored else { return Ok(None) };
        let counts = Counts::open(&restored.directory, &restored.descriptor)?;
        self.restored.lock().unwrap_or_else(PoisonError::into_inner).push(restored);
        Ok(Some(counts))
    }

    fn sink(&self, index: u32) -> Result<Sink> {
        Sink::new(self.state(SINK, index)?, self.setup.fails_in.filter(|_| index == 0))
    }
}
