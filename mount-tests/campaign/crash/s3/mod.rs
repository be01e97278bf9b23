//! Crash points by request: the client of a real S3 server dies at each of its requests, before, after and amid it; then what a person
//! does, and the full check. `CKPTFS_CRASH_SHARE=n` visits every n-th point, others with another `CKPTFS_TEST_SEED` (1: all),
//! `CKPTFS_CRASH_ONLY=scenario/step/mode/k` some alone.

mod bench;
mod planted;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use self::bench::{Bench, Point};
use super::mode::Mode;
use super::point::{Hits, prepare};
use super::proxy::Plan;
use super::scenarios::{SCENARIOS, Scenario};
use super::workers::{only, share};
use crate::s3::Weed;

/// Those whose steps are verbs and need no mount. The first snapshot is left out: its probe alone is hundreds of requests of a second each.
const WANTED: [&str; 4] = ["incremental", "several processes", "abort and adopt", "sweep and forget"];

const MODES: [Mode; 3] = [Mode::Before, Mode::After, Mode::Torn];

/// Points that are visited at once: each waits for programs and the server more than it computes.
const BENCHES: usize = 6;

/// Every which request a CI run hits.
const SHARE: u64 = 16;

/// How often a kind of request is tried that only some runs make.
const TRIES: usize = 8;

#[derive(Default)]
struct Sum {
    hits: Hits,
    failures: Vec<String>,
    /// Requests of runs without a crash, by step, and whether they have a body.
    made: BTreeMap<(usize, String), bool>,
    /// By step: points that each mode has.
    reach: BTreeMap<(usize, Mode), u64>,
}

/// Steps of the scenarios that are wanted, in their order.
fn steps() -> Vec<(&'static Scenario, usize)> {
    let wanted = SCENARIOS.iter().filter(|s| WANTED.contains(&s.name));
    wanted.flat_map(|s| (0..s.steps.len()).map(move |step| (s, step))).collect()
}

/// The server, and the states before the steps.
fn begin(templates: &Path, scenarios: &[&str]) -> Weed {
    let wanted = SCENARIOS.iter().filter(|s| scenarios.contains(&s.name));
    // A tracer waits for all children of its thread: the server must not be one of them.
    std::thread::scope(|scope| {
        let made = scope.spawn(move || wanted.for_each(|scenario| prepare(templates, scenario, super::seed())));
        let weed = Weed::start();
        made.join().unwrap();
        weed
    })
}

/// Visits points until there are no more.
fn visit_all(benches: &mut [Bench<'_>], points: Vec<(usize, Point)>, sum: &Mutex<Sum>) {
    let points = Mutex::new(points.into_iter());
    std::thread::scope(|scope| {
        for bench in benches {
            let points = &points;
            scope.spawn(move || {
                loop {
                    let next = points.lock().unwrap().next();
                    let Some((unit, point)) = next else { return };
                    let visit = bench.visit(&point, |_, _| ());
                    let mut sum = sum.lock().unwrap();
                    if let Err(why) = visit.verdict {
                        sum.failures.push(format!("{point} at {}: {why}", visit.hit.as_deref().unwrap_or("the end")));
                    }
                    if let Some(hit) = visit.hit {
                        *sum.hits
                            .entry(format!("{} | {} | {hit}", point.place(), point.plan.mode.name()))
                            .or_default() += 1;
                    }
                    if point.plan.mode == Mode::Quiet {
                        for (request, body) in visit.requests {
                            for mode in MODES.into_iter().filter(|m| *m != Mode::Torn || body) {
                                *sum.reach.entry((unit, mode)).or_default() += 1;
                            }
                            *sum.made.entry((unit, request)).or_insert(body) |= body;
                        }
                    }
                }
            });
        }
    });
}

fn chosen(steps: &[(&'static Scenario, usize)], reach: &BTreeMap<(usize, Mode), u64>) -> Vec<(usize, Point)> {
    let of = |((unit, mode), most): (&(usize, Mode), &u64)| {
        let ((scenario, step), unit, mode) = (steps[*unit], *unit, *mode);
        (1..=*most).map(move |k| (unit, Point { scenario, step, plan: Plan { mode, k, only: None } }))
    };
    let only = |point: &Point| only(point.scenario, point.step, point.plan.mode);
    // One point alone is wanted wherever it lies.
    if std::env::var_os("CKPTFS_CRASH_ONLY").is_some() {
        let wanted = |point: &Point| only(point).is_some_and(|k| k.is_none_or(|k| k == point.plan.k));
        return reach.iter().flat_map(of).filter(|(_, point)| wanted(point)).collect();
    }
    // Counted through all steps, so that each does not begin with the same requests; each mode by itself, as few requests can be torn.
    let every = |mode: Mode| {
        let all = reach.iter().filter(move |((_, m), _)| *m == mode).flat_map(of).enumerate();
        all.filter(|(n, _)| *n as u64 % share(SHARE) == super::seed() % share(SHARE)).map(|(_, point)| point)
    };
    MODES.into_iter().flat_map(every).collect()
}

#[test]
fn every_request() {
    let begun = Instant::now();
    let temp = tempfile::Builder::new().prefix("ckptfs-s3-points-").tempdir().unwrap();
    let templates = temp.path().join("templates");
    let weed = begin(&templates, &WANTED);
    let mut benches: Vec<_> = (0..BENCHES).map(|n| Bench::new(&weed, &templates, &format!("bench{n}"))).collect();
    let (steps, sum) = (steps(), Mutex::new(Sum::default()));
    let quiet = |(unit, (scenario, step)): (usize, &(&'static Scenario, usize))| {
        (unit, Point { scenario, step: *step, plan: Plan { mode: Mode::Quiet, k: 0, only: None } })
    };
    visit_all(&mut benches, steps.iter().enumerate().map(quiet).collect(), &sum);
    let points = chosen(&steps, &sum.lock().unwrap().reach);
    let all = points.len() as u64;
    visit_all(&mut benches, points, &sum);
    let mut missed = missed(&steps, &sum.lock().unwrap());
    let whole = share(SHARE) == 1 && std::env::var_os("CKPTFS_CRASH_ONLY").is_none();
    if whole {
        // Threads change places from run to run, and with them the numbers of requests: the rest is hit by its kind.
        for _ in 0..TRIES {
            visit_all(&mut benches, missed, &sum);
            missed = self::missed(&steps, &sum.lock().unwrap());
        }
    }
    let Sum { hits, failures, .. } = sum.into_inner().unwrap();
    println!("seed {}, every {}. request, {:.0?}", super::seed(), share(SHARE), begun.elapsed());
    let mut table: BTreeMap<String, u64> = BTreeMap::new();
    for (hit, n) in &hits {
        let words: Vec<&str> = hit.split(" | ").collect();
        *table.entry(format!("{:<32} {:<7}", words[0], words[1])).or_default() += n;
    }
    table.iter().for_each(|(place, n)| println!("{place} {n:>4}"));
    let hit = hits.values().sum::<u64>();
    println!("{hit} requests hit, {} kinds of (step, mode, request)", hits.len());
    assert!(failures.is_empty(), "{} requests lost something:\n{}", failures.len(), failures.join("\n"));
    // A run that makes fewer requests than the first one leaves out its last ones.
    assert!(hit > 0 && hit >= all / 2, "only {hit} of {all} requests were hit");
    let never: Vec<String> = missed.iter().map(|(_, point)| point.to_string()).collect();
    assert!(!whole || never.is_empty(), "never hit: {never:#?}");
}

/// Kinds of requests that runs without a crash make and that a mode never hit, although it can.
fn missed(steps: &[(&'static Scenario, usize)], sum: &Sum) -> Vec<(usize, Point)> {
    let mut out = Vec::new();
    for ((unit, request), body) in &sum.made {
        for mode in MODES.into_iter().filter(|m| *m != Mode::Torn || *body) {
            let (scenario, step) = steps[*unit];
            let point = Point { scenario, step, plan: Plan { mode, k: 1, only: Some(request.clone()) } };
            if !sum.hits.contains_key(&format!("{} | {} | {request}", point.place(), mode.name())) {
                out.push((*unit, point));
            }
        }
    }
    out
}
