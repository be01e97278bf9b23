//! A real cluster, on hosts of their own: a volume host is cut off or killed during snapshots, sweeps and reads. What was completed stays
//! whole, what is read is right, and all goes on when the host is back.
//!
//! `CKPTFS_LOST_HOSTS` says how many are lost (3). Needs root.

mod net;
mod planted;
mod races;
mod servers;

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use ckptfs::types::Digest;
use object_store::PutMode;

use crate::kit::noise;
use crate::tool::{Desk, Said, load, scan, tool};
use races::History;
use servers::{Cluster, VOLUMES, volume_host};

/// The longest that any verb may take while a host is away: some requests in a row, each with its deadline of 30 s.
const LONGEST: Duration = Duration::from_secs(240);

struct Field {
    desk: Desk,
    cluster: Cluster,
    texts: BTreeMap<u64, Digest>,
    completed: Vec<u64>,
    number: u64,
    dice: u64,
    failed: BTreeMap<String, u64>,
}

fn lost_hosts() -> u64 {
    std::env::var("CKPTFS_LOST_HOSTS").map_or(3, |n| n.parse().unwrap())
}

impl Field {
    fn below(&mut self, n: u64) -> u64 {
        self.dice += 1;
        u64::from_le_bytes(noise(self.dice, 8).try_into().unwrap()) % n
    }

    fn start(&self, args: &[&str]) -> Child {
        self.desk.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Its end, which must come in time, and be a success or a clear error.
    fn end(&mut self, what: &str, mut child: Child) -> Option<Said> {
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < LONGEST, "{what} hangs");
            std::thread::sleep(Duration::from_millis(20));
        }
        let said: Said = child.wait_with_output().unwrap().into();
        if said.code == 0 {
            return Some(said);
        }
        said.fails(1, &["ckptfs: "]);
        println!("  {what}: {}", said.err.trim().lines().last().unwrap_or_default());
        *self.failed.entry(what.to_owned()).or_default() += 1;
        None
    }

    fn grow(&mut self) {
        let db = self.desk.path("db");
        load(&db, "default", self.number, 2000);
        if self.number.is_multiple_of(5) {
            tool("ldb", &[&format!("--db={}", db.display()), "compact"]);
        }
    }

    /// Under the next number: what failed has used its own up.
    fn begin_snapshot(&mut self) -> Child {
        self.number += 1;
        let db = self.desk.path("db");
        self.texts.insert(self.number, Digest::of(scan(&db, "default").as_bytes()));
        self.start(&["-q", "snapshot", "--job", "app", "--number", &self.number.to_string(), db.to_str().unwrap()])
    }

    fn end_snapshot(&mut self, child: Child) -> bool {
        let done = self.end("snapshot", child).is_some();
        if done {
            self.completed.push(self.number);
        }
        done
    }

    /// Restores the newest; whether it was to be had. What is restored is right.
    fn read(&mut self, child: Option<Child>) -> bool {
        let number = *self.completed.last().unwrap();
        let child = child.unwrap_or_else(|| self.begin_read());
        let restored = self.desk.path("restored");
        let there = self.end("restore", child).is_some();
        if there {
            let text = Digest::of(scan(&restored, "default").as_bytes());
            assert!(text == self.texts[&number], "chk-{number} is restored otherwise than it was stored");
        }
        there
    }

    fn begin_read(&self) -> Child {
        let number = *self.completed.last().unwrap();
        let restored = self.desk.path("restored");
        let _ = fs::remove_dir_all(&restored);
        let from = format!("app/chk-{number}");
        self.start(&["-q", "restore", "--copy", "--cache", &self.cold(), &from, restored.to_str().unwrap()])
    }

    /// A cache that has nothing.
    fn cold(&self) -> String {
        let cold = self.desk.path("cold");
        let _ = fs::remove_dir_all(&cold);
        cold.to_str().unwrap().to_owned()
    }

    fn check(&self) {
        check(&self.desk, &self.cold(), &self.completed);
    }
}

/// Everything that was completed and not expired is listed and whole.
fn check(desk: &Desk, cold: &str, completed: &[u64]) {
    let listed = desk.ok(&["--json", "ls", "app"]);
    let listed: Vec<u64> = serde_json::from_str::<serde_json::Value>(&listed)
        .unwrap()
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|r| r["number"].as_u64())
        .collect();
    for number in completed.iter().rev().take(3) {
        assert!(listed.contains(number), "chk-{number} was completed and is not listed: {listed:?}");
    }
    desk.ok(&["-q", "--cache", cold, "verify", "--read"]);
}

/// Until it succeeds: a cluster needs its time to heal.
fn heals<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(begun.elapsed() < LONGEST, "{what} does not succeed although all hosts are back");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn lost_volume_hosts_lose_nothing() {
    let cluster = Cluster::start(1);
    let mut desk = Desk::new();
    cluster.serve(&mut desk, "app");
    let seed = std::env::var("CKPTFS_TEST_SEED").map_or(u64::from(std::process::id()), |s| s.parse().unwrap());
    println!("CKPTFS_TEST_SEED={seed}");
    let endpoint = cluster.endpoint(0);
    let mut field = Field {
        desk,
        cluster,
        texts: BTreeMap::new(),
        completed: Vec::new(),
        number: 0,
        dice: seed.wrapping_mul(1_000_003),
        failed: BTreeMap::new(),
    };
    field.grow();
    let first = field.begin_snapshot();
    assert!(field.end_snapshot(first));
    let over = AtomicBool::new(false);
    let (mut while_lost, mut read_without) = (0, 0);
    let history = std::thread::scope(|scope| {
        let endpoints = [endpoint.clone(), endpoint.clone(), endpoint];
        let over = &over;
        let racer = scope.spawn(move || races::race(&endpoints, "races", &PutMode::Create, over));
        // However this ends, the racer ends.
        let lost = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for n in 0..lost_hosts() {
                lose_one(&mut field, n, &mut while_lost, &mut read_without);
            }
        }));
        over.store(true, SeqCst);
        let history = racer.join().unwrap();
        if let Err(panic) = lost {
            println!("the store itself: {} sound, {} broken", history.sound, history.broken.len());
            history.broken.iter().for_each(|b| println!("  {b}"));
            std::panic::resume_unwind(panic);
        }
        history
    });
    println!(
        "{} hosts lost, {} checkpoints completed, {while_lost} of them while a host was away, \
         {read_without} restored then; failed meanwhile: {:?}",
        lost_hosts(),
        field.completed.len(),
        field.failed
    );
    println!("the store itself: {} keys with one winner, {} without an answer", history.sound, history.unclear);
    let broken: Vec<&String> = history.broken.iter().chain(&history.stale).collect();
    assert!(broken.is_empty(), "the store broke its promise, whatever we did: {broken:#?}");
    assert!(history.sound > 10 * lost_hosts(), "only {} keys were raced for", history.sound);
}

/// One host goes in the middle of something, something is tried without it, it comes back, and all is there.
fn lose_one(field: &mut Field, n: u64, while_lost: &mut u64, read_without: &mut u64) {
    let volume = usize::try_from(field.below(VOLUMES as u64)).unwrap();
    let is_cut = field.below(2) == 0;
    field.grow();
    let during = ["snapshot", "sweep", "read"][(n % 3) as usize];
    println!("volume host {volume} is {} during a {during}", if is_cut { "cut off" } else { "killed" });
    let delete = ["-q", "gc", "--delete", "--forget-all"];
    let child = match during {
        "snapshot" => field.begin_snapshot(),
        "sweep" => {
            field.desk.ok(&["-q", "expire", "app", "--keep", "3"]);
            field.start(&delete)
        }
        _ => field.begin_read(),
    };
    let pause = field.below(150);
    std::thread::sleep(Duration::from_millis(pause));
    if is_cut {
        field.cluster.net.cut(volume_host(volume));
    } else {
        field.cluster.kill_volume(volume);
    }
    match during {
        "snapshot" => {
            field.end_snapshot(child);
        }
        "sweep" => drop(field.end(during, child)),
        _ => {
            field.read(Some(child));
        }
    }
    // Without it.
    let again = field.begin_snapshot();
    *while_lost += u64::from(field.end_snapshot(again));
    *read_without += u64::from(field.read(None));
    if is_cut {
        field.cluster.net.join(volume_host(volume));
    } else {
        field.cluster.start_volume(volume);
    }
    heals("a restore", || field.read(None).then_some(()));
    heals("a snapshot", || {
        let child = field.begin_snapshot();
        field.end_snapshot(child).then_some(())
    });
    heals("a sweep", || {
        let child = field.start(&delete);
        field.end("sweep", child)
    });
    field.check();
}

/// Seconds of each race; `CKPTFS_FILER_SECONDS` makes it longer.
fn race_for() -> Duration {
    Duration::from_secs(std::env::var("CKPTFS_FILER_SECONDS").map_or(2, |n| n.parse().unwrap()))
}

/// A race while something happens; says what became of it.
fn phase(what: &str, endpoints: &[String], mode: &PutMode, act: impl FnOnce()) -> History {
    let over = AtomicBool::new(false);
    let history = std::thread::scope(|scope| {
        let racer = scope.spawn(|| races::race(endpoints, what, mode, &over));
        act();
        std::thread::sleep(race_for());
        over.store(true, SeqCst);
        racer.join().unwrap()
    });
    println!(
        "{what}: {} sound, {} unclear, won by rival {:?}, {} could not look, {} did not see it, {} broken",
        history.sound,
        history.unclear,
        history.wins,
        history.unread,
        history.stale.len(),
        history.broken.len()
    );
    history.stale.iter().chain(&history.broken).take(3).for_each(|b| println!("  {b}"));
    history
}

/// What docs/OPERATING.md says of filers, each with a list of its own that they tell each other: one alone keeps the promise, and so do
/// several until one of them is killed. What happens then is looked at and printed: it is why we say "one filer".
#[test]
fn filers_keep_the_promise_until_one_of_them_is_killed() {
    let mut cluster = Cluster::start(3);
    let one = vec![cluster.endpoint(0); 2];
    let unconditional = phase("without-a-condition", &one, &PutMode::Overwrite, || ());
    assert!(!unconditional.broken.is_empty(), "the race does not see two winners where everybody wins");
    let keeps = |history: History| {
        assert!(history.sound > 0 && history.broken.is_empty() && history.stale.is_empty(), "{history:#?}");
    };
    let create = PutMode::Create;
    keeps(phase("one-filer", &one, &create, || ()));
    // What was created before it joined, created again by it at once: each must be refused.
    let late = |what: &str, cluster: &mut Cluster, filer: usize| {
        assert_eq!(races::claim(&cluster.endpoint(0), what, 300), (300, 0));
        cluster.start_filer(filer);
        assert_eq!(
            races::claim(&cluster.endpoint(filer), what, 300),
            (0, 300),
            "{what}: created again by filer {filer}"
        );
    };
    late("before-a-filer-joins", &mut cluster, 1);
    let two = [cluster.endpoint(0), cluster.endpoint(1)];
    keeps(phase("two-filers", &two, &create, || ()));
    keeps(phase("a-filer-joins", &two, &create, || cluster.start_filer(2)));
    let three = [cluster.endpoint(0), cluster.endpoint(1), cluster.endpoint(2)];
    phase("a-filer-is-killed", &three, &create, || {
        std::thread::sleep(race_for());
        cluster.kill_filer(1);
    });
    late("while-a-filer-was-away", &mut cluster, 1);
    keeps(phase("it-came-back", &three, &create, || ()));
}
