//! Whole ranges and tables of a database: what a restore at another parallelism needs to clip one and to fill it from others.

use std::path::{Path, PathBuf};

use rocksdb::{Direction, IngestExternalFileOptions, IteratorMode, Options, ReadOptions, SstFileWriter};

use super::{Database, Pair};
use crate::state::error::StateError;

impl Database {
    /// Makes a column family.
    ///
    /// # Errors
    /// When there is one of that name, or RocksDB cannot write.
    pub fn create_family(&mut self, family: &str) -> Result<(), StateError> {
        self.create_family_with(family, self.options.clone())
    }

    pub(in crate::state) fn create_family_with(&mut self, family: &str, options: Options) -> Result<(), StateError> {
        let made = self.db.create_cf(family, &options);
        self.kept.push(options);
        made.map_err(|e| StateError::rocksdb("make a column family in", &self.path, e))?;
        self.names.insert(family.to_owned());
        Ok(())
    }

    /// Whether a column family was opened or made.
    #[must_use]
    pub fn has_family(&self, family: &str) -> bool {
        self.db.cf_handle(family).is_some()
    }

    /// Keys and values from a key on to before another one, in order; nothing as the end is the family's end. What is written meanwhile
    /// is not seen.
    ///
    /// # Errors
    /// When the family was not opened. Each item may be an error of reading; the iterator ends after it.
    pub fn scan_range(
        &self,
        family: &str,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<impl Iterator<Item = Result<Pair, StateError>> + use<'_>, StateError> {
        let mut options = ReadOptions::default();
        if let Some(to) = to {
            options.set_iterate_upper_bound(to);
        }
        let pairs =
            self.db.iterator_cf_opt(self.family(family)?, options, IteratorMode::From(from, Direction::Forward));
        let fail = self.fail("read");
        Ok(pairs.map(move |pair| pair.map_err(&fail)))
    }

    /// Removes the keys from one on to before another one, by one mark: the rows go when RocksDB next compacts them.
    ///
    /// # Errors
    /// When the family was not opened, or RocksDB cannot write.
    pub fn delete_range(&self, family: &str, from: &[u8], to: &[u8]) -> Result<(), StateError> {
        self.db.delete_range_cf(self.family(family)?, from, to).map_err(self.fail("remove a range of keys from"))
    }

    /// Drops the tables that lie wholly in a range, without reading them. What other tables have of it stays, and what the dropped ones
    /// hid may come to light, so [`Database::delete_range`] must follow.
    ///
    /// # Errors
    /// When the family was not opened, or RocksDB cannot write.
    pub fn delete_files_in_range(&self, family: &str, from: &[u8], to: &[u8]) -> Result<(), StateError> {
        self.db
            .delete_file_in_range_cf(self.family(family)?, from, to)
            .map_err(self.fail("remove a range of tables from"))
    }

    /// Writes what is in memory to tables, in all column families.
    ///
    /// # Errors
    /// When RocksDB cannot write.
    pub fn flush(&self) -> Result<(), StateError> {
        let families = self.names.iter().map(|name| self.family(name)).collect::<Result<Vec<_>, _>>()?;
        self.db.flush_cfs_opt(&families, &rocksdb::FlushOptions::default()).map_err(self.fail("flush"))
    }

    /// Begins a table outside of the database, to be given to [`Database::ingest`]. The file must not exist.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn sst_writer(&self, path: &Path) -> Result<SstWriter<'_>, StateError> {
        SstWriter::new(&self.options, path)
    }

    /// Takes tables into a column family: linked or copied in, or moved, where the files are not needed any more. What they say wins over
    /// what the family has.
    ///
    /// # Errors
    /// When the family was not opened, a file is no table of [`SstWriter`], or RocksDB cannot write. Then none is in.
    pub fn ingest(&self, family: &str, paths: &[PathBuf], move_files: bool) -> Result<(), StateError> {
        if paths.is_empty() {
            return Ok(());
        }
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(move_files);
        let family = self.family(family)?;
        self.db.ingest_external_file_cf_opts(family, &options, paths.to_vec()).map_err(self.fail("take tables into"))
    }
}

/// A table that is written outside of a database, in the database's own format.
pub struct SstWriter<'a> {
    writer: SstFileWriter<'a>,
    path: PathBuf,
    rows: u64,
}

impl std::fmt::Debug for SstWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SstWriter").field("path", &self.path).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl<'a> SstWriter<'a> {
    fn new(options: &'a Options, path: &Path) -> Result<Self, StateError> {
        let writer = SstFileWriter::create(options);
        writer.open(path).map_err(|e| StateError::rocksdb("begin a table for", path, e))?;
        Ok(Self { writer, path: path.to_owned(), rows: 0 })
    }

    /// Adds a row. Rows come in the order of their keys, each once.
    ///
    /// # Errors
    /// When the order is broken, or the file cannot be written.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StateError> {
        self.writer.put(key, value).map_err(|e| StateError::rocksdb("write a table for", &self.path, e))?;
        self.rows = self.rows.saturating_add(1);
        Ok(())
    }

    /// Bytes written so far.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.writer.file_size()
    }

    /// Ends the table and says how many rows it has. One without rows is no table: then the file is to be removed, not ingested.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> Result<u64, StateError> {
        if self.rows > 0 {
            self.writer.finish().map_err(|e| StateError::rocksdb("end a table for", &self.path, e))?;
        }
        Ok(self.rows)
    }
}
