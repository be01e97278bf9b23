//! Opening a cache, and making one: who may own it, what it must look like.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, fchown};
use std::path::Path;

use dashmap::DashMap;
use serde::{Deserialize, Serialize};

use super::error::{CacheError, Result};
use super::{CacheOptions, Counters, Inner, flight, room, uses};
use crate::error::Kind;
use crate::limits;
use crate::local::publish::is_staging;
use crate::local::{Dir, Durability, FileKind, FileLock, FileStat, LocalError, process};
use crate::types::Uid;
use crate::types::sync::{Mutex, atomic::AtomicUsize};

const RECORD: &str = "cache.json";
const FORMAT: u32 = 1;
const DIR_MODE: u32 = 0o700;
pub(super) const FILE_MODE: u32 = 0o600;
pub(super) const DAEMON_LOCK: &str = "daemon.lock";
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The cache's own record.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    format: u32,
    id: Uid,
    uid: u32,
}

fn refused(path: &Path, kind: Kind, why: impl Into<String>, remedy: impl Into<String>) -> CacheError {
    CacheError::Refused { path: path.to_owned(), why: why.into(), remedy: remedy.into(), kind }
}

pub(super) fn open(path: &Path, options: CacheOptions) -> Result<Inner> {
    let root = open_root(path, options)?;
    let stat = root.stat_self()?;
    check_owner(path, &stat)?;
    let (uid, gid) = (stat.uid, stat.gid);
    let give = process::euid() != uid;
    let give_to = give.then_some((uid, gid));
    let record = match read_record(&root, path)? {
        Some(record) => record,
        None => create_record(&root, path, options, uid, give_to)?,
    };
    if record.format != FORMAT {
        let why = format!("it has format {}, this version knows {FORMAT}", record.format);
        return Err(refused(path, Kind::Newer, why, "upgrade ckptfs, or choose another directory with --cache"));
    }
    if record.uid != uid {
        let why = format!("it was made for uid {}, and now belongs to uid {uid}", record.uid);
        return Err(refused(
            path,
            Kind::Permission,
            why,
            "give it back with chown -R, or remove it: it only holds copies",
        ));
    }
    let sub = |name: &str| sub_dir(&root, name, give_to).and_then(|d| check_sub(d, uid));
    let (files, partial, manifests, jobs) = (sub("files")?, sub("partial")?, sub("manifests")?, sub("jobs")?);
    let clones = sub("clones")?;
    // All directories in which something is replaced or made without a name.
    for dir in [&root, &partial, &clones] {
        clean(dir);
    }
    let limits = room::read_limits(&root).unwrap_or_else(|e| {
        log::warn!(
            "{}: its limits.json cannot be used ({e}): no limit but the disk's holds until --cache-size is given anew",
            path.display()
        );
        room::CacheLimits::default()
    });
    Ok(Inner {
        path: path.to_owned(),
        id: record.id,
        uid,
        gid,
        give,
        device: stat.dev,
        root,
        files,
        partial,
        manifests,
        jobs,
        clones,
        verified: DashMap::new(),
        flights: flight::Flights::default(),
        parsed: DashMap::new(),
        streams: AtomicUsize::new(limits::FETCH_STREAMS),
        unkept: super::unkept::Unkept::default(),
        lazy: DashMap::new(),
        behind: super::lazy::Behind::default(),
        uses: Mutex::new(uses::Uses::default()),
        taken: room::Taken::new(limits),
        counters: Counters::default(),
    })
}

/// The directory itself, which must not be a symlink: who may swap the link would choose what we read.
fn open_root(path: &Path, options: CacheOptions) -> Result<Dir> {
    let absolute = std::path::absolute(path).map_err(|e| CacheError::io(path, "find the directory", e))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(refused(path, Kind::Invalid, "it has no name of its own", "choose a directory of its own"));
    };
    let missing = || {
        refused(
            path,
            Kind::NotFound,
            "it does not exist",
            "name an existing cache, or take a snapshot first: that makes one",
        )
    };
    let parent = match Dir::open(parent) {
        Err(e) if e.is_not_found() && options.create => Dir::create(parent, DIR_MODE)?,
        Err(e) if e.is_not_found() => return Err(missing()),
        other => other?,
    };
    match parent.stat(name)? {
        None if options.create => Ok(parent.create_sub(name, DIR_MODE)?),
        None => Err(missing()),
        Some(stat) => match stat.kind() {
            FileKind::Dir => Ok(parent.sub(name)?),
            FileKind::Symlink => {
                Err(refused(path, Kind::Invalid, "it is a symbolic link", "name the directory that it points to"))
            }
            _ => Err(refused(path, Kind::Invalid, "it is not a directory", "choose another path with --cache")),
        },
    }
}

fn check_owner(path: &Path, stat: &FileStat) -> Result<()> {
    let euid = process::euid();
    if euid != 0 && stat.uid != euid {
        let why = format!("it belongs to uid {}, and this process runs as uid {euid}", stat.uid);
        return Err(refused(path, Kind::Permission, why, "choose a directory of your own with --cache"));
    }
    if stat.mode & WRITABLE_BY_OTHERS != 0 {
        let why = format!("others may write to it (mode {:04o})", stat.mode & 0o7777);
        let remedy = format!("look who put what there, then: chmod go-rwx {}", path.display());
        return Err(refused(path, Kind::Permission, why, remedy));
    }
    Ok(())
}

fn check_sub(dir: Dir, uid: u32) -> Result<Dir> {
    let stat = dir.stat_self()?;
    if stat.uid != uid || stat.mode & WRITABLE_BY_OTHERS != 0 {
        let why = format!("it belongs to uid {} and has mode {:04o}", stat.uid, stat.mode & 0o7777);
        return Err(refused(dir.path(), Kind::Permission, why, "remove the cache: it only holds copies"));
    }
    Ok(dir)
}

fn read_record(root: &Dir, path: &Path) -> Result<Option<Record>> {
    let file = match root.open_file(RECORD) {
        Ok(file) => file,
        Err(e) if e.is_not_found() => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let mut text = vec![0; limits::CACHE_RECORD_LEN];
    let n = file.read_at(&mut text, 0).map_err(|e| CacheError::io(path, format!("read {RECORD}"), e))?;
    text.truncate(n);
    let record = serde_json::from_slice(&text).map_err(|e| {
        let remedy = "remove the directory: it only holds copies";
        refused(path, Kind::Damage, format!("its {RECORD} is damaged: {e}"), remedy)
    })?;
    Ok(Some(record))
}

fn create_record(
    root: &Dir,
    path: &Path,
    options: CacheOptions,
    uid: u32,
    give_to: Option<(u32, u32)>,
) -> Result<Record> {
    // A staging name is what an earlier attempt to make this very cache left behind.
    if let Some(entry) = root.list()?.into_iter().find(|e| e.name != RECORD && !is_staging(&e.name)) {
        // Somebody may have made it since we looked for its record.
        if let Some(record) = read_record(root, path)? {
            return Ok(record);
        }
        let why = format!("not a ckptfs cache: it has no {RECORD}, but holds {:?}", entry.name);
        return Err(refused(path, Kind::Invalid, why, "choose an empty or a new directory with --cache"));
    }
    if !options.create {
        let why = format!("not a ckptfs cache: it has no {RECORD}");
        return Err(refused(
            path,
            Kind::NotFound,
            why,
            "name an existing cache, or take a snapshot first: that makes one",
        ));
    }
    let id = Uid::random().map_err(|e| CacheError::io(path, "make an id", e))?;
    let record = Record { format: FORMAT, id, uid };
    let mut text = serde_json::to_vec(&record).map_err(|e| CacheError::io(path, "make its record", e.into()))?;
    text.push(b'\n');
    let write = |file: &mut File| {
        give_away(&*file, give_to)?;
        std::io::Write::write_all(file, &text)
    };
    root.publish_new(RECORD, write, FILE_MODE, Durability::Full)?;
    // Somebody may have been faster: what lies there now is the record.
    read_record(root, path)?.ok_or_else(|| {
        refused(path, Kind::Conflict, format!("its {RECORD} went away at once"), "somebody removes the cache meanwhile")
    })
}

/// Gives a new inode to the cache's owner, where that is not us.
fn give_away(file: impl AsFd, to: Option<(u32, u32)>) -> std::io::Result<()> {
    match to {
        Some((uid, gid)) => fchown(file, Some(uid), Some(gid)),
        None => Ok(()),
    }
}

/// A directory of the cache, made where it is missing.
fn sub_dir(parent: &Dir, name: &str, give_to: Option<(u32, u32)>) -> Result<Dir> {
    match parent.sub(name) {
        Err(e) if e.is_not_found() => {}
        other => return Ok(other?),
    }
    let dir = parent.create_sub(name, DIR_MODE)?;
    give_away(&dir, give_to).map_err(|e| CacheError::io(dir.path(), "give a new directory to its owner", e))?;
    Ok(dir)
}

/// Removes what dead writers left. Each of them is proved dead by its file's lock, which the kernel gave up.
fn clean(dir: &Dir) {
    let entries = match dir.list() {
        Ok(entries) => entries,
        Err(e) => return log::warn!("leftovers of dead writers stay: {e}"),
    };
    for entry in entries.iter().filter(|e| e.kind == FileKind::File) {
        match dir.remove_staging(&entry.name) {
            Ok(true) => log::info!("removed what a dead writer left: {}", dir.path().join(&entry.name).display()),
            Ok(false) => {}
            Err(e) => log::warn!("a leftover of a dead writer stays: {e}"),
        }
    }
}

impl Inner {
    pub(super) fn give_to(&self) -> Option<(u32, u32)> {
        self.give.then_some((self.uid, self.gid))
    }

    /// Gives a new file to the cache's owner, where that is not us.
    pub(super) fn adopt(&self, file: &File) -> std::io::Result<()> {
        give_away(file, self.give_to())
    }

    /// The directory of a digest, if there is one yet.
    pub(super) fn files_dir(&self, digest: &crate::types::Digest) -> Result<Option<Dir>> {
        match self.files.sub(first_byte(digest)) {
            Ok(dir) => Ok(Some(dir)),
            Err(e) if e.is_not_found() => Ok(None),
            // A symlink or a file in the place of a directory: never followed, and no reason to fail for ever.
            Err(e) if self.files.stat(first_byte(digest))?.is_some_and(|s| s.kind() != FileKind::Dir) => {
                log::warn!("removed what stood in the place of a directory of the cache: {e}");
                self.files.remove(first_byte(digest))?;
                Ok(None)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// The directory of a digest, made where it is missing. Neither it nor what is put into it is durable before
    /// [`Inner::sync_files_dir`].
    pub(super) fn make_files_dir(&self, digest: &crate::types::Digest) -> Result<Dir> {
        if let Some(dir) = self.files_dir(digest)? {
            return Ok(dir);
        }
        let name = first_byte(digest);
        let made = self.files.make_sub(&name, DIR_MODE)?;
        let dir = self.files.sub(&name)?;
        if made {
            let given = give_away(&dir, self.give_to());
            given.map_err(|e| CacheError::io(dir.path(), "give a new directory to its owner", e))?;
        }
        Ok(dir)
    }

    /// Makes the entries of a digest's directory durable, and that it is there, whoever made it.
    pub(super) fn sync_files_dir(&self, dir: &Dir) -> Result<()> {
        dir.sync()?;
        Ok(self.files.sync()?)
    }

    /// A lock file of the cache's owner. It says who holds it.
    pub(super) fn lock(&self, dir: &Dir, name: &str) -> Result<Option<FileLock>> {
        let lock = self.claim(dir, name)?;
        if let Some(lock) = &lock {
            // A note for people; the lock itself says all that matters.
            let _ = lock.write_info(&format!("process {}", std::process::id()));
        }
        Ok(lock)
    }

    /// A file of the cache's owner, locked; made where it is missing. What it holds stays.
    pub(super) fn claim(&self, dir: &Dir, name: &str) -> Result<Option<FileLock>> {
        if self.give {
            match dir.create_file(name, FILE_MODE) {
                Ok(file) => self.adopt(&file).map_err(|e| CacheError::io(&self.path, format!("make {name}"), e))?,
                Err(e) if e.kind() == Kind::Conflict => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(FileLock::try_exclusive(dir, name)?)
    }

    /// An error of `local`, told as a full disk where it is one.
    pub(super) fn failed(&self, what: impl Into<String>, length: u64, e: LocalError) -> CacheError {
        CacheError::local(&self.path, what, length, e)
    }
}

/// Two digits spread the files over 256 directories.
pub(super) fn first_byte(digest: &crate::types::Digest) -> String {
    digest.to_hex().chars().take(2).collect()
}
