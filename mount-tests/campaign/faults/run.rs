//! The runs: cell after cell, then a day's work under bad weather, then calm and a reckoning.

use std::fs;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ckptfs::types::{Name, Uid};

use crate::s3::Weed;

use super::cells::{ASKS, Ask, KINDS, Kind, impossible};
use super::databases::Databases;
use super::direct::{Ends, Lane};
use super::heal::heal;
use super::layer::Layer;
use super::random;
use super::server;
use super::upstream::Upstream;
use super::work::Host;
use super::world::{DEADLINE, World};

/// Faulted requests of a CI run.
const REQUESTS: u64 = 20_000;

/// Lanes that drive cells, and hosts that work. Most of them wait most of the time.
const LANES: usize = 20;
const HOSTS: usize = 40;
const HOSTS_OF_WEED: usize = 6;

/// Jobs; each is written by several hosts.
const JOBS: usize = 12;

/// Faults in a thousand requests, one weather after the other.
const WEATHERS: [u64; 6] = [40, 300, 0, 600, 100, 450];

/// What must have succeeded at least once.
const OPERATIONS: [&str; 9] =
    ["snapshot", "complete", "restore", "lazy reads", "sweep", "expire", "pin", "verify", "take over"];

/// Cells that cost little are driven more often than is asked.
const CHEAP: u64 = 2;

/// What a single attempt may take beyond its limit on a busy machine.
const SLACK: Duration = Duration::from_secs(8);

pub fn port() -> u16 {
    std::env::var("CKPTFS_FAULTS_PORT").unwrap().parse().unwrap()
}

fn asked() -> u64 {
    std::env::var("CKPTFS_FAULTED_REQUESTS").map_or(REQUESTS, |n| n.parse().unwrap())
}

fn seeded() {
    let seed = std::env::var("CKPTFS_TEST_SEED").map_or_else(
        |_| u64::from_le_bytes(Uid::random().unwrap().as_bytes()[..8].try_into().unwrap()),
        |seed| seed.parse().unwrap(),
    );
    println!("faults: CKPTFS_TEST_SEED={seed}");
    random::seed(seed);
}

/// Drives every cell of these requests until it was hit so often.
fn drive(world: &World, asks: &[Ask], least: u64, ends: &Ends) {
    let begun = Instant::now();
    let lanes: Vec<Lane<'_>> = (0..LANES).map(|lane| Lane::new(world, lane)).collect();
    println!("faults: lanes made in {:.1?}", begun.elapsed());
    let cells: Vec<(Kind, Ask)> = KINDS.into_iter().flat_map(|k| asks.iter().map(move |a| (k, *a))).collect();
    let cells = cells.into_iter().filter(|(k, a)| impossible(*k, *a).is_none());
    // Those that take long first, and by several lanes.
    let slow = |k: Kind| matches!(k, Kind::Hang | Kind::Slow | Kind::Lost);
    let mut cells: Vec<_> = cells.flat_map(|(k, a)| std::iter::repeat_n((k, a), if slow(k) { 6 } else { 2 })).collect();
    cells.sort_by_key(|(k, a)| (slow(*k), matches!(a, Ask::Begin | Ask::Part | Ask::Complete | Ask::Abort)));
    let cells = Mutex::new(cells);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for lane in &lanes {
            let (cells, failed) = (&cells, &failed);
            scope.spawn(move || {
                while let Some((kind, ask)) = { cells.lock().unwrap().pop() } {
                    // All other cells are tried all the same: what is wrong with several is of one kind.
                    let driven = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        let many = matches!(ask, Ask::GetRange | Ask::GetWhole | Ask::List);

                        let least = if many { least } else { least * CHEAP };
                        let tries = lane.drive(kind, ask, least, ends);
                        let hit = world.layer.matrix.get(kind, ask);
                        assert!(hit >= least, "{kind:?} at {ask:?}: hit {hit} times in {tries}, {least} are asked");
                    }));
                    if driven.is_err() {
                        failed.lock().unwrap().push((kind, ask));
                    }
                }
            });
        }
    });
    println!("faults: cells driven in {:.1?}, the slowest call {:.1?}", begun.elapsed(), ends.slowest());
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:?}");
}

fn hosts<'a>(world: &'a World, count: usize, jobs: &[Name]) -> Vec<Host<'a>> {
    let of = |i: usize| jobs.iter().skip(i % 3).step_by(3).cloned().collect();
    (0..count).map(|i| Host::new(world, world.session(), of(i))).collect()
}

/// Lets hosts work until enough has failed.
fn work(layer: &Layer, hosts: Vec<Host<'_>>, enough: &(dyn Fn() -> bool + Sync)) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for mut host in hosts {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // A finding ends the run at once, and not when the last host is done.
                    let step = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| host.step()));
                    if step.is_err() {
                        std::process::exit(101);
                    }
                }
            });
        }
        for weather in WEATHERS.iter().cycle() {
            layer.rate.store(*weather, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(400));
            if enough() {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    layer.rate.store(0, Ordering::Relaxed);
}

fn jobs(count: usize) -> Vec<Name> {
    (0..count).map(|i| Name::parse(&format!("job-{i}")).unwrap()).collect()
}

/// In a process of its own.
pub fn all() {
    seeded();
    let (asked, begun) = (asked(), Instant::now());
    let least = asked.div_ceil(1000);
    let weed = Weed::start();
    let layer = Arc::new(Layer::new(Some(Upstream::new(weed.port()))));
    server::start(&layer, port());
    let root = tempfile::Builder::new().prefix("ckptfs-faults-").tempdir().unwrap();
    let databases = Arc::new(Databases::make(&{
        let templates = root.path().join("databases");
        fs::create_dir(&templates).unwrap();
        templates
    }));
    let memory = World::new(&layer, "s3://memory/store", &root.path().join("memory"), &databases);
    let real = World::new(&layer, &weed.url("store"), &root.path().join("real"), &databases);
    let asks: Vec<Ask> = ASKS.into_iter().filter(|a| *a != Ask::Delete).collect();
    let ends = Ends::default();
    // In a store of their own: what an attempt that was given up does later is nobody's blob there.
    let cells = World::new(&layer, "s3://memory/cells", &root.path().join("cells"), &databases);
    let only_work = std::env::var("CKPTFS_FAULTS_PART").is_ok_and(|part| part == "work");
    if !only_work {
        drive(&cells, &asks, least, &ends);
    }
    let (driven, begun_work) = (layer.matrix.total(), Instant::now());
    // A twentieth of the faults, through the same layer, before a real server.
    let mut all = hosts(&memory, HOSTS, &jobs(JOBS));
    all.extend(hosts(&real, HOSTS_OF_WEED, &jobs(3)));
    let to_weed = || layer.upstream_faults.load(Ordering::Relaxed);
    // A run in which some operation never came through has shown nothing of it.
    let did = |what: &&str| memory.tally.succeeded(what) + real.tally.succeeded(what) > 0;
    work(&layer, all, &|| layer.matrix.total() >= asked && to_weed() * 20 >= asked && OPERATIONS.iter().all(did));
    let worked = begun_work.elapsed();
    let (healed, healed_real) = (heal(&memory, &jobs(JOBS)), heal(&real, &jobs(3)));
    println!("{}", layer.matrix.table());
    let (total, requests) = (layer.matrix.total(), layer.requests.load(Ordering::Relaxed));
    println!("faults: {total} faulted of {requests} requests ({} of them at a real server)", to_weed());
    println!(
        "faults: {:.0} requests a second; {driven} faults driven cell by cell: {} calls succeeded, {} failed, the slowest {:.1?}",
        requests as f64 / begun.elapsed().as_secs_f64(),
        ends.ok.load(Ordering::Relaxed),
        ends.failed.load(Ordering::Relaxed),
        ends.slowest()
    );
    for (world, healed, of) in [(&memory, &healed, "in memory"), (&real, &healed_real, "weed")] {
        let slowest = &world.slowest;
        println!("faults, {of}: {healed:?}\n{}", world.tally.shown());
        println!(
            "  slowest attempt {:.2?}, slowest list {:.2?}, deadline {DEADLINE:?}",
            slowest.single(),
            slowest.list()
        );
        assert!(healed.read > 0 && healed.swept > 0, "nothing was read or swept");
        assert!(slowest.single() < DEADLINE * 2 + SLACK, "an attempt took {:?}", slowest.single());
    }
    println!(
        "faults: {worked:.1?} of work, {:.1?} in all; {} uploads left open",
        begun.elapsed(),
        layer.memory.open_uploads()
    );
    let below = layer.matrix.below(least, &asks);
    assert!(below.is_empty() || only_work, "{below:?}");
    assert!(total >= asked);
    layer.ended.store(true, Ordering::Relaxed);
}

/// In a process of its own, whose client deletes one by one.
pub fn single_deletes() {
    seeded();
    let least = asked().div_ceil(1000);
    let layer = Arc::new(Layer::new(None));
    server::start(&layer, port());
    let root = tempfile::Builder::new().prefix("ckptfs-faults-").tempdir().unwrap();
    let templates = root.path().join("databases");
    fs::create_dir(&templates).unwrap();
    let databases = Arc::new(Databases::make(&templates));
    let world = World::new(&layer, "s3://memory/store", &root.path().join("memory"), &databases);
    let ends = Ends::default();
    let cells = World::new(&layer, "s3://memory/cells", &root.path().join("cells"), &databases);
    drive(&cells, &[Ask::Delete], least, &ends);
    let begun = Instant::now();
    let all = hosts(&world, 12, &jobs(3));
    work(&layer, all, &|| begun.elapsed() > Duration::from_secs(5) && world.tally.succeeded("sweep") > 2);
    let healed = heal(&world, &jobs(3));
    println!("{}\nfaults, single deletes: {healed:?}\n{}", layer.matrix.table(), world.tally.shown());
    assert!(layer.matrix.below(least, &[Ask::Delete]).is_empty());
}
