//! Hashes, links and sends the large files. What is sent is what was hashed: on a local disk it is hashed while it is written; elsewhere
//! up to [`limits::READ_ONCE`] it is the same memory, above it the store hashes while it sends.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::ahead::{Ahead, Hashed};
use super::base::{BaseFile, BaseIndex};
use super::budget::{Budget, Share};
use super::cancel::Cancel;
use super::plan::unreadable;
use super::scan::{Scan, ScannedFile, changed};
use crate::cache::Session;
use crate::cache::{Batch, LinkedIn, tree};
use crate::error::{Error, Kind, Result};
use crate::format::FilePath;
use crate::format::rocks::{self, TailPlan};
use crate::limits;
use crate::local::identity;
use crate::store::{BlobSource, StagedBlob, StoreError};
use crate::types::Progress;
use crate::types::{BlobName, Digest, Hasher, Key, Uid, beside};

/// Bytes that are read, hashed and written at once, as `cp` does: they stay in a core's own cache. With larger pieces the kernel
/// takes larger runs of free memory, which a virtual machine may first have to get back from its host.
const PIECE: usize = 128 << 10;

/// Where a large file's bytes are now.
#[derive(Debug)]
pub enum Stored {
    /// A base has it after all.
    Base(BaseFile),
    /// A blob of its own.
    Blob(SentBlob),
    /// It grew since the base: the base's bytes, and these.
    Grown {
        /// The base's file.
        base: BaseFile,
        /// Digest of the whole file.
        digest: Digest,
        /// What was appended.
        rest: Rest,
    },
}

/// What was appended to a file.
#[derive(Debug)]
pub enum Rest {
    /// Little: it goes into the bundle.
    Bytes(Vec<u8>),
    /// Much: a blob of its own.
    Blob(BlobName, u64),
}

/// A file that is a blob of its own.
#[derive(Debug, Clone)]
pub struct SentBlob {
    /// The blob.
    pub name: BlobName,
    /// Its hash tree.
    pub tree: Vec<u8>,
    /// Start and bytes of its tail, for SSTs.
    pub tail: Option<(u64, Vec<u8>)>,
}

/// Where an upload takes its bytes from.
enum Source<'a> {
    Bytes(Bytes),
    /// The local file is read once more.
    Local,
    /// It has them already.
    Staged(StagedBlob<'a>),
}

/// A table whose bytes were all read.
struct Whole<'a> {
    opened: File,
    /// What its inode says.
    record: Option<Digest>,
    digest: Digest,
    tree: Vec<u8>,
    bytes: Option<Bytes>,
    staged: Option<StagedBlob<'a>>,
    /// Where its blob is or will be, and whether it is missing.
    placed: Option<(BlobName, bool)>,
}

/// Reads as long as the snapshot is wanted.
struct Wanted<'a> {
    from: &'a File,
    cancel: &'a Cancel,
}

impl Read for Wanted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(std::io::Error::other("the snapshot was cancelled"));
        }
        let mut from = self.from;
        from.read(buffer)
    }
}

/// Writes whatever is read through it to a blob.
struct Tee<'a, 'b> {
    from: Wanted<'a>,
    to: &'a mut StagedBlob<'b>,
    failed: Option<StoreError>,
}

impl Read for Tee<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.from.read(buffer)?;
        self.to.write(buffer.get(..n).unwrap_or_default()).map_err(|e| {
            let told = std::io::Error::other(e.to_string());
            self.failed = Some(e);
            told
        })?;
        Ok(n)
    }
}

/// Hashes a file while it is written to a blob, so that the disk works meanwhile and a piece is still in the CPU's cache.
pub(super) fn hash_into(
    staged: &mut StagedBlob<'_>,
    file: &ScannedFile,
    opened: &File,
    cancel: &Cancel,
) -> Result<(Digest, Vec<u8>)> {
    let size = file.stat.size;
    if let Some(shared) = staged.share(opened)? {
        return tree::hash_and_tree_of(shared, size).map_err(|e| unreadable(file, &e));
    }
    let mut tee = Tee { from: Wanted { from: opened, cancel }, to: staged, failed: None };
    let hashed = tree::hash_and_tree_of(BufReader::with_capacity(PIECE, &mut tee), size);
    if let Some(e) = tee.failed {
        return Err(e.into());
    }
    hashed.map_err(|e| unreadable(file, &e))
}

/// Lets the inode vouch for what it was hashed to, unless it does already. A record must not reach the disk before the bytes: after a
/// crash it would vouch for others.
fn remember(file: &ScannedFile, opened: &File, digest: &Digest) -> Result<()> {
    if file.record.is_none() && opened.sync_data().is_ok() {
        identity::record_since(opened, digest, &file.stat).map_err(|e| unreadable(file, &e))?;
    }
    Ok(())
}

/// Counts of a transfer.
#[derive(Debug, Default)]
pub struct Counts {
    /// Bytes uploaded.
    pub uploaded: AtomicU64,
    /// Files that could not be linked into the cache and were copied.
    pub degraded: AtomicU64,
    /// Bytes of blobs that an aborted attempt had uploaded.
    pub adopted: AtomicU64,
}

/// Threads that uploads run in, beside the one that hashes and packs.
pub type Scope<'s, 'e> = std::thread::Scope<'s, 'e>;

/// What the transfer of one snapshot shares.
pub struct Transfer<'a> {
    session: &'a Session,
    scan: Option<&'a Scan>,
    base: &'a BaseIndex,
    cancel: &'a Cancel,
    ahead: Mutex<HashMap<String, Hashed<'a>>>,
    uid: Uid,
    budget: Budget,
    /// Uploads that may run at once.
    lanes: Budget,
    /// The first upload that failed.
    failed: Mutex<Option<Error>>,
    links: &'a Batch<'a>,
    progress: &'a dyn Progress,
    /// What happened.
    pub counts: Counts,
}

impl<'a> Transfer<'a> {
    /// A transfer of this directory, if there is one, for the checkpoint with this uid.
    pub fn new(
        session: &'a Session,
        scan: Option<&'a Scan>,
        base: &'a BaseIndex,
        uid: Uid,
        links: &'a Batch<'a>,
        cancel: &'a Cancel,
        progress: &'a dyn Progress,
    ) -> Self {
        let ahead = Mutex::default();
        let budget = Budget::new(limits::UPLOAD_MEMORY);
        let lanes = Budget::new(limits::PARALLEL_REQUESTS as u64);
        let failed = Mutex::new(None);
        let counts = Counts::default();
        Self { session, scan, base, cancel, ahead, uid, budget, lanes, failed, links, progress, counts }
    }

    fn scan(&self) -> Result<&'a Scan> {
        self.scan.ok_or_else(|| Error::new(Kind::Other, "internal: a file without its directory"))
    }

    /// Gives it what was read before.
    pub fn take_ahead(&self, ahead: Ahead<'a>) {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = ahead.0;
    }

    /// Hashes and links one large file, and begins to send it: that ends with the scope, and [`Transfer::finish`] says how.
    ///
    /// # Errors
    /// When it cannot be read, changed, does not match its record, or an upload failed.
    pub fn store<'s>(&'s self, scope: &'s Scope<'s, '_>, file: &'s ScannedFile) -> Result<Stored> {
        self.check_sent()?;
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).remove(&file.name);
        if let Some(ahead) = ahead {
            let Hashed { opened, digest, tree, staged } = ahead;
            let read = Whole { opened, record: None, digest, tree, bytes: None, staged: Some(staged), placed: None };
            return self.store_read(scope, file, read, self.budget.take(0));
        }
        let opened = self.scan()?.open(file)?;
        if !file.immutable() {
            return self.store_mutable(scope, file, &opened);
        }
        let record = file.recorded(self.session.store_id);
        let size = file.stat.size;
        // What an attempt before has stored, or a base most probably has (a copied database), is only read.
        let placed = record.map(|digest| self.place(digest, size)).transpose()?;
        let mut staged = None;
        if placed.is_none_or(|(_, missing)| missing) && !self.base.seems_to_have(file) {
            staged = self.session.store.stage_blob()?;
        }
        let share = self.budget.take(if staged.is_some() { limits::GROUP } else { size.min(limits::READ_ONCE) });
        let mut bytes = None;
        let (digest, tree) = match &mut staged {
            Some(staged) => hash_into(staged, file, &opened, self.cancel)?,
            None if size <= limits::READ_ONCE => {
                let whole = self.read_whole(file, &opened)?;
                let hashed = tree::hash_and_tree(&whole);
                bytes = Some(Bytes::from(whole));
                hashed
            }
            None => {
                let wanted = Wanted { from: &opened, cancel: self.cancel };
                tree::hash_and_tree_of(wanted, size).map_err(|e| unreadable(file, &e))?
            }
        };
        self.store_read(scope, file, Whole { opened, record, digest, tree, bytes, staged, placed }, share)
    }

    /// Stores a table whose bytes were all read.
    fn store_read<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        file: &'s ScannedFile,
        whole: Whole<'s>,
        share: Share<'s>,
    ) -> Result<Stored> {
        let Whole { opened, record, digest, tree, bytes, staged, placed } = whole;
        let size = file.stat.size;
        if record.is_some_and(|r| r != digest) {
            // The record was wrong: the file was changed behind it. It must never vouch for anything again.
            identity::forget(&opened).map_err(|e| unreadable(file, &e))?;
            return Err(Error::new(
                Kind::Damage,
                format!(
                    "{}: its bytes are not those that were hashed before: it was changed in place or the disk lost them. Check the database before you trust it; the next snapshot hashes the file anew",
                    self.scan()?.path.join(&file.name).display()
                ),
            ));
        }
        if let Some(found) = self.base.by_digest(&digest, size) {
            remember(file, &opened, &digest)?;
            self.progress.advance(size);
            return Ok(Stored::Base(found));
        }
        let tail = match file.kind {
            rocks::FileKind::Sst(_) => tail(size, &opened, bytes.as_deref()).map_err(|e| unreadable(file, &e))?,
            _ => None,
        };
        let source = match (staged, bytes) {
            (Some(staged), _) => Source::Staged(staged),
            (None, Some(bytes)) => Source::Bytes(bytes),
            (None, None) => Source::Local,
        };
        let (name, missing) = placed.map_or_else(|| self.place(digest, size), Ok)?;
        if missing {
            self.send_beside(scope, name, size, source, Some((file, opened)), share);
        } else {
            self.link(file, &opened, &digest)?;
            self.progress.advance(size);
        }
        Ok(Stored::Blob(SentBlob { name, tree, tail }))
    }

    /// A large file that RocksDB appends to: often the base's bytes and a few more.
    fn store_mutable<'s>(&'s self, scope: &'s Scope<'s, '_>, file: &ScannedFile, opened: &File) -> Result<Stored> {
        let size = file.stat.size;
        let share = self.budget.take(size);
        let bytes = self.read_whole(file, opened)?;
        let digest = Digest::of(&bytes);
        if let Some(found) = self.base.by_digest(&digest, size) {
            self.progress.advance(size);
            return Ok(Stored::Base(found));
        }
        if let Some((base, prefix)) = grown_from(self.base, &file.path, &bytes) {
            let rest = bytes.get(prefix..).unwrap_or_default().to_vec();
            let length = rest.len() as u64;
            self.progress.advance(size.saturating_sub(length));
            let rest = if length > limits::OWN_BLOB_OTHER {
                let digest = Digest::of(&rest);
                Rest::Blob(self.send_bytes(scope, digest, Bytes::from(rest), share)?, length)
            } else {
                self.progress.advance(length);
                Rest::Bytes(rest)
            };
            return Ok(Stored::Grown { base, digest, rest });
        }
        let (_, tree) = tree::hash_and_tree(&bytes);
        let name = self.send_bytes(scope, digest, Bytes::from(bytes), share)?;
        Ok(Stored::Blob(SentBlob { name, tree, tail: None }))
    }

    fn read_whole(&self, file: &ScannedFile, opened: &File) -> Result<Vec<u8>> {
        let size = usize::try_from(file.stat.size)
            .map_err(|_| Error::new(Kind::Resources, format!("{} does not fit into memory", file.name)))?;
        let mut bytes = Vec::new();
        // An allocation that fails must not end the process: the checkpoint would stay open.
        bytes.try_reserve_exact(size.saturating_add(1)).map_err(|_| {
            Error::new(
                Kind::Resources,
                format!("{} ({size} bytes) does not fit into memory (raise its limit: ulimit -v)", file.path),
            )
        })?;
        let mut reader = Wanted { from: opened, cancel: self.cancel };
        reader.by_ref().take(file.stat.size + 1).read_to_end(&mut bytes).map_err(|e| unreadable(file, &e))?;
        if bytes.len() == size {
            Ok(bytes)
        } else {
            Err(changed(&self.scan()?.path, &format!("{} was written to", file.name)))
        }
    }

    /// Ends the transfer, once the scope of the uploads did. What was linked is durable once its batch is finished, what was sent is so
    /// before the next record that the store creates.
    ///
    /// # Errors
    /// When an upload failed; the snapshot must be given up.
    pub fn finish(self) -> Result<Counts> {
        self.check_sent()?;
        Ok(self.counts)
    }

    fn link(&self, file: &ScannedFile, opened: &File, digest: &Digest) -> Result<()> {
        remember(file, opened, digest)?;
        match self.links.link_in(opened, digest) {
            Ok(LinkedIn::Linked | LinkedIn::Present) => {}
            Ok(LinkedIn::Reflinked | LinkedIn::Copied) => {
                self.counts.degraded.fetch_add(1, Ordering::Relaxed);
            }
            // The cache saves time; the store keeps the bytes. A full cache must not cost a checkpoint.
            Err(e) if e.is_no_space() => {
                self.counts.degraded.fetch_add(1, Ordering::Relaxed);
                log::warn!("{} is not kept in the cache: {e}", file.name);
            }
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    /// Sends a file that came from elsewhere and lies in the cache by now.
    ///
    /// # Errors
    /// When it cannot be read or sent.
    pub fn store_taken(
        &self,
        size: u64,
        is_sst: bool,
        (digest, tree, opened): (Digest, Vec<u8>, &File),
    ) -> Result<Stored> {
        self.check_sent()?;
        if let Some(found) = self.base.by_digest(&digest, size) {
            self.progress.advance(size);
            return Ok(Stored::Base(found));
        }
        let unreadable = |e| Error::with_source(Kind::Other, format!("cannot read {digest} in the cache: {e}"), e);
        let tail = if is_sst { tail(size, opened, None).map_err(unreadable)? } else { None };
        let name = self.send(digest, BlobSource::File(opened, size))?;
        self.progress.advance(size);
        Ok(Stored::Blob(SentBlob { name, tree, tail }))
    }

    /// Sends bytes that were hashed just now, unless they were sent before.
    ///
    /// # Errors
    /// When they cannot be read or sent.
    pub fn send(&self, digest: Digest, bytes: BlobSource<'_>) -> Result<BlobName> {
        self.check_sent()?;
        let size = bytes.len();
        let (name, missing) = self.place(digest, size)?;
        if missing {
            match bytes {
                BlobSource::Bytes(bytes) => self.upload(&name, size, Source::Bytes(bytes), None)?,
                BlobSource::File(file, _) => self.upload(&name, size, Source::Local, Some(file))?,
            }
        }
        Ok(name)
    }

    /// The name of a blob, and whether it must be uploaded: an aborted attempt of this writer may have done so already.
    fn place(&self, digest: Digest, size: u64) -> Result<(BlobName, bool)> {
        for uid in &self.base.aborted {
            let name = BlobName { digest, uid: *uid };
            if self.session.store.head(&Key::blob(&name))? == Some(size) {
                self.counts.adopted.fetch_add(size, Ordering::Relaxed);
                return Ok((name, false));
            }
        }
        Ok((BlobName { digest, uid: self.uid }, true))
    }

    fn upload(&self, name: &BlobName, size: u64, source: Source<'_>, local: Option<&File>) -> Result<()> {
        let store = &self.session.store;
        match (source, local) {
            (Source::Bytes(bytes), _) => store.upload_blob(name, BlobSource::Bytes(bytes))?,
            (Source::Staged(staged), _) => staged.publish(name, size)?,
            (Source::Local, Some(file)) => store.upload_blob(name, BlobSource::File(file, size))?,
            (Source::Local, None) => return Err(Error::new(Kind::Other, "internal: an upload without a file")),
        }
        self.counts.uploaded.fetch_add(size, Ordering::Relaxed);
        Ok(())
    }

    fn send_bytes<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        digest: Digest,
        bytes: Bytes,
        share: Share<'s>,
    ) -> Result<BlobName> {
        let size = bytes.len() as u64;
        let (name, missing) = self.place(digest, size)?;
        if missing {
            self.send_beside(scope, name, size, Source::Bytes(bytes), None, share);
        } else {
            self.progress.advance(size);
        }
        Ok(name)
    }

    /// Uploads a blob, and links the table that it is of, in a thread of its own, which gives back the memory that it holds.
    fn send_beside<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        name: BlobName,
        size: u64,
        source: Source<'s>,
        local: Option<(&'s ScannedFile, File)>,
        share: Share<'s>,
    ) {
        let lane = self.lanes.take(1);
        // Where no thread can be made, the caller sends it itself.
        beside(scope, move || {
            let sent = self
                .cancel
                .check()
                .and_then(|()| self.upload(&name, size, source, local.as_ref().map(|(_, opened)| opened)));
            // Linked last: that syncs the table, which waits for all that the disk is busy with.
            let done = sent.and_then(|()| match &local {
                Some((file, opened)) => self.link(file, opened, &name.digest),
                None => Ok(()),
            });
            match done {
                Ok(()) => self.progress.advance(size),
                Err(e) => drop(self.failure().get_or_insert(e)),
            }
            drop((share, lane));
        });
    }

    fn failure(&self) -> MutexGuard<'_, Option<Error>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether an upload failed or all is cancelled, so that no more are begun.
    fn check_sent(&self) -> Result<()> {
        self.failure().take().map_or_else(|| self.cancel.check(), Err)
    }

    /// Begins to send state that is too large for the bundle.
    ///
    /// # Errors
    /// When an upload failed before.
    pub fn store_state<'s>(&'s self, scope: &'s Scope<'s, '_>, digest: Digest, bytes: &Bytes) -> Result<SentBlob> {
        self.check_sent()?;
        let share = self.budget.take(bytes.len() as u64);
        let (_, tree) = tree::hash_and_tree(bytes);
        let name = self.send_bytes(scope, digest, bytes.clone(), share)?;
        Ok(SentBlob { name, tree, tail: None })
    }

    /// Uploads the bundle, or finds that an aborted attempt has.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn send_bundle(&self, bytes: Bytes) -> Result<BlobName> {
        self.cancel.check()?;
        let digest = Digest::of(&bytes);
        if let Err(e) = self.session.cache.put_copy(&digest, &bytes) {
            if !e.is_no_space() {
                return Err(e.into());
            }
            log::warn!("the bundle is not kept in the cache: {e}");
        }
        let size = bytes.len() as u64;
        let (name, missing) = self.place(digest, size)?;
        if missing {
            self.upload(&name, size, Source::Bytes(bytes), None)?;
        }
        Ok(name)
    }
}

/// Start and bytes of a table's tail.
fn tail(size: u64, opened: &File, bytes: Option<&[u8]>) -> std::io::Result<Option<(u64, Vec<u8>)>> {
    let mut from = size.saturating_sub(limits::GROUP);
    from -= from % limits::GROUP;
    let read = |from: u64| -> std::io::Result<Vec<u8>> {
        let whole = usize::try_from(from).ok().and_then(|f| bytes.and_then(|b| b.get(f..)));
        if let Some(slice) = whole {
            return Ok(slice.to_vec());
        }
        let length = usize::try_from((size - from).min(2 * limits::ROCKS_TAIL)).unwrap_or_default();
        let mut out = vec![0; length];
        opened.read_exact_at(&mut out, from)?;
        Ok(out)
    };
    loop {
        let last = read(from)?;
        match rocks::tail_start(size, &last) {
            TailPlan::From(start) if start >= size => return Ok(None),
            TailPlan::From(start) if start >= from => {
                let skip = usize::try_from(start - from).unwrap_or(usize::MAX);
                return Ok(last.get(skip..).map(|t| (start, t.to_vec())));
            }
            TailPlan::From(start) | TailPlan::NeedMore(start) if start < from => from = start,
            // The plan asks for what it has: nothing more can be learned.
            TailPlan::From(_) | TailPlan::NeedMore(_) => return Ok(None),
        }
    }
}

/// Whether the base's file at the same path is a true prefix of these bytes; returns it with its length.
#[must_use]
pub fn grown_from(base: &BaseIndex, path: &FilePath, bytes: &[u8]) -> Option<(BaseFile, usize)> {
    let at = base.by_path(path)?;
    let entry = base.entry(at)?;
    let immutable = path.rocks_file().is_some_and(|name| rocks::file_kind(name).is_immutable());
    // One extent is left for the appended bytes.
    if immutable || entry.size == 0 || entry.extents.len() >= limits::EXTENTS_PER_FILE {
        return None;
    }
    let length = usize::try_from(entry.size).ok()?;
    let prefix = bytes.get(..length).filter(|p| p.len() < bytes.len())?;
    (Hasher::new().update(prefix).finish() == entry.digest).then_some((at, length))
}
