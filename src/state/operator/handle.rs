//! What an operator holds in its hands: a list, or a map.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::backend::{Content, States, check_count, lock};
use super::map::check_length;
use crate::state::error::StateError;
use crate::state::serializer::{Entries, Serializer, from_bytes, to_bytes};

/// List state of an operator, split or union.
#[derive(Debug, Clone)]
pub struct OperatorList<S> {
    name: String,
    serializer: S,
    states: Arc<Mutex<States>>,
}

impl<S: Serializer> OperatorList<S> {
    pub(super) fn new(name: &str, serializer: S, states: Arc<Mutex<States>>) -> Self {
        Self { name: name.to_owned(), serializer, states }
    }

    fn elements<R>(&self, f: impl FnOnce(&mut Vec<Arc<[u8]>>) -> Result<R, StateError>) -> Result<R, StateError> {
        match lock(&self.states).get_mut(&self.name).map(|held| &mut held.content) {
            Some(Content::List(elements)) => f(elements).map_err(|e| e.of_state(&self.name)),
            _ => Err(StateError::Closed),
        }
    }

    /// Its elements in the order in which they were added.
    ///
    /// # Errors
    /// When an element is damaged.
    pub fn get(&self) -> Result<Vec<S::Item>, StateError> {
        self.elements(|elements| elements.iter().map(|bytes| from_bytes(&self.serializer, bytes)).collect())
    }

    /// Adds an element at the end.
    ///
    /// # Errors
    /// When it cannot be written, or there are too many.
    pub fn add(&self, item: &S::Item) -> Result<(), StateError> {
        let bytes = to_bytes(&self.serializer, item).map_err(|e| e.of_state(&self.name))?;
        self.elements(|elements| {
            check_count(elements.len().saturating_add(1))?;
            elements.push(Arc::from(bytes));
            Ok(())
        })
    }

    /// Puts other elements in the place of all.
    ///
    /// # Errors
    /// When one cannot be written, or there are too many; then nothing has changed.
    pub fn update(&self, items: &[S::Item]) -> Result<(), StateError> {
        let all = items.iter().map(|item| to_bytes(&self.serializer, item).map(Arc::from));
        let all = all.collect::<Result<Vec<_>, _>>().map_err(|e| e.of_state(&self.name))?;
        self.elements(|elements| {
            check_count(all.len())?;
            *elements = all;
            Ok(())
        })
    }

    /// Removes all elements.
    ///
    /// # Errors
    /// None today.
    pub fn clear(&self) -> Result<(), StateError> {
        self.update(&[])
    }
}

/// Broadcast state of an operator.
#[derive(Debug, Clone)]
pub struct BroadcastState<K, V> {
    name: String,
    key: K,
    value: V,
    states: Arc<Mutex<States>>,
}

impl<K: Serializer, V: Serializer> BroadcastState<K, V> {
    pub(super) fn new(name: &str, key: K, value: V, states: Arc<Mutex<States>>) -> Self {
        Self { name: name.to_owned(), key, value, states }
    }

    fn entries_of<R>(
        &self,
        f: impl FnOnce(&mut BTreeMap<Vec<u8>, Arc<[u8]>>) -> Result<R, StateError>,
    ) -> Result<R, StateError> {
        match lock(&self.states).get_mut(&self.name).map(|held| &mut held.content) {
            Some(Content::Map(entries)) => f(entries).map_err(|e| e.of_state(&self.name)),
            _ => Err(StateError::Closed),
        }
    }

    fn key_bytes(&self, key: &K::Item) -> Result<Vec<u8>, StateError> {
        to_bytes(&self.key, key).map_err(|e| e.of_state(&self.name))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// When the key cannot be written, or the value is damaged.
    pub fn get(&self, key: &K::Item) -> Result<Option<V::Item>, StateError> {
        let key = self.key_bytes(key)?;
        self.entries_of(|entries| entries.get(&key).map(|bytes| from_bytes(&self.value, bytes)).transpose())
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// When one of them cannot be written.
    pub fn put(&self, key: &K::Item, value: &V::Item) -> Result<(), StateError> {
        let key = self.key_bytes(key)?;
        let value = to_bytes(&self.value, value).map_err(|e| e.of_state(&self.name))?;
        self.entries_of(|entries| {
            check_length(&key)?;
            check_length(&value)?;
            entries.insert(key, Arc::from(value));
            Ok(())
        })
    }

    /// Removes a key.
    ///
    /// # Errors
    /// When the key cannot be written.
    pub fn remove(&self, key: &K::Item) -> Result<(), StateError> {
        let key = self.key_bytes(key)?;
        self.entries_of(|entries| {
            entries.remove(&key);
            Ok(())
        })
    }

    /// All keys and values, in the order of the keys' bytes.
    ///
    /// # Errors
    /// When one is damaged.
    pub fn entries(&self) -> Result<Entries<K, V>, StateError> {
        self.entries_of(|entries| {
            let item = |(key, value): (&Vec<u8>, &Arc<[u8]>)| {
                Ok((from_bytes(&self.key, key)?, from_bytes(&self.value, value)?))
            };
            entries.iter().map(item).collect()
        })
    }
}
