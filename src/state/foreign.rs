//! A RocksDB database that another program wrote, looked into: all its column families, counted and read in the order of keys. Nothing is
//! written, and no OPTIONS file is loaded.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rocksdb::{ColumnFamilyDescriptor, DB, IteratorMode, MergeOperands, Options, PrefixRange, ReadOptions};

use super::database::{mount_answers, must_exist};
use super::error::StateError;
use super::options::{DatabaseOptions, join};

/// Tables that are open at once: a process may have 1,024 files by default.
const OPEN_TABLES: i32 = 512;

/// What a column family has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Rows that can be read: neither overwritten nor deleted.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl Count {
    /// Adds a row.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        self.plus(Self { rows: 1, bytes: (key.len() as u64).saturating_add(value.len() as u64) });
    }

    /// Adds what another has.
    pub fn plus(&mut self, other: Self) {
        self.rows = self.rows.saturating_add(other.rows);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Is shown keys and values; says whether to go on.
pub type Visitor<'a, E> = dyn FnMut(&[u8], &[u8]) -> Result<bool, E> + 'a;

/// An open database. Values that were merged are their operands, joined by commas, as in Flink's lists; see [`Foreign::merged`].
pub struct Foreign {
    db: DB,
    path: PathBuf,
    families: Vec<String>,
    merged: Arc<AtomicBool>,
}

impl std::fmt::Debug for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Foreign").field(&self.path).finish()
    }
}

impl Foreign {
    /// Opens it with all its column families. The path must be one that does not change, so never one through `latest`.
    ///
    /// # Errors
    /// When it is not there, is damaged, or has its keys in an order of its own.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        must_exist(path)?;
        mount_answers(path)?;
        let merged = Arc::new(AtomicBool::new(false));
        let options = options(&merged);
        let fail = |e| StateError::unreadable("look into", path, e);
        let families = DB::list_cf(&options, path).map_err(fail)?;
        let descriptors = families.iter().map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
        // Complete checkpoints may bring a WAL along; RocksDB replays it in memory.
        let fail_on_wal = false;
        let db = DB::open_cf_descriptors_read_only(&options, path, descriptors, fail_on_wal).map_err(fail)?;
        Ok(Self { db, path: path.to_owned(), families, merged })
    }

    /// Names of its column families.
    #[must_use]
    pub fn families(&self) -> &[String] {
        &self.families
    }

    /// Whether any value that was read so far had to be joined from operands. That is right for lists; what another merge operator would
    /// make of them is not known.
    #[must_use]
    pub fn merged(&self) -> bool {
        self.merged.load(Ordering::Relaxed)
    }

    /// Reads a column family to its end.
    ///
    /// # Errors
    /// When there is none of that name, or a table is damaged.
    pub fn count(&self, family: &str) -> Result<Count, StateError> {
        let mut count = Count::default();
        self.visit::<StateError>(family, &[], &mut |key, value| {
            count.add(key, value);
            Ok(true)
        })?;
        Ok(count)
    }

    /// Shows the rows whose keys begin with the prefix, in their order, until the visitor says false; whether it never did.
    ///
    /// # Errors
    /// The visitor's; when there is no such family, or a table is damaged.
    pub fn visit<E: From<StateError>>(
        &self,
        family: &str,
        prefix: &[u8],
        visitor: &mut Visitor<'_, E>,
    ) -> Result<bool, E> {
        let handle = self
            .db
            .cf_handle(family)
            .ok_or_else(|| StateError::NoFamily { path: self.path.clone(), family: family.to_owned() })?;
        let mut read = ReadOptions::default();
        // Each row is looked at once.
        read.fill_cache(false);
        if !prefix.is_empty() {
            read.set_iterate_range(PrefixRange(prefix));
        }
        for row in self.db.iterator_cf_opt(handle, read, IteratorMode::Start) {
            let (key, value) = row.map_err(|e| StateError::unreadable("read", &self.path, e))?;
            if !visitor(&key, &value)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn options(merged: &Arc<AtomicBool>) -> Options {
    let mut options = DatabaseOptions::default().to_rocksdb();
    options.set_max_open_files(OPEN_TABLES);
    let merged = Arc::clone(merged);
    // The operator's name is not compared: only OPTIONS files have it.
    options.set_merge_operator_associative(
        "joined",
        move |key: &[u8], before: Option<&[u8]>, operands: &MergeOperands| {
            merged.store(true, Ordering::Relaxed);
            join(key, before, operands)
        },
    );
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::state::Database;

    /// A closed database with a list, a family whose middle was deleted, and what is still in its log.
    fn written() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let options = DatabaseOptions { create: true, ..DatabaseOptions::default() };
        let db = Database::open(home.path(), &["list", "rows"], &options).unwrap();
        for element in ["a", "b", "c"] {
            let mut batch = db.batch();
            batch.append("list", b"k", element.as_bytes()).unwrap();
            batch.commit().unwrap();
        }
        let mut batch = db.batch();
        for n in 0..100u8 {
            batch.put("rows", &[n / 10, n], &[n; 3]).unwrap();
        }
        batch.delete("rows", &[3, 33]).unwrap();
        batch.commit().unwrap();
        home
    }

    #[test]
    fn all_families_are_counted_and_read() {
        let home = written();
        let before: Vec<_> = std::fs::read_dir(home.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        let db = Foreign::open(home.path()).unwrap();
        assert_eq!(db.families(), ["default", "list", "rows"]);
        assert_eq!(db.count("rows").unwrap(), Count { rows: 99, bytes: 99 * 5 });
        assert!(!db.merged());
        let mut seen = Vec::new();
        let ended = db.visit::<StateError>("list", &[], &mut |key, value| {
            seen.push((key.to_vec(), value.to_vec()));
            Ok(true)
        });
        assert!(ended.unwrap() && db.merged());
        assert_eq!(seen, [(b"k".to_vec(), b"a,b,c".to_vec())]);
        let of = |prefix: &[u8], most: usize| {
            let mut keys = Vec::new();
            let ended = db.visit::<StateError>("rows", prefix, &mut |key, _| {
                keys.push(key[1]);
                Ok(keys.len() < most)
            });
            (keys, ended.unwrap())
        };
        assert_eq!(of(&[3], 100), ((30..40).filter(|n| *n != 33).collect(), true));
        assert_eq!(of(&[3, 35], 100), (vec![35], true));
        assert_eq!(of(&[9], 2), (vec![90, 91], false));
        assert_eq!(of(&[0xFF, 0xFF], 2), (vec![], true));
        assert!(matches!(db.count("other").unwrap_err(), StateError::NoFamily { .. }));
        let after: Vec<_> = std::fs::read_dir(home.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(before, after);
    }

    #[test]
    fn what_is_broken_is_damage() {
        let home = written();
        // Opened once more, its log becomes tables.
        let families = ["list", "rows"];
        drop(Database::open(home.path(), &families, &DatabaseOptions::default()).unwrap());
        let tables = || {
            let all = std::fs::read_dir(home.path()).unwrap().map(|e| e.unwrap().path());
            all.filter(|p| p.extension().is_some_and(|e| e == "sst")).collect::<Vec<_>>()
        };
        assert!(!tables().is_empty());
        for table in tables() {
            let mut bytes = std::fs::read(&table).unwrap();
            // In the first block, which holds rows.
            bytes[10] ^= 1;
            std::fs::write(&table, bytes).unwrap();
        }
        let looked = Foreign::open(home.path()).and_then(|db| {
            db.count("list")?;
            db.count("rows")
        });
        let e = looked.unwrap_err();
        assert!(e.kind() == Kind::Damage && e.to_string().contains("verify"), "{e}");
        std::fs::write(tables().first().unwrap(), b"").unwrap();
        assert_eq!(Foreign::open(home.path()).unwrap_err().kind(), Kind::Damage);
        assert_eq!(Foreign::open(&home.path().join("none")).unwrap_err().kind(), Kind::NotFound);
    }
}
