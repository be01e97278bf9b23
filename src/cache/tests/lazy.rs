//! Files that are read before they are here: each byte verified, each group fetched once, whole in the end.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::error::Kind;
use crate::format::Tail;
use crate::limits::{GROUP, LAZY_RUN, LAZY_WHOLE};

const G: usize = 1 << 16;

/// One table in the store with its tree and a tail of one group, and what its reader was told.
pub(super) struct Table {
    pub(super) snapshot: Snapshot,
    pub(super) data: Vec<u8>,
    pub(super) entry: FileEntry,
    pub(super) whole: Arc<AtomicU64>,
}

impl Table {
    pub(super) fn new(length: usize, tail: usize) -> Self {
        let mut snapshot = Snapshot::new();
        let data = bytes(7, length);
        let mut entry = snapshot.whole("000007.sst", &data);
        let (_, tree) = tree::hash_and_tree(&data);
        let start = data.len().saturating_sub(tail) / G * G;
        let mut bundle = BundleBuilder::default();
        let (offset, length) = bundle.add(&tree);
        let (tail_offset, tail_length) = bundle.add(&data[start..]);
        let blob = snapshot.blob(&bundle.finish(), true);
        entry.tree = Some(Extent { blob, offset, length });
        if tail > 0 {
            let extent = Extent { blob, offset: tail_offset, length: tail_length };
            entry.tail = Some(Tail { start: start as u64, extent });
        }
        Self { snapshot, data, entry, whole: Arc::default() }
    }

    pub(super) fn open(&self, cache: &Cache) -> Result<Option<Arc<LazyFile>>> {
        let whole = Arc::clone(&self.whole);
        let manifest = Arc::new(self.snapshot.manifest.clone());
        cache.open_lazy(&self.snapshot.store, &manifest, &self.entry, move || {
            whole.fetch_add(1, Ordering::SeqCst);
        })
    }

    pub(super) fn check(&self, lazy: &Arc<LazyFile>, offset: usize, length: usize) -> Result<()> {
        let mut buffer = vec![0xAA; length];
        lazy.read(offset as u64, &mut buffer)?;
        assert!(buffer == self.data[offset..offset + length], "wrong bytes at {offset}");
        Ok(())
    }

    /// Until the file is complete and was told so.
    fn until_whole(&self) {
        let begun = Instant::now();
        while self.whole.load(Ordering::SeqCst) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "it is not whole");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn off(dir: &Path) -> Cache {
    let cache = cache_in(dir);
    cache.no_fetch_behind();
    cache
}

#[test]
fn only_the_groups_that_are_read_are_fetched_and_each_once() {
    let dir = temp();
    let cache = off(dir.path());
    let table = Table::new(40 * G + 123, 0);
    let lazy = table.open(&cache).unwrap().unwrap();
    let bundle = table.snapshot.gets();
    assert!(lazy.try_read(5, &mut [0; 10]).is_none());
    table.check(&lazy, 5, 10).unwrap();
    table.check(&lazy, 0, G).unwrap();
    assert_eq!((table.snapshot.gets() - bundle, lazy.here()), (1, GROUP));
    assert!(lazy.try_read(5, &mut [0; 10]).unwrap().is_ok());
    // Three groups in one request, the first of which is here; the short last one.
    table.check(&lazy, G - 1, 2 * G + 2).unwrap();
    table.check(&lazy, 40 * G, 123).unwrap();
    assert_eq!((table.snapshot.gets() - bundle, lazy.here()), (3, 4 * GROUP + 123));
    // At the end, and behind it.
    table.check(&lazy, 40 * G + 123, 0).unwrap();
    assert!(cache.open_complete(&table.entry.digest, table.entry.size).unwrap().is_none());
    assert_eq!(table.whole.load(Ordering::SeqCst), 0);
}

#[test]
fn opening_and_reading_the_tail_costs_the_bundle_only() {
    let dir = temp();
    let cache = off(dir.path());
    let table = Table::new(30 * G + 77, 3 * G);
    let lazy = table.open(&cache).unwrap().unwrap();
    assert_eq!(table.snapshot.gets(), 1);
    table.check(&lazy, 28 * G, 2 * G + 77).unwrap();
    table.check(&lazy, 30 * G + 76, 1).unwrap();
    assert_eq!(table.snapshot.gets(), 1);
    table.check(&lazy, 0, 1).unwrap();
    assert_eq!(table.snapshot.gets(), 2);
}

#[test]
fn a_wrong_byte_is_never_answered_and_another_upload_helps() {
    let dir = temp();
    let cache = off(dir.path());
    let mut table = Table::new(30 * G, 0);
    table.snapshot.spoil(0, |data| data[3 * G + 9] ^= 1);
    let lazy = table.open(&cache).unwrap().unwrap();
    let e = table.check(&lazy, 3 * G, 10).unwrap_err();
    assert_eq!(e.kind(), Kind::Damage, "{e}");
    assert!(e.to_string().contains("000007.sst") && e.to_string().contains("app/chk-42/db/0"), "{e}");
    // The group before it is right; nobody waits for what failed.
    table.check(&lazy, 2 * G, G).unwrap();
    assert!(table.check(&lazy, 3 * G, 10).is_err());

    let second = BlobName { digest: table.entry.digest, uid: Uid::from_bytes([9; 16]) };
    table.snapshot.memory.plant(Key::blob(&second).as_str(), table.data.clone());
    table.snapshot.manifest.blobs[0].name = second;
    let again = table.open(&cache).unwrap().unwrap();
    assert!(Arc::ptr_eq(&lazy, &again));
    table.check(&lazy, 3 * G, 10).unwrap();
}

#[test]
fn a_missing_upload_and_manifests_that_lie_are_told() {
    let dir = temp();
    let cache = off(dir.path());
    let table = Table::new(20 * G, 0);
    let lazy = table.open(&cache).unwrap().unwrap();
    table.snapshot.memory.remove(table.snapshot.key(0).as_str());
    let e = table.check(&lazy, 0, 10).unwrap_err();
    assert!(matches!(e, CacheError::Absent { .. }), "{e}");

    let mut lying = Table::new(23 * G, G);
    lying.entry.tail.as_mut().unwrap().start -= GROUP;
    assert_eq!(lying.open(&cache).unwrap_err().kind(), Kind::Damage);
    let mut lying = Table::new(21 * G, G);
    // The tail's own extent in the place of the tree.
    lying.entry.tree = Some(Extent { length: 64 * 20, ..lying.entry.tail.unwrap().extent });
    assert_eq!(lying.open(&cache).unwrap_err().kind(), Kind::Damage);
    // Without a tree of the right length it is fetched whole.
    let mut without = Table::new(22 * G, 0);
    without.entry.tree = None;
    assert!(without.open(&cache).unwrap().is_none());
}

#[test]
fn what_was_read_is_fetched_whole_behind_and_is_the_same_inode() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let table = Table::new(300 * G + 5, G);
    let lazy = table.open(&cache).unwrap().unwrap();
    table.check(&lazy, 17 * G, 9).unwrap();
    table.until_whole();
    let entry = entry_path(&cache, &table.entry.digest);
    assert!(fs::read(&entry).unwrap() == table.data);
    assert_eq!(fs::metadata(&entry).unwrap().nlink(), 1, "its name in partial/ is gone");
    assert!(cache.open_complete(&table.entry.digest, table.entry.size).unwrap().is_some());
    let stored = crate::local::identity::recorded(&File::open(&entry).unwrap()).unwrap();
    assert_eq!(stored, Some(table.entry.digest));
    // One bundle, the reader's own group, the runs of the rest: no group twice.
    let most = 2 + 300_u64.div_ceil(LAZY_RUN) + 2;
    assert!(table.snapshot.gets() <= most, "{}", table.snapshot.gets());
    let fetched = cache.counters().fetched_bytes.get();
    let bundle = table.snapshot.manifest.blobs[1].length;
    assert_eq!(fetched, 299 * GROUP + bundle);
    assert_eq!(table.whole.load(Ordering::SeqCst), 1);
    table.check(&lazy, 0, 300 * G + 5).unwrap();
}

#[test]
fn a_small_file_comes_by_one_request() {
    let dir = temp();
    let cache = off(dir.path());
    let table = Table::new(usize::try_from(LAZY_WHOLE).unwrap() - 9, 0);
    let lazy = table.open(&cache).unwrap().unwrap();
    let before = table.snapshot.gets();
    table.check(&lazy, 3 * G, 1).unwrap();
    table.until_whole();
    assert_eq!(table.snapshot.gets() - before, 1);
}

#[test]
fn after_a_restart_nothing_is_believed_unseen() {
    let dir = temp();
    let table = Table::new(50 * G, 0);
    {
        let cache = off(dir.path());
        let lazy = table.open(&cache).unwrap().unwrap();
        table.check(&lazy, 0, 10 * G).unwrap();
    }
    let partial = dir.path().join("cache/partial").join(table.entry.digest.to_hex());
    // What a crash leaves: a group of zeros, a flipped bit, a hole.
    let file = fs::OpenOptions::new().write(true).open(&partial).unwrap();
    file.write_all_at(&[0; G], 2 * GROUP).unwrap();
    file.write_all_at(&[table.data[5 * G] ^ 4], 5 * GROUP).unwrap();
    crate::local::process::punch_hole(&file, 7 * GROUP, GROUP).unwrap();
    file.write_all_at(&bytes(99, G), 30 * GROUP).unwrap();
    drop(file);

    let cache = off(dir.path());
    let lazy = table.open(&cache).unwrap().unwrap();
    assert_eq!(lazy.here(), 0);
    let before = table.snapshot.gets();
    for group in [0, 1, 3, 4, 6, 8, 9] {
        table.check(&lazy, group * G, G).unwrap();
    }
    assert_eq!(table.snapshot.gets(), before, "what is right is not fetched again");
    for group in [2, 5, 7, 30] {
        table.check(&lazy, group * G, G).unwrap();
    }
    assert_eq!(table.snapshot.gets() - before, 4);
}

#[test]
fn many_readers_of_one_file_fetch_each_group_once() {
    let dir = temp();
    let cache = off(dir.path());
    let table = Table::new(100 * G, 0);
    let lazy = table.open(&cache).unwrap().unwrap();
    let bundle = table.snapshot.manifest.blobs[1].length;
    std::thread::scope(|scope| {
        for reader in 0..16_usize {
            let (table, lazy) = (&table, &lazy);
            scope.spawn(move || {
                for i in 0..300 {
                    let at = (i * 7919 + reader * 104_729) % (99 * G);
                    table.check(lazy, at, 1 + i * 131 % G).unwrap();
                }
            });
        }
    });
    assert!(cache.counters().fetched_bytes.get() <= table.entry.size + bundle);
}

#[test]
fn a_second_opener_of_the_same_cache_has_a_file_of_its_own() {
    let dir = temp();
    let table = Table::new(30 * G, 0);
    let (first, second) = (off(dir.path()), off(dir.path()));
    let (a, b) = (table.open(&first).unwrap().unwrap(), table.open(&second).unwrap().unwrap());
    for lazy in [&a, &b] {
        table.check(lazy, 4 * G, 3 * G).unwrap();
    }
    table.check(&b, 0, 30 * G).unwrap();
    table.check(&a, 0, 30 * G).unwrap();
    table.until_whole();
    assert!(first.open_complete(&table.entry.digest, table.entry.size).unwrap().is_some());
}

#[test]
fn a_full_disk_costs_the_keeping_and_no_byte() {
    let mounted = Mounted::new("tmpfs", "size=1m");
    let cache = off(mounted.0.path());
    let table = Table::new(60 * G, 0);
    let lazy = table.open(&cache).unwrap().unwrap();
    for group in 0..60 {
        table.check(&lazy, group * G, G).unwrap();
    }
    table.check(&lazy, 7, 59 * G).unwrap();
    assert!(lazy.here() < 20 * GROUP);
}

#[test]
fn what_flips_and_fails_on_the_way_costs_a_request_and_no_byte() {
    let dir = temp();
    let cache = off(dir.path());
    let table = Table::new(80 * G, 0);
    let lazy = table.open(&cache).unwrap().unwrap();
    let dice = Mutex::new(1_u64);
    // The memory's bytes are flipped while they are read, for a while.
    let key = table.snapshot.key(0);
    for round in 0..40 {
        let at = {
            let mut dice = dice.lock().unwrap();
            *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (*dice >> 33) as usize % (80 * G)
        };
        let mut wrong = table.data.clone();
        wrong[at] ^= 1 << (round % 8);
        table.snapshot.memory.plant(key.as_str(), wrong);
        let group = at / G;
        let known = lazy.try_read((group * G) as u64, &mut vec![0; G]).is_some();
        assert_eq!(table.check(&lazy, group * G, G).is_ok(), known, "round {round}");
        table.snapshot.memory.plant(key.as_str(), table.data.clone());
        table.check(&lazy, group * G, G).unwrap();
    }
}

#[test]
fn what_was_read_to_its_end_is_kept_although_it_is_closed_at_once() {
    let dir = temp();
    let cache = cache_in(dir.path());
    for n in 0..40 {
        let table = Table::new(20 * G + n, 0);
        let lazy = table.open(&cache).unwrap().unwrap();
        table.check(&lazy, 0, 20 * G + n).unwrap();
        drop(lazy);
        table.until_whole();
        assert!(cache.open_complete(&table.entry.digest, table.entry.size).unwrap().is_some());
    }
}

fn blocks(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn what_is_here_in_parts_is_given_back_while_it_is_open_and_unlinked_when_it_is_not() {
    let dir = temp();
    let cache = off(dir.path());
    let table = Table::new(30 * G, 0);
    let lazy = table.open(&cache).unwrap().unwrap();
    let path = cache.path().join("partial").join(table.entry.digest.to_hex());
    table.check(&lazy, 0, 8 * G).unwrap();
    assert!(blocks(&path) >= 8 * GROUP);
    cache.set_limits(CacheLimits { size: Some(4 * GROUP), free: Some(0) }).unwrap();
    let done = cache.make_room().unwrap().unwrap();
    // With the bundle that its hash tree came in.
    assert!(done.files == 2 && done.bytes >= 8 * GROUP && done.left < GROUP, "{done:?}");
    assert!(blocks(&path) < GROUP && lazy.here() == 0 && lazy.try_read(0, &mut [0; 10]).is_none());
    // Fetched again, and right.
    table.check(&lazy, G - 5, 10).unwrap();
    // Another process cannot take it away while we have it.
    let other = Cache::open(cache.path(), CacheOptions { create: false }).unwrap();
    other.set_limits(CacheLimits { size: Some(0), free: Some(0) }).unwrap();
    assert_eq!(other.make_room().unwrap().unwrap().files, 0);
    drop(lazy);
    assert!(path.exists());
    assert_eq!(other.make_room().unwrap().unwrap().files, 1);
    assert!(!path.exists());
}

#[test]
fn who_reads_while_bytes_are_given_back_reads_right_bytes_and_no_half_file_is_believed() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let table = Table::new(40 * G + 9, 2 * G);
    for round in 0..6 {
        let lazy = table.open(&cache).unwrap().unwrap();
        let deadline = Instant::now() + Duration::from_millis(150);
        std::thread::scope(|s| {
            for n in 0..3 {
                let (lazy, table) = (&lazy, &table);
                s.spawn(move || {
                    let mut x = round * 31 + n * 7 + 1;
                    while Instant::now() < deadline {
                        x = (x * 1_103_515_245 + 12_345) % (40 * G);
                        table.check(lazy, x, 9).unwrap();
                        let mut there = [0; 9];
                        if let Some(read) = lazy.try_read(x as u64, &mut there) {
                            read.unwrap();
                            assert!(there == table.data[x..x + 9], "wrong bytes at {x}");
                        }
                    }
                });
            }
            s.spawn(|| {
                while Instant::now() < deadline {
                    let _ = lazy.give_back().unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        });
        // Whole or not, it has the right bytes.
        drop(lazy);
        let begun = Instant::now();
        while cache.inner.lazy.contains_key(&table.entry.digest) {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(file) = cache.open_complete(&table.entry.digest, table.entry.size).unwrap() {
            assert!(read_all(&file) == table.data);
            drop(file);
            fs::remove_file(entry_path(&cache, &table.entry.digest)).unwrap();
        }
    }
    assert_eq!(cache.counters().discarded.get(), 0);
}

#[test]
fn over_its_limit_nothing_is_fetched_behind_and_nothing_more_is_kept() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let table = Table::new(40 * G, 0);
    cache.set_limits(CacheLimits { size: Some(20 * GROUP), free: Some(0) }).unwrap();
    let lazy = table.open(&cache).unwrap().unwrap();
    table.check(&lazy, 0, G).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!((lazy.here(), table.whole.load(Ordering::SeqCst)), (GROUP, 0));
    // As if much more had been written.
    cache.inner.taken.saw(1 << 30, 0, 0, 0);
    table.check(&lazy, G, G).unwrap();
    assert_eq!(lazy.here(), GROUP);
    // With room it is whole soon.
    cache.set_limits(CacheLimits { size: Some(1 << 30), free: Some(0) }).unwrap();
    cache.make_room().unwrap();
    table.check(&lazy, G, G).unwrap();
    table.until_whole();
}
