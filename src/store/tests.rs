//! One conformance suite for every kind of store, and what each kind must do besides.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::backend::{Backend, Put, RawListed, Sink};
use super::memory::Memory;
use super::*;
use crate::error::Kind;
use crate::limits;
use crate::types::{BlobName, CheckpointNumber, Digest, Epoch, Name, Prefix, RecordKind, Uid};

fn number(n: u64) -> CheckpointNumber {
    CheckpointNumber::new(n).unwrap()
}

fn blob(bytes: &[u8]) -> BlobName {
    BlobName { digest: Digest::of(bytes), uid: Uid::random().unwrap() }
}

/// Bytes that do not repeat, so that a part at a wrong place shows.
fn noise(length: usize) -> Vec<u8> {
    crate::types::noise::noise(1, length)
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn read_all(store: &Store, key: &Key, length: u64) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    store.read_to(key, length, &mut |piece| {
        out.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(out)
}

/// What every store must do. Cleans up after itself.
fn conforms(store: &Store) {
    assert!(!store.looks_foreign().unwrap());
    assert_eq!(store.list(&Prefix::blobs()).unwrap(), []);
    assert_eq!(store.get(&Key::store(), 100).unwrap(), None);
    assert_eq!(store.head(&Key::store()).unwrap(), None);
    store.create_root().unwrap();
    assert!(store.exists_root().unwrap());
    records(store);
    hints(store);
    blobs(store);
    large_blobs(store);
    mends(store);
    store.probe().unwrap();
    assert_eq!(store.remove_leftovers().unwrap(), 0);
    assert!(!store.looks_foreign().unwrap(), "everything is gone again");
}

fn records(store: &Store) {
    let job = Name::encode("my job %/ü");
    let operator = Name::encode("a+b c");
    let (one, two) = (Bytes::from_static(b"one"), Bytes::from_static(b"two"));
    let key = Key::intent(&job, number(7));
    assert_eq!(store.create(&key, one.clone()).unwrap(), Created::New);
    assert_eq!(store.create(&key, one.clone()).unwrap(), Created::Ours);
    assert_eq!(store.create(&key, two.clone()).unwrap(), Created::Other(one.clone()));
    assert_eq!(store.get(&key, 3).unwrap(), Some(one.clone()));
    assert_eq!(store.get(&key, 2).unwrap_err().kind(), Kind::Damage, "too long");
    assert_eq!(store.head(&key).unwrap(), Some(3));

    let other = Name::encode("my job");
    let mut keys = vec![key];
    keys.push(Key::intent(&other, number(1)));
    keys.push(Key::intent(&other, number(2)));
    keys.push(Key::intent(&other, number(10)));
    keys.push(Key::task(&job, number(7), &operator, 0));
    keys.push(Key::task(&job, number(7), &operator, 12));
    keys.push(Key::task(&job, number(8), &operator, 0));
    keys.push(Key::epoch(&job, Epoch(1)));
    keys.push(Key::pin(&job, number(7), Uid::from_bytes([1; 16]), Uid::from_bytes([2; 16])));
    for key in &keys[1..] {
        assert_eq!(store.create(key, two.clone()).unwrap(), Created::New, "{key}");
    }
    let listed = |prefix: &Prefix| -> Vec<Key> {
        let all = store.list_all(prefix).unwrap();
        assert_eq!(all.foreign, []);
        assert!(all.ours.iter().all(|l| l.size == 3));
        all.ours.into_iter().map(|l| l.key).collect()
    };
    let expected = |wanted: &[usize]| -> Vec<Key> {
        let set: BTreeSet<_> = wanted.iter().map(|i| keys[*i].as_str()).collect();
        set.into_iter().map(|k| Key::parse(k).unwrap()).collect()
    };
    assert_eq!(listed(&Prefix::kind(RecordKind::Intent)), expected(&[0, 1, 2, 3]));
    assert_eq!(listed(&Prefix::job(RecordKind::Intent, &other)), expected(&[1, 2, 3]));
    assert_eq!(listed(&Prefix::job(RecordKind::Intent, &job)), expected(&[0]));
    assert_eq!(listed(&Prefix::checkpoint(RecordKind::Task, &job, number(7))), expected(&[4, 5]));
    assert_eq!(listed(&Prefix::kind(RecordKind::Task)), expected(&[4, 5, 6]));
    assert_eq!(listed(&Prefix::kind(RecordKind::Outcome)), []);
    let after = store.list_after(&Prefix::job(RecordKind::Intent, &other), &keys[1]).unwrap();
    assert_eq!(after.into_iter().map(|l| l.key).collect::<Vec<_>>(), expected(&[2, 3]));

    store.delete(&keys[0]).unwrap();
    store.delete(&keys[0]).unwrap();
    assert_eq!(store.get(&keys[0], 100).unwrap(), None);
    assert_eq!(listed(&Prefix::kind(RecordKind::Intent)), expected(&[1, 2, 3]));
    store.delete_many(&keys).unwrap();
    for kind in [RecordKind::Intent, RecordKind::Task, RecordKind::Epoch, RecordKind::Pin] {
        assert_eq!(listed(&Prefix::kind(kind)), []);
    }
}

fn hints(store: &Store) {
    let key = Key::head(&Name::encode("job.json"));
    for text in ["1", "22"] {
        store.put_hint(&key, Bytes::from(text)).unwrap();
        assert_eq!(store.get(&key, 9).unwrap().as_deref(), Some(text.as_bytes()));
    }
    assert_eq!(store.list(&Prefix::kind(RecordKind::Head)).unwrap()[0].key, key);
    store.delete(&key).unwrap();
    assert!(store.put_hint(&Key::store(), Bytes::new()).is_err());
}

fn blobs(store: &Store) {
    let bytes = noise(300_000);
    let (a, b, empty) = (blob(&bytes), blob(&bytes), blob(b""));
    store.upload_blob(&a, BlobSource::Bytes(bytes.clone().into())).unwrap();
    let file = file_of(&bytes);
    store.upload_blob(&b, BlobSource::File(&file, bytes.len() as u64)).unwrap();
    store.upload_blob(&b, BlobSource::File(&file, bytes.len() as u64)).unwrap();
    store.upload_blob(&empty, BlobSource::Bytes(Bytes::new())).unwrap();
    store.flush().unwrap();
    let (ka, kb, ke) = (Key::blob(&a), Key::blob(&b), Key::blob(&empty));
    let mut listed: Vec<_> = store.list(&Prefix::blobs()).unwrap().into_iter().map(|l| (l.key, l.size)).collect();
    let mut expected = vec![(ka.clone(), 300_000), (kb.clone(), 300_000), (ke.clone(), 0)];
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    assert_eq!(read_all(store, &ka, 300_000).unwrap(), bytes);
    assert_eq!(read_all(store, &kb, 300_000).unwrap(), bytes);
    assert_eq!(read_all(store, &ke, 0).unwrap(), b"");
    for range in [0..1, 299_999..300_000, 65_536..131_072, 0..300_000, 5..5] {
        let (from, to) = (usize::try_from(range.start).unwrap(), usize::try_from(range.end).unwrap());
        assert_eq!(store.get_range(&ka, range).unwrap(), &bytes[from..to]);
    }
    // A wrong length is damage, never a short answer.
    for length in [299_999, 300_001, 0, 1] {
        assert_eq!(read_all(store, &ka, length).unwrap_err().kind(), Kind::Damage, "{length}");
    }
    for range in [0..300_001, 299_999..300_001, 300_000..300_001, 400_000..400_010] {
        let error = store.get_range(&ka, range.clone()).unwrap_err();
        assert_eq!(error.kind(), Kind::Damage, "{range:?}: {error}");
    }
    #[expect(clippy::reversed_empty_ranges, reason = "what a damaged manifest could say")]
    let reversed = 5..4;
    assert_eq!(store.get_range(&ka, reversed).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(store.get_range(&ka, 0..u64::MAX).unwrap_err().kind(), Kind::Invalid);
    let stopped = store.read_to(&ka, 300_000, &mut |_| Err(std::io::Error::other("full")));
    assert!(matches!(stopped, Err(StoreError::Sink { .. })));
    let missing = Key::blob(&blob(b"missing"));
    for length in [0, 1] {
        assert_eq!(read_all(store, &missing, length).unwrap_err().kind(), Kind::NotFound);
    }
    assert_eq!(store.get_range(&missing, 0..1).unwrap_err().kind(), Kind::NotFound);

    lies(store, &bytes);
    store.delete_many(&[ka, kb, ke]).unwrap();
    assert_eq!(store.list(&Prefix::blobs()).unwrap(), []);
}

/// Files that are not what their name says leave nothing behind.
fn lies(store: &Store, bytes: &[u8]) {
    let file = file_of(bytes);
    let length = bytes.len() as u64;
    for (name, said) in [
        (blob(b"something else"), length),
        (blob(bytes), length - 1),
        (blob(bytes), length + 1),
        (blob(b""), 0),
        (blob(b""), length + 1),
    ] {
        let error = store.upload_blob(&name, BlobSource::File(&file, said)).unwrap_err();
        assert_eq!(error.kind(), Kind::Damage, "{error}");
        assert_eq!(store.head(&Key::blob(&name)).unwrap(), None);
    }
}

/// What is missing or damaged gets its right bytes back, and nothing but those.
fn mends(store: &Store) {
    let bytes = noise(200_000);
    let (length, file) = (bytes.len() as u64, file_of(&bytes));
    let (damaged, short, missing, whole) = (blob(&bytes), blob(&bytes), blob(&bytes), blob(&bytes));
    let wrong: Vec<u8> = bytes.iter().map(|b| b ^ 1).collect();
    store.backend().replace(Key::blob(&damaged).as_str(), wrong.clone().into()).unwrap();
    store.backend().replace(Key::blob(&short).as_str(), Bytes::from_static(b"short")).unwrap();
    store.upload_blob(&whole, BlobSource::Bytes(bytes.clone().into())).unwrap();
    let names = [damaged, short, missing, whole];
    let lengths = [Some(length), Some(5), None, Some(length)];
    assert_eq!(store.blob_lengths(&names).unwrap().unwrap(), lengths);
    assert_eq!(store.blob_lengths(&[]).unwrap().unwrap_or_default(), []);
    let not_it = file_of(&wrong);
    for name in &names {
        let key = Key::blob(name);
        for (digest, source) in [
            (Digest::of(&wrong), BlobSource::Bytes(wrong.clone().into())),
            (name.digest, BlobSource::Bytes(wrong.clone().into())),
            (name.digest, BlobSource::File(&not_it, length)),
            (name.digest, BlobSource::File(&file, length - 1)),
        ] {
            assert!(store.mend(&key, &digest, source).is_err());
        }
    }
    assert_eq!(store.blob_lengths(&names).unwrap().unwrap(), lengths, "nothing was changed");
    for (i, name) in names.iter().enumerate() {
        let source = if i % 2 == 0 { BlobSource::File(&file, length) } else { BlobSource::Bytes(bytes.clone().into()) };
        store.mend(&Key::blob(name), &name.digest, source).unwrap();
        assert!(read_all(store, &Key::blob(name), length).unwrap() == bytes);
    }
    store.delete_many(&names.map(|name| Key::blob(&name))).unwrap();
    let (job, n) = (Name::encode("job"), number(1));
    let task = Key::task(&job, n, &job, 0);
    store.backend().replace(task.as_str(), Bytes::from_static(b"wrong")).unwrap();
    store.mend(&task, &Digest::of(b"right"), BlobSource::Bytes(Bytes::from_static(b"right"))).unwrap();
    assert_eq!(store.get(&task, 100).unwrap().unwrap(), "right");
    store.delete(&task).unwrap();
    for key in [Key::store(), Key::outcome(&job, n), Key::intent(&job, n), Key::expired(&job, n)] {
        let error = store.mend(&key, &Digest::of(b"x"), BlobSource::Bytes(Bytes::from_static(b"x"))).unwrap_err();
        assert_eq!((error.kind(), store.head(&key).unwrap()), (Kind::Invalid, None));
    }
}

fn large_blobs(store: &Store) {
    // Two whole parts and a bit, above what goes in one request.
    let bytes = noise((17 << 20) + 12_345);
    let length = bytes.len() as u64;
    let (a, b) = (blob(&bytes), blob(&bytes));
    let file = file_of(&bytes);
    let before = store.counters().bytes_up.get();
    store.upload_blob(&a, BlobSource::File(&file, length)).unwrap();
    store.upload_blob(&b, BlobSource::Bytes(bytes.clone().into())).unwrap();
    assert_eq!(store.counters().bytes_up.get() - before, 2 * length);
    for name in [&a, &b] {
        assert!(read_all(store, &Key::blob(name), length).unwrap() == bytes);
    }
    lies(store, &bytes);
    store.delete_many(&[Key::blob(&a), Key::blob(&b)]).unwrap();
}

#[test]
fn memory_conforms() {
    conforms(&Memory::store());
}

#[test]
fn files_conform() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("new/store %20x");
    let store = Store::open(root.to_str().unwrap(), StoreOptions::default()).unwrap();
    assert!(!store.exists_root().unwrap());
    assert_eq!(store.create(&Key::store(), Bytes::new()).unwrap_err().kind(), Kind::NotFound);
    assert!(!root.exists(), "reading and typing errors make no directories");
    conforms(&store);
}

/// Run with `CKPTFS_TEST_S3=s3://bucket/prefix` and the `AWS_*` variables of a real server.
#[test]
fn object_stores_conform() {
    let Ok(url) = std::env::var("CKPTFS_TEST_S3") else { return };
    let url = format!("{url}/{}/pre%20fix", Uid::random().unwrap());
    let store = Store::open(&url, StoreOptions::default()).unwrap();
    conforms(&store);
    // Five of what is got there are no records: those are asked for three times more each, and nothing else is.
    assert_eq!(store.counters().retries.get(), 5 * 3);
}

#[test]
fn object_stores_report_what_they_lack() {
    let Ok(url) = std::env::var("CKPTFS_TEST_S3") else { return };
    let bucket = url.split('/').nth(2).unwrap();
    let missing = Uid::random().unwrap().to_string();
    let store = Store::open(&url.replacen(bucket, &missing, 1), StoreOptions::default()).unwrap();
    let error = store.list(&Prefix::blobs()).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
    assert_eq!(store.get(&Key::store(), 9).unwrap(), None);
}

#[test]
fn an_unreachable_store_is_given_up_in_time_and_keeps_its_secrets() {
    // A listener that never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let hung = object_store::aws::AmazonS3Builder::new()
        .with_endpoint(&endpoint)
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_bucket_name("bucket")
        .with_access_key_id("AKIDEXAMPLE")
        .with_secret_access_key("verysecretvalue")
        .build()
        .unwrap();
    let hung = Arc::new(hung);
    let options = StoreOptions { deadline: Duration::from_millis(900), ..StoreOptions::default() };
    let backend = object::ObjectBackend::new(Arc::clone(&hung) as _, hung as _, "p", "s3://bucket/p", &options);
    let store = Store::from_backend(Arc::new(backend), "s3://bucket/p", options);
    let begun = Instant::now();
    let body = noise(20 << 20);
    let errors = [
        store.get(&Key::store(), 10).unwrap_err(),
        store.list(&Prefix::blobs()).unwrap_err(),
        store.create(&Key::store(), Bytes::new()).unwrap_err(),
        store.upload_blob(&blob(&body), BlobSource::Bytes(body.clone().into())).unwrap_err(),
    ];
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    for error in errors {
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        let text = format!("{error} {error:?} {store:?} {:?}", store.backend());
        assert!(!text.contains("verysecretvalue"), "{text}");
    }
}

/// However fast a bucket is, no more goes each way than is allowed; a directory is not held up.
#[test]
fn rates_are_kept_and_every_byte_comes() {
    let options = StoreOptions {
        rates: Rates { upload: Some(4 << 20), fetch: Some(2 << 20) },
        single_put: 1 << 20,
        part: 5 << 20,
        ..StoreOptions::default()
    };
    let memory = Arc::new(object_store::memory::InMemory::new());
    let backend = object::ObjectBackend::new(Arc::clone(&memory) as _, memory as _, "p", "s3://bucket/p", &options);
    let store = Store::from_backend(Arc::new(backend), "s3://bucket/p", options.clone());
    let timed = |what: &dyn Fn()| {
        let begun = Instant::now();
        what();
        begun.elapsed()
    };
    let (small, large) = (noise(512 << 10), noise(6 << 20));
    let name = blob(&large);
    let took = timed(&|| {
        for (name, body) in [(blob(&small), &small), (name, &large), (blob(&small), &small)] {
            store.upload_blob(&name, BlobSource::Bytes(body.clone().into())).unwrap();
        }
    });
    // All but the last one is paid for before that goes.
    assert!(took >= Duration::from_millis(1600), "6.5 MiB at 4 MiB a second: {took:?}");
    let fetched = Mutex::new(Vec::new());
    let took = timed(&|| {
        let key = Key::blob(&name);
        let mut sink = |piece: &[u8]| {
            fetched.lock().unwrap().extend_from_slice(piece);
            Ok(())
        };
        store.read_to(&key, large.len() as u64, &mut sink).unwrap();
        assert_eq!(store.get_range(&key, 5..1 << 20).unwrap(), large[5..1 << 20]);
    });
    assert!(*fetched.lock().unwrap() == large);
    assert!(took >= Duration::from_millis(3000), "7 MiB at 2 MiB a second: {took:?}");
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}", dir.path().display());
    let slow = StoreOptions { rates: Rates { upload: Some(1), fetch: Some(1) }, ..StoreOptions::default() };
    let store = Store::open(&url, slow).unwrap();
    let took = timed(&|| {
        let name = blob(&small);
        store.upload_blob(&name, BlobSource::Bytes(small.clone().into())).unwrap();
        assert_eq!(store.get_range(&Key::blob(&name), 0..512 << 10).unwrap(), small);
    });
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[test]
fn a_store_that_ignores_the_condition_is_refused() {
    let memory = Arc::new(Memory::ignoring_condition());
    let store = Store::from_backend(memory, "memory://", StoreOptions::default());
    let error = store.probe().unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.to_string().contains("8 of 8 creators"), "{error}");
    assert!(!store.looks_foreign().unwrap(), "the probe cleans up when it fails, too");
}

#[test]
fn strangers_are_seen_and_kept() {
    let memory = Arc::new(Memory::new());
    let store = Store::from_backend(Arc::clone(&memory) as _, "memory://", StoreOptions::default());
    assert!(!store.looks_foreign().unwrap());
    memory.plant("probe/left/over", "x");
    assert!(!store.looks_foreign().unwrap());
    memory.plant("intent/app/42.json", "x");
    memory.plant("intent/readme", "xy");
    assert!(store.looks_foreign().unwrap());
    let all = store.list_all(&Prefix::kind(RecordKind::Intent)).unwrap();
    assert_eq!(all.ours, []);
    let foreign: Vec<_> = all.foreign.iter().map(|f| (f.key.as_str(), f.size)).collect();
    assert_eq!(foreign, [("intent/app/42.json", 1), ("intent/readme", 2)]);
    store.create(&Key::store(), Bytes::from_static(b"{}")).unwrap();
    assert!(!store.looks_foreign().unwrap());
}

#[test]
fn what_strangers_leave_in_a_directory() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path().to_str().unwrap(), StoreOptions::default()).unwrap();
    std::fs::create_dir_all(temp.path().join("blobs/aa/deep")).unwrap();
    assert!(!store.looks_foreign().unwrap(), "empty directories are nobody's data");
    std::fs::write(temp.path().join("blobs/aa/deep/x"), "1").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", temp.path().join("blobs/aa/link")).unwrap();
    let staging = format!(".tmp-{}", "0a".repeat(16));
    std::fs::write(temp.path().join("blobs/aa").join(&staging), "1").unwrap();
    let bad = std::os::unix::ffi::OsStrExt::as_bytes(std::ffi::OsStr::new("x")).to_vec();
    let bad = <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec([bad, vec![0xff]].concat());
    std::fs::write(temp.path().join("blobs").join(bad), "").unwrap();
    let all = store.list_all(&Prefix::blobs()).unwrap();
    let foreign: Vec<_> = all.foreign.iter().map(|f| f.key.as_str()).collect();
    assert_eq!(foreign, ["blobs/aa/deep/x", "blobs/aa/link", "blobs/x\u{fffd}"]);
    assert!(store.looks_foreign().unwrap());
    assert_eq!(store.remove_leftovers().unwrap(), 1);
    assert!(!temp.path().join("blobs/aa").join(&staging).exists());
    // A symlink in the place of an object is not followed.
    let name = blob(b"x");
    let path = temp.path().join(Key::blob(&name).as_str());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert!(store.get(&Key::blob(&name), 1 << 20).is_err());
    assert_eq!(store.head(&Key::blob(&name)).unwrap(), None);
    // Nor one in the place of a directory.
    std::os::unix::fs::symlink("/etc", temp.path().join("intent")).unwrap();
    assert!(store.list(&Prefix::kind(RecordKind::Intent)).is_err());
    assert!(store.create(&Key::intent(&Name::encode("a"), number(1)), Bytes::new()).is_err());
}

/// Sweepers meet in the directories of numbers that are gone: one lists, the other has just removed.
#[test]
fn directories_that_another_sweep_removes_are_no_error() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path().to_str().unwrap(), StoreOptions::default()).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    let rounds = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let (store, over) = (&store, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let keys: Vec<Key> =
                        (1..9).map(|n| Key::task(&Name::encode("job"), number(n), &Name::encode(name), 0)).collect();
                    for key in &keys {
                        store.create(key, Bytes::from_static(b"x")).unwrap();
                    }
                    store.delete_many(&keys).unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    store.remove_leftovers().unwrap();
                    store.list(&Prefix::kind(RecordKind::Task)).unwrap();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(std::time::Duration::from_secs(2));
        over.store(true, Ordering::Relaxed);
    });
    assert!(rounds.into_inner() > 100);
}

#[test]
fn files_are_read_only_and_directories_go_with_the_last_record() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path().to_str().unwrap(), StoreOptions::default()).unwrap();
    let (job, db) = (Name::encode("app"), Name::encode("db"));
    let keys = [Key::task(&job, number(1), &db, 0), Key::task(&job, number(1), &db, 1)];
    for key in &keys {
        store.create(key, Bytes::from_static(b"x")).unwrap();
    }
    let mode = std::fs::metadata(temp.path().join(keys[0].as_str())).unwrap().permissions().mode();
    assert_eq!(mode & 0o222, 0);
    store.delete(&keys[0]).unwrap();
    assert!(temp.path().join("task/app/00000000000000000001/db").exists());
    store.delete(&keys[1]).unwrap();
    assert!(!temp.path().join("task/app/00000000000000000001").exists());
    assert!(temp.path().join("task/app").exists());
    store.create(&keys[0], Bytes::from_static(b"x")).unwrap();
    assert_eq!(store.list(&Prefix::kind(RecordKind::Task)).unwrap().len(), 1);
}

#[test]
fn a_record_comes_and_goes_while_its_directory_does() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path().to_str().unwrap(), StoreOptions::default()).unwrap();
    let job = Name::encode("app");
    std::thread::scope(|scope| {
        for holder in 0..4_u8 {
            let (store, job) = (&store, &job);
            scope.spawn(move || {
                for nonce in 0..25_u8 {
                    let key = Key::pin(job, number(1), Uid::from_bytes([holder; 16]), Uid::from_bytes([nonce; 16]));
                    assert_eq!(store.create(&key, Bytes::from_static(b"x")).unwrap(), Created::New);
                    store.delete(&key).unwrap();
                }
            });
        }
    });
    assert_eq!(store.list(&Prefix::kind(RecordKind::Pin)).unwrap(), []);
}

#[test]
fn unsafe_file_systems_are_refused_unless_forced() {
    let point = tempfile::tempdir().unwrap();
    let device = crate::local::mount::mount_fuse(point.path(), &crate::local::mount::MountOptions::default()).unwrap();
    let url = point.path().to_str().unwrap();
    // Nobody answers on this mount: closed, it is stale, and a look at it fails at once instead of waiting.
    drop(device);
    assert!(Store::open(url, StoreOptions::default()).is_err());
    crate::local::mount::heal(point.path()).unwrap();
    assert!(Store::open(url, StoreOptions::default()).is_ok());
}

/// Fails as told, before or after the request took effect.
#[derive(Debug)]
struct Faulty {
    inner: Memory,
    failures: AtomicU32,
    after: bool,
    conflict: bool,
}

impl Faulty {
    fn store(failures: u32, after: bool, conflict: bool) -> Store {
        let faulty = Self { inner: Memory::new(), failures: AtomicU32::new(failures), after, conflict };
        Store::from_backend(Arc::new(faulty), "faulty://", StoreOptions::default())
    }

    fn strike(&self) -> Result<()> {
        let struck = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        match struck {
            Err(_) => Ok(()),
            Ok(_) => Err(StoreError::Unavailable {
                what: "reach",
                object: "faulty://".into(),
                why: "planted".into(),
                waited: Duration::ZERO,
            }),
        }
    }
}

impl Backend for Faulty {
    fn get(&self, key: &str, max_len: u64) -> Result<Option<Bytes>> {
        self.inner.get(key, max_len)
    }
    fn read(&self, key: &str, range: Range<u64>, size: Option<u64>, sink: Sink<'_>) -> Result<()> {
        // Some bytes, then silence.
        if self.after && range.end - range.start > 10 {
            self.inner.read(key, range.start..range.start + 7, size, sink)?;
            self.strike()?;
            return self.inner.read(key, range.start + 7..range.end, size, sink);
        }
        self.strike()?;
        self.inner.read(key, range, size, sink)
    }
    fn head(&self, key: &str) -> Result<Option<u64>> {
        self.strike()?;
        self.inner.head(key)
    }
    fn list(&self, directory: &str, after: Option<&str>, limit: usize) -> Result<Vec<RawListed>> {
        self.strike()?;
        self.inner.list(directory, after, limit)
    }
    fn create(&self, key: &str, body: Bytes, durable: bool) -> Result<Put> {
        if self.conflict {
            return self.strike().map_or(Ok(Put::Exists), |()| self.inner.create(key, body, durable));
        }
        if !self.after {
            self.strike()?;
        }
        let put = self.inner.create(key, body, durable);
        if self.after {
            self.strike()?;
        }
        put
    }
    fn replace(&self, key: &str, body: Bytes) -> Result<()> {
        self.inner.replace(key, body)
    }
    fn upload(&self, key: &str, digest: &Digest, source: &BlobSource<'_>, sent: &Counter) -> Result<()> {
        self.strike()?;
        self.inner.upload(key, digest, source, sent)
    }
    fn delete(&self, keys: &[&str]) -> Result<()> {
        self.strike()?;
        self.inner.delete(keys)
    }
}

#[test]
fn unclear_creates_are_cleared_up() {
    let (mine, yours) = (Bytes::from_static(b"mine"), Bytes::from_static(b"yours"));
    // Lost before it took effect: made again.
    assert_eq!(Faulty::store(2, false, false).create(&Key::store(), mine.clone()).unwrap(), Created::New);
    // The answer was lost: read back.
    assert_eq!(Faulty::store(2, true, false).create(&Key::store(), mine.clone()).unwrap(), Created::Ours);
    // A conflict that stored nothing is no other's success.
    let store = Faulty::store(2, false, true);
    assert_eq!(store.create(&Key::store(), mine.clone()).unwrap(), Created::New);
    assert_eq!(store.counters().retries.get(), 2);
    // The answer was lost, and somebody else had won.
    let store = Faulty::store(0, true, false);
    store.create(&Key::store(), yours.clone()).unwrap();
    assert_eq!(store.create(&Key::store(), mine.clone()).unwrap(), Created::Other(yours));
    // For ever: an error, and it says that it was tried.
    let error = Faulty::store(u32::MAX, false, true).create(&Key::store(), mine.clone()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    let error = Faulty::store(u32::MAX, false, false).create(&Key::store(), mine).unwrap_err();
    assert!(error.to_string().contains("planted"), "{error}");
}

#[test]
fn requests_are_tried_again_and_streams_resume() {
    let bytes = noise(1000);
    let name = blob(&bytes);
    let store = Faulty::store(3, false, false);
    store.upload_blob(&name, BlobSource::Bytes(bytes.clone().into())).unwrap();
    assert_eq!(store.counters().retries.get(), 3);
    let key = Key::blob(&name);
    assert_eq!(read_all(&store, &key, 1000).unwrap(), bytes);

    let store = Faulty::store(50, true, false);
    store.backend().replace(key.as_str(), bytes.clone().into()).unwrap();
    // Fifty breaks, seven bytes each time: each byte once, in order.
    assert_eq!(read_all(&store, &key, 1000).unwrap(), bytes);
    assert_eq!(store.counters().bytes_down.get(), 1000);
    assert_eq!(store.get_range(&key, 10..1000).unwrap(), &bytes[10..]);

    let store = Faulty::store(u32::MAX, false, false);
    assert_eq!(store.list(&Prefix::blobs()).unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(store.head(&key).unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(store.delete(&key).unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(store.get_range(&key, 0..1).unwrap_err().kind(), Kind::Unavailable);
}

#[test]
fn too_large_a_blob_is_refused_before_it_is_sent() {
    let file = file_of(b"x");
    let error = Memory::store().upload_blob(&blob(b"x"), BlobSource::File(&file, limits::BLOB_LEN + 1)).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
}

/// `CKPTFS_TEST_S3_READER` is `key:secret` of an identity that may only read.
#[test]
fn readers_of_object_stores_are_told_so() {
    let (Ok(url), Ok(reader)) = (std::env::var("CKPTFS_TEST_S3"), std::env::var("CKPTFS_TEST_S3_READER")) else {
        return;
    };
    let writer = Store::open(&url, StoreOptions::default()).unwrap();
    let name = blob(b"x");
    writer.upload_blob(&name, BlobSource::Bytes(Bytes::from_static(b"x"))).unwrap();
    let (key, secret) = reader.split_once(':').unwrap();
    let parts: Vec<&str> = url.splitn(4, '/').collect();
    let open = |key: &str, secret: &str| {
        let s3 = object_store::aws::AmazonS3Builder::from_env()
            .with_url(&url)
            .with_region("us-east-1")
            .with_access_key_id(key)
            .with_secret_access_key(secret)
            .build()
            .unwrap();
        let s3 = Arc::new(s3);
        let options = StoreOptions::default();
        let backend = object::ObjectBackend::new(Arc::clone(&s3) as _, s3 as _, parts[3], &url, &options);
        Store::from_backend(Arc::new(backend), &url, options)
    };
    let store = open(key, secret);
    assert_eq!(store.get(&Key::blob(&name), 9).unwrap().as_deref(), Some(&b"x"[..]));
    assert!(!store.list(&Prefix::blobs()).unwrap().is_empty());
    let large = noise(17 << 20);
    let refused = [
        store.create(&Key::store(), Bytes::new()).map(|_| ()).unwrap_err(),
        store.upload_blob(&name, BlobSource::Bytes(Bytes::from_static(b"x"))).unwrap_err(),
        store.upload_blob(&blob(&large), BlobSource::Bytes(large.clone().into())).unwrap_err(),
        store.delete(&Key::blob(&name)).unwrap_err(),
        store.probe().unwrap_err(),
        open(key, "wrongsecretvalue").get(&Key::store(), 9).unwrap_err(),
        open("nobodyknows", "wrongsecretvalue").list(&Prefix::blobs()).map(|_| ()).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), Kind::Permission, "{error}");
        let text = format!("{error} {error:?}");
        assert!(!text.contains(secret) && !text.contains("wrongsecretvalue"), "{text}");
    }
    assert_eq!(store.counters().retries.get(), 0, "a refusal is not tried again");
    writer.delete(&Key::blob(&name)).unwrap();
}
