//! Power loss: what was not synced is dropped, torn or reordered, at every moment of eight pieces of work of the real program. Each image of
//! the disk is brought back as a user would, and judged.
//!
//! The calls come from `strace`; [`model`] says what they make durable, [`image`] draws what is left, [`judge`] looks.

mod image;
mod judge;
mod model;
mod scenario;
mod trace;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use image::{Fate, Image, Luck};
use judge::{Expected, judge};
use scenario::Scenario;

/// Distinct images of a CI run.
const IMAGES: usize = 500;

/// Draws for every image that is wanted: a draw may be one that was there before.
const DRAWS: usize = 40;

/// Images that are judged at once.
const WORKERS: usize = 2;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    number("CKPTFS_TEST_SEED", now % 1_000_000)
}

/// Where images are laid: in memory, where there is room.
fn place() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let builder = || tempfile::Builder::new().prefix("ckptfs-power-").to_owned();
    if memory.is_dir() { builder().tempdir_in(memory) } else { builder().tempdir() }.unwrap()
}

/// A database for the snapshot after the cut, and a directory for images.
struct Bench {
    dir: tempfile::TempDir,
    next: AtomicUsize,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { dir: place(), next: AtomicUsize::new(0) };
        crate::tool::load(&bench.spare(), "default", 7, 750);
        bench
    }

    fn spare(&self) -> PathBuf {
        self.dir.path().join("spare")
    }

    fn judge(&self, scenario: &Scenario, image: &Image, expected: &Expected) -> Result<(), String> {
        let root = self.dir.path().join(format!("image-{}", self.next.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir(&root).unwrap();
        let judged = judge(scenario, image, expected, &self.spare(), &root);
        let kept = judged.is_err() && std::env::var_os("CKPTFS_POWER_KEEP").is_some();
        if !kept {
            std::fs::remove_dir_all(&root).unwrap();
        }
        judged
    }
}

/// A draw: where the power went, and how.
struct Drawn {
    cut: u64,
    fate: Fate,
    luck: u64,
}

/// Draws distinct images of one scenario.
fn draw(scenario: &Scenario, wanted: usize, seed: u64, deaf: bool) -> (Vec<Drawn>, u64) {
    let cuts = scenario.cuts();
    let mut luck = Luck::new(seed);
    let (mut seen, mut drawn, mut changes) = (HashSet::new(), Vec::new(), 0);
    let mut tries = 0;
    while drawn.len() < wanted && tries < wanted * DRAWS {
        // Evenly over the moments, and at each the boundaries first.
        let cut = cuts[luck.below(cuts.len() as u64) as usize];
        let round = if tries < wanted { (tries as u64) % 8 } else { 9 };
        let fate = Fate { deaf, ..Fate::of(round, &mut luck) };
        let one = Drawn { cut, fate, luck: luck.next() };
        let image = Image::draw(&scenario.model, cut, fate, &mut Luck::new(one.luck));
        if seen.insert(image.hash()) {
            changes += image.drawn;
            drawn.push(one);
        }
        tries += 1;
    }
    (drawn, changes)
}

fn judge_all(bench: &Bench, scenario: &Scenario, drawn: &[Drawn]) -> Vec<String> {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|s| {
        for _ in 0..WORKERS {
            s.spawn(|| {
                while let Some(one) = drawn.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let image = Image::draw(&scenario.model, one.cut, one.fate, &mut Luck::new(one.luck));
                    if let Err(why) = bench.judge(scenario, &image, &Expected::at(scenario, one.cut)) {
                        let at = format!("{} at {} of {}, {:?}", scenario.name, one.cut, scenario.end, one.fate);
                        wrong.lock().unwrap().push(format!("{at}: {why}"));
                    }
                }
            });
        }
    });
    wrong.into_inner().unwrap()
}

#[test]
fn nothing_is_lost_when_the_power_goes() {
    let (images, seed) = (number("CKPTFS_POWER_IMAGES", IMAGES as u64) as usize, seed());
    println!("seed {seed}");
    let only = std::env::var("CKPTFS_POWER_ONLY").unwrap_or_default();
    let bench = Bench::new();
    let (mut total, mut wrong, mut left) = (0, Vec::new(), images);
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    for (at, (name, scenario)) in scenario::ALL.iter().enumerate() {
        if !name.contains(&only) {
            continue;
        }
        let scenario = scenario();
        let share = left / (scenario::ALL.len() - at);
        let (drawn, changes) = draw(&scenario, share, seed + at as u64, false);
        let found = judge_all(&bench, &scenario, &drawn);
        let moments = scenario.cuts().len();
        println!(
            "{}: {moments} moments, {} distinct images, {changes} unsynced changes drawn for, {} wrong",
            scenario.name,
            drawn.len(),
            found.len()
        );
        assert!(!drawn.is_empty() && changes > 0, "{}: nothing was in flight", scenario.name);
        for (name, n) in &scenario.model.seen {
            *calls.entry(name.clone()).or_default() += n;
        }
        total += drawn.len();
        // What a scenario has not enough of, the others give.
        left -= drawn.len();
        found.iter().take(10).for_each(|why| println!("{why}"));
        wrong.extend(found);
    }
    let parts = judge::PARTS.load(Ordering::Relaxed);
    println!("{parts} files were read in parts that a mount had left");
    println!("{total} distinct images of {} calls, {} wrong: {calls:?}", calls.values().sum::<u64>(), wrong.len());
    assert!(wrong.is_empty(), "{} of {total} images are wrong; seed {seed}", wrong.len());
    assert!(!only.is_empty() || parts > 0, "no cache had a file in parts");
    assert!(!only.is_empty() || total * 10 >= images * 9, "only {total} of {images} images are distinct");
}

/// The harness's own planted fault: a disk that takes no notice of an fsync must be found to lose.
#[test]
fn a_disk_that_is_deaf_to_fsync_is_found_out() {
    let (seed, bench) = (seed(), Bench::new());
    println!("seed {seed}");
    let scenario = scenario::ALL[1].1();
    let (drawn, _) = draw(&scenario, 24, seed, true);
    let wrong = judge_all(&bench, &scenario, &drawn);
    println!("{} of {} images of a deaf disk are wrong", wrong.len(), drawn.len());
    assert!(wrong.len() * 4 > drawn.len(), "a deaf disk loses nothing: {wrong:?}");
}
