//! Work of the real program on a directory's store, with every call that a power cut could undo.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::model::{Kind, Model, Process};
use super::trace;
use crate::kit::soon;
use crate::tool::{Desk, PROGRAM, Said, database, load};

/// Files of a database.
pub type Files = BTreeMap<String, Vec<u8>>;

/// What a step is for.
#[derive(Debug, Clone)]
pub enum Effect {
    Nothing,
    /// From now on a checkpoint of job `app` is there: subtasks and their databases.
    Completes(u64, Vec<(&'static str, &'static str)>),
    /// It is no longer listed.
    Ends(u64),
    /// It is listed again.
    Shows(u64),
    /// A file stays as it is: nothing writes it again.
    Keeps(&'static str, &'static str),
    /// A directory holds a database.
    Restores(&'static str, &'static str),
}

/// A step that was taken: what may be so from `begun` on is so from `said` on.
#[derive(Debug)]
pub struct Ran {
    pub effect: Effect,
    pub begun: u64,
    pub said: u64,
}

/// What was done, and what must have come of it.
pub struct Scenario {
    pub name: &'static str,
    pub model: Model,
    pub ran: Vec<Ran>,
    pub databases: BTreeMap<&'static str, Files>,
    /// Caches that it used.
    pub caches: Vec<&'static str>,
    pub end: u64,
}

impl Scenario {
    /// Moments at which something had just begun or just ended.
    pub fn cuts(&self) -> Vec<u64> {
        let mut cuts: Vec<u64> = Vec::new();
        for inode in &self.model.inodes {
            let spans = inode.changes.iter().map(|c| c.0).chain(inode.entries.iter().map(|e| e.0));
            for span in spans.chain(inode.syncs.iter().map(|s| s.0)).filter(|s| s.begun > 1) {
                cuts.extend([span.begun + 1, span.ended + 1]);
            }
        }
        cuts.extend(self.ran.iter().map(|r| r.said + 1).filter(|c| *c > 1));
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }
}

/// A desk on which calls are recorded once it is armed.
struct Recorder {
    desk: Desk,
    model: Option<Model>,
    clock: u64,
    ran: Vec<Ran>,
    databases: BTreeMap<&'static str, Files>,
    caches: Vec<&'static str>,
}

impl Recorder {
    fn new(databases: &[(&'static str, u64, u64)]) -> Self {
        let desk = Desk::new();
        let mut all = BTreeMap::new();
        for (name, rounds, keys) in databases {
            let path = desk.path(name);
            for round in 0..*rounds {
                load(&path, "default", round, *keys);
            }
            all.insert(*name, database(&path));
        }
        Self { desk, model: None, clock: 10, ran: Vec::new(), databases: all, caches: vec!["cache"] }
    }

    /// From here on everything is recorded; what was done before is on the disk.
    fn arm(&mut self) {
        self.model = Some(Model::of(self.desk.root(), "db"));
    }

    fn step(&mut self, args: &[&str], effect: Effect) -> String {
        self.step_in("cache", args, effect)
    }

    fn step_in(&mut self, cache: &str, args: &[&str], effect: Effect) -> String {
        let mut command = self.desk.command(args);
        command.env("CKPTFS_CACHE", self.desk.path(cache));
        let (said, begun, said_at) = if self.model.is_some() {
            let log = self.log();
            let begun = self.clock + 1;
            let said: Said = trace::traced(&command, &log).output().unwrap().into();
            (said, begun, self.take(&log))
        } else {
            (command.output().unwrap().into(), 0, 0)
        };
        let out = said.ok();
        self.ran.push(Ran { effect, begun, said: said_at });
        out
    }

    fn log(&self) -> PathBuf {
        // Beside the desk: what is written there is no work.
        PathBuf::from(format!("{}.strace", self.desk.root().display()))
    }

    /// Takes a log in; when the process had first said something, or else when it ended.
    fn take(&mut self, log: &Path) -> u64 {
        let text = fs::read_to_string(log).unwrap();
        fs::remove_file(log).unwrap();
        let calls = trace::read(&text, &mut self.clock);
        let spoken = calls.iter().find(|c| c.name == "write" && c.args[0] == "1" && c.result > 0).map(|c| c.ended);
        Process::new(self.desk.root()).take(self.model.as_mut().unwrap(), &calls);
        self.clock += 10;
        spoken.unwrap_or(self.clock)
    }

    /// A mount by a traced daemon, while `work` uses it.
    fn mounted(&mut self, cache: &str, work: impl FnOnce(&Desk)) {
        let mut command = self.desk.command(&["mount", "mnt"]);
        command.env("CKPTFS_CACHE", self.desk.path(cache));
        let log = self.log();
        let mut command = if self.model.is_some() { trace::traced(&command, &log) } else { command };
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let point = self.desk.path("mnt/app");
        assert!(soon(|| point.exists() || child.try_wait().unwrap().is_some()), "the mount answers");
        work(&self.desk);
        self.desk.unmount();
        child.wait().unwrap();
        if self.model.is_some() {
            self.take(&log);
        }
    }

    fn end(mut self, name: &'static str) -> Scenario {
        let model = self.model.take().unwrap();
        same(&model, 0, self.desk.root());
        if fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&*self.desk.path("mnt").to_string_lossy()) {
            self.desk.unmount();
        }
        Scenario { name, model, ran: self.ran, databases: self.databases, caches: self.caches, end: self.clock }
    }
}

/// The model, with everything kept, is the disk: nothing that the program did has escaped it.
fn same(model: &Model, at: usize, path: &Path) {
    let inode = &model.inodes[at];
    match &inode.kind {
        Kind::Dir => {
            let there: Vec<_> = fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name()).collect();
            let work = |name: &&OsString| !name.to_string_lossy().starts_with("mnt");
            for name in there.iter().filter(work) {
                assert!(inode.names.contains_key(name), "{} is not in the model", path.join(name).display());
            }
            for (name, below) in inode.names.iter().filter(|(name, _)| work(name)) {
                assert!(there.contains(name), "{} is only in the model", path.join(name).display());
                same(model, *below, &path.join(name));
            }
        }
        Kind::Link(target) => assert_eq!(&fs::read_link(path).unwrap(), target),
        Kind::File => {
            assert!(fs::read(path).unwrap() == inode.live, "{} is another in the model", path.display());
            let attributes: BTreeMap<_, _> = super::model::attributes(path).into_iter().collect();
            assert_eq!(attributes, inode.attributes, "{}", path.display());
        }
    }
}

const ONE: (&str, &str) = ("db/0", "db1");
const TWO: (&str, &str) = ("db/0", "db2");
const THREE: (&str, &str) = ("db/0", "db3");

/// Databases: a table of its own blob each round, and small files in bundles.
const DATABASES: [(&str, u64, u64); 3] = [("db1", 1, 700), ("db2", 2, 700), ("db3", 1, 900)];

fn snapshot(recorder: &mut Recorder, number: u64, part: (&'static str, &'static str)) {
    let said = recorder.step(&["snapshot", "--job", "app", part.1], Effect::Completes(number, vec![part]));
    assert_eq!(said.trim(), format!("chk-{number}"));
}

fn first() -> Scenario {
    let mut r = Recorder::new(&DATABASES[..1]);
    r.arm();
    snapshot(&mut r, 1, ONE);
    r.end("first snapshot")
}

fn incremental() -> Scenario {
    let mut r = Recorder::new(&DATABASES[..2]);
    snapshot(&mut r, 1, ONE);
    r.arm();
    snapshot(&mut r, 2, TWO);
    snapshot(&mut r, 3, TWO);
    r.end("incremental snapshots")
}

fn processes() -> Scenario {
    let mut r = Recorder::new(&DATABASES);
    snapshot(&mut r, 1, ONE);
    r.arm();
    let part = |subtask| ["ack", "--job", "app", "--checkpoint", "2", "--operator", "db", "--subtask", subtask];
    r.step(&["open", "--job", "app", "--expect", "db=2"], Effect::Nothing);
    r.step(&[&part("0")[..], &["db2"]].concat(), Effect::Nothing);
    r.step(&[&part("1")[..], &["db3"]].concat(), Effect::Nothing);
    let parts = vec![("db/0", "db2"), ("db/1", "db3")];
    r.step(&["complete", "--job", "app", "--checkpoint", "2"], Effect::Completes(2, parts));
    r.end("several processes")
}

fn sweep() -> Scenario {
    let mut r = Recorder::new(&DATABASES);
    snapshot(&mut r, 1, ONE);
    snapshot(&mut r, 2, THREE);
    snapshot(&mut r, 3, TWO);
    r.arm();
    r.step(&["expire", "app/chk-1"], Effect::Ends(1));
    r.step(&["expire", "app/chk-2"], Effect::Ends(2));
    r.step(&["gc", "--delete", "--forget-all"], Effect::Nothing);
    snapshot(&mut r, 4, TWO);
    r.step(&["gc", "--delete", "--forget-all"], Effect::Nothing);
    r.end("sweep and forget")
}

fn life() -> Scenario {
    let mut r = Recorder::new(&DATABASES);
    snapshot(&mut r, 1, ONE);
    r.arm();
    r.step(&["open", "--job", "app", "--expect", "db=1"], Effect::Nothing);
    let ack = ["ack", "--job", "app", "--checkpoint", "2", "--operator", "db", "--subtask", "0", "db3"];
    r.step(&ack, Effect::Nothing);
    r.step(&["abort", "--job", "app", "--checkpoint", "2"], Effect::Nothing);
    // Adopts what the aborted one uploaded.
    snapshot(&mut r, 3, THREE);
    let limited = Effect::Keeps("cache/limits.json", r#"{"size":1073741824,"free":null}"#);
    r.step(&["warm", "app/chk-1", "--cache-size", "1GiB"], limited);
    r.step(&["hide", "app/chk-1"], Effect::Ends(1));
    r.step(&["unhide", "app/chk-1"], Effect::Shows(1));
    r.step(&["pin", "app/chk-1"], Effect::Nothing);
    r.step(&["expire", "app/chk-1"], Effect::Ends(1));
    r.step(&["gc", "--delete"], Effect::Nothing);
    r.step(&["unpin", "app/chk-1"], Effect::Nothing);
    r.end("abort and adopt, hide, pin")
}

fn lazy() -> Scenario {
    let mut r = Recorder::new(&DATABASES[..2]);
    snapshot(&mut r, 1, TWO);
    r.caches.push("cold");
    r.arm();
    let files = r.databases["db2"].clone();
    r.mounted("cold", |desk| {
        for (name, bytes) in &files {
            assert!(&fs::read(desk.mounted_db("chk-1").join(name)).unwrap() == bytes);
        }
        // Sealed by the thread behind.
        let files = || crate::tool::walk(&desk.path("cold/files"));
        let whole = || files().iter().any(|p| fs::metadata(p).unwrap().len() > 131_072);
        assert!(soon(whole), "no file is sealed: {:?} {:?}", files(), crate::tool::walk(&desk.path("cold/partial")));
        std::thread::sleep(Duration::from_millis(300));
    });
    r.end("lazy read and seal")
}

fn copy() -> Scenario {
    let mut r = Recorder::new(&DATABASES[..2]);
    snapshot(&mut r, 1, TWO);
    r.caches.push("cold");
    r.arm();
    r.step(&["restore", "app/chk-1", "out", "--copy"], Effect::Restores("out", "db2"));
    r.step_in("cold", &["warm", "app/chk-1"], Effect::Nothing);
    r.step_in("cold", &["restore", "app/chk-1", "out2", "--copy"], Effect::Restores("out2", "db2"));
    r.end("copy and warm")
}

fn clone() -> Scenario {
    let mut r = Recorder::new(&DATABASES[..2]);
    snapshot(&mut r, 1, TWO);
    r.caches.push("cold");
    // Its own cache is not looked at, and its pin is there before anything is recorded.
    let mut daemon = r.desk.command(&["mount", "mnt", "--daemon"]);
    let said: Said = daemon.env("CKPTFS_CACHE", r.desk.path("mnt-cache")).output().unwrap().into();
    said.ok();
    fs::read(r.desk.mounted_db("chk-1").join("CURRENT")).unwrap();
    r.arm();
    r.step_in("cold", &["restore", "app/chk-1", "out", "--mount", "mnt"], Effect::Restores("out", "db2"));
    r.step_in("cold", &["restore", "--settle", "out"], Effect::Restores("out", "db2"));
    r.step(&["restore", "app/chk-1", "out2", "--mount", "mnt"], Effect::Restores("out2", "db2"));
    r.end("clone and settle")
}

/// A name, and how it is done.
type Work = (&'static str, fn() -> Scenario);

/// Every one.
pub const ALL: [Work; 8] = [
    ("first", first),
    ("incremental", incremental),
    ("processes", processes),
    ("sweep", sweep),
    ("life", life),
    ("lazy", lazy),
    ("copy", copy),
    ("clone", clone),
];

/// The program on the directories of an image.
pub fn program(root: &Path, cache: &str, args: &[&str]) -> Said {
    let mut command = Command::new(PROGRAM);
    for (name, _) in std::env::vars_os() {
        if ["CKPTFS_", "AWS_", "XDG_"].iter().any(|p| name.to_string_lossy().starts_with(p)) {
            command.env_remove(name);
        }
    }
    command.args(args).current_dir(root).stdin(Stdio::null()).env("HOME", root);
    command.env("CKPTFS_STORE", format!("file://{}", root.join("store").display()));
    command.env("CKPTFS_CACHE", root.join(cache)).output().unwrap().into()
}
