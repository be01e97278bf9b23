//! What a checkpoint costs a job that goes on: `scripts/bench.sh engine`.
//!
//! usage: `engine DIR MIB PAIRS`. One keyed operator counts random keys of a database of so many MiB. Its sync phase is compared with
//! RocksDB's own checkpoint of the same database; its speed while an async phase sends 20 MB/s with its speed without.

use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ckptfs::cache::Session;
use ckptfs::engine::coordinator::{AckReport, Reporter, TriggerKind};
use ckptfs::engine::snapshot;
use ckptfs::engine::task::{
    Arrival, Barrier, ChainedOperator, Collector, Downstream, Environment, Record, StreamOperator, Subtask, Taken,
};
use ckptfs::error::{Error, Kind, Result};
use ckptfs::format::{CheckpointKind, ExpectedOperator, Labels};
use ckptfs::metrics::Counter;
use ckptfs::state::DatabaseOptions;
use ckptfs::state::keyed::{Declaration, KeyedBackend, KeyedConfig, KeyedState, ValueState};
use ckptfs::state::serializer::{BytesSerializer, LongSerializer, VoidNamespace};
use ckptfs::store::memory::Memory;
use ckptfs::store::{Backend, BlobSource, Put, RawListed, Sink, Store, StoreOptions};
use ckptfs::types::{CheckpointNumber, Digest, KeyGroupRange, Name};

/// Bytes per second that all uploads together get.
const UPLINK: f64 = 20e6;
/// Bytes of a value.
const VALUE: usize = 256;
/// Records between two checkpoints whose sync phases are compared.
const CHANGES: u64 = 20_000;
/// How long processing is watched; less when an async phase ends sooner.
const WINDOW: Duration = Duration::from_secs(4);

/// A store in memory at the end of a narrow link.
#[derive(Debug)]
struct Narrow {
    memory: Memory,
    /// When the link is free.
    free: Mutex<Instant>,
    limited: AtomicBool,
}

impl Narrow {
    fn wait(&self, bytes: u64) {
        if !self.limited.load(Ordering::Relaxed) {
            return;
        }
        let until = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            *free = (*free).max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / UPLINK);
            *free
        };
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

impl Backend for Narrow {
    fn get(&self, key: &str, max_len: u64) -> ckptfs::store::Result<Option<Bytes>> {
        self.memory.get(key, max_len)
    }

    fn read(&self, key: &str, range: Range<u64>, size: Option<u64>, sink: Sink<'_>) -> ckptfs::store::Result<()> {
        self.memory.read(key, range, size, sink)
    }

    fn head(&self, key: &str) -> ckptfs::store::Result<Option<u64>> {
        self.memory.head(key)
    }

    fn list(&self, directory: &str, after: Option<&str>, limit: usize) -> ckptfs::store::Result<Vec<RawListed>> {
        self.memory.list(directory, after, limit)
    }

    fn create(&self, key: &str, body: Bytes, durable: bool) -> ckptfs::store::Result<Put> {
        self.memory.create(key, body, durable)
    }

    fn replace(&self, key: &str, body: Bytes) -> ckptfs::store::Result<()> {
        self.memory.replace(key, body)
    }

    fn upload(&self, key: &str, digest: &Digest, source: &BlobSource<'_>, sent: &Counter) -> ckptfs::store::Result<()> {
        self.wait(source.len());
        self.memory.upload(key, digest, source, sent)
    }

    fn delete(&self, keys: &[&str]) -> ckptfs::store::Result<()> {
        self.memory.delete(keys)
    }
}

/// Remembers whether the last checkpoint was acknowledged.
#[derive(Default)]
struct Told {
    acked: AtomicBool,
    failed: Mutex<Option<String>>,
    sent: Mutex<u64>,
}

impl Told {
    fn fail(&self, reason: &str) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
        self.acked.store(true, Ordering::SeqCst);
    }
}

impl Reporter for Told {
    fn acked(&self, _: CheckpointNumber, _: &Name, _: u32, report: &AckReport) -> Result<()> {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = report.new_bytes;
        self.acked.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn declined(&self, _: CheckpointNumber, _: &Name, _: u32, reason: &str) -> Result<()> {
        self.fail(reason);
        Ok(())
    }

    fn failed(&self, _: &Name, _: u32, reason: &str) -> Result<()> {
        self.fail(reason);
        Ok(())
    }

    fn finished(&self, _: &Name, _: u32) -> Result<()> {
        Ok(())
    }
}

/// Nothing is downstream.
struct End;

impl Downstream for End {
    fn barrier(&mut self, _: &Barrier) -> Result<()> {
        Ok(())
    }

    fn cancelled(&mut self, _: CheckpointNumber) -> Result<()> {
        Ok(())
    }
}

impl Collector for End {
    fn collect(&mut self, _: Record) -> Result<()> {
        Ok(())
    }

    fn watermark(&mut self, _: i64) -> Result<()> {
        Ok(())
    }
}

/// Counts in the first eight bytes of a value.
struct Count {
    backend: KeyedBackend<LongSerializer>,
    value: ValueState<VoidNamespace, BytesSerializer>,
    noise: u64,
}

impl Count {
    fn noise(&mut self) -> u64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        self.noise
    }
}

impl StreamOperator for Count {
    fn process(&mut self, record: Record, _: &mut dyn Collector) -> Result<()> {
        let key = i64::from_be_bytes(record.value.try_into().map_err(|_| Error::new(Kind::Invalid, "no key"))?);
        self.backend.set_current_key(&key)?;
        let count = self.value.get(&())?.and_then(|v| v.get(..8)?.try_into().ok()).map_or(0, u64::from_be_bytes);
        let mut value = Vec::with_capacity(VALUE);
        value.extend((count + 1).to_be_bytes());
        while value.len() < VALUE {
            value.extend(self.noise().to_le_bytes());
        }
        Ok(self.value.set(&(), &value)?)
    }

    fn keyed_state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(&mut self.backend)
    }
}

/// What was seen of some time of processing.
struct Seen {
    per_second: f64,
    longest: Duration,
}

struct Bench {
    session: Session,
    job: Name,
    narrow: Arc<Narrow>,
    told: Arc<Told>,
    subtask: Subtask,
    backend: KeyedBackend<LongSerializer>,
    dir: PathBuf,
    keys: u64,
    dice: u64,
}

impl Bench {
    fn new(dir: &Path, mib: u64) -> Result<Self> {
        let (memory, free) = (Memory::new(), Mutex::new(Instant::now()));
        let narrow = Arc::new(Narrow { memory, free, limited: AtomicBool::new(false) });
        let store = Store::from_backend(Arc::clone(&narrow) as _, "memory://", StoreOptions::default());
        let session = Session::over(store, &dir.join("cache"), true)?;
        let config = KeyedConfig {
            serializer: LongSerializer,
            range: KeyGroupRange { first: 0, last: 127 },
            max_parallelism: 128,
            options: DatabaseOptions { create: true, ..DatabaseOptions::default() },
            clock: Arc::new(|| 0),
        };
        let backend = KeyedBackend::create(&dir.join("db"), config)?;
        let value = backend.value(Declaration::new("count", BytesSerializer))?;
        let count = Count { backend: backend.clone(), value, noise: 0x9e37_79b9_7f4a_7c15 };
        let told = Arc::new(Told::default());
        let job = Name::encode("bench");
        let environment = Environment {
            session: session.clone(),
            job: job.clone(),
            subtask: 0,
            scratch: dir.join("scratch"),
            local: None,
            reporter: Arc::clone(&told) as _,
        };
        let subtask = Subtask::new(Arc::new(environment), vec![ChainedOperator::new("count", Box::new(count))]);
        let keys = (mib << 20) / (VALUE as u64 + 32);
        let mut bench = Self {
            session,
            job,
            narrow,
            told,
            subtask,
            backend,
            dir: dir.to_owned(),
            keys,
            dice: 0x2545_f491_4f6c_dd1d,
        };
        for key in 0..keys {
            bench.process(key)?;
        }
        Ok(bench)
    }

    fn process(&mut self, key: u64) -> Result<()> {
        let value = key.to_be_bytes().to_vec();
        self.subtask.process(Record { value, timestamp: 0 }, &mut End)
    }

    fn any(&mut self) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % self.keys
    }

    fn change(&mut self, records: u64) -> Result<()> {
        for _ in 0..records {
            let key = self.any();
            self.process(key)?;
        }
        Ok(())
    }

    /// Takes the sync phase. Says how long it was; the async phase runs.
    fn begin(&mut self) -> Result<(CheckpointNumber, Duration)> {
        let expected = vec![ExpectedOperator { operator: Name::encode("count"), parallelism: 1 }];
        let opened = snapshot::open(
            &self.session,
            &self.job,
            None,
            expected,
            CheckpointKind::Checkpoint,
            false,
            Labels::default(),
        )?;
        let (number, uid) = (opened.number, opened.intent.place.uid);
        self.told.acked.store(false, Ordering::SeqCst);
        let barrier = Barrier { number, uid, timestamp_ms: 0, kind: TriggerKind::Checkpoint };
        let begun = Instant::now();
        let taken = self.subtask.checkpoint(&barrier, Arrival::default(), &mut End)?;
        let sync = begun.elapsed();
        if taken == Taken::Running { Ok((number, sync)) } else { Err(self.failure()) }
    }

    fn failure(&self) -> Error {
        let failed = self.told.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        Error::new(Kind::Other, failed.unwrap_or_else(|| "the checkpoint was not taken".to_owned()))
    }

    fn end(&mut self, number: CheckpointNumber) -> Result<()> {
        self.subtask.wait()?;
        if self.told.failed.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return Err(self.failure());
        }
        snapshot::complete(&self.session, &self.job, number).map(drop)
    }

    /// Processes as fast as it can until the time is over or `over` says so. `before` is done first, and is a pause like any other.
    fn watch(&mut self, over: impl Fn(&Self) -> bool, before: impl FnOnce(&mut Self) -> Result<()>) -> Result<Seen> {
        let mut last = Instant::now();
        let mut longest = Duration::ZERO;
        before(self)?;
        let begun = Instant::now();
        let mut records = 0_u64;
        loop {
            let key = self.any();
            self.process(key)?;
            records += 1;
            let now = Instant::now();
            longest = longest.max(now - last);
            last = now;
            if now - begun >= WINDOW || over(self) {
                return Ok(Seen { per_second: records as f64 / (now - begun).as_secs_f64(), longest });
            }
        }
    }

    /// The sync phase, and RocksDB's checkpoint of the same database after as many changes; in milliseconds.
    fn sync_pair(&mut self, ours_first: bool) -> Result<(f64, f64)> {
        let (mut ours, mut native) = (0.0, 0.0);
        for turn in [ours_first, !ours_first] {
            self.change(CHANGES)?;
            // The write batch is the engine's own: RocksDB is not charged for it.
            if turn {
                let (number, took) = self.begin()?;
                ours = took.as_secs_f64() * 1e3;
                self.end(number)?;
            } else {
                let mut backend = self.backend.clone();
                backend.flush()?;
                let to = self.dir.join("native");
                let begun = Instant::now();
                backend.checkpoint(&to)?;
                native = begun.elapsed().as_secs_f64() * 1e3;
                std::fs::remove_dir_all(&to).map_err(|e| Error::with_source(Kind::Other, "cannot remove it", e))?;
            }
        }
        Ok((ours, native))
    }
}

fn median(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_unstable_by(f64::total_cmp);
    let at = |part: usize| values.get((values.len().saturating_sub(1)) * part / 4).copied().unwrap_or(f64::NAN);
    (at(2), at(1), at(3))
}

fn spread(mut values: Vec<f64>, digits: usize) -> String {
    let (middle, low, high) = median(&mut values);
    format!("{middle:.digits$} [{low:.digits$}..{high:.digits$}]")
}

/// The value that 99 of 100 are not above.
fn p99(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get((sorted.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

fn run(dir: &Path, mib: u64, pairs: usize) -> Result<()> {
    let say = |line: String| drop(writeln!(std::io::stdout(), "{line}"));
    let mut bench = Bench::new(dir, mib)?;
    let (number, _) = bench.begin()?;
    bench.end(number)?;

    let (mut ours, mut native, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let (o, n) = bench.sync_pair(pair % 2 == 0)?;
        ours.push(o);
        native.push(n);
        ratios.push(o / n);
    }
    say(format!("{mib} MiB, {} keys; {pairs} pairs, median [quartiles]", bench.keys));
    say(format!("create_checkpoint      {} ms", spread(native, 1)));
    say(format!("sync phase             {} ms   {} times that", spread(ours, 1), spread(ratios, 2)));

    bench.narrow.limited.store(true, Ordering::Relaxed);
    let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut quiet, mut loud, mut sent) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        for turn in [pair % 2 == 0, pair % 2 == 1] {
            if turn {
                let mut number = None;
                let seen = bench.watch(
                    |b| b.told.acked.load(Ordering::Relaxed),
                    |b| {
                        number = Some(b.begin()?.0);
                        Ok(())
                    },
                )?;
                with.push(seen.per_second);
                loud.push(seen.longest.as_secs_f64() * 1e3);
                if let Some(number) = number {
                    bench.end(number)?;
                }
                sent.push(*bench.told.sent.lock().unwrap_or_else(PoisonError::into_inner) as f64 / 1e6);
            } else {
                let seen = bench.watch(|_| false, |_| Ok(()))?;
                without.push(seen.per_second);
                quiet.push(seen.longest.as_secs_f64() * 1e3);
            }
        }
        ratios.push(with.last().copied().unwrap_or_default() / without.last().copied().unwrap_or(f64::NAN));
    }
    say(format!("\nrecords per second     {} without checkpoints", spread(without, 0)));
    say(format!(
        "                       {} beside an async phase at 20 MB/s, {} of that",
        spread(with, 0),
        spread(ratios, 2)
    ));
    say(format!("sent by a checkpoint   {} MB", spread(sent, 0)));
    say(format!(
        "longest pause of {} s   without: {} ms, p99 {:.1}",
        WINDOW.as_secs(),
        spread(quiet.clone(), 1),
        p99(&quiet)
    ));
    say(format!("                       with a checkpoint: {} ms, p99 {:.1}", spread(loud.clone(), 1), p99(&loud)));
    Ok(())
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers = (arguments.get(1).and_then(|a| a.parse().ok()), arguments.get(2).and_then(|a| a.parse().ok()));
    let (Some(dir), (Some(mib), Some(pairs))) = (arguments.first(), numbers) else {
        let _ = writeln!(std::io::stderr(), "usage: engine DIR MIB PAIRS");
        return std::process::ExitCode::from(2);
    };
    match run(Path::new(dir), mib, pairs) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "{e}");
            std::process::ExitCode::FAILURE
        }
    }
}
