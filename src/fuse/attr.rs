//! The view's attributes as the kernel's: owner, mode, blocks, and how long they may be remembered.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, Generation, INodeNo};

use crate::types::Name;
use crate::view::{Attr, Kind, Lasting};

/// How long the kernel may remember what never changes: a day. It bounds what is lost if an invalidation is ever
/// missed.
const LONG: Duration = Duration::from_secs(86_400);

/// Without it, each step of `ls -lR MOUNT/job/chk-1` walks the path by four requests. What is known of a name is not asked again by us
/// either before somebody lists, so a second makes nothing older than it was.
const MOMENT: Duration = Duration::from_secs(1);

/// All numbers are given once only.
pub(super) const GENERATION: Generation = Generation(0);

/// Who owns what is shown, and whether others may read it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) others: bool,
}

/// Who owns a job's directories and who may enter them, where that is not as in the rest of the mount. Its files keep the mount's owner and
/// mode: one file may belong to several jobs and is one inode, so that only the way to it can be a job's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JobAccess {
    /// The owner; the mount's where it is not given.
    pub uid: Option<u32>,
    /// The group; the mount's where it is not given.
    pub gid: Option<u32>,
    /// The permissions, at most `0o777`. Where they are not given: as the mount's; those of a job with an owner let nobody else in.
    pub mode: Option<u16>,
}

/// Owners of all that is shown.
#[derive(Debug)]
pub(super) struct Owners {
    pub(super) all: Owner,
    pub(super) jobs: BTreeMap<Name, JobAccess>,
}

impl Owners {
    /// `job`: whose directory it is, if it is one.
    pub(super) fn attr(&self, attr: &Attr, job: Option<&Name>) -> FileAttr {
        let mut shown = self.all.attr(attr);
        if let Some(access) = job.and_then(|job| self.jobs.get(job)) {
            // The mount's group is not the job's.
            let kept_in = access.uid.map(|_| if access.gid.is_some() { 0o550 } else { 0o500 });
            shown.uid = access.uid.unwrap_or(shown.uid);
            shown.gid = access.gid.unwrap_or(shown.gid);
            shown.perm = access.mode.map(|mode| mode & 0o777).or(kept_in).unwrap_or(shown.perm);
        }
        shown
    }
}

/// How long the name may be remembered.
pub(super) fn entry_ttl(lasting: Lasting) -> Duration {
    match lasting {
        Lasting::All => LONG,
        Lasting::Moment | Lasting::Lives => MOMENT,
        Lasting::Nothing | Lasting::Attributes => Duration::ZERO,
    }
}

/// How long the attributes may be remembered.
pub(super) fn attr_ttl(lasting: Lasting) -> Duration {
    match lasting {
        Lasting::Nothing => Duration::ZERO,
        Lasting::Moment => MOMENT,
        Lasting::Attributes | Lasting::Lives | Lasting::All => LONG,
    }
}

/// What an entry of a directory listing is.
pub(super) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::File => FileType::RegularFile,
        Kind::Link => FileType::Symlink,
    }
}

impl Owner {
    pub(super) fn attr(self, attr: &Attr) -> FileAttr {
        let time: SystemTime = UNIX_EPOCH.checked_add(Duration::from_millis(attr.mtime_ms)).unwrap_or(UNIX_EPOCH);
        let perm = match (attr.kind, self.others) {
            (Kind::Directory, false) => 0o550,
            (Kind::Directory, true) => 0o555,
            (Kind::File, false) => 0o440,
            (Kind::File, true) => 0o444,
            (Kind::Link, _) => 0o777,
        };
        FileAttr {
            ino: INodeNo(attr.ino),
            size: attr.size,
            // As `du` counts.
            blocks: attr.size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: file_type(attr.kind),
            perm,
            nlink: attr.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// The answer that a name does not exist, in a form that the kernel remembers: number 0.
    pub(super) fn absent(self) -> FileAttr {
        self.attr(&Attr { ino: 0, kind: Kind::File, size: 0, nlink: 0, mtime_ms: 0 })
    }
}
