//! Rows of keyed state in RocksDB, and in a savepoint, where they are the same. A key is the key group, the key, the namespace and, of
//! a map, the key in the map; of a timer, the key group, its time, the key and the namespace.

use super::decode::{Decoder, decode};
use super::meta::{BackendMeta, State, StateKind};
use super::serializer::Serializer;
use super::value::Value;
use crate::limits;

/// Between the elements of a list, which have no lengths.
const DELIMITER: u8 = b',';

/// What the key of a row says.
#[derive(Debug, Clone, PartialEq)]
pub struct RowKey {
    /// The key group.
    pub key_group: u32,
    /// The job's key.
    pub key: Value,
    /// The namespace, such as a window.
    pub namespace: Value,
    /// The key in the map, of a map.
    pub user_key: Option<Value>,
    /// When it is due, of a timer, in milliseconds.
    pub timestamp: Option<i64>,
}

/// How a state lies in rows.
enum Shape<'a> {
    Value(&'a Serializer),
    List(&'a Serializer),
    Map(&'a Serializer, &'a Serializer),
    Timer(&'a Serializer, &'a Serializer),
}

/// `None` when it is not known how the state lies in rows.
fn shape(state: &State) -> Option<Shape<'_>> {
    match (state.kind, state.keyed_type(), state.value()?) {
        (StateKind::KeyValue, Some("VALUE" | "REDUCING" | "AGGREGATING" | "FOLDING"), value) => {
            Some(Shape::Value(value))
        }
        (StateKind::KeyValue, Some("LIST"), Serializer::List(element)) => Some(Shape::List(element)),
        (StateKind::KeyValue, Some("MAP"), Serializer::Map(key, value)) => Some(Shape::Map(key, value)),
        (StateKind::PriorityQueue, _, Serializer::Timer { key, namespace }) => Some(Shape::Timer(key, namespace)),
        _ => None,
    }
}

/// Bytes of the key group in front of a key; `None` for what is no largest parallelism.
pub(super) fn key_group_len(max_parallelism: u32) -> Option<usize> {
    match max_parallelism {
        1..=128 => Some(1),
        129..=limits::PARALLELISM => Some(2),
        _ => None,
    }
}

/// Reads a row's key; `None` when it is not one of this state, or a serializer of it is not known.
#[must_use]
pub fn decode_key(meta: &BackendMeta, state: &State, max_parallelism: u32, bytes: &[u8]) -> Option<RowKey> {
    let mut input = Decoder::new(bytes);
    let key_group = match key_group_len(max_parallelism)? {
        1 => input.byte()?.into(),
        _ => u32::from(input.input.u16().ok()?),
    };
    if key_group >= max_parallelism {
        return None;
    }
    let (mut user_key, mut timestamp) = (None, None);
    let (key, namespace) = match shape(state)? {
        Shape::Timer(key, namespace) => {
            timestamp = Some(input.timestamp()?);
            (input.value(key)?, input.value(namespace)?)
        }
        shape => {
            let (key, namespace) = (&meta.key.as_ref()?.serializer, state.namespace()?);
            // Where both are of variable length, each is followed by its length, since one could be taken for a part of the other.
            let lengths = key.fixed().is_none() && namespace.fixed().is_none();
            let parts = (with_length(&mut input, key, lengths)?, with_length(&mut input, namespace, lengths)?);
            if let Shape::Map(of_map, _) = shape {
                user_key = Some(input.value(of_map)?);
            }
            parts
        }
    };
    input.is_empty().then_some(RowKey { key_group, key, namespace, user_key, timestamp })
}

/// A value, and its length behind it, the lowest eight bits first, without zeros that say nothing.
fn with_length(input: &mut Decoder<'_>, serializer: &Serializer, lengths: bool) -> Option<Value> {
    let start = input.input.at();
    let value = input.value(serializer)?;
    if lengths {
        let mut length = input.input.at() - start;
        loop {
            if usize::from(input.byte()?) != length & 0xFF {
                return None;
            }
            length >>= 8;
            if length == 0 {
                break;
            }
        }
    }
    Some(value)
}

/// Reads a row's value; `None` when it is not one of this state, or its serializer is not known.
#[must_use]
pub fn decode_value(state: &State, bytes: &[u8]) -> Option<Value> {
    match shape(state)? {
        Shape::Value(value) => decode(value, bytes),
        Shape::List(element) => list(element, bytes),
        Shape::Map(_, value) => {
            let mut input = Decoder::new(bytes);
            let value = input.present(value, false)?;
            input.is_empty().then_some(value)
        }
        Shape::Timer(..) => bytes.is_empty().then_some(Value::Null),
    }
}

fn list(element: &Serializer, bytes: &[u8]) -> Option<Value> {
    let mut input = Decoder::new(bytes);
    let mut elements = Vec::new();
    loop {
        elements.push(input.value(element)?);
        if input.is_empty() {
            return Some(Value::List(elements));
        }
        if input.byte()? != DELIMITER {
            return None;
        }
    }
}
