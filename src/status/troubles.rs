//! What keeps a mount or the jobs of its store from going on, or soon will: a word for machines, a sentence with a remedy for people. It
//! comes of the last look at store and disks, so that whoever asks waits for neither.

use crate::error::{Error, Kind};
use crate::local::process::{Room, Scarcity};

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

/// A disk with too little room.
pub(super) fn of_disk(trouble: Trouble, room: Room) -> Option<Told> {
    let (disk, then) = match trouble {
        Trouble::StoreDisk => ("store", "checkpoints fail; `ckptfs expire` and `ckptfs gc --delete` free some"),
        _ => (
            "cache",
            "files that do not fit are fetched again and again; free some, or choose another place with --cache",
        ),
    };
    let how = match room.scarcity() {
        Scarcity::Enough => return None,
        Scarcity::Little => "is nearly full",
        Scarcity::Full => "is full",
    };
    let says = format!("The {disk}'s disk {how}, {} MiB are left: {then}", room.available >> 20);
    Some(Told { trouble, says })
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
        let room = |available| Room { total: 1 << 40, available, inodes: 0, free_inodes: 0 };
        assert!(of_disk(Trouble::CacheDisk, room(2 << 30)).is_none());
        let little = of_disk(Trouble::CacheDisk, room(500 << 20)).unwrap();
        assert!(little.says.starts_with("The cache's disk is nearly full, 500 MiB are left: "), "{little:?}");
        let full = of_disk(Trouble::StoreDisk, room(1 << 20)).unwrap();
        assert!(
            full.says.starts_with("The store's disk is full, 1 MiB are left: ") && full.says.contains("gc --delete")
        );
    }
}
