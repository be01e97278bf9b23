//! Keyed state: the same parallelism, others, and what goes wrong.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::kit::{
    FAMILIES, Rows, Task, World, all_rows, beside, descriptor, group_of, operator, options, range, row_key, small,
};
use crate::error::Kind;
use crate::lifecycle::Checkpoint;
use crate::restore::job::{RestoreOptions, RestoredKeyed, Way, restore_keyed};
use crate::state::keyed::Ttl;
use crate::state::{Comparator, Database, DatabaseOptions};
use crate::types::{Key, KeyGroupRange};

/// A database of some key groups, and what it has. Lists lie half in one table and half in another, and a deleted row is only hidden.
pub(super) fn database(directory: &Path, max: u32, groups: &BTreeSet<u32>, families: &[&str]) -> Rows {
    let db = Database::open(directory, families, &small(true)).unwrap();
    let mut rows = Rows::new();
    for half in 0..2 {
        let mut batch = db.batch();
        for group in groups {
            for family in families {
                let key = row_key(*group, max, "some key");
                let named = (*family).to_owned();
                if *family == "words" {
                    let element = format!("word-{half}");
                    batch.append(family, &key, element.as_bytes()).unwrap();
                    if half == 1 {
                        rows.insert((named, key), b"word-0,word-1".to_vec());
                    }
                } else if half == 0 {
                    batch.put(family, &key, &group.to_be_bytes()).unwrap();
                    batch.put(family, &row_key(*group, max, "doomed"), &[b'x'; 40]).unwrap();
                    rows.insert((named, key), group.to_be_bytes().to_vec());
                } else {
                    batch.delete(family, &row_key(*group, max, "doomed")).unwrap();
                    // Incompressible enough to fill tables.
                    let long = crate::types::Digest::of(&key).to_hex().into_bytes();
                    let key = row_key(*group, max, "another key");
                    batch.put(family, &key, &long).unwrap();
                    rows.insert((named, key), long);
                }
            }
        }
        batch.commit().unwrap();
        db.flush().unwrap();
    }
    if families.contains(&"count") {
        db.compact("count").unwrap();
    }
    rows
}

/// As many subtasks, each with its key groups, and what they have together.
fn tasks(world: &World, max: u32, parallelism: u32) -> (Vec<Task>, Rows) {
    let mut all = Rows::new();
    let tasks = (0..parallelism).map(|i| {
        let directory = world.fresh();
        let ours = range(max, parallelism, i);
        all.extend(database(&directory, max, &ours.iter().collect(), &FAMILIES));
        let keyed = Some(descriptor(max, ours, &FAMILIES));
        Task { database: Some(directory), keyed, ..Task::default() }
    });
    (tasks.collect(), all)
}

fn restore(world: &World, checkpoint: &Checkpoint, max: u32, parallelism: u32, index: u32) -> RestoredKeyed {
    let directory = world.fresh();
    let options = options(max);
    let restored = restore_keyed(&world.session, checkpoint, &operator(), index, parallelism, &options, &directory)
        .unwrap()
        .unwrap();
    assert_eq!((&restored.directory, restored.descriptor.range), (&directory, range(max, parallelism, index)));
    assert_eq!(restored.backend_uid, restored.descriptor.backend);
    assert_eq!(beside(&directory), BTreeSet::from(["db".to_owned()]), "something was left");
    restored
}

/// All subtasks: every row in one, none outside of its range. Their native checkpoints are the next checkpoint's tasks.
fn restore_all(world: &World, checkpoint: &Checkpoint, max: u32, parallelism: u32, expected: &Rows) -> Vec<Task> {
    let mut seen = Rows::new();
    let tasks = (0..parallelism).map(|index| {
        let restored = restore(world, checkpoint, max, parallelism, index);
        for ((family, key), value) in all_rows(&restored.directory) {
            let group = group_of(&key, max);
            assert!(range(max, parallelism, index).contains(group), "{index} of {parallelism} has key group {group}");
            assert_eq!(seen.insert((family, key), value), None, "a row is in two subtasks");
        }
        let families = Database::families(&restored.directory).unwrap();
        let names: Vec<&str> = families.iter().map(String::as_str).collect();
        let directory = world.fresh();
        Database::open(&restored.directory, &names, &small(false)).unwrap().checkpoint(&directory).unwrap();
        Task { database: Some(directory), keyed: Some(restored.descriptor), ..Task::default() }
    });
    let tasks = tasks.collect();
    assert!(seen == *expected, "{} rows instead of {}", seen.len(), expected.len());
    tasks
}

fn rescale_between(max: u32, parallelisms: &[u32]) {
    for &p in parallelisms {
        let world = World::new();
        let (tasks, rows) = tasks(&world, max, p);
        let checkpoint = world.checkpoint(&tasks);
        for &q in parallelisms {
            let next = restore_all(&world, &checkpoint, max, q, &rows);
            let again = world.checkpoint(&next);
            restore_all(&world, &again, max, (p + q) % 5 + 1, &rows);
        }
    }
}

#[test]
fn row12_rescale_every_row_ends_up_in_exactly_one_subtask() {
    rescale_between(11, &[1, 2, 3, 4, 5]);
}

#[test]
fn row12_rescale_with_two_bytes_of_key_group() {
    rescale_between(129, &[1, 3, 4]);
}

#[test]
fn row12_rows_outside_of_an_old_range_are_never_taken() {
    let max = 8;
    for (p, q) in [(2, 3), (3, 2), (2, 1), (1, 2), (4, 2), (5, 3)] {
        let world = World::new();
        let mut expected = Rows::new();
        let tasks: Vec<Task> = (0..p)
            .map(|i| {
                let (directory, ours) = (world.fresh(), range(max, p, i));
                let rows = database(&directory, max, &ours.iter().collect(), &["count"]);
                let db = Database::open(&directory, &["count"], &small(false)).unwrap();
                let mut batch = db.batch();
                for group in (0..max).filter(|g| !ours.contains(*g)) {
                    batch.put("count", &row_key(group, max, &format!("stray of {i}")), b"stray").unwrap();
                }
                batch.commit().unwrap();
                db.flush().unwrap();
                expected.extend(rows);
                let keyed = Some(descriptor(max, ours, &["count"]));
                Task { database: Some(directory), keyed, ..Task::default() }
            })
            .collect();
        restore_all(&world, &world.checkpoint(&tasks), max, q, &expected);
    }
}

#[test]
fn row12_the_same_parallelism_inherits_the_backend_and_another_does_not() {
    let world = World::new();
    let (tasks, _) = tasks(&world, 128, 2);
    let checkpoint = world.checkpoint(&tasks);
    for (i, task) in (0..).zip(&tasks) {
        let same = restore(&world, &checkpoint, 128, 2, i);
        assert_eq!((same.inherits, same.way), (true, Way::Copy));
        assert_eq!(Some(&same.descriptor), task.keyed.as_ref());
        assert_eq!((same.base.number, same.base.uid), (checkpoint.number, checkpoint.uid));
        let names = |d: &Path| {
            let entries = std::fs::read_dir(d).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
            entries.filter(|n| n != "LOCK" && !n.starts_with("LOG")).collect::<BTreeSet<_>>()
        };
        assert_eq!(names(&same.directory), names(task.database.as_ref().unwrap()));
    }
    let olds: BTreeSet<_> = tasks.iter().map(|t| t.keyed.as_ref().unwrap().backend).collect();
    let mut uids = olds.clone();
    for (q, i) in [(1, 0), (3, 0), (3, 1), (3, 2)] {
        let other = restore(&world, &checkpoint, 128, q, i);
        assert!(!other.inherits);
        assert!(uids.insert(other.backend_uid), "an identity was used twice");
    }
}

#[test]
fn row12_key_groups_without_state_begin_empty_and_states_of_one_subtask_are_kept() {
    let world = World::new();
    let max = 4;
    let dirs: Vec<PathBuf> = (0..2).map(|_| world.fresh()).collect();
    let mut rows = database(&dirs[0], max, &BTreeSet::from([0, 1]), &["count"]);
    rows.extend(database(&dirs[1], max, &BTreeSet::from([2]), &["count", "words"]));
    let task = |i: usize, first, last, families: &[&str]| Task {
        database: Some(dirs[i].clone()),
        keyed: Some(descriptor(max, KeyGroupRange { first, last }, families)),
        ..Task::default()
    };
    // The third subtask never registered a state.
    let checkpoint =
        world.checkpoint(&[task(0, 0, 1, &["count"]), task(1, 2, 2, &["count", "words"]), Task::default()]);
    let directory = world.fresh();
    let none = restore_keyed(&world.session, &checkpoint, &operator(), 3, 4, &options(max), &directory).unwrap();
    assert!(none.is_none() && beside(&directory).is_empty());
    // The best handle has no list: its column family is made.
    let one = restore(&world, &checkpoint, max, 1, 0);
    assert_eq!(all_rows(&one.directory), rows);
    let names: Vec<&str> = one.descriptor.states.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["count", "words"]);
}

#[test]
fn row12_subtasks_that_disagree_about_a_state_are_refused() {
    let world = World::new();
    let (mut tasks, _) = tasks(&world, 4, 2);
    let keyed = tasks[1].keyed.as_mut().unwrap();
    keyed.states[0].version = 2;
    let checkpoint = world.checkpoint(&tasks);
    let directory = world.fresh();
    let e = restore_keyed(&world.session, &checkpoint, &operator(), 0, 1, &options(4), &directory).unwrap_err();
    assert_eq!(e.kind(), Kind::Damage);
    assert!(
        e.message().starts_with("subtasks 0 and 1 of count disagree: state \"count\" was stored as value state"),
        "{e}"
    );
    assert!(beside(&directory).is_empty());
    // Another time to live is no other state: the best handle's stands.
    let keyed = tasks[1].keyed.as_mut().unwrap();
    keyed.states[0].version = 1;
    for (task, ms) in tasks.iter_mut().zip([5, 6]) {
        task.keyed.as_mut().unwrap().states[0].ttl = Some(Ttl::after_write(ms));
    }
    let one = restore(&world, &world.checkpoint(&tasks), 4, 1, 0);
    let count = one.descriptor.states.iter().find(|s| s.name == "count").unwrap();
    assert_eq!(count.ttl, Some(Ttl::after_write(5)));
}

#[test]
fn row12_a_smaller_max_parallelism_is_refused() {
    let world = World::new();
    let (tasks, _) = tasks(&world, 8, 2);
    let checkpoint = world.checkpoint(&tasks);
    let directory = world.fresh();
    for max in [4, 7, 9, 128] {
        let e = restore_keyed(&world.session, &checkpoint, &operator(), 0, 2, &options(max), &directory).unwrap_err();
        assert_eq!(e.kind(), Kind::Invalid);
        assert!(e.message().contains(&format!("max_parallelism of 8 and cannot be restored with {max}")), "{e}");
    }
    let e = restore_keyed(&world.session, &checkpoint, &operator(), 0, 9, &options(8), &directory).unwrap_err();
    assert_eq!(e.kind(), Kind::Invalid, "{e}");
    assert!(beside(&directory).is_empty());
}

/// What fails in the middle of a rescale, whichever file it is, leaves nothing at all.
#[test]
fn row12_a_failed_rescale_leaves_nothing_behind() {
    let world = World::new();
    let (tasks, _) = tasks(&world, 6, 3);
    let checkpoint = world.checkpoint(&tasks);
    let mut failed = BTreeSet::new();
    for (subtask, entry) in (0..).zip(&checkpoint.manifest.subtasks) {
        let manifest = crate::restore::select::task_manifest(&world.session, &checkpoint, entry).unwrap();
        let sst = manifest.files.iter().find(|f| f.path.as_str().ends_with(".sst")).unwrap();
        let key = Key::blob(&manifest.blobs[sst.extents[0].blob as usize].name);
        let whole = world.session.store.get(&key, 1 << 30).unwrap().unwrap();
        let mut flipped = whole.to_vec();
        flipped[7] ^= 1;
        world.memory.plant(key.as_str(), flipped);
        let session = world.elsewhere();
        let directory = world.fresh();
        let e = restore_keyed(&session, &checkpoint, &operator(), 0, 1, &options(6), &directory).unwrap_err();
        assert_eq!(e.kind(), Kind::Damage, "{e:#}");
        assert!(e.message().contains(sst.path.as_str()), "{e}");
        assert_eq!(beside(&directory), BTreeSet::new(), "of subtask {subtask}");
        failed.insert(subtask);
        world.memory.plant(key.as_str(), whole);
    }
    assert_eq!(failed, BTreeSet::from([0, 1, 2]), "the best handle's and the others'");
    restore(&world, &checkpoint, 6, 1, 0);
}

#[test]
fn row12_a_directory_that_is_not_empty_is_left_alone() {
    let world = World::new();
    let (tasks, _) = tasks(&world, 4, 1);
    let checkpoint = world.checkpoint(&tasks);
    let directory = world.fresh();
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("mine"), "mine").unwrap();
    for parallelism in [1, 2] {
        let e = restore_keyed(&world.session, &checkpoint, &operator(), 0, parallelism, &options(4), &directory);
        assert_eq!(e.unwrap_err().kind(), Kind::Invalid);
        assert_eq!(std::fs::read_to_string(directory.join("mine")).unwrap(), "mine");
        assert_eq!(beside(&directory).len(), 1);
    }
}

/// RocksDB drops tables with the end of the range that it is told: a row that is nothing but a key group may be that end.
#[test]
fn row12_a_row_at_the_edge_of_a_clipped_table_stays() {
    let world = World::new();
    let directory = world.fresh();
    let db = Database::open(&directory, &["count"], &small(true)).unwrap();
    let mut expected = Rows::new();
    // Each table ends with the first row of the next subtask.
    for (n, groups) in [[0, 1], [2, 3]].iter().enumerate() {
        let path = directory.with_file_name(format!("{n}.sst"));
        let mut table = db.sst_writer(&path).unwrap();
        for group in groups {
            let key = row_key(*group, 4, "");
            table.put(&key, b"edge").unwrap();
            expected.insert(("count".to_owned(), key), b"edge".to_vec());
        }
        table.finish().unwrap();
        db.ingest("count", &[path], true).unwrap();
    }
    drop(db);
    let keyed = Some(descriptor(4, range(4, 1, 0), &["count"]));
    let checkpoint = world.checkpoint(&[Task { database: Some(directory), keyed, ..Task::default() }]);
    for q in 2..=4 {
        restore_all(&world, &checkpoint, 4, q, &expected);
    }
}

/// The pins of the store, by their checkpoints.
fn pinned(world: &World) -> usize {
    world.session.catalog.pins(None).unwrap().len()
}

/// Everything is in the cache: then a clone needs no mount, and its pin shows that it is one.
#[test]
fn row12_a_clone_is_built_on_and_a_failed_one_leaves_no_pin() {
    let world = World::new();
    let (tasks, rows) = tasks(&world, 8, 1);
    let checkpoint = world.checkpoint(&tasks);
    let entry = &checkpoint.manifest.subtasks[0];
    let manifest = crate::restore::select::task_manifest(&world.session, &checkpoint, entry).unwrap();
    for file in &manifest.files {
        world.session.cache.fetch_file(&world.session.store, &manifest, file).unwrap();
    }
    let options = RestoreOptions { mount: Some("/nowhere".into()), job: Some("app".parse().unwrap()), ..options(8) };
    let restore = |parallelism, index, options: &RestoreOptions| {
        let directory = world.fresh();
        let restored = restore_keyed(&world.session, &checkpoint, &operator(), index, parallelism, options, &directory);
        (directory, restored)
    };
    let (same, restored) = restore(1, 0, &options);
    assert_eq!(restored.unwrap().map(|r| (r.way, r.inherits)), Some((Way::Clone, true)));
    assert_eq!((all_rows(&same), pinned(&world)), (rows.clone(), 1));
    for index in 0..2 {
        let (half, restored) = restore(2, index, &options);
        assert_eq!(restored.unwrap().map(|r| (r.way, r.inherits)), Some((Way::Clone, false)));
        let mine = range(8, 2, index);
        let expected: Rows = rows.clone().into_iter().filter(|((_, k), _)| mine.contains(group_of(k, 8))).collect();
        assert_eq!(all_rows(&half), expected);
    }
    assert_eq!(pinned(&world), 3);
    // What it was cloned from is as it was.
    assert_eq!(all_rows(&same), rows);
    // Under another order of keys it does not open, after it was made.
    let backwards = Comparator { name: "backwards", compare: |a, b| b.cmp(a) };
    let wrong = RestoreOptions { database: DatabaseOptions { comparator: Some(backwards), ..small(false) }, ..options };
    let (half, restored) = restore(2, 0, &wrong);
    assert_eq!(restored.unwrap_err().kind(), Kind::Invalid);
    assert_eq!((beside(&half), pinned(&world)), (BTreeSet::new(), 3));
}
