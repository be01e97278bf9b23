//! Flink's serializer of strings: `StringValue.writeString`.

use super::{KeySerializer, Serializer, SerializerDescriptor, StateError, take};

/// `String`: one more than its number of UTF-16 units, then the units, each as a number of 7 bits a byte, low ones first, the top bit
/// for "more follows". A length of 0 is Java's null, which Rust does not have.
#[derive(Debug, Clone, Copy, Default)]
pub struct StringSerializer;

const WHAT: &str = "string";

/// Most bytes of one number: 5 times 7 bits hold 32.
const LONGEST_NUMBER: u32 = 5;

fn write_number(mut n: u32, bytes: &mut Vec<u8>) {
    while n >= 0x80 {
        let [.., low] = n.to_be_bytes();
        bytes.push(low | 0x80);
        n >>= 7;
    }
    let [.., low] = n.to_be_bytes();
    bytes.push(low);
}

fn read_number(bytes: &mut &[u8]) -> Result<u32, StateError> {
    let mut n: u64 = 0;
    for i in 0..LONGEST_NUMBER {
        let [byte] = take::<1>(WHAT, bytes)?;
        n |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return u32::try_from(n).map_err(|_| StateError::decode(WHAT, format!("{n} is more than 32 bits")));
        }
    }
    Err(StateError::decode(WHAT, "a number of more than 5 bytes"))
}

impl Serializer for StringSerializer {
    type Item = String;

    fn descriptor(&self) -> SerializerDescriptor {
        SerializerDescriptor::basic(WHAT)
    }

    fn fixed_length(&self) -> Option<usize> {
        None
    }

    fn write(&self, item: &String, bytes: &mut Vec<u8>) -> Result<(), StateError> {
        // ASCII, which most keys are, is its own encoding.
        let units = if item.is_ascii() { item.len() } else { item.encode_utf16().count() };
        let length = i32::try_from(units).ok().and_then(|n| n.checked_add(1)).and_then(|n| u32::try_from(n).ok());
        let length =
            length.ok_or_else(|| StateError::encode(WHAT, format!("{units} characters are more than 2^31")))?;
        write_number(length, bytes);
        if item.is_ascii() {
            bytes.extend_from_slice(item.as_bytes());
        } else {
            item.encode_utf16().for_each(|unit| write_number(u32::from(unit), bytes));
        }
        Ok(())
    }

    fn read(&self, bytes: &mut &[u8]) -> Result<String, StateError> {
        let length = read_number(bytes)?;
        let Some(length) = length.checked_sub(1) else { return Err(StateError::decode(WHAT, "it is null")) };
        // Each unit takes a byte at least: no more memory is asked for than the bytes can fill.
        let mut units = Vec::with_capacity(bytes.len().min(length as usize));
        for _ in 0..length {
            let unit = read_number(bytes)?;
            units.push(
                u16::try_from(unit).map_err(|_| StateError::decode(WHAT, format!("{unit:#x} is no UTF-16 unit")))?,
            );
        }
        String::from_utf16(&units).map_err(|_| StateError::decode(WHAT, "half a surrogate pair"))
    }
}

impl KeySerializer for StringSerializer {
    fn hash(&self, item: &String) -> i32 {
        item.encode_utf16().fold(0, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
    }
}
