//! One random history: what happens to the job until its input is read, and whether all of it was counted once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ckptfs::engine::Silent;
use ckptfs::engine::coordinator::{CoordinatorSettings, RunEnd, TriggerKind};
use ckptfs::engine::gc::{self, GcOptions};
use ckptfs::lifecycle::sweep::SweepOptions;
use ckptfs::types::CheckpointNumber;

use super::oracle;
use super::world::{Life, Parallelism, World};

/// Everything that must happen in the tests.
pub const KINDS: [&str; 13] = [
    "task killed",
    "all killed",
    "coordinator halted",
    "store away",
    "hook failed",
    "savepoint",
    "full checkpoint",
    "sweep",
    "restored",
    "restored from scratch",
    "rescaled up",
    "rescaled down",
    "completed",
];

/// How often each thing happened.
pub type Counts = BTreeMap<&'static str, u64>;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Events of each partition.
const LENGTH: i64 = 2_000;
/// Lives with bad luck; from then on the sun shines.
const UNLUCKY: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the history of a seed. Panics where it does not end as the oracle says.
pub fn run(seed: u64) -> Counts {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut counts = Counts::new();
    let world = Arc::new(World::new(seed, LENGTH));
    let settings = CoordinatorSettings {
        interval_ms: 5 + dice.roll(30),
        min_pause_ms: dice.roll(3) * 5,
        timeout_ms: 10_000,
        max_concurrent: 1 + dice.roll(2) as usize,
        tolerable_failures: 1_000,
        retained: 1 + dice.roll(3) as usize,
        retain_on_cancel: true,
    };
    let local = dice.roll(2) == 0;
    let any = |dice: &mut Dice| Parallelism {
        source: 1 + dice.roll(8) as u32,
        count: 1 + dice.roll(8) as u32,
        sink: 1 + dice.roll(3) as u32,
    };
    let mut p = any(&mut dice);
    let begun = Instant::now();
    let mut lives = 0;
    let last = loop {
        assert!(begun.elapsed() < PATIENCE, "history {seed} does not end: {counts:?}");
        lives += 1;
        let mut count = |what| *counts.entry(what).or_default() += 1;
        let life = match world.start(p, settings.clone(), local) {
            Ok(life) => life,
            Err(e) => {
                assert!(lives < 200, "history {seed}: {e:#}");
                log::info!("history {seed}: not started: {e:#}");
                world.memory.fail_when(|_, _| false);
                continue;
            }
        };
        count(if life.from.is_some() { "restored" } else { "restored from scratch" });
        let stopped = live(&world, life, lives <= UNLUCKY, p, &mut dice, &mut counts);
        world.memory.fail_when(|_, _| false);
        world.weather.hooks_fail.store(0, Ordering::SeqCst);
        if let Some(number) = stopped {
            break number;
        }
        if dice.roll(2) == 0 {
            let before = p.count;
            p = any(&mut dice);
            let what = if p.count > before { "rescaled up" } else { "rescaled down" };
            if p.count != before {
                *counts.entry(what).or_default() += 1;
            }
        }
    };
    *counts.entry("completed").or_default() += world.completed.lock().unwrap().len() as u64;
    check(&world, seed, last, any(&mut dice));
    counts
}

/// One life; the number of its last savepoint if it came to its end.
fn live(
    world: &Arc<World>,
    life: Life,
    unlucky: bool,
    p: Parallelism,
    dice: &mut Dice,
    counts: &mut Counts,
) -> Option<CheckpointNumber> {
    let mut count = |what| *counts.entry(what).or_default() += 1;
    let exhausted = || world.weather.exhausted.load(Ordering::SeqCst) >= u64::from(p.source);
    let mut stopped = None;
    let begun = Instant::now();
    let completed = || world.completed.lock().unwrap().len();
    let before = completed();
    // Most lives see a checkpoint completed before they end.
    let patient = dice.roll(6) > 0;
    loop {
        assert!(begun.elapsed() < PATIENCE, "seed {}: this life does not end", world.seed);
        std::thread::sleep(Duration::from_millis(2 + dice.roll(25)));
        if life.coordinator.is_finished() {
            break;
        }
        if exhausted() && (!unlucky || dice.roll(3) == 0) {
            world.memory.fail_when(|_, _| false);
            let asked = life.control.take(TriggerKind::Savepoint { stop: true });
            if let Ok(number) = asked.wait(Duration::from_secs(20)) {
                stopped = Some(number);
                break;
            }
            continue;
        }
        if !unlucky {
            continue;
        }
        let spared = patient && completed() == before;
        match dice.roll(40) {
            0..=3 if spared => {}
            0 | 1 => {
                count("task killed");
                life.deployment.kill_one(dice.roll(life.deployment.len() as u64) as usize);
            }
            2 => {
                count("all killed");
                life.deployment.kill();
            }
            3 => {
                count("coordinator halted");
                life.control.halt();
            }
            4..=8 => {
                count("store away");
                let (what, every) =
                    (["upload", "create", "get", "list", "head"][dice.roll(5) as usize], 1 + dice.roll(3));
                let asked = std::sync::atomic::AtomicU64::new(0);
                world
                    .memory
                    .fail_when(move |w, _| w == what && asked.fetch_add(1, Ordering::SeqCst).is_multiple_of(every));
                std::thread::sleep(Duration::from_millis(dice.roll(40)));
                world.memory.fail_when(|_, _| false);
            }
            9..=12 => {
                count("hook failed");
                world.weather.hooks_fail.fetch_add(1 + dice.roll(3), Ordering::SeqCst);
            }
            13 | 14 => {
                count("savepoint");
                drop(life.control.take(TriggerKind::Savepoint { stop: false }));
            }
            15 | 16 => {
                count("full checkpoint");
                drop(life.control.take(TriggerKind::Full));
            }
            17..=22 => {
                count("sweep");
                let options = GcOptions { every_number: dice.roll(2) == 0, ..GcOptions::default() };
                let plan = gc::plan(&world.session, SweepOptions::default(), &Silent);
                if let Ok(plan) = plan
                    && let Err(e) = gc::execute(&world.session, &plan, options, &Silent)
                {
                    panic!("seed {}: {e:#}", world.seed);
                }
            }
            _ => {}
        }
    }
    if stopped.is_none() {
        life.deployment.kill();
        life.control.halt();
    }
    let end = life.coordinator.join().unwrap();
    if let RunEnd::Fenced(e) = &end {
        panic!("seed {}: nobody else took over: {e:#}", world.seed);
    }
    for (vertex, index, ended) in life.deployment.join() {
        if let Err(e) = ended {
            log::info!("seed {}: {vertex}/{index}: {e:#}", world.seed);
        }
    }
    stopped
}

fn check(world: &World, seed: u64, last: CheckpointNumber, p: Parallelism) {
    let super::world::Found { keys, fired, offsets, passed } = world.read(last, p).unwrap();
    let expected = oracle::expected(seed, LENGTH);
    assert_eq!(offsets, expected.offsets, "seed {seed}: offsets");
    assert_eq!(passed, LENGTH * i64::from(oracle::PARTITIONS), "seed {seed}: records that passed");
    assert_eq!(fired, expected.windows, "seed {seed}: windows");
    assert_eq!(keys, expected.keys, "seed {seed}: keyed state");
    assert_eq!(*world.twice.lock().unwrap(), [] as [String; 0], "seed {seed}");
}
