//! Exit codes, and the one place that prints errors.

use std::io::Write;
use std::process::ExitCode;

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

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const DAMAGE: u8 = 3;

/// The exit code of a verb; prints its error.
pub(crate) fn code(result: Result<Exit>) -> ExitCode {
    match result {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Damage) => ExitCode::from(DAMAGE),
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "ckptfs: {}", clean(&format!("{e:#}")));
            ExitCode::from(if e.kind() == Kind::Damage { DAMAGE } else { FAILED })
        }
    }
}

/// Help and versions are success, wrong arguments are usage.
pub(crate) fn usage(e: &clap::Error) -> ExitCode {
    let _ = e.print();
    if e.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
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
