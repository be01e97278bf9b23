//! What Flink wrote, what a hostile hand might, and the forms that no fixture has.

mod fixtures;
mod forms;
mod hostile;
mod writing;

use serde_json::{Value as Json, json};

use super::*;

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn number(value: &Json) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

/// The class of a serializer, by that of its snapshot: the class around it, or the name without its end.
fn serializer_class(snapshot: &str) -> String {
    let class = snapshot.strip_suffix("Snapshot").unwrap();
    match class.rsplit_once('$') {
        Some((outer, inner)) if outer.ends_with(inner) => outer.to_owned(),
        _ => class.to_owned(),
    }
}

/// The same as Flink's own classes said of it.
fn as_truth(meta: &BackendMeta) -> Json {
    let states = meta.states.iter().map(|state| {
        let serializers: serde_json::Map<String, Json> = (state.serializers.iter())
            .map(|(name, snapshot)| {
                let class = &snapshot.class;
                let serializer = serializer_class(class);
                (name.clone(), json!({"snapshot": class, "version": snapshot.version, "serializer": serializer}))
            })
            .collect();
        json!({
            "name": state.name,
            "backend_state_type": state.kind.name(),
            "options": state.options,
            "serializers": serializers,
        })
    });
    json!({
        "version": 6,
        "key_serializer": serializer_class(&meta.key.as_ref().unwrap().class),
        "key_group_compression": meta.compressed,
        "states": states.collect::<Vec<_>>(),
    })
}

fn check_meta(bytes: &[u8], truth: &Json) -> BackendMeta {
    let meta = read_meta(bytes).unwrap();
    assert!(meta.complete());
    assert_eq!(meta.declared, Some(meta.states.len()));
    let mut truth = truth.clone();
    if let Some(length) = truth.as_object_mut().unwrap().remove("bytes_read_to_end_of_meta") {
        assert_eq!(json!(meta.length), length);
    }
    assert_eq!(as_truth(&meta), truth);
    meta
}

/// A row against what the job wrote down of the same key; gives the key.
fn check_row(
    meta: &BackendMeta,
    state: &State,
    max: u32,
    row: (&[u8], Option<&[u8]>),
    expected_keys: &Json,
) -> (String, RowKey, Option<Value>) {
    let key = decode_key(meta, state, max, row.0).unwrap();
    let text = key.key.to_string();
    let of_key = &expected_keys[&text];
    assert_eq!(number(&of_key["kg"]), key.key_group, "{text}");
    assert_eq!(key.namespace, Value::Null);
    let value = row.1.map(|bytes| decode_value(state, bytes).unwrap());
    if let Some(timestamp) = key.timestamp {
        assert!(of_key["timers"].as_array().unwrap().contains(&json!(timestamp)), "{text}");
        return (text, key, value);
    }
    let prefix = encode_key_prefix(&meta.key.as_ref().unwrap().serializer, &text, max).unwrap();
    assert!(row.0.starts_with(&prefix), "{text}");
    let of_state = &of_key[&state.name];
    match (&*state.name, &value) {
        (_, None) => {}
        ("payload", Some(Value::Bytes(bytes))) => assert_eq!(of_key["payload_len"], json!(bytes.len())),
        ("per-tag", Some(value)) => {
            assert_eq!(of_state[key.user_key.as_ref().unwrap().to_string()], value.json(), "{text}");
        }
        ("seen-ttl", Some(value)) => {
            assert_eq!(of_state, &value.json()["value"], "{text}");
            // Between 2020 and 2100, in milliseconds.
            assert!((1_577_836_800_000..4_102_444_800_000).contains(&value.json()["last_access"].as_i64().unwrap()));
        }
        (_, Some(value)) => assert_eq!(of_state, &value.json(), "{} {text}", state.name),
    }
    (text, key, value)
}
