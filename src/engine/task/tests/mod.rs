//! A subtask against a store in memory: what it does, in which order, and what is left when something fails.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::chain::{Arrival, Barrier, Downstream, Subtask, Taken};
use super::environment::Environment;
use super::local_state::LocalStateStore;
use super::operator::{ChainedOperator, SnapshotContext, StreamOperator};
use crate::cache::Session;
use crate::engine::coordinator::{AckReport, Notice, Reporter, TriggerKind};
use crate::engine::snapshot;
use crate::error::{Error, Kind, Result};
use crate::format::{CheckpointKind, ExpectedOperator, Labels, TaskManifest};
use crate::state::DatabaseOptions;
use crate::state::keyed::{Declaration, KeyedBackend, KeyedConfig, KeyedState, ValueState};
use crate::state::operator::OperatorStateBackend;
use crate::state::serializer::{BytesSerializer, LongSerializer, StringSerializer, VoidNamespace};
use crate::store::memory::Memory;
use crate::store::{Store, StoreOptions};
use crate::types::{CheckpointNumber, Key, KeyGroupRange, Name};

mod chain;
mod incremental;
mod job;
mod luck;

/// What happened, in order.
type Log = Arc<Mutex<Vec<String>>>;

fn log(log: &Log, what: impl Into<String>) {
    log.lock().unwrap().push(what.into());
}

fn seen(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.lock().unwrap())
}

/// Tells the log instead of a coordinator.
struct Told {
    log: Log,
    fails: AtomicBool,
    reports: Mutex<Vec<AckReport>>,
}

impl Told {
    fn may(&self) -> Result<()> {
        let fails = self.fails.load(Ordering::SeqCst);
        if fails { Err(Error::new(Kind::Unavailable, "the coordinator is away")) } else { Ok(()) }
    }
}

impl Reporter for Told {
    fn acked(&self, number: CheckpointNumber, operator: &Name, subtask: u32, report: &AckReport) -> Result<()> {
        self.may()?;
        self.reports.lock().unwrap().push(*report);
        log(&self.log, format!("acked {number} {operator}/{subtask}"));
        Ok(())
    }

    fn declined(&self, number: CheckpointNumber, operator: &Name, _: u32, reason: &str) -> Result<()> {
        self.may()?;
        log(&self.log, format!("declined {number} {operator}: {reason}"));
        Ok(())
    }

    fn failed(&self, operator: &Name, _: u32, reason: &str) -> Result<()> {
        log(&self.log, format!("failed {operator}: {reason}"));
        Ok(())
    }

    fn finished(&self, operator: &Name, _: u32) -> Result<()> {
        log(&self.log, format!("finished {operator}"));
        Ok(())
    }
}

/// Tells the log instead of tasks downstream.
struct Below(Log);

impl Downstream for Below {
    fn barrier(&mut self, barrier: &Barrier) -> Result<()> {
        log(&self.0, format!("barrier {}", barrier.number));
        Ok(())
    }

    fn cancelled(&mut self, number: CheckpointNumber) -> Result<()> {
        log(&self.0, format!("cancelled {number}"));
        Ok(())
    }
}

type Hook = Box<dyn FnMut(&mut SnapshotContext) -> Result<()> + Send>;

/// An operator that says what it is asked.
struct Spoken {
    name: String,
    log: Log,
    hook: Option<Hook>,
    keyed: Option<KeyedBackend<LongSerializer>>,
    state: Option<OperatorStateBackend>,
    closed: bool,
    notify_fails: bool,
}

impl Spoken {
    fn new(name: &str, log: &Log) -> Self {
        let (name, log) = (name.to_owned(), Arc::clone(log));
        Self { name, log, hook: None, keyed: None, state: None, closed: false, notify_fails: false }
    }

    fn hook(mut self, hook: impl FnMut(&mut SnapshotContext) -> Result<()> + Send + 'static) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    fn chained(self) -> ChainedOperator {
        ChainedOperator::new(&self.name.clone(), Box::new(self))
    }

    fn told(&self, what: &str, n: CheckpointNumber) -> Result<()> {
        log(&self.log, format!("{}: {what} {n}", self.name));
        if self.notify_fails { Err(Error::new(Kind::Other, format!("{} will not hear it", self.name))) } else { Ok(()) }
    }
}

impl StreamOperator for Spoken {
    fn prepare_snapshot_pre_barrier(&mut self, number: CheckpointNumber) -> Result<()> {
        log(&self.log, format!("{}: before {number}", self.name));
        Ok(())
    }

    fn snapshot_state(&mut self, context: &mut SnapshotContext) -> Result<()> {
        log(&self.log, format!("{}: snapshot {}", self.name, context.number()));
        self.hook.as_mut().map_or(Ok(()), |hook| hook(context))
    }

    fn keyed_state(&mut self) -> Option<&mut dyn KeyedState> {
        self.keyed.as_mut().map(|k| k as &mut dyn KeyedState)
    }

    fn operator_state(&mut self) -> Option<&mut OperatorStateBackend> {
        self.state.as_mut()
    }

    fn notify_complete(&mut self, number: CheckpointNumber) -> Result<()> {
        self.told("complete", number)
    }

    fn notify_aborted(&mut self, number: CheckpointNumber) -> Result<()> {
        self.told("aborted", number)
    }

    fn notify_subsumed(&mut self, number: CheckpointNumber) -> Result<()> {
        self.told("subsumed", number)
    }

    fn is_closed(&self) -> bool {
        self.closed
    }
}

/// A host with a store in memory.
struct Host {
    dir: tempfile::TempDir,
    memory: Arc<Memory>,
    session: Session,
    told: Arc<Told>,
    log: Log,
}

const JOB: &str = "job";

fn job() -> Name {
    Name::encode(JOB)
}

fn n(n: u64) -> CheckpointNumber {
    CheckpointNumber::new(n).unwrap()
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let memory = Arc::new(Memory::new());
        let options = StoreOptions { attempts: 1, ..StoreOptions::default() };
        let store = Store::from_backend(Arc::clone(&memory) as _, "memory://", options);
        let session = Session::over(store, &dir.path().join("cache"), true).unwrap();
        let log = Log::default();
        let (fails, reports) = (AtomicBool::new(false), Mutex::default());
        let told = Arc::new(Told { log: Arc::clone(&log), fails, reports });
        Self { dir, memory, session, told, log }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn subtask(&self, chain: Vec<ChainedOperator>, local: bool) -> Subtask {
        let local = local.then(|| LocalStateStore::new(&self.path("local"), &job(), 0));
        Subtask::new(
            Arc::new(Environment {
                session: self.session.clone(),
                job: job(),
                subtask: 0,
                scratch: self.path("scratch"),
                local,
                reporter: Arc::clone(&self.told) as _,
            }),
            chain,
        )
    }

    /// Begins a checkpoint of these operators.
    fn open(&self, operators: &[&str], kind: TriggerKind) -> Barrier {
        let expected =
            operators.iter().map(|o| ExpectedOperator { operator: Name::encode(o), parallelism: 1 }).collect();
        let of = if kind.is_savepoint() { CheckpointKind::Savepoint } else { CheckpointKind::Checkpoint };
        let opened = snapshot::open(&self.session, &job(), None, expected, of, false, Labels::default()).unwrap();
        Barrier { number: opened.number, uid: opened.intent.place.uid, timestamp_ms: 77, kind }
    }

    fn below(&self) -> Below {
        Below(Arc::clone(&self.log))
    }

    /// A whole round: open, barrier, wait.
    fn round(&self, subtask: &mut Subtask, operators: &[&str], kind: TriggerKind) -> (CheckpointNumber, Taken) {
        let barrier = self.open(operators, kind);
        let taken = subtask.checkpoint(&barrier, Arrival::default(), &mut self.below()).unwrap();
        subtask.wait().unwrap();
        (barrier.number, taken)
    }

    fn complete(&self, number: CheckpointNumber) -> Result<()> {
        snapshot::complete(&self.session, &job(), number).map(drop)
    }

    fn abort(&self, number: CheckpointNumber) {
        snapshot::abort(&self.session, &job(), number, "test").unwrap();
    }

    fn manifest(&self, number: CheckpointNumber, operator: &str) -> TaskManifest {
        let key = Key::task(&job(), number, &Name::encode(operator), 0);
        let bytes = self.session.store.get(&key, 1 << 30).unwrap().unwrap();
        crate::format::decode::<TaskManifest>(&bytes).unwrap().record
    }

    /// A backend that nothing was declared in.
    fn bare(&self, name: &str) -> KeyedBackend<LongSerializer> {
        let config = KeyedConfig {
            serializer: LongSerializer,
            range: KeyGroupRange { first: 0, last: 127 },
            max_parallelism: 128,
            options: DatabaseOptions { create: true, ..DatabaseOptions::default() },
            clock: Arc::new(|| 0),
        };
        KeyedBackend::create(&self.path(name), config).unwrap()
    }

    fn keyed(&self, name: &str) -> (KeyedBackend<LongSerializer>, ValueState<VoidNamespace, BytesSerializer>) {
        let backend = self.bare(name);
        let value = backend.value(Declaration::new("value", BytesSerializer)).unwrap();
        (backend, value)
    }
}

/// Values that do not compress: so many kilobytes.
fn fill(
    backend: &KeyedBackend<LongSerializer>,
    state: &ValueState<VoidNamespace, BytesSerializer>,
    (seed, kilobytes): (u64, u64),
) {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for i in 0..kilobytes {
        let mut bytes = Vec::with_capacity(1024);
        while bytes.len() < 1024 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            bytes.extend(x.to_le_bytes());
        }
        backend.set_current_key(&i64::try_from(seed * 1_000_000 + i).unwrap()).unwrap();
        state.set(&(), &bytes).unwrap();
    }
}

fn entries(path: &Path) -> Vec<String> {
    let Ok(found) = std::fs::read_dir(path) else { return Vec::new() };
    let mut names: Vec<String> = found.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
