//! Never a wrong byte: one flipped bit anywhere in the store is an I/O error or a refusal, never other data. `CKPTFS_TEST_SEED`
//! repeats a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ckptfs::format::records::{ExpiredRecord, StoreRecord};
use ckptfs::format::{Intent, Outcome, TaskManifest, decode_at};
use ckptfs::types::{Key, KeyParts};

use crate::tool::{Desk, Said, database, flip, load, walk};

/// Places in blobs that are damaged: `CKPTFS_FLIPS`.
fn places() -> usize {
    std::env::var("CKPTFS_FLIPS").map_or(2000, |n| n.parse().unwrap())
}

/// Numbers that a seed repeats.
struct Random(u64);

impl Random {
    fn seeded() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = std::env::var("CKPTFS_TEST_SEED").map_or(now, |s| s.parse().unwrap());
        println!("CKPTFS_TEST_SEED={seed}");
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// A desk whose store holds three checkpoints of a database of many SSTs, an aborted one and its tombstone.
struct Stored {
    desk: Desk,
    /// Content of every mounted file, by path below the mount point.
    truth: BTreeMap<PathBuf, Vec<u8>>,
}

/// What bytes in the store are for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Its bytes, which are nowhere else.
    Only,
    /// Its bytes, of which there is a copy.
    Twice,
    /// A copy, or its hash tree.
    Beside,
}

impl Stored {
    /// Three checkpoints, each with so many new SSTs.
    fn new(ssts: u64) -> Self {
        let desk = Desk::new();
        let db = desk.path("source");
        let mut truth = BTreeMap::new();
        for checkpoint in 0..3 {
            let rounds = checkpoint * ssts + 1..(checkpoint + 1) * ssts + 1;
            if checkpoint == 1 {
                desk.ok(&["open", "--job", "app", "--expect", "db=1"]);
                desk.ok(&["abort", "--job", "app", "--checkpoint", "2"]);
            }
            for round in rounds {
                load(&db, "default", round, 900 + 40 * (round % 25));
            }
            let chk = desk.snapshot(&db);
            for (name, bytes) in database(&db) {
                truth.insert(PathBuf::from(format!("app/{chk}/db/0/db/{name}")), bytes);
            }
        }
        assert!(desk.path("store/expired/app").exists(), "the aborted one has its tombstone");
        fs::remove_dir_all(desk.path("cache")).unwrap();
        fs::remove_dir_all(&db).unwrap();
        Self { desk, truth }
    }

    fn store(&self) -> PathBuf {
        self.desk.path("store")
    }

    fn objects(&self, blobs: bool) -> Vec<PathBuf> {
        walk(&self.store()).into_iter().filter(|p| p.starts_with(self.store().join("blobs")) == blobs).collect()
    }

    fn key(&self, object: &Path) -> Key {
        Key::parse(object.strip_prefix(self.store()).unwrap().to_str().unwrap()).unwrap()
    }

    /// Reads every file through a mount with an empty cache: its bytes, or the errno.
    fn read_all(&self) -> BTreeMap<PathBuf, Result<Vec<u8>, i32>> {
        let mount = self.desk.mount("fresh");
        let read = |p: &PathBuf| (p.clone(), fs::read(mount.join(p)).map_err(|e| e.raw_os_error().unwrap()));
        let all = self.truth.keys().map(read).collect();
        self.desk.unmount();
        self.drop_cache();
        all
    }

    fn drop_cache(&self) {
        fs::remove_dir_all(self.desk.path("fresh")).unwrap();
    }

    fn verify(&self) -> Said {
        // A store that is refused leaves no cache; there is one to remove all the same.
        fs::DirBuilder::new().mode(0o700).create(self.desk.path("fresh")).unwrap();
        let args = ["--json", "verify", "--read"];
        let said = self.desk.command(&args).env("CKPTFS_CACHE", self.desk.path("fresh")).output().unwrap().into();
        self.drop_cache();
        said
    }

    /// Where the bytes of every mounted file lie, by the manifests: object, offset, length.
    fn places(&self) -> BTreeMap<PathBuf, Vec<(PathBuf, u64, u64, What)>> {
        let mut out = BTreeMap::new();
        for object in self.objects(false) {
            let key = self.key(&object);
            let KeyParts::Task(job, n, operator, subtask) = key.parts() else { continue };
            let task = decode_at::<TaskManifest>(&key, &fs::read(&object).unwrap()).unwrap().record;
            for file in &task.files {
                let place = |e: &ckptfs::types::Extent, what| {
                    let blob = self.store().join(Key::blob(&task.blobs[e.blob as usize].name).as_str());
                    (blob, e.offset, e.length, what)
                };
                let mut all: Vec<_> = file.extents.iter().map(|e| place(e, What::Only)).collect();
                if let (Some(tail), [whole]) = (file.tail, all.as_mut_slice()) {
                    // The mount reads the tail from its copy in the bundle.
                    whole.2 = tail.start;
                    let object = whole.0.clone();
                    all.push((object, tail.start, file.size - tail.start, What::Twice));
                }
                all.extend(file.tree.iter().map(|e| place(e, What::Beside)));
                all.extend(file.tail.iter().map(|t| place(&t.extent, What::Beside)));
                out.insert(PathBuf::from(format!("{job}/{n}/{operator}/{subtask}/{}", file.path)), all);
            }
        }
        out
    }
}

#[test]
fn one_flipped_bit_in_a_blob_is_an_io_error_and_verify_names_the_file() {
    let mut random = Random::seeded();
    let begun = Instant::now();
    // The more places, the more blobs, of which three of four are damaged at once: one mount tells about all of them.
    let wanted = places();
    let stored = Stored::new(if wanted > 10_000 { 32 } else { 8 });
    let places = stored.places();
    assert_eq!(places.keys().collect::<Vec<_>>(), stored.truth.keys().collect::<Vec<_>>());
    let blobs = stored.objects(true);
    let bundles: BTreeSet<&PathBuf> =
        blobs.iter().filter(|b| places.values().flatten().any(|p| p.3 == What::Beside && p.0 == **b)).collect();
    assert!(blobs.len() >= 25 && bundles.len() >= 3, "{} blobs, {} bundles", blobs.len(), bundles.len());
    let clean = stored.read_all();
    assert!(clean.iter().all(|(p, got)| got.as_ref() == Ok(&stored.truth[p])), "without damage all is right");
    stored.verify().ok();

    let (mut done, mut failed, mut right, mut in_bundles) = (0, 0, 0, 0);
    let at_once = blobs.len() * 3 / 4;
    while done < wanted {
        let mut flips: BTreeMap<&PathBuf, (u64, u8)> = BTreeMap::new();
        while flips.len() < at_once.min(wanted - done) {
            let blob = &blobs[random.below(blobs.len() as u64) as usize];
            let at = random.below(fs::metadata(blob).unwrap().len());
            flips.entry(blob).or_insert((at, random.below(8) as u8));
        }
        flips.iter().for_each(|(blob, (at, bit))| flip(blob, *at, *bit));
        let got = stored.read_all();
        let said = stored.verify();
        flips.iter().for_each(|(blob, (at, bit))| flip(blob, *at, *bit));
        done += flips.len();
        in_bundles += flips.keys().filter(|b| bundles.contains(*b)).count();

        for (path, got) in &got {
            let hit = |p: &(PathBuf, u64, u64, What)| {
                p.3 == What::Only && flips.get(&p.0).is_some_and(|(at, _)| (p.1..p.1 + p.2).contains(at))
            };
            let touched = places[path].iter().any(|p| flips.contains_key(&p.0));
            match got {
                Ok(bytes) => {
                    right += 1;
                    assert!(*bytes == stored.truth[path], "a wrong byte in {}: {flips:?}", path.display());
                    assert!(!places[path].iter().any(hit), "{} cannot be right: {flips:?}", path.display());
                }
                Err(errno) => {
                    failed += 1;
                    assert_eq!(*errno, libc::EIO, "{}", path.display());
                    assert!(touched, "nothing of {} is damaged: {flips:?}", path.display());
                }
            }
        }
        said.fails(3, &[]);
        let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let findings = report["findings"].as_array().unwrap();
        assert_eq!(findings.len(), flips.len(), "{findings:?}\n{flips:?}");
        for (blob, place) in &flips {
            let object = blob.strip_prefix(stored.store()).unwrap().to_str().unwrap();
            let finding =
                findings.iter().find(|f| f["object"] == object).unwrap_or_else(|| panic!("{object}: {said:?}"));
            let named: Vec<&str> = finding["files"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
            assert!(!named.is_empty(), "{finding}");
            let inside = |path: &&str| places[Path::new(path)].iter().any(|p| p.0 == ***blob);
            assert!(named.iter().all(inside), "{named:?} of {object} at {place:?}");
        }
    }
    println!(
        "{done} flips ({in_bundles} in bundles) in {} blobs: {failed} reads failed, {right} were right, 0 wrong; {:.1} s",
        blobs.len(),
        begun.elapsed().as_secs_f64()
    );
    assert!(failed >= wanted / 2 && right > 0 && in_bundles > 0);
    let mended = stored.read_all();
    assert!(mended.iter().all(|(p, got)| got.as_ref() == Ok(&stored.truth[p])), "nothing remembers the damage");
}

/// Whether the program would believe these bytes at this key.
fn believed(key: &Key, bytes: &[u8]) -> bool {
    match key.parts() {
        KeyParts::Store => decode_at::<StoreRecord>(key, bytes).is_ok(),
        KeyParts::Intent(..) => decode_at::<Intent>(key, bytes).is_ok(),
        KeyParts::Task(..) => decode_at::<TaskManifest>(key, bytes).is_ok(),
        KeyParts::Outcome(..) => decode_at::<Outcome>(key, bytes).is_ok(),
        KeyParts::Expired(..) => decode_at::<ExpiredRecord>(key, bytes).is_ok(),
        _ => panic!("a snapshot writes no {key}"),
    }
}

#[test]
fn one_flipped_bit_in_a_metadata_object_is_refused_and_verify_names_it() {
    let mut random = Random::seeded();
    let stored = Stored::new(8);
    let objects = stored.objects(false);
    let mut bits = 0;
    for object in &objects {
        let (key, bytes) = (stored.key(object), fs::read(object).unwrap());
        assert!(believed(&key, &bytes), "{key} is whole");
        let mut damaged = bytes.clone();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                damaged[at] ^= 1 << bit;
                assert!(!believed(&key, &damaged), "{key}: bit {bit} of byte {at} does not matter");
                damaged[at] ^= 1 << bit;
                bits += 1;
            }
        }
    }
    for object in &objects {
        let key = stored.key(object);
        let (at, bit) = (random.below(fs::metadata(object).unwrap().len()), random.below(8) as u8);
        flip(object, at, bit);
        let said = stored.verify();
        let what = format!("{key}: bit {bit} of byte {at}");
        if key == Key::store() {
            // A flipped version says that it is newer, and cannot be told from one.
            assert!(said.code == 3 || (said.code == 1 && said.err.contains("upgrade")), "{what}: {said:?}");
            assert!(said.err.contains("ckptfs.json"), "{what}: {said:?}");
            assert_ne!(stored.desk.run(&["mount", "mnt"]).code, 0, "{what}");
        } else {
            said.fails(3, &[]);
            assert!(said.out.contains(key.as_str()), "{what}: {said:?}");
            let got = stored.read_all();
            let shadow = match key.parts() {
                KeyParts::Task(job, n, ..) | KeyParts::Outcome(job, n) => format!("{job}/{n}/"),
                _ => "nothing".to_owned(),
            };
            let hurt = got.keys().filter(|p| p.starts_with(&shadow)).count();
            for (path, got) in got {
                match got {
                    Ok(bytes) if !path.starts_with(&shadow) => assert!(bytes == stored.truth[&path], "{what}"),
                    // A checkpoint that cannot be believed is not there; one whose parts cannot be is an error.
                    Err(libc::EIO | libc::ENOENT) if path.starts_with(&shadow) => {}
                    other => panic!("{what}: {} gives {:?}", path.display(), other.map(|b| b.len())),
                }
            }
            assert!(hurt > 0 || !matches!(key.parts(), KeyParts::Task(..)), "{what}");
        }
        flip(object, at, bit);
    }
    println!("{} metadata objects, {bits} bits, each refused", objects.len());
    assert!(objects.len() >= 12);
    stored.verify().ok();
}

#[test]
fn a_flipped_bit_in_the_caches_copy_is_found_and_fetched_anew() {
    let mut random = Random::seeded();
    let desk = Desk::new();
    let db = desk.path("source");
    for round in 1..6 {
        load(&db, "default", round, 2_000);
    }
    let truth = database(&db);
    let chk = desk.snapshot(&db);
    let cached = |name: &str| {
        let hex = ckptfs::types::Digest::of(&truth[name]).to_hex();
        desk.path("cache/files").join(&hex[..2]).join(hex)
    };
    let ssts: Vec<&String> = truth.keys().filter(|n| n.ends_with(".sst")).collect();
    desk.ok(&["verify", "--read"]);
    for name in &ssts {
        let copy = cached(name);
        assert!(fs::read(&copy).unwrap() == truth[*name], "the cache has {name}");
        flip(&copy, random.below(truth[*name].len() as u64), random.below(8) as u8);
        assert!(fs::read(&copy).unwrap() != truth[*name]);
    }
    // Its record is still believed: only reading tells.
    desk.ok(&["verify"]);
    // Found again as long as it lies there; mended when asked.
    for (args, code) in
        [(&["verify", "--read"][..], 3), (&["verify", "--read"], 3), (&["verify", "--read", "--repair"], 0)]
    {
        let said = desk.run(args);
        said.fails(code, &[]);
        for name in &ssts {
            assert!(said.out.contains(&format!("app/{chk}/db/0/db/{name}")), "{name}: {said:?}");
            assert_eq!(
                fs::read(cached(name)).unwrap() == truth[*name],
                code == 0,
                "{name} is fetched anew by --repair"
            );
        }
    }
    desk.ok(&["verify", "--read"]);
    desk.mount("cache");
    assert!(database(&desk.mounted_db(&chk)) == truth);
    desk.unmount();
    // A copy compares every byte, though the record of a cached file is believed: the store has another.
    flip(&cached(ssts[0]), 77, 3);
    let (from, to) = (format!("app/{chk}"), desk.path("restored"));
    desk.ok(&["restore".as_ref(), "--copy".as_ref(), from.as_ref(), to.as_os_str()]);
    assert!(database(&to) == truth);
}

/// The blobs that were fetched in part when a daemon was killed are no more believed than what a stranger had put there.
#[test]
fn flipped_bits_in_partial_files_are_never_served() {
    let mut random = Random::seeded();
    let desk = Desk::new();
    let db = desk.path("source");
    for round in 1..6 {
        load(&db, "default", round, 20_000);
    }
    let truth = database(&db);
    let chk = desk.snapshot(&db);
    let mounted = desk.mounted_db(&chk);
    let mount = || {
        let mut args = vec!["-q", "mount", "mnt", "--no-fetch-behind"];
        if !crate::kit::passthrough() {
            args.push("--no-passthrough");
        }
        let daemon = desk.command(&args).env("CKPTFS_CACHE", desk.path("cold")).spawn().unwrap();
        assert!(crate::kit::soon(|| File::open(mounted.join("CURRENT")).is_ok()));
        daemon
    };
    let (mut flips, mut rounds) = (0, 0);
    while flips < places() / 10 {
        let mut daemon = mount();
        for (name, bytes) in truth.iter().filter(|(name, _)| name.ends_with(".sst")) {
            // Some of its groups, and never all.
            let mut got = vec![0; 300_000];
            let at = random.below((bytes.len() - got.len()) as u64);
            File::open(mounted.join(name)).unwrap().read_exact_at(&mut got, at).unwrap();
            assert!(got == bytes[at as usize..at as usize + got.len()], "{name}");
        }
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        let partial = walk(&desk.path("cold/partial"));
        assert!(!partial.is_empty(), "nothing was fetched in part");
        for path in partial.iter().filter(|p| fs::metadata(p).unwrap().len() > 0) {
            for _ in 0..8 {
                flip(path, random.below(fs::metadata(path).unwrap().len()), random.below(8) as u8);
                flips += 1;
            }
        }
        let mut daemon = mount();
        assert!(database(&mounted) == truth, "a flipped bit in {partial:?} is served");
        ckptfs::local::process::terminate(daemon.id()).unwrap();
        assert!(daemon.wait().unwrap().success());
        fs::remove_dir_all(desk.path("cold")).unwrap();
        rounds += 1;
    }
    println!("{flips} flips in partial files, {rounds} daemons killed");
}
