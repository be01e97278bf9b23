//! The campaign: tries to lose a byte. Each part visits every point of its kind, or draws from a seed that it prints, says what it
//! exercised, and fails when that is nothing. Sizes are those of a CI run; `scripts/soak.sh` sets the large ones.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::print_stdout, missing_docs, unreachable_pub)]

mod cluster;
mod power;
mod suites;

#[path = "../kit.rs"]
#[allow(dead_code)]
mod kit;
#[path = "../s3.rs"]
#[allow(dead_code)]
mod s3;
#[path = "../tool.rs"]
#[allow(dead_code)]
mod tool;

#[cfg(target_arch = "x86_64")]
mod crash;
#[cfg(target_arch = "x86_64")]
mod ends;
mod faults;
#[cfg(target_arch = "x86_64")]
mod trace;

#[cfg(not(target_arch = "x86_64"))]
#[test]
fn crash_points_and_resource_ends_are_visited() {
    panic!("the tracer knows the registers of x86_64 only: run these parts there");
}
