//! The demo by its command: it ends with equal counts, it notices a wrong one, and it leaves nothing behind.

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

/// Only the text is left in the work directory, and nothing of it is mounted.
fn assert_clean(work: &Path, but: &[&str]) {
    let mut names: Vec<_> =
        std::fs::read_dir(work).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|n| n != "text" && !but.contains(&n.as_str()));
    assert!(names.is_empty(), "left over: {names:?}");
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(work.to_str().unwrap()), "{mounts}");
}

#[test]
fn a_killed_job_goes_on_from_the_mount_and_its_counts_are_right() {
    let dir = scratch();
    let output = demo(dir.path(), &[]).output().unwrap();
    let (stdout, stderr) = out(&output);
    assert!(output.status.success(), "{stdout}{stderr}");
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines.last(), Some(&"counts equal"), "{stdout}");
    let header: Vec<_> = lines[0].split_whitespace().collect();
    assert_eq!(header, ["CHECKPOINT", "FILES", "LOGICAL", "NEW", "REUSED", "SECONDS"]);
    let rows = lines.iter().filter(|l| l.starts_with("demo/chk-")).count();
    assert!(rows >= 6 && rows + 2 == lines.len(), "{stdout}");
    for said in ["SIGKILL", "read-only in", "restored demo/chk-", "is one inode", "latest -> chk-"] {
        assert!(stderr.contains(said), "{said}: {stderr}");
    }
    assert_clean(dir.path(), &[]);
}

#[test]
fn a_corrupted_count_is_noticed() {
    let dir = scratch();
    let output = demo(dir.path(), &["--corrupt-one-count"]).output().unwrap();
    let (stdout, stderr) = out(&output);
    assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
    assert!(!stdout.contains("counts equal") && stderr.contains("the counts differ"), "{stdout}{stderr}");
    assert_clean(dir.path(), &[]);

    // For a caller that compares: the counts as they are, in the order of sort.
    let counts = dir.path().join("counts");
    let paths = dir.path().join("paths");
    let to = |p: &Path| p.to_str().unwrap().to_owned();
    let output = demo(dir.path(), &["--counts", &to(&counts), "--paths", &to(&paths), "--json"]).output().unwrap();
    let (stdout, stderr) = out(&output);
    assert!(output.status.success(), "{stderr}");
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert!(json["checkpoints"].as_array().unwrap().len() >= 6 && json["counts_equal"].is_null());
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
    assert_clean(dir.path(), &["counts", "paths"]);
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
    let mut child = demo(dir.path(), &[]).spawn().unwrap();
    let begun = Instant::now();
    let in_the_middle = || {
        let stage = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
        stage.filter(|p| !p.ends_with("text")).any(|p| p.join("db.checkpoint").exists() || p.join("mnt/demo").exists())
    };
    while !in_the_middle() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it never began");
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(Duration::from_millis(5));
    }
    ckptfs::local::process::terminate(child.id()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_clean(dir.path(), &[]);
}
