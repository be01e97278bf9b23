//! What is stored about a serializer, and whether a newer one may read what an older one wrote.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A serializer in words that outlive the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SerializerDescriptor {
    /// What it writes: `long`, `int`, `string`, `bytes`, `tuple`, `void`, `window`, or `serde` for a type of the author's.
    pub format: String,
    /// The author's name of the type, where the format is `serde`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// The author's version of the type's schema; 1 for the formats that never change.
    #[serde(default = "one")]
    pub version: u32,
    /// The serializers of its fields, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<SerializerDescriptor>,
}

fn one() -> u32 {
    1
}

impl SerializerDescriptor {
    /// A format that never changes and has no fields.
    #[must_use]
    pub fn basic(format: &str) -> Self {
        Self { format: format.to_owned(), type_name: None, version: 1, fields: Vec::new() }
    }

    /// A format that is made of others.
    #[must_use]
    pub fn of_fields(format: &str, fields: Vec<Self>) -> Self {
        Self { fields, ..Self::basic(format) }
    }

    /// A type of the author's.
    #[must_use]
    pub fn of_type(format: &str, type_name: &str, version: u32) -> Self {
        Self { type_name: Some(type_name.to_owned()), version, ..Self::basic(format) }
    }
}

impl fmt::Display for SerializerDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.type_name {
            Some(name) => write!(f, "{name}")?,
            None => f.write_str(&self.format)?,
        }
        if !self.fields.is_empty() {
            f.write_str("(")?;
            for (i, field) in self.fields.iter().enumerate() {
                write!(f, "{}{field}", if i == 0 { "" } else { ", " })?;
            }
            f.write_str(")")?;
        }
        if self.type_name.is_some() || self.version != 1 {
            write!(f, " version {}", self.version)?;
        }
        Ok(())
    }
}

/// Whether what one serializer wrote may be read by another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compatibility {
    /// The bytes are the same.
    AsIs,
    /// They are not, in words.
    Refused(String),
}

/// Whether values written by `old` may be read by `new`: only when both write the same bytes. There is no migration: an author whose
/// type changed gives it the next version, and the state another name.
#[must_use]
pub fn compatible(old: &SerializerDescriptor, new: &SerializerDescriptor) -> Compatibility {
    if old == new {
        return Compatibility::AsIs;
    }
    let words = if old.format != new.format || old.type_name != new.type_name {
        format!("{old} is another type than {new}")
    } else if old.version != new.version {
        format!("{old} has another schema than version {}", new.version)
    } else if old.fields.len() != new.fields.len() {
        format!("{old} has {} fields, {new} has {}", old.fields.len(), new.fields.len())
    } else {
        let fields = old.fields.iter().zip(&new.fields).enumerate();
        let words = fields.filter_map(|(i, (old, new))| match compatible(old, new) {
            Compatibility::AsIs => None,
            Compatibility::Refused(words) => Some(format!("field {i}: {words}")),
        });
        words.collect::<Vec<_>>().join("; ")
    };
    Compatibility::Refused(words)
}

/// As [`compatible`], for keys: they must be equal, since a row is found by its key's bytes.
#[must_use]
pub fn compatible_keys(old: &SerializerDescriptor, new: &SerializerDescriptor) -> Compatibility {
    match compatible(old, new) {
        Compatibility::Refused(words) => Compatibility::Refused(format!("keys cannot change their type: {words}")),
        Compatibility::AsIs => Compatibility::AsIs,
    }
}
