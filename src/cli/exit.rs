//! Exit codes, and the one place that prints errors.

use std::io::Write;

use ckptfs::error::{Error, Kind, Result};

use super::words::clean;

/// How a verb ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0
    Done,
    /// 3: it did what it was asked, and found damage.
    Damage,
}

const DONE: u8 = 0;
const FAILED: u8 = 1;
const USAGE: u8 = 2;
const DAMAGE: u8 = 3;

/// The exit code of a verb; prints its error.
pub(crate) fn code(result: Result<Exit>) -> u8 {
    match result {
        Ok(Exit::Done) => DONE,
        Ok(Exit::Damage) => DAMAGE,
        Err(e) if is_broken_pipe(&e) => DONE,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "ckptfs: {}", clean(&format!("{e:#}")));
            if e.kind() == Kind::Damage { DAMAGE } else { FAILED }
        }
    }
}

/// Help and versions are success, wrong arguments are usage.
pub(crate) fn usage(e: &clap::Error) -> u8 {
    let _ = e.print();
    if e.use_stderr() { USAGE } else { DONE }
}

/// Whoever read our output has seen enough.
fn is_broken_pipe(e: &Error) -> bool {
    let mut next = std::error::Error::source(e);
    while let Some(cause) = next {
        if cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe) {
            return true;
        }
        next = cause.source();
    }
    false
}
