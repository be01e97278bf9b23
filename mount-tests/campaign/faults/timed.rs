//! A store's backend with a clock beside it: no attempt may last longer than the deadline lets it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ckptfs::metrics::Counter;
use ckptfs::store::{Backend, BlobSource, Put, RawListed, Result, Sink, Staging};
use ckptfs::types::Digest;

/// From this size on a transfer has time by its size.
const SMALL: u64 = 1 << 20;

/// What was measured: the slowest attempt, in microseconds, and which it was.
#[derive(Debug, Default)]
pub struct Slowest {
    single: AtomicU64,
    list: AtomicU64,
}

impl Slowest {
    pub fn single(&self) -> Duration {
        Duration::from_micros(self.single.load(Ordering::Relaxed))
    }

    pub fn list(&self) -> Duration {
        Duration::from_micros(self.list.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
pub struct Timed {
    inner: Arc<dyn Backend>,
    slowest: Arc<Slowest>,
}

impl Timed {
    pub fn new(inner: Arc<dyn Backend>, slowest: Arc<Slowest>) -> Self {
        Self { inner, slowest }
    }

    fn clock<T>(&self, counted: bool, run: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let out = run();
        if counted {
            self.slowest.single.fetch_max(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
        }
        out
    }
}

impl Backend for Timed {
    fn get(&self, key: &str, max_len: u64) -> Result<Option<Bytes>> {
        self.clock(true, || self.inner.get(key, max_len))
    }

    fn read(&self, key: &str, range: Range<u64>, size: Option<u64>, sink: Sink<'_>) -> Result<()> {
        self.clock(range.end - range.start < SMALL, || self.inner.read(key, range, size, sink))
    }

    fn head(&self, key: &str) -> Result<Option<u64>> {
        self.clock(true, || self.inner.head(key))
    }

    fn list(&self, directory: &str, after: Option<&str>, limit: usize) -> Result<Vec<RawListed>> {
        let begun = Instant::now();
        let out = self.inner.list(directory, after, limit);
        self.slowest.list.fetch_max(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
        out
    }

    fn create(&self, key: &str, body: Bytes, durable: bool) -> Result<Put> {
        self.clock(true, || self.inner.create(key, body, durable))
    }

    fn replace(&self, key: &str, body: Bytes) -> Result<()> {
        self.clock(true, || self.inner.replace(key, body))
    }

    fn upload(&self, key: &str, digest: &Digest, source: &BlobSource<'_>, sent: &Counter) -> Result<()> {
        self.clock(source.len() < SMALL, || self.inner.upload(key, digest, source, sent))
    }

    fn stage(&self) -> Result<Option<Box<dyn Staging + '_>>> {
        self.inner.stage()
    }

    fn mend(&self, key: &str, digest: &Digest, source: &BlobSource<'_>, sent: &Counter) -> Result<()> {
        self.inner.mend(key, digest, source, sent)
    }

    fn lengths(&self, keys: &[&str]) -> Result<Option<Vec<Option<u64>>>> {
        self.inner.lengths(keys)
    }

    fn delete(&self, keys: &[&str]) -> Result<()> {
        self.clock(true, || self.inner.delete(keys))
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn remove_leftovers(&self) -> Result<u64> {
        self.inner.remove_leftovers()
    }
}
