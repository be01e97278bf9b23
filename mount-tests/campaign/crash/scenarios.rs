//! The eight reference scenarios: how each begins, and its steps. Each step is a run that is crashed at every one of its calls.

use std::fs;
use std::path::Path;

use crate::tool::{Said, load, tool};
use crate::trace::{self, Act, Watch};

use super::yard::{Yard, copy, digests};

/// How a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// A verb of the program.
    Verb,
    /// What has no verb: this test binary does it by the library.
    Helper,
    /// A daemon, in the foreground, with somebody who reads what it mounts.
    Mount,
}

/// Something that is done to a yard, or why it could not be.
pub type Again = fn(&Yard) -> Result<(), String>;

pub struct Step {
    pub name: &'static str,
    pub how: How,
    pub args: fn(&Yard) -> Vec<String>,
    /// What it printed is kept for later steps.
    pub keeps: bool,
    /// What a person does after it was cut off, instead of the same once more.
    pub again: Option<Again>,
}

/// A subtask, and the directory that it stores.
pub type Made = (&'static str, &'static str);

pub struct Scenario {
    pub name: &'static str,
    pub cache: &'static str,
    /// Makes the state before the first step.
    pub prepare: fn(&Yard, u64),
    pub steps: &'static [Step],
    /// Subtasks of every checkpoint that the steps make, and their directories.
    pub makes: &'static [Made],
    /// Checkpoints of the truth that are dead at the end.
    pub ends: &'static [&'static str],
    /// The steps need a mount of the store, by another cache.
    pub mounted: bool,
    /// What else holds at the end.
    pub finally: fn(&Yard) -> Result<(), String>,
}

const fn verb(name: &'static str, args: fn(&Yard) -> Vec<String>) -> Step {
    Step { name, how: How::Verb, args, keeps: false, again: None }
}

fn words(args: &[&str]) -> Vec<String> {
    std::iter::once("--quiet").chain(args.iter().copied()).map(str::to_owned).collect()
}

fn snapshot(y: &Yard, db: &str) -> Vec<String> {
    words(&["snapshot", "--job", "app", &y.text(db)])
}

fn nothing(_: &Yard) -> Result<(), String> {
    Ok(())
}

/// What most of them are.
const PLAIN: Scenario = Scenario {
    name: "",
    cache: "cache",
    prepare: databases,
    steps: &[],
    makes: &[],
    ends: &[],
    mounted: false,
    finally: nothing,
};

pub const SCENARIOS: [Scenario; 8] = [
    Scenario {
        name: "first snapshot",
        steps: &[verb("snapshot", |y| snapshot(y, "db-a"))],
        makes: &[("db/0", "db-a")],
        ..PLAIN
    },
    Scenario {
        name: "incremental",
        prepare: |y, seed| {
            databases(y, seed);
            take(y, "db-a", 1);
            take(y, "db-b", 2);
        },
        steps: &[verb("snapshot", |y| snapshot(y, "db-c"))],
        makes: &[("db/0", "db-c")],
        ..PLAIN
    },
    Scenario {
        name: "several processes",
        prepare: |y, seed| {
            databases(y, seed);
            take(y, "db-a", 1);
        },
        steps: &[
            Step { keeps: true, ..verb("open", |_| words(&["open", "--job", "app", "--expect", "db=2"])) },
            verb("ack 0", |y| ack(y, 0, "db-b")),
            verb("ack 1", |y| ack(y, 1, "db-c")),
            verb("complete", |y| words(&["complete", "--job", "app", "--checkpoint", &number(y)])),
        ],
        makes: &[("db/0", "db-b"), ("db/1", "db-c")],
        ..PLAIN
    },
    Scenario {
        name: "abort and adopt",
        prepare: |y, seed| {
            databases(y, seed);
            take(y, "db-a", 1);
            open_and_ack(y, "db-b");
            cut_off(y, "db-c");
        },
        steps: &[
            verb("abort", |_| words(&["abort", "--job", "app", "--checkpoint", "2"])),
            verb("snapshot", |y| snapshot(y, "db-c")),
        ],
        makes: &[("db/0", "db-c")],
        finally: |y| aborted(y, &[2, 3]),
        ..PLAIN
    },
    Scenario {
        name: "take-over",
        prepare: |y, seed| {
            databases(y, seed);
            take(y, "db-a", 1);
            open_and_ack(y, "db-b");
        },
        steps: &[
            Step { how: How::Helper, ..verb("take over", |_| vec!["take-over".to_owned()]) },
            verb("snapshot", |y| snapshot(y, "db-b")),
        ],
        makes: &[("db/0", "db-b")],
        finally: |y| aborted(y, &[2]),
        ..PLAIN
    },
    Scenario {
        name: "sweep and forget",
        prepare: |y, seed| {
            databases(y, seed);
            take(y, "db-a", 1);
            take(y, "db-b", 2);
            cut_off(y, "db-d");
            take(y, "db-c", 4);
        },
        steps: &[
            verb("expire", |_| words(&["expire", "app", "--keep", "1"])),
            verb("gc", |_| words(&["gc", "--delete", "--forget-all"])),
        ],
        ends: &["app/1", "app/2"],
        ..PLAIN
    },
    Scenario {
        name: "lazy read and seal",
        cache: "cold",
        prepare: |y, seed| {
            databases(y, seed);
            take(y, "db-a", 1);
            take(y, "db-b", 2);
        },
        steps: &[Step { how: How::Mount, ..verb("mount", |y| words(&["mount", &y.text("mnt")])) }],
        ..PLAIN
    },
    Scenario {
        name: "clone and settle",
        cache: "cold",
        prepare: |y, seed| {
            databases(y, seed);
            take(y, "db-a", 1);
            take(y, "db-b", 2);
        },
        steps: &[
            Step {
                again: Some(clone_again),
                ..verb("clone", |y| words(&["restore", "app/chk-2/db/0", &y.text("clone"), "--mount", &y.text("mnt")]))
            },
            verb("settle", |y| words(&["restore", "--settle", &y.text("clone")])),
        ],
        mounted: true,
        finally: |y| {
            same(y, "clone", "db-b")?;
            let link = |e: fs::DirEntry| e.file_type().unwrap().is_symlink().then(|| e.file_name());
            match fs::read_dir(y.path("clone")).unwrap().find_map(|e| link(e.unwrap())) {
                Some(link) => Err(format!("{link:?} of the clone is a link still")),
                None => Ok(()),
            }
        },
        ..PLAIN
    },
];

/// Four databases, each the one before and more: new tables large and small, a compaction, a grown MANIFEST.
fn databases(y: &Yard, seed: u64) {
    let grow = |from: Option<&str>, to: &str| {
        if let Some(from) = from {
            copy(&y.path(from), &y.path(to));
        }
    };
    // Other rows, and more of them: other sizes.
    let (seed, rows) = (seed * 10, 800 + seed % 50 * 37);
    load(&y.path("db-a"), "default", seed + 1, rows);
    load(&y.path("db-a"), "default", seed + 2, 60);
    grow(Some("db-a"), "db-b");
    load(&y.path("db-b"), "default", seed + 3, rows);
    grow(Some("db-b"), "db-c");
    tool("ldb", &[&format!("--db={}", y.text("db-c")), "compact"]);
    load(&y.path("db-c"), "default", seed + 4, rows + 100);
    grow(Some("db-c"), "db-d");
    load(&y.path("db-d"), "default", seed + 5, rows);
    for db in ["db-a", "db-b", "db-c", "db-d"] {
        y.learn(db);
    }
}

fn take(y: &Yard, db: &str, number: u64) {
    let cold = Yard::at(&y.root, "cache");
    assert_eq!(cold.run(&snapshot(y, db)).ok().trim(), format!("chk-{number}"));
    y.completed(&format!("app/{number}"), &[("db/0", db)]);
}

fn open_and_ack(y: &Yard, db: &str) {
    let said = y.run(&words(&["open", "--job", "app", "--expect", "db=1"])).ok();
    keep(y, &said);
    y.run(&ack(y, 0, db)).ok();
}

/// A snapshot whose uploads are all there, and that died before its ack.
fn cut_off(y: &Yard, db: &str) {
    let mut command = y.command(&snapshot(y, db));
    let store = y.path("store/task");
    let limit = std::time::Duration::from_secs(20);
    let ran = trace::run(&mut command, &[&store], Watch::Changes, limit, &mut |call| {
        if call.name == "linkat" { Act::KillBefore } else { Act::Go }
    });
    assert!(ran.killed, "{}", ran.words());
}

pub fn keep(y: &Yard, out: &str) {
    fs::write(y.path("number"), out.trim().trim_start_matches("chk-")).unwrap();
}

fn number(y: &Yard) -> String {
    fs::read_to_string(y.path("number")).unwrap()
}

fn ack(y: &Yard, subtask: u32, db: &str) -> Vec<String> {
    let (number, subtask) = (number(y), subtask.to_string());
    words(&["ack", "--job", "app", "--checkpoint", &number, "--operator", "db", "--subtask", &subtask, &y.text(db)])
}

/// The directory appears whole or not at all.
fn clone_again(y: &Yard) -> Result<(), String> {
    if y.path("clone").exists() {
        return same(y, "clone", "db-b");
    }
    let step = &SCENARIOS[7].steps[0];
    let said: Said = y.run(&(step.args)(y));
    if said.code == 0 { Ok(()) } else { Err(format!("no clone can be made: {}", said.err)) }
}

/// What is read below a directory is what another one holds.
pub fn same(y: &Yard, dir: &str, truth: &str) -> Result<(), String> {
    let mut found = digests(&y.path(dir));
    found.retain(|name, _| !name.starts_with("ckptfs") && !name.starts_with(".ckptfs"));
    let wanted = &y.truth().directories[truth];
    if found == *wanted { Ok(()) } else { Err(format!("{dir} is not {truth}: {}", difference(&found, wanted))) }
}

pub fn difference(found: &super::yard::Files, wanted: &super::yard::Files) -> String {
    let names = found.keys().chain(wanted.keys()).collect::<std::collections::BTreeSet<_>>();
    let differ: Vec<_> = names.into_iter().filter(|n| found.get(*n) != wanted.get(*n)).collect();
    format!("{differ:?} differ")
}

fn aborted(y: &Yard, numbers: &[u64]) -> Result<(), String> {
    for n in numbers {
        let record = y.record(&format!("outcome/app/{n:020}.json"));
        let text = String::from_utf8(record.unwrap_or_default()).unwrap();
        if !text.contains("aborted") {
            return Err(format!("app/{n} is not aborted: {text:?}"));
        }
    }
    Ok(())
}

/// Whether something is mounted here.
pub fn is_mounted(point: &Path) -> bool {
    ckptfs::local::mounts::is_mount_point(point).unwrap_or(true)
}
