//! What is stored about the keyed state of one subtask, so that another can open it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ttl::Ttl;
use crate::state::error::StateError;
use crate::state::serializer::{Compatibility, Serializer, SerializerDescriptor, VoidNamespace, compatible};
use crate::types::{KeyGroupRange, Uid};

/// The keyed state of one subtask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedDescriptor {
    /// The serializer of its keys.
    pub key: SerializerDescriptor,
    /// The operator's largest parallelism, fixed for its life: the key groups are counted by it.
    pub max_parallelism: u32,
    /// The subtask's key groups.
    pub range: KeyGroupRange,
    /// Identity of the database: what was uploaded for it may be reused as long as it stays.
    pub backend: Uid,
    /// Its states, by name.
    pub states: Vec<StateDescriptor>,
}

/// One state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateDescriptor {
    /// Its name, which is its column family's; of timers, the column family's is [`StateDescriptor::family`].
    pub name: String,
    /// What it is.
    pub kind: StateKind,
    /// The serializer of its namespaces.
    pub namespace: SerializerDescriptor,
    /// The serializer of its values, elements or accumulators; timers have the key's.
    pub value: SerializerDescriptor,
    /// The serializer of a map's own keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_key: Option<SerializerDescriptor>,
    /// The author's version of the state's meaning.
    pub version: u32,
    /// How long a value lives after it was written (or read, where the state says so), in milliseconds; nothing for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Ttl>,
}

/// Kinds of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateKind {
    /// One value.
    Value,
    /// Elements in the order in which they were added.
    List,
    /// Values by a key of the author's.
    Map,
    /// One value that every further one is folded into.
    Reducing,
    /// One accumulator that every value is folded into.
    Aggregating,
    /// Timers.
    Timer(TimeDomain),
}

/// Which clock a timer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeDomain {
    /// The watermark's.
    Event,
    /// The host's.
    Processing,
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Value => "value",
            Self::List => "list",
            Self::Map => "map",
            Self::Reducing => "reducing",
            Self::Aggregating => "aggregating",
            Self::Timer(TimeDomain::Event) => "event-time timer",
            Self::Timer(TimeDomain::Processing) => "processing-time timer",
        })
    }
}

impl StateDescriptor {
    /// Its column family.
    #[must_use]
    pub fn family(&self) -> String {
        match self.kind {
            StateKind::Timer(TimeDomain::Event) => format!("_timer_state/event_{}", self.name),
            StateKind::Timer(TimeDomain::Processing) => format!("_timer_state/processing_{}", self.name),
            _ => self.name.clone(),
        }
    }

    /// Checks that what was stored under this descriptor may be used as it is declared now.
    ///
    /// # Errors
    /// When kind, serializers, version, or having a time to live differ. A longer or shorter time to live is no other state.
    pub fn check(&self, declared: &Self) -> Result<(), StateError> {
        let mut problems = Vec::new();
        if self.kind != declared.kind {
            problems.push(format!("{} state is not {} state", self.kind, declared.kind));
        }
        if self.version != declared.version {
            problems.push(format!("its version was {} and is {}", self.version, declared.version));
        }
        if self.ttl.is_some() != declared.ttl.is_some() {
            problems.push("values with a time to live are stored otherwise than those without".to_owned());
        }
        let mut hold = |what: &str, old: &SerializerDescriptor, new: &SerializerDescriptor| {
            if let Compatibility::Refused(words) = compatible(old, new) {
                problems.push(format!("{what}: {words}"));
            }
        };
        hold("namespace", &self.namespace, &declared.namespace);
        hold("value", &self.value, &declared.value);
        if let (Some(old), Some(new)) = (&self.user_key, &declared.user_key) {
            hold("key of the map", old, new);
        }
        StateError::refused(&self.name, self, declared, &problems)
    }
}

impl fmt::Display for StateDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} state of ", self.kind)?;
        if let Some(user_key) = &self.user_key {
            write!(f, "{user_key} to ")?;
        }
        write!(f, "{}", self.value)?;
        if self.namespace.format != "void" {
            write!(f, " by {}", self.namespace)?;
        }
        if self.version != 1 {
            write!(f, ", version {}", self.version)?;
        }
        if let Some(ttl) = &self.ttl {
            write!(f, ", living {} ms", ttl.ms)?;
        }
        Ok(())
    }
}

/// How an author declares a state: its name, and the serializers of its namespaces and values.
#[derive(Debug, Clone)]
pub struct Declaration<N, V> {
    pub(super) name: String,
    pub(super) namespace: N,
    pub(super) value: V,
    pub(super) version: u32,
    pub(super) ttl: Option<Ttl>,
}

impl<V> Declaration<VoidNamespace, V> {
    /// State without namespaces.
    #[must_use]
    pub fn new(name: &str, value: V) -> Self {
        Self::with_namespace(name, VoidNamespace, value)
    }
}

impl<N, V> Declaration<N, V> {
    /// State per namespace, say per window.
    #[must_use]
    pub fn with_namespace(name: &str, namespace: N, value: V) -> Self {
        Self { name: name.to_owned(), namespace, value, version: 1, ttl: None }
    }

    /// Another version than 1: for values that mean something else than before, though their bytes are the same.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Lets values expire.
    #[must_use]
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

impl<N: Serializer, V: Serializer> Declaration<N, V> {
    pub(super) fn descriptor(&self, kind: StateKind, user_key: Option<SerializerDescriptor>) -> StateDescriptor {
        StateDescriptor {
            name: self.name.clone(),
            kind,
            namespace: self.namespace.descriptor(),
            value: self.value.descriptor(),
            user_key,
            version: self.version,
            ttl: self.ttl,
        }
    }
}
