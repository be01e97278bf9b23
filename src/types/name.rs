//! Names of jobs, operators and states, as they stand in paths and store keys.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Digest;
use crate::limits;

/// A name that is safe as one component of a path and of a store key: `[A-Za-z0-9._-]` and `%XX`, 1 to 200 bytes, never `.`, `..` or a
/// reserved one. [`Name::encode`] makes one of any display name; manifests keep the display name beside it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

/// Text that is not an encoded name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a name: {why}")]
pub struct NameError {
    text: String,
    why: &'static str,
}

/// Names with a meaning of their own on the mount.
const RESERVED: [&str; 3] = ["latest", "manifest.json", "flink"];

/// The operator of an imported checkpoint that holds what belongs to no other. [`Name::encode`] never makes it.
const FLINK: &str = "flink";

fn plain(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')
}

impl Name {
    /// The name that stands for `display`: bytes outside `[A-Za-z0-9._-]` as `%XX`, the first byte of a reserved name too. What would
    /// be longer than 200 bytes becomes `id-` and the first 32 hex digits of its digest.
    #[must_use]
    pub fn encode(display: &str) -> Self {
        let escape_first = RESERVED.contains(&display) || display == "." || display == ".." || display.starts_with('-');
        let mut out = String::with_capacity(display.len());
        for (i, b) in display.bytes().enumerate() {
            if plain(b) && !(i == 0 && escape_first) {
                out.push(char::from(b));
            } else {
                out.push_str(&format!("%{b:02X}"));
            }
        }
        if out.is_empty() || out.len() > limits::NAME_LEN {
            return Self(format!("id-{}", &Digest::of(display.as_bytes()).to_hex()[..32]));
        }
        Self(out)
    }

    /// The operator of an imported Flink checkpoint that holds what belongs to no other one. No display name encodes to it.
    #[must_use]
    pub fn flink() -> Self {
        Self(FLINK.to_owned())
    }

    /// Whether it is [`Name::flink`].
    #[must_use]
    pub fn is_flink(&self) -> bool {
        self.0 == FLINK
    }

    /// Takes a name that is encoded already.
    ///
    /// # Errors
    /// When it is not what [`Name::encode`] could have made.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let err = |why| Err(NameError { text: text.chars().take(256).collect(), why });
        if text.is_empty() {
            return err("it is empty");
        }
        if text.len() > limits::NAME_LEN {
            return err("it is longer than 200 bytes");
        }
        if text == "." || text == ".." {
            return err("it would leave its directory");
        }
        if RESERVED.contains(&text) && text != FLINK {
            return err("it is reserved (latest and manifest.json have a meaning of their own on the mount)");
        }
        if text.starts_with('-') {
            return err("it starts with a dash and would be taken for an option");
        }
        let bytes = text.as_bytes();
        let mut i = 0;
        while let Some(&b) = bytes.get(i) {
            if plain(b) {
                i += 1;
            } else if b == b'%' {
                let hex = |at: usize| {
                    bytes.get(at).and_then(|&c| match c {
                        b'0'..=b'9' => Some(c - b'0'),
                        b'A'..=b'F' => Some(c - b'A' + 10),
                        _ => None,
                    })
                };
                let (Some(high), Some(low)) = (hex(i + 1), hex(i + 2)) else {
                    return err("% must be followed by two upper-case hex digits");
                };
                // A plain byte is escaped only at the front, where it takes a reserved meaning away.
                if plain(high << 4 | low) && i != 0 {
                    return err("it escapes a character that needs none");
                }
                i += 3;
            } else {
                return err("only letters, digits, dot, dash, underscore and %XX are allowed");
            }
        }
        Ok(Self(text.to_owned()))
    }

    /// The encoded text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({})", self.0)
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_are_escaped() {
        for (display, name) in [
            ("app", "app"),
            ("my job", "my%20job"),
            ("a/b", "a%2Fb"),
            ("latest", "%6Catest"),
            ("manifest.json", "%6Danifest.json"),
            ("flink", "%66link"),
            (".", "%2E"),
            ("..", "%2E."),
            ("-x", "%2Dx"),
            ("50%", "50%25"),
            ("中", "%E4%B8%AD"),
        ] {
            assert_eq!(Name::encode(display).as_str(), name);
            assert_eq!(Name::parse(name).unwrap().as_str(), name);
        }
        assert_eq!(Name::encode(&"x".repeat(201)).as_str().len(), 35);
        assert_ne!(Name::encode(&"x".repeat(201)), Name::encode(&"x".repeat(202)));
    }

    #[test]
    fn hostile_names_are_refused() {
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a\0b",
            "a b",
            "latest",
            "manifest.json",
            "-rf",
            "%2f",
            "%2",
            "%",
            "a%41",
            "中",
            "a\nb",
        ] {
            assert!(Name::parse(bad).is_err(), "{bad:?}");
        }
        assert!(Name::parse(&"x".repeat(201)).is_err());
        assert!(Name::parse(&"x".repeat(200)).is_ok());
        assert!(Name::parse("flink").unwrap().is_flink());
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_encoded_parses(display in ".*") {
            let name = Name::encode(&display);
            proptest::prop_assert_eq!(Name::parse(name.as_str()).unwrap(), name);
        }
    }
}
