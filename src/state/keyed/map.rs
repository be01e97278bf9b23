//! A map per key and namespace: a row for each of its keys, so that a large map is never read whole to change one of its values.

use std::fmt;

use super::encoding::after_prefix;
use super::handle::{Handle, strip};
use super::ttl;
use crate::state::error::StateError;
use crate::state::serializer::{Entries, Serializer, from_bytes};

/// What a value of a map begins with in Flink's format: it is not null.
pub(super) const NOT_NULL: &[u8] = &[0];

/// A map of the current key.
#[derive(Clone)]
pub struct MapState<N, U, V> {
    pub(super) handle: Handle<N>,
    pub(super) user_key: U,
    pub(super) value: V,
}

impl<N: Serializer, U: Serializer, V: Serializer> MapState<N, U, V> {
    fn row(&self, namespace: &N::Item, user_key: &U::Item) -> Result<Vec<u8>, StateError> {
        let mut row = self.handle.row(namespace)?;
        self.handle.with(|_, _| self.user_key.write(user_key, &mut row))?;
        Ok(row)
    }

    /// The value of a key of the map.
    ///
    /// # Errors
    /// When no key is set, the value is damaged, or RocksDB cannot read.
    pub fn get(&self, namespace: &N::Item, user_key: &U::Item) -> Result<Option<V::Item>, StateError> {
        self.handle.item(&self.row(namespace, user_key)?, NOT_NULL, &self.value)
    }

    /// Sets the value of a key of the map.
    ///
    /// # Errors
    /// When no key is set, key or value cannot be written, or RocksDB cannot write.
    pub fn put(&self, namespace: &N::Item, user_key: &U::Item, item: &V::Item) -> Result<(), StateError> {
        let value = self.handle.value(NOT_NULL.to_vec(), &self.value, item)?;
        self.handle.put(self.row(namespace, user_key)?, value)
    }

    /// Removes a key of the map.
    ///
    /// # Errors
    /// When no key is set, the map's key cannot be written, or RocksDB cannot write.
    pub fn remove(&self, namespace: &N::Item, user_key: &U::Item) -> Result<(), StateError> {
        self.handle.delete(self.row(namespace, user_key)?)
    }

    /// All keys and values of the map, in the order of the keys' bytes. Those that are over their time are removed.
    ///
    /// # Errors
    /// When no key is set, something is damaged, or RocksDB cannot read.
    pub fn entries(&self, namespace: &N::Item) -> Result<Entries<U, V>, StateError> {
        let prefix = self.handle.row(namespace)?;
        self.handle.with(|core, id| {
            let now = (core.clock)();
            let (mut entries, mut expired, mut refreshed) = (Vec::new(), Vec::new(), Vec::new());
            core.scan(id, (&prefix, after_prefix(&prefix).as_deref()), |row, value| {
                let mut bytes = strip(value, NOT_NULL)?;
                if let Some(ttl) = self.handle.ttl() {
                    let used;
                    (used, bytes) = ttl::split(bytes)?;
                    if ttl.expired(used, now) {
                        expired.push(row.to_vec());
                        return Ok(true);
                    }
                    if ttl.refresh_on_read && used != now {
                        refreshed.push((row.to_vec(), [NOT_NULL, &now.to_be_bytes(), bytes].concat()));
                    }
                }
                let user_key = from_bytes(&self.user_key, row.get(prefix.len()..).unwrap_or_default())?;
                entries.push((user_key, from_bytes(&self.value, bytes)?));
                Ok(true)
            })?;
            expired.into_iter().try_for_each(|row| core.delete(id, row))?;
            refreshed.into_iter().try_for_each(|(row, value)| core.put(id, row, value))?;
            Ok(entries)
        })
    }

    /// Removes all keys of the map.
    ///
    /// # Errors
    /// When no key is set, or RocksDB cannot read or write.
    pub fn clear(&self, namespace: &N::Item) -> Result<(), StateError> {
        let prefix = self.handle.row(namespace)?;
        self.handle.with(|core, id| {
            let mut rows = Vec::new();
            core.scan(id, (&prefix, after_prefix(&prefix).as_deref()), |row, _| {
                rows.push(row.to_vec());
                Ok(true)
            })?;
            rows.into_iter().try_for_each(|row| core.delete(id, row))
        })
    }
}

impl<N, U, V> fmt::Debug for MapState<N, U, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MapState").field(&self.handle).finish()
    }
}
