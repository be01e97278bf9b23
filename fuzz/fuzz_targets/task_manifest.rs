//! Metadata objects, by the first byte: task manifests and each other kind. With its highest bit the bytes are a body, and the header that
//! covers them is made here: else nearly every change would end at a digest.
#![no_main]

use ckptfs::format::clone::CloneMark;
use ckptfs::format::header::encode_requiring;
use ckptfs::format::records::{
    EpochRecord, ExpiredRecord, FloorRecord, HeadRecord, HiddenRecord, PinRecord, StoreRecord,
};
use ckptfs::format::{Intent, Outcome, Record, TaskBlobs, TaskManifest, decode};
use ckptfs::types::Digest;
use libfuzzer_sys::fuzz_target;

/// Records hold lists of numbers and texts.
const TIMES: usize = 16;
/// Descriptors of states are JSON of any form: an object of one field takes 7 bytes, and a node of a tree (632) and a place in a list (32,
/// with twice the room at most). How many there may be has a limit of its own.
const STATES_TIMES: usize = 104;

const BODY: u8 = 0x80;

fn object<R: Record + PartialEq + std::fmt::Debug>(bytes: &[u8], body: bool, times: usize) {
    let object = if body {
        let header = format!(
            r#"{{"ckptfs":"{}/{}","length":{},"blake3":"{}","requires":[],"requires_write":[],"encoding":"plain"}}"#,
            R::WHAT,
            R::VERSION,
            bytes.len(),
            Digest::of(bytes)
        );
        [header.as_bytes(), b"\n", bytes, b"\n"].concat()
    } else {
        bytes.to_vec()
    };
    match ckptfs_fuzz::within(times, object.len(), || decode::<R>(&object)) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(decoded) => {
            let again = encode_requiring(&decoded.record, &[], &[]).unwrap();
            assert_eq!(decode::<R>(&again).unwrap().record, decoded.record);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    let body = kind & BODY != 0;
    match (kind & !BODY) % 12 {
        0 => object::<TaskManifest>(bytes, body, STATES_TIMES),
        1 => object::<TaskBlobs>(bytes, body, TIMES),
        2 => object::<Intent>(bytes, body, TIMES),
        3 => object::<Outcome>(bytes, body, TIMES),
        4 => object::<StoreRecord>(bytes, body, TIMES),
        5 => object::<EpochRecord>(bytes, body, TIMES),
        6 => object::<HiddenRecord>(bytes, body, TIMES),
        7 => object::<ExpiredRecord>(bytes, body, TIMES),
        8 => object::<PinRecord>(bytes, body, TIMES),
        9 => object::<FloorRecord>(bytes, body, TIMES),
        10 => object::<HeadRecord>(bytes, body, TIMES),
        _ => {
            if let Ok(mark) = ckptfs_fuzz::within(TIMES, bytes.len(), || CloneMark::decode(bytes)) {
                assert_eq!(CloneMark::decode(&mark.encode()), Ok(mark));
            }
        }
    }
});
