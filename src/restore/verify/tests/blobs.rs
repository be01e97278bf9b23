//! Blobs that are missing, of another length or unreadable, and how many things were looked at.

use super::*;
use crate::restore::tests::{LARGE, PLAIN, Part, Told, World, n, name, noise};

/// Bytes of the bundle that [`Part::database`] makes: sections on multiples of eight behind eight bytes.
const BUNDLE: u64 = 360 + 65536 + 100;
const IN_BUNDLE: [&str; 4] = ["db/000004.log", "db/000007.sst", "db/000008.sst", "db/CURRENT"];

#[test]
fn what_is_whole_has_no_findings_and_everything_is_counted() {
    let world = World::new();
    world.database("app");
    world.checkpoint("other", |part| part.database(50));
    let records = world.store.list_all(&Prefix::all()).unwrap().ours.len() as u64 - 6;
    let told = Told::default();
    let options = Options { read: Some(Read::default()), repair: true };
    let report = verify(&world.session, &Scope::default(), &options, &told).unwrap();
    finds(&report, &[]);
    assert!(!report.damaged() && report.notes.is_empty());
    assert_eq!((report.checkpoints, report.records, report.blobs, report.cache_files), (2, records, 6, 0));
    let bytes = 2 * (BUNDLE + (LARGE + PLAIN) as u64);
    let reading = Reading { blobs: 6, bytes, resumed_bytes: 0, total_bytes: bytes };
    assert_eq!(report.reading, reading);
    let phases = ["records", "manifests", "blobs", "read", "cache"].map(str::to_owned).to_vec();
    // Two composed claims of each checkpoint, that need no byte read.
    assert_eq!(told.all(), (phases, vec![(10, bytes)], bytes));
    let quick = look(&world);
    assert_eq!((quick.checkpoints, quick.records, quick.blobs, quick.cache_files), (2, records, 6, 0));
    assert_eq!(quick.reading, Reading::default());
}

#[test]
fn a_scope_leaves_out_what_others_have() {
    let world = World::new();
    world.database("app");
    let second = world.single("app", b"second");
    let third = world.single("other", b"third");
    let blob = |checkpoint| Key::blob(&world.manifest(checkpoint).blobs[0].name);
    let (second, third) = (blob(&second), blob(&third));
    world.memory.remove(second.as_str());
    world.memory.remove(third.as_str());
    let of = |text| {
        let report = verify(&world.session, &Scope::parse(text).unwrap(), &Options::default(), &Silent).unwrap();
        let missing: Vec<String> = report.findings.iter().map(|f| f.object.clone()).collect();
        (report.checkpoints, report.records, report.blobs, missing)
    };
    let both = |a: &Key, b: &Key| {
        let mut both = vec![a.to_string(), b.to_string()];
        both.sort();
        both
    };
    // The store's record, and of each job its intents, task manifests, outcomes and head; a job has an epoch, too.
    let jobs = world.store.list_all(&Prefix::all()).unwrap().ours.len() as u64;
    let (all, found) = (of(None), both(&second, &third));
    assert_eq!((all.0, all.2, &all.3), (3, 5, &found));
    assert_eq!(all.1, jobs - 3);
    let app = of(Some("app"));
    assert_eq!((app.0, app.2, &app.3), (2, 4, &vec![second.to_string()]));
    assert_eq!(of(Some("app/chk-1")).3, Vec::<String>::new());
    assert_eq!(of(Some("app/chk-1")).2, 3);
    assert_eq!(of(Some("app/chk-2")).3, [second.to_string()]);
    let one = of(Some("app/chk-2"));
    // Intent, task manifest and outcome less, and no pin, floor or tombstone.
    assert_eq!((one.0, one.1, one.2), (1, app.1 - 3, 1));
    let none = |text| {
        let e = verify(&world.session, &Scope::parse(Some(text)).unwrap(), &Options::default(), &Silent).unwrap_err();
        (e.kind(), e.to_string())
    };
    assert_eq!(none("app/chk-3").0, Kind::NotFound);
    assert!(none("app/chk-3").1.contains("chk-3"));
    assert_eq!(none("nobody").0, Kind::NotFound);
    assert!(none("nobody").1.contains("there is no job nobody"));
}

#[test]
fn a_missing_or_short_blob_hurts_the_files_that_use_it() {
    let world = World::new();
    let checkpoint = world.database("app");
    let blobs = world.manifest(&checkpoint).blobs.clone();
    let key = |i: usize| Key::blob(&blobs[i].name);
    let hurt = |files: &'static [&'static str]| [("app/chk-1/db/0", files)];
    let large = world.object(&key(1)).unwrap();
    world.memory.remove(key(1).as_str());
    let missing = "it should have 196708 bytes";
    finds_one(&look(&world), FindingKind::Missing, &key(1), &hurt(&["db/000007.sst"]), missing);
    assert!(look(&world).damaged());
    // Reading does not say it twice.
    let report = read(&world);
    finds_one(&report, FindingKind::Missing, &key(1), &hurt(&["db/000007.sst"]), missing);
    let rest = BUNDLE + PLAIN as u64;
    let all = rest + LARGE as u64;
    assert_eq!(report.reading, Reading { blobs: 2, bytes: rest, resumed_bytes: 0, total_bytes: all });
    for (length, detail) in [(LARGE - 1, "196707"), (LARGE + 1, "196709"), (0, "0")] {
        let mut bytes = large.clone();
        bytes.resize(length, 0);
        world.memory.plant(key(1).as_str(), bytes);
        let detail = format!("it has {detail} bytes instead of 196708");
        finds_one(&look(&world), FindingKind::Short, &key(1), &hurt(&["db/000007.sst"]), &detail);
    }
    world.memory.plant(key(1).as_str(), large);
    world.memory.remove(key(0).as_str());
    let detail = format!("it should have {BUNDLE} bytes");
    finds_one(&look(&world), FindingKind::Missing, &key(0), &hurt(&IN_BUNDLE), &detail);
}

#[test]
fn a_blob_that_two_checkpoints_name_hurts_both() {
    let world = World::new();
    let first = world.single("app", b"shared");
    let blob = world.manifest(&first).blobs[0];
    let shared = |part: &mut Part<'_>| {
        part.blobs.push(blob);
        part.file("db/1.sst", b"shared", &[(0, 0, 6).into()]);
        part.file("db/2.sst", b"shared", &[(0, 0, 6).into()]);
    };
    world.checkpoint("app", shared);
    let key = Key::blob(&blob.name);
    world.memory.remove(key.as_str());
    let hurt: [(&str, &[&str]); 2] = [("app/chk-1/db/0", &["db/1.sst"]), ("app/chk-2/db/0", &["db/1.sst", "db/2.sst"])];
    finds_one(&look(&world), FindingKind::Missing, &key, &hurt, "it should have 6 bytes");
}

#[test]
fn a_bundle_of_many_files_names_a_hundred_of_them() {
    let world = World::new();
    for (count, more) in [(100_u32, 0), (101, 1), (103, 3)] {
        let job = format!("app{count}");
        let checkpoint = world.checkpoint(&job, |part| {
            let contents: Vec<Vec<u8>> = (0..count).map(|i| noise(u64::from(i + count * 1000), 9)).collect();
            let sections: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
            let places = part.bundle(&sections);
            for (i, (bytes, place)) in contents.iter().zip(places).enumerate() {
                part.file(&format!("db/{i:06}.log"), bytes, &[place]);
            }
        });
        let key = Key::blob(&world.manifest(&checkpoint).blobs[0].name);
        world.memory.remove(key.as_str());
        let scope = Scope::parse(Some(&job)).unwrap();
        let report = verify(&world.session, &scope, &Options::default(), &Silent).unwrap();
        let hurt = &report.findings[0].hurts[0];
        assert_eq!((hurt.files.len(), hurt.more, hurt.files[99].as_str()), (100, more, "db/000099.log"));
    }
}

#[test]
fn more_blobs_than_looks_are_found_by_a_list() {
    let world = World::new();
    let checkpoint = world.checkpoint("app", |part| {
        for i in 0..1001_u32 {
            part.whole(&format!("db/{i:06}.sst"), &i.to_le_bytes());
        }
    });
    let key = Key::blob(&world.manifest(&checkpoint).blobs[7].name);
    world.memory.remove(key.as_str());
    let before = world.store.counters().heads.get();
    let scope = Scope::parse(Some("app")).unwrap();
    let report = verify(&world.session, &scope, &Options::default(), &Silent).unwrap();
    finds_one(&report, FindingKind::Missing, &key, &[("app/chk-1/db/0", &["db/000007.sst"])], "it should have 4 bytes");
    assert!(world.store.counters().heads.get() - before < 10, "one look at each that the list has not");
}

#[test]
fn as_many_blobs_as_looks_are_looked_at() {
    let world = World::new();
    world.checkpoint("app", |part| {
        for i in 0..1000_u32 {
            part.whole(&format!("db/{i:06}.sst"), &i.to_le_bytes());
        }
    });
    let before = world.store.counters().heads.get();
    let scope = Scope::parse(Some("app")).unwrap();
    finds(&verify(&world.session, &scope, &Options::default(), &Silent).unwrap(), &[]);
    assert_eq!(world.store.counters().heads.get() - before, 1000);
}

#[test]
fn who_is_kept_by_a_pin_alone_is_told_so() {
    let world = World::new();
    let first = world.single("app", b"first");
    let key = Key::blob(&world.manifest(&first).blobs[0].name);
    world.pin("app", 1, 1);
    world.expire("app", 1);
    world.memory.remove(key.as_str());
    let detail = "it should have 5 bytes; whom it hurts is expired, and only kept by pins (`ckptfs pins`)";
    finds_one(&look(&world), FindingKind::Missing, &key, &[("app/chk-1/db/0", &["db/1.sst"])], detail);
}

#[test]
fn what_a_checkpoint_lost_that_died_meanwhile_hurts_nobody() {
    use std::sync::atomic::{AtomicBool, Ordering};
    for pinned in [false, true] {
        let world = World::new();
        let first = world.single("app", b"first");
        let blob = world.manifest(&first).blobs[0];
        let key = Key::blob(&blob.name);
        world.checkpoint("app", |part| {
            part.blobs.push(blob);
            part.file("db/1.sst", b"first", &[(0, 0, 5).into()]);
        });
        world.memory.remove(key.as_str());
        let expired = {
            let other = World::new();
            other.single("app", b"first");
            other.expire("app", 1);
            other.object(&Key::expired(&name("app"), n(1))).unwrap()
        };
        if pinned {
            world.pin("app", 1, 1);
        }
        // The tombstone appears while the blob is looked at.
        let (memory, happened) = (std::sync::Arc::clone(&world.memory), AtomicBool::new(false));
        world.memory.fail_when(move |what, of| {
            if what == "head" && of.starts_with("blobs/") && !happened.swap(true, Ordering::Relaxed) {
                memory.plant(Key::expired(&name("app"), n(1)).as_str(), expired.clone());
            }
            false
        });
        let report = look(&world);
        let both: &[(&str, &[&str])] = &[("app/chk-1/db/0", &["db/1.sst"]), ("app/chk-2/db/0", &["db/1.sst"])];
        let left = if pinned { both } else { &both[1..] };
        finds_one(&report, FindingKind::Missing, &key, left, "it should have 5 bytes");
        world.memory.fail_when(|_, _| false);
    }
}

#[test]
fn a_store_that_does_not_answer_is_no_finding() {
    let world = World::new();
    let checkpoint = world.database("app");
    let key = Key::blob(&world.manifest(&checkpoint).blobs[0].name);
    world.memory.remove(key.as_str());
    let silent = |at: &'static str, kind: &'static str| {
        world.memory.fail_when(move |what, key| what == at && key.starts_with(kind));
        verify(&world.session, &Scope::default(), &Options::default(), &Silent).map(drop).map_err(|e| e.kind())
    };
    for (at, kind) in [("get", "outcome/"), ("get", "task/"), ("head", "blobs/"), ("head", "expired/"), ("list", "")] {
        assert_eq!(silent(at, kind), Err(Kind::Unavailable), "{at} {kind}");
    }
    assert_eq!(silent("create", ""), Ok(()));
}

#[test]
fn a_blob_that_no_file_uses_is_missed_and_hurts_nobody() {
    let world = World::new();
    let checkpoint = world.checkpoint("app", |part| {
        part.whole("db/1.sst", b"used");
        part.blob(b"spare");
    });
    let key = Key::blob(&world.manifest(&checkpoint).blobs[1].name);
    world.memory.remove(key.as_str());
    finds_one(&look(&world), FindingKind::Missing, &key, &[], "it should have 5 bytes");
}
