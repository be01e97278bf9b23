//! The rows of a RocksDB handle, read by RocksDB through the mount.

use std::path::Path;

use rocksdb::{ColumnFamilyDescriptor, DB, IteratorMode, MergeOperands, Options};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::truth::Handle;

/// Flink's list states: elements joined by a comma.
fn joined(_: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut out = existing.map(<[u8]>::to_vec);
    for operand in operands {
        match &mut out {
            None => out = Some(operand.to_vec()),
            Some(bytes) => {
                bytes.push(b',');
                bytes.extend_from_slice(operand);
            }
        }
    }
    out
}

/// Every column family has the rows that FRocksDB counted, with the same keys and values.
pub fn check(directory: &Path, handle: &Handle) {
    for (n, database) in handle.databases().iter().enumerate() {
        let name = if n == 0 { "db".to_owned() } else { format!("db-{n}") };
        if let Some(told) = database["rocksdb"].as_object() {
            check_database(&directory.join(name), told);
        }
    }
}

fn check_database(database: &Path, told: &serde_json::Map<String, Value>) {
    let mut options = Options::default();
    options.set_merge_operator_associative("joined", joined);
    options.set_db_log_dir(std::env::temp_dir());
    let families = DB::list_cf(&options, database).unwrap();
    let descriptors = families.iter().map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
    let db = DB::open_cf_descriptors_read_only(&options, database, descriptors, false).unwrap();
    for (name, truth) in told {
        let family = db.cf_handle(name).unwrap_or_else(|| panic!("{}: no {name}", database.display()));
        let (mut hash, mut rows) = (Sha256::new(), 0u64);
        for row in db.iterator_cf(family, IteratorMode::Start) {
            let (key, value) = row.unwrap();
            for bytes in [&key, &value] {
                hash.update(u32::try_from(bytes.len()).unwrap().to_be_bytes());
                hash.update(bytes);
            }
            rows += 1;
        }
        let digest: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(Value::from(rows), truth["entries"], "{}: {name}", database.display());
        assert_eq!(Value::from(digest), truth["kv_sha256"], "{}: {name}", database.display());
    }
}
