//! A list per key and namespace: Flink's format, the elements with a comma between each two and nothing else. Adding writes the new
//! element alone; RocksDB joins them.

use std::fmt;

use super::handle::Handle;
use super::ttl;
use crate::state::error::StateError;
use crate::state::options::DELIMITER;
use crate::state::serializer::Serializer;

/// A list of the current key.
#[derive(Clone)]
pub struct ListState<N, V> {
    pub(super) handle: Handle<N>,
    pub(super) value: V,
}

impl<N: Serializer, V: Serializer> ListState<N, V> {
    /// The elements in the order in which they were added; none where nothing was. Those that are over their time are removed.
    ///
    /// # Errors
    /// When no key is set, the list is damaged, or RocksDB cannot read.
    pub fn get(&self, namespace: &N::Item) -> Result<Vec<V::Item>, StateError> {
        let row = self.handle.row(namespace)?;
        self.handle.with(|core, id| {
            let Some(bytes) = core.get(id, &row)? else { return Ok(Vec::new()) };
            let now = (core.clock)();
            let (mut items, mut kept) = (Vec::new(), Vec::new());
            let mut changed = false;
            let mut rest = bytes.as_slice();
            while let Some(element) = self.next(&mut rest)? {
                let used = match self.handle.ttl() {
                    Some(ttl) if ttl.expired(element.used, now) => {
                        changed = true;
                        continue;
                    }
                    Some(ttl) if ttl.refresh_on_read && element.used != now => {
                        changed = true;
                        now
                    }
                    _ => element.used,
                };
                if self.handle.ttl().is_some() {
                    kept.push([&used.to_be_bytes(), element.bytes].concat());
                }
                items.push(element.item);
            }
            if changed && kept.is_empty() {
                core.delete(id, row)?;
            } else if changed {
                core.put(id, row, kept.join(&DELIMITER))?;
            }
            Ok(items)
        })
    }

    /// Takes an element and the comma after it from the front.
    fn next<'a>(&self, rest: &mut &'a [u8]) -> Result<Option<Element<'a, V::Item>>, StateError> {
        if rest.is_empty() {
            return Ok(None);
        }
        let mut used = 0;
        if self.handle.ttl().is_some() {
            (used, *rest) = ttl::split(rest)?;
        }
        let before = *rest;
        let item = self.value.read(rest)?;
        let bytes = before.get(..before.len().saturating_sub(rest.len())).unwrap_or_default();
        match rest.split_first() {
            None => {}
            Some((&DELIMITER, after)) if !after.is_empty() => *rest = after,
            Some(_) => return Err(StateError::decode("list", "there is no comma and element after an element")),
        }
        Ok(Some(Element { used, bytes, item }))
    }

    /// Adds an element at the end.
    ///
    /// # Errors
    /// When no key is set, the element cannot be written or has no bytes, or RocksDB cannot write.
    pub fn add(&self, namespace: &N::Item, item: &V::Item) -> Result<(), StateError> {
        self.add_all(namespace, std::slice::from_ref(item))
    }

    /// Adds elements at the end.
    ///
    /// # Errors
    /// As [`ListState::add`]; then none was added.
    pub fn add_all(&self, namespace: &N::Item, items: &[V::Item]) -> Result<(), StateError> {
        let row = self.handle.row(namespace)?;
        match self.joined(items)? {
            Some(bytes) => self.handle.with(|core, id| core.append(id, row, &bytes)),
            None => Ok(()),
        }
    }

    /// Puts other elements in the place of all.
    ///
    /// # Errors
    /// As [`ListState::add`]; then nothing has changed.
    pub fn update(&self, namespace: &N::Item, items: &[V::Item]) -> Result<(), StateError> {
        let row = self.handle.row(namespace)?;
        match self.joined(items)? {
            Some(bytes) => self.handle.put(row, bytes),
            None => self.handle.delete(row),
        }
    }

    /// Removes all elements.
    ///
    /// # Errors
    /// When no key is set, or RocksDB cannot write.
    pub fn clear(&self, namespace: &N::Item) -> Result<(), StateError> {
        self.update(namespace, &[])
    }

    /// Elements with a comma between each two; nothing where there are none.
    fn joined(&self, items: &[V::Item]) -> Result<Option<Vec<u8>>, StateError> {
        let element = |item| {
            let bytes = self.handle.value(Vec::new(), &self.value, item)?;
            // A list of one such element could not be told from an empty one.
            let empty = bytes.is_empty().then(|| StateError::encode("list's element", "it has no bytes"));
            empty.map_or(Ok(bytes), |e| self.handle.with(|_, _| Err(e)))
        };
        let elements = items.iter().map(element).collect::<Result<Vec<_>, _>>()?;
        Ok((!elements.is_empty()).then(|| elements.join(&DELIMITER)))
    }
}

/// One element of a stored list.
struct Element<'a, T> {
    /// When it was last used; 0 where elements do not expire.
    used: u64,
    bytes: &'a [u8],
    item: T,
}

impl<N, V> fmt::Debug for ListState<N, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ListState").field(&self.handle).finish()
    }
}
