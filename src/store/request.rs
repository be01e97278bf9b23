//! Requests about single objects and lists: bounded retries, reading back what is unclear, typed keys.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::backend::Put;
use super::error::{Result, StoreError};
use super::{Created, Foreign, Listed, ListedAll, Store, noted};
use crate::format::whole_at;
use crate::limits;
use crate::types::{BlobName, Key, KeyParts, Prefix, RecordKind, Uid};

/// First pause before a request is made again; doubled each time.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// Keys of one delete request: what S3 takes.
const DELETED_AT_ONCE: usize = 1000;

/// Keys of one page of a listing: what S3 gives.
const LISTED_AT_ONCE: usize = 1000;

impl Store {
    pub(super) fn object(&self, key: &str) -> String {
        format!("{}/{key}", self.0.url)
    }

    /// Waits before attempt `n` (from 1 on), longer each time and never in step with others.
    fn pause(n: u32) {
        let doubled = PAUSE.saturating_mul(1_u32.checked_shl(n.saturating_sub(1)).unwrap_or(u32::MAX));
        let random = Uid::random().map_or(128, |uid| uid.as_bytes()[0]);
        // Between one half and all of it.
        std::thread::sleep(doubled.min(LONGEST_PAUSE).mul_f64(0.5 + f64::from(random) / 512.0));
    }

    /// Makes a request until it succeeds, fails for good, or time and attempts are used up.
    pub(super) fn retrying<T>(&self, bytes: u64, mut request: impl FnMut() -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let mut attempt = 0;
        loop {
            attempt += 1;
            match request() {
                Err(e) if e.is_transient() && self.may_retry(attempt, begun, bytes) => {
                    log::debug!("attempt {attempt}: {e}");
                    self.0.counters.retries.inc();
                    Self::pause(attempt);
                }
                Err(StoreError::Unavailable { what, object, why, .. }) => {
                    return Err(StoreError::Unavailable { what, object, why, waited: begun.elapsed() });
                }
                other => return other,
            }
        }
    }

    fn may_retry(&self, attempt: u32, begun: Instant, bytes: u64) -> bool {
        attempt < self.0.options.attempts && begun.elapsed() < self.0.options.limit(bytes)
    }

    /// Whether metadata is answered from memory or a local disk, so that many requests at once gain nothing.
    #[must_use]
    pub fn answers_at_once(&self) -> bool {
        self.0.backend.answers_at_once()
    }

    /// A whole object of at most `max_len` bytes; nothing when there is none.
    ///
    /// # Errors
    /// When the store does not answer, or the object is larger; [`StoreError::Untrusted`] for a record that is not signed by
    /// one of our keys for this place, where we have keys.
    pub fn get(&self, key: &Key, max_len: u64) -> Result<Option<Bytes>> {
        self.get_at(key.as_str(), max_len)?.map(|bytes| self.believed(key, bytes)).transpose()
    }

    /// A record whose bytes do not bear out its own header, or that belongs elsewhere, is asked for again: it may have been damaged, cut or
    /// taken for another on its way. What comes the last time is for its reader to judge.
    pub(super) fn get_at(&self, key: &str, max_len: u64) -> Result<Option<Bytes>> {
        let mut attempt = 1;
        loop {
            let got = self.retrying(0, || {
                self.0.counters.gets.inc();
                let got = noted(&self.0.counters.failed_gets, self.0.backend.get(key, max_len))?;
                if let Some(bytes) = &got {
                    self.0.counters.bytes_down.add(bytes.len() as u64);
                }
                Ok(got)
            });
            let why = match &got {
                Ok(Some(bytes)) => Key::parse(key).and_then(|key| whole_at(&key, bytes).err()),
                Err(StoreError::Damaged { why, .. }) => Some(why.clone()),
                _ => None,
            };
            let Some(why) = why.filter(|_| attempt < self.0.options.attempts) else { return got };
            log::debug!("attempt {attempt}: {}: {why}", self.object(key));
            self.0.counters.retries.inc();
            attempt += 1;
        }
    }

    /// The length of an object; nothing when there is none.
    ///
    /// # Errors
    /// When the store does not answer.
    pub fn head(&self, key: &Key) -> Result<Option<u64>> {
        self.retrying(0, || {
            self.0.counters.heads.inc();
            noted(&self.0.counters.failed_heads, self.0.backend.head(key.as_str()))
        })
    }

    /// All objects of a prefix, in the order of keys. What is not spelled as ours is left out; [`Store::list_all`] has it too.
    ///
    /// # Errors
    /// When any part of the list cannot be had: a list is whole or an error.
    pub fn list(&self, prefix: &Prefix) -> Result<Vec<Listed>> {
        self.list_from(prefix, None).map(|all| all.ours)
    }

    /// All objects of a prefix, and whatever else lies there.
    ///
    /// # Errors
    /// As [`Store::list`].
    pub fn list_all(&self, prefix: &Prefix) -> Result<ListedAll> {
        self.list_from(prefix, None)
    }

    /// The objects of a prefix whose keys come after this one.
    ///
    /// # Errors
    /// As [`Store::list`].
    pub fn list_after(&self, prefix: &Prefix, after: &Key) -> Result<Vec<Listed>> {
        self.list_from(prefix, Some(after.as_str())).map(|all| all.ours)
    }

    fn list_from(&self, prefix: &Prefix, after: Option<&str>) -> Result<ListedAll> {
        let raw = self.retrying(0, || {
            self.0.counters.lists.inc();
            // One more than is allowed tells "as many" from "too many".
            let directory = prefix.as_str().trim_end_matches('/');
            noted(&self.0.counters.failed_lists, self.0.backend.list(directory, after, limits::LISTED + 1))
        })?;
        if raw.len() > limits::LISTED {
            return Err(StoreError::Unsupported {
                store: self.object(prefix.as_str()),
                why: format!("it has more than {} objects", limits::LISTED),
            });
        }
        let mut all = ListedAll::default();
        for entry in raw {
            match Key::parse(&entry.key) {
                Some(key) => all.ours.push(Listed { key, size: entry.size }),
                None => all.foreign.push(Foreign { key: entry.key, size: entry.size }),
            }
        }
        Ok(all)
    }

    /// Creates an object if there is none of its key. The answer is clear: an unclear one is read back until it is.
    /// On `file://` all uploads made through this store before are durable before the object appears. Where we have keys, the object is
    /// signed: what lies there then is [`Store::signed`].
    ///
    /// # Errors
    /// When the store does not answer; then the object may or may not be there. [`StoreError::Untrusted`] when another one is
    /// there that must not be believed.
    pub fn create(&self, key: &Key, body: Bytes) -> Result<Created> {
        match self.create_at(key.as_str(), self.signed(key, body)?, true)? {
            Created::Other(bytes) => Ok(Created::Other(self.believed(key, bytes)?)),
            ours => Ok(ours),
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "a body is cheap to clone, and made for one request")]
    pub(super) fn create_at(&self, key: &str, body: Bytes, durable: bool) -> Result<Created> {
        let begun = Instant::now();
        let mut attempt = 0;
        loop {
            attempt += 1;
            self.0.counters.puts.inc();
            let created = self.0.backend.create(key, body.clone(), durable);
            let failure = match noted(&self.0.counters.failed_puts, created) {
                Ok(Put::Created) => {
                    self.0.counters.bytes_up.add(body.len() as u64);
                    return Ok(Created::New);
                }
                Ok(Put::Exists) => None,
                Err(e) if e.is_transient() => Some(e),
                Err(e) => return Err(e),
            };
            // A conflict may have stored nothing, a lost answer may have stored it: only a look can tell.
            let there = match self.get_at(key, limits::METADATA_LEN) {
                Ok(there) => there,
                Err(e) if e.is_transient() && self.may_retry(attempt, begun, 0) => None,
                Err(e) => return Err(e),
            };
            match there {
                Some(bytes) if bytes == body => return Ok(Created::Ours),
                Some(bytes) => return Ok(Created::Other(bytes)),
                None if self.may_retry(attempt, begun, 0) => {
                    self.0.counters.retries.inc();
                    Self::pause(attempt);
                }
                None => {
                    let why = failure.map_or_else(
                        || "it refuses to create the object and has none of that name".to_owned(),
                        |e| match e {
                            StoreError::Unavailable { why, .. } => why,
                            other => other.to_string(),
                        },
                    );
                    return Err(StoreError::Unavailable {
                        what: "create",
                        object: self.object(key),
                        why,
                        waited: begun.elapsed(),
                    });
                }
            }
        }
    }

    /// Writes a job's polling hint. Nobody may rely on it.
    ///
    /// # Errors
    /// When the key is not a hint's, or the store refuses. Safe to ignore.
    pub fn put_hint(&self, key: &Key, body: Bytes) -> Result<()> {
        if !matches!(key.parts(), KeyParts::Head(_)) {
            return Err(StoreError::Invalid {
                object: self.object(key.as_str()),
                why: "only hints are ever replaced".to_owned(),
            });
        }
        let body = self.signed(key, body)?;
        self.0.counters.puts.inc();
        self.0.counters.bytes_up.add(body.len() as u64);
        noted(&self.0.counters.failed_puts, self.0.backend.replace(key.as_str(), body))
    }

    /// Deletes an object. One that is not there is no error.
    ///
    /// # Errors
    /// When it may still be there.
    pub fn delete(&self, key: &Key) -> Result<()> {
        self.delete_many(std::slice::from_ref(key))
    }

    /// Deletes objects. Those that are not there are no error.
    ///
    /// # Errors
    /// When one of them may still be there.
    pub fn delete_many(&self, keys: &[Key]) -> Result<()> {
        let texts: Vec<&str> = keys.iter().map(Key::as_str).collect();
        self.delete_at(&texts)
    }

    pub(super) fn delete_at(&self, keys: &[&str]) -> Result<()> {
        for chunk in keys.chunks(DELETED_AT_ONCE) {
            self.retrying(0, || {
                self.0.counters.deletes.add(chunk.len() as u64);
                noted(&self.0.counters.failed_deletes, self.0.backend.delete(chunk))
            })?;
        }
        Ok(())
    }

    /// Makes all uploads before it durable. Object stores need none.
    ///
    /// # Errors
    /// When they may not be. Never tried again: give the snapshot up.
    pub fn flush(&self) -> Result<()> {
        self.0.backend.flush()
    }

    /// Whether the place itself is there: the directory of a `file://` store.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn exists_root(&self) -> Result<bool> {
        self.0.backend.exists_root()
    }

    /// Makes the place. Only for verbs that create a store.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create_root(&self) -> Result<()> {
        self.0.backend.create_root()
    }

    /// Whether objects lie there but no `ckptfs.json`: somebody else's data, where no store must be created.
    ///
    /// # Errors
    /// When the store does not answer.
    pub fn looks_foreign(&self) -> Result<bool> {
        if self.head(&Key::store())?.is_some() {
            return Ok(false);
        }
        // What a probe that was killed left behind is ours.
        const LOOK_AT: usize = 1000;
        let found = self.retrying(0, || {
            self.0.counters.lists.inc();
            noted(&self.0.counters.failed_lists, self.0.backend.list("", None, LOOK_AT))
        })?;
        Ok(found.iter().any(|o| !o.key.starts_with(super::probe::DIRECTORY)))
    }

    /// Removes what writers that died left behind under names that are never listed. Says how many.
    ///
    /// # Errors
    /// When it cannot be told or removed.
    pub fn remove_leftovers(&self) -> Result<u64> {
        self.0.backend.remove_leftovers()
    }

    /// All blobs that are there, with their lengths, in the order of their names.
    ///
    /// # Errors
    /// As [`Store::list`].
    pub fn blobs(&self) -> Result<Vec<(BlobName, u64)>> {
        let listed = self.list(&Prefix::blobs())?.into_iter();
        Ok(listed
            .filter_map(|l| if let KeyParts::Blob(name) = l.key.parts() { Some((*name, l.size)) } else { None })
            .collect())
    }

    /// The lengths of blobs, in the order of their names, where that costs little: by a look at each on a local disk, elsewhere by one
    /// page of a listing. Nothing where a page does not hold all blobs.
    ///
    /// # Errors
    /// When the store does not answer.
    pub fn blob_lengths(&self, names: &[BlobName]) -> Result<Option<Vec<Option<u64>>>> {
        let keys: Vec<Key> = names.iter().map(Key::blob).collect();
        let texts: Vec<&str> = keys.iter().map(Key::as_str).collect();
        let looked = self.retrying(0, || self.0.backend.lengths(&texts))?;
        if looked.is_some() || names.is_empty() {
            return Ok(looked);
        }
        let blobs = self.retrying(0, || {
            self.0.counters.lists.inc();
            noted(&self.0.counters.failed_lists, self.0.backend.list(RecordKind::Blobs.as_str(), None, LISTED_AT_ONCE))
        })?;
        if blobs.len() >= LISTED_AT_ONCE {
            return Ok(None);
        }
        let sizes: HashMap<&str, u64> = blobs.iter().map(|raw| (raw.key.as_str(), raw.size)).collect();
        Ok(Some(texts.iter().map(|key| sizes.get(key).copied()).collect()))
    }
}
