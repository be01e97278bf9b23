//! What keeps a mount or the jobs of its store from going on, or soon will: a word for machines, a sentence with a remedy for people. It
//! comes of the last look at store and disks, so that whoever asks waits for neither.

use std::path::Path;

use crate::error::{Error, Kind};
use crate::local::process::Room;
use crate::restore::doctor::{self, Severity};

/// What is wrong, as `ckptfs_trouble` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The store did not answer.
    StoreUnavailable,
    /// It refused the credentials.
    StoreDenied,
    /// It could not be listed for another reason.
    StoreFailing,
    /// The disk of a `file://` store has little room or none.
    StoreDisk,
    /// The cache's disk has little room or none.
    CacheDisk,
}

impl Trouble {
    pub(super) const ALL: [Self; 5] =
        [Self::StoreUnavailable, Self::StoreDenied, Self::StoreFailing, Self::StoreDisk, Self::CacheDisk];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::StoreUnavailable => "store_unavailable",
            Self::StoreDenied => "store_denied",
            Self::StoreFailing => "store_failing",
            Self::StoreDisk => "store_disk",
            Self::CacheDisk => "cache_disk",
        }
    }
}

/// One that there is.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) trouble: Trouble,
    /// What it is, why, and what to do.
    pub(super) says: String,
}

/// Why the store could not be listed.
pub(super) fn of_listing(error: &Error) -> Told {
    let (trouble, what) = match error.kind() {
        Kind::Unavailable => (Trouble::StoreUnavailable, "The store does not answer"),
        Kind::Permission => (Trouble::StoreDenied, "The store refuses our credentials"),
        _ => (Trouble::StoreFailing, "The store could not be listed"),
    };
    Told { trouble, says: format!("{what}: {error}") }
}

/// A disk with too little room, in `doctor`'s words.
pub(super) fn of_disk(trouble: Trouble, path: &Path, room: Room) -> Option<Told> {
    let check = if trouble == Trouble::StoreDisk { doctor::STORE_SPACE } else { doctor::CACHE_SPACE };
    let found = doctor::space(check, path, room);
    let says = format!("{check}: {} ({})", found.says, found.remedy);
    (found.severity > Severity::Fine).then_some(Told { trouble, says })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_trouble_is_told_in_its_own_words() {
        let told = |kind| of_listing(&Error::new(kind, "why it failed (do this)"));
        for (kind, trouble, words) in [
            (Kind::Unavailable, Trouble::StoreUnavailable, "does not answer"),
            (Kind::Permission, Trouble::StoreDenied, "refuses our credentials"),
            (Kind::Damage, Trouble::StoreFailing, "could not be listed"),
        ] {
            let told = told(kind);
            assert_eq!(told.trouble, trouble);
            assert!(told.says.contains(words) && told.says.ends_with("why it failed (do this)"), "{told:?}");
        }
        let told = |trouble, available| {
            of_disk(trouble, Path::new("/d"), Room { total: 1 << 40, available, inodes: 0, free_inodes: 0 })
        };
        assert!(told(Trouble::CacheDisk, 2 << 30).is_none());
        let little = told(Trouble::CacheDisk, 500 << 20).unwrap();
        assert!(little.says.starts_with("cache space: 500 MiB are left for /d: "), "{little:?}");
        let full = told(Trouble::StoreDisk, 1 << 20).unwrap();
        assert!(full.says.starts_with("store space: the disk is full: 1 MiB are left for /d: "), "{full:?}");
        assert!(full.says.contains("gc --delete"), "{full:?}");
    }
}
