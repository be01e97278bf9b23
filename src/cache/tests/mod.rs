//! What the cache must hold on to, on real file systems and a store in memory that can be damaged.

mod fetch;
mod lazy;
mod link;
mod open;
mod room;
#[cfg(feature = "schedules")]
mod schedules;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::format::bundle::BundleBuilder;
use crate::format::{BlobEntry, FileEntry, FilePath, Place, Record, Role};
use crate::store::memory::Memory;
use crate::store::{Store, StoreOptions};
use crate::types::noise::noise as bytes;
use crate::types::{BlobName, Extent, Key};

fn cache_in(dir: &Path) -> Cache {
    Cache::open(&dir.join("cache"), CacheOptions { create: true }).unwrap()
}

fn temp() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn entry_path(cache: &Cache, digest: &Digest) -> PathBuf {
    cache.path().join("files").join(&digest.to_hex()[..2]).join(digest.to_hex())
}

fn read_all(mut file: &File) -> Vec<u8> {
    let mut all = Vec::new();
    file.read_to_end(&mut all).unwrap();
    all
}

/// Every regular file of the cache's `files` and `partial`.
fn files_in(cache: &Cache) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for top in ["files", "partial"] {
        let mut todo = vec![cache.path().join(top)];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if fs::symlink_metadata(&path).unwrap().is_dir() { todo.push(path) } else { all.push(path) }
            }
        }
    }
    all
}

fn root_of(e: &CacheError) -> &CacheError {
    match e {
        CacheError::Shared(inner) => root_of(inner),
        other => other,
    }
}

/// A mounted file system, unmounted when dropped.
struct Mounted(TempDir);

impl Mounted {
    fn new(kind: &str, options: &str) -> Self {
        let dir = temp();
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", options, "none"]).arg(dir.path());
        assert!(mount.status().unwrap().success(), "these tests need root to mount a small {kind}");
        Self(dir)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// A checkpoint of one subtask in a store, made file by file.
struct Snapshot {
    memory: Arc<Memory>,
    store: Store,
    uid: Uid,
    manifest: TaskManifest,
}

impl Snapshot {
    fn new() -> Self {
        let memory = Arc::new(Memory::new());
        let options = StoreOptions { attempts: 1, ..StoreOptions::default() };
        let store = Store::from_backend(Arc::clone(&memory) as _, "memory://", options);
        let uid = Uid::random().unwrap();
        let mut place = Place::new(Role::Task, &"app".parse().unwrap(), 42, uid);
        place.subtask = Some(("db".parse().unwrap(), 0));
        let manifest = TaskManifest {
            place,
            display_name: "db".to_owned(),
            blobs: Vec::new(),
            files: Vec::new(),
            logical_bytes: 0,
            new_bytes: 0,
            backend: None,
            key_groups: None,
            states: Vec::new(),
            properties: BTreeMap::new(),
            other_state: BTreeMap::new(),
            origins: BTreeMap::new(),
        };
        Self { memory, store, uid, manifest }
    }

    fn blob(&mut self, data: &[u8], bundle: bool) -> u32 {
        let name = BlobName { digest: Digest::of(data), uid: self.uid };
        self.memory.plant(Key::blob(&name).as_str(), data.to_vec());
        self.manifest.blobs.push(BlobEntry { name, length: data.len() as u64, bundle });
        u32::try_from(self.manifest.blobs.len() - 1).unwrap()
    }

    fn key(&self, blob: u32) -> Key {
        Key::blob(&self.manifest.blobs[blob as usize].name)
    }

    /// A file whose bytes are these extents.
    fn file(&mut self, name: &str, data: &[u8], extents: Vec<Extent>) -> FileEntry {
        let entry = FileEntry {
            path: FilePath::db(name).unwrap(),
            size: data.len() as u64,
            digest: Digest::of(data),
            extents,
            tree: None,
            tail: None,
            sst: None,
        };
        self.manifest.logical_bytes += entry.size;
        self.manifest.files.push(entry.clone());
        entry
    }

    /// A file that is a blob of its own.
    fn whole(&mut self, name: &str, data: &[u8]) -> FileEntry {
        let blob = self.blob(data, false);
        self.file(name, data, vec![Extent { blob, offset: 0, length: data.len() as u64 }])
    }

    /// Files in a bundle of their own.
    fn bundled(&mut self, files: &[(&str, &[u8])]) -> Vec<FileEntry> {
        let mut builder = BundleBuilder::default();
        let places: Vec<(u64, u64)> = files.iter().map(|(_, data)| builder.add(data)).collect();
        let blob = self.blob(&builder.finish(), true);
        let with_place = files.iter().zip(places);
        with_place
            .map(|((name, data), (offset, length))| {
                let extents = if length == 0 { vec![] } else { vec![Extent { blob, offset, length }] };
                self.file(name, data, extents)
            })
            .collect()
    }

    fn gets(&self) -> u64 {
        self.store.counters().gets.get()
    }

    fn object(&self, blob: u32) -> Vec<u8> {
        self.store.get(&self.key(blob), u64::MAX).unwrap().unwrap().to_vec()
    }

    /// Changes what the store has of a blob.
    fn spoil(&self, blob: u32, how: impl FnOnce(&mut Vec<u8>)) {
        let mut data = self.object(blob);
        how(&mut data);
        self.memory.plant(self.key(blob).as_str(), data);
    }
}
