//! Identities, nearly all of them random, and the names of blobs that are made of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::digest::{Digest, Hasher, from_hex, to_hex};
use super::{CheckpointNumber, Name};

/// 128 random bits, as 32 lower-case hex digits: a checkpoint's uid, a store's, cache's or writer's id, a nonce.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid([u8; 16]);

/// Text that is not a uid or a blob name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a {what}: {text:?}")]
pub struct UidError {
    what: &'static str,
    text: String,
}

impl Uid {
    /// A fresh one from the kernel's generator.
    ///
    /// # Errors
    /// When the kernel has no randomness to give; there is no fallback, since two equal uids lose data.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(bytes))
    }

    /// The uid that a checkpoint's copy has in a store: not random, so that an interrupted copy is found again, and one that is there is
    /// known. It is used for one number alone, since it is made of it.
    #[must_use]
    pub fn of_copy(store: Self, job: &Name, number: CheckpointNumber, original: Self) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(b"ckptfs uid of a copy 1\0").update(&store.0).update(&number.get().to_le_bytes());
        let digest = hasher.update(&original.0).update(job.as_str().as_bytes()).finish();
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(digest.as_bytes()) {
            *to = *from;
        }
        Self(bytes)
    }

    /// A uid from its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its 16 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uid({self})")
    }
}

impl FromStr for Uid {
    type Err = UidError;

    fn from_str(text: &str) -> Result<Self, UidError> {
        from_hex(text)
            .map(Self)
            .ok_or_else(|| UidError { what: "uid (32 lower-case hex digits)", text: text.chars().take(80).collect() })
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A blob's name: what it holds and the checkpoint that uploaded it, so that a late delete of one upload can
/// never hit another upload of the same bytes. Shown as `<digest>-<uid>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobName {
    /// Digest of the blob's bytes.
    pub digest: Digest,
    /// Uid of the checkpoint that uploaded it.
    pub uid: Uid,
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.digest, self.uid)
    }
}

impl fmt::Debug for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobName({self})")
    }
}

impl FromStr for BlobName {
    type Err = UidError;

    fn from_str(text: &str) -> Result<Self, UidError> {
        let parsed = text
            .split_once('-')
            .and_then(|(digest, uid)| Some(Self { digest: digest.parse().ok()?, uid: uid.parse().ok()? }));
        parsed.ok_or_else(|| UidError { what: "blob name (<digest>-<uid>)", text: text.chars().take(120).collect() })
    }
}

impl Serialize for BlobName {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlobName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies that were begun by an older version must be found by a newer one.
    #[test]
    fn the_uid_of_a_copy_is_made_of_all_that_it_stands_for_and_never_changes() {
        let (store, of) = (Uid::from_bytes([0xa0; 16]), Uid::from_bytes([0x42; 16]));
        let (job, other) = (Name::encode("my job"), Name::encode("my"));
        let n = |n| CheckpointNumber::new(n).unwrap();
        let uid = Uid::of_copy(store, &job, n(42), of);
        assert_eq!(uid.to_string(), "0a6dbdb1a9e51992dbce23efc31cb240");
        let others = [
            Uid::of_copy(of, &job, n(42), of),
            Uid::of_copy(store, &other, n(42), of),
            Uid::of_copy(store, &job, n(43), of),
            Uid::of_copy(store, &job, n(42), store),
        ];
        assert!(others.iter().all(|other| *other != uid));
    }

    #[test]
    fn blob_names_round_trip_and_have_one_spelling() {
        let name = BlobName { digest: Digest::of(b"x"), uid: Uid::random().unwrap() };
        assert_eq!(name.to_string().parse::<BlobName>().unwrap(), name);
        assert_ne!(Uid::random().unwrap(), Uid::random().unwrap());
        for bad in ["", "-", "00-00", &format!("{name}-"), &name.to_string().to_uppercase()] {
            assert!(bad.parse::<BlobName>().is_err(), "{bad}");
        }
    }
}
