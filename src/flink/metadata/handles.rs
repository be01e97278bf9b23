//! Handles: where state lies, and what of it lies where.

/// Where bytes lie.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StreamHandle {
    /// Nowhere.
    #[default]
    Null,
    /// In the `_metadata` itself.
    Inline {
        /// What Flink calls them: a path that does not exist, or a UUID.
        name: String,
        /// They.
        bytes: Vec<u8>,
    },
    /// In a file.
    File {
        /// Its size; -1 when Flink could not tell.
        size: i64,
        /// Its absolute URI.
        path: String,
    },
    /// In a file beside the `_metadata`.
    Relative {
        /// Its path from there.
        path: String,
        /// Its size; -1 when Flink could not tell.
        size: i64,
    },
    /// In a part of a file that others share.
    Segment {
        /// Where it starts.
        start: u64,
        /// Its size.
        size: u64,
        /// Who may use it.
        scope: Scope,
        /// The absolute URI of the file.
        path: String,
        /// Flink's name of the part.
        logical_id: String,
    },
    /// A part of no file that holds nothing.
    EmptySegment,
    /// In another stream, by key group.
    KeyGroups(Box<KeyGroupStream>),
}

impl StreamHandle {
    /// How many bytes it has, if the handle knows.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Null => None,
            Self::Inline { bytes, .. } => Some(bytes.len() as u64),
            Self::File { size, .. } | Self::Relative { size, .. } => u64::try_from(*size).ok(),
            Self::Segment { size, .. } => Some(*size),
            Self::EmptySegment => Some(0),
            Self::KeyGroups(groups) => groups.stream.size(),
        }
    }
}

/// Who may use a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One checkpoint.
    Exclusive,
    /// Later ones as well.
    Shared,
}

/// A run of key groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyGroupRange {
    /// The first.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// A stream in which each key group has its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyGroupStream {
    /// The first key group.
    pub first: u32,
    /// Where it and the following ones start in the stream. A group without keys has 0 in a canonical savepoint, and -1 in raw state.
    pub offsets: Vec<i64>,
    /// The stream.
    pub stream: StreamHandle,
}

/// A file of a local database, and where its bytes lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFile {
    /// Its name in the database's directory.
    pub path: String,
    /// Its bytes.
    pub stream: StreamHandle,
}

/// Keyed state of one subtask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyedHandle {
    /// All of it in one stream (heap backends, raw state).
    KeyGroups {
        /// The stream.
        state: KeyGroupStream,
        /// The handle's id, in its second format only.
        handle_id: Option<String>,
    },
    /// A canonical savepoint.
    Savepoint(KeyGroupStream),
    /// The files of a RocksDB or ForSt database.
    Incremental {
        /// The checkpoint that it was made for.
        checkpoint_id: i64,
        /// The backend that wrote it, within which a local name stands for one content.
        backend_id: String,
        /// Its key groups.
        key_groups: KeyGroupRange,
        /// How many bytes were new, in the handle's second format only. -1 is unknown.
        checkpointed_size: Option<i64>,
        /// The serializers of its states.
        meta: StreamHandle,
        /// Files that later checkpoints may use as well.
        shared: Vec<LocalFile>,
        /// Files of this one alone.
        private: Vec<LocalFile>,
        /// The handle's id, in its second format only: there if and only if the size is.
        handle_id: Option<String>,
    },
    /// A changelog over other handles.
    Changelog {
        /// Its key groups.
        key_groups: KeyGroupRange,
        /// How many bytes were new.
        checkpointed_size: i64,
        /// What the changes begin from.
        materialized: Vec<KeyedHandle>,
        /// The changes.
        non_materialized: Vec<KeyedHandle>,
        /// Which materialization that is.
        materialization_id: i64,
        /// The checkpoint that it was made for, in the handle's second format only.
        checkpoint_id: Option<i64>,
        /// The handle's id.
        handle_id: String,
    },
    /// Changes that are in the `_metadata` itself.
    ChangelogInMemory {
        /// Their key groups.
        key_groups: KeyGroupRange,
        /// The first change's number.
        from: i64,
        /// The number after the last one.
        to: i64,
        /// They.
        changes: Vec<Change>,
        /// The handle's id.
        handle_id: String,
    },
    /// Changes in files.
    ChangelogFiles {
        /// Their key groups.
        key_groups: KeyGroupRange,
        /// Where they lie.
        streams: Vec<ChangelogStream>,
        /// Their size.
        size: i64,
        /// How many bytes were new.
        checkpointed_size: i64,
        /// The handle's id.
        handle_id: String,
        /// What stored them, in the handle's second format only; `filesystem` in the first.
        storage_id: Option<String>,
    },
}

/// A change of keyed state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Whose; -1 is a change of a state's description.
    pub key_group: i32,
    /// What.
    pub bytes: Vec<u8>,
}

/// A run of changes in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangelogStream {
    /// Where it starts.
    pub offset: u64,
    /// The stream.
    pub stream: StreamHandle,
}

/// Operator state of one subtask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorHandle {
    /// Its states, in the order of the file.
    pub states: Vec<OperatorState>,
    /// Where they all lie.
    pub stream: StreamHandle,
    /// The directories of file merging, if it was written under that.
    pub merging: Option<MergingDirectories>,
}

/// An operator state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorState {
    /// Its name.
    pub name: String,
    /// How it is handed out at a restore.
    pub distribution: Distribution,
    /// Where its partitions start in the stream.
    pub offsets: Vec<u64>,
}

/// How operator state is handed out at a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// Each partition to one subtask.
    Split,
    /// All partitions to every subtask.
    Union,
    /// The same state to every subtask.
    Broadcast,
}

/// Directories of file merging.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergingDirectories {
    /// Where the task manager keeps what one checkpoint uses.
    pub task_owned: String,
    /// Where the subtask keeps what several use.
    pub shared: String,
    /// The handle is there for the directories alone, without state.
    pub empty: bool,
}

/// Buffers of an unaligned checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelHandle {
    /// Of one channel.
    Plain {
        /// The subtask that wrote it.
        subtask: i32,
        /// The input gate, or the result partition.
        group: i32,
        /// The channel in it, or the subpartition.
        channel: i32,
        /// Where its buffers start in the stream.
        offsets: Vec<u64>,
        /// Their size.
        size: u64,
        /// The stream.
        stream: StreamHandle,
    },
    /// Of several channels, from version 6 on.
    Merged {
        /// The subtask that wrote it.
        subtask: i32,
        /// The size of the buffers.
        size: u64,
        /// The stream.
        stream: StreamHandle,
        /// The channels and their offsets, encoded by Flink.
        offsets: Vec<u8>,
    },
}
