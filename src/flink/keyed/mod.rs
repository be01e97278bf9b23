//! Flink's keyed state: what a backend's description says of its states, and rows that it wrote, read into text. Bytes in, values out.

mod decode;
mod lookup;
mod meta;
mod plain;
mod row;
mod savepoint;
mod serializer;
mod snapshot;
mod value;

pub use decode::decode;
pub use lookup::encode_key_prefix;
pub use meta::{BackendMeta, State, StateKind, read_meta};
pub use row::{RowKey, decode_key, decode_value};
pub use savepoint::{KeyGroupRows, SavepointRow};
pub use serializer::{Plain, Serializer};
pub use snapshot::Snapshot;
pub use value::Value;

#[cfg(test)]
mod tests;
