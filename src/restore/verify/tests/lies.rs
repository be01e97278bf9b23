//! Bytes that are not what somebody says of them: of a blob its name, of a section, a tree, a tail or a composed file its manifest.

use super::*;
use crate::cache::tree;
use crate::format::{FileEntry, Tail};
use crate::limits::GROUP;
use crate::restore::tests::{LARGE, Part, World, noise};
use crate::types::{BlobName, Extent};

const FILE: &[(&str, &[&str])] = &[("app/chk-1/db/0", &["db/1.sst"])];

/// A world whose only checkpoint was made like this, and its first blob.
fn world(make: impl FnOnce(&mut Part<'_>)) -> (World, Key) {
    let world = World::new();
    let checkpoint = world.checkpoint("app", make);
    let key = Key::blob(&world.manifest(&checkpoint).blobs[0].name);
    (world, key)
}

#[test]
fn a_byte_that_changed_is_found_by_reading_alone() {
    let (world, bundle) = world(|part| part.database(1));
    let checkpoint = world.session.catalog.latest(&Name::encode("app")).unwrap().unwrap();
    let large = Key::blob(&world.manifest(&checkpoint).blobs[1].name);
    world.flip(&large);
    finds(&look(&world), &[]);
    let digest = |key: &Key| Digest::of(&world.object(key).unwrap());
    let detail = |key: &Key| format!("its bytes have the digest {}", digest(key));
    let hurt: &[(&str, &[&str])] = &[("app/chk-1/db/0", &["db/000007.sst"])];
    let report = read(&world);
    finds_one(&report, FindingKind::Damaged, &large, hurt, &detail(&large));
    assert_eq!(report.reading.blobs, 3);
    world.flip(&large);
    world.flip(&bundle);
    let all: &[&str] = &["db/000004.log", "db/000007.sst", "db/000008.sst", "db/CURRENT"];
    finds_one(&read(&world), FindingKind::Damaged, &bundle, &[("app/chk-1/db/0", all)], &detail(&bundle));
}

#[test]
fn a_section_is_the_files_bytes_or_a_lie() {
    let (first, second) = (noise(1, 24), noise(2, 24));
    let lie = |offset: u64, length: u64, words: &str| {
        let (world, key) = world(|part| {
            let places = part.bundle(&[&first, &second]);
            part.file("db/0.log", &first, &places[..1]);
            let place = Extent { blob: places[0].blob, offset, length };
            // Its own bytes lie at 32; what it says of them is for the reader to judge.
            let file = part.file("db/1.sst", &second, &[place]);
            file.size = length;
        });
        let detail = format!("it is whole, but [{offset}, {length}] {words}");
        finds(&look(&world), &[]);
        finds_one(&read(&world), FindingKind::Damaged, &key, FILE, &detail);
        // A manifest that lies is not mended by bytes, which the cache has.
        let checkpoint = world.session.catalog.latest(&Name::encode("app")).unwrap().unwrap();
        let manifest = world.manifest(&checkpoint);
        assert!(world.session.cache.fetch_bundles(&world.store, &manifest).is_err());
        assert!(world.session.cache.has(&manifest.blobs[0].name.digest, 56).unwrap());
        finds_one(&mend(&world, true).unwrap(), FindingKind::Damaged, &key, FILE, &detail);
    };
    lie(8, 24, "is not the file's bytes");
    lie(31, 24, "is not the file's bytes");
    lie(7, 24, "lies outside of it, or it is no bundle");
    lie(0, 8, "lies outside of it, or it is no bundle");
    let (world, _) = world(|part| {
        let places = part.bundle(&[&first, &second]);
        part.file("db/0.log", &first, &places[..1]);
        part.file("db/1.sst", &second, &places[1..]);
    });
    let report = read(&world);
    finds(&report, &[]);
    assert_eq!(report.reading, Reading { blobs: 1, bytes: 56, resumed_bytes: 0, total_bytes: 56 });
}

#[test]
fn a_bundle_that_is_none_is_told_of_each_section() {
    let (world, key) = world(|part| {
        let blob = part.blob(&noise(1, 64));
        part.blobs[0].bundle = true;
        part.file("db/1.sst", &noise(1, 64)[8..16], &[Extent { blob, offset: 8, length: 8 }]);
    });
    let detail = "it is whole, but [8, 8] lies outside of it, or it is no bundle";
    finds_one(&read(&world), FindingKind::Damaged, &key, FILE, detail);
}

/// A large table as its own blob, behind a bundle with its tree and its tail, either of which `change` may have changed.
fn large(change: impl Fn(&mut Vec<u8>, &mut Vec<u8>), say: impl Fn(&mut FileEntry)) -> (World, Key) {
    world(|part| {
        let bytes = noise(1, LARGE);
        let (_, mut hashes) = tree::hash_and_tree(&bytes);
        let mut tail = bytes[2 * 65536..].to_vec();
        change(&mut hashes, &mut tail);
        let places = part.bundle(&[&hashes, &tail]);
        let table = part.whole("db/1.sst", &bytes);
        table.tree = Some(places[0]);
        table.tail = Some(Tail { start: 2 * GROUP, extent: places[1] });
        say(table);
    })
}

#[test]
fn a_hash_tree_is_compared_with_the_files_digest() {
    let (world, _) = large(|_, _| {}, |_| {});
    finds(&read(&world), &[]);
    let tree =
        "it is whole, but [8, 192] is not the file's hash tree: the hash tree does not belong to the file's digest";
    for at in [0, 191] {
        let (world, key) = large(|hashes, _| hashes[at] ^= 1, |_| {});
        finds_one(&read(&world), FindingKind::Damaged, &key, FILE, tree);
    }
    let (world, key) = large(|_, _| {}, |table| table.tree.as_mut().unwrap().length -= 1);
    let short = "it is whole, but [8, 191] is not the file's hash tree: the hash tree has 191 bytes, not the 192 of a file of \
                 196708 bytes";
    finds_one(&read(&world), FindingKind::Damaged, &key, FILE, short);
}

#[test]
fn a_tail_is_compared_with_its_file() {
    let words = |offset: u64| format!("it is whole, but [{offset}, 65636] is not the file's tail");
    for at in [0, 65636 - 1] {
        let (world, key) = large(|_, tail| tail[at] ^= 1, |_| {});
        let report = read(&world);
        let [finding] = report.findings.as_slice() else { panic!("{report:?}") };
        assert!(finding.detail.starts_with(&words(200)) && finding.detail.contains("digest"), "{finding:?}");
        assert_eq!((finding.kind, finding.object.as_str()), (FindingKind::Damaged, key.as_str()));
    }
    // Without a tree the file's own bytes tell, and are read for it.
    for changed in [false, true] {
        let (world, key) = large(|_, tail| tail[9] ^= u8::from(changed), |table| table.tree = None);
        let report = read(&world);
        let expected = (FindingKind::Damaged, key.to_string(), hurts(FILE), words(200));
        finds(&report, if changed { std::slice::from_ref(&expected) } else { &[] });
        let bundle = 200 + 65636;
        assert_eq!(report.reading.bytes, bundle + LARGE as u64 + 65636);
        assert_eq!(report.reading.total_bytes, bundle + LARGE as u64);
    }
}

#[test]
fn the_tail_of_a_file_of_one_group_is_all_of_it() {
    for changed in [false, true] {
        let (world, key) = world(|part| {
            let bytes = noise(1, 65536);
            let mut tail = bytes.clone();
            tail[1] ^= u8::from(changed);
            let places = part.bundle(&[&tail]);
            part.whole("db/1.sst", &bytes).tail = Some(Tail { start: 0, extent: places[0] });
        });
        let report = read(&world);
        assert_eq!(report.reading.bytes, 8 + 65536 + 65536, "it is not read again");
        if changed {
            let [finding] = report.findings.as_slice() else { panic!("{report:?}") };
            assert!(finding.detail.starts_with("it is whole, but [8, 65536] is not the file's tail: "), "{finding:?}");
            assert_eq!((finding.kind, finding.object.as_str()), (FindingKind::Damaged, key.as_str()));
        } else {
            finds(&report, &[]);
        }
    }
}

#[test]
fn the_tail_of_a_composed_file_is_compared_with_its_parts() {
    // 70,000 bytes in the bundle, then 30,000 and 31,072 in blobs of their own; the tail begins inside of the first part.
    for (changed, gone) in [(false, false), (true, false), (false, true)] {
        let (world, key) = world(|part| {
            let bytes = noise(1, 131_072);
            let mut tail = bytes[65536..].to_vec();
            tail[40_000] ^= u8::from(changed);
            let places = part.bundle(&[&bytes[..70_000], &tail]);
            let (a, b) = (part.blob(&bytes[70_000..100_000]), part.blob(&bytes[100_000..]));
            let extents = [places[0], (a, 0, 30_000).into(), (b, 0, 31_072).into()];
            part.file("db/1.sst", &bytes, &extents).tail = Some(Tail { start: GROUP, extent: places[1] });
        });
        let checkpoint = world.session.catalog.latest(&Name::encode("app")).unwrap().unwrap();
        let last = Key::blob(&world.manifest(&checkpoint).blobs[2].name);
        let tail = "it is whole, but [70008, 65536]";
        if gone {
            world.memory.remove(last.as_str());
            let report = read(&world);
            let details: Vec<_> = report.findings.iter().map(|f| (f.object.as_str(), f.detail.as_str())).collect();
            assert_eq!(details.len(), 2, "{report:?}");
            assert!(details.contains(&(last.as_str(), "it should have 31072 bytes")));
            assert!(
                details
                    .iter()
                    .any(|(at, d)| *at == key.as_str() && d.starts_with(&format!("{tail} cannot be compared: ")))
            );
            continue;
        }
        let report = read(&world);
        let expected = (FindingKind::Damaged, key.to_string(), hurts(FILE), format!("{tail} is not the file's tail"));
        finds(&report, if changed { std::slice::from_ref(&expected) } else { &[] });
        let blobs = 135_544 + 30_000 + 31_072;
        // The tail's file in its blobs, and the composed file in all of them where no finding is about one yet.
        let composed = if changed { 0 } else { 131_072 };
        assert_eq!(report.reading.bytes, blobs + 30_000 + 31_072 + composed);
        assert_eq!(report.reading.total_bytes, blobs + 131_072);
    }
}

#[test]
fn trees_and_tails_lie_in_bundles() {
    let bytes = noise(1, LARGE);
    let (_, hashes) = tree::hash_and_tree(&bytes);
    let (world, _) = world(|part| {
        let tree = part.blob(&hashes);
        let tail = part.blob(&bytes[2 * 65536..]);
        let table = part.whole("db/1.sst", &bytes);
        table.tree = Some(Extent { blob: tree, offset: 0, length: 192 });
        table.tail = Some(Tail { start: 2 * GROUP, extent: Extent { blob: tail, offset: 0, length: 65636 } });
    });
    let key = Key::task(&Name::encode("app"), CheckpointNumber::new(1).unwrap(), &Name::encode("db"), 0);
    let lie = |what: &str| {
        let detail = format!("it says that the {what} of db/1.sst lies in a blob that is no bundle");
        (FindingKind::Damaged, key.to_string(), hurts(&[("app/chk-1/db/0", &["manifest.json"])]), detail)
    };
    finds(&look(&world), &[lie("hash tree"), lie("tail")]);
    let report = mend(&world, false).unwrap();
    finds(&report, &[lie("hash tree"), lie("tail")]);
    assert!(report.findings.iter().all(|f| f.mended.is_none()));
}

#[test]
fn a_composed_file_is_compared_with_its_digest() {
    let (a, b) = (noise(1, 10), noise(2, 20));
    let both = [a.clone(), b.clone()].concat();
    for order in [[0_u32, 1], [1, 0]] {
        let (world, _) = world(|part| {
            part.blob(&a);
            part.blob(&b);
            let lengths = [10, 20];
            part.file("db/1.sst", &both, &order.map(|i| (i, 0, lengths[i as usize]).into()));
        });
        let checkpoint = world.session.catalog.latest(&Name::encode("app")).unwrap().unwrap();
        let first = Key::blob(&world.manifest(&checkpoint).blobs[order[0] as usize].name);
        finds(&look(&world), &[]);
        let report = read(&world);
        assert_eq!(report.reading, Reading { blobs: 2, bytes: 60, resumed_bytes: 0, total_bytes: 60 });
        let words = "the blobs are whole, but the file's extents do not hold its bytes".to_owned();
        let expected = (FindingKind::Damaged, first.to_string(), hurts(FILE), words);
        finds(&report, if order == [0, 1] { &[] } else { std::slice::from_ref(&expected) });
        // What is wrong with a blob is said once, and the file is not read then.
        let damaged = Key::blob(&world.manifest(&checkpoint).blobs[1].name);
        world.flip(&damaged);
        let report = read(&world);
        let digest = Digest::of(&world.object(&damaged).unwrap());
        finds_one(&report, FindingKind::Damaged, &damaged, FILE, &format!("its bytes have the digest {digest}"));
        assert_eq!(report.reading.bytes, 30);
        world.memory.remove(damaged.as_str());
        let report = read(&world);
        finds_one(&report, FindingKind::Missing, &damaged, FILE, "it should have 20 bytes");
        assert_eq!(report.reading, Reading { blobs: 1, bytes: 10, resumed_bytes: 0, total_bytes: 60 });
    }
}

#[test]
fn a_part_of_a_blob_is_compared_with_its_file() {
    let bytes = noise(1, 30);
    for (offset, length, right) in [(0, 30, true), (0, 29, true), (1, 29, true), (1, 28, true), (2, 28, false)] {
        let range = usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap();
        let own = if right { bytes[range].to_vec() } else { bytes[..28].to_vec() };
        let (world, key) = world(|part| {
            let blob = part.blob(&bytes);
            part.file("db/1.sst", &own, &[Extent { blob, offset, length }]);
        });
        let report = read(&world);
        let words = "the blobs are whole, but the file's extents do not hold its bytes".to_owned();
        let expected = (FindingKind::Damaged, key.to_string(), hurts(FILE), words);
        finds(&report, if right { &[] } else { std::slice::from_ref(&expected) });
        assert_eq!(report.reading.bytes, if length == 30 { 30 } else { 30 + length });
    }
}

#[test]
fn a_file_that_is_another_blob_is_found_without_reading_it() {
    let (world, key) = world(|part| part.whole("db/1.sst", b"right").digest = Digest::of(b"wrong"));
    let report = read(&world);
    let words = "the blobs are whole, but the file's extents do not hold its bytes";
    finds_one(&report, FindingKind::Damaged, &key, FILE, words);
    assert_eq!(report.reading.bytes, 5);
}

#[test]
fn an_empty_file_has_the_digest_of_nothing() {
    let empty = |digest: Digest| {
        world(|part| {
            part.file("db/1.sst", b"", &[]).digest = digest;
            part.whole("db/2.sst", b"x");
        })
    };
    finds(&read(&empty(Digest::of(b"")).0), &[]);
    let (world, _) = empty(Digest::of(b"x"));
    let key = Key::task(&Name::encode("app"), CheckpointNumber::new(1).unwrap(), &Name::encode("db"), 0);
    let hurt: &[(&str, &[&str])] = &[("app/chk-1/db/0", &["manifest.json"])];
    finds_one(
        &read(&world),
        FindingKind::Damaged,
        &key,
        hurt,
        "the file is empty, and has the digest of something else",
    );
    finds(&look(&world), &[]);
}

#[test]
fn a_length_that_is_a_lie_is_told_beside_the_true_one() {
    let world = World::new();
    let first = world.single("app", b"shared");
    let blob = world.manifest(&first).blobs[0];
    let opened = world.open("app", &[("db", 1)]);
    let mut part = world.part(&opened, "db", 0);
    part.blobs.push(crate::format::BlobEntry { length: 5, ..blob });
    part.file("db/1.sst", b"share", &[(0, 0, 5).into()]);
    world.force(&opened, &[part.finish()]);
    let key = Key::blob(&blob.name);
    let hurt: &[(&str, &[&str])] = &[("app/chk-2/db/0", &["db/1.sst"])];
    finds_one(&look(&world), FindingKind::Short, &key, hurt, "it has 6 bytes instead of 5");
}

#[test]
fn a_blob_may_lie_where_nothing_can_be_read() {
    // Names are typed: a manifest may name any blob, also one that nobody uploaded.
    let (world, _) = world(|part| {
        part.whole("db/1.sst", b"x");
    });
    let name = BlobName { digest: Digest::of(b"nobody's"), uid: crate::types::Uid::from_bytes([7; 16]) };
    let found = references::look_at(&world.session, &name, 3).unwrap();
    assert_eq!(found, Some((FindingKind::Missing, "it should have 3 bytes".to_owned())));
}
