//! What a restore would take: said before anything is done, and without changing anything. What would be asked of the store is what the
//! restore itself asks ([`asks`], [`requests_to_fetch`]); how long that takes is measured.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use super::clone::Amount;
use super::copy::asks;
use super::measure::{Measured, measure};
use crate::cache::{Cache, requests_to_fetch};
use crate::error::{Error, Kind, Result};
use crate::format::clone::CLONE_MARK;
use crate::format::rocks::{self, FileKind};
use crate::format::{BlobEntry, FileEntry, SubtaskEntry, TaskManifest, decode_at};
use crate::lifecycle::{Checkpoint, driver};
use crate::limits;
use crate::local::process;
use crate::store::Store;
use crate::types::{BlobName, Digest, Extent, Key};

/// What one way of restoring fetches and writes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Way {
    /// Requests for bytes.
    pub requests: u64,
    /// Bytes that are fetched.
    pub fetched: u64,
    /// Bytes that are written to the restored directory.
    pub written: u64,
    /// Seconds that fetching takes, by what was measured; nothing where nothing is fetched or nothing could be measured.
    pub seconds: Option<f64>,
}

/// What a restore would take.
#[derive(Debug, Clone)]
pub struct RestorePlan {
    /// All files.
    pub whole: Amount,
    /// Those that the cache has, in bundles or not.
    pub cached: Amount,
    /// A clone, or opening in place: until RocksDB has opened it.
    pub open: Way,
    /// Tables of which opening reads more than is known here, for want of a stored tail.
    pub without_tail: u64,
    /// Every byte copied.
    pub copy: Way,
    /// How fast the store is; nothing where nothing is to be fetched.
    pub measured: Option<Measured>,
    /// Why it could not be measured.
    pub unmeasured: Option<String>,
    /// Bytes that are free where it is to go.
    pub free: Option<u64>,
    /// The RocksDB that wrote it, where its OPTIONS file says.
    pub rocksdb: Option<String>,
}

/// Looks what restoring these subtasks would take. `cache`: nothing where there is none yet.
///
/// # Errors
/// When a task manifest cannot be read or believed.
pub fn plan(
    store: &Store,
    cache: Option<&Cache>,
    checkpoint: &Checkpoint,
    subtasks: &[&SubtaskEntry],
    target: Option<&Path>,
) -> Result<RestorePlan> {
    let read = driver::parallel(subtasks.to_vec(), |entry| manifest(store, cache, checkpoint, entry))?;
    let mut planner = Planner { cache, plan: empty(), missing: BTreeMap::new(), known: HashMap::new() };
    for (manifest, fetched) in &read {
        if *fetched > 0 {
            planner.both(1, *fetched);
        }
        planner.subtask(manifest)?;
    }
    let Planner { mut plan, missing, .. } = planner;
    plan.rocksdb = read.iter().find_map(|(manifest, _)| rocksdb(store, cache, manifest));
    if plan.copy.requests > 0 {
        match measure(store, missing.into_iter().collect()) {
            Ok(measured) => plan.measured = measured,
            Err(e) => plan.unmeasured = Some(e.to_string()),
        }
    }
    if let Some(measured) = plan.measured {
        let time = |way: &mut Way, at_once: usize| {
            let some = way.requests > 0;
            way.seconds = some.then(|| measured.seconds(way.requests, at_once as u64, way.fetched));
        };
        time(&mut plan.open, limits::BUNDLES_AT_ONCE);
        time(&mut plan.copy, limits::PARALLEL_REQUESTS);
    }
    if let Some(target) = target {
        let target = std::path::absolute(target)
            .map_err(|e| Error::with_source(Kind::Invalid, format!("{}: {e}", target.display()), e))?;
        let there = target.ancestors().find(|p| p.is_dir()).unwrap_or(Path::new("/"));
        plan.free = Some(process::statvfs(there)?.available);
    }
    Ok(plan)
}

fn empty() -> RestorePlan {
    RestorePlan {
        whole: Amount::default(),
        cached: Amount::default(),
        open: Way::default(),
        without_tail: 0,
        copy: Way::default(),
        measured: None,
        unmeasured: None,
        free: None,
        rocksdb: None,
    }
}

/// A task manifest, which is not kept, and how many bytes were fetched for it.
fn manifest(
    store: &Store,
    cache: Option<&Cache>,
    checkpoint: &Checkpoint,
    entry: &SubtaskEntry,
) -> Result<(Arc<TaskManifest>, u64)> {
    let key = Key::task(&checkpoint.job, checkpoint.number, &entry.operator, entry.subtask);
    let damaged = |why: String| Error::new(Kind::Damage, format!("{key}: {why} (run ckptfs verify)"));
    let kept = cache.map(|cache| cache.manifest_bytes(&entry.manifest)).transpose()?.flatten();
    let (bytes, fetched) = match kept {
        Some(bytes) => (bytes.into(), 0),
        None => {
            let bytes = store.get(&key, limits::METADATA_LEN)?.ok_or_else(|| damaged("it is not there".to_owned()))?;
            let length = bytes.len() as u64;
            (bytes, length)
        }
    };
    if Digest::of(&bytes) != entry.manifest {
        return Err(damaged("it is not what the checkpoint manifest names".to_owned()));
    }
    let decoded = decode_at::<TaskManifest>(&key, &bytes);
    let decoded = decoded.map_err(|e| Error::with_source(e.kind(), format!("{key}: {e}"), e))?;
    Ok((Arc::new(decoded.record), fetched))
}

struct Planner<'a> {
    cache: Option<&'a Cache>,
    plan: RestorePlan,
    /// Blobs that would be read.
    missing: BTreeMap<BlobName, u64>,
    /// What the cache was asked before: subtasks share bundles.
    known: HashMap<Digest, bool>,
}

impl Planner<'_> {
    fn here(&mut self, digest: &Digest, size: u64) -> Result<bool> {
        if let Some(known) = self.known.get(digest) {
            return Ok(*known);
        }
        let here = match self.cache {
            Some(cache) => cache.has(digest, size)?,
            None => false,
        };
        self.known.insert(*digest, here);
        Ok(here)
    }

    fn both(&mut self, requests: u64, bytes: u64) {
        for way in [&mut self.plan.open, &mut self.plan.copy] {
            way.add(requests, bytes);
        }
    }

    fn subtask(&mut self, manifest: &TaskManifest) -> Result<()> {
        for blob in manifest.blobs.iter().filter(|b| b.bundle) {
            if !self.here(&blob.name.digest, blob.length)? {
                self.both(requests_to_fetch(blob.length), blob.length);
                self.missing.insert(blob.name, blob.length);
                // From then on it is.
                self.known.insert(blob.name.digest, true);
            }
        }
        for file in manifest.files.iter().filter(|f| f.path.db_file() != Some(CLONE_MARK)) {
            self.file(manifest, file)?;
        }
        Ok(())
    }

    fn file(&mut self, manifest: &TaskManifest, file: &FileEntry) -> Result<()> {
        self.plan.whole.add(file.size);
        let (here, table) = (self.here(&file.digest, file.size)?, is_table(file));
        let lies_in = |i: u32| manifest.blobs.get(i as usize);
        let bundled = file.extents.iter().all(|e| lies_in(e.blob).is_some_and(|b| b.bundle));
        let packed = |e: &Extent| lies_in(e.blob).is_some_and(|b| !self.missing.contains_key(&b.name));
        if here || (bundled && !file.extents.is_empty() && file.extents.iter().all(packed)) {
            self.plan.cached.add(file.size);
        }
        // A clone has links in the place of tables.
        self.plan.copy.written = self.plan.copy.written.saturating_add(file.size);
        if !table || (bundled && !here) {
            self.plan.open.written = self.plan.open.written.saturating_add(file.size);
        }
        if here || bundled {
            return Ok(());
        }
        for ask in asks(manifest, file)? {
            if let Some(bytes) = ask.bytes() {
                self.plan.copy.add(1, bytes);
                if !table {
                    self.plan.open.add(1, bytes);
                }
            }
        }
        for extent in &file.extents {
            if let Some(blob) = lies_in(extent.blob).filter(|b| !b.bundle) {
                self.missing.insert(blob.name, blob.length);
                if table && !in_parts(file, blob) {
                    self.plan.open.add(requests_to_fetch(extent.length), extent.length);
                }
            }
        }
        if let Some(blob) = file.extents.first().and_then(|e| lies_in(e.blob))
            && table
            && in_parts(file, blob)
            && file.tail.is_none()
        {
            // Small ones are fetched whole; of others the end is read, and mostly more.
            let small = file.size <= limits::LAZY_WHOLE;
            self.plan.without_tail = self.plan.without_tail.saturating_add(u64::from(!small));
            self.plan.open.add(1, if small { file.size } else { limits::GROUP });
        }
        Ok(())
    }
}

/// Whether a mount reads a table in parts; else it is fetched whole when it is opened.
fn in_parts(file: &FileEntry, blob: &BlobEntry) -> bool {
    let own = file.extents.len() == 1 && blob.length == file.size && !blob.bundle;
    own && (file.tree.is_some() || file.size <= limits::GROUP)
}

fn is_table(file: &FileEntry) -> bool {
    let kind = file.path.db_file().map(rocks::file_kind);
    kind.is_some_and(|kind| matches!(kind, FileKind::Sst(_) | FileKind::BlobFile(_)))
}

impl Way {
    fn add(&mut self, requests: u64, bytes: u64) {
        self.requests = self.requests.saturating_add(requests);
        self.fetched = self.fetched.saturating_add(bytes);
    }
}

/// The RocksDB that wrote the database. Whatever is wrong with the file: then it is not known, and that is all.
fn rocksdb(store: &Store, cache: Option<&Cache>, manifest: &TaskManifest) -> Option<String> {
    let number = |f: &FileEntry| match f.path.rocks_file().map(rocks::file_kind) {
        Some(FileKind::Options(number)) if f.size <= limits::ROCKS_OPTIONS => Some(number),
        _ => None,
    };
    let file = manifest.files.iter().filter(|f| number(f).is_some()).max_by_key(|f| number(f))?;
    let mut bytes = Vec::new();
    match cache.and_then(|cache| cache.open_complete(&file.digest, file.size).ok().flatten()) {
        Some(local) => {
            std::io::Read::read_to_end(&mut std::io::Read::take(local, file.size), &mut bytes).ok()?;
        }
        None => {
            for extent in &file.extents {
                let blob = manifest.blobs.get(extent.blob as usize)?;
                bytes.extend_from_slice(&store.get_range(&Key::blob(&blob.name), extent.offset..extent.end()?).ok()?);
            }
        }
    }
    (Digest::of(&bytes) == file.digest).then(|| rocks::rocksdb_version(&bytes).map(str::to_owned)).flatten()
}
