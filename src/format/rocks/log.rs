//! The record layer of a RocksDB MANIFEST: physical records in 32 KiB blocks, joined to logical ones.
//!
//! It decides as RocksDB's `log::Reader` does with checksums on, log number 0 and the recovery mode that is its
//! default for a MANIFEST (tolerate a torn tail), where everything that the reader would report is an error:
//!
//! - a header or a body cut off by the end of the file, and a record whose last fragment is missing, end the
//!   log silently: the writer died there;
//! - a checksum that does not match is an error, also in the last record: no torn write looks like that.

use std::borrow::Cow;

use super::crc32c::masked;
use super::error::{RocksManifestError, damaged, limit};
use crate::limits;

const BLOCK: usize = 32 * 1024;
/// Checksum (4), length (2), type (1).
const HEADER: usize = 7;
/// The same and the log number (4).
const RECYCLABLE_HEADER: usize = 11;

const ZERO: u8 = 0;
const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;
const RECYCLABLE_FULL: u8 = 5;
const RECYCLABLE_FIRST: u8 = 6;
const RECYCLABLE_MIDDLE: u8 = 7;
const RECYCLABLE_LAST: u8 = 8;
const TIMESTAMP_SIZE: u8 = 10;
const RECYCLABLE_TIMESTAMP_SIZE: u8 = 11;
const PREDECESSOR_WAL: u8 = 130;
const RECYCLABLE_PREDECESSOR_WAL: u8 = 131;
/// An unknown type with this bit may be skipped.
const SAFE_IGNORE: u8 = 1 << 7;

/// One logical record.
pub(super) struct Record<'a> {
    /// Where its first fragment's header starts.
    pub(super) offset: u64,
    /// Where its last fragment ends.
    pub(super) end: u64,
    /// The joined payload.
    pub(super) bytes: Cow<'a, [u8]>,
}

/// A reader over the whole log.
pub(super) struct Records<'a> {
    log: &'a [u8],
    /// Next physical record.
    at: usize,
    block_end: usize,
    /// The block in hand is the last one: it is short (possibly empty).
    last_block: bool,
    recycled: bool,
    any_read: bool,
}

enum Physical<'a> {
    Fragment {
        kind: u8,
        offset: u64,
        payload: &'a [u8],
    },
    /// A preallocated, zeroed rest of a block.
    Zeroed {
        offset: u64,
    },
    End,
}

impl<'a> Records<'a> {
    pub(super) fn new(log: &'a [u8]) -> Self {
        Self { log, at: 0, block_end: 0, last_block: false, recycled: false, any_read: false }
    }

    /// The next logical record, `None` at the end or where a torn write begins.
    pub(super) fn next(&mut self) -> Result<Option<Record<'a>>, RocksManifestError> {
        let mut joined: Option<(u64, Vec<u8>)> = None;
        loop {
            let (kind, offset, payload) = match self.physical()? {
                Physical::End => return Ok(None),
                Physical::Zeroed { offset } if joined.is_some() => {
                    return Err(damaged(offset, "a zeroed gap in the middle of a record"));
                }
                Physical::Zeroed { .. } => continue,
                Physical::Fragment { kind, offset, payload } => (kind, offset, payload),
            };
            let unfinished = joined.as_ref().is_some_and(|(_, bytes)| !bytes.is_empty());
            match kind {
                FULL | RECYCLABLE_FULL | FIRST | RECYCLABLE_FIRST if unfinished => {
                    return Err(damaged(offset, "a record begins before the one in front of it has ended"));
                }
                FULL | RECYCLABLE_FULL => return Ok(Some(self.finish(offset, Cow::Borrowed(payload)))),
                FIRST | RECYCLABLE_FIRST => joined = Some((offset, payload.to_vec())),
                MIDDLE | RECYCLABLE_MIDDLE | LAST | RECYCLABLE_LAST => {
                    let Some((start, mut bytes)) = joined.take() else {
                        return Err(damaged(offset, "a fragment without the start of its record"));
                    };
                    if bytes.len().saturating_add(payload.len()) > limits::ROCKS_RECORD {
                        return Err(limit("bytes in one record", limits::ROCKS_RECORD));
                    }
                    bytes.extend_from_slice(payload);
                    if matches!(kind, LAST | RECYCLABLE_LAST) {
                        return Ok(Some(self.finish(start, Cow::Owned(bytes))));
                    }
                    joined = Some((start, bytes));
                }
                TIMESTAMP_SIZE | RECYCLABLE_TIMESTAMP_SIZE | PREDECESSOR_WAL | RECYCLABLE_PREDECESSOR_WAL => {
                    // They describe WALs: nothing in them concerns a MANIFEST's live files.
                    if unfinished {
                        return Err(damaged(offset, "a record about WALs in the middle of another record"));
                    }
                }
                kind if kind & SAFE_IGNORE != 0 => joined = None,
                // The compression type (9) is among these: RocksDB compresses WALs only.
                kind => return Err(RocksManifestError::Unknown { offset, what: format!("record type {kind}") }),
            }
        }
    }

    fn finish(&mut self, offset: u64, bytes: Cow<'a, [u8]>) -> Record<'a> {
        self.any_read = true;
        Record { offset, end: wide(self.at), bytes }
    }

    fn physical(&mut self) -> Result<Physical<'a>, RocksManifestError> {
        loop {
            let rest = self.log.get(self.at..self.block_end).unwrap_or_default();
            let Some((header, _)) = rest.split_first_chunk::<HEADER>() else {
                if self.next_block() {
                    continue;
                }
                return Ok(Physical::End);
            };
            let [c0, c1, c2, c3, l0, l1, kind] = *header;
            let offset = wide(self.at);
            let recyclable = matches!(
                kind,
                RECYCLABLE_FULL..=RECYCLABLE_LAST | RECYCLABLE_TIMESTAMP_SIZE | RECYCLABLE_PREDECESSOR_WAL
            );
            let mut header_len = HEADER;
            if recyclable {
                if self.any_read && !self.recycled {
                    return Err(damaged(offset, "a recyclable record in a log that did not begin with one"));
                }
                self.recycled = true;
                header_len = RECYCLABLE_HEADER;
                if rest.len() < header_len {
                    if self.next_block() {
                        continue;
                    }
                    return Ok(Physical::End);
                }
            }
            let whole = header_len.saturating_add(usize::from(u16::from_le_bytes([l0, l1])));
            let Some(record) = rest.get(..whole) else {
                // In a recycled log, what follows the end is an older log's, not damage.
                if self.last_block || self.recycled {
                    return Ok(Physical::End);
                }
                return Err(damaged(offset, "a record reaches over the end of its block"));
            };
            // A MANIFEST's log number is 0: another one is an older log's record, so the end of this one.
            if recyclable && record.get(HEADER..RECYCLABLE_HEADER) != Some(&[0; 4]) {
                return Ok(Physical::End);
            }
            if kind == ZERO && whole == HEADER {
                self.at = self.block_end;
                return Ok(Physical::Zeroed { offset });
            }
            let covered = record.get(HEADER - 1..).unwrap_or_default();
            if masked(covered) != u32::from_le_bytes([c0, c1, c2, c3]) {
                if self.recycled {
                    return Ok(Physical::End);
                }
                return Err(damaged(offset, "checksum mismatch"));
            }
            self.at = self.at.saturating_add(whole);
            return Ok(Physical::Fragment { kind, offset, payload: record.get(header_len..).unwrap_or_default() });
        }
    }

    /// Moves to the next block, skipping the trailer of this one; false if this one is the last.
    fn next_block(&mut self) -> bool {
        if self.last_block {
            return false;
        }
        self.at = self.block_end;
        self.block_end = self.block_end.saturating_add(BLOCK).min(self.log.len());
        self.last_block = self.block_end - self.at < BLOCK;
        true
    }
}

fn wide(offset: usize) -> u64 {
    u64::try_from(offset).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(super) mod writing {
    //! RocksDB's log writer, for tests.

    use super::{BLOCK, FIRST, FULL, HEADER, LAST, MIDDLE, masked};

    /// One physical record of any type; `number` is the log number of a recyclable one.
    fn framed(kind: u8, number: &[u8], payload: &[u8]) -> Vec<u8> {
        let covered = [&[kind], number, payload].concat();
        let mut record = masked(&covered).to_le_bytes().to_vec();
        record.extend_from_slice(&u16::try_from(payload.len()).unwrap().to_le_bytes());
        record.extend_from_slice(&covered);
        record
    }

    pub(crate) fn physical(kind: u8, payload: &[u8]) -> Vec<u8> {
        framed(kind, &[], payload)
    }

    pub(crate) fn recyclable(kind: u8, number: u32, payload: &[u8]) -> Vec<u8> {
        framed(kind, &number.to_le_bytes(), payload)
    }

    /// A log of these logical records, fragmented as RocksDB fragments them.
    pub(crate) fn log<T: AsRef<[u8]>>(records: impl IntoIterator<Item = T>) -> Vec<u8> {
        let mut log = Vec::new();
        for record in records {
            let mut rest = record.as_ref();
            let mut begin = true;
            loop {
                let room = BLOCK - log.len() % BLOCK;
                if room < HEADER {
                    log.resize(log.len() + room, 0);
                    continue;
                }
                let (now, later) = rest.split_at(rest.len().min(room - HEADER));
                rest = later;
                let kind = match (begin, rest.is_empty()) {
                    (true, true) => FULL,
                    (true, false) => FIRST,
                    (false, false) => MIDDLE,
                    (false, true) => LAST,
                };
                log.extend_from_slice(&physical(kind, now));
                begin = false;
                if rest.is_empty() {
                    break;
                }
            }
        }
        log
    }
}

#[cfg(test)]
mod tests {
    use super::writing::{log, physical, recyclable};
    use super::*;

    #[test]
    fn blocks_and_types_are_rocksdbs_numbers() {
        assert_eq!((BLOCK, HEADER, RECYCLABLE_HEADER, SAFE_IGNORE), (32_768, 7, 11, 128));
    }

    fn all(log: &[u8]) -> Result<Vec<Vec<u8>>, RocksManifestError> {
        let mut records = Records::new(log);
        let mut found = Vec::new();
        while let Some(record) = records.next()? {
            found.push(record.bytes.into_owned());
        }
        Ok(found)
    }

    fn records() -> Vec<Vec<u8>> {
        vec![b"one".to_vec(), vec![7; 100_000], Vec::new(), vec![8; BLOCK - 2 * HEADER], b"end".to_vec()]
    }

    #[test]
    fn fragments_are_joined() {
        assert_eq!(all(&log(records())).unwrap(), records());
        assert_eq!(all(&[]).unwrap(), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn a_log_cut_anywhere_loses_only_its_tail() {
        let whole = log(records());
        let mut last = 0;
        for cut in (0..whole.len()).step_by(97).chain([BLOCK, 2 * BLOCK]).chain(whole.len() - 20..whole.len()) {
            let found = all(&whole[..cut]).unwrap();
            assert!(records().starts_with(&found), "{cut}");
            last = last.max(found.len());
        }
        assert_eq!(last, records().len() - 1);
    }

    #[test]
    fn a_bad_checksum_is_an_error_wherever_it_is() {
        let whole = log(records());
        for at in [8, 40_000, whole.len() - 1] {
            let mut bad = whole.clone();
            bad[at] ^= 1;
            assert!(matches!(all(&bad), Err(RocksManifestError::Damaged { .. })), "{at}");
        }
    }

    #[test]
    fn a_body_over_the_end_of_a_full_block_is_an_error_and_over_the_end_of_the_file_is_not() {
        let mut torn = physical(FULL, b"whole");
        torn.extend_from_slice(&physical(FULL, &[1; 500])[..100]);
        assert_eq!(all(&torn).unwrap(), [b"whole".to_vec()]);
        torn.resize(BLOCK, 0);
        torn[12 + 5] = 0xff;
        assert!(matches!(all(&torn), Err(RocksManifestError::Damaged { offset: 12, .. })));
    }

    #[test]
    fn types_about_wals_and_ignorable_types_are_skipped_and_others_refused() {
        let with = |kind| [physical(FULL, b"a"), physical(kind, b"??"), physical(FULL, b"b")].concat();
        for kind in [TIMESTAMP_SIZE, PREDECESSOR_WAL, 200] {
            assert_eq!(all(&with(kind)).unwrap(), [b"a".to_vec(), b"b".to_vec()], "{kind}");
        }
        for kind in [ZERO, 9, 12, 127] {
            assert!(matches!(all(&with(kind)), Err(RocksManifestError::Unknown { offset: 8, .. })), "{kind}");
        }
        let inside = [physical(FIRST, b"a"), physical(TIMESTAMP_SIZE, b""), physical(LAST, b"b")].concat();
        assert!(matches!(all(&inside), Err(RocksManifestError::Damaged { .. })));
    }

    #[test]
    fn recyclable_records_are_read_and_older_ones_end_the_log() {
        let own = |kind, payload| recyclable(kind, 0, payload);
        let mut recycled =
            [own(RECYCLABLE_FULL, b"a"), own(RECYCLABLE_FIRST, b"b"), own(RECYCLABLE_LAST, b"c")].concat();
        let end = recycled.len();
        assert_eq!(all(&recycled).unwrap(), [b"a".to_vec(), b"bc".to_vec()]);
        recycled.extend_from_slice(&recyclable(RECYCLABLE_FULL, 9, b"x"));
        assert_eq!(all(&recycled).unwrap().len(), 2);
        recycled.truncate(end);
        recycled.extend_from_slice(&own(RECYCLABLE_FULL, b"x"));
        recycled[end] ^= 1;
        assert_eq!(all(&recycled).unwrap().len(), 2);
        // RocksDB's reader never comes back from this one.
        let mixed = [physical(FULL, b"a"), own(RECYCLABLE_FULL, b"b")].concat();
        assert!(matches!(all(&mixed), Err(RocksManifestError::Damaged { .. })));
    }

    #[test]
    fn a_recyclable_record_may_end_with_its_block_and_less_than_a_header_is_no_record() {
        let own = |payload: &[u8]| recyclable(RECYCLABLE_FULL, 0, payload);
        let filled = |left: usize| own(&vec![5; BLOCK - RECYCLABLE_HEADER - left]);
        let exact = [filled(RECYCLABLE_HEADER), own(b""), own(b"end")].concat();
        let found: Vec<usize> = all(&exact).unwrap().iter().map(Vec::len).collect();
        assert_eq!(found, [BLOCK - 2 * RECYCLABLE_HEADER, 0, 3]);
        // Seven bytes say a type; the eleven of a recyclable header do not fit.
        let cut = own(b"").get(..RECYCLABLE_HEADER - 1).unwrap().to_vec();
        let short = [filled(RECYCLABLE_HEADER - 1), cut, own(b"end")].concat();
        let found: Vec<usize> = all(&short).unwrap().iter().map(Vec::len).collect();
        assert_eq!(found, [BLOCK - 2 * RECYCLABLE_HEADER + 1, 3]);
    }

    #[test]
    fn zeroed_space_is_skipped_to_the_end_of_the_block() {
        let mut preallocated = physical(FULL, b"a");
        preallocated.resize(BLOCK, 0);
        preallocated.extend_from_slice(&physical(FULL, b"b"));
        preallocated.resize(BLOCK + 500, 0);
        assert_eq!(all(&preallocated).unwrap(), [b"a".to_vec(), b"b".to_vec()]);
        let mut gap = physical(FIRST, b"a");
        gap.resize(200, 0);
        assert!(matches!(all(&gap), Err(RocksManifestError::Damaged { .. })));
    }

    #[test]
    fn fragments_out_of_order_are_refused() {
        for kinds in [&[MIDDLE][..], &[LAST], &[FIRST, FULL], &[FIRST, FIRST], &[FIRST, MIDDLE, FIRST]] {
            let log: Vec<u8> = kinds.iter().flat_map(|kind| physical(*kind, b"x")).collect();
            assert!(matches!(all(&log), Err(RocksManifestError::Damaged { .. })), "{kinds:?}");
        }
        // An old writer's bug, which RocksDB forgives: an empty first fragment that nothing follows.
        let forgiven = [physical(FIRST, b""), physical(FULL, b"x")].concat();
        assert_eq!(all(&forgiven).unwrap(), [b"x".to_vec()]);
    }
}
