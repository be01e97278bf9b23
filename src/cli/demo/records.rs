//! What flows between the demo's operators: words with their counts, many to a record.
//!
//! A record of words begins with a number that says where it belongs: to the counting tasks the key group of all its words, to the sink
//! the begin of the window that they were counted in.

use ckptfs::error::{Error, Kind, Result};
use ckptfs::state::serializer::{KeySerializer, StringSerializer};
use ckptfs::types::{KeyGroupRange, key_group_of};

/// Key groups of the job, for its whole life: Flink's default for jobs as small as this.
pub(crate) const MAX_PARALLELISM: u32 = 128;

/// A record that is being filled.
#[derive(Debug, Default, Clone)]
pub(crate) struct Batch(Vec<u8>);

impl Batch {
    /// Adds a word, and what the record begins with if it is the first.
    pub(crate) fn push(&mut self, head: i64, word: &[u8], count: i64) -> Result<()> {
        let length = u32::try_from(word.len()).map_err(|_| Error::new(Kind::Invalid, "a word of more than 4 GiB"))?;
        if self.0.is_empty() {
            self.0.extend_from_slice(&head.to_be_bytes());
        }
        self.0.extend_from_slice(&count.to_be_bytes());
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(word);
        Ok(())
    }

    /// Its bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The record's value, where there is a word.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        (!self.0.is_empty()).then(|| std::mem::take(&mut self.0))
    }
}

fn torn() -> Error {
    Error::new(Kind::Other, "internal: a record of words is torn")
}

fn number(bytes: &mut &[u8]) -> Result<i64> {
    let (head, rest) = bytes.split_first_chunk().ok_or_else(torn)?;
    *bytes = rest;
    Ok(i64::from_be_bytes(*head))
}

/// What a record begins with.
pub(crate) fn head(mut value: &[u8]) -> Result<i64> {
    number(&mut value)
}

/// The words of a record and their counts.
pub(crate) fn entries(value: &[u8]) -> impl Iterator<Item = Result<(&str, i64)>> {
    let mut left = value.get(8..).unwrap_or_default();
    std::iter::from_fn(move || {
        if left.is_empty() {
            return None;
        }
        let next = entry(&mut left);
        if next.is_err() {
            left = &[];
        }
        Some(next)
    })
}

fn entry<'a>(left: &mut &'a [u8]) -> Result<(&'a str, i64)> {
    let count = number(left)?;
    let (length, rest) = left.split_first_chunk().ok_or_else(torn)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| torn())?;
    let (word, rest) = rest.split_at_checked(length).ok_or_else(torn)?;
    *left = rest;
    Ok((std::str::from_utf8(word).map_err(|_| torn())?, count))
}

/// The key group of a word.
pub(crate) fn group_of(word: &String) -> u32 {
    key_group_of(StringSerializer.hash(word), MAX_PARALLELISM)
}

/// The counting subtask that a record of words goes to.
pub(crate) fn count_of(value: &[u8], of: usize) -> Result<usize> {
    let wrong = || Error::new(Kind::Other, "internal: a record of no key group");
    let group = u32::try_from(head(value)?).map_err(|_| wrong())?;
    let parallelism = u32::try_from(of).map_err(|_| wrong())?;
    let subtask = KeyGroupRange::subtask_of(MAX_PARALLELISM, parallelism, group).map_err(|_| wrong())?;
    usize::try_from(subtask).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_and_go_to_one_subtask() {
        let mut batch = Batch::default();
        assert_eq!(batch.take(), None);
        batch.push(77, b"one", 1).unwrap();
        batch.push(77, b"", -2).unwrap();
        batch.push(77, b"three", i64::MAX).unwrap();
        let value = batch.take().unwrap();
        assert_eq!(head(&value).unwrap(), 77);
        let all: Vec<_> = entries(&value).collect::<Result<_>>().unwrap();
        assert_eq!(all, [("one", 1), ("", -2), ("three", i64::MAX)]);
        assert_eq!((count_of(&value, 1).unwrap(), count_of(&value, 128).unwrap()), (0, 77));
        for torn in 9..value.len() {
            let read: Vec<_> = entries(&value[..torn]).collect();
            let whole = torn == 23 || torn == 35;
            assert_eq!(read.iter().all(Result::is_ok), whole, "{torn}");
        }
    }
}
