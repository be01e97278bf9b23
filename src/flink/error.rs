//! Why something that Flink wrote was refused.

use crate::error::{Error, Kind};

/// Why something that Flink wrote was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlinkError {
    /// It is not what Flink writes, or not all of it.
    #[error("{what} cannot be read at byte {at}: {why}")]
    Damaged {
        /// What was read.
        what: &'static str,
        /// Where in it, in bytes from its start.
        at: usize,
        /// What is wrong.
        why: String,
    },
    /// Written by a version of Flink whose format is not known here.
    #[error("{what} has format version {version}, and {known} can be read: {advice}")]
    Version {
        /// What was read.
        what: &'static str,
        /// The version that it says.
        version: i64,
        /// The versions that can be read.
        known: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// More of something than is taken.
    #[error("{what} at byte {at}: {count} {of}, at most {most} may be")]
    Limit {
        /// What was read.
        what: &'static str,
        /// Where in it, in bytes from its start.
        at: usize,
        /// What there is too much of.
        of: &'static str,
        /// How many it says.
        count: u64,
        /// How many may be.
        most: u64,
    },
}

impl FlinkError {
    /// What a caller can do about it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Damaged { .. } | Self::Limit { .. } => Kind::Damage,
            Self::Version { .. } => Kind::Unsupported,
        }
    }
}

impl From<FlinkError> for Error {
    fn from(e: FlinkError) -> Self {
        Self::with_source(e.kind(), e.to_string(), e)
    }
}
