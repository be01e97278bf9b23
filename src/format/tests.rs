//! Hostile metadata objects: every body here lies under a header that is right, as somebody with access to the bucket could write it.

mod bounds;
mod whole;

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::header::{decode, decode_at, encode, encode_requiring};
use super::records::{ExpiredRecord, FloorRecord, PinHolder, PinRecord};
use super::task::{BlobEntry, FileEntry, FilePath, SstInfo, Tail, TaskManifest};
use super::{BaseRef, CheckpointKind, ExpectedOperator, FormatError, Intent, Labels, Outcome, Place, Record, Role};
use crate::error::Kind;
use crate::limits;
use crate::types::{BlobName, CheckpointNumber, Digest, Epoch, Extent, Key, KeyGroupRange, Name, Uid};

fn labels<const N: usize>(of: [(&str, String); N]) -> Labels {
    Labels::new(of.map(|(key, value)| (key.to_owned(), value))).unwrap()
}

fn object(kind: &str, body: &[u8]) -> Vec<u8> {
    let header = json!({"ckptfs": kind, "length": body.len(), "blake3": Digest::of(body), "requires": [],
        "requires_write": [], "encoding": "plain"});
    [header.to_string().as_bytes(), b"\n", body, b"\n"].concat()
}

/// Why a body is refused under a right header.
fn refusal<R: Record + std::fmt::Debug>(body: &Value) -> String {
    let stored = object(&format!("{}/{}", R::WHAT, R::VERSION), body.to_string().as_bytes());
    match decode::<R>(&stored) {
        Err(e @ FormatError::Damaged { .. }) => e.to_string(),
        other => panic!("{body}: {other:?}"),
    }
}

const UID: &str = "11111111111111111111111111111111";

fn task() -> Value {
    json!({
        "place": {"role": "task", "job": "app", "number": 7, "uid": UID, "subtask": ["db", 0]},
        "display_name": "db",
        "blobs": [
            {"name": format!("{}-{UID}", Digest::of(b"a")), "length": 200_000},
            {"name": format!("{}-{UID}", Digest::of(b"b")), "length": 1000, "bundle": true},
        ],
        "files": [
            {"path": "db/000009.sst", "size": 200_000, "digest": Digest::of(b"a"), "extents": [[0, 0, 200_000]],
             "tree": [1, 8, 192], "tail": {"start": 131_072, "extent": [0, 131_072, 68_928]},
             "sst": {"column_family": "default", "level": 0, "smallest": "00ff"}},
            {"path": "db/CURRENT", "size": 16, "digest": Digest::of(b"c"), "extents": [[1, 200, 16]]},
        ],
        "logical_bytes": 200_016,
        "new_bytes": 0,
    })
}

fn outcome() -> Value {
    let subtask = |i: u32| {
        json!({"operator": "db", "display_name": "db", "subtask": i, "manifest": Digest::of(b"m"),
        "manifest_length": 9, "logical_bytes": 5, "new_bytes": 3, "files": 1})
    };
    json!({"place": {"role": "outcome", "job": "app", "number": 7, "uid": UID}, "verdict": {"completed": {
        "kind": "checkpoint", "epoch": 0, "writer": UID, "bases": [], "subtasks": [subtask(0), subtask(1)],
        "logical_bytes": 10, "new_bytes": 6, "files": 2, "opened_ms": 0, "completed_ms": 0}}})
}

fn intent() -> Value {
    json!({"place": {"role": "intent", "job": "app", "number": 7, "uid": UID}, "epoch": 0, "writer": UID, "bases": [],
        "expected": [{"operator": "db", "parallelism": 1}], "kind": "checkpoint", "detached": false, "opened_ms": 0})
}

fn with(mut value: Value, pointer: &str, new: Value) -> Value {
    *value.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = new;
    value
}

#[test]
fn the_examples_are_accepted_unspoiled() {
    let accepts = |kind: &str, body: Value| object(kind, body.to_string().as_bytes());
    assert!(decode::<TaskManifest>(&accepts("task-manifest/1", task())).is_ok());
    assert!(decode::<Outcome>(&accepts("outcome/1", outcome())).is_ok());
    assert!(decode::<Intent>(&accepts("intent/1", intent())).is_ok());
    // A newer writer's field is passed over.
    let mut newer = task();
    newer["sparkles"] = json!({"x": [1, 2]});
    assert!(decode::<TaskManifest>(&accepts("task-manifest/1", newer)).is_ok());
}

#[test]
fn paths_that_leave_the_directory_are_refused() {
    for path in [
        "",
        "/",
        "..",
        "db",
        "db/",
        "db/.",
        "db/..",
        "db/../x",
        "../db/x",
        "/db/x",
        "db//x",
        "db/x/",
        "db/a/b",
        "db/a\0b",
        "db/a b",
        "db/\u{e9}",
        "db/a\nb",
        "etc/passwd",
        "operator/s",
        "operator/s/x",
        "operator/s/00",
        "operator/../0",
        "operator/latest/0",
        "operator/s/0/x",
        "raw-keyed/-1",
        "raw-keyed/01",
        "raw-keyed/x",
        "raw-operator/1e3",
        "./db/x",
        "db\\x",
        "DB/x",
        "manifest.json",
    ] {
        let why = refusal::<TaskManifest>(&with(task(), "/files/0/path", json!(path)));
        assert!(why.contains("path of a state file") || why.contains("out of order"), "{path:?}: {why}");
    }
    for long in [format!("db/{}", "x".repeat(256)), format!("operator/{}/0", "x".repeat(2000))] {
        refusal::<TaskManifest>(&with(task(), "/files/0/path", json!(long)));
    }
}

#[test]
fn files_and_extents_that_do_not_add_up_are_refused() {
    let cases = [
        ("/files/0/path", json!("db/CURRENT"), "named twice"),
        ("/files/0/path", json!("db/D"), "out of order"),
        ("/files/0/size", json!(199_999), "its extents hold"),
        ("/files/0/size", json!(-1), "invalid value"),
        ("/files/0/size", json!(1.5), "invalid type"),
        ("/files/0/size", json!(1e300), "invalid type"),
        ("/files/0/extents", json!([[2, 0, 200_000]]), "no blob 2"),
        ("/files/0/extents", json!([[u32::MAX, 0, 200_000]]), "no blob"),
        ("/files/0/extents", json!([[u64::MAX, 0, 1]]), "u32"),
        ("/files/0/extents", json!([[0, 1, 200_000]]), "outside"),
        ("/files/0/extents", json!([[0, u64::MAX, 200_000]]), "outside"),
        ("/files/0/extents", json!([[0, 0, u64::MAX]]), "outside"),
        ("/files/0/extents", json!([[0, 0, 200_000], [0, 0, 0]]), "empty"),
        ("/files/0/extents", json!([[0, 0, 200_000], [0, 0, 200_000]]), "its extents hold"),
        ("/files/0/extents", json!(vec![[0, 0, 1]; limits::EXTENTS_PER_FILE + 1]), "extents"),
        ("/files/0/extents", json!([[0, 0]]), "invalid length"),
        ("/files/0/tree", json!([1, 990, 192]), "outside"),
        ("/files/0/tail/start", json!(131_073), "group boundary"),
        ("/files/0/tail/start", json!(65_536), "group boundary"),
        ("/files/0/tail/start", json!(u64::MAX / 65_536 * 65_536), "group boundary"),
        ("/files/0/tail/extent", json!([0, 200_000, 68_928]), "outside"),
        ("/files/0/sst/smallest", json!("0"), "hex"),
        ("/files/0/sst/smallest", json!("0G"), "hex"),
        ("/files/0/sst/smallest", json!("00".repeat(65)), "hex"),
        ("/files/0/sst/column_family", json!("x".repeat(5000)), "column family"),
        ("/files/0/digest", json!("00"), "digest"),
        ("/files/0/digest", json!(Digest::of(b"a").to_hex().to_uppercase()), "digest"),
        ("/logical_bytes", json!(200_015), "not 200015"),
        ("/blobs/0/length", json!(limits::BLOB_LEN + 1), "at most"),
        ("/blobs/0/name", json!("../x"), "blob name"),
        ("/blobs/1/name", json!(format!("{}-{UID}", Digest::of(b"a"))), "listed twice"),
        ("/place/subtask", json!(["db", 40_000]), "subtask"),
        ("/place/subtask", json!(["../x", 0]), "not a name"),
        ("/place/subtask", json!(null), "incomplete"),
        ("/place/job", json!("latest"), "not a name"),
        ("/place/job", json!("a/b"), "not a name"),
        ("/place/number", json!(0), "incomplete"),
        ("/place/number", json!(u64::MAX), "incomplete"),
        ("/place/role", json!("outcome"), "role"),
        ("/place/role", json!("king"), "unknown variant"),
        ("/place/uid", json!("11"), "uid"),
        ("/display_name", json!("x".repeat(5000)), "display name"),
        ("/files", json!({}), "invalid type"),
        ("", json!([]), "invalid"),
        ("", json!(null), "invalid"),
    ];
    for (pointer, new, says) in cases {
        let why = refusal::<TaskManifest>(&with(task(), pointer, new.clone()));
        assert!(why.contains(says), "{pointer} = {}: {why}", new.to_string().chars().take(80).collect::<String>());
    }
    let mut extra = task();
    extra["place"]["door"] = json!(1);
    assert!(refusal::<TaskManifest>(&extra).contains("unknown field"));
    let mut range = task();
    for (first, last) in [(1, 0), (0, 1 << 15), (u32::MAX, u32::MAX)] {
        range["key_groups"] = json!({"first": first, "last": last});
        assert!(refusal::<TaskManifest>(&range).contains("key-group range"));
    }
}

#[test]
fn huge_counts_are_refused_by_a_bound() {
    let blob = |i: usize, bundle: bool| json!({"name": format!("{}-{UID}", Digest::of(&i.to_le_bytes())), "length": 1, "bundle": bundle});
    let bundles: Vec<Value> = (0..=limits::BUNDLES_PER_MANIFEST).map(|i| blob(i, true)).collect();
    let mut t = task();
    t["files"] = json!([]);
    t["logical_bytes"] = json!(0);
    assert!(refusal::<TaskManifest>(&with(t.clone(), "/blobs", json!(bundles))).contains("bundles"));
    let empty = Digest::of(b"").to_hex();
    let files: Vec<Value> = (0..=limits::FILES_PER_TASK)
        .map(|i| json!({"path": format!("db/{i:06}.log"), "size": 0, "digest": empty, "extents": []}))
        .collect();
    assert!(refusal::<TaskManifest>(&with(t.clone(), "/files", json!(files))).contains("files, at most"));
    let states = vec![json!(1); limits::PROPERTIES + 1];
    t["states"] = json!(states);
    assert!(refusal::<TaskManifest>(&t).contains("states"));

    let mut sum = task();
    sum["blobs"][0]["length"] = json!(limits::BLOB_LEN);
    sum["files"] = json!(
        (0..2000)
            .map(|i| json!({"path": format!("db/{i:06}.sst"), "size": limits::BLOB_LEN, "digest": empty,
            "extents": [[0, 0, limits::BLOB_LEN]]}))
            .collect::<Vec<_>>()
    );
    assert!(refusal::<TaskManifest>(&sum).contains("bytes in all files"));

    // A length that the object does not have costs nothing.
    let mut short = object("task-manifest/1", task().to_string().as_bytes());
    let text = String::from_utf8(short.clone()).unwrap();
    let length = format!("\"length\":{}", task().to_string().len());
    assert!(text.contains(&length));
    short = text.replace(&length, &format!("\"length\":{}", u64::MAX)).into_bytes();
    assert_eq!(decode::<TaskManifest>(&short).unwrap_err().kind(), Kind::Damage);
    let large = vec![b' '; usize::try_from(limits::METADATA_LEN).unwrap() + 1];
    assert!(decode::<TaskManifest>(&large).unwrap_err().to_string().contains("at most"));
}

#[test]
fn deep_nesting_is_refused_and_not_followed() {
    for depth in [200, 100_000] {
        let deep = "[".repeat(depth) + &"]".repeat(depth);
        let body = task().to_string().replace("\"new_bytes\":0", &format!("\"new_bytes\":0,\"states\":[{deep}]"));
        let error = decode::<TaskManifest>(&object("task-manifest/1", body.as_bytes())).unwrap_err();
        assert!(error.to_string().contains("recursion limit"), "{error}");
        let unknown = task().to_string().replace("\"new_bytes\":0", &format!("\"new_bytes\":0,\"x\":{deep}"));
        // What nobody reads is skipped without recursion.
        assert!(decode::<TaskManifest>(&object("task-manifest/1", unknown.as_bytes())).is_ok());
    }
}

#[test]
fn outcomes_and_intents_that_contradict_themselves_are_refused() {
    let manifest = "/verdict/completed";
    for (at, new, says) in [
        ("/logical_bytes", json!(11), "sums"),
        ("/files", json!(3), "sums"),
        ("/subtasks", json!([]), "0 subtasks"),
        ("/subtasks/1/subtask", json!(0), "named twice"),
        ("/subtasks/1/operator", json!("a"), "out of order"),
        ("/subtasks/1/subtask", json!(1 << 15), "out of bounds"),
        ("/subtasks/0/logical_bytes", json!(u64::MAX), "out of bounds"),
        ("/subtasks/0/manifest_length", json!(limits::METADATA_LEN + 1), "too large"),
        ("/bases", json!(vec![json!({"job": "app", "number": 1, "uid": UID}); limits::BASES + 1]), "bases"),
        ("/bases", json!([{"job": "app", "number": 0, "uid": UID}]), "checkpoint number"),
        ("/kind", json!("backup"), "unknown variant"),
    ] {
        let why = refusal::<Outcome>(&with(outcome(), &format!("{manifest}{at}"), new));
        assert!(why.contains(says), "{at}: {why}");
    }
    let both = with(outcome(), "/verdict", json!({"completed": {}, "aborted": {"reason": ""}}));
    refusal::<Outcome>(&both);
    let long = json!({"aborted": {"reason": "x".repeat(limits::PROPERTY_LEN + 1)}});
    assert!(refusal::<Outcome>(&with(outcome(), "/verdict", long)).contains("too long"));

    let base = |n: u32, uid: &str| json!({"job": "app", "number": n, "uid": uid});
    let other = "22222222222222222222222222222222";
    for (at, new, says) in [
        ("/bases", json!([base(6, UID)]), "the checkpoint itself"),
        ("/bases", json!([base(6, other), base(5, other)]), "named twice"),
        ("/expected", json!([]), "expected operators"),
        ("/expected/0/parallelism", json!(0), "parallelism 0"),
        ("/expected/0/parallelism", json!((1 << 15) + 1), "parallelism"),
        (
            "/expected",
            json!([{"operator": "a", "parallelism": 1}, {"operator": "a", "parallelism": 2}]),
            "expected twice",
        ),
    ] {
        let why = refusal::<Intent>(&with(intent(), at, new));
        assert!(why.contains(says), "{at}: {why}");
    }
    let many: Vec<Value> = (0..65).map(|i| json!({"operator": format!("o{i}"), "parallelism": 1 << 15})).collect();
    assert!(refusal::<Intent>(&with(intent(), "/expected", json!(many))).contains("subtasks"));

    let floor = |survivors: Value| {
        json!({"place": {"role": "floor", "job": "app", "number": 5, "uid": UID},
        "survivors": survivors, "uids": []})
    };
    for survivors in [json!([5]), json!([2, 1]), json!([1, 1]), json!([0])] {
        refusal::<FloorRecord>(&floor(survivors));
    }
}

#[test]
fn duplicate_fields_are_refused() {
    let twice = task().to_string().replacen("\"new_bytes\":0", "\"new_bytes\":0,\"new_bytes\":0", 1);
    let error = decode::<TaskManifest>(&object("task-manifest/1", twice.as_bytes())).unwrap_err();
    assert!(error.to_string().contains("duplicate field"), "{error}");
}

#[test]
fn newer_objects_say_what_they_need() {
    let record: TaskManifest = serde_json::from_value(task()).unwrap();
    let stored = encode_requiring(&record, &["wings"], &[]).unwrap();
    let error = decode::<TaskManifest>(&stored).unwrap_err();
    assert_eq!((error.kind(), error.to_string().contains("wings")), (Kind::Newer, true));
    let stored = encode_requiring(&record, &[], &["ink"]).unwrap();
    let decoded = decode::<TaskManifest>(&stored).unwrap();
    assert_eq!((decoded.record, decoded.blocks_writing), (record, vec!["ink".to_owned()]));
    for (kind, needs) in [("task-manifest/2", Kind::Newer), ("intent/1", Kind::Damage), ("task-manifest", Kind::Damage)]
    {
        let error = decode::<TaskManifest>(&object(kind, task().to_string().as_bytes())).unwrap_err();
        assert_eq!(error.kind(), needs, "{error}");
    }
    let many: Vec<String> = (0..=limits::REQUIRES).map(|i| i.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let record: TaskManifest = serde_json::from_value(task()).unwrap();
    let stored = encode_requiring(&record, &many, &[]).unwrap();
    assert_eq!(decode::<TaskManifest>(&stored).unwrap_err().kind(), Kind::Damage);
}

#[test]
fn what_would_be_refused_is_not_written() {
    let mut record: TaskManifest = serde_json::from_value(task()).unwrap();
    record.logical_bytes += 1;
    assert_eq!(encode(&record).unwrap_err().kind(), Kind::Invalid);
    record.logical_bytes -= 1;
    record.properties.insert("k".to_owned(), "x".repeat(limits::PROPERTY_LEN + 1));
    assert_eq!(encode(&record).unwrap_err().kind(), Kind::Invalid);
}

fn any_uid() -> impl Strategy<Value = Uid> {
    any::<[u8; 16]>().prop_map(Uid::from_bytes)
}

fn any_number() -> impl Strategy<Value = CheckpointNumber> {
    (1..=limits::CHECKPOINT_NUMBER).prop_map(|n| CheckpointNumber::new(n).unwrap())
}

fn any_name() -> impl Strategy<Value = Name> {
    ".{1,40}".prop_map(|s: String| Name::encode(&s))
}

fn any_digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest::from_bytes)
}

/// A manifest that keeps the rules: blobs, files that lie in them, and now and then trees, tails and bounds.
fn any_task() -> impl Strategy<Value = TaskManifest> {
    let blobs = prop::collection::btree_set((any::<[u8; 32]>(), any::<[u8; 16]>()), 1..6);
    let files =
        prop::collection::btree_map("[a-zA-Z0-9._-]{1,20}", (any_digest(), any::<u64>(), any::<[bool; 3]>()), 0..20);
    (any_name(), any_number(), any_uid(), any_name(), 0..limits::PARALLELISM, blobs, files, ".{0,30}").prop_map(
        |(job, n, uid, operator, subtask, blobs, files, display_name)| {
            let length = 1 << 20;
            let blobs: Vec<BlobEntry> = blobs
                .into_iter()
                .enumerate()
                .map(|(i, (digest, uid))| BlobEntry {
                    name: BlobName { digest: Digest::from_bytes(digest), uid: Uid::from_bytes(uid) },
                    length,
                    bundle: i % 2 == 1,
                })
                .collect();
            let count = blobs.len() as u64;
            let mut entries = Vec::new();
            for (name, (digest, seed, [tree, tail, sst])) in files {
                let Ok(path) = FilePath::db(&name) else { continue };
                let size = seed % (length + 1);
                let blob = u32::try_from(seed % count).unwrap();
                let extents =
                    if size == 0 { Vec::new() } else { vec![Extent { blob, offset: length - size, length: size }] };
                let start = size / limits::GROUP * limits::GROUP;
                entries.push(FileEntry {
                    path,
                    size,
                    digest,
                    extents,
                    tree: tree.then_some(Extent { blob, offset: 8, length: 64 }),
                    tail: tail.then(|| Tail { start, extent: Extent { blob, offset: 0, length: size - start } }),
                    sst: sst.then(|| SstInfo {
                        column_family: display_name.clone(),
                        level: 3,
                        smallest: "00".to_owned(),
                        largest: tail.then(|| "ff".repeat(limits::KEY_BOUND)),
                    }),
                });
            }
            let mut place = Place::new(Role::Task, &job, n.get(), uid);
            place.subtask = Some((operator, subtask));
            TaskManifest {
                place,
                display_name,
                logical_bytes: entries.iter().map(|f| f.size).sum(),
                new_bytes: length,
                blobs,
                files: entries,
                backend: None,
                key_groups: KeyGroupRange::new(0, subtask).ok(),
                states: vec![json!({"s": [1, null]})],
                properties: BTreeMap::from([("k".to_owned(), "v\u{1F980}\n".to_owned())]),
                other_state: BTreeMap::new(),
                origins: BTreeMap::new(),
            }
        },
    )
}

fn round_trip<R: Record + PartialEq + std::fmt::Debug>(record: &R) -> Result<(), TestCaseError> {
    let stored = encode(record).unwrap();
    let key = record.place().key().unwrap();
    let decoded = decode_at::<R>(&key, &stored).unwrap();
    prop_assert_eq!(&decoded.record, record);
    prop_assert_eq!(encode(&decoded.record).unwrap(), stored.clone());
    prop_assert_eq!(stored.iter().filter(|b| **b == b'\n').count(), 2);
    prop_assert_eq!(Key::parse(key.as_str()), Some(key));
    Ok(())
}

proptest! {
    #[test]
    fn task_manifests_come_back(record in any_task()) {
        round_trip(&record)?;
        for file in &record.files {
            prop_assert_eq!(record.file(file.path.as_str()), Some(file));
        }
    }

    #[test]
    fn small_records_come_back(job in any_name(), n in any_number(), uids in any::<[[u8; 16]; 4]>(), text in ".{0,99}", ms: u64) {
        let [uid, base, writer, nonce] = uids.map(Uid::from_bytes);
        prop_assume!(uid != base);
        let place = |role| Place::new(role, &job, n.get(), uid);
        round_trip(&ExpiredRecord { place: place(Role::Expired), reason: text.clone() })?;
        let holder = PinHolder::Clone { host: text.clone(), directory: text.clone(), job: Some(job.clone()), epoch: Epoch(ms) };
        let pin = Place { holder: Some(writer), nonce: Some(nonce), ..place(Role::Pin) };
        round_trip(&PinRecord { place: pin, holder, pinned_ms: ms })?;
        round_trip(&Intent {
            place: place(Role::Intent),
            epoch: Epoch(ms),
            writer,
            bases: vec![BaseRef { job: job.clone(), number: n, uid: base }],
            expected: vec![ExpectedOperator { operator: Name::encode(&text), parallelism: 1 }],
            kind: CheckpointKind::Savepoint,
            detached: true,
            opened_ms: ms,
            stop: ms % 2 == 1,
            labels: labels([("key", text.chars().filter(|c| !c.is_control()).take(50).collect())]),
        })?;
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), cut in 0usize..2400, flip in any::<u8>()) {
        let _ = decode::<TaskManifest>(&bytes);
        let _ = decode::<Outcome>(&object("outcome/1", &bytes));
        // A right header over a body that was right once.
        let mut body = task().to_string().into_bytes();
        let at = cut % body.len();
        body[at] ^= flip;
        let _ = decode::<TaskManifest>(&object("task-manifest/1", &body));
        body.truncate(at);
        prop_assert!(decode::<TaskManifest>(&object("task-manifest/1", &body)).is_err());
    }
}
