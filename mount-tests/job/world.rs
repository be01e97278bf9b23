//! A host with a store in memory, on which a job is started, killed, rescaled and restored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ckptfs::cache::Session;
use ckptfs::engine::coordinator::{
    ClaimMode, Control, Coordinator, CoordinatorSettings, Input, Reign, ReignPlan, RestoreFrom, RunEnd, control, run,
};
use ckptfs::engine::task::{
    ChainedOperator, Deployment, Link, LocalStateStore, Make, Record, Surroundings, Vertex, expected,
};
use ckptfs::error::Result;
use ckptfs::lifecycle::Checkpoint;
use ckptfs::restore::job::{
    JobOperator, LocalCopy, RestoreOptions, check_job, restore_keyed, restore_operator_state, restore_raw_operator,
};
use ckptfs::state::DatabaseOptions;
use ckptfs::state::keyed::{KeyedBackend, KeyedConfig};
use ckptfs::state::operator::OperatorStateBackend;
use ckptfs::state::serializer::{IntSerializer, KeySerializer, LongSerializer, SerdeSerializer, Tuple2};
use ckptfs::store::memory::Memory;
use ckptfs::store::{Store, StoreOptions};
use ckptfs::types::{CheckpointNumber, KeyGroupRange, Name, key_group_of};

use super::operators::{Count, Fired, Pass, Sink, Source, States, Weather, numbers};
use super::oracle::{OfKey, PARTITIONS};

/// Key groups of the job.
pub const MAX_PARALLELISM: u32 = 16;

/// The job's name.
pub fn job() -> Name {
    Name::encode("job")
}

/// How many subtasks of each vertex.
#[derive(Debug, Clone, Copy)]
pub struct Parallelism {
    pub source: u32,
    pub count: u32,
    pub sink: u32,
}

/// The host, and what it has seen.
pub struct World {
    pub seed: u64,
    pub length: i64,
    pub dir: tempfile::TempDir,
    pub memory: Arc<Memory>,
    pub session: Session,
    pub weather: Arc<Weather>,
    pub twice: Arc<Mutex<Vec<String>>>,
    pub completed: Arc<Mutex<Vec<CheckpointNumber>>>,
    next_directory: AtomicU64,
}

/// What a checkpoint has.
pub struct Found {
    pub keys: BTreeMap<i64, OfKey>,
    pub fired: Fired,
    pub offsets: BTreeMap<u32, i64>,
    pub passed: i64,
}

/// A job that runs.
pub struct Life {
    pub control: Control,
    pub deployment: Deployment,
    pub coordinator: JoinHandle<RunEnd>,
    pub from: Option<CheckpointNumber>,
}

/// In memory where there is such a place: what is tried here is what happens when, not a disk.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn store_in_memory(memory: &Arc<Memory>) -> Store {
    Store::from_backend(Arc::clone(memory) as _, "memory://", StoreOptions { attempts: 1, ..StoreOptions::default() })
}

impl World {
    pub fn new(seed: u64, length: i64) -> Self {
        let dir = scratch();
        let memory = Arc::new(Memory::new());
        let session = Session::over(store_in_memory(&memory), &dir.path().join("cache"), true).unwrap();
        Self {
            seed,
            length,
            dir,
            memory,
            session,
            weather: Arc::default(),
            twice: Arc::default(),
            completed: Arc::default(),
            next_directory: AtomicU64::new(0),
        }
    }

    fn fresh(&self, what: &str) -> PathBuf {
        self.dir.path().join(format!("{what}-{}", self.next_directory.fetch_add(1, Ordering::Relaxed)))
    }

    fn local_root(&self) -> PathBuf {
        self.dir.path().join("local")
    }

    /// Local copies of the keyed operator in this checkpoint.
    fn local_copies(&self, checkpoint: &Checkpoint) -> Vec<LocalCopy> {
        let operator = Name::encode("count");
        let copies = checkpoint.manifest.subtasks.iter().filter(|s| s.operator == operator).filter_map(|s| {
            let local = LocalStateStore::new(&self.local_root().join("count"), &job(), s.subtask);
            let directory = local.retrieve(checkpoint.number, checkpoint.uid, &operator)?;
            Some(LocalCopy { operator: operator.clone(), subtask: s.subtask, directory })
        });
        copies.collect()
    }

    fn options(&self, checkpoint: &Checkpoint, local: bool) -> RestoreOptions {
        RestoreOptions {
            job: Some(job()),
            local: if local { self.local_copies(checkpoint) } else { Vec::new() },
            database: database(),
            ..RestoreOptions::new(MAX_PARALLELISM)
        }
    }

    /// The keyed state of one subtask, as the checkpoint has it or empty.
    pub fn keyed(&self, from: Option<&Checkpoint>, (index, of): (u32, u32), local: bool) -> Result<States> {
        let config = KeyedConfig {
            serializer: LongSerializer,
            range: KeyGroupRange::of_subtask(MAX_PARALLELISM, of, index).unwrap(),
            max_parallelism: MAX_PARALLELISM,
            options: database(),
            clock: Arc::new(|| 0),
        };
        let directory = self.fresh("db");
        if let Some(checkpoint) = from {
            let options = self.options(checkpoint, local);
            let operator = Name::encode("count");
            let restored = restore_keyed(&self.session, checkpoint, &operator, index, of, &options, &directory)?;
            if let Some(restored) = restored {
                return States::of(KeyedBackend::open(&restored.directory, &restored.descriptor, config)?);
            }
        }
        States::of(KeyedBackend::create(&directory, config)?)
    }

    fn operator_state(&self, from: Option<&Checkpoint>, name: &str, at: (u32, u32)) -> Result<OperatorStateBackend> {
        let Some(checkpoint) = from else { return Ok(OperatorStateBackend::new()) };
        let parts = restore_operator_state(&self.session, checkpoint, &Name::encode(name), at.0, at.1)?;
        Ok(OperatorStateBackend::restore(parts)?)
    }

    fn source(&self, from: Option<&Checkpoint>, index: u32, of: u32) -> Result<Source> {
        let state = self.operator_state(from, "source", (index, of))?;
        let offsets = state.list("offsets", Tuple2(IntSerializer, LongSerializer))?;
        let at: BTreeMap<u32, i64> = match from {
            Some(_) => offsets.get()?.into_iter().map(|(p, at)| (p.cast_unsigned(), at)).collect(),
            None => (0..PARTITIONS).filter(|p| p % of == index).map(|p| (p, 0)).collect(),
        };
        let (seed, length, weather) = (self.seed, self.length, Arc::clone(&self.weather));
        Ok(Source { seed, length, state, offsets, at, next: 0, weather, done: false })
    }

    fn pass(&self, from: Option<&Checkpoint>, index: u32, of: u32) -> Result<Pass> {
        let mut passed = 0;
        if let Some(checkpoint) = from {
            for part in restore_raw_operator(&self.session, checkpoint, &Name::encode("pass"), index, of)? {
                passed += i64::from_be_bytes(part.bytes.try_into().unwrap());
            }
        }
        let state = self.operator_state(from, "pass", (index, of))?;
        let rules = state.broadcast("rules", LongSerializer, LongSerializer)?;
        for rule in 0..5 {
            match from {
                Some(_) => assert_eq!(rules.get(&rule)?, Some(rule * rule), "everyone has every rule"),
                None => rules.put(&rule, &(rule * rule))?,
            }
        }
        Ok(Pass { passed, state, rules })
    }

    fn sink(&self, from: Option<&Checkpoint>, index: u32, of: u32) -> Result<Sink> {
        let state = self.operator_state(from, "sink", (index, of))?;
        let rows = state.union("rows", SerdeSerializer::<(i64, i64, i64)>::new("row", 1))?;
        let mine = |key: i64| sink_of(key, of as usize) == index as usize;
        let fired: Fired = rows.get()?.into_iter().filter(|(k, ..)| mine(*k)).map(|(k, w, n)| ((k, w), n)).collect();
        let (twice, completed) = (Arc::clone(&self.twice), Arc::clone(&self.completed));
        Ok(Sink { state, rows, fired, twice, completed })
    }

    /// Takes the job over, and starts it from its newest checkpoint.
    pub fn start(self: &Arc<Self>, p: Parallelism, settings: CoordinatorSettings, local: bool) -> Result<Life> {
        let names: [(&str, u32); 4] = [("source", p.source), ("pass", p.source), ("count", p.count), ("sink", p.sink)];
        let of = |name: &str, parallelism: u32| JobOperator {
            name: Name::encode(name),
            max_parallelism: MAX_PARALLELISM,
            parallelism,
            stateful: true,
        };
        let operators: Vec<JobOperator> = names.iter().map(|(name, n)| of(name, *n)).collect();
        let empty = |names: &[&str], parallelism| Vertex {
            operators: names.iter().map(|n| (*n).to_owned()).collect(),
            parallelism,
            make: Box::new(|_| Ok(Vec::new())),
        };
        let mut vertices =
            vec![empty(&["source", "pass"], p.source), empty(&["count"], p.count), empty(&["sink"], p.sink)];
        let plan = ReignPlan {
            job: job(),
            expected: expected(&vertices),
            restore: RestoreFrom::Latest,
            claim: ClaimMode::Claim,
            pinned: Vec::new(),
        };
        let reign = Reign::begin(&self.session, plan)?;
        let from = reign.restored().cloned();
        if let Some(checkpoint) = &from {
            check_job(&self.session, checkpoint, &operators, &BTreeSet::new())?;
        }
        self.weather.exhausted.store(0, Ordering::SeqCst);
        let makes: [Make; 3] = [
            self.maker(&from, move |world, from, i| {
                let source = ChainedOperator::new("source", Box::new(world.source(from, i, p.source)?));
                Ok(vec![source, ChainedOperator::new("pass", Box::new(world.pass(from, i, p.source)?))])
            }),
            self.maker(&from, move |world, from, i| {
                let states = world.keyed(from, (i, p.count), local)?;
                let weather = Arc::clone(&world.weather);
                Ok(vec![ChainedOperator::new("count", Box::new(Count { states, weather }))])
            }),
            self.maker(&from, move |world, from, i| {
                Ok(vec![ChainedOperator::new("sink", Box::new(world.sink(from, i, p.sink)?))])
            }),
        ];
        for (vertex, make) in vertices.iter_mut().zip(makes) {
            vertex.make = make;
        }
        let links = [
            Link { from: 0, to: 1, partition: Box::new(|_| Box::new(|r: &Record, of| Ok(count_of(numbers(r).0, of)))) },
            Link { from: 1, to: 2, partition: Box::new(|_| Box::new(|r: &Record, of| Ok(sink_of(numbers(r).0, of)))) },
        ];
        let around = Surroundings {
            session: self.session.clone(),
            job: job(),
            scratch: self.dir.path().join("scratch"),
            local: local.then(|| self.local_root()),
        };
        let (deployment, gateway) = Deployment::start(&around, vertices, &links)?;
        let mut coordinator = Coordinator::new(settings, reign.tasks());
        let (control, commands) = control();
        let from = from.map(|c| c.number);
        let coordinator = std::thread::spawn(move || {
            let begun = std::time::Instant::now();
            let clock = || begun.elapsed().as_millis() as u64;
            run(&reign, &mut coordinator, &gateway, &clock, commands, &mut |_: &Input| {})
        });
        Ok(Life { control, deployment, coordinator, from })
    }

    fn maker(
        self: &Arc<Self>,
        from: &Option<Checkpoint>,
        make: impl Fn(&Self, Option<&Checkpoint>, u32) -> Result<Vec<ChainedOperator>> + 'static,
    ) -> Make {
        let (world, from) = (Arc::clone(self), from.clone());
        Box::new(move |index| make(&world, from.as_ref(), index))
    }

    /// All that a checkpoint has, read at some parallelism.
    pub fn read(&self, number: CheckpointNumber, p: Parallelism) -> Result<Found> {
        let checkpoint = self.session.catalog.checkpoint(&job(), number)?;
        let from = Some(&checkpoint);
        let (mut keys, mut fired, mut offsets, mut passed) = (BTreeMap::new(), Fired::new(), BTreeMap::new(), 0);
        for i in 0..p.count {
            let states = self.keyed(from, (i, p.count), false)?;
            for key in states.backend.keys("sum", &ckptfs::state::serializer::VoidNamespace, &())? {
                assert_eq!(count_of(key, p.count as usize), i as usize, "key {key} lies where it belongs");
                assert!(keys.insert(key, states.read(key)?).is_none(), "key {key} lies in one subtask only");
            }
        }
        for i in 0..p.sink {
            fired.extend(self.sink(from, i, p.sink)?.fired);
        }
        for i in 0..p.source {
            for (partition, at) in self.source(from, i, p.source)?.at {
                assert!(offsets.insert(partition, at).is_none(), "partition {partition} is read once");
            }
            passed += self.pass(from, i, p.source)?.passed;
        }
        Ok(Found { keys, fired, offsets, passed })
    }
}

fn database() -> DatabaseOptions {
    // Small tables, so that there are several, and compactions.
    DatabaseOptions { create: true, write_buffer: 64 << 10, table_size: 64 << 10, ..DatabaseOptions::default() }
}

fn count_of(key: i64, of: usize) -> usize {
    let group = key_group_of(LongSerializer.hash(&key), MAX_PARALLELISM);
    KeyGroupRange::subtask_of(MAX_PARALLELISM, of as u32, group).unwrap() as usize
}

fn sink_of(key: i64, of: usize) -> usize {
    usize::try_from(key).unwrap() % of
}
