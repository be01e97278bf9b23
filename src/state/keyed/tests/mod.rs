//! Row 6 of the engine: keyed state on a live RocksDB.

mod flink;
mod lifetime;
mod rows;
mod states;
mod timers;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::state::options::DatabaseOptions;
use crate::state::serializer::{KeySerializer, LongSerializer};

/// Directories that go away with the test, and a clock that goes when told.
pub(super) struct Bench {
    directory: tempfile::TempDir,
    now: Arc<AtomicU64>,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), now: Arc::new(AtomicU64::new(1000)) }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn set_time(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    pub(super) fn config<K: KeySerializer>(&self, serializer: K, range: (u32, u32), max: u32) -> KeyedConfig<K> {
        let now = Arc::clone(&self.now);
        KeyedConfig {
            serializer,
            range: KeyGroupRange { first: range.0, last: range.1 },
            max_parallelism: max,
            options: DatabaseOptions::default(),
            clock: Arc::new(move || now.load(Ordering::Relaxed)),
        }
    }

    /// A backend of all 128 key groups.
    pub(super) fn create<K: KeySerializer>(&self, name: &str, serializer: K) -> KeyedBackend<K> {
        KeyedBackend::create(&self.path(name), self.config(serializer, (0, 127), 128)).unwrap()
    }

    /// Takes a checkpoint and opens it as another backend.
    pub(super) fn reopen<K: KeySerializer>(
        &self,
        backend: &KeyedBackend<K>,
        name: &str,
        serializer: K,
    ) -> KeyedBackend<K> {
        backend.checkpoint(&self.path(name)).unwrap();
        let text = serde_json::to_string(&backend.descriptor()).unwrap();
        let descriptor: KeyedDescriptor = serde_json::from_str(&text).unwrap();
        KeyedBackend::open(&self.path(name), &descriptor, self.config(serializer, (0, 127), 128)).unwrap()
    }
}

/// A column family of a backend, as RocksDB has it.
pub(super) fn stored<K: KeySerializer>(
    bench: &Bench,
    backend: &KeyedBackend<K>,
    family: &str,
) -> Vec<(String, String)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let chk = bench.path(&format!("look-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    backend.checkpoint(&chk).unwrap();
    let database = crate::state::Database::open_read_only(&chk, &[family], &DatabaseOptions::default()).unwrap();
    let rows = database.scan(family).unwrap().map(|row| row.map(|(key, value)| (hex(&key), hex(&value))));
    rows.collect::<Result<_, _>>().unwrap()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub(super) fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
