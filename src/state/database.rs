//! A RocksDB database of named column families.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{ColumnFamily, ColumnFamilyDescriptor, DB, IteratorMode, Options, WriteBatch};

use super::error::StateError;
use super::options::DatabaseOptions;
use crate::local::own_mount;

/// A key and its value.
pub type Pair = (Box<[u8]>, Box<[u8]>);

/// An open database.
pub struct Database {
    db: DB,
    path: PathBuf,
    /// For what is made later: column families and tables.
    options: Options,
    /// Of column families that were made later. RocksDB goes on using their compaction filters, and the binding does not keep them: they
    /// must outlive `db`, and do, since they stand after it.
    kept: Vec<Options>,
    /// Names of the column families that are open; the binding does not tell.
    names: BTreeSet<String>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Database").field(&self.path).finish()
    }
}

impl Database {
    /// Opens a database to read and write. All its column families must be named, `default` aside.
    ///
    /// # Errors
    /// When it is not there (and may not be made), is open elsewhere, lacks one of the families, or is damaged.
    pub fn open(path: &Path, families: &[&str], options: &DatabaseOptions) -> Result<Self, StateError> {
        let families = families.iter().map(|name| (*name, options.to_rocksdb()));
        Self::open_families(path, families.collect(), options)
    }

    /// As [`Database::open`], with options of the column families' own.
    pub(super) fn open_families(
        path: &Path,
        families: Vec<(&str, Options)>,
        options: &DatabaseOptions,
    ) -> Result<Self, StateError> {
        if !options.create {
            must_exist(path)?;
        }
        mount_answers(path)?;
        let families = descriptors(families, options);
        let names = families.iter().map(|f| f.name().to_owned()).collect();
        let db = DB::open_cf_descriptors(&options.to_rocksdb(), path, families);
        Self::opened(db, "open", path, options, names)
    }

    fn opened(
        db: Result<DB, rocksdb::Error>,
        action: &'static str,
        path: &Path,
        options: &DatabaseOptions,
        names: BTreeSet<String>,
    ) -> Result<Self, StateError> {
        let db = db.map_err(|e| StateError::rocksdb(action, path, e))?;
        Ok(Self { db, path: path.to_owned(), options: options.to_rocksdb(), kept: Vec::new(), names })
    }

    /// Opens a database to read it, as it is now: nothing is written, and no lock is taken. Some of its column families may be
    /// left out. The path must be one that does not change, so never one through `latest`.
    ///
    /// # Errors
    /// When it is not there, lacks one of the families, or is damaged.
    pub fn open_read_only(path: &Path, families: &[&str], options: &DatabaseOptions) -> Result<Self, StateError> {
        must_exist(path)?;
        mount_answers(path)?;
        // Complete checkpoints may bring a WAL along; RocksDB replays it in memory.
        let fail_on_wal = false;
        let families = descriptors(families.iter().map(|name| (*name, options.to_rocksdb())).collect(), options);
        let names = families.iter().map(|f| f.name().to_owned()).collect();
        let db = DB::open_cf_descriptors_read_only(&options.to_rocksdb(), path, families, fail_on_wal);
        Self::opened(db, "open read-only", path, options, names)
    }

    /// Names of the column families of a database that need not be open.
    ///
    /// # Errors
    /// When it is not there or damaged.
    pub fn families(path: &Path) -> Result<Vec<String>, StateError> {
        DB::list_cf(&DatabaseOptions::default().to_rocksdb(), path)
            .map_err(|e| StateError::rocksdb("list the column families of", path, e))
    }

    /// The database's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn family(&self, family: &str) -> Result<&ColumnFamily, StateError> {
        self.db
            .cf_handle(family)
            .ok_or_else(|| StateError::NoFamily { path: self.path.clone(), family: family.to_owned() })
    }

    fn fail(&self, action: &'static str) -> impl Fn(rocksdb::Error) -> StateError + use<'_> {
        move |e| StateError::rocksdb(action, &self.path, e)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// When the family was not opened, or reading fails.
    pub fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        self.db.get_cf(self.family(family)?, key).map_err(self.fail("read"))
    }

    /// All keys and values of a column family in the order of the keys' bytes. What is written meanwhile is not seen.
    ///
    /// # Errors
    /// When the family was not opened. Each item may be an error of reading; the iterator ends after it.
    pub fn scan(&self, family: &str) -> Result<impl Iterator<Item = Result<Pair, StateError>> + use<'_>, StateError> {
        let pairs = self.db.iterator_cf(self.family(family)?, IteratorMode::Start);
        let fail = self.fail("read");
        Ok(pairs.map(move |pair| pair.map_err(&fail)))
    }

    /// Nothing written yet, to be written in one step.
    #[must_use]
    pub fn batch(&self) -> Batch<'_> {
        Batch { database: self, writes: WriteBatch::default() }
    }

    /// Compacts a column family: what it has is written into new SSTs, and the old ones are removed.
    ///
    /// # Errors
    /// When the family was not opened. What fails on the disk, the next write tells.
    pub fn compact(&self, family: &str) -> Result<(), StateError> {
        self.db.compact_range_cf(self.family(family)?, None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }

    /// RocksDB's own checkpoint: hard links of the SSTs and copies of the rest in a directory that must not exist. Memory is written
    /// to SSTs first, so no WAL is needed to open it.
    ///
    /// # Errors
    /// When the directory exists, or linking or writing fails.
    pub fn checkpoint(&self, directory: &Path) -> Result<(), StateError> {
        let fail = |e| StateError::rocksdb("take a checkpoint of", &self.path, e);
        Checkpoint::new(&self.db).and_then(|c| c.create_checkpoint(directory)).map_err(fail)
    }
}

/// The binding makes the directory whatever the options say.
pub(super) fn must_exist(path: &Path) -> Result<(), StateError> {
    if path.join("CURRENT").exists() { Ok(()) } else { Err(StateError::Missing { path: path.to_owned() }) }
}

/// RocksDB calls the tables of a clone whose mount is away lost, and a repair would drop them: it is never let near them.
pub(super) fn mount_answers(path: &Path) -> Result<(), StateError> {
    match own_mount::dangling(path) {
        Ok(mut away) => match away.pop() {
            Some((link, target, e)) => {
                let source = own_mount::away_error(&link, &target, e);
                Err(StateError::MountAway { path: path.to_owned(), source })
            }
            None => Ok(()),
        },
        // What is wrong with the directory itself, RocksDB says.
        Err(_) => Ok(()),
    }
}

fn descriptors(mut families: Vec<(&str, Options)>, options: &DatabaseOptions) -> Vec<ColumnFamilyDescriptor> {
    if !families.iter().any(|(name, _)| *name == "default") {
        families.push(("default", options.to_rocksdb()));
    }
    families.into_iter().map(|(name, options)| ColumnFamilyDescriptor::new(name, options)).collect()
}

/// Writes that happen together or not at all.
pub struct Batch<'a> {
    database: &'a Database,
    writes: WriteBatch,
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("writes", &self.writes.len()).finish_non_exhaustive()
    }
}

impl Batch<'_> {
    /// Sets a key's value.
    ///
    /// # Errors
    /// When the family was not opened.
    pub fn put(&mut self, family: &str, key: &[u8], value: &[u8]) -> Result<(), StateError> {
        self.writes.put_cf(self.database.family(family)?, key, value);
        Ok(())
    }

    /// Removes a key.
    ///
    /// # Errors
    /// When the family was not opened.
    pub fn delete(&mut self, family: &str, key: &[u8]) -> Result<(), StateError> {
        self.writes.delete_cf(self.database.family(family)?, key);
        Ok(())
    }

    /// Appends an element to a key's list: a comma, where it has elements already, and the bytes.
    ///
    /// # Errors
    /// When the family was not opened.
    pub fn append(&mut self, family: &str, key: &[u8], element: &[u8]) -> Result<(), StateError> {
        self.writes.merge_cf(self.database.family(family)?, key, element);
        Ok(())
    }

    /// Writes it all, but not to RocksDB's log: a crash loses what has not become a table yet. For state that is then restored from a
    /// checkpoint anyway.
    ///
    /// # Errors
    /// When RocksDB cannot write; then nothing of it was written.
    pub fn commit_unlogged(self) -> Result<(), StateError> {
        self.database.db.write_without_wal(self.writes).map_err(self.database.fail("write to"))
    }

    /// Writes it all.
    ///
    /// # Errors
    /// When RocksDB cannot write; then nothing of it was written.
    pub fn commit(self) -> Result<(), StateError> {
        self.database.db.write(self.writes).map_err(self.database.fail("write to"))
    }
}

mod bulk;
pub use bulk::SstWriter;

#[cfg(test)]
mod tests;
