//! A reading that was interrupted goes on where it ended, and believes nothing that was not proved of the same words.

use std::path::Path;

use super::*;
use crate::cache::tree;
use crate::format::Tail;
use crate::lifecycle::Checkpoint;
use crate::limits::GROUP;
use crate::restore::tests::{LARGE, Part, World, n, name, noise};
use crate::types::Extent;

fn resume(world: &World, state: &Path) -> Result<Report> {
    let read = Read { resume: Some(state.to_owned()), ..Read::default() };
    let scope = Scope::parse(Some("app"))?;
    verify(&world.session, &scope, &Options { read: Some(read), repair: false }, &Silent)
}

/// Reads all but this blob, and is interrupted then.
fn interrupted(world: &World, state: &Path, without: &Key) {
    let bytes = world.object(without).unwrap();
    world.memory.remove(without.as_str());
    world.memory.fail_when(|what, key| what == "head" && key.starts_with("expired/"));
    assert_eq!(resume(world, state).unwrap_err().kind(), Kind::Unavailable);
    world.memory.fail_when(|_, _| false);
    world.memory.plant(without.as_str(), bytes);
}

fn key(world: &World, checkpoint: &Checkpoint, blob: usize) -> Key {
    Key::blob(&world.manifest(checkpoint).blobs[blob].name)
}

#[test]
fn what_was_read_is_not_read_again() {
    let world = World::new();
    let checkpoint = world.database("app");
    let state = world.path("state");
    interrupted(&world, &state, &key(&world, &checkpoint, 1));
    let report = resume(&world, &state).unwrap();
    finds(&report, &[]);
    let rest = 65996 + 500;
    let large = LARGE as u64;
    let reading = Reading { blobs: 1, bytes: large, resumed_bytes: rest, total_bytes: rest + large };
    assert_eq!(report.reading, reading);
    assert!(!state.exists(), "it came to its end");
    let again = resume(&world, &state).unwrap();
    assert_eq!(again.reading, Reading { blobs: 3, bytes: rest + large, resumed_bytes: 0, total_bytes: rest + large });
}

#[test]
fn entries_of_the_cache_are_remembered_too() {
    let world = World::new();
    let checkpoint = world.database("app");
    let all: Vec<_> = checkpoint.manifest.subtasks.iter().collect();
    crate::restore::warm(&world.session, &checkpoint, &all, &Silent).unwrap();
    let state = world.path("state");
    interrupted(&world, &state, &key(&world, &checkpoint, 1));
    let report = resume(&world, &state).unwrap();
    assert_eq!((report.cache_files, report.reading.blobs), (0, 1));
    assert_eq!(resume(&world, &state).unwrap().cache_files, 6);
}

#[test]
fn what_is_damaged_is_not_remembered() {
    let world = World::new();
    let checkpoint = world.database("app");
    let state = world.path("state");
    world.flip(&key(&world, &checkpoint, 2));
    interrupted(&world, &state, &key(&world, &checkpoint, 1));
    let report = resume(&world, &state).unwrap();
    assert_eq!((report.findings.len(), report.reading.blobs, report.reading.resumed_bytes), (1, 2, 65996));
}

/// Interrupts a reading of what `before` makes, and goes on with what `after` makes of the same blobs: which must be read again.
fn claims(before: impl Fn(&mut Part<'_>), after: impl Fn(&mut Part<'_>)) -> Reading {
    let world = World::new();
    let state = world.path("state");
    let opened = world.open("app", &[("db", 1)]);
    let uid = opened.intent.place.uid;
    let mut part = world.part(&opened, "db", 0);
    before(&mut part);
    part.whole("db/9.sst", b"last");
    let lost = part.blobs.len() - 1;
    world.ack(part.finish());
    let checkpoint = world.complete("app", opened.number);
    interrupted(&world, &state, &key(&world, &checkpoint, lost));
    // The same blobs in other words: another checkpoint names them, and the first dies.
    let opened = world.open("app", &[("db", 1)]);
    let mut part = world.part(&opened, "db", 0);
    let own = std::mem::replace(&mut part.place.uid, uid);
    after(&mut part);
    part.place.uid = own;
    world.ack(part.finish());
    world.complete("app", opened.number);
    world.expire("app", 1);
    assert_eq!((name("app"), n(2)), (checkpoint.job, opened.number));
    let report = resume(&world, &state).unwrap();
    finds(&report, &[]);
    report.reading
}

#[test]
fn a_proof_is_one_of_the_same_sections_alone() {
    let (a, b) = (noise(1, 24), noise(2, 24));
    let one = |part: &mut Part<'_>| {
        let places = part.bundle(&[&a, &b]);
        part.file("db/1.sst", &a, &places[..1]);
    };
    let same = claims(one, one);
    assert_eq!((same.blobs, same.resumed_bytes), (0, 56));
    let two = |part: &mut Part<'_>| {
        let places = part.bundle(&[&a, &b]);
        part.file("db/1.sst", &a, &places[..1]);
        part.file("db/2.sst", &b, &places[1..]);
    };
    let more = claims(one, two);
    assert_eq!((more.blobs, more.resumed_bytes), (1, 0));
    let longer = |length| {
        move |part: &mut Part<'_>| {
            let zeros = [0; 24];
            let places = part.bundle(&[&zeros]);
            let file = part.file("db/1.sst", &zeros[..length], &[Extent { length: length as u64, ..places[0] }]);
            assert_eq!(file.size, length as u64);
        }
    };
    let other = claims(longer(8), longer(16));
    assert_eq!((other.blobs, other.resumed_bytes), (1, 0));
    assert_eq!(claims(longer(8), longer(8)).blobs, 0);
}

#[test]
fn a_proof_of_a_tail_is_one_with_the_same_tree_alone() {
    let bytes = noise(1, LARGE);
    let (_, hashes) = tree::hash_and_tree(&bytes);
    let make = |with_tree: bool, with_tail: bool| {
        let (bytes, hashes) = (bytes.clone(), hashes.clone());
        move |part: &mut Part<'_>| {
            let places = part.bundle(&[&hashes, &hashes, &bytes[2 * 65536..]]);
            let table = part.whole("db/1.sst", &bytes);
            table.tree = with_tree.then_some(places[0]);
            table.tail = with_tail.then_some(Tail { start: 2 * GROUP, extent: places[2] });
        }
    };
    assert_eq!(claims(make(true, true), make(true, true)).blobs, 0);
    // The same bytes as a file of their own.
    let (tree_alone, own) = (make(true, false), make(false, false));
    let as_file = |part: &mut Part<'_>| {
        own(part);
        let bundle = part.blobs.iter().position(|b| b.bundle).unwrap();
        let place = Extent { blob: u32::try_from(bundle).unwrap(), offset: 8, length: hashes.len() as u64 };
        part.file("db/2.sst", &hashes, &[place]);
    };
    assert_eq!(claims(tree_alone, as_file).blobs, 1);
    for other in [make(false, true), make(true, false), make(false, false)] {
        assert_eq!(claims(make(true, true), other).blobs, 1, "the bundle, and not the table");
    }
}

#[test]
fn a_composed_file_is_remembered_by_its_parts() {
    let (a, b) = (noise(1, 10), noise(2, 20));
    let make = |extents: [(u32, u64, u64); 2]| {
        let (a, b) = (a.clone(), b.clone());
        move |part: &mut Part<'_>| {
            part.blob(&a);
            part.blob(&b);
            let parts = [&a, &b];
            let bytes: Vec<u8> = extents
                .iter()
                .flat_map(|(blob, from, length)| {
                    let from = usize::try_from(*from).unwrap();
                    parts[*blob as usize][from..from + usize::try_from(*length).unwrap()].to_vec()
                })
                .collect();
            part.file("db/1.sst", &bytes, &extents.map(Extent::from));
        }
    };
    let whole = [(0, 0, 10), (1, 0, 20)];
    let same = claims(make(whole), make(whole));
    assert_eq!((same.blobs, same.bytes, same.resumed_bytes), (0, 0, 60));
    for other in [[(1, 0, 20), (0, 0, 10)], [(0, 1, 9), (1, 0, 20)], [(0, 0, 9), (1, 0, 20)]] {
        let reading = claims(make(whole), make(other));
        let length: u64 = other.iter().map(|(_, _, length)| length).sum();
        assert_eq!((reading.blobs, reading.bytes, reading.resumed_bytes), (0, length, 30), "{other:?}");
    }
}
