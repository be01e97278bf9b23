//! A job that is followed: its checkpoints come one after the other, Flink deletes the old ones, and the follower is killed in between.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ckptfs::engine::import::{ImportRequest, import};
use ckptfs::engine::{Session, SessionOptions, Silent};
use ckptfs::error::{Error, Kind};
use ckptfs::flink::found;
use ckptfs::flink::place::Resolver;
use ckptfs::flink::plan::plan;
use ckptfs::format::{CheckpointKind, ExpectedOperator, Labels};
use ckptfs::store::{SourceUrl, Sources};
use ckptfs::types::Name;

use super::super::tool::Desk;
use super::truth::{Checkpoint, Tree, trees};

/// A job's directory that is written as Flink does.
struct Job {
    tree: Tree,
    at: PathBuf,
    desk: Desk,
}

/// Killed when the test fails.
struct Follower(Child);

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Job {
    fn new() -> Self {
        let desk = Desk::new();
        let tree = trees().into_iter().find(|t| t.name == "incr-p2").unwrap();
        let name = tree.checkpoints()[0].directory.parent().unwrap().file_name().unwrap().to_owned();
        Self { at: desk.path("checkpoints").join(name), tree, desk }
    }

    fn follow(&self, more: &[&str]) -> Follower {
        let args = [&["import", "flink", self.at.to_str().unwrap(), "--job", "j", "--follow"], more].concat();
        let log = fs::File::options().create(true).append(true).open(self.desk.path("follow.log")).unwrap();
        let out = log.try_clone().unwrap();
        Follower(self.desk.command(&args).stdout(Stdio::from(out)).stderr(Stdio::from(log)).spawn().unwrap())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.desk.path("follow.log")).unwrap_or_default()
    }

    /// Files first, `_metadata` last.
    fn complete(&self, checkpoint: &Checkpoint, without: Option<&Path>) {
        for file in checkpoint.files() {
            let (from, to) = (self.tree.root.join(&file), self.at.parent().unwrap().join(&file));
            if !to.exists() && without.is_none_or(|w| w != Path::new(&file)) {
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::copy(from, to).unwrap();
            }
        }
        let to = self.at.join(format!("chk-{}", checkpoint.number));
        fs::create_dir_all(&to).unwrap();
        fs::copy(checkpoint.directory.join("_metadata"), to.join(".inprogress")).unwrap();
        fs::rename(to.join(".inprogress"), to.join("_metadata")).unwrap();
    }

    /// Deletes a checkpoint, and what none of the others needs.
    fn subsume(&self, checkpoint: &Checkpoint, others: &[Checkpoint]) {
        fs::remove_dir_all(self.at.join(format!("chk-{}", checkpoint.number))).unwrap();
        for file in checkpoint.files() {
            if !others.iter().any(|other| other.files().contains(&file)) {
                let _ = fs::remove_file(self.at.parent().unwrap().join(&file));
            }
        }
    }

    fn listed(&self) -> Vec<u64> {
        let told = self.desk.run(&["ls", "j"]).out;
        told.lines().filter_map(|line| line.split(' ').next()?.strip_prefix("chk-")?.parse().ok()).collect()
    }

    #[track_caller]
    fn wait_for(&self, what: &str, there: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !there(self) {
            assert!(begun.elapsed() < Duration::from_secs(60), "no {what}: {:?}\n{}", self.listed(), self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn a_job_is_followed_over_kills_and_deletions() {
    let job = Job::new();
    let checkpoints = job.tree.checkpoints();
    let mut follower = job.follow(&[]);
    job.wait_for("word that it waits", |job| job.log().contains("waiting for"));
    let half = checkpoints.len() / 2;
    for (n, checkpoint) in checkpoints.iter().enumerate() {
        if n == half {
            // At whatever it is doing: what it had begun, the next one goes on with.
            drop(follower);
            follower = job.follow(&["--keep", "2"]);
        }
        job.complete(checkpoint, None);
        let number = checkpoint.number;
        job.wait_for(&format!("chk-{number}"), |job| job.listed().contains(&number));
        if n > 0 {
            job.subsume(&checkpoints[n - 1], &checkpoints[n..]);
        }
    }
    job.wait_for("retention", |job| job.listed().len() == 2);
    drop(follower);
    let last: Vec<u64> = checkpoints.iter().rev().take(2).map(|c| c.number).collect();
    assert_eq!(job.listed().iter().filter(|n| last.contains(n)).count(), 2, "{:?}", job.listed());
    assert!(job.desk.ok(&["gc", "--delete"]).len() > 1);
    job.desk.ok(&["verify", "--read"]);
}

#[test]
fn a_race_that_is_lost_is_told_and_the_next_checkpoint_is_whole() {
    let job = Job::new();
    let checkpoints = job.tree.checkpoints();
    let [.., first, second] = checkpoints.as_slice() else { panic!("two checkpoints") };
    let only: Vec<String> = first.files().into_iter().filter(|f| !second.files().contains(f)).collect();
    let follower = job.follow(&[]);
    job.complete(first, Some(Path::new(only.iter().find(|f| f.contains("/shared/")).unwrap())));
    let number = first.number;
    job.wait_for("word of what is missing", |job| job.log().contains(&format!("j/chk-{number} is not taken in yet")));
    fs::remove_dir_all(job.at.join(format!("chk-{number}"))).unwrap();
    job.complete(second, None);
    job.wait_for("the next one", |job| job.listed() == [second.number]);
    job.wait_for("word of the lost race", |job| job.log().contains(&format!("j/chk-{number} was missed")));
    drop(follower);
    assert!(!job.listed().contains(&number));
    job.desk.ok(&["verify", "--read"]);
}

#[test]
fn an_import_that_was_killed_is_gone_on_with() {
    let job = Job::new();
    let checkpoint = job.tree.checkpoints().pop().unwrap();
    job.complete(&checkpoint, None);
    let at = job.at.join(format!("chk-{}", checkpoint.number));
    let args = ["import", "flink", at.to_str().unwrap(), "--job", "j"];
    let mut kills = 0;
    for delay in (10..).step_by(15).map(Duration::from_millis) {
        let mut child = job.desk.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(delay);
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    assert!(kills > 0, "it was never killed");
    job.desk.ok(&args);
    assert_eq!(job.listed(), [checkpoint.number]);
    job.desk.ok(&["verify", "--read"]);
    assert_eq!(job.desk.ok(&args).trim(), format!("j/chk-{}", checkpoint.number));
}

#[test]
fn what_was_begun_and_is_gone_does_not_stay_open() {
    let job = Job::new();
    let checkpoints = job.tree.checkpoints();
    let [.., first, second] = checkpoints.as_slice() else { panic!("two checkpoints") };
    job.complete(first, None);
    // A database that names no MANIFEST is found only when the number is begun.
    let handles = first.handles();
    let current =
        handles.iter().flat_map(super::truth::Handle::in_tree).find(|(path, _)| path == "db/CURRENT").unwrap().1;
    fs::write(job.at.parent().unwrap().join(&current), "MANIFEST-09999x\n").unwrap();
    let at = job.at.join(format!("chk-{}", first.number));
    let said = job.desk.run(&["import", "flink", at.to_str().unwrap(), "--job", "j"]);
    said.fails(3, &["CURRENT", "ckptfs abort --job j --checkpoint", "/0: db"]);
    fs::remove_dir_all(&at).unwrap();
    job.complete(second, None);
    let follower = job.follow(&[]);
    job.wait_for("word of what was begun", |job| job.log().contains(&format!("j/chk-{} was missed", first.number)));
    job.wait_for("the next one", |job| job.listed() == [second.number]);
    drop(follower);
}

#[test]
fn an_import_that_is_gone_on_with_builds_on_no_dead_base() {
    let job = Job::new();
    let checkpoints = job.tree.checkpoints();
    let [.., first, second] = checkpoints.as_slice() else { panic!("two checkpoints") };
    job.complete(first, None);
    job.complete(second, None);
    let at = |checkpoint: &Checkpoint| job.at.join(format!("chk-{}", checkpoint.number)).to_str().unwrap().to_owned();
    job.desk.ok(&["import", "flink", &at(first), "--job", "j", "--label", "release=1"]);
    // Somebody begins the second one and dies at once.
    let sources = Sources::default();
    let read = found::read(&sources, &SourceUrl::parse(&at(second)).unwrap()).unwrap();
    let plan = plan(&read.metadata, &Resolver::new(&sources, read.directory.clone(), &[])).unwrap();
    let mut operators: Vec<_> = plan
        .operators
        .iter()
        .map(|o| ExpectedOperator { operator: o.name.clone(), parallelism: o.parallelism })
        .collect();
    operators.sort_by(|a, b| a.operator.cmp(&b.operator));
    let request = ImportRequest {
        job: Name::parse("j").unwrap(),
        number: read.number,
        kind: CheckpointKind::Checkpoint,
        operators,
        labels: Labels::new([("by".to_owned(), "whoever began it".to_owned())]).unwrap(),
    };
    let cache = Some(job.desk.path("cache"));
    let session = Session::open(&SessionOptions { store: Some(job.desk.store.clone()), cache, ..Default::default() });
    let session = session.unwrap();
    let dies = &mut |_: &ExpectedOperator, _| Err(Error::new(Kind::Other, "it dies"));
    import((&session, &sources), &request, dies, |_| panic!("it was dead"), &Silent).unwrap_err();
    // Its base dies before anybody goes on with it.
    let shown = job.desk.ok(&["--json", "show", &format!("j/chk-{}", first.number)]);
    let uid = serde_json::from_str::<serde_json::Value>(&shown).unwrap()["uid"].as_str().unwrap().to_owned();
    assert!(shown.contains(r#""release": "1""#), "{shown}");
    let stored = |number: u64| {
        let directory = job.desk.path(&format!("store/task/j/{number:020}"));
        let told = std::process::Command::new("grep").args(["-rlF", &uid]).arg(directory).output().unwrap();
        String::from_utf8(told.stdout).unwrap().lines().count()
    };
    assert!(stored(first.number) > 5);
    job.desk.ok(&["expire", &format!("j/chk-{}", first.number)]);
    let said = job.desk.run(&["import", "flink", &at(second), "--job", "j", "--label", "release=2"]);
    assert!(said.err.contains("keeps the labels that it was begun with"), "{}", said.err);
    said.ok();
    let labels = |c: &Checkpoint| {
        let shown = job.desk.ok(&["--json", "show", &format!("j/chk-{}", c.number)]);
        serde_json::from_str::<serde_json::Value>(&shown).unwrap()["labels"].to_string()
    };
    assert_eq!(labels(second), r#"{"by":"whoever began it"}"#);
    assert_eq!(stored(second.number), 0, "it names what a sweep may be deleting");
    job.desk.ok(&["verify", "--read"]);
}
