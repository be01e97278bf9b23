//! Writes handles.

use super::handles::{
    ChannelHandle, Distribution, KeyGroupRange, KeyGroupStream, KeyedHandle, LocalFile, OperatorHandle, Scope,
    StreamHandle,
};
use super::tags;
use super::write::{Out, WriteError};

const PATH: &str = "the path of a file";
const HANDLE_ID: &str = "a handle's id";
const OFFSET: &str = "an offset";
const SIZE: &str = "a size";

impl Out {
    pub(super) fn stream(&mut self, handle: &StreamHandle) -> Result<(), WriteError> {
        match handle {
            StreamHandle::Null => self.u8(tags::NULL),
            StreamHandle::Inline { name, bytes } => {
                self.u8(tags::INLINE);
                self.text("the name of inline bytes", name)?;
                self.bytes("the size of inline bytes", bytes)?;
            }
            StreamHandle::File { size, path } => {
                self.u8(tags::FILE);
                self.i64(*size);
                self.text(PATH, path)?;
            }
            StreamHandle::Relative { path, size } => {
                self.u8(tags::RELATIVE);
                self.text(PATH, path)?;
                self.i64(*size);
            }
            StreamHandle::Segment { start, size, scope, path, logical_id } => {
                self.u8(tags::SEGMENT);
                self.u64(OFFSET, *start)?;
                self.u64(SIZE, *size)?;
                self.i32(match scope {
                    Scope::Exclusive => 0,
                    Scope::Shared => 1,
                });
                self.text(PATH, path)?;
                self.text("the id of a segment", logical_id)?;
            }
            StreamHandle::EmptySegment => self.u8(tags::EMPTY_SEGMENT),
            StreamHandle::KeyGroups(groups) => {
                self.u8(tags::KEY_GROUPS);
                self.key_group_stream(groups)?;
            }
        }
        Ok(())
    }

    fn offsets(&mut self, offsets: &[u64]) -> Result<(), WriteError> {
        self.list("the number of offsets", offsets, |out, offset| out.u64(OFFSET, *offset))
    }

    fn key_group_stream(&mut self, groups: &KeyGroupStream) -> Result<(), WriteError> {
        self.u32("a key group", groups.first)?;
        self.list("the number of offsets", &groups.offsets, |out, offset| {
            out.i64(*offset);
            Ok(())
        })?;
        self.stream(&groups.stream)
    }

    fn key_groups(&mut self, range: KeyGroupRange) -> Result<(), WriteError> {
        self.u32("a key group", range.first)?;
        self.u32("the number of key groups", range.count)
    }

    fn files(&mut self, files: &[LocalFile]) -> Result<(), WriteError> {
        self.list("the number of files", files, |out, file| {
            out.text("the local name of a file", &file.path)?;
            out.stream(&file.stream)
        })
    }

    /// The handle's tag: its second format has something more.
    fn tag(&mut self, first: u8, second: u8, is_second: bool) {
        self.u8(if is_second { second } else { first });
    }

    pub(super) fn keyed(&mut self, handle: &KeyedHandle) -> Result<(), WriteError> {
        match handle {
            KeyedHandle::KeyGroups { state, handle_id } => {
                self.tag(tags::KEY_GROUPS, tags::KEY_GROUPS_V2, handle_id.is_some());
                self.key_group_stream(state)?;
                handle_id.as_deref().map_or(Ok(()), |id| self.text(HANDLE_ID, id))
            }
            KeyedHandle::Savepoint(state) => {
                self.u8(tags::SAVEPOINT);
                self.key_group_stream(state)
            }
            KeyedHandle::Incremental {
                checkpoint_id,
                backend_id,
                key_groups,
                checkpointed_size,
                meta,
                shared,
                private,
                handle_id,
            } => {
                if checkpointed_size.is_some() != handle_id.is_some() {
                    return Err(WriteError::Contradiction("a handle has an id or a checkpointed size, not both"));
                }
                self.tag(tags::INCREMENTAL, tags::INCREMENTAL_V2, handle_id.is_some());
                self.i64(*checkpoint_id);
                self.text("the id of a backend", backend_id)?;
                self.key_groups(*key_groups)?;
                if let Some(size) = checkpointed_size {
                    self.i64(*size);
                }
                self.stream(meta)?;
                self.files(shared)?;
                self.files(private)?;
                handle_id.as_deref().map_or(Ok(()), |id| self.text(HANDLE_ID, id))
            }
            KeyedHandle::Changelog { .. }
            | KeyedHandle::ChangelogInMemory { .. }
            | KeyedHandle::ChangelogFiles { .. } => self.changelog(handle),
        }
    }

    fn changelog(&mut self, handle: &KeyedHandle) -> Result<(), WriteError> {
        match handle {
            KeyedHandle::Changelog {
                key_groups,
                checkpointed_size,
                materialized,
                non_materialized,
                materialization_id,
                checkpoint_id,
                handle_id,
            } => {
                self.tag(tags::CHANGELOG, tags::CHANGELOG_V2, checkpoint_id.is_some());
                self.key_groups(*key_groups)?;
                self.i64(*checkpointed_size);
                self.list("the number of handles", materialized, Self::keyed)?;
                self.list("the number of handles", non_materialized, Self::keyed)?;
                self.i64(*materialization_id);
                if let Some(id) = checkpoint_id {
                    self.i64(*id);
                }
                self.text(HANDLE_ID, handle_id)
            }
            KeyedHandle::ChangelogInMemory { key_groups, from, to, changes, handle_id } => {
                self.u8(tags::CHANGELOG_IN_MEMORY);
                self.key_groups(*key_groups)?;
                self.i64(*from);
                self.i64(*to);
                self.list("the number of changes", changes, |out, change| {
                    out.i32(change.key_group);
                    out.bytes("the size of a change", &change.bytes)
                })?;
                self.text(HANDLE_ID, handle_id)
            }
            KeyedHandle::ChangelogFiles { key_groups, streams, size, checkpointed_size, handle_id, storage_id } => {
                self.tag(tags::CHANGELOG_FILES, tags::CHANGELOG_FILES_V2, storage_id.is_some());
                self.key_groups(*key_groups)?;
                self.list("the number of streams", streams, |out, part| {
                    out.u64(OFFSET, part.offset)?;
                    out.stream(&part.stream)
                })?;
                self.i64(*size);
                self.i64(*checkpointed_size);
                self.text(HANDLE_ID, handle_id)?;
                storage_id.as_deref().map_or(Ok(()), |id| self.text("the id of a changelog's storage", id))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn operator_handle(&mut self, handle: &OperatorHandle) -> Result<(), WriteError> {
        self.tag(tags::OPERATOR, tags::OPERATOR_MERGING, handle.merging.is_some());
        self.list("the number of operator states", &handle.states, |out, state| {
            out.text("the name of an operator state", &state.name)?;
            out.u8(match state.distribution {
                Distribution::Split => 0,
                Distribution::Union => 1,
                Distribution::Broadcast => 2,
            });
            out.offsets(&state.offsets)
        })?;
        if let Some(merging) = &handle.merging {
            self.text("the path of a directory", &merging.task_owned)?;
            self.text("the path of a directory", &merging.shared)?;
            self.u8(merging.empty.into());
        }
        self.stream(&handle.stream)
    }

    /// A channel of one direction: 0 in, 1 out.
    pub(super) fn channel(&mut self, handle: &ChannelHandle, direction: usize) -> Result<(), WriteError> {
        let (tags, merged) = match handle {
            ChannelHandle::Plain { .. } => (tags::PLAIN_CHANNEL, false),
            ChannelHandle::Merged { .. } => (tags::MERGED_CHANNEL, true),
        };
        self.only_since(6, "buffers of several channels in one handle", merged)?;
        if self.version >= 6 {
            self.u8(tags.get(direction).copied().unwrap_or_default());
        }
        match handle {
            ChannelHandle::Plain { subtask, group, channel, offsets, size, stream } => {
                self.i32(*subtask);
                self.i32(*group);
                self.i32(*channel);
                self.offsets(offsets)?;
                self.u64(SIZE, *size)?;
                self.stream(stream)
            }
            ChannelHandle::Merged { subtask, size, stream, offsets } => {
                self.i32(*subtask);
                self.u64(SIZE, *size)?;
                self.stream(stream)?;
                self.bytes("the size of channels", offsets)
            }
        }
    }
}
