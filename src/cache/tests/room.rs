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
    snapshot.bundled(&[("packed", &packed)]);
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

#[test]
fn the_least_recently_used_goes_first_and_what_is_kept_or_linked_elsewhere_stays() {
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
    // The second oldest is used now.
    assert!(cache.open_complete(&digests[1], 100_000).unwrap().is_some());

    let each = fs::metadata(entry_path(&cache, &digests[0])).unwrap().blocks() * 512;
    assert!(each >= 100_000);
    assert_eq!(cache.used_bytes().unwrap(), 6 * each);
    assert_eq!(cache.evict_to(6 * each, &|_| false).unwrap(), Evicted { files: 0, bytes: 0, left: 6 * each });
    let done = cache.evict_to(4 * each - 1, &|d| *d == digests[2]).unwrap();
    assert_eq!(done, Evicted { files: 3, bytes: 3 * each, left: 3 * each });
    let there: Vec<bool> = digests.iter().map(|d| entry_path(&cache, d).exists()).collect();
    assert_eq!(there, [false, true, true, false, false, true]);
    assert!(entry_path(&cache, &Digest::of(&linked)).exists());

    // What was learned is there for the next process: the one used now goes last.
    let next = Cache::open(writer.path(), CacheOptions { create: false }).unwrap();
    next.evict_to(each, &|_| false).unwrap();
    let there: Vec<bool> = digests.iter().map(|d| entry_path(&cache, d).exists()).collect();
    assert_eq!(there, [false, true, false, false, false, false]);
    // Once the database has deleted it, it counts and can go.
    fs::remove_file(dir.path().join("db.sst")).unwrap();
    assert_eq!(next.evict_to(0, &|_| false).unwrap().left, 0);
    assert_eq!(files_in(&cache), Vec::<PathBuf>::new());
}

#[test]
fn a_file_that_was_evicted_while_open_can_still_be_read() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let data = bytes(1, 200_000);
    cache.put_bytes(&Digest::of(&data), &data).unwrap();
    let open = cache.open_complete(&Digest::of(&data), data.len() as u64).unwrap().unwrap();
    assert_eq!(cache.evict_to(0, &|_| false).unwrap().files, 1);
    assert!(cache.open_complete(&Digest::of(&data), data.len() as u64).unwrap().is_none());
    assert!(read_all(&open) == data);
}

#[test]
fn a_damaged_note_of_uses_harms_nothing() {
    let dir = temp();
    let cache = cache_in(dir.path());
    cache.put_bytes(&Digest::of(b"x"), b"x").unwrap();
    for junk in [&b""[..], b"short", &[0xff; 40 * 3 + 7], &[0; 40 * 5000]] {
        fs::write(cache.path().join("uses"), junk).unwrap();
        assert_eq!(cache.evict_to(u64::MAX, &|_| false).unwrap().files, 0);
    }
    assert_eq!(cache.evict_to(0, &|_| false).unwrap().files, 1);
}
