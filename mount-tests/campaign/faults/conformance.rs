//! The same without faults against the bucket in memory and a real server: what the harness stands on.

use std::sync::Arc;

use bytes::Bytes;
use ckptfs::store::{BlobSource, Created, Store, StoreOptions};
use ckptfs::types::{BlobName, CheckpointNumber, Digest, Key, Name, Prefix, RecordKind, Uid};

use crate::kit::noise;
use crate::s3::Weed;

use super::bucket::PAGE;
use super::databases::LARGE;
use super::layer::Layer;
use super::run::port;
use super::server;
use super::upstream::Upstream;

/// What a store told, as text.
fn told(url: &str) -> Vec<String> {
    let store = Store::open(url, StoreOptions::default()).unwrap();
    store.probe().unwrap();
    let (job, uid) = (Name::parse("app").unwrap(), Uid::random().unwrap());
    let outcome = |n| Key::outcome(&job, CheckpointNumber::new(n).unwrap());
    let mut out = Vec::new();
    let mut say = |what: &str, said: String| out.push(format!("{what}: {said}"));
    say("missing", format!("{:?} {:?}", store.get(&outcome(1), 100), store.head(&outcome(1))));
    say("create", format!("{:?}", store.create(&outcome(1), Bytes::from_static(b"one"))));
    say("again", format!("{:?}", store.create(&outcome(1), Bytes::from_static(b"one"))));
    say("other", format!("{:?}", store.create(&outcome(1), Bytes::from_static(b"two"))));
    say("get", format!("{:?} {:?}", store.get(&outcome(1), 100), store.head(&outcome(1))));
    say("too large", format!("{:?}", store.get(&outcome(1), 2).is_err()));
    let many = PAGE as u64 * 3 + 1;
    (2..=many).for_each(|n| {
        assert_eq!(store.create(&outcome(n), Bytes::from(vec![b'x'; n as usize])).unwrap(), Created::New);
    });
    let list = |after: Option<u64>| {
        let prefix = Prefix::job(RecordKind::Outcome, &job);
        let listed = match after {
            None => store.list(&prefix).unwrap(),
            Some(n) => store.list_after(&prefix, &outcome(n)).unwrap(),
        };
        format!("{:?}", listed.iter().map(|l| (l.key.as_str().to_owned(), l.size)).collect::<Vec<_>>())
    };
    say("list", list(None));
    say("list after", list(Some(PAGE as u64)));
    say("empty list", format!("{:?}", store.list(&Prefix::job(RecordKind::Pin, &job))));
    for length in [1, 70_000, LARGE] {
        let bytes = Bytes::from(noise(length as u64, length));
        let name = BlobName { digest: Digest::of(&bytes), uid };
        let key = Key::blob(&name);
        store.upload_blob(&name, BlobSource::Bytes(bytes.clone())).unwrap();
        store.upload_blob(&name, BlobSource::Bytes(bytes.clone())).unwrap();
        let middle = length as u64 / 3;
        let range = store.get_range(&key, middle..length as u64).unwrap();
        say("blob", format!("{:?} {}", store.head(&key), range == bytes[middle as usize..]));
        let beyond = store.get_range(&key, middle..length as u64 + 1);
        say("beyond", format!("{:?}", beyond.map_err(|e| e.kind())));
        let after = store.get_range(&key, length as u64 + 5..length as u64 + 9);
        say("after", format!("{:?}", after.map_err(|e| e.kind())));
        let mut whole = Vec::new();
        let read = store.read_to(&key, length as u64, &mut |piece| {
            whole.extend_from_slice(piece);
            Ok(())
        });
        say("whole", format!("{read:?} {}", whole == bytes));
        let wrong = store.read_to(&key, length as u64 - 1, &mut |_| Ok(())).map_err(|e| e.kind());
        say("another length", format!("{wrong:?}"));
    }
    let keys: Vec<Key> = (1..=many + 3).filter(|n| n % 2 == 0).map(outcome).collect();
    say("delete", format!("{:?}", store.delete_many(&keys)));
    say("delete again", format!("{:?}", store.delete(&outcome(2))));
    say("the rest", list(None));
    out
}

/// In a process of its own.
pub fn both() {
    let weed = Weed::start();
    let layer = Arc::new(Layer::new(Some(Upstream::new(weed.port()))));
    server::start(&layer, port());
    let (memory, real) = (told("s3://memory/store"), told(&weed.url("store")));
    for (a, b) in memory.iter().zip(&real) {
        assert_eq!(a.replace("s3://memory", ""), b.replace("s3://bucket", ""));
    }
    assert_eq!(memory.len(), real.len());
    println!("conformance: {} answers are the same in memory and of a real server", memory.len());
}
