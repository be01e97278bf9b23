//! The backend: registration, snapshot, restore.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::descriptor::{OperatorStateDescriptor, OperatorStateMode, OperatorStateSnapshot, RestoredOperatorState};
use super::handle::{BroadcastState, OperatorList};
use super::map;
use crate::limits;
use crate::state::error::StateError;
use crate::state::serializer::Serializer;

/// The operator state of one subtask. Copies of it are the same backend.
#[derive(Debug, Clone, Default)]
pub struct OperatorStateBackend {
    states: Arc<Mutex<States>>,
}

/// All states by name. Those that were restored and not declared yet stay in every snapshot.
pub(super) type States = BTreeMap<String, Held>;

/// One state.
#[derive(Debug)]
pub(super) struct Held {
    descriptor: OperatorStateDescriptor,
    pub(super) content: Content,
}

/// What a state holds, as bytes: what was written cannot change under a snapshot's hands.
#[derive(Debug)]
pub(super) enum Content {
    List(Vec<Arc<[u8]>>),
    Map(BTreeMap<Vec<u8>, Arc<[u8]>>),
}

/// A panic in an operator does not make its state unreadable: every change of it is one step.
pub(super) fn lock(states: &Mutex<States>) -> MutexGuard<'_, States> {
    states.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OperatorStateBackend {
    /// Without state.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With the state of a checkpoint, dealt out by [`super::redistribute`]. Several parts of one name are one state.
    ///
    /// # Errors
    /// When parts of one name do not go together, a broadcast map is damaged, or a state has too many partitions.
    pub fn restore(parts: Vec<RestoredOperatorState>) -> Result<Self, StateError> {
        let mut states = States::new();
        for RestoredOperatorState { descriptor, partitions } in parts {
            let name = descriptor.name.clone();
            let held = match states.get_mut(&name) {
                Some(held) => {
                    held.descriptor.check(&descriptor)?;
                    held
                }
                None => {
                    states.entry(name.clone()).or_insert(Held { content: Content::of(descriptor.mode), descriptor })
                }
            };
            match &mut held.content {
                Content::List(elements) => {
                    elements.extend(partitions.into_iter().map(Arc::from));
                    check_count(elements.len()).map_err(|e| e.of_state(&name))?;
                }
                Content::Map(entries) => {
                    for bytes in partitions {
                        entries.extend(map::read(&bytes).map_err(|e| e.of_state(&name))?);
                    }
                }
            }
        }
        Ok(Self { states: Arc::new(Mutex::new(states)) })
    }

    /// List state: its elements are dealt out to the subtasks when the parallelism changes.
    ///
    /// # Errors
    /// When a state of this name is not a list of this type.
    pub fn list<S: Serializer>(&self, name: &str, serializer: S) -> Result<OperatorList<S>, StateError> {
        self.register(name, OperatorStateMode::Split, None, &serializer)?;
        Ok(OperatorList::new(name, serializer, Arc::clone(&self.states)))
    }

    /// Union list state: when restored, everyone gets all elements of all, and takes what is its own.
    ///
    /// # Errors
    /// When a state of this name is not a union list of this type.
    pub fn union<S: Serializer>(&self, name: &str, serializer: S) -> Result<OperatorList<S>, StateError> {
        self.register(name, OperatorStateMode::Union, None, &serializer)?;
        Ok(OperatorList::new(name, serializer, Arc::clone(&self.states)))
    }

    /// Broadcast state: a map that every subtask keeps the same.
    ///
    /// # Errors
    /// When a state of this name is not a broadcast map of these types.
    pub fn broadcast<K: Serializer, V: Serializer>(
        &self,
        name: &str,
        key: K,
        value: V,
    ) -> Result<BroadcastState<K, V>, StateError> {
        self.register(name, OperatorStateMode::Broadcast, Some(key.descriptor()), &value)?;
        Ok(BroadcastState::new(name, key, value, Arc::clone(&self.states)))
    }

    fn register<S: Serializer>(
        &self,
        name: &str,
        mode: OperatorStateMode,
        key: Option<crate::state::serializer::SerializerDescriptor>,
        value: &S,
    ) -> Result<(), StateError> {
        let value = value.descriptor();
        let descriptor = OperatorStateDescriptor { name: name.to_owned(), mode, partitions: 0, value, key };
        let mut states = lock(&self.states);
        match states.get(name) {
            Some(held) => held.descriptor.check(&descriptor),
            None => {
                states.insert(name.to_owned(), Held { content: Content::of(mode), descriptor });
                Ok(())
            }
        }
    }

    /// Whether there is no state: none was declared, and none restored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        lock(&self.states).is_empty()
    }

    /// A deep copy of all states: nothing that is written later changes it.
    #[must_use]
    pub fn snapshot(&self) -> OperatorStateSnapshot {
        let states = lock(&self.states);
        let copy = |held: &Held| {
            let partitions = match &held.content {
                Content::List(elements) => elements.clone(),
                Content::Map(entries) => vec![Arc::from(map::write(entries))],
            };
            let count = u32::try_from(partitions.len()).unwrap_or(u32::MAX);
            (OperatorStateDescriptor { partitions: count, ..held.descriptor.clone() }, partitions)
        };
        OperatorStateSnapshot { states: states.values().map(copy).collect() }
    }
}

impl Content {
    fn of(mode: OperatorStateMode) -> Self {
        match mode {
            OperatorStateMode::Split | OperatorStateMode::Union => Self::List(Vec::new()),
            OperatorStateMode::Broadcast => Self::Map(BTreeMap::new()),
        }
    }
}

/// Checks that a list stays within what a checkpoint can hold of it.
pub(super) fn check_count(elements: usize) -> Result<(), StateError> {
    if elements <= limits::OPERATOR_PARTITIONS {
        return Ok(());
    }
    let problem =
        format!("{elements} elements are more than the {} that a checkpoint takes", limits::OPERATOR_PARTITIONS);
    Err(StateError::encode("list of operator state", problem))
}
