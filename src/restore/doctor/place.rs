//! The cache: its owner, its disk, whether files can be linked into it, and whether inodes keep records.

use std::path::{Path, PathBuf};

use super::{Finding, Question, Severity};
use crate::cache::session::default_cache;
use crate::cache::{Cache, CacheOptions};
use crate::error::{Error, Kind};
use crate::local::process::{self, Room, Scarcity};
use crate::local::publish::Staged;
use crate::local::{Dir, identity, mounts};
use crate::types::Digest;

/// What [`space`] is called for a cache.
pub const CACHE_SPACE: &str = "cache space";

/// What [`space`] is called for a store in a directory.
pub const STORE_SPACE: &str = "store space";

/// Less than one part in this of a disk's inodes is told.
const FEW: u64 = 20;

pub(super) fn examine(question: &Question) -> Vec<Finding> {
    let path = match &question.session.cache {
        Some(path) => Ok(path.clone()),
        None => default_cache(question.directory.as_deref()),
    };
    let path = match path.and_then(|p| std::path::absolute(&p).map_err(|e| Error::new(Kind::Invalid, e.to_string()))) {
        Ok(path) => path,
        Err(e) => return vec![Finding::fails("cache", &e)],
    };
    let mut findings = vec![cache(&path)];
    let Some(there) = path.ancestors().find(|p| p.is_dir()).map(Path::to_owned) else { return findings };
    match process::statvfs(&there) {
        Ok(room) => findings.push(space(CACHE_SPACE, &path, room)),
        Err(e) => findings.push(Finding::fails(CACHE_SPACE, &e.into())),
    }
    findings.push(records(&there));
    if let Some(directory) = &question.directory {
        findings.extend(link(directory, &path, &there));
    }
    findings
}

fn cache(path: &Path) -> Finding {
    match Cache::open(path, CacheOptions { create: false }) {
        Ok(cache) => {
            let limits = cache.limits();
            let most = limits.size.map_or_else(String::new, |n| format!(", which may take {} MiB", n >> 20));
            let free = limits.free.map_or_else(String::new, |n| format!(", and leaves {} MiB free", n >> 20));
            Finding::fine("cache", format!("{}{most}{free}", path.display()))
        }
        Err(e) if e.kind() == Kind::NotFound => {
            Finding::new("cache", Severity::Note, format!("{} will be made at its first use", path.display()), "")
        }
        Err(e) => Finding::fails("cache", &e.into()),
    }
}

/// The room on the disk of the cache, or of a store in a directory.
#[must_use]
pub fn space(check: &'static str, path: &Path, room: Room) -> Finding {
    let is_store = check == STORE_SPACE;
    let (means, remedy) = if is_store {
        ("checkpoints fail when nothing is left", "free some: `ckptfs expire`, then `ckptfs gc --delete`")
    } else {
        ("files that do not fit are fetched again and again", "free some, or choose another place with --cache")
    };
    let (mib, path) = (room.available >> 20, path.display());
    let severity = match room.scarcity() {
        Scarcity::Enough => Severity::Fine,
        Scarcity::Little => Severity::Warning,
        Scarcity::Full => Severity::Fails,
    };
    if severity > Severity::Fine {
        let how = if severity == Severity::Fails { "the disk is full: " } else { "" };
        return Finding::new(check, severity, format!("{how}{mib} MiB are left for {path}: {means}"), remedy);
    }
    if room.inodes > 0 && room.free_inodes < room.inodes / FEW {
        let says = format!("{} inodes are left for {path}", room.free_inodes);
        let elsewhere = if is_store { "" } else { ", or choose another place with --cache" };
        return Finding::new(check, Severity::Warning, says, format!("remove small files there{elsewhere}"));
    }
    Finding::fine(check, format!("{mib} MiB are free"))
}

/// Whether an inode keeps what was hashed: tried on a file without a name.
fn records(directory: &Path) -> Finding {
    const CHECK: &str = "user xattrs and birth time";
    let slower = "files are hashed anew by every process, which costs a read of each";
    let tried = Dir::open(directory).and_then(|dir| {
        let staged = Staged::new(&dir, 0o600)?;
        identity::record(staged.file(), &Digest::of(b""))
            .map_err(|e| crate::local::LocalError::new("set an attribute in", directory, e))
    });
    match tried {
        Ok(true) => Finding::fine(CHECK, "inodes keep the digest of their file"),
        Ok(false) => {
            let says = format!("{} keeps none of one of them: {slower}", directory.display());
            Finding::new(CHECK, Severity::Warning, says, "use ext4, XFS or btrfs for the cache and the databases")
        }
        Err(e) => Finding::new(CHECK, Severity::Note, format!("not tried: {e}"), ""),
    }
}

/// Whether files of a directory can be linked into the cache instead of being copied.
fn link(directory: &Path, cache: &Path, there: &Path) -> Vec<Finding> {
    const CHECK: &str = "hard links";
    let copied = |why: String, remedy: String| {
        Finding::new(CHECK, Severity::Warning, format!("{why}: files are copied"), remedy)
    };
    let stat = |path: &Path| Dir::open(path).and_then(|d| d.stat_self());
    let (from, to) = match (stat(directory), stat(there)) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(e), _) | (_, Err(e)) => return vec![Finding::fails(CHECK, &e.into())],
    };
    let root = |path: &Path| mounts::mount_of(path).ok().flatten().map(|m| m.id);
    let mut findings = Vec::new();
    if from.dev != to.dev || root(directory) != root(there) {
        let best: PathBuf = mounts::device_root(directory).unwrap_or_else(|_| directory.to_owned());
        findings.push(copied(
            format!("{} and the cache {} are on different file systems", directory.display(), cache.display()),
            format!("leave --cache out, or choose one below {}", best.display()),
        ));
    } else if process::euid() != 0 && from.uid != process::euid() {
        findings.push(copied(
            format!("{} belongs to user {}, the cache to {}", directory.display(), from.uid, process::euid()),
            "run as the user that the database belongs to".to_owned(),
        ));
    } else {
        findings.push(Finding::fine(CHECK, format!("possible from {} into the cache", directory.display())));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_told() {
        let room = Room { total: 1 << 40, available: 1 << 39, inodes: 1000, free_inodes: 500 };
        let of = |room| space("cache space", Path::new("/c"), room).severity;
        assert_eq!(of(room), Severity::Fine);
        assert_eq!(of(Room { available: (1 << 30) - 1, ..room }), Severity::Warning);
        assert_eq!(of(Room { available: 16 << 20, ..room }), Severity::Warning);
        assert_eq!(of(Room { available: (16 << 20) - 1, ..room }), Severity::Fails);
        assert_eq!(of(Room { free_inodes: 49, ..room }), Severity::Warning);
        assert_eq!(of(Room { inodes: 0, free_inodes: 0, ..room }), Severity::Fine);
        assert_eq!(of(Room { available: 1 << 30, free_inodes: 50, ..room }), Severity::Fine);
        let says = |check, available| space(check, Path::new("/c"), Room { available, ..room });
        assert_eq!(says("cache space", 3 << 30).says, "3072 MiB are free");
        assert!(says("cache space", 5 << 20).says.starts_with("the disk is full: 5 MiB are left for /c: files that"));
        let store = says(STORE_SPACE, 500 << 20);
        assert!(store.says.starts_with("500 MiB are left for /c: checkpoints fail") && store.remedy.contains("gc"));
    }

    #[test]
    fn links_and_records_are_looked_at_where_the_cache_will_be() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let there = dir.path().to_owned();
        let question = Question {
            session: crate::cache::SessionOptions { cache: Some(there.join("new/cache")), ..Default::default() },
            directory: Some(there.clone()),
        };
        let found = examine(&question);
        let of = |check: &str| found.iter().find(|f| f.check == check).unwrap();
        assert_eq!((of("cache").severity, of("hard links").severity), (Severity::Note, Severity::Fine), "{found:?}");
        assert!(!there.join("new").exists(), "nothing was made");
        assert_eq!(std::fs::read_dir(&there).unwrap().count(), 0);
        let shm = Path::new("/dev/shm");
        let elsewhere = link(shm, &there, &there);
        assert!(
            elsewhere[0].severity == Severity::Warning && elsewhere[0].says.contains("different file systems"),
            "{elsewhere:?}"
        );
        assert_eq!(link(&there.join("none"), &there, &there)[0].severity, Severity::Fails);
        // The same device under another mount: no link leads across.
        let bound = there.join("bound");
        std::fs::create_dir(&bound).unwrap();
        let mut bind = std::process::Command::new("mount");
        assert!(
            bind.arg("--bind").arg(&there).arg(&bound).status().unwrap().success(),
            "these tests need root to mount"
        );
        let across = link(&bound, &there, &there);
        assert!(std::process::Command::new("umount").arg("-l").arg(&bound).status().unwrap().success());
        assert!(across[0].says.contains("different file systems"), "{across:?}");
        // Root links what is anybody's.
        std::os::unix::fs::chown(&bound, Some(12345), None).unwrap();
        assert_eq!(link(&bound, &there, &there)[0].severity, Severity::Fine);
    }
}
