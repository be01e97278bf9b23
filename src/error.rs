//! The one error that leaves the library, and the rules for those below it.
//!
//! - Each layer has a typed error of its own (`thiserror`), with the object that it happened on.
//! - At the library's border it becomes an [`Error`]: a coarse [`Kind`] that a program can act on, a message
//!   that says what was tried, on what, why it failed and what to do, and the source.
//! - A kind is never downgraded on the way up: damage stays damage, whatever wraps it.
//! - Errno exists only in `fuse/`; exit codes only in `cli/`.
//! - No message carries a secret: URLs are printed without user info and query.

use std::fmt;

/// What a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request itself is wrong: a name, a path, a flag. Change it and try again.
    Invalid,
    /// What was named does not exist.
    NotFound,
    /// It exists already, or somebody else won the race.
    Conflict,
    /// A higher epoch rules this job: stop.
    Fenced,
    /// Stored bytes are not what they should be. Exit code 3.
    Damage,
    /// The store could not be reached or did not answer in time. Trying again may help.
    Unavailable,
    /// The store, the disk or the kernel refused for lack of permission.
    Permission,
    /// No space, no memory, no descriptors.
    Resources,
    /// A newer version of ckptfs wrote this; upgrade.
    Newer,
    /// The environment lacks something (kernel feature, store semantics).
    Unsupported,
    /// Anything else.
    Other,
}

/// The library's error: kind, message, source.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync + 'static>>,
}

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error without a source.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// An error that wraps the one that caused it.
    pub fn with_source(
        kind: Kind,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { kind, message: message.into(), source: Some(source.into()) }
    }

    /// What a caller can do about it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The message alone, without its sources.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same error with words about what was being done put in front. The kind stays.
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    /// `{}` is the message, `{:#}` the message and all its sources.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if f.alternate() {
            let mut shown = self.message.clone();
            let mut next = std::error::Error::source(self);
            while let Some(cause) = next {
                let text = cause.to_string();
                // Layers that already quote their cause would say it twice.
                if !shown.contains(&text) {
                    write!(f, ": {text}")?;
                    shown.push_str(&text);
                }
                next = cause.source();
            }
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| &**e as &(dyn std::error::Error + 'static))
    }
}

/// A layer's typed error becomes the public one without losing its kind.
macro_rules! into_public {
    ($error:ty) => {
        impl From<$error> for $crate::error::Error {
            fn from(e: $error) -> Self {
                Self::with_source(e.kind(), e.to_string(), e)
            }
        }
    };
}
pub(crate) use into_public;
