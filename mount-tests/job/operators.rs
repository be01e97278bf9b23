//! The job: sources with offsets, a map with raw and broadcast state, a keyed operator with every kind of state and timers, a sink.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ckptfs::engine::task::{Collector, Produced, Record, SnapshotContext, StreamOperator};
use ckptfs::error::{Error, Kind, Result};
use ckptfs::state::keyed::{
    Aggregate, AggregatingState, Declaration, KeyedBackend, KeyedState, ListState, MapState, ReducingState, TimeDomain,
    Timers, ValueState,
};
use ckptfs::state::operator::{BroadcastState, OperatorList, OperatorStateBackend};
use ckptfs::state::serializer::{
    IntSerializer, LongSerializer, SerdeSerializer, TimeWindow, TimeWindowSerializer, Tuple2, VoidNamespace,
};
use ckptfs::types::CheckpointNumber;

use super::oracle::{Event, OfKey, WINDOW, event};

/// What the world does to operators.
#[derive(Default)]
pub struct Weather {
    /// So many of the next hooks fail.
    pub hooks_fail: AtomicU64,
    /// Sources that have read all.
    pub exhausted: AtomicU64,
}

impl Weather {
    fn hook(&self) -> Result<()> {
        let taken = self.hooks_fail.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if taken.is_ok() { Err(Error::new(Kind::Other, "bad luck in a hook")) } else { Ok(()) }
    }
}

pub fn record(event: Event) -> Record {
    let value = [event.key.to_be_bytes(), event.amount.to_be_bytes()].concat();
    Record { value, timestamp: event.timestamp }
}

pub fn numbers(record: &Record) -> (i64, i64) {
    let at = |i: usize| i64::from_be_bytes(record.value[i..i + 8].try_into().unwrap());
    (at(0), at(8))
}

type Offsets = OperatorList<Tuple2<IntSerializer, LongSerializer>>;

/// Reads its partitions, one event of each in turn.
pub struct Source {
    pub seed: u64,
    pub length: i64,
    pub state: OperatorStateBackend,
    pub offsets: Offsets,
    pub at: BTreeMap<u32, i64>,
    pub next: usize,
    pub weather: Arc<Weather>,
    pub done: bool,
}

impl StreamOperator for Source {
    fn produce(&mut self, output: &mut dyn Collector) -> Result<Produced> {
        let open: Vec<u32> = self.at.iter().filter(|(_, at)| **at < self.length).map(|(p, _)| *p).collect();
        let Some(partition) = open.get(self.next % open.len().max(1)).copied() else {
            if !self.done {
                self.done = true;
                output.watermark(i64::MAX - 1)?;
                self.weather.exhausted.fetch_add(1, Ordering::SeqCst);
            }
            return Ok(Produced::Nothing);
        };
        self.next += 1;
        let at = self.at.get_mut(&partition).unwrap();
        output.collect(record(event(self.seed, partition, *at)))?;
        *at += 1;
        if self.next.is_multiple_of(16) {
            // Timestamps lie at most 15 ms after three times the offset.
            let low = self.at.values().min().copied().unwrap_or_default();
            output.watermark(low * 3 - 1)?;
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(Produced::Some)
    }

    fn snapshot_state(&mut self, _: &mut SnapshotContext) -> Result<()> {
        let all: Vec<(i32, i64)> = self.at.iter().map(|(p, at)| (*p as i32, *at)).collect();
        self.offsets.update(&all)?;
        self.weather.hook()
    }

    fn operator_state(&mut self) -> Option<&mut OperatorStateBackend> {
        Some(&mut self.state)
    }
}

/// Counts what it passes on, in raw operator state; has a broadcast state that everyone must have the same of.
pub struct Pass {
    pub passed: i64,
    pub state: OperatorStateBackend,
    #[allow(dead_code)]
    pub rules: BroadcastState<LongSerializer, LongSerializer>,
}

impl StreamOperator for Pass {
    fn process(&mut self, record: Record, output: &mut dyn Collector) -> Result<()> {
        self.passed += 1;
        output.collect(record)
    }

    fn snapshot_state(&mut self, context: &mut SnapshotContext) -> Result<()> {
        context.start_partition()?.extend(self.passed.to_be_bytes());
        Ok(())
    }

    fn operator_state(&mut self) -> Option<&mut OperatorStateBackend> {
        Some(&mut self.state)
    }
}

/// Count and total.
#[derive(Clone)]
pub struct Mean;

impl Aggregate for Mean {
    type Input = i64;
    type Accumulator = (i64, i64);
    type Output = (i64, i64);

    fn create(&self) -> (i64, i64) {
        (0, 0)
    }

    fn add(&self, accumulator: &mut (i64, i64), input: &i64) {
        *accumulator = (accumulator.0 + 1, accumulator.1 + input);
    }

    fn result(&self, accumulator: &(i64, i64)) -> (i64, i64) {
        *accumulator
    }
}

type V = VoidNamespace;

/// Every kind of keyed state, and a window with its timer.
#[derive(Clone)]
pub struct States {
    pub backend: KeyedBackend<LongSerializer>,
    pub sum: ValueState<V, LongSerializer>,
    pub amounts: ListState<V, LongSerializer>,
    pub by_remainder: MapState<V, IntSerializer, LongSerializer>,
    pub largest: ReducingState<V, LongSerializer>,
    pub mean: AggregatingState<V, SerdeSerializer<(i64, i64)>, Mean>,
    pub window: ValueState<TimeWindowSerializer, LongSerializer>,
    pub timers: Timers<LongSerializer, TimeWindowSerializer>,
}

impl States {
    pub fn of(backend: KeyedBackend<LongSerializer>) -> Result<Self> {
        Ok(Self {
            sum: backend.value(Declaration::new("sum", LongSerializer))?,
            amounts: backend.list(Declaration::new("amounts", LongSerializer))?,
            by_remainder: backend.map(Declaration::new("by remainder", LongSerializer), IntSerializer)?,
            largest: backend.reducing(Declaration::new("largest", LongSerializer), |a: &i64, b: &i64| *a.max(b))?,
            mean: backend.aggregating(Declaration::new("mean", SerdeSerializer::new("mean", 1)), Mean)?,
            window: backend.value(Declaration::with_namespace("window", TimeWindowSerializer, LongSerializer))?,
            timers: backend.timers(TimeDomain::Event, "window", TimeWindowSerializer)?,
            backend,
        })
    }

    fn add(&self, key: i64, amount: i64, timestamp: i64) -> Result<()> {
        self.backend.set_current_key(&key)?;
        let sum = self.sum.get(&())?.unwrap_or_default();
        self.sum.set(&(), &(sum + amount))?;
        self.amounts.add(&(), &amount)?;
        let remainder = amount.rem_euclid(4) as i32;
        let count = self.by_remainder.get(&(), &remainder)?.unwrap_or_default();
        self.by_remainder.put(&(), &remainder, &(count + 1))?;
        self.largest.add(&(), &amount)?;
        self.mean.add(&(), &amount)?;
        let start = timestamp.div_euclid(WINDOW) * WINDOW;
        let window = TimeWindow { start, end: start + WINDOW };
        let count = self.window.get(&window)?.unwrap_or_default();
        self.window.set(&window, &(count + 1))?;
        self.timers.register(&window, window.end - 1)?;
        Ok(())
    }

    /// What a key has, for the comparison.
    pub fn read(&self, key: i64) -> Result<OfKey> {
        self.backend.set_current_key(&key)?;
        let mut amounts = self.amounts.get(&())?;
        amounts.sort_unstable();
        let by_remainder = self.by_remainder.entries(&())?.into_iter().map(|(k, v)| (i64::from(k), v)).collect();
        Ok(OfKey {
            sum: self.sum.get(&())?.unwrap_or_default(),
            amounts,
            by_remainder,
            largest: self.largest.get(&())?,
            mean: self.mean.get(&())?.unwrap_or_default(),
        })
    }
}

pub struct Count {
    pub states: States,
    pub weather: Arc<Weather>,
}

impl StreamOperator for Count {
    fn process(&mut self, record: Record, _: &mut dyn Collector) -> Result<()> {
        let (key, amount) = numbers(&record);
        self.states.add(key, amount, record.timestamp)
    }

    fn watermark(&mut self, timestamp: i64, output: &mut dyn Collector) -> Result<()> {
        for due in self.states.timers.pop_until(timestamp)? {
            self.states.backend.set_current_key(&due.key)?;
            let Some(count) = self.states.window.get(&due.namespace)? else {
                return Err(Error::new(Kind::Other, format!("the timer of {:?} fired for nothing", due.namespace)));
            };
            self.states.window.clear(&due.namespace)?;
            let value = [due.key.to_be_bytes(), due.namespace.start.to_be_bytes(), count.to_be_bytes()].concat();
            output.collect(Record { value, timestamp: due.timestamp })?;
        }
        output.watermark(timestamp)
    }

    fn snapshot_state(&mut self, context: &mut SnapshotContext) -> Result<()> {
        let first = context.key_groups().map(|r| r.first).unwrap_or_default();
        context.start_key_group(first)?.extend(b"raw");
        self.weather.hook()
    }

    fn keyed_state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(&mut self.states.backend)
    }
}

/// Windows that fired, by key and begin: each once.
pub type Fired = BTreeMap<(i64, i64), i64>;

/// Keeps what fired in union state: after a restore everyone has all, and the first keeps it.
pub struct Sink {
    pub state: OperatorStateBackend,
    pub rows: OperatorList<SerdeSerializer<(i64, i64, i64)>>,
    pub fired: Fired,
    pub twice: Arc<Mutex<Vec<String>>>,
    pub completed: Arc<Mutex<Vec<CheckpointNumber>>>,
}

impl StreamOperator for Sink {
    fn process(&mut self, record: Record, _: &mut dyn Collector) -> Result<()> {
        let at = |i: usize| i64::from_be_bytes(record.value[i..i + 8].try_into().unwrap());
        // A late window fires again with the rest; here nothing is late.
        if self.fired.insert((at(0), at(8)), at(16)).is_some() {
            self.twice.lock().unwrap().push(format!("window {:?} fired twice", (at(0), at(8))));
        }
        Ok(())
    }

    fn snapshot_state(&mut self, _: &mut SnapshotContext) -> Result<()> {
        let rows: Vec<(i64, i64, i64)> = self.fired.iter().map(|((k, w), n)| (*k, *w, *n)).collect();
        Ok(self.rows.update(&rows)?)
    }

    fn operator_state(&mut self) -> Option<&mut OperatorStateBackend> {
        Some(&mut self.state)
    }

    fn notify_complete(&mut self, number: CheckpointNumber) -> Result<()> {
        self.completed.lock().unwrap().push(number);
        Ok(())
    }
}
