//! `snapshot` is killed again and again, in every phase of its life: what is listed is whole, the next one succeeds, and nothing is
//! uploaded twice.
//!
//! The phases are told apart from outside, by what the dead process left in the store: no intent (open), an intent and no blob of its
//! uid (hash), some of its blobs (blob), all of them but no bundle (bundle), a bundle and no task manifest (ack), a task manifest and no
//! outcome (outcome). To hit each of them, the test watches the store's directory and kills at the sight of what begins the phase.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ckptfs::types::Digest;
use serde_json::Value;

use crate::kit::noise;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ckptfs");
const KILLS: usize = 200;
const EACH: usize = 10;

/// Attempts after which the histogram must be full: a machine that is too slow to hit a phase fails the test.
const MOST: usize = 3 * KILLS;

/// SSTs that are new in a round, and their length: a few blobs, of a few milliseconds each.
const NEW_SSTS: u64 = 4;
const SST: usize = 600_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    Hash,
    Blob,
    Bundle,
    Ack,
    Outcome,
    Done,
}

const PHASES: [Phase; 6] = [Phase::Open, Phase::Hash, Phase::Blob, Phase::Bundle, Phase::Ack, Phase::Outcome];

struct Field {
    temp: tempfile::TempDir,
    /// SSTs of the database: name and digest.
    ssts: BTreeMap<String, Digest>,
    next_sst: u64,
    completed: BTreeSet<u64>,
}

impl Field {
    fn new() -> Self {
        // The target directory lies on a disk that keeps xattrs; /tmp may not.
        let temp = tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
        let db = temp.path().join("db");
        fs::create_dir(&db).unwrap();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("mount-tests/fixtures/rocksdb/wal-only-live");
        for name in ["CURRENT", "MANIFEST-000005"] {
            fs::copy(fixture.join(name), db.join(name)).unwrap();
        }
        Self { temp, ssts: BTreeMap::new(), next_sst: 100, completed: BTreeSet::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// The database lives on: new SSTs come, the oldest go.
    fn change(&mut self) {
        for _ in 0..NEW_SSTS {
            let name = format!("{:06}.sst", self.next_sst);
            let bytes = noise(self.next_sst, SST);
            fs::write(self.path("db").join(&name), &bytes).unwrap();
            self.ssts.insert(name, Digest::of(&bytes));
            self.next_sst += 1;
        }
        while self.ssts.len() as u64 > 3 * NEW_SSTS {
            let (name, _) = self.ssts.pop_first().unwrap();
            fs::remove_file(self.path("db").join(name)).unwrap();
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        let store = format!("file://{}", self.path("store").display());
        command.arg("--quiet").args(["--store", &store, "--cache"]).arg(self.path("cache")).args(args);
        command
    }

    fn start(&self) -> Child {
        let mut command = self.command(&["snapshot", "--job", "app"]);
        command.arg(self.path("db")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.command(args).arg("--json").output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Listed checkpoints. One that is seen for the first time is verified.
    fn listed(&mut self) -> BTreeSet<u64> {
        let listed: BTreeSet<u64> =
            self.json(&["ls", "app"]).as_array().unwrap().iter().map(|c| c["number"].as_u64().unwrap()).collect();
        for n in listed.difference(&self.completed) {
            let verified = self.json(&["verify", &format!("app/chk-{n}")]);
            assert_eq!(verified["findings"].as_array().unwrap().len(), 0, "{verified}");
            assert_eq!(verified["checkpoints"], 1, "{verified}");
        }
        listed
    }

    fn record(&self, kind: &str, number: u64) -> PathBuf {
        self.path("store").join(kind).join("app").join(format!("{number:020}.json"))
    }

    fn task(&self, number: u64) -> PathBuf {
        self.path("store").join(format!("task/app/{number:020}"))
    }

    fn is_completed(&self, number: u64) -> bool {
        fs::read_to_string(self.record("outcome", number)).is_ok_and(|o| o.contains("\"completed\""))
    }

    /// Uid of an open number, once its intent is there.
    fn uid(&self, number: u64) -> Option<String> {
        let text = fs::read_to_string(self.record("intent", number)).ok()?;
        let intent: Value = serde_json::from_str(text.lines().nth(1)?).unwrap();
        Some(intent["place"]["uid"].as_str()?.to_owned())
    }

    /// How many of the database's SSTs have a blob of this uid.
    fn blobs_of(&self, uid: &str) -> usize {
        let blob = |d: &Digest| {
            let hex = d.to_hex();
            self.path("store/blobs").join(&hex[..2]).join(format!("{hex}-{uid}"))
        };
        self.ssts.values().filter(|d| blob(d).exists()).count()
    }

    /// All blobs of the store: digest to uids.
    fn blobs(&self) -> BTreeMap<String, Vec<String>> {
        let mut blobs: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for dir in fs::read_dir(self.path("store/blobs")).into_iter().flatten() {
            for blob in fs::read_dir(dir.unwrap().path()).unwrap() {
                let name = blob.unwrap().file_name().into_string().unwrap();
                let (digest, uid) = name.split_once('-').unwrap();
                blobs.entry(digest.to_owned()).or_default().push(uid.to_owned());
            }
        }
        blobs
    }

    /// Waits until the phase begins or the process ends.
    fn wait_for(&self, phase: Phase, number: u64, new: usize, child: &mut Child) {
        let mut uid = None;
        loop {
            if uid.is_none() {
                uid = self.uid(number);
            }
            let sent = || uid.as_ref().map_or(0, |uid| self.blobs_of(uid));
            let begun = match phase {
                Phase::Open => return,
                Phase::Hash => uid.is_some(),
                Phase::Blob => sent() > 0,
                Phase::Bundle => sent() >= new,
                Phase::Ack => self.task(number).exists(),
                Phase::Outcome | Phase::Done => self.task(number).join("db/0.json").exists(),
            };
            if begun || child.try_wait().unwrap().is_some() {
                return;
            }
        }
    }

    /// What the process had reached when it died.
    fn reached(&self, number: u64, new: usize) -> Phase {
        let Some(uid) = self.uid(number) else { return Phase::Open };
        let own = self.blobs().values().filter(|uids| uids.contains(&uid)).count();
        let sent = self.blobs_of(&uid);
        if self.record("outcome", number).exists() {
            Phase::Done
        } else if self.task(number).join("db/0.json").exists() {
            Phase::Outcome
        } else if own > sent {
            Phase::Ack
        } else if sent >= new {
            Phase::Bundle
        } else if sent > 0 {
            Phase::Blob
        } else {
            Phase::Hash
        }
    }
}

fn kill(mut child: Child) {
    let _ = child.kill();
    child.wait().unwrap();
}

#[test]
fn a_snapshot_killed_at_any_point_is_never_seen_and_costs_nothing_twice() {
    let begun = Instant::now();
    let mut field = Field::new();
    field.change();
    assert!(field.start().wait().unwrap().success(), "the first one makes the store");
    field.completed = field.listed();
    assert_eq!(field.completed.len(), 1);
    let mut histogram: BTreeMap<Phase, usize> = BTreeMap::new();
    let (mut kills, mut again, mut attempts, mut number) = (0, 0, 0, 2);
    while kills + again < KILLS || PHASES.iter().any(|p| histogram.get(p).copied().unwrap_or(0) < EACH) {
        attempts += 1;
        assert!(attempts <= MOST, "the phases could not be hit: {histogram:?}");
        field.change();
        let before: BTreeSet<String> = field.blobs().into_keys().collect();
        // The phase that was hit least so far.
        let want = *PHASES.iter().min_by_key(|p| histogram.get(p).copied().unwrap_or(0)).unwrap();
        let mut child = field.start();
        if want == Phase::Open {
            std::thread::sleep(Duration::from_micros(500 * (attempts as u64 % 16)));
        }
        field.wait_for(want, number, NEW_SSTS as usize, &mut child);
        kill(child);
        let reached = field.reached(number, NEW_SSTS as usize);
        *histogram.entry(reached).or_default() += 1;
        kills += usize::from(reached != Phase::Done);
        number += u64::from(reached != Phase::Open);
        // Every third time the one that takes over is killed as well, so that what was adopted is adopted again.
        if reached != Phase::Done && attempts % 3 == 0 {
            let mut child = field.start();
            field.wait_for(PHASES[attempts % 6], number, NEW_SSTS as usize, &mut child);
            kill(child);
            again += usize::from(!field.record("outcome", number).exists());
            number += u64::from(field.uid(number).is_some());
        }
        let listed = field.listed();
        let done = (1..number).filter(|n| field.is_completed(*n)).collect::<BTreeSet<u64>>();
        assert_eq!(listed, done, "what is listed is what was published");
        field.completed = listed;
        let left: BTreeSet<String> = field.blobs().into_keys().filter(|d| !before.contains(d)).collect();

        assert!(field.start().wait().unwrap().success(), "the next snapshot succeeds after {reached:?}");
        let listed = field.listed();
        assert!(listed.contains(&number) && listed.len() == field.completed.len() + 1, "{listed:?}");
        field.completed = listed;
        number += 1;
        let blobs = field.blobs();
        assert!(left.iter().all(|d| blobs.contains_key(d)), "uploads are given up, never deleted");
        let twice: Vec<_> = blobs.iter().filter(|(_, uids)| uids.len() > 1).collect();
        assert!(twice.is_empty(), "uploaded again after a kill in {reached:?}: {twice:?}");
        for digest in field.ssts.values() {
            assert!(blobs.contains_key(&digest.to_hex()));
        }
    }
    let verified = field.json(&["verify", "--read", "app"]);
    assert_eq!(verified["findings"].as_array().unwrap().len(), 0, "{verified}");
    assert_eq!(verified["checkpoints"], field.completed.len(), "{verified}");
    println!("{} kills in {:.0?}, {again} of them of one that adopted: {histogram:?}", kills + again, begun.elapsed());
}
