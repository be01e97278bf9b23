//! Writes that RocksDB does not have yet. Reads look here first, so that a write is seen at once and a key that is written again and again
//! costs one write of the database per flush.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::state::database::{Batch, Database};
use crate::state::error::StateError;
use crate::state::options::DELIMITER;

/// What happened to a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Write {
    Put(Vec<u8>),
    Delete,
    /// Elements, joined, that come after those that the database has.
    Append(Vec<u8>),
}

/// Writes of one column family by row.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    rows: BTreeMap<Vec<u8>, Write>,
}

impl Overlay {
    /// Bytes of a row and its write, as far as they count against the limit.
    fn cost(row: &[u8], write: &Write) -> usize {
        let value = match write {
            Write::Put(bytes) | Write::Append(bytes) => bytes.len(),
            Write::Delete => 0,
        };
        row.len() + value
    }

    /// Puts a write in the place of an earlier one of the row; says how many bytes it adds.
    pub(super) fn write(&mut self, row: Vec<u8>, write: Write) -> usize {
        let cost = Self::cost(&row, &write);
        self.rows.insert(row, write);
        cost
    }

    /// Appends to whatever the row has; says how many bytes that adds.
    pub(super) fn append(&mut self, row: Vec<u8>, element: &[u8]) -> usize {
        match self.rows.get_mut(&row) {
            Some(Write::Put(bytes) | Write::Append(bytes)) => {
                bytes.push(DELIMITER);
                bytes.extend_from_slice(element);
                element.len() + 1
            }
            // What is in the database is gone, so this is all.
            Some(write @ Write::Delete) => {
                *write = Write::Put(element.to_vec());
                element.len()
            }
            None => self.write(row, Write::Append(element.to_vec())),
        }
    }

    /// The value of a row.
    pub(super) fn get(&self, database: &Database, family: &str, row: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        match self.rows.get(row) {
            Some(Write::Put(bytes)) => Ok(Some(bytes.clone())),
            Some(Write::Delete) => Ok(None),
            Some(Write::Append(bytes)) => Ok(Some(after(database.get(family, row)?, bytes))),
            None => database.get(family, row),
        }
    }

    /// Rows and values from one row on to before another, in order, until the visitor has seen enough and says false.
    pub(super) fn scan(
        &self,
        database: &Database,
        family: &str,
        (from, to): (&[u8], Option<&[u8]>),
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool, StateError>,
    ) -> Result<(), StateError> {
        if to.is_some_and(|to| to <= from) {
            return Ok(());
        }
        let mut stored = database.scan_range(family, from, to)?;
        let mut next_stored = stored.next().transpose()?;
        let until = to.map_or(Bound::Unbounded, Bound::Excluded);
        for (row, write) in self.rows.range::<[u8], _>((Bound::Included(from), until)) {
            while let Some((key, value)) = next_stored.take_if(|(key, _)| key.as_ref() < row.as_slice()) {
                if !visit(&key, &value)? {
                    return Ok(());
                }
                next_stored = stored.next().transpose()?;
            }
            let same = next_stored.take_if(|(key, _)| key.as_ref() == row.as_slice());
            let value = match write {
                Write::Put(bytes) => Some(bytes.clone()),
                Write::Delete => None,
                Write::Append(bytes) => Some(after(same.as_ref().map(|(_, value)| value.to_vec()), bytes)),
            };
            if same.is_some() {
                next_stored = stored.next().transpose()?;
            }
            if let Some(value) = value
                && !visit(row, &value)?
            {
                return Ok(());
            }
        }
        while let Some((key, value)) = next_stored {
            if !visit(&key, &value)? {
                return Ok(());
            }
            next_stored = stored.next().transpose()?;
        }
        Ok(())
    }

    /// Puts all writes into a batch; they stay here until [`Overlay::clear`].
    pub(super) fn write_to(&self, batch: &mut Batch<'_>, family: &str) -> Result<(), StateError> {
        for (row, write) in &self.rows {
            match write {
                Write::Put(bytes) => batch.put(family, row, bytes)?,
                Write::Delete => batch.delete(family, row)?,
                Write::Append(bytes) => batch.append(family, row, bytes)?,
            }
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }
}

/// Elements, and those that come after them.
fn after(before: Option<Vec<u8>>, appended: &[u8]) -> Vec<u8> {
    match before {
        Some(mut bytes) => {
            bytes.push(DELIMITER);
            bytes.extend_from_slice(appended);
            bytes
        }
        None => appended.to_vec(),
    }
}
