//! Values of the serializers without parameters.

use super::decode::{Decoder, list};
use super::serializer::Plain;
use super::value::Value;
use crate::limits;

impl Decoder<'_> {
    /// A value of one of them.
    pub(super) fn plain(&mut self, plain: Plain) -> Option<Value> {
        Some(match plain {
            Plain::Boolean => Value::Bool(self.bool()?),
            Plain::Byte => Value::Int(self.byte()?.cast_signed().into()),
            Plain::Short => Value::Int(self.short()?.cast_signed().into()),
            Plain::Integer => Value::Int(self.int()?.into()),
            Plain::Long => Value::Int(self.long()?),
            Plain::Float => Value::Float(self.float()?),
            Plain::Double => Value::Double(self.double()?),
            Plain::Character => self.character()?,
            Plain::String => self.string()?,
            Plain::BigInteger => self.big_integer()?.map_or(Value::Null, Value::Text),
            Plain::BigDecimal => match self.big_integer()? {
                None => Value::Null,
                Some(digits) => Value::Text(scaled(&digits, self.int()?)),
            },
            Plain::Void | Plain::VoidNamespace | Plain::GlobalWindow => (self.byte()? == 0).then_some(Value::Null)?,
            // Milliseconds since 1970.
            Plain::Date | Plain::SqlDate | Plain::SqlTime => match self.long()? {
                i64::MIN => Value::Null,
                millis => Value::Int(millis),
            },
            Plain::SqlTimestamp => match (self.long()?, self.int()?) {
                (i64::MIN, _) => Value::Null,
                (millis, nanos) => {
                    Value::record([("millis", Value::Int(millis)), ("nanos", Value::Int(below(nanos, NANOS)?))])
                }
            },
            Plain::Instant => match (self.long()?, self.int()?) {
                (i64::MIN, i32::MIN) => Value::Null,
                (seconds, nanos) => {
                    Value::record([("seconds", Value::Int(seconds)), ("nanos", Value::Int(below(nanos, NANOS)?))])
                }
            },
            Plain::LocalDate => self.date()?.map_or(Value::Null, Value::Text),
            Plain::LocalTime => self.time()?.map_or(Value::Null, Value::Text),
            Plain::LocalDateTime => match (self.date()?, self.time()?) {
                (None, None) => Value::Null,
                (Some(date), Some(time)) => Value::Text(format!("{date}T{time}")),
                _ => return None,
            },
            Plain::TimeWindow => {
                Value::record([("start", Value::Int(self.long()?)), ("end", Value::Int(self.long()?))])
            }
            Plain::ByteArray => Value::Bytes(self.input.bytes("bytes").ok()?.to_vec()),
            Plain::BooleanArray => self.array(Plain::Boolean)?,
            Plain::ShortArray => self.array(Plain::Short)?,
            Plain::IntArray => self.array(Plain::Integer)?,
            Plain::LongArray => self.array(Plain::Long)?,
            Plain::FloatArray => self.array(Plain::Float)?,
            Plain::DoubleArray => self.array(Plain::Double)?,
            Plain::CharArray => self.array(Plain::Character)?,
            Plain::StringArray => self.array(Plain::String)?,
        })
    }

    fn array(&mut self, element: Plain) -> Option<Value> {
        let count = self.count()?;
        Some(Value::List(list(count, || self.plain(element))?))
    }

    fn short(&mut self) -> Option<u16> {
        self.input.u16().ok()
    }

    fn int(&mut self) -> Option<i32> {
        self.input.i32().ok()
    }

    fn float(&mut self) -> Option<f32> {
        Some(f32::from_bits(self.int()?.cast_unsigned()))
    }

    fn double(&mut self) -> Option<f64> {
        Some(f64::from_bits(self.long()?.cast_unsigned()))
    }

    fn character(&mut self) -> Option<Value> {
        Some(Value::Text(String::from_utf16_lossy(&[self.short()?])))
    }

    /// The number of characters and one, or 0 for null, then each: seven bits a byte, the lowest first.
    fn string(&mut self) -> Option<Value> {
        let Some(length) = usize::try_from(self.varint(u32::MAX)?).ok()?.checked_sub(1) else {
            return Some(Value::Null);
        };
        if length > self.input.left() {
            return None;
        }
        let units = (0..length).map(|_| u16::try_from(self.varint(u16::MAX.into())?).ok());
        let units: Vec<u16> = units.collect::<Option<_>>()?;
        // A lone surrogate is text to Java and to nobody else.
        Some(Value::Text(String::from_utf16_lossy(&units)))
    }

    fn varint(&mut self, most: u32) -> Option<u32> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).ok().filter(|value| *value <= most);
            }
        }
        None
    }

    /// Its decimal digits, or `None` inside for null: 0 for null, 1 to 3 for the numbers 0, 1 and 10, else the length and four.
    fn big_integer(&mut self) -> Option<Option<String>> {
        Some(Some(match self.int()? {
            0 => return Some(None),
            1 => "0".to_owned(),
            2 => "1".to_owned(),
            3 => "10".to_owned(),
            length => {
                let length = usize::try_from(length.checked_sub(4)?).ok()?;
                if length == 0 || length > limits::FLINK_BIG_NUMBER {
                    return None;
                }
                decimal(self.input.take(length).ok()?)
            }
        }))
    }

    /// `None` inside for null, as for the time of day.
    fn date(&mut self) -> Option<Option<String>> {
        let (year, month, day) = (self.int()?, self.byte()?, self.byte()?);
        if year == i32::MIN {
            return Some(None);
        }
        ((1..=12).contains(&month) && (1..=31).contains(&day)).then(|| Some(format!("{year:04}-{month:02}-{day:02}")))
    }

    fn time(&mut self) -> Option<Option<String>> {
        let (hour, minute, second, nanos) = (self.byte()?, self.byte()?, self.byte()?, self.int()?);
        // Java's smallest byte.
        if hour == 0x80 {
            return Some(None);
        }
        let nanos = below(nanos, NANOS)?;
        (hour < 24 && minute < 60 && second < 60).then(|| Some(format!("{hour:02}:{minute:02}:{second:02}.{nanos:09}")))
    }
}

/// Nanoseconds of a second.
const NANOS: i32 = 1_000_000_000;

fn below(value: i32, most: i32) -> Option<i64> {
    (0..most).contains(&value).then_some(value.into())
}

/// A two's complement number of big-endian bytes in decimal digits, by groups of nine of them, the lowest first.
fn decimal(bytes: &[u8]) -> String {
    const GROUP: u64 = 1_000_000_000;
    let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let mut groups: Vec<u64> = vec![0];
    let mut add = |factor: u64, more: u64| {
        let mut carry = more;
        for group in &mut groups {
            carry += *group * factor;
            *group = carry % GROUP;
            carry /= GROUP;
        }
        if carry > 0 {
            groups.push(carry);
        }
    };
    for byte in bytes {
        // Of a negative number the complement, which is its size less one.
        add(256, u64::from(if negative { !byte } else { *byte }));
    }
    add(1, u64::from(negative));
    let mut text = String::from(if negative { "-" } else { "" });
    for (index, group) in groups.iter().rev().enumerate() {
        text.push_str(&if index == 0 { group.to_string() } else { format!("{group:09}") });
    }
    text
}

/// Digits with a point so many places from their end; as a power of ten where that point lies beyond what is written.
fn scaled(digits: &str, scale: i32) -> String {
    let (sign, size) = digits.strip_prefix('-').map_or(("", digits), |size| ("-", size));
    match usize::try_from(scale) {
        Ok(0) => digits.to_owned(),
        Ok(scale) if scale < size.len() => {
            let (whole, part) = size.split_at(size.len() - scale);
            format!("{sign}{whole}.{part}")
        }
        Ok(scale) if scale <= limits::FLINK_BIG_NUMBER => format!("{sign}0.{size:0>scale$}"),
        _ => format!("{digits}E{}", -i64::from(scale)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn big_numbers_are_decimal() {
        assert_eq!(decimal(&[0]), "0");
        assert_eq!(decimal(&[0xFF]), "-1");
        assert_eq!(decimal(&[0x80]), "-128");
        assert_eq!(decimal(&[0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]), i64::MAX.to_string());
        assert_eq!(decimal(&i64::MIN.to_be_bytes()), i64::MIN.to_string());
        assert_eq!(decimal(&i128::MIN.to_be_bytes()), i128::MIN.to_string());
        assert_eq!(decimal(&1_000_000_000_000_000_000_000_i128.to_be_bytes()), "1000000000000000000000");
        assert!(decimal(&[0x55; limits::FLINK_BIG_NUMBER]).len() > 2_000);
    }

    #[test]
    fn points_are_where_the_scale_says() {
        assert_eq!(scaled("12345", 2), "123.45");
        assert_eq!(scaled("-12345", 5), "-0.12345");
        assert_eq!(scaled("5", 3), "0.005");
        assert_eq!(scaled("5", -3), "5E3");
        assert_eq!(scaled("5", i32::MAX), "5E-2147483647");
        assert_eq!(scaled("5", i32::MIN), "5E2147483648");
        assert_eq!(scaled("5", 0), "5");
    }
}
