//! What the handles of all kinds of states have in common: the row of the current key, and values with a time to live.

use std::sync::Arc;

use super::core::{Core, Shared, StateId, lock};
use super::descriptor::Declaration;
use super::encoding::EncodedKey;
use super::ttl::{self, Ttl};
use crate::state::error::StateError;
use crate::state::serializer::{Serializer, from_bytes};

/// One state of a backend.
#[derive(Clone)]
pub(super) struct Handle<N> {
    core: Shared,
    id: StateId,
    name: Arc<str>,
    namespace: N,
    ttl: Option<Ttl>,
}

impl<N: Serializer> Handle<N> {
    pub(super) fn new<V>(core: &Shared, id: StateId, declared: &Declaration<N, V>) -> Self {
        let name = Arc::from(declared.name.as_str());
        Self { core: Arc::clone(core), id, name, namespace: declared.namespace.clone(), ttl: declared.ttl }
    }

    pub(super) fn ttl(&self) -> Option<Ttl> {
        self.ttl
    }

    pub(super) fn namespace(&self) -> &N {
        &self.namespace
    }

    /// Does something with the core; errors tell the state.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Core, StateId) -> Result<R, StateError>) -> Result<R, StateError> {
        f(&mut lock(&self.core), self.id).map_err(|e| e.of_state(&self.name))
    }

    /// The row of the current key in a namespace.
    pub(super) fn row(&self, namespace: &N::Item) -> Result<Vec<u8>, StateError> {
        self.with_key(|key| key.row(&self.namespace, namespace))
    }

    /// Does something with the current key.
    pub(super) fn with_key<R>(&self, f: impl FnOnce(&EncodedKey) -> Result<R, StateError>) -> Result<R, StateError> {
        self.with(|core, _| match &core.key {
            Some(key) => f(key),
            None => Err(StateError::NoKey { state: self.name.to_string() }),
        })
    }

    /// An item's bytes after what they begin with, and the time where items expire.
    pub(super) fn value<S: Serializer>(
        &self,
        mut head: Vec<u8>,
        serializer: &S,
        item: &S::Item,
    ) -> Result<Vec<u8>, StateError> {
        if self.ttl.is_some() {
            let now = (lock(&self.core).clock)();
            head.extend_from_slice(&now.to_be_bytes());
        }
        serializer.write(item, &mut head).map_err(|e| e.of_state(&self.name))?;
        Ok(head)
    }

    /// Sets the value of a row.
    pub(super) fn put(&self, row: Vec<u8>, value: Vec<u8>) -> Result<(), StateError> {
        self.with(|core, id| core.put(id, row, value))
    }

    /// Removes a row.
    pub(super) fn delete(&self, row: Vec<u8>) -> Result<(), StateError> {
        self.with(|core, id| core.delete(id, row))
    }

    /// The item of a row whose value begins with `head`; where it is over its time, the row is removed.
    pub(super) fn item<S: Serializer>(
        &self,
        row: &[u8],
        head: &[u8],
        serializer: &S,
    ) -> Result<Option<S::Item>, StateError> {
        self.with(|core, id| {
            let Some(value) = core.get(id, row)? else { return Ok(None) };
            let rest = strip(&value, head)?;
            let Some(ttl) = self.ttl else { return from_bytes(serializer, rest).map(Some) };
            let (used, bytes) = ttl::split(rest)?;
            let now = (core.clock)();
            if ttl.expired(used, now) {
                core.delete(id, row.to_vec())?;
                return Ok(None);
            }
            let item = from_bytes(serializer, bytes)?;
            if ttl.refresh_on_read && used != now {
                let value = [head, &now.to_be_bytes(), bytes].concat();
                core.put(id, row.to_vec(), value)?;
            }
            Ok(Some(item))
        })
    }
}

/// What follows the bytes that a value must begin with.
pub(super) fn strip<'a>(value: &'a [u8], head: &[u8]) -> Result<&'a [u8], StateError> {
    let rest = value.strip_prefix(head);
    rest.ok_or_else(|| {
        StateError::decode("value of a map", format!("it does not begin with {head:02x?}: it is null, or no value"))
    })
}

impl<N> std::fmt::Debug for Handle<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Handle").field(&self.name).finish()
    }
}
