//! A store's own record: who it is, and whether this version may write to it.

use bytes::Bytes;

use super::error::LifecycleError;
use super::machine::{read, write};
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
        if self.blocks_writing.is_empty() {
            return Ok(());
        }
        Err(LifecycleError::NewerForWriters { key: Key::store(), needs: self.blocks_writing.join(", ") })
    }
}

fn believed(bytes: &Bytes) -> Result<StoreIdentity, LifecycleError> {
    let decoded: Option<Decoded<StoreRecord>> = read(&Key::store(), Some(bytes))?;
    let decoded = decoded.ok_or(LifecycleError::Confused)?;
    Ok(StoreIdentity { id: decoded.record.place.uid, blocks_writing: decoded.blocks_writing })
}

/// Reads a store's record. Never creates anything.
///
/// # Errors
/// [`LifecycleError::NotAStore`] where there is none; damaged and newer records.
pub fn identify(store: &Store) -> Result<StoreIdentity, LifecycleError> {
    match store.get(&Key::store(), limits::METADATA_LEN)? {
        Some(bytes) => believed(&bytes),
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
    match store.create(&Key::store(), write(&record)?)? {
        Created::New | Created::Ours => Ok(StoreIdentity { id: fresh, blocks_writing: Vec::new() }),
        Created::Other(bytes) => believed(&bytes),
    }
}
