//! Will it work here, and go on working? Looks at host, cache and store, and says of each finding what to do. Changes nothing but
//! a probe in the store, which it removes.

mod bucket;
mod host;
mod place;
mod store;

use std::path::PathBuf;

pub use place::{CACHE_SPACE, STORE_SPACE, space};

use crate::cache::SessionOptions;
use crate::cache::session::key_ring;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// As it should be.
    Fine,
    /// Good to know.
    Note,
    /// It works, and costs something: time, space, money, or safety.
    Warning,
    /// Something will fail.
    Fails,
}

impl Severity {
    /// As people and scripts read it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Fails => "fails",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at: `kernel`, `cache`, `bucket lifecycle`.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub says: String,
    /// What to do; empty where there is nothing to be done.
    pub remedy: String,
}

impl Finding {
    fn new(check: &'static str, severity: Severity, says: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, severity, says: says.into(), remedy: remedy.into() }
    }

    fn fine(check: &'static str, says: impl Into<String>) -> Self {
        Self::new(check, Severity::Fine, says, "")
    }

    /// An error's message says itself what to do.
    fn fails(check: &'static str, error: &crate::error::Error) -> Self {
        Self::new(check, Severity::Fails, error.message(), "")
    }
}

/// What is looked at.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Store, cache and key file, as every verb gets them.
    pub session: SessionOptions,
    /// A directory that is to be snapshotted, or restored into.
    pub directory: Option<PathBuf>,
}

/// Looks at everything. What cannot be looked at is a finding too.
#[must_use]
pub fn examine(question: &Question) -> Vec<Finding> {
    let mut findings = host::examine();
    findings.extend(place::examine(question));
    match question.session.key_file.as_deref().map(key_ring) {
        None => {
            let says = "no key is set: records are neither signed nor is a signature asked for";
            let remedy = "if not all who may write to the store are trusted: docs/SECURITY.md";
            findings.push(Finding::new("key file", Severity::Note, says, remedy));
        }
        Some(Ok(ring)) => {
            let says = match ring.count() {
                1 => "one key, which signs and verifies".to_owned(),
                n => format!("{n} keys: the first signs, all verify"),
            };
            findings.push(Finding::fine("key file", says));
        }
        // The store is not opened without the key that was asked for.
        Some(Err(e)) => {
            findings.push(Finding::fails("key file", &e));
            return findings;
        }
    }
    findings.extend(store::examine(&question.session));
    findings
}
