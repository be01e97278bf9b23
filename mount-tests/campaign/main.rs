//! The campaign: tries to lose a byte. Each part visits every point of its kind, or draws from a seed that it prints, says what it
//! exercised, and fails when that is nothing. Sizes are those of a CI run; `scripts/soak.sh` sets the large ones.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::print_stdout, missing_docs, unreachable_pub)]

#[path = "../kit.rs"]
#[allow(dead_code)]
mod kit;
#[path = "../tool.rs"]
#[allow(dead_code)]
mod tool;

mod crash;
mod ends;
mod trace;
