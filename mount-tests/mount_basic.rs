//! What a reader sees: the tree, the bytes, the inodes, the sizes.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

use ckptfs::metrics::Operation;

use crate::kit::{Bed, Kept, ino, is_root, ls, noise, passthrough, run, soon};

type Files = Vec<(&'static str, Vec<u8>)>;

/// A database of a few SSTs, and the same one later with one more.
fn two_checkpoints(bed: &Bed) -> (Files, Files) {
    let first = vec![
        ("db/000001.sst", noise(1, 3_000_001)),
        ("db/000002.sst", noise(2, 200_000)),
        ("db/000003.sst", noise(3, 1000)),
        ("db/CURRENT", b"MANIFEST-000004\n".to_vec()),
        ("db/MANIFEST-000004", noise(4, 777)),
        ("db/000005.log", Vec::new()),
    ];
    let mut second = first.clone();
    second.push(("db/000009.sst", noise(9, 500_000)));
    second[4] = ("db/MANIFEST-000004", noise(5, 999));
    let mut kept = Kept::default();
    bed.publish("app", 1, &first, &mut kept);
    bed.publish("app", 2, &second, &mut kept);
    (first, second)
}

fn residency(path: &std::path::Path) -> String {
    let value = ckptfs::local::xattr::lget(path, "user.ckptfs.residency").unwrap().unwrap();
    String::from_utf8(value).unwrap()
}

#[test]
fn every_byte_is_right_with_a_warm_and_with_a_cold_cache() {
    let bed = Bed::new();
    let (first, second) = two_checkpoints(&bed);
    for cache in [bed.cache.clone(), bed.cold()] {
        // Once cold, once warm.
        for round in 0..2 {
            let mounted = bed.mount_with(&cache);
            for (n, files) in [(1, &first), (2, &second)] {
                let db = bed.db("app", &format!("chk-{n}"));
                for (path, bytes) in files {
                    let path = db.join(path.strip_prefix("db/").unwrap());
                    assert_eq!(fs::metadata(&path).unwrap().len(), bytes.len() as u64);
                    assert!(fs::read(&path).unwrap() == *bytes, "{}", path.display());
                    assert!(soon(|| residency(&path) == "local"), "{} is fetched whole", path.display());
                }
                assert_eq!(ls(&db).len(), files.len());
            }
            let counters = mounted.counters();
            if passthrough() && round == 1 {
                assert_eq!(counters.reads.get(), 0, "the kernel reads them all itself");
                assert_eq!(counters.opens_passthrough.get(), 13);
            }
            if !passthrough() {
                assert_eq!(counters.opens_passthrough.get(), 0);
                assert!(counters.read_bytes.get() > 3_000_000);
            }
            mounted.unmount().unwrap();
            assert_eq!(ls(&bed.point), [""; 0]);
        }
    }
}

#[test]
fn copies_are_identical_and_programs_find_their_way() {
    let bed = Bed::new();
    let (first, _) = two_checkpoints(&bed);
    let mounted = bed.mount();
    let copy = bed.root().join("copy");
    run("cp", &["-r", bed.db("app", "chk-1").to_str().unwrap(), copy.to_str().unwrap()]);
    for (path, bytes) in &first {
        assert!(fs::read(copy.join(path.strip_prefix("db/").unwrap())).unwrap() == *bytes, "{path}");
    }
    let point = bed.point.to_str().unwrap();
    let found = run("find", &[point, "-type", "f"]);
    assert_eq!(found.lines().count(), 6 + 7 + 4, "{found}");
    assert_eq!(run("find", &[point, "-type", "l"]).lines().count(), 1);
    assert_eq!(run("find", &[point, "-type", "d"]).lines().count(), 2 + 2 * 4);
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(bed.point.join("app/latest/manifest.json")).unwrap()).unwrap();
    assert_eq!(json["files"], 7);
    mounted.unmount().unwrap();
}

#[test]
fn one_content_is_one_inode_and_du_counts_it_once() {
    let bed = Bed::new();
    let (first, second) = two_checkpoints(&bed);
    let mounted = bed.mount();
    let (a, b) = (bed.db("app", "chk-1"), bed.db("app", "chk-2"));
    for sst in ["000001.sst", "000002.sst", "000003.sst"] {
        fs::read(a.join(sst)).unwrap();
        // The names were lazy when they were looked up, and are local soon after the open.
        assert!(soon(|| ino(&a.join(sst)) == ino(&b.join(sst))));
        assert!(fs::metadata(a.join(sst)).unwrap().nlink() >= 2);
    }
    for own in ["CURRENT", "MANIFEST-000004", "000005.log"] {
        assert_ne!(ino(&a.join(own)), ino(&b.join(own)));
    }
    let unique: usize = first.iter().chain(&second).map(|(_, b)| b.len()).sum::<usize>()
        - first.iter().filter(|(p, _)| p.ends_with(".sst")).map(|(_, b)| b.len()).sum::<usize>();
    let du = run("du", &["-sc", "--apparent-size", "-B1", a.to_str().unwrap(), b.to_str().unwrap()]);
    let total: usize = du.lines().last().unwrap().split('\t').next().unwrap().parse().unwrap();
    assert_eq!(total, unique, "{du}");
    let blocks = run("du", &["-sc", "-B1", a.to_str().unwrap(), b.to_str().unwrap()]);
    let total: usize = blocks.lines().last().unwrap().split('\t').next().unwrap().parse().unwrap();
    assert!((unique..unique + 10 * 512).contains(&total), "{blocks}");
    mounted.unmount().unwrap();
}

#[test]
fn a_new_checkpoint_is_there_at_once() {
    let bed = Bed::new();
    let mounted = bed.mount();
    assert_eq!(ls(&bed.point), [""; 0], "an empty store is an empty directory");
    let mut kept = Kept::default();
    let mut links = Vec::new();
    for n in 1..=5 {
        bed.publish("app", n, &[("db/CURRENT", format!("{n}").into_bytes())], &mut kept);
        let names = ls(&bed.point.join("app"));
        assert!(names.contains(&format!("chk-{n}")) && names.len() as u64 == n + 1, "{names:?}");
        let latest = bed.point.join("app/latest");
        assert_eq!(fs::read_link(&latest).unwrap().to_str().unwrap(), format!("chk-{n}"));
        assert_eq!(fs::read_to_string(latest.join("db/0/db/CURRENT")).unwrap(), format!("{n}"));
        links.push(ino(&latest));
    }
    links.dedup();
    assert_eq!(links.len(), 5);
    // By name, without any listing before.
    bed.publish("other", 1, &[("db/CURRENT", b"x".to_vec())], &mut kept);
    assert!(bed.point.join("other/chk-1/db/0/db/CURRENT").exists());
    assert!(!bed.point.join("other/chk-2").exists() && !bed.point.join("nojob").exists());
    bed.publish("other", 2, &[("db/CURRENT", b"x".to_vec())], &mut kept);
    assert!(bed.point.join("other/chk-2").exists());
    mounted.unmount().unwrap();
}

#[test]
fn a_lazy_file_is_read_at_once_fetched_behind_and_local_from_then_on() {
    let bed = Bed::new();
    two_checkpoints(&bed);
    let cache = bed.cold();
    let mounted = bed.mount_with(&cache);
    let path = bed.db("app", "chk-1").join("000001.sst");
    run("ls", &["-lR", bed.point.to_str().unwrap()]);
    assert_eq!(cache.counters().fetched_files.get(), 0, "listing fetches no file");
    let lazy = ino(&path);
    let residency = || residency(&path);
    assert_eq!(residency(), "lazy");
    let old = File::open(&path).unwrap();
    let read = |file: &File| {
        let mut got = vec![0; 5000];
        file.read_exact_at(&mut got, 2_000_000).unwrap();
        assert!(got == noise(1, 3_000_001)[2_000_000..2_005_000]);
    };
    assert_eq!(residency(), "lazy");
    read(&old);
    assert!(soon(|| residency() == "local"), "what was read is fetched whole");
    assert!(soon(|| ino(&path) != lazy), "the name is taken back although it was to last a day");
    let local = ino(&path);
    assert!(soon(|| ino(&bed.db("app", "chk-2").join("000001.sst")) == local), "each of its names");
    let before = mounted.counters().opens_passthrough.get();
    let new = File::open(&path).unwrap();
    assert_eq!(mounted.counters().opens_passthrough.get() - before, u64::from(passthrough()));
    for file in [&old, &new, &old] {
        read(file);
    }
    assert_eq!(old.metadata().unwrap().ino(), lazy);
    drop((old, new));
    mounted.unmount().unwrap();
}

#[test]
fn a_file_that_was_evicted_is_fetched_again_under_its_local_number() {
    let bed = Bed::new();
    let (first, _) = two_checkpoints(&bed);
    for (_, bytes) in &first {
        bed.keep_local(bytes);
    }
    let mounted = bed.mount();
    let path = bed.db("app", "chk-1").join("000001.sst");
    let local = ino(&path);
    let hex = ckptfs::types::Digest::of(&first[0].1).to_hex();
    fs::remove_file(bed.cache.path().join("files").join(&hex[..2]).join(&hex)).unwrap();
    assert!(fs::read(&path).unwrap() == first[0].1);
    assert_eq!(ino(&path), local);
    assert_eq!(mounted.counters().opens_passthrough.get(), u64::from(passthrough()));
    mounted.unmount().unwrap();
}

#[test]
fn many_files_are_listed_in_few_requests_and_remembered() {
    let bed = Bed::new();
    let mut files = vec![("db/CURRENT".to_owned(), b"x".to_vec())];
    files.extend((0..5000).map(|n| (format!("db/{n:06}.sst"), noise(n, 16))));
    let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(p, b)| (p.as_str(), b.clone())).collect();
    bed.publish("app", 1, &files, &mut Kept::default());
    let mounted = bed.mount();
    let db = bed.db("app", "chk-1");
    // From within: the names above a checkpoint are asked for at every step, by absolute paths at every file.
    let list = || {
        let output = Command::new("ls").arg("-l").current_dir(&db).output().unwrap();
        assert!(output.status.success());
        output.stdout
    };
    let listed = list();
    assert_eq!(listed.split(|b| *b == b'\n').count(), 5003);
    let asked = |what: Operation| mounted.counters().of(what).get().count;
    let (lookups, readdirs) = (asked(Operation::Lookup), asked(Operation::Readdir));
    assert!(lookups < 50, "{lookups} LOOKUPs");
    for _ in 0..3 {
        assert!(list() == listed);
    }
    assert_eq!(asked(Operation::Readdir), readdirs, "the kernel remembers the listing");
    assert!(asked(Operation::Lookup) < lookups + 50);
    // Names that are not there are remembered too.
    let before = asked(Operation::Lookup);
    let dir = ckptfs::local::Dir::open(&db).unwrap();
    for _ in 0..100 {
        assert_eq!(dir.stat("LOCK").unwrap(), None);
    }
    assert!(asked(Operation::Lookup) - before < 10);
    for _ in 0..2 {
        assert_eq!(fs::metadata(db.join("LOCK")).unwrap_err().kind(), ErrorKind::NotFound);
    }
    drop(dir);
    mounted.unmount().unwrap();
}

#[test]
fn attributes_are_what_the_contract_says() {
    let bed = Bed::new();
    let (first, _) = two_checkpoints(&bed);
    let mounted = bed.mount();
    let path = bed.db("app", "chk-1").join("000001.sst");
    let get = |path: &std::path::Path, name: &str| {
        ckptfs::local::xattr::lget(path, name).map(|v| v.map(|v| String::from_utf8(v).unwrap()))
    };
    let digest = ckptfs::types::Digest::of(&first[0].1).to_hex();
    assert_eq!(get(&path, "user.ckptfs.digest").unwrap(), Some(digest));
    assert_eq!(get(&path, "user.ckptfs.size").unwrap().as_deref(), Some("3000001"));
    assert_eq!(get(&path, "user.ckptfs.refs").unwrap().as_deref(), Some("1"));
    ls(&bed.db("app", "chk-2"));
    assert_eq!(get(&path, "user.ckptfs.refs").unwrap().as_deref(), Some("2"));
    assert_eq!(get(&path, "user.other").unwrap(), None, "ENODATA");
    ls(&bed.point);
    assert!(get(&bed.point, "user.ckptfs.listed").unwrap().unwrap().starts_with("20"));
    assert_eq!(get(&bed.point.join("app"), "user.ckptfs.listed").unwrap(), None, "only names were asked for");
    ls(&bed.point.join("app"));
    assert!(get(&bed.point.join("app"), "user.ckptfs.listed").unwrap().is_some());
    assert_eq!(run("getfattr", &["-d", "-m", "-", path.to_str().unwrap()]), "");
    let file = fs::metadata(&path).unwrap();
    let dir = fs::metadata(bed.db("app", "chk-1")).unwrap();
    assert_eq!((file.mode() & 0o7777, dir.mode() & 0o7777), (0o440, 0o550));
    assert_eq!((file.mtime(), file.blocks()), (315_532_800, 3_000_001_u64.div_ceil(512)));
    assert_eq!(file.ino() >> 56, 0);
    let df = run("df", &["--output=fstype,size,avail", "-B1", bed.point.to_str().unwrap()]);
    let words: Vec<&str> = df.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(words[0], "fuse.ckptfs");
    let (size, avail): (u64, u64) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    assert!(avail > 0 && size >= avail + 3_700_000 && size < avail + 10_000_000, "{df}");
    mounted.unmount().unwrap();
}

#[test]
fn a_read_ahead_hint_reads_nothing_wrong_and_costs_no_data() {
    if !passthrough() {
        // Without passthrough a read-ahead is a read like any other; other tests cover those.
        return;
    }
    let bed = Bed::new();
    let (first, _) = two_checkpoints(&bed);
    for (_, bytes) in &first {
        bed.keep_local(bytes);
    }
    let mounted = bed.mount();
    let mut file = File::open(bed.db("app", "chk-1").join("000001.sst")).unwrap();
    ckptfs::local::process::fadvise(&file, 0, 3_000_001, ckptfs::local::process::Advice::WillNeed);
    assert!(soon(|| mounted.counters().hints.get() > 0));
    assert!(soon(|| mounted.counters().invalidations.get() > 0));
    let mut got = Vec::new();
    file.read_to_end(&mut got).unwrap();
    assert!(got == first[0].1);
    assert_eq!(mounted.counters().reads.get(), 0);
    drop(file);
    mounted.unmount().unwrap();
}

#[test]
fn owner_and_modes_follow_the_request() {
    if !is_root() {
        // Only root may show another owner.
        return;
    }
    let bed = Bed::new();
    two_checkpoints(&bed);
    let mut request = bed.request();
    (request.uid, request.gid) = (Some(65534), Some(65533));
    let mounted = ckptfs::fuse::mount(&request, bed.view(&bed.cache)).unwrap();
    let file = fs::metadata(bed.db("app", "chk-1").join("CURRENT")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (65534, 65533, 0o444));
    let options = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = options.lines().find(|l| l.contains(bed.point.to_str().unwrap())).unwrap();
    for option in ["ro", "nosuid", "nodev", "noexec", "default_permissions", "allow_other"] {
        assert!(line.contains(option), "{line}");
    }
    mounted.unmount().unwrap();
}
