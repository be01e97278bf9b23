//! A store in a directory: our own publish, listing and fsync, over `local/`.
//!
//! Blobs are synced as files when they are uploaded; their names are when something is created that could point to
//! them ([`FileBackend::flush`]), so that many uploads share the fsyncs of directories. Whatever another process
//! made and this one saw is synced by the same flush: it may not be on the disk yet.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;

use super::BlobSource;
use super::backend::{Backend, Put, RawListed, Sink, Staging};
use super::error::{Result, StoreError};
use super::object::{changed, check_digest, ends_at};
use super::options::StoreOptions;
use crate::error::Kind;
use crate::limits;
use crate::local::mounts::fs_type_of;
use crate::local::process::{Advice, Room, fadvise, room_of};
use crate::local::publish::{Staged, is_staging};
use crate::local::{Dir, Durability, Entry, FileKind, LocalError, Published, identity, link};
use crate::metrics::Counter;
use crate::types::{Digest, Hasher, parallel};

/// Objects never change: nobody gets the right to write. The umask takes away more.
const FILE_MODE: u32 = 0o444;
const DIR_MODE: u32 = 0o777;

/// Pieces in which files are read.
const PIECE: usize = 1 << 20;

/// Objects that are remembered as durable; all are forgotten when there are more, which only costs syncs.
const SETTLED: usize = 1 << 16;

/// Bytes that are written before the disk is told to begin with them. Few, so that it idles no longer than it must at the start; with
/// fewer the calls cost more than they bring.
const WRITEBACK: usize = 512 << 10;

/// How often a directory that vanishes under a create is made again.
const TRIES: u32 = 16;

const BLOBS: &str = "blobs";

/// Kinds whose records lie in a directory per checkpoint, which goes with its last record.
const NESTED: [&str; 4] = ["task", "hidden", "pin", "probe"];

/// A directory as a store.
#[derive(Debug)]
pub(super) struct FileBackend {
    root: PathBuf,
    url: String,
    opened: Mutex<Option<Arc<Dir>>>,
    /// Where blobs are written before they have a name.
    blobs: OnceLock<Dir>,
    /// Directories whose entries the next flush makes durable.
    pending: Mutex<BTreeSet<String>>,
    /// Directories that are known to be on the disk, and are never removed.
    durable: Mutex<HashSet<String>>,
    /// Blobs that were uploaded since the last flush.
    uploaded: Mutex<Vec<String>>,
    /// Objects that this process made and that are on the disk.
    settled: Mutex<HashSet<String>>,
    flushing: Mutex<()>,
    failed: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Sets of names are whole after every statement: a panic elsewhere does not spoil them.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parent(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or(("", key))
}

impl FileBackend {
    pub(super) fn open(root: &Path, url: &str, options: &StoreOptions) -> Result<Self> {
        let backend = Self {
            root: root.to_owned(),
            url: url.to_owned(),
            opened: Mutex::new(None),
            blobs: OnceLock::new(),
            pending: Mutex::default(),
            durable: Mutex::default(),
            uploaded: Mutex::default(),
            settled: Mutex::default(),
            flushing: Mutex::new(()),
            failed: AtomicBool::new(false),
        };
        if !options.allow_unsafe_file_system {
            backend.check_file_system()?;
        }
        Ok(backend)
    }

    /// The file system of the store, or of the place where it would be made.
    fn check_file_system(&self) -> Result<()> {
        let mut place = self.root.as_path();
        let dir = loop {
            match Dir::open(place) {
                Ok(dir) => break dir,
                Err(e) if e.is_not_found() => match place.parent() {
                    Some(up) => place = up,
                    None => return Err(e.into()),
                },
                Err(e) => return Err(e.into()),
            }
        };
        let family = fs_type_of(&dir).map_err(|e| LocalError::new("look at the file system of", place, e))?;
        if family.is_remote() {
            return Err(StoreError::Unsupported {
                store: self.url.clone(),
                why: format!(
                    "it lies on {}, where link and fsync do not always do what they say, so checkpoints could be lost; \
                     use a local disk or an object store, or force it if you take the risk",
                    family.as_str()
                ),
            });
        }
        Ok(())
    }

    fn object(&self, key: &str) -> String {
        format!("{}/{key}", self.url)
    }

    fn local(&self, what: &'static str, key: &str, error: LocalError) -> StoreError {
        if error.is_read_only() {
            return StoreError::ReadOnly { what, object: self.object(key) };
        }
        error.into()
    }

    /// The root's handle; nothing while the store does not exist.
    fn root(&self) -> Result<Option<Arc<Dir>>> {
        let mut opened = lock(&self.opened);
        if let Some(dir) = opened.as_ref() {
            return Ok(Some(Arc::clone(dir)));
        }
        match Dir::open(&self.root) {
            Ok(dir) => Ok(Some(Arc::clone(opened.insert(Arc::new(dir))))),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// A directory that exists.
    fn dir(&self, path: &str) -> Result<Option<Dir>> {
        let Some(root) = self.root()? else { return Ok(None) };
        let opened = if path.is_empty() { root.try_clone() } else { root.sub_path(Path::new(path)) };
        match opened {
            Ok(dir) => Ok(Some(dir)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// A directory, made where it is missing, with all above it noted for the next flush.
    fn ensure_dir(&self, path: &str) -> Result<Dir> {
        let root = self.root()?.ok_or_else(|| StoreError::NotFound {
            what: "write to",
            object: self.url.clone(),
            why: "no such directory; check the store's URL".to_owned(),
        })?;
        let mut dir = root.try_clone()?;
        for component in path.split('/').filter(|c| !c.is_empty()) {
            dir = match dir.sub(component) {
                Ok(sub) => sub,
                Err(e) if e.is_not_found() => {
                    dir.make_sub(component, DIR_MODE).map_err(|e| self.local("write to", path, e))?;
                    dir.sub(component)?
                }
                Err(e) => return Err(e.into()),
            };
        }
        self.note(path);
        Ok(dir)
    }

    /// Runs `publish` in the key's directory, again when a sweeper removed the empty directory under it.
    fn in_dir<T>(&self, key: &str, publish: impl Fn(&Dir, &str) -> Result<T>) -> Result<T> {
        let (path, name) = parent(key);
        let mut tries = 1;
        loop {
            match self.ensure_dir(path).and_then(|dir| publish(&dir, name)) {
                Err(StoreError::Local(e)) if e.is_not_found() && tries < TRIES => tries += 1,
                other => return other,
            }
        }
    }

    /// Has the next flush make the entries of a directory durable, and all those that lead to it. At once, so that
    /// a flush never takes a directory without its parents.
    fn note(&self, path: &str) {
        let mut all = vec![path.to_owned()];
        {
            let durable = lock(&self.durable);
            let mut path = path;
            while !path.is_empty() && !durable.contains(path) {
                path = parent(path).0;
                all.push(path.to_owned());
            }
        }
        lock(&self.pending).extend(all);
    }

    /// The same for an object that was found, unless this process itself made it durable before.
    fn note_read(&self, key: &str) {
        if !lock(&self.settled).contains(key) {
            self.note(parent(key).0);
        }
    }

    fn settle(&self, keys: impl IntoIterator<Item = String>) {
        let mut settled = lock(&self.settled);
        if settled.len() >= SETTLED {
            settled.clear();
        }
        settled.extend(keys);
    }

    fn open_object(&self, key: &str) -> Result<Option<(File, u64)>> {
        let (path, name) = parent(key);
        let Some(dir) = self.dir(path)? else { return Ok(None) };
        let file = match dir.open_file(name) {
            Ok(file) => file,
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let stat = identity::FileStat::of(&file).map_err(|e| LocalError::new("look at", dir.path().join(name), e))?;
        if stat.kind() != FileKind::File {
            return Err(StoreError::Damaged { object: self.object(key), why: "it is not a regular file".to_owned() });
        }
        self.note_read(key);
        Ok(Some((file, stat.size)))
    }

    fn source(&self, key: &str, source: io::Error) -> StoreError {
        StoreError::Source { object: self.object(key), source }
    }

    /// Fills `to` with the source, shared where the file system can, else copied; what lies in `to` then has the digest.
    fn fill(&self, key: &str, staged: &Staged<'_>, digest: &Digest, source: &BlobSource<'_>) -> Result<()> {
        let object = self.object(key);
        let to = staged.file();
        let written = |e| StoreError::Local(LocalError::new("write", self.root.join(key), e));
        let mut to_end = to;
        match source {
            BlobSource::Bytes(bytes) => bytes.chunks(WRITEBACK).try_for_each(|piece| {
                to_end.write_all(piece).map_err(written)?;
                staged.start_writeback();
                Ok(())
            }),
            BlobSource::File(from, len) if link::reflink(from, to).map_err(written)? => {
                // The clone is hashed, not the source, which could change between the hash and the clone.
                let (hashed, length) = identity::hash(to).map_err(|e| self.source(key, e))?;
                if hashed == *digest && length == *len { Ok(()) } else { Err(changed(&object)) }
            }
            BlobSource::File(from, len) => {
                let mut hasher = Hasher::new();
                let mut buffer = vec![0; PIECE];
                let (mut offset, mut unwritten) = (0_u64, 0);
                while offset < *len {
                    let wanted = usize::try_from(*len - offset).unwrap_or(PIECE).min(PIECE);
                    let piece = buffer.get_mut(..wanted).unwrap_or_default();
                    match from.read_at(piece, offset) {
                        Ok(0) => return Err(changed(&object)),
                        Ok(n) => {
                            let piece = piece.get(..n).unwrap_or_default();
                            hasher.update(piece);
                            to_end.write_all(piece).map_err(written)?;
                            offset = offset.saturating_add(n as u64);
                            unwritten += n;
                            if unwritten >= WRITEBACK {
                                staged.start_writeback();
                                unwritten = 0;
                            }
                        }
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        Err(e) => return Err(self.source(key, e)),
                    }
                }
                ends_at(from, *len, &object)?;
                check_digest(&hasher, digest, &object)
            }
        }
    }

    /// Ends an upload: its name is durable after the next flush.
    fn published(
        &self,
        key: &str,
        dir: &Dir,
        name: &str,
        published: Published,
        length: u64,
        sent: &Counter,
    ) -> Result<()> {
        self.note(parent(key).0);
        lock(&self.uploaded).push(key.to_owned());
        match published {
            Published::Created => sent.add(length),
            // The name says what it holds, and nothing is published before it was hashed; a crash of the disk may differ.
            Published::Exists => {
                let there = dir.stat(name)?.map(|stat| stat.size);
                if there != Some(length) {
                    let why = format!("a file of another length ({there:?}) has its name");
                    return Err(StoreError::Damaged { object: self.object(key), why });
                }
            }
        }
        Ok(())
    }

    /// All files below a directory, into `found`. Stops at `limit`.
    fn walk(&self, dir: &Dir, path: &str, after: Option<&str>, limit: usize, found: &mut Vec<RawListed>) -> Result<()> {
        let mut below = Vec::new();
        for entry in entries(dir, path.is_empty())? {
            if found.len() >= limit {
                return Ok(());
            }
            // A name that is not text cannot be ours; its replacement character says so.
            let name = entry.name.to_string_lossy();
            let key = if path.is_empty() { name.into_owned() } else { format!("{path}/{name}") };
            if entry.kind == FileKind::Dir {
                below.push((entry.name, key));
                continue;
            }
            if (entry.kind == FileKind::File && is_staging(&entry.name))
                || after.is_some_and(|after| key.as_str() <= after)
            {
                continue;
            }
            // Deleted since the directory was read: not there.
            if let Some(stat) = dir.stat(&entry.name)? {
                found.push(RawListed { key, size: stat.size });
            }
        }
        for (name, key) in below {
            match dir.sub(&name) {
                Ok(sub) => self.walk(&sub, &key, after, limit, found)?,
                Err(e) if e.is_not_found() => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn sync_pending(&self) -> Result<()> {
        // One at a time: who finds nothing pending must not overtake the sync of what it uploaded.
        let _flushing = lock(&self.flushing);
        if self.failed.load(Ordering::Acquire) {
            return Err(StoreError::Local(LocalError::refused(
                "sync",
                &self.root,
                Kind::Other,
                "an earlier sync failed, so that what was written may be lost; check the disk and start anew",
            )));
        }
        // In this order: whoever stands in the first has noted its directory in the second.
        let uploaded = std::mem::take(&mut *lock(&self.uploaded));
        let pending = std::mem::take(&mut *lock(&self.pending));
        let synced = parallel(limits::PARALLEL_SYNCS, pending.iter().collect(), |path| match self.dir(path)? {
            // Removed with its last record: nothing in it to keep.
            None => Ok(()),
            Some(dir) => dir.sync().map_err(StoreError::from),
        });
        if let Err(e) = synced {
            self.failed.store(true, Ordering::Release);
            return Err(e);
        }
        let mut durable = lock(&self.durable);
        for path in pending {
            // Its entry is in the directory above, which was synced with it or before. Directories of single checkpoints
            // come and go, so that they are synced each time.
            let mut parts = path.split('/');
            let probe = parts.next() == Some("probe");
            if !path.is_empty() && !probe && parts.count() <= 1 {
                durable.insert(path);
            }
        }
        drop(durable);
        self.settle(uploaded);
        Ok(())
    }

    /// Has what was removed stay away after a power cut: a floor that comes next would make blobs that are back nobody's, and what a person
    /// brought back into the view would be hidden again.
    fn sync_removed(&self, dirs: BTreeSet<&str>) -> Result<()> {
        let synced = parallel(limits::PARALLEL_SYNCS, dirs.into_iter().collect(), |path| match self.dir(path)? {
            None => Ok(()),
            Some(dir) => dir.sync().map_err(StoreError::from),
        });
        synced.map(drop).inspect_err(|_| self.failed.store(true, Ordering::Release))
    }

    fn leftovers(&self, dir: &Dir, root: bool, removed: &mut u64) -> Result<()> {
        for entry in entries(dir, root)? {
            match entry.kind {
                FileKind::Dir => match dir.sub(&entry.name) {
                    Ok(sub) => self.leftovers(&sub, false, removed)?,
                    Err(e) if e.is_not_found() => {}
                    Err(e) => return Err(e.into()),
                },
                FileKind::File if is_staging(&entry.name) => *removed += u64::from(dir.remove_staging(&entry.name)?),
                _ => {}
            }
        }
        Ok(())
    }
}

/// What lies in a directory of the store. One that was emptied and removed since it was opened, as another sweep does with the directories
/// of numbers that are gone, has nothing in it; the root is never removed.
fn entries(dir: &Dir, root: bool) -> Result<Vec<Entry>> {
    match dir.list() {
        Err(e) if e.is_not_found() && !root => Ok(Vec::new()),
        entries => Ok(entries?),
    }
}

/// A blob on its way to a name.
#[derive(Debug)]
struct FileStaging<'a> {
    backend: &'a FileBackend,
    staged: Staged<'a>,
    unwritten: usize,
}

impl Staging for FileStaging<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.staged.file().write_all(bytes);
        written.map_err(|e| StoreError::Local(LocalError::new("write a blob in", self.backend.root.join(BLOBS), e)))?;
        self.unwritten += bytes.len();
        if self.unwritten >= WRITEBACK {
            self.staged.start_writeback();
            self.unwritten = 0;
        }
        Ok(())
    }

    fn share(&mut self, from: &File) -> Result<Option<&File>> {
        let shared = link::reflink(from, self.staged.file());
        let shared = shared
            .map_err(|e| StoreError::Local(LocalError::new("share a file with", self.backend.root.join(BLOBS), e)))?;
        Ok(shared.then(|| self.staged.file()))
    }

    fn start(&self) {
        self.staged.start_writeback();
    }

    fn publish(self: Box<Self>, key: &str, length: u64, sent: &Counter) -> Result<()> {
        self.staged.sync().map_err(|e| self.backend.local("write", key, e))?;
        self.backend.in_dir(key, |dir, name| {
            let published = self.staged.link_into(dir, name).map_err(|e| self.backend.local("write", key, e))?;
            // The file that it was read from is in memory, and is read instead of it.
            fadvise(self.staged.file(), 0, 0, Advice::DontNeed);
            self.backend.published(key, dir, name, published, length, sent)
        })
    }
}

impl Backend for FileBackend {
    fn get(&self, key: &str, max_len: u64) -> Result<Option<Bytes>> {
        let Some((file, size)) = self.open_object(key)? else { return Ok(None) };
        if size > max_len {
            let why = format!("it has {size} bytes, more than the {max_len} allowed");
            return Err(StoreError::Damaged { object: self.object(key), why });
        }
        super::object::read_whole(&file, size, &self.object(key)).map(Some)
    }

    fn read(&self, key: &str, range: Range<u64>, size: Option<u64>, sink: Sink<'_>) -> Result<()> {
        let (file, there) = self.open_object(key)?.ok_or_else(|| StoreError::NotFound {
            what: "read",
            object: self.object(key),
            why: "no such file".to_owned(),
        })?;
        if size.is_some_and(|size| size != there) || range.end > there {
            let wanted = size.unwrap_or(range.end);
            let why = format!("it has {there} bytes instead of {wanted}");
            return Err(StoreError::Damaged { object: self.object(key), why });
        }
        let mut buffer = vec![0; PIECE];
        let mut at = range.start;
        while at < range.end {
            let wanted = usize::try_from(range.end - at).unwrap_or(PIECE).min(PIECE);
            let piece = buffer.get_mut(..wanted).unwrap_or_default();
            file.read_exact_at(piece, at).map_err(|e| LocalError::new("read", self.root.join(key), e))?;
            sink(piece).map_err(|source| StoreError::Sink { object: self.object(key), source })?;
            at = at.saturating_add(wanted as u64);
        }
        Ok(())
    }

    fn head(&self, key: &str) -> Result<Option<u64>> {
        let (path, name) = parent(key);
        let Some(dir) = self.dir(path)? else { return Ok(None) };
        let stat = dir.stat(name)?.filter(|stat| stat.kind() == FileKind::File);
        if stat.is_some() {
            self.note_read(key);
        }
        Ok(stat.map(|stat| stat.size))
    }

    fn list(&self, directory: &str, after: Option<&str>, limit: usize) -> Result<Vec<RawListed>> {
        let Some(dir) = self.dir(directory)? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        self.walk(&dir, directory, after, limit, &mut found)?;
        found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    fn create(&self, key: &str, body: Bytes, durable: bool) -> Result<Put> {
        let put = self.in_dir(key, |dir, name| {
            if durable {
                // What the new object may point to, and the directories that lead to it, come first.
                self.sync_pending()?;
            }
            let level = if durable { Durability::Full } else { Durability::None };
            let published =
                dir.publish_new(name, &body[..], FILE_MODE, level).map_err(|e| self.local("create", key, e))?;
            Ok(match published {
                Published::Created => Put::Created,
                Published::Exists => Put::Exists,
            })
        });
        if durable && matches!(put, Ok(Put::Created)) {
            self.settle([key.to_owned()]);
        }
        if let Err(StoreError::Local(e)) = &put
            && e.is_sync_failure()
        {
            self.failed.store(true, Ordering::Release);
        }
        put
    }

    fn replace(&self, key: &str, body: Bytes) -> Result<()> {
        self.in_dir(key, |dir, name| {
            dir.publish_replace(name, &body[..], FILE_MODE, Durability::None).map_err(|e| self.local("write", key, e))
        })
    }

    fn upload(&self, key: &str, digest: &Digest, source: &BlobSource<'_>, sent: &Counter) -> Result<()> {
        self.in_dir(key, |dir, name| {
            let staged = Staged::new(dir, FILE_MODE).map_err(|e| self.local("write", key, e))?;
            self.fill(key, &staged, digest, source)?;
            let (published, _) = staged.publish(name, Durability::FileOnly).map_err(|e| self.local("write", key, e))?;
            self.published(key, dir, name, published, source.len(), sent)
        })
    }

    fn mend(&self, key: &str, digest: &Digest, source: &BlobSource<'_>, sent: &Counter) -> Result<()> {
        self.in_dir(key, |dir, name| {
            let staged = Staged::new(dir, FILE_MODE).map_err(|e| self.local("write", key, e))?;
            self.fill(key, &staged, digest, source)?;
            // By rename: whoever reads the old file goes on with it.
            staged.replace(name, Durability::FileOnly).map_err(|e| self.local("write", key, e))?;
            self.note(parent(key).0);
            sent.add(source.len());
            Ok(())
        })
    }

    fn lengths(&self, keys: &[&str]) -> Result<Option<Vec<Option<u64>>>> {
        // Each directory is opened once. Nothing is noted for the next flush: these names are not made durable by being seen.
        let mut dirs: HashMap<&str, Option<Dir>> = HashMap::new();
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let (path, name) = parent(key);
            let (above, last) = parent(path);
            if !dirs.contains_key(above) {
                dirs.insert(above, self.dir(above)?);
            }
            if !dirs.contains_key(path) {
                let dir = match dirs.get(above) {
                    Some(Some(above)) => match above.sub(last) {
                        Err(e) if e.is_not_found() => None,
                        dir => Some(dir?),
                    },
                    _ => None,
                };
                dirs.insert(path, dir);
            }
            let stat = match dirs.get(path) {
                Some(Some(dir)) => dir.stat(name)?,
                _ => None,
            };
            found.push(stat.filter(|stat| stat.kind() == FileKind::File).map(|stat| stat.size));
        }
        Ok(Some(found))
    }

    fn stage(&self) -> Result<Option<Box<dyn Staging + '_>>> {
        let dir = match self.blobs.get() {
            Some(dir) => dir,
            None => {
                let dir = self.ensure_dir(BLOBS)?;
                self.blobs.get_or_init(|| dir)
            }
        };
        let staged = Staged::new(dir, FILE_MODE).map_err(|e| self.local("write to", BLOBS, e))?;
        Ok(Some(Box::new(FileStaging { backend: self, staged, unwritten: 0 })))
    }

    fn delete(&self, keys: &[&str]) -> Result<()> {
        let mut left = BTreeSet::new();
        for key in keys {
            let (path, name) = parent(key);
            let Some(dir) = self.dir(path)? else { continue };
            dir.remove(name).map_err(|e| self.local("delete", key, e))?;
            // Directories of one checkpoint go with its last record: by rmdir, which takes empty ones only.
            let mut path = path;
            let kept = if path.starts_with("probe/") { 0 } else { 2 };
            while NESTED.contains(&path.split('/').next().unwrap_or_default()) && path.split('/').count() > kept {
                let (above, name) = parent(path);
                let removed = self.dir(above)?.map(|dir| dir.remove_sub(name));
                if path.is_empty() || !matches!(removed, Some(Ok(_))) {
                    break;
                }
                path = above;
            }
            if !path.starts_with("probe") {
                left.insert(path);
            }
        }
        self.sync_removed(left)
    }

    fn flush(&self) -> Result<()> {
        self.sync_pending()
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn disk(&self) -> Result<Option<(PathBuf, Room)>> {
        let Some(root) = self.root()? else { return Ok(None) };
        let room = room_of(root.as_ref()).map_err(|e| LocalError::new("look at the disk of", &self.root, e))?;
        Ok(Some((self.root.clone(), room)))
    }

    fn exists_root(&self) -> Result<bool> {
        self.root().map(|root| root.is_some())
    }

    fn create_root(&self) -> Result<()> {
        Dir::create(&self.root, DIR_MODE).map(drop).map_err(|e| self.local("create", "", e))
    }

    fn remove_leftovers(&self) -> Result<u64> {
        let mut removed = 0;
        if let Some(root) = self.root()? {
            self.leftovers(&root, true, &mut removed)?;
        }
        Ok(removed)
    }
}
