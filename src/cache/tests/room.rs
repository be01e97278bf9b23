//! Room: a full disk, and what goes first when the cache is over its limit.

use super::*;
use crate::error::Kind;

#[test]
fn a_full_disk_is_said_and_leaves_nothing_behind() {
    let disk = Mounted::new("tmpfs", "size=2m,mode=0700");
    let cache = cache_in(disk.0.path());
    let mut snapshot = Snapshot::new();
    let large = snapshot.whole("large.sst", &bytes(1, 20 << 20));
    let medium = snapshot.whole("medium.sst", &bytes(2, 4 << 20));
    let small = snapshot.whole("small.sst", &bytes(3, 600_000));
    let packed = bytes(4, 3 << 20);
    let packed_file = snapshot.bundled(&[("packed", &packed)]).remove(0);
    let full = |e: &CacheError| {
        assert!(matches!(root_of(e), CacheError::NoSpace { .. }), "{e}");
        assert!(e.is_no_space() && e.kind() == Kind::Resources);
        let said = e.to_string();
        assert!(said.contains(&cache.path().display().to_string()) && said.contains("--cache-size"), "{said}");
        assert_eq!(files_in(&cache), Vec::<PathBuf>::new());
    };
    for file in [&large, &medium] {
        full(&cache.fetch_file(&snapshot.store, &snapshot.manifest, file).unwrap_err());
    }
    full(&cache.fetch_bundles(&snapshot.store, &snapshot.manifest).unwrap_err());
    full(&cache.put_bytes(&Digest::of(&packed), &packed).unwrap_err());
    let dir = temp();
    fs::write(dir.path().join("x"), &packed).unwrap();
    full(&cache.link_in(&File::open(dir.path().join("x")).unwrap(), &Digest::of(&packed)).unwrap_err());
    // Whoever reads it is given it all the same, as long as it is small enough to be held.
    for (file, right) in [(&medium, bytes(2, 4 << 20)), (&packed_file, packed.clone())] {
        let read = cache.fetch_to_read(&snapshot.store, &snapshot.manifest, file).unwrap();
        assert!(read_all(&read) == right, "{}", file.path);
        assert_eq!(files_in(&cache), Vec::<PathBuf>::new());
    }
    // What was tried took nothing: what fits, fits.
    cache.fetch_file(&snapshot.store, &snapshot.manifest, &small).unwrap();
    assert_eq!(files_in(&cache).len(), 1);
}

/// Sets when a file was last used, as another process would have written it.
fn used(cache: &Cache, digest: &Digest, at: u64) {
    let path = cache.path().join("uses");
    let mut all = fs::read(&path).unwrap_or_default();
    all.extend_from_slice(digest.as_bytes());
    all.extend_from_slice(&at.to_le_bytes());
    fs::write(path, all).unwrap();
}

/// Nothing but the size counts: the disk of the tests may be as full as it likes.
fn limit(cache: &Cache, size: u64) -> Evicted {
    cache.set_limits(CacheLimits { size: Some(size), free: Some(0) }).unwrap();
    cache.make_room().unwrap().unwrap()
}

fn there(cache: &Cache, digests: &[Digest]) -> Vec<bool> {
    digests.iter().map(|d| entry_path(cache, d).exists()).collect()
}

#[test]
fn the_least_recently_used_goes_first_and_what_is_open_or_linked_elsewhere_stays() {
    let dir = temp();
    let writer = cache_in(dir.path());
    let digests: Vec<Digest> = (0..6)
        .map(|n| {
            let data = bytes(n, 100_000);
            writer.put_bytes(&Digest::of(&data), &data).unwrap();
            Digest::of(&data)
        })
        .collect();
    // A live database's file, the oldest of all and larger than the limit.
    let linked = bytes(9, 1_000_000);
    fs::write(dir.path().join("db.sst"), &linked).unwrap();
    writer.link_in(&File::open(dir.path().join("db.sst")).unwrap(), &Digest::of(&linked)).unwrap();

    let cache = Cache::open(writer.path(), CacheOptions { create: false }).unwrap();
    for (n, digest) in (0..).zip(&digests) {
        used(&cache, digest, 1000 + n);
    }
    used(&cache, &Digest::of(&linked), 1);
    // The second oldest was used just now, the third is open somewhere.
    assert!(cache.open_complete(&digests[1], 100_000).unwrap().is_some());
    let open = File::open(entry_path(&cache, &digests[2])).unwrap();

    let each = fs::metadata(entry_path(&cache, &digests[0])).unwrap().blocks() * 512;
    assert!(each >= 100_000);
    assert_eq!(limit(&cache, 6 * each), Evicted { files: 0, bytes: 0, left: 6 * each });
    // Some more goes than must: a sixteenth of what was there.
    let done = limit(&cache, 4 * each);
    assert_eq!(done, Evicted { files: 3, bytes: 3 * each, left: 3 * each });
    assert_eq!(there(&cache, &digests), [false, true, true, false, false, true]);
    assert!(entry_path(&cache, &Digest::of(&linked)).exists());
    assert_eq!(cache.counters().evicted_files.get(), 3);

    // What was learned is there for the next process, the limit too: the one that was open, and the one used now, go last.
    drop(open);
    let next = Cache::open(writer.path(), CacheOptions { create: false }).unwrap();
    assert_eq!(next.limits(), CacheLimits { size: Some(4 * each), free: Some(0) });
    limit(&next, 3 * each - 1);
    assert_eq!(there(&cache, &digests), [false, true, true, false, false, false]);
    // Once the database has deleted it, it counts and can go.
    fs::remove_file(dir.path().join("db.sst")).unwrap();
    assert_eq!(limit(&next, 0).left, 0);
    assert_eq!(files_in(&cache), Vec::<PathBuf>::new());
}

#[test]
fn a_file_that_another_process_has_open_stays_until_it_is_closed() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let data = bytes(1, 200_000);
    cache.put_bytes(&Digest::of(&data), &data).unwrap();
    let open = cache.open_complete(&Digest::of(&data), data.len() as u64).unwrap().unwrap();
    let mut other = std::process::Command::new("sleep").arg("60").stdin(open).spawn().unwrap();
    assert_eq!(limit(&cache, 0).files, 0);
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(limit(&cache, 0).files, 1);
}

#[test]
fn the_disk_must_keep_what_it_was_promised() {
    let disk = Mounted::new("tmpfs", "size=64m,nr_inodes=400,mode=0700");
    let cache = cache_in(disk.0.path());
    let put = |n: u64, size: usize| {
        let data = bytes(n, size);
        cache.put_bytes(&Digest::of(&data), &data).unwrap();
    };
    let free = || crate::local::process::statvfs(cache.path()).unwrap();
    cache.set_limits(CacheLimits { size: None, free: Some(20 << 20) }).unwrap();
    for n in 0..12 {
        put(n, 4 << 20);
    }
    assert!(free().available < 20 << 20);
    let done = cache.make_room().unwrap().unwrap();
    assert!(free().available >= 20 << 20 && done.left >= 24 << 20, "{done:?}");
    // A twentieth by default.
    cache.set_limits(CacheLimits::default()).unwrap();
    assert_eq!(cache.make_room().unwrap(), None);
    for n in 100..105 {
        put(n, 4 << 20);
    }
    cache.make_room().unwrap();
    assert!(free().available >= (64 << 20) / 20);
    // So must the inodes.
    cache.set_limits(CacheLimits { size: Some(0), free: Some(0) }).unwrap();
    cache.make_room().unwrap();
    cache.set_limits(CacheLimits { size: None, free: Some(0) }).unwrap();
    let most = free().free_inodes;
    for n in 0.. {
        if free().free_inodes < 12 {
            break;
        }
        put(1000 + n, 100);
    }
    let done = cache.make_room().unwrap().unwrap();
    assert!(free().free_inodes >= 20 && done.files >= 8 && done.files < most, "{done:?}");
}

#[test]
fn damaged_limits_leave_the_disks_own() {
    let dir = temp();
    let cache = cache_in(dir.path());
    limit(&cache, 1 << 30);
    fs::write(cache.path().join("limits.json"), b"{\"size\":tru").unwrap();
    let cache = Cache::open(cache.path(), CacheOptions { create: false }).unwrap();
    assert_eq!(cache.limits(), CacheLimits::default());
}

#[test]
fn a_damaged_note_of_uses_harms_nothing() {
    let dir = temp();
    let cache = cache_in(dir.path());
    cache.put_bytes(&Digest::of(b"x"), b"x").unwrap();
    for junk in [&b""[..], b"short", &[0xff; 40 * 3 + 7], &[0; 40 * 5000]] {
        fs::write(cache.path().join("uses"), junk).unwrap();
        assert_eq!(limit(&cache, 1 << 40).files, 0);
    }
    assert_eq!(limit(&cache, 0).files, 1);
}
