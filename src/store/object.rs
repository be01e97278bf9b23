//! Stores behind the network, over `object_store`: one attempt per call with a deadline, multipart for large blobs.

use std::fmt;
use std::fs::File;
use std::future::Future;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, GetResult, MultipartId, ObjectStore, PutMode, PutPayload};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::BlobSource;
use super::backend::{Backend, BucketAnswer, BucketSetting, Put, RawListed, Sink};
use super::error::{Result, StoreError, explain};
use super::options::StoreOptions;
use super::pace::Pacer;
use super::runtime::runtime;
use super::settings::Bucket;
use crate::metrics::Counter;
use crate::types::{Digest, Hasher};

/// Most parts that we make: S3 takes 10,000.
const PARTS: u64 = 9000;

/// Parts of one blob that are on their way at once.
const PARALLEL_PARTS: usize = 4;

/// Memory is counted in these, so that the numbers fit the semaphore.
const UNIT: u64 = 64 << 10;

/// A bucket, or a part of one.
pub(super) struct ObjectBackend {
    store: Arc<dyn ObjectStore>,
    parts: Arc<dyn MultipartStore>,
    prefix: String,
    url: String,
    options: StoreOptions,
    memory: Arc<Semaphore>,
    units: u64,
    sending: Pacer,
    /// The bucket itself, where it can be asked.
    bucket: Option<Bucket>,
}

impl fmt::Debug for ObjectBackend {
    /// Only the URL: what lies below has credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectBackend").field(&self.url).finish()
    }
}

/// All bytes of a file that must have this length.
pub(super) fn read_whole(file: &File, len: u64, object: &str) -> Result<Bytes> {
    let length = usize::try_from(len).map_err(|_| changed(object))?;
    let mut body = BytesMut::zeroed(length);
    read_part(file, &mut body, 0, object)?;
    ends_at(file, len, object)?;
    Ok(body.freeze())
}

fn read_part(file: &File, buffer: &mut [u8], offset: u64, object: &str) -> Result<()> {
    file.read_exact_at(buffer, offset).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => changed(object),
        _ => StoreError::Source { object: object.to_owned(), source: e },
    })
}

/// A file that grew since its length was taken is not the one that was hashed.
pub(super) fn ends_at(file: &File, len: u64, object: &str) -> Result<()> {
    match file.read_at(&mut [0; 1], len) {
        Ok(0) => Ok(()),
        Ok(_) => Err(changed(object)),
        Err(e) => Err(StoreError::Source { object: object.to_owned(), source: e }),
    }
}

/// The file that was sent is not the one that was hashed.
pub(super) fn changed(object: &str) -> StoreError {
    StoreError::Damaged {
        object: object.to_owned(),
        why:
            "the file changed while it was sent; nothing was stored. Only immutable files are sent this way: something \
              rewrites them in place"
                .to_owned(),
    }
}

/// What was sent must be what the name says.
pub(super) fn check_digest(hasher: &Hasher, digest: &Digest, object: &str) -> Result<()> {
    if hasher.finish() == *digest { Ok(()) } else { Err(changed(object)) }
}

impl ObjectBackend {
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        parts: Arc<dyn MultipartStore>,
        prefix: &str,
        url: &str,
        options: &StoreOptions,
    ) -> Self {
        // At least one part always fits.
        let units = (options.memory / UNIT).clamp(options.single_put.div_ceil(UNIT).max(1), u64::from(u32::MAX));
        let permits = usize::try_from(units).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        Self {
            store,
            parts,
            prefix: prefix.to_owned(),
            url: url.to_owned(),
            options: options.clone(),
            memory: Arc::new(Semaphore::new(permits)),
            units,
            sending: Pacer::new(options.rates.upload),
            bucket: None,
        }
    }

    /// The same, over a bucket that can be asked about itself.
    pub(super) fn with_bucket(self, bucket: Option<Bucket>) -> Self {
        Self { bucket, ..self }
    }

    fn object(&self, key: &str) -> String {
        format!("{}/{key}", self.url)
    }

    /// The key as it stands: `Path::parse` keeps a percent sign, `Path::from` would escape it again.
    fn path(&self, key: &str) -> Result<Path> {
        let full = match (self.prefix.as_str(), key) {
            ("", key) => key.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, key) => format!("{prefix}/{key}"),
        };
        Path::parse(&full).map_err(|e| StoreError::Invalid {
            object: self.object(key),
            why: format!("it is no key: {}", explain(&e)),
        })
    }

    fn key_of(&self, path: &Path) -> Option<String> {
        let full = path.as_ref();
        if self.prefix.is_empty() {
            return Some(full.to_owned());
        }
        full.strip_prefix(&self.prefix)?.strip_prefix('/').map(str::to_owned)
    }

    fn late(&self, what: &'static str, key: &str, waited: Duration) -> StoreError {
        StoreError::Unavailable { what, object: self.object(key), why: "no answer".to_owned(), waited }
    }

    fn classify(&self, what: &'static str, key: &str, error: &Error) -> StoreError {
        let object = self.object(key);
        let why = explain(error);
        match error {
            Error::NotFound { .. } => StoreError::NotFound { what, object, why },
            // Only a create has a condition that can fail ([`is_refused_create`]). Whatever else is told so met another request, and nothing
            // was done.
            Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. } => {
                StoreError::Unavailable { what, object, why, waited: Duration::ZERO }
            }
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                StoreError::Permission { what, object, why }
            }
            Error::NotImplemented { .. } | Error::NotSupported { .. } => {
                StoreError::Unsupported { store: self.url.clone(), why: format!("cannot {what}: {why}") }
            }
            Error::InvalidPath { .. } => StoreError::Invalid {
                object,
                why: format!("an object there has a name that cannot be handled; move it away ({why})"),
            },
            Error::UnknownConfigurationKey { .. } => StoreError::Invalid { object, why },
            // Bulk deletes answer per key, without a status.
            _ if why.contains("AccessDenied") => StoreError::Permission { what, object, why },
            _ => match refused_with(&why) {
                // Lists name no object, so that the library does not say NotFound itself.
                Some(404) => {
                    let why = format!("create the bucket first, or check its name: {why}");
                    StoreError::NotFound { what, object, why }
                }
                Some(416) => StoreError::Damaged { object, why: format!("it is shorter than it should be ({why})") },
                Some(401 | 403) => StoreError::Permission { what, object, why },
                Some(501) => StoreError::Unsupported { store: self.url.clone(), why: format!("cannot {what}: {why}") },
                Some(_) => StoreError::Invalid { object, why: format!("the store refused to {what} it: {why}") },
                None => StoreError::Unavailable { what, object, why, waited: Duration::ZERO },
            },
        }
    }

    /// Runs one attempt on the runtime, with the deadline that `bytes` allow.
    fn attempt<T>(
        &self,
        what: &'static str,
        key: &str,
        bytes: u64,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T> {
        self.in_time(what, key, bytes, request)?.map_err(|e| self.classify(what, key, &e))
    }

    /// What the client says of it, within the deadline.
    fn in_time<T>(
        &self,
        what: &'static str,
        key: &str,
        bytes: u64,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<Result<T, Error>> {
        let limit = self.options.attempt_limit(bytes);
        runtime()?.block_on(async { timeout(limit, request).await.map_err(|_| self.late(what, key, limit)) })
    }

    /// Passes on the pieces of an answer; each must come in time, and all of them, and not a byte more than it announced. The sink runs on
    /// the caller's thread.
    fn drain(&self, key: &str, answer: GetResult, sink: Sink<'_>) -> Result<()> {
        let limit = self.options.attempt_limit(0);
        let all = self.options.limit(answer.range.end.saturating_sub(answer.range.start));
        let begun = Instant::now();
        let mut left = answer.range.end.saturating_sub(answer.range.start);
        let broken = |why: String| StoreError::Unavailable {
            what: "read",
            object: self.object(key),
            why,
            waited: Duration::ZERO,
        };
        runtime()?.block_on(async {
            let mut pieces = answer.into_stream();
            loop {
                match timeout(limit, pieces.next()).await {
                    Err(_) => return Err(self.late("read", key, limit)),
                    Ok(None) if left == 0 => return Ok(()),
                    Ok(None) => return Err(broken(format!("the answer ended {left} bytes early"))),
                    Ok(Some(Err(e))) => return Err(self.classify("read", key, &e)),
                    Ok(Some(Ok(_))) if begun.elapsed() > all => return Err(self.late("read", key, all)),
                    Ok(Some(Ok(piece))) => {
                        left = left
                            .checked_sub(piece.len() as u64)
                            .ok_or_else(|| broken("more bytes came than were announced".to_owned()))?;
                        sink(&piece).map_err(|source| StoreError::Sink { object: self.object(key), source })?;
                    }
                }
            }
        })
    }

    fn put_whole(&self, path: &Path, key: &str, body: Bytes, mode: PutMode) -> Result<Put> {
        let length = body.len() as u64;
        let creates = matches!(mode, PutMode::Create);
        let request = self.store.put_opts(path, PutPayload::from(body), mode.into());
        match self.in_time("write", key, length, request)? {
            Ok(_) => Ok(Put::Created),
            Err(e) if creates && is_refused_create(&e) => Ok(Put::Exists),
            Err(e) => Err(self.classify("write", key, &e)),
        }
    }

    /// Waits until that many bytes may be in memory.
    fn room(&self, bytes: u64) -> Result<OwnedSemaphorePermit> {
        let units = bytes.div_ceil(UNIT).min(self.units);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        runtime()?.block_on(Arc::clone(&self.memory).acquire_many_owned(units)).map_err(|_| StoreError::Unsupported {
            store: self.url.clone(),
            why: "the upload memory is gone".to_owned(),
        })
    }

    fn upload_parts(
        &self,
        path: &Path,
        key: &str,
        digest: &Digest,
        source: &BlobSource<'_>,
        sent: &Counter,
    ) -> Result<()> {
        let id = self.retry_attempt("begin the upload of", key, || self.parts.create_multipart(path))?;
        let result = self.send_parts(path, key, &id, digest, source, sent);
        let parts = match result {
            Ok(parts) => parts,
            Err(e) => {
                let e = upload_gone(e);
                // Best effort: what stays is not an object, and buckets have rules for it.
                if let Err(left) = self.attempt("abort the upload of", key, 0, self.parts.abort_multipart(path, &id)) {
                    log::warn!("{left}");
                }
                return Err(e);
            }
        };
        let complete = || self.parts.complete_multipart(path, &id, parts.clone());
        match self.retry_attempt("complete the upload of", key, complete) {
            Ok(_) => Ok(()),
            // An answer that was lost: the upload's id is gone because it was completed.
            Err(e) if e.is_transient() || matches!(e, StoreError::NotFound { .. } | StoreError::Invalid { .. }) => {
                if self.head(key)? == Some(source.len()) {
                    Ok(())
                } else {
                    Err(upload_gone(e))
                }
            }
            Err(e) => Err(e),
        }
    }

    /// Tries a request of a large upload several times: starting over would cost too much.
    fn retry_attempt<T, F>(&self, what: &'static str, key: &str, mut request: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut attempt = 1;
        loop {
            match self.attempt(what, key, 0, request()) {
                Err(e) if e.is_transient() && attempt < self.options.attempts => {
                    log::debug!("attempt {attempt}: {e}");
                    std::thread::sleep(pause(attempt));
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    fn send_parts(
        &self,
        path: &Path,
        key: &str,
        id: &MultipartId,
        digest: &Digest,
        source: &BlobSource<'_>,
        sent: &Counter,
    ) -> Result<Vec<PartId>> {
        let object = self.object(key);
        let len = source.len();
        let size = self.options.part.max(len.div_ceil(PARTS).next_multiple_of(UNIT));
        let count = usize::try_from(len.div_ceil(size)).map_err(|_| changed(&object))?;
        let mut done: Vec<Option<PartId>> = vec![None; count];
        let mut flying: JoinSet<(usize, u64, Result<PartId, Failed>)> = JoinSet::new();
        let mut hasher = Hasher::new();
        let runtime = runtime()?;
        let mut land = |flying: &mut JoinSet<_>| -> Result<bool> {
            let Some(landed) = runtime.block_on(flying.join_next()) else { return Ok(false) };
            let (index, length, part): (usize, u64, Result<PartId, Failed>) =
                landed.map_err(|e| StoreError::Unavailable {
                    what: "send a part of",
                    object: object.clone(),
                    why: format!("its task ended: {e}"),
                    waited: Duration::ZERO,
                })?;
            let part = part.map_err(|failed| match failed {
                Failed::Late(limit) => self.late("send a part of", key, limit),
                Failed::Store(e) => self.classify("send a part of", key, &e),
            })?;
            sent.add(length);
            if let Some(slot) = done.get_mut(index) {
                *slot = Some(part);
            }
            Ok(true)
        };
        for index in 0..count {
            let offset = size.saturating_mul(index as u64);
            let length = size.min(len.saturating_sub(offset));
            let room = self.room(length)?;
            self.sending.take(length);
            let part = match source {
                BlobSource::Bytes(bytes) => {
                    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                    let to = usize::try_from(offset.saturating_add(length)).unwrap_or(usize::MAX).min(bytes.len());
                    bytes.slice(from..to)
                }
                BlobSource::File(file, _) => {
                    let mut buffer = BytesMut::zeroed(usize::try_from(length).unwrap_or(0));
                    read_part(file, &mut buffer, offset, &object)?;
                    hasher.update(&buffer);
                    buffer.freeze()
                }
            };
            let (parts, path, id) = (Arc::clone(&self.parts), path.clone(), id.clone());
            let (limit, attempts) = (self.options.attempt_limit(length), self.options.attempts);
            flying.spawn_on(
                async move {
                    let part = send_part(&*parts, &path, &id, index, part, limit, attempts).await;
                    drop(room);
                    (index, length, part)
                },
                runtime.handle(),
            );
            if flying.len() >= PARALLEL_PARTS {
                land(&mut flying)?;
            }
        }
        while land(&mut flying)? {}
        if let BlobSource::File(file, _) = source {
            ends_at(file, len, &object)?;
            check_digest(&hasher, digest, &object)?;
        }
        done.into_iter().collect::<Option<Vec<_>>>().ok_or_else(|| changed(&object))
    }
}

/// An upload that the store began and does not know any more: another one may do. Nothing that anybody named is missing.
fn upload_gone(error: StoreError) -> StoreError {
    match error {
        StoreError::NotFound { what, object, why } => StoreError::Unavailable {
            what,
            object,
            why: format!("the store does not know the upload that it began: {why}"),
            waited: Duration::ZERO,
        },
        other => other,
    }
}

/// Why a part did not arrive.
enum Failed {
    Late(Duration),
    Store(Error),
}

/// Pause before a part is sent again.
fn pause(attempt: u32) -> Duration {
    Duration::from_millis(100)
        .saturating_mul(1_u32.checked_shl(attempt).unwrap_or(u32::MAX))
        .min(Duration::from_secs(3))
}

async fn send_part(
    parts: &dyn MultipartStore,
    path: &Path,
    id: &MultipartId,
    index: usize,
    part: Bytes,
    limit: Duration,
    attempts: u32,
) -> Result<PartId, Failed> {
    let mut attempt = 1;
    loop {
        let failed = match timeout(limit, parts.put_part(path, id, index, PutPayload::from(part.clone()))).await {
            Ok(Ok(part)) => return Ok(part),
            Ok(Err(e)) if is_refused_create(&e) => Failed::Store(e),
            Ok(Err(e @ Error::Generic { .. })) if refused_with(&explain(&e)).is_none() => Failed::Store(e),
            Ok(Err(e)) => return Err(Failed::Store(e)),
            Err(_) => Failed::Late(limit),
        };
        if attempt >= attempts {
            return Err(failed);
        }
        tokio::time::sleep(pause(attempt)).await;
        attempt += 1;
    }
}

/// Whether the store says that something is there, or that two requests met. Where nothing was to be created, only the latter can be.
fn is_refused_create(error: &Error) -> bool {
    matches!(error, Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. })
}

/// The status of an answer that says "never", if the error's text tells of one. The library keeps the status private; 408, 409, 425 and 429 may pass.
pub(super) fn refused_with(why: &str) -> Option<u16> {
    let (_, status) = why.split_once("status code: ")?;
    let status: u16 = status.get(..3)?.parse().ok()?;
    ((400..500).contains(&status) && ![408, 409, 425, 429].contains(&status) || status == 501).then_some(status)
}

impl Backend for ObjectBackend {
    fn bucket_directory(&self) -> Option<&str> {
        Some(&self.prefix)
    }

    fn ask_bucket(&self, setting: BucketSetting) -> Result<BucketAnswer> {
        match &self.bucket {
            Some(bucket) => self.attempt("ask about the bucket of", "", 0, bucket.ask(setting)),
            None => Ok(BucketAnswer::Unknown("only S3 servers are asked".to_owned())),
        }
    }

    fn get(&self, key: &str, max_len: u64) -> Result<Option<Bytes>> {
        let path = self.path(key)?;
        let answer = match self.attempt("read", key, 0, self.store.get_opts(&path, GetOptions::default())) {
            Ok(answer) => answer,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(e) => return Err(e),
        };
        let size = answer.meta.size;
        let damaged = |why| StoreError::Damaged { object: self.object(key), why };
        if size > max_len {
            return Err(damaged(format!("it has {size} bytes, more than the {max_len} allowed")));
        }
        let mut body = BytesMut::new();
        self.drain(key, answer, &mut |piece| {
            body.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(Some(body.freeze()))
    }

    fn read(&self, key: &str, range: Range<u64>, size: Option<u64>, sink: Sink<'_>) -> Result<()> {
        let path = self.path(key)?;
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        let answer = self.attempt("read", key, 0, self.store.get_opts(&path, options))?;
        let there = answer.meta.size;
        if answer.range != range || size.is_some_and(|size| size != there) {
            return Err(StoreError::Damaged {
                object: self.object(key),
                why: match size {
                    Some(size) => format!("it has {there} bytes instead of {size}"),
                    None => format!("it has {there} bytes, fewer than {}", range.end),
                },
            });
        }
        self.drain(key, answer, sink)
    }

    fn head(&self, key: &str) -> Result<Option<u64>> {
        let path = self.path(key)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.attempt("look at", key, 0, self.store.get_opts(&path, options)) {
            Ok(answer) => Ok(Some(answer.meta.size)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn list(&self, directory: &str, after: Option<&str>, limit: usize) -> Result<Vec<RawListed>> {
        let path = self.path(directory)?;
        let below = (!path.as_ref().is_empty()).then_some(&path);
        let patience = self.options.attempt_limit(0);
        let mut objects = match after {
            Some(after) => self.store.list_with_offset(below, &self.path(after)?),
            None => self.store.list(below),
        };
        let mut found = Vec::new();
        runtime()?.block_on(async {
            while found.len() < limit {
                match timeout(patience, objects.next()).await {
                    Err(_) => return Err(self.late("list", directory, patience)),
                    Ok(None) => break,
                    Ok(Some(Err(e))) => return Err(self.classify("list", directory, &e)),
                    Ok(Some(Ok(meta))) => {
                        if let Some(key) = self.key_of(&meta.location) {
                            found.push(RawListed { key, size: meta.size });
                        }
                    }
                }
            }
            Ok(())
        })?;
        found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    fn create(&self, key: &str, body: Bytes, _durable: bool) -> Result<Put> {
        let path = self.path(key)?;
        self.put_whole(&path, key, body, PutMode::Create)
    }

    fn replace(&self, key: &str, body: Bytes) -> Result<()> {
        let path = self.path(key)?;
        self.put_whole(&path, key, body, PutMode::Overwrite).map(drop)
    }

    fn upload(&self, key: &str, digest: &Digest, source: &BlobSource<'_>, sent: &Counter) -> Result<()> {
        let path = self.path(key)?;
        if source.len() > self.options.single_put {
            return self.upload_parts(&path, key, digest, source, sent);
        }
        let _room = self.room(source.len())?;
        self.sending.take(source.len());
        let body = match source {
            BlobSource::Bytes(bytes) => bytes.clone(),
            BlobSource::File(file, len) => {
                let object = self.object(key);
                let body = read_whole(file, *len, &object)?;
                let mut hasher = Hasher::new();
                hasher.update(&body);
                check_digest(&hasher, digest, &object)?;
                body
            }
        };
        let length = body.len() as u64;
        self.put_whole(&path, key, body, PutMode::Overwrite)?;
        sent.add(length);
        Ok(())
    }

    fn delete(&self, keys: &[&str]) -> Result<()> {
        let paths: Vec<Path> = keys.iter().map(|key| self.path(key)).collect::<Result<_>>()?;
        let first = keys.first().copied().unwrap_or_default();
        let limit = self.options.attempt_limit((paths.len() as u64).saturating_mul(UNIT));
        let mut answers = self.store.delete_stream(stream::iter(paths.into_iter().map(Ok)).boxed());
        runtime()?.block_on(async {
            loop {
                match timeout(limit, answers.next()).await {
                    Err(_) => return Err(self.late("delete", first, limit)),
                    Ok(None) => return Ok(()),
                    Ok(Some(Ok(_) | Err(Error::NotFound { .. }))) => {}
                    Ok(Some(Err(e))) => return Err(self.classify("delete", first, &e)),
                }
            }
        })
    }
}
