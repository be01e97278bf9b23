//! Namespaces: none, and time windows.

use serde::{Deserialize, Serialize};

use super::{KeySerializer, LongSerializer, Serializer, SerializerDescriptor, StateError, take};

/// The namespace of state that has none: one zero byte.
#[derive(Debug, Clone, Copy, Default)]
pub struct VoidNamespace;

/// A window of time, from `start` to before `end`, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TimeWindow {
    /// Its first millisecond.
    pub start: i64,
    /// The first one after it.
    pub end: i64,
}

impl TimeWindow {
    /// The last millisecond of it: the timestamp of the timer that fires it.
    #[must_use]
    pub fn last(&self) -> i64 {
        self.end.saturating_sub(1)
    }
}

/// `TimeWindow`: start and end, 8 bytes each.
#[derive(Debug, Clone, Copy, Default)]
pub struct TimeWindowSerializer;

impl Serializer for VoidNamespace {
    type Item = ();

    fn descriptor(&self) -> SerializerDescriptor {
        SerializerDescriptor::basic("void")
    }

    fn fixed_length(&self) -> Option<usize> {
        Some(1)
    }

    fn write(&self, _item: &(), bytes: &mut Vec<u8>) -> Result<(), StateError> {
        bytes.push(0);
        Ok(())
    }

    fn read(&self, bytes: &mut &[u8]) -> Result<(), StateError> {
        match take("namespace", bytes)? {
            [0] => Ok(()),
            [other] => Err(StateError::decode("namespace", format!("the byte {other:#04x} is not the empty one"))),
        }
    }
}

impl Serializer for TimeWindowSerializer {
    type Item = TimeWindow;

    fn descriptor(&self) -> SerializerDescriptor {
        SerializerDescriptor::basic("window")
    }

    fn fixed_length(&self) -> Option<usize> {
        Some(16)
    }

    fn write(&self, item: &TimeWindow, bytes: &mut Vec<u8>) -> Result<(), StateError> {
        LongSerializer.write(&item.start, bytes)?;
        LongSerializer.write(&item.end, bytes)
    }

    fn read(&self, bytes: &mut &[u8]) -> Result<TimeWindow, StateError> {
        Ok(TimeWindow { start: LongSerializer.read(bytes)?, end: LongSerializer.read(bytes)? })
    }
}

impl KeySerializer for VoidNamespace {
    /// `VoidNamespace.hashCode`.
    fn hash(&self, _item: &()) -> i32 {
        99
    }
}
