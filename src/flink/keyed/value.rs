//! A value of a job's, for people and for programs.

use std::fmt::{self, Write};
use std::sync::Arc;

use serde_json::Number;

/// A value as one of Flink's serializers wrote it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Java's null, and the one value of a void namespace.
    Null,
    /// A boolean.
    Bool(bool),
    /// Any whole number of at most 8 bytes.
    Int(i64),
    /// A `float`.
    Float(f32),
    /// A `double`.
    Double(f64),
    /// Text, and what has no other form: dates, big numbers, constants of enums.
    Text(String),
    /// A `byte[]`.
    Bytes(Vec<u8>),
    /// Elements in their order.
    List(Vec<Self>),
    /// Keys and values in the order that they were written in.
    Map(Vec<(Self, Self)>),
    /// Parts with names.
    Record(Vec<(Arc<str>, Self)>),
}

impl Value {
    /// A record of these parts.
    pub(super) fn record<const N: usize>(parts: [(&str, Self); N]) -> Self {
        Self::Record(parts.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    /// For programs. Bytes are text in hex after `0x`; numbers that JSON lacks are text; a map is an object when its keys are text or
    /// whole numbers, otherwise a list of pairs.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            Self::Int(value) => Json::Number((*value).into()),
            // By its text, since its nearest `f64` has digits that nobody wrote.
            Self::Float(value) => number(value.to_string().parse().unwrap_or(f64::from(*value))),
            Self::Double(value) => number(*value),
            Self::Text(text) => Json::String(text.clone()),
            Self::Bytes(bytes) => Json::String(hex(bytes)),
            Self::List(elements) => Json::Array(elements.iter().map(Self::json).collect()),
            Self::Map(entries) if entries.iter().all(|(key, _)| matches!(key, Self::Text(_) | Self::Int(_))) => {
                let name = |key: &Self| match key {
                    Self::Text(text) => text.clone(),
                    other => other.to_string(),
                };
                Json::Object(entries.iter().map(|(key, value)| (name(key), value.json())).collect())
            }
            Self::Map(entries) => {
                Json::Array(entries.iter().map(|(key, value)| Json::Array(vec![key.json(), value.json()])).collect())
            }
            Self::Record(parts) => {
                Json::Object(parts.iter().map(|(name, value)| (name.to_string(), value.json())).collect())
            }
        }
    }

    /// Its text, cut after `most` characters.
    #[must_use]
    pub fn short(&self, most: usize) -> String {
        let mut text = Cut { text: String::new(), left: most };
        if write!(text, "{self}").is_err() {
            text.text.push('…');
        }
        text.text
    }

    fn quoted(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            other => write!(f, "{other}"),
        }
    }
}

fn number(value: f64) -> serde_json::Value {
    Number::from_f64(value).map_or_else(|| serde_json::Value::String(value.to_string()), serde_json::Value::Number)
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::from("0x");
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// For people: text alone is bare, text inside something is in quotes, and control characters are escaped, since a job's data may hold
/// what a terminal acts on.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Double(value) => write!(f, "{value}"),
            Self::Text(text) => write!(f, "{}", text.escape_debug()),
            Self::Bytes(bytes) => {
                f.write_str("0x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::List(elements) => joined(f, ['[', ']'], elements, |f, element| element.quoted(f)),
            Self::Map(entries) => joined(f, ['{', '}'], entries, |f, (key, value)| {
                key.quoted(f)?;
                f.write_str(": ")?;
                value.quoted(f)
            }),
            Self::Record(parts) => joined(f, ['{', '}'], parts, |f, (name, value)| {
                write!(f, "{}: ", name.escape_debug())?;
                value.quoted(f)
            }),
        }
    }
}

fn joined<T>(
    f: &mut fmt::Formatter<'_>,
    [open, close]: [char; 2],
    items: &[T],
    write: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    f.write_char(open)?;
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write(f, item)?;
    }
    f.write_char(close)
}

/// Takes so many characters and then fails, which ends the writing.
struct Cut {
    text: String,
    left: usize,
}

impl Write for Cut {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        for character in more.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            self.text.push(character);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_text_and_json() {
        let text = |text: &str| Value::Text(text.to_owned());
        let map = Value::Map(vec![(text("a\u{1b}[0m"), Value::Int(1)), (text("b"), Value::Null)]);
        assert_eq!(map.to_string(), "{\"a\\u{1b}[0m\": 1, \"b\": null}");
        assert_eq!(map.json(), serde_json::json!({"a\u{1b}[0m": 1, "b": null}));
        assert_eq!(text("a\nb").to_string(), "a\\nb");
        let pairs = Value::Map(vec![(Value::Bool(true), Value::Float(0.1))]);
        assert_eq!(pairs.json().to_string(), "[[true,0.1]]");
        let list = Value::List(vec![Value::Bytes(vec![0, 0xab]), Value::Double(f64::NAN), text("é")]);
        assert_eq!(list.to_string(), "[0x00ab, NaN, \"é\"]");
        assert_eq!(list.json().to_string(), "[\"0x00ab\",\"NaN\",\"é\"]");
        assert_eq!((list.short(5), list.short(100)), ("[0x00…".to_owned(), list.to_string()));
        assert_eq!(Value::record([("start", Value::Int(-1))]).json(), serde_json::json!({"start": -1}));
    }
}
