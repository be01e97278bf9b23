//! Everybody at once: writers, sweepers with retention, mounts with databases that are read, a clone of an expired checkpoint, and
//! `kill -9` at random. Nobody who may read ever sees an error or a wrong byte, and in the end no garbage is left.
//!
//! Some seconds by default; `CKPTFS_SOAK_SECONDS` makes it longer (`scripts/soak.sh`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::kit::{noise, passthrough, soon};
use crate::s3::{Weed, Who};
use crate::tool::{Desk, load, scan, tool};

const WRITERS: usize = 3;
const SWEEPERS: usize = 2;
const KEEP: &str = "3";

struct Soak {
    desk: Desk,
    over: AtomicBool,
    /// What `ldb` reads in a checkpoint, if that number is ever completed.
    texts: Mutex<BTreeMap<(usize, u64), String>>,
    seed: AtomicU64,
    /// Held for writing while the second mount's daemon is killed and started.
    second: RwLock<()>,
    completed: AtomicU64,
    killed: AtomicU64,
    swept: AtomicU64,
    read: AtomicU64,
    late: AtomicU64,
}

impl Soak {
    fn was_exercised(&self) -> bool {
        [&self.completed, &self.killed, &self.swept, &self.read].iter().all(|c| c.load(SeqCst) > 3)
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

    /// Runs a verb, now and then only until it is killed. What it printed, if it was not.
    fn risk(&self, cache: &str, args: &[&str], odds: u64, within_ms: u64) -> Option<String> {
        let mut child = self.start(cache, args);
        if self.dice(100) < odds {
            std::thread::sleep(Duration::from_millis(self.dice(within_ms)));
            let _ = child.kill();
        }
        let output = child.wait_with_output().unwrap();
        if output.status.code().is_none() {
            self.killed.fetch_add(1, SeqCst);
            return None;
        }
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        Some(text(&output.stdout))
    }

    fn writer(&self, w: usize) {
        let db = self.desk.path(&format!("db{w}"));
        let (job, cache) = (format!("job{w}"), format!("cache{w}"));
        let mut number = 1;
        for round in 1.. {
            if self.over.load(SeqCst) {
                return;
            }
            load(&db, "default", (w as u64) * 1_000_000 + round, 300);
            if round % 4 == 3 {
                tool("ldb", &[&format!("--db={}", db.display()), "compact"]);
            }
            number += 1;
            self.texts.lock().unwrap().insert((w, number), scan(&db, "default"));
            let n = number.to_string();
            let args = ["-q", "snapshot", "--job", &job, "--number", &n, db.to_str().unwrap()];
            if self.risk(&cache, &args, 30, 120).is_some() {
                self.completed.fetch_add(1, SeqCst);
            }
        }
    }

    fn sweeper(&self, s: usize) {
        let cache = format!("cache-sweeper{s}");
        while !self.over.load(SeqCst) {
            for w in 0..WRITERS {
                // A job that has no checkpoint yet has nothing to expire.
                self.risk(&cache, &["-q", "expire", &format!("job{w}"), "--keep", KEEP], 10, 40);
            }
            if let Some(said) = self.risk(&cache, &["--json", "-q", "gc", "--delete", "--forget-all"], 30, 80) {
                let done: Value = serde_json::from_str(&said).unwrap();
                self.swept.fetch_add(done["deleted"]["blobs"].as_u64().unwrap(), SeqCst);
            }
        }
    }

    fn mount(&self, name: &str) -> Child {
        let mut args = vec!["-q", "mount", name, "--pin-idle", "2s"];
        if !passthrough() {
            args.push("--no-passthrough");
        }
        let child = self.start(&format!("cache-{name}"), &args);
        assert!(soon(|| tool_ok(&self.desk.path(name))), "{name} does not answer");
        child
    }

    /// Opens a database as RocksDB does, CURRENT first, and reads all of it.
    fn reader(&self, mount: &str, guard: Option<&RwLock<()>>) {
        while !self.over.load(SeqCst) {
            let _alive = guard.map(|g| g.read().unwrap());
            let w = usize::try_from(self.dice(WRITERS as u64)).unwrap();
            let job = self.desk.path(mount).join(format!("job{w}"));
            let Ok(latest) = fs::read_link(job.join("latest")) else { continue };
            let db = job.join(&latest).join("db/0/db");
            let Ok(_current) = File::open(db.join("CURRENT")) else {
                // It expired between its name and its pin: a reader that comes too late is told so.
                self.late.fetch_add(1, SeqCst);
                continue;
            };
            let number: u64 = latest.to_str().unwrap()[4..].parse().unwrap();
            let text = scan(&db, "default");
            assert!(text == self.texts.lock().unwrap()[&(w, number)], "{job:?} {number} is not what was stored");
            self.read.fetch_add(1, SeqCst);
        }
    }

    /// Kills a daemon and mounts again, at the places of a reader between two reads: what it has open by passthrough is not its business.
    fn killer(&self, daemon: &Mutex<Child>) {
        while !self.over.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1000 + self.dice(3000)));
            let _nobody = self.second.write().unwrap();
            let mut daemon = daemon.lock().unwrap();
            daemon.kill().unwrap();
            daemon.wait().unwrap();
            self.killed.fetch_add(1, SeqCst);
            *daemon = self.mount("mnt2");
        }
    }

    fn clone_goes_on(&self, clone: &Path, mut rows: usize) {
        for round in 0.. {
            if self.over.load(SeqCst) {
                return;
            }
            // Its own new rows, beside those that it was cloned with.
            load(clone, "default", 9_000_000 + round, 50);
            rows += 50;
            assert_eq!(scan(clone, "default").lines().count(), rows);
            if round % 5 == 4 {
                let clone = clone.to_str().unwrap();
                self.risk("cache-clone", &["-q", "snapshot", "--job", "clone", clone], 20, 100);
            }
        }
    }
}

fn tool_ok(mount: &Path) -> bool {
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
        seed: AtomicU64::new(u64::from(std::process::id())),
        second: RwLock::default(),
        completed: AtomicU64::new(0),
        killed: AtomicU64::new(0),
        swept: AtomicU64::new(0),
        read: AtomicU64::new(0),
        late: AtomicU64::new(0),
    };
    println!("seed {}", soak.seed.load(SeqCst));
    fs::create_dir(soak.desk.path("mnt2")).unwrap();
    // Every job has a first checkpoint before anybody expires or reads.
    let origin = soak.desk.path("origin");
    load(&origin, "default", 7, 3000);
    soak.risk("cache-origin", &["-q", "snapshot", "--job", "origin", origin.to_str().unwrap()], 0, 1);
    for w in 0..WRITERS {
        load(&soak.desk.path(&format!("db{w}")), "default", w as u64, 10);
        let text = scan(&soak.desk.path(&format!("db{w}")), "default");
        let db = soak.desk.path(&format!("db{w}"));
        let said = soak.risk(
            &format!("cache{w}"),
            &["-q", "snapshot", "--job", &format!("job{w}"), "--number", "1", db.to_str().unwrap()],
            0,
            1,
        );
        assert!(said.is_some());
        soak.texts.lock().unwrap().insert((w, 1), text);
    }
    let mut first = soak.mount("mnt");
    let second = Mutex::new(soak.mount("mnt2"));
    let clone: PathBuf = soak.desk.path("clone");
    let mnt = soak.desk.path("mnt");
    soak.risk(
        "cache-clone",
        &["-q", "restore", "origin/chk-1", clone.to_str().unwrap(), "--mount", mnt.to_str().unwrap()],
        0,
        1,
    );
    soak.risk("cache-origin", &["-q", "expire", "origin/chk-1"], 0, 1);
    std::thread::scope(|scope| {
        let s = &soak;
        let mut all = Vec::new();
        all.extend((0..WRITERS).map(|w| scope.spawn(move || s.writer(w))));
        all.extend((0..SWEEPERS).map(|n| scope.spawn(move || s.sweeper(n))));
        all.push(scope.spawn(move || s.reader("mnt", None)));
        all.push(scope.spawn(move || s.reader("mnt2", Some(&s.second))));
        let second = &second;
        all.push(scope.spawn(move || s.killer(second)));
        let clone = &clone;
        all.push(scope.spawn(move || s.clone_goes_on(clone, 3000)));
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
    let count = |c: &AtomicU64| c.load(SeqCst);
    println!(
        "{} completed, {} killed, {} blobs swept, {} databases read, {} readers came too late",
        count(&soak.completed),
        count(&soak.killed),
        count(&soak.swept),
        count(&soak.read),
        count(&soak.late)
    );
    assert!(soak.was_exercised());
    // Every checkpoint that is there is whole, whatever happened.
    let desk = &soak.desk;
    println!("{}", desk.ok(&["verify", "--read"]));
    for w in 0..WRITERS {
        let rows: Value = serde_json::from_str(&desk.ok(&["--json", "ls", &format!("job{w}")])).unwrap();
        for row in rows.as_array().unwrap() {
            let number = row["number"].as_u64().unwrap();
            let db = desk.path("mnt").join(format!("job{w}/chk-{number}/db/0/db"));
            assert!(scan(&db, "default") == soak.texts.lock().unwrap()[&(w, number)], "job{w}/{number}");
        }
    }
    for daemon in [&mut first, &mut second.lock().unwrap()] {
        assert!(std::process::Command::new("kill").arg(daemon.id().to_string()).status().unwrap().success());
        daemon.wait().unwrap();
    }
    // One round takes what is left; the next finds nothing.
    desk.ok(&["gc", "--delete", "--forget-all"]);
    let left: Value = serde_json::from_str(&desk.ok(&["--json", "gc"])).unwrap();
    assert_eq!(
        (left["doomed"]["blobs"].as_u64(), left["foreign"].as_array().map(Vec::len)),
        (Some(0), Some(0)),
        "{left}"
    );
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
