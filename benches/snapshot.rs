//! What storing a small change costs within one process: `scripts/bench.sh snapshot`.
//!
//! usage: `bench_snapshot DIR MIB CHANGE_MIB PAIRS`. A line of JSON per round, with seconds: RocksDB's checkpoint with a copy and a sync of
//! what is new; the same with a snapshot to a `file://` store; with one whose uploads cost nothing, which is its local part; and RocksDB's own
//! BackupEngine, which needs no checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use ckptfs::cache::Session;
use ckptfs::engine::{Silent, SnapshotRequest, snapshot_directory};
use ckptfs::format::{CheckpointKind, Labels};
use ckptfs::metrics::Counter;
use ckptfs::store::memory::Memory;
use ckptfs::store::{Backend, BlobSource, Put, RawListed, Sink, Store, StoreOptions};
use ckptfs::types::{Digest, Name};
use rocksdb::backup::{BackupEngine, BackupEngineOptions};
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{DB, Env, FlushOptions, Options, WriteOptions};

type Outcome<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const VALUE: usize = 4096;
const TABLE_MIB: u64 = 64;

/// Large blobs come to nothing: the store remembers their lengths only. All else it keeps, in memory.
#[derive(Debug, Default)]
struct Nowhere {
    kept: Memory,
    large: Mutex<BTreeMap<String, u64>>,
}

/// From this length on a blob is large: a table, no bundle.
const LARGE: u64 = 4 << 20;

impl Nowhere {
    fn large(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.large.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for Nowhere {
    fn get(&self, key: &str, max_len: u64) -> ckptfs::store::Result<Option<Bytes>> {
        self.kept.get(key, max_len)
    }

    fn read(&self, key: &str, range: Range<u64>, size: Option<u64>, sink: Sink<'_>) -> ckptfs::store::Result<()> {
        self.kept.read(key, range, size, sink)
    }

    fn head(&self, key: &str) -> ckptfs::store::Result<Option<u64>> {
        let large = self.large().get(key).copied();
        large.map_or_else(|| self.kept.head(key), |length| Ok(Some(length)))
    }

    fn list(&self, directory: &str, after: Option<&str>, limit: usize) -> ckptfs::store::Result<Vec<RawListed>> {
        let mut all = self.kept.list(directory, after, limit)?;
        let below = |key: &String| key.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
        let large = self.large();
        let large = large.iter().filter(|(key, _)| below(key) && after.is_none_or(|after| key.as_str() > after));
        all.extend(large.map(|(key, size)| RawListed { key: key.clone(), size: *size }));
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all.truncate(limit);
        Ok(all)
    }

    fn create(&self, key: &str, body: Bytes, durable: bool) -> ckptfs::store::Result<Put> {
        self.kept.create(key, body, durable)
    }

    fn replace(&self, key: &str, body: Bytes) -> ckptfs::store::Result<()> {
        self.kept.replace(key, body)
    }

    fn upload(&self, key: &str, digest: &Digest, source: &BlobSource<'_>, sent: &Counter) -> ckptfs::store::Result<()> {
        if source.len() < LARGE {
            return self.kept.upload(key, digest, source, sent);
        }
        sent.add(source.len());
        self.large().insert(key.to_owned(), source.len());
        Ok(())
    }

    fn delete(&self, keys: &[&str]) -> ckptfs::store::Result<()> {
        self.kept.delete(keys)
    }
}

struct Bench {
    dir: PathBuf,
    db: DB,
    written: u64,
    noise: u64,
}

impl Bench {
    fn new(dir: &Path) -> Outcome<Self> {
        std::fs::create_dir_all(dir)?;
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(rocksdb::DBCompressionType::None);
        options.set_disable_auto_compactions(true);
        options.set_level_zero_slowdown_writes_trigger(10_000);
        options.set_level_zero_stop_writes_trigger(20_000);
        options.set_write_buffer_size(usize::try_from((TABLE_MIB + 2) << 20)?);
        let db = DB::open(&options, dir.join("db"))?;
        Ok(Self { dir: dir.to_owned(), db, written: 0, noise: 0x9e37_79b9_7f4a_7c15 })
    }

    /// New keys with values that do not compress, flushed to tables.
    fn fill(&mut self, mib: u64) -> Outcome<()> {
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        let mut value = vec![0; VALUE];
        let per_table = (TABLE_MIB << 20) / (VALUE as u64 + 40);
        for i in 0..(mib << 20) / (VALUE as u64 + 40) {
            for word in value.chunks_exact_mut(8) {
                self.noise ^= self.noise << 13;
                self.noise ^= self.noise >> 7;
                self.noise ^= self.noise << 17;
                word.copy_from_slice(&self.noise.to_le_bytes());
            }
            self.db.put_opt(format!("{:016}", self.written), &value, &options)?;
            self.written += 1;
            if (i + 1) % per_table == 0 {
                self.flush()?;
            }
        }
        self.flush()
    }

    fn flush(&self) -> Outcome<()> {
        let mut options = FlushOptions::default();
        options.set_wait(true);
        Ok(self.db.flush_opt(&options)?)
    }

    fn checkpoint(&self, name: &str) -> Outcome<PathBuf> {
        let to = self.dir.join(name);
        let _ = std::fs::remove_dir_all(&to);
        Checkpoint::new(&self.db)?.create_checkpoint(&to)?;
        Ok(to)
    }
}

fn names(dir: &Path) -> Outcome<BTreeSet<String>> {
    let entries = std::fs::read_dir(dir)?.collect::<std::io::Result<Vec<_>>>()?;
    Ok(entries.into_iter().filter_map(|e| e.file_name().into_string().ok()).filter(|n| n.ends_with(".sst")).collect())
}

fn copy_durably(from: &Path, files: &[String], to: &Path) -> Outcome<()> {
    std::fs::create_dir(to)?;
    for file in files {
        std::fs::copy(from.join(file), to.join(file))?;
        std::fs::File::open(to.join(file))?.sync_all()?;
    }
    Ok(std::fs::File::open(to)?.sync_all()?)
}

fn session(store: Store, cache: &Path) -> Outcome<Session> {
    Ok(Session::over(store, cache, true)?)
}

fn seconds(run: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    // What others wrote is not waited for by who is measured next.
    std::process::Command::new("sync").status()?;
    let begun = Instant::now();
    run()?;
    Ok(begun.elapsed().as_secs_f64())
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, mib, change, pairs] = args.as_slice() else {
        return Err("usage: bench_snapshot DIR MIB CHANGE_MIB PAIRS".into());
    };
    let (mib, change, pairs): (u64, u64, u32) = (mib.parse()?, change.parse()?, pairs.parse()?);
    let mut bench = Bench::new(Path::new(dir))?;
    bench.fill(mib)?;
    let at = |name: &str| Path::new(dir).join(name);
    let url = format!("file://{}", at("store").display());
    let stored = session(Store::open(&url, StoreOptions::default())?, &at("cache"))?;
    let nowhere = Store::from_backend(Arc::new(Nowhere::default()), "memory://", StoreOptions::default());
    let nowhere = session(nowhere, &at("cache-nowhere"))?;
    let mut engine = BackupEngine::open(&BackupEngineOptions::new(at("backup"))?, &Env::new()?)?;
    let request = |directory: PathBuf| SnapshotRequest {
        job: Name::encode("bench"),
        directory,
        operator: "db".to_owned(),
        subtask: 0,
        kind: CheckpointKind::Checkpoint,
        number: None,
        labels: Labels::default(),
    };
    for pair in 0..=pairs {
        let before = names(&at("db"))?;
        bench.fill(change)?;
        let mut took = serde_json::Map::new();
        let mut order = ["native", "ckptfs", "ckptfs, all but the upload", "BackupEngine"];
        if pair % 2 == 1 {
            order.reverse();
        }
        for name in order {
            let spent = match name {
                "native" => seconds(|| {
                    let from = bench.checkpoint("checkpoint-native")?;
                    let new: Vec<String> = names(&from)?.difference(&before).cloned().collect();
                    copy_durably(&from, &new, &at(&format!("copy-{pair}")))
                })?,
                "BackupEngine" => seconds(|| Ok(engine.create_new_backup(&bench.db)?))?,
                name => {
                    let session = if name == "ckptfs" { &stored } else { &nowhere };
                    seconds(|| {
                        let from = bench.checkpoint("checkpoint")?;
                        snapshot_directory(session, &request(from), &Silent)?;
                        Ok(())
                    })?
                }
            };
            took.insert(name.to_owned(), spent.into());
        }
        // The first round stores the whole database.
        if pair > 0 {
            let line = serde_json::Value::Object(took);
            writeln!(std::io::stdout(), "{line}")?;
        }
    }
    Ok(())
}
