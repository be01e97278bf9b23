//! What can go wrong with a state backend, said with the directory that it happened in.

use std::path::{Path, PathBuf};

use crate::error::Kind;

/// An error of a state backend.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// RocksDB refused or failed.
    #[error("cannot {action} the database in {}: {source}{}", path.display(), remedy(source))]
    RocksDb {
        /// What was tried.
        action: &'static str,
        /// The database's directory.
        path: PathBuf,
        /// RocksDB's words.
        source: rocksdb::Error,
    },
    /// A clone's files are on a mount that is away.
    #[error("cannot open the database in {}: {source}", path.display())]
    MountAway {
        /// The database's directory.
        path: PathBuf,
        /// Which file, and what to do.
        source: crate::local::LocalError,
    },
    /// There is no database.
    #[error("there is no RocksDB database in {} (it has no file CURRENT)", path.display())]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// A column family that was not opened.
    #[error("the database in {} was not opened with the column family {family:?}", path.display())]
    NoFamily {
        /// The database's directory.
        path: PathBuf,
        /// The family.
        family: String,
    },
    /// A value that is no count.
    #[error("the count of {key:?} in {} has {length} bytes, not 8: the database is damaged or not one of ours", path.display())]
    NotACount {
        /// The database's directory.
        path: PathBuf,
        /// The key, as far as it is text.
        key: String,
        /// Length of the value.
        length: usize,
    },
    /// A count that left 64 bits.
    #[error("the count of {key:?} in {} would be larger than 64 bits", path.display())]
    Overflow {
        /// The database's directory.
        path: PathBuf,
        /// The key, as far as it is text.
        key: String,
    },
}

impl StateError {
    pub(super) fn rocksdb(action: &'static str, path: &Path, source: rocksdb::Error) -> Self {
        Self::RocksDb { action, path: path.to_owned(), source }
    }

    /// What a caller can do about it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::RocksDb { source, .. } => kind_of(source),
            Self::Missing { .. } => Kind::NotFound,
            Self::MountAway { source, .. } => source.kind(),
            Self::NoFamily { .. } | Self::Overflow { .. } => Kind::Invalid,
            Self::NotACount { .. } => Kind::Damage,
        }
    }
}

/// RocksDB has one kind for all that the system says, so its words must tell the rest.
fn kind_of(error: &rocksdb::Error) -> Kind {
    use rocksdb::ErrorKind as R;
    let says = |text: &str| error.as_ref().contains(text);
    match error.kind() {
        R::NotFound => Kind::NotFound,
        R::Corruption => Kind::Damage,
        R::NotSupported => Kind::Unsupported,
        R::InvalidArgument if says("does not exist") => Kind::NotFound,
        R::InvalidArgument => Kind::Invalid,
        R::IOError if says("LOCK: ") || says("lock hold by current process") => Kind::Conflict,
        R::IOError if says("No such file or directory") => Kind::NotFound,
        R::IOError if says("Permission denied") || says("Read-only file system") => Kind::Permission,
        R::IOError if says("No space left") || says("Too many open files") => Kind::Resources,
        R::Busy | R::Aborted | R::MergeInProgress => Kind::Conflict,
        R::TimedOut | R::TryAgain | R::Incomplete => Kind::Unavailable,
        _ => Kind::Other,
    }
}

fn remedy(error: &rocksdb::Error) -> &'static str {
    match kind_of(error) {
        Kind::Conflict => " (is another process using it? stop that, or choose another directory)",
        Kind::Resources => " (free some space, or raise the limit of open files)",
        Kind::Damage => " (restore it from a checkpoint)",
        _ => "",
    }
}
