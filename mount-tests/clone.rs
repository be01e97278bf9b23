//! Clones: opened read-write at once, they share the cache's files and the mount's, take checkpoints that upload and read nothing they were
//! cloned from, and live on whatever becomes of the checkpoint that they came from.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ckptfs::types::Digest;
use serde_json::Value;

use crate::kit::is_root;
use crate::tool::{Desk, Said, counted, database, load, scan, stored_bytes, tool, walk};

const MARK: &str = ".ckptfs-clone.json";

/// Keys of one SST of about two megabytes.
pub const KEYS: u64 = 10_000;

/// What a snapshot may read that reads no table of a clone: manifests, records, RocksDB's own small files, the program's libraries.
const LITTLE: u64 = 1_000_000;

/// Three large SSTs, a small one and a WAL.
pub fn source(desk: &Desk) -> PathBuf {
    let db = desk.path("source");
    for round in 1..4 {
        load(&db, "default", round, KEYS);
    }
    load(&db, "default", 4, 3);
    tool("ldb", &[&format!("--db={}", db.display()), "put", "last", "in the WAL"]);
    db
}

pub fn with_cache(desk: &Desk, cache: &str, args: &[&str]) -> Command {
    let mut command = desk.command(args);
    command.env("CKPTFS_CACHE", desk.path(cache));
    command
}

pub fn run(desk: &Desk, cache: &str, args: &[&str]) -> Said {
    with_cache(desk, cache, args).output().unwrap().into()
}

/// How the tables of a directory are there: symbolic links, hard links of others' inodes, files of their own.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Tables {
    pub symlinks: usize,
    pub hard: usize,
    pub own: usize,
}

pub fn tables(dir: &Path) -> Tables {
    let mut out = Tables::default();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "sst") {
            continue;
        }
        let meta = path.symlink_metadata().unwrap();
        if meta.is_symlink() {
            out.symlinks += 1;
        } else if meta.nlink() > 1 {
            out.hard += 1;
        } else {
            out.own += 1;
        }
    }
    out
}

/// Contents of the files of a cache, by path.
fn cached(desk: &Desk, cache: &str) -> BTreeMap<PathBuf, (u64, Digest)> {
    let files = walk(&desk.path(cache).join("files")).into_iter();
    files.map(|p| (p.clone(), (fs::metadata(&p).unwrap().ino(), Digest::of(&fs::read(&p).unwrap())))).collect()
}

pub fn pins(desk: &Desk) -> Vec<PathBuf> {
    let dir = desk.path("store/pin");
    if dir.exists() { walk(&dir) } else { Vec::new() }
}

pub fn put(db: &Path, key: &str) {
    tool("ldb", &[&format!("--db={}", db.display()), "put", key, "written to the clone"]);
}

fn compact(db: &Path) {
    tool("ldb", &[&format!("--db={}", db.display()), "compact"]);
}

fn native_checkpoint(db: &Path, to: &Path) {
    tool("ldb", &[&format!("--db={}", db.display()), "checkpoint", &format!("--checkpoint_dir={}", to.display())]);
}

/// Snapshots a directory that has only little that its store lacks: neither uploads nor reads the tables.
#[track_caller]
pub fn snapshot_of_little(desk: &Desk, cache: &str, job: &str, dir: &Path) -> Value {
    let before = stored_bytes(desk);
    let args = ["snapshot", "--json", "--job", job, dir.to_str().unwrap()];
    let (said, read) = counted(&mut with_cache(desk, cache, &args));
    let report: Value = serde_json::from_str(&said.ok()).unwrap();
    let uploaded = stored_bytes(desk) - before;
    assert!(uploaded < 100_000, "{uploaded} bytes uploaded: {report}");
    assert!(read < LITTLE, "{read} bytes read: {report}");
    assert!(report["reused_bytes"].as_u64().unwrap() > 3 * 2_000_000, "{report}");
    report
}

/// Lines of a scan that are not the clone's own.
pub fn scanned(db: &Path) -> Vec<String> {
    scan(db, "default").lines().filter(|l| !l.contains("written to the clone")).map(str::to_owned).collect()
}

#[test]
fn a_warm_clone_is_hard_links_and_needs_no_mount() {
    let desk = Desk::new();
    let source = source(&desk);
    let chk = desk.snapshot(&source);
    let wanted = scanned(&source);
    let before = cached(&desk, "cache");
    let report = desk.ok(&["restore", "--json", &format!("app/{chk}"), "clone", "--job", "app2"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((report["linked"]["files"].as_u64(), report["symlinked"]["files"].as_u64()), (Some(4), Some(0)));
    assert_eq!(report["mount"], Value::Null);
    let clone = desk.path("clone");
    assert_eq!(tables(&clone), Tables { hard: 4, ..Tables::default() });
    assert_eq!(fs::metadata(&clone).unwrap().permissions().mode() & 0o777, 0o700);
    // The inodes are the cache's, which are the source's.
    for (name, _) in database(&source).iter().filter(|(n, b)| n.ends_with(".sst") && b.len() > 128 << 10) {
        assert_eq!(fs::metadata(clone.join(name)).unwrap().ino(), fs::metadata(source.join(name)).unwrap().ino());
    }
    let pin = pins(&desk);
    assert_eq!(pin.len(), 1);
    let record = fs::read_to_string(&pin[0]).unwrap();
    assert!(record.contains(clone.to_str().unwrap()) && record.contains("\"job\":\"app2\""), "{record}");

    assert_eq!(scanned(&clone), wanted);
    put(&clone, "a");
    native_checkpoint(&clone, &desk.path("native"));
    snapshot_of_little(&desk, "cache", "app2", &desk.path("native"));
    // A stopped clone's own directory, too; its record is not part of the checkpoint.
    put(&clone, "b");
    let report = snapshot_of_little(&desk, "cache", "app2", &clone);
    let chk = report["checkpoint"].as_str().unwrap();
    assert!(!desk.ok(&["show", &format!("app2/{chk}/db/0")]).contains(MARK));
    compact(&clone);
    assert_eq!(tables(&clone), Tables { own: 1, ..Tables::default() });
    assert_eq!(scanned(&clone), wanted);
    tool("ldb", &[&format!("--db={}", clone.display()), "deleterange", "a", "zzzz"]);
    compact(&clone);
    assert_eq!(scan(&clone, "default"), "");
    for (path, was) in before {
        assert_eq!((fs::metadata(&path).unwrap().ino(), Digest::of(&fs::read(&path).unwrap())), was);
    }
    assert_eq!(scanned(&source), wanted);
}

#[test]
fn a_cold_clone_is_links_into_the_mount() {
    let desk = Desk::new();
    let source = source(&desk);
    let chk = desk.snapshot(&source);
    let wanted = scanned(&source);
    let from = format!("app/{chk}");
    // Without a mount it says what to do, and leaves nothing.
    run(&desk, "cold", &["restore", &from, "clone"]).fails(1, &["3 of", "ckptfs mount", "--mount", "--copy"]);
    run(&desk, "cold", &["restore", &from, "clone", "--mount", "mnt"])
        .fails(1, &["no ckptfs mount of yours", "ckptfs mount mnt"]);
    assert!(!desk.path("clone").exists() && pins(&desk).is_empty());
    assert!(fs::read_dir(desk.root()).unwrap().all(|e| !e.unwrap().file_name().to_str().unwrap().starts_with('.')));
    assert_eq!(fs::read_dir(desk.path("cold/clones")).unwrap().count(), 0);

    desk.mount("cold");
    // Found by itself among all mounts of the machine.
    run(&desk, "cold", &["restore", &from, "clone"]).ok();
    let clone = desk.path("clone");
    assert_eq!(tables(&clone), Tables { symlinks: 3, hard: 1, own: 0 });
    for entry in fs::read_dir(&clone).unwrap().map(|e| e.unwrap()) {
        if entry.file_type().unwrap().is_symlink() {
            let target = fs::read_link(entry.path()).unwrap();
            assert_eq!(target, desk.mounted_db(&chk).join(entry.file_name()));
        }
    }
    // Making it fetched no table.
    assert!(cached(&desk, "cold").keys().all(|p| fs::metadata(p).unwrap().len() < 1_000_000));
    let mounted = database(&desk.mounted_db(&chk));
    put(&clone, "a");
    assert_eq!(scanned(&clone), wanted);
    native_checkpoint(&clone, &desk.path("native"));
    assert_eq!(tables(&desk.path("native")).symlinks, 3, "RocksDB links the links");
    snapshot_of_little(&desk, "cold", "other", &desk.path("native"));
    snapshot_of_little(&desk, "cold", "other", &clone);
    // Another cache knows nothing of the clone: the links say where they lead.
    snapshot_of_little(&desk, "third", "third", &desk.path("native"));
    compact(&clone);
    assert_eq!(tables(&clone), Tables { own: 1, ..Tables::default() });
    assert_eq!(scanned(&clone), wanted);
    assert!(database(&desk.mounted_db(&chk)) == mounted, "what the links led to is untouched");
    desk.unmount();
    assert_eq!(scanned(&clone), wanted, "it needs the mount no more");
}

#[test]
fn a_half_warm_clone_is_both() {
    let desk = Desk::new();
    let source = source(&desk);
    let chk = desk.snapshot(&source);
    let wanted = scanned(&source);
    let sst = database(&source).into_iter().find(|(n, b)| n.ends_with(".sst") && b.len() > 1_000_000).unwrap();
    let hex = Digest::of(&sst.1).to_hex();
    fs::remove_file(desk.path("cache/files").join(&hex[..2]).join(&hex)).unwrap();
    desk.mount("cache");
    desk.ok(&["restore", &format!("app/{chk}"), "clone", "--mount", "mnt", "--job", "app2"]);
    let clone = desk.path("clone");
    assert_eq!(tables(&clone), Tables { symlinks: 1, hard: 3, own: 0 });
    put(&clone, "a");
    native_checkpoint(&clone, &desk.path("native"));
    snapshot_of_little(&desk, "cache", "app2", &desk.path("native"));
    assert_eq!(scanned(&clone), wanted);
    desk.unmount();
}

#[test]
fn a_clone_whose_mount_is_away_says_so_and_comes_back_with_it() {
    let desk = Desk::new();
    let source = source(&desk);
    let chk = desk.snapshot(&source);
    let wanted = scanned(&source);
    desk.mount("cold");
    run(&desk, "cold", &["restore", &format!("app/{chk}"), "clone", "--mount", "mnt"]).ok();
    desk.unmount();
    let clone = desk.path("clone");
    let before = crate::tool::tree(&clone);
    run(&desk, "cold", &["snapshot", "--job", "app", "clone"])
        .fails(1, &["-> ", "needs its mount", "`ckptfs mount` it at the same place", "do not repair"]);
    #[cfg(feature = "rocksdb")]
    {
        use ckptfs::state::{Database, DatabaseOptions};
        let options = DatabaseOptions::default();
        for opened in
            [Database::open(&clone, &["default"], &options), Database::open_read_only(&clone, &["default"], &options)]
        {
            let e = opened.unwrap_err();
            assert_eq!(e.kind(), ckptfs::error::Kind::Unavailable);
            let text = e.to_string();
            assert!(text.contains("needs its mount") && text.contains("do not repair"), "{text}");
        }
    }
    assert_eq!(crate::tool::tree(&clone), before);
    desk.mount("cold");
    assert_eq!(scanned(&clone), wanted);
    desk.unmount();
}

/// The library's own database, which is RocksDB's newest version.
#[cfg(feature = "rocksdb")]
#[test]
fn a_cold_clone_is_written_compacted_and_snapshotted_by_the_library() {
    use ckptfs::state::{Database, DatabaseOptions};
    let desk = Desk::new();
    let options = DatabaseOptions { create: true, ..DatabaseOptions::default() };
    let origin = Database::open(&desk.path("live"), &["default", "words"], &options).unwrap();
    let fill = |db: &Database, round: u64| {
        let mut batch = db.batch();
        for key in 0..KEYS {
            let value = crate::kit::noise(round * KEYS + key, 200);
            batch.put("words", format!("{round}-{key:08}").as_bytes(), &value).unwrap();
        }
        batch.commit().unwrap();
    };
    for round in 1..4 {
        fill(&origin, round);
        let to = desk.path(&format!("native-{round}"));
        origin.checkpoint(&to).unwrap();
    }
    let chk = desk.snapshot(&desk.path("native-3"));
    drop(origin);
    desk.mount("cold");
    // No job is named: RocksDB's id of the database tells what a native checkpoint of the clone came from.
    run(&desk, "cold", &["restore", &format!("app/{chk}"), "clone", "--mount", "mnt"]).ok();
    let clone = desk.path("clone");
    assert!(tables(&clone).symlinks >= 3, "{:?}", tables(&clone));
    let mounted = database(&desk.mounted_db(&chk));
    let options = DatabaseOptions::default();
    let db = Database::open(&clone, &["default", "words"], &options).unwrap();
    assert_eq!(db.scan("words").unwrap().count() as u64, 3 * KEYS);
    let mut batch = db.batch();
    batch.put("words", b"new", b"value").unwrap();
    batch.delete("words", b"1-00000000").unwrap();
    batch.commit().unwrap();
    db.checkpoint(&desk.path("next")).unwrap();
    snapshot_of_little(&desk, "cold", "third", &desk.path("next"));
    db.compact("words").unwrap();
    assert_eq!(tables(&clone).symlinks, 0, "{:?}", tables(&clone));
    assert_eq!(db.scan("words").unwrap().map(Result::unwrap).count() as u64, 3 * KEYS);
    drop(db);
    assert!(database(&desk.mounted_db(&chk)) == mounted, "what the links led to is untouched");
    desk.unmount();
    let db = Database::open(&clone, &["default", "words"], &options).unwrap();
    assert_eq!(db.get("words", b"new").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_clone_belongs_to_its_directorys_owner() {
    assert!(is_root(), "this test gives files away");
    const OWNER: u32 = 12_345;
    let desk = Desk::new();
    let source = source(&desk);
    let chk = desk.snapshot(&source);
    let from = format!("app/{chk}");
    let clone = desk.path("clone");
    fs::create_dir(&clone).unwrap();
    fs::set_permissions(&clone, fs::Permissions::from_mode(0o750)).unwrap();
    std::os::unix::fs::chown(&clone, Some(OWNER), Some(OWNER)).unwrap();
    let before: Vec<_> = walk(&desk.path("cache/files")).iter().map(|p| fs::metadata(p).unwrap().uid()).collect();
    // The cache's files are root's: they are not linked. And root's mount lets nobody else in.
    desk.mount("cache");
    desk.run(&["restore", &from, "clone", "--mount", "mnt"])
        .fails(1, &["lets in nobody but user 0", "--uid 12345", "--allow-other"]);
    assert_eq!(fs::read_dir(&clone).unwrap().count(), 0);
    assert!(pins(&desk).is_empty());
    desk.unmount();
    desk.ok(&["mount", "mnt", "--daemon", "--uid", "12345"]);
    let said = desk.run(&["restore", &from, "clone", "--mount", "mnt"]);
    assert!(said.err.contains("could not be linked") && said.err.contains("another user"), "{said:?}");
    said.ok();
    assert_eq!(tables(&clone), Tables { symlinks: 3, hard: 0, own: 1 });
    assert_eq!(fs::metadata(&clone).unwrap().permissions().mode() & 0o777, 0o750);
    for path in walk(&clone).iter().chain([&clone]) {
        let meta = path.symlink_metadata().unwrap();
        assert_eq!((meta.uid(), meta.gid()), (OWNER, OWNER), "{}", path.display());
    }
    let after: Vec<_> = walk(&desk.path("cache/files")).iter().map(|p| fs::metadata(p).unwrap().uid()).collect();
    assert_eq!(before, after[..before.len()], "no inode of the cache was given away");
    // That user runs the database, whose native checkpoint hard-links links, which only their owner may.
    let as_owner = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        let ids = ["--reuid", "12345", "--regid", "12345", "--clear-groups", "ldb"];
        let output = command.args(ids).args(args).current_dir(&clone).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    as_owner(&["--db=.", "put", "a", "b"]);
    as_owner(&["--db=.", "checkpoint", "--checkpoint_dir=native"]);
    assert_eq!(tables(&clone.join("native")).symlinks, 3);
    as_owner(&["--db=.", "compact"]);
    assert_eq!(tables(&clone), Tables { symlinks: 0, hard: 0, own: 1 });
    desk.unmount();
}

/// Other links than a clone's are refused; and a mount of another store is read, not believed.
#[test]
fn only_links_into_our_own_mounts_are_followed() {
    let desk = Desk::new();
    let source = source(&desk);
    let chk = desk.snapshot(&source);
    desk.mount("cache");
    let dir = desk.path("linked");
    let link_all = |target: &dyn Fn(&str) -> PathBuf| {
        let _ = fs::remove_dir_all(&dir);
        crate::tool::copy_tree(&source, &dir);
        for name in database(&source).keys().filter(|n| n.ends_with(".sst")) {
            fs::remove_file(dir.join(name)).unwrap();
            symlink(target(name), dir.join(name)).unwrap();
        }
    };
    let refused = &["is a symbolic link", "snapshot the directory that holds the file itself"];
    link_all(&|name| source.join(name));
    desk.run(&["snapshot", "--job", "app", "linked"]).fails(1, refused);
    link_all(&|name| Path::new("../source").join(name));
    desk.run(&["snapshot", "--job", "app", "linked"]).fails(1, refused);
    link_all(&|name| desk.path("mnt/../mnt").join(format!("app/{chk}/db/0/db")).join(name));
    desk.run(&["snapshot", "--job", "app", "linked"]).fails(1, refused);
    link_all(&|_| desk.mounted_db(&chk));
    desk.run(&["snapshot", "--job", "app", "linked"]).fails(1, &["is a symbolic link", "no file of the mount"]);
    link_all(&|name| desk.path("nowhere").join(name));
    desk.run(&["snapshot", "--job", "app", "linked"]).fails(1, &["needs its mount"]);
    // The right ones, but a mutable file among them.
    link_all(&|name| desk.mounted_db(&chk).join(name));
    desk.ok(&["snapshot", "--job", "app", "linked"]);
    fs::remove_file(dir.join("CURRENT")).unwrap();
    symlink(desk.mounted_db(&chk).join("CURRENT"), dir.join("CURRENT")).unwrap();
    desk.run(&["snapshot", "--job", "app", "linked"]).fails(1, refused);

    // The same directory into another store: every byte is read and sent.
    link_all(&|name| desk.mounted_db(&chk).join(name));
    let other = format!("file://{}", desk.path("other-store").display());
    let args = ["--store", &other, "snapshot", "--json", "--job", "app", "linked"];
    let (said, read) = counted(&mut with_cache(&desk, "other-cache", &args));
    let report: Value = serde_json::from_str(&said.ok()).unwrap();
    assert!(report["new_bytes"].as_u64().unwrap() > 6_000_000 && read > 6_000_000, "{read}: {report}");
    let verified: Value = serde_json::from_str(&desk.ok(&["--store", &other, "--json", "verify", "--read"])).unwrap();
    assert_eq!(verified["findings"].as_array().unwrap().len(), 0);
    desk.unmount();
}

/// Several subtasks are one clone with one pin, in the mount's layout; each of its databases knows where it came from.
#[test]
fn a_clone_of_several_subtasks_has_the_mounts_layout() {
    let desk = Desk::new();
    let source = source(&desk);
    let wanted = scanned(&source);
    desk.ok(&["open", "--job", "app", "--expect", "counter=2"]);
    for subtask in ["0", "1"] {
        let named = ["--job", "app", "--checkpoint", "1", "--operator", "counter", "--subtask", subtask];
        desk.ok(&[&["ack"][..], &named[..], &["source"]].concat());
    }
    desk.ok(&["complete", "--job", "app", "--checkpoint", "1"]);
    desk.mount("cold");
    let report = run(&desk, "cold", &["restore", "--json", "app/chk-1", "clone", "--mount", "mnt"]).ok();
    let report: Value = serde_json::from_str(&report).unwrap();
    let databases: Vec<PathBuf> = [0, 1].iter().map(|i| PathBuf::from(format!("clone/counter/{i}/db"))).collect();
    let told: Vec<PathBuf> =
        report["databases"].as_array().unwrap().iter().map(|d| PathBuf::from(d.as_str().unwrap())).collect();
    assert_eq!(told, databases);
    assert_eq!(pins(&desk).len(), 1);
    for (subtask, database) in databases.iter().map(|d| desk.root().join(d)).enumerate() {
        assert_eq!(tables(&database).symlinks, 3);
        assert_eq!(scanned(&database), wanted);
        put(&database, "a");
        snapshot_of_little(&desk, "cold", &format!("job-{subtask}"), &database);
    }
    // Without the pin, the mark of an expired checkpoint is of no use, and costs no number either.
    let pin = report["pin"].as_str().unwrap();
    desk.ok(&["expire", "app/chk-1"]);
    let before = snapshot_of_little(&desk, "cold", "job-0", &desk.path("clone/counter/0/db"));
    desk.ok(&["unpin", pin]);
    let after = snapshot_of_little(&desk, "cold", "job-0", &desk.path("clone/counter/0/db"));
    assert_eq!(before["number"].as_u64().unwrap() + 1, after["number"].as_u64().unwrap());
    desk.unmount();
}

/// Killed at the sight of its staging directory, then a little later each time: there is a whole clone or none, and no pin lasts.
#[test]
fn a_killed_restore_leaves_no_half_clone_and_no_lasting_pin() {
    let desk = Desk::new();
    let source = source(&desk);
    let chk = desk.snapshot(&source);
    let wanted = scanned(&source);
    let mut seen = BTreeMap::new();
    for round in 0..40u32 {
        let name = format!("clone-{round}");
        let mut child = with_cache(&desk, "cache", &["restore", &format!("app/{chk}"), &name])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while !staging_of(&desk, &name) && !desk.path(&name).exists() {
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
        std::thread::sleep(Duration::from_micros(u64::from(round) * 1500));
        child.kill().unwrap();
        child.wait().unwrap();
        let clone = desk.path(&name);
        let state = match (clone.exists(), pins(&desk).iter().any(|p| pinned(p, &name))) {
            (true, true) => {
                assert_eq!(scanned(&clone), wanted);
                "whole"
            }
            (true, false) => panic!("a clone without its pin"),
            (false, true) => "half, pinned",
            (false, false) => "half",
        };
        *seen.entry(state).or_insert(0) += 1;
    }
    println!("{seen:?}");
    assert!(seen.len() >= 2 && seen.contains_key("half, pinned"), "the kills missed: {seen:?}");
    // The next restore cleans up behind the dead.
    desk.ok(&["restore", &format!("app/{chk}"), "last"]);
    let living = fs::read_dir(desk.root()).unwrap().filter(|e| e.as_ref().unwrap().path().join(MARK).exists()).count();
    assert_eq!(pins(&desk).len(), living);
    let left: Vec<_> = fs::read_dir(desk.root()).unwrap().map(|e| e.unwrap().file_name()).collect();
    let half = left.iter().filter(|n| n.to_str().unwrap().starts_with(".clone-")).count();
    assert_eq!(half, 0, "{left:?}");
    // A clone that somebody removes is no longer pinned after the next one.
    fs::remove_dir_all(desk.path("last")).unwrap();
    desk.ok(&["restore", &format!("app/{chk}"), "again"]);
    assert_eq!(pins(&desk).len(), living);
}

fn staging_of(desk: &Desk, name: &str) -> bool {
    let own = format!(".{name}.clone-");
    fs::read_dir(desk.root()).unwrap().flatten().any(|e| e.file_name().to_str().unwrap().starts_with(&own))
}

fn pinned(pin: &Path, name: &str) -> bool {
    fs::read_to_string(pin).is_ok_and(|t| t.contains(&format!("/{name}\"")))
}

/// The checkpoint that a clone was made from is expired and swept around it ten times over, while the database works on, is restarted, loses
/// its daemon by SIGKILL, and is carried to another host: another cache, another daemon, the same mount point.
#[test]
fn a_clone_lives_on_after_its_checkpoint_was_expired_and_swept() {
    let desk = Desk::new();
    let source = source(&desk);
    let chk = desk.snapshot(&source);
    let wanted = scanned(&source);
    desk.mount("cold");
    let from = format!("app/{chk}");
    run(&desk, "cold", &["restore", &from, "clone", "--mount", "mnt", "--job", "app2"]).ok();
    let clone = desk.path("clone");
    // The source goes on, shares nothing with the clone any more, and its first checkpoint dies.
    compact(&source);
    let next = desk.snapshot(&source);
    assert!(stored_bytes(&desk) > 12_000_000, "two generations of tables");
    desk.ok(&["expire", &from]);
    fs::remove_dir_all(desk.path("cache/files")).unwrap();
    let mut cache = "cold";
    for round in 1..=10 {
        desk.ok(&["gc", "--delete", "--forget-all"]);
        assert!(stored_bytes(&desk) > 12_000_000, "the pin keeps what the clone needs");
        match round {
            // The daemon is killed while the database is at rest, and started again.
            3 => {
                let pid = daemon(&desk);
                Command::new("kill").args(["-9", &pid]).status().unwrap();
                assert!(crate::kit::soon(|| !Path::new(&format!("/proc/{pid}/exe")).exists()));
                run(&desk, cache, &["snapshot", "--job", "app2", "clone"])
                    .fails(1, &["does not answer", "`ckptfs mount` it again"]);
                desk.mount(cache);
            }
            // Another host: the directory was copied, links as links; another cache and daemon serve the same path.
            6 => {
                desk.unmount();
                let moved = desk.path("moved");
                crate::tool::copy_tree(&clone, &moved);
                fs::remove_dir_all(desk.path("cold/files")).unwrap();
                cache = "elsewhere";
                desk.mount(cache);
                assert_eq!(scanned(&moved), wanted);
                put(&moved, "moved");
                native_checkpoint(&moved, &desk.path("native-moved"));
                snapshot_of_little(&desk, cache, "app3", &desk.path("native-moved"));
            }
            _ => {}
        }
        assert_eq!(scanned(&clone), wanted);
        put(&clone, &format!("round-{round}"));
        let native = desk.path(&format!("native-{round}"));
        native_checkpoint(&clone, &native);
        assert_eq!(tables(&native).symlinks, 3);
        // The expired checkpoint is a base by the clone's pin, whichever cache the snapshot is taken with.
        let which = if round == 1 { "cold" } else { cache };
        let report = snapshot_of_little(&desk, which, "app2", if round % 2 == 0 { &clone } else { &native });
        let taken = report["checkpoint"].as_str().unwrap();
        let verified = desk.run(&["verify", "--json", "--read", &format!("app2/{taken}")]);
        assert!(verified.ok().contains("\"findings\": []"));
        assert!(!desk.ok(&["ls", "app"]).contains(&format!("{chk} ")), "it is out of sight");
    }
    // Its own checkpoints are whole without the clone: that goes, its pin is dropped by the host that made it, and the rest is swept.
    compact(&clone);
    assert_eq!(scanned(&clone), wanted);
    fs::remove_dir_all(&clone).unwrap();
    let before = stored_bytes(&desk);
    run(&desk, "cold", &["gc", "--delete"]).ok();
    assert!(pins(&desk).is_empty());
    for job in ["app2", "app3"] {
        desk.ok(&["expire", job, "--keep", "1"]);
    }
    run(&desk, "cold", &["gc", "--delete"]).ok();
    assert!(stored_bytes(&desk) <= before);
    assert!(desk.ok(&["verify", "--json", "--read"]).contains("\"findings\": []"));
    assert!(desk.ok(&["ls", "app"]).contains(&next));
    desk.unmount();
}

/// The process that serves the desk's mount.
fn daemon(desk: &Desk) -> String {
    let value = ckptfs::local::xattr::lget(&desk.path("mnt"), "user.ckptfs.daemon").unwrap().unwrap();
    String::from_utf8(value).unwrap()
}
