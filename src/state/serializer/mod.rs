//! Serializers: how keys, namespaces and values become bytes. Those of Flink's basic types write Flink's bytes, and keys have Java's
//! hash codes, so that both put a key into the same key group and the same row; [`SerdeSerializer`] takes every other type.
//!
//! A [`SerializerDescriptor`] is stored with each state. What reads the state later is held against it: [`compatible`].

mod descriptor;
mod number;
mod serde_format;
mod string;
mod tuple;
mod window;

pub use descriptor::{Compatibility, SerializerDescriptor, compatible, compatible_keys};
pub use number::{BytesSerializer, IntSerializer, LongSerializer};
pub use serde_format::SerdeSerializer;
pub use string::StringSerializer;
pub use tuple::{Tuple2, Tuple3};
pub use window::{TimeWindow, TimeWindowSerializer, VoidNamespace};

use super::error::StateError;

/// Writes and reads items of one type. The bytes need not say where they end: who stores them does, or they stand at the end.
pub trait Serializer: Clone + Send + Sync + 'static {
    /// What it writes.
    type Item: Send + 'static;

    /// What is stored about it with the state.
    fn descriptor(&self) -> SerializerDescriptor;

    /// Bytes of an item where all have the same number. Together with the others it decides how a row's key is built.
    fn fixed_length(&self) -> Option<usize>;

    /// Appends an item.
    ///
    /// # Errors
    /// When the item cannot be written; what was appended until then is of no use.
    fn write(&self, item: &Self::Item, bytes: &mut Vec<u8>) -> Result<(), StateError>;

    /// Takes an item from the front.
    ///
    /// # Errors
    /// When the bytes are not what [`Serializer::write`] appends.
    fn read(&self, bytes: &mut &[u8]) -> Result<Self::Item, StateError>;
}

/// A serializer of keys. Equal keys must have equal bytes and hash codes, today and after every restart.
pub trait KeySerializer: Serializer {
    /// The hash code: Java's for what Java has. It decides the key group.
    fn hash(&self, item: &Self::Item) -> i32;
}

/// Pairs of what two serializers write.
pub type Entries<K, V> = Vec<(<K as Serializer>::Item, <V as Serializer>::Item)>;

/// An item's bytes.
///
/// # Errors
/// When it cannot be written.
pub fn to_bytes<S: Serializer>(serializer: &S, item: &S::Item) -> Result<Vec<u8>, StateError> {
    let mut bytes = Vec::with_capacity(serializer.fixed_length().unwrap_or_default());
    serializer.write(item, &mut bytes)?;
    Ok(bytes)
}

/// The item that bytes are, all of them.
///
/// # Errors
/// When they are not, or something is left.
pub fn from_bytes<S: Serializer>(serializer: &S, mut bytes: &[u8]) -> Result<S::Item, StateError> {
    let item = serializer.read(&mut bytes)?;
    match bytes.len() {
        0 => Ok(item),
        left => Err(StateError::decode(serializer.descriptor().to_string(), format!("{left} bytes are left after it"))),
    }
}

/// Takes `N` bytes from the front.
fn take<const N: usize>(what: &str, bytes: &mut &[u8]) -> Result<[u8; N], StateError> {
    match bytes.split_first_chunk::<N>() {
        Some((head, rest)) => {
            *bytes = rest;
            Ok(*head)
        }
        None => Err(StateError::decode(what, format!("it has {N} bytes, and {} are left", bytes.len()))),
    }
}

/// Takes some bytes from the front.
fn take_slice<'a>(what: &str, bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], StateError> {
    match bytes.split_at_checked(length) {
        Some((head, rest)) => {
            *bytes = rest;
            Ok(head)
        }
        None => Err(StateError::decode(what, format!("it has {length} bytes, and {} are left", bytes.len()))),
    }
}

#[cfg(test)]
mod tests;
