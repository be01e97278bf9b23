//! What a machine asks for and is told.

use bytes::Bytes;

use super::error::LifecycleError;
use crate::format::{Decoded, FormatError, Record, decode_at};
use crate::store::Created;
use crate::types::{BlobName, Digest, Key, Prefix};

/// A request to the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Request {
    /// All keys below a prefix.
    List(Prefix),
    /// A record's bytes.
    Get(Key),
    /// Create a record if it is absent.
    Create(Key, Bytes),
    /// The length of a blob.
    Head(Key),
    /// All blobs, with their lengths.
    Blobs,
    /// A task manifest with this digest. Such a one never changes, so that it may come from a cache.
    Manifest(Key, Digest),
    /// Remove an object. One that is not there is removed.
    Delete(Key),
}

/// The answer to a [`Request`] of the same name.
#[derive(Debug, Clone)]
pub enum Reply {
    /// The keys that are there.
    Listed(Vec<Key>),
    /// The bytes of a record or a task manifest, or nothing.
    Got(Option<Bytes>),
    /// Who won.
    Created(Created),
    /// The length, or nothing.
    Headed(Option<u64>),
    /// Names and lengths of the blobs that are there.
    Blobs(Vec<(BlobName, u64)>),
    /// It is not there any more.
    Deleted,
}

/// What a machine wants next.
#[derive(Debug)]
pub enum Step<T> {
    /// These requests, which may run in any order and at once; the replies come back in the order of the requests.
    Ask(Vec<Request>),
    /// It is over.
    Done(Result<T, LifecycleError>),
}

/// A verb of the protocol, without its I/O.
pub trait Machine {
    /// What it ends with.
    type Output;

    /// The first step takes no replies, each further one those to the requests before it.
    fn step(&mut self, replies: Vec<Reply>) -> Step<Self::Output>;
}

/// A record read at its own key, or nothing.
pub(super) fn read<R: Record>(key: &Key, bytes: Option<&Bytes>) -> Result<Option<Decoded<R>>, LifecycleError> {
    bytes
        .map(|b| decode_at::<R>(key, b))
        .transpose()
        .map_err(|source: FormatError| LifecycleError::Format { key: key.clone(), source })
}

/// A record that this version may write beside.
pub(super) fn writable<R>(key: &Key, decoded: Decoded<R>) -> Result<R, LifecycleError> {
    if decoded.blocks_writing.is_empty() {
        Ok(decoded.record)
    } else {
        Err(LifecycleError::NewerForWriters { key: key.clone(), needs: decoded.blocks_writing.join(", ") })
    }
}

/// The stored bytes of a record.
pub(super) fn write<R: Record>(record: &R) -> Result<Bytes, LifecycleError> {
    crate::format::encode(record).map(Bytes::from).map_err(LifecycleError::Unwritable)
}

/// Takes the replies to a batch of lists.
pub(super) fn listed(replies: Vec<Reply>) -> Result<Vec<Vec<Key>>, LifecycleError> {
    replies
        .into_iter()
        .map(|r| if let Reply::Listed(keys) = r { Ok(keys) } else { Err(LifecycleError::Confused) })
        .collect()
}

/// Takes the replies to a batch of gets.
pub(super) fn got(replies: Vec<Reply>) -> Result<Vec<Option<Bytes>>, LifecycleError> {
    replies
        .into_iter()
        .map(|r| if let Reply::Got(bytes) = r { Ok(bytes) } else { Err(LifecycleError::Confused) })
        .collect()
}

/// Takes the replies to a batch of heads.
pub(super) fn headed(replies: Vec<Reply>) -> Result<Vec<Option<u64>>, LifecycleError> {
    replies
        .into_iter()
        .map(|r| if let Reply::Headed(length) = r { Ok(length) } else { Err(LifecycleError::Confused) })
        .collect()
}

/// Takes the replies to a batch of removals.
pub(super) fn deleted(replies: &[Reply]) -> Result<(), LifecycleError> {
    if replies.iter().all(|r| matches!(r, Reply::Deleted)) { Ok(()) } else { Err(LifecycleError::Confused) }
}

/// Takes the reply to one create.
pub(super) fn created(replies: Vec<Reply>) -> Result<Created, LifecycleError> {
    match replies.into_iter().next() {
        Some(Reply::Created(c)) => Ok(c),
        _ => Err(LifecycleError::Confused),
    }
}

/// Ends a machine with an error, in functions that return a [`Step`].
macro_rules! tri {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(e) => return Step::Done(Err(e.into())),
        }
    };
}
pub(super) use tri;
