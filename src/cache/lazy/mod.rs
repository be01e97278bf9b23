//! Files of which only a part is here: a hole for every group of 64 KiB that nobody has read.
//!
//! ```text
//! read -> groups verified?  yes: from partial/<digest>
//!                           no:  claimed (one thread per run) -> range GET -> hash tree -> written -> verified
//!         last group verified: synced, recorded, named in files/, its name in partial/ removed
//! ```
//!
//! - Nothing is answered that was not verified against the file's hash tree by this process: what lies in `partial/` after a crash or
//!   a restart is taken for data by where the file has no holes, and believed group by group once it is verified ([`groups`]).
//! - Bytes can be given back at any time before the file is whole: what rests on a group being here holds `steady`.
//! - A group that cannot be written (a full disk) is answered from memory and fetched again next time.
//! - Readers come first; what is fetched ahead of a sequential reader, and whole files behind ([`behind`]), use what they leave.

mod behind;
mod groups;

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, PoisonError, Weak};

use bytes::Bytes;

use super::error::{CacheError, Result, blob_keys, place};
use super::open::FILE_MODE;
use super::stage::Keep;
use super::{Cache, Inner, tree, uses};
use crate::format::{BlobEntry, FileEntry, TaskManifest};
use crate::limits::{self, GROUP};
use crate::local::FileStat;
use crate::local::holes::data_ranges;
use crate::local::identity;
use crate::local::process;
use crate::local::publish::Staged;
use crate::store::{Store, StoreError};
use crate::types::sync::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use crate::types::{BlobName, Digest, Key};
use groups::{Claim, Groups};

pub(super) use behind::Behind;

/// A task manifest that names the file, and the file's place in it.
#[derive(Debug, Clone)]
struct Upload {
    blob: BlobName,
    manifest: Arc<TaskManifest>,
}

/// A file that is read before it is here. Clones of the `Arc` are the same file; dropped, what it has stays for the next.
pub struct LazyFile {
    cache: Cache,
    store: Store,
    digest: Digest,
    size: u64,
    label: String,
    tree: Vec<u8>,
    file: File,
    /// Whether the file has its name in `partial/`, and is worth filling.
    named: bool,
    /// Where its bytes are in the store, the newest upload last.
    uploads: RwLock<Vec<Upload>>,
    groups: Mutex<Groups>,
    landed: Condvar,
    /// Held for writing while bytes are given back, for reading from a look at the groups to the end of the access that rests on it.
    steady: RwLock<()>,
    sealed: AtomicBool,
    queued: AtomicBool,
    /// When it was last noted as used, in seconds.
    noted: AtomicU64,
    on_whole: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for LazyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LazyFile").field("digest", &self.digest).field("size", &self.size).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Bits are set and cleared in steps that are each true by themselves.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The blob that a file is, if it is a whole one: others are fetched whole.
fn own_blob<'a>(manifest: &'a TaskManifest, file: &FileEntry) -> Option<&'a BlobEntry> {
    let [extent] = file.extents.as_slice() else { return None };
    let blob = manifest.blobs.get(usize::try_from(extent.blob).ok()?)?;
    let whole = extent.offset == 0 && extent.length == blob.length && blob.length == file.size;
    (whole && !blob.bundle && blob.name.digest == file.digest && file.size > 0).then_some(blob)
}

impl Cache {
    /// Opens a file of which nothing need be here. Nothing: it is none that can be read in parts (it lies in bundles, was grown, or has
    /// no hash tree), and must be fetched whole. Fetches the bundle with its tree, and its tail, where they are not here. `on_whole` is called
    /// once, by another thread, when the file is complete and has its name among the complete ones.
    ///
    /// # Errors
    /// As [`Cache::fetch_file`].
    pub fn open_lazy(
        &self,
        store: &Store,
        manifest: &Arc<TaskManifest>,
        file: &FileEntry,
        on_whole: impl Fn() + Send + Sync + 'static,
    ) -> Result<Option<Arc<LazyFile>>> {
        let Some(blob) = own_blob(manifest, file) else { return Ok(None) };
        let upload = Upload { blob: blob.name, manifest: Arc::clone(manifest) };
        if let Some(open) = self.inner.lazy.get(&file.digest).and_then(|l| l.upgrade()).filter(|l| l.size == file.size)
        {
            open.also_in(upload);
            return Ok(Some(open));
        }
        let tree = match (&file.tree, tree::tree_len(file.size)) {
            (_, 0) => Vec::new(),
            (Some(extent), length) if extent.length == length => self.read_section(store, manifest, extent)?,
            _ => return Ok(None),
        };
        let damaged = |why: String| CacheError::Damaged {
            file: file.path.to_string(),
            blob: blob_keys([&blob.name]),
            checkpoint: place(manifest),
            why,
        };
        tree::verify_tree(&file.digest, file.size, &tree).map_err(|e| {
            self.inner.counters.wrong_fetched.inc();
            damaged(e.to_string())
        })?;
        let (own, named) = self.inner.partial_file(&file.digest, file.size)?;
        let mut groups = Groups::new(file.size);
        if named {
            let found = data_ranges(&own, file.size, limits::DATA_RANGES);
            let found = found.map_err(|e| CacheError::io(self.path(), "look for holes in a partial file", e))?;
            for range in found {
                // A group that is there only in part will not be verified.
                groups.find(range.start / GROUP..range.end.div_ceil(GROUP));
            }
        }
        let lazy = Arc::new(LazyFile {
            cache: self.clone(),
            store: store.clone(),
            digest: file.digest,
            size: file.size,
            label: file.path.to_string(),
            tree,
            file: own,
            named,
            uploads: RwLock::new(vec![upload]),
            groups: Mutex::new(groups),
            landed: Condvar::new(),
            steady: RwLock::new(()),
            sealed: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            noted: AtomicU64::new(0),
            on_whole: Box::new(on_whole),
        });
        if let Some(tail) = file.tail {
            let bytes = self.read_section(store, manifest, &tail.extent)?;
            if tail.start.checked_add(bytes.len() as u64) != Some(file.size) || !tail.start.is_multiple_of(GROUP) {
                return Err(damaged(format!("its tail at {} does not go to its end", tail.start)));
            }
            let groups = lock(&lazy.groups).of(tail.start, bytes.len() as u64);
            lazy.verify(tail.start, &bytes).map_err(damaged)?;
            lazy.keep(groups, &bytes);
        }
        // Another thread may have been as fast: the one that has the name in `partial/` is everybody's.
        let mut open = self.inner.lazy.entry(file.digest).or_default();
        match open.upgrade().filter(|other| other.size == file.size && (other.named || !lazy.named)) {
            Some(other) => {
                drop(open);
                Ok(Some(other))
            }
            None => {
                *open = Arc::downgrade(&lazy);
                Ok(Some(lazy))
            }
        }
    }
}

impl Cache {
    /// From now on files are not fetched whole because a part of them was read.
    pub fn no_fetch_behind(&self) {
        self.inner.behind.turn_off();
    }
}

impl Inner {
    /// The file in `partial/`, claimed; an unnamed one where somebody else has it.
    fn partial_file(&self, digest: &Digest, size: u64) -> Result<(File, bool)> {
        let name = digest.to_hex();
        let fail = |e| CacheError::write(&self.path, name.clone(), size, e);
        while let Some(lock) = self.claim(&self.partial, &name)? {
            let file = lock.into_file();
            let stat = FileStat::of(&file).map_err(fail)?;
            if stat.nlink > 1 {
                // Whole and named as such before its writer died: it must never be written again.
                self.partial.remove(&name)?;
                continue;
            }
            if stat.size != size {
                file.set_len(0).and_then(|()| file.set_len(size)).map_err(fail)?;
            }
            return Ok((file, true));
        }
        let staged = Staged::new(&self.partial, FILE_MODE).map_err(|e| self.failed(&name, size, e))?;
        let file = staged.file().try_clone().map_err(fail)?;
        file.set_len(size).map_err(fail)?;
        Ok((file, false))
    }

    /// Takes the name in `partial/` away, if it is still this file's.
    fn forget_partial(&self, file: &File, digest: &Digest) {
        let name = digest.to_hex();
        let own = FileStat::of(file).ok().zip(self.partial.stat(&name).ok().flatten());
        if own.is_some_and(|(own, there)| own.same_inode(&there))
            && let Err(e) = self.partial.remove(&name)
        {
            log::warn!("{} stays in the cache for nothing: {e}", self.partial.path().join(&name).display());
        }
    }
}

impl LazyFile {
    /// Bytes that are here and verified.
    #[must_use]
    pub fn here(&self) -> u64 {
        lock(&self.groups).here()
    }

    fn also_in(&self, upload: Upload) {
        let mut uploads = self.uploads.write().unwrap_or_else(PoisonError::into_inner);
        if uploads.iter().all(|u| u.blob != upload.blob) && uploads.len() < limits::LAZY_UPLOADS {
            uploads.push(upload);
        }
    }

    /// Reads at most `buffer`'s length at `offset`, as far as the file goes, if all of it is here. Never waits for the store. `None`: it
    /// is not.
    ///
    /// # Errors
    /// When the local disk fails.
    pub fn try_read(&self, offset: u64, buffer: &mut [u8]) -> Option<Result<()>> {
        let _steady = self.steady();
        let here = {
            let groups = lock(&self.groups);
            groups.have(&groups.of(offset, buffer.len() as u64))
        };
        here.then(|| {
            self.note_use();
            self.file.read_exact_at(buffer, offset).map_err(|e| self.unreadable(e))
        })
    }

    /// Reads exactly `buffer`'s length at `offset`, and brings what is missing, verified.
    ///
    /// # Errors
    /// [`CacheError::Damaged`] when no upload of the file has the right bytes, [`CacheError::Absent`] when there is none; or the store does
    /// not answer, or the disk fails. What was read is not to be used then.
    pub fn read(self: &Arc<Self>, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let wanted = lock(&self.groups).of(offset, buffer.len() as u64);
        // A small file is fetched by one request, whatever of it is wanted.
        let claimed = if self.size <= limits::LAZY_WHOLE { lock(&self.groups).all() } else { wanted.clone() };
        let mut held: BTreeMap<u64, Bytes> = BTreeMap::new();
        loop {
            {
                let _steady = self.steady();
                let groups = lock(&self.groups);
                if wanted.clone().all(|g| groups.has(g) || held.contains_key(&g)) {
                    drop(groups);
                    self.assemble(&wanted, offset, buffer, &held)?;
                    break;
                }
            }
            let run = {
                let mut groups = lock(&self.groups);
                // What is held could not be kept, and need not be brought again.
                match groups.claim(&claimed, limits::LAZY_RUN, |g| held.contains_key(&g)) {
                    Claim::Here => continue,
                    Claim::Wait => {
                        drop(self.landed.wait(groups).unwrap_or_else(PoisonError::into_inner));
                        continue;
                    }
                    Claim::Bring(run) => run,
                }
            };
            self.bring(run, true, &mut held)?;
        }
        self.used();
        Ok(())
    }

    fn assemble(&self, wanted: &Range<u64>, offset: u64, buffer: &mut [u8], held: &BTreeMap<u64, Bytes>) -> Result<()> {
        if !wanted.clone().any(|g| held.contains_key(&g)) {
            return self.file.read_exact_at(buffer, offset).map_err(|e| self.unreadable(e));
        }
        let end = offset.saturating_add(buffer.len() as u64);
        for group in wanted.clone() {
            let bytes = lock(&self.groups).bytes(&(group..group + 1));
            let (from, to) = (bytes.start.max(offset), bytes.end.min(end));
            let at = |n: u64, base: u64| usize::try_from(n - base).unwrap_or(usize::MAX);
            let Some(out) = buffer.get_mut(at(from, offset)..at(to, offset)) else { continue };
            match held.get(&group) {
                Some(held) => match held.get(at(from, bytes.start)..at(to, bytes.start)) {
                    Some(held) => out.copy_from_slice(held),
                    None => return Err(self.unreadable(std::io::ErrorKind::UnexpectedEof.into())),
                },
                None => self.file.read_exact_at(out, from).map_err(|e| self.unreadable(e))?,
            }
        }
        Ok(())
    }

    fn steady(&self) -> RwLockReadGuard<'_, ()> {
        self.steady.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn unreadable(&self, e: std::io::Error) -> CacheError {
        CacheError::io(self.cache.path(), format!("read what it has of {}", self.digest), e)
    }

    fn damaged(&self, why: impl Into<String>) -> CacheError {
        let uploads = self.uploads();
        CacheError::Damaged {
            file: self.label.clone(),
            blob: blob_keys(uploads.iter().map(|u| &u.blob)),
            checkpoint: uploads.last().map(|u| place(&u.manifest)).unwrap_or_default(),
            why: why.into(),
        }
    }

    fn uploads(&self) -> Vec<Upload> {
        self.uploads.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn verify(&self, offset: u64, bytes: &[u8]) -> Result<(), String> {
        tree::verify_range(&self.digest, self.size, &self.tree, offset, bytes).map_err(|e| e.to_string())
    }

    /// Brings a claimed run. What cannot be kept is put into `held`. The claim has ended when this returns, well or not.
    fn bring(self: &Arc<Self>, run: Range<u64>, first: bool, held: &mut BTreeMap<u64, Bytes>) -> Result<()> {
        // Whatever happens, others must not wait for ever.
        let mut claim = Claimed { lazy: self, run };
        while let Some(group) = claim.run.clone().next() {
            if lock(&self.groups).was_found(group) {
                self.look(group)?;
                claim.run.start = group + 1;
                continue;
            }
            let end = claim.run.clone().find(|g| lock(&self.groups).was_found(*g)).unwrap_or(claim.run.end);
            let part = group..end;
            let bytes = lock(&self.groups).bytes(&part);
            let got = self.fetch(&bytes, first)?;
            if !self.keep(part.clone(), &got) {
                for group in part {
                    let own = lock(&self.groups).bytes(&(group..group + 1));
                    let at = |n: u64| usize::try_from(n - bytes.start).unwrap_or(usize::MAX).min(got.len());
                    held.insert(group, got.slice(at(own.start)..at(own.end)));
                }
            }
            claim.run.start = end;
        }
        drop(claim);
        if self.named && lock(&self.groups).complete() {
            self.cache.inner.behind.complete(self);
        }
        Ok(())
    }

    /// Verifies a group that the file had when it was opened.
    fn look(&self, group: u64) -> Result<()> {
        let bytes = lock(&self.groups).bytes(&(group..group + 1));
        let mut buffer = vec![0; usize::try_from(bytes.end - bytes.start).unwrap_or_default()];
        let _steady = self.steady();
        self.file.read_exact_at(&mut buffer, bytes.start).map_err(|e| self.unreadable(e))?;
        let right = self.verify(bytes.start, &buffer).is_ok();
        lock(&self.groups).land(group..group + 1, right);
        self.landed.notify_all();
        Ok(())
    }

    /// The bytes of a run of groups, verified. Every upload of the file is tried, and each of them again when its bytes are wrong: what is
    /// damaged on the way may be whole in the store.
    fn fetch(&self, bytes: &Range<u64>, first: bool) -> Result<Bytes> {
        let mut failed = None;
        for upload in self.uploads().iter().rev() {
            let key = Key::blob(&upload.blob);
            for _ in 0..limits::LAZY_TRIES {
                let _turn = self.cache.inner.behind.turn(first, self.store.options().rates.fetch.is_some());
                let got = self.store.get_range(&key, bytes.clone());
                let why = match got {
                    Ok(got) => {
                        self.cache.inner.counters.fetched_bytes.add(got.len() as u64);
                        match self.verify(bytes.start, &got) {
                            Ok(()) => return Ok(got),
                            Err(why) => why,
                        }
                    }
                    Err(StoreError::NotFound { .. }) => {
                        if let Some(local) = self.local(bytes)? {
                            return Ok(local);
                        }
                        let absent = CacheError::Absent { key: key.to_string(), checkpoint: place(&upload.manifest) };
                        failed.get_or_insert(absent);
                        break;
                    }
                    Err(StoreError::Damaged { why, .. }) => why,
                    Err(e) => {
                        return Err(CacheError::Store {
                            file: self.label.clone(),
                            checkpoint: place(&upload.manifest),
                            source: Box::new(e),
                        });
                    }
                };
                self.cache.inner.counters.wrong_fetched.inc();
                log::warn!("{key}: bytes {}..{} were wrong: {why}", bytes.start, bytes.end);
                failed = Some(self.damaged(why));
            }
        }
        Err(failed.unwrap_or_else(|| self.damaged("no upload of it is named")))
    }

    /// The same bytes from the whole file, where somebody else brought that meanwhile.
    fn local(&self, bytes: &Range<u64>) -> Result<Option<Bytes>> {
        let Some(file) = self.cache.inner.open_complete(&self.digest, self.size)? else { return Ok(None) };
        let mut buffer = vec![0; usize::try_from(bytes.end.saturating_sub(bytes.start)).unwrap_or_default()];
        file.read_exact_at(&mut buffer, bytes.start).map_err(|e| self.unreadable(e))?;
        Ok(self.verify(bytes.start, &buffer).is_ok().then(|| Bytes::from(buffer)))
    }

    /// Writes verified bytes into the file. False: they could not be.
    fn keep(&self, groups: Range<u64>, bytes: &[u8]) -> bool {
        let inner = &self.cache.inner;
        let offset = lock(&self.groups).bytes(&groups).start;
        let steady = self.steady();
        let kept = inner.taken.may_keep()
            && self
                .file
                .write_all_at(bytes, offset)
                .map_err(|e| inner.behind.cannot_write(self.cache.path(), &e))
                .is_ok();
        lock(&self.groups).land(groups, kept);
        drop(steady);
        self.landed.notify_all();
        if kept {
            inner.taken.add(bytes.len() as u64);
        }
        kept
    }

    /// Once a second: it is asked for by every read.
    fn note_use(&self) {
        let now = uses::now();
        if self.noted.swap(now, Ordering::Relaxed) != now {
            self.cache.inner.touch(&self.digest);
        }
    }

    /// Whether all of it may be fetched without anybody asking for it.
    fn fits(&self) -> bool {
        self.cache.inner.fits(self.size.saturating_sub(self.here()))
    }

    /// Frees what it has on the disk, while it is open. Who reads on has it fetched again. Nothing: it is whole, and a file like others.
    pub(super) fn give_back(&self) -> Result<Option<u64>> {
        let _alone = self.steady.write().unwrap_or_else(PoisonError::into_inner);
        if self.sealed.load(Ordering::Acquire) {
            return Ok(None);
        }
        let fail = |e| CacheError::io(self.cache.path(), format!("free what it has of {}", self.digest), e);
        let before = FileStat::of(&self.file).map_err(fail)?.on_disk();
        // First: whatever comes of it, nothing is believed that may be gone.
        lock(&self.groups).forget();
        if !matches!(process::punch_hole(&self.file, 0, self.size), Ok(true)) {
            // All of it may be there still: it is verified before it is believed.
            let mut groups = lock(&self.groups);
            let all = groups.all();
            groups.find(all);
            return Ok(None);
        }
        let after = FileStat::of(&self.file).map_err(fail)?.on_disk();
        Ok(Some(before.saturating_sub(after)).filter(|freed| *freed > 0))
    }

    /// Something of it was read: it is worth having whole.
    fn used(self: &Arc<Self>) {
        self.note_use();
        if self.named && !self.sealed.load(Ordering::Acquire) && !self.queued.swap(true, Ordering::AcqRel) {
            self.cache.inner.behind.fill(self);
        }
    }

    /// Has a run of bytes brought by others, soon: for a reader that goes from front to back.
    pub fn ahead(self: &Arc<Self>, offset: u64, length: u64) {
        let wanted = {
            let groups = lock(&self.groups);
            let wanted = groups.of(offset, length);
            (!groups.have(&wanted)).then_some(wanted)
        };
        if let Some(wanted) = wanted {
            self.cache.inner.behind.soon(self, wanted);
        }
    }

    /// Brings one claimed run of these groups, if there is one. False: nothing is left to claim.
    fn work(self: &Arc<Self>, groups: &Range<u64>, first: bool) -> Result<bool> {
        if !self.cache.inner.taken.may_keep() {
            // It would be thrown away.
            return Ok(false);
        }
        let claim = lock(&self.groups).claim(groups, limits::LAZY_RUN, |_| false);
        match claim {
            Claim::Bring(run) => {
                let mut held = BTreeMap::new();
                self.bring(run, first, &mut held)?;
                if held.is_empty() {
                    Ok(true)
                } else {
                    let e = std::io::Error::from(std::io::ErrorKind::StorageFull);
                    Err(CacheError::write(self.cache.path(), self.digest.to_string(), self.size, e))
                }
            }
            Claim::Here | Claim::Wait => Ok(false),
        }
    }

    /// Makes a complete file one of the cache's complete ones: on the disk, with its inode's record, named by its digest.
    fn seal(&self) -> Result<()> {
        {
            let _alone = self.steady.write().unwrap_or_else(PoisonError::into_inner);
            // What it had may have been given back meanwhile.
            if !lock(&self.groups).complete() || self.sealed.swap(true, Ordering::AcqRel) {
                return Ok(());
            }
        }
        // Whoever reads it next has it tried again.
        self.seal_whole().inspect_err(|_| self.sealed.store(false, Ordering::Release))
    }

    /// Whether it is whole, and has not its name among the complete ones.
    fn unsealed(&self) -> bool {
        self.named && !self.sealed.load(Ordering::Acquire) && lock(&self.groups).complete()
    }

    fn seal_whole(&self) -> Result<()> {
        let inner = &self.cache.inner;
        let fail = |e| CacheError::write(&inner.path, self.digest.to_string(), self.size, e);
        let keep = if self.size <= limits::VOUCHED_ONLY { Keep::ForNow } else { Keep::Durable };
        // All groups were verified by this process, and nobody else writes to the file.
        if keep == Keep::ForNow || !identity::record(&self.file, &self.digest).map_err(fail)? {
            inner.vouch(&FileStat::of(&self.file).map_err(fail)?, &self.digest);
        }
        if keep == Keep::Durable {
            self.file.sync_all().map_err(fail)?;
        }
        inner.name(&self.file, &self.digest, self.size, keep)?;
        if self.named {
            inner.forget_partial(&self.file, &self.digest);
        }
        inner.counters.fetched_files.inc();
        (self.on_whole)();
        Ok(())
    }
}

/// A claimed run; what is left of it is given back.
struct Claimed<'a> {
    lazy: &'a LazyFile,
    run: Range<u64>,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        if !self.run.is_empty() {
            lock(&self.lazy.groups).land(self.run.clone(), false);
            self.lazy.landed.notify_all();
        }
    }
}

impl Drop for LazyFile {
    fn drop(&mut self) {
        let lazy = &self.cache.inner.lazy;
        lazy.remove_if(&self.digest, |_, open: &Weak<Self>| open.strong_count() == 0);
        if self.named && !self.sealed.load(Ordering::Acquire) && lock(&self.groups).here() == 0 {
            self.cache.inner.forget_partial(&self.file, &self.digest);
        }
    }
}
