//! A store, a cache and a mount in a temporary directory, and checkpoints that are written by hand.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use ckptfs::cache::tree::hash_and_tree;
use ckptfs::cache::{Cache, CacheOptions};
use ckptfs::format::bundle::BundleBuilder;
use ckptfs::format::{
    BlobEntry, CheckpointKind, CheckpointManifest, FileEntry, FilePath, Labels, Outcome, Place, Role, SubtaskEntry,
    TaskManifest, Verdict, encode,
};
use ckptfs::fuse::{MountRequest, Mounted};
use ckptfs::lifecycle::Catalog;
use ckptfs::store::{BlobSource, Store, StoreOptions};
use ckptfs::types::{BlobName, CheckpointNumber, Digest, Epoch, Extent, Key, Name, Uid};
use ckptfs::view::View;

/// From this size on an SST is a blob of its own.
const BLOB_FROM: usize = 128 << 10;

/// A store, a cache, a place to mount. Unmounts what a failed test left.
pub struct Bed {
    owner: bool,
    pub store: Store,
    pub cache: Cache,
    pub point: PathBuf,
}

/// Bytes that do not repeat, from a seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(length);
    out
}

pub fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// Whether the kernel is expected to read local files itself.
pub fn passthrough() -> bool {
    is_root() && std::env::var_os("CKPTFS_TEST_PASSTHROUGH").is_none_or(|v| v != "0")
}

pub fn is_root() -> bool {
    ckptfs::local::process::euid() == 0
}

impl Bed {
    pub fn new() -> Self {
        Self::at(&tempfile::Builder::new().prefix("ckptfs-").tempdir().unwrap().keep(), true)
    }

    /// Over a directory that another bed made; only the one that owns it removes it.
    pub fn at(path: &Path, owner: bool) -> Self {
        let point = path.join("mnt");
        for sub in ["store", "mnt"] {
            // The mount point may be a dead mount.
            let _ = std::fs::create_dir(path.join(sub));
        }
        let url = format!("file://{}", path.join("store").display());
        let store = Store::open(&url, StoreOptions::default()).unwrap();
        let cache = Cache::open(&path.join("cache"), CacheOptions { create: true }).unwrap();
        Self { owner, store, cache, point }
    }

    pub fn root(&self) -> &Path {
        self.point.parent().unwrap()
    }

    /// Another, empty cache for the same store: another host.
    pub fn cold(&self) -> Cache {
        let path = self.root().join(format!("cache-{}", Uid::random().unwrap()));
        Cache::open(&path, CacheOptions { create: true }).unwrap()
    }

    pub fn view(&self, cache: &Cache) -> View {
        View::of_store(Catalog::new(self.store.clone()), cache.clone())
    }

    pub fn request(&self) -> MountRequest {
        let mut request = MountRequest::new(&self.point);
        request.passthrough = passthrough();
        request
    }

    pub fn mount(&self) -> Mounted {
        self.mount_with(&self.cache)
    }

    pub fn mount_with(&self, cache: &Cache) -> Mounted {
        ckptfs::fuse::mount(&self.request(), self.view(cache)).unwrap()
    }

    /// Stores a checkpoint with subtask `db/0`. SSTs that are large are blobs of their own, all else goes into a bundle;
    /// what `keep` has is reused, as a snapshot would.
    pub fn publish(&self, job: &str, n: u64, files: &[(&str, Vec<u8>)], keep: &mut Kept) {
        let (job, number, uid) = (name(job), CheckpointNumber::new(n).unwrap(), Uid::random().unwrap());
        let mut sorted: Vec<_> = files.iter().collect();
        sorted.sort_unstable_by_key(|(path, _)| *path);
        let mut blobs: Vec<BlobEntry> = Vec::new();
        let mut entries = Vec::new();
        let mut bundle = BundleBuilder::default();
        let mut bundled: Vec<usize> = Vec::new();
        let mut new_bytes = 0;
        for (path, bytes) in sorted {
            let (digest, tree) = hash_and_tree(bytes);
            let size = bytes.len() as u64;
            let mut extents = Vec::new();
            let mut tree_at = None;
            if bytes.len() >= BLOB_FROM {
                let blob = *keep.0.entry(digest).or_insert_with(|| {
                    let blob = BlobName { digest, uid };
                    self.store.upload_blob(&blob, BlobSource::Bytes(Bytes::from(bytes.clone()))).unwrap();
                    new_bytes += size;
                    blob
                });
                let at = blobs.iter().position(|b| b.name == blob).unwrap_or_else(|| {
                    blobs.push(BlobEntry { name: blob, length: size, bundle: false });
                    blobs.len() - 1
                });
                extents.push(Extent { blob: at as u32, offset: 0, length: size });
                tree_at = Some(bundle.add(&tree));
            } else if !bytes.is_empty() {
                let (offset, length) = bundle.add(bytes);
                bundled.push(entries.len());
                extents.push(Extent { blob: 0, offset, length });
            }
            let path = FilePath::parse(path).unwrap();
            let tree =
                tree_at.map(|(offset, length)| Extent { blob: u32::MAX, offset, length }).filter(|e| e.length > 0);
            entries.push(FileEntry { path, size, digest, extents, tree, tail: None, sst: None });
        }
        let bytes = bundle.finish();
        let bundle = BlobName { digest: Digest::of(&bytes), uid };
        let length = bytes.len() as u64;
        new_bytes += length;
        self.store.upload_blob(&bundle, BlobSource::Bytes(Bytes::from(bytes))).unwrap();
        blobs.push(BlobEntry { name: bundle, length, bundle: true });
        let at = blobs.len() as u32 - 1;
        for entry in bundled {
            entries[entry].extents[0].blob = at;
        }
        for tree in entries.iter_mut().filter_map(|e| e.tree.as_mut()) {
            tree.blob = at;
        }
        let mut place = Place::new(Role::Task, &job, n, uid);
        place.subtask = Some((name("db"), 0));
        let logical_bytes = entries.iter().map(|e| e.size).sum();
        let count = entries.len() as u64;
        let task = TaskManifest {
            place,
            display_name: "db".to_owned(),
            blobs,
            files: entries,
            logical_bytes,
            new_bytes,
            backend: None,
            key_groups: None,
            states: Vec::new(),
            properties: BTreeMap::new(),
            other_state: BTreeMap::new(),
            origins: BTreeMap::new(),
        };
        let object = encode(&task).unwrap();
        let manifest = Digest::of(&object);
        let manifest_length = object.len() as u64;
        assert!(self.store.create(&Key::task(&job, number, &name("db"), 0), Bytes::from(object)).unwrap().is_ours());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
        let outcome = Outcome {
            place: Place::new(Role::Outcome, &job, n, uid),
            verdict: Verdict::Completed(CheckpointManifest {
                kind: CheckpointKind::Checkpoint,
                epoch: Epoch(0),
                writer: uid,
                bases: Vec::new(),
                subtasks: vec![SubtaskEntry {
                    operator: name("db"),
                    display_name: "db".to_owned(),
                    subtask: 0,
                    manifest,
                    manifest_length,
                    logical_bytes,
                    new_bytes,
                    files: count,
                }],
                logical_bytes,
                new_bytes,
                files: count,
                opened_ms: now,
                completed_ms: now,
                labels: Labels::default(),
                phases: Default::default(),
            }),
        };
        let object = Bytes::from(encode(&outcome).unwrap());
        assert!(self.store.create(&Key::outcome(&job, number), object).unwrap().is_ours());
    }

    pub fn db(&self, job: &str, checkpoint: &str) -> PathBuf {
        self.point.join(format!("{job}/{checkpoint}/db/0/db"))
    }

    /// Puts the bytes into the cache, as a snapshot on this host would.
    pub fn keep_local(&self, bytes: &[u8]) {
        self.cache.put_bytes(&Digest::of(bytes), bytes).unwrap();
    }

    /// The one file of the store that holds these bytes.
    pub fn stored(&self, bytes: &[u8]) -> PathBuf {
        let hex = Digest::of(bytes).to_hex();
        let dir = self.root().join("store/blobs").join(&hex[..2]);
        let mut found: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| p.file_name().unwrap().to_str().unwrap().starts_with(&hex))
            .collect();
        assert_eq!(found.len(), 1, "one upload of these bytes");
        found.pop().unwrap()
    }
}

/// Uploads that later checkpoints reuse.
#[derive(Default)]
pub struct Kept(BTreeMap<Digest, BlobName>);

impl Drop for Bed {
    fn drop(&mut self) {
        if self.owner {
            let _ = ckptfs::local::mount::heal(&self.point);
            if ckptfs::local::mounts::is_mount_point(&self.point).unwrap_or(false) {
                let _ = ckptfs::local::mount::unmount(&self.point, true);
            }
            let _ = std::fs::remove_dir_all(self.root());
        }
    }
}

/// Names in a directory, sorted.
pub fn ls(path: &Path) -> Vec<String> {
    let mut out: Vec<String> =
        std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    out.sort();
    out
}

pub fn ino(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).unwrap().ino()
}

/// What a command prints, which must succeed.
pub fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until something is so; says whether it ever was.
pub fn soon(mut is_so: impl FnMut() -> bool) -> bool {
    for _ in 0..500 {
        if is_so() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    false
}
