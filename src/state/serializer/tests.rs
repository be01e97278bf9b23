//! Flink's bytes and Java's hash codes, and what is refused.

use std::fmt::Debug;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;
use crate::error::Kind;

/// Writes an item to these bytes, in hex, and reads it back, also with something after it.
#[allow(clippy::needless_pass_by_value)] // Literals read better without a reference.
fn round<S: Serializer<Item: PartialEq + Debug>>(serializer: &S, item: S::Item, hex: &str) {
    let bytes = to_bytes(serializer, &item).unwrap();
    assert_eq!(bytes.iter().map(|b| format!("{b:02x}")).collect::<String>(), hex);
    assert_eq!(from_bytes(serializer, &bytes).unwrap(), item);
    if let Some(length) = serializer.fixed_length() {
        assert_eq!(bytes.len(), length);
    }
    let longer = [bytes.as_slice(), b",more"].concat();
    let mut rest = longer.as_slice();
    assert_eq!(serializer.read(&mut rest).unwrap(), item);
    assert_eq!(rest, b",more");
    assert_eq!(from_bytes(serializer, &longer).unwrap_err().kind(), Kind::Damage);
    for cut in 0..bytes.len() {
        assert_eq!(from_bytes(serializer, &bytes[..cut]).unwrap_err().kind(), Kind::Damage, "{cut}");
    }
}

#[test]
fn row6_numbers_and_byte_arrays_are_flinks() {
    round(&LongSerializer, 84, "0000000000000054");
    round(&LongSerializer, -2, "fffffffffffffffe");
    round(&IntSerializer, i32::MIN, "80000000");
    round(&BytesSerializer, vec![1, 2, 3], "00000003010203");
    round(&BytesSerializer, vec![], "00000000");
    round(&VoidNamespace, (), "00");
    round(&TimeWindowSerializer, TimeWindow { start: 1, end: 256 }, "00000000000000010000000000000100");
    assert_eq!(from_bytes(&VoidNamespace, &[1]).unwrap_err().kind(), Kind::Damage);
    assert_eq!(from_bytes(&BytesSerializer, &[0xff; 5]).unwrap_err().kind(), Kind::Damage);
}

#[test]
fn row6_strings_are_flinks() {
    // From checkpoints of Flink: `k0`, and values of one and of several bytes a character.
    round(&StringSerializer, "k0".to_owned(), "036b30");
    round(&StringSerializer, "p1@389".to_owned(), "07703140333839");
    round(&StringSerializer, String::new(), "01");
    // é and 中: 8 and 15 bits, in sevens.
    round(&StringSerializer, "é中".to_owned(), "03e901ad9c01");
    // Outside of the basic plane: two units.
    round(&StringSerializer, "😀".to_owned(), "03bdb00380bc03");
    let long = "x".repeat(127);
    round(&StringSerializer, long.clone(), &format!("8001{}", "78".repeat(127)));
    for (bytes, words) in [
        (&[0x00][..], "it is null"),
        (&[0x03, 0xbd, 0xb0, 0x03, 0x61], "half a surrogate pair"),
        (&[0x02, 0x80, 0x80, 0x04], "no UTF-16 unit"),
        (&[0xff; 6], "more than 5 bytes"),
        (&[0xff, 0xff, 0xff, 0xff, 0x7f], "more than 32 bits"),
        (&[0xff, 0xff, 0xff, 0xff, 0x0f], "0 are left"),
    ] {
        let error = from_bytes(&StringSerializer, bytes).unwrap_err();
        assert_eq!(error.kind(), Kind::Damage);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn row6_tuples_are_their_fields() {
    round(&Tuple2(IntSerializer, LongSerializer), (1, 2), "000000010000000000000002");
    round(&Tuple3(IntSerializer, StringSerializer, IntSerializer), (1, "a".to_owned(), 2), "00000001026100000002");
    assert_eq!(Tuple2(IntSerializer, LongSerializer).fixed_length(), Some(12));
    assert_eq!(Tuple3(IntSerializer, IntSerializer, LongSerializer).fixed_length(), Some(16));
    assert_eq!(Tuple2(IntSerializer, StringSerializer).fixed_length(), None);
}

#[test]
fn row6_hash_codes_are_javas() {
    assert_eq!(LongSerializer.hash(&84), 84);
    assert_eq!(LongSerializer.hash(&-1), 0);
    assert_eq!(LongSerializer.hash(&((5 << 32) | 3)), 6);
    assert_eq!(LongSerializer.hash(&i64::MIN), i32::MIN);
    assert_eq!(IntSerializer.hash(&-7), -7);
    // "hello".hashCode(), "é中".hashCode() = 233 * 31 + 20013, and one that overflows.
    assert_eq!(StringSerializer.hash(&"hello".to_owned()), 99_162_322);
    assert_eq!(StringSerializer.hash(&"é中".to_owned()), 27_236);
    assert_eq!(StringSerializer.hash(&"polygenelubricants".to_owned()), i32::MIN);
    assert_eq!(StringSerializer.hash(&String::new()), 0);
    // Arrays.hashCode(new byte[] {1, -1}) = (31 + 1) * 31 - 1.
    assert_eq!(BytesSerializer.hash(&vec![1, 0xff]), 991);
    assert_eq!(BytesSerializer.hash(&vec![]), 1);
    // Tuple2.of(1, 2) and Tuple3.of(1, 2, 3).
    assert_eq!(Tuple2(IntSerializer, IntSerializer).hash(&(1, 2)), 33);
    assert_eq!(Tuple3(IntSerializer, IntSerializer, IntSerializer).hash(&(1, 2, 3)), 33 * 31 + 3);
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Visit {
    user: String,
    pages: Vec<u32>,
    last: Option<i64>,
}

#[test]
fn row6_every_other_type_goes_through_serde() {
    let visit = Visit { user: "a".to_owned(), pages: vec![1, 300], last: Some(-1) };
    let serializer = SerdeSerializer::<Visit>::new("visit", 1);
    // Frozen: what is stored today must be read for ever.
    round(&serializer, visit.clone(), "01610201ac020101");
    let error = from_bytes(&serializer, &[1]).unwrap_err().to_string();
    assert!(error.starts_with("cannot read a visit: "), "{error}");
    assert_eq!(serializer.hash(&visit), BytesSerializer.hash(&to_bytes(&serializer, &visit).unwrap()));
}

#[test]
fn row6_serializers_of_other_bytes_are_refused_in_words() {
    let refused = |old: SerializerDescriptor, new: SerializerDescriptor| match compatible(&old, &new) {
        Compatibility::Refused(words) => words,
        Compatibility::AsIs => panic!("{old} {new}"),
    };
    let serde = |name, version| SerdeSerializer::<Visit>::new(name, version).descriptor();
    assert_eq!(compatible(&serde("visit", 2), &serde("visit", 2)), Compatibility::AsIs);
    assert_eq!(refused(LongSerializer.descriptor(), IntSerializer.descriptor()), "long is another type than int");
    assert_eq!(refused(serde("visit", 1), serde("visit", 2)), "visit version 1 has another schema than version 2");
    assert_eq!(refused(serde("visit", 1), serde("view", 1)), "visit version 1 is another type than view version 1");
    let two = Tuple2(LongSerializer, StringSerializer).descriptor();
    let three = Tuple3(LongSerializer, StringSerializer, IntSerializer).descriptor();
    assert_eq!(refused(two.clone(), three), "tuple(long, string) has 2 fields, tuple(long, string, int) has 3");
    let other = Tuple2(LongSerializer, BytesSerializer).descriptor();
    assert_eq!(refused(two.clone(), other.clone()), "field 1: string is another type than bytes");
    assert_eq!(
        compatible_keys(&two, &other),
        Compatibility::Refused("keys cannot change their type: field 1: string is another type than bytes".to_owned())
    );
    assert_eq!(compatible_keys(&two, &two), Compatibility::AsIs);

    let text = serde_json::to_string(&two).unwrap();
    assert_eq!(serde_json::from_str::<SerializerDescriptor>(&text).unwrap(), two);
    assert_eq!(serde_json::to_string(&LongSerializer.descriptor()).unwrap(), r#"{"format":"long","version":1}"#);
    // A later field of the descriptor is no reason to refuse; a missing version is the first.
    let old: SerializerDescriptor = serde_json::from_str(r#"{"format":"long","later":1}"#).unwrap();
    assert_eq!(old, LongSerializer.descriptor());
}

proptest! {
    #[test]
    fn row6_whatever_is_written_is_read(s in any::<String>(), b in any::<Vec<u8>>(), n in any::<i64>()) {
        let tuple = Tuple3(StringSerializer, BytesSerializer, LongSerializer);
        let item = (s, b, n);
        let bytes = to_bytes(&tuple, &item).unwrap();
        prop_assert_eq!(from_bytes(&tuple, &bytes).unwrap(), item);
    }

    #[test]
    fn row6_no_bytes_make_a_serializer_panic(bytes in any::<Vec<u8>>()) {
        let _ = from_bytes(&StringSerializer, &bytes);
        let _ = from_bytes(&BytesSerializer, &bytes);
        let _ = from_bytes(&SerdeSerializer::<Visit>::new("visit", 1), &bytes);
        let _ = from_bytes(&Tuple2(TimeWindowSerializer, StringSerializer), &bytes);
    }
}
