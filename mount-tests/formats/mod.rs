//! Stored formats are for ever: every committed fixture decodes to the values that it was made of, those encode to its bytes, and one
//! flipped bit anywhere in it is refused. `docs/FORMAT.md` shows the same bytes.

mod examples;

use std::fmt::Debug;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use ckptfs::cache::tree;
use ckptfs::error::Kind;
use ckptfs::format::header::{Record, encode_requiring};
use ckptfs::format::{Intent, TaskManifest, Verdict, bundle, decode, decode_at, encode, signature};
use ckptfs::types::{Digest, Extent, Key, KeyRing};

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("mount-tests/fixtures/format").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn bits(bytes: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> {
    let bytes = bytes.to_vec();
    (0..bytes.len() * 8).map(move |bit| {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        (bit, flipped)
    })
}

fn holds<R: Record + PartialEq + Debug>(name: &str, (key, record): &(Key, R)) {
    let stored = fixture(name);
    let decoded = decode_at::<R>(key, &stored).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(decoded.record, *record, "{name}");
    assert!(decoded.blocks_writing.is_empty(), "{name}");
    let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
    assert_eq!(text(&encode(record).unwrap()), text(&stored), "{name}");

    for (bit, flipped) in bits(&stored) {
        let refused = decode_at::<R>(key, &flipped).map(|d| d.record);
        assert!(refused.is_err(), "{name}: bit {bit} flipped was believed");
    }
    for length in 0..stored.len() {
        assert!(decode::<R>(&stored[..length]).is_err(), "{name}: {length} bytes of it were believed");
    }
    let more = [&stored[..], b"\n"].concat();
    assert_eq!(decode::<R>(&more).unwrap_err().kind(), Kind::Damage, "{name}: a byte more was believed");

    // Whole, but at another's place.
    let elsewhere = Key::expired(&ckptfs::types::Name::encode("other"), examples::number(1));
    assert_eq!(decode_at::<R>(&elsewhere, &stored).unwrap_err().kind(), Kind::Damage, "{name}");
}

#[test]
fn store_record() {
    holds("store-1.json", &examples::store());
}

#[test]
fn epoch() {
    holds("epoch-1.json", &examples::epoch());
}

#[test]
fn intent() {
    holds("intent-1.json", &examples::intent());
    let (key, intent) = examples::intent();
    holds("intent-1-labels.json", &(key, Intent { labels: examples::labels(), ..intent }));
}

#[test]
fn task_manifest() {
    holds("task-manifest-1.json", &examples::task());
}

#[test]
fn outcomes() {
    holds("outcome-1-completed.json", &examples::completed());
    holds("outcome-1-aborted.json", &examples::aborted());
    let (key, mut labelled) = examples::completed();
    let Verdict::Completed(manifest) = &mut labelled.verdict else { panic!("it is completed") };
    manifest.labels = examples::labels();
    holds("outcome-1-labels.json", &(key, labelled));
    let (key, mut timed) = examples::completed();
    let Verdict::Completed(manifest) = &mut timed.verdict else { panic!("it is completed") };
    manifest.phases = examples::phases();
    holds("outcome-1-phases.json", &(key, timed));
}

#[test]
fn hidden_and_expired() {
    holds("hidden-1.json", &examples::hidden());
    holds("expired-1.json", &examples::expired());
}

#[test]
fn pins() {
    for (name, holder) in examples::holders() {
        holds(&format!("pin-1-{name}.json"), &examples::pin(holder));
    }
}

#[test]
fn floor_and_head() {
    holds("floor-1.json", &examples::floor());
    holds("head-1.json", &examples::head());
}

/// Signed records: what is signed is the unsigned object, so an old reader finds the same record, and every bit counts for whoever has the key.
/// The fixtures were made by another program after the words of `docs/FORMAT.md`.
fn signed<R: Record + PartialEq + Debug>(name: &str, (key, record): &(Key, R), requires_write: &[&str]) {
    let stored = fixture(name);
    let decoded = decode_at::<R>(key, &stored).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(
        (&decoded.record, decoded.blocks_writing),
        (record, requires_write.iter().map(|s| (*s).to_owned()).collect())
    );
    let ring = KeyRing::parse(&examples::SIGNING_KEY).unwrap();
    let unsigned = encode_requiring(record, &[], requires_write).unwrap();
    let made = signature::sign(&unsigned, &ring, examples::STORE, key).unwrap();
    assert_eq!(String::from_utf8(made).unwrap(), String::from_utf8(stored.clone()).unwrap(), "{name}");
    signature::verify(&stored, &ring, examples::STORE, key).unwrap();
    for (bit, flipped) in bits(&stored) {
        assert!(signature::verify(&flipped, &ring, examples::STORE, key).is_err(), "{name}: bit {bit}");
    }
    assert!(signature::verify(&unsigned, &ring, examples::STORE, key).is_err());
    assert!(signature::verify(&stored, &ring, examples::CHK_42, key).is_err(), "another store");
    let elsewhere = Key::expired(&ckptfs::types::Name::encode("other"), examples::number(1));
    assert!(signature::verify(&stored, &ring, examples::STORE, &elsewhere).is_err(), "another place");
}

#[test]
fn signed_records() {
    signed("store-1-signed.json", &examples::store(), &["signature"]);
    signed("expired-1-signed.json", &examples::expired(), &[]);
}

/// The bytes that an extent of the example's manifest means.
fn bytes_at<'a>(bundles: &'a [(u32, Vec<u8>)], extent: &Extent) -> Option<&'a [u8]> {
    let (_, bundle) = bundles.iter().find(|(blob, _)| *blob == extent.blob)?;
    bundle::section(bundle, extent.offset, extent.length)
}

#[test]
fn bundles() {
    let (built, task) = examples::bundle_and_task();
    let bundles = [(1, fixture("bundle-1.bin")), (2, fixture("base-bundle-1.bin"))];
    assert_eq!(bundles[0].1, built);
    assert_eq!(bundles[1].1, examples::base_bundle());
    for (blob, bytes) in &bundles {
        let entry = task.blobs[*blob as usize];
        assert!(entry.bundle && entry.length == bytes.len() as u64 && entry.name.digest == Digest::of(bytes));
        // A bundle is believed as a whole, by its name.
        for (bit, flipped) in bits(bytes) {
            assert_ne!(entry.name.digest, Digest::of(&flipped), "bit {bit}");
        }
    }
    for (path, content) in examples::small_files() {
        let file = task.file(path).unwrap();
        let found: Vec<u8> = file.extents.iter().flat_map(|e| bytes_at(&bundles, e).unwrap()).copied().collect();
        assert_eq!((found.as_slice(), Digest::of(&found)), (content.as_slice(), file.digest), "{path}");
    }
}

#[test]
fn hash_tree_and_tail() {
    let (_, task) = examples::bundle_and_task();
    let bundles = [(1, fixture("bundle-1.bin"))];
    let file = task.file("db/000009.sst").unwrap();
    let sst = examples::sst();
    let stored = bytes_at(&bundles, &file.tree.unwrap()).unwrap();
    assert_eq!((file.digest, stored), (Digest::of(&sst), tree::hash_and_tree(&sst).1.as_slice()));
    let tail = file.tail.unwrap();
    let copy = bytes_at(&bundles, &tail.extent).unwrap();
    assert_eq!(copy, &sst[usize::try_from(tail.start).unwrap()..]);
    // The tail starts on a group boundary, so tree and digest verify it without the rest of the file.
    let believed = |tree: &[u8], bytes: &[u8]| tree::verify_range(&file.digest, file.size, tree, tail.start, bytes);
    believed(stored, copy).unwrap();
    for (bit, flipped) in bits(copy).step_by(61) {
        assert!(believed(stored, &flipped).is_err(), "bit {bit} of the tail");
    }
    for (bit, flipped) in bits(&stored[..64]) {
        assert!(believed(&flipped, copy).is_err(), "bit {bit} of the tree");
    }
}

/// The record on an inode, derived from the words of `docs/FORMAT.md` alone.
#[test]
fn inode_record() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("000009.sst");
    std::fs::write(&path, b"immutable").unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let digest = Digest::of(b"immutable");
    assert!(
        ckptfs::local::identity::record(&file, &digest).unwrap(),
        "this file system keeps no user xattrs or birth times"
    );
    let stat = file.metadata().unwrap();
    let born = stat.created().unwrap().duration_since(UNIX_EPOCH).unwrap();
    let mut checked = b"ckptfs inode record 1\0".to_vec();
    checked.extend(digest.as_bytes());
    checked.extend(stat.size().to_le_bytes());
    checked.extend(stat.ino().to_le_bytes());
    checked.extend(stat.mtime().to_le_bytes());
    checked.extend(u32::try_from(stat.mtime_nsec()).unwrap().to_le_bytes());
    checked.extend(i64::try_from(born.as_secs()).unwrap().to_le_bytes());
    checked.extend(born.subsec_nanos().to_le_bytes());
    let expected = [&[1], &digest.as_bytes()[..], &Digest::of(&checked).as_bytes()[..16]].concat();
    let found = ckptfs::local::xattr::get(&file, "user.ckptfs.id").unwrap().unwrap();
    assert_eq!((found.len(), found.as_slice()), (49, expected.as_slice()));
    for (bit, flipped) in bits(&found) {
        ckptfs::local::xattr::set(&file, "user.ckptfs.id", &flipped).unwrap();
        assert_eq!(ckptfs::local::identity::recorded(&file).unwrap(), None, "bit {bit}");
    }
}

#[test]
fn the_document_shows_every_fixture() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(root.join("docs/FORMAT.md")).unwrap();
    let mut shown = 0;
    for entry in std::fs::read_dir(root.join("mount-tests/fixtures/format")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(document.contains(&name), "docs/FORMAT.md does not name {name}");
        if name.ends_with(".json") {
            let text = String::from_utf8(fixture(&name)).unwrap();
            assert!(document.contains(&text), "docs/FORMAT.md does not show {name} as it is");
            shown += 1;
        }
    }
    assert_eq!(shown, 19);
}

#[test]
fn a_manifest_is_found_by_path() {
    let stored = fixture("task-manifest-1.json");
    let task = decode::<TaskManifest>(&stored).unwrap().record;
    assert!(task.file("db/CURRENT").is_some() && task.file("db/NOPE").is_none());
}
