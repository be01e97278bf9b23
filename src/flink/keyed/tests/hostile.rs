//! What a hostile hand might write: an error or a value, in bounds, for any bytes.

use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::writing::{constants, list, map, meta, plain, pojo, state, ttl, tuple};
use super::*;
use crate::limits;

/// Descriptions that Flink wrote, and one of what no fixture has.
static DESCRIPTIONS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let committed = fixtures::committed();
    let metas = committed["metas"].as_object().unwrap().values();
    let mut all: Vec<_> = metas.map(|meta| unhex(meta["hex"].as_str().unwrap())).collect();
    let point = pojo("com.acme.Point", &[("x", plain("Long")), ("names", list(&plain("String")))]);
    let colour = constants("com.acme.Colour", &["RED", "BLUE"]);
    let states = [
        state("a", "MAP", &plain("String"), &map(&colour, &ttl(&point))),
        state("b", "LIST", &plain("Void"), &list(&tuple(&[plain("BigDec"), plain("LocalDateTime")]))),
    ];
    all.push(meta(&plain("String"), &states));
    all
});

fn values(value: &Value) -> usize {
    1 + match value {
        Value::List(elements) => elements.iter().map(values).sum(),
        Value::Map(entries) => entries.iter().map(|(key, value)| values(key) + values(value)).sum(),
        Value::Record(parts) => parts.iter().map(|(_, value)| values(value)).sum(),
        _ => 0,
    }
}

/// Reads rows by every state of a description that could be read; there is never more than there are bytes.
fn read_rows(meta: &BackendMeta, bytes: &[u8]) {
    for state in &meta.states {
        for max in [0, 1, 128, 200, 32_768, u32::MAX] {
            if let Some(key) = decode_key(meta, state, max, bytes) {
                assert!(key.key_group < max);
                let _ = (key.key.json(), key.namespace.short(10));
            }
        }
        if let Some(value) = decode_value(state, bytes) {
            // A window, a timer or a time to live counts as one, and has at most three parts.
            assert!(values(&value) <= 4 * (bytes.len() + limits::FLINK_NULLS));
            assert!(value.short(20).chars().count() <= 21);
            let _ = value.json();
        }
    }
    if let Ok(rows) = KeyGroupRows::new(meta, bytes) {
        let rows: Vec<_> = rows.collect();
        assert!(rows.len() <= bytes.len() / 8 + 1);
        assert!(rows.iter().rev().skip(1).all(Result::is_ok));
    }
}

/// What a description says is no more than was in it.
fn check(bytes: &[u8]) {
    let Ok(meta) = read_meta(bytes) else { return };
    let names: usize = meta.states.iter().map(|state| state.name.len() + state.options.len()).sum();
    assert!(names <= 3 * bytes.len() && meta.states.len() <= bytes.len() && meta.length <= bytes.len());
    assert!(meta.states.len() <= meta.declared.unwrap_or(0));
    for state in &meta.states {
        let _ = state.value().map(Serializer::name);
    }
}

#[test]
fn every_prefix_is_refused_or_read() {
    for whole in &*DESCRIPTIONS {
        assert!(read_meta(whole).unwrap().complete());
        for end in 0..whole.len() {
            assert!(read_meta(&whole[..end]).is_err(), "{end}");
        }
    }
}

#[test]
fn every_window_may_be_any_extreme() {
    let extremes: [&[u8]; 4] = [&[0], &[0xFF; 2], &[0x7F, 0xFF, 0xFF, 0xFF], &[0x80; 4]];
    // The first two differ in names and order alone.
    for whole in &DESCRIPTIONS[1..] {
        for at in 0..whole.len() {
            for extreme in extremes.iter().filter(|extreme| at + extreme.len() <= whole.len()) {
                let mut bytes = whole.clone();
                bytes[at..at + extreme.len()].copy_from_slice(extreme);
                check(&bytes);
            }
        }
    }
}

#[test]
fn every_row_may_be_cut_or_have_any_extreme() {
    let committed = fixtures::committed();
    for handle in committed["handles"].as_array().unwrap() {
        let meta = &committed["metas"][handle["meta"].as_str().unwrap()]["hex"];
        let meta = read_meta(&unhex(meta.as_str().unwrap())).unwrap();
        let rows = handle["rows"].as_object().unwrap().values().map(|rows| &rows[0]);
        for row in rows.flat_map(|row| row.as_array().unwrap()).filter_map(Json::as_str).map(unhex) {
            for at in 0..row.len() {
                read_rows(&meta, &row[..at]);
                for extreme in [0, 0x2C, 0x7F, 0x80, 0xFF] {
                    let mut bytes = row.clone();
                    bytes[at] = extreme;
                    read_rows(&meta, &bytes);
                }
            }
        }
    }
}

#[test]
fn no_row_makes_much_of_little() {
    // Fields that are null take a bit each.
    let wide = vec![Serializer::Plain(Plain::Long); limits::FLINK_FIELDS];
    let row = Serializer::List(Box::new(Serializer::Row { fields: wide, with_kind: false }));
    let bytes = [&2i32.to_be_bytes()[..], &vec![0xFF; 2 * limits::FLINK_FIELDS / 8]].concat();
    assert_eq!(decode(&row, &bytes), None);
    let narrow = vec![Serializer::Plain(Plain::Long); 20];
    let row = Serializer::Row { fields: narrow, with_kind: true };
    assert!(decode(&row, &[0x3F, 0xFF, 0xFC]).is_some());
    // A number of elements is not believed.
    let list = Serializer::List(Box::new(Serializer::Plain(Plain::Byte)));
    assert_eq!(decode(&list, &[0x7F, 0xFF, 0xFF, 0xFF, 0]), None);
    assert_eq!(decode(&list, &[0xFF, 0xFF, 0xFF, 0xFF, 0]), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn changed_descriptions_are_read_or_refused(
        which in any::<Index>(), changes in vec((any::<Index>(), any::<u8>()), 1..6), cut in any::<Index>()
    ) {
        let mut bytes = DESCRIPTIONS[which.index(DESCRIPTIONS.len())].clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.drain(0..cut.index(2));
        check(&bytes);
    }

    #[test]
    fn arbitrary_rows_are_read_or_not(which in any::<Index>(), bytes in vec(prop_oneof![0u8..4, any::<u8>()], 0..200)) {
        let meta = read_meta(&DESCRIPTIONS[which.index(DESCRIPTIONS.len())]).unwrap();
        read_rows(&meta, &bytes);
        check(&bytes);
    }

    #[test]
    fn a_text_is_found_again(text in any::<String>(), number in any::<i64>(), max in 1u32..=32_768) {
        let string = Serializer::Plain(Plain::String);
        let row = encode_key_prefix(&string, &text, max).unwrap();
        let from = if max <= 128 { 1 } else { 2 };
        prop_assert_eq!(decode(&string, &row[from..]), Some(Value::Text(text)));
        let long = Serializer::Plain(Plain::Long);
        let row = encode_key_prefix(&long, &number.to_string(), max).unwrap();
        prop_assert_eq!(decode(&long, &row[from..]), Some(Value::Int(number)));
    }
}
