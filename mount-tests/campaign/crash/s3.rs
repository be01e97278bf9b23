//! Crash points by request: the client of a real S3 server dies at each of its requests, before, after and amid it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Instant;

use serde_json::Value;

use super::mode::Mode;
use super::point::{Hits, prepare, template};
use super::proxy::Proxy;
use super::scenarios::{SCENARIOS, Scenario, keep};
use super::workers::share;
use super::yard::{Truth, Yard, copy, digests};
use crate::s3::Weed;
use crate::tool::Said;

/// Those whose steps are verbs and need no mount. The first snapshot is left out: its probe alone is hundreds of requests of a second each.
const WANTED: [&str; 4] = ["incremental", "several processes", "abort and adopt", "sweep and forget"];

const MODES: [Mode; 3] = [Mode::Before, Mode::After, Mode::Torn];

/// A place where points are visited, one after the other. Each waits for the server most of the time: so there are several.
struct Bench<'a> {
    weed: &'a Weed,
    proxy: Proxy,
    templates: &'a Path,
    name: String,
    points: u64,
}

const BENCHES: usize = 4;

/// Every which request a CI run hits.
const SHARE: u64 = 16;

struct Visit {
    hit: Option<String>,
    requests: Vec<(String, bool)>,
    verdict: Result<(), String>,
}

fn good(said: &Said, what: &str) -> Result<(), String> {
    if said.code == 0 { Ok(()) } else { Err(format!("{what} fails: {}", said.err.trim())) }
}

impl Bench<'_> {
    fn visit(&mut self, scenario: &Scenario, step: usize, mode: Mode, k: u64) -> Visit {
        self.points += 1;
        let root = self.templates.with_file_name(&self.name);
        let _ = fs::remove_dir_all(&root);
        copy(&template(self.templates, scenario, step), &root);
        let prefix = format!("{}-{}", self.name, self.points);
        if root.join("store").exists() {
            self.weed.put(&root.join("store"), &prefix);
        }
        // filer.copy keeps the directory's own name.
        let url = self.weed.url(&format!("{prefix}/store"));
        let yard = |port: u16| Yard {
            remote: Some((url.clone(), format!("http://127.0.0.1:{port}"))),
            ..Yard::at(&root, scenario.cache)
        };
        let (near, direct) = (yard(self.proxy.port), yard(self.weed.port()));
        self.proxy.plan(mode, k);
        let args = (scenario.steps[step].args)(&near);
        let child = near.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        self.proxy.client(child.id().cast_signed());
        let output = child.wait_with_output().unwrap();
        let killed = output.status.signal() == Some(9);
        let (hit, requests) = self.proxy.seen();
        let said = Said::from(output);
        let done = said.code == 0;
        if done && scenario.steps[step].keeps {
            keep(&direct, &said.out);
        }
        let verdict = if killed == hit.is_some() && (killed || done) {
            after(&direct, scenario, step, done)
        } else {
            Err(format!("it ended in another way: {said:?}"))
        };
        Visit { hit, requests, verdict }
    }
}

/// What a person sees at once, does then, and the check.
fn after(yard: &Yard, scenario: &Scenario, step: usize, done: bool) -> Result<(), String> {
    let before = yard.truth();
    whole(yard, &before, scenario).map_err(|e| format!("at once: {e}"))?;
    for next in scenario.steps.iter().skip(step + usize::from(done)) {
        let said = yard.run(&(next.args)(yard));
        good(&said, next.name)?;
        if next.keeps {
            keep(yard, &said.out);
        }
    }
    let newest = whole(yard, &before, scenario)?;
    let db = match before.completed.get(&format!("app/{newest}")) {
        Some(subtasks) => subtasks["db/0"].clone(),
        None => scenario.makes.iter().find(|(s, _)| *s == "db/0").unwrap().1.to_owned(),
    };
    good(&yard.run(&text(&["restore", "--copy", &format!("app/chk-{newest}/db/0"), &yard.text("copy")])), "copy")?;
    if digests(&yard.path("copy")) != before.directories[&db] {
        return Err(format!("chk-{newest} is not {db}"));
    }
    let further: Value = json(yard, &["snapshot", "--job", "app", &yard.text(&db)])?;
    if further["new_bytes"] != 0 {
        return Err(format!("a further snapshot uploads again: {further}"));
    }
    good(&yard.run(&text(&["gc", "--delete", "--forget-all"])), "gc")?;
    let left = json(yard, &["gc"])?;
    if left["doomed"]["blobs"] != 0 || left["foreign"] != Value::Array(Vec::new()) {
        return Err(format!("a sweep left something: {left}"));
    }
    let verified = json(yard, &["verify", "--read"])?;
    if verified["findings"] != Value::Array(Vec::new()) { Err(format!("after a sweep: {verified}")) } else { Ok(()) }
}

fn text(args: &[&str]) -> Vec<String> {
    std::iter::once("--quiet").chain(args.iter().copied()).map(str::to_owned).collect()
}

fn json(yard: &Yard, args: &[&str]) -> Result<Value, String> {
    let args: Vec<String> = std::iter::once("--json").chain(args.iter().copied()).map(str::to_owned).collect();
    let said = yard.run(&args);
    good(&said, &args[1])?;
    serde_json::from_str(&said.out).map_err(|e| format!("{e}: {}", said.out))
}

/// What was completed is there, and nothing is damaged; the newest number.
fn whole(yard: &Yard, before: &Truth, scenario: &Scenario) -> Result<u64, String> {
    let verified = json(yard, &["verify", "--read"])?;
    let harmless = |f: &Value| f["kind"] == "unreferenced" || f["kind"] == "foreign";
    if let Some(finding) = verified["findings"].as_array().unwrap().iter().find(|f| !harmless(f)) {
        return Err(finding.to_string());
    }
    let listed = json(yard, &["ls", "app"])?;
    let numbers: BTreeSet<u64> = listed.as_array().unwrap().iter().map(|c| c["number"].as_u64().unwrap()).collect();
    let known = before.completed.keys().filter(|n| !scenario.ends.contains(&n.as_str()));
    match known.map(|n| n["app/".len()..].parse::<u64>().unwrap()).find(|n| !numbers.contains(n)) {
        Some(lost) => Err(format!("app/{lost} was completed and is not there: {numbers:?}")),
        None => numbers.last().copied().ok_or_else(|| "nothing is listed".to_owned()),
    }
}

#[derive(Default)]
struct Sum {
    hits: Hits,
    failures: Vec<String>,
    /// Requests of runs without a crash, by step, and whether they have a body.
    made: BTreeMap<(String, String), bool>,
}

fn unit(bench: &mut Bench<'_>, scenario: &Scenario, step: usize, sum: &Mutex<Sum>) {
    let place = format!("{} / {}", scenario.name, scenario.steps[step].name);
    let quiet = bench.visit(scenario, step, Mode::Quiet, 0);
    {
        let mut sum = sum.lock().unwrap();
        if let Err(why) = quiet.verdict {
            sum.failures.push(format!("{place}: without a crash: {why}"));
        }
        for (request, body) in quiet.requests {
            *sum.made.entry((place.clone(), request)).or_insert(body) |= body;
        }
    }
    for mode in MODES {
        let mut k = 1 + super::seed() % share(SHARE);
        loop {
            let visit = bench.visit(scenario, step, mode, k);
            let mut sum = sum.lock().unwrap();
            let at = visit.hit.clone().unwrap_or_default();
            if let Err(why) = visit.verdict {
                sum.failures.push(format!("{place}/{}/{k} at {at}: {why}", mode.name()));
            }
            let Some(hit) = visit.hit else { break };
            *sum.hits.entry(format!("{place} | {} | {hit}", mode.name())).or_default() += 1;
            k += share(SHARE);
        }
    }
}

#[test]
fn every_request() {
    let begun = Instant::now();
    let temp = tempfile::Builder::new().prefix("ckptfs-s3-points-").tempdir().unwrap();
    let templates = temp.path().join("templates");
    let weed = Weed::start();
    let mut units = Vec::new();
    for scenario in SCENARIOS.iter().filter(|s| WANTED.contains(&s.name)) {
        prepare(&templates, scenario, super::seed());
        units.extend((0..scenario.steps.len()).map(|step| (scenario, step)));
    }
    let (units, sum) = (Mutex::new(units.into_iter()), Mutex::new(Sum::default()));
    std::thread::scope(|scope| {
        for n in 0..BENCHES {
            let (units, sum, weed, templates) = (&units, &sum, &weed, &templates);
            scope.spawn(move || {
                let (proxy, name) = (Proxy::to(weed.port()), format!("bench{n}"));
                let mut bench = Bench { weed, proxy, templates, name, points: 0 };
                loop {
                    let next = units.lock().unwrap().next();
                    let Some((scenario, step)) = next else { return };
                    unit(&mut bench, scenario, step, sum);
                }
            });
        }
    });
    let Sum { hits, failures, made } = sum.into_inner().unwrap();
    let mut table: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (hit, n) in &hits {
        let words: Vec<&str> = hit.split(" | ").collect();
        *table.entry((words[0].to_owned(), words[1].to_owned())).or_default() += n;
    }
    println!("seed {}, every {}. request, {:.0?}", super::seed(), share(SHARE), begun.elapsed());
    for ((place, mode), n) in &table {
        println!("{place:<32} {mode:<7} {n:>4}");
    }
    println!("{} requests hit, {} kinds of (step, mode, request)", hits.values().sum::<u64>(), hits.len());
    assert!(failures.is_empty(), "{} requests lost something:\n{}", failures.len(), failures.join("\n"));
    assert!(!hits.is_empty(), "nothing was hit");
    for ((place, request), body) in made {
        for mode in MODES.iter().filter(|m| **m != Mode::Torn || body) {
            let hit = hits.contains_key(&format!("{place} | {} | {request}", mode.name()));
            assert!(hit || share(SHARE) > 1, "{place}: {request} was never hit {}", mode.name());
        }
    }
}
