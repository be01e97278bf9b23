//! What is done to one call of a run, or to all from one on.

use crate::ends::limits::Limit;
use crate::trace::{Act, Call, Watch};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Nothing: the run that the others are compared with.
    Quiet,
    Before,
    After,
    Torn,
    /// One call fails.
    Errno(i32),
    /// All calls from one on fail, until space is back.
    From(i32),
    /// A limit for the whole run.
    Under(Limit),
}

/// Calls by which nothing grows: the disk has room for them whenever it has none.
const SHRINK: [&str; 7] = ["unlinkat", "unlink", "rmdir", "fremovexattr", "removexattr", "fchmod", "utimensat"];

impl Mode {
    pub fn name(self) -> String {
        match self {
            Self::Quiet => "quiet".to_owned(),
            Self::Before => "before".to_owned(),
            Self::After => "after".to_owned(),
            Self::Torn => "torn".to_owned(),
            Self::Errno(e) => errno(e).to_owned(),
            Self::From(e) => format!("{} from there on", errno(e)),
            Self::Under(limit) => limit.name(),
        }
    }

    pub fn watch(self) -> Watch {
        if self == Self::Errno(libc::EMFILE) { Watch::Opens } else { Watch::Changes }
    }

    /// Whether this can happen to the call.
    pub fn applies(self, call: &Call) -> bool {
        match self {
            Self::Quiet | Self::Under(_) => false,
            Self::Before | Self::After => true,
            Self::Torn => call.tearable,
            Self::Errno(e) | Self::From(e) => !matches!(e, libc::ENOSPC | libc::EDQUOT) || !SHRINK.contains(&call.name),
        }
    }

    pub fn act(self) -> Act {
        match self {
            Self::Quiet | Self::Under(_) => Act::Go,
            Self::Before => Act::KillBefore,
            Self::After => Act::KillAfter,
            Self::Torn => Act::Torn,
            Self::Errno(e) | Self::From(e) => Act::Fail(e),
        }
    }

    /// Whether it lasts as long as the process.
    pub fn lasts(self) -> bool {
        matches!(self, Self::Under(limit) if !limit.is_disk())
    }

    pub fn starves(self) -> bool {
        matches!(self, Self::Under(Limit::Memory(_)))
    }

    pub fn kills(self) -> bool {
        matches!(self, Self::Before | Self::After | Self::Torn)
    }
}

fn errno(e: i32) -> &'static str {
    match e {
        libc::ENOSPC => "ENOSPC",
        libc::EDQUOT => "EDQUOT",
        libc::EIO => "EIO",
        libc::EMFILE => "EMFILE",
        _ => "another",
    }
}
