//! The demo by its command: a checkpoint fails, the worker is killed, the job is restored and rescaled, the counts are equal; a wrong one is
//! noticed; nothing is left behind.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::kit::noise;

/// Text of some MiB in several files: words of one to three letters, so that they come again, and long ones that do not.
fn text(directory: &Path) {
    for file in 0..9u64 {
        let mut out = String::new();
        for chunk in noise(file + 1, 110_000).chunks(3) {
            for b in chunk {
                out.push(char::from(b'a' + b % 26));
            }
            out.push([' ', '\n', '.', '1', '_'][usize::from(chunk[0] % 5)]);
        }
        let sub = directory.join(format!("sub{}", file % 3));
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::write(sub.join(format!("{file}.txt")), out).unwrap();
    }
}

fn demo(work: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ckptfs"));
    command.env_remove("CKPTFS_STORE").env_remove("CKPTFS_CACHE");
    command.arg("demo").args(arguments).arg("--work").arg(work).arg(work.join("text"));
    command
}

fn scratch() -> tempfile::TempDir {
    let dir = tempfile::Builder::new().prefix("ckptfs-demo-test-").tempdir().unwrap();
    text(&dir.path().join("text"));
    dir
}

fn out(output: &Output) -> (String, String) {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Only the text is left in the work directory, nothing of it is mounted, and no process works on it.
fn assert_clean(work: &Path, but: &[&str]) {
    let mut names: Vec<_> =
        std::fs::read_dir(work).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|n| n != "text" && !but.contains(&n.as_str()));
    assert!(names.is_empty(), "left over: {names:?}");
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(work.to_str().unwrap()), "{mounts}");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|p| std::fs::read_to_string(p.path().join("cmdline")).ok());
    let ours: Vec<_> = lines.filter(|line| line.contains(work.to_str().unwrap())).collect();
    assert!(ours.is_empty(), "{ours:?}");
}

/// Where the demo plays.
fn stage(work: &Path) -> Option<std::path::PathBuf> {
    let mut entries = std::fs::read_dir(work).unwrap().map(|e| e.unwrap().path());
    entries.find(|p| p.file_name().unwrap().to_str().unwrap().starts_with("ckptfs-demo-"))
}

#[test]
fn a_killed_job_goes_on_from_the_mount_and_its_counts_are_right() {
    let dir = scratch();
    let output = demo(dir.path(), &["--keep"]).output().unwrap();
    let (stdout, stderr) = out(&output);
    assert!(output.status.success(), "{stdout}{stderr}");
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines.last(), Some(&"counts equal"), "{stdout}");
    let header: Vec<_> = lines[0].split_whitespace().collect();
    assert_eq!(header, ["CHECKPOINT", "FILES", "LOGICAL", "NEW", "REUSED", "SECONDS"]);
    let rows: Vec<_> = lines.iter().filter_map(|l| l.strip_prefix("demo/chk-")?.split(' ').next()).collect();
    assert!(rows.len() >= 7 && rows.len() + 2 == lines.len() && !rows.contains(&"3"), "{stdout}");
    let story = [
        "runs the job with parallelism 2, epoch 1",
        "demo/chk-3 was given up: sink/0: Could not complete snapshot 3 for operator sink: no space left",
        "latest -> chk-4",
        "is one inode",
        "SIGKILL",
        "read-only, 2 databases in",
        "restored demo/chk-",
        "(parallelism 2, epoch 3): 2 databases are clones over the mount",
        "stopped the job with the savepoint demo/chk-",
        "(parallelism 3, epoch 5): 3 databases are put together for other key groups, 3 of them on clones over the mount; the pins of 2 older clones are gone",
        "/count: 0/  1/  2/ have the final counts",
        "8 windows fired into the sink",
    ];
    let mut from = 0;
    for said in story {
        let at = stderr[from..].find(said).unwrap_or_else(|| panic!("{said}, in this order: {stderr}"));
        from += at;
    }
    assert!(stderr.contains("of it chk-3 had uploaded: they were adopted") && !stderr.contains("[ERROR]"), "{stderr}");
    assert!(!stderr.contains("[WARN]"), "{stderr}");
    // The store says the same: three subtasks in the last, and what the sink failed in is aborted.
    let kept = stage(dir.path()).unwrap();
    let task = |number: &str, operator: &str| {
        let number: u64 = number.parse().unwrap();
        let found = std::fs::read_dir(kept.join(format!("store/task/demo/{number:020}/{operator}"))).unwrap();
        let mut names: Vec<_> = found.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    for operator in ["source", "words", "count", "sink"] {
        assert_eq!(task(rows[0], operator), ["0.json", "1.json"]);
        assert_eq!(task(rows[rows.len() - 1], operator), ["0.json", "1.json", "2.json"]);
    }
    assert_clean(dir.path(), &[kept.file_name().unwrap().to_str().unwrap()]);
}

#[test]
fn a_corrupted_count_is_noticed() {
    let dir = scratch();
    // Both in one store: the second begins anew all the same.
    let store = format!("file://{}", dir.path().join("store").display());
    let output = demo(dir.path(), &["--store", &store, "--corrupt-one-count"]).output().unwrap();
    let (stdout, stderr) = out(&output);
    assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
    assert!(!stdout.contains("counts equal") && stderr.contains("the counts differ"), "{stdout}{stderr}");
    assert_clean(dir.path(), &["store"]);

    // For a caller that compares: the counts as they are, in the order of sort.
    let counts = dir.path().join("counts");
    let paths = dir.path().join("paths");
    let to = |p: &Path| p.to_str().unwrap().to_owned();
    let arguments = ["--store", &store, "--counts", &to(&counts), "--paths", &to(&paths), "--json"];
    let output = demo(dir.path(), &arguments).output().unwrap();
    let (stdout, stderr) = out(&output);
    assert!(output.status.success(), "{stderr}");
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let checkpoints = json["checkpoints"].as_array().unwrap();
    assert!(checkpoints.len() >= 7 && json["counts_equal"].is_null(), "{stdout}");
    let of = |i: usize| (checkpoints[i]["parallelism"].as_u64(), checkpoints[i]["savepoint"].as_bool());
    assert_eq!((of(0), of(checkpoints.len() - 1)), ((Some(2), Some(false)), (Some(3), Some(true))));
    assert_eq!(std::fs::read_to_string(&paths).unwrap().lines().count(), 9);
    let recounted = Command::new("sh")
        .arg("-c")
        .arg("xargs -I{} sh -c 'cat \"{}\"; echo' <\"$0\" | tr -cs A-Za-z_ '\\n' | grep . | LC_ALL=C sort | uniq -c | awk '{print $2, $1}'")
        .arg(&paths)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let counted = std::fs::read_to_string(&counts).unwrap();
    assert!(counted.lines().count() > 1000);
    assert_eq!(counted, String::from_utf8(recounted.stdout).unwrap());
    assert_clean(dir.path(), &["store", "counts", "paths"]);
}

#[test]
fn bad_requests_are_named_and_leave_nothing() {
    let dir = scratch();
    let cases: [(&[&str], &str, i32); 4] = [
        (&["--job", "../x"], "cannot name a job", 1),
        (&["--text", "0"], "0 is not in 1..", 2),
        (&["--counts", "x"], "--paths", 2),
        (&["--store", "nothing://x"], "nothing://x", 1),
    ];
    for (arguments, says, code) in cases {
        let output = demo(dir.path(), arguments).output().unwrap();
        let (stdout, stderr) = out(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(says) && stdout.is_empty(), "{arguments:?}: {stdout}{stderr}");
        assert_clean(dir.path(), &[]);
    }
    for (text, says) in [("missing", "no directory with text"), ("empty", "larger directory")] {
        let path = dir.path().join("text").join(text);
        if text == "empty" {
            std::fs::create_dir(&path).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_ckptfs"));
        let output = command.arg("demo").arg("--work").arg(dir.path()).arg(&path).output().unwrap();
        assert!(!output.status.success() && out(&output).1.contains(says), "{:?}", out(&output));
    }
    assert_clean(dir.path(), &[]);
}

#[test]
fn a_demo_that_is_interrupted_cleans_up() {
    let dir = scratch();
    type Moment = (&'static str, fn(&Path) -> bool);
    let moments: [Moment; 3] = [
        ("the worker starts", |stage| stage.join("life-1").exists()),
        ("a checkpoint is there", |stage| stage.join("mnt/demo").exists()),
        ("the job is restored", |stage| stage.join("life-3").exists()),
    ];
    for (what, come) in moments {
        let mut child = demo(dir.path(), &[]).spawn().unwrap();
        let begun = Instant::now();
        while !stage(dir.path()).is_some_and(|s| come(&s)) {
            assert!(begun.elapsed() < Duration::from_secs(180), "{what}: it never began");
            assert!(child.try_wait().unwrap().is_none(), "{what}: it ended too early");
            std::thread::sleep(Duration::from_millis(5));
        }
        ckptfs::local::process::terminate(child.id()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{what}");
        assert_clean(dir.path(), &[]);
    }
}
