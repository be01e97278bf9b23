//! What can go wrong in the view. The kernel's numbers for these exist only in `fuse/`.

use crate::error::Kind;

/// An error of the view. It is cloned to all who waited for the same answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// No such name.
    #[error("there is no such file or directory")]
    NotFound,
    /// An inode number that the view never gave out.
    #[error("the inode is not known")]
    Stale,
    /// A file where a directory was expected.
    #[error("it is not a directory")]
    NotADirectory,
    /// A directory where a file was expected.
    #[error("it is a directory")]
    IsADirectory,
    /// Not a symbolic link.
    #[error("it is not a symbolic link")]
    NotALink,
    /// No such extended attribute in a namespace that is served.
    #[error("there is no such attribute")]
    NoData,
    /// A namespace of extended attributes that is not served.
    #[error("attributes of this namespace are not served")]
    NotSupported,
    /// The store did not answer, or not in time.
    #[error("{0}")]
    Unavailable(String),
    /// Stored bytes are not what they should be.
    #[error("{0}")]
    Damaged(String),
    /// The cache's disk is full.
    #[error("{0}")]
    NoSpace(String),
    /// The store or the cache refused.
    #[error("{0}")]
    Permission(String),
    /// Anything else, with the kind that it came with.
    #[error("{1}")]
    Other(Kind, String),
}

impl ViewError {
    /// The error of a lower layer: its kind and its words.
    #[must_use]
    pub fn from_kind(kind: Kind, no_space: bool, message: String) -> Self {
        match kind {
            _ if no_space => Self::NoSpace(message),
            Kind::Unavailable => Self::Unavailable(message),
            Kind::Damage => Self::Damaged(message),
            Kind::Permission => Self::Permission(message),
            // What a manifest names and the store does not have is no missing name of the view.
            other => Self::Other(other, message),
        }
    }

    /// What a caller can do about it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::NotFound | Self::NoData => Kind::NotFound,
            Self::Stale | Self::NotADirectory | Self::IsADirectory | Self::NotALink => Kind::Invalid,
            Self::NotSupported => Kind::Unsupported,
            Self::Unavailable(_) => Kind::Unavailable,
            Self::Damaged(_) => Kind::Damage,
            Self::NoSpace(_) => Kind::Resources,
            Self::Permission(_) => Kind::Permission,
            Self::Other(kind, _) => *kind,
        }
    }
}
