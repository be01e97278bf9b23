//! Descriptors of states in a task manifest: JSON that is opaque here. Its values are counted while they are read, since one of two bytes
//! may take a hundred times as much in memory.

use std::cell::Cell;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::limits;

/// Reads a list of them.
pub(super) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Value>, D::Error> {
    let left = Cell::new(limits::STATE_VALUES);
    from.deserialize_seq(List(&left))
}

/// Whether there are no more than may be read back.
pub(super) fn fit(states: &[Value]) -> bool {
    fn count(value: &Value) -> usize {
        1 + match value {
            Value::Array(values) => values.iter().map(count).sum(),
            Value::Object(fields) => fields.values().map(count).sum(),
            _ => 0,
        }
    }
    states.iter().map(count).sum::<usize>() <= limits::STATE_VALUES
}

/// A list of values, and how many more there may be.
struct List<'a>(&'a Cell<usize>);

impl<'de> Visitor<'de> for List<'_> {
    type Value = Vec<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of descriptors")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = from.next_element_seed(One(self.0))? {
            values.push(value);
        }
        Ok(values)
    }
}

/// One value, which may hold others.
struct One<'a>(&'a Cell<usize>);

impl<'de> DeserializeSeed<'de> for One<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        let Some(left) = self.0.get().checked_sub(1) else {
            return Err(D::Error::custom(format!("more than {} values in its states", limits::STATE_VALUES)));
        };
        self.0.set(left);
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for One<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, from: A) -> Result<Value, A::Error> {
        List(self.0).visit_seq(from).map(Value::Array)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = from.next_key()? {
            fields.insert(name, from.next_value_seed(One(self.0))?);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<Value>, serde_json::Error> {
        read(&mut serde_json::Deserializer::from_str(text))
    }

    #[test]
    fn values_are_read_as_they_are() {
        let text = r#"[{"a":[null,true,-1,18446744073709551615,1.5,"\u0000é"],"b":{}},[],"x"]"#;
        let values = read_text(text).unwrap();
        assert_eq!(values, serde_json::from_str::<Vec<Value>>(text).unwrap());
        assert!(fit(&values));
        assert!(read_text("{}").unwrap_err().to_string().contains("expected a list of descriptors"));
        // From a value, texts come owned.
        assert_eq!(read(Value::from(vec!["x"])).unwrap(), ["x"]);
        let wide = serde::de::value::SeqDeserializer::<_, serde::de::value::Error>::new([1_u128].into_iter());
        assert_eq!(read(wide).unwrap_err().to_string(), "invalid type: integer `1` as u128, expected any value");
        for bad in ["{}", "1", "[", "[1,]", "[{\"a\"}]"] {
            assert!(read_text(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn there_are_no_more_than_may_be() {
        let inner = limits::STATE_VALUES - 1;
        for (inner, fits) in [(inner, true), (inner + 1, false)] {
            let list = format!("[[{}0]]", "0,".repeat(inner - 1));
            assert_eq!(read_text(&list).is_ok(), fits);
            let values: Vec<Value> = serde_json::from_str(&list).unwrap();
            assert_eq!(fit(&values), fits);
        }
        let wide: Map<String, Value> = (0..limits::STATE_VALUES).map(|i| (i.to_string(), Value::Null)).collect();
        assert!(!fit(&[Value::Object(wide)]));
        let objects = format!("[{}1]", r#"{"":0},"#.repeat(limits::STATE_VALUES / 2));
        assert!(read_text(&objects).unwrap_err().to_string().contains("values in its states"));
    }
}
