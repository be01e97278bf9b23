//! The description of a keyed backend that every keyed handle begins with: the key's serializer, and name, kind and serializers of
//! each state.

use std::collections::BTreeMap;
use std::fmt;

use super::serializer::Serializer;
use super::snapshot::{self, Snapshot, Stop};
use crate::flink::FlinkError;
use crate::flink::wire::Cursor;
use crate::limits;

const WHAT: &str = "the description of a keyed state backend";

/// The version that Flink writes since 1.8.
const VERSION: i32 = 6;
/// The form of one serializer in it.
const SERIALIZER_VERSION: i32 = 2;

/// What a keyed backend says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendMeta {
    /// Whether the key groups of a savepoint behind it are compressed, with Snappy.
    pub compressed: bool,
    /// The key's serializer; `None` when it is not known.
    pub key: Option<Snapshot>,
    /// The states up to where reading stopped, in their order; the last may lack serializers then.
    pub states: Vec<State>,
    /// How many states there are; `None` when reading stopped before the number.
    pub declared: Option<usize>,
    /// The class of serializer at which reading stopped, since it does not say where it ends: what follows is not known.
    pub stopped_at: Option<String>,
    /// Bytes that were read. In a savepoint the key groups follow.
    pub length: usize,
}

impl BackendMeta {
    /// Whether all of it was read.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.stopped_at.is_none()
    }

    /// The state of this name.
    #[must_use]
    pub fn state(&self, name: &str) -> Option<&State> {
        self.states.iter().find(|state| state.name == name)
    }
}

/// One state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Its name; timers have a prefix of Flink's own.
    pub name: String,
    /// What it is.
    pub kind: StateKind,
    /// Flink's options of it, such as `KEYED_STATE_TYPE`.
    pub options: BTreeMap<String, String>,
    /// Its serializers, by Flink's names for them.
    pub serializers: BTreeMap<String, Snapshot>,
}

impl State {
    /// `VALUE`, `LIST`, `MAP` and so on, of a keyed state.
    #[must_use]
    pub fn keyed_type(&self) -> Option<&str> {
        self.options.get("KEYED_STATE_TYPE").map(String::as_str)
    }

    /// The serializer of its values.
    #[must_use]
    pub fn value(&self) -> Option<&Serializer> {
        self.serializer("VALUE_SERIALIZER")
    }

    /// The serializer of its namespaces.
    #[must_use]
    pub fn namespace(&self) -> Option<&Serializer> {
        self.serializer("NAMESPACE_SERIALIZER")
    }

    fn serializer(&self, name: &str) -> Option<&Serializer> {
        self.serializers.get(name).map(|snapshot| &snapshot.serializer)
    }
}

/// What a state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKind {
    /// Keyed state.
    KeyValue,
    /// Operator state.
    Operator,
    /// Broadcast state.
    Broadcast,
    /// A queue, as timers are.
    PriorityQueue,
    /// Keyed state of the asynchronous interface.
    KeyValueV2,
}

impl StateKind {
    /// By Flink's number.
    const ALL: [Self; 5] = [Self::KeyValue, Self::Operator, Self::Broadcast, Self::PriorityQueue, Self::KeyValueV2];

    /// Flink's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeyValue => "KEY_VALUE",
            Self::Operator => "OPERATOR",
            Self::Broadcast => "BROADCAST",
            Self::PriorityQueue => "PRIORITY_QUEUE",
            Self::KeyValueV2 => "KEY_VALUE_V2",
        }
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads a backend's description at the start of the bytes; more may follow it.
///
/// # Errors
/// When it is not one, or has another version. A serializer that is not known is no error: see [`BackendMeta::stopped_at`].
pub fn read_meta(bytes: &[u8]) -> Result<BackendMeta, FlinkError> {
    let mut input = Cursor::new(WHAT, bytes);
    check_version(&mut input, VERSION, "6", "take a new savepoint of the job with Flink 1.8 or later")?;
    let compressed = match input.u8()? {
        0 => false,
        1 => true,
        other => return Err(input.damaged(format!("the mark of compression is {other}"))),
    };
    let mut meta =
        BackendMeta { compressed, key: None, states: Vec::new(), declared: None, stopped_at: None, length: 0 };
    match body(&mut input, &mut meta) {
        Ok(()) => {}
        Err(Stop::Error(error)) => return Err(error),
        Err(Stop::Unknown(class)) => meta.stopped_at = Some(class),
    }
    meta.length = input.at();
    Ok(meta)
}

fn check_version(
    input: &mut Cursor<'_>,
    expected: i32,
    known: &'static str,
    advice: &'static str,
) -> Result<(), FlinkError> {
    let version = input.i32()?;
    if version == expected {
        return Ok(());
    }
    Err(FlinkError::Version { what: input.what(), version: version.into(), known, advice })
}

fn body(input: &mut Cursor<'_>, meta: &mut BackendMeta) -> Result<(), Stop> {
    meta.key = Some(serializer(input)?);
    let here = input.clone();
    let count = input.u16()?.cast_signed();
    let count = usize::try_from(count).map_err(|_| here.damaged(format!("the number of states is {count}")))?;
    meta.declared = Some(count);
    for _ in 0..count {
        let (name, kind) = (input.utf()?, kind(input)?);
        let options = strings(input)?;
        meta.states.push(State { name, kind, options, serializers: BTreeMap::new() });
        // Two bytes of a name, and a serializer's version, class and version.
        let count = input.count("serializers of a state", limits::FLINK_STATE_PROPERTIES, 12)?;
        for _ in 0..count {
            let name = input.utf()?;
            let snapshot = serializer(input)?;
            if let Some(state) = meta.states.last_mut() {
                state.serializers.insert(name, snapshot);
            }
        }
    }
    Ok(())
}

fn kind(input: &mut Cursor<'_>) -> Result<StateKind, FlinkError> {
    let here = input.clone();
    let ordinal = input.i32()?;
    let kind = usize::try_from(ordinal).ok().and_then(|ordinal| StateKind::ALL.get(ordinal));
    kind.copied().ok_or_else(|| here.damaged(format!("there is no kind of state {ordinal}")))
}

fn strings(input: &mut Cursor<'_>) -> Result<BTreeMap<String, String>, FlinkError> {
    let count = input.count("options of a state", limits::FLINK_STATE_PROPERTIES, 4)?;
    (0..count).map(|_| Ok((input.utf()?, input.utf()?))).collect()
}

fn serializer(input: &mut Cursor<'_>) -> Result<Snapshot, Stop> {
    check_version(input, SERIALIZER_VERSION, "2", "take a new savepoint of the job with Flink 1.8 or later")?;
    snapshot::read(input, 0)
}
