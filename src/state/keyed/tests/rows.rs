//! The bytes of rows, against known answers and against themselves.

use proptest::prelude::*;

use super::super::encoding::{EncodedKey, after_prefix, read_row, read_timer};
use super::*;
use crate::state::serializer::{
    Serializer, StringSerializer, TimeWindow, TimeWindowSerializer, VoidNamespace, to_bytes,
};

fn row<K: Serializer, N: Serializer>(
    group: u32,
    max: u32,
    keys: &K,
    key: &K::Item,
    ns: &N,
    namespace: &N::Item,
) -> String {
    hex(&EncodedKey::new(group, max, keys, key).unwrap().row(ns, namespace).unwrap())
}

#[test]
fn row6_rows_are_flinks() {
    // From databases of Flink: a key 84 in group 64 of 128, and of 200.
    assert_eq!(row(64, 128, &LongSerializer, &84, &VoidNamespace, &()), "40000000000000005400");
    assert_eq!(row(100, 200, &LongSerializer, &84, &VoidNamespace, &()), "0064000000000000005400");
    assert_eq!(row(0, 128, &StringSerializer, &"blob-0-0".to_owned(), &VoidNamespace, &()), "0009626c6f622d302d3000");
    // A namespace of fixed length stands alone after a key of any.
    let window = TimeWindow { start: 1, end: 2 };
    let expected = format!("05{}{}{}", "0261", "0000000000000001", "0000000000000002");
    assert_eq!(row(5, 128, &StringSerializer, &"a".to_owned(), &TimeWindowSerializer, &window), expected);
}

#[test]
fn row6_lengths_follow_keys_and_namespaces_that_have_no_fixed_one() {
    let strings =
        |key: &str, ns: &str| row(5, 128, &StringSerializer, &key.to_owned(), &StringSerializer, &ns.to_owned());
    assert_eq!(strings("a", "bc"), "050261020362630 3".replace(' ', ""));
    assert_eq!(strings("a", ""), "0502610201 01".replace(' ', ""));
    // 258 bytes: the length of the key is 0x0102, low byte first.
    let long = "x".repeat(256);
    assert_eq!(strings(&long, ""), format!("058102{}02010101", "78".repeat(256)));
    // Of one variable and one fixed, neither has its length.
    assert_eq!(row(5, 128, &LongSerializer, &1, &StringSerializer, &"a".to_owned()), "0500000000000000010261");
}

#[test]
fn row6_key_groups_take_two_bytes_above_128() {
    assert_eq!((group_length(128), group_length(129)), (1, 2));
    assert_eq!(group_prefix(127, 128), [127]);
    assert_eq!(group_prefix(258, 32_768), [1, 2]);
    // The end of the last range.
    assert_eq!(group_prefix(128, 128), [128]);
    assert_eq!(group_prefix(32_768, 32_768), [128, 0]);
}

#[test]
fn row6_timers_are_flinks() {
    let key = EncodedKey::new(0, 128, &LongSerializer, &3_000_013).unwrap();
    let timer = key.timer(0x1a2_29b2_6d65, &VoidNamespace, &()).unwrap();
    assert_eq!(hex(&timer), "00800001a229b26d6500000000002dc6cd00");
    let before = key.timer(-1, &VoidNamespace, &()).unwrap();
    let first = key.timer(i64::MIN, &VoidNamespace, &()).unwrap();
    assert!(first < before && before < timer, "in the order of time");
}

#[test]
fn row6_rows_that_are_none_are_damage() {
    let strings = |row: &str| read_row(&unhex(row), 128, &StringSerializer, &StringSerializer).map(drop);
    strings("0502610203626303").unwrap();
    for bad in ["", "05", "0502", "050261", "0502610303626303", "0502610203626304", "05026102036263"] {
        assert_eq!(strings(bad).unwrap_err().kind(), crate::error::Kind::Damage, "{bad}");
    }
    let timer = |row: &str| read_timer(&unhex(row), 128, &LongSerializer, &VoidNamespace).map(drop);
    timer("00800001a229b26d6500000000002dc6cd00").unwrap();
    for bad in ["", "0080", "00800001a229b26d6500000000002dc6cd", "00800001a229b26d6500000000002dc6cd0000"] {
        assert_eq!(timer(bad).unwrap_err().kind(), crate::error::Kind::Damage, "{bad}");
    }
}

#[test]
fn prefixes_end_where_the_next_begins() {
    assert_eq!(after_prefix(&[1, 2]), Some(vec![1, 3]));
    assert_eq!(after_prefix(&[1, 0xff, 0xff]), Some(vec![2]));
    assert_eq!(after_prefix(&[0xff]), None);
    assert_eq!(after_prefix(&[]), None);
}

proptest! {
    #[test]
    fn row6_rows_are_read_back(
        group in 0u32..32_768, wide: bool, key in ".{0,300}", ns in ".{0,5}", rest in any::<Vec<u8>>(), time: i64, n: i64,
    ) {
        let max = if wide { 32_768 } else { 128 };
        let encoded = EncodedKey::new(group % max, max, &StringSerializer, &key).unwrap();
        let mut bytes = encoded.row(&StringSerializer, &ns).unwrap();
        bytes.extend_from_slice(&rest);
        let read = read_row(&bytes, max, &StringSerializer, &StringSerializer).unwrap();
        prop_assert_eq!(read, (key.clone(), ns.clone(), rest.as_slice()));
        let timer = encoded.timer(time, &StringSerializer, &ns).unwrap();
        prop_assert_eq!(read_timer(&timer, max, &StringSerializer, &StringSerializer).unwrap(), (time, key, ns));
        let row = EncodedKey::new(group % max, max, &LongSerializer, &n).unwrap().row(&VoidNamespace, &()).unwrap();
        prop_assert_eq!(read_row(&row, max, &LongSerializer, &VoidNamespace).unwrap(), (n, (), &[][..]));
    }

    #[test]
    fn row6_other_pairs_have_other_rows(a in "[ab]{0,3}", b in "[ab]{0,3}", c in "[ab]{0,3}", d in "[ab]{0,3}") {
        let row = |key: &String, ns: &String| {
            EncodedKey::new(0, 128, &StringSerializer, key).unwrap().row(&StringSerializer, ns).unwrap()
        };
        prop_assert_eq!(row(&a, &b) == row(&c, &d), (&a, &b) == (&c, &d));
        prop_assert!(to_bytes(&StringSerializer, &a).is_ok());
    }
}
