//! What went wrong with a local file: what was tried, on what, why, and what to do.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Kind};

/// The layer's result.
pub type Result<T, E = LocalError> = std::result::Result<T, E>;

/// What [`super::Dir::sync`] tries.
pub(super) const SYNC: &str = "sync the directory";

/// A local file, directory or mount could not be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {source}{}", path.display(), remedy_text(.remedy.as_deref()))]
pub struct LocalError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
    remedy: Option<String>,
    kind: Option<Kind>,
}

fn remedy_text(remedy: Option<&str>) -> String {
    remedy.map(|r| format!(" ({r})")).unwrap_or_default()
}

/// What to do about an error of the kernel's, where that does not depend on what was tried.
fn remedy_of(source: &io::Error) -> Option<&'static str> {
    match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => Some("free some space or raise the quota"),
        Some(libc::EMFILE | libc::ENFILE) => Some("raise the limit of open files: ulimit -n"),
        Some(libc::EFBIG) => Some("raise the limit of file sizes: ulimit -f"),
        Some(libc::EIO) => Some("the disk, or what it is reached by, fails: look into the kernel's log (dmesg)"),
        Some(libc::ENOTDIR) => Some("name a directory"),
        Some(libc::EACCES | libc::EPERM) => Some("look at its owner and mode, or run as the user that it belongs to"),
        Some(libc::EROFS) => Some("the file system is mounted read-only"),
        Some(libc::ELOOP) => Some("it is or passes a symbolic link, which is not followed here"),
        Some(libc::EXDEV) => Some("it would leave its directory or file system"),
        Some(libc::ENOTCONN) => Some("a FUSE daemon died: unmount it with ckptfs umount"),
        _ => None,
    }
}

/// An error of the kernel's with what to do about it.
pub(crate) fn remedied(source: &io::Error) -> String {
    format!("{source}{}", remedy_text(remedy_of(source)))
}

/// The error of a thread that could not be started, with what to do.
#[must_use]
pub fn no_thread(source: io::Error) -> Error {
    let why = format!(
        "cannot start a thread: {source} (raise the limits of processes and memory: ulimit -u, ulimit -v, or its cgroup's below /sys/fs/cgroup)"
    );
    Error::with_source(Kind::Resources, why, source)
}

impl LocalError {
    /// An operation on a path failed. `what` is a verb phrase: "open", "link a file into".
    pub(crate) fn new(what: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        let remedy = remedy_of(&source);
        Self { what, path: path.as_ref().to_owned(), source, remedy: remedy.map(str::to_owned), kind: None }
    }

    pub(crate) fn entry(what: &'static str, dir: &Path, name: &OsStr, source: io::Error) -> Self {
        Self::new(what, dir.join(name), source)
    }

    /// The request is wrong, or the place is not fit for it.
    pub(crate) fn refused(what: &'static str, path: impl AsRef<Path>, kind: Kind, why: impl Into<String>) -> Self {
        Self {
            what,
            path: path.as_ref().to_owned(),
            source: io::Error::other(why.into()),
            remedy: None,
            kind: Some(kind),
        }
    }

    /// What is needed is away for now.
    pub(crate) fn away(what: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        Self { what, path: path.as_ref().to_owned(), source, remedy: None, kind: Some(Kind::Unavailable) }
    }

    #[must_use]
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// What was worked on.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The operating system's error.
    #[must_use]
    pub fn io(&self) -> &io::Error {
        &self.source
    }

    /// The errno, when the kernel gave one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    /// The disk or the quota is full.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOSPC | libc::EDQUOT))
    }

    /// What was named does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.errno() == Some(libc::ENOENT)
    }

    /// The file system takes no writes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.errno() == Some(libc::EROFS)
    }

    /// A directory could not be synced: what was done in it may be lost, and trying again would not tell.
    #[must_use]
    pub fn is_sync_failure(&self) -> bool {
        self.what == SYNC
    }

    /// What a caller can do about it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        if let Some(kind) = self.kind {
            return kind;
        }
        match self.errno() {
            Some(libc::ENOENT | libc::ENOTDIR) => Kind::NotFound,
            Some(libc::EEXIST | libc::ENOTEMPTY | libc::EBUSY) => Kind::Conflict,
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => Kind::Permission,
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG | libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
                Kind::Resources
            }
            Some(libc::EINVAL | libc::ENAMETOOLONG | libc::ELOOP | libc::EISDIR) => Kind::Invalid,
            Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::ENODEV) => Kind::Unsupported,
            Some(libc::ENOTCONN | libc::ETIMEDOUT) => Kind::Unavailable,
            _ => Kind::Other,
        }
    }
}

impl From<LocalError> for crate::error::Error {
    fn from(e: LocalError) -> Self {
        Self::with_source(e.kind(), e.to_string(), e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_a_resource_is_told_with_what_to_do() {
        for (errno, remedy) in [
            (libc::ENOSPC, "free some space"),
            (libc::EDQUOT, "raise the quota"),
            (libc::EMFILE, "ulimit -n"),
            (libc::EFBIG, "ulimit -f"),
            (libc::EIO, "dmesg"),
        ] {
            let source = || io::Error::from_raw_os_error(errno);
            let told = LocalError::new("write", "/x", source()).to_string();
            assert!(told.starts_with("cannot write /x: ") && told.contains(remedy), "{told}");
            assert!(remedied(&source()).ends_with(')') && remedied(&source()).contains(remedy));
        }
        assert_eq!(LocalError::new("write", "/x", io::Error::from_raw_os_error(libc::EFBIG)).kind(), Kind::Resources);
        assert_eq!(remedied(&io::Error::other("no")), "no");
    }
}
