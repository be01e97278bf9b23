//! The view over a source in memory.

#[cfg(feature = "schedules")]
mod schedules;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::format::{
    BlobEntry, CheckpointKind, CheckpointManifest, FileEntry, FilePath, Labels, Place, Role, SubtaskEntry, TaskManifest,
};
use crate::types::{BlobName, CheckpointNumber, Digest, Epoch, Extent, Name, Uid};

const UID: Uid = Uid::from_bytes([7; 16]);

#[derive(Default)]
struct Inner {
    jobs: Mutex<BTreeMap<Name, Listing>>,
    tasks: Mutex<HashMap<Digest, Arc<TaskManifest>>>,
    local: Mutex<HashMap<Digest, Vec<u8>>>,
    remote: Mutex<HashMap<Digest, Vec<u8>>>,
    unreachable: AtomicBool,
    lists: AtomicU64,
    manifests: AtomicU64,
    fetches: AtomicU64,
}

#[derive(Clone, Default)]
struct Fake(Arc<Inner>);

fn file_of(bytes: &[u8]) -> File {
    // An unlinked file: there is no path to clean up.
    let path =
        std::env::temp_dir().join(format!("ckptfs-view-{}-{:?}", std::process::id(), std::thread::current().id()));
    let mut file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

impl Fake {
    fn asked(&self) -> Result<(), ViewError> {
        if self.0.unreachable.load(Ordering::SeqCst) {
            return Err(ViewError::Unavailable("the store is away".to_owned()));
        }
        Ok(())
    }
}

impl Source for Fake {
    fn jobs(&self) -> Result<Vec<Name>, ViewError> {
        self.0.lists.fetch_add(1, Ordering::SeqCst);
        self.asked()?;
        Ok(self.0.jobs.lock().unwrap().keys().cloned().collect())
    }

    fn job(&self, job: &Name) -> Result<Listing, ViewError> {
        self.0.lists.fetch_add(1, Ordering::SeqCst);
        self.asked()?;
        Ok(self.0.jobs.lock().unwrap().get(job).cloned().unwrap_or_default())
    }

    fn task(&self, _: &Name, _: CheckpointNumber, entry: &SubtaskEntry) -> Result<Arc<TaskManifest>, ViewError> {
        self.0.manifests.fetch_add(1, Ordering::SeqCst);
        self.asked()?;
        Ok(self.0.tasks.lock().unwrap()[&entry.manifest].clone())
    }

    fn open_local(&self, digest: &Digest, _: u64) -> Result<Option<File>, ViewError> {
        Ok(self.0.local.lock().unwrap().get(digest).map(|bytes| file_of(bytes)))
    }

    fn fetch(&self, _: &TaskManifest, file: &FileEntry) -> Result<File, ViewError> {
        if let Some(file) = self.open_local(&file.digest, file.size)? {
            return Ok(file);
        }
        self.asked()?;
        self.0.fetches.fetch_add(1, Ordering::SeqCst);
        let bytes = self.0.remote.lock().unwrap().get(&file.digest).cloned();
        let bytes = bytes.ok_or_else(|| ViewError::Other(crate::error::Kind::NotFound, "no blob".to_owned()))?;
        if Digest::of(&bytes) != file.digest {
            return Err(ViewError::Damaged("other bytes".to_owned()));
        }
        self.0.local.lock().unwrap().insert(file.digest, bytes.clone());
        Ok(file_of(&bytes))
    }

    fn free(&self) -> Free {
        Free { available: 1 << 30 }
    }
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// Puts a checkpoint with one subtask `db/0` of these files into the source.
fn publish(fake: &Fake, job: &str, n: u64, files: &[(&str, &[u8])]) -> CheckpointNumber {
    let number = CheckpointNumber::new(n).unwrap();
    let mut place = Place::new(Role::Task, &name(job), n, UID);
    place.subtask = Some((name("db"), 0));
    let mut manifest = TaskManifest {
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
    let mut sorted = files.to_vec();
    sorted.sort_unstable();
    for (path, bytes) in sorted {
        let digest = Digest::of(bytes);
        let blob = u32::try_from(manifest.blobs.len()).unwrap();
        let length = bytes.len() as u64;
        // Equal files of one subtask get uploads of their own here: names of blobs are unique in a manifest.
        let uid = Uid::from_bytes([u8::try_from(blob).unwrap(); 16]);
        manifest.blobs.push(BlobEntry { name: BlobName { digest, uid }, length, bundle: false });
        let extents = if length == 0 { Vec::new() } else { vec![Extent { blob, offset: 0, length }] };
        let path = FilePath::parse(path).unwrap();
        manifest.files.push(FileEntry { path, size: length, digest, extents, tree: None, tail: None, sst: None });
        manifest.logical_bytes += length;
        fake.0.remote.lock().unwrap().insert(digest, bytes.to_vec());
    }
    manifest.new_bytes = manifest.logical_bytes;
    crate::format::encode(&manifest).unwrap();
    let digest = Digest::of(format!("{job}/{n}").as_bytes());
    let checkpoint = CheckpointManifest {
        kind: CheckpointKind::Checkpoint,
        epoch: Epoch(0),
        writer: UID,
        bases: Vec::new(),
        subtasks: vec![SubtaskEntry {
            operator: name("db"),
            display_name: "db".to_owned(),
            subtask: 0,
            manifest: digest,
            manifest_length: 1,
            logical_bytes: manifest.logical_bytes,
            new_bytes: manifest.new_bytes,
            files: files.len() as u64,
        }],
        logical_bytes: manifest.logical_bytes,
        new_bytes: manifest.new_bytes,
        files: files.len() as u64,
        opened_ms: 1_000_000 + n,
        completed_ms: 1_000_000 + n * 1000,
        labels: Labels::default(),
        phases: Default::default(),
    };
    fake.0.tasks.lock().unwrap().insert(digest, Arc::new(manifest));
    let mut jobs = fake.0.jobs.lock().unwrap();
    let listing = jobs.entry(name(job)).or_default();
    listing
        .checkpoints
        .insert(number, Listed { manifest: Arc::new(checkpoint), hidden: false, expired: false, pinned: false });
    listing.latest = listing.latest.max(Some(number));
    number
}

fn walk(view: &View, path: &str) -> Result<Found, ViewError> {
    let mut found = view.attr(ROOT)?;
    for part in path.split('/').filter(|p| !p.is_empty()) {
        found = view.lookup(found.attr.ino, part)?;
    }
    Ok(found)
}

fn list(view: &View, path: &str) -> Vec<String> {
    let names = view.names(walk(view, path).unwrap().attr.ino).unwrap();
    (2..).map_while(|at| view.item(&names, at).map(|i| i.name.to_owned())).collect()
}

fn read(opened: Opened) -> Vec<u8> {
    match opened.content {
        Content::Local(mut f) | Content::Served(mut f) => {
            let mut out = Vec::new();
            f.read_to_end(&mut out).unwrap();
            out
        }
        Content::Text(bytes) => bytes.to_vec(),
        Content::Parts(_) => panic!("this source has no parts"),
    }
}

#[test]
fn the_tree_is_the_contract_s() {
    let fake = Fake::default();
    publish(
        &fake,
        "app",
        7,
        &[
            ("db/000001.sst", b"one"),
            ("db/CURRENT", b"MANIFEST-000001\n"),
            ("operator/a/0", b"a0"),
            ("operator/a-b/0", b"ab0"),
            ("operator/a.b/10", b"ab10"),
            ("raw-keyed/3", b"k3"),
            ("raw-operator/0", b""),
        ],
    );
    let view = View::new(fake.clone());
    assert_eq!(list(&view, ""), ["app"]);
    assert_eq!(list(&view, "app"), ["latest", "chk-7"]);
    assert_eq!(list(&view, "app/chk-7"), ["db", "manifest.json"]);
    assert_eq!(list(&view, "app/chk-7/db"), ["0"]);
    assert_eq!(fake.0.manifests.load(Ordering::SeqCst), 0, "listing fetches no task manifest");
    assert_eq!(list(&view, "app/chk-7/db/0"), ["db", "manifest.json", "operator", "raw-keyed", "raw-operator"]);
    assert_eq!(list(&view, "app/chk-7/db/0/db"), ["000001.sst", "CURRENT"]);
    assert_eq!(list(&view, "app/chk-7/db/0/operator"), ["a", "a-b", "a.b"]);
    assert_eq!(list(&view, "app/chk-7/db/0/operator/a.b"), ["10"]);
    assert_eq!(list(&view, "app/chk-7/db/0/raw-keyed"), ["3"]);
    assert_eq!(fake.0.manifests.load(Ordering::SeqCst), 1);
    assert_eq!(fake.0.fetches.load(Ordering::SeqCst), 0, "and no listing fetches a file");
    for (path, bytes) in
        [("operator/a-b/0", &b"ab0"[..]), ("raw-operator/0", b""), ("db/CURRENT", b"MANIFEST-000001\n")]
    {
        let found = walk(&view, &format!("app/chk-7/db/0/{path}")).unwrap();
        assert_eq!((found.attr.size, found.lasting), (bytes.len() as u64, Lasting::All));
        assert_eq!(read(view.open(found.attr.ino).unwrap()), bytes);
    }
    for bad in ["app/chk-8", "app/chk-07", "app/x", "nojob", "app/chk-7/db/1", "app/chk-7/db/0/db/LOCK", "a b"] {
        assert_eq!(walk(&view, bad).unwrap_err(), ViewError::NotFound, "{bad}");
    }
    assert_eq!(walk(&view, "app/chk-7/manifest.json/x").unwrap_err(), ViewError::NotADirectory);
    let dir = walk(&view, "app/chk-7").unwrap().attr.ino;
    assert_eq!(view.open(dir).err(), Some(ViewError::IsADirectory));
    assert_eq!(view.attr(12345).unwrap_err(), ViewError::Stale);
}

#[test]
fn manifests_are_text_of_the_size_that_stat_tells() {
    let fake = Fake::default();
    publish(&fake, "app", 1, &[("db/000001.sst", b"one")]);
    let view = View::new(fake);
    for path in ["app/chk-1/manifest.json", "app/chk-1/db/0/manifest.json"] {
        let found = walk(&view, path).unwrap();
        let text = read(view.try_open(found.attr.ino).unwrap().unwrap());
        assert_eq!(text.len() as u64, found.attr.size);
        assert_eq!(text.last(), Some(&b'\n'));
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(json["logical_bytes"], 3);
    }
}

#[test]
fn equal_content_is_one_inode_and_everything_else_has_its_own() {
    let fake = Fake::default();
    for n in 1..=3 {
        publish(&fake, "app", n, &[("db/000001.sst", b"one"), ("db/OPTIONS-1", b"same"), ("db/000009.log", b"one")]);
    }
    publish(&fake, "other", 1, &[("db/000777.sst", b"one"), ("db/b.blob", b"big")]);
    let view = View::new(fake);
    let ino = |path: &str| walk(&view, path).unwrap().attr.ino;
    let sst = ino("app/chk-1/db/0/db/000001.sst");
    assert_eq!(sst, ino("app/chk-2/db/0/db/000001.sst"));
    assert_eq!(sst, ino("app/chk-3/db/0/db/000001.sst"));
    assert_eq!(sst, ino("other/chk-1/db/0/db/000777.sst"));
    assert_ne!(ino("app/chk-1/db/0/db/OPTIONS-1"), ino("app/chk-2/db/0/db/OPTIONS-1"));
    assert_ne!(sst, ino("app/chk-1/db/0/db/000009.log"));
    assert_ne!(ino("app/chk-1"), ino("app/chk-2"));
    let attr = view.attr(sst).unwrap().attr;
    assert_eq!((attr.nlink, attr.mtime_ms), (4, CONTENT_MTIME_MS));
    assert_eq!(view.xattr(sst, "user.ckptfs.refs").unwrap(), b"4");
    let blob = walk(&view, "other/chk-1/db/0/db/b.blob").unwrap().attr;
    assert_eq!(blob.nlink, 2, "one name, but never one link");
    assert_eq!(walk(&view, "app/chk-2/db/0/db/OPTIONS-1").unwrap().attr.mtime_ms, 1_002_000);
    assert_eq!(blob.ino >> 56, 0);
}

#[test]
fn a_file_has_a_lazy_number_until_it_is_local_and_its_names_are_taken_back() {
    let fake = Fake::default();
    publish(&fake, "app", 1, &[("db/000001.sst", b"one")]);
    publish(&fake, "app", 2, &[("db/000001.sst", b"one")]);
    let view = View::new(fake.clone());
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = told.clone();
    view.on_invalidation(move |i| sink.lock().unwrap().push(i));
    let path = "app/chk-1/db/0/db/000001.sst";
    let lazy = walk(&view, path).unwrap().attr.ino;
    walk(&view, "app/chk-2/db/0/db/000001.sst").unwrap();
    assert_eq!(view.xattr(lazy, "user.ckptfs.residency").unwrap(), b"lazy");
    assert!(view.try_open(lazy).is_none(), "it has to be fetched");
    let opened = view.open(lazy).unwrap();
    assert!(matches!(opened.content, Content::Served(_)), "the lazy number is served");
    assert_eq!(read(opened), b"one");
    let parents: Vec<u64> = (1..=2).map(|n| walk(&view, &format!("app/chk-{n}/db/0/db")).unwrap().attr.ino).collect();
    let want: Vec<_> = parents.iter().map(|&parent| Invalidation { parent, name: "000001.sst".to_owned() }).collect();
    assert_eq!(*told.lock().unwrap(), want);
    let local = walk(&view, path).unwrap().attr.ino;
    assert_ne!(local, lazy);
    assert_eq!(view.attr(lazy).unwrap().attr.ino, lazy, "the kernel may still ask by the old number");
    assert!(matches!(view.try_open(local).unwrap().unwrap().content, Content::Local(_)));
    assert!(matches!(view.try_open(lazy).unwrap().unwrap().content, Content::Served(_)));
    assert_eq!(view.xattr(local, "user.ckptfs.residency").unwrap(), b"local");
    // A lookup that was answered with the lazy number only now.
    view.answered(parents[0], "000001.sst", lazy);
    assert_eq!(told.lock().unwrap().len(), 3);
    view.answered(parents[0], "000001.sst", local);
    assert_eq!(told.lock().unwrap().len(), 3);
    // Evicted: the local number stays, and its open fetches again.
    fake.0.local.lock().unwrap().clear();
    assert_eq!(walk(&view, path).unwrap().attr.ino, local);
    assert!(view.try_open(local).is_none());
    let again = view.open(local).unwrap();
    assert!(matches!(again.content, Content::Local(_)));
    assert_eq!(fake.0.fetches.load(Ordering::SeqCst), 2);
}

#[test]
fn what_became_local_otherwise_is_seen_by_the_next_lookup() {
    let fake = Fake::default();
    publish(&fake, "app", 1, &[("db/000001.sst", b"one"), ("db/000002.sst", b"two")]);
    let view = View::new(fake.clone());
    let path = "app/chk-1/db/0/db/000001.sst";
    let lazy = walk(&view, path).unwrap().attr.ino;
    fake.0.local.lock().unwrap().insert(Digest::of(b"one"), b"one".to_vec());
    assert_ne!(walk(&view, path).unwrap().attr.ino, lazy);
    fake.0.local.lock().unwrap().insert(Digest::of(b"two"), b"two".to_vec());
    let names = view.names(walk(&view, "app/chk-1/db/0/db").unwrap().attr.ino).unwrap();
    let listed = view.item(&names, 3).unwrap();
    assert_eq!((listed.name, inode::is_lazy(listed.attr.ino)), ("000002.sst", false));
}

#[test]
fn damage_and_loss_are_errors_and_another_upload_is_tried() {
    let fake = Fake::default();
    publish(&fake, "app", 1, &[("db/000001.sst", b"one"), ("db/CURRENT", b"x")]);
    let view = View::new(fake.clone());
    let ino = walk(&view, "app/chk-1/db/0/db/000001.sst").unwrap().attr.ino;
    fake.0.remote.lock().unwrap().insert(Digest::of(b"one"), b"onf".to_vec());
    assert!(matches!(view.open(ino), Err(ViewError::Damaged(_))));
    fake.0.remote.lock().unwrap().clear();
    assert_eq!(view.open(ino).err().unwrap().kind(), crate::error::Kind::NotFound);
    assert!(matches!(view.open(ino), Err(ViewError::Other(..))), "a lost blob is no missing name");
    fake.0.unreachable.store(true, Ordering::SeqCst);
    assert!(matches!(view.open(ino), Err(ViewError::Unavailable(_))));
}

#[test]
fn a_new_checkpoint_is_there_at_once_and_known_names_cost_nothing() {
    let fake = Fake::default();
    publish(&fake, "app", 1, &[("db/CURRENT", b"x")]);
    let view = View::new(fake.clone());
    let first = walk(&view, "app/latest").unwrap();
    assert_eq!((view.readlink(first.attr.ino).unwrap().as_str(), first.lasting), ("chk-1", Lasting::Nothing));
    assert_eq!(first.attr.size, 5);
    publish(&fake, "app", 2, &[("db/CURRENT", b"x")]);
    assert_eq!(list(&view, "app"), ["latest", "chk-1", "chk-2"]);
    publish(&fake, "app", 3, &[("db/CURRENT", b"x")]);
    assert_eq!(walk(&view, "app/chk-3").unwrap().lasting, Lasting::Lives);
    let second = walk(&view, "app/latest").unwrap().attr.ino;
    assert_eq!(view.readlink(second).unwrap(), "chk-3");
    assert_ne!(first.attr.ino, second, "another target is another inode");
    assert_eq!(view.readlink(first.attr.ino).unwrap(), "chk-1");
    let lists = fake.0.lists.load(Ordering::SeqCst);
    let job = walk(&view, "app").unwrap().attr.ino;
    for n in 1..=3 {
        assert!(view.try_lookup(job, &format!("chk-{n}")).unwrap().is_ok());
    }
    assert!(view.try_lookup(job, "latest").is_none() && view.try_lookup(job, "chk-4").is_none());
    assert_eq!(view.try_lookup(job, "nonsense"), Some(Err(ViewError::NotFound)));
    assert!(view.try_names(job).is_none() && view.try_names(ROOT).is_none());
    assert_eq!(fake.0.lists.load(Ordering::SeqCst), lists);
    publish(&fake, "another", 1, &[("db/CURRENT", b"x")]);
    assert_eq!(list(&view, ""), ["another", "app"]);
}

#[test]
fn hidden_ones_are_found_by_name_and_expired_ones_are_not_unless_open() {
    let fake = Fake::default();
    let n = publish(&fake, "app", 1, &[("db/CURRENT", b"x"), ("db/000001.sst", b"one")]);
    publish(&fake, "app", 2, &[("db/CURRENT", b"x")]);
    let view = View::new(fake.clone());
    fake.0.jobs.lock().unwrap().get_mut(&name("app")).unwrap().checkpoints.get_mut(&n).unwrap().hidden = true;
    assert_eq!(list(&view, "app"), ["latest", "chk-2"]);
    let sst = walk(&view, "app/chk-1/db/0/db/000001.sst").unwrap().attr.ino;
    let held = view.open(sst).unwrap();
    fake.0.jobs.lock().unwrap().get_mut(&name("app")).unwrap().checkpoints.get_mut(&n).unwrap().expired = true;
    assert_eq!(list(&view, "app"), ["latest", "chk-2"]);
    assert!(walk(&view, "app/chk-1/db/0/db/CURRENT").is_ok(), "its SST is open, so its names go on");
    drop(held);
    assert_eq!(walk(&view, "app/chk-1").unwrap_err(), ViewError::NotFound);
    fake.0.jobs.lock().unwrap().get_mut(&name("app")).unwrap().checkpoints.remove(&n);
    assert_eq!(list(&view, "app"), ["latest", "chk-2"]);
    assert_eq!(walk(&view, "app/chk-1").unwrap_err(), ViewError::NotFound);
}

#[test]
fn a_dead_one_is_found_by_name_while_somebody_pins_it() {
    let fake = Fake::default();
    let n = publish(&fake, "app", 1, &[("db/CURRENT", b"x")]);
    let view = View::new(fake.clone());
    let set = |pinned| {
        let mut jobs = fake.0.jobs.lock().unwrap();
        let listing = jobs.get_mut(&name("app")).unwrap();
        // The dead are never the latest.
        listing.latest = None;
        let listed = listing.checkpoints.get_mut(&n).unwrap();
        (listed.expired, listed.pinned) = (true, pinned);
    };
    set(true);
    assert!(walk(&view, "app/chk-1/db/0/db/CURRENT").is_ok());
    assert!(list(&view, "app").is_empty());
    assert!(walk(&view, "app/chk-1/db/0/db/CURRENT").is_ok());
    set(false);
    assert_eq!(walk(&view, "app/chk-1").unwrap_err(), ViewError::NotFound);
}

#[test]
fn the_last_known_listing_is_shown_while_the_store_is_away() {
    let fake = Fake::default();
    publish(&fake, "app", 1, &[("db/CURRENT", b"x")]);
    let view = View::new(fake.clone());
    fake.0.unreachable.store(true, Ordering::SeqCst);
    assert!(matches!(view.names(ROOT), Err(ViewError::Unavailable(_))), "nothing is known yet");
    assert_eq!(view.xattr(ROOT, "user.ckptfs.listed"), Err(ViewError::NoData));
    fake.0.unreachable.store(false, Ordering::SeqCst);
    assert_eq!(list(&view, "app"), ["latest", "chk-1"]);
    let job = walk(&view, "app").unwrap().attr.ino;
    let listed = view.xattr(job, "user.ckptfs.listed").unwrap();
    fake.0.unreachable.store(true, Ordering::SeqCst);
    publish(&fake, "app", 2, &[("db/CURRENT", b"x")]);
    assert_eq!(list(&view, ""), ["app"]);
    assert_eq!(list(&view, "app"), ["latest", "chk-1"]);
    assert_eq!(view.xattr(job, "user.ckptfs.listed").unwrap(), listed);
    assert!(String::from_utf8(listed).unwrap().starts_with("20"));
    fake.0.unreachable.store(false, Ordering::SeqCst);
    assert_eq!(list(&view, "app"), ["latest", "chk-1", "chk-2"]);
}

#[test]
fn attributes_and_space() {
    let fake = Fake::default();
    publish(&fake, "app", 1, &[("db/000001.sst", b"one"), ("db/CURRENT", b"xy")]);
    publish(&fake, "app", 2, &[("db/000001.sst", b"one"), ("db/CURRENT", b"xy")]);
    let view = View::new(fake);
    assert_eq!(view.space(), Space { used: 0, free: 1 << 30, files: 1 });
    let sst = walk(&view, "app/chk-1/db/0/db/000001.sst").unwrap().attr.ino;
    let current = walk(&view, "app/chk-2/db/0/db/CURRENT").unwrap().attr.ino;
    assert_eq!(view.space().used, 10, "what the checkpoints say");
    assert_eq!(view.xattr(sst, "user.ckptfs.digest").unwrap(), Digest::of(b"one").to_hex().into_bytes());
    assert_eq!(view.xattr(current, "user.ckptfs.size").unwrap(), b"2");
    assert_eq!(view.xattr(current, "user.ckptfs.refs").unwrap(), b"1");
    for (attribute, want) in [
        ("user.ckptfs.other", ViewError::NoData),
        ("user.x", ViewError::NoData),
        ("security.capability", ViewError::NotSupported),
        ("system.posix_acl_access", ViewError::NotSupported),
        ("trusted.x", ViewError::NotSupported),
    ] {
        assert_eq!(view.xattr(sst, attribute).unwrap_err(), want, "{attribute}");
    }
    let dir = walk(&view, "app/chk-1").unwrap().attr;
    assert_eq!((dir.size, dir.nlink, dir.kind), (0, 1, Kind::Directory));
    assert_eq!(view.xattr(dir.ino, "user.ckptfs.digest").unwrap_err(), ViewError::NoData);
}

#[test]
fn a_manifest_that_lies_about_a_size_changes_no_other_file() {
    let fake = Fake::default();
    publish(&fake, "app", 1, &[("db/000001.sst", b"one")]);
    publish(&fake, "app", 2, &[("db/000001.sst", b"three")]);
    let lie = Digest::of(b"app/2");
    let mut tasks = fake.0.tasks.lock().unwrap();
    let mut manifest = (*tasks[&lie]).clone();
    manifest.files[0].digest = Digest::of(b"one");
    tasks.insert(lie, Arc::new(manifest));
    drop(tasks);
    let view = View::new(fake);
    let honest = walk(&view, "app/chk-1/db/0/db/000001.sst").unwrap().attr;
    let lying = walk(&view, "app/chk-2/db/0/db/000001.sst").unwrap().attr;
    assert_ne!(honest.ino, lying.ino);
    assert_eq!((view.attr(honest.ino).unwrap().attr.size, lying.size), (3, 5));
}

#[test]
fn what_is_gone_is_forgotten_and_what_others_name_is_not() {
    let fake = Fake::default();
    publish(&fake, "app", 100, &[("db/000001.sst", b"one"), ("db/CURRENT", b"x")]);
    let view = View::new(fake.clone());
    let kept = walk(&view, "app/chk-100/db/0/db/000001.sst").unwrap().attr.ino;
    list(&view, "app");
    let before = view.space();
    let open = publish(&fake, "app", 1, &[("db/000007.sst", b"seven")]);
    list(&view, "app");
    let held = view.open(walk(&view, "app/chk-1/db/0/db/000007.sst").unwrap().attr.ino).unwrap();
    for n in 2..=50 {
        let own = format!("own {n}").into_bytes();
        let number = publish(&fake, "app", n, &[("db/000001.sst", b"one"), ("db/2.sst", &own), ("db/CURRENT", b"x")]);
        list(&view, "app");
        walk(&view, &format!("app/chk-{n}/db/0/db/2.sst")).unwrap();
        let mut jobs = fake.0.jobs.lock().unwrap();
        let listing = &mut jobs.get_mut(&name("app")).unwrap().checkpoints;
        if n % 2 == 0 {
            listing.remove(&number);
        } else {
            listing.get_mut(&number).unwrap().expired = true;
        }
        listing.remove(&open);
    }
    assert_eq!(list(&view, "app"), ["latest", "chk-100"]);
    assert_eq!(view.xattr(kept, "user.ckptfs.refs").unwrap(), b"1");
    assert!(walk(&view, "app/chk-1/db/0/db/000007.sst").is_ok(), "open, so it is there");
    drop(held);
    list(&view, "app");
    assert_eq!(view.space().files, before.files);
    assert_eq!(walk(&view, "app/chk-100/db/0/db/000001.sst").unwrap().attr.ino, kept);
}
