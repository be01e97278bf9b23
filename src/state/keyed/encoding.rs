//! How a row's key is built: Flink's composite key, byte for byte.
//!
//! key group, most significant byte first, in 1 byte while the largest parallelism is at most 128, else in 2 · key · namespace · (of a
//! map) the map's own key. Where neither keys nor namespaces have a fixed length, each is followed by its length, since otherwise two
//! pairs could give the same bytes. Timers are ordered by time within their key group: key group · timestamp · key · namespace.

use crate::state::error::StateError;
use crate::state::serializer::Serializer;

/// Largest parallelism whose key groups fit one byte of a row's key, as Flink has it.
const ONE_BYTE: u32 = 128;

/// Bytes that a key group takes.
#[must_use]
pub fn group_length(max_parallelism: u32) -> usize {
    if max_parallelism <= ONE_BYTE { 1 } else { 2 }
}

/// What the rows of a key group begin with. For a range, its rows lie from the prefix of its first group to before the prefix of the
/// one after its last: that is also right for a group that nobody has, `max_parallelism` itself.
#[must_use]
pub fn group_prefix(group: u32, max_parallelism: u32) -> Vec<u8> {
    let bytes = group.to_be_bytes();
    bytes.get(bytes.len() - group_length(max_parallelism)..).unwrap_or_default().to_vec()
}

/// Appends a length as Flink does: low byte first, 8 bits a byte, as many as it takes, at least one.
fn push_length(mut length: usize, bytes: &mut Vec<u8>) {
    loop {
        let [low, ..] = length.to_le_bytes();
        bytes.push(low);
        length >>= 8;
        if length == 0 {
            return;
        }
    }
}

/// Takes a length that must be this one.
fn skip_length(length: usize, bytes: &mut &[u8]) -> Result<(), StateError> {
    let mut expected = Vec::new();
    push_length(length, &mut expected);
    match bytes.strip_prefix(expected.as_slice()) {
        Some(rest) => {
            *bytes = rest;
            Ok(())
        }
        None => Err(StateError::decode("row's key", format!("the length {length} should follow"))),
    }
}

/// Whether two pairs of key and namespace could give the same bytes.
fn ambiguous<K: Serializer, N: Serializer>(key: &K, namespace: &N) -> bool {
    key.fixed_length().is_none() && namespace.fixed_length().is_none()
}

/// A key with its group, ready to be put in front of namespaces.
#[derive(Debug, Clone)]
pub(super) struct EncodedKey {
    pub(super) group: u32,
    /// The group's prefix, and the key.
    bytes: Vec<u8>,
    /// Where the key begins.
    start: usize,
    /// Whether keys have no fixed length.
    variable: bool,
}

impl EncodedKey {
    pub(super) fn new<K: Serializer>(
        group: u32,
        max_parallelism: u32,
        serializer: &K,
        key: &K::Item,
    ) -> Result<Self, StateError> {
        let mut bytes = group_prefix(group, max_parallelism);
        let start = bytes.len();
        serializer.write(key, &mut bytes)?;
        Ok(Self { group, bytes, start, variable: serializer.fixed_length().is_none() })
    }

    fn key(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// The row of the key in a namespace. Of a map, what its rows begin with.
    pub(super) fn row<N: Serializer>(&self, serializer: &N, namespace: &N::Item) -> Result<Vec<u8>, StateError> {
        let mut row = self.bytes.clone();
        let lengths = self.variable && serializer.fixed_length().is_none();
        if lengths {
            push_length(self.key().len(), &mut row);
        }
        let before = row.len();
        serializer.write(namespace, &mut row)?;
        if lengths {
            push_length(row.len() - before, &mut row);
        }
        Ok(row)
    }

    /// The row of a timer of the key.
    pub(super) fn timer<N: Serializer>(
        &self,
        timestamp: i64,
        serializer: &N,
        namespace: &N::Item,
    ) -> Result<Vec<u8>, StateError> {
        let mut row = self.bytes.get(..self.start).unwrap_or_default().to_vec();
        row.extend_from_slice(&order_of(timestamp));
        row.extend_from_slice(self.key());
        serializer.write(namespace, &mut row)?;
        Ok(row)
    }
}

/// A timestamp as bytes that are in its order: with the sign turned over.
pub(super) fn order_of(timestamp: i64) -> [u8; 8] {
    (timestamp ^ i64::MIN).to_be_bytes()
}

/// What a row is of: key, namespace, and of a map what its own key is in bytes.
pub(super) type Row<'a, K, N> = (<K as Serializer>::Item, <N as Serializer>::Item, &'a [u8]);

/// The key and the namespace of a row; what is left of it is a map's own key.
pub(super) fn read_row<'a, K: Serializer, N: Serializer>(
    mut row: &'a [u8],
    max_parallelism: u32,
    keys: &K,
    namespaces: &N,
) -> Result<Row<'a, K, N>, StateError> {
    let row = &mut row;
    skip_group(row, max_parallelism)?;
    let before = row.len();
    let key = keys.read(row)?;
    let lengths = ambiguous(keys, namespaces);
    if lengths {
        skip_length(before - row.len(), row)?;
    }
    let before = row.len();
    let namespace = namespaces.read(row)?;
    if lengths {
        skip_length(before - row.len(), row)?;
    }
    Ok((key, namespace, row))
}

/// The timestamp, the key and the namespace of a timer's row.
pub(super) fn read_timer<K: Serializer, N: Serializer>(
    mut row: &[u8],
    max_parallelism: u32,
    keys: &K,
    namespaces: &N,
) -> Result<(i64, K::Item, N::Item), StateError> {
    let row = &mut row;
    skip_group(row, max_parallelism)?;
    let timestamp = take_timestamp(row)?;
    let timer = (timestamp, keys.read(row)?, namespaces.read(row)?);
    match row.len() {
        0 => Ok(timer),
        left => Err(StateError::decode("timer's row", format!("{left} bytes are left after it"))),
    }
}

/// The timestamp of a timer's row.
pub(super) fn timestamp_of(mut row: &[u8], max_parallelism: u32) -> Result<i64, StateError> {
    skip_group(&mut row, max_parallelism)?;
    take_timestamp(&mut row)
}

fn skip_group(row: &mut &[u8], max_parallelism: u32) -> Result<(), StateError> {
    match row.split_at_checked(group_length(max_parallelism)) {
        Some((_, rest)) => {
            *row = rest;
            Ok(())
        }
        None => Err(StateError::decode("row's key", "it is shorter than a key group")),
    }
}

fn take_timestamp(row: &mut &[u8]) -> Result<i64, StateError> {
    let Some((timestamp, rest)) = row.split_first_chunk::<8>() else {
        return Err(StateError::decode("timer's row", "it is shorter than a timestamp"));
    };
    *row = rest;
    Ok(i64::from_be_bytes(*timestamp) ^ i64::MIN)
}

/// The first bytes that are after all that begin with a prefix; nothing where there are none.
pub(super) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|b| *b != u8::MAX)?;
    let mut after = prefix.get(..=last)?.to_vec();
    if let Some(b) = after.last_mut() {
        *b += 1;
    }
    Some(after)
}
