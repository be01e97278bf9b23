//! Flink's keyed state: a description with its length in two bytes before it, a largest parallelism in one, and rows: a key with its length
//! in one byte before it and a value behind it, and all of that again as a key group of a savepoint.
#![no_main]

use ckptfs::flink::keyed::{
    BackendMeta, KeyGroupRows, Serializer, State, Value, decode_key, decode_value, encode_key_prefix, read_meta,
};
use libfuzzer_sys::fuzz_target;

/// A field without name and serializer takes 4 bytes. It is first a name of 16 bytes and where its serializer is (56, and a quarter of
/// room), then a name and an unknown serializer with a name of its own (16 and 56, in a list that may have twice the room).
const DESCRIPTION_TIMES: usize = 60;
/// A row with its kind, of one field, takes a byte, and may be the field of such a row: a record of two names (24 bytes each) with values
/// (48 each), the kind as text (2) and a list of one value (32): 178.
const ROW_TIMES: usize = 184;
/// Fields that are null take a bit, so that a row may hold this many values more than bytes.
const NULLS: usize = ckptfs::limits::FLINK_NULLS;

/// States of one description that rows are tried with.
const STATES: usize = 6;

const PARALLELISMS: [u32; 6] = [128, 200, 1, 32_768, 0, u32::MAX];

fn split(bytes: &[u8], at: usize) -> (&[u8], &[u8]) {
    bytes.split_at(at.min(bytes.len()))
}

fn show(value: &Value) {
    assert!(value.short(20).chars().count() <= 21);
    let _ = value.json();
}

fn row(meta: &BackendMeta, state: &State, max_parallelism: u32, key: &[u8], value: &[u8]) {
    let found = ckptfs_fuzz::within(ROW_TIMES, key.len() + NULLS, || decode_key(meta, state, max_parallelism, key));
    if let Some(found) = found {
        assert!(found.key_group < max_parallelism);
        [&found.key, &found.namespace].into_iter().chain(&found.user_key).for_each(show);
        // Text in quotes is not a key's text.
        if let (Some(serializer), Value::Text(text)) = (&meta.key, &found.key) {
            let _ = encode_key_prefix(&serializer.serializer, text, max_parallelism);
        }
    }
    let value = ckptfs_fuzz::within(ROW_TIMES, value.len() + NULLS, || decode_value(state, value));
    value.iter().for_each(show);
}

fuzz_target!(|data: &[u8]| {
    let Some((length, rest)) = data.split_first_chunk() else { return };
    let (description, rest) = split(rest, u16::from_be_bytes(*length).into());
    let meta = ckptfs_fuzz::within(DESCRIPTION_TIMES, description.len(), || read_meta(description));
    let Ok(meta) = meta else { return };
    assert!(meta.length <= description.len() && meta.states.len() <= meta.declared.unwrap_or(0));
    for state in &meta.states {
        let _ = (state.value().map(Serializer::name), state.namespace().map(Serializer::name));
    }
    let Some((choice, rows)) = rest.split_first() else { return };
    let max_parallelism = PARALLELISMS[usize::from(*choice) % PARALLELISMS.len()];
    if let Some((length, rest)) = rows.split_first() {
        let (key, value) = split(rest, usize::from(*length));
        for state in meta.states.iter().take(STATES) {
            row(&meta, state, max_parallelism, key, value);
        }
    }
    let Ok(mut group) = KeyGroupRows::new(&meta, rows) else { return };
    let mut ended = false;
    for found in group.by_ref() {
        assert!(!ended, "rows go on behind an error");
        match found {
            Err(_) => ended = true,
            Ok(found) => {
                if let Some(state) = meta.states.get(usize::from(found.state)) {
                    row(&meta, state, max_parallelism, &found.key, found.value);
                }
            }
        }
    }
    assert!(group.length() <= rows.len());
});
