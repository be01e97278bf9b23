//! Writes descriptions as Flink does, for forms that no fixture has.

use crate::flink::wire::encode_utf;

pub(super) const BASE: &str = "org.apache.flink.api.common.typeutils.base";
pub(super) const RUNTIME: &str = "org.apache.flink.api.java.typeutils.runtime";
pub(super) const TTL: &str = "org.apache.flink.runtime.state.ttl";
pub(super) const KRYO: &str = "org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializerSnapshot";

pub(super) fn utf(text: &str) -> Vec<u8> {
    encode_utf(text).unwrap()
}

pub(super) fn int(value: usize) -> [u8; 4] {
    i32::try_from(value).unwrap().to_be_bytes()
}

/// A snapshot of this class and version, with what it writes.
pub(super) fn snapshot(class: &str, version: usize, body: &[u8]) -> Vec<u8> {
    [&utf(class)[..], &int(version), body].concat()
}

/// One of Flink's basic types, such as `Long`.
pub(super) fn plain(name: &str) -> Vec<u8> {
    snapshot(&format!("{BASE}.{name}Serializer${name}SerializerSnapshot"), 3, &[])
}

/// A composite of this class, whose own part has a version and a form.
pub(super) fn composite(class: &str, own: usize, body: &[u8], parts: &[Vec<u8>]) -> Vec<u8> {
    let parts = [&int(1_333_245)[..], &int(1), &int(parts.len()), &parts.concat()].concat();
    snapshot(class, 3, &[&int(911_108)[..], &int(own), body, &parts].concat())
}

pub(super) fn list(element: &[u8]) -> Vec<u8> {
    composite(&format!("{BASE}.ListSerializerSnapshot"), 1, &[], &[element.to_vec()])
}

pub(super) fn map(key: &[u8], value: &[u8]) -> Vec<u8> {
    composite(&format!("{BASE}.MapSerializerSnapshot"), 1, &[], &[key.to_vec(), value.to_vec()])
}

pub(super) fn ttl(value: &[u8]) -> Vec<u8> {
    composite(&format!("{TTL}.TtlStateFactory$TtlSerializerSnapshot"), 2, &[], &[plain("Long"), value.to_vec()])
}

pub(super) fn tuple(fields: &[Vec<u8>]) -> Vec<u8> {
    let body = utf("org.apache.flink.api.java.tuple.Tuple2");
    composite(&format!("{RUNTIME}.TupleSerializerSnapshot"), 2, &body, fields)
}

/// Names with values that have their lengths; the keys are not there.
pub(super) fn framed(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entry = |(name, value): &(&str, Vec<u8>)| [&utf(name)[..], &[0, 1], &int(value.len()), value].concat();
    [
        &0x04f2_c69a_3d70_i64.to_be_bytes()[..],
        &int(entries.len()),
        &entries.iter().map(entry).collect::<Vec<_>>().concat(),
    ]
    .concat()
}

pub(super) fn pojo(class: &str, fields: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let subclass = framed(&[("com.acme.Sub", snapshot(KRYO, 2, &[1, 2, 3]))]);
    let body = [utf(class), framed(fields), framed(&[]), subclass].concat();
    snapshot(&format!("{RUNTIME}.PojoSerializerSnapshot"), 2, &body)
}

pub(super) fn constants(class: &str, names: &[&str]) -> Vec<u8> {
    let names = [&int(names.len())[..], &names.iter().map(|name| utf(name)).collect::<Vec<_>>().concat()].concat();
    snapshot(&format!("{BASE}.EnumSerializer$EnumSerializerSnapshot"), 3, &[utf(class), names].concat())
}

/// A keyed state: its name, `KEYED_STATE_TYPE`, namespace and value serializer.
pub(super) fn state(name: &str, keyed_type: &str, namespace: &[u8], value: &[u8]) -> Vec<u8> {
    let options = [&int(1)[..], &utf("KEYED_STATE_TYPE"), &utf(keyed_type)].concat();
    let serializer = |name: &str, snapshot: &[u8]| [&utf(name)[..], &int(2), snapshot].concat();
    let serializers = [serializer("NAMESPACE_SERIALIZER", namespace), serializer("VALUE_SERIALIZER", value)].concat();
    [&utf(name)[..], &int(0), &options, &int(2), &serializers].concat()
}

/// The description of a backend.
pub(super) fn meta(key: &[u8], states: &[Vec<u8>]) -> Vec<u8> {
    let count = u16::try_from(states.len()).unwrap().to_be_bytes();
    [&int(6)[..], &[0], &int(2), key, &count, &states.concat()].concat()
}
