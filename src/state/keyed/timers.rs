//! Timers: a set of (timestamp, key, namespace), ordered by time within each key group, in a column family of rows without values.

use std::fmt;

use super::encoding::{group_prefix, order_of, read_timer, timestamp_of};
use super::handle::Handle;
use crate::state::error::StateError;
use crate::state::serializer::Serializer;

/// A timer that was due.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer<K, N> {
    /// Its time in milliseconds.
    pub timestamp: i64,
    /// The key that it was set for.
    pub key: K,
    /// The namespace that it was set for.
    pub namespace: N,
}

/// Timers that were due.
pub type Due<K, N> = Vec<Timer<<K as Serializer>::Item, <N as Serializer>::Item>>;

/// Timers of one clock under one name.
#[derive(Clone)]
pub struct Timers<K, N> {
    pub(super) handle: Handle<N>,
    pub(super) keys: K,
}

impl<K: Serializer, N: Serializer> Timers<K, N> {
    /// Sets a timer of the current key. One that is set already stays as it is.
    ///
    /// # Errors
    /// When no key is set, the namespace cannot be written, or RocksDB cannot write.
    pub fn register(&self, namespace: &N::Item, timestamp: i64) -> Result<(), StateError> {
        let (group, row) = self.row(namespace, timestamp)?;
        self.handle.with(|core, id| {
            core.put(id, row, Vec::new())?;
            let bound = core.timer_bound(id, group)?;
            *bound = Some(bound.map_or(timestamp, |b| b.min(timestamp)));
            Ok(())
        })
    }

    /// Removes a timer of the current key, where it is set.
    ///
    /// # Errors
    /// When no key is set, the namespace cannot be written, or RocksDB cannot write.
    pub fn delete(&self, namespace: &N::Item, timestamp: i64) -> Result<(), StateError> {
        let (_, row) = self.row(namespace, timestamp)?;
        self.handle.delete(row)
    }

    fn row(&self, namespace: &N::Item, timestamp: i64) -> Result<(u32, Vec<u8>), StateError> {
        let namespaces = self.handle.namespace();
        self.handle.with_key(|key| Ok((key.group, key.timer(timestamp, namespaces, namespace)?)))
    }

    /// Takes all timers up to a time, that one too, of all keys, in the order of their times; at the same time in the order of key group,
    /// key and namespace. Each is given once. Those that are set meanwhile are not among them: ask again until there are none.
    ///
    /// # Errors
    /// When a row is damaged, or RocksDB cannot read or write; then some may be taken already, and the task must fail.
    pub fn pop_until(&self, time: i64) -> Result<Due<K, N>, StateError> {
        let rows = self.handle.with(|core, id| {
            let mut rows = Vec::new();
            for group in core.descriptor.range.iter() {
                let Some(bound) = core.timer_bound(id, group)?.filter(|b| *b <= time) else { continue };
                let max_parallelism = core.descriptor.max_parallelism;
                // Before the bound there is none, only what RocksDB still has of those that are gone.
                let from = [group_prefix(group, max_parallelism).as_slice(), &order_of(bound)].concat();
                let to = group_prefix(group.saturating_add(1), max_parallelism);
                let mut next = None;
                core.scan(id, (&from, Some(&to)), |row, _| {
                    let timestamp = timestamp_of(row, max_parallelism)?;
                    if timestamp > time {
                        next = Some(timestamp);
                        return Ok(false);
                    }
                    rows.push((timestamp, row.to_vec()));
                    Ok(true)
                })?;
                *core.timer_bound(id, group)? = next;
            }
            rows.sort();
            rows.iter().try_for_each(|(_, row)| core.delete(id, row.clone()))?;
            Ok(rows)
        })?;
        let max_parallelism = self.handle.with(|core, _| Ok(core.descriptor.max_parallelism))?;
        let timer = |(_, row): (i64, Vec<u8>)| {
            let read = read_timer(&row, max_parallelism, &self.keys, self.handle.namespace());
            let (timestamp, key, namespace) = self.handle.with(|_, _| read)?;
            Ok(Timer { timestamp, key, namespace })
        };
        rows.into_iter().map(timer).collect()
    }

    /// The time of the earliest timer.
    ///
    /// # Errors
    /// When a row is damaged, or RocksDB cannot read.
    pub fn earliest(&self) -> Result<Option<i64>, StateError> {
        self.handle.with(|core, id| {
            let mut earliest = None;
            for group in core.descriptor.range.iter() {
                let max_parallelism = core.descriptor.max_parallelism;
                let Some(bound) = core.timer_bound(id, group)?.filter(|b| earliest.is_none_or(|e| *b < e)) else {
                    continue;
                };
                let from = [group_prefix(group, max_parallelism).as_slice(), &order_of(bound)].concat();
                let to = group_prefix(group.saturating_add(1), max_parallelism);
                let mut first = None;
                core.scan(id, (&from, Some(&to)), |row, _| {
                    first = Some(timestamp_of(row, max_parallelism)?);
                    Ok(false)
                })?;
                *core.timer_bound(id, group)? = first;
                earliest = [earliest, first].into_iter().flatten().min();
            }
            Ok(earliest)
        })
    }
}

impl<K, N> fmt::Debug for Timers<K, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timers").field(&self.handle).finish()
    }
}
