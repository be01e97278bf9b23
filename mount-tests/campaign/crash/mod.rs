//! Crash points: every call by which eight scenarios change a file, each not made, made and followed by death, and made by half; then what
//! a person does, and a full check.
//!
//! `CKPTFS_CRASH_SEEDS` repeats it with other contents, `CKPTFS_CRASH_SHARE=n` visits every n-th point (others with another seed; 1: all),
//! `CKPTFS_CRASH_ONLY=scenario/step/mode/k` one, `CKPTFS_CRASH_TIMES` tells more.

pub mod check;
pub mod helper;
pub mod kind;
pub mod mode;
#[cfg(test)]
mod planted;
pub mod point;
pub mod proxy;
pub mod reader;
pub mod s3;
pub mod scenarios;
pub mod workers;
pub mod yard;

use std::time::Instant;

use mode::Mode;
use workers::{campaign, is_worker, missed, seeds, share, table, work};

/// The first seed that contents and the choice of points come from.
pub fn seed() -> u64 {
    std::env::var("CKPTFS_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0)
}

/// Every which point a CI run visits: all of them take about six minutes on two processors.
const SHARE: u64 = 5;

const MODES: [Mode; 4] = [Mode::Quiet, Mode::Before, Mode::After, Mode::Torn];

#[test]
fn every_crash_point() {
    if is_worker("crash") {
        return work(&MODES);
    }
    for seed in seed()..seed() + seeds() {
        let begun = Instant::now();
        let report = campaign("crash", "crash::every_crash_point", &MODES, seed, SHARE);
        println!("seed {seed}, every {}. point, {:.0?}", share(SHARE), begun.elapsed());
        println!("{}", table(&report.points, &MODES[1..]));
        let points: u64 = report.points.values().sum();
        println!("{points} points, {} kinds of (step, mode, call)", report.hits.len());
        assert!(
            report.failures.is_empty(),
            "{} points lost something:\n{}",
            report.failures.len(),
            report.failures.join("\n")
        );
        assert!(points > 0, "nothing was visited");
        let missed = missed(&report, &MODES);
        assert!(
            share(SHARE) > 1 || std::env::var_os("CKPTFS_CRASH_ONLY").is_some() || missed.is_empty(),
            "never hit: {missed:#?}"
        );
    }
}
