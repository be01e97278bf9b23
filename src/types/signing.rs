//! Keys that sign records: secret bytes for a keyed BLAKE3. They come from a file, are never shown, and leave no trace in
//! debug output.

use std::fmt;
use std::sync::Arc;

use crate::limits;

/// Bytes of a key.
const KEY_LEN: usize = 32;

/// Why the bytes of a key file are no keys. Never quotes them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    /// No key at all.
    #[error("it holds no key")]
    Empty,
    /// A line that is no key.
    #[error("line {0} is no key of 64 hex digits")]
    Line(usize),
    /// More keys than anybody rotates.
    #[error("it holds more than {} keys", limits::SIGNING_KEYS)]
    TooMany,
    /// A key that nobody drew at random.
    #[error("a key in it is one byte over and over, which is not random")]
    Weak,
}

/// The keys of a key file: the first signs, all of them verify.
#[derive(Clone)]
pub struct KeyRing(Arc<[[u8; KEY_LEN]]>);

/// What a key makes of a record: 32 bytes that nobody makes without it.
pub type Signature = [u8; KEY_LEN];

impl KeyRing {
    /// Reads the bytes of a key file: 32 bytes as they are, or lines of 64 hex digits. Empty lines and lines that begin with `#`
    /// are passed over.
    ///
    /// # Errors
    /// What is wrong, without a byte of it.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeyRingError> {
        let mut keys: Vec<[u8; KEY_LEN]> = Vec::new();
        if let Ok(key) = bytes.try_into() {
            keys.push(key);
        } else {
            for (i, line) in bytes.split(|b| *b == b'\n').enumerate() {
                let line = line.trim_ascii();
                if line.is_empty() || line.starts_with(b"#") {
                    continue;
                }
                if keys.len() >= limits::SIGNING_KEYS {
                    return Err(KeyRingError::TooMany);
                }
                let text = std::str::from_utf8(line).map(str::to_ascii_lowercase);
                let key = text.ok().and_then(|t| super::digest::from_hex(&t)).ok_or(KeyRingError::Line(i + 1))?;
                keys.push(key);
            }
        }
        if keys.iter().any(|k| k.iter().all(|b| *b == k[0])) {
            return Err(KeyRingError::Weak);
        }
        if keys.is_empty() { Err(KeyRingError::Empty) } else { Ok(Self(keys.into())) }
    }

    /// The first key's signature of these pieces, one after the other.
    #[must_use]
    pub fn sign(&self, pieces: &[&[u8]]) -> Signature {
        // Never empty: `parse` sees to it.
        self.0.first().map_or([0; KEY_LEN], |key| *mac(key, pieces).as_bytes())
    }

    /// Whether one of the keys made this signature. Takes as long for a wrong one as for a right one.
    #[must_use]
    pub fn verify(&self, pieces: &[&[u8]], signature: &Signature) -> bool {
        let signature = blake3::Hash::from_bytes(*signature);
        self.0.iter().fold(false, |found, key| found | (mac(key, pieces) == signature))
    }

    /// How many keys there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

fn mac(key: &[u8; KEY_LEN], pieces: &[&[u8]]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for piece in pieces {
        hasher.update(piece);
    }
    hasher.finalize()
}

impl PartialEq for KeyRing {
    fn eq(&self, other: &Self) -> bool {
        let own = |ring: &Self| -> Vec<blake3::Hash> { ring.0.iter().map(|k| mac(k, &[])).collect() };
        own(self) == own(other)
    }
}

impl Eq for KeyRing {}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyRing({} keys)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(seed: u8) -> String {
        super::super::digest::to_hex(super::super::Digest::of(&[seed]).as_bytes())
    }

    #[test]
    fn key_files_are_read_and_nothing_else_is() {
        let binary = *super::super::Digest::of(&[1]).as_bytes();
        let text = KeyRing::parse(hex(1).as_bytes()).unwrap();
        assert_eq!(KeyRing::parse(&binary).unwrap(), text);
        let spelled = format!("# made today\r\n\n  {}\r\n{}\n", hex(1).to_uppercase(), hex(2));
        let two = KeyRing::parse(spelled.as_bytes()).unwrap();
        assert_eq!((two.count(), two.sign(&[b"x"])), (2, text.sign(&[b"x"])));
        assert_ne!(two, text);
        let bad = |bytes: &[u8]| KeyRing::parse(bytes).unwrap_err();
        assert_eq!(bad(b""), KeyRingError::Empty);
        assert_eq!(bad(b"# nothing\n"), KeyRingError::Empty);
        assert_eq!(bad(&hex(1).as_bytes()[1..]), KeyRingError::Line(1));
        assert_eq!(bad(format!("{}\n{}0\n", hex(1), hex(2)).as_bytes()), KeyRingError::Line(2));
        assert_eq!(bad(&[0xff; 40]), KeyRingError::Line(1));
        assert_eq!(bad(&[7; 32]), KeyRingError::Weak);
        assert_eq!(bad("0".repeat(64).as_bytes()), KeyRingError::Weak);
        let many: String = (0..=u8::try_from(limits::SIGNING_KEYS).unwrap()).map(|i| hex(i) + "\n").collect();
        assert_eq!(bad(many.as_bytes()), KeyRingError::TooMany);
    }

    #[test]
    fn the_first_signs_and_all_verify() {
        let ring = |seeds: &[u8]| {
            let text: String = seeds.iter().map(|s| hex(*s) + "\n").collect();
            KeyRing::parse(text.as_bytes()).unwrap()
        };
        let signature = ring(&[1, 2]).sign(&[b"a", b"b"]);
        assert!(ring(&[1]).verify(&[b"ab"], &signature) && ring(&[2, 1]).verify(&[b"ab"], &signature));
        assert!(!ring(&[2]).verify(&[b"ab"], &signature) && !ring(&[1]).verify(&[b"ba"], &signature));
    }

    #[test]
    fn nothing_shows_a_key() {
        let ring = KeyRing::parse(hex(1).as_bytes()).unwrap();
        assert_eq!(format!("{ring:?}"), "KeyRing(1 keys)");
        let wrong = KeyRing::parse(format!("{}x", hex(1)).as_bytes()).unwrap_err();
        assert!(!format!("{wrong} {wrong:?}").contains(&hex(1)[..8]));
    }
}
