//! What went wrong with a store: what was tried, on what, why, and what to do. No secrets.

use std::time::Duration;

use super::text;
use crate::error::Kind;
use crate::local::LocalError;

/// The layer's result.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// A request to a store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// What was named is not there: an object, or the bucket.
    #[error("cannot {what} {object}: it does not exist ({why})")]
    NotFound {
        /// What was tried.
        what: &'static str,
        /// URL of the object.
        object: String,
        /// What the store said.
        why: String,
    },
    /// The store did not answer, or not in time. Trying later may help.
    #[error(
        "cannot {what} {object}: the store did not answer within {waited:.1?} ({why}); check the network, the endpoint and the server, then try again"
    )]
    Unavailable {
        /// What was tried.
        what: &'static str,
        /// URL of the object.
        object: String,
        /// What was seen.
        why: String,
        /// How long it was tried.
        waited: Duration,
    },
    /// The credentials are missing, wrong or do not allow it.
    #[error(
        "cannot {what} {object}: permission denied ({why}); check the credentials in the environment and the rights that they have"
    )]
    Permission {
        /// What was tried.
        what: &'static str,
        /// URL of the object.
        object: String,
        /// What the store said.
        why: String,
    },
    /// The store cannot be written.
    #[error("cannot {what} {object}: the store is read-only")]
    ReadOnly {
        /// What was tried.
        what: &'static str,
        /// URL of the object.
        object: String,
    },
    /// Bytes are not what they should be.
    #[error("{object} is damaged: {why}")]
    Damaged {
        /// URL of the object.
        object: String,
        /// What is wrong.
        why: String,
    },
    /// A record that is there and that nobody with a key of ours wrote for this place.
    #[error("{object} is not believed: {why}")]
    Untrusted {
        /// URL of the object.
        object: String,
        /// Why, and what to do.
        why: String,
    },
    /// The request itself is wrong.
    #[error("{object}: {why}")]
    Invalid {
        /// URL of the store or object.
        object: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// Something lies there that is no store of ours.
    #[error("{store} is not a ckptfs store: {why}")]
    NotOurs {
        /// URL of the store.
        store: String,
        /// What was seen.
        why: String,
    },
    /// A newer version wrote it.
    #[error("{store} needs a newer ckptfs: {why}")]
    Newer {
        /// URL of the store.
        store: String,
        /// What is needed.
        why: String,
    },
    /// The store lacks something that safety rests on.
    #[error("{store} cannot be used: {why}")]
    Unsupported {
        /// URL of the store.
        store: String,
        /// What it lacks, and what to do.
        why: String,
    },
    /// The receiver of bytes failed, not the store.
    #[error("cannot take the bytes of {object}: {source}")]
    Sink {
        /// URL of the object.
        object: String,
        /// Its error.
        source: std::io::Error,
    },
    /// A file that was to be sent could not be read.
    #[error("cannot read the file that is sent as {object}: {source}")]
    Source {
        /// URL of the object.
        object: String,
        /// Why.
        source: std::io::Error,
    },
    /// A `file://` store's own file failed.
    #[error(transparent)]
    Local(#[from] LocalError),
}

impl StoreError {
    /// What a caller can do about it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::NotFound { .. } => Kind::NotFound,
            Self::Unavailable { .. } => Kind::Unavailable,
            Self::Permission { .. } | Self::ReadOnly { .. } => Kind::Permission,
            Self::Damaged { .. } | Self::Untrusted { .. } => Kind::Damage,
            Self::Invalid { .. } | Self::NotOurs { .. } => Kind::Invalid,
            Self::Newer { .. } => Kind::Newer,
            Self::Unsupported { .. } => Kind::Unsupported,
            Self::Local(e) => e.kind(),
            Self::Sink { .. } | Self::Source { .. } => Kind::Other,
        }
    }

    /// Whether the same request may succeed when it is made again.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

impl From<StoreError> for crate::error::Error {
    fn from(e: StoreError) -> Self {
        Self::with_source(e.kind(), e.to_string(), e)
    }
}

/// Text of an error and its causes, once each, without secrets and not longer than a screen.
pub(super) fn explain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut out = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !out.contains(&said) {
            out.push_str(": ");
            out.push_str(&said);
        }
        next = cause.source();
    }
    text::without_secrets(&out)
}
