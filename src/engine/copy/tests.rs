//! Copies between stores in memory, which count what is sent, and can fail, lose and damage things.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Copied, copy};
use crate::cache::Session;
use crate::engine::SnapshotReport;
use crate::engine::base::BaseIndex;
use crate::engine::cancel::Cancel;
use crate::engine::input::StateFile;
use crate::engine::upload::{self, Described, Task};
use crate::engine::{life, snapshot};
use crate::error::{Error, Kind, Result};
use crate::format::records::FloorRecord;
use crate::format::{
    CheckpointKind, ExpectedOperator, FileEntry, FilePath, Labels, Place, Role, SstInfo, TaskManifest, encode,
};
use crate::lifecycle::Checkpoint;
use crate::store::memory::Memory;
use crate::store::{Store, StoreOptions};
use crate::types::noise::noise;
use crate::types::{
    CheckpointNumber, Digest, Extent, Key, KeyGroupRange, KeyParts, Name, Prefix, RecordKind, Silent, Uid,
};

const MIB: usize = 1 << 20;

fn name(text: &str) -> Name {
    Name::encode(text)
}

fn n(number: u64) -> CheckpointNumber {
    CheckpointNumber::new(number).unwrap()
}

struct Side {
    memory: Arc<Memory>,
    session: Session,
}

/// Two stores and one cache.
struct World {
    temp: tempfile::TempDir,
    from: Side,
    to: Side,
}

fn store(memory: &Arc<Memory>) -> Store {
    let options = StoreOptions { attempts: 1, ..StoreOptions::default() };
    Store::from_backend(Arc::clone(memory) as _, "memory://", options)
}

/// What a subtask has.
struct Part<'a> {
    operator: &'a str,
    subtask: u32,
    files: Vec<(&'a str, Vec<u8>)>,
}

impl World {
    fn new() -> Self {
        let temp = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let (a, b) = (Arc::new(Memory::new()), Arc::new(Memory::new()));
        let from = Session::over(store(&a), &temp.path().join("cache"), true).unwrap();
        let to = from.beside_store(store(&b), true).unwrap();
        assert!(to.created && to.store_id != from.store_id && to.cache.id() == from.cache.id());
        Self { temp, from: Side { memory: a, session: from }, to: Side { memory: b, session: to } }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.temp.path().join(below)
    }

    /// The store `from` with an empty cache, and `to` over it.
    fn cold(&self, cache: &str) -> (Session, Session) {
        let from = Session::over(self.from.session.store.clone(), &self.path(cache), false).unwrap();
        let to = from.beside_store(self.to.session.store.clone(), false).unwrap();
        (from, to)
    }

    /// Takes a checkpoint of job `app`. `change` may say more of each subtask than a snapshot does.
    fn take(&self, parts: &[Part<'_>], kind: CheckpointKind, change: impl Fn(&mut TaskManifest)) -> Checkpoint {
        self.take_of("app", &self.from.session, parts, kind, change)
    }

    fn take_of(
        &self,
        job: &str,
        session: &Session,
        parts: &[Part<'_>],
        kind: CheckpointKind,
        change: impl Fn(&mut TaskManifest),
    ) -> Checkpoint {
        let job = name(job);
        let mut expected: BTreeMap<Name, u32> = BTreeMap::new();
        parts.iter().for_each(|part| *expected.entry(name(part.operator)).or_default() += 1);
        let expected = expected.into_iter().map(|(operator, parallelism)| ExpectedOperator { operator, parallelism });
        let opened = snapshot::open(session, &job, None, expected.collect(), kind, true, Labels::default()).unwrap();
        for part in parts {
            let mut files: Vec<StateFile> = part
                .files
                .iter()
                .map(|(path, bytes)| StateFile { path: FilePath::parse(path).unwrap(), bytes: bytes.clone().into() })
                .collect();
            files.sort_by(|a, b| a.path.cmp(&b.path));
            let base = BaseIndex::load(session, &opened.bases, &name(part.operator), part.subtask).unwrap();
            let task = Task { job: &job, number: opened.number, operator: part.operator, subtask: part.subtask };
            let described = Described { backend: Some("rocks".to_owned()), ..Described::default() };
            let uid = opened.intent.place.uid;
            let cancel = Cancel::default();
            let mut finished =
                upload::finish(session, Err(base), &files, (&task, uid), described, (&cancel, &Silent)).unwrap();
            change(&mut finished.manifest);
            upload::acknowledge(session, finished).unwrap();
        }
        snapshot::complete(session, &job, opened.number).unwrap();
        session.catalog.checkpoint(&job, opened.number).unwrap()
    }

    fn copy(&self, checkpoint: &Checkpoint) -> Result<Copied> {
        copy((&self.from.session, &self.to.session), checkpoint, &checkpoint.job, &Silent)
    }

    fn copied(&self, number: u64) -> Checkpoint {
        self.to.session.catalog.checkpoint(&name("app"), n(number)).unwrap()
    }

    /// Key of the blob that a file lies in, by its path.
    fn blob_of(&self, side: &Side, checkpoint: &Checkpoint, path: &str) -> Key {
        let all = manifests(&side.session, checkpoint);
        let (task, file) = all.iter().find_map(|t| Some((t, t.file(path)?))).unwrap();
        Key::blob(&task.blobs[file.extents[0].blob as usize].name)
    }

    fn flip(side: &Side, key: &Key) {
        let mut bytes = side.session.store.backend().get(key.as_str(), u64::MAX).unwrap().unwrap().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        side.memory.plant(key.as_str(), bytes);
    }
}

fn sent(copied: Result<Copied>) -> SnapshotReport {
    match copied.unwrap() {
        Copied::Now(report) => report,
        other => panic!("{other:?}"),
    }
}

fn error(copied: Result<Copied>, kind: Kind, words: &[&str]) -> Error {
    let e = copied.unwrap_err();
    assert_eq!(e.kind(), kind, "{e:#}");
    let text = format!("{e:#}");
    words.iter().for_each(|word| assert!(text.contains(word), "{word:?} is not in {text}"));
    e
}

fn manifests(session: &Session, checkpoint: &Checkpoint) -> Vec<Arc<TaskManifest>> {
    let read = |entry| session.cache.task_manifest(&session.store, &checkpoint.job, checkpoint.number, entry).unwrap();
    checkpoint.manifest.subtasks.iter().map(read).collect()
}

/// Every byte of a checkpoint, out of its store alone.
fn bytes(world: &World, side: &Side, checkpoint: &Checkpoint) -> Vec<(Name, u32, String, Vec<u8>)> {
    let cache = format!("cache-{}", Uid::random().unwrap());
    let session = Session::over(side.session.store.clone(), &world.path(&cache), false).unwrap();
    let mut all = Vec::new();
    for task in manifests(&session, checkpoint) {
        let (operator, subtask) = task.place.subtask.clone().unwrap();
        for file in &task.files {
            let (bytes, _) = session.cache.fetch_bytes(&session.store, &task, file).unwrap();
            all.push((operator.clone(), subtask, file.path.to_string(), bytes));
        }
    }
    all
}

/// What must be the same in a copy.
fn carried(task: &TaskManifest) -> TaskManifest {
    let mut task = task.clone();
    let uid = Uid::from_bytes([0; 16]);
    task.place.uid = uid;
    task.blobs.clear();
    task.new_bytes = 0;
    for file in &mut task.files {
        file.extents.clear();
        file.tree = None;
        file.tail = None;
    }
    task
}

/// Two operators, one of them with two subtasks.
fn parts<'a>(seed: u64) -> Vec<Part<'a>> {
    let database = |seed: u64| {
        vec![
            ("db/000007.sst", noise(seed, 3 * MIB / 2)),
            ("db/000008.sst", noise(seed + 1, 200_000)),
            ("db/000009.sst", noise(seed + 2, 500)),
            ("db/000010.log", Vec::new()),
            ("db/CURRENT", b"MANIFEST-000004\n".to_vec()),
        ]
    };
    let mut second = database(seed + 20);
    second.extend([
        ("operator/list/0", noise(seed + 23, 3000)),
        ("raw-keyed/3", noise(seed + 24, 2 * MIB)),
        ("raw-operator/0", noise(seed + 25, 77)),
    ]);
    vec![
        Part { operator: "count words", subtask: 0, files: database(seed + 10) },
        Part { operator: "count words", subtask: 1, files: second },
        Part { operator: "sink", subtask: 0, files: vec![("operator/open/0", noise(seed + 30, 40))] },
    ]
}

/// Says all that a task manifest can.
fn describe(task: &mut TaskManifest) {
    task.key_groups = Some(KeyGroupRange::new(3, 63).unwrap());
    task.states = vec![serde_json::json!({"kind": "value", "name": "counts"})];
    task.properties = BTreeMap::from([("made-by".to_owned(), "a test".to_owned())]);
    let first = task.files[0].path.clone();
    task.other_state = BTreeMap::from([("channel".to_owned(), vec![first.clone()])]);
    task.origins = BTreeMap::from([(first, Digest::of(b"elsewhere"))]);
    let info = |level| SstInfo { column_family: "counts".to_owned(), level, smallest: "61".to_owned(), largest: None };
    let ssts = task.files.iter_mut().filter(|f| f.path.as_str().ends_with(".sst"));
    ssts.zip(0..).for_each(|(file, level): (&mut FileEntry, u32)| file.sst = Some(info(level)));
}

#[test]
fn a_copy_has_every_byte_and_word_of_the_original_and_is_made_once() {
    let world = World::new();
    let original = world.take(&parts(1), CheckpointKind::Savepoint, describe);
    // By a host that has nothing of it.
    let (from, to) = world.cold("cold");
    let report = sent(copy((&from, &to), &original, &original.job, &Silent));
    let there = world.copied(1);
    assert_eq!((report.uid, report.number), (there.uid, n(1)));
    assert_eq!((report.files, report.logical_bytes), (original.manifest.files, original.manifest.logical_bytes));
    assert_eq!((report.new_bytes, report.reused_bytes), (world.to.memory.uploaded(), 0));
    assert_eq!(there.manifest.kind, CheckpointKind::Savepoint);
    assert_ne!(there.uid, original.uid);
    let (a, b) = (manifests(&world.from.session, &original), manifests(&world.to.session, &there));
    assert_eq!(a.iter().map(|t| carried(t)).collect::<Vec<_>>(), b.iter().map(|t| carried(t)).collect::<Vec<_>>());
    assert_eq!(bytes(&world, &world.from, &original), bytes(&world, &world.to, &there));
    let large = b[0].file("db/000007.sst").unwrap();
    assert!(large.tree.is_some(), "a table can be read in parts");

    for _ in 0..2 {
        assert!(matches!(world.copy(&original).unwrap(), Copied::Before));
    }
    assert_eq!(world.to.memory.uploaded(), report.new_bytes, "nothing is sent twice");
    // The original is where a copy of the copy would go.
    let back = copy((&world.to.session, &world.from.session), &there, &there.job, &Silent);
    assert!(matches!(back.unwrap(), Copied::Before));
}

#[test]
fn of_the_next_checkpoint_only_the_difference_is_sent_whichever_way_the_history_is_copied() {
    let world = World::new();
    let mut first = parts(1);
    let one = world.take(&first, CheckpointKind::Checkpoint, |_| {});
    // What the next ones share with the first, and what they do not.
    first[0].files[0].1 = noise(100, MIB + 1);
    let two = world.take(&first, CheckpointKind::Checkpoint, |_| {});
    first[0].files[0].1 = noise(200, MIB + 1);
    let three = world.take(&first, CheckpointKind::Checkpoint, |_| {});
    let all = sent(world.copy(&one)).new_bytes;
    // Little in number: the table, the small files that changed bundles, and trees.
    let newest = sent(world.copy(&three));
    assert!(newest.new_bytes > MIB as u64 && newest.new_bytes < MIB as u64 + 100_000, "{newest:?}");
    assert!(newest.new_bytes < all / 3 && newest.reused_bytes > all / 2, "{newest:?}, {all}");
    // The one in between has a newer one for its base, and the older one beside it.
    let between = sent(world.copy(&two));
    assert!(between.new_bytes < MIB as u64 + 100_000, "{between:?}");
    for (number, original) in [(1, &one), (2, &two), (3, &three)] {
        let there = world.copied(number);
        assert_eq!(bytes(&world, &world.from, original), bytes(&world, &world.to, &there), "{number}");
    }
    let again = world.take_of("other", &world.from.session, &first, CheckpointKind::Checkpoint, |_| {});
    assert!(sent(world.copy(&again)).new_bytes > all / 2, "another job has no base there");
}

#[test]
fn what_an_older_checkpoint_alone_has_there_is_reused_by_who_comes_between() {
    let world = World::new();
    let table = noise(7, 3 * MIB);
    let with = |bytes: Vec<u8>| [Part { operator: "db", subtask: 0, files: vec![("db/1.sst", bytes)] }];
    let one = world.take(&with(table.clone()), CheckpointKind::Checkpoint, |_| {});
    let two = world.take(&with(table), CheckpointKind::Checkpoint, |_| {});
    let three = world.take(&with(noise(8, 3 * MIB)), CheckpointKind::Checkpoint, |_| {});
    sent(world.copy(&one));
    sent(world.copy(&three));
    let between = sent(world.copy(&two));
    assert_eq!((between.new_bytes, between.reused_bytes), (0, 3 * MIB as u64));
}

#[test]
fn a_table_that_a_rescaling_handed_to_another_subtask_is_not_sent_again() {
    let world = World::new();
    let (a, b) = (noise(1, 2 * MIB), noise(2, 2 * MIB));
    let db = |subtask, bytes: &Vec<u8>| Part { operator: "db", subtask, files: vec![("db/1.sst", bytes.clone())] };
    let one = world.take(&[db(0, &a), db(1, &b)], CheckpointKind::Checkpoint, |_| {});
    // The engine's restore knows where the tables come from: so do the manifests of the next checkpoint.
    let known = manifests(&world.from.session, &one);
    let two = world.take(&[db(0, &b), db(1, &a)], CheckpointKind::Checkpoint, |task| {
        let digest = task.files[0].digest;
        let (of, file) = known.iter().find_map(|t| Some((t, t.files.iter().find(|f| f.digest == digest)?))).unwrap();
        (task.blobs, task.files) = (of.blobs.clone(), vec![file.clone()]);
    });
    sent(world.copy(&one));
    let report = sent(world.copy(&two));
    assert_eq!((report.new_bytes, report.reused_bytes), (0, 4 * MIB as u64));
    // Within one checkpoint, too: both have the same table.
    let shared = noise(3, 2 * MIB);
    let three = world.take(&[db(0, &shared), db(1, &shared)], CheckpointKind::Checkpoint, |_| {});
    let report = sent(world.copy(&three));
    assert!(report.new_bytes < 2 * MIB as u64 + 10_000, "{report:?}");
    assert_eq!(bytes(&world, &world.from, &three), bytes(&world, &world.to, &world.copied(3)));
}

#[test]
fn a_copy_that_breaks_off_anywhere_is_gone_on_with_and_sends_nothing_twice() {
    let whole = {
        let world = World::new();
        sent(world.copy(&world.take(&parts(1), CheckpointKind::Checkpoint, |_| {}))).new_bytes
    };
    // Every upload, then acks, then the outcome.
    let mut broken = 0;
    for (operation, prefix) in [("upload", "blobs/"), ("create", "task/"), ("create", "outcome/")] {
        for nth in 0..6 {
            let world = World::new();
            let original = world.take(&parts(1), CheckpointKind::Checkpoint, |_| {});
            let seen = Arc::new(AtomicU64::new(0));
            let counter = Arc::clone(&seen);
            world.to.memory.fail_when(move |asked, key| {
                asked == operation && key.starts_with(prefix) && counter.fetch_add(1, Ordering::SeqCst) >= nth
            });
            let failed = world.copy(&original);
            world.to.memory.fail_when(|_, _| false);
            if failed.is_ok() {
                continue;
            }
            broken += 1;
            let listing = world.to.session.catalog.job(&name("app")).unwrap();
            assert!(listing.checkpoints.is_empty() && listing.open.contains(&n(1)), "nothing is published");
            let before = world.to.memory.uploaded();
            // By another host.
            let (from, to) = world.cold("cold");
            let report = sent(copy((&from, &to), &original, &original.job, &Silent));
            assert_eq!(report.new_bytes, world.to.memory.uploaded() - before);
            assert_eq!(world.to.memory.uploaded(), whole, "{operation} {prefix} {nth}");
            let there = world.copied(1);
            assert_eq!(there.manifest.new_bytes, whole, "what was sent before is its own");
            assert_eq!(bytes(&world, &world.from, &original), bytes(&world, &world.to, &there));
        }
    }
    assert!(broken > 8, "{broken}");
}

#[test]
fn damage_is_told_by_the_file_and_nothing_of_it_is_published() {
    for (path, kept) in [("raw-keyed/3", false), ("operator/list/0", false), ("raw-keyed/3", true)] {
        let world = World::new();
        let original = world.take(&parts(1), CheckpointKind::Checkpoint, |_| {});
        let key = world.blob_of(&world.from, &original, path);
        let (from, to) = world.cold("cold");
        if kept {
            // The cache's file is right, the store's is not: the copy is right.
            for task in manifests(&from, &original) {
                if let Some(file) = task.file(path) {
                    from.cache.fetch_file(&from.store, &task, file).unwrap();
                }
            }
        }
        World::flip(&world.from, &key);
        let copied = copy((&from, &to), &original, &original.job, &Silent);
        if kept {
            sent(copied);
            continue;
        }
        // All that lies in a damaged bundle is lost: the first file of it is named.
        let file = if path == "raw-keyed/3" { path } else { "db/000008.sst: a bundle" };
        error(copied, Kind::Damage, &["count%20words/1", file, "damaged"]);
        let listing = world.to.session.catalog.job(&name("app")).unwrap();
        assert!(listing.checkpoints.is_empty());
        assert!(world.to.session.store.list(&Prefix::kind(RecordKind::Outcome)).unwrap().is_empty());
        // Once it is mended, the same copy goes on.
        World::flip(&world.from, &key);
        sent(copy((&from, &to), &original, &original.job, &Silent));
        assert_eq!(bytes(&world, &world.from, &original), bytes(&world, &world.to, &world.copied(1)));
    }
}

#[test]
fn a_rotten_cache_is_found_before_its_bytes_are_sent() {
    let world = World::new();
    let original = world.take(&parts(1), CheckpointKind::Checkpoint, |_| {});
    let (from, to) = world.cold("cold");
    let all = manifests(&from, &original);
    let (task, file) = all.iter().find_map(|t| Some((t, t.file("raw-keyed/3")?))).unwrap();
    from.cache.fetch_file(&from.store, task, file).unwrap();
    let hex = file.digest.to_hex();
    let entry = from.cache.path().join("files").join(&hex[..2]).join(&hex);
    // Behind the record of its inode: size and time stay.
    let modified = std::fs::metadata(&entry).unwrap().modified().unwrap();
    let rotten = std::fs::File::options().write(true).open(&entry).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&rotten, b"rot", 5000).unwrap();
    rotten.set_modified(modified).unwrap();
    drop(rotten);
    sent(copy((&from, &to), &original, &original.job, &Silent));
    assert_eq!(bytes(&world, &world.from, &original), bytes(&world, &world.to, &world.copied(1)));
    assert!(!entry.exists(), "it was thrown away");
}

#[test]
fn another_checkpoint_under_the_number_is_left_alone() {
    let world = World::new();
    let original = world.take(&parts(1), CheckpointKind::Checkpoint, |_| {});
    let other = world.take_of("app", &world.to.session, &parts(50), CheckpointKind::Checkpoint, |_| {});
    error(world.copy(&original), Kind::Conflict, &["app/chk-1 is another checkpoint", "--as"]);
    assert_eq!(world.copied(1).uid, other.uid);
    let as_other = copy((&world.from.session, &world.to.session), &original, &name("east"), &Silent);
    sent(as_other);
    let there = world.to.session.catalog.checkpoint(&name("east"), n(1)).unwrap();
    assert_eq!(bytes(&world, &world.from, &original), bytes(&world, &world.to, &there));
    // One that somebody has begun, even of the same shape.
    let two = world.take(&parts(2), CheckpointKind::Checkpoint, |_| {});
    let expected = super::expected(&two).unwrap();
    snapshot::open(
        &world.to.session,
        &name("app"),
        None,
        expected,
        CheckpointKind::Checkpoint,
        true,
        Labels::default(),
    )
    .unwrap();
    error(world.copy(&two), Kind::Conflict, &["app/chk-2 was begun as something else", "ckptfs abort", "--as"]);
    snapshot::abort(&world.to.session, &name("app"), n(2), "test").unwrap();
    error(world.copy(&two), Kind::Conflict, &["is decided", "--as"]);
}

#[test]
fn within_one_store_only_another_job_makes_sense_and_costs_no_bytes() {
    let world = World::new();
    let original = world.take(&parts(1), CheckpointKind::Checkpoint, describe);
    let same = (&world.from.session, &world.from.session);
    error(copy(same, &original, &original.job, &Silent), Kind::Invalid, &["is the store that", "--as"]);
    let before = world.from.memory.uploaded();
    let report = sent(copy(same, &original, &name("fork"), &Silent));
    assert_eq!((report.new_bytes, world.from.memory.uploaded()), (0, before));
    let fork = world.from.session.catalog.checkpoint(&name("fork"), n(1)).unwrap();
    assert_eq!(bytes(&world, &world.from, &original), bytes(&world, &world.from, &fork));
    assert!(matches!(copy(same, &original, &name("fork"), &Silent).unwrap(), Copied::Before));
}

#[test]
fn what_has_expired_there_is_over() {
    let world = World::new();
    let one = world.take(&parts(1), CheckpointKind::Checkpoint, |_| {});
    sent(world.copy(&one));
    life::expire(&world.to.session, &name("app"), n(1), "test").unwrap();
    assert!(matches!(world.copy(&one).unwrap(), Copied::Over));
    // What a floor has passed was there once, whatever it was.
    let place = Place::new(Role::Floor, &name("gone"), 5, Uid::random().unwrap());
    let floor = FloorRecord { place, survivors: vec![n(4)], uids: Vec::new() };
    let key = Key::floor(&name("gone"), n(5));
    world.to.memory.plant(key.as_str(), encode(&floor).unwrap());
    let gone = copy((&world.from.session, &world.to.session), &one, &name("gone"), &Silent);
    assert!(matches!(gone.unwrap(), Copied::Over));
    // What died there is no base: everything is sent.
    let two = world.take(&parts(1), CheckpointKind::Checkpoint, |_| {});
    let report = sent(world.copy(&two));
    assert_eq!(report.reused_bytes, 0);
}

#[test]
fn blobs_that_the_other_store_lost_are_sent_again() {
    let world = World::new();
    let one = world.take(&parts(1), CheckpointKind::Checkpoint, |_| {});
    sent(world.copy(&one));
    let lost = world.blob_of(&world.to, &world.copied(1), "raw-keyed/3");
    world.to.memory.remove(lost.as_str());
    let two = world.take(&parts(1), CheckpointKind::Checkpoint, |_| {});
    let report = sent(world.copy(&two));
    assert!(report.new_bytes >= 2 * MIB as u64 && report.new_bytes < 3 * MIB as u64, "{report:?}");
    assert_eq!(bytes(&world, &world.from, &two), bytes(&world, &world.to, &world.copied(2)));
}

/// A stream that is shown in parts, as an imported savepoint of Flink's is.
fn streamed(task: &mut TaskManifest, lie: bool) {
    let stream = task.file("stream/a").unwrap().clone();
    let extent = stream.extents[0];
    let whole = noise(5, 3 * MIB);
    for (i, (from, length)) in [(100, MIB + 50_000), (2 * MIB, 1000)].into_iter().enumerate() {
        let shown = &whole[from..from + length];
        let from = if lie { from + 1 } else { from };
        task.files.push(FileEntry {
            path: FilePath::parse(&format!("keyed/{i}")).unwrap(),
            size: length as u64,
            digest: Digest::of(shown),
            extents: vec![Extent { blob: extent.blob, offset: extent.offset + from as u64, length: length as u64 }],
            tree: None,
            tail: None,
            sst: None,
        });
        task.logical_bytes += length as u64;
    }
    task.files.sort_by(|a, b| a.path.cmp(&b.path));
}

#[test]
fn parts_of_a_stream_are_sent_once_and_looked_at_each() {
    let world = World::new();
    let stream = || [Part { operator: "op", subtask: 0, files: vec![("stream/a", noise(5, 3 * MIB))] }];
    let original = world.take(&stream(), CheckpointKind::Savepoint, |task| streamed(task, false));
    let report = sent(world.copy(&original));
    assert!(report.new_bytes < 3 * MIB as u64 + 10_000, "{report:?}");
    assert_eq!(bytes(&world, &world.from, &original), bytes(&world, &world.to, &world.copied(1)));
    let liar =
        world.take_of("liar", &world.from.session, &stream(), CheckpointKind::Savepoint, |task| streamed(task, true));
    error(world.copy(&liar), Kind::Damage, &["op/0", "keyed/0", "damaged"]);
}

#[test]
fn of_a_file_that_grew_the_new_bytes_are_sent() {
    let world = World::new();
    for (seed, front, more) in [(1, 400_000, 100), (2, 3 * MIB, 100), (3, 3 * MIB, 2 * MIB)] {
        let job = format!("job-{seed}");
        let whole = noise(seed, front + more);
        let wal = |length: usize| {
            [Part { operator: "db", subtask: 0, files: vec![("db/000003.log", whole[..length].to_vec())] }]
        };
        let take = |length| world.take_of(&job, &world.from.session, &wal(length), CheckpointKind::Checkpoint, |_| {});
        let one = take(front);
        let two = take(front + more);
        sent(world.copy(&one));
        let report = sent(world.copy(&two));
        assert!(report.new_bytes < more as u64 + 10_000, "{report:?}");
        assert_eq!(report.reused_bytes, front as u64);
        let there = world.to.session.catalog.checkpoint(&name(&job), n(2)).unwrap();
        assert_eq!(bytes(&world, &world.from, &two), bytes(&world, &world.to, &there));
    }
}

#[test]
fn only_one_process_with_a_cache_copies_a_job_into_a_store_and_snapshots_go_on() {
    let world = World::new();
    let original = world.take(&parts(1), CheckpointKind::Checkpoint, |_| {});
    let lock = world.to.session.copy_lock(&name("app")).unwrap();
    let other = Session::over(world.from.session.store.clone(), world.from.session.cache.path(), false).unwrap();
    let to = other.beside_store(world.to.session.store.clone(), false).unwrap();
    error(copy((&other, &to), &original, &original.job, &Silent), Kind::Conflict, &["copies checkpoints of job app"]);
    assert!(world.from.session.writer_lock(&name("app")).is_ok());
    drop(lock);
    sent(copy((&other, &to), &original, &original.job, &Silent));
}

#[test]
fn a_checkpoint_with_a_hole_in_its_subtasks_is_refused() {
    let world = World::new();
    let mut original = world.take(&parts(1), CheckpointKind::Checkpoint, |_| {});
    Arc::make_mut(&mut original.manifest).subtasks.remove(0);
    error(world.copy(&original), Kind::Damage, &["is not whole", "count%20words/0"]);
    let blobs = world.to.session.store.list(&Prefix::kind(RecordKind::Intent)).unwrap();
    assert!(!blobs.iter().any(|l| matches!(l.key.parts(), KeyParts::Intent(..))), "and nothing was begun");
}

#[test]
fn an_original_that_expires_meanwhile_is_no_damage_and_leaves_no_open_number() {
    let world = World::new();
    let original = world.take(&parts(1), CheckpointKind::Checkpoint, |_| {});
    let key = world.blob_of(&world.from, &original, "raw-keyed/3");
    let (from, to) = world.cold("cold");
    let (session, memory) = (world.from.session.clone(), Arc::clone(&world.from.memory));
    let gone = key.as_str().to_owned();
    // When the file is asked for, a rule has ended the checkpoint and a sweep has taken the blob.
    world.from.memory.fail_when(move |asked, key| {
        if asked == "read" && key == gone {
            memory.remove(&gone);
            let _ = life::expire(&session, &name("app"), n(1), "a rule");
        }
        false
    });
    error(copy((&from, &to), &original, &original.job, &Silent), Kind::NotFound, &["app/chk-1 expired while"]);
    let listing = world.to.session.catalog.job(&name("app")).unwrap();
    assert!(listing.checkpoints.is_empty() && listing.open.is_empty(), "{listing:?}");
    assert!(listing.aborted.contains_key(&n(1)), "{listing:?}");
}

#[test]
fn nothing_more_is_read_once_something_failed() {
    let world = World::new();
    let paths: Vec<String> = (0..80).map(|i| format!("raw-keyed/{i}")).collect();
    let files = paths.iter().zip(0..).map(|(path, i)| (path.as_str(), noise(i + 1, 1_100_000))).collect();
    let part = Part { operator: "count", subtask: 0, files };
    let original = world.take(&[part], CheckpointKind::Checkpoint, |_| {});
    let (from, to) = world.cold("cold");
    let reads = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&reads);
    world.from.memory.fail_when(move |asked, key| {
        let blob = asked == "read" && key.starts_with("blobs/");
        blob && counter.fetch_add(1, Ordering::SeqCst) >= 5
    });
    error(copy((&from, &to), &original, &original.job, &Silent), Kind::Unavailable, &["count/0"]);
    // Those that were under way.
    let reads = reads.load(Ordering::SeqCst);
    assert!(reads < 50, "{reads}");
}
