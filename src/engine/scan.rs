//! Looks at a RocksDB directory: which files are there, is it whole, is it at rest.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::link::{Link, Links};
use crate::error::{Error, Kind, Result};
use crate::format::FilePath;
use crate::format::clone::{CLONE_MARK, SETTLING};
use crate::format::rocks::{self, FileKind};
use crate::format::task::file_name;
use crate::limits;
use crate::local;
use crate::local::dir::{Dir, FileKind as Inode};
use crate::local::identity::{self, FileStat};
use crate::types::{Digest, Uid};

/// A file that belongs into the snapshot.
#[derive(Debug, Clone)]
pub struct ScannedFile {
    /// Its name in the directory.
    pub name: String,
    /// Its path in the task manifest.
    pub path: FilePath,
    /// What it is to RocksDB.
    pub kind: FileKind,
    /// What the kernel says of it.
    pub stat: FileStat,
    /// What its inode's own record said when the kernel was asked, or the mount that a link leads into. Files that RocksDB changes keep
    /// none.
    pub record: Option<Digest>,
    /// Where its bytes are, for a table that is a symbolic link into a mount.
    pub link: Option<Link>,
    /// What the RocksDB MANIFEST says of it, for live SSTs.
    pub sst: Option<rocks::LiveSst>,
}

impl ScannedFile {
    /// Whether RocksDB never changes it once it is named by a MANIFEST.
    #[must_use]
    pub fn immutable(&self) -> bool {
        self.kind.is_immutable()
    }

    /// What its record says, where a snapshot into this store may believe it.
    #[must_use]
    pub fn recorded(&self, store: Uid) -> Option<Digest> {
        self.record.filter(|_| self.link.as_ref().is_none_or(|l| l.store == Some(store)))
    }
}

/// A directory that is a whole RocksDB database at rest.
#[derive(Debug)]
pub struct Scan {
    /// Its handle.
    pub dir: Dir,
    /// Its path, for messages.
    pub path: PathBuf,
    /// The files, by path in the manifest.
    pub files: Vec<ScannedFile>,
    /// RocksDB's id of the database, where the MANIFEST has it.
    pub db_id: Option<String>,
    /// How long looking took.
    pub took: Duration,
}

fn invalid(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::new(Kind::Invalid, format!("{}: {why}", path.display()))
}

pub(super) fn from_local(e: local::LocalError) -> Error {
    Error::with_source(e.kind(), e.to_string(), e)
}

/// Reads a whole small file through an open directory.
fn read_small(dir: &Dir, name: &str, limit: u64) -> Result<Vec<u8>> {
    let file = dir.open_file(name).map_err(from_local)?;
    let mut bytes = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|e| {
        Error::with_source(Kind::Other, format!("cannot read {}: {e}", dir.path().join(name).display()), e)
    })?;
    if bytes.len() as u64 > limit {
        return Err(invalid(&dir.path().join(name), format!("it is larger than {limit} bytes")));
    }
    Ok(bytes)
}

/// Looks at the directory.
///
/// # Errors
/// When it is not a RocksDB directory, not whole, or in use; the message says what to do.
pub fn scan(path: &Path) -> Result<Scan> {
    let begun = Instant::now();
    let dir = open(path)?;
    refuse_running(&dir, path)?;
    let entries = dir.list().map_err(from_local)?;
    let mut files = Vec::new();
    let mut links = Links::default();
    let mut current = false;
    for entry in entries {
        let Some(name) = entry.name.to_str().map(str::to_owned) else {
            return Err(invalid(path, format!("the name {:?} is not UTF-8: move that file away", entry.name)));
        };
        let kind = rocks::file_kind(&name);
        if passed_over(&name, kind) {
            continue;
        }
        match entry.kind {
            Inode::File => {}
            // RocksDB's archive of old WALs and whatever else lies in directories is not part of the state.
            Inode::Dir => continue,
            Inode::Symlink => {}
            _ => return Err(invalid(path, format!("{name} is neither a file nor a directory: move it away"))),
        }
        file_name(&name)
            .map_err(|why| invalid(path, format!("{name:?} cannot be stored: {why}; move that file away")))?;
        let mutable = !matches!(kind, FileKind::Sst(_) | FileKind::BlobFile(_));
        let (stat, record, link) = if entry.kind == Inode::Symlink {
            let (link, stat, record) = links.follow(&dir, &name, mutable)?;
            (stat, record, Some(link))
        } else {
            let (stat, record) = look_at(&dir, &name, mutable)?;
            (stat, record, None)
        };
        current |= kind == FileKind::Current;
        let most = if mutable { limits::MUTABLE_FILE } else { limits::BLOB_LEN };
        if stat.size > most {
            return Err(invalid(
                path,
                format!(
                    "{name} has {} bytes, at most {most} may be: flush the database, so that its log is short",
                    stat.size
                ),
            ));
        }
        let manifest_path = FilePath::db(&name).map_err(|why| invalid(path, why))?;
        files.push(ScannedFile { name, path: manifest_path, kind, stat, record, link, sst: None });
    }
    if !current {
        return Err(invalid(
            path,
            "it is not a RocksDB directory: there is no CURRENT. Name a RocksDB checkpoint or the directory of a stopped database",
        ));
    }
    if files.len() > limits::FILES_PER_TASK {
        return Err(invalid(path, format!("{} files, at most {} may be", files.len(), limits::FILES_PER_TASK)));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut scan = Scan { dir, path: path.to_owned(), files, db_id: None, took: Duration::ZERO };
    check_live(&mut scan)?;
    refuse_wal_elsewhere(&scan)?;
    scan.took = begun.elapsed();
    Ok(scan)
}

/// Files that are no part of a database's state.
fn passed_over(name: &str, kind: FileKind) -> bool {
    name == CLONE_MARK
        || name.starts_with(SETTLING)
        || matches!(kind, FileKind::Lock | FileKind::InfoLog | FileKind::Temporary | FileKind::Trash)
}

/// Attributes of a file, and its record where it may have one: one visit, however many files there are.
fn look_at(dir: &Dir, name: &str, mutable: bool) -> Result<(FileStat, Option<Digest>)> {
    let gone = || changed(dir.path(), &format!("{name} went away"));
    if mutable {
        return Ok((dir.stat(name).map_err(from_local)?.ok_or_else(gone)?, None));
    }
    let opened = dir.open_file(name).map_err(|e| if e.is_not_found() { gone() } else { from_local(e) })?;
    identity::recorded_of(&opened)
        .map_err(|e| Error::with_source(Kind::Other, format!("cannot look at {name}: {e}"), e))
}

fn open(path: &Path) -> Result<Dir> {
    match std::fs::metadata(path) {
        Ok(m) if m.is_dir() => Dir::open(path).map_err(from_local),
        Ok(_) => Err(invalid(
            path,
            "it is not a directory: name a RocksDB checkpoint or the directory of a stopped database",
        )),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Error::with_source(
            Kind::NotFound,
            format!(
                "{}: there is no such directory; name a RocksDB checkpoint or the directory of a stopped database",
                path.display()
            ),
            e,
        )),
        Err(e) => Err(Error::with_source(Kind::Permission, format!("{}: {e}", path.display()), e)),
    }
}

/// A running database holds a POSIX lock on LOCK; its files change while they are read.
fn refuse_running(dir: &Dir, path: &Path) -> Result<()> {
    let Some(holder) = local::rocks_lock::posix_holder(dir, "LOCK").map_err(from_local)? else { return Ok(()) };
    let who = if holder > 0 { format!(" by process {holder}") } else { String::new() };
    Err(Error::new(
        Kind::Conflict,
        format!(
            "{}: the database is running (LOCK is held{who}). Take a native RocksDB checkpoint and snapshot that, or stop the database first",
            path.display()
        ),
    ))
}

/// CURRENT names a MANIFEST, and every file that the MANIFEST names is there with its size.
fn check_live(scan: &mut Scan) -> Result<()> {
    let path = scan.path.clone();
    let current = read_small(&scan.dir, "CURRENT", limits::FILE_NAME_LEN as u64 + 2)?;
    let number = rocks::parse_current(&current)
        .map_err(|e| invalid(&path, format!("CURRENT does not name a MANIFEST ({e}): the database is damaged")))?;
    let manifest = scan.files.iter().find(|f| f.kind == FileKind::Manifest(number));
    let Some(manifest) = manifest else {
        let name = String::from_utf8_lossy(&current);
        return Err(invalid(
            &path,
            format!("CURRENT names {:?}, which is not there: the copy is incomplete, make it again", name.trim_end()),
        ));
    };
    let bytes = read_small(&scan.dir, &manifest.name, limits::ROCKS_MANIFEST as u64)?;
    let live = rocks::read_manifest(&bytes).map_err(|e| invalid(&path, format!("{}: {e}", manifest.name)))?;
    let numbers: HashMap<FileKind, usize> = scan.files.iter().enumerate().map(|(i, f)| (f.kind, i)).collect();
    let find = |kind: FileKind| numbers.get(&kind).copied().unwrap_or(usize::MAX);
    if let Some(sst) = live.ssts.iter().find(|sst| sst.path_id != 0) {
        return Err(invalid(
            &path,
            format!(
                "SST {} lies in another directory (db_paths): only databases in one directory can be stored",
                sst.number
            ),
        ));
    }
    if let Some(missing) = missing(&live, |kind| scan.files.get(find(kind)).map(|f| f.stat.size)) {
        return Err(invalid(
            &path,
            format!(
                "the directory is not whole: {missing}. It is still being written or was damaged; make the RocksDB checkpoint again"
            ),
        ));
    }
    scan.db_id = live.db_id;
    for sst in live.ssts {
        if let Some(file) = scan.files.get_mut(find(FileKind::Sst(sst.number))) {
            file.sst = Some(sst);
        }
    }
    Ok(())
}

/// What a RocksDB MANIFEST names and a directory has not, or with another size; nothing when all is there.
pub(super) fn missing(live: &rocks::LiveFiles, size: impl Fn(FileKind) -> Option<u64>) -> Option<String> {
    let ssts = live.ssts.iter().map(|f| (rocks::sst_name(f.number), FileKind::Sst(f.number), f.size));
    let blobs = live.blob_files.iter().map(|f| (rocks::blob_name(f.number), FileKind::BlobFile(f.number), f.size));
    let wrong = ssts.chain(blobs).filter_map(|(name, kind, wanted)| match size(kind) {
        Some(found) if found == wanted => None,
        Some(found) => Some(format!("{name} has {found} bytes instead of {wanted}")),
        None => Some(format!("{name} ({wanted} bytes) is not there")),
    });
    let mut wrong: Vec<String> = wrong.collect();
    let more = wrong.len().saturating_sub(10);
    wrong.truncate(10);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!wrong.is_empty()).then(|| format!("{}{more}", wrong.join(", ")))
}

/// Whether the newest OPTIONS file says that the WALs lie in another directory, where this snapshot would not see them. A native
/// checkpoint has its WALs beside it, whatever the OPTIONS say that it copied; it has no LOCK, since no database ever ran in it.
fn refuse_wal_elsewhere(scan: &Scan) -> Result<()> {
    let newest = scan.files.iter().filter_map(|f| if let FileKind::Options(n) = f.kind { Some((n, f)) } else { None });
    let Some((_, options)) = newest.max_by_key(|(n, _)| *n) else { return Ok(()) };
    if scan.dir.stat("LOCK").map_err(from_local)?.is_none() {
        return Ok(());
    }
    let bytes = read_small(&scan.dir, &options.name, limits::OWN_BLOB_OTHER)?;
    let text = String::from_utf8_lossy(&bytes);
    let Some(wal_dir) = text.lines().find_map(|l| l.trim().strip_prefix("wal_dir=")).map(str::trim) else {
        return Ok(());
    };
    let elsewhere = Path::new(wal_dir);
    let same =
        |a: &Path, b: &Path| matches!((std::fs::canonicalize(a), std::fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b);
    if wal_dir.is_empty() || same(elsewhere, &scan.path) {
        return Ok(());
    }
    // Only WALs that are there can be lost.
    let holds_wals = std::fs::read_dir(elsewhere).is_ok_and(|entries| {
        entries.flatten().any(|e| {
            let wal = e.file_name().to_str().is_some_and(|n| matches!(rocks::file_kind(n), FileKind::Wal(_)));
            wal && e.metadata().is_ok_and(|m| m.len() > 0)
        })
    });
    if !holds_wals {
        return Ok(());
    }
    Err(invalid(
        &scan.path,
        format!(
            "its write-ahead log lies in another directory ({wal_dir}, says {}), and what was not flushed would be lost: flush the database before it is stopped, or take a native RocksDB checkpoint and snapshot that",
            options.name
        ),
    ))
}

/// The error for a directory that did not hold still.
#[must_use]
pub fn changed(path: &Path, what: &str) -> Error {
    Error::new(
        Kind::Conflict,
        format!(
            "{}: the directory changed under the snapshot ({what}). Nothing was published; stop the database or take a native RocksDB checkpoint, then try again",
            path.display()
        ),
    )
}

impl Scan {
    /// Looks again: the same files, none of them touched.
    ///
    /// # Errors
    /// When something changed since the scan.
    pub fn check_unchanged(&self) -> Result<()> {
        refuse_running(&self.dir, &self.path)?;
        let files: HashMap<&str, &ScannedFile> = self.files.iter().map(|f| (f.name.as_str(), f)).collect();
        let mut seen = 0;
        for entry in self.dir.list().map_err(from_local)? {
            let name = entry.name.to_string_lossy().into_owned();
            let kind = rocks::file_kind(&name);
            if passed_over(&name, kind) || !matches!(entry.kind, Inode::File | Inode::Symlink) {
                continue;
            }
            let Some(file) = files.get(name.as_str()) else {
                return Err(changed(&self.path, &format!("{name} appeared")));
            };
            // Of a link, the link itself: what a mount shows below a checkpoint never changes.
            let before = file.link.as_ref().map_or(&file.stat, |l| &l.stat);
            match self.dir.stat(&name).map_err(from_local)? {
                Some(now) if now.unchanged(before) => seen += 1,
                _ => return Err(changed(&self.path, &format!("{name} was written to"))),
            }
        }
        if seen == self.files.len() { Ok(()) } else { Err(changed(&self.path, "a file went away")) }
    }

    /// Opens a file of the scan; it must still be the one that was seen.
    ///
    /// # Errors
    /// When it cannot be opened or is another one now.
    pub fn open(&self, file: &ScannedFile) -> Result<File> {
        if let Some(link) = &file.link {
            return link.open(&file.name, &file.stat);
        }
        let opened = self.dir.open_file(&file.name).map_err(from_local)?;
        let now = FileStat::of(&opened)
            .map_err(|e| Error::with_source(Kind::Other, format!("cannot look at {}: {e}", file.name), e))?;
        if now.unchanged(&file.stat) {
            Ok(opened)
        } else {
            Err(changed(&self.path, &format!("{} was written to", file.name)))
        }
    }
}
