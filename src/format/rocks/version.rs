//! Replays a RocksDB MANIFEST into the files that are live at its end.
//!
//! Follows `VersionEditHandler` and `VersionBuilder`, without their comparisons of keys: a foreign comparator does
//! not matter. Column families that were dropped take their files with them; an atomic group counts only when whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::edit::{AddedFile, BlobCount, Edit};
use super::error::{RocksManifestError, damaged, limit};
use super::log::Records;
use crate::limits;

/// Header (30 bytes) and footer (32 bytes) around the records of a blob file.
const BLOB_FILE_FRAME: u64 = 30 + 32;

/// What must be there for the database to open, sorted by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveFiles {
    /// Table files of all column families.
    pub ssts: Vec<LiveSst>,
    /// Blob files of all column families.
    pub blob_files: Vec<LiveBlobFile>,
    /// Column families that are not dropped, by id; `default` (id 0) is always among them, unless the MANIFEST drops it.
    pub column_families: Vec<ColumnFamily>,
    /// WALs below this number hold nothing that is not in the table files. Without two-phase commit; with it, WALs
    /// from [`LiveFiles::min_log_number_to_keep`] are read.
    pub log_number: u64,
    /// The lowest WAL that RocksDB has not released, 0 if the MANIFEST does not say.
    pub min_log_number_to_keep: u64,
    /// WALs that the MANIFEST tracks (only with `track_and_verify_wals_in_manifest`), by number.
    pub wals: Vec<LiveWal>,
    /// Every file number in use was below this when the last edit was written.
    pub next_file_number: u64,
    /// Largest sequence number that the MANIFEST knows of.
    pub last_sequence: u64,
    /// The database's id, when the MANIFEST has it.
    pub db_id: Option<String>,
    /// Bytes of the MANIFEST up to the end of the last edit that counts; what follows is a torn write.
    pub applied_len: u64,
}

/// A live table file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveSst {
    /// File number: the name is [`super::sst_name`] (or the same with `.ldb`).
    pub number: u64,
    /// Exact length in bytes; RocksDB refuses any other.
    pub size: u64,
    /// Column family id.
    pub column_family: u32,
    /// Column family name; bytes that are not UTF-8 are replaced.
    pub column_family_name: Arc<str>,
    /// Level in the tree, 0 first.
    pub level: u32,
    /// Smallest user key, whole.
    pub smallest: Vec<u8>,
    /// Largest user key, whole.
    pub largest: Vec<u8>,
    /// Which of `db_paths` it lies in. Not 0: it is not in the database's directory.
    pub path_id: u32,
    /// Bytes at its end that RocksDB reads to open it, when the MANIFEST says (newer releases write it).
    pub tail_size: Option<u64>,
}

/// A live blob file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveBlobFile {
    /// File number: the name is [`super::blob_name`].
    pub number: u64,
    /// Column family id.
    pub column_family: u32,
    /// Column family name; bytes that are not UTF-8 are replaced.
    pub column_family_name: Arc<str>,
    /// Blobs in it, live or not.
    pub total_blob_count: u64,
    /// Bytes of their records (headers, keys, values).
    pub total_blob_bytes: u64,
    /// Blobs in it that nothing refers to any more.
    pub garbage_blob_count: u64,
    /// Bytes of those.
    pub garbage_blob_bytes: u64,
    /// Exact length in bytes: header, records, footer. RocksDB logs a blob file only after the footer is written and
    /// synced, and does not read one without it.
    pub size: u64,
}

/// A live column family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnFamily {
    /// Its id; never used again after a drop.
    pub id: u32,
    /// Its name; bytes that are not UTF-8 are replaced.
    pub name: Arc<str>,
    /// Its comparator's name, empty if the MANIFEST does not say.
    pub comparator: String,
    /// WALs below this number hold nothing of it that is not in its table files.
    pub log_number: u64,
}

/// A WAL that the MANIFEST tracks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveWal {
    /// File number: the name is [`super::wal_name`].
    pub number: u64,
    /// Bytes that were synced: a shorter file is damaged. `None`: it may even be missing.
    pub synced_size: Option<u64>,
}

/// Replays a whole RocksDB MANIFEST.
///
/// A torn write at the end is ignored as RocksDB ignores it (see [`LiveFiles::applied_len`]).
///
/// # Errors
///
/// Damage that RocksDB would refuse too, entries that may not be skipped and are unknown here, and sizes beyond
/// [`crate::limits`].
pub fn read_manifest(bytes: &[u8]) -> Result<LiveFiles, RocksManifestError> {
    if bytes.len() > limits::ROCKS_MANIFEST {
        return Err(limit("bytes", limits::ROCKS_MANIFEST));
    }
    let mut replay = Replay::new();
    let mut group = Group::default();
    let mut records = Records::new(bytes);
    while let Some(record) = records.next()? {
        let edit = Edit::decode(&record.bytes, record.offset)?;
        match edit.remaining_in_group {
            None if group.edits.is_empty() => replay.apply(edit, record.offset)?,
            None => return Err(damaged(record.offset, "an edit inside an atomic group that is not of it")),
            Some(remaining) => {
                if !group.add(edit, remaining, record.bytes.len(), record.offset)? {
                    continue;
                }
                for (edit, offset) in std::mem::take(&mut group).edits {
                    replay.apply(edit, offset)?;
                }
            }
        }
        replay.applied_len = record.end;
    }
    replay.finish()
}

/// An atomic group that is not complete yet.
#[derive(Default)]
struct Group {
    edits: Vec<(Edit, u64)>,
    bytes: usize,
    size: u64,
}

impl Group {
    /// Adds an edit; true when the group is complete.
    fn add(&mut self, edit: Edit, remaining: u32, bytes: usize, offset: u64) -> Result<bool, RocksManifestError> {
        if self.edits.is_empty() {
            self.size = u64::from(remaining).saturating_add(1);
        }
        if self.edits.len() == self.edits.capacity() {
            // An edit is some thirty times as large as the shortest record that says one: no doubling.
            self.edits.reserve_exact((self.edits.len() / 4).max(4));
        }
        self.edits.push((edit, offset));
        self.bytes = self.bytes.saturating_add(bytes);
        if self.edits.len() > limits::ROCKS_ATOMIC_GROUP {
            return Err(limit("edits in one atomic group", limits::ROCKS_ATOMIC_GROUP));
        }
        if self.bytes > limits::ROCKS_RECORD {
            return Err(limit("bytes in one atomic group", limits::ROCKS_RECORD));
        }
        let seen = u64::try_from(self.edits.len()).unwrap_or(u64::MAX);
        if seen.saturating_add(u64::from(remaining)) != self.size {
            return Err(damaged(offset, "an atomic group that counts its edits wrongly"));
        }
        Ok(seen == self.size)
    }
}

struct Table {
    file: AddedFile,
    /// Whether its oldest blob file counts it among its tables.
    linked: bool,
}

struct Blob {
    total: BlobCount,
    garbage_blobs: u64,
    garbage_bytes: u64,
    linked_tables: usize,
}

struct Family {
    name: Arc<str>,
    comparator: String,
    log_number: u64,
    tables: BTreeMap<u64, Table>,
    blobs: BTreeMap<u64, Blob>,
}

impl Family {
    fn new(name: &str) -> Self {
        let (tables, blobs) = (BTreeMap::new(), BTreeMap::new());
        Self { name: name.into(), comparator: String::new(), log_number: 0, tables, blobs }
    }

    fn files(&self) -> usize {
        self.tables.len().saturating_add(self.blobs.len())
    }

    /// Blob files first: what is said of tables depends on them.
    fn apply(&mut self, edit: Edit, offset: u64) -> Result<(), RocksManifestError> {
        for total in edit.blobs_added {
            let blob = Blob { total, garbage_blobs: 0, garbage_bytes: 0, linked_tables: 0 };
            if self.blobs.insert(total.number, blob).is_some() {
                return Err(damaged(offset, format!("blob file {} is added twice", total.number)));
            }
        }
        for garbage in edit.blob_garbage {
            let Some(blob) = self.blobs.get_mut(&garbage.number) else {
                return Err(damaged(offset, format!("garbage in blob file {}, which is not there", garbage.number)));
            };
            let sums = blob.garbage_blobs.checked_add(garbage.blobs).zip(blob.garbage_bytes.checked_add(garbage.bytes));
            let Some((blobs, bytes)) = sums.filter(|(n, b)| *n <= blob.total.blobs && *b <= blob.total.bytes) else {
                return Err(damaged(offset, format!("blob file {} has more garbage than blobs", garbage.number)));
            };
            (blob.garbage_blobs, blob.garbage_bytes) = (blobs, bytes);
        }
        for (level, number) in edit.deleted {
            let Some(table) = self.tables.remove(&number).filter(|table| table.file.level == level) else {
                return Err(damaged(offset, format!("table {number} is deleted from level {level}, where it is not")));
            };
            let blob = table.file.oldest_blob_file.filter(|_| table.linked).and_then(|blob| self.blobs.get_mut(&blob));
            if let Some(blob) = blob {
                blob.linked_tables = blob.linked_tables.saturating_sub(1);
            }
        }
        for file in edit.added {
            let number = file.number;
            let blob = file.oldest_blob_file.and_then(|blob| self.blobs.get_mut(&blob));
            let linked = blob.is_some();
            if let Some(blob) = blob {
                blob.linked_tables = blob.linked_tables.saturating_add(1);
            }
            if self.tables.insert(number, Table { file, linked }).is_some() {
                return Err(damaged(offset, format!("table {number} is added twice")));
            }
        }
        Ok(())
    }

    /// Blob files from the first that a table refers to, without those that are all garbage: what RocksDB keeps.
    fn live_blobs(&self) -> impl Iterator<Item = &Blob> {
        self.blobs
            .values()
            .skip_while(|blob| blob.linked_tables == 0)
            .filter(|blob| blob.linked_tables > 0 || blob.garbage_blobs < blob.total.blobs)
    }
}

struct Replay {
    families: BTreeMap<u32, Family>,
    wals: BTreeMap<u64, Option<u64>>,
    wals_from: u64,
    files: usize,
    log_number_seen: bool,
    next_file_number: Option<u64>,
    last_sequence: Option<u64>,
    min_log_number_to_keep: u64,
    db_id: Option<String>,
    applied_len: u64,
}

impl Replay {
    fn new() -> Self {
        Self {
            // Never added by an edit.
            families: BTreeMap::from([(0, Family::new("default"))]),
            wals: BTreeMap::new(),
            wals_from: 0,
            files: 0,
            log_number_seen: false,
            next_file_number: None,
            last_sequence: None,
            min_log_number_to_keep: 0,
            db_id: None,
            applied_len: 0,
        }
    }

    fn apply(&mut self, mut edit: Edit, offset: u64) -> Result<(), RocksManifestError> {
        let id = edit.column_family;
        let log_number = edit.log_number;
        let comparator = edit.comparator.take();
        self.db_id = edit.db_id.take().or_else(|| self.db_id.take());
        self.next_file_number = edit.next_file_number.or(self.next_file_number);
        self.last_sequence = edit.last_sequence.or(self.last_sequence);
        self.min_log_number_to_keep = self.min_log_number_to_keep.max(edit.min_log_number_to_keep.unwrap_or(0));

        // One kind of change per edit, in this order: whatever else an edit of the first four kinds says about
        // files, RocksDB does not look at.
        if let Some(name) = &edit.family_added {
            if self.families.len() >= limits::ROCKS_COLUMN_FAMILIES {
                return Err(limit("column families", limits::ROCKS_COLUMN_FAMILIES));
            }
            if self.families.insert(id, Family::new(name)).is_some() {
                return Err(damaged(offset, format!("column family {id} is added twice")));
            }
        } else if edit.family_dropped {
            let Some(family) = self.families.remove(&id) else {
                return Err(damaged(offset, format!("column family {id} is dropped and does not exist")));
            };
            self.files = self.files.saturating_sub(family.files());
            return Ok(());
        } else if !edit.wals_added.is_empty() {
            return self.add_wals(&edit.wals_added, offset);
        } else if edit.wals_deleted != 0 {
            self.wals_from = self.wals_from.max(edit.wals_deleted);
            self.wals = self.wals.split_off(&self.wals_from);
            return Ok(());
        } else {
            let Some(family) = self.families.get_mut(&id) else {
                return Err(damaged(offset, format!("column family {id} has files and does not exist")));
            };
            self.files = self.files.saturating_sub(family.files());
            family.apply(edit, offset)?;
            self.files = self.files.saturating_add(family.files());
            if self.files > limits::ROCKS_FILES {
                return Err(limit("files", limits::ROCKS_FILES));
            }
        }
        if let Some(family) = self.families.get_mut(&id) {
            // RocksDB warns about a log number that falls, and ignores it.
            if let Some(log_number) = log_number.filter(|number| *number >= family.log_number) {
                family.log_number = log_number;
                self.log_number_seen = true;
            }
            family.comparator = comparator.unwrap_or_else(|| std::mem::take(&mut family.comparator));
        }
        Ok(())
    }

    fn add_wals(&mut self, wals: &[(u64, Option<u64>)], offset: u64) -> Result<(), RocksManifestError> {
        for (number, synced) in wals.iter().filter(|(number, _)| *number >= self.wals_from) {
            match self.wals.get_mut(number) {
                None => {
                    self.wals.insert(*number, *synced);
                }
                Some(_) if synced.is_none() => return Err(damaged(offset, format!("WAL {number} is created twice"))),
                // Syncs may be logged out of order.
                Some(known) => *known = (*known).max(*synced),
            }
        }
        if self.wals.len() > limits::ROCKS_FILES {
            return Err(limit("WALs", limits::ROCKS_FILES));
        }
        Ok(())
    }

    fn finish(self) -> Result<LiveFiles, RocksManifestError> {
        let missing = |missing| RocksManifestError::Incomplete { missing };
        if !self.log_number_seen {
            return Err(missing("log number"));
        }
        let next_file_number = self.next_file_number.ok_or(missing("next file number"))?;
        let last_sequence = self.last_sequence.ok_or(missing("last sequence number"))?;

        let mut live = LiveFiles {
            ssts: Vec::with_capacity(self.files),
            blob_files: Vec::new(),
            column_families: Vec::with_capacity(self.families.len()),
            log_number: self.families.values().map(|family| family.log_number).min().unwrap_or(0),
            min_log_number_to_keep: self.min_log_number_to_keep,
            wals: self.wals.into_iter().map(|(number, synced_size)| LiveWal { number, synced_size }).collect(),
            next_file_number,
            last_sequence,
            db_id: self.db_id,
            applied_len: self.applied_len,
        };
        live.log_number = live.log_number.max(live.min_log_number_to_keep);
        for (id, family) in self.families {
            for blob in family.live_blobs() {
                let Some(size) = blob.total.bytes.checked_add(BLOB_FILE_FRAME) else {
                    return Err(damaged(0, format!("blob file {} is larger than any file", blob.total.number)));
                };
                live.blob_files.push(LiveBlobFile {
                    number: blob.total.number,
                    column_family: id,
                    column_family_name: Arc::clone(&family.name),
                    total_blob_count: blob.total.blobs,
                    total_blob_bytes: blob.total.bytes,
                    garbage_blob_count: blob.garbage_blobs,
                    garbage_blob_bytes: blob.garbage_bytes,
                    size,
                });
            }
            live.ssts.extend(family.tables.into_values().map(|Table { file, .. }| LiveSst {
                number: file.number,
                size: file.size,
                column_family: id,
                column_family_name: Arc::clone(&family.name),
                level: file.level,
                smallest: file.smallest,
                largest: file.largest,
                path_id: file.path_id,
                tail_size: file.tail_size,
            }));
            live.column_families.push(ColumnFamily {
                id,
                name: family.name,
                comparator: family.comparator,
                log_number: family.log_number,
            });
        }
        live.ssts.sort_by_key(|sst| sst.number);
        live.blob_files.sort_by_key(|blob| blob.number);
        Ok(live)
    }
}

#[cfg(test)]
mod tests {
    use super::super::edit::writing::{new_file, numbers, prefixed, tagged, varint};
    use super::super::log::writing::log;
    use super::*;

    const LOG_NUMBER: u32 = 2;
    const NEXT_FILE: u32 = 3;
    const LAST_SEQUENCE: u32 = 4;
    const DELETED: u32 = 6;
    const FAMILY: u32 = 200;
    const FAMILY_ADD: u32 = 201;
    const FAMILY_DROP: u32 = 202;
    const GROUP: u32 = 300;
    const BLOB: u32 = 400;
    const GARBAGE: u32 = 401;
    const WAL_ADD: u32 = 8199;
    const WAL_DELETE: u32 = 8200;
    const OLDEST_BLOB: u32 = 4;

    fn base() -> Vec<u8> {
        [numbers(LOG_NUMBER, &[3]), numbers(NEXT_FILE, &[9]), numbers(LAST_SEQUENCE, &[7])].concat()
    }

    fn read(records: &[Vec<u8>]) -> Result<LiveFiles, RocksManifestError> {
        read_manifest(&log([vec![base()], records.to_vec()].concat()))
    }

    fn tables(live: &LiveFiles) -> Vec<(u64, u32, u32)> {
        live.ssts.iter().map(|sst| (sst.number, sst.column_family, sst.level)).collect()
    }

    fn refused(records: &[Vec<u8>]) -> String {
        match read(records) {
            Err(RocksManifestError::Damaged { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    }

    fn family(id: u64) -> Vec<u8> {
        numbers(FAMILY, &[id])
    }

    fn table(number: u64) -> Vec<u8> {
        new_file(0, number, 100 + number, &[])
    }

    fn linked_table(number: u64, blob: u8) -> Vec<u8> {
        new_file(0, number, 100, &[(OLDEST_BLOB, &[blob])])
    }

    fn blob(number: u64, count: u64, bytes: u64) -> Vec<u8> {
        [numbers(BLOB, &[number, count, bytes]), prefixed(b""), prefixed(b""), varint(0)].concat()
    }

    fn garbage(number: u64, count: u64, bytes: u64) -> Vec<u8> {
        [numbers(GARBAGE, &[number, count, bytes]), varint(0)].concat()
    }

    fn group(remaining: u64, edit: &[u8]) -> Vec<u8> {
        [numbers(GROUP, &[remaining]), edit.to_vec()].concat()
    }

    #[test]
    fn tables_come_move_and_go() {
        let moved = [numbers(DELETED, &[0, 11]), new_file(2, 11, 111, &[])].concat();
        let live = read(&[[table(11), table(12)].concat(), moved, numbers(DELETED, &[0, 12])]).unwrap();
        assert_eq!(tables(&live), [(11, 0, 2)]);
        assert_eq!((live.ssts[0].smallest.as_slice(), live.ssts[0].largest.as_slice()), (&b"a"[..], &b"z"[..]));
        assert_eq!((live.log_number, live.next_file_number, live.last_sequence), (3, 9, 7));
        assert_eq!(refused(&[table(11), table(11)]), "table 11 is added twice");
        assert!(refused(&[table(11), numbers(DELETED, &[1, 11])]).contains("where it is not"));
        assert!(refused(&[numbers(DELETED, &[0, 11])]).contains("where it is not"));
    }

    #[test]
    fn dropped_families_lose_their_files_and_ids_count_once() {
        let add = |id, name: &[u8]| [family(id), tagged(FAMILY_ADD, name)].concat();
        let drop = |id| [family(id), numbers(FAMILY_DROP, &[])].concat();
        let into = |id, edit: Vec<u8>| [family(id), edit].concat();
        let live =
            read(&[add(1, b"a"), into(1, table(11)), add(2, b"b"), into(2, table(12)), drop(1), table(13)]).unwrap();
        assert_eq!(tables(&live), [(12, 2, 0), (13, 0, 0)]);
        let names: Vec<_> = live.column_families.iter().map(|family| (family.id, &*family.name)).collect();
        assert_eq!(names, [(0, "default"), (2, "b")]);
        assert_eq!(&*live.ssts[0].column_family_name, "b");
        // A new family's WALs are all needed until it says otherwise.
        assert_eq!(live.log_number, 0);
        assert!(refused(&[add(0, b"again")]).contains("added twice"));
        assert!(refused(&[drop(4)]).contains("does not exist"));
        assert!(refused(&[into(4, table(11))]).contains("does not exist"));
        assert!(refused(&[add(1, b"a"), drop(1), into(1, table(11))]).contains("does not exist"));
    }

    #[test]
    fn an_atomic_group_counts_when_it_is_whole() {
        let records = [table(10), group(2, &table(11)), group(1, &table(12)), group(0, &table(13)), table(14)];
        assert_eq!(tables(&read(&records).unwrap()).len(), 5);
        for cut in 1..4 {
            let live = read(&records[..cut]).unwrap();
            assert_eq!(tables(&live), [(10, 0, 0)], "{cut}");
            assert_eq!(live.applied_len, log([base(), table(10)]).len() as u64);
        }
        assert!(refused(&[group(2, &table(11)), table(12)]).contains("atomic group"));
        assert!(refused(&[group(2, &table(11)), group(2, &table(12))]).contains("atomic group"));
        assert!(refused(&[group(2, &table(11)), group(0, &table(12))]).contains("atomic group"));
        assert_eq!(tables(&read(&[group(u64::from(u32::MAX), &table(11))]).unwrap()), []);
    }

    #[test]
    fn a_group_has_little_more_room_than_edits() {
        let mut waiting = Group::default();
        for seen in 1..5_000u32 {
            let edit = Edit { remaining_in_group: Some(10_000 - seen), ..Edit::default() };
            assert!(!waiting.add(edit, 10_000 - seen, 3, 0).unwrap());
            let (edits, room) = (waiting.edits.len(), waiting.edits.capacity());
            assert!(room <= edits + edits / 4 + 4, "{edits} {room}");
        }
        // The shortest record of one: a header, a tag of two bytes and a number.
        assert!(size_of::<(Edit, u64)>() <= 32 * (7 + 2 + 1));
    }

    #[test]
    fn blob_files_live_as_in_rocksdb() {
        let live = |records: &[Vec<u8>]| -> Vec<(u64, u64)> {
            read(records).unwrap().blob_files.iter().map(|blob| (blob.number, blob.size)).collect()
        };
        let added = [blob(20, 4, 400), blob(21, 1, 100), blob(22, 2, 200), linked_table(11, 21)].concat();
        // From the first that a table refers to.
        assert_eq!(live(std::slice::from_ref(&added)), [(21, 162), (22, 262)]);
        assert_eq!(live(&[added.clone(), numbers(DELETED, &[0, 11])]), []);
        assert_eq!(live(&[added.clone(), garbage(22, 2, 200)]), [(21, 162)]);
        assert_eq!(live(&[added.clone(), garbage(22, 1, 100)]), [(21, 162), (22, 262)]);
        // A table still refers to it, though nothing in it is counted as alive.
        assert_eq!(live(&[added.clone(), garbage(21, 1, 100)]), [(21, 162), (22, 262)]);
        assert_eq!(live(&[blob(20, 4, 400), table(11)]), []);
        assert!(refused(&[added.clone(), garbage(22, 3, 200)]).contains("more garbage"));
        assert!(refused(&[added.clone(), garbage(22, 1, u64::MAX)]).contains("more garbage"));
        assert!(refused(&[garbage(22, 1, 1)]).contains("not there"));
        assert!(refused(&[added, blob(20, 1, 1)]).contains("added twice"));
        let endless = [blob(20, 1, u64::MAX), linked_table(11, 20)].concat();
        assert!(refused(&[endless]).contains("larger than any file"));
    }

    #[test]
    fn tracked_wals_are_those_that_are_not_deleted() {
        let add = |number, size| tagged(WAL_ADD, &numbers(number, &[2, size, 1]));
        let created = |number| tagged(WAL_ADD, &numbers(number, &[1]));
        let live =
            read(&[created(4), created(5), add(5, 50), add(5, 40), created(6), tagged(WAL_DELETE, &[5]), add(4, 9)]);
        let wals: Vec<_> = live.unwrap().wals.iter().map(|wal| (wal.number, wal.synced_size)).collect();
        assert_eq!(wals, [(5, Some(50)), (6, None)]);
        assert!(refused(&[created(4), created(4)]).contains("created twice"));
    }

    #[test]
    fn what_every_manifest_has_is_asked_for() {
        let whole = [numbers(LOG_NUMBER, &[3]), numbers(NEXT_FILE, &[9]), numbers(LAST_SEQUENCE, &[7])];
        for missing in 0..whole.len() {
            let records: Vec<_> = (0..whole.len()).filter(|n| *n != missing).map(|n| whole[n].clone()).collect();
            assert!(matches!(read_manifest(&log(records)), Err(RocksManifestError::Incomplete { .. })), "{missing}");
        }
        assert!(matches!(read_manifest(&[]), Err(RocksManifestError::Incomplete { .. })));
    }

    #[test]
    fn log_numbers_rise_only_and_the_lowest_family_decides() {
        let add = [family(1), tagged(FAMILY_ADD, b"a"), numbers(LOG_NUMBER, &[5])].concat();
        let records = [numbers(LOG_NUMBER, &[8]), numbers(LOG_NUMBER, &[6]), add];
        assert_eq!(read(&records).unwrap().log_number, 5);
        let kept = numbers(10, &[6]);
        let live = read(&[&records[..], &[kept, numbers(10, &[2])]].concat()).unwrap();
        assert_eq!((live.log_number, live.min_log_number_to_keep), (6, 6));
    }

    #[test]
    fn a_live_list_beyond_the_bound_is_refused() {
        let many = |range: std::ops::Range<u64>| range.flat_map(table).collect::<Vec<u8>>();
        let half = limits::ROCKS_FILES as u64 / 2;
        let most = [many(1..half), many(half..2 * half + 1)];
        assert_eq!(read(&most).unwrap().ssts.len(), limits::ROCKS_FILES);
        let more = [&most[..], &[table(2 * half + 1)]].concat();
        assert!(matches!(read(&more), Err(RocksManifestError::Limit { what: "files", .. })));
        let wals = |range: std::ops::Range<usize>| {
            range.flat_map(|n| tagged(WAL_ADD, &numbers(u32::try_from(n).unwrap(), &[1]))).collect::<Vec<u8>>()
        };
        let half = limits::ROCKS_FILES / 2;
        let most = [wals(9..half), wals(half..limits::ROCKS_FILES + 9)];
        assert_eq!(read(&most).unwrap().wals.len(), limits::ROCKS_FILES);
        let more = [&most[..], &[wals(0..1)]].concat();
        assert!(matches!(read(&more), Err(RocksManifestError::Limit { what: "WALs", .. })));
    }

    #[test]
    fn an_atomic_group_is_as_long_as_may_be_and_no_longer() {
        let of = |edits: usize| -> Vec<Vec<u8>> { (0..edits as u64).rev().map(|left| group(left, &[])).collect() };
        assert!(read(&of(limits::ROCKS_ATOMIC_GROUP)).is_ok());
        let longer = read(&of(limits::ROCKS_ATOMIC_GROUP + 1));
        assert!(matches!(longer, Err(RocksManifestError::Limit { what: "edits in one atomic group", .. })));
    }
}
