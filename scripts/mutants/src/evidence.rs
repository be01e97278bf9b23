//! Runs the tests: which mutants each one reaches, and which of those a mutant's tests notice.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A run hangs that takes longer than without a mutant by this much and this many times, but no more than that.
const PATIENCE: Duration = Duration::from_secs(20);
const TIMES: u32 = 10;
const MOST: Duration = Duration::from_secs(120);
/// The nearest and fastest tests come first, alone: most mutants fall to them.
const FIRST: usize = 5;
const REST: usize = 40;
/// KiB of address space, and blocks of a file: what runs away is stopped before it fills the machine.
const LIMITS: &str = "ulimit -v 12000000; ulimit -f 4000000; exec \"$0\" \"$@\"";

/// One test of one program.
pub struct Test {
    pub program: String,
    pub name: String,
    pub took: Duration,
    pub reaches: Vec<u32>,
}

/// What the tests make of a mutant.
pub enum Verdict {
    Killed(String),
    Hung(String),
    Survived(usize),
    Unreached,
}

pub struct Evidence<'a> {
    pub tree: &'a Path,
    pub scratch: PathBuf,
    pub programs: &'a BTreeMap<String, PathBuf>,
    pub tests: Vec<Test>,
}

enum End {
    Passed,
    Failed(String),
    Hung,
}

impl Evidence<'_> {
    /// The names of a program's tests.
    pub fn names(&self, program: &str) -> Vec<String> {
        let output = Command::new(&self.programs[program]).arg("--list").output().expect("a test program");
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
    }

    /// Runs one test without a mutant and learns what it reaches. It has to pass.
    pub fn record(&mut self, program: &str, name: &str) -> bool {
        let file = self.scratch.with_extension("reached");
        let _ = std::fs::remove_file(&file);
        let begun = Instant::now();
        let end = self.run(program, &[name], &file.display().to_string(), Duration::from_secs(600));
        let took = begun.elapsed();
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let mut reaches: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        reaches.sort_unstable();
        reaches.dedup();
        let passed = matches!(end, End::Passed);
        if passed {
            self.tests.push(Test { program: program.to_owned(), name: name.to_owned(), took, reaches });
        }
        passed
    }

    /// Whether the tests that reach a mutant notice it; `near` begins the names of those that are tried first.
    pub fn judge(&self, number: u32, program: &str, near: &str) -> Verdict {
        let reach = |test: &&Test| test.program == program && test.reaches.binary_search(&number).is_ok();
        let mut tests: Vec<&Test> = self.tests.iter().filter(reach).collect();
        if tests.is_empty() {
            return Verdict::Unreached;
        }
        tests.sort_by_key(|test| (!test.name.starts_with(near), test.took));
        let mut left = tests.as_slice();
        let mut size = FIRST;
        while !left.is_empty() {
            let (now, later) = left.split_at(left.len().min(size));
            let names: Vec<&str> = now.iter().map(|test| test.name.as_str()).collect();
            let took = now.iter().map(|test| test.took).sum::<Duration>();
            let limit = took + (took * TIMES).min(MOST) + PATIENCE;
            match self.run(program, &names, &number.to_string(), limit) {
                End::Passed => {}
                End::Failed(by) => return Verdict::Killed(by),
                End::Hung => return Verdict::Hung(names.join(" ")),
            }
            (left, size) = (later, REST);
        }
        Verdict::Survived(tests.len())
    }

    /// Runs some tests until the first that fails.
    fn run(&self, program: &str, names: &[&str], mutant: &str, limit: Duration) -> End {
        use std::os::unix::process::CommandExt;
        std::fs::create_dir_all(&self.scratch).expect("a scratch directory");
        let mut child = Command::new("sh")
            .args(["-c", LIMITS])
            .arg(&self.programs[program])
            .args(["--exact", "--test-threads=1"])
            .args(names)
            .env("MUTANT_CKPTFS", mutant)
            .env("TMPDIR", &self.scratch)
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("RUST_BACKTRACE", "0")
            .current_dir(self.tree)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a test program");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in output.split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        let until = Instant::now() + limit;
        let (mut end, mut passed) = (None, 0);
        while end.is_none() {
            match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if line.starts_with("test ") && line.contains("FAILED") => {
                    end = Some(End::Failed(line.split(' ').nth(1).unwrap_or_default().to_owned()));
                }
                Ok(line) => passed += usize::from(line.starts_with("test ") && line.ends_with("ok")),
                Err(mpsc::RecvTimeoutError::Timeout) => end = Some(End::Hung),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        if end.is_some() {
            let _ = Command::new("kill").args(["-9", "--", &format!("-{}", child.id())]).stderr(Stdio::null()).status();
        }
        let status = child.wait().expect("a child");
        drop(lines);
        // What a killed daemon leaves mounted would keep the directory.
        let scratch = self.scratch.display().to_string();
        for line in std::fs::read_to_string("/proc/self/mounts").unwrap_or_default().lines() {
            if let Some(point) = line.split(' ').nth(1).filter(|point| point.starts_with(&scratch)) {
                let _ = Command::new("umount").args(["-l", point]).stderr(Stdio::null()).status();
            }
        }
        let _ = std::fs::remove_dir_all(&self.scratch);
        drop(reader);
        match end {
            Some(end) => end,
            // A program that dies (an abort, no memory, no stack) has no line for it.
            None if !status.success() => End::Failed(format!("{} ({status})", names.get(passed).unwrap_or(&""))),
            None => End::Passed,
        }
    }
}
