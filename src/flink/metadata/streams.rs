//! Walks over every stream of a `_metadata`: to list them, or to rewrite each where it stands.

use super::handles::{ChannelHandle, KeyedHandle, OperatorHandle, StreamHandle};
use super::types::CheckpointMetadata;

/// Where a stream stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place<'a> {
    /// The operator's place in the list of operators.
    pub operator: usize,
    /// The subtask's place in the operator's list (not its index); none for the coordinator.
    pub subtask: Option<usize>,
    /// What state it is of.
    pub role: Role,
    /// The changelogs that it lies in, the outermost first.
    pub within: &'a [Within],
    /// What of that state it is.
    pub part: Part<'a>,
}

/// What state a stream is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The coordinator's.
    Coordinator,
    /// Operator state that Flink manages.
    ManagedOperator,
    /// Operator state as the operator wrote it.
    RawOperator,
    /// Keyed state that Flink manages.
    ManagedKeyed,
    /// Keyed state as the operator wrote it.
    RawKeyed,
    /// An entry of the input channels.
    InputChannel(usize),
    /// An entry of the result subpartitions.
    ResultSubpartition(usize),
}

/// Where in a changelog a handle lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Within {
    /// An entry of what the changes begin from.
    Materialized(usize),
    /// An entry of the changes.
    NonMaterialized(usize),
}

/// What of a state a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part<'a> {
    /// All of it.
    Whole,
    /// The serializers of an incremental handle.
    Meta,
    /// A shared file, by its local path.
    Shared(&'a str),
    /// A private file, by its local path.
    Private(&'a str),
    /// A run of changes, by its place in the list.
    Changes(usize),
}

// The same walk twice: over what is read, and over what is changed.
macro_rules! walk {
    ($(#[$doc:meta])* $name:ident, $module:ident, $iter:ident, $($mutable:tt)?) => {
        $(#[$doc])*
        pub fn $name<E>(
            metadata: &$($mutable)? CheckpointMetadata,
            mut visit: impl FnMut(&Place<'_>, &$($mutable)? StreamHandle) -> Result<(), E>,
        ) -> Result<(), E> {
            for (number, operator) in metadata.operators.$iter().enumerate() {
                let at = Place {
                    operator: number,
                    subtask: None,
                    role: Role::Coordinator,
                    within: &[],
                    part: Part::Whole,
                };
                $module::stream(&$($mutable)? operator.coordinator, &at, &mut visit)?;
                for (number, subtask) in operator.subtasks.$iter().enumerate() {
                    let of = |role| Place { subtask: Some(number), role, ..at.clone() };
                    if let Some(handle) = &$($mutable)? subtask.managed_operator {
                        $module::operator(handle, &of(Role::ManagedOperator), &mut visit)?;
                    }
                    if let Some(handle) = &$($mutable)? subtask.raw_operator {
                        $module::operator(handle, &of(Role::RawOperator), &mut visit)?;
                    }
                    if let Some(handle) = &$($mutable)? subtask.managed_keyed {
                        $module::keyed(handle, &of(Role::ManagedKeyed), &mut visit)?;
                    }
                    if let Some(handle) = &$($mutable)? subtask.raw_keyed {
                        $module::keyed(handle, &of(Role::RawKeyed), &mut visit)?;
                    }
                    for (n, handle) in subtask.input_channels.$iter().enumerate() {
                        $module::channel(handle, &of(Role::InputChannel(n)), &mut visit)?;
                    }
                    for (n, handle) in subtask.result_subpartitions.$iter().enumerate() {
                        $module::channel(handle, &of(Role::ResultSubpartition(n)), &mut visit)?;
                    }
                }
            }
            Ok(())
        }

        mod $module {
            use super::{ChannelHandle, KeyedHandle, OperatorHandle, Part, Place, StreamHandle, Within};

            pub(super) fn stream<E, F>(handle: &$($mutable)? StreamHandle, at: &Place<'_>, visit: &mut F) -> Result<(), E>
            where
                F: FnMut(&Place<'_>, &$($mutable)? StreamHandle) -> Result<(), E>,
            {
                match handle {
                    StreamHandle::Null => Ok(()),
                    StreamHandle::KeyGroups(groups) => stream(&$($mutable)? groups.stream, at, visit),
                    handle => visit(at, handle),
                }
            }

            pub(super) fn operator<E, F>(
                handle: &$($mutable)? OperatorHandle,
                at: &Place<'_>,
                visit: &mut F,
            ) -> Result<(), E>
            where
                F: FnMut(&Place<'_>, &$($mutable)? StreamHandle) -> Result<(), E>,
            {
                stream(&$($mutable)? handle.stream, at, visit)
            }

            pub(super) fn channel<E, F>(
                handle: &$($mutable)? ChannelHandle,
                at: &Place<'_>,
                visit: &mut F,
            ) -> Result<(), E>
            where
                F: FnMut(&Place<'_>, &$($mutable)? StreamHandle) -> Result<(), E>,
            {
                let (ChannelHandle::Plain { stream: inner, .. } | ChannelHandle::Merged { stream: inner, .. }) = handle;
                stream(inner, at, visit)
            }

            pub(super) fn keyed<E, F>(handle: &$($mutable)? KeyedHandle, at: &Place<'_>, visit: &mut F) -> Result<(), E>
            where
                F: FnMut(&Place<'_>, &$($mutable)? StreamHandle) -> Result<(), E>,
            {
                match handle {
                    KeyedHandle::KeyGroups { state, .. } | KeyedHandle::Savepoint(state) => {
                        stream(&$($mutable)? state.stream, at, visit)
                    }
                    KeyedHandle::Incremental { meta, shared, private, .. } => {
                        stream(meta, &Place { part: Part::Meta, ..at.clone() }, visit)?;
                        for file in shared {
                            let at = Place { part: Part::Shared(&file.path), ..at.clone() };
                            stream(&$($mutable)? file.stream, &at, visit)?;
                        }
                        for file in private {
                            let at = Place { part: Part::Private(&file.path), ..at.clone() };
                            stream(&$($mutable)? file.stream, &at, visit)?;
                        }
                        Ok(())
                    }
                    KeyedHandle::Changelog { materialized, non_materialized, .. } => {
                        for (n, handle) in materialized.$iter().enumerate() {
                            let within = [at.within, &[Within::Materialized(n)]].concat();
                            keyed(handle, &Place { within: &within, ..at.clone() }, visit)?;
                        }
                        for (n, handle) in non_materialized.$iter().enumerate() {
                            let within = [at.within, &[Within::NonMaterialized(n)]].concat();
                            keyed(handle, &Place { within: &within, ..at.clone() }, visit)?;
                        }
                        Ok(())
                    }
                    KeyedHandle::ChangelogInMemory { .. } => Ok(()),
                    KeyedHandle::ChangelogFiles { streams, .. } => {
                        for (n, run) in streams.$iter().enumerate() {
                            let at = Place { part: Part::Changes(n), ..at.clone() };
                            stream(&$($mutable)? run.stream, &at, visit)?;
                        }
                        Ok(())
                    }
                }
            }
        }
    };
}

walk!(
    /// Shows every stream that holds bytes, in the order of the file: what is null is left out, and of a stream by key groups the one
    /// inside is shown.
    ///
    /// # Errors
    /// The first that `visit` returns.
    streams, shown, iter,
);

walk!(
    /// Gives every stream that [`streams`] shows to be changed or replaced.
    ///
    /// # Errors
    /// The first that `visit` returns; what came before it stays changed.
    map_streams, changed, iter_mut, mut
);
