//! Keys of the store. They are built only from typed ids, never from strings that an object holds, and every key has one spelling.

use std::fmt;

use super::number::key_number;
use super::{BlobName, CheckpointNumber, Epoch, Name, Uid};

/// The kinds of record, which come first in a key, so that what decisions need is listed alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordKind {
    /// Blobs.
    Blobs,
    /// Reigns.
    Epoch,
    /// Begins of checkpoints.
    Intent,
    /// Acks of subtasks.
    Task,
    /// Ends of checkpoints.
    Outcome,
    /// Out of the view.
    Hidden,
    /// Dead for ever.
    Expired,
    /// Kept for somebody.
    Pin,
    /// Numbers below are gone.
    Floor,
    /// Hints.
    Head,
}

impl RecordKind {
    /// The first part of its keys.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Blobs => "blobs",
            Self::Epoch => "epoch",
            Self::Intent => "intent",
            Self::Task => "task",
            Self::Outcome => "outcome",
            Self::Hidden => "hidden",
            Self::Expired => "expired",
            Self::Pin => "pin",
            Self::Floor => "floor",
            Self::Head => "head",
        }
    }
}

/// What a key stands for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyParts {
    /// `ckptfs.json`
    Store,
    /// `blobs/3f/<digest>-<uid>`
    Blob(BlobName),
    /// `epoch/<job>/<k>.json`
    Epoch(Name, Epoch),
    /// `intent/<job>/<n>.json`
    Intent(Name, CheckpointNumber),
    /// `task/<job>/<n>/<operator>/<subtask>.json`
    Task(Name, CheckpointNumber, Name, u32),
    /// `outcome/<job>/<n>.json`
    Outcome(Name, CheckpointNumber),
    /// `hidden/<job>/<n>/<nonce>.json`
    Hidden(Name, CheckpointNumber, Uid),
    /// `expired/<job>/<n>.json`
    Expired(Name, CheckpointNumber),
    /// `pin/<job>/<n>/<holder>-<nonce>.json`
    Pin(Name, CheckpointNumber, Uid, Uid),
    /// `floor/<job>/<f>.json`
    Floor(Name, CheckpointNumber),
    /// `head/<job>.json`
    Head(Name),
}

/// A key of the store.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    parts: KeyParts,
    text: String,
}

impl Key {
    /// The key of these parts.
    #[must_use]
    pub fn new(parts: KeyParts) -> Self {
        let text = match &parts {
            KeyParts::Store => "ckptfs.json".to_owned(),
            KeyParts::Blob(name) => format!("blobs/{}/{name}", &name.digest.to_hex()[..2]),
            KeyParts::Epoch(job, k) => format!("epoch/{job}/{}.json", k.key()),
            KeyParts::Intent(job, n) => format!("intent/{job}/{}.json", n.key()),
            KeyParts::Task(job, n, operator, subtask) => format!("task/{job}/{}/{operator}/{subtask}.json", n.key()),
            KeyParts::Outcome(job, n) => format!("outcome/{job}/{}.json", n.key()),
            KeyParts::Hidden(job, n, nonce) => format!("hidden/{job}/{}/{nonce}.json", n.key()),
            KeyParts::Expired(job, n) => format!("expired/{job}/{}.json", n.key()),
            KeyParts::Pin(job, n, holder, nonce) => format!("pin/{job}/{}/{holder}-{nonce}.json", n.key()),
            KeyParts::Floor(job, f) => format!("floor/{job}/{}.json", f.key()),
            KeyParts::Head(job) => format!("head/{job}.json"),
        };
        Self { parts, text }
    }

    /// The store's own record.
    #[must_use]
    pub fn store() -> Self {
        Self::new(KeyParts::Store)
    }

    /// A blob.
    #[must_use]
    pub fn blob(name: &BlobName) -> Self {
        Self::new(KeyParts::Blob(*name))
    }

    /// A reign's begin.
    #[must_use]
    pub fn epoch(job: &Name, epoch: Epoch) -> Self {
        Self::new(KeyParts::Epoch(job.clone(), epoch))
    }

    /// A checkpoint's begin.
    #[must_use]
    pub fn intent(job: &Name, n: CheckpointNumber) -> Self {
        Self::new(KeyParts::Intent(job.clone(), n))
    }

    /// A subtask's ack.
    #[must_use]
    pub fn task(job: &Name, n: CheckpointNumber, operator: &Name, subtask: u32) -> Self {
        Self::new(KeyParts::Task(job.clone(), n, operator.clone(), subtask))
    }

    /// A checkpoint's end.
    #[must_use]
    pub fn outcome(job: &Name, n: CheckpointNumber) -> Self {
        Self::new(KeyParts::Outcome(job.clone(), n))
    }

    /// A hidden record.
    #[must_use]
    pub fn hidden(job: &Name, n: CheckpointNumber, nonce: Uid) -> Self {
        Self::new(KeyParts::Hidden(job.clone(), n, nonce))
    }

    /// A tombstone.
    #[must_use]
    pub fn expired(job: &Name, n: CheckpointNumber) -> Self {
        Self::new(KeyParts::Expired(job.clone(), n))
    }

    /// A pin.
    #[must_use]
    pub fn pin(job: &Name, n: CheckpointNumber, holder: Uid, nonce: Uid) -> Self {
        Self::new(KeyParts::Pin(job.clone(), n, holder, nonce))
    }

    /// A floor.
    #[must_use]
    pub fn floor(job: &Name, f: CheckpointNumber) -> Self {
        Self::new(KeyParts::Floor(job.clone(), f))
    }

    /// A hint.
    #[must_use]
    pub fn head(job: &Name) -> Self {
        Self::new(KeyParts::Head(job.clone()))
    }

    /// What it stands for.
    #[must_use]
    pub fn parts(&self) -> &KeyParts {
        &self.parts
    }

    /// The text below the store's root.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Reads a key back. Another spelling of the same parts is not a key.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let parts = Self::parse_parts(text)?;
        let key = Self::new(parts);
        (key.text == text).then_some(key)
    }

    fn parse_parts(text: &str) -> Option<KeyParts> {
        if text == "ckptfs.json" {
            return Some(KeyParts::Store);
        }
        let name = |t: &str| Name::parse(t).ok();
        let number = |t: &str| CheckpointNumber::from_key(t);
        let pieces: Vec<&str> = text.split('/').take(6).collect();
        if let ["blobs", _, blob] = pieces.as_slice() {
            return Some(KeyParts::Blob(blob.parse().ok()?));
        }
        let (last, front) = pieces.split_last()?;
        let stem = last.strip_suffix(".json")?;
        Some(match front {
            ["epoch", job] => KeyParts::Epoch(name(job)?, Epoch(key_number(stem)?)),
            ["intent", job] => KeyParts::Intent(name(job)?, number(stem)?),
            ["task", job, n, operator] => KeyParts::Task(name(job)?, number(n)?, name(operator)?, stem.parse().ok()?),
            ["outcome", job] => KeyParts::Outcome(name(job)?, number(stem)?),
            ["hidden", job, n] => KeyParts::Hidden(name(job)?, number(n)?, stem.parse().ok()?),
            ["expired", job] => KeyParts::Expired(name(job)?, number(stem)?),
            ["pin", job, n] => {
                let (holder, nonce) = stem.split_once('-')?;
                KeyParts::Pin(name(job)?, number(n)?, holder.parse().ok()?, nonce.parse().ok()?)
            }
            ["floor", job] => KeyParts::Floor(name(job)?, number(stem)?),
            ["head"] => KeyParts::Head(name(stem)?),
            _ => return None,
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.text)
    }
}

/// The front of keys, for listings. Ends with a slash.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix(String);

impl Prefix {
    /// All records of a kind, over all jobs.
    #[must_use]
    pub fn kind(kind: RecordKind) -> Self {
        Self(format!("{}/", kind.as_str()))
    }

    /// A job's records of a kind.
    #[must_use]
    pub fn job(kind: RecordKind, job: &Name) -> Self {
        Self(format!("{}/{job}/", kind.as_str()))
    }

    /// A checkpoint's records of a kind, where a kind has several.
    #[must_use]
    pub fn checkpoint(kind: RecordKind, job: &Name, n: CheckpointNumber) -> Self {
        Self(format!("{}/{job}/{}/", kind.as_str(), n.key()))
    }

    /// All blobs.
    #[must_use]
    pub fn blobs() -> Self {
        Self::kind(RecordKind::Blobs)
    }

    /// The whole store.
    #[must_use]
    pub fn all() -> Self {
        Self(String::new())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Digest;

    #[test]
    fn keys_read_back_and_have_one_spelling() {
        let job = Name::encode("my job");
        let op = Name::encode("db");
        let n = CheckpointNumber::new(42).unwrap();
        let (a, b) = (Uid::from_bytes([7; 16]), Uid::from_bytes([9; 16]));
        let blob = BlobName { digest: Digest::of(b"x"), uid: a };
        let keys = [
            Key::store(),
            Key::blob(&blob),
            Key::epoch(&job, Epoch(0)),
            Key::intent(&job, n),
            Key::task(&job, n, &op, 0),
            Key::outcome(&job, n),
            Key::hidden(&job, n, a),
            Key::expired(&job, n),
            Key::pin(&job, n, a, b),
            Key::floor(&job, n),
            Key::head(&job),
        ];
        for key in keys {
            assert_eq!(Key::parse(key.as_str()), Some(key.clone()));
            for other in [format!("/{key}"), format!("{key}/"), format!("{key} "), key.as_str().to_uppercase()] {
                assert_eq!(Key::parse(&other), None, "{other}");
            }
        }
        assert_eq!(Key::outcome(&job, n).as_str(), "outcome/my%20job/00000000000000000042.json");
        for bad in [
            "",
            "blobs/00/x",
            "task/app/00000000000000000042/db/00.json",
            "task/app/00000000000000000042/db/+1.json",
            "intent/../00000000000000000042.json",
            "intent/app/42.json",
            "head/a/b.json",
        ] {
            assert_eq!(Key::parse(bad), None, "{bad}");
        }
    }
}
