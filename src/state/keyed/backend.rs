//! The backend as an operator has it: keys of one type, and states to declare.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::core::{Access, Core, Shared, lock};
use super::descriptor::{Declaration, KeyedDescriptor, StateKind, TimeDomain};
use super::encoding::{EncodedKey, group_prefix, read_row};
use super::handle::Handle;
use super::list::ListState;
use super::map::MapState;
use super::timers::Timers;
use super::value::{Aggregate, AggregatingState, ReducingState, ValueState};
use super::{Clock, KeyedState};
use crate::state::error::StateError;
use crate::state::options::DatabaseOptions;
use crate::state::serializer::{Compatibility, KeySerializer, Serializer, compatible_keys};
use crate::types::{KeyGroupRange, Uid, key_group_of};

/// How a backend is made or opened.
#[derive(Clone)]
pub struct KeyedConfig<K> {
    /// The serializer of its keys.
    pub serializer: K,
    /// The subtask's key groups.
    pub range: KeyGroupRange,
    /// The operator's largest parallelism, 1 to 32,768, the same for its whole life.
    pub max_parallelism: u32,
    /// Sizes of the database; whether it may be made does not matter.
    pub options: DatabaseOptions,
    /// What time it is, for values with a time to live.
    pub clock: Clock,
}

/// Keyed state on RocksDB. Copies of it, and the states that it hands out, are the same backend with the same current key: for one
/// thread at a time.
///
/// What is written becomes part of the database by and by, without RocksDB's log: after a crash it is restored from a checkpoint.
#[derive(Clone)]
pub struct KeyedBackend<K> {
    serializer: K,
    core: Shared,
}

impl<K: KeySerializer> KeyedBackend<K> {
    /// Makes a database without states, of a new identity, in a directory that has none yet.
    ///
    /// # Errors
    /// When there is one, the range or the largest parallelism are out of bounds, or the directory cannot be written.
    pub fn create(directory: &Path, config: KeyedConfig<K>) -> Result<Self, StateError> {
        if directory.join("CURRENT").exists() {
            return Err(StateError::Exists { path: directory.to_owned() });
        }
        let uid = Uid::random().map_err(|source| StateError::Identity { path: directory.to_owned(), source })?;
        let descriptor = KeyedDescriptor {
            key: config.serializer.descriptor(),
            max_parallelism: config.max_parallelism,
            range: config.range,
            backend: uid,
            states: Vec::new(),
        };
        Self::start(directory, descriptor, config, Access::Write { create: true })
    }

    /// Opens a database that a checkpoint brought, with all its states. It may be a clone.
    ///
    /// # Errors
    /// When the descriptor has other keys, another range or largest parallelism than the config, the directory lacks a state, or
    /// RocksDB cannot open it.
    pub fn open(directory: &Path, descriptor: &KeyedDescriptor, config: KeyedConfig<K>) -> Result<Self, StateError> {
        Self::check(directory, descriptor, &config)?;
        Self::start(directory, descriptor.clone(), config, Access::Write { create: false })
    }

    /// Opens a database that lies in a checkpoint, to read it where it is, say under the mount: nothing is written, and no lock is taken.
    /// What is written into its states is never stored.
    ///
    /// # Errors
    /// As [`KeyedBackend::open`].
    pub fn open_read_only(
        directory: &Path,
        descriptor: &KeyedDescriptor,
        config: KeyedConfig<K>,
    ) -> Result<Self, StateError> {
        Self::check(directory, descriptor, &config)?;
        Self::start(directory, descriptor.clone(), config, Access::Read)
    }

    fn check(directory: &Path, descriptor: &KeyedDescriptor, config: &KeyedConfig<K>) -> Result<(), StateError> {
        let problem = match compatible_keys(&descriptor.key, &config.serializer.descriptor()) {
            Compatibility::Refused(words) => words,
            Compatibility::AsIs if descriptor.max_parallelism != config.max_parallelism => format!(
                "its largest parallelism is {} for its whole life, and {} is asked for",
                descriptor.max_parallelism, config.max_parallelism
            ),
            Compatibility::AsIs if descriptor.range != config.range => {
                let (old, new) = (descriptor.range, config.range);
                format!("it has the key groups {old}, and {new} are asked for: rescale it first")
            }
            Compatibility::AsIs => return Ok(()),
        };
        Err(StateError::Backend { path: directory.to_owned(), problem })
    }

    fn start(
        directory: &Path,
        descriptor: KeyedDescriptor,
        config: KeyedConfig<K>,
        access: Access,
    ) -> Result<Self, StateError> {
        let KeyedConfig { serializer, range, max_parallelism, options, clock } = config;
        // All key groups of the range exist.
        KeyGroupRange::new(range.first, range.last)?;
        KeyGroupRange::subtask_of(max_parallelism, 1, range.last)?;
        let core = Core::open(directory, descriptor, &options, clock, access)?;
        Ok(Self { serializer, core: Arc::new(Mutex::new(core)) })
    }

    /// Sets the key that all states are of until the next one.
    ///
    /// # Errors
    /// When its key group is not this subtask's, or it cannot be written; then there is no current key.
    pub fn set_current_key(&self, key: &K::Item) -> Result<(), StateError> {
        let mut core = lock(&self.core);
        core.key = None;
        let (range, max_parallelism) = (core.descriptor.range, core.descriptor.max_parallelism);
        let group = key_group_of(self.serializer.hash(key), max_parallelism);
        if !range.contains(group) {
            return Err(StateError::WrongSubtask { group, range });
        }
        core.key = Some(EncodedKey::new(group, max_parallelism, &self.serializer, key)?);
        Ok(())
    }

    /// Compacts all states.
    #[cfg(test)]
    pub(super) fn compact(&self) {
        lock(&self.core).compact().unwrap();
    }

    /// Bytes that RocksDB does not have yet.
    #[cfg(test)]
    pub(super) fn pending(&self) -> usize {
        lock(&self.core).pending
    }

    fn handle<N: Serializer, V: Serializer>(
        &self,
        declared: &Declaration<N, V>,
        kind: StateKind,
        user_key: Option<crate::state::serializer::SerializerDescriptor>,
    ) -> Result<Handle<N>, StateError> {
        let id = lock(&self.core).register(declared.descriptor(kind, user_key))?;
        Ok(Handle::new(&self.core, id, declared))
    }

    /// One value per key.
    ///
    /// # Errors
    /// When there is a state of this name of another kind or type, or RocksDB cannot make it.
    pub fn value<N: Serializer, V: Serializer>(
        &self,
        declared: Declaration<N, V>,
    ) -> Result<ValueState<N, V>, StateError> {
        let handle = self.handle(&declared, StateKind::Value, None)?;
        Ok(ValueState { handle, value: declared.value })
    }

    /// A list per key.
    ///
    /// # Errors
    /// As [`KeyedBackend::value`].
    pub fn list<N: Serializer, V: Serializer>(
        &self,
        declared: Declaration<N, V>,
    ) -> Result<ListState<N, V>, StateError> {
        let handle = self.handle(&declared, StateKind::List, None)?;
        Ok(ListState { handle, value: declared.value })
    }

    /// A map per key, whose own keys `user_key` writes.
    ///
    /// # Errors
    /// As [`KeyedBackend::value`].
    pub fn map<N: Serializer, U: Serializer, V: Serializer>(
        &self,
        declared: Declaration<N, V>,
        user_key: U,
    ) -> Result<MapState<N, U, V>, StateError> {
        let handle = self.handle(&declared, StateKind::Map, Some(user_key.descriptor()))?;
        Ok(MapState { handle, user_key, value: declared.value })
    }

    /// One value per key that further ones are folded into.
    ///
    /// # Errors
    /// As [`KeyedBackend::value`].
    pub fn reducing<N: Serializer, V: Serializer>(
        &self,
        declared: Declaration<N, V>,
        reduce: impl Fn(&V::Item, &V::Item) -> V::Item + Send + Sync + 'static,
    ) -> Result<ReducingState<N, V>, StateError> {
        let handle = self.handle(&declared, StateKind::Reducing, None)?;
        Ok(ReducingState { state: ValueState { handle, value: declared.value }, reduce: Arc::new(reduce) })
    }

    /// One accumulator per key; the declaration has its serializer.
    ///
    /// # Errors
    /// As [`KeyedBackend::value`].
    pub fn aggregating<N: Serializer, V: Serializer, A: Aggregate<Accumulator = V::Item>>(
        &self,
        declared: Declaration<N, V>,
        function: A,
    ) -> Result<AggregatingState<N, V, A>, StateError> {
        let handle = self.handle(&declared, StateKind::Aggregating, None)?;
        Ok(AggregatingState { state: ValueState { handle, value: declared.value }, function: Arc::new(function) })
    }

    /// Timers of one clock under a name.
    ///
    /// # Errors
    /// As [`KeyedBackend::value`].
    pub fn timers<N: Serializer>(
        &self,
        domain: TimeDomain,
        name: &str,
        namespace: N,
    ) -> Result<Timers<K, N>, StateError> {
        let declared = Declaration::with_namespace(name, namespace, self.serializer.clone());
        let handle = self.handle(&declared, StateKind::Timer(domain), None)?;
        Ok(Timers { handle, keys: self.serializer.clone() })
    }

    /// The keys that have something in a namespace of a state (not timers), each once, in the order of the rows. A value that is over its
    /// time counts until somebody reads it.
    ///
    /// # Errors
    /// When there is no such state, its namespaces are of another type, a row is damaged, or RocksDB cannot read.
    pub fn keys<N: Serializer>(
        &self,
        state: &str,
        namespaces: &N,
        namespace: &N::Item,
    ) -> Result<Vec<K::Item>, StateError> {
        let wanted = crate::state::serializer::to_bytes(namespaces, namespace)?;
        let core = lock(&self.core);
        let (id, max_parallelism) = (core.find(state, &namespaces.descriptor())?, core.descriptor.max_parallelism);
        let range = core.descriptor.range;
        let from = group_prefix(range.first, max_parallelism);
        let to = group_prefix(range.last.saturating_add(1), max_parallelism);
        let mut keys = Vec::new();
        let mut last = Vec::new();
        let scanned = core.scan(id, (&from, Some(&to)), |row, _| {
            let (key, found, rest) = read_row(row, max_parallelism, &self.serializer, namespaces)?;
            // All rows of a map begin with this.
            let head = row.get(..row.len().saturating_sub(rest.len())).unwrap_or_default();
            if head != last.as_slice() && crate::state::serializer::to_bytes(namespaces, &found)? == wanted {
                keys.push(key);
                last = head.to_vec();
            }
            Ok(true)
        });
        scanned.map_err(|e| e.of_state(state))?;
        Ok(keys)
    }
}

impl<K: KeySerializer> KeyedState for KeyedBackend<K> {
    fn descriptor(&self) -> KeyedDescriptor {
        lock(&self.core).full_descriptor()
    }

    fn is_empty(&self) -> bool {
        !lock(&self.core).has_states()
    }

    fn flush(&mut self) -> Result<(), StateError> {
        lock(&self.core).flush()
    }

    fn checkpoint(&self, directory: &Path) -> Result<(), StateError> {
        let mut core = lock(&self.core);
        core.flush()?;
        core.database()?.checkpoint(directory)
    }

    fn range(&self) -> KeyGroupRange {
        lock(&self.core).descriptor.range
    }

    fn uid(&self) -> Uid {
        lock(&self.core).descriptor.backend
    }

    fn close(&mut self) {
        lock(&self.core).close();
    }
}

impl<K> fmt::Debug for KeyedConfig<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("KeyedConfig");
        out.field("range", &self.range).field("max_parallelism", &self.max_parallelism).finish_non_exhaustive()
    }
}

impl<K> fmt::Debug for KeyedBackend<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedBackend").field("uid", &lock(&self.core).descriptor.backend).finish_non_exhaustive()
    }
}
