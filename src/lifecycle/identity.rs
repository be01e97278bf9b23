//! A store's own record: who it is, and whether this version may write to it.

use bytes::Bytes;

use super::error::LifecycleError;
use super::machine::read;
use crate::format::header::encode_requiring;
use crate::format::records::StoreRecord;
use crate::format::{Decoded, Place, Role};
use crate::limits;
use crate::store::{Created, Store};
use crate::types::{Key, Uid};

/// Who a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreIdentity {
    /// Its id.
    pub id: Uid,
    /// What writers must know and this version does not; empty when it may write.
    pub blocks_writing: Vec<String>,
}

impl StoreIdentity {
    /// Whether this version may write.
    ///
    /// # Errors
    /// [`LifecycleError::NewerForWriters`] says what is needed.
    pub fn writable(&self) -> Result<(), LifecycleError> {
        may_write(&self.blocks_writing)
    }
}

/// Whether a store that asks this of writers may be written.
///
/// # Errors
/// [`LifecycleError::KeyNeeded`] for a signed store without a key, [`LifecycleError::NewerForWriters`] for anything else.
pub fn may_write(blocks_writing: &[String]) -> Result<(), LifecycleError> {
    match blocks_writing {
        [] => Ok(()),
        [one] if one == SIGNATURE => Err(LifecycleError::KeyNeeded),
        more => Err(LifecycleError::NewerForWriters { key: Key::store(), needs: more.join(", ") }),
    }
}

/// What a signed store asks of its writers: somebody without the key may read, but would leave records that nobody believes.
const SIGNATURE: &str = "signature";

fn signs(store: &Store) -> bool {
    store.options().keys.is_some()
}

fn believed(store: &Store, bytes: &Bytes) -> Result<StoreIdentity, LifecycleError> {
    let decoded: Option<Decoded<StoreRecord>> = read(&Key::store(), Some(bytes))?;
    let mut decoded = decoded.ok_or(LifecycleError::Confused)?;
    decoded.blocks_writing.retain(|asked| asked != SIGNATURE || !signs(store));
    Ok(StoreIdentity { id: decoded.record.place.uid, blocks_writing: decoded.blocks_writing })
}

/// Reads a store's record. Never creates anything.
///
/// # Errors
/// [`LifecycleError::NotAStore`] where there is none; damaged and newer records.
pub fn identify(store: &Store) -> Result<StoreIdentity, LifecycleError> {
    match store.get(&Key::store(), limits::METADATA_LEN)? {
        Some(bytes) => believed(store, &bytes),
        None => Err(LifecycleError::NotAStore { url: store.url().to_owned() }),
    }
}

/// Creates a store's record; a rival's that came first is as good.
///
/// # Errors
/// [`LifecycleError::NotOurs`] where other objects lie, and the store's errors.
pub fn create(store: &Store, fresh: Uid) -> Result<StoreIdentity, LifecycleError> {
    store.create_root()?;
    if store.looks_foreign()? {
        return Err(LifecycleError::NotOurs { url: store.url().to_owned() });
    }
    let record = StoreRecord {
        place: Place { role: Role::Store, job: None, number: 0, uid: fresh, subtask: None, holder: None, nonce: None },
        created_by: concat!("ckptfs ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    let asked: &[&str] = if signs(store) { &[SIGNATURE] } else { &[] };
    let bytes = encode_requiring(&record, &[], asked).map_err(LifecycleError::Unwritable)?;
    match store.create(&Key::store(), bytes.into())? {
        Created::New | Created::Ours => Ok(StoreIdentity { id: fresh, blocks_writing: Vec::new() }),
        Created::Other(bytes) => believed(store, &bytes),
    }
}
