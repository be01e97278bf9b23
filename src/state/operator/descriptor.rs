//! What a snapshot of operator state is, and what of it comes back.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::state::error::StateError;
use crate::state::serializer::{Compatibility, SerializerDescriptor, compatible};

/// How a state's elements are dealt out when it is restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperatorStateMode {
    /// Each element to one subtask.
    Split,
    /// All elements to every subtask.
    Union,
    /// The same map everywhere: one subtask's copy to every one.
    Broadcast,
}

impl fmt::Display for OperatorStateMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Split => "list",
            Self::Union => "union list",
            Self::Broadcast => "broadcast",
        })
    }
}

/// One operator state of one subtask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorStateDescriptor {
    /// Its name.
    pub name: String,
    /// How it is dealt out.
    pub mode: OperatorStateMode,
    /// How many partitions the snapshot has of it: the elements of a list; 1 for a broadcast map.
    pub partitions: u32,
    /// The serializer of the elements, or of a map's values.
    pub value: SerializerDescriptor,
    /// The serializer of a map's keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<SerializerDescriptor>,
}

impl OperatorStateDescriptor {
    /// Checks that what was stored under this descriptor may be used as it is declared now.
    ///
    /// # Errors
    /// When mode or serializers differ.
    pub fn check(&self, declared: &Self) -> Result<(), StateError> {
        let mut problems = Vec::new();
        if self.mode != declared.mode {
            problems.push(format!("{} state is not {} state", self.mode, declared.mode));
        }
        let keys = self.key.as_ref().zip(declared.key.as_ref());
        let pairs = keys.map(|(old, new)| ("key", old, new)).into_iter();
        for (what, old, new) in pairs.chain([("value", &self.value, &declared.value)]) {
            if let Compatibility::Refused(words) = compatible(old, new) {
                problems.push(format!("{what}: {words}"));
            }
        }
        StateError::refused(&self.name, self, declared, &problems)
    }
}

impl fmt::Display for OperatorStateDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} state of ", self.mode)?;
        if let Some(key) = &self.key {
            write!(f, "{key} to ")?;
        }
        write!(f, "{}", self.value)
    }
}

/// A state as it comes out of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredOperatorState<P = Vec<u8>> {
    /// What it is. How many partitions it claims to have does not matter here.
    pub descriptor: OperatorStateDescriptor,
    /// Its partitions, in order: their bytes, or where to find them.
    pub partitions: Vec<P>,
}

/// The operator state of one subtask at one moment. Nothing that is written later changes it.
#[derive(Debug, Clone, Default)]
pub struct OperatorStateSnapshot {
    /// Partitions are never changed, so that they are copied by counting.
    pub(super) states: Vec<(OperatorStateDescriptor, Vec<Arc<[u8]>>)>,
}

impl OperatorStateSnapshot {
    /// Whether there is no state.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// The files that it becomes: state, partition, bytes. States are in the order of their names, partitions in their own.
    #[must_use]
    pub fn files(&self) -> Vec<(String, u32, Vec<u8>)> {
        let of_state = |(descriptor, partitions): &(OperatorStateDescriptor, Vec<Arc<[u8]>>)| {
            let name = descriptor.name.clone();
            let files = (0u32..).zip(partitions).map(move |(i, bytes)| (name.clone(), i, bytes.to_vec()));
            files.collect::<Vec<_>>()
        };
        self.states.iter().flat_map(of_state).collect()
    }

    /// Descriptors of all states, those without a partition too.
    #[must_use]
    pub fn descriptors(&self) -> Vec<OperatorStateDescriptor> {
        self.states.iter().map(|(descriptor, _)| descriptor.clone()).collect()
    }
}
