//! The object store behind a typed, blocking interface.
//!
//! Keys are typed ([`crate::types::Key`]), every request has a deadline and bounded retries, and a create-if-absent
//! whose answer is unclear is read back until it is clear. What a [`Backend`] must do is little, so that tests
//! and fault injection can stand in for a real one. The calls block: never make them on a thread of an async runtime.

mod answers;
mod backend;
pub mod bucket;
mod error;
mod file;
mod location;
pub mod memory;
mod object;
mod options;
mod pace;
mod probe;
mod request;
mod runtime;
mod settings;
mod signed;
pub mod source;
mod text;
mod transfer;
mod xml;

#[cfg(test)]
mod over_http;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

pub use backend::{Backend, BucketAnswer, BucketSetting, Put, RawListed, Sink, Staging};
pub use bucket::{Asked, BucketRules, LifecycleRule};
pub use error::{Result, StoreError};
pub use options::{Environment, Rates, StoreOptions};
pub use source::{Piece, SourceFile, SourceListing, SourceUrl, Sources};
pub use transfer::StagedBlob;

use crate::local::process::Room;
use crate::metrics::Counter;
use crate::types::{Key, Uid};

/// A store. Clones share everything.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    backend: Arc<dyn Backend>,
    url: String,
    options: StoreOptions,
    counters: Counters,
    fetching: pace::Pacer,
    /// The store's id, once a signature needed it.
    id: OnceLock<Uid>,
}

/// What was asked of a store since it was opened, retries included.
#[derive(Debug, Default)]
pub struct Counters {
    /// Objects sent, or tried to be.
    pub puts: Counter,
    /// GETs, whole or ranges.
    pub gets: Counter,
    /// HEADs.
    pub heads: Counter,
    /// Listings.
    pub lists: Counter,
    /// Objects deleted.
    pub deletes: Counter,
    /// Bytes sent.
    pub bytes_up: Counter,
    /// Bytes received.
    pub bytes_down: Counter,
    /// Attempts after a first one failed.
    pub retries: Counter,
    /// Those of each kind that failed: what was absent or there already is an answer.
    pub failed_puts: Counter,
    /// See `failed_puts`.
    pub failed_gets: Counter,
    /// See `failed_puts`.
    pub failed_heads: Counter,
    /// See `failed_puts`.
    pub failed_lists: Counter,
    /// See `failed_puts`.
    pub failed_deletes: Counter,
}

/// Counts a request that failed.
fn noted<T>(failed: &Counter, result: Result<T>) -> Result<T> {
    if result.is_err() {
        failed.inc();
    }
    result
}

/// How a create-if-absent ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// It was not there; now it is.
    New,
    /// An object with the same bytes is there: our own retried request, or somebody who decided the same.
    Ours,
    /// Another object is there, with these bytes.
    Other(Bytes),
}

impl Created {
    /// Whether the object that is there now holds our bytes.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        !matches!(self, Self::Other(_))
    }
}

/// One object of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: Key,
    /// Its length in bytes.
    pub size: u64,
}

/// An object whose key is none of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// Its key as the store spells it. Not to be printed without escaping, nor ever deleted unasked.
    pub key: String,
    /// Its length in bytes.
    pub size: u64,
}

impl Foreign {
    /// Whether a probe left it that was killed: it is ours after all.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.key.starts_with(probe::DIRECTORY)
    }
}

/// A whole listing, in the order of keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedAll {
    /// Objects of the prefix.
    pub ours: Vec<Listed>,
    /// Whatever else lies there.
    pub foreign: Vec<Foreign>,
}

/// Where the bytes of a blob come from.
#[derive(Debug, Clone)]
pub enum BlobSource<'a> {
    /// Memory; the caller made the blob's name by hashing exactly these bytes.
    Bytes(Bytes),
    /// An open file of this length, from its first byte on. It is hashed while it is sent.
    File(&'a File, u64),
}

impl BlobSource<'_> {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, len) => *len,
        }
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Store {
    /// Opens a store by its URL: `file:///path` or a plain path, `s3://bucket/prefix`, `gs://`, `az://`. Nothing is created, and nothing is asked of
    /// a remote store yet. Credentials come from the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`).
    ///
    /// # Errors
    /// When the URL is malformed, holds credentials, is of an unknown kind, or names a file system that is not safe.
    pub fn open(url: &str, options: StoreOptions) -> Result<Self> {
        let location = location::Location::parse(url)?;
        let shown = location.shown().to_owned();
        let backend = location.open(&options)?;
        Ok(Self::over(backend, shown, options))
    }

    /// A store's URL or directory as it is shown, without opening it.
    ///
    /// # Errors
    /// When it is neither, or carries what may be secret.
    pub fn spelled(url: &str) -> Result<String> {
        location::Location::parse(url).map(|location| location.shown().to_owned())
    }

    /// A store over any backend. `url` is what messages call it.
    #[must_use]
    pub fn from_backend(backend: Arc<dyn Backend>, url: &str, options: StoreOptions) -> Self {
        Self::over(backend, text::without_secrets(url), options)
    }

    fn over(backend: Arc<dyn Backend>, url: String, options: StoreOptions) -> Self {
        // A directory is not behind a network that others need too.
        let fetching = pace::Pacer::new(options.rates.fetch.filter(|_| !backend.answers_at_once()));
        Self(Arc::new(Inner { backend, url, options, counters: Counters::default(), fetching, id: OnceLock::new() }))
    }

    /// The URL, without anything secret.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// What was asked of it so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// The options that it was opened with.
    #[must_use]
    pub fn options(&self) -> &StoreOptions {
        &self.0.options
    }

    /// The directory that it lies in and the room on its disk; nothing where it lies in none, or that is not there yet.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn disk(&self) -> Result<Option<(PathBuf, Room)>> {
        self.0.backend.disk()
    }

    /// The backend, to wrap it.
    #[must_use]
    pub fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.0.backend)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.0.url).finish()
    }
}
