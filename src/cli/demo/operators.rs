//! The demo's operators: read, split into words, count, and take in what the windows say.
//!
//! The text stands for a stream of [`STREAM_MS`] milliseconds of event time, which is replayed faster than that.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ckptfs::engine::task::{Collector, Produced, Record, SnapshotContext, StreamOperator};
use ckptfs::error::{Error, Kind, Result};
use ckptfs::state::keyed::KeyedState;
use ckptfs::state::operator::{OperatorList, OperatorStateBackend};
use ckptfs::state::serializer::{SerdeSerializer, TimeWindow};
use serde::{Deserialize, Serialize};

use super::records::{Batch, MAX_PARALLELISM, entries, group_of, head};
use super::source::{Position, Source, words};
use super::state::Counts;

/// Event time of the whole text in milliseconds.
pub(crate) const STREAM_MS: i64 = 80_000;

/// Event time of a window: eight of them, so that some fire in every life of the job.
pub(crate) const WINDOW_MS: i64 = 10_000;

/// Wall time in which the whole text is replayed, where the machine is fast enough: time for a dozen checkpoints, a kill and two restores.
const REPLAY: Duration = Duration::from_secs(12);

/// Bytes of text in a record of the source: a share of its part, so that a small text has many records too, and not too much. Words that
/// come again in it are counted before they are sent on.
const PIECES: u64 = 32;
const LEAST_PIECE: u64 = 4 << 10;
const MOST_PIECE: u64 = 512 << 10;

/// Bytes of a record of fired windows.
const FIRED: usize = 32 << 10;

/// How long the failing snapshot takes to fail: the other tasks upload meanwhile, which the next checkpoint then need not.
const SLOW_FAILURE: Duration = Duration::from_millis(300);

/// Where one part of the text is read on: an element of the source's operator state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offset {
    /// Which part.
    pub(crate) part: u32,
    /// The next byte in it.
    pub(crate) at: Position,
}

/// The offsets' serializer.
pub(crate) fn offsets() -> SerdeSerializer<Offset> {
    SerdeSerializer::new("offset", 1)
}

/// How far a process is, for the story. What is counted is told by the state alone.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes that were read, in this life.
    pub(crate) read: AtomicU64,
    /// Source subtasks that have read all.
    pub(crate) drained: AtomicU32,
}

/// A part that is being read.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) index: u32,
    pub(crate) text: Source,
    pub(crate) at: Position,
}

impl Part {
    /// Event time of its next byte.
    fn time(&self) -> i64 {
        let total = u128::from(self.text.bytes());
        let done = u128::from(self.at.done) * u128::from(STREAM_MS.unsigned_abs());
        done.checked_div(total).and_then(|t| i64::try_from(t).ok()).unwrap_or(STREAM_MS).min(STREAM_MS)
    }

    fn ended(&self) -> bool {
        self.at.done >= self.text.bytes()
    }

    /// The next words: whole files and pieces of files, with a line feed between.
    fn read(&mut self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let wanted = (self.text.bytes() / PIECES).clamp(LEAST_PIECE, MOST_PIECE);
        while let Some(left) = wanted.checked_sub(out.len() as u64).filter(|left| *left > 0)
            && let Some((piece, next)) = self.text.piece(self.at, left)?
        {
            self.at = next;
            if out.is_empty() {
                out = piece;
            } else {
                out.push(b'\n');
                out.extend_from_slice(&piece);
            }
        }
        Ok(out)
    }
}

/// Reads its parts of the text, always where the least event time is.
pub(crate) struct Read {
    parts: Vec<Part>,
    state: OperatorStateBackend,
    offsets: OperatorList<SerdeSerializer<Offset>>,
    /// Event time at which nothing more comes in this life of the job.
    until: i64,
    begun: Option<(Instant, i64)>,
    progress: Arc<Progress>,
    drained: bool,
}

impl Read {
    pub(crate) fn new(
        parts: Vec<Part>,
        state: OperatorStateBackend,
        until: i64,
        progress: &Arc<Progress>,
    ) -> Result<Self> {
        let offsets = state.list("offsets", offsets())?;
        Ok(Self { parts, state, offsets, until, begun: None, progress: Arc::clone(progress), drained: false })
    }

    /// Event time that has come by now.
    fn now(&mut self, low: i64) -> i64 {
        let (begun, from) = *self.begun.get_or_insert_with(|| (Instant::now(), low));
        let elapsed = i64::try_from(begun.elapsed().as_millis()).unwrap_or(i64::MAX);
        let all = i64::try_from(REPLAY.as_millis()).unwrap_or(i64::MAX);
        from.saturating_add(elapsed.saturating_mul(STREAM_MS) / all).min(self.until)
    }

    fn low(&self) -> i64 {
        self.parts.iter().filter(|p| !p.ended()).map(Part::time).min().unwrap_or(STREAM_MS)
    }
}

impl StreamOperator for Read {
    fn produce(&mut self, output: &mut dyn Collector) -> Result<Produced> {
        let low = self.low();
        let now = self.now(low);
        let open = self.parts.iter_mut().filter(|p| !p.ended());
        let Some(part) = open.min_by_key(|p| p.time()) else {
            if !self.drained {
                self.drained = true;
                output.watermark(i64::MAX - 1)?;
                self.progress.drained.fetch_add(1, Ordering::SeqCst);
            }
            return Ok(Produced::Nothing);
        };
        if low >= now {
            return Ok(Produced::Nothing);
        }
        let before = part.at.done;
        let value = part.read()?;
        self.progress.read.fetch_add(part.at.done.saturating_sub(before), Ordering::SeqCst);
        output.collect(Record { value, timestamp: low })?;
        output.watermark(self.low().saturating_sub(1))?;
        Ok(Produced::Some)
    }

    fn snapshot_state(&mut self, _: &mut SnapshotContext) -> Result<()> {
        let all: Vec<Offset> = self.parts.iter().map(|p| Offset { part: p.index, at: p.at }).collect();
        Ok(self.offsets.update(&all)?)
    }

    fn operator_state(&mut self) -> Option<&mut OperatorStateBackend> {
        Some(&mut self.state)
    }
}

/// Makes words of text: a record for each key group that has some.
pub(crate) struct Words;

impl StreamOperator for Words {
    fn process(&mut self, record: Record, output: &mut dyn Collector) -> Result<()> {
        let mut counts: HashMap<&[u8], i64> = HashMap::new();
        for word in words(&record.value) {
            *counts.entry(word).or_default() += 1;
        }
        let mut batches: Vec<Batch> = (0..MAX_PARALLELISM).map(|_| Batch::default()).collect();
        let mut key = String::new();
        for (word, count) in counts {
            key.clear();
            key.push_str(std::str::from_utf8(word).map_err(|_| Error::new(Kind::Other, "internal: no ASCII word"))?);
            let group = group_of(&key);
            if let Some(batch) = usize::try_from(group).ok().and_then(|g| batches.get_mut(g)) {
                batch.push(i64::from(group), word, count)?;
            }
        }
        for value in batches.iter_mut().filter_map(Batch::take) {
            output.collect(Record { value, timestamp: record.timestamp })?;
        }
        Ok(())
    }
}

/// Counts words for ever and by window; a window's counts leave when its timer fires.
pub(crate) struct Count {
    counts: Counts,
    word: String,
}

impl Count {
    pub(crate) fn new(counts: Counts) -> Self {
        Self { counts, word: String::new() }
    }
}

impl StreamOperator for Count {
    fn process(&mut self, record: Record, _: &mut dyn Collector) -> Result<()> {
        let start = record.timestamp.div_euclid(WINDOW_MS).saturating_mul(WINDOW_MS);
        let window = TimeWindow { start, end: start.saturating_add(WINDOW_MS) };
        for entry in entries(&record.value) {
            let (word, count) = entry?;
            self.word.clear();
            self.word.push_str(word);
            self.counts.add(&self.word, count, &window)?;
        }
        Ok(())
    }

    fn watermark(&mut self, timestamp: i64, output: &mut dyn Collector) -> Result<()> {
        let mut batch = Batch::default();
        let mut of = None;
        for (window, word, count) in self.counts.fire(timestamp)? {
            if (batch.len() >= FIRED || of != Some(window.start))
                && let (Some(value), Some(start)) = (batch.take(), of)
            {
                output.collect(Record { value, timestamp: start })?;
            }
            of = Some(window.start);
            batch.push(window.start, word.as_bytes(), count)?;
        }
        if let (Some(value), Some(start)) = (batch.take(), of) {
            output.collect(Record { value, timestamp: start })?;
        }
        output.watermark(timestamp)
    }

    fn keyed_state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(self.counts.backend())
    }
}

/// What came of a window, or of some of its words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fired {
    /// Its begin.
    pub(crate) start: i64,
    /// Different words.
    pub(crate) words: i64,
    /// How often they came.
    pub(crate) times: i64,
}

/// The serializer of what the sink keeps.
pub(crate) fn fired() -> SerdeSerializer<Fired> {
    SerdeSerializer::new("fired", 1)
}

/// Adds up what the windows say.
pub(crate) struct Sink {
    state: OperatorStateBackend,
    rows: OperatorList<SerdeSerializer<Fired>>,
    windows: BTreeMap<i64, Fired>,
    /// Snapshots until the one that fails; nothing: none does.
    fails_in: Option<u32>,
}

impl Sink {
    pub(crate) fn new(state: OperatorStateBackend, fails_in: Option<u32>) -> Result<Self> {
        let rows = state.list("windows", fired())?;
        let windows = add_up(rows.get()?);
        Ok(Self { state, rows, windows, fails_in })
    }
}

/// A window's parts are of different words, wherever they were taken in.
pub(crate) fn add_up(rows: Vec<Fired>) -> BTreeMap<i64, Fired> {
    let mut windows = BTreeMap::<i64, Fired>::new();
    for row in rows {
        let of = windows.entry(row.start).or_insert_with(|| Fired { start: row.start, ..Fired::default() });
        of.words = of.words.saturating_add(row.words);
        of.times = of.times.saturating_add(row.times);
    }
    windows
}

impl StreamOperator for Sink {
    fn process(&mut self, record: Record, _: &mut dyn Collector) -> Result<()> {
        let start = head(&record.value)?;
        let window = self.windows.entry(start).or_insert_with(|| Fired { start, ..Fired::default() });
        for entry in entries(&record.value) {
            let (_, count) = entry?;
            window.words = window.words.saturating_add(1);
            window.times = window.times.saturating_add(count);
        }
        Ok(())
    }

    fn snapshot_state(&mut self, _: &mut SnapshotContext) -> Result<()> {
        let rows: Vec<Fired> = self.windows.values().cloned().collect();
        self.rows.update(&rows)?;
        let left = self.fails_in;
        self.fails_in = left.and_then(|n| n.checked_sub(1));
        if left == Some(0) {
            std::thread::sleep(SLOW_FAILURE);
            return Err(Error::new(Kind::Resources, "no space left on the sink's device (the demo makes this up)"));
        }
        Ok(())
    }

    fn operator_state(&mut self) -> Option<&mut OperatorStateBackend> {
        Some(&mut self.state)
    }
}
