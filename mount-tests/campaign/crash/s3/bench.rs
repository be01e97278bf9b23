//! One point: a copy of the state, its store in the server, a run whose client dies, what a person does then, and the full check.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::crash::helper;
use crate::crash::point::template;
use crate::crash::proxy::{Plan, Proxy};
use crate::crash::scenarios::{How, Scenario, keep};
use crate::crash::yard::{Yard, copy};
use crate::s3::Weed;

/// Longer than anything takes, whose requests have a deadline of 30 s each.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Point {
    pub scenario: &'static Scenario,
    pub step: usize,
    pub plan: Plan,
}

impl Point {
    pub fn place(&self) -> String {
        format!("{} / {}", self.scenario.name, self.scenario.steps[self.step].name)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scenario, mode, seed) = (self.scenario.name, self.plan.mode.name(), crate::crash::seed());
        write!(f, "{scenario}/{}/{mode}/{} (seed {seed})", self.step, self.plan.k)?;
        self.plan.only.as_ref().map_or(Ok(()), |only| write!(f, " of {only}"))
    }
}

pub struct Visit {
    /// The request that was hit. Nothing: the run ended before it came so far.
    pub hit: Option<String>,
    /// Requests of the run, in their order, and whether each has a body.
    pub requests: Vec<(String, bool)>,
    pub verdict: Result<(), String>,
}

/// A place where points are visited, one after the other.
pub struct Bench<'a> {
    weed: &'a Weed,
    proxy: Proxy,
    templates: &'a Path,
    name: String,
    points: u64,
}

/// Where a point's store is in the bucket.
pub struct Far<'a> {
    pub weed: &'a Weed,
    pub prefix: String,
}

struct Ended {
    status: ExitStatus,
    out: String,
    err: String,
}

/// Runs a command to its end. Its output goes to files beside: nobody needs to read while it runs.
fn end(root: &Path, command: &mut Command, began: impl FnOnce(u32)) -> Result<Ended, String> {
    let (out, err): (PathBuf, PathBuf) = (root.join("out"), root.join("err"));
    command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
    let mut child = command.spawn().unwrap();
    began(child.id());
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            return Err(format!("it hangs: {}", fs::read_to_string(&err).unwrap().trim()));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    Ok(Ended { status, out: fs::read_to_string(out).unwrap(), err: fs::read_to_string(err).unwrap() })
}

fn good(root: &Path, mut command: Command) -> Result<String, String> {
    let ended = end(root, &mut command, |_| ())?;
    if ended.status.success() { Ok(ended.out) } else { Err(ended.err.trim().to_owned()) }
}

impl<'a> Bench<'a> {
    pub fn new(weed: &'a Weed, templates: &'a Path, name: &str) -> Self {
        Self { weed, proxy: Proxy::to(weed.port()), templates, name: name.to_owned(), points: 0 }
    }

    /// `between` comes after the run and before anybody looks.
    pub fn visit(&mut self, point: &Point, between: impl FnOnce(&Yard, &Far<'_>)) -> Visit {
        self.points += 1;
        let root = self.templates.with_file_name(&self.name);
        let _ = fs::remove_dir_all(&root);
        copy(&template(self.templates, point.scenario, point.step), &root);
        let far = Far { weed: self.weed, prefix: format!("{}-{}", self.name, self.points) };
        self.weed.put(&root.join("store"), &far.prefix);
        let url = self.weed.url(&far.prefix);
        let yard = |port: u16| Yard {
            remote: Some((url.clone(), format!("http://127.0.0.1:{port}"))),
            ..Yard::at(&root, point.scenario.cache)
        };
        let (near, direct) = (yard(self.proxy.port), yard(self.weed.port()));
        let step = &point.scenario.steps[point.step];
        assert_eq!(step.how, How::Verb);
        self.proxy.plan(&point.plan);
        let ended = end(&root, &mut near.command(&(step.args)(&near)), |pid| self.proxy.client(pid.cast_signed()));
        let (hit, requests) = self.proxy.seen();
        let verdict = ended.and_then(|ended| {
            let (killed, done) = (ended.status.signal() == Some(9), ended.status.success());
            if killed != hit.is_some() || !killed && !done {
                return Err(format!("it ends in another way: {}, {:?}", ended.status, ended.err.trim()));
            }
            if done && step.keeps {
                keep(&direct, &ended.out);
            }
            between(&direct, &far);
            recover(&direct, point, done)
        });
        Visit { hit, requests, verdict }
    }
}

/// What somebody sees at once, what a person does then, and the check.
fn recover(yard: &Yard, point: &Point, done: bool) -> Result<(), String> {
    let ask = |what: &str| {
        let args = [what.to_owned(), point.scenario.name.to_owned()];
        good(&yard.root, helper::command(yard, &args)).map(drop)
    };
    ask("look").map_err(|e| format!("at once: {e}"))?;
    for next in point.scenario.steps.iter().skip(point.step + usize::from(done)) {
        let said = good(&yard.root, yard.command(&(next.args)(yard)))
            .map_err(|e| format!("then: {} fails: {e}", next.name))?;
        if next.keeps {
            keep(yard, &said);
        }
    }
    ask("check").map_err(|e| format!("at the end: {e}"))
}
