//! Runs a machine against a store. All the protocol's I/O is here.

use bytes::Bytes;

use super::error::LifecycleError;
use super::machine::{Machine, Reply, Request, Step};
use crate::format::refusal;
use crate::limits;
use crate::store::{Created, Store, StoreError};
use crate::types::{self, BlobName, Digest, Key, Prefix};

/// Requests to a local disk that are worth threads.
const MANY: usize = 16;

/// What stands beside a machine while it runs.
pub trait Companion: Sync {
    /// A task manifest with this digest, where one is kept.
    fn manifest(&self, digest: &Digest) -> Option<Bytes> {
        let _ = digest;
        None
    }

    /// A task manifest that was read.
    fn keep_manifest(&self, digest: &Digest, bytes: &Bytes) {
        let _ = (digest, bytes);
    }

    /// These requests go out next. May wait.
    fn about_to(&self, requests: &[Request]) {
        let _ = requests;
    }
}

/// Nothing.
impl Companion for () {}

/// What answers requests one by one: a store, or the search's model of one.
pub trait Answers {
    /// The keys below a prefix.
    ///
    /// # Errors
    /// The store's.
    fn list(&self, prefix: &Prefix) -> Result<Vec<Key>, StoreError>;

    /// The blobs with their lengths.
    ///
    /// # Errors
    /// The store's.
    fn blobs(&self) -> Result<Vec<(BlobName, u64)>, StoreError>;

    /// A record's bytes, or nothing.
    ///
    /// # Errors
    /// The store's.
    fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError>;

    /// A blob's length, or nothing.
    ///
    /// # Errors
    /// The store's.
    fn head(&self, key: &Key) -> Result<Option<u64>, StoreError>;

    /// Creates a record if it is absent.
    ///
    /// # Errors
    /// The store's.
    fn create(&self, key: &Key, bytes: Bytes) -> Result<Created, StoreError>;

    /// Removes an object, if it is there.
    ///
    /// # Errors
    /// The store's.
    fn delete(&self, key: &Key) -> Result<(), StoreError>;
}

impl Answers for Store {
    fn list(&self, prefix: &Prefix) -> Result<Vec<Key>, StoreError> {
        Ok(Store::list(self, prefix)?.into_iter().map(|l| l.key).collect())
    }

    fn blobs(&self) -> Result<Vec<(BlobName, u64)>, StoreError> {
        Store::blobs(self)
    }

    fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        Store::get(self, key, limits::METADATA_LEN)
    }

    fn head(&self, key: &Key) -> Result<Option<u64>, StoreError> {
        Store::head(self, key)
    }

    fn create(&self, key: &Key, bytes: Bytes) -> Result<Created, StoreError> {
        Store::create(self, key, bytes)
    }

    fn delete(&self, key: &Key) -> Result<(), StoreError> {
        Store::delete(self, key)
    }
}

/// Runs a machine to its end. A store error ends it: what was created stays, and the next run finds it.
///
/// # Errors
/// The machine's own, or the store's.
pub fn run<M: Machine>(store: &Store, machine: M) -> Result<M::Output, LifecycleError> {
    run_beside(store, &(), machine)
}

/// [`run`] with a companion.
///
/// # Errors
/// As [`run`].
pub fn run_beside<M: Machine>(
    store: &Store,
    companion: &dyn Companion,
    mut machine: M,
) -> Result<M::Output, LifecycleError> {
    let mut replies = Vec::new();
    loop {
        match machine.step(replies) {
            Step::Done(result) => return result,
            Step::Ask(requests) => {
                companion.about_to(&requests);
                replies = answer(store, companion, requests)?;
            }
        }
    }
}

fn answer(store: &Store, companion: &dyn Companion, requests: Vec<Request>) -> Result<Vec<Reply>, LifecycleError> {
    if let [Request::Delete(_), ..] = requests.as_slice() {
        return delete(store, requests);
    }
    if store.answers_at_once() && requests.len() < MANY {
        // Threads would cost more than they save.
        return requests.into_iter().map(|request| Ok(perform(store, companion, request)?)).collect();
    }
    parallel(requests, |request| Ok(perform(store, companion, request)?))
}

/// Removals go together where the store has a request for it.
fn delete(store: &Store, requests: Vec<Request>) -> Result<Vec<Reply>, LifecycleError> {
    let keys: Option<Vec<Key>> =
        requests.into_iter().map(|r| if let Request::Delete(key) = r { Some(key) } else { None }).collect();
    let keys = keys.ok_or(LifecycleError::Confused)?;
    store.delete_many(&keys)?;
    Ok(keys.iter().map(|_| Reply::Deleted).collect())
}

/// One request.
///
/// # Errors
/// The store's, which end the machine: no machine ever sees half of an answer.
pub fn perform(store: &impl Answers, companion: &dyn Companion, request: Request) -> Result<Reply, StoreError> {
    Ok(match request {
        Request::List(prefix) => Reply::Listed(store.list(&prefix)?),
        Request::Get(key) => Reply::Got(match store.get(&key) {
            Err(e) => Some(refused(e)?),
            Ok(bytes) => bytes,
        }),
        Request::Create(key, bytes) => Reply::Created(match store.create(&key, bytes) {
            Err(e) => Created::Other(refused(e)?),
            Ok(created) => created,
        }),
        Request::Head(key) => Reply::Headed(store.head(&key)?),
        Request::Blobs => Reply::Blobs(store.blobs()?),
        Request::Manifest(key, digest) => {
            if let Some(bytes) = companion.manifest(&digest) {
                return Ok(Reply::Got(Some(bytes)));
            }
            let bytes = store.get(&key)?;
            if let Some(bytes) = bytes.as_ref().filter(|b| Digest::of(b) == digest) {
                companion.keep_manifest(&digest, bytes);
            }
            Reply::Got(bytes)
        }
        Request::Delete(key) => {
            store.delete(&key)?;
            Reply::Deleted
        }
    })
}

/// A record that is there and is not believed is a damaged one to a machine, and no failure of the store.
fn refused(e: StoreError) -> Result<Bytes, StoreError> {
    match e {
        StoreError::Untrusted { why, .. } => Ok(refusal(&why).into()),
        e => Err(e),
    }
}

/// Maps a list with at most [`limits::PARALLEL_REQUESTS`] threads; results keep the list's order. The first error in that order wins.
///
/// # Errors
/// What `f` returned.
pub fn parallel<T: Send, R: Send, E: Send>(items: Vec<T>, f: impl Fn(T) -> Result<R, E> + Sync) -> Result<Vec<R>, E> {
    types::parallel(limits::PARALLEL_REQUESTS, items, f)
}
