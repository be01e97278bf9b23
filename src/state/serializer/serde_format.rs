//! Every other type: whatever serde knows, in postcard's format.
//!
//! Postcard has a written and frozen wire format (its major version says so), writes no names and no padding, and is kept up; equal items
//! of equal types have equal bytes, which keys need.

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{BytesSerializer, KeySerializer, Serializer, SerializerDescriptor, StateError};

/// The format's name in descriptors.
const FORMAT: &str = "serde";

/// A serializer for a type of the author's. The format has no names of fields: another order or another type of a field is another
/// schema, and needs the next version.
pub struct SerdeSerializer<T> {
    type_name: String,
    version: u32,
    item: PhantomData<fn() -> T>,
}

impl<T> SerdeSerializer<T> {
    /// For a type under a name that stays (Rust's own names change with modules), in this version of its schema.
    #[must_use]
    pub fn new(type_name: &str, version: u32) -> Self {
        Self { type_name: type_name.to_owned(), version, item: PhantomData }
    }
}

impl<T> Clone for SerdeSerializer<T> {
    fn clone(&self) -> Self {
        Self::new(&self.type_name, self.version)
    }
}

impl<T> fmt::Debug for SerdeSerializer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SerdeSerializer").field(&self.type_name).field(&self.version).finish()
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Serializer for SerdeSerializer<T> {
    type Item = T;

    fn descriptor(&self) -> SerializerDescriptor {
        SerializerDescriptor::of_type(FORMAT, &self.type_name, self.version)
    }

    fn fixed_length(&self) -> Option<usize> {
        None
    }

    fn write(&self, item: &T, bytes: &mut Vec<u8>) -> Result<(), StateError> {
        let taken = std::mem::take(bytes);
        *bytes = postcard::to_extend(item, taken).map_err(|e| StateError::encode(&self.type_name, e.to_string()))?;
        Ok(())
    }

    fn read(&self, bytes: &mut &[u8]) -> Result<T, StateError> {
        let (item, rest) =
            postcard::take_from_bytes(bytes).map_err(|e| StateError::decode(&self.type_name, e.to_string()))?;
        *bytes = rest;
        Ok(item)
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> KeySerializer for SerdeSerializer<T> {
    /// That of the key's bytes, as [`super::BytesSerializer`] has it: Rust's own hashes may change with its releases. So a key must not
    /// have parts without an order, such as a hash map.
    fn hash(&self, item: &T) -> i32 {
        // A key that cannot be written is refused where it is written.
        postcard::to_allocvec(item).map(|bytes| BytesSerializer.hash(&bytes)).unwrap_or_default()
    }
}
