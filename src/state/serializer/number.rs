//! Flink's serializers of numbers and byte arrays: most significant byte first.

use super::{KeySerializer, Serializer, SerializerDescriptor, StateError, take, take_slice};

/// `Long`: 8 bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct LongSerializer;

/// `Integer`: 4 bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct IntSerializer;

/// `byte[]`: its length in 4 bytes, and the bytes. The hash code is that of `Arrays.hashCode`: an array's own is its address.
#[derive(Debug, Clone, Copy, Default)]
pub struct BytesSerializer;

impl Serializer for LongSerializer {
    type Item = i64;

    fn descriptor(&self) -> SerializerDescriptor {
        SerializerDescriptor::basic("long")
    }

    fn fixed_length(&self) -> Option<usize> {
        Some(8)
    }

    fn write(&self, item: &i64, bytes: &mut Vec<u8>) -> Result<(), StateError> {
        bytes.extend_from_slice(&item.to_be_bytes());
        Ok(())
    }

    fn read(&self, bytes: &mut &[u8]) -> Result<i64, StateError> {
        take("long", bytes).map(i64::from_be_bytes)
    }
}

impl KeySerializer for LongSerializer {
    fn hash(&self, item: &i64) -> i32 {
        // The two halves, one over the other.
        let [a, b, c, d, e, f, g, h] = item.to_be_bytes();
        i32::from_be_bytes([a, b, c, d]) ^ i32::from_be_bytes([e, f, g, h])
    }
}

impl Serializer for IntSerializer {
    type Item = i32;

    fn descriptor(&self) -> SerializerDescriptor {
        SerializerDescriptor::basic("int")
    }

    fn fixed_length(&self) -> Option<usize> {
        Some(4)
    }

    fn write(&self, item: &i32, bytes: &mut Vec<u8>) -> Result<(), StateError> {
        bytes.extend_from_slice(&item.to_be_bytes());
        Ok(())
    }

    fn read(&self, bytes: &mut &[u8]) -> Result<i32, StateError> {
        take("int", bytes).map(i32::from_be_bytes)
    }
}

impl KeySerializer for IntSerializer {
    fn hash(&self, item: &i32) -> i32 {
        *item
    }
}

impl Serializer for BytesSerializer {
    type Item = Vec<u8>;

    fn descriptor(&self) -> SerializerDescriptor {
        SerializerDescriptor::basic("bytes")
    }

    fn fixed_length(&self) -> Option<usize> {
        None
    }

    fn write(&self, item: &Vec<u8>, bytes: &mut Vec<u8>) -> Result<(), StateError> {
        let length = i32::try_from(item.len())
            .map_err(|_| StateError::encode("byte array", format!("{} bytes are more than 2 GiB", item.len())))?;
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(item);
        Ok(())
    }

    fn read(&self, bytes: &mut &[u8]) -> Result<Vec<u8>, StateError> {
        let length = take("byte array's length", bytes).map(i32::from_be_bytes)?;
        let length = usize::try_from(length)
            .map_err(|_| StateError::decode("byte array", format!("it claims a length of {length}")))?;
        take_slice("byte array", bytes, length).map(<[u8]>::to_vec)
    }
}

impl KeySerializer for BytesSerializer {
    fn hash(&self, item: &Vec<u8>) -> i32 {
        item.iter().fold(1, |hash: i32, b| hash.wrapping_mul(31).wrapping_add(i32::from(b.cast_signed())))
    }
}
