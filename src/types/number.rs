//! Numbers with a meaning: checkpoints and epochs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits;

/// A checkpoint's number within its job, from 1 on. Shown as `chk-42`; 20 digits in store keys, so that they list in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct CheckpointNumber(u64);

/// One coordinator's reign over a job. 0 is a job that no coordinator ever took over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// A number or range out of bounds, or text that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NumberError(pub(super) String);

impl CheckpointNumber {
    /// The first number of a job.
    pub const FIRST: Self = Self(1);

    /// Checks the range.
    ///
    /// # Errors
    /// Zero and `u64::MAX` are not numbers of checkpoints.
    pub fn new(n: u64) -> Result<Self, NumberError> {
        if (1..=limits::CHECKPOINT_NUMBER).contains(&n) {
            Ok(Self(n))
        } else {
            Err(NumberError(format!("{n} is not a checkpoint number (1 to {})", limits::CHECKPOINT_NUMBER)))
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The one after it, while there is one.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).and_then(|n| Self::new(n).ok())
    }

    /// As it stands in store keys: 20 digits.
    #[must_use]
    pub fn key(self) -> String {
        format!("{:020}", self.0)
    }

    /// Reads [`CheckpointNumber::key`] back.
    #[must_use]
    pub fn from_key(text: &str) -> Option<Self> {
        key_number(text).and_then(|n| Self::new(n).ok())
    }
}

/// A number in 20 digits, and nothing else: another spelling would be another key for the same number.
pub(crate) fn key_number(text: &str) -> Option<u64> {
    (text.len() == 20 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

impl Epoch {
    /// As it stands in store keys: 20 digits.
    #[must_use]
    pub fn key(self) -> String {
        format!("{:020}", self.0)
    }

    /// Reads [`Epoch::key`] back.
    #[must_use]
    pub fn from_key(text: &str) -> Option<Self> {
        key_number(text).map(Self)
    }
}

impl fmt::Display for CheckpointNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chk-{}", self.0)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<u64> for CheckpointNumber {
    type Error = NumberError;

    fn try_from(n: u64) -> Result<Self, NumberError> {
        Self::new(n)
    }
}

impl From<CheckpointNumber> for u64 {
    fn from(n: CheckpointNumber) -> Self {
        n.0
    }
}

impl FromStr for CheckpointNumber {
    type Err = NumberError;

    /// Reads `chk-42`. `chk-042` is not accepted: on the mount a checkpoint has one name.
    fn from_str(text: &str) -> Result<Self, NumberError> {
        let parsed = text
            .strip_prefix("chk-")
            .filter(|d| !d.starts_with('0') && d.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|d| d.parse().ok());
        match parsed {
            Some(n) => Self::new(n),
            None => Err(NumberError(format!("{text:?} is not a checkpoint (chk-N, say chk-42)"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_spelling() {
        let n: CheckpointNumber = "chk-42".parse().unwrap();
        assert_eq!((n.get(), n.to_string().as_str(), n.key().as_str()), (42, "chk-42", "00000000000000000042"));
        assert_eq!(CheckpointNumber::from_key(&n.key()), Some(n));
        for bad in ["chk-0", "chk-042", "chk-", "chk-+1", "42", "chk-18446744073709551615", "chk-99999999999999999999"]
        {
            assert!(bad.parse::<CheckpointNumber>().is_err(), "{bad}");
        }
        for bad in ["42", "+0000000000000000042", "99999999999999999999", "00000000000000000000"] {
            assert_eq!(CheckpointNumber::from_key(bad), None, "{bad}");
        }
        assert_eq!(CheckpointNumber::new(u64::MAX - 1).unwrap().next(), None);
    }
}
