//! Spreads points over as many processes as there are processors: a tracer waits for its own children only, and what one holds open no
//! other's child inherits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::mode::Mode;
use super::point::{Field, Hits, prepare};
use super::scenarios::{SCENARIOS, Scenario};

/// What a worker came to.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// `scenario | mode`: points.
    pub points: Hits,
    /// `scenario / step | call`: how often the run without faults makes it.
    pub calls: Hits,
    /// `scenario / step | mode | call`: how often it was hit.
    pub hits: Hits,
    /// Runs that succeeded all the same, by `scenario | mode`.
    pub successes: Hits,
    /// What programs said when they failed, and how often.
    pub words: Hits,
    pub failures: Vec<String>,
}

const WANTED: &str = "CKPTFS_CAMPAIGN_WORKER";

/// Failures after which a worker gives up: one defect is hit by many points.
const ENOUGH: usize = 12;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

/// Every which point is visited, unless the environment says otherwise.
pub fn share(default: u64) -> u64 {
    variable("CKPTFS_CRASH_SHARE").unwrap_or(default).max(1)
}

pub fn seeds() -> u64 {
    variable("CKPTFS_CRASH_SEEDS").unwrap_or(1).max(1)
}

/// A scenario, or one point of it, that alone is wanted: `lazy`, or `lazy read and seal/0/before/17`.
pub fn only(scenario: &Scenario, step: usize, mode: Mode) -> Option<Option<u64>> {
    let Ok(only) = std::env::var("CKPTFS_CRASH_ONLY") else { return Some(None) };
    let parts: Vec<&str> = only.split('/').collect();
    let same = |i: usize, is: &str| parts.get(i).is_none_or(|p| p.is_empty() || is.starts_with(p));
    let wanted = same(0, scenario.name) && same(1, &step.to_string()) && same(2, &mode.name());
    wanted.then(|| parts.get(3).and_then(|k| k.parse().ok()))
}

/// The file in which a worker of a part leaves its report, where this process is one.
pub fn is_worker(part: &str) -> bool {
    std::env::var(WANTED).is_ok_and(|w| w.starts_with(&format!("{part}:")))
}

pub fn work(modes: &[Mode]) {
    let text = std::env::var(WANTED).unwrap();
    let parts: Vec<&str> = text.split(':').collect();
    let (own, all): (u64, u64) = (parts[1].parse().unwrap(), parts[2].parse().unwrap());
    let base = Path::new(parts[3]);
    let field = Field { templates: &base.join("templates"), work: base.join(format!("w{own}")), only: None };
    let mut report = Report::default();
    for scenario in &SCENARIOS {
        for step in 0..scenario.steps.len() {
            for mode in modes {
                if let Some(one) = only(scenario, step, *mode) {
                    unit(&field, scenario, step, *mode, (own, all), one, &mut report);
                }
            }
        }
    }
    fs::write(base.join(format!("report-{own}.json")), serde_json::to_vec(&report).unwrap()).unwrap();
}

fn unit(
    field: &Field<'_>,
    scenario: &Scenario,
    step: usize,
    mode: Mode,
    (own, all): (u64, u64),
    one: Option<u64>,
    report: &mut Report,
) {
    let place = format!("{} / {}", scenario.name, scenario.steps[step].name);
    let begun = Instant::now();
    let share = share(1);
    let stride = all * share;
    // Another seed, other points.
    let whole = matches!(mode, Mode::Quiet | Mode::Under(_));
    let first = if whole { 1 } else { one.unwrap_or(1 + own + all * (super::seed() % share)) };
    if (whole || one.is_some()) && (mode.name().len() as u64 + step as u64) % all != own {
        return;
    }
    let mut k = first;
    let mut count = 0_u64;
    while report.failures.len() < ENOUGH {
        let visit = field.visit(scenario, step, mode, k);
        if let Err(why) = visit.verdict {
            let (name, mode, seed) = (scenario.name, mode.name(), super::seed());
            let at = visit.hit.clone().unwrap_or_else(|| "the end".to_owned());
            report.failures.push(format!("{name}/{step}/{mode}/{k} (seed {seed}) at {at}: {why}"));
        }
        for (class, tearable) in visit.calls {
            let torn = if tearable { " (torn)" } else { "" };
            *report.calls.entry(format!("{place} | {class}{torn}")).or_default() += 1;
        }
        if let Some(words) = visit.words {
            *report.words.entry(format!("{}: {words}", mode.name())).or_default() += 1;
        }
        let Some(class) = visit.hit else { break };
        count += 1;
        *report.hits.entry(format!("{place} | {} | {class}", mode.name())).or_default() += 1;
        let unit = format!("{} | {}", scenario.name, mode.name());
        *report.points.entry(unit.clone()).or_default() += 1;
        *report.successes.entry(unit).or_default() += u64::from(visit.success);
        if one.is_some() || whole {
            break;
        }
        k += stride;
    }
    if std::env::var_os("CKPTFS_CRASH_TIMES").is_some() && count > 0 {
        println!(
            "{place} {}: {count} in {:.1?}, {:.0?} each",
            mode.name(),
            begun.elapsed(),
            begun.elapsed() / count as u32
        );
    }
}

/// Visits all points of these modes, with one seed, and sums the reports up.
pub fn campaign(part: &str, test: &str, modes: &[Mode], seed: u64, every: u64) -> Report {
    let base = tempfile::Builder::new().prefix("ckptfs-campaign-").tempdir_in(place()).unwrap();
    for scenario in &SCENARIOS {
        if (0..scenario.steps.len()).any(|step| modes.iter().any(|mode| only(scenario, step, *mode).is_some())) {
            prepare(&base.path().join("templates"), scenario, seed);
        }
    }
    let all = std::thread::available_parallelism().unwrap().get();
    let workers: Vec<Child> = (0..all)
        .map(|own| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([test, "--exact", "--nocapture", "--test-threads=1"]).stdin(Stdio::null());
            command.env(WANTED, format!("{part}:{own}:{all}:{}", base.path().display()));
            command.env("CKPTFS_CRASH_SHARE", share(every).to_string());
            command.env("CKPTFS_TEST_SEED", seed.to_string()).spawn().unwrap()
        })
        .collect();
    let ended: Vec<bool> = workers.into_iter().map(|mut w| w.wait().unwrap().success()).collect();
    assert!(ended.iter().all(|e| *e), "a worker of {part} failed, with its words above");
    let mut sum = Report::default();
    for own in 0..all {
        let report: Report =
            serde_json::from_slice(&fs::read(base.path().join(format!("report-{own}.json"))).unwrap()).unwrap();
        for (into, from) in [
            (&mut sum.points, report.points),
            (&mut sum.calls, report.calls),
            (&mut sum.hits, report.hits),
            (&mut sum.successes, report.successes),
            (&mut sum.words, report.words),
        ] {
            for (key, n) in from {
                *into.entry(key).or_default() += n;
            }
        }
        sum.failures.extend(report.failures);
    }
    if share(every) == 1 && std::env::var_os("CKPTFS_CRASH_ONLY").is_none() && modes.contains(&Mode::Quiet) {
        once_more(base.path(), modes, &mut sum);
    }
    sum
}

/// Threads change places from run to run, and with them the numbers of calls: what was never hit by its number is hit by its kind.
fn once_more(base: &Path, modes: &[Mode], sum: &mut Report) {
    for at in missed(sum, modes) {
        let words: Vec<&str> = at.split(" | ").collect();
        let [place, mode, class] = words[..] else { continue };
        let (scenario, step) = place.split_once(" / ").unwrap();
        let scenario = SCENARIOS.iter().find(|s| s.name == scenario).unwrap();
        let step = scenario.steps.iter().position(|s| s.name == step).unwrap();
        let mode = *modes.iter().find(|m| m.name() == mode).unwrap();
        let only = Some(class.to_owned());
        let field = Field { templates: &base.join("templates"), work: base.join("again"), only };
        // A call that only some runs make may take a few.
        for _ in 0..8 {
            let visit = field.visit(scenario, step, mode, 1);
            if let Err(why) = visit.verdict {
                sum.failures.push(format!("{at}: {why}"));
            }
            if visit.hit.is_some() {
                *sum.hits.entry(at.clone()).or_default() += 1;
                *sum.points.entry(format!("{} | {}", scenario.name, mode.name())).or_default() += 1;
                break;
            }
        }
    }
}

/// A file system in memory, where there is one: its fsync costs nothing.
fn place() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if std::env::var_os("TMPDIR").is_none() && memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// A table of counts: a row per scenario, a column per mode.
pub fn table(counts: &Hits, modes: &[Mode]) -> String {
    let mut rows =
        vec![std::iter::once("SCENARIO".to_owned()).chain(modes.iter().map(|m| m.name())).collect::<Vec<_>>()];
    let mut sums = vec![0; modes.len()];
    for scenario in &SCENARIOS {
        let of = |mode: &Mode| counts.get(&format!("{} | {}", scenario.name, mode.name())).copied().unwrap_or(0);
        let counts: Vec<u64> = modes.iter().map(of).collect();
        sums.iter_mut().zip(&counts).for_each(|(sum, n)| *sum += n);
        rows.push(std::iter::once(scenario.name.to_owned()).chain(counts.iter().map(u64::to_string)).collect());
    }
    rows.push(std::iter::once("all".to_owned()).chain(sums.iter().map(u64::to_string)).collect());
    let width = |i: usize| rows.iter().map(|r| r[i].len()).max().unwrap();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(i, cell)| match i {
            0 => format!("{cell:<w$}", w = width(0)),
            _ => format!("{cell:>w$}", w = width(i)),
        });
        cells.collect::<Vec<_>>().join("  ")
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Calls that a run without faults makes and that a mode never hit, although it can.
pub fn missed(report: &Report, modes: &[Mode]) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    let calls: BTreeMap<&str, bool> =
        report.calls.keys().map(|c| c.strip_suffix(" (torn)").map_or((c.as_str(), false), |c| (c, true))).collect();
    for (call, tearable) in calls {
        let (place, class) = call.split_once(" | ").unwrap();
        for mode in modes {
            let applies = match mode {
                Mode::Quiet => false,
                Mode::Torn => tearable,
                _ => true,
            };
            if applies && !report.hits.contains_key(&format!("{place} | {} | {class}", mode.name())) {
                out.insert(format!("{place} | {} | {class}", mode.name()));
            }
        }
    }
    out
}
