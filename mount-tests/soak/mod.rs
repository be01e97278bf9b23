//! Everybody at once: writers whose databases now and then begin anew under the same file names, sweepers with retention, mounts with
//! databases that are read, restores, a clone of an expired checkpoint that goes on, imports of Flink's checkpoints, and `kill -9` at
//! random. Nobody who may read ever sees an error or a wrong byte, and in the end no garbage is left.
//!
//! Some seconds by default; `CKPTFS_SOAK_SECONDS` makes it longer (`scripts/soak.sh`).

mod actors;
mod counts;
mod importer;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use ckptfs::types::Digest;
use serde_json::Value;

use crate::kit::{noise, passthrough, soon};
use crate::s3::{Weed, Who};
use crate::tool::{Desk, Said, load, scan};
use counts::Counts;

const WRITERS: usize = 3;
const SWEEPERS: usize = 2;
const KEEP: &str = "3";

/// What must have happened, and more than this often, before the soak may end.
const LEAST: [(&str, u64); 9] = [
    ("checkpoints completed by snapshot", 3),
    ("checkpoints of Flink imported", 3),
    ("kills of snapshot", 3),
    ("kills of gc", 1),
    ("kills of mount", 1),
    ("sweeps", 3),
    ("blobs swept", 3),
    ("databases read over a mount", 3),
    ("databases restored", 1),
];

struct Soak {
    desk: Desk,
    over: AtomicBool,
    /// What `ldb` reads in a checkpoint, if that number is ever completed.
    texts: Mutex<BTreeMap<(usize, u64), Digest>>,
    seed: AtomicU64,
    counts: Counts,
}

fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

impl Soak {
    fn was_exercised(&self) -> bool {
        LEAST.iter().all(|(what, least)| self.counts.of(what) > *least)
    }

    fn goes_on(&self) -> bool {
        !self.over.load(SeqCst)
    }

    fn dice(&self, sides: u64) -> u64 {
        let bytes = noise(self.seed.fetch_add(1, SeqCst) * 7919 + 1, 8);
        u64::from_le_bytes(bytes.try_into().unwrap()) % sides
    }

    fn start(&self, cache: &str, args: &[&str]) -> Child {
        let mut command = self.desk.command(args);
        command.env("CKPTFS_CACHE", self.desk.path(cache));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs a verb, now and then only until it is killed. What it said, if it was not.
    fn attempt(&self, cache: &str, args: &[&str], odds: u64, within_ms: u64) -> Option<Said> {
        let mut child = self.start(cache, args);
        if self.dice(100) < odds {
            std::thread::sleep(Duration::from_millis(self.dice(within_ms)));
            let _ = child.kill();
        }
        let output = child.wait_with_output().unwrap();
        if output.status.code().is_none() {
            let verb = args.iter().find(|a| !a.starts_with('-')).unwrap();
            self.counts.add(&format!("kills of {verb}"), 1);
            return None;
        }
        Some(output.into())
    }

    /// The same of what must succeed.
    fn risk(&self, cache: &str, args: &[&str], odds: u64, within_ms: u64) -> Option<String> {
        let said = self.attempt(cache, args, odds, within_ms)?;
        assert_eq!(said.code, 0, "{args:?}: {}", said.err);
        Some(said.out)
    }

    fn mount(&self, name: &str) -> Child {
        let mut args = vec!["-q", "mount", name, "--pin-idle", "2s"];
        if !passthrough() {
            args.push("--no-passthrough");
        }
        let child = self.start(&format!("cache-{name}"), &args);
        assert!(soon(|| answers(&self.desk.path(name))), "{name} does not answer");
        child
    }

    /// Databases, a mount each way, a clone of what expires: before anybody expires or reads, every job has a first checkpoint.
    fn prepare(&self) -> (Child, Child, PathBuf) {
        fs::create_dir(self.desk.path("mnt2")).unwrap();
        let origin = self.desk.path("origin");
        load(&origin, "default", 7, 3000);
        self.risk("cache-origin", &["-q", "snapshot", "--job", "origin", origin.to_str().unwrap()], 0, 1);
        for w in 0..WRITERS {
            let db = self.desk.path(&format!("db{w}"));
            load(&db, "default", w as u64, 10);
            let args = ["-q", "snapshot", "--job", &format!("job{w}"), "--number", "1", db.to_str().unwrap()];
            assert!(self.risk(&format!("cache{w}"), &args, 0, 1).is_some());
            self.texts.lock().unwrap().insert((w, 1), digest(&scan(&db, "default")));
        }
        let mounts = (self.mount("mnt"), self.mount("mnt2"));
        let (clone, mnt) = (self.desk.path("clone"), self.desk.path("mnt"));
        let args = ["-q", "restore", "origin/chk-1", clone.to_str().unwrap(), "--mount", mnt.to_str().unwrap()];
        self.risk("cache-clone", &args, 0, 1);
        self.risk("cache-origin", &["-q", "expire", "origin/chk-1"], 0, 1);
        (mounts.0, mounts.1, clone)
    }

    /// Every checkpoint that is there is whole, whatever happened; one round takes what is left, and the next finds nothing.
    fn check(&self) {
        let desk = &self.desk;
        println!("{}", desk.ok(&["-q", "verify", "--read"]).lines().last().unwrap_or_default());
        for w in 0..WRITERS {
            let rows: Value = serde_json::from_str(&desk.ok(&["--json", "ls", &format!("job{w}")])).unwrap();
            for row in rows.as_array().unwrap() {
                let number = row["number"].as_u64().unwrap();
                let db = desk.path("mnt").join(format!("job{w}/chk-{number}/db/0/db"));
                let text = digest(&scan(&db, "default"));
                assert_eq!(Some(&text), self.texts.lock().unwrap().get(&(w, number)), "job{w}/{number}");
            }
        }
    }

    fn leaves_nothing(&self) {
        self.desk.ok(&["gc", "--delete", "--forget-all"]);
        let left: Value = serde_json::from_str(&self.desk.ok(&["--json", "gc"])).unwrap();
        assert_eq!(
            (left["doomed"]["blobs"].as_u64(), left["foreign"].as_array().map(Vec::len)),
            (Some(0), Some(0)),
            "{left}"
        );
    }
}

fn answers(mount: &Path) -> bool {
    fs::read_dir(mount).is_ok() && fs::read_to_string("/proc/mounts").unwrap().contains(mount.to_str().unwrap())
}

fn seconds() -> u64 {
    std::env::var("CKPTFS_SOAK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(12)
}

fn soak(desk: Desk) {
    let soak = Soak {
        desk,
        over: AtomicBool::new(false),
        texts: Mutex::default(),
        seed: AtomicU64::new(
            std::env::var("CKPTFS_TEST_SEED").map_or(u64::from(std::process::id()), |s| s.parse().unwrap()),
        ),
        counts: Counts::default(),
    };
    println!("seed {}", soak.seed.load(SeqCst));
    let (mut first, second, clone) = soak.prepare();
    let second = Mutex::new(second);
    std::thread::scope(|scope| {
        let (s, second, clone) = (&soak, &second, &clone);
        let mut all = Vec::new();
        all.extend((0..WRITERS).map(|w| scope.spawn(move || s.writer(w))));
        all.extend((0..SWEEPERS).map(|n| scope.spawn(move || s.sweeper(n))));
        all.push(scope.spawn(move || s.reader("mnt", false)));
        all.push(scope.spawn(move || s.reader("mnt2", true)));
        all.push(scope.spawn(move || s.killer(second)));
        all.push(scope.spawn(move || s.clone_goes_on(clone, 3000)));
        all.push(scope.spawn(move || s.restorer()));
        all.push(scope.spawn(move || s.importer()));
        // A slow machine gets longer, until everything happened at least once.
        let (begun, least) = (Instant::now(), Duration::from_secs(seconds()));
        let goes_on = || begun.elapsed() < least || (!s.was_exercised() && begun.elapsed() < 10 * least);
        while goes_on() && !all.iter().any(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(100));
        }
        soak.over.store(true, SeqCst);
        for thread in all {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    soak.counts.print();
    for (what, least) in LEAST {
        assert!(soak.counts.of(what) > least, "{what} only {} times", soak.counts.of(what));
    }
    // Of daemon, engine and sweeper, while databases are read: at least one in six seconds.
    let kills = soak.counts.starting_with("kills of ");
    assert!(kills >= seconds() / 6, "only {kills} kills");
    soak.check();
    for daemon in [&mut first, &mut second.lock().unwrap()] {
        ckptfs::local::process::terminate(daemon.id()).unwrap();
        daemon.wait().unwrap();
    }
    soak.leaves_nothing();
}

#[test]
fn over_a_directory() {
    soak(Desk::new());
}

#[test]
fn over_s3() {
    let weed = Weed::start();
    let mut desk = Desk::new();
    weed.serve(&mut desk, "soak", Who::Writer);
    soak(desk);
}
