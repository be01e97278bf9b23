//! Clones on one machine without a mount: what the cache has is linked, what is small is copied, and whoever is refused leaves nothing.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::looks::two;
use super::*;
use crate::cache::gone;
use crate::error::Kind;
use crate::format::SubtaskEntry;
use crate::format::clone::{CLONE_MARK, CloneMark};
use crate::format::records::{EpochRecord, PinRecord};
use crate::restore::clone::Amount;
use crate::restore::{CloneReport, CloneRequest, clone, warm};
use crate::types::{Epoch, Prefix, RecordKind, Silent};

pub(super) fn all(checkpoint: &Checkpoint) -> Vec<&SubtaskEntry> {
    checkpoint.manifest.subtasks.iter().collect()
}

pub(super) fn request(directory: &Path) -> CloneRequest {
    CloneRequest { directory: directory.to_owned(), mount: None, job: None }
}

/// Clones from a cache that has everything.
pub(super) fn cloned(world: &World, checkpoint: &Checkpoint, to: &str) -> CloneReport {
    warm(&world.session, checkpoint, &all(checkpoint), &Silent).unwrap();
    clone(&world.session, checkpoint, &all(checkpoint), &request(&world.path(to)), &Silent).unwrap()
}

pub(super) fn pins(world: &World) -> Vec<String> {
    let pins = world.store.list(&Prefix::kind(RecordKind::Pin)).unwrap();
    pins.into_iter().map(|listed| listed.key.to_string()).collect()
}

fn amount(files: u64, bytes: usize) -> Amount {
    Amount { files, bytes: bytes as u64 }
}

fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

#[test]
fn tables_are_linked_and_the_rest_is_copied() {
    let world = World::new();
    let checkpoint = world.database("app");
    warm(&world.session, &checkpoint, &all(&checkpoint), &Silent).unwrap();
    let (directory, told) = (world.path("db"), Told::default());
    let request = CloneRequest { job: Some(name("next")), ..request(&directory) };
    let epoch = |k: u64| EpochRecord {
        place: Place::new(Role::Epoch, &name("next"), k, Uid::from_bytes([1; 16])),
        writer: Uid::from_bytes([1; 16]),
        host: String::new(),
    };
    world.put(&epoch(3));
    world.put(&epoch(2));
    let report = clone(&world.session, &checkpoint, &all(&checkpoint), &request, &told).unwrap();
    let tables = LARGE + SMALL + PLAIN;
    assert_eq!((report.linked, report.copied), (amount(3, tables), amount(2, 56)));
    assert_eq!((report.symlinked, report.unlinkable), (Amount::default(), Amount::default()));
    assert_eq!((report.mount.clone(), report.databases.clone()), (None, vec![directory.clone()]));
    assert!(report.seconds > 0.0 && report.seconds < 60.0);
    let phases = vec!["plan".to_owned(), "clone".to_owned()];
    assert_eq!(told.all(), (phases, vec![(5, (tables + 56) as u64)], (tables + 56) as u64));
    assert_eq!(read_all(&directory), files_of(1));
    let manifest = world.manifest(&checkpoint);
    for file in &manifest.files {
        let entry = World::entry(&world.session, &file.digest);
        let name = file.path.db_file().unwrap();
        assert_eq!(inode(&entry) == inode(&directory.join(name)), name.ends_with(".sst"), "{name}");
    }
    // The pin is there, and the mark says which it is.
    let mark = CloneMark::decode(&std::fs::read(directory.join(CLONE_MARK)).unwrap()).unwrap();
    assert_eq!(
        (mark.store, &mark.job, mark.number, mark.uid),
        (world.session.store_id, &checkpoint.job, n(1), checkpoint.uid)
    );
    assert_eq!(mark.directory, directory.canonicalize().unwrap().to_str().unwrap());
    assert_eq!(
        (&mark.runs, &mark.databases, &mark.backends),
        (&request.job, &vec![String::new()], &vec!["rocks".to_owned()])
    );
    assert_eq!(mark.place.ino, inode(&directory));
    assert_eq!(pins(&world), [report.pin.key().to_string()]);
    assert_eq!(PinRef::from(&mark), report.pin);
    let pin = world.object(&report.pin.key()).unwrap();
    let pin = crate::format::decode::<PinRecord>(&pin).unwrap().record;
    let PinHolder::Clone { directory: of, job, epoch, .. } = &pin.holder else { panic!("{pin:?}") };
    assert_eq!((of, job, *epoch), (&mark.directory, &request.job, Epoch(3)));
    assert!(pin.pinned_ms > 1_600_000_000_000);
    assert_eq!(world.session.cache.clones().unwrap(), [mark]);
    assert!(gone::gone(&world.session).unwrap().is_empty());
}

#[test]
fn every_database_of_a_clone_is_marked() {
    let world = World::new();
    let checkpoint = two(&world);
    let report = cloned(&world, &checkpoint, "clone");
    let root = world.path("clone");
    assert_eq!(report.databases, [root.join("db/0/db"), root.join("db/1/db")]);
    assert_eq!((report.linked.files, report.copied.files), (6, 5));
    let mark = std::fs::read(root.join(CLONE_MARK)).unwrap();
    for database in &report.databases {
        assert_eq!(std::fs::read(database.join(CLONE_MARK)).unwrap(), mark);
    }
    assert_eq!(CloneMark::decode(&mark).unwrap().databases, ["db/0/db", "db/1/db"]);
    assert_eq!(read_all(&report.databases[1]), files_of(101));
    assert!(!root.join("op/0").join(CLONE_MARK).exists());
}

#[test]
fn what_the_cache_lacks_needs_a_mount_and_nothing_is_left_without_one() {
    let world = World::new();
    let checkpoint = world.database("app");
    let directory = world.path("db");
    let e = clone(&world.session, &checkpoint, &all(&checkpoint), &request(&directory), &Silent).unwrap_err();
    let bytes = LARGE + PLAIN;
    let words = format!("2 of 5 files ({bytes} bytes) cannot be hard-linked from the cache");
    assert!(e.kind() == Kind::Unavailable && e.to_string().contains(&words), "{e}");
    assert!(e.to_string().contains("no mount of memory:// answers"), "{e}");
    assert_eq!((names(&world.path("")), pins(&world)), (vec!["cache".to_owned()], Vec::new()));
    assert!(world.session.cache.clones().unwrap().is_empty());
    let given = CloneRequest { mount: Some(world.path("cache")), ..request(&directory) };
    let e = clone(&world.session, &checkpoint, &all(&checkpoint), &given, &Silent).unwrap_err();
    assert!(e.kind() == Kind::Invalid && e.to_string().contains("is no ckptfs mount"), "{e}");
}

#[test]
fn a_file_that_others_may_write_is_not_shared() {
    let world = World::new();
    let checkpoint = world.checkpoint("app", |part| {
        let small = noise(1, SMALL);
        let bundle = part.bundle(&[CURRENT, &small]);
        part.file("db/000008.sst", &small, &bundle[1..]);
        part.file("db/CURRENT", CURRENT, &bundle[..1]);
    });
    warm(&world.session, &checkpoint, &all(&checkpoint), &Silent).unwrap();
    let entry = World::entry(&world.session, &world.manifest(&checkpoint).file("db/000008.sst").unwrap().digest);
    std::fs::set_permissions(&entry, std::fs::Permissions::from_mode(0o646)).unwrap();
    let report = clone(&world.session, &checkpoint, &all(&checkpoint), &request(&world.path("a")), &Silent).unwrap();
    assert_eq!((report.linked, report.copied, report.unlinkable), (amount(0, 0), amount(2, 116), amount(1, SMALL)));
    std::fs::set_permissions(&entry, std::fs::Permissions::from_mode(0o664)).unwrap();
    let report = clone(&world.session, &checkpoint, &all(&checkpoint), &request(&world.path("b")), &Silent).unwrap();
    assert_eq!((report.linked, report.copied, report.unlinkable), (amount(1, SMALL), amount(1, 16), amount(0, 0)));
}

#[test]
fn a_clone_belongs_to_its_directorys_owner() {
    let world = World::new();
    let checkpoint = world.checkpoint("app", |part| {
        let small = noise(1, SMALL);
        let bundle = part.bundle(&[CURRENT, &small]);
        part.file("db/000008.sst", &small, &bundle[1..]);
        part.file("db/CURRENT", CURRENT, &bundle[..1]);
        part.whole("raw-keyed/3", b"raw");
    });
    warm(&world.session, &checkpoint, &all(&checkpoint), &Silent).unwrap();
    let directory = world.path("clone");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o750)).unwrap();
    // Only root may give files away, as these tests do.
    std::os::unix::fs::chown(&directory, Some(12345), Some(23456)).unwrap();
    let report = clone(&world.session, &checkpoint, &all(&checkpoint), &request(&directory), &Silent).unwrap();
    assert_eq!((report.linked.files, report.copied.files, report.unlinkable), (0, 3, amount(1, SMALL)));
    let owner = |path: &Path| std::fs::symlink_metadata(path).map(|m| (m.uid(), m.gid())).unwrap();
    let below = ["", "db", "db/0", "db/0/db", "db/0/db/CURRENT", "db/0/db/000008.sst", "db/0/raw-keyed/3", CLONE_MARK];
    for path in below {
        assert_eq!(owner(&directory.join(path)), (12345, 23456), "{path}");
    }
    assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o750);
    let ours = cloned(&world, &checkpoint, "ours");
    assert_eq!((ours.linked.files, ours.unlinkable.files), (1, 0));
    assert_eq!(std::fs::metadata(world.path("ours")).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_checkpoint_that_dies_meanwhile_takes_the_clone_with_it() {
    let world = World::new();
    let checkpoint = world.database("app");
    warm(&world.session, &checkpoint, &all(&checkpoint), &Silent).unwrap();
    world.expire("app", 1);
    let directory = world.path("db");
    assert!(clone(&world.session, &checkpoint, &all(&checkpoint), &request(&directory), &Silent).is_err());
    assert_eq!((names(&world.path("")), pins(&world)), (vec!["cache".to_owned()], Vec::new()));
    assert!(world.session.cache.clones().unwrap().is_empty());
    // The number is another checkpoint's by now.
    let world = World::new();
    let mut checkpoint = world.database("app");
    warm(&world.session, &checkpoint, &all(&checkpoint), &Silent).unwrap();
    checkpoint.uid = Uid::from_bytes([1; 16]);
    let e = clone(&world.session, &checkpoint, &all(&checkpoint), &request(&world.path("db")), &Silent).unwrap_err();
    assert!(e.kind() == Kind::Conflict && e.to_string().contains("app/chk-1 became another checkpoint"), "{e}");
    assert_eq!((names(&world.path("")), pins(&world)), (vec!["cache".to_owned()], Vec::new()));
    // Its pin cannot be taken away now: its note stays, and the next clone finds it.
    world.memory.fail_when(|what, key| what == "delete" && key.starts_with("pin/"));
    assert!(clone(&world.session, &checkpoint, &all(&checkpoint), &request(&world.path("db")), &Silent).is_err());
    world.memory.fail_when(|_, _| false);
    assert_eq!((names(&world.path("")), pins(&world).len()), (vec!["cache".to_owned()], 1));
    assert_eq!(world.session.cache.clones().unwrap().len(), 1);
    checkpoint.uid = world.session.catalog.latest(&name("app")).unwrap().unwrap().uid;
    let report = clone(&world.session, &checkpoint, &all(&checkpoint), &request(&world.path("db")), &Silent).unwrap();
    assert_eq!(pins(&world), [report.pin.key().to_string()]);
}

#[test]
fn a_store_of_a_newer_version_is_not_written() {
    let world = World::new();
    let checkpoint = world.database("app");
    warm(&world.session, &checkpoint, &all(&checkpoint), &Silent).unwrap();
    let mut session = world.session.clone();
    session.blocks_writing = vec!["tomorrow".to_owned()];
    let e = clone(&session, &checkpoint, &all(&checkpoint), &request(&world.path("db")), &Silent).unwrap_err();
    assert_eq!((e.kind(), names(&world.path(""))), (Kind::Newer, vec!["cache".to_owned()]));
    // Without a job no epoch is asked for.
    let report = cloned(&world, &checkpoint, "db");
    let pin = crate::format::decode::<PinRecord>(&world.object(&report.pin.key()).unwrap()).unwrap().record;
    assert!(matches!(pin.holder, PinHolder::Clone { job: None, epoch: Epoch(0), .. }), "{pin:?}");
}

#[test]
fn small_entries_that_nothing_recorded_are_linked_and_recorded() {
    let world = World::new();
    let checkpoint = world.database("app");
    warm(&world.session, &checkpoint, &all(&checkpoint), &Silent).unwrap();
    let small = world.manifest(&checkpoint).file("db/000008.sst").unwrap().digest;
    let entry = World::entry(&world.session, &small);
    let recorded = || crate::local::identity::recorded(&std::fs::File::open(&entry).unwrap()).unwrap();
    crate::local::identity::forget(&std::fs::File::open(&entry).unwrap()).unwrap();
    assert_eq!(recorded(), None);
    let report = cloned(&world, &checkpoint, "db");
    assert_eq!((report.linked.files, recorded()), (3, Some(small)));
    // A copy of a table says what it is as well.
    std::fs::set_permissions(&entry, std::fs::Permissions::from_mode(0o646)).unwrap();
    cloned(&world, &checkpoint, "copied");
    let copy = |name: &str| {
        let file = std::fs::File::open(world.path("copied").join(name)).unwrap();
        crate::local::identity::recorded(&file).unwrap()
    };
    assert_eq!((copy("000008.sst"), copy("CURRENT")), (Some(small), None));
}
