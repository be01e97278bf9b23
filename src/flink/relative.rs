//! The `_metadata` of a directory that has all its files beside it: what Flink restores from.

use super::metadata::{self, CheckpointMetadata, StreamHandle, map_streams};
use super::place::impossible;
use super::plan::{Plan, StoredAt, is_empty};
use crate::error::{Error, Kind, Result};
use crate::types::Digest;

/// The `_metadata` with every stream that the plan stores as a file beside it. `stored` says what lies at a place.
///
/// # Errors
/// When a stream of the plan was not stored, or Flink's format cannot hold the result.
pub fn relative(
    metadata: &CheckpointMetadata,
    plan: &Plan,
    stored: impl Fn(&StoredAt) -> Option<(Digest, u64)>,
) -> Result<Vec<u8>> {
    let mut metadata = metadata.clone();
    let mut places = plan.stored.iter();
    map_streams::<Error>(&mut metadata, |_, handle| {
        let Some(at) = places.next().and_then(Option::as_ref) else { return Ok(()) };
        let (digest, size) =
            stored(at).ok_or_else(|| Error::new(Kind::Other, format!("internal: {} was not stored", at.path)))?;
        let name = if at.task.is_some() { digest.to_hex() } else { own_name(at).to_owned() };
        let size = i64::try_from(size).map_err(|_| impossible(format!("{} is too large", at.path)))?;
        *handle = StreamHandle::Relative { path: name, size };
        Ok(())
    })?;
    // Segments are files of their own now: nothing is left for Flink to merge or to look after.
    for subtask in metadata.operators.iter_mut().flat_map(|operator| &mut operator.subtasks) {
        for handle in [&mut subtask.managed_operator, &mut subtask.raw_operator] {
            if handle.as_deref().is_some_and(is_empty) {
                *handle = None;
            } else if let Some(handle) = handle {
                handle.merging = None;
            }
        }
    }
    metadata::write(&metadata).map_err(|e| Error::with_source(Kind::Other, e.to_string(), e))
}

fn own_name(at: &StoredAt) -> &str {
    at.path.as_str().rsplit('/').next().unwrap_or_default()
}
