//! Fetching: once, whole, right or not at all.

use super::*;
use crate::error::Kind;
use crate::format::{SubtaskEntry, encode};

impl Snapshot {
    fn subtask(&self, object: &[u8]) -> SubtaskEntry {
        SubtaskEntry {
            operator: "db".parse().unwrap(),
            display_name: "db".to_owned(),
            subtask: 0,
            manifest: Digest::of(object),
            manifest_length: object.len() as u64,
            logical_bytes: self.manifest.logical_bytes,
            new_bytes: 0,
            files: self.manifest.files.len() as u64,
        }
    }
}

#[test]
fn a_file_is_fetched_whole_once_and_is_there_afterwards() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let mut snapshot = Snapshot::new();
    let data = bytes(1, 500_000);
    let file = snapshot.whole("1.sst", &data);
    let got = cache.fetch_file(&snapshot.store, &snapshot.manifest, &file).unwrap();
    assert!(read_all(&got) == data);
    assert!(got.write_at(b"x", 0).is_err());
    assert_eq!(snapshot.gets(), 1);
    assert_eq!(crate::local::identity::recorded(&got).unwrap(), Some(file.digest));
    cache.fetch_file(&snapshot.store, &snapshot.manifest, &file).unwrap();
    let later = Cache::open(cache.path(), CacheOptions { create: false }).unwrap();
    later.fetch_file(&snapshot.store, &snapshot.manifest, &file).unwrap();
    assert_eq!(snapshot.gets(), 1);
    assert_eq!(files_in(&cache), vec![entry_path(&cache, &file.digest)]);
    assert_eq!((cache.counters().fetched_files.get(), cache.counters().fetched_bytes.get()), (1, 500_000));
}

#[test]
fn a_grown_file_is_put_together_from_old_bytes_new_ones_and_a_bundle() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let mut snapshot = Snapshot::new();
    let (old, new, last) = (bytes(1, 2_000_000), bytes(2, 300_000), bytes(3, 5000));
    // Only the beginning of the old blob is the file's.
    let a = snapshot.blob(&[&old[..], b"not part of it"].concat(), false);
    let b = snapshot.blob(&new, false);
    let mut builder = BundleBuilder::default();
    builder.add(b"something else");
    let (offset, length) = builder.add(&last);
    let c = snapshot.blob(&builder.finish(), true);
    let extents = vec![
        Extent { blob: a, offset: 0, length: old.len() as u64 },
        Extent { blob: b, offset: 0, length: new.len() as u64 },
        Extent { blob: c, offset, length },
    ];
    let data = [old, new, last].concat();
    let file = snapshot.file("MANIFEST-000005", &data, extents);
    let got = cache.fetch_file(&snapshot.store, &snapshot.manifest, &file).unwrap();
    assert!(read_all(&got) == data);
}

#[test]
fn a_large_file_comes_by_several_requests() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let mut snapshot = Snapshot::new();
    let data = bytes(1, 33 << 20);
    let file = snapshot.whole("1.sst", &data);
    assert!(read_all(&cache.fetch_file(&snapshot.store, &snapshot.manifest, &file).unwrap()) == data);
    assert_eq!(snapshot.gets(), 5);
}

#[test]
fn many_threads_that_want_one_file_cost_one_get() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let mut snapshot = Snapshot::new();
    let data = bytes(1, 7 << 20);
    let file = snapshot.whole("1.sst", &data);
    let barrier = std::sync::Barrier::new(8);
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                barrier.wait();
                let got = cache.fetch_file(&snapshot.store, &snapshot.manifest, &file).unwrap();
                assert!(read_all(&got) == data);
            });
        }
    });
    assert_eq!(snapshot.gets(), 1);
    assert_eq!(files_in(&cache).len(), 1);
}

#[test]
fn processes_that_want_one_file_end_with_one_right_entry() {
    let dir = temp();
    let first = cache_in(dir.path());
    // A cache that is opened again shares nothing with the first one but the disk.
    let caches: Vec<Cache> =
        (0..4).map(|_| Cache::open(first.path(), CacheOptions { create: false }).unwrap()).collect();
    let mut snapshot = Snapshot::new();
    let data = bytes(1, 5 << 20);
    let file = snapshot.whole("1.sst", &data);
    let barrier = std::sync::Barrier::new(4);
    std::thread::scope(|s| {
        for cache in &caches {
            let (barrier, snapshot, file, data) = (&barrier, &snapshot, &file, &data);
            s.spawn(move || {
                barrier.wait();
                let got = cache.fetch_file(&snapshot.store, &snapshot.manifest, file).unwrap();
                assert!(read_all(&got) == *data);
            });
        }
    });
    assert_eq!(files_in(&first), vec![entry_path(&first, &file.digest)]);
}

#[test]
fn damage_in_the_store_is_named_and_nothing_of_it_stays() {
    let dir = temp();
    let cache = cache_in(dir.path());
    for large in [false, true] {
        let data = bytes(1, if large { 20 << 20 } else { 500_000 });
        let spoil: [fn(&mut Vec<u8>); 4] = [
            |d| d[400_000] ^= 1,
            |d| d.truncate(499_999),
            |d| d.clear(),
            // A server's error page in place of the bytes.
            |d| d[100..110].copy_from_slice(b"<Error>503"),
        ];
        for how in spoil {
            let mut snapshot = Snapshot::new();
            let file = snapshot.whole("000007.sst", &data);
            snapshot.spoil(0, how);
            let e = cache.fetch_file(&snapshot.store, &snapshot.manifest, &file).unwrap_err();
            assert!(matches!(root_of(&e), CacheError::Damaged { .. }), "{e}");
            assert_eq!(e.kind(), Kind::Damage);
            let said = e.to_string();
            for part in ["db/000007.sst", "app/chk-42/db/0", snapshot.key(0).as_str()] {
                assert!(said.contains(part), "{said}");
            }
            assert_eq!(files_in(&cache), Vec::<PathBuf>::new());
            // Repaired, it can be had.
            snapshot.memory.plant(snapshot.key(0).as_str(), data.clone());
            cache.fetch_file(&snapshot.store, &snapshot.manifest, &file).unwrap();
            fs::remove_file(entry_path(&cache, &file.digest)).unwrap();
        }
    }
    let mut snapshot = Snapshot::new();
    let file = snapshot.whole("1.sst", &bytes(2, 1000));
    snapshot.store.delete(&snapshot.key(0)).unwrap();
    let e = cache.fetch_file(&snapshot.store, &snapshot.manifest, &file).unwrap_err();
    assert!(matches!(root_of(&e), CacheError::Absent { .. }), "{e}");
    assert!(e.to_string().contains(snapshot.key(0).as_str()) && e.to_string().contains("app/chk-42/db/0"), "{e}");
}

#[test]
fn another_upload_of_the_same_bytes_helps_out_while_the_first_is_damaged() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let data = bytes(1, 1 << 20);
    let mut damaged = Snapshot::new();
    let mut whole = Snapshot::new();
    let (bad, good) = (damaged.whole("1.sst", &data), whole.whole("9.sst", &data));
    damaged.spoil(0, |d| d[0] ^= 1);
    let barrier = std::sync::Barrier::new(8);
    std::thread::scope(|s| {
        for n in 0..8 {
            let (barrier, cache, damaged, whole, bad, good, data) =
                (&barrier, &cache, &damaged, &whole, &bad, &good, &data);
            s.spawn(move || {
                barrier.wait();
                if n % 2 == 0 {
                    // Either it is told, or the other upload was faster.
                    if let Ok(got) = cache.fetch_file(&damaged.store, &damaged.manifest, bad) {
                        assert!(read_all(&got) == *data);
                    }
                } else {
                    let got = cache.fetch_file(&whole.store, &whole.manifest, good).unwrap();
                    assert!(read_all(&got) == *data);
                }
            });
        }
    });
}

#[test]
fn manifests_that_lie_are_refused() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let mut snapshot = Snapshot::new();
    let data = bytes(1, 10_000);
    let blob = snapshot.blob(&data, false);
    let other = snapshot.blob(b"another blob", false);
    let bundle = snapshot.bundled(&[("CURRENT", b"MANIFEST-000001\n")]).remove(0);
    let part = |blob, offset, length| vec![Extent { blob, offset, length }];
    let lies: Vec<(u64, Digest, Vec<Extent>)> = vec![
        (10_000, Digest::of(b"?"), part(blob, 0, 10_000)),
        (9_999, Digest::of(&data), part(blob, 0, 10_000)),
        (10_001, Digest::of(&data), part(blob, 0, 10_000)),
        (9_999, Digest::of(&data), part(blob, 0, 9_999)),
        (10_000, Digest::of(&data), part(blob, 1, 10_000)),
        (10_000, Digest::of(&data), part(blob, u64::MAX, 10_000)),
        (10_000, Digest::of(&data), part(99, 0, 10_000)),
        (u64::MAX, Digest::of(&data), part(blob, 0, u64::MAX)),
        (12, Digest::of(&data), part(other, 0, 12)),
        (0, Digest::of(&data), vec![]),
        (1 << 40, bundle.digest, vec![Extent { length: 1 << 40, ..bundle.extents[0] }]),
    ];
    for (size, digest, extents) in lies {
        let file = FileEntry { size, digest, extents, ..bundle.clone() };
        let e = cache.fetch_file(&snapshot.store, &snapshot.manifest, &file).unwrap_err();
        assert_eq!(e.kind(), Kind::Damage, "{e}");
        assert!(!entry_path(&cache, &digest).exists());
    }
}

#[test]
fn a_file_that_is_its_own_bundle_does_not_wait_for_itself() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let mut snapshot = Snapshot::new();
    snapshot.bundled(&[("CURRENT", b"MANIFEST-000001\n")]);
    let data = snapshot.object(0);
    let extents = vec![Extent { blob: 0, offset: 0, length: data.len() as u64 }];
    let file = snapshot.file("odd", &data, extents);
    assert!(read_all(&cache.fetch_file(&snapshot.store, &snapshot.manifest, &file).unwrap()) == data);
}

#[test]
fn bundles_cost_one_get_each_and_are_unpacked() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let mut snapshot = Snapshot::new();
    let small: Vec<(String, Vec<u8>)> = (0..50).map(|n| (format!("{n:06}.sst"), bytes(n, 3000))).collect();
    let named: Vec<(&str, &[u8])> = small.iter().map(|(n, d)| (n.as_str(), &d[..])).collect();
    snapshot.bundled(&named[..30]);
    snapshot.bundled(&named[30..]);
    snapshot.bundled(&[("CURRENT", b"MANIFEST-000001\n"), ("EMPTY", b"")]);
    let large = snapshot.whole("large.sst", &bytes(100, 200_000));
    cache.fetch_bundles(&snapshot.store, &snapshot.manifest).unwrap();
    assert_eq!(snapshot.gets(), 3);
    assert!(cache.open_complete(&large.digest, large.size).unwrap().is_none());
    for file in snapshot.manifest.files.iter().filter(|f| f.path != large.path) {
        assert!(cache.open_complete(&file.digest, file.size).unwrap().is_some(), "{}", file.path);
    }
    // Sections, and then everything again, without the store.
    for blob in 0..3 {
        snapshot.store.delete(&snapshot.key(blob)).unwrap();
    }
    let current = snapshot.manifest.files[50].extents[0];
    assert_eq!(cache.read_extent(&snapshot.store, &snapshot.manifest, &current).unwrap(), b"MANIFEST-000001\n");
    cache.fetch_bundles(&snapshot.store, &snapshot.manifest).unwrap();
    let later = Cache::open(cache.path(), CacheOptions { create: false }).unwrap();
    later.fetch_bundles(&snapshot.store, &snapshot.manifest).unwrap();
    for file in &snapshot.manifest.files[..50] {
        let got = later.fetch_file(&snapshot.store, &snapshot.manifest, file).unwrap();
        assert_eq!(Digest::of(&read_all(&got)), file.digest);
    }

    let length = snapshot.manifest.blobs[2].length;
    for (blob, offset, n) in [(3, 0, 10), (9, 8, 1), (2, 0, 8), (2, 8, length), (2, u64::MAX, 2), (2, 8, u64::MAX)] {
        let e =
            cache.read_extent(&snapshot.store, &snapshot.manifest, &Extent { blob, offset, length: n }).unwrap_err();
        assert_eq!(e.kind(), Kind::Damage, "{e}");
    }
}

#[test]
fn a_damaged_bundle_gives_nothing() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let mut snapshot = Snapshot::new();
    let (a, b) = (bytes(1, 5000), bytes(2, 5000));
    let files = snapshot.bundled(&[("a", &a), ("b", &b)]);
    // The bit is in b: not even a, which is whole, is taken out of it.
    snapshot.spoil(0, |d| *d.last_mut().unwrap() ^= 1);
    assert_eq!(cache.fetch_bundles(&snapshot.store, &snapshot.manifest).unwrap_err().kind(), Kind::Damage);
    assert_eq!(cache.fetch_file(&snapshot.store, &snapshot.manifest, &files[0]).unwrap_err().kind(), Kind::Damage);
    let section = files[0].extents[0];
    assert_eq!(cache.read_extent(&snapshot.store, &snapshot.manifest, &section).unwrap_err().kind(), Kind::Damage);
    assert_eq!(files_in(&cache), Vec::<PathBuf>::new());
    // A bundle that rots here is fetched anew.
    snapshot.spoil(0, |d| *d.last_mut().unwrap() ^= 1);
    cache.fetch_bundles(&snapshot.store, &snapshot.manifest).unwrap();
    let bundle = entry_path(&cache, &snapshot.manifest.blobs[0].name.digest);
    std::thread::sleep(std::time::Duration::from_millis(20));
    File::options().write(true).open(bundle).unwrap().write_all_at(b"rot", 40).unwrap();
    assert_eq!(cache.read_extent(&snapshot.store, &snapshot.manifest, &section).unwrap(), a);
}

#[test]
fn task_manifests_are_kept_by_digest_and_believed_by_digest() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let mut snapshot = Snapshot::new();
    snapshot.whole("1.sst", &bytes(1, 1000));
    let object = encode(&snapshot.manifest).unwrap();
    let subtask = snapshot.subtask(&object);
    let (job, number): (Name, _) = ("app".parse().unwrap(), 42.try_into().unwrap());
    let key = Key::task(&job, number, &subtask.operator, 0);
    let get = |cache: &Cache| cache.task_manifest(&snapshot.store, &job, number, &subtask);

    let e = get(&cache).unwrap_err();
    assert!(matches!(e, CacheError::Absent { .. }) && e.to_string().contains(key.as_str()), "{e}");
    snapshot.memory.plant(key.as_str(), object.clone());
    let before = snapshot.gets();
    let first = get(&cache).unwrap();
    assert_eq!(*first, snapshot.manifest);
    assert!(Arc::ptr_eq(&first, &get(&cache).unwrap()));
    let later = || Cache::open(cache.path(), CacheOptions { create: false }).unwrap();
    assert_eq!(*get(&later()).unwrap(), snapshot.manifest);
    assert_eq!(snapshot.gets(), before + 1);
    assert_eq!(cache.manifest_bytes(&subtask.manifest).unwrap().as_deref(), Some(&object[..]));

    // Rotten here: fetched anew. Rotten there: named.
    let kept = cache.path().join("manifests").join(subtask.manifest.to_hex());
    for rot in [&b"rot"[..], b""] {
        fs::write(&kept, rot).unwrap();
        assert_eq!(*get(&later()).unwrap(), snapshot.manifest);
        assert!(fs::read(&kept).unwrap() == object);
    }
    fs::remove_file(&kept).unwrap();
    let mut bad = object.clone();
    let at = bad.len() - 10;
    bad[at] ^= 1;
    snapshot.memory.plant(key.as_str(), bad);
    let e = get(&later()).unwrap_err();
    assert!(matches!(e, CacheError::Damaged { .. }) && e.kind() == Kind::Damage, "{e}");
    assert!(!kept.exists());

    // The right bytes of another number are refused, known or not.
    let elsewhere = 43.try_into().unwrap();
    snapshot.memory.plant(Key::task(&job, elsewhere, &subtask.operator, 0).as_str(), object.clone());
    for cache in [&cache, &later()] {
        let e = cache.task_manifest(&snapshot.store, &job, elsewhere, &subtask).unwrap_err();
        assert!(matches!(e, CacheError::Format { .. }) && e.kind() == Kind::Damage, "{e}");
    }
    cache.put_manifest(&subtask.manifest, &object).unwrap();
    assert!(cache.put_manifest(&subtask.manifest, b"other").is_err());
    assert!(first.check().is_ok());
}
