//! Blobs on their way: ranges, streams that resume, uploads.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::Instant;

use bytes::{Bytes, BytesMut};

use super::backend::{Sink, Staging};
use super::error::{Result, StoreError};
use super::{BlobSource, Store, noted};
use crate::limits;
use crate::types::{BlobName, Digest, Key, KeyParts};

/// A blob that is written before its digest is known. Dropped, it is gone.
#[derive(Debug)]
pub struct StagedBlob<'a> {
    store: &'a Store,
    staging: Box<dyn Staging + 'a>,
}

impl StagedBlob<'_> {
    /// Appends bytes.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.staging.write(bytes)
    }

    /// See [`Staging::share`].
    ///
    /// # Errors
    /// When the disk is full or fails.
    pub fn share(&mut self, from: &File) -> Result<Option<&File>> {
        self.staging.share(from)
    }

    /// See [`Staging::start`].
    pub fn start(&self) {
        self.staging.start();
    }

    /// Names it; the caller made the name by hashing exactly what was written. Durable as after [`Store::upload_blob`].
    ///
    /// # Errors
    /// When the store refuses.
    pub fn publish(self, name: &BlobName, length: u64) -> Result<()> {
        let counters = &self.store.0.counters;
        counters.puts.inc();
        noted(&counters.failed_puts, self.staging.publish(Key::blob(name).as_str(), length, &counters.bytes_up))
    }
}

impl Store {
    /// Begins a blob whose digest is not known yet. Only stores on a local disk can.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn stage_blob(&self) -> Result<Option<StagedBlob<'_>>> {
        Ok(self.0.backend.stage()?.map(|staging| StagedBlob { store: self, staging }))
    }

    fn damaged(&self, key: &str, why: String) -> StoreError {
        StoreError::Damaged { object: self.object(key), why }
    }

    /// Exactly the bytes of a range.
    ///
    /// # Errors
    /// When the object is missing or shorter, or the store does not answer.
    pub fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Bytes> {
        let length = range.end.checked_sub(range.start).filter(|n| *n <= limits::BLOB_LEN);
        let length = length.and_then(|n| usize::try_from(n).ok()).ok_or_else(|| StoreError::Invalid {
            object: self.object(key.as_str()),
            why: format!("{}..{} is no range", range.start, range.end),
        })?;
        let mut bytes = BytesMut::new();
        if length > 0 {
            // A length from a manifest is not believed with memory before bytes came.
            bytes.reserve(length.min(64 << 20));
            self.read_range(key, range, None, &mut |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            })?;
        }
        Ok(bytes.freeze())
    }

    /// Gives all bytes of an object of `len` bytes to `sink`, in order and each once, resuming after errors.
    ///
    /// # Errors
    /// When the object is missing or has another length, the store does not answer, or `sink` fails. Some bytes may
    /// have been given before.
    pub fn read_to(&self, key: &Key, len: u64, sink: Sink<'_>) -> Result<()> {
        if len == 0 {
            return match self.head(key)? {
                Some(0) => Ok(()),
                Some(n) => Err(self.damaged(key.as_str(), format!("it has {n} bytes instead of none"))),
                None => Err(StoreError::NotFound {
                    what: "read",
                    object: self.object(key.as_str()),
                    why: "no such object".to_owned(),
                }),
            };
        }
        self.read_range(key, 0..len, Some(len), sink)
    }

    /// Reads a range, resuming where an error broke it off. Attempts count anew whenever bytes came.
    fn read_range(&self, key: &Key, range: Range<u64>, size: Option<u64>, sink: Sink<'_>) -> Result<()> {
        let begun = Instant::now();
        let mut at = range.start;
        let mut limit = self.0.options.limit(range.end.saturating_sub(range.start));
        loop {
            let from = at;
            let to = range.end.min(at.saturating_add(self.0.fetching.piece()));
            limit += self.0.fetching.take(to.saturating_sub(at));
            let result = self.retrying_once(key, at..to, size, &mut |piece| {
                let next = at.checked_add(piece.len() as u64).filter(|next| *next <= to);
                let next =
                    next.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "more bytes than asked for"))?;
                sink(piece)?;
                at = next;
                Ok(())
            });
            match result {
                Ok(()) if at == range.end => return Ok(()),
                Ok(()) if at == to => {}
                Ok(()) => {
                    return Err(self.damaged(key.as_str(), format!("it ended at byte {at} of {}", range.end)));
                }
                Err(e) if e.is_transient() && at > from && begun.elapsed() < limit => {
                    log::debug!("resuming at byte {at}: {e}");
                    self.0.counters.retries.inc();
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// One read, tried again only while not a byte has come.
    fn retrying_once(&self, key: &Key, range: Range<u64>, size: Option<u64>, sink: Sink<'_>) -> Result<()> {
        let mut received = 0_u64;
        let mut broken: Option<StoreError> = None;
        let length = range.end.saturating_sub(range.start);
        self.retrying(length, || {
            self.0.counters.gets.inc();
            let result = self.0.backend.read(key.as_str(), range.clone(), size, &mut |piece| {
                sink(piece)?;
                received = received.saturating_add(piece.len() as u64);
                Ok(())
            });
            match noted(&self.0.counters.failed_gets, result) {
                Err(e) if received > 0 => {
                    broken = Some(e);
                    Ok(())
                }
                other => other,
            }
        })?;
        self.0.counters.bytes_down.add(received);
        broken.map_or(Ok(()), Err)
    }

    /// Stores a blob under its own name: whole or not at all. A file is hashed while it is sent; if it does not have the name's
    /// digest, nothing is stored. Durable (on `file://`) after [`Store::flush`], or before the next [`Store::create`].
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the file changed; otherwise when it cannot be read or the store refuses.
    #[expect(clippy::needless_pass_by_value, reason = "a source is made for one upload")]
    pub fn upload_blob(&self, name: &BlobName, source: BlobSource<'_>) -> Result<()> {
        let key = Key::blob(name);
        let len = source.len();
        if len > limits::BLOB_LEN {
            return Err(StoreError::Invalid {
                object: self.object(key.as_str()),
                why: format!("{len} bytes are more than a blob may have ({})", limits::BLOB_LEN),
            });
        }
        let upload = || {
            self.0.counters.puts.inc();
            let sent = self.0.backend.upload(key.as_str(), &name.digest, &source, &self.0.counters.bytes_up);
            noted(&self.0.counters.failed_puts, sent)
        };
        // A large upload tries its parts again, not itself.
        if len <= self.0.options.single_put { self.retrying(len, upload) } else { upload() }
    }

    /// Puts the right bytes in the place of a blob, or of a task manifest, that is missing or damaged. Whole or not at all, and durable
    /// when it returns. The bytes are hashed here, and must have the digest that whoever reads the object compares them with: readers
    /// refuse whatever else lies there, so that nothing that anybody believes is ever replaced.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for any other object; [`StoreError::Damaged`] when the bytes have another digest; otherwise when they
    /// cannot be read or the store refuses.
    #[expect(clippy::needless_pass_by_value, reason = "a source is made for one upload")]
    pub fn mend(&self, key: &Key, digest: &Digest, source: BlobSource<'_>) -> Result<()> {
        let invalid = |why: &str| StoreError::Invalid { object: self.object(key.as_str()), why: why.to_owned() };
        match key.parts() {
            KeyParts::Blob(name) if name.digest == *digest => {}
            KeyParts::Task(..) => {}
            _ => return Err(invalid("only what somebody else names by its digest is ever replaced")),
        }
        match &source {
            BlobSource::Bytes(bytes) if Digest::of(bytes) != *digest => {
                return Err(self.damaged(key.as_str(), format!("the bytes to mend it with are not those of {digest}")));
            }
            BlobSource::Bytes(_) | BlobSource::File(..) => {}
        }
        let len = source.len();
        if len > limits::BLOB_LEN {
            return Err(invalid("it is larger than a blob may be"));
        }
        let mend = || {
            self.0.counters.puts.inc();
            let sent = self.0.backend.mend(key.as_str(), digest, &source, &self.0.counters.bytes_up);
            noted(&self.0.counters.failed_puts, sent)
        };
        if len <= self.0.options.single_put {
            self.retrying(len, mend)?;
        } else {
            mend()?;
        }
        self.flush()
    }
}
