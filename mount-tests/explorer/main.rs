//! The explorer: an exhaustive search over the real state machines of `lifecycle` (the code that the driver runs), and planted faults
//! that it must find. [`search`] says what is searched, [`configs`] for whom, [`judge`] what must hold.
//!
//! `CKPTFS_EXPLORE=<part of a name>` runs some configurations, `CKPTFS_EXPLORE_LARGE=1` the large ones, `CKPTFS_FAULT=<part of a
//! name>` some faults.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::print_stdout, missing_docs, unreachable_pub)]

mod actor;
mod configs;
mod faults;
mod future;
mod judge;
mod plant;
mod program;
mod run;
mod script;
mod search;
mod table;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use script::{Config, Role};
use search::Report;

/// Most states of one search: some 60 bytes each.
const STATES: usize = 250_000_000;

fn cast(role: Role) -> Box<dyn program::Program> {
    Box::new(actor::Actor::new(role))
}

/// Runs them on so many threads; what they found, in their order.
fn reports(configs: Vec<Config>, threads: usize) -> Vec<(Config, Report)> {
    let queue = Mutex::new(configs.into_iter().enumerate());
    let done = Mutex::new(Vec::new());
    let work = || {
        loop {
            let next = queue.lock().unwrap().next();
            let Some((i, config)) = next else { return };
            let began = Instant::now();
            let report = run::run(&config, cast, STATES);
            println!(
                "{}: {} states, {} stores, {} in {:.1?}",
                config.name,
                report.states,
                report.stores,
                if report.complete { "complete" } else { "NOT COMPLETE" },
                began.elapsed()
            );
            for (said, times) in &report.said {
                println!("    {times:6} {said}");
            }
            done.lock().unwrap().push((i, config, report));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(i, ..)| *i);
    done.into_iter().map(|(_, config, report)| (config, report)).collect()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// With commas, for people.
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let chunks: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|c| std::str::from_utf8(c).unwrap_or_default()).collect();
    chunks.join(",")
}

#[test]
fn every_configuration_holds() {
    let only = std::env::var("CKPTFS_EXPLORE").unwrap_or_default();
    let large = std::env::var_os("CKPTFS_EXPLORE_LARGE").is_some();
    let mut all = if large { configs::large() } else { configs::all() };
    all.retain(|c| c.name.contains(&only));
    assert!(!all.is_empty(), "no configuration has {only:?} in its name");
    let (mut states, mut rows) = (0, Vec::new());
    // Two large ones at once may not find enough memory.
    let threads = if large { 1 } else { processors() };
    for (config, report) in reports(all, threads) {
        if let Some(violation) = report.violation {
            panic!("{}: {}\n  {}", config.name, violation.what, violation.trace.join("\n  "));
        }
        assert!(report.complete, "{} has more than {STATES} states", config.name);
        // A search in which nothing happens proves nothing.
        let done = |(said, _): &(String, usize)| said.contains("completed") || said.contains("pinned");
        assert!(report.said.iter().any(done), "{}: nothing was completed or read", config.name);
        states += report.states;
        rows.push(format!("| {} | {} | {} |", config.name, grouped(report.states), grouped(report.stores)));
    }
    let total = format!("{} states in all", grouped(states));
    println!("{}\n{total}", rows.join("\n"));
    if only.is_empty() && !large {
        // What the document says is what was searched.
        let said = include_str!("../../docs/PROTOCOL.md");
        let other: Vec<&String> = rows.iter().chain([&total]).filter(|row| !said.contains(row.as_str())).collect();
        assert!(other.is_empty(), "docs/PROTOCOL.md does not say {other:#?}");
    }
}

#[test]
fn the_reduction_loses_nothing() {
    let names = ["a pin twice", "an aborter and an adopter", "detached", "failing store"];
    for name in names {
        let reduced = configs::all().into_iter().find(|c| c.name == name).expect(name);
        let full = Config { loose: true, ..reduced.clone() };
        let mut found = reports(vec![reduced, full], processors()).into_iter().map(|(_, report)| report);
        let (reduced, full) = (found.next().unwrap(), found.next().unwrap());
        assert!(reduced.complete && full.complete && reduced.states < full.states, "{name}");
        assert!(reduced.violation.is_none() && full.violation.is_none(), "{name}");
        assert_eq!(reduced.ends, full.ends, "{name}: the stores that it ends with");
    }
}

#[test]
fn planted_faults_are_found() {
    let began = Instant::now();
    let program = plant::build();
    println!("built in {:.1?}", began.elapsed());
    let traces = program.with_file_name("traces");
    std::fs::create_dir_all(&traces).unwrap();
    let only = std::env::var("CKPTFS_FAULT").unwrap_or_default();
    let out = std::process::Command::new(&program).args([only.as_str(), traces.to_str().unwrap()]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    println!("{text}\nall in {:.1?}", began.elapsed());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut found: BTreeMap<usize, bool> = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [n, how, config, states, ..] = fields[..] else { panic!("{line}") };
        let n: usize = n.parse().unwrap();
        *found.entry(n).or_default() |= how == "found";
        if n == 0 {
            // The copy without a fault does what the library does.
            let config = configs::all().into_iter().find(|c| c.name == config).expect(config);
            let report = run::run(&config, cast, STATES);
            assert_eq!((how, states), ("clean", report.states.to_string().as_str()), "{}", config.name);
        }
    }
    assert!(faults::FAULTS.len() > 27);
    let said = format!("{} faults", faults::FAULTS.len() - 1);
    assert!(include_str!("../../docs/PROTOCOL.md").contains(&said), "docs/PROTOCOL.md does not say {said}");
    for (n, fault) in faults::FAULTS.iter().enumerate().filter(|(_, f)| f.name.contains(&only)) {
        assert_eq!(found.get(&n), Some(&(n > 0)), "{}: {:?}, loose {}", fault.name, fault.configs, fault.loose);
    }
}
