//! Records where they lie: a key in the first line, the object behind it. What parses belongs to its key, is written again as it was read,
//! and a signature holds for this object at this key and for nothing else.
#![no_main]

use ckptfs::format::header::encode_requiring;
use ckptfs::format::records::{
    EpochRecord, ExpiredRecord, FloorRecord, HeadRecord, HiddenRecord, PinRecord, StoreRecord,
};
use ckptfs::format::{Intent, Outcome, Record, TaskManifest, decode_at, refusal, signature};
use ckptfs::types::{CheckpointNumber, Digest, Epoch, Key, KeyParts, KeyRing, Prefix, RecordKind, Uid};
use libfuzzer_sys::fuzz_target;

const KEYS: &[u8] = b"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

fn at<R: Record + PartialEq + std::fmt::Debug>(key: &Key, object: &[u8]) {
    let decoded = match ckptfs_fuzz::bounded(object.len(), || decode_at::<R>(key, object)) {
        Err(error) => return assert!(!error.to_string().is_empty()),
        Ok(decoded) => decoded,
    };
    assert!(decoded.record.place().belongs_at(key).is_ok());
    let again = encode_requiring(&decoded.record, &[], &[]).unwrap();
    let read = decode_at::<R>(key, &again).unwrap();
    assert_eq!(read.record, decoded.record);
    assert!(read.blocks_writing.is_empty());
    // It is the object of no other key.
    let elsewhere = Key::epoch(&"another-job".parse().unwrap(), Epoch::from_key("00000000000000000099").unwrap());
    assert!(decode_at::<R>(&elsewhere, &again).is_err());
}

fn signed(key: &Key, object: &[u8]) {
    let ring = KeyRing::parse(KEYS).unwrap();
    let store = Uid::from_bytes([7; 16]);
    let _ = ckptfs_fuzz::bounded(object.len(), || signature::verify(object, &ring, store, key));
    let Ok(signed) = ckptfs_fuzz::bounded(object.len(), || signature::sign(object, &ring, store, key)) else { return };
    assert_eq!(signature::verify(&signed, &ring, store, key), Ok(()));
    assert!(signature::verify(&signed, &ring, Uid::from_bytes([8; 16]), key).is_err());
    assert_eq!(signature::sign(&signed, &ring, store, key).unwrap(), signed);
    let mut damaged = signed.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert!(signature::verify(&damaged, &ring, store, key).is_err());
}

/// The header that covers these bytes is made here: else nearly every change would end at a digest.
fn covered(kind: &str, body: &[u8]) -> Vec<u8> {
    let (length, digest) = (body.len(), Digest::of(body));
    let header = format!(
        r#"{{"ckptfs":"{kind}/1","length":{length},"blake3":"{digest}","requires":[],"requires_write":[],"encoding":"plain"}}"#
    );
    [header.as_bytes(), b"\n", body, b"\n"].concat()
}

fn object(key: &Key, kind: Option<&str>, bytes: &[u8]) {
    let made;
    let bytes = match kind {
        Some(kind) => {
            made = covered(kind, bytes);
            &made
        }
        None => bytes,
    };
    signed(key, bytes);
    match key.parts() {
        KeyParts::Store => at::<StoreRecord>(key, bytes),
        KeyParts::Epoch(..) => at::<EpochRecord>(key, bytes),
        KeyParts::Intent(..) => at::<Intent>(key, bytes),
        KeyParts::Task(..) => drop(ckptfs_fuzz::within(104, bytes.len(), || decode_at::<TaskManifest>(key, bytes))),
        KeyParts::Outcome(..) => at::<Outcome>(key, bytes),
        KeyParts::Hidden(..) => at::<HiddenRecord>(key, bytes),
        KeyParts::Expired(..) => at::<ExpiredRecord>(key, bytes),
        KeyParts::Pin(..) => at::<PinRecord>(key, bytes),
        KeyParts::Floor(..) => at::<FloorRecord>(key, bytes),
        KeyParts::Head(..) => at::<HeadRecord>(key, bytes),
        KeyParts::Blob(_) => {}
    }
}

fuzz_target!(|data: &[u8]| {
    let mut lines = data.splitn(2, |b| *b == b'\n');
    let (line, bytes) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let Ok(line) = std::str::from_utf8(line) else { return };
    // `KEY`, or `KEY KIND` of a body whose header is made.
    let (text, kind) = line.split_once(' ').map_or((line, None), |(key, kind)| (key, Some(kind)));
    if kind.is_some_and(|kind| !kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')) {
        return;
    }
    let Some(key) = ckptfs_fuzz::bounded(text.len(), || Key::parse(text)) else { return };
    assert_eq!(key.as_str(), text, "a key is spelled in one way");
    assert_eq!(Key::new(key.parts().clone()), key);
    let all = [Prefix::all(), Prefix::blobs(), Prefix::kind(RecordKind::Pin)];
    assert!(all[0].as_str().is_empty() || text.starts_with(all[0].as_str()));
    let _ = CheckpointNumber::from_key(text.rsplit('/').next().unwrap_or_default());
    object(&key, kind, bytes);
    let refused = refusal("nothing");
    assert!(decode_at::<Outcome>(&key, &refused).is_err());
});
