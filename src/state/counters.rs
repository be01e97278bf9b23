//! Counts by key: added up in memory, then read, raised and written in one batch with whatever else must change with them.

use std::collections::HashMap;

use super::database::Batch;
use super::error::StateError;

/// Counts of one column family that are not written yet. Values are 8 bytes, most significant first.
#[derive(Debug)]
pub struct Counters {
    family: String,
    pending: HashMap<Vec<u8>, u64>,
}

impl Counters {
    /// No counts yet.
    #[must_use]
    pub fn new(family: &str) -> Self {
        Self { family: family.to_owned(), pending: HashMap::new() }
    }

    /// Counts `n` more of a key.
    pub fn add(&mut self, key: &[u8], n: u64) {
        match self.pending.get_mut(key) {
            Some(count) => *count = count.saturating_add(n),
            None => {
                self.pending.insert(key.to_vec(), n);
            }
        }
    }

    /// Puts the raised counts into a batch and forgets the pending ones. One batch must not take the counters of a family twice:
    /// it reads what is written, not what the batch holds.
    ///
    /// # Errors
    /// When reading fails, a value is no count, or a count leaves 64 bits. Then the batch is not to be written.
    pub fn write_to(&mut self, batch: &mut Batch<'_>) -> Result<(), StateError> {
        for (key, n) in self.pending.drain() {
            let before = match batch.database().get(&self.family, &key)? {
                Some(value) => decode_count(batch.database().path(), &key, &value)?,
                None => 0,
            };
            let after = before.checked_add(n).ok_or_else(|| StateError::Overflow {
                path: batch.database().path().to_owned(),
                key: String::from_utf8_lossy(&key).into_owned(),
            })?;
            batch.put(&self.family, &key, &after.to_be_bytes())?;
        }
        Ok(())
    }
}

/// A stored count.
///
/// # Errors
/// When the value is none.
pub fn decode_count(path: &std::path::Path, key: &[u8], value: &[u8]) -> Result<u64, StateError> {
    value.try_into().map(u64::from_be_bytes).map_err(|_| StateError::NotACount {
        path: path.to_owned(),
        key: String::from_utf8_lossy(key).into_owned(),
        length: value.len(),
    })
}
