//! What can go wrong with a state backend, said with the directory that it happened in.

use std::path::{Path, PathBuf};

use crate::error::Kind;
use crate::types::KeyGroupRange;
use crate::types::number::NumberError;

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
    /// RocksDB could not read what is only looked at.
    #[error("cannot {action} the database in {}: {source}{}", path.display(), advice(source))]
    Unreadable {
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
    /// Bytes that are not what the serializer writes.
    #[error("cannot read a {what}: {problem}: the bytes are damaged or were written by another serializer")]
    Decode {
        /// What was read.
        what: String,
        /// What is wrong with the bytes.
        problem: String,
    },
    /// An item that the serializer cannot write.
    #[error("cannot write a {what}: {problem}")]
    Encode {
        /// What was written.
        what: String,
        /// What is wrong with the item.
        problem: String,
    },
    /// Something that went wrong with one state of a backend.
    #[error("state {state:?}: {source}")]
    State {
        /// The state's name.
        state: String,
        /// What went wrong.
        source: Box<StateError>,
    },
    /// A state that is declared otherwise than it was before.
    #[error(
        "state {state:?} was stored as {old} and is now declared as {new}: {problem}; declare it as it was, or give it another name"
    )]
    Refused {
        /// The state's name.
        state: String,
        /// As it was.
        old: String,
        /// As it is declared now.
        new: String,
        /// What does not go together.
        problem: String,
    },
    /// A backend that is opened otherwise than it was made.
    #[error("cannot open the keyed state in {}: {problem}", path.display())]
    Backend {
        /// The database's directory.
        path: PathBuf,
        /// What does not go together.
        problem: String,
    },
    /// State of a key was asked for before a key was set.
    #[error("state {state:?} has no current key: set_current_key comes first")]
    NoKey {
        /// The state's name.
        state: String,
    },
    /// A key of another subtask.
    #[error("the key belongs to key group {group}, and this backend has {range}: it was sent to the wrong subtask")]
    WrongSubtask {
        /// The key's group.
        group: u32,
        /// The backend's groups.
        range: KeyGroupRange,
    },
    /// The backend was closed.
    #[error("the state backend is closed")]
    Closed,
    /// A number that is out of its bounds.
    #[error(transparent)]
    Number(#[from] NumberError),
    /// The kernel's generator gave nothing.
    #[error("cannot make up an identity for the keyed state in {}: {source}", path.display())]
    Identity {
        /// The database's directory.
        path: PathBuf,
        /// The kernel's words.
        source: std::io::Error,
    },
    /// A directory that is there already.
    #[error("{} has a RocksDB database already: open it, or choose another directory", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
}

crate::error::into_public!(StateError);

impl StateError {
    /// Refuses a declaration that has problems.
    pub(super) fn refused(
        state: &str,
        old: &impl ToString,
        new: &impl ToString,
        problems: &[String],
    ) -> Result<(), Self> {
        if problems.is_empty() {
            return Ok(());
        }
        let (state, problem) = (state.to_owned(), problems.join("; "));
        Err(Self::Refused { state, old: old.to_string(), new: new.to_string(), problem })
    }

    /// The same error, with the state that it happened to.
    #[must_use]
    pub fn of_state(self, state: &str) -> Self {
        match self {
            // These name it themselves, or have nothing to do with it.
            Self::State { .. } | Self::Refused { .. } | Self::NoKey { .. } | Self::Closed => self,
            source => Self::State { state: state.to_owned(), source: Box::new(source) },
        }
    }

    pub(super) fn decode(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Decode { what: what.into(), problem: problem.into() }
    }

    pub(super) fn encode(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Encode { what: what.into(), problem: problem.into() }
    }

    pub(super) fn unreadable(action: &'static str, path: &Path, source: rocksdb::Error) -> Self {
        Self::Unreadable { action, path: path.to_owned(), source }
    }

    pub(super) fn rocksdb(action: &'static str, path: &Path, source: rocksdb::Error) -> Self {
        Self::RocksDb { action, path: path.to_owned(), source }
    }

    /// What a caller can do about it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::RocksDb { source, .. } | Self::Unreadable { source, .. } => kind_of(source),
            Self::Missing { .. } => Kind::NotFound,
            Self::State { source, .. } => source.kind(),
            Self::Decode { .. } => Kind::Damage,
            Self::Exists { .. } | Self::Closed => Kind::Conflict,
            Self::Identity { .. } => Kind::Resources,
            Self::Encode { .. }
            | Self::Refused { .. }
            | Self::Backend { .. }
            | Self::NoKey { .. }
            | Self::WrongSubtask { .. }
            | Self::Number(_) => Kind::Invalid,
            Self::MountAway { source, .. } => source.kind(),
            Self::NoFamily { .. } => Kind::Invalid,
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

/// The same for what is part of a checkpoint itself.
fn advice(error: &rocksdb::Error) -> &'static str {
    match kind_of(error) {
        Kind::Damage => {
            " (`ckptfs verify --read` tells whether the store damaged it; if not, it was so when it was taken in: look into an older checkpoint)"
        }
        Kind::Other if error.as_ref().contains("Input/output error") => {
            " (the mount could not give its bytes: `ckptfs verify --read` tells whether they are damaged)"
        }
        _ => remedy(error),
    }
}
