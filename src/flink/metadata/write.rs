//! Writes a `_metadata` file.

use super::handles::StreamHandle;
use super::tags;
use super::types::{CheckpointMetadata, MasterState, Operator, Subtask};
use crate::error::{Error, Kind};
use crate::flink::wire::encode_utf;

/// Why a value has no bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Text that is longer than Java can write.
    #[error("{what} has {length} bytes of text, Java writes 65535 at most: shorten the path")]
    TextTooLong {
        /// What it is.
        what: &'static str,
        /// How long it is in UTF-8.
        length: usize,
    },
    /// A number beyond what Java can write.
    #[error("{what} is {number}, which is more than Java can write")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// How large.
        number: u64,
    },
    /// What the value's version has no place for.
    #[error("_metadata of version {version} has no place for {what}")]
    NotInVersion {
        /// What it is.
        what: &'static str,
        /// The version.
        version: u32,
    },
    /// A value that no file says.
    #[error("no _metadata can say this: {0}")]
    Contradiction(&'static str),
}

impl From<WriteError> for Error {
    fn from(e: WriteError) -> Self {
        Self::with_source(Kind::Invalid, e.to_string(), e)
    }
}

/// Writes a `_metadata` file of the version that the value says. What was read is written as it was.
///
/// # Errors
/// When the value has something that its version has no place for, or a text or a number is too long.
pub fn write(metadata: &CheckpointMetadata) -> Result<Vec<u8>, WriteError> {
    let version = metadata.version;
    if !(2..=6).contains(&version) {
        return Err(WriteError::Contradiction("its version is not 2 to 6"));
    }
    let mut out = Out { bytes: Vec::new(), version };
    out.i32(tags::MAGIC);
    out.u32("the version", version)?;
    out.i64(metadata.checkpoint_id);
    out.list("the number of master states", &metadata.master_states, Out::master_state)?;
    out.list("the number of operators", &metadata.operators, Out::operator)?;
    out.bytes.extend_from_slice(&metadata.properties);
    Ok(out.bytes)
}

/// What is written so far.
#[derive(Debug)]
pub(super) struct Out {
    bytes: Vec<u8>,
    pub(super) version: u32,
}

impl Out {
    pub(super) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.bytes.extend(value.to_be_bytes());
    }

    pub(super) fn i64(&mut self, value: i64) {
        self.bytes.extend(value.to_be_bytes());
    }

    pub(super) fn u32(&mut self, what: &'static str, value: u32) -> Result<(), WriteError> {
        let fits = i32::try_from(value).map_err(|_| WriteError::TooLarge { what, number: value.into() })?;
        self.i32(fits);
        Ok(())
    }

    pub(super) fn u64(&mut self, what: &'static str, value: u64) -> Result<(), WriteError> {
        self.i64(i64::try_from(value).map_err(|_| WriteError::TooLarge { what, number: value })?);
        Ok(())
    }

    pub(super) fn count(&mut self, what: &'static str, count: usize) -> Result<(), WriteError> {
        self.i32(i32::try_from(count).map_err(|_| WriteError::TooLarge { what, number: count as u64 })?);
        Ok(())
    }

    pub(super) fn text(&mut self, what: &'static str, text: &str) -> Result<(), WriteError> {
        self.bytes.extend(encode_utf(text).ok_or(WriteError::TextTooLong { what, length: text.len() })?);
        Ok(())
    }

    pub(super) fn bytes(&mut self, what: &'static str, bytes: &[u8]) -> Result<(), WriteError> {
        self.count(what, bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    pub(super) fn list<T>(
        &mut self,
        what: &'static str,
        list: &[T],
        mut one: impl FnMut(&mut Self, &T) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        self.count(what, list.len())?;
        list.iter().try_for_each(|value| one(self, value))
    }

    /// Fails if there is something that only later versions have.
    pub(super) fn only_since(&self, since: u32, what: &'static str, there: bool) -> Result<(), WriteError> {
        if there && self.version < since {
            return Err(WriteError::NotInVersion { what, version: self.version });
        }
        Ok(())
    }

    fn master_state(&mut self, state: &MasterState) -> Result<(), WriteError> {
        self.i32(tags::MASTER_STATE);
        let mut inner = Self { bytes: Vec::new(), version: self.version };
        inner.i32(state.version);
        inner.text("the name of a hook", &state.name)?;
        inner.bytes("the size of a master state", &state.bytes)?;
        self.bytes("the size of a master state", &inner.bytes)
    }

    fn operator(&mut self, operator: &Operator) -> Result<(), WriteError> {
        self.only_since(5, "an operator's name or uid", operator.name.is_some() || operator.uid.is_some())?;
        if self.version >= 5 {
            self.text("an operator's name", operator.name.as_deref().unwrap_or_default())?;
            self.text("an operator's uid", operator.uid.as_deref().unwrap_or_default())?;
        }
        self.bytes.extend(operator.id);
        self.u32("an operator's parallelism", operator.parallelism)?;
        self.u32("an operator's maximum parallelism", operator.max_parallelism)?;
        self.only_since(3, "a coordinator's state", operator.coordinator != StreamHandle::Null)?;
        if self.version < 3 {
            // The length of a chain, which has always been 1.
            self.i32(1);
        } else {
            self.stream(&operator.coordinator)?;
        }
        if operator.fully_finished {
            self.only_since(3, "an operator that has finished", true)?;
            if !operator.subtasks.is_empty() {
                return Err(WriteError::Contradiction("an operator has finished and has subtasks"));
            }
            self.i32(-1);
            return Ok(());
        }
        self.list("the number of subtasks", &operator.subtasks, Self::subtask)
    }

    fn subtask(&mut self, subtask: &Subtask) -> Result<(), WriteError> {
        const INDEX: &str = "a subtask's index";
        self.only_since(3, "a subtask that has finished", subtask.finished)?;
        if subtask.finished {
            let bare = Subtask { index: subtask.index, finished: true, ..Subtask::default() };
            if *subtask != bare {
                return Err(WriteError::Contradiction("a subtask has finished and has state"));
            }
            let number = subtask.index;
            let index =
                i32::try_from(number).map_err(|_| WriteError::TooLarge { what: INDEX, number: number.into() })?;
            self.i32(!index);
            return Ok(());
        }
        self.u32(INDEX, subtask.index)?;
        if self.version < 3 {
            // What Flink writes when it does not know, and the number of states of Flink 1.1.
            self.i64(subtask.duration.unwrap_or(-1));
            self.i32(0);
        }
        for handle in [&subtask.managed_operator, &subtask.raw_operator] {
            self.count("the number of handles", usize::from(handle.is_some()))?;
            handle.as_deref().map_or(Ok(()), |handle| self.operator_handle(handle))?;
        }
        for handle in [&subtask.managed_keyed, &subtask.raw_keyed] {
            match handle {
                Some(handle) => self.keyed(handle)?,
                None => self.u8(tags::NULL),
            }
        }
        for (direction, handles) in [&subtask.input_channels, &subtask.result_subpartitions].into_iter().enumerate() {
            self.only_since(3, "buffers of channels", !handles.is_empty())?;
            if self.version >= 3 {
                self.list("the number of channels", handles, |out, handle| out.channel(handle, direction))?;
            }
        }
        Ok(())
    }
}
