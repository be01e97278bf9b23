//! Copies on this host.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::keyed::database;
use super::kit::{FAMILIES, Rows, Task, World, all_rows, beside, descriptor, operator, options, range};
use crate::lifecycle::Checkpoint;
use crate::restore::job::{LocalCopy, RestoreOptions, RestoredKeyed, Way, restore_keyed};
use crate::types::{KeyParts, Prefix};

struct Scene {
    world: World,
    checkpoint: Checkpoint,
    /// The databases that were stored; they stay as they were, as a hard-linked local copy does.
    copies: Vec<PathBuf>,
    rows: Vec<Rows>,
}

impl Scene {
    fn new() -> Self {
        let world = World::new();
        let (mut copies, mut rows, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
        for i in 0..2 {
            let (live, copy) = (world.fresh(), world.fresh());
            rows.push(database(&live, 8, &range(8, 2, i).iter().collect(), &FAMILIES));
            crate::state::Database::open(&live, &FAMILIES, &super::kit::small(false))
                .unwrap()
                .checkpoint(&copy)
                .unwrap();
            let keyed = Some(descriptor(8, range(8, 2, i), &FAMILIES));
            tasks.push(Task { database: Some(copy.clone()), keyed, ..Task::default() });
            copies.push(copy);
        }
        let checkpoint = world.checkpoint(&tasks);
        Self { world, checkpoint, copies, rows }
    }

    fn options(&self) -> RestoreOptions {
        let local = (0..).zip(&self.copies).map(|(subtask, directory)| LocalCopy {
            operator: operator(),
            subtask,
            directory: directory.clone(),
        });
        RestoreOptions { local: local.collect(), ..options(8) }
    }

    /// On a host whose cache is empty.
    fn restore(&self, parallelism: u32, index: u32) -> crate::error::Result<RestoredKeyed> {
        let (session, directory) = (self.world.elsewhere(), self.world.fresh());
        let restored =
            restore_keyed(&session, &self.checkpoint, &operator(), index, parallelism, &self.options(), &directory);
        let left = beside(&directory);
        assert_eq!(left, restored.iter().map(|_| "db".to_owned()).collect::<BTreeSet<_>>());
        restored.map(Option::unwrap)
    }

    /// The store has no blob any more.
    fn empty_the_store(&self) {
        let keys: Vec<_> =
            self.world.session.store.list(&Prefix::blobs()).unwrap().into_iter().map(|l| l.key).collect();
        assert!(keys.iter().all(|k| matches!(k.parts(), KeyParts::Blob(_))) && keys.len() > 8);
        for key in keys {
            self.world.memory.remove(key.as_str());
        }
    }
}

fn sst_of(directory: &Path) -> PathBuf {
    let mut all: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()).collect();
    all.retain(|p| p.extension().is_some_and(|e| e == "sst"));
    all.sort();
    all.remove(0)
}

fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn row10_a_whole_local_copy_needs_nothing_of_the_store() {
    let scene = Scene::new();
    scene.empty_the_store();
    for i in 0..2 {
        let restored = scene.restore(2, i).unwrap();
        assert_eq!((restored.way, restored.inherits), (Way::Local, true));
        assert_eq!(all_rows(&restored.directory), scene.rows[i as usize]);
        // Tables are the same inodes, what RocksDB writes to is not.
        let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
        let copy = &scene.copies[i as usize];
        let table = sst_of(copy);
        assert_eq!(inode(&table), inode(&restored.directory.join(table.file_name().unwrap())));
        assert_ne!(inode(&copy.join("CURRENT")), inode(&restored.directory.join("CURRENT")));
    }
    let one = scene.restore(1, 0).unwrap();
    assert_eq!(one.way, Way::Local);
    let all: Rows = scene.rows.iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(all_rows(&one.directory), all);
    // A restore changes no local copy.
    assert_eq!(all_rows(&scene.copies[0]), scene.rows[0]);
}

#[test]
fn row10_a_local_copy_with_one_flipped_byte_is_not_used() {
    for what in ["sst", "CURRENT", "MANIFEST"] {
        let scene = Scene::new();
        let file = match what {
            "sst" => sst_of(&scene.copies[0]),
            name => {
                let mut entries = std::fs::read_dir(&scene.copies[0]).unwrap().map(|e| e.unwrap().path());
                entries.find(|p| p.file_name().unwrap().to_str().unwrap().starts_with(name)).unwrap()
            }
        };
        flip(&file);
        // Per subtask, mixed: the other one's copy is whole.
        let ways: Vec<Way> = (0..2).map(|i| scene.restore(2, i).unwrap().way).collect();
        assert_eq!(ways, [Way::Copy, Way::Local], "{what}");
        let restored = scene.restore(2, 0).unwrap();
        assert_eq!(all_rows(&restored.directory), scene.rows[0], "{what}");
        // And nothing of it when there is nothing else.
        scene.empty_the_store();
        assert!(scene.restore(2, 0).is_err(), "{what}");
        assert!(scene.restore(1, 0).is_err(), "{what}");
        assert_eq!(scene.restore(2, 1).unwrap().way, Way::Local);
    }
}

#[test]
fn row10_a_local_copy_that_lacks_a_file_or_is_gone_is_not_used() {
    let scene = Scene::new();
    std::fs::remove_file(sst_of(&scene.copies[0])).unwrap();
    std::fs::remove_dir_all(&scene.copies[1]).unwrap();
    for i in 0..2 {
        let restored = scene.restore(2, i).unwrap();
        assert_eq!(restored.way, Way::Copy);
        assert_eq!(all_rows(&restored.directory), scene.rows[i as usize]);
    }
}
