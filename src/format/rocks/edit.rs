//! One record of a RocksDB MANIFEST: a version edit, tag by tag.
//!
//! Follows `VersionEdit::DecodeFrom`, which reads every version's tags. Two things are deliberately looser: the
//! value type in a boundary key's trailer is not checked (newer releases add types, and nothing here depends on it),
//! and tags that say nothing about files are skipped without a look at their content.

use std::collections::BTreeSet;

use super::bytes::Cursor;
use super::error::{RocksManifestError, damaged, limit};
use crate::limits;

const COMPARATOR: u32 = 1;
const LOG_NUMBER: u32 = 2;
const NEXT_FILE_NUMBER: u32 = 3;
const LAST_SEQUENCE: u32 = 4;
const COMPACT_CURSOR: u32 = 5;
const DELETED_FILE: u32 = 6;
const NEW_FILE: u32 = 7;
const PREV_LOG_NUMBER: u32 = 9;
const MIN_LOG_NUMBER_TO_KEEP: u32 = 10;
const NEW_FILE2: u32 = 100;
const NEW_FILE3: u32 = 102;
const NEW_FILE4: u32 = 103;
const COLUMN_FAMILY: u32 = 200;
const COLUMN_FAMILY_ADD: u32 = 201;
const COLUMN_FAMILY_DROP: u32 = 202;
const MAX_COLUMN_FAMILY: u32 = 203;
const IN_ATOMIC_GROUP: u32 = 300;
const BLOB_FILE_ADDITION: u32 = 400;
const BLOB_FILE_GARBAGE: u32 = 401;
/// A tag with this bit is followed by a length and may be skipped, unless it is one of the older ones below.
const SAFE_IGNORE: u32 = 1 << 13;
const DB_ID: u32 = SAFE_IGNORE + 1;
const BLOB_FILE_ADDITION_OLD: u32 = SAFE_IGNORE + 2;
const BLOB_FILE_GARBAGE_OLD: u32 = SAFE_IGNORE + 3;
const WAL_ADDITION: u32 = SAFE_IGNORE + 4;
const WAL_DELETION: u32 = SAFE_IGNORE + 5;
const WAL_ADDITION2: u32 = SAFE_IGNORE + 7;
const WAL_DELETION2: u32 = SAFE_IGNORE + 8;

/// Tags inside a `NEW_FILE4`: each with a length, ended by this one.
const END: u32 = 1;
const MIN_LOG_NUMBER_TO_KEEP_HACK: u32 = 3;
const OLDEST_BLOB_FILE: u32 = 4;
const TAIL_SIZE: u32 = 15;
/// A custom tag with this bit must not be skipped.
const NOT_SAFE_TO_IGNORE: u32 = 1 << 6;
const PATH_ID: u32 = NOT_SAFE_TO_IGNORE + 1;

const BLOB_END: u32 = 0;
const WAL_END: u32 = 1;
const WAL_SYNCED_SIZE: u32 = 2;

/// The two top bits of a packed file number hold the path id.
const FILE_NUMBER_MASK: u64 = (1 << 62) - 1;
/// RocksDB has four paths at most.
const PATHS: u32 = 4;
/// Sequence number and value type behind a user key.
const TRAILER: usize = 8;

/// A table file that an edit adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AddedFile {
    pub(super) level: u32,
    pub(super) number: u64,
    pub(super) path_id: u32,
    pub(super) size: u64,
    /// User keys: without the trailer.
    pub(super) smallest: Vec<u8>,
    pub(super) largest: Vec<u8>,
    pub(super) oldest_blob_file: Option<u64>,
    pub(super) tail_size: Option<u64>,
}

/// A blob file that an edit adds, or the garbage that it counts in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlobCount {
    pub(super) number: u64,
    pub(super) blobs: u64,
    pub(super) bytes: u64,
}

/// What one record says. A field that occurs twice has the last value, as in RocksDB.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) db_id: Option<String>,
    pub(super) comparator: Option<String>,
    pub(super) log_number: Option<u64>,
    pub(super) next_file_number: Option<u64>,
    pub(super) last_sequence: Option<u64>,
    pub(super) min_log_number_to_keep: Option<u64>,
    pub(super) column_family: u32,
    pub(super) family_added: Option<String>,
    pub(super) family_dropped: bool,
    /// Further edits of the atomic group that this one belongs to.
    pub(super) remaining_in_group: Option<u32>,
    pub(super) deleted: BTreeSet<(u32, u64)>,
    pub(super) added: Vec<AddedFile>,
    pub(super) blobs_added: Vec<BlobCount>,
    pub(super) blob_garbage: Vec<BlobCount>,
    /// Number, and size up to which it was synced.
    pub(super) wals_added: Vec<(u64, Option<u64>)>,
    /// WALs below this number are gone; 0 says nothing.
    pub(super) wals_deleted: u64,
}

/// Why one edit could not be decoded, before its offset is known.
enum Fault {
    Damaged(&'static str),
    Unknown(String),
    Limit(&'static str, usize),
}

/// `None` from the cursor is the field's damage.
trait OrDamaged<T> {
    fn or_damaged(self, what: &'static str) -> Result<T, Fault>;
}

impl<T> OrDamaged<T> for Option<T> {
    fn or_damaged(self, what: &'static str) -> Result<T, Fault> {
        self.ok_or(Fault::Damaged(what))
    }
}

impl Edit {
    /// Decodes a whole record; `offset` is where it starts, for the error.
    pub(super) fn decode(record: &[u8], offset: u64) -> Result<Self, RocksManifestError> {
        if record.len() > limits::ROCKS_RECORD {
            return Err(limit("bytes in one record", limits::ROCKS_RECORD));
        }
        let mut edit = Self::default();
        let mut input = Cursor::new(record);
        let result = loop {
            if input.is_empty() {
                break Ok(());
            }
            let tag = input.varint32().or_damaged("a tag that is cut off");
            if let Err(fault) = tag.and_then(|tag| edit.field(tag, &mut input)) {
                break Err(fault);
            }
        };
        match result {
            Ok(()) => Ok(edit),
            Err(Fault::Damaged(what)) => Err(damaged(offset, what)),
            Err(Fault::Unknown(what)) => Err(RocksManifestError::Unknown { offset, what }),
            Err(Fault::Limit(what, bound)) => Err(limit(what, bound)),
        }
    }

    fn field(&mut self, tag: u32, input: &mut Cursor<'_>) -> Result<(), Fault> {
        match tag {
            DB_ID => self.db_id = Some(text(input.prefixed().or_damaged("a malformed database id")?)),
            COMPARATOR => {
                self.comparator = Some(name(input.prefixed().or_damaged("a malformed comparator name")?)?);
            }
            LOG_NUMBER => self.log_number = Some(input.varint64().or_damaged("a malformed log number")?),
            PREV_LOG_NUMBER => {
                input.varint64().or_damaged("a malformed previous log number")?;
            }
            NEXT_FILE_NUMBER => {
                self.next_file_number = Some(input.varint64().or_damaged("a malformed next file number")?);
            }
            LAST_SEQUENCE => self.last_sequence = Some(input.varint64().or_damaged("a malformed last sequence")?),
            MIN_LOG_NUMBER_TO_KEEP => {
                self.min_log_number_to_keep = Some(input.varint64().or_damaged("a malformed minimum log number")?);
            }
            COMPACT_CURSOR => {
                level(input)?;
                user_key(input)?;
            }
            DELETED_FILE => {
                let level = level(input)?;
                let number = input.varint64().or_damaged("a malformed deleted file")?;
                self.deleted.insert((level, number));
                bounded(self.deleted.len())?;
            }
            NEW_FILE | NEW_FILE2 | NEW_FILE3 | NEW_FILE4 => {
                let file = self.new_file(tag, input)?;
                self.added.push(file);
                bounded(self.added.len())?;
            }
            BLOB_FILE_ADDITION | BLOB_FILE_ADDITION_OLD => {
                let blob = blob_count(input, true)?;
                self.blobs_added.push(blob);
                bounded(self.blobs_added.len())?;
            }
            BLOB_FILE_GARBAGE | BLOB_FILE_GARBAGE_OLD => {
                let garbage = blob_count(input, false)?;
                self.blob_garbage.push(garbage);
                bounded(self.blob_garbage.len())?;
            }
            WAL_ADDITION => self.wal(input)?,
            WAL_ADDITION2 => self.wal(&mut Cursor::new(input.prefixed().or_damaged("a malformed WAL addition")?))?,
            WAL_DELETION => self.wals_deleted = input.varint64().or_damaged("a malformed WAL deletion")?,
            WAL_DELETION2 => {
                let mut field = Cursor::new(input.prefixed().or_damaged("a malformed WAL deletion")?);
                self.wals_deleted = field.varint64().or_damaged("a malformed WAL deletion")?;
            }
            COLUMN_FAMILY => self.column_family = input.varint32().or_damaged("a malformed column family id")?,
            COLUMN_FAMILY_ADD => {
                self.family_added = Some(name(input.prefixed().or_damaged("a malformed column family name")?)?);
            }
            COLUMN_FAMILY_DROP => self.family_dropped = true,
            MAX_COLUMN_FAMILY => {
                input.varint32().or_damaged("a malformed maximum column family")?;
            }
            IN_ATOMIC_GROUP => {
                self.remaining_in_group = Some(input.varint32().or_damaged("a malformed atomic group")?);
            }
            tag if tag & SAFE_IGNORE != 0 => {
                input.prefixed().or_damaged("an unknown tag that may be skipped has a malformed length")?;
            }
            tag => return Err(Fault::Unknown(format!("tag {tag}"))),
        }
        Ok(())
    }

    fn new_file(&mut self, tag: u32, input: &mut Cursor<'_>) -> Result<AddedFile, Fault> {
        const WHAT: &str = "a malformed new file";
        let level = level(input)?;
        let number = input.varint64().or_damaged(WHAT)?;
        if number > FILE_NUMBER_MASK {
            return Err(Fault::Damaged("a file number beyond RocksDB's range"));
        }
        let path_id = if tag == NEW_FILE3 { input.varint32().or_damaged(WHAT)? } else { 0 };
        let mut file = AddedFile {
            level,
            number,
            path_id,
            size: input.varint64().or_damaged(WHAT)?,
            smallest: user_key(input)?,
            largest: user_key(input)?,
            oldest_blob_file: None,
            tail_size: None,
        };
        if tag != NEW_FILE {
            input.varint64().or_damaged(WHAT)?;
            input.varint64().or_damaged(WHAT)?;
        }
        if tag == NEW_FILE4 {
            self.custom_fields(&mut file, input)?;
        }
        if file.path_id >= PATHS {
            return Err(Fault::Damaged("a path id beyond RocksDB's range"));
        }
        Ok(file)
    }

    fn custom_fields(&mut self, file: &mut AddedFile, input: &mut Cursor<'_>) -> Result<(), Fault> {
        loop {
            let tag = input.varint32().or_damaged("a new file's custom fields have no end")?;
            if tag == END {
                return Ok(());
            }
            let field = input.prefixed().or_damaged("a new file's custom field is cut off")?;
            let mut value = Cursor::new(field);
            match tag {
                PATH_ID => {
                    let [id] = *field else { return Err(Fault::Damaged("a malformed path id")) };
                    file.path_id = u32::from(id);
                }
                MIN_LOG_NUMBER_TO_KEEP_HACK => {
                    self.min_log_number_to_keep = Some(value.fixed64().or_damaged("a malformed minimum log number")?);
                }
                OLDEST_BLOB_FILE => {
                    let number = value.varint64().or_damaged("a malformed oldest blob file number")?;
                    file.oldest_blob_file = (number != 0).then_some(number);
                }
                TAIL_SIZE => file.tail_size = Some(value.varint64().or_damaged("a malformed tail size")?),
                tag if tag & NOT_SAFE_TO_IGNORE != 0 => {
                    return Err(Fault::Unknown(format!("field {tag} of new file {}", file.number)));
                }
                _ => {}
            }
        }
    }

    fn wal(&mut self, input: &mut Cursor<'_>) -> Result<(), Fault> {
        const WHAT: &str = "a malformed WAL addition";
        let number = input.varint64().or_damaged(WHAT)?;
        let mut synced = None;
        loop {
            match input.varint32().or_damaged(WHAT)? {
                WAL_END => break,
                // RocksDB's "unknown" is the largest value.
                WAL_SYNCED_SIZE => synced = Some(input.varint64().or_damaged(WHAT)?).filter(|size| *size != u64::MAX),
                tag => return Err(Fault::Unknown(format!("field {tag} of WAL {number}"))),
            }
        }
        self.wals_added.push((number, synced));
        bounded(self.wals_added.len())
    }
}

fn level(input: &mut Cursor<'_>) -> Result<u32, Fault> {
    let level = input.varint32().or_damaged("a malformed level")?;
    if level > limits::ROCKS_LEVEL {
        return Err(Fault::Damaged("a level beyond any real one"));
    }
    Ok(level)
}

/// An internal key without its trailer.
fn user_key(input: &mut Cursor<'_>) -> Result<Vec<u8>, Fault> {
    let key = input.prefixed().or_damaged("a malformed key")?;
    let user = key.len().checked_sub(TRAILER).and_then(|len| key.get(..len));
    Ok(user.or_damaged("an internal key without its trailer")?.to_vec())
}

fn blob_count(input: &mut Cursor<'_>, addition: bool) -> Result<BlobCount, Fault> {
    const WHAT: &str = "a malformed blob file entry";
    let number = input.varint64().or_damaged(WHAT)?;
    let blobs = input.varint64().or_damaged(WHAT)?;
    let bytes = input.varint64().or_damaged(WHAT)?;
    if addition {
        // Checksum method and value.
        input.prefixed().or_damaged(WHAT)?;
        input.prefixed().or_damaged(WHAT)?;
    }
    loop {
        match input.varint32().or_damaged(WHAT)? {
            BLOB_END => return Ok(BlobCount { number, blobs, bytes }),
            tag if tag & NOT_SAFE_TO_IGNORE != 0 => {
                return Err(Fault::Unknown(format!("field {tag} of blob file {number}")));
            }
            _ => {
                input.prefixed().or_damaged(WHAT)?;
            }
        }
    }
}

fn bounded(count: usize) -> Result<(), Fault> {
    if count > limits::ROCKS_FILES { Err(Fault::Limit("files", limits::ROCKS_FILES)) } else { Ok(()) }
}

/// A name of a column family or comparator. RocksDB takes any bytes; they are shown, never looked up.
fn name(bytes: &[u8]) -> Result<String, Fault> {
    let name = text(bytes);
    // Measured after the conversion: replaced bytes grow.
    if name.len() > limits::ROCKS_NAME_LEN {
        return Err(Fault::Limit("bytes in one name", limits::ROCKS_NAME_LEN));
    }
    Ok(name)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
pub(super) mod writing {
    //! RocksDB's encodings, for tests.

    use super::{END, NEW_FILE4, TRAILER};

    pub(crate) fn varint(value: u64) -> Vec<u8> {
        let mut rest = value;
        let mut bytes = Vec::new();
        while rest >= 0x80 {
            bytes.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
            rest >>= 7;
        }
        bytes.push(u8::try_from(rest).unwrap());
        bytes
    }

    pub(crate) fn prefixed(bytes: &[u8]) -> Vec<u8> {
        [varint(bytes.len() as u64), bytes.to_vec()].concat()
    }

    /// A tag and varints behind it.
    pub(crate) fn numbers(tag: u32, values: &[u64]) -> Vec<u8> {
        [u64::from(tag)].iter().chain(values).flat_map(|value| varint(*value)).collect()
    }

    /// A tag and a length-prefixed value.
    pub(crate) fn tagged(tag: u32, value: &[u8]) -> Vec<u8> {
        [varint(u64::from(tag)), prefixed(value)].concat()
    }

    /// A key with a trailer.
    pub(crate) fn internal(key: &str) -> Vec<u8> {
        prefixed(&[key.as_bytes(), &[1; TRAILER]].concat())
    }

    /// A `NEW_FILE4` with these custom fields.
    pub(crate) fn new_file(level: u64, number: u64, size: u64, fields: &[(u32, &[u8])]) -> Vec<u8> {
        let fields = fields.iter().flat_map(|(tag, value)| tagged(*tag, value)).collect();
        let head = numbers(NEW_FILE4, &[level, number, size]);
        [head, internal("a"), internal("z"), varint(1), varint(2), fields, varint(u64::from(END))].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::writing::{internal, new_file, numbers, prefixed, tagged, varint};
    use super::*;

    fn decode(parts: &[Vec<u8>]) -> Result<Edit, RocksManifestError> {
        Edit::decode(&parts.concat(), 40)
    }

    fn unknown(what: &str) -> Result<Edit, RocksManifestError> {
        Err(RocksManifestError::Unknown { offset: 40, what: what.to_owned() })
    }

    #[test]
    fn tags_are_the_numbers_that_rocksdb_writes() {
        let tags = [DB_ID, BLOB_FILE_ADDITION_OLD, BLOB_FILE_GARBAGE_OLD, WAL_ADDITION, WAL_DELETION];
        assert_eq!(tags, [8193, 8194, 8195, 8196, 8197]);
        assert_eq!([SAFE_IGNORE, WAL_ADDITION2, WAL_DELETION2], [8192, 8199, 8200]);
        assert_eq!([NOT_SAFE_TO_IGNORE, PATH_ID, END, OLDEST_BLOB_FILE, TAIL_SIZE], [64, 65, 1, 4, 15]);
        assert_eq!(FILE_NUMBER_MASK, 0x3fff_ffff_ffff_ffff);
    }

    #[test]
    fn every_tag_is_read_or_skipped() {
        let edit = decode(&[
            tagged(COMPARATOR, b"leveldb.BytewiseComparator"),
            tagged(DB_ID, b"an id"),
            numbers(LOG_NUMBER, &[11]),
            numbers(PREV_LOG_NUMBER, &[0]),
            numbers(NEXT_FILE_NUMBER, &[12]),
            numbers(LAST_SEQUENCE, &[13]),
            numbers(MIN_LOG_NUMBER_TO_KEEP, &[14]),
            numbers(MAX_COLUMN_FAMILY, &[3]),
            [numbers(COMPACT_CURSOR, &[1]), internal("k")].concat(),
            numbers(DELETED_FILE, &[2, 20]),
            numbers(DELETED_FILE, &[2, 20]),
            [numbers(BLOB_FILE_ADDITION, &[30, 2, 900]), prefixed(b"crc"), prefixed(b"xyz"), varint(0)].concat(),
            [numbers(BLOB_FILE_ADDITION_OLD, &[31, 1, 9]), prefixed(b""), prefixed(b""), tagged(2, b"?"), varint(0)]
                .concat(),
            [numbers(BLOB_FILE_GARBAGE, &[30, 1, 400]), varint(0)].concat(),
            numbers(WAL_ADDITION, &[50, 2, 77, 1]),
            tagged(WAL_ADDITION2, &[numbers(51, &[1])].concat()),
            numbers(WAL_DELETION, &[49]),
            tagged(WAL_DELETION2, &varint(50)),
            tagged(SAFE_IGNORE + 6, b"timestamp"),
            tagged(SAFE_IGNORE + 9, &[1]),
            tagged(SAFE_IGNORE + 10, b"progress"),
            tagged(SAFE_IGNORE + 11, &[1]),
            tagged(SAFE_IGNORE + 999, b"from the future"),
            numbers(IN_ATOMIC_GROUP, &[4]),
            numbers(COLUMN_FAMILY, &[3]),
            tagged(COLUMN_FAMILY_ADD, b"_timer_state/event"),
            numbers(COLUMN_FAMILY_DROP, &[]),
        ])
        .unwrap();
        assert_eq!(edit.comparator.as_deref(), Some("leveldb.BytewiseComparator"));
        assert_eq!(edit.db_id.as_deref(), Some("an id"));
        assert_eq!((edit.log_number, edit.next_file_number, edit.last_sequence), (Some(11), Some(12), Some(13)));
        assert_eq!(edit.min_log_number_to_keep, Some(14));
        assert_eq!(edit.deleted.into_iter().collect::<Vec<_>>(), [(2, 20)]);
        assert_eq!(
            edit.blobs_added.iter().map(|b| (b.number, b.blobs, b.bytes)).collect::<Vec<_>>(),
            [(30, 2, 900), (31, 1, 9)]
        );
        assert_eq!(edit.blob_garbage, [BlobCount { number: 30, blobs: 1, bytes: 400 }]);
        assert_eq!(edit.wals_added, [(50, Some(77)), (51, None)]);
        assert_eq!(edit.wals_deleted, 50);
        assert_eq!(edit.remaining_in_group, Some(4));
        assert_eq!((edit.column_family, edit.family_dropped), (3, true));
        assert_eq!(edit.family_added.as_deref(), Some("_timer_state/event"));
    }

    #[test]
    fn all_four_forms_of_a_new_file_are_read() {
        let keys = [internal("a"), internal("bb")].concat();
        let edit = decode(&[
            [numbers(NEW_FILE, &[0, 1, 100]), keys.clone()].concat(),
            [numbers(NEW_FILE2, &[1, 2, 200]), keys.clone(), varint(5), varint(6)].concat(),
            [numbers(NEW_FILE3, &[2, 3, 1, 300]), keys, varint(5), varint(6)].concat(),
            new_file(
                3,
                4,
                400,
                &[
                    (MIN_LOG_NUMBER_TO_KEEP_HACK, &9u64.to_le_bytes()),
                    (OLDEST_BLOB_FILE, &[7]),
                    (TAIL_SIZE, &[99]),
                    (PATH_ID, &[2]),
                    (12, &[0; 16]),
                    (0, b"?"),
                    (42, b"?"),
                    (128, b"?"),
                ],
            ),
        ])
        .unwrap();
        let seen: Vec<_> = edit.added.iter().map(|f| (f.level, f.number, f.path_id, f.size)).collect();
        assert_eq!(seen, [(0, 1, 0, 100), (1, 2, 0, 200), (2, 3, 1, 300), (3, 4, 2, 400)]);
        assert_eq!((edit.added[0].smallest.as_slice(), edit.added[0].largest.as_slice()), (&b"a"[..], &b"bb"[..]));
        assert_eq!((edit.added[3].oldest_blob_file, edit.added[3].tail_size), (Some(7), Some(99)));
        assert_eq!(edit.min_log_number_to_keep, Some(9));
    }

    #[test]
    fn what_may_not_be_skipped_is_named() {
        assert_eq!(decode(&[tagged(8, b"x")]), unknown("tag 8"));
        assert_eq!(decode(&[numbers(101, &[1])]), unknown("tag 101"));
        assert_eq!(decode(&[new_file(0, 5, 1, &[(66, b"")])]), unknown("field 66 of new file 5"));
        let blob = [numbers(BLOB_FILE_GARBAGE, &[30, 1, 4]), tagged(64, b""), varint(0)].concat();
        assert_eq!(decode(&[blob]), unknown("field 64 of blob file 30"));
        assert_eq!(decode(&[numbers(WAL_ADDITION, &[50, 3, 77, 1])]), unknown("field 3 of WAL 50"));
    }

    #[test]
    fn every_field_that_is_cut_off_is_damage() {
        for whole in [
            tagged(DB_ID, b"an id"),
            numbers(LOG_NUMBER, &[300]),
            numbers(DELETED_FILE, &[0, 300]),
            new_file(1, 2, 3, &[(PATH_ID, &[1])]),
            [numbers(BLOB_FILE_ADDITION, &[30, 2, 900]), prefixed(b"crc"), prefixed(b"xyz"), varint(0)].concat(),
            tagged(WAL_ADDITION2, &numbers(51, &[2, 9, 1])),
            tagged(SAFE_IGNORE + 999, b"from the future"),
        ] {
            assert!(Edit::decode(&whole, 0).is_ok());
            for cut in 1..whole.len() {
                let error = Edit::decode(&whole[..cut], 7).unwrap_err();
                assert!(matches!(error, RocksManifestError::Damaged { offset: 7, .. }), "{error} {cut}");
            }
        }
    }

    #[test]
    fn records_and_lists_are_as_long_as_may_be_and_no_longer() {
        let wals = |n: usize| (0..n as u64).flat_map(|i| numbers(WAL_ADDITION, &[i, 1]));
        let most: Vec<u8> = wals(limits::ROCKS_FILES).collect();
        assert_eq!(Edit::decode(&most, 0).unwrap().wals_added.len(), limits::ROCKS_FILES);
        let more: Vec<u8> = wals(limits::ROCKS_FILES + 1).collect();
        assert!(matches!(Edit::decode(&more, 0), Err(RocksManifestError::Limit { what: "files", .. })));
        // Of a field that may be skipped, so that nothing of it is kept.
        const SKIPPED: u32 = SAFE_IGNORE + 100;
        let skipped = |len: usize| {
            let empty = tagged(SKIPPED, b"");
            let head = [varint(u64::from(SKIPPED)), varint((len - empty.len() - 3) as u64)].concat();
            let mut record = head;
            record.resize(len, 0);
            record
        };
        assert!(Edit::decode(&skipped(limits::ROCKS_RECORD), 0).is_ok());
        let longer = Edit::decode(&skipped(limits::ROCKS_RECORD + 1), 0);
        assert!(matches!(longer, Err(RocksManifestError::Limit { what: "bytes in one record", .. })));
    }

    #[test]
    fn impossible_values_are_refused() {
        let short_key = [numbers(NEW_FILE, &[0, 1, 100]), prefixed(b"1234567"), internal("z")].concat();
        for bad in [
            short_key,
            new_file(0, 1 << 62, 1, &[]),
            new_file(0, 1, 1, &[(PATH_ID, &[4])]),
            new_file(0, 1, 1, &[(PATH_ID, &[0, 0])]),
            new_file(u64::from(limits::ROCKS_LEVEL) + 1, 1, 1, &[]),
        ] {
            assert!(matches!(Edit::decode(&bad, 0), Err(RocksManifestError::Damaged { .. })));
        }
        for good in
            [new_file(0, (1 << 62) - 1, 1, &[]), new_file(u64::from(limits::ROCKS_LEVEL), 1, 1, &[(PATH_ID, &[3])])]
        {
            assert!(Edit::decode(&good, 0).is_ok());
        }
        let longest = tagged(COLUMN_FAMILY_ADD, &vec![b'x'; limits::ROCKS_NAME_LEN]);
        assert!(Edit::decode(&longest, 0).is_ok());
        for (byte, len) in [(b'x', limits::ROCKS_NAME_LEN + 1), (0xff, limits::ROCKS_NAME_LEN / 2)] {
            let long = tagged(COLUMN_FAMILY_ADD, &vec![byte; len]);
            assert!(matches!(Edit::decode(&long, 0), Err(RocksManifestError::Limit { .. })));
        }
    }
}
