//! What nobody needs and what is named and nobody made: pins and bases without a checkpoint, blobs without one, strange objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::format::records::{ExpiredRecord, FloorRecord, PinHolder, PinRecord};
use crate::format::{BaseRef, CheckpointKind, ExpectedOperator, Intent, Labels, Place, Role, Verdict, encode};
use crate::lifecycle::driver;
use crate::lifecycle::open::Open;
use crate::restore::tests::{World, n, name};
use crate::store::memory::Memory;
use crate::types::{BlobName, Epoch, Uid};

const NOBODY: Uid = Uid::from_bytes([9; 16]);

fn floor_of(at: u64, uids: Vec<Uid>) -> FloorRecord {
    FloorRecord { place: Place::new(Role::Floor, &name("app"), at, NOBODY), survivors: Vec::new(), uids }
}

fn floor(world: &World, at: u64, uids: Vec<Uid>) {
    world.put(&floor_of(at, uids));
}

/// A completed checkpoint with a blob of its own; its uid.
fn completed(world: &World, job: &str, bytes: &[u8]) -> Uid {
    world.single(job, bytes).uid
}

fn pin(world: &World, number: u64, uid: Uid) -> Key {
    let mut place = Place::new(Role::Pin, &name("app"), number, uid);
    (place.holder, place.nonce) = (Some(NOBODY), Some(NOBODY));
    world.put(&PinRecord { place, holder: PinHolder::Writer, pinned_ms: 0 })
}

/// A blob of these bytes under that uid, which nothing names.
fn spare(world: &World, uid: Uid, bytes: &str) -> Key {
    let key = Key::blob(&BlobName { digest: Digest::of(bytes.as_bytes()), uid });
    world.memory.plant(key.as_str(), bytes.to_owned());
    key
}

/// Something happens right before the `nth` request of a kind about keys that begin like this.
fn before(
    world: &World,
    nth: u32,
    asked: &'static str,
    begins: &'static str,
    then: impl Fn(&Memory) + Send + Sync + 'static,
) {
    let (seen, inner) = (AtomicU32::new(0), Arc::clone(&world.memory));
    world.memory.fail_when(move |what, key| {
        if what == asked && key.starts_with(begins) && seen.fetch_add(1, Ordering::Relaxed) + 1 == nth {
            then(&inner);
        }
        false
    });
}

#[track_caller]
fn dangles(world: &World, key: &Key, hurt: &str, why: &str) {
    let found: Vec<Told> =
        look(world).findings.iter().filter(|f| f.kind == FindingKind::DanglingPin).map(told).collect();
    let detail = format!("it keeps nothing: {why}");
    assert_eq!(found, [(FindingKind::DanglingPin, key.to_string(), hurts(&[(hurt, &[])]), detail)]);
}

#[test]
fn a_pin_on_what_is_not_there_dangles() {
    let world = World::new();
    let uid = completed(&world, "app", b"1");
    let opened = world.open("app", &[("db", 1)]);
    pin(&world, 1, uid);
    finds(&look(&world), &[]);
    let on_open = pin(&world, 2, opened.intent.place.uid);
    dangles(&world, &on_open, "app/chk-2", "it was never completed");
    world.abort("app", 2);
    dangles(&world, &on_open, "app/chk-2", "it was aborted");
    assert!(look(&world).damaged());
    world.memory.remove(on_open.as_str());
    let strange = pin(&world, 1, NOBODY);
    dangles(&world, &strange, "app/chk-1", "another checkpoint has that number");
    let right = pin(&world, 1, uid);
    floor(&world, 2, Vec::new());
    dangles(&world, &right, "app/chk-1", "that number is gone");
    world.memory.remove(right.as_str());
    let never = pin(&world, 7, NOBODY);
    dangles(&world, &never, "app/chk-7", "it was never completed");
}

#[test]
fn a_pin_whose_checkpoint_cannot_be_read_is_left_alone() {
    let world = World::new();
    let uid = completed(&world, "app", b"1");
    let key = pin(&world, 1, uid);
    let outcome = Key::outcome(&name("app"), n(1));
    world.flip(&outcome);
    let report = look(&world);
    assert!(report.findings.iter().all(|f| f.object != key.as_str()), "{report:?}");
    world.flip(&outcome);
    // Or not any more: it was there when the store was listed, and was damaged before the second look.
    let away = world.object(&outcome).unwrap();
    world.memory.remove(outcome.as_str());
    before(&world, 1, "get", "outcome/", |memory| memory.plant(Key::outcome(&name("app"), n(1)).as_str(), "{}"));
    finds(&look(&world), &[]);
    // Or is younger than the list.
    world.memory.remove(outcome.as_str());
    let young = away.clone();
    before(&world, 1, "get", "outcome/", move |memory| {
        memory.plant(Key::outcome(&name("app"), n(1)).as_str(), young.clone());
    });
    finds(&look(&world), &[]);
    // Or went away meanwhile: the pin is told, unless it went as well.
    before(&world, 1, "get", "outcome/", |memory| memory.remove(Key::outcome(&name("app"), n(1)).as_str()));
    dangles(&world, &key, "app/chk-1", "its outcome went away");
    world.memory.remove(outcome.as_str());
    let pin = key.clone();
    before(&world, 1, "get", "outcome/", move |memory| memory.remove(pin.as_str()));
    finds(&look(&world), &[]);
}

#[test]
fn a_base_without_an_outcome_lost_it() {
    let world = World::new();
    completed(&world, "app", b"1");
    completed(&world, "app", b"2");
    let key = Key::outcome(&name("app"), n(1));
    let outcome = world.object(&key).unwrap();
    world.memory.remove(key.as_str());
    let hurt: &[(&str, &[&str])] = &[("app/chk-1/db/0", &["manifest.json"])];
    let detail = "it was decided once: it is a base of app/chk-2";
    finds_one(&look(&world), FindingKind::Missing, &key, hurt, detail);
    let of = |text| verify(&world.session, &Scope::parse(Some(text)).unwrap(), &Options::default(), &Silent).unwrap();
    finds_one(&of("app"), FindingKind::Missing, &key, hurt, detail);
    finds(&of("app/chk-2"), &[]);
    // A second that says so.
    let second = crate::lifecycle::catalog::outcome(&world.store, &name("app"), n(2)).unwrap().unwrap();
    let mut third = second.clone();
    third.place.number = 3;
    third.place.uid = NOBODY;
    let Verdict::Completed(manifest) = &mut third.verdict else { panic!("{third:?}") };
    manifest.bases.push(BaseRef { job: name("app"), number: n(5), uid: NOBODY });
    let third = world.put(&third);
    let both = look(&world);
    let told: Vec<_> = both.findings.iter().filter(|f| f.object == key.as_str()).map(|f| f.detail.as_str()).collect();
    assert_eq!(told, ["it was decided once: it is a base of app/chk-2, app/chk-3"], "and its own uid is no base's");
    assert!(both.findings.iter().all(|f| !f.object.starts_with("outcome/") || f.object == key.as_str()), "{both:?}");
    world.memory.remove(third.as_str());
    // It came back, or a floor took it away meanwhile.
    before(&world, 1, "head", "outcome/", move |memory| {
        memory.plant(Key::outcome(&name("app"), n(1)).as_str(), outcome.clone());
    });
    finds(&look(&world), &[]);
    world.memory.remove(key.as_str());
    let missing = |world: &World| look(world).findings.iter().any(|f| f.kind == FindingKind::Missing);
    assert!(missing(&world));
    let young = encode(&floor_of(2, Vec::new())).unwrap();
    before(&world, 1, "list", "floor/app", move |memory| {
        memory.plant(Key::floor(&name("app"), n(2)).as_str(), young.clone());
    });
    assert!(!missing(&world) && !missing(&world));
    world.memory.remove(Key::floor(&name("app"), n(2)).as_str());
    // Nobody needs the bases of the dead.
    assert!(missing(&world));
    world.expire("app", 2);
    assert!(!missing(&world));
}

#[test]
fn strange_objects_are_told_and_probes_are_not() {
    let world = World::new();
    completed(&world, "app", b"1");
    world.memory.plant("photos/cat", "meow");
    world.memory.plant("probe/1/2", "x");
    let report = look(&world);
    let detail = "4 bytes under a key that no version of this program makes".to_owned();
    finds(&report, &[(FindingKind::Foreign, "photos/cat".to_owned(), Vec::new(), detail)]);
    assert!(!report.damaged() && !report.findings[0].in_cache());
    let of = |text| verify(&world.session, &Scope::parse(Some(text)).unwrap(), &Options::default(), &Silent).unwrap();
    finds(&of("app"), &[]);
}

fn unreferenced(size: u64, by: &str) -> String {
    format!("{size} bytes that {by} uploaded and nothing names: `ckptfs gc` frees them")
}

/// What is found about blobs, by key.
fn spares(world: &World) -> BTreeMap<String, (FindingKind, String)> {
    let found = look(world).findings.into_iter().filter(|f| f.object.starts_with("blobs/"));
    found.map(|f| (f.object, (f.kind, f.detail))).collect()
}

#[track_caller]
fn spare_is(world: &World, key: &Key, expected: Option<(FindingKind, &str)>) {
    let found = spares(world);
    assert_eq!(found.get(key.as_str()).map(|(kind, detail)| (*kind, detail.as_str())), expected);
}

#[test]
fn blobs_that_nothing_names_are_told_by_who_uploaded_them() {
    use FindingKind::{Foreign, Unreferenced};
    let world = World::new();
    let uid = completed(&world, "app", b"1");
    assert_eq!(spares(&world), BTreeMap::new());
    let foreign = spare(&world, NOBODY, "who");
    spare_is(&world, &foreign, Some((Foreign, "3 bytes that no checkpoint of this store uploaded")));
    let own = spare(&world, uid, "once");
    spare_is(&world, &own, Some((Unreferenced, &unreferenced(4, "app/chk-1"))));
    assert!(!look(&world).damaged() && look(&world).notes.is_empty());
    // Open, then aborted, then dead, of which the tombstone stays alone.
    let opened = world.open("app", &[("db", 1)]);
    let open = spare(&world, opened.intent.place.uid, "later");
    spare_is(&world, &open, None);
    world.abort("app", 2);
    spare_is(&world, &open, None);
    world.memory.remove(Key::intent(&name("app"), n(2)).as_str());
    spare_is(&world, &open, None);
    let place = Place::new(Role::Expired, &name("app"), 2, opened.intent.place.uid);
    world.put(&ExpiredRecord { place, reason: String::new() });
    spare_is(&world, &open, Some((Unreferenced, &unreferenced(5, "app/chk-2"))));
    world.memory.remove(Key::outcome(&name("app"), n(2)).as_str());
    spare_is(&world, &open, Some((Unreferenced, &unreferenced(5, "app/chk-2"))));
    world.memory.remove(Key::expired(&name("app"), n(2)).as_str());
    spare_is(&world, &open, Some((Foreign, "5 bytes that no checkpoint of this store uploaded")));
    floor(&world, 1, vec![opened.intent.place.uid]);
    spare_is(&world, &open, Some((Unreferenced, &unreferenced(5, "a number of job app that is gone"))));
    // The whole store is looked at for it.
    let scope = Scope::parse(Some("app")).unwrap();
    finds(&verify(&world.session, &scope, &Options::default(), &Silent).unwrap(), &[]);
}

#[test]
fn an_aborted_number_that_is_gone_keeps_nothing() {
    let world = World::new();
    let opened = world.open("app", &[("db", 1)]);
    let key = spare(&world, opened.intent.place.uid, "later");
    world.abort("app", 1);
    spare_is(&world, &key, None);
    floor(&world, 2, Vec::new());
    spare_is(&world, &key, Some((FindingKind::Unreferenced, &unreferenced(5, "app/chk-1"))));
    // And neither does an open one.
    world.memory.remove(Key::outcome(&name("app"), n(1)).as_str());
    spare_is(&world, &key, Some((FindingKind::Unreferenced, &unreferenced(5, "app/chk-1"))));
}

#[test]
fn bases_of_open_checkpoints_keep_what_they_uploaded_and_what_they_name() {
    let world = World::new();
    let first = world.checkpoint("app", |part| {
        part.whole("db/1.sst", b"kept");
        part.whole("db/2.sst", b"not kept");
    });
    let [kept, not_kept] = world.manifest(&first).blobs.clone().try_into().unwrap();
    let second = world.checkpoint("app", |part| {
        part.blobs.push(kept);
        part.file("db/1.sst", b"kept", &[(0, 0, 4).into()]);
    });
    let unnamed = spare(&world, second.uid, "unnamed");
    let mut plan = world.plan("app", &[("db", 1)]);
    plan.pinned = Vec::new();
    let opened = driver::run(&world.store, Open::new(plan)).unwrap();
    let bases: Vec<_> = opened.intent.bases.iter().map(|b| b.number.get()).collect();
    assert_eq!(bases, [2]);
    world.expire("app", 1);
    world.expire("app", 2);
    let (kept, not_kept) = (Key::blob(&kept.name), Key::blob(&not_kept.name));
    let expected = (FindingKind::Unreferenced, unreferenced(8, "app/chk-1"));
    let all = |world: &World| spares(world).into_iter().collect::<Vec<_>>();
    assert_eq!(all(&world), [(not_kept.to_string(), expected)]);
    assert!(look(&world).notes.is_empty());
    // What the base named cannot be told.
    let task = Key::task(&name("app"), n(2), &name("db"), 0);
    let bytes = world.object(&task).unwrap();
    let note = "blobs of job app that nothing names are not told: a record that may name them cannot be read";
    for away in [true, false] {
        world.memory.plant(task.as_str(), "{}");
        if away {
            world.memory.remove(task.as_str());
        }
        assert_eq!(all(&world), []);
        assert_eq!(look(&world).notes, [note]);
    }
    world.memory.plant(task.as_str(), bytes);
    // Nobody is open any more.
    world.abort("app", 3);
    let found: Vec<_> = spares(&world).into_keys().collect();
    let mut expected = [kept, not_kept, unnamed].map(|key| key.to_string());
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_base_by_another_uid_keeps_nothing_by_its_name() {
    let world = World::new();
    let uid = completed(&world, "app", b"1");
    let blob = Key::blob(&BlobName { digest: Digest::of(b"1"), uid });
    world.expire("app", 1);
    let place = Place::new(Role::Intent, &name("app"), 2, NOBODY);
    let base = |uid| BaseRef { job: name("app"), number: n(1), uid };
    let mut intent = Intent {
        place,
        epoch: Epoch(0),
        writer: NOBODY,
        bases: vec![base(Uid::from_bytes([8; 16]))],
        expected: vec![ExpectedOperator { operator: name("db"), parallelism: 1 }],
        kind: CheckpointKind::Checkpoint,
        detached: false,
        opened_ms: 0,
        stop: false,
        labels: Labels::default(),
    };
    world.put(&intent);
    spare_is(&world, &blob, Some((FindingKind::Unreferenced, &unreferenced(1, "app/chk-1"))));
    intent.bases = vec![base(uid)];
    world.put(&intent);
    spare_is(&world, &blob, None);
}

#[test]
fn blobs_of_a_job_with_what_cannot_be_read_are_not_told() {
    let world = World::new();
    let uid = completed(&world, "app", b"1");
    completed(&world, "app", b"2");
    let other = completed(&world, "other", b"3");
    let (own, others, foreign) =
        (spare(&world, uid, "own"), spare(&world, other, "others"), spare(&world, NOBODY, "who"));
    let kinds = |world: &World| {
        let found = spares(world);
        [&own, &others, &foreign].map(|key| found.get(key.as_str()).map(|(kind, _)| *kind))
    };
    let (unreferenced, nobodys) = (Some(FindingKind::Unreferenced), Some(FindingKind::Foreign));
    assert_eq!(kinds(&world), [unreferenced, unreferenced, nobodys]);
    let note = |job: &str| {
        format!("blobs of job {job} that nothing names are not told: a record that may name them cannot be read")
    };
    floor(&world, 1, Vec::new());
    for (key, foreign) in [
        (Key::outcome(&name("app"), n(2)), nobodys),
        // It may say whose uid that is.
        (Key::intent(&name("app"), n(2)), None),
        (Key::floor(&name("app"), n(1)), None),
    ] {
        world.flip(&key);
        assert_eq!(kinds(&world), [None, unreferenced, foreign], "{key}");
        assert_eq!(look(&world).notes, [note("app")]);
        world.flip(&key);
    }
    // A task manifest that a living checkpoint names and nobody has.
    let task = Key::task(&name("other"), n(1), &name("db"), 0);
    let bytes = world.object(&task).unwrap();
    world.memory.remove(task.as_str());
    assert_eq!(kinds(&world), [unreferenced, None, nobodys]);
    assert_eq!(look(&world).notes, [note("other")]);
    world.memory.plant(task.as_str(), bytes);
    // Other records name no blobs.
    let key = Key::head(&name("app"));
    world.memory.plant(key.as_str(), "{}");
    assert!(look(&world).damaged());
    assert_eq!(kinds(&world), [unreferenced, unreferenced, nobodys]);
    assert!(look(&world).notes.is_empty());
}

#[test]
fn a_job_that_began_with_anothers_checkpoint_may_name_its_blobs() {
    let world = World::new();
    let first = completed(&world, "a", b"1");
    let base = |job: &str, uid| Some(BaseRef { job: name(job), number: n(1), uid });
    // b began with a, and c with b.
    let mut before = ("a", first);
    for job in ["b", "c"] {
        let mut plan = world.plan(job, &[("db", 1)]);
        plan.restored_from = base(before.0, before.1);
        let opened = driver::run(&world.store, Open::new(plan)).unwrap();
        let mut part = world.part(&opened, "db", 0);
        part.whole("db/1.sst", job.as_bytes());
        world.ack(part.finish());
        before = (job, world.complete(job, n(1)).uid);
    }
    completed(&world, "d", b"4");
    let own = spare(&world, first, "own");
    let kind = |world: &World| spares(world).get(own.as_str()).map(|(kind, _)| *kind);
    assert_eq!(kind(&world), Some(FindingKind::Unreferenced));
    let unsure = |world: &World| look(world).notes.iter().map(|note| note[13..14].to_owned()).collect::<String>();
    for (job, jobs) in [("c", "abc"), ("b", "ab"), ("a", "a"), ("d", "d")] {
        let key = Key::task(&name(job), n(1), &name("db"), 0);
        let bytes = world.object(&key).unwrap();
        world.memory.remove(key.as_str());
        assert_eq!(unsure(&world), jobs);
        assert_eq!(kind(&world).is_none(), job != "d", "{job}");
        world.memory.plant(key.as_str(), bytes);
        // Its intent says so as well, where its outcome cannot be read.
        let key = Key::outcome(&name(job), n(1));
        world.flip(&key);
        assert_eq!(unsure(&world), jobs);
        world.flip(&key);
    }
}

#[test]
fn a_blob_of_a_checkpoint_that_was_begun_meanwhile_is_left_alone() {
    let world = World::new();
    completed(&world, "app", b"1");
    let opened = world.open("app", &[("db", 1)]);
    let key = Key::intent(&name("app"), n(2));
    let (blob, intent) = (spare(&world, opened.intent.place.uid, "young"), world.object(&key).unwrap());
    world.memory.remove(key.as_str());
    spare_is(&world, &blob, Some((FindingKind::Foreign, "5 bytes that no checkpoint of this store uploaded")));
    before(&world, 1, "list", "intent", move |memory| {
        memory.plant(Key::intent(&name("app"), n(2)).as_str(), intent.clone());
    });
    spare_is(&world, &blob, None);
}

#[test]
fn a_blob_that_was_swept_meanwhile_is_not_told() {
    let world = World::new();
    let uid = completed(&world, "app", b"1");
    let (gone, stays) = (spare(&world, uid, "gone"), spare(&world, uid, "stays"));
    let key = gone.clone();
    before(&world, 1, "head", "blobs/", move |memory| memory.remove(key.as_str()));
    let found = spares(&world);
    assert_eq!(found.into_keys().collect::<Vec<_>>(), [stays.to_string()]);
    assert!(world.object(&gone).is_none());
}

#[test]
fn no_more_blobs_than_looks_are_looked_at_again() {
    let world = World::new();
    let uid = completed(&world, "app", b"named");
    for i in 0..1000 {
        spare(&world, uid, &i.to_string());
    }
    let heads = || {
        let before = world.store.counters().heads.get();
        let found = spares(&world).len();
        (found, world.store.counters().heads.get() - before)
    };
    assert_eq!(heads(), (1000, 1000));
    spare(&world, uid, "one more");
    assert_eq!(heads(), (1001, 0));
}
