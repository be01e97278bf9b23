//! Hashes, links and sends the large files. What is sent is what was hashed: up to [`limits::READ_ONCE`] it is the same memory, above
//! it the store hashes while it sends.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::base::{BaseFile, BaseIndex};
use super::budget::Budget;
use super::plan::{recorded, unreadable};
use super::scan::{Scan, ScannedFile, changed};
use crate::cache::Session;
use crate::cache::{Batch, LinkedIn, tree};
use crate::error::{Error, Kind, Result};
use crate::format::rocks::{self, TailPlan};
use crate::limits;
use crate::local::identity;
use crate::store::BlobSource;
use crate::types::Progress;
use crate::types::{BlobName, Digest, Hasher, Key, Uid};

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
#[derive(Debug)]
pub struct SentBlob {
    /// The blob.
    pub name: BlobName,
    /// Its hash tree.
    pub tree: Vec<u8>,
    /// Start and bytes of its tail, for SSTs.
    pub tail: Option<(u64, Vec<u8>)>,
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

/// What the transfer of one snapshot shares.
pub struct Transfer<'a> {
    session: &'a Session,
    scan: &'a Scan,
    base: &'a BaseIndex,
    uid: Uid,
    budget: Budget,
    links: Batch<'a>,
    progress: &'a dyn Progress,
    /// What happened.
    pub counts: Counts,
}

impl<'a> Transfer<'a> {
    /// A transfer of this directory for the checkpoint with this uid.
    pub fn new(
        session: &'a Session,
        scan: &'a Scan,
        base: &'a BaseIndex,
        uid: Uid,
        progress: &'a dyn Progress,
    ) -> Self {
        let budget = Budget::new(limits::UPLOAD_MEMORY);
        let links = session.cache.batch();
        Self { session, scan, base, uid, budget, links, progress, counts: Counts::default() }
    }

    /// Stores one large file.
    ///
    /// # Errors
    /// When it cannot be read, changed, does not match its record, or cannot be sent.
    pub fn store(&self, file: &ScannedFile) -> Result<Stored> {
        let opened = self.scan.open(file)?;
        if !file.immutable() {
            return self.store_mutable(file, &opened);
        }
        let record = recorded(&opened, file)?;
        let size = file.stat.size;
        let share = self.budget.take(size.min(limits::READ_ONCE));
        let (digest, tree, bytes) = if size <= limits::READ_ONCE {
            let bytes = self.read_whole(file, &opened)?;
            let (digest, tree) = tree::hash_and_tree(&bytes);
            (digest, tree, Some(Bytes::from(bytes)))
        } else {
            let (digest, tree) = tree::hash_and_tree_of(&opened, size).map_err(|e| unreadable(file, &e))?;
            (digest, tree, None)
        };
        if record.is_some_and(|r| r != digest) {
            // The record was wrong: the file was changed behind it. It must never vouch for anything again.
            identity::forget(&opened).map_err(|e| unreadable(file, &e))?;
            return Err(Error::new(
                Kind::Damage,
                format!(
                    "{}: its bytes are not those that were hashed before: it was changed in place or the disk lost them. Check the database before you trust it; the next snapshot hashes the file anew",
                    self.scan.path.join(&file.name).display()
                ),
            ));
        }
        if record.is_none() {
            identity::record_since(&opened, &digest, &file.stat).map_err(|e| unreadable(file, &e))?;
        }
        if let Some(found) = self.base.by_digest(&digest, size) {
            self.progress.advance(size);
            return Ok(Stored::Base(found));
        }
        self.link(file, &opened, &digest)?;
        let tail = match file.kind {
            rocks::FileKind::Sst(_) => self.tail(file, &opened, bytes.as_deref())?,
            _ => None,
        };
        let source = match bytes {
            Some(bytes) => BlobSource::Bytes(bytes),
            None => BlobSource::File(&opened, size),
        };
        let name = self.send(digest, size, source)?;
        drop(share);
        self.progress.advance(size);
        Ok(Stored::Blob(SentBlob { name, tree, tail }))
    }

    /// A large file that RocksDB appends to: often the base's bytes and a few more.
    fn store_mutable(&self, file: &ScannedFile, opened: &File) -> Result<Stored> {
        let size = file.stat.size;
        let share = self.budget.take(size);
        let bytes = self.read_whole(file, opened)?;
        let digest = Digest::of(&bytes);
        self.progress.advance(size);
        if let Some(found) = self.base.by_digest(&digest, size) {
            return Ok(Stored::Base(found));
        }
        if let Some((base, prefix)) = grown_from(self.base, file, &bytes) {
            let rest = bytes.get(prefix..).unwrap_or_default().to_vec();
            let rest = if rest.len() as u64 > limits::OWN_BLOB_OTHER {
                let length = rest.len() as u64;
                Rest::Blob(self.send(Digest::of(&rest), length, BlobSource::Bytes(Bytes::from(rest)))?, length)
            } else {
                Rest::Bytes(rest)
            };
            return Ok(Stored::Grown { base, digest, rest });
        }
        let (_, tree) = tree::hash_and_tree(&bytes);
        let name = self.send(digest, size, BlobSource::Bytes(Bytes::from(bytes)))?;
        drop(share);
        Ok(Stored::Blob(SentBlob { name, tree, tail: None }))
    }

    fn read_whole(&self, file: &ScannedFile, opened: &File) -> Result<Vec<u8>> {
        let size = usize::try_from(file.stat.size)
            .map_err(|_| Error::new(Kind::Resources, format!("{} does not fit into memory", file.name)))?;
        let mut bytes = Vec::with_capacity(size + 1);
        let mut reader = opened;
        reader.by_ref().take(file.stat.size + 1).read_to_end(&mut bytes).map_err(|e| unreadable(file, &e))?;
        if bytes.len() == size {
            Ok(bytes)
        } else {
            Err(changed(&self.scan.path, &format!("{} was written to", file.name)))
        }
    }

    /// Makes everything durable that was sent and linked.
    ///
    /// # Errors
    /// When it may not be; the snapshot must be given up.
    pub fn finish(self) -> Result<Counts> {
        let (stored, linked) = std::thread::scope(|s| {
            let linked = s.spawn(|| self.links.finish());
            let stored = self.session.store.flush();
            (stored, linked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        stored?;
        linked?;
        Ok(self.counts)
    }

    fn link(&self, file: &ScannedFile, opened: &File, digest: &Digest) -> Result<()> {
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

    fn tail(&self, file: &ScannedFile, opened: &File, bytes: Option<&[u8]>) -> Result<Option<(u64, Vec<u8>)>> {
        let size = file.stat.size;
        let mut from = size.saturating_sub(limits::GROUP);
        from -= from % limits::GROUP;
        let read = |from: u64| -> Result<Vec<u8>> {
            let whole = usize::try_from(from).ok().and_then(|f| bytes.and_then(|b| b.get(f..)));
            if let Some(slice) = whole {
                return Ok(slice.to_vec());
            }
            let length = usize::try_from((size - from).min(2 * limits::ROCKS_TAIL)).unwrap_or_default();
            let mut out = vec![0; length];
            opened.read_exact_at(&mut out, from).map_err(|e| unreadable(file, &e))?;
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

    /// Uploads a blob unless an aborted attempt of this writer has done so already.
    fn send(&self, digest: Digest, size: u64, source: BlobSource<'_>) -> Result<BlobName> {
        for uid in &self.base.aborted {
            let name = BlobName { digest, uid: *uid };
            if self.session.store.head(&Key::blob(&name))? == Some(size) {
                self.counts.adopted.fetch_add(size, Ordering::Relaxed);
                return Ok(name);
            }
        }
        let name = BlobName { digest, uid: self.uid };
        self.session.store.upload_blob(&name, source)?;
        self.counts.uploaded.fetch_add(size, Ordering::Relaxed);
        Ok(name)
    }

    /// Uploads the bundle, or finds that an aborted attempt has.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn send_bundle(&self, bytes: Bytes) -> Result<BlobName> {
        let digest = Digest::of(&bytes);
        if let Err(e) = self.session.cache.put_bytes(&digest, &bytes) {
            if !e.is_no_space() {
                return Err(e.into());
            }
            log::warn!("the bundle is not kept in the cache: {e}");
        }
        self.send(digest, bytes.len() as u64, BlobSource::Bytes(bytes))
    }
}

/// Whether the base's file at the same path is a true prefix of these bytes; returns it with its length.
#[must_use]
pub fn grown_from(base: &BaseIndex, file: &ScannedFile, bytes: &[u8]) -> Option<(BaseFile, usize)> {
    let at = base.by_path(&file.path)?;
    let entry = base.entry(at)?;
    // One extent is left for the appended bytes.
    if file.immutable() || entry.size == 0 || entry.extents.len() >= limits::EXTENTS_PER_FILE {
        return None;
    }
    let length = usize::try_from(entry.size).ok()?;
    let prefix = bytes.get(..length).filter(|p| p.len() < bytes.len())?;
    (Hasher::new().update(prefix).finish() == entry.digest).then_some((at, length))
}
