//! What the planted crate does: runs every copy and prints a line for each. Only that crate has this module.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::faults::{FAULTS, Fault};
use super::program::Program;
use super::script::Role;
use super::{configs, run};

/// The most states before a fault counts as not found.
const LIMIT: usize = 20_000_000;

/// The planted crate's `main`: runs every copy, on all processors, and prints a line for each.
pub fn main(cast: fn(usize, Role) -> Box<dyn Program>) {
    let next = AtomicUsize::new(0);
    let (next, only) = (&next, std::env::args().nth(1));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            let only = only.clone();
            scope.spawn(move || {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some(fault) = FAULTS.get(n) else { return };
                    if only.as_ref().is_none_or(|only| fault.name.contains(only.as_str())) {
                        one(n, fault, cast);
                    }
                }
            });
        }
    });
}

fn one(n: usize, fault: &Fault, cast: fn(usize, Role) -> Box<dyn Program>) {
    let began = std::time::Instant::now();
    for name in fault.configs {
        let Some(mut config) = configs::all().into_iter().find(|c| c.name == *name) else {
            println!("{n}\tno configuration\t{name}\t0\t0\t{}", fault.name);
            return;
        };
        config.loose = fault.loose;
        let report = run::run(&config, |role| cast(n, role), LIMIT);
        let ms = began.elapsed().as_millis();
        let found = match &report.violation {
            Some(_) => "found",
            None if report.complete => "clean",
            None => "cut",
        };
        let what = report.violation.as_ref().map(|v| v.what.clone()).unwrap_or_default();
        println!("{n}\t{found}\t{name}\t{}\t{ms}\t{}\t{what}", report.states, fault.name);
        if let Some(violation) = report.violation {
            if let Some(dir) = std::env::args().nth(2) {
                let _ = std::fs::write(
                    format!("{dir}/{n}.txt"),
                    format!("{}\n{what}\n{}\n", fault.name, violation.trace.join("\n")),
                );
            }
            return;
        }
    }
}
