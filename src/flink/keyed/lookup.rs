//! Finds the rows of one key: what they begin with, from the text that a person gives for it.

use super::row::key_group_len;
use super::serializer::{Plain, Serializer};
use crate::types::key_group_of;

/// What the rows of a key begin with in every state but timers: its key group and the key as it is written. `None` when the text is no
/// such key, or keys of this type are not known: of a type without a hash code that is the same everywhere, and of those with parts.
#[must_use]
pub fn encode_key_prefix(key: &Serializer, text: &str, max_parallelism: u32) -> Option<Vec<u8>> {
    let Serializer::Plain(plain) = key else { return None };
    let (hash, bytes) = encode(*plain, text)?;
    let mut prefix = match key_group_len(max_parallelism)? {
        1 => vec![u8::try_from(key_group_of(hash, max_parallelism)).ok()?],
        _ => u16::try_from(key_group_of(hash, max_parallelism)).ok()?.to_be_bytes().to_vec(),
    };
    prefix.extend(bytes);
    Some(prefix)
}

/// Java's hash code of the key, and its bytes.
fn encode(plain: Plain, text: &str) -> Option<(i32, Vec<u8>)> {
    Some(match plain {
        Plain::Boolean => match text.parse::<bool>().ok()? {
            true => (1231, vec![1]),
            false => (1237, vec![0]),
        },
        Plain::Byte => of_number(text.parse::<i8>().ok()?, i8::to_be_bytes),
        Plain::Short => of_number(text.parse::<i16>().ok()?, i16::to_be_bytes),
        Plain::Integer => of_number(text.parse::<i32>().ok()?, i32::to_be_bytes),
        Plain::Long => {
            let key = text.parse::<i64>().ok()?;
            let [a, b, c, d, e, f, g, h] = key.to_be_bytes();
            let hash = i32::from_be_bytes([a, b, c, d]) ^ i32::from_be_bytes([e, f, g, h]);
            (hash, key.to_be_bytes().to_vec())
        }
        Plain::Character => {
            let mut units = text.encode_utf16();
            let (unit, None) = (units.next()?, units.next()) else { return None };
            (unit.into(), unit.to_be_bytes().to_vec())
        }
        Plain::String => {
            let units: Vec<u16> = text.encode_utf16().collect();
            let hash = units.iter().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add((*unit).into()));
            let mut bytes = Vec::new();
            varint(u32::try_from(units.len()).ok()?.checked_add(1)?, &mut bytes);
            units.iter().for_each(|unit| varint((*unit).into(), &mut bytes));
            (hash, bytes)
        }
        _ => return None,
    })
}

fn of_number<T: Into<i32> + Copy, const N: usize>(key: T, bytes: impl Fn(T) -> [u8; N]) -> (i32, Vec<u8>) {
    (key.into(), bytes(key).to_vec())
}

fn varint(mut value: u32, out: &mut Vec<u8>) {
    while let low @ 0..=0x7F = u8::try_from(value & 0x7F).unwrap_or_default() {
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Value, decode};
    use super::*;

    #[test]
    fn keys_are_written_as_they_are_read() {
        let texts = [
            (Plain::Boolean, "true", Value::Bool(true)),
            (Plain::Byte, "-3", Value::Int(-3)),
            (Plain::Short, "-300", Value::Int(-300)),
            (Plain::Integer, "70000", Value::Int(70_000)),
            (Plain::Long, "-9223372036854775808", Value::Int(i64::MIN)),
            (Plain::Character, "中", Value::Text("中".to_owned())),
            (Plain::String, "é中🙂\0", Value::Text("é中🙂\0".to_owned())),
            (Plain::String, "", Value::Text(String::new())),
        ];
        for (plain, text, value) in texts {
            let serializer = Serializer::Plain(plain);
            let one = encode_key_prefix(&serializer, text, 128).unwrap();
            let two = encode_key_prefix(&serializer, text, 200).unwrap();
            assert_eq!(decode(&serializer, &one[1..]), Some(value.clone()));
            assert_eq!(decode(&serializer, &two[2..]), Some(value));
        }
        let long = "x".repeat(300);
        let bytes = encode_key_prefix(&Serializer::Plain(Plain::String), &long, 1).unwrap();
        assert_eq!(decode(&Serializer::Plain(Plain::String), &bytes[1..]), Some(Value::Text(long)));
        assert_eq!(encode_key_prefix(&Serializer::Plain(Plain::Byte), "128", 128), None);
        assert_eq!(encode_key_prefix(&Serializer::Plain(Plain::Long), "84", 0), None);
        assert_eq!(encode_key_prefix(&Serializer::Plain(Plain::Double), "1", 128), None);
        assert_eq!(encode_key_prefix(&Serializer::Plain(Plain::Long), "84", 128).unwrap()[0], 0x40);
    }
}
