//! Reads handles.
//!
//! Lists grow as they are read, so that memory follows the bytes that were there: at most some forty times as much, for a finished
//! subtask (4 bytes) and a local file without name and bytes (3), with the room that their list has for more.

use super::handles::{
    Change, ChangelogStream, ChannelHandle, Distribution, KeyGroupRange, KeyGroupStream, KeyedHandle, LocalFile,
    MergingDirectories, OperatorHandle, OperatorState, Scope, StreamHandle,
};
use super::tags;
use crate::flink::FlinkError;
use crate::flink::wire::{Cursor, encode_utf, gather};
use crate::limits;

/// Key groups are counted as subtasks are.
const KEY_GROUPS: usize = limits::PARALLELISM as usize;

/// Text that is written again as it was read: a lone surrogate, or a second spelling of a letter, would not be.
pub(super) fn text(input: &mut Cursor<'_>) -> Result<String, FlinkError> {
    let mut again = input.clone();
    let text = input.utf()?;
    let read = again.take(input.at() - again.at())?;
    if encode_utf(&text).as_deref() == Some(read) { Ok(text) } else { Err(input.damaged("text that is not Unicode")) }
}

/// A flag in one byte.
pub(super) fn flag(input: &mut Cursor<'_>, of: &'static str) -> Result<bool, FlinkError> {
    match input.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(input.damaged(format!("{of} is {other}, not 0 or 1"))),
    }
}

/// A number that is not negative and at most Flink's largest parallelism.
pub(super) fn small(input: &mut Cursor<'_>, of: &'static str) -> Result<u32, FlinkError> {
    let at = input.at();
    let said = input.i32()?;
    let most = limits::PARALLELISM;
    match u32::try_from(said) {
        Ok(value) if value <= most => Ok(value),
        Ok(value) => Err(FlinkError::Limit { what: input.what(), at, of, count: value.into(), most: most.into() }),
        Err(_) => Err(FlinkError::Damaged { what: input.what(), at, why: format!("the number of {of} is {said}") }),
    }
}

fn deeper(input: &Cursor<'_>, depth: usize) -> Result<usize, FlinkError> {
    if depth < limits::FLINK_NESTING {
        return Ok(depth + 1);
    }
    Err(input.damaged(format!("handles within handles, more than {} deep", limits::FLINK_NESTING)))
}

fn list<'a, T>(
    input: &mut Cursor<'a>,
    (of, most, least): (&'static str, usize, usize),
    mut one: impl FnMut(&mut Cursor<'a>) -> Result<T, FlinkError>,
) -> Result<Vec<T>, FlinkError> {
    let count = input.count(of, most, least)?;
    gather(count, || one(input))
}

fn offsets(input: &mut Cursor<'_>, of: &'static str) -> Result<Vec<u64>, FlinkError> {
    list(input, (of, usize::MAX, 8), |input| input.length("an offset"))
}

/// A length or an offset, or -1 where Flink has none.
fn unless_unknown(input: &mut Cursor<'_>, of: &'static str) -> Result<i64, FlinkError> {
    match input.i64()? {
        value @ -1.. => Ok(value),
        value => Err(input.damaged(format!("{of} is {value}"))),
    }
}

pub(super) fn stream(input: &mut Cursor<'_>, depth: usize) -> Result<StreamHandle, FlinkError> {
    Ok(match input.u8()? {
        tags::NULL => StreamHandle::Null,
        tags::INLINE => StreamHandle::Inline { name: text(input)?, bytes: input.bytes("inline bytes")?.to_vec() },
        tags::FILE => StreamHandle::File { size: unless_unknown(input, "a size")?, path: text(input)? },
        tags::RELATIVE => StreamHandle::Relative { path: text(input)?, size: unless_unknown(input, "a size")? },
        tags::SEGMENT => StreamHandle::Segment {
            start: input.length("a segment's start")?,
            size: input.length("a segment's size")?,
            scope: scope(input)?,
            path: text(input)?,
            logical_id: text(input)?,
        },
        tags::EMPTY_SEGMENT => StreamHandle::EmptySegment,
        tags::KEY_GROUPS => StreamHandle::KeyGroups(Box::new(key_group_stream(input, depth)?)),
        tag => return Err(input.damaged(format!("a stream handle of an unknown kind: {tag}"))),
    })
}

fn scope(input: &mut Cursor<'_>) -> Result<Scope, FlinkError> {
    match input.i32()? {
        0 => Ok(Scope::Exclusive),
        1 => Ok(Scope::Shared),
        other => Err(input.damaged(format!("a segment's scope is {other}, not 0 or 1"))),
    }
}

fn key_group_stream(input: &mut Cursor<'_>, depth: usize) -> Result<KeyGroupStream, FlinkError> {
    let depth = deeper(input, depth)?;
    let first = small(input, "key groups before a handle")?;
    let offsets = list(input, ("key groups", KEY_GROUPS, 8), |input| unless_unknown(input, "an offset"))?;
    Ok(KeyGroupStream { first, offsets, stream: stream(input, depth)? })
}

fn key_groups(input: &mut Cursor<'_>) -> Result<KeyGroupRange, FlinkError> {
    Ok(KeyGroupRange { first: small(input, "key groups before a handle")?, count: small(input, "key groups")? })
}

fn files(input: &mut Cursor<'_>, depth: usize) -> Result<Vec<LocalFile>, FlinkError> {
    list(input, ("files of a handle", limits::FILES_PER_TASK, 3), |input| {
        Ok(LocalFile { path: text(input)?, stream: stream(input, depth)? })
    })
}

/// None is the handle that says that there is none.
pub(super) fn keyed(input: &mut Cursor<'_>, depth: usize) -> Result<Option<KeyedHandle>, FlinkError> {
    let tag = input.u8()?;
    Ok(Some(match tag {
        tags::NULL => return Ok(None),
        tags::KEY_GROUPS | tags::KEY_GROUPS_V2 => KeyedHandle::KeyGroups {
            state: key_group_stream(input, depth)?,
            handle_id: (tag == tags::KEY_GROUPS_V2).then(|| text(input)).transpose()?,
        },
        tags::SAVEPOINT => KeyedHandle::Savepoint(key_group_stream(input, depth)?),
        tags::INCREMENTAL | tags::INCREMENTAL_V2 => KeyedHandle::Incremental {
            checkpoint_id: input.i64()?,
            backend_id: text(input)?,
            key_groups: key_groups(input)?,
            checkpointed_size: (tag == tags::INCREMENTAL_V2).then(|| input.i64()).transpose()?,
            meta: stream(input, depth)?,
            shared: files(input, depth)?,
            private: files(input, depth)?,
            handle_id: (tag == tags::INCREMENTAL_V2).then(|| text(input)).transpose()?,
        },
        tags::CHANGELOG | tags::CHANGELOG_V2 => KeyedHandle::Changelog {
            key_groups: key_groups(input)?,
            checkpointed_size: input.i64()?,
            materialized: nested(input, depth)?,
            non_materialized: nested(input, depth)?,
            materialization_id: input.i64()?,
            checkpoint_id: (tag == tags::CHANGELOG_V2).then(|| input.i64()).transpose()?,
            handle_id: text(input)?,
        },
        tags::CHANGELOG_IN_MEMORY => KeyedHandle::ChangelogInMemory {
            key_groups: key_groups(input)?,
            from: input.i64()?,
            to: input.i64()?,
            changes: list(input, ("changes", usize::MAX, 8), |input| {
                Ok(Change { key_group: input.i32()?, bytes: input.bytes("bytes of a change")?.to_vec() })
            })?,
            handle_id: text(input)?,
        },
        tags::CHANGELOG_FILES | tags::CHANGELOG_FILES_V2 => KeyedHandle::ChangelogFiles {
            key_groups: key_groups(input)?,
            streams: list(input, ("streams of a changelog", limits::FILES_PER_TASK, 9), |input| {
                Ok(ChangelogStream { offset: input.length("an offset")?, stream: stream(input, depth)? })
            })?,
            size: input.i64()?,
            checkpointed_size: input.i64()?,
            handle_id: text(input)?,
            storage_id: (tag == tags::CHANGELOG_FILES_V2).then(|| text(input)).transpose()?,
        },
        tag => return Err(input.damaged(format!("a keyed state handle of an unknown kind: {tag}"))),
    }))
}

fn nested(input: &mut Cursor<'_>, depth: usize) -> Result<Vec<KeyedHandle>, FlinkError> {
    let depth = deeper(input, depth)?;
    list(input, ("handles of a changelog", limits::FILES_PER_TASK, 1), |input| {
        keyed(input, depth)?.ok_or_else(|| input.damaged("a changelog holds a handle that is none"))
    })
}

pub(super) fn operator(input: &mut Cursor<'_>) -> Result<OperatorHandle, FlinkError> {
    let tag = input.u8()?;
    if tag != tags::OPERATOR && tag != tags::OPERATOR_MERGING {
        return Err(input.damaged(format!("an operator state handle of an unknown kind: {tag}")));
    }
    let states = list(input, ("operator states", limits::PROPERTIES, 7), |input| {
        Ok(OperatorState {
            name: text(input)?,
            distribution: distribution(input)?,
            offsets: offsets(input, "partitions of an operator state")?,
        })
    })?;
    let merging = (tag == tags::OPERATOR_MERGING).then(|| merging(input)).transpose()?;
    Ok(OperatorHandle { states, merging, stream: stream(input, 0)? })
}

fn distribution(input: &mut Cursor<'_>) -> Result<Distribution, FlinkError> {
    match input.u8()? {
        0 => Ok(Distribution::Split),
        1 => Ok(Distribution::Union),
        2 => Ok(Distribution::Broadcast),
        other => Err(input.damaged(format!("an operator state's distribution is {other}, not 0 to 2"))),
    }
}

fn merging(input: &mut Cursor<'_>) -> Result<MergingDirectories, FlinkError> {
    Ok(MergingDirectories {
        task_owned: text(input)?,
        shared: text(input)?,
        empty: flag(input, "whether the handle is empty")?,
    })
}

/// The channels of one direction: 0 in, 1 out.
pub(super) fn channels(
    input: &mut Cursor<'_>,
    version: u32,
    direction: usize,
) -> Result<Vec<ChannelHandle>, FlinkError> {
    list(input, ("channels", usize::MAX, 18), |input| {
        if version < 6 {
            return plain_channel(input);
        }
        let tag = Some(input.u8()?);
        match tag {
            _ if tag == tags::PLAIN_CHANNEL.get(direction).copied() => plain_channel(input),
            _ if tag == tags::MERGED_CHANNEL.get(direction).copied() => Ok(ChannelHandle::Merged {
                subtask: input.i32()?,
                size: input.length("the size of buffers")?,
                stream: stream(input, 0)?,
                offsets: input.bytes("bytes of channels")?.to_vec(),
            }),
            _ => Err(input.damaged("a channel handle of an unknown kind")),
        }
    })
}

fn plain_channel(input: &mut Cursor<'_>) -> Result<ChannelHandle, FlinkError> {
    Ok(ChannelHandle::Plain {
        subtask: input.i32()?,
        group: input.i32()?,
        channel: input.i32()?,
        offsets: offsets(input, "buffers")?,
        size: input.length("the size of buffers")?,
        stream: stream(input, 0)?,
    })
}
