//! The values behind `fixtures/format/`: one example of every stored object, all of one made-up store. They agree with each other: the
//! outcome names the task manifest's digest, the manifest the bundle's, the bundle's sections the files'.

use std::collections::BTreeMap;

use ckptfs::cache::tree::hash_and_tree;
use ckptfs::format::bundle::BundleBuilder;
use ckptfs::format::phases::Longest;
use ckptfs::format::records::{
    EpochRecord, ExpiredRecord, FloorRecord, HeadRecord, HiddenRecord, PinHolder, PinRecord, StoreRecord,
};
use ckptfs::format::{
    BaseRef, BlobEntry, CheckpointKind, CheckpointManifest, ExpectedOperator, FileEntry, FilePath, Intent, Labels,
    Outcome, Place, Role, SstInfo, SubtaskEntry, Tail, TaskManifest, Verdict,
};
use ckptfs::types::{BlobName, CheckpointNumber, Digest, Epoch, Extent, Key, KeyGroupRange, Name, Uid};

/// The checkpoint's uid.
pub const CHK_42: Uid = Uid::from_bytes([0x42; 16]);
const CHK_41: Uid = Uid::from_bytes([0x41; 16]);
pub const STORE: Uid = Uid::from_bytes([0xa0; 16]);
const WRITER: Uid = Uid::from_bytes([0xc0; 16]);
const NONCE: Uid = Uid::from_bytes([0xe0; 16]);
const OWN: Uid = Uid::from_bytes([0x0e; 16]);
/// The key of the signed examples: the bytes 0 to 31.
pub const SIGNING_KEY: [u8; 32] = {
    let mut key = [0; 32];
    let mut i = 0;
    while i < 32 {
        key[i] = i as u8;
        i += 1;
    }
    key
};
/// 2026-11-29 12:00:00 UTC.
const NOON: u64 = 1_795_953_600_000;

pub fn job() -> Name {
    Name::encode("my job")
}

pub fn number(n: u64) -> CheckpointNumber {
    CheckpointNumber::new(n).unwrap()
}

fn operator() -> Name {
    Name::encode("Window(5s) -> Map")
}

fn place(role: Role, n: u64, uid: Uid) -> Place {
    Place::new(role, &job(), n, uid)
}

/// An SST of 140,000 bytes, which stands for any file of at least 128 KiB: three hash groups, a blob of its own.
pub fn sst() -> Vec<u8> {
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()[3]
    };
    (0..140_000).map(|_| next()).collect()
}

/// What the base's bundle holds of a RocksDB MANIFEST that has grown since.
const MANIFEST_FRONT: &[u8] = b"the first bytes of a RocksDB MANIFEST, as the base stored them";
const MANIFEST_REST: &[u8] = b", and what was appended since";

/// The small files of the directory, by path.
pub fn small_files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("db/000010.sst", b"an SST of less than 128 KiB".to_vec()),
        ("db/000011.log", Vec::new()),
        ("db/CURRENT", b"MANIFEST-000005\n".to_vec()),
        ("db/MANIFEST-000005", [MANIFEST_FRONT, MANIFEST_REST].concat()),
        ("operator/window-contents/0", b"a list state's partition".to_vec()),
        ("raw-keyed/3", b"key group 3".to_vec()),
        ("raw-operator/0", b"channel state".to_vec()),
    ]
}

/// `base-bundle-1.bin`: a bundle of the base that is still needed.
pub fn base_bundle() -> Vec<u8> {
    let mut builder = BundleBuilder::default();
    builder.add(MANIFEST_FRONT);
    builder.finish()
}

/// `bundle-1.bin` and the task manifest that points into it.
pub fn bundle_and_task() -> (Vec<u8>, TaskManifest) {
    let sst = sst();
    let (sst_digest, tree) = hash_and_tree(&sst);
    let base = base_bundle();
    let mut builder = BundleBuilder::default();
    let mut add = |bytes: &[u8]| {
        let (offset, length) = builder.add(bytes);
        Extent { blob: 1, offset, length }
    };
    let tree = add(&tree);
    let mut files = vec![FileEntry {
        path: FilePath::db("000009.sst").unwrap(),
        size: sst.len() as u64,
        digest: sst_digest,
        extents: vec![Extent { blob: 0, offset: 0, length: sst.len() as u64 }],
        tree: Some(tree),
        tail: None,
        sst: Some(SstInfo {
            column_family: "counts".to_owned(),
            level: 1,
            smallest: "61".to_owned(),
            largest: Some("7a7a".to_owned()),
        }),
    }];
    for (path, bytes) in small_files() {
        let mut extents = Vec::new();
        if path == "db/MANIFEST-000005" {
            extents.push(Extent { blob: 2, offset: 8, length: MANIFEST_FRONT.len() as u64 });
            extents.push(add(MANIFEST_REST));
        } else if !bytes.is_empty() {
            extents.push(add(&bytes));
        }
        let sst = path.ends_with(".sst").then(|| SstInfo {
            column_family: "default".to_owned(),
            level: 0,
            smallest: String::new(),
            largest: None,
        });
        files.push(FileEntry {
            path: FilePath::parse(path).unwrap(),
            size: bytes.len() as u64,
            digest: Digest::of(&bytes),
            extents,
            tree: None,
            tail: None,
            sst,
        });
    }
    let start = 131_072;
    files[0].tail = Some(Tail { start, extent: add(&sst[131_072..]) });
    let bundle = builder.finish();
    let blob = |bytes: &[u8], uid, bundle| BlobEntry {
        name: BlobName { digest: Digest::of(bytes), uid },
        length: bytes.len() as u64,
        bundle,
    };
    let mut at = place(Role::Task, 42, CHK_42);
    at.subtask = Some((operator(), 0));
    let task = TaskManifest {
        place: at,
        display_name: "Window(5s) -> Map".to_owned(),
        blobs: vec![blob(&sst, CHK_41, false), blob(&bundle, CHK_42, true), blob(&base, CHK_41, true)],
        logical_bytes: files.iter().map(|f| f.size).sum(),
        new_bytes: bundle.len() as u64,
        files,
        backend: Some("7c9e6679-7425-40de-944b-e07fc1f90ae7".to_owned()),
        key_groups: Some(KeyGroupRange::new(0, 63).unwrap()),
        states: vec![serde_json::json!({"name": "counts", "kind": "value"})],
        properties: BTreeMap::from([("made-by".to_owned(), "an example".to_owned())]),
        other_state: BTreeMap::from([("channel".to_owned(), vec![FilePath::parse("raw-operator/0").unwrap()])]),
        origins: BTreeMap::new(),
    };
    (bundle, task)
}

fn bases() -> Vec<BaseRef> {
    vec![BaseRef { job: job(), number: number(41), uid: CHK_41 }]
}

pub fn labels() -> Labels {
    let of = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    Labels::new([("release", "1.4"), ("team/owner", "Ünal = on call")].map(of)).unwrap()
}

/// What one subtask tells.
pub fn phases() -> Longest {
    let mut longest = Longest::default();
    let (_, mut task) = task();
    let told = [("open_ms", "20"), ("upload_ms", "30"), ("bundle_ms", "5")];
    task.properties.extend(told.map(|(name, ms)| (name.to_owned(), ms.to_owned())));
    longest.add(&task);
    longest
}

pub fn intent() -> (Key, Intent) {
    let record = Intent {
        place: place(Role::Intent, 42, CHK_42),
        epoch: Epoch(3),
        writer: WRITER,
        bases: bases(),
        expected: vec![ExpectedOperator { operator: operator(), parallelism: 1 }],
        kind: CheckpointKind::Checkpoint,
        detached: false,
        opened_ms: NOON,
        stop: false,
        labels: Labels::default(),
    };
    (Key::intent(&job(), number(42)), record)
}

pub fn task() -> (Key, TaskManifest) {
    (Key::task(&job(), number(42), &operator(), 0), bundle_and_task().1)
}

pub fn completed() -> (Key, Outcome) {
    let (_, task) = bundle_and_task();
    let object = ckptfs::format::encode(&task).unwrap();
    let files = task.files.len() as u64;
    let manifest = CheckpointManifest {
        kind: CheckpointKind::Checkpoint,
        epoch: Epoch(3),
        writer: WRITER,
        bases: bases(),
        subtasks: vec![SubtaskEntry {
            operator: operator(),
            display_name: task.display_name.clone(),
            subtask: 0,
            manifest: Digest::of(&object),
            manifest_length: object.len() as u64,
            logical_bytes: task.logical_bytes,
            new_bytes: task.new_bytes,
            files,
        }],
        logical_bytes: task.logical_bytes,
        new_bytes: task.new_bytes,
        files,
        opened_ms: NOON,
        completed_ms: NOON + 1_250,
        labels: Labels::default(),
        phases: Default::default(),
    };
    let place = place(Role::Outcome, 42, CHK_42);
    (Key::outcome(&job(), number(42)), Outcome { place, verdict: Verdict::Completed(manifest) })
}

pub fn aborted() -> (Key, Outcome) {
    let verdict = Verdict::Aborted { reason: "the writer died".to_owned() };
    (
        Key::outcome(&job(), number(43)),
        Outcome { place: place(Role::Outcome, 43, Uid::from_bytes([0x43; 16])), verdict },
    )
}

pub fn store() -> (Key, StoreRecord) {
    let place = Place { job: None, ..place(Role::Store, 0, STORE) };
    (Key::store(), StoreRecord { place, created_by: "ckptfs 0.1.0".to_owned() })
}

pub fn epoch() -> (Key, EpochRecord) {
    let record = EpochRecord { place: place(Role::Epoch, 3, OWN), writer: WRITER, host: "worker-1".to_owned() };
    (Key::epoch(&job(), Epoch(3)), record)
}

pub fn hidden() -> (Key, HiddenRecord) {
    let place = Place { nonce: Some(NONCE), ..place(Role::Hidden, 42, CHK_42) };
    (Key::hidden(&job(), number(42), NONCE), HiddenRecord { place, hidden_ms: NOON })
}

pub fn expired() -> (Key, ExpiredRecord) {
    let place = place(Role::Expired, 41, CHK_41);
    (Key::expired(&job(), number(41)), ExpiredRecord { place, reason: "keep 1".to_owned() })
}

pub fn pin(holder: PinHolder) -> (Key, PinRecord) {
    let place = Place { holder: Some(WRITER), nonce: Some(NONCE), ..place(Role::Pin, 42, CHK_42) };
    (Key::pin(&job(), number(42), WRITER, NONCE), PinRecord { place, holder, pinned_ms: NOON })
}

/// Every kind of holder.
pub fn holders() -> [(&'static str, PinHolder); 4] {
    let clone = PinHolder::Clone {
        host: "worker-1".to_owned(),
        directory: "/data/app/db".to_owned(),
        job: Some(Name::encode("app")),
        epoch: Epoch(1),
    };
    [
        ("mount", PinHolder::Mount { host: "worker-1".to_owned() }),
        ("clone", clone),
        ("writer", PinHolder::Writer),
        ("person", PinHolder::Person { note: "before the migration".to_owned() }),
    ]
}

pub fn floor() -> (Key, FloorRecord) {
    let record =
        FloorRecord { place: place(Role::Floor, 40, OWN), survivors: vec![number(7), number(30)], uids: vec![CHK_41] };
    (Key::floor(&job(), number(40)), record)
}

pub fn head() -> (Key, HeadRecord) {
    (Key::head(&job()), HeadRecord { place: place(Role::Head, 0, OWN), newest: 42 })
}
