//! Forms that no fixture has, by what is known of them.

use super::writing::{
    BASE, KRYO, RUNTIME, TTL, composite, constants, int, list, map, meta, plain, pojo, snapshot, state, ttl, tuple,
};
use super::*;
use crate::flink::FlinkError;
use crate::limits;

/// The value serializer of a state with this snapshot.
fn read(value: &[u8]) -> Serializer {
    let meta = read_meta(&meta(&plain("Long"), &[state("s", "VALUE", &plain("Void"), value)])).unwrap();
    assert!(meta.complete(), "{:?}", meta.stopped_at);
    meta.states[0].value().unwrap().clone()
}

fn decoded(value: &[u8], bytes: &[u8]) -> Json {
    decode(&read(value), bytes).map_or(json!("nothing"), |value| value.json())
}

#[test]
fn plain_values_are_read() {
    let forms = [
        ("Boolean", "01", json!(true)),
        ("Byte", "ff", json!(-1)),
        ("Short", "8000", json!(-32768)),
        ("Int", "ffffffff", json!(-1)),
        ("Long", "8000000000000000", json!(i64::MIN)),
        ("Float", "3dcccccd", json!(0.1)),
        ("Double", "3fb999999999999a", json!(0.1)),
        ("Char", "4e2d", json!("中")),
        ("String", "00", Json::Null),
        ("String", "01", json!("")),
        ("String", "03e901ad9c01", json!("é中")),
        ("String", "03bdb003c2bc03", json!("🙂")),
        ("Void", "00", Json::Null),
        ("BigInt", "00000000", Json::Null),
        ("BigInt", "00000003", json!("10")),
        ("BigInt", "00000006ff00", json!("-256")),
        ("BigDec", "0000000630390000000200", json!("nothing")),
        ("BigDec", "00000006303900000002", json!("123.45")),
        ("Date", "8000000000000000", Json::Null),
        ("Date", "00000000000003e8", json!(1000)),
        ("SqlTimestamp", "00000000000003e800000007", json!({"millis": 1000, "nanos": 7})),
        ("Instant", "000000000000000100000002", json!({"seconds": 1, "nanos": 2})),
        ("Instant", "800000000000000080000000", Json::Null),
        ("LocalDate", "000007e80a1f", json!("2024-10-31")),
        ("LocalDate", "000007e80d01", json!("nothing")),
        ("LocalTime", "173b3b00000001", json!("23:59:59.000000001")),
        ("LocalDateTime", "000007e80a1f17000000000000", json!("2024-10-31T23:00:00.000000000")),
        ("Boolean", "02", json!("nothing")),
        ("Long", "00", json!("nothing")),
        ("Int", "0000000000", json!("nothing")),
        ("String", "0461", json!("nothing")),
        ("String", "ffffffffff", json!("nothing")),
    ];
    for (name, bytes, value) in forms {
        assert_eq!(decoded(&plain(name), &unhex(bytes)), value, "{name} {bytes}");
    }
    let array =
        snapshot(&format!("{BASE}.array.IntPrimitiveArraySerializer$IntPrimitiveArraySerializerSnapshot"), 3, &[]);
    assert_eq!(decoded(&array, &unhex("0000000200000001ffffffff")), json!([1, -1]));
    assert_eq!(decoded(&array, &unhex("7fffffff00000001")), json!("nothing"));
    // Until Flink 1.8 the name of the class follows.
    let old = snapshot(&format!("{BASE}.LongSerializer$LongSerializerSnapshot"), 2, &writing::utf("any"));
    assert_eq!(read(&old), Serializer::Plain(Plain::Long));
}

#[test]
fn composites_are_read() {
    let (long, string) = (plain("Long"), plain("String"));
    let nested = map(&string, &list(&tuple(&[plain("Int"), string.clone()])));
    assert_eq!(read(&nested).name(), "Map<String, List<Tuple<Integer, String>>>");
    let bytes = unhex("00000002 0261 00 00000001 00000007 0262 0263 01".replace(' ', "").as_str());
    assert_eq!(decoded(&nested, &bytes), json!({"a": [[7, "b"]], "c": null}));
    let either = composite(&format!("{RUNTIME}.JavaEitherSerializerSnapshot"), 1, &[], &[long.clone(), string.clone()]);
    assert_eq!(decoded(&either, &unhex("010000000000000001")), json!({"left": 1}));
    assert_eq!(decoded(&either, &unhex("000261")), json!({"right": "a"}));
    let nullable = format!("{RUNTIME}.NullableSerializer$NullableSerializerSnapshot");
    let nullable = composite(&nullable, 2, &int(8), std::slice::from_ref(&long));
    assert_eq!(read(&nullable).name(), "Nullable<Long>");
    assert_eq!(decoded(&nullable, &unhex("010000000000000000")), Json::Null);
    assert_eq!(decoded(&nullable, &unhex("000000000000000005")), json!(5));
    let array = composite(
        &format!("{BASE}.GenericArraySerializerSnapshot"),
        1,
        &writing::utf("X"),
        std::slice::from_ref(&long),
    );
    assert_eq!(decoded(&array, &unhex("00000002000100000000000000ff")), json!([null, 255]));
    let row = |own| {
        composite(&format!("{RUNTIME}.RowSerializer$RowSerializerSnapshot"), own, &[], &[long.clone(), string.clone()])
    };
    assert_eq!(decoded(&row(2), &unhex("800261")), json!([null, "a"]));
    assert_eq!(decoded(&row(3), &unhex("a00261")), json!({"kind": "-U", "fields": [null, "a"]}));
    let aware = snapshot(&format!("{TTL}.TtlAwareSerializerSnapshot"), 1, &[&[1][..], &ttl(&string)].concat());
    assert_eq!(read(&aware).name(), "TTL<String>");
    assert_eq!(decoded(&aware, &unhex("00000000000000050261")), json!({"last_access": 5, "value": "a"}));
    let colour = constants("com.acme.Colour", &["RED", "BLUE"]);
    assert_eq!((decoded(&colour, &unhex("00000001")), read(&colour).name()), (json!("BLUE"), "Colour".to_owned()));
    assert_eq!(decoded(&colour, &unhex("00000002")), json!("nothing"));
}

#[test]
fn a_class_of_the_jobs_is_read_even_around_what_is_not_known() {
    let point = pojo("com.acme.Point", &[("x", plain("Long")), ("label", plain("String"))]);
    assert_eq!(read(&point).name(), "Point{x: Long, label: String}");
    assert_eq!(decoded(&point, &unhex("020000000000000000050000")), json!({"x": 5, "label": null}));
    assert_eq!(decoded(&point, &unhex("0200000000000000000501")), json!({"x": 5, "label": null}));
    assert_eq!(decoded(&point, &unhex("01")), Json::Null);
    assert_eq!(decoded(&point, &unhex("04")), json!("nothing"));
    let partly = pojo("com.acme.Point", &[("x", snapshot(KRYO, 2, &[9; 30])), ("n", plain("Long"))]);
    assert_eq!(read(&partly).name(), "Point{x: KryoSerializerSnapshot, n: Long}");
    assert_eq!(decoded(&partly, &unhex("0201000000000000000005")), json!({"x": null, "n": 5}));
    assert_eq!(decoded(&partly, &unhex("020000000000000000000005")), json!("nothing"));
}

#[test]
fn what_is_not_known_stops_the_reading() {
    let (void, long) = (plain("Void"), plain("Long"));
    let unknown = snapshot(KRYO, 2, &[1, 2, 3]);
    let states = [
        state("a", "VALUE", &void, &long),
        state("b", "LIST", &void, &list(&unknown)),
        state("c", "VALUE", &void, &long),
    ];
    let stopped = read_meta(&meta(&long, &states)).unwrap();
    assert!(!stopped.complete());
    assert_eq!((stopped.declared, stopped.states.len()), (Some(3), 2));
    assert_eq!(stopped.stopped_at, Some(format!("{KRYO}, version 2")));
    assert!(stopped.state("a").unwrap().value().is_some());
    let b = stopped.state("b").unwrap();
    assert!(b.value().is_none() && b.namespace().is_some());
    assert_eq!((decode_value(b, &[0]), decode_key(&stopped, b, 128, &[0; 10])), (None, None));
    let stopped = read_meta(&meta(&unknown, &states)).unwrap();
    assert_eq!((stopped.key, stopped.declared, stopped.states.len()), (None, None, 0));
    // A version that is not known is as a class that is not.
    for later in [
        composite(&format!("{BASE}.ListSerializerSnapshot"), 2, &[], std::slice::from_ref(&long)),
        composite(&format!("{RUNTIME}.TupleSerializerSnapshot"), 2, &writing::utf("Tuple0"), &[]),
        snapshot(&format!("{BASE}.LongSerializer$LongSerializerSnapshot"), 4, &[]),
        snapshot(&format!("{BASE}.ListSerializerSnapshot"), 4, &[]),
    ] {
        assert!(!read_meta(&meta(&later, &[])).unwrap().complete());
    }
}

#[test]
fn other_versions_and_broken_ones_are_refused() {
    let whole = meta(&plain("Long"), &[]);
    for version in [5u8, 7] {
        let mut bytes = whole.clone();
        bytes[3] = version;
        assert!(matches!(read_meta(&bytes), Err(FlinkError::Version { version: v, .. }) if v == i64::from(version)));
    }
    let mut bytes = whole.clone();
    bytes[8] = 1;
    assert!(matches!(read_meta(&bytes), Err(FlinkError::Version { version: 1, .. })));
    let mut deep = plain("Long");
    for _ in 1..limits::FLINK_TYPE_NESTING {
        deep = list(&deep);
    }
    assert!(read_meta(&meta(&deep, &[])).unwrap().complete());
    assert!(matches!(read_meta(&meta(&list(&deep), &[])), Err(FlinkError::Limit { .. })));
    let long_name = pojo("X", &[(&"n".repeat(limits::FLINK_FIELD_NAME + 1), plain("Long"))]);
    assert!(matches!(read_meta(&meta(&long_name, &[])), Err(FlinkError::Limit { .. })));
}

#[test]
fn lengths_stand_behind_parts_that_are_both_variable() {
    let string = plain("String");
    let window = snapshot(
        "org.apache.flink.streaming.api.windowing.windows.TimeWindow$Serializer$TimeWindowSerializerSnapshot",
        3,
        &[],
    );
    let states = [
        state("both", "MAP", &string, &map(&plain("Int"), &ttl(&plain("Long")))),
        state("window", "AGGREGATING", &window, &plain("Long")),
        state("list", "LIST", &plain("Void"), &list(&ttl(&string))),
    ];
    let meta = read_meta(&meta(&string, &states)).unwrap();
    let text = "x".repeat(300);
    let key = encode_key_prefix(&meta.key.as_ref().unwrap().serializer, &text, 200).unwrap();
    // 300 characters and their number in two bytes are 0x012e.
    let row = [&key[..], &[0x2E, 0x01], &[2, b'n'], &[2], &int(7)].concat();
    let both = meta.state("both").unwrap();
    let found = decode_key(&meta, both, 200, &row).unwrap();
    assert_eq!((found.key, found.namespace), (Value::Text(text), Value::Text("n".to_owned())));
    assert_eq!((found.user_key, found.timestamp), (Some(Value::Int(7)), None));
    let wrong = [&key[..], &[0x2F, 0x01], &[2, b'n'], &[2], &int(7)].concat();
    assert_eq!(decode_key(&meta, both, 200, &wrong), None);
    assert_eq!(
        decode_value(both, &unhex("0000000000000000050000000000000006")).unwrap().to_string(),
        "{last_access: 5, value: 6}"
    );
    assert_eq!(decode_value(both, &[1]), Some(Value::Null));
    // A window says that it has length 0.
    let row = unhex("05 0261 0000000000000001 0000000000000002".replace(' ', "").as_str());
    let found = decode_key(&meta, meta.state("window").unwrap(), 128, &row).unwrap();
    assert_eq!((found.key_group, found.namespace.json()), (5, json!({"start": 1, "end": 2})));
    assert_eq!(decode_key(&meta, meta.state("window").unwrap(), 5, &row), None);
    // The delimiter is a byte of a value too.
    let value = unhex("000000000000002c022c2c00000000000000012c".replace(' ', "").as_str());
    assert_eq!(decode_value(meta.state("list").unwrap(), &value), None);
    let value = unhex("000000000000002c022c2c000000000000000101".replace(' ', "").as_str());
    let list = decode_value(meta.state("list").unwrap(), &value).unwrap();
    assert_eq!(list.json(), json!([{"last_access": 44, "value": ","}, {"last_access": 1, "value": ""}]));
}
