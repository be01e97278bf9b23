//! A store in memory, for tests: the reference that the others are compared with.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::backend::{Backend, Put, RawListed, Sink};
use super::error::{Result, StoreError};
use super::{BlobSource, Store, StoreOptions};
use crate::metrics::Counter;
use crate::types::{Digest, Hasher};

/// Whether a request fails: what is asked, and of which object.
type Fault = Arc<dyn Fn(&'static str, &str) -> bool + Send + Sync>;

/// Objects in memory.
#[derive(Default)]
pub struct Memory {
    objects: Mutex<BTreeMap<String, Bytes>>,
    ignores_condition: bool,
    fault: Mutex<Option<Fault>>,
    uploaded: AtomicU64,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("objects", &self.objects().len()).finish_non_exhaustive()
    }
}

impl Memory {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that takes every create-if-absent for a plain put, as some servers do.
    #[must_use]
    pub fn ignoring_condition() -> Self {
        Self { ignores_condition: true, ..Self::default() }
    }

    /// An empty store in memory.
    #[must_use]
    pub fn store() -> Store {
        Store::from_backend(Arc::new(Self::new()), "memory://", StoreOptions::default())
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        // The map is whole after every statement: a panic elsewhere does not spoil it.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on those requests fail of which this says so: `get`, `read`, `head`, `list`, `create`, `upload` or `delete`, and the key.
    pub fn fail_when(&self, fault: impl Fn(&'static str, &str) -> bool + Send + Sync + 'static) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(fault));
    }

    /// Bytes of blobs that were uploaded, counted where they arrive.
    #[must_use]
    pub fn uploaded(&self) -> u64 {
        self.uploaded.load(Ordering::Relaxed)
    }

    fn may(&self, what: &'static str, key: &str) -> Result<()> {
        // It may ask this store in its turn.
        let fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !fault.as_ref().is_some_and(|fails| fails(what, key)) {
            return Ok(());
        }
        let (why, waited) = ("it was told to fail".to_owned(), std::time::Duration::ZERO);
        Err(StoreError::Unavailable { what, object: object(key), why, waited })
    }

    /// Puts any bytes under any key, as a stranger could.
    pub fn plant(&self, key: &str, body: impl Into<Bytes>) {
        self.objects().insert(key.to_owned(), body.into());
    }

    /// Takes an object away, as a stranger could.
    pub fn remove(&self, key: &str) {
        self.objects().remove(key);
    }
}

fn object(key: &str) -> String {
    format!("memory:///{key}")
}

impl Backend for Memory {
    fn get(&self, key: &str, max_len: u64) -> Result<Option<Bytes>> {
        self.may("get", key)?;
        let found = self.objects().get(key).cloned();
        match found {
            Some(bytes) if bytes.len() as u64 > max_len => {
                Err(StoreError::Damaged { object: object(key), why: format!("it has more than {max_len} bytes") })
            }
            other => Ok(other),
        }
    }

    fn read(&self, key: &str, range: Range<u64>, size: Option<u64>, sink: Sink<'_>) -> Result<()> {
        self.may("read", key)?;
        let bytes = self.objects().get(key).cloned().ok_or_else(|| StoreError::NotFound {
            what: "read",
            object: object(key),
            why: "no such object".to_owned(),
        })?;
        let damaged = |why| StoreError::Damaged { object: object(key), why };
        let length = bytes.len() as u64;
        if size.is_some_and(|size| size != length) {
            return Err(damaged(format!("it has {length} bytes")));
        }
        let slice = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        let slice =
            slice.and_then(|(a, b)| bytes.get(a..b)).ok_or_else(|| damaged(format!("it has {length} bytes")))?;
        sink(slice).map_err(|source| StoreError::Sink { object: object(key), source })
    }

    fn head(&self, key: &str) -> Result<Option<u64>> {
        self.may("head", key)?;
        Ok(self.objects().get(key).map(|b| b.len() as u64))
    }

    fn list(&self, directory: &str, after: Option<&str>, limit: usize) -> Result<Vec<RawListed>> {
        self.may("list", directory)?;
        let below =
            |key: &str| directory.is_empty() || key.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
        let objects = self.objects();
        let found = objects.iter().filter(|(key, _)| below(key) && after.is_none_or(|after| key.as_str() > after));
        Ok(found.take(limit).map(|(key, body)| RawListed { key: key.clone(), size: body.len() as u64 }).collect())
    }

    fn create(&self, key: &str, body: Bytes, _durable: bool) -> Result<Put> {
        self.may("create", key)?;
        let mut objects = self.objects();
        if objects.contains_key(key) && !self.ignores_condition {
            return Ok(Put::Exists);
        }
        objects.insert(key.to_owned(), body);
        Ok(Put::Created)
    }

    fn replace(&self, key: &str, body: Bytes) -> Result<()> {
        self.objects().insert(key.to_owned(), body);
        Ok(())
    }

    fn upload(&self, key: &str, digest: &Digest, source: &BlobSource<'_>, sent: &Counter) -> Result<()> {
        self.may("upload", key)?;
        let body = match source {
            BlobSource::Bytes(bytes) => bytes.clone(),
            BlobSource::File(file, len) => {
                let mut hasher = Hasher::new();
                let body = super::object::read_whole(file, *len, &object(key))?;
                hasher.update(&body);
                super::object::check_digest(&hasher, digest, &object(key))?;
                body
            }
        };
        sent.add(body.len() as u64);
        self.uploaded.fetch_add(body.len() as u64, Ordering::Relaxed);
        self.objects().insert(key.to_owned(), body);
        Ok(())
    }

    fn delete(&self, keys: &[&str]) -> Result<()> {
        let mut objects = self.objects();
        for key in keys {
            self.may("delete", key)?;
            objects.remove(*key);
        }
        Ok(())
    }
}
