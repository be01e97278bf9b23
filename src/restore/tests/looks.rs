//! What checkpoints hold and share, how they are named, and where they are read.

use super::*;
use crate::error::Kind;
use crate::restore::inspect::{Change, Usage, difference, manifests, usage};
use crate::restore::layout::{Laid, Layout};
use crate::restore::reading::Reading;
use crate::restore::select::{Selection, job_name, no_such};
use crate::restore::target::Target;
use crate::types::Silent;

/// All bytes of [`Part::database`]'s files, and of its bundle.
const LOGICAL: u64 = 16 + 40 + (LARGE + SMALL + PLAIN) as u64;
const BUNDLE: u64 = 360 + LARGE_TAIL;

#[test]
fn usage_is_what_each_holds_alone_and_what_all_hold() {
    let world = World::new();
    let first = world.database("app");
    let large = world.manifest(&first).blobs[1];
    world.checkpoint("app", |part| {
        part.blobs.push(large);
        part.file("db/000007.sst", &noise(2, LARGE), &[(0, 0, large.length).into()]);
        part.whole("db/000010.sst", &[7; 700]);
        part.whole("db/000011.sst", &[8; 30]);
    });
    world.single("other", b"other");
    world.single("other", b"the second");
    world.expire("other", 1);
    let listings: Vec<_> =
        world.session.catalog.jobs().unwrap().iter().map(|job| world.session.catalog.job(job).unwrap()).collect();
    let report = usage(&world.session, &listings).unwrap();
    let (large, plain) = (LARGE as u64, PLAIN as u64);
    let all = BUNDLE + large + plain;
    let expected = [
        (("app", 1), Usage { logical: LOGICAL, new: all, unique: BUNDLE + plain, referenced: all }),
        (("app", 2), Usage { logical: large + 730, new: 730, unique: 730, referenced: large + 730 }),
        (("other", 2), Usage { logical: 10, new: 10, unique: 10, referenced: 10 }),
    ];
    let found: Vec<_> = report.checkpoints.iter().map(|((job, at), u)| ((job.as_str(), at.get()), *u)).collect();
    assert_eq!(found, expected);
    assert_eq!(report.total, all + 730 + 10);
    world.memory.remove(Key::task(&name("app"), n(2), &name("db"), 0).as_str());
    assert!(usage(&world.elsewhere("cold"), &listings).is_err(), "a wrong sum is worse than none");
}

#[test]
fn a_difference_is_one_of_contents() {
    let world = World::new();
    let first = world.database("app");
    let second = world.checkpoint("app", |part| {
        // The same bytes elsewhere, others of the same size, others of another size, and a new one.
        part.whole("db/000007.sst", &noise(2, LARGE));
        part.whole("db/000008.sst", &[1; SMALL]);
        part.whole("db/000009.sst", &[1; 3]);
        part.whole("db/000010.sst", &[1; 4]);
        part.whole("db/CURRENT", CURRENT);
    });
    let found = difference(&world.session, &first, &second).unwrap();
    let file = |text: &str, change, before, after| (format!("db/0/db/{text}"), change, before, after);
    let expected = [
        file("000004.log", Change::Removed, 40, 0),
        file("000008.sst", Change::Changed, SMALL as u64, SMALL as u64),
        file("000009.sst", Change::Changed, PLAIN as u64, 3),
        file("000010.sst", Change::Added, 0, 4),
    ];
    assert_eq!(found.files, expected);
    assert_eq!((found.same_files, found.same_bytes), (2, LARGE as u64 + 16));
    let same = difference(&world.session, &first, &first).unwrap();
    assert_eq!((same.files.len(), same.same_files, same.same_bytes), (0, 5, LOGICAL));
    assert_eq!(manifests(&world.session, &second).unwrap().len(), 1);
}

#[test]
fn manifests_come_in_the_order_of_the_subtasks() {
    let world = World::new();
    let checkpoint = two(&world);
    let found = manifests(&world.session, &checkpoint).unwrap();
    let of: Vec<_> = found.iter().map(|m| m.place.subtask.clone().unwrap()).collect();
    assert_eq!(of, [(name("db"), 0), (name("db"), 1), (name("op"), 0)]);
}

/// Two databases and an operator without one.
pub(super) fn two(world: &World) -> Checkpoint {
    let opened = world.open("app", &[("db", 2), ("op", 1)]);
    for subtask in 0..2 {
        let mut part = world.part(&opened, "db", subtask);
        part.database(u64::from(subtask) * 100 + 1);
        part.backend = Some(format!("rocks{subtask}"));
        world.ack(part.finish());
    }
    let mut part = world.part(&opened, "op", 0);
    part.whole("operator/list/0", b"operator state");
    world.ack(part.finish());
    world.complete("app", opened.number)
}

#[test]
fn a_selection_finds_its_checkpoint_and_subtasks() {
    let world = World::new();
    let checkpoint = two(&world);
    let parse = |text| Selection::parse(text).unwrap();
    assert_eq!(parse("app/latest/").resolve(&world.session.catalog).unwrap().number, n(1));
    assert_eq!(parse("app/chk-1").resolve(&world.session.catalog).unwrap().uid, checkpoint.uid);
    for (missing, words) in [("app/chk-2", "chk-2"), ("nobody/latest", "job nobody has no completed checkpoint")] {
        let e = parse(missing).resolve(&world.session.catalog).unwrap_err();
        assert!(e.kind() == Kind::NotFound && e.to_string().contains(words), "{e}");
    }
    let shown = |text| {
        let found = parse(text).subtasks(&checkpoint);
        found.map(|all| all.iter().map(|s| format!("{}/{}", s.operator, s.subtask)).collect::<Vec<_>>())
    };
    assert_eq!(shown("app/chk-1").unwrap(), ["db/0", "db/1", "op/0"]);
    assert_eq!(shown("app/chk-1/db/1").unwrap(), ["db/1"]);
    for missing in ["app/chk-1/db/2", "app/chk-1/op/1", "app/chk-1/x/0"] {
        let e = shown(missing).unwrap_err();
        assert!(e.kind() == Kind::NotFound && e.to_string().contains("`ckptfs show app/chk-1` lists them"), "{e}");
    }
    let file = parse("app/chk-1/db/1/db/CURRENT");
    assert_eq!(file.rest, ["db", "CURRENT"]);
    let e = file.exact().unwrap_err();
    assert!(e.kind() == Kind::Invalid && e.to_string().contains("\"db/CURRENT\" is too much"), "{e}");
    assert!(parse("app/chk-1/db/1").exact().is_ok() && parse("app/chk-1").whole().is_ok());
    let e = parse("app/chk-1/db/1").whole().unwrap_err();
    assert!(e.kind() == Kind::Invalid && e.to_string().contains("a whole checkpoint of job app"), "{e}");
    let e = no_such(&name("app"), n(7));
    assert!(e.kind() == Kind::NotFound && e.to_string().contains("chk-7"), "{e}");
}

#[test]
fn names_of_jobs_are_refused_with_the_reason() {
    for (bad, why) in [
        ("", "it is empty"),
        (".", "it must be one component of a path"),
        ("..", "it must be one component of a path"),
        ("a/b", "it must be one component of a path"),
        ("a\u{7}b", "it contains a control character"),
        ("latest", "it has a meaning of its own on the mount"),
        ("manifest.json", "it has a meaning of its own on the mount"),
        ("flink", "it has a meaning of its own on the mount"),
        ("-v", "it starts with a dash"),
        (&"x".repeat(201), "it is longer than 200 bytes"),
    ] {
        let e = job_name(bad).unwrap_err();
        assert!(e.kind() == Kind::Invalid && e.to_string().ends_with(why), "{bad}: {e}");
    }
    assert_eq!(job_name("my job").unwrap().as_str(), "my%20job");
    assert_eq!(job_name("my%20job").unwrap().as_str(), "my%20job");
    assert_eq!(job_name("a.b-c").unwrap().as_str(), "a.b-c");
    let long = Name::encode(&"x".repeat(201));
    assert_eq!(job_name(long.as_str()).unwrap(), long, "as the mount shows it");
}

#[test]
fn a_target_is_free_or_says_why_not() {
    let world = World::new();
    let (new, empty, full, file) = (world.path("new"), world.path("empty"), world.path("full"), world.path("file"));
    std::fs::create_dir(&empty).unwrap();
    std::fs::create_dir_all(full.join("below")).unwrap();
    std::fs::write(&file, b"").unwrap();
    let free = Target::free(&new).unwrap();
    assert!(free.name == "new" && free.there.is_none() && free.parent.path() == world.path(""));
    let there = Target::free(&empty).unwrap();
    assert_eq!(
        there.there.unwrap().mode & 0o777,
        std::os::unix::fs::PermissionsExt::mode(&permissions(&empty)) & 0o777
    );
    for (bad, kind, words) in [
        (full.clone(), Kind::Invalid, "it is not empty"),
        (file, Kind::Invalid, "not a directory"),
        (world.path("away/new"), Kind::NotFound, "there is no such directory to restore into"),
        (PathBuf::from("/"), Kind::Invalid, "name a new directory"),
    ] {
        let e = Target::free(&bad).unwrap_err();
        assert!(e.kind() == kind && e.to_string().contains(words), "{e}");
    }
    let here = Target::free(Path::new("a-name-that-nothing-has")).unwrap();
    assert_eq!((here.parent.path(), here.name.as_str()), (Path::new("."), "a-name-that-nothing-has"));
    assert_eq!(here.absolute().unwrap(), std::env::current_dir().unwrap().canonicalize().unwrap().join(&here.name));
    let link = world.path("link");
    std::os::unix::fs::symlink(world.path("full"), &link).unwrap();
    let behind = Target::free(&link.join("new")).unwrap();
    assert_eq!(behind.absolute().unwrap(), full.canonicalize().unwrap().join("new"));
    // What was filled gets its name, unless somebody was faster.
    std::fs::create_dir(world.path("staged")).unwrap();
    std::fs::write(world.path("staged/x"), b"x").unwrap();
    free.publish("staged").unwrap();
    assert_eq!(names(&new), ["x"]);
    std::fs::create_dir(world.path("staged")).unwrap();
    assert!(free.publish("staged").is_err());
    assert_eq!(names(&new), ["x"]);
}

fn permissions(path: &Path) -> std::fs::Permissions {
    std::fs::metadata(path).unwrap().permissions()
}

#[test]
fn a_layout_is_that_of_the_mount_or_of_one_database() {
    let world = World::new();
    let checkpoint = two(&world);
    let all: Vec<_> = checkpoint.manifest.subtasks.iter().collect();
    let below = |layout: &Layout| layout.files.iter().map(|l| l.below.display().to_string()).collect::<Vec<_>>();
    let files = ["000004.log", "000007.sst", "000008.sst", "000009.sst", "CURRENT"];
    let of = |subtask: u32| files.map(|file| format!("db/{subtask}/db/{file}"));
    let layout = Layout::of(&world.session, &checkpoint, &all).unwrap();
    let mut expected = [of(0), of(1)].concat();
    expected.push("op/0/operator/list/0".to_owned());
    assert_eq!(below(&layout), expected);
    let mounted: Vec<_> = layout.files.iter().map(|l| l.mounted.display().to_string()).collect();
    assert_eq!(mounted, expected.iter().map(|path| format!("app/chk-1/{path}")).collect::<Vec<_>>());
    assert_eq!(layout.databases, [PathBuf::from("db/0/db"), PathBuf::from("db/1/db")]);
    assert_eq!(layout.backends, ["rocks0", "rocks1"]);
    assert_eq!(layout.size(), (11, 2 * LOGICAL + 14));
    let dirs: Vec<_> = layout.directories().iter().map(|d| d.display().to_string()).collect();
    let parents = ["db", "db/0", "db/0/db", "db/1", "db/1/db", "op", "op/0", "op/0/operator", "op/0/operator/list"];
    assert_eq!(dirs, parents);
    assert_eq!(layout.databases_in(Path::new("/t")), [PathBuf::from("/t/db/0/db"), PathBuf::from("/t/db/1/db")]);
    let bundled: Vec<bool> = layout.files[..5].iter().map(Laid::bundled).collect();
    assert_eq!(bundled, [true, false, true, false, true]);
    assert_eq!(layout.files[0].name(), "000004.log");
    // One subtask that is a database becomes the directory.
    let one = Layout::of(&world.session, &checkpoint, &all[1..2]).unwrap();
    assert_eq!(below(&one), files);
    assert_eq!((one.databases.clone(), one.backends.as_slice()), (vec![PathBuf::new()], &["rocks1".to_owned()][..]));
    assert_eq!(one.databases_in(Path::new("/t")), [PathBuf::from("/t")]);
    assert!(one.directories().is_empty());
    assert_eq!(one.files[0].mounted, Path::new("app/chk-1/db/1/db/000004.log"));
    // One that is none does not.
    let operator = Layout::of(&world.session, &checkpoint, &all[2..]).unwrap();
    assert_eq!(below(&operator), ["op/0/operator/list/0"]);
    assert!(operator.databases.is_empty() && operator.backends.is_empty());
    assert!(Layout::of(&world.session, &checkpoint, &[]).unwrap().files.is_empty());
    // The database of a subtask alone, and a part of it.
    let manifest = world.manifest(&checkpoint);
    let database = Layout::database(&checkpoint, all[0], &manifest);
    assert_eq!(below(&database), files);
    assert_eq!(database.files[4].mounted, Path::new("app/chk-1/db/0/db/CURRENT"));
    assert_eq!((database.databases, database.backends), (vec![PathBuf::new()], vec!["rocks0".to_owned()]));
    let part = Layout::part(&checkpoint, all[0], &manifest, &|path| path.as_str().ends_with("sst"));
    assert_eq!(below(&part), ["db/000007.sst", "db/000008.sst", "db/000009.sst"]);
    assert_eq!(part.files[0].mounted, Path::new("app/chk-1/db/0/db/000007.sst"));
    assert!(part.databases.is_empty());
}

#[test]
fn a_subtask_that_is_not_only_a_database_keeps_its_layout() {
    let world = World::new();
    let checkpoint = world.checkpoint("app", |part| {
        part.database(1);
        part.whole("raw-keyed/3", b"raw");
        part.whole("db/.ckptfs-clone.json", b"somebody's");
    });
    let all: Vec<_> = checkpoint.manifest.subtasks.iter().collect();
    let layout = Layout::of(&world.session, &checkpoint, &all).unwrap();
    assert_eq!(layout.databases, [PathBuf::from("db/0/db")]);
    let below: Vec<_> = layout.files.iter().map(|l| l.below.display().to_string()).collect();
    assert_eq!(below.len(), 6, "a clone's record is not restored: {below:?}");
    assert!(below.contains(&"db/0/raw-keyed/3".to_owned()));
    let manifest = world.manifest(&checkpoint);
    let database = Layout::database(&checkpoint, all[0], &manifest);
    assert_eq!(names_of(&database), ["000004.log", "000007.sst", "000008.sst", "000009.sst", "CURRENT"]);
    // Without CURRENT it is no database.
    let other = world.checkpoint("other", |part| {
        part.whole("db/1.sst", b"x");
        part.whole("raw-keyed/3", b"CURRENT");
        part.backend = Some("rocks".to_owned());
    });
    let manifest = world.manifest(&other);
    let layout = Layout::database(&other, &other.manifest.subtasks[0], &manifest);
    assert!(layout.databases.is_empty() && layout.backends.is_empty());
    let all: Vec<_> = other.manifest.subtasks.iter().collect();
    let layout = Layout::of(&world.session, &other, &all).unwrap();
    assert!(layout.databases.is_empty() && layout.backends.is_empty());
}

fn names_of(layout: &Layout) -> Vec<String> {
    layout.files.iter().map(|l| l.below.display().to_string()).collect()
}

#[test]
fn what_is_looked_into_is_brought_and_goes_away_again() {
    let world = World::new();
    let checkpoint = world.database("app");
    let (entry, manifest) = (&checkpoint.manifest.subtasks[0], world.manifest(&checkpoint));
    let tables = |path: &FilePath| path.as_str().ends_with(".sst");
    assert_eq!(Reading::size(&manifest, &tables), (LARGE + SMALL + PLAIN) as u64);
    let reading = Reading::new(&world.session, &checkpoint, None).unwrap();
    assert_eq!(reading.mount(), None);
    let told = Told::default();
    let brought = reading.bring(entry, &manifest, &tables, &told).unwrap();
    let home = world.session.cache.path().join("state");
    let below = brought.path().strip_prefix(&home).unwrap().to_owned();
    let files: Vec<String> = names(&brought.path().join("db"));
    assert_eq!(files, ["000007.sst", "000008.sst", "000009.sst"]);
    assert_eq!(std::fs::read(brought.path().join("db/000007.sst")).unwrap(), noise(2, LARGE));
    let bytes = (LARGE + SMALL + PLAIN) as u64;
    assert_eq!(told.all(), (vec!["copy".to_owned()], vec![(3, bytes)], bytes));
    // A copy that somebody uses stays; what a killed process left goes.
    let (dead, lock) = (home.join("dead"), home.join("dead.lock"));
    std::fs::create_dir(&dead).unwrap();
    std::fs::write(dead.join("x"), b"x").unwrap();
    std::fs::write(&lock, b"").unwrap();
    std::fs::create_dir(home.join("unlocked")).unwrap();
    let second = reading.bring(entry, &manifest, &tables, &Silent).unwrap();
    assert!(!dead.exists() && !lock.exists() && brought.path().exists() && home.join("unlocked").exists());
    assert_ne!(second.path(), brought.path());
    let locked = format!("{}.lock", below.display());
    assert!(names(&home).contains(&locked));
    drop(brought);
    drop(second);
    assert_eq!(names(&home), ["unlocked"]);
    // A mount that is none.
    let e = Reading::new(&world.session, &checkpoint, Some(&home)).unwrap_err();
    assert!(e.kind() == Kind::Invalid && e.to_string().contains("is no ckptfs mount"), "{e}");
}
