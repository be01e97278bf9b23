//! Values in the form that each known serializer of Flink gives them. What cannot be read exactly is not read at all: a caller shows
//! its bytes instead.

use std::sync::Arc;

use super::serializer::Serializer;
use super::value::Value;
use crate::flink::wire::{Cursor, gather};
use crate::limits;

/// The value that these bytes are; `None` when they are no value of this serializer, or more than one.
#[must_use]
pub fn decode(serializer: &Serializer, bytes: &[u8]) -> Option<Value> {
    let mut decoder = Decoder::new(bytes);
    let value = decoder.value(serializer)?;
    decoder.is_empty().then_some(value)
}

/// So many values, without much room for more.
pub(super) fn list<T>(count: usize, mut one: impl FnMut() -> Option<T>) -> Option<Vec<T>> {
    gather(count, || one().ok_or(())).ok()
}

/// One for each of these.
fn of_each<F, T>(fields: &[F], mut one: impl FnMut(&F) -> Option<T>) -> Option<Vec<T>> {
    let mut fields = fields.iter();
    list(fields.len(), || fields.next().and_then(&mut one))
}

/// A position in a row, and how many values may still be made of it.
pub(super) struct Decoder<'a> {
    pub(super) input: Cursor<'a>,
    values: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let values = bytes.len().saturating_add(limits::FLINK_NULLS);
        Self { input: Cursor::new("a row of keyed state", bytes), values }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.input.left() == 0
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.input.u8().ok()
    }

    /// Java writes 0 and 1 and nothing else.
    pub(super) fn bool(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// How many elements follow, each of at least one byte.
    pub(super) fn count(&mut self) -> Option<usize> {
        self.input.count("elements", usize::MAX, 1).ok()
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        self.input.i64().ok()
    }

    /// A value; nesting is bounded by that of the serializer, which was bounded when it was read.
    pub(super) fn value(&mut self, serializer: &Serializer) -> Option<Value> {
        self.values = self.values.checked_sub(1)?;
        Some(match serializer {
            Serializer::Plain(plain) => self.plain(*plain)?,
            Serializer::List(element) => {
                let count = self.count()?;
                Value::List(list(count, || self.value(element))?)
            }
            Serializer::Array(element) => {
                let count = self.count()?;
                Value::List(list(count, || self.present(element, true))?)
            }
            Serializer::Map(key, value) => {
                let count = self.count()?;
                Value::Map(list(count, || Some((self.value(key)?, self.present(value, false)?)))?)
            }
            Serializer::Either(left, right) => match self.bool()? {
                true => Value::record([("left", self.value(left)?)]),
                false => Value::record([("right", self.value(right)?)]),
            },
            Serializer::Tuple(fields) => Value::List(of_each(fields, |field| self.value(field))?),
            Serializer::Row { fields, with_kind } => self.row(fields, *with_kind)?,
            Serializer::Pojo { fields, .. } => self.pojo(fields)?,
            Serializer::Enum { constants, .. } => {
                let ordinal = usize::try_from(self.input.i32().ok()?).ok()?;
                Value::Text(constants.get(ordinal)?.to_string())
            }
            Serializer::Nullable { value, padding } => match self.bool()? {
                false => self.value(value)?,
                true => {
                    self.input.take(*padding).ok()?;
                    Value::Null
                }
            },
            Serializer::Ttl(value) => {
                let time = self.long()?;
                Value::record([("last_access", Value::Int(time)), ("value", self.value(value)?)])
            }
            Serializer::Timer { key, namespace } => {
                let time = self.timestamp()?;
                let (key, namespace) = (self.value(key)?, self.value(namespace)?);
                Value::record([("timestamp", Value::Int(time)), ("key", key), ("namespace", namespace)])
            }
            Serializer::Unknown(_) => return None,
        })
    }

    /// The time of a timer, whose sign is turned so that bytes are in the order of time.
    pub(super) fn timestamp(&mut self) -> Option<i64> {
        Some(self.long()? ^ i64::MIN)
    }

    /// A value behind a mark that says that it is there, or null.
    pub(super) fn present(&mut self, serializer: &Serializer, mark: bool) -> Option<Value> {
        if self.bool()? == mark { self.value(serializer) } else { Some(Value::Null) }
    }

    /// A bit per field that is null, behind two of the kind, from the highest bit of each byte on.
    fn row(&mut self, fields: &[Serializer], with_kind: bool) -> Option<Value> {
        let ahead = if with_kind { 2 } else { 0 };
        let mask = self.input.take((ahead + fields.len()).div_ceil(8)).ok()?;
        let bit = |at: usize| mask.get(at / 8).is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0);
        let mut places = ahead..;
        let values = of_each(fields, |field| {
            if places.next().is_some_and(bit) {
                self.values = self.values.checked_sub(1)?;
                return Some(Value::Null);
            }
            self.value(field)
        })?;
        if !with_kind {
            return Some(Value::List(values));
        }
        // Flink's short names for its kinds of change.
        let kind = match (bit(0), bit(1)) {
            (false, false) => "+I",
            (true, false) => "-U",
            (false, true) => "+U",
            (true, true) => "-D",
        };
        Some(Value::record([("kind", Value::Text(kind.to_owned())), ("fields", Value::List(values))]))
    }

    /// Flags: 1 for null, 2 for the class itself. Of a subclass (4 and 8) the serializer is not here.
    fn pojo(&mut self, fields: &[(Arc<str>, Serializer)]) -> Option<Value> {
        match self.byte()? {
            1 => Some(Value::Null),
            2 => {
                let part =
                    |(name, field): &(Arc<str>, Serializer)| Some((Arc::clone(name), self.present(field, false)?));
                Some(Value::Record(of_each(fields, part)?))
            }
            _ => None,
        }
    }
}
