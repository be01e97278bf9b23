//! Copy: a checkpoint or a subtask as ordinary files, every byte verified on its way.
//!
//! Everything is written into a directory beside the target and renamed at the end, so that a copy that was cut off is never taken for a whole one.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::select::task_manifest;
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::{FileEntry, SubtaskEntry, TaskManifest};
use crate::lifecycle::{Checkpoint, driver};
use crate::local::{self, dir::Dir};
use crate::types::Progress;
use crate::types::{Hasher, Key, Uid};

/// What a copy came to.
#[derive(Debug, Clone)]
pub struct CopyReport {
    /// Files written.
    pub files: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Seconds.
    pub seconds: f64,
    /// RocksDB directories that can be opened now.
    pub databases: Vec<PathBuf>,
}

struct Job {
    manifest: Arc<TaskManifest>,
    file: FileEntry,
    below: PathBuf,
}

/// Copies subtasks of a checkpoint to a directory that does not exist or is empty. A single subtask that is nothing but a RocksDB directory
/// becomes that directory; otherwise the layout is the mount's.
///
/// # Errors
/// When the target is not free, bytes cannot be had or are not what they should be, or the disk is full. The target is then as it was.
pub fn copy(
    session: &Session,
    checkpoint: &Checkpoint,
    subtasks: &[&SubtaskEntry],
    target: &Path,
    progress: &dyn Progress,
) -> Result<CopyReport> {
    let begun = Instant::now();
    let (parent, name) = free_target(target)?;
    let manifests =
        driver::parallel(subtasks.to_vec(), |s| Ok::<_, Error>((s, task_manifest(session, checkpoint, s)?)))?;
    let plain = match manifests.as_slice() {
        [(_, one)] => one.files.iter().all(|f| f.path.db_file().is_some()),
        _ => false,
    };
    let mut jobs = Vec::new();
    let mut databases = Vec::new();
    for (entry, manifest) in manifests {
        let home =
            if plain { PathBuf::new() } else { PathBuf::from(entry.operator.as_str()).join(entry.subtask.to_string()) };
        if manifest.files.iter().any(|f| f.path.db_file() == Some("CURRENT")) {
            databases.push(target.join(if plain { home.clone() } else { home.join("db") }));
        }
        for file in &manifest.files {
            let below = match file.path.db_file() {
                Some(name) if plain => PathBuf::from(name),
                _ => home.join(file.path.as_str()),
            };
            jobs.push(Job { manifest: Arc::clone(&manifest), file: file.clone(), below });
        }
    }
    let bytes = jobs.iter().map(|j| j.file.size).sum();
    let files = jobs.len() as u64;
    progress.plan(files, bytes);
    progress.phase("copy");
    let random = Uid::random().map_err(|e| Error::with_source(Kind::Other, "the kernel gives no randomness", e))?;
    let staging_name = format!(".{name}.restore-{random}");
    let staging = parent.create_sub(&staging_name, 0o700)?;
    let result = fill(session, &staging, jobs, progress).and_then(|()| {
        staging.sync()?;
        parent.rename(&staging_name, &parent, &name)?;
        Ok(parent.sync()?)
    });
    if let Err(e) = result {
        // Nothing but what this call wrote is in there.
        if let Err(second) = std::fs::remove_dir_all(staging.path()) {
            log::warn!("{} is left behind: {second}", staging.path().display());
        }
        return Err(e);
    }
    Ok(CopyReport { files, bytes, seconds: begun.elapsed().as_secs_f64(), databases })
}

/// The directory that the target lies in, and its name there.
fn free_target(target: &Path) -> Result<(Dir, String)> {
    let invalid = |why: &str| Error::new(Kind::Invalid, format!("{}: {why}", target.display()));
    let name =
        target.file_name().and_then(|n| n.to_str()).ok_or_else(|| invalid("name a new directory for the copy"))?;
    if let Ok(meta) = std::fs::symlink_metadata(target) {
        if !meta.is_dir() {
            return Err(invalid("it exists and is not a directory: name a new one"));
        }
        let list = Dir::open(target)?.list()?;
        if !list.is_empty() {
            return Err(invalid("it is not empty, and nothing is ever written over: name a new directory"));
        }
    }
    let parent = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.exists() {
        return Err(Error::new(
            Kind::NotFound,
            format!("{}: there is no such directory to copy into: create it first", parent.display()),
        ));
    }
    Ok((Dir::open(parent)?, name.to_owned()))
}

fn fill(session: &Session, staging: &Dir, jobs: Vec<Job>, progress: &dyn Progress) -> Result<()> {
    let mut dirs: Vec<PathBuf> = jobs.iter().filter_map(|j| j.below.parent()).map(Path::to_path_buf).collect();
    dirs.sort();
    dirs.dedup();
    for dir in &dirs {
        let mut at = staging.try_clone()?;
        for part in dir {
            at = at.create_sub(part, 0o755)?;
        }
    }
    // Bundles once, before many threads ask for their sections.
    let mut manifests: Vec<&Arc<TaskManifest>> = jobs.iter().map(|j| &j.manifest).collect();
    manifests.dedup_by(|a, b| Arc::ptr_eq(a, b));
    for manifest in manifests {
        match session.cache.fetch_bundles(&session.store, manifest) {
            // They only save requests: what the cache has no room for is read from the store.
            Err(e) if e.is_no_space() => log::warn!("the cache is full, every file is read from the store: {e}"),
            other => other?,
        }
    }
    driver::parallel(jobs, |job| {
        let (dir, name) = (job.below.parent().unwrap_or(Path::new("")), job.below.file_name().unwrap_or_default());
        let home = if dir.as_os_str().is_empty() { staging.try_clone()? } else { staging.sub_path(dir)? };
        let out = home.create_file(name, 0o644)?;
        write_verified(session, &job.manifest, &job.file, &out, &home.path().join(name))?;
        progress.advance(job.file.size);
        Ok::<_, Error>(())
    })?;
    for dir in &dirs {
        if !dir.as_os_str().is_empty() {
            staging.sub_path(dir)?.sync()?;
        }
    }
    Ok(())
}

fn disk(path: &Path, e: std::io::Error) -> Error {
    let full = matches!(e.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
    let kind = if full { Kind::Resources } else { Kind::Other };
    Error::with_source(kind, format!("cannot write {}: {e}", path.display()), e)
}

/// Writes a file from the cache's copy or straight from the store, and compares its digest.
fn write_verified(session: &Session, manifest: &TaskManifest, file: &FileEntry, out: &File, path: &Path) -> Result<()> {
    if let Some(local) = session.cache.open_complete(&file.digest, file.size)? {
        let cloned = local::link::reflink(&local, out).map_err(|e| disk(path, e))?;
        let digest = if cloned {
            local::identity::hash(out).map_err(|e| disk(path, e))?.0
        } else {
            copy_hashed(&local, out, path)?
        };
        if digest == file.digest {
            return out.sync_data().map_err(|e| disk(path, e));
        }
        // The cache's copy is bad behind its record: the store has another.
        session.cache.discard(&file.digest)?;
        out.set_len(0).map_err(|e| disk(path, e))?;
    }
    let mut hasher = Hasher::new();
    let mut at = 0u64;
    for extent in &file.extents {
        let blob = manifest.blobs.get(extent.blob as usize);
        let blob =
            blob.ok_or_else(|| Error::new(Kind::Damage, format!("{}: there is no blob {}", file.path, extent.blob)))?;
        let whole = !blob.bundle && extent.offset == 0 && extent.length == blob.length;
        if whole {
            let mut failed = None;
            let read = session.store.read_to(&Key::blob(&blob.name), blob.length, &mut |bytes| {
                hasher.update(bytes);
                let written = out.write_all_at(bytes, at);
                at += bytes.len() as u64;
                written.inspect_err(|e| failed = Some(std::io::Error::from(e.kind())))
            });
            if let Some(e) = failed {
                return Err(disk(path, e));
            }
            read?;
        } else {
            let bytes = match session.cache.read_extent(&session.store, manifest, extent) {
                // No room for the whole bundle: the section alone, which the file's digest vouches for.
                Err(e) if e.is_no_space() => {
                    let range = extent.offset..extent.offset.saturating_add(extent.length);
                    session.store.get_range(&Key::blob(&blob.name), range)?.to_vec()
                }
                other => other?,
            };
            hasher.update(&bytes);
            out.write_all_at(&bytes, at).map_err(|e| disk(path, e))?;
            at += bytes.len() as u64;
        }
    }
    if hasher.finish() != file.digest || at != file.size {
        let keys: Vec<String> = file
            .extents
            .iter()
            .filter_map(|e| manifest.blobs.get(e.blob as usize))
            .map(|b| Key::blob(&b.name).to_string())
            .collect();
        let message = format!(
            "{} is damaged in the store (in {}): `ckptfs verify --read` finds what else is; restore an older checkpoint",
            file.path,
            keys.join(", ")
        );
        return Err(Error::new(Kind::Damage, message));
    }
    out.sync_data().map_err(|e| disk(path, e))
}

fn copy_hashed(from: &File, to: &File, path: &Path) -> Result<crate::types::Digest> {
    let (mut from, mut to) = (from, to);
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(n) => {
                let bytes = buffer.get(..n).unwrap_or_default();
                hasher.update(bytes);
                to.write_all(bytes).map_err(|e| disk(path, e))?;
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => {
                return Err(Error::with_source(
                    Kind::Other,
                    format!("cannot read the cache's copy of {}: {e}", path.display()),
                    e,
                ));
            }
        }
    }
}
