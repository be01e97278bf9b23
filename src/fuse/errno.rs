//! Errors of the view as the kernel's numbers. The only place that has them.

use fuser::Errno;

use crate::error::Kind;
use crate::view::ViewError;

/// The number that a program sees.
pub(super) fn errno(error: &ViewError) -> Errno {
    match error {
        ViewError::NotFound => Errno::ENOENT,
        ViewError::Stale => Errno::ESTALE,
        ViewError::NotADirectory => Errno::ENOTDIR,
        ViewError::IsADirectory => Errno::EISDIR,
        ViewError::NotALink => Errno::EINVAL,
        ViewError::NoData => Errno::NO_XATTR,
        ViewError::NotSupported => Errno::EOPNOTSUPP,
        ViewError::NoSpace(_) => Errno::ENOSPC,
        ViewError::Permission(_) => Errno::EACCES,
        // No number says "the store is away" or "these bytes are damaged" better than a disk's error, and
        // every program knows that one. The words are in the log.
        ViewError::Unavailable(_) | ViewError::Damaged(_) => Errno::EIO,
        ViewError::Other(Kind::Resources, _) => Errno::ENOMEM,
        ViewError::Other(..) => Errno::EIO,
    }
}

/// Whether an error is news for the log, or only the answer to a question.
pub(super) fn is_news(error: &ViewError) -> bool {
    matches!(
        error,
        ViewError::Unavailable(_)
            | ViewError::Damaged(_)
            | ViewError::NoSpace(_)
            | ViewError::Permission(_)
            | ViewError::Other(..)
    )
}
