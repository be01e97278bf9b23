//! Every bound at its very value: what is as large as may be is accepted, and one more is refused.

use std::collections::BTreeMap;

use super::*;
use crate::format::clone::CloneMark;
use crate::format::records::{EpochRecord, HeadRecord};
use crate::format::task::{TaskBlobs, file_name};
use crate::format::{CheckpointManifest, SubtaskEntry, Verdict};

fn uid(n: u64) -> Uid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    Uid::from_bytes(bytes)
}

fn number(n: u64) -> CheckpointNumber {
    CheckpointNumber::new(n).unwrap()
}

fn record<R: serde::de::DeserializeOwned>(value: Value) -> R {
    serde_json::from_value(value).unwrap()
}

/// Accepted at the bound, refused beyond it with these words.
fn at_most<R: Record + Clone>(of: &R, bound: usize, says: &str, set: impl Fn(&mut R, usize)) {
    let (mut fits, mut too_much) = (of.clone(), of.clone());
    set(&mut fits, bound);
    assert_eq!(fits.check(), Ok(()), "{says}: {bound}");
    set(&mut too_much, bound + 1);
    let why = too_much.check().unwrap_err();
    assert!(why.contains(says), "{says}: {why}");
}

fn text(n: usize) -> String {
    "x".repeat(n)
}

fn long(n: usize) -> u64 {
    u64::try_from(n).unwrap()
}

fn int(n: u64) -> usize {
    usize::try_from(n).unwrap()
}

#[test]
fn intents_are_bounded() {
    let of: Intent = record(intent());
    let base = |i| BaseRef { job: Name::encode("app"), number: number(1), uid: uid(i) };
    at_most(&of, limits::BASES, "bases", |r, n| r.bases = (0..long(n)).map(base).collect());
    let one = |i: usize, parallelism| ExpectedOperator { operator: Name::encode(&format!("o{i}")), parallelism };
    at_most(&of, limits::OPERATORS, "expected operators", |r, n| r.expected = (0..n).map(|i| one(i, 1)).collect());
    at_most(&of, limits::PARALLELISM as usize, "has parallelism", |r, n| {
        r.expected = vec![one(0, u32::try_from(n).unwrap())];
    });
    at_most(&of, limits::SUBTASKS, "subtasks", |r, n| {
        let full = n / limits::PARALLELISM as usize;
        r.expected = (0..full).map(|i| one(i, limits::PARALLELISM)).collect();
        r.expected.extend((n > limits::SUBTASKS).then(|| one(full, 1)));
    });
    let labelled = |labels: Value| Intent { labels: record(labels), ..of.clone() };
    let many = |n| Value::Object((0..n).map(|i| (format!("k{i}"), json!("v"))).collect());
    at_most(&of, limits::LABELS, "labels, at most", |r, n| r.labels = record(many(n)));
    at_most(&of, limits::LABEL_KEY_LEN, "a key is", |r, n| r.labels = record(json!({ text(n): "v" })));
    at_most(&of, limits::LABEL_VALUE_LEN, "its value has", |r, n| r.labels = record(json!({ "k": text(n) })));
    for wrong in ["", "-k", "a b", "a\nb", "k\u{e4}", "a=b"] {
        assert!(labelled(json!({ wrong: "v" })).check().unwrap_err().contains("a key is"), "{wrong:?}");
    }
    for wrong in ["\n", "\u{1b}[2J", "\u{9b}"] {
        assert!(labelled(json!({ "k": wrong })).check().unwrap_err().contains("control character"), "{wrong:?}");
    }
    let stop = |kind| Intent { stop: true, kind, ..of.clone() }.check();
    assert_eq!(stop(CheckpointKind::Savepoint), Ok(()));
    assert!(stop(CheckpointKind::Checkpoint).unwrap_err().contains("only a savepoint"));
}

#[test]
fn outcomes_are_bounded() {
    let of: Outcome = record(outcome());
    at_most(&of, limits::PROPERTY_LEN, "too long", |r, n| r.verdict = Verdict::Aborted { reason: text(n) });
    let set = |r: &mut Outcome, f: &dyn Fn(&mut CheckpointManifest, &mut SubtaskEntry)| {
        let Verdict::Completed(mut manifest) = r.verdict.clone() else { panic!("it is completed") };
        let mut first = manifest.subtasks.remove(0);
        f(&mut manifest, &mut first);
        manifest.subtasks = vec![first];
        let sum = |f: fn(&SubtaskEntry) -> u64| manifest.subtasks.iter().map(f).sum::<u64>();
        let sums = (sum(|s| s.logical_bytes), sum(|s| s.new_bytes), sum(|s| s.files));
        (manifest.logical_bytes, manifest.new_bytes, manifest.files) = sums;
        r.verdict = Verdict::Completed(manifest);
    };
    let base = |i| BaseRef { job: Name::encode("app"), number: number(1), uid: uid(i) };
    at_most(&of, limits::BASES, "bases", |r, n| set(r, &|m, _| m.bases = (0..long(n)).map(base).collect()));
    let many = |n| Value::Object((0..n).map(|i| (format!("k{i}"), json!("v"))).collect());
    at_most(&of, limits::LABELS, "labels, at most", |r, n| set(r, &|m, _| m.labels = record(many(n))));
    at_most(&of, limits::LABEL_VALUE_LEN, "its value has", |r, n| {
        set(r, &|m, _| m.labels = record(json!({ "k": text(n) })));
    });
    let timed = |n| Value::Object((0..n).map(|i| (format!("p{i}_ms"), json!(i))).collect());
    at_most(&of, limits::PHASES, "phases, at most", |r, n| set(r, &|m, _| m.phases = record(timed(n))));
    at_most(&of, limits::PHASE_NAME_LEN, "the name of a phase has", |r, n| {
        set(r, &|m, _| m.phases = record(json!({ text(n): 1 })));
    });
    at_most(&of, limits::DISPLAY_NAME_LEN, "out of bounds", |r, n| set(r, &|_, s| s.display_name = text(n)));
    at_most(&of, limits::PARALLELISM as usize - 1, "out of bounds", |r, n| {
        set(r, &|_, s| s.subtask = u32::try_from(n).unwrap());
    });
    at_most(&of, int(limits::METADATA_LEN), "too large", |r, n| set(r, &|_, s| s.manifest_length = long(n)));
    at_most(&of, int(limits::TASK_BYTES), "the sizes of", |r, n| set(r, &|_, s| s.logical_bytes = long(n)));
    at_most(&of, int(limits::TASK_BYTES), "the sizes of", |r, n| set(r, &|_, s| s.new_bytes = long(n)));
    at_most(&of, limits::FILES_PER_TASK, "the sizes of", |r, n| set(r, &|_, s| s.files = long(n)));
    for wrong in ["logical_bytes", "new_bytes", "files"] {
        let pointer = format!("/verdict/completed/{wrong}");
        assert!(refusal::<Outcome>(&with(super::outcome(), &pointer, json!(99))).contains("its sums"), "{wrong}");
    }
}

#[test]
fn small_records_are_bounded() {
    let place = |role| Place::new(role, &Name::encode("app"), 7, uid(1));
    let of = ExpiredRecord { place: place(Role::Expired), reason: String::new() };
    at_most(&of, limits::PROPERTY_LEN, "is longer than", |r, n| r.reason = text(n));
    let of = EpochRecord { place: place(Role::Epoch), writer: uid(2), host: String::new() };
    at_most(&of, limits::PROPERTY_LEN, "is longer than", |r, n| r.host = text(n));
    let mut pin = place(Role::Pin);
    (pin.holder, pin.nonce) = (Some(uid(2)), Some(uid(3)));
    let of = PinRecord { place: pin, holder: PinHolder::Writer, pinned_ms: 0 };
    assert_eq!(of.check(), Ok(()));
    at_most(&of, limits::PROPERTY_LEN, "is longer than", |r, n| r.holder = PinHolder::Person { note: text(n) });
    at_most(&of, limits::PROPERTY_LEN, "is longer than", |r, n| r.holder = PinHolder::Mount { host: text(n) });
    let (job, epoch) = (None, Epoch(0));
    let clone = |host, directory| PinHolder::Clone { host, directory, job: job.clone(), epoch };
    at_most(&of, limits::PROPERTY_LEN, "is longer than", |r, n| r.holder = clone(text(n), String::new()));
    at_most(&of, limits::PROPERTY_LEN, "is longer than", |r, n| r.holder = clone(String::new(), text(n)));
    let above = place(Role::Floor);
    let of = FloorRecord { place: above, survivors: Vec::new(), uids: Vec::new() };
    at_most(&of, limits::FLOOR_ENTRIES, "survivors or uids", |r, n| r.uids = (0..long(n)).map(uid).collect());
    at_most(&of, limits::FLOOR_ENTRIES, "survivors or uids", |r, n| {
        r.place.number = long(n) + 1;
        r.survivors = (1..=long(n)).map(number).collect();
    });
    let survivors = |of_these: &[u64]| {
        let survivors = of_these.iter().copied().map(number).collect();
        FloorRecord { survivors, ..of.clone() }.check()
    };
    assert_eq!((survivors(&[1, 2, 6]), survivors(&[6])), (Ok(()), Ok(())));
    for bad in [&[7_u64][..], &[8], &[2, 2], &[2, 1], &[1, 8]] {
        assert!(survivors(bad).unwrap_err().contains("not in order"), "{bad:?}");
    }
    let head = HeadRecord { place: Place { number: 0, ..place(Role::Head) }, newest: 3 };
    assert_eq!(decode::<HeadRecord>(&encode(&head).unwrap()).unwrap().record, head);
}

#[test]
fn task_manifests_are_bounded() {
    let of: TaskManifest = record(task());
    at_most(&of, limits::DISPLAY_NAME_LEN, "display name", |r, n| r.display_name = text(n));
    at_most(&of, limits::PARALLELISM as usize - 1, "index is out of bounds", |r, n| {
        r.place.subtask = Some((Name::encode("db"), u32::try_from(n).unwrap()));
    });
    at_most(&of, limits::PROPERTIES, "too many", |r, n| r.states = vec![json!(1); n]);
    at_most(&of, limits::PROPERTIES, "too many", |r, n| {
        r.properties = (0..n).map(|i| (i.to_string(), String::new())).collect();
    });
    at_most(&of, limits::PROPERTY_LEN, "a property is too long", |r, n| {
        r.properties = BTreeMap::from([(text(n), String::new())]);
    });
    at_most(&of, limits::PROPERTY_LEN, "a property is too long", |r, n| {
        r.properties = BTreeMap::from([(String::new(), text(n))]);
    });
    let tail = |r: &mut TaskManifest, n: u64| r.files[1].extents[0].offset = n;
    assert_eq!((of.file("db/CURRENT").unwrap().size, of.file("db/x")), (16, None));
    // The bundle has 1000 bytes, and the file the last 16 of them at most.
    at_most(&of, 984, "lies outside", |r, n| tail(r, long(n)));
    let one = |r: &mut TaskManifest, f: &dyn Fn(&mut FileEntry)| {
        let sst = r.files.iter_mut().find(|file| file.sst.is_some()).unwrap();
        f(sst);
    };
    at_most(&of, limits::KEY_BOUND, "its key bounds", |r, n| {
        one(r, &|f| f.sst.as_mut().unwrap().smallest = "0f".repeat(n));
    });
    at_most(&of, limits::KEY_BOUND, "its key bounds", |r, n| {
        one(r, &|f| f.sst.as_mut().unwrap().largest = Some("a9".repeat(n)));
    });
    for bad in ["0", "0g", "0F", "ff0"] {
        let mut of = of.clone();
        one(&mut of, &|f| f.sst.as_mut().unwrap().largest = Some(bad.to_owned()));
        assert!(of.check().unwrap_err().contains("its key bounds"), "{bad}");
    }
    at_most(&of, limits::DISPLAY_NAME_LEN, "column family", |r, n| {
        one(r, &|f| f.sst.as_mut().unwrap().column_family = text(n));
    });
    at_most(&of, limits::EXTENTS_PER_FILE, "extents, at most", |r, n| {
        let file = &mut r.files[1];
        file.extents = (0..long(n)).map(|i| Extent { blob: 1, offset: i, length: 1 }).collect();
        file.size = long(n);
        r.logical_bytes = r.files.iter().map(|f| f.size).sum();
    });
}

#[test]
fn lists_of_task_manifests_are_bounded() {
    let empty = TaskManifest { blobs: Vec::new(), files: Vec::new(), logical_bytes: 0, ..record(task()) };
    let blob = |i: usize, bundle| BlobEntry {
        name: BlobName { digest: Digest::of(b"a"), uid: uid(long(i)) },
        length: limits::BLOB_LEN,
        bundle,
    };
    at_most(&empty, limits::BLOBS_PER_TASK, "blobs, at most", |r, n| {
        r.blobs = (0..n).map(|i| blob(i, false)).collect();
    });
    at_most(&empty, limits::BUNDLES_PER_MANIFEST, "bundles", |r, n| {
        r.blobs = (0..n).map(|i| blob(i, true)).collect();
    });
    at_most(&empty, int(limits::BLOB_LEN), "bytes, at most", |r, n| {
        r.blobs = vec![BlobEntry { length: long(n), ..blob(0, false) }];
    });
    let blobs = TaskBlobs { place: empty.place.clone(), blobs: Vec::new() };
    at_most(&blobs, limits::BLOBS_PER_TASK, "blobs, at most", |r, n| {
        r.blobs = (0..n).map(|i| blob(i, false)).collect();
    });
    let file = |i: usize, size: u64| FileEntry {
        path: FilePath::db(&format!("{i:06}.sst")).unwrap(),
        size,
        digest: Digest::of(b"a"),
        extents: if size == 0 { Vec::new() } else { vec![Extent { blob: 0, offset: 0, length: size }] },
        tree: None,
        tail: None,
        sst: None,
    };
    at_most(&empty, limits::FILES_PER_TASK, "files, at most", |r, n| r.files = (0..n).map(|i| file(i, 0)).collect());
    let many = int(limits::TASK_BYTES / limits::BLOB_LEN);
    at_most(&empty, int(limits::TASK_BYTES), "bytes in all files", |r, n| {
        r.blobs = vec![blob(0, false)];
        r.files = (0..many).map(|i| file(i, limits::BLOB_LEN)).collect();
        r.files.extend((n > int(limits::TASK_BYTES)).then(|| file(many, 1)));
        r.logical_bytes = long(n);
    });
}

#[test]
fn paths_are_bounded_and_say_whose_they_are() {
    let parse = FilePath::parse;
    assert_eq!(file_name(&text(limits::FILE_NAME_LEN)), Ok(()));
    assert!(file_name(&text(limits::FILE_NAME_LEN + 1)).unwrap_err().contains("longer than 255"));
    let of_length = |n: usize| parse(&format!("db/{}", text(n - 3))).unwrap_err();
    assert!(!of_length(limits::FILE_PATH_LEN).contains("too long"), "its name is what is too long");
    assert!(of_length(limits::FILE_PATH_LEN + 1).contains("too long"));
    for good in [
        "raw-keyed/0",
        "raw-keyed/123456789",
        "keyed/7",
        "raw-operator/12",
        "operator/s/10",
        "stream/x",
        "flink/x",
        "db-1/CURRENT",
        "db-10/000007.sst",
    ] {
        assert_eq!(parse(good).unwrap().as_str(), good);
    }
    for bad in [
        "raw-keyed/1234567890",
        "raw-keyed/",
        "raw-keyed/1a",
        "db-0/x",
        "db-01/x",
        "db-/x",
        "db-x/x",
        "dbx/x",
        "operator/s/x",
        "operator/s/00",
        "operator/latest/0",
        "operator/../0",
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
    let of = |path: &str| {
        let path = parse(path).unwrap();
        (path.db_file().map(str::to_owned), path.rocks_file().map(str::to_owned))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(of("db/CURRENT"), (some("CURRENT"), some("CURRENT")));
    assert_eq!(of("db-2/CURRENT"), (None, some("CURRENT")));
    assert_eq!(of("stream/CURRENT"), (None, None));
    assert_eq!(of("operator/db/0"), (None, None));
    assert_eq!(format!("{:?}", parse("db/x").unwrap()), "FilePath(db/x)");
}

#[test]
fn requirements_are_bounded() {
    let of: TaskManifest = record(task());
    let many: Vec<String> = (0..=limits::REQUIRES).map(|i| i.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let most = &many[..limits::REQUIRES];
    let read = |requires: &[&str], requires_write: &[&str]| {
        decode::<TaskManifest>(&encode_requiring(&of, requires, requires_write).unwrap())
    };
    assert_eq!(read(most, &[]).unwrap_err().kind(), Kind::Newer);
    assert_eq!(read(&[], most).unwrap().blocks_writing, most);
    for error in [read(&many, &[]).unwrap_err(), read(&[], &many).unwrap_err()] {
        assert!(error.kind() == Kind::Damage && error.to_string().contains("too many requirements"), "{error}");
    }
}

#[test]
fn objects_are_as_large_as_may_be_and_no_larger() {
    let bound = int(limits::METADATA_LEN);
    let mut of: TaskManifest = record(task());
    let full = bound / limits::PROPERTY_LEN - 1;
    of.properties = (0..full).map(|i| (format!("{i:04}"), text(limits::PROPERTY_LEN - 64))).collect();
    of.properties.insert("last".to_owned(), String::new());
    let mut left = bound - encode(&of).unwrap().len();
    // What one property does not hold goes into the others.
    for value in of.properties.values_mut() {
        let more = left.min(limits::PROPERTY_LEN - value.len());
        value.push_str(&text(more));
        left -= more;
    }
    // The header says the length in as many digits, or in one more.
    let over = encode(&of).map_or(1, |bytes| bytes.len() - bound);
    if over > 0 {
        let last = of.properties.get_mut("last").unwrap();
        last.truncate(last.len() - over);
    }
    let stored = encode(&of).unwrap();
    assert_eq!(stored.len(), bound);
    assert!(decode::<TaskManifest>(&stored).is_ok());
    of.properties.get_mut("last").unwrap().push('x');
    let error = encode(&of).unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("at most"), "{error}");
    let blank = |n: usize| decode::<TaskManifest>(&vec![b' '; n]).unwrap_err().to_string();
    assert!(blank(bound).contains("no header line") && blank(bound + 1).contains("at most"));
    let mark = |n: usize| CloneMark::decode(&vec![b' '; n]).unwrap_err();
    assert!(!mark(limits::CLONE_MARK_LEN).contains("more than"));
    assert!(mark(limits::CLONE_MARK_LEN + 1).contains("more than"));
}

#[test]
fn a_refusal_says_why_and_not_too_much() {
    let why = |bytes: &[u8]| match decode::<TaskManifest>(bytes) {
        Err(FormatError::Refused { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why(&crate::format::refusal("nobody signed it")), "nobody signed it");
    assert_eq!(why(&crate::format::refusal(&"\u{e9}".repeat(5000))), "\u{e9}".repeat(1000));
}

#[test]
fn signatures_leave_room_for_the_reader() {
    use crate::format::signature::{sign, verify};
    let ring = crate::types::KeyRing::parse("0123456789abcdef".repeat(4).as_bytes()).unwrap();
    let key = Key::outcome(&Name::encode("app"), number(7));
    let object = |head: usize, body: usize| format!("{{\"{}\":1}}\n{}", text(head - 6), text(body)).into_bytes();
    // A field of a signature: its name, 64 digits of hex, quotes, comma and colon.
    let signed = |head: usize, body: usize| sign(&object(head, body), &ring, uid(1), &key);
    let grows = signed(100, 10).unwrap().len() - object(100, 10).len();
    let longest = limits::HEADER_LEN - grows - 2;
    let fits = (0..8).rev().map(|more| longest + more).find(|head| signed(*head, 10).is_ok()).unwrap();
    // A reader looks for the line feed in this many bytes; one is left over.
    assert_eq!(fits + grows, limits::HEADER_LEN - 2);
    verify(&signed(fits, 10).unwrap(), &ring, uid(1), &key).unwrap();
    assert!(signed(fits + 1, 10).unwrap_err().to_string().contains("too large"));
    let body = int(limits::METADATA_LEN) - signed(100, 0).unwrap().len();
    let largest = signed(100, body).unwrap();
    assert_eq!(largest.len(), int(limits::METADATA_LEN));
    verify(&largest, &ring, uid(1), &key).unwrap();
    assert!(signed(100, body + 1).unwrap_err().to_string().contains("too large"));
}
