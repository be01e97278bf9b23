//! Those who write, sweep, read, restore and kill.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;

use super::{KEEP, Soak, WRITERS, digest};
use crate::tool::{load, scan, tool};

/// Snapshots of a database until it is deleted and begun anew: then other tables lie under the names of the old ones.
const ROUNDS: u64 = 40;

/// All keys and values as `ldb` prints them, where it can.
fn try_scan(db: &Path) -> Option<String> {
    let output = Command::new("ldb").arg(format!("--db={}", db.display())).arg("scan").output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

impl Soak {
    pub(super) fn writer(&self, w: usize) {
        let db = self.desk.path(&format!("db{w}"));
        let (job, cache) = (format!("job{w}"), format!("cache{w}"));
        let mut number = 1;
        for round in 1.. {
            if !self.goes_on() {
                return;
            }
            if round % ROUNDS == 0 {
                fs::remove_dir_all(&db).unwrap();
                self.counts.add("databases begun anew", 1);
            }
            load(&db, "default", (w as u64) * 1_000_000 + round, 300);
            if round % 4 == 3 {
                tool("ldb", &[&format!("--db={}", db.display()), "compact"]);
            }
            number += 1;
            self.texts.lock().unwrap().insert((w, number), digest(&scan(&db, "default")));
            let n = number.to_string();
            let args = ["-q", "snapshot", "--job", &job, "--number", &n, db.to_str().unwrap()];
            if self.risk(&cache, &args, 30, 120).is_some() {
                self.counts.add("checkpoints completed by snapshot", 1);
            }
        }
    }

    pub(super) fn sweeper(&self, s: usize) {
        let cache = format!("cache-sweeper{s}");
        while self.goes_on() {
            for w in 0..WRITERS {
                // A job that has no checkpoint yet has nothing to expire.
                self.risk(&cache, &["-q", "expire", &format!("job{w}"), "--keep", KEEP], 10, 40);
            }
            if let Some(said) = self.risk(&cache, &["--json", "-q", "gc", "--delete", "--forget-all"], 30, 80) {
                let done: Value = serde_json::from_str(&said).unwrap();
                self.counts.add("sweeps", 1);
                self.counts.add("blobs swept", done["deleted"]["blobs"].as_u64().unwrap());
            }
        }
    }

    /// Opens databases as RocksDB does, CURRENT first, and reads all of each. Where the daemon may be killed, what it then fails is no
    /// fault; what is read is right even so.
    pub(super) fn reader(&self, mount: &str, killed: bool) {
        while self.goes_on() {
            let (healed, kills) = (self.counts.of("mounts healed"), self.counts.of("kills of mount"));
            let was_killed = || killed && (healed != kills || self.counts.of("kills of mount") != kills);
            let w = usize::try_from(self.dice(WRITERS as u64)).unwrap();
            let job = self.desk.path(mount).join(format!("job{w}"));
            let Ok(latest) = fs::read_link(job.join("latest")) else { continue };
            let db = job.join(&latest).join("db/0/db");
            let Ok(_current) = File::open(db.join("CURRENT")) else {
                // It expired between its name and its pin: a reader that comes too late is told so.
                self.counts.add("readers that came too late", 1);
                continue;
            };
            let number: u64 = latest.to_str().unwrap()[4..].parse().unwrap();
            let Some(text) = try_scan(&db) else {
                assert!(was_killed(), "{} cannot be read", db.display());
                self.counts.add("readers that a killed daemon ended", 1);
                continue;
            };
            assert!(
                digest(&text) == self.texts.lock().unwrap()[&(w, number)],
                "{job:?} {number} is not what was stored"
            );
            self.counts.add("databases read over a mount", 1);
            if was_killed() {
                self.counts.add("databases read over a mount whose daemon was killed meanwhile", 1);
            }
        }
    }

    /// Kills a daemon under those who read, and mounts again.
    pub(super) fn killer(&self, daemon: &Mutex<Child>) {
        while self.goes_on() {
            std::thread::sleep(Duration::from_millis(1000 + self.dice(2000)));
            let mut daemon = daemon.lock().unwrap();
            self.counts.add("kills of mount", 1);
            daemon.kill().unwrap();
            daemon.wait().unwrap();
            *daemon = self.mount("mnt2");
            self.counts.add("mounts healed", 1);
        }
    }

    /// Copies, and clones that are settled, of the newest checkpoints.
    pub(super) fn restorer(&self) {
        let mnt = self.desk.path("mnt");
        for round in 0_u64.. {
            if !self.goes_on() {
                return;
            }
            let w = usize::try_from(self.dice(WRITERS as u64)).unwrap();
            let rows: Value = serde_json::from_str(&self.desk.ok(&["--json", "ls", &format!("job{w}")])).unwrap();
            let Some(number) = rows.as_array().unwrap().iter().filter_map(|r| r["number"].as_u64()).max() else {
                continue;
            };
            let (from, to) = (format!("job{w}/chk-{number}"), self.desk.path("restored"));
            let directory = to.to_str().unwrap();
            let how: &[&str] = if round % 2 == 0 { &["--copy"] } else { &["--mount", mnt.to_str().unwrap()] };
            let args = [&["-q", "restore", &from, directory], how].concat();
            let mut told = self.attempt("cache-restorer", &args, 15, 60);
            if round % 2 == 1 && told.as_ref().is_some_and(|t| t.code == 0) {
                // A settle that was killed is gone on with.
                let settle = ["-q", "restore", "--settle", directory];
                told = self
                    .attempt("cache-restorer", &settle, 30, 60)
                    .or_else(|| self.attempt("cache-restorer", &settle, 0, 1));
            }
            match told {
                None => {}
                Some(said) if said.code == 0 => {
                    let text = digest(&scan(&to, "default"));
                    assert!(text == self.texts.lock().unwrap()[&(w, number)], "{from} restored otherwise than stored");
                    self.counts.add("databases restored", 1);
                }
                // Three newer ones were completed and it was swept meanwhile.
                Some(said) => {
                    assert!(said.err.contains("expired") || said.err.contains("is gone"), "{args:?}: {}", said.err);
                    self.counts.add("restores that came too late", 1);
                }
            }
            let _ = fs::remove_dir_all(&to);
        }
    }

    pub(super) fn clone_goes_on(&self, clone: &Path, mut rows: usize) {
        for round in 0.. {
            if !self.goes_on() {
                return;
            }
            // Its own new rows, beside those that it was cloned with.
            load(clone, "default", 9_000_000 + round, 50);
            rows += 50;
            assert_eq!(scan(clone, "default").lines().count(), rows);
            if round % 5 == 4 {
                let clone = clone.to_str().unwrap();
                if self.risk("cache-clone", &["-q", "snapshot", "--job", "clone", clone], 20, 100).is_some() {
                    self.counts.add("checkpoints of a clone", 1);
                }
            }
            // Not ever larger: what is read is all of it, each time.
            if rows > 20_000 {
                std::thread::sleep(Duration::from_secs(2));
            }
        }
    }
}
