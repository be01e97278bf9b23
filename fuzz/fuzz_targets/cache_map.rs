//! What a cache reads from its own disk, which a crash or another program may have damaged: by the first byte its record, its limits, its
//! list of uses, a clone's note, an inode's record, a file's hash tree. It opens or says why not; it never believes wrong bytes.
#![no_main]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use ckptfs::cache::tree::{hash_and_tree, tree_len, verify_group, verify_range, verify_tree, whole_groups};
use ckptfs::cache::{Cache, CacheLimits, CacheOptions};
use ckptfs::local::identity;
use ckptfs::local::xattr;
use ckptfs::types::{Digest, Uid};
use libfuzzer_sys::fuzz_target;

const GROUP: usize = 64 << 10;

/// A cache that is made once; each input damages one of its files, and the next puts it right.
struct Bed {
    dir: PathBuf,
    record: Vec<u8>,
    kept: Vec<u8>,
}

static BED: LazyLock<Bed> = LazyLock::new(|| {
    let place = Path::new("/dev/shm");
    let place = if place.is_dir() { place.to_owned() } else { std::env::temp_dir() };
    let dir = place.join(format!("ckptfs-fuzz-cache-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    let cache = Cache::open(&dir, CacheOptions { create: true }).unwrap();
    let kept = vec![7; 70_000];
    cache.put_bytes(&Digest::of(&kept), &kept).unwrap();
    let record = fs::read(dir.join("cache.json")).unwrap();
    Bed { dir, record, kept }
});

fn open() -> Option<Cache> {
    match Cache::open(&BED.dir, CacheOptions { create: true }) {
        Ok(cache) => Some(cache),
        Err(e) => {
            assert!(!e.to_string().is_empty());
            None
        }
    }
}

fn put(name: &str, bytes: &[u8]) {
    let path = BED.dir.join(name);
    let _ = fs::remove_file(&path);
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// With a damaged file of its own the cache serves what it has.
fn serves(name: &str, bytes: &[u8], then: impl FnOnce(&Cache)) {
    put(name, bytes);
    ckptfs_fuzz::bounded(bytes.len(), || {
        let Some(cache) = open() else { return };
        then(&cache);
    });
    let _ = fs::remove_file(BED.dir.join(name));
}

fn inode_record(value: &[u8]) {
    let digest = Digest::of(&BED.kept);
    // Named by a digest that it has not: the record must not make it believed.
    let wrong = Digest::of(value);
    let dir = BED.dir.join("files").join(&wrong.to_hex()[..2]);
    fs::create_dir_all(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    let path = dir.join(wrong.to_hex());
    let other = [value, b"!"].concat();
    fs::write(&path, &other).unwrap();
    let file = fs::File::open(&path).unwrap();
    if xattr::set(&file, identity::ATTRIBUTE, value).is_ok() {
        ckptfs_fuzz::bounded(value.len(), || {
            assert_eq!(identity::recorded(&file).unwrap(), None, "a made-up record is believed");
            let cache = open().unwrap();
            assert!(cache.open_complete(&wrong, other.len() as u64).unwrap().is_none(), "wrong bytes are served");
            assert!(cache.has(&digest, BED.kept.len() as u64).unwrap());
        });
    }
    // Its directory may be that of what is kept.
    let _ = fs::remove_file(&path);
}

fn tree(data: &[u8]) {
    let Some((numbers, tree)) = data.split_first_chunk::<16>() else { return };
    let [size, offset] = [&numbers[..8], &numbers[8..]].map(|n| u64::from_be_bytes(n.try_into().unwrap()));
    let root = Digest::of(tree);
    ckptfs_fuzz::bounded(data.len(), || {
        let (start, length) = whole_groups(size, offset, 1);
        assert!(start.checked_add(length).is_some_and(|end| end <= size) || length == 0);
        let _ = tree_len(size);
        // No tree of a size that fits is one of a digest that was not made from it, but that of a single group.
        assert!(verify_tree(&root, size, tree).is_err() || size <= GROUP as u64);
        assert!(verify_range(&root, size, tree, offset, data).is_err());
        let small = &data[..data.len().min(GROUP)];
        assert!(verify_group(&root, size, tree, offset / GROUP as u64, small).is_err());
    });
    // A right tree with one change is a wrong one.
    let bytes = [data, &vec![1; 2 * GROUP]].concat();
    let (digest, mut right) = hash_and_tree(&bytes);
    verify_tree(&digest, bytes.len() as u64, &right).unwrap();
    let at = usize::try_from(offset % right.len() as u64).unwrap();
    right[at] ^= 1 + numbers[0] % 255;
    let changed = 1 + numbers[0] % 255 != 0;
    assert!(!changed || verify_tree(&digest, bytes.len() as u64, &right).is_err());
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    LazyLock::force(&BED);
    match kind % 6 {
        0 => {
            put("cache.json", bytes);
            ckptfs_fuzz::bounded(bytes.len(), || drop(open()));
            put("cache.json", &BED.record);
        }
        1 => serves("limits.json", bytes, |cache| assert_eq!(cache.limits(), cache.limits())),
        2 => serves("uses", bytes, |cache| {
            // Looks at the uses, and has no reason to throw anything away.
            cache.set_limits(CacheLimits { size: Some(1 << 40), free: Some(0) }).unwrap();
            cache.make_room().unwrap();
            cache.save_uses().unwrap();
            assert!(cache.has(&Digest::of(&BED.kept), BED.kept.len() as u64).unwrap());
        }),
        3 => {
            let nonce = Uid::from_bytes([3; 16]);
            serves(&format!("clones/{nonce}.json"), bytes, |cache| {
                for mark in cache.clones().unwrap() {
                    assert_eq!(mark.nonce, nonce);
                    assert_eq!(cache.clone_noted(nonce).unwrap(), Some(mark));
                }
            });
        }
        4 => inode_record(bytes),
        _ => tree(bytes),
    }
    let _ = fs::remove_file(BED.dir.join("limits.json"));
});
