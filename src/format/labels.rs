//! Labels: what people write on a checkpoint, `release=1.4`, to find it by. Nothing is decided by them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits;

/// The labels of a checkpoint, each key once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// Labels as they were given, in any order.
    ///
    /// # Errors
    /// In words, when a key or a value may not be, a key is given twice, or there are more than [`limits::LABELS`].
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, String> {
        let mut labels = Self::default();
        for (key, value) in pairs {
            if let Some(before) = labels.0.insert(key.clone(), value) {
                return Err(format!("label {key} is given twice (one value is {before:?})"));
            }
        }
        labels.check()?;
        Ok(labels)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value under a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Keys and values, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.0.len() > limits::LABELS {
            return Err(format!("{} labels, at most {} may be", self.0.len(), limits::LABELS));
        }
        self.iter().try_for_each(|(key, value)| check_key(key).and_then(|()| check_value(key, value)))
    }
}

/// A key and its value of `KEY=VALUE`. The value may be empty, and hold further equal signs.
///
/// # Errors
/// In words, when it is none, or the key or the value may not be.
pub fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("label {text:?}: write KEY=VALUE, say release=1.4"))?;
    check_key(key)?;
    check_value(key, value)?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Whether this may be a key.
///
/// # Errors
/// In words, why not.
pub fn check_key(key: &str) -> Result<(), String> {
    let begins = key.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !begins
        || key.len() > limits::LABEL_KEY_LEN
        || !key.bytes().all(|b| b.is_ascii_alphanumeric() || b"._/-".contains(&b))
    {
        let shown: String = key.chars().take(limits::LABEL_KEY_LEN).collect();
        return Err(format!(
            "label {shown:?}: a key is 1 to {} letters, digits, `.`, `_`, `/` and `-`, and begins with a letter or digit",
            limits::LABEL_KEY_LEN
        ));
    }
    Ok(())
}

fn check_value(key: &str, value: &str) -> Result<(), String> {
    if value.len() > limits::LABEL_VALUE_LEN {
        return Err(format!(
            "label {key}: its value has {} bytes, at most {} may be",
            value.len(),
            limits::LABEL_VALUE_LEN
        ));
    }
    if value.chars().any(char::is_control) {
        return Err(format!("label {key}: its value has a control character"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_a_key_and_whatever_follows_the_first_equal_sign() {
        let of = |text| pair(text).map(|(k, v)| (k.clone(), v.clone()));
        for (text, key, value) in [
            ("release=1.4", "release", "1.4"),
            ("team/owner.name_x-1=Ünal & co", "team/owner.name_x-1", "Ünal & co"),
            ("a=b=c", "a", "b=c"),
            ("empty=", "empty", ""),
            ("7=x", "7", "x"),
        ] {
            assert_eq!(of(text), Ok((key.to_owned(), value.to_owned())), "{text}");
        }
        for (wrong, word) in [
            ("release", "write KEY=VALUE"),
            ("=1", "a key is 1 to 63"),
            ("-a=1", "begins with a letter or digit"),
            (".a=1", "begins with a letter or digit"),
            ("a b=1", "a key is"),
            ("ä=1", "a key is"),
            ("a=\u{1b}[2J", "a control character"),
            ("a=b\nc", "a control character"),
        ] {
            assert!(of(wrong).unwrap_err().contains(word), "{wrong:?}: {:?}", of(wrong));
        }
        assert!(pair(&format!("{}=1", "k".repeat(63))).is_ok() && pair(&format!("{}=1", "k".repeat(64))).is_err());
        assert!(pair(&format!("k={}", "v".repeat(200))).is_ok());
        assert!(pair(&format!("k={}", "ü".repeat(101))).unwrap_err().contains("202 bytes, at most 200"));
    }

    #[test]
    fn no_key_is_given_twice_and_no_more_than_sixteen_are() {
        let one = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        let twice = Labels::new([one("a", "1"), one("b", "2"), one("a", "3")]).unwrap_err();
        assert!(twice.contains("label a is given twice"), "{twice}");
        let many = |n: usize| Labels::new((0..n).map(|i| one(&format!("k{i}"), "v")));
        assert_eq!(many(16).unwrap().iter().count(), 16);
        assert!(many(17).unwrap_err().contains("17 labels, at most 16 may be"));
    }
}
