//! What says of itself that it is whole: any record at its own key, by its header, its body's length and digest, and its place.

use super::*;
use crate::format::Verdict;
use crate::format::header::whole_at;
use crate::format::records::{EpochRecord, HiddenRecord, StoreRecord};

fn place(role: Role, number: u64) -> Place {
    let mut place = Place::new(role, &Name::encode("app"), number, Uid::from_bytes([1; 16]));
    place.subtask = (role == Role::Task).then(|| (Name::encode("db"), 0));
    place.holder = (role == Role::Pin).then_some(Uid::from_bytes([2; 16]));
    place.nonce = matches!(role, Role::Pin | Role::Hidden).then_some(Uid::from_bytes([3; 16]));
    place
}

fn said(key: &Key, text: &str) -> Result<(), String> {
    whole_at(key, text.as_bytes())
}

fn holds<R: Record>(record: &R) {
    let key = record.place().key().unwrap();
    let text = String::from_utf8(encode(record).unwrap()).unwrap();
    assert_eq!(said(&key, &text), Ok(()), "{key}");
    let kind = format!("\"{}/1\"", R::WHAT);
    for other in ["2", "11", "x"] {
        let other = format!("{}/{other}", R::WHAT);
        let newer = text.replacen(&kind, &format!("{other:?}"), 1);
        assert_eq!(said(&key, &newer), Err(format!("it is a {other:?}, encoding \"plain\"")));
    }
    let zipped = text.replacen("\"plain\"", "\"zip\"", 1);
    assert_eq!(said(&key, &zipped), Err(format!("it is a {kind}, encoding \"zip\"")));
    let asks = text.replacen("\"requires\":[]", "\"requires\":[\"tomorrow\"]", 1);
    assert_eq!(said(&key, &asks), Err(format!("it is a {kind}, encoding \"plain\"")));
    let writers = text.replacen("\"requires_write\":[]", "\"requires_write\":[\"tomorrow\"]", 1);
    assert_eq!(said(&key, &writers), Ok(()));
    let not_it = Err("the body is not the one that the header speaks of".to_owned());
    let (length, next) = (format!("\"length\":{}", text.lines().nth(1).unwrap().len()), 7);
    assert_eq!(said(&key, &text.replacen(&length, &format!("\"length\":{next}"), 1)), not_it);
    let hex = Digest::of(text.lines().nth(1).unwrap().as_bytes()).to_hex();
    assert_eq!(said(&key, &text.replacen(&hex, &Digest::of(b"").to_hex(), 1)), not_it);
    assert_eq!(said(&key, text.trim_end()), not_it);
    assert_eq!(said(&key, &format!("{text}\n")), not_it);
    assert_eq!(said(&key, text.lines().next().unwrap()), Err("no header line".to_owned()));
    assert!(said(&key, "{}\n{}\n").unwrap_err().starts_with("header: "));
    // Another kind lies at another's key.
    let elsewhere = if R::WHAT == "epoch" { Key::store() } else { Key::epoch(&Name::encode("app"), Epoch(1)) };
    assert_eq!(said(&elsewhere, &text), Err(format!("it is a {kind}, encoding \"plain\"")));
}

#[test]
fn a_record_is_whole_at_its_own_key_alone() {
    let text = String::new;
    let store = Place { role: Role::Store, job: None, number: 0, ..place(Role::Store, 0) };
    holds(&StoreRecord { place: store, created_by: text() });
    let epoch = EpochRecord { place: place(Role::Epoch, 1), writer: Uid::from_bytes([1; 16]), host: text() };
    holds(&epoch);
    holds(&serde_json::from_value::<Intent>(intent()).unwrap());
    holds(&serde_json::from_value::<TaskManifest>(task()).unwrap());
    holds(&serde_json::from_value::<Outcome>(outcome()).unwrap());
    holds(&Outcome { place: place(Role::Outcome, 9), verdict: Verdict::Aborted { reason: text() } });
    holds(&HiddenRecord { place: place(Role::Hidden, 9), hidden_ms: 0 });
    holds(&ExpiredRecord { place: place(Role::Expired, 9), reason: text() });
    holds(&PinRecord { place: place(Role::Pin, 9), holder: PinHolder::Writer, pinned_ms: 0 });
    holds(&FloorRecord { place: place(Role::Floor, 9), survivors: Vec::new(), uids: Vec::new() });
    // The same kind at another number's key.
    let text = encode(&epoch).unwrap();
    let why = whole_at(&Key::epoch(&Name::encode("app"), Epoch(2)), &text).unwrap_err();
    assert!(why.starts_with("it says that it belongs at epoch/app/00000000000000000001.json"), "{why}");
}

#[test]
fn blobs_and_heads_may_be_anything() {
    let blob = BlobName { digest: Digest::of(b"x"), uid: Uid::from_bytes([1; 16]) };
    for key in [Key::blob(&blob), Key::head(&Name::encode("app"))] {
        assert_eq!(said(&key, "x"), Ok(()), "{key}");
    }
}

#[test]
fn a_header_is_no_longer_than_may_be() {
    let record = ExpiredRecord { place: place(Role::Expired, 9), reason: String::new() };
    let text = String::from_utf8(encode(&record).unwrap()).unwrap();
    let (key, header) =
        (Key::expired(&Name::encode("app"), CheckpointNumber::new(9).unwrap()), text.find('\n').unwrap());
    // The line feed counts.
    for (length, fits) in [(limits::HEADER_LEN - 1, true), (limits::HEADER_LEN, false)] {
        let padded = text.replacen('{', &format!("{{{}", " ".repeat(length - header)), 1);
        assert_eq!(said(&key, &padded).is_ok(), fits, "{length}");
    }
}
