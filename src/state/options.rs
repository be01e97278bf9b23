//! How databases are opened.

use std::cmp::Ordering;

use rocksdb::{BlockBasedOptions, DBCompressionType, InfoLogger, LogLevel, MergeOperands, Options};

/// SSTs of this format are read by every RocksDB since 6.6, and so by the `ldb` of Debian 12.
const TABLE_FORMAT: i32 = 5;

/// Name of the operator that joins the elements of lists, as Flink's RocksDB and the `ldb` tool know it.
const LIST_OPERATOR: &str = "stringappendtest";

/// What stands between the elements of a list.
pub(super) const DELIMITER: u8 = b',';

/// An order of keys that is not that of their bytes. RocksDB opens a database only under the name that it was made with.
#[derive(Debug, Clone, Copy)]
pub struct Comparator {
    /// Its name, as the database has it.
    pub name: &'static str,
    /// The order; another one than the database was made with gives wrong answers.
    pub compare: fn(&[u8], &[u8]) -> Ordering,
}

/// What a caller may choose.
#[derive(Debug, Clone)]
pub struct DatabaseOptions {
    /// Makes the directory and the column families where they are missing.
    pub create: bool,
    /// Bytes that a column family collects in memory before it writes an SST.
    pub write_buffer: usize,
    /// Bytes of one SST of the first sorted level.
    pub table_size: u64,
    /// Bits per key of the Bloom filters; 0 for none.
    pub bloom_bits: u8,
    /// The order of keys; nothing for that of their bytes.
    pub comparator: Option<Comparator>,
}

impl Default for DatabaseOptions {
    /// RocksDB's own sizes, and ten bits per key, which keeps a lookup from 99 of 100 tables that do not have the key.
    fn default() -> Self {
        Self { create: false, write_buffer: 64 << 20, table_size: 64 << 20, bloom_bits: 10, comparator: None }
    }
}

impl DatabaseOptions {
    pub(super) fn to_rocksdb(&self) -> Options {
        let mut table = BlockBasedOptions::default();
        table.set_format_version(TABLE_FORMAT);
        if self.bloom_bits > 0 {
            table.set_bloom_filter(f64::from(self.bloom_bits), false);
        }
        let mut options = Options::default();
        options.create_if_missing(self.create);
        options.create_missing_column_families(self.create);
        options.set_write_buffer_size(self.write_buffer);
        options.set_target_file_size_base(self.table_size);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_block_based_table_factory(&table);
        // In every family: whoever opens a database need not know which of them are lists.
        options.set_merge_operator_associative(LIST_OPERATOR, join);
        if let Some(Comparator { name, compare }) = self.comparator {
            options.set_comparator(name, Box::new(compare));
        }
        // Otherwise it writes a LOG into its directory, which under the mount cannot be.
        options.set_info_logger(InfoLogger::new_callback_logger(LogLevel::Warn, |level, text| {
            let level = match level {
                LogLevel::Error | LogLevel::Fatal => log::Level::Warn,
                _ => log::Level::Debug,
            };
            log::log!(target: "ckptfs::rocksdb", level, "{}", text.trim_end());
        }));
        options
    }
}

/// A list's elements so far and those that were appended, with a delimiter between each two.
#[allow(clippy::unnecessary_wraps)] // RocksDB's signature: nothing is what cannot be merged.
pub(super) fn join(_key: &[u8], before: Option<&[u8]>, appended: &MergeOperands) -> Option<Vec<u8>> {
    let parts: Vec<&[u8]> = before.into_iter().chain(appended).collect();
    Some(parts.join(&DELIMITER))
}
