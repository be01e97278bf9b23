//! Resource ends: every call by which the scenarios of the crash points change a file, or open one, fails once, or fails from there on. The
//! program says clearly why it failed, or succeeds and all is whole; a mount serves right bytes or errors, and goes on afterwards.

pub mod limits;

use std::time::Instant;

use crate::crash::mode::Mode;
use crate::crash::seed;
use crate::crash::workers::{campaign, is_worker, seeds, share, table, work};

/// Every which call a CI run has fail: all of them take about twenty minutes on two processors.
const SHARE: u64 = 15;

const MODES: [Mode; 5] = [
    Mode::Errno(libc::ENOSPC),
    Mode::Errno(libc::EDQUOT),
    Mode::Errno(libc::EIO),
    Mode::Errno(libc::EMFILE),
    Mode::From(libc::ENOSPC),
];

#[test]
fn every_call_fails() {
    if is_worker("ends") {
        return work(&MODES);
    }
    for seed in seed()..seed() + seeds() {
        let begun = Instant::now();
        let report = campaign("ends", "ends::every_call_fails", &MODES, seed, SHARE);
        println!("seed {seed}, every {}. call, {:.0?}", share(SHARE), begun.elapsed());
        println!("{}", table(&report.points, &MODES));
        println!("of these, the step succeeded all the same:\n{}", table(&report.successes, &MODES));
        println!("{} different errors were said", report.words.len());
        if std::env::var_os("CKPTFS_CRASH_TIMES").is_some() {
            report.words.iter().for_each(|(words, n)| println!("{n:6} {words}"));
        }
        let failures = report.failures.join("\n");
        assert!(report.failures.is_empty(), "{} calls were not survived:\n{failures}", report.failures.len());
        assert!(report.points.values().sum::<u64>() > 0, "nothing was hit");
    }
}
