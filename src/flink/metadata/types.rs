//! What a `_metadata` file says: the checkpoint, its operators, their subtasks.

use std::fmt::Write as _;

use super::handles::{ChannelHandle, KeyedHandle, OperatorHandle, StreamHandle};

/// The content of a `_metadata` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointMetadata {
    /// The format: 2 to 6.
    pub version: u32,
    /// The checkpoint's number.
    pub checkpoint_id: i64,
    /// What hooks of the job's master stored.
    pub master_states: Vec<MasterState>,
    /// The operators that have or could have state.
    pub operators: Vec<Operator>,
    /// What follows. From version 4 on it is Flink's `CheckpointProperties`, serialized by Java.
    pub properties: Vec<u8>,
}

/// What a hook of the job's master stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterState {
    /// The version of the hook's serializer.
    pub version: i32,
    /// The hook's name.
    pub name: String,
    /// What it stored.
    pub bytes: Vec<u8>,
}

/// An operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// Its name. None before version 5.
    pub name: Option<String>,
    /// The uid that the job gave it. None before version 5.
    pub uid: Option<String>,
    /// Its id: a hash of the uid, or of its place in the job.
    pub id: [u8; 16],
    /// How many subtasks it had.
    pub parallelism: u32,
    /// How many key groups.
    pub max_parallelism: u32,
    /// The state of its coordinator. Null before version 3.
    pub coordinator: StreamHandle,
    /// All its subtasks had finished; none is listed.
    pub fully_finished: bool,
    /// Those of its subtasks that have state.
    pub subtasks: Vec<Subtask>,
}

impl Operator {
    /// The id as Flink shows it.
    #[must_use]
    pub fn hex(&self) -> String {
        let mut text = String::with_capacity(2 * self.id.len());
        for byte in self.id {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// A subtask's state.
///
/// The handles are boxed: one that has finished takes four bytes in the file, and should not take much more here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subtask {
    /// Which subtask.
    pub index: u32,
    /// It had finished; it has no state.
    pub finished: bool,
    /// A field that only version 2 has, and Flink does not use.
    pub duration: Option<i64>,
    /// Operator state that Flink manages.
    pub managed_operator: Option<Box<OperatorHandle>>,
    /// Operator state as the operator wrote it.
    pub raw_operator: Option<Box<OperatorHandle>>,
    /// Keyed state that Flink manages.
    pub managed_keyed: Option<Box<KeyedHandle>>,
    /// Keyed state as the operator wrote it (timers of older jobs).
    pub raw_keyed: Option<Box<KeyedHandle>>,
    /// Buffers that an unaligned checkpoint found on its way in. None before version 3.
    pub input_channels: Vec<ChannelHandle>,
    /// Buffers that it found on their way out. None before version 3.
    pub result_subpartitions: Vec<ChannelHandle>,
}
