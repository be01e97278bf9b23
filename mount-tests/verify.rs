//! `verify` for good: every kind of damage named by object, checkpoint, operator and subtask; repairs of what is provably safe; reading
//! by sample and with interruptions; what nothing needs. And snapshots that do not inherit what their base lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use ckptfs::format::records::{PinHolder, PinRecord};
use ckptfs::format::{Place, Role, TaskManifest, decode_at, encode};
use ckptfs::lifecycle::driver;
use ckptfs::lifecycle::expire::Expire;
use ckptfs::lifecycle::hide::Hide;
use ckptfs::lifecycle::pin::{Pin, PinRef};
use ckptfs::store::{Store, StoreOptions};
use ckptfs::types::{BlobName, CheckpointNumber, Digest, Key, Name, Uid};
use serde_json::{Value, json};

use crate::tool::{Desk, Said, database, flip, load, walk};

/// Large enough for an SST of its own blob.
const KEYS: u64 = 1_200;

/// A subtask of a checkpoint, and its files: `app/chk-1/count/0` and `db/000012.sst`.
type Hurts = BTreeMap<String, BTreeSet<String>>;

/// What a finding is told by: kind, object, and whom it hurts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    kind: String,
    object: String,
    hurts: Hurts,
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn number(n: u64) -> CheckpointNumber {
    CheckpointNumber::new(n).unwrap()
}

fn hurts(of: &[(&str, &[&str])]) -> Hurts {
    of.iter().map(|(who, files)| ((*who).to_owned(), files.iter().map(|f| (*f).to_owned()).collect())).collect()
}

/// A desk whose job `app` has two subtasks of operator `count`.
struct Field {
    desk: Desk,
}

impl Field {
    fn new() -> Self {
        Self { desk: Desk::new() }
    }

    fn db(&self, subtask: u32) -> PathBuf {
        self.desk.path(&format!("db-{subtask}"))
    }

    /// A checkpoint of both subtasks.
    fn take(&self) -> u64 {
        let chk = self.desk.ok(&["open", "--job", "app", "--expect", "count=2"]).trim().to_owned();
        for subtask in 0..2 {
            let (index, dir) = (subtask.to_string(), self.db(subtask));
            let args = ["ack", "--job", "app", "--checkpoint", &chk, "--operator", "count", "--subtask", &index];
            let args: Vec<&std::ffi::OsStr> = args.iter().map(|a| (*a).as_ref()).chain([dir.as_os_str()]).collect();
            self.desk.ok(&args);
        }
        self.desk.ok(&["complete", "--job", "app", "--checkpoint", &chk]);
        chk.trim_start_matches("chk-").parse().unwrap()
    }

    fn object(&self, key: &Key) -> PathBuf {
        self.desk.path("store").join(key.as_str())
    }

    fn store(&self) -> Store {
        Store::open(&self.desk.store, StoreOptions::default()).unwrap()
    }

    fn task(&self, n: u64, subtask: u32) -> TaskManifest {
        let key = Key::task(&name("app"), number(n), &name("count"), subtask);
        decode_at::<TaskManifest>(&key, &fs::read(self.object(&key)).unwrap()).unwrap().record
    }

    /// The cache's copy of what has this digest.
    fn cached(&self, digest: &Digest) -> PathBuf {
        let hex = digest.to_hex();
        self.desk.path("cache/files").join(&hex[..2]).join(hex)
    }

    /// Everybody who needs a blob, in these checkpoints.
    fn needs(&self, blob: &BlobName, checkpoints: &[u64]) -> Hurts {
        let mut out = Hurts::new();
        for (n, subtask) in checkpoints.iter().flat_map(|n| [(*n, 0), (*n, 1)]) {
            let key = Key::task(&name("app"), number(n), &name("count"), subtask);
            if !self.object(&key).exists() {
                continue;
            }
            let task = self.task(n, subtask);
            for file in &task.files {
                let extras = file.tree.iter().chain(file.tail.iter().map(|t| &t.extent));
                if file.extents.iter().chain(extras).any(|e| task.blobs[e.blob as usize].name == *blob) {
                    out.entry(format!("app/chk-{n}/count/{subtask}")).or_default().insert(file.path.to_string());
                }
            }
        }
        out
    }

    fn verify(&self, args: &[&str]) -> (Said, Value) {
        let said = self.desk.run(&[&["--json", "verify"], args].concat());
        assert!(said.code == 0 || said.code == 3, "{said:?}");
        let report = serde_json::from_str(&said.out).unwrap();
        (said, report)
    }
}

/// Findings of a report, and of each whether it was mended.
fn told(report: &Value) -> BTreeMap<Told, bool> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let one = |f: &Value| {
        let mut hurts = Hurts::new();
        for hurt in f["hurts"].as_array().unwrap() {
            let mut who = format!("{}/{}", text(&hurt["job"]), text(&hurt["checkpoint"]));
            if !hurt["operator"].is_null() {
                who += &format!("/{}/{}", text(&hurt["operator"]), hurt["subtask"].as_u64().unwrap());
            }
            assert_eq!(hurt["more_files"], 0, "{f}");
            hurts.insert(who, hurt["files"].as_array().unwrap().iter().map(text).collect());
        }
        (Told { kind: text(&f["kind"]), object: text(&f["object"]), hurts }, !f["mended"].is_null())
    };
    let findings = report["findings"].as_array().unwrap();
    let told: BTreeMap<Told, bool> = findings.iter().map(one).collect();
    assert_eq!(told.len(), findings.len(), "each once: {findings:#?}");
    told
}

/// The bundle that a snapshot uploaded.
fn bundle(task: &TaskManifest) -> BlobName {
    let own = task.blobs.iter().filter(|b| b.bundle && b.name.uid == task.place.uid);
    own.map(|b| b.name).next().expect("a new bundle")
}

fn shorten(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
}

#[test]
fn every_planted_damage_is_named_and_exactly_the_provable_ones_are_mended() {
    let field = Field::new();
    let desk = &field.desk;
    for checkpoint in 0..4 {
        for (subtask, first) in [(0, 100), (1, 200)] {
            let rounds = if checkpoint == 0 { 0..6 } else { 6 + checkpoint..7 + checkpoint };
            rounds.for_each(|round| load(&field.db(subtask), "default", first + round, KEYS));
        }
        assert_eq!(field.take(), checkpoint + 1);
    }
    load(&desk.path("beside"), "default", 1, KEYS);
    desk.ok(&["snapshot".as_ref(), "--job".as_ref(), "other".as_ref(), desk.path("beside").as_os_str()]);
    desk.ok(&["verify", "--read"]);

    // The SSTs of the first checkpoint, which all others name too.
    let first = field.task(1, 0);
    let ssts: Vec<BlobName> = first.blobs.iter().filter(|b| !b.bundle).map(|b| b.name).collect();
    assert!(ssts.len() >= 6);
    let path = |blob: &BlobName| field.object(&Key::blob(blob));
    let lost_cache = |digest: &Digest| fs::remove_file(field.cached(digest)).unwrap();
    let living = [1, 2, 3];
    let mut planted: BTreeMap<Told, bool> = BTreeMap::new();
    let mut plant = |kind: &str, object: String, hurts: Hurts, mendable: bool| {
        assert!(planted.insert(Told { kind: kind.to_owned(), object, hurts }, mendable).is_none());
    };
    let mut plant_blob = |kind: &str, blob: &BlobName, mendable: bool| {
        let hurts = field.needs(blob, &living);
        assert!(!hurts.is_empty(), "{kind}");
        plant(kind, Key::blob(blob).to_string(), hurts, mendable);
    };

    // 1 to 4: blobs. The first two are in the cache.
    plant_blob("missing", &ssts[0], true);
    plant_blob("short", &ssts[1], true);
    plant_blob("damaged", &ssts[2], false);
    plant_blob("unreadable", &ssts[3], false);
    // 5 and 6: bundles that the cache has not.
    let (gone, flipped) = (bundle(&field.task(2, 1)), bundle(&field.task(3, 0)));
    plant_blob("missing", &gone, false);
    plant_blob("damaged", &flipped, false);
    // 7 and 8: task manifests. The cache has the second.
    let (task_1, task_2) =
        (Key::task(&name("app"), number(1), &name("count"), 1), Key::task(&name("app"), number(2), &name("count"), 0));
    plant("missing", task_1.to_string(), hurts(&[("app/chk-1/count/1", &["manifest.json"])]), false);
    plant("damaged", task_2.to_string(), hurts(&[("app/chk-2/count/0", &["manifest.json"])]), true);
    // 9: an outcome.
    let outcome = Key::outcome(&name("app"), number(4));
    let both = hurts(&[("app/chk-4/count/0", &["manifest.json"]), ("app/chk-4/count/1", &["manifest.json"])]);
    plant("damaged", outcome.to_string(), both, false);
    // 10: a pin of a checkpoint that never was.
    let (holder, nonce) = (Uid::random().unwrap(), Uid::random().unwrap());
    let mut place = Place::new(Role::Pin, &name("app"), 9, Uid::random().unwrap());
    (place.holder, place.nonce) = (Some(holder), Some(nonce));
    let pin = Key::pin(&name("app"), number(9), holder, nonce);
    let record = PinRecord { place, holder: PinHolder::Person { note: "for the audit".to_owned() }, pinned_ms: 1 };
    plant("dangling pin", pin.to_string(), hurts(&[("app/chk-9", &[])]), false);
    // 11 and 12: nobody's blob, and one that its uploader does not name.
    let other: Value = {
        let text = fs::read_to_string(field.object(&Key::outcome(&name("other"), number(1)))).unwrap();
        serde_json::from_str(text.lines().nth(1).unwrap()).unwrap()
    };
    let stray = |uid: Uid| BlobName { digest: Digest::of(b"stray"), uid };
    let foreign = stray(Uid::random().unwrap());
    let unreferenced = stray(other["place"]["uid"].as_str().unwrap().parse().unwrap());
    plant("foreign", Key::blob(&foreign).to_string(), Hurts::new(), false);
    plant("unreferenced", Key::blob(&unreferenced).to_string(), Hurts::new(), false);
    plant("foreign", "holiday/photo.jpg".to_owned(), Hurts::new(), false);
    // 13: a cached file whose store is whole.
    let cached = field.cached(&ssts[4].digest);
    plant(
        "damaged",
        cached.display().to_string(),
        {
            let by_digest = |task: &TaskManifest| -> BTreeSet<String> {
                task.files.iter().filter(|f| f.digest == ssts[4].digest).map(|f| f.path.to_string()).collect()
            };
            living.iter().map(|n| (format!("app/chk-{n}/count/0"), by_digest(&field.task(*n, 0)))).collect()
        },
        true,
    );

    let truth = walk(&desk.path("store"));
    let whole: BTreeMap<&PathBuf, Vec<u8>> = truth.iter().map(|p| (p, fs::read(p).unwrap())).collect();
    fs::remove_file(path(&ssts[0])).unwrap();
    shorten(&path(&ssts[1]));
    flip(&path(&ssts[2]), 1234, 5);
    fs::remove_file(path(&ssts[3])).unwrap();
    fs::create_dir(path(&ssts[3])).unwrap();
    [&ssts[2], &ssts[3], &gone, &flipped].iter().for_each(|blob| lost_cache(&blob.digest));
    fs::remove_file(path(&gone)).unwrap();
    flip(&path(&flipped), 100, 0);
    let digest_of = |key: &Key| Digest::of(&fs::read(field.object(key)).unwrap());
    fs::remove_file(desk.path("cache/manifests").join(digest_of(&task_1).to_hex())).unwrap();
    assert!(desk.path("cache/manifests").join(digest_of(&task_2).to_hex()).exists());
    fs::remove_file(field.object(&task_1)).unwrap();
    flip(&field.object(&task_2), 300, 1);
    flip(&field.object(&outcome), 300, 1);
    fs::create_dir_all(field.object(&pin).parent().unwrap()).unwrap();
    fs::write(field.object(&pin), encode(&record).unwrap()).unwrap();
    for blob in [&foreign, &unreferenced] {
        fs::create_dir_all(path(blob).parent().unwrap()).unwrap();
        fs::write(path(blob), b"stray").unwrap();
    }
    fs::create_dir(desk.path("store/holiday")).unwrap();
    fs::write(desk.path("store/holiday/photo.jpg"), b"meow").unwrap();
    flip(&cached, 77, 2);

    let (said, report) = field.verify(&["--read"]);
    assert_eq!(said.code, 3);
    let found = told(&report);
    assert_eq!(found.keys().collect::<Vec<_>>(), planted.keys().collect::<Vec<_>>(), "{said:?}");
    assert!(found.values().all(|mended| !mended));
    // People see the same: kind, file and object on one line.
    let people = desk.run(&["verify", "--read"]);
    people.fails(3, &[]);
    for finding in planted.keys() {
        let line = people.out.lines().find(|l| l.contains(&finding.object)).unwrap_or_else(|| panic!("{finding:?}"));
        assert!(line.starts_with(&finding.kind), "{line}");
        for (who, files) in &finding.hurts {
            assert!(
                people.out.contains(&format!("{who}{}", files.first().map_or_else(String::new, |f| format!("/{f}"))))
            );
        }
    }
    // Nothing was changed by looking.
    let (again, report) = field.verify(&["--read"]);
    assert!(again.code == 3 && told(&report) == found);
    // Without reading, what only reading tells is not told.
    let (quick, report) = field.verify(&[]);
    assert_eq!(quick.code, 3);
    let unread = |t: &&Told| t.kind != "damaged" || t.object.starts_with("task/") || t.object.starts_with("outcome/");
    assert_eq!(told(&report).keys().collect::<Vec<_>>(), planted.keys().filter(unread).collect::<Vec<_>>());

    let (said, report) = field.verify(&["--read", "--repair"]);
    assert_eq!(said.code, 3, "not all can be mended");
    let mended = told(&report);
    assert_eq!(mended, planted, "{said:?}");
    assert_eq!(mended.values().filter(|m| **m).count(), 4);
    for object in [path(&ssts[0]), path(&ssts[1]), field.object(&task_2)] {
        assert!(fs::read(&object).unwrap() == whole[&object], "{}", object.display());
    }
    assert_eq!(Digest::of(&fs::read(&cached).unwrap()), ssts[4].digest);

    let (said, report) = field.verify(&["--read"]);
    assert_eq!(said.code, 3);
    let left: BTreeMap<Told, bool> = planted.iter().filter(|(_, m)| !**m).map(|(t, _)| (t.clone(), false)).collect();
    assert_eq!(told(&report), left);
    println!("{} planted, {} mended, {} left", planted.len(), planted.len() - left.len(), left.len());

    // With the rest of the damage undone by hand, what nothing needs is told and is no damage.
    fs::remove_dir(path(&ssts[3])).unwrap();
    fs::remove_file(field.object(&pin)).unwrap();
    for (object, bytes) in &whole {
        if fs::read(object).ok().as_ref() != Some(bytes) {
            let _ = fs::remove_file(object);
            fs::write(object, bytes).unwrap();
        }
    }
    let (said, report) = field.verify(&["--read"]);
    assert_eq!(said.code, 0, "{said:?}");
    let kinds: Vec<String> = told(&report).into_keys().map(|t| t.kind).collect();
    assert_eq!(kinds, ["foreign", "foreign", "unreferenced"]);
    let (said, _) = field.verify(&["--repair"]);
    assert!(said.code == 0 && path(&foreign).exists() && path(&unreferenced).exists(), "nothing is ever deleted");
}

#[test]
fn hidden_and_pinned_checkpoints_are_verified_and_dead_ones_are_not() {
    let field = Field::new();
    for n in 1..4 {
        (0..2).for_each(|s| load(&field.db(s), "default", n, KEYS));
        field.take();
    }
    let (store, job) = (field.store(), name("app"));
    driver::run(&store, Hide::new(job.clone(), number(2), Uid::random().unwrap(), 1)).unwrap();
    let pin =
        PinRef { job: job.clone(), number: number(1), holder: Uid::random().unwrap(), nonce: Uid::random().unwrap() };
    let note = PinHolder::Person { note: String::new() };
    driver::run(&store, Pin::new(pin.clone(), note, 1)).unwrap();
    driver::run(&store, Expire::new(job, number(1), "old".to_owned())).unwrap();
    field.verify(&["--read"]).0.ok();
    for n in [1, 2] {
        let blob = bundle(&field.task(n, 0));
        let object = field.object(&Key::blob(&blob));
        let bytes = fs::read(&object).unwrap();
        let needed = field.needs(&blob, &[1, 2, 3]);
        assert!(needed.contains_key(&format!("app/chk-{n}/count/0")));
        fs::remove_file(&object).unwrap();
        let (said, report) = field.verify(&[]);
        assert_eq!(said.code, 3);
        let told: Vec<Told> = told(&report).into_keys().collect();
        assert_eq!(told, [Told { kind: "missing".to_owned(), object: Key::blob(&blob).to_string(), hurts: needed }]);
        fs::write(&object, bytes).unwrap();
    }
    // Without its pin it is dead: what it alone had is garbage.
    let blob = bundle(&field.task(1, 0));
    let alone = !field.needs(&blob, &[2, 3]).is_empty();
    assert!(alone, "its SSTs live on in others, and so does its bundle");
    store.delete(&pin.key()).unwrap();
    let (said, report) = field.verify(&["--read"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(report["checkpoints"], 2);
    fs::remove_file(field.object(&Key::task(&name("app"), number(1), &name("count"), 0))).unwrap();
    assert_eq!(field.verify(&["--read"]).0.code, 0, "nobody needs the manifest of a dead one");
}

#[test]
fn reading_takes_samples_goes_on_after_a_kill_and_never_reads_the_cache_instead() {
    let desk = Desk::new();
    let db = desk.path("db");
    (0..60).for_each(|round| load(&db, "default", round, 4 * KEYS));
    let chk = desk.snapshot(&db);
    let blobs: Vec<PathBuf> = walk(&desk.path("store/blobs"));
    let stored: u64 = blobs.iter().map(|b| fs::metadata(b).unwrap().len()).sum();
    assert!(blobs.len() > 60 && stored > 50 << 20, "{} {stored}", blobs.len());
    let json = |args: &[&str]| -> (i32, Value) {
        let said = desk.run(&[&["--json", "verify"], args].concat());
        (said.code, serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}")))
    };
    let number = |v: &Value, field: &str| v[field].as_u64().unwrap();

    let (_, all) = json(&["--read"]);
    assert_eq!((number(&all, "bytes_read"), number(&all, "bytes_total")), (stored, stored));
    assert!(number(&all, "cache_files") > 60);
    let (_, none) = json(&[]);
    assert_eq!((number(&none, "bytes_read"), number(&none, "cache_files")), (0, 0));
    // The cache has it right, and that is not asked.
    flip(&blobs[7], 999, 1);
    assert_eq!(json(&["--read"]).0, 3);
    flip(&blobs[7], 999, 1);

    let (_, half) = json(&["--read", "--sample", "50", "--seed", "1"]);
    let (_, same) = json(&["--read", "--sample", "50%", "--seed", "1", &format!("app/{chk}")]);
    let (_, other) = json(&["--read", "--sample", "50", "--seed", "2"]);
    let read = number(&half, "bytes_read");
    assert!(read > stored / 5 && read < stored * 4 / 5 && number(&half, "bytes_total") == stored, "{read} of {stored}");
    assert_eq!(read, number(&same, "bytes_read"));
    assert_ne!((read, number(&half, "blobs_read")), (number(&other, "bytes_read"), number(&other, "blobs_read")));
    for bad in ["0", "101", "-1", "x", "NaN"] {
        desk.run(&["verify", "--read", &format!("--sample={bad}")]).fails(2, &["above 0, at most 100"]);
    }
    desk.run(&["verify", "--sample", "5"]).fails(2, &["--read"]);
    desk.run(&["verify", "--resume", "state"]).fails(2, &["--read"]);

    // Killed in the middle of its reading.
    let state = desk.path("state");
    let args = ["--json", "verify", "--read", "--resume", "state"];
    let lines = || fs::read_to_string(&state).map_or(0, |t| t.lines().count());
    let begun = Instant::now();
    let proved = loop {
        let mut child = desk.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while lines() < 8 && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(200));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if state.exists() && (8..blobs.len()).contains(&lines()) {
            break fs::read_to_string(&state).unwrap();
        }
        let _ = fs::remove_file(&state);
        assert!(begun.elapsed() < Duration::from_secs(60), "it was never caught in the middle");
    };
    let before = proved.lines().count() - 1;
    // Every blob is damaged now: those that were read are not read again, all others are found.
    blobs.iter().for_each(|b| flip(b, 5, 0));
    let said = desk.run(&args);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(said.code, 3);
    assert_eq!(report["findings"].as_array().unwrap().len(), blobs.len() - before, "{before} were proved");
    assert_eq!(number(&report, "bytes_read") + number(&report, "bytes_read_before"), stored);
    assert!(number(&report, "bytes_read_before") > 0 && !state.exists(), "it came to its end");
    assert_eq!(json(&["--read", "--resume", "state"]).1["findings"].as_array().unwrap().len(), blobs.len());
    blobs.iter().for_each(|b| flip(b, 5, 0));
    fs::write(&state, "a diary").unwrap();
    desk.run(&["verify", "--read", "--resume", "state"]).fails(1, &["state", "Name a new file"]);
    assert_eq!(fs::read_to_string(&state).unwrap(), "a diary");
}

#[test]
fn hash_trees_and_tails_are_compared_with_their_files() {
    let desk = Desk::new();
    let db = desk.path("db");
    (0..3).for_each(|round| load(&db, "default", round, KEYS));
    desk.snapshot(&db);
    let task = desk.path("store/task/app/00000000000000000001/db/0.json");
    let outcome = desk.path("store/outcome/app/00000000000000000001.json");
    let body =
        |p: &Path| -> Value { serde_json::from_str(fs::read_to_string(p).unwrap().lines().nth(1).unwrap()).unwrap() };
    let (good_task, good_outcome) = (body(&task), body(&outcome));
    let put = |path: &Path, kind: &str, body: &Value| {
        let body = body.to_string();
        let header = json!({
            "ckptfs": format!("{kind}/1"), "length": body.len(), "blake3": Digest::of(body.as_bytes()).to_hex(),
            "requires": [], "requires_write": [], "encoding": "plain",
        });
        let object = format!("{header}\n{body}\n");
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(path, &object).unwrap();
        (Digest::of(object.as_bytes()).to_hex(), object.len())
    };
    let files = good_task["files"].as_array().unwrap();
    let ssts: Vec<usize> =
        (0..files.len()).filter(|i| !files[*i]["tree"].is_null() && !files[*i]["tail"].is_null()).collect();
    assert_eq!(ssts.len(), 3);
    let (a, b) = (ssts[0], ssts[1]);
    let own_blob = files[a]["extents"][0].clone();
    for (what, change) in [
        (
            "hash tree",
            &(|t: &mut Value| t["files"][a]["tree"] = good_task["files"][b]["tree"].clone()) as &dyn Fn(&mut Value),
        ),
        ("tail", &|t| t["files"][a]["tail"]["extent"] = good_task["files"][b]["tail"]["extent"].clone()),
        ("hash tree", &|t| {
            let length = t["files"][a]["tree"][2].as_u64().unwrap();
            t["files"][a]["tree"][2] = (length - 64).into();
        }),
        ("no bundle", &|t| t["files"][a]["tree"] = json!([own_blob[0], 0, good_task["files"][a]["tree"][2]])),
    ] {
        let mut forged = good_task.clone();
        change(&mut forged);
        let (digest, length) = put(&task, "task-manifest", &forged);
        let mut vouching = good_outcome.clone();
        let entry = &mut vouching["verdict"]["completed"]["subtasks"][0];
        (entry["manifest"], entry["manifest_length"]) = (digest.into(), length.into());
        put(&outcome, "outcome", &vouching);
        let said = desk.run(&["--json", "verify", "--read"]);
        let report: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{what}: {said:?}"));
        let findings = report["findings"].as_array().unwrap();
        assert!(said.code == 3 && findings.len() == 1, "{what}: {said:?}");
        assert!(findings[0]["detail"].as_str().unwrap().contains(what), "{what}: {said:?}");
        let file = if what == "no bundle" { "manifest.json" } else { files[a]["path"].as_str().unwrap() };
        assert_eq!(findings[0]["files"], json!([format!("app/chk-1/db/0/{file}")]), "{what}");
        // Nobody can mend what a manifest says.
        let said = desk.run(&["--json", "verify", "--read", "--repair"]);
        assert!(said.code == 3 && said.out.contains("\"mended\": null"), "{said:?}");
    }
    put(&task, "task-manifest", &good_task);
    let (digest, length) = put(&task, "task-manifest", &good_task);
    let mut vouching = good_outcome.clone();
    let entry = &mut vouching["verdict"]["completed"]["subtasks"][0];
    (entry["manifest"], entry["manifest_length"]) = (digest.into(), length.into());
    put(&outcome, "outcome", &vouching);
    desk.ok(&["verify", "--read"]);
}

#[test]
fn a_snapshot_does_not_inherit_what_its_base_lost() {
    let field = Field::new();
    (0..2).for_each(|s| (0..5).for_each(|round| load(&field.db(s), "default", 10 * u64::from(s) + round, KEYS)));
    field.take();
    let task = field.task(1, 0);
    let ssts: Vec<BlobName> = task.blobs.iter().filter(|b| !b.bundle).map(|b| b.name).collect();
    fs::remove_file(field.object(&Key::blob(&ssts[0]))).unwrap();
    shorten(&field.object(&Key::blob(&ssts[1])));
    fs::remove_file(field.object(&Key::blob(&bundle(&task)))).unwrap();
    shorten(&field.object(&Key::blob(&bundle(&field.task(1, 1)))));
    field.take();
    assert_eq!(field.verify(&["app/chk-1"]).0.code, 3);
    field.verify(&["--read", "app/chk-2"]).0.ok();
    // What was whole is not sent again.
    let second = field.task(2, 0);
    let again: BTreeSet<&BlobName> =
        second.blobs.iter().filter(|b| b.name.uid == second.place.uid).map(|b| &b.name).collect();
    assert!(again.iter().all(|b| **b == bundle(&second) || b.digest == ssts[0].digest || b.digest == ssts[1].digest));
    assert_eq!(again.len(), 3);
    assert!(second.blobs.iter().any(|b| b.name == ssts[2]));
    let old: Vec<&BlobName> = second.blobs.iter().map(|b| &b.name).filter(|n| n.uid == task.place.uid).collect();
    assert!(old.len() >= 3 && !old.contains(&&ssts[0]) && !old.contains(&&ssts[1]));
    // A host with nothing but the store gets every byte back.
    let target = field.desk.path("restored");
    let args: [&std::ffi::OsStr; 4] =
        ["restore".as_ref(), "--copy".as_ref(), "app/chk-2/count/0".as_ref(), target.as_ref()];
    let said: Said = field.desk.command(&args).env("CKPTFS_CACHE", field.desk.path("cold")).output().unwrap().into();
    said.ok();
    assert!(database(&target) == database(&field.db(0)));
    // Nor does one whose base's manifests are lost, on a host that never had them.
    (0..2).for_each(|s| fs::remove_file(field.object(&Key::task(&name("app"), number(2), &name("count"), s))).unwrap());
    fs::remove_dir_all(field.desk.path("cache/manifests")).unwrap();
    field.take();
    field.verify(&["--read", "app/chk-3"]).0.ok();
    let (said, report) = field.verify(&["app/chk-2"]);
    assert!(said.code == 3 && told(&report).keys().all(|t| t.kind == "missing" && t.object.starts_with("task/")));
    assert_eq!(told(&report).len(), 2);
    // And the first is whole again too, where the cache still has its blobs.
    field.verify(&["--repair", "app/chk-1"]).0.ok();
    field.verify(&["--read", "app/chk-1"]).0.ok();
}
