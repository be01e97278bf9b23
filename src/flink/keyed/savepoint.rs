//! The rows of a savepoint in the canonical form: those of one key group after the other, each group where the handle says.

use std::borrow::Cow;

use super::meta::BackendMeta;
use crate::flink::FlinkError;
use crate::flink::wire::Cursor;

/// On the first byte of a key, whose key group never needs it: the state changes, or the group ends, behind this row.
const LAST: u8 = 0x80;
/// In place of a state: the group ends.
const END: u16 = 0xFFFF;

/// A row of a savepoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavepointRow<'a> {
    /// The place of its state in the backend's description.
    pub state: u16,
    /// Its key, as in RocksDB.
    pub key: Cow<'a, [u8]>,
    /// Its value, as in RocksDB.
    pub value: &'a [u8],
}

/// The rows of a key group, up to its end or the first error.
#[derive(Debug, Clone)]
pub struct KeyGroupRows<'a> {
    input: Cursor<'a>,
    /// `None` when there is nothing more.
    state: Option<u16>,
}

impl<'a> KeyGroupRows<'a> {
    /// At the start of a key group's bytes, which may go on behind it. A group at offset 0 is empty and has no bytes.
    ///
    /// # Errors
    /// When the groups are compressed, or nothing is there.
    pub fn new(meta: &BackendMeta, bytes: &'a [u8]) -> Result<Self, FlinkError> {
        if meta.compressed {
            return Err(FlinkError::Version {
                what: "the compression of a savepoint's key groups",
                version: 1,
                known: "0 (none)",
                advice: "take the savepoint without execution.checkpointing.snapshot-compression, or in the native form",
            });
        }
        let mut input = Cursor::new("a key group of a savepoint", bytes);
        let state = Some(input.u16()?).filter(|state| *state != END);
        Ok(Self { input, state })
    }

    /// Bytes that were read so far.
    #[must_use]
    pub fn length(&self) -> usize {
        self.input.at()
    }

    fn row(&mut self, state: u16) -> Result<SavepointRow<'a>, FlinkError> {
        let key = self.input.bytes("bytes of a key")?;
        let value = self.input.bytes("bytes of a value")?;
        let Some((first, rest)) = key.split_first() else { return Err(self.input.damaged("a key is empty")) };
        if first & LAST == 0 {
            return Ok(SavepointRow { state, key: key.into(), value });
        }
        self.state = Some(self.input.u16()?).filter(|state| *state != END);
        Ok(SavepointRow { state, key: [&[first & !LAST], rest].concat().into(), value })
    }
}

impl<'a> Iterator for KeyGroupRows<'a> {
    type Item = Result<SavepointRow<'a>, FlinkError>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.row(self.state?);
        if row.is_err() {
            self.state = None;
        }
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_group_ends_with_an_error() {
        let mut meta = BackendMeta {
            compressed: false,
            key: None,
            states: Vec::new(),
            declared: None,
            stopped_at: None,
            length: 0,
        };
        let group = [0, 0, 0, 0, 0, 1, 7, 0, 0, 0, 1, 9, 0, 0, 0, 1, 0x87, 0, 0, 0, 0, 0xFF, 0xFF, 1, 2];
        let mut rows = KeyGroupRows::new(&meta, &group).unwrap();
        let found: Vec<_> = rows.by_ref().map(Result::unwrap).collect();
        assert_eq!((found.len(), rows.length()), (2, group.len() - 2));
        assert_eq!((&*found[1].key, found[1].value), (&[7][..], &[][..]));
        for cut in 2..group.len() - 2 {
            assert!(KeyGroupRows::new(&meta, &group[..cut]).unwrap().last().unwrap().is_err(), "{cut}");
        }
        assert!(KeyGroupRows::new(&meta, &group[..1]).is_err());
        assert!(KeyGroupRows::new(&meta, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap().next().unwrap().is_err());
        meta.compressed = true;
        assert!(KeyGroupRows::new(&meta, &group).is_err());
    }
}
