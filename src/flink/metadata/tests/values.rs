//! Values with every kind of handle, of every version: what is written is read again. No real file of versions 2, 3 and 5 is at hand.

use super::super::{
    Change, ChangelogStream, ChannelHandle, CheckpointMetadata, Distribution, KeyGroupRange, KeyGroupStream,
    KeyedHandle, LocalFile, MasterState, MergingDirectories, Operator, OperatorHandle, OperatorState, Scope,
    StreamHandle, Subtask, WriteError, read, write,
};

pub(super) const RANGE: KeyGroupRange = KeyGroupRange { first: 3, count: 2 };

pub(super) fn file(path: &str, size: i64) -> StreamHandle {
    StreamHandle::File { size, path: path.to_owned() }
}

pub(super) fn relative(path: &str, size: i64) -> StreamHandle {
    StreamHandle::Relative { path: path.to_owned(), size }
}

pub(super) fn inline(name: &str, bytes: &[u8]) -> StreamHandle {
    StreamHandle::Inline { name: name.to_owned(), bytes: bytes.to_vec() }
}

pub(super) fn segment(path: &str, scope: Scope) -> StreamHandle {
    StreamHandle::Segment { start: 16, size: 32, scope, path: path.to_owned(), logical_id: "logical".to_owned() }
}

pub(super) fn by_group(stream: StreamHandle) -> KeyGroupStream {
    KeyGroupStream { first: 3, offsets: vec![-1, 77], stream }
}

pub(super) fn local(path: &str, stream: StreamHandle) -> LocalFile {
    LocalFile { path: path.to_owned(), stream }
}

fn incremental(second: bool) -> KeyedHandle {
    KeyedHandle::Incremental {
        checkpoint_id: 4,
        backend_id: "backend".to_owned(),
        key_groups: RANGE,
        checkpointed_size: second.then_some(-1),
        meta: relative("meta", 9),
        shared: vec![
            local("000001.sst", file("file:/s/1", 10)),
            local("000002.sst", segment("file:/s/2", Scope::Shared)),
        ],
        private: vec![local("CURRENT", inline("in", b"MANIFEST")), local("LOG", StreamHandle::Null)],
        handle_id: second.then(|| "id".to_owned()),
    }
}

fn changelog_files(second: bool) -> KeyedHandle {
    let stream = |offset, stream| ChangelogStream { offset, stream };
    KeyedHandle::ChangelogFiles {
        key_groups: RANGE,
        streams: vec![stream(1, file("file:/log/1", -1)), stream(2, inline("log", b"xyz"))],
        size: 5,
        checkpointed_size: 6,
        handle_id: "files".to_owned(),
        storage_id: second.then(|| "dfs".to_owned()),
    }
}

fn changelog(second: bool) -> KeyedHandle {
    KeyedHandle::Changelog {
        key_groups: RANGE,
        checkpointed_size: 8,
        materialized: vec![incremental(second)],
        non_materialized: vec![changelog_files(false), changelog_files(true), in_memory()],
        materialization_id: 2,
        checkpoint_id: second.then_some(4),
        handle_id: "log".to_owned(),
    }
}

fn in_memory() -> KeyedHandle {
    let change = |key_group, bytes: &[u8]| Change { key_group, bytes: bytes.to_vec() };
    KeyedHandle::ChangelogInMemory {
        key_groups: RANGE,
        from: 1,
        to: 3,
        changes: vec![change(-1, b"meta"), change(3, b"")],
        handle_id: "memory".to_owned(),
    }
}

fn operator_handle(stream: StreamHandle, merging: Option<MergingDirectories>) -> OperatorHandle {
    let state = |name: &str, distribution, offsets: &[u64]| OperatorState {
        name: name.to_owned(),
        distribution,
        offsets: offsets.to_vec(),
    };
    let states = vec![
        state("split", Distribution::Split, &[0, 5]),
        state("union", Distribution::Union, &[]),
        state("broadcast", Distribution::Broadcast, &[9]),
    ];
    OperatorHandle { states, stream, merging }
}

fn channels(version: u32, name: &str) -> Vec<ChannelHandle> {
    let stream = || file(name, 20);
    let plain =
        ChannelHandle::Plain { subtask: 1, group: 2, channel: 3, offsets: vec![4, 5], size: 6, stream: stream() };
    let merged = ChannelHandle::Merged { subtask: 1, size: 6, stream: stream(), offsets: vec![1, 2, 3] };
    match version {
        2 => vec![],
        3..=5 => vec![plain],
        _ => vec![plain, merged],
    }
}

/// The properties of a real savepoint, where the version has any.
pub(super) fn properties(version: u32) -> Vec<u8> {
    if version < 4 { Vec::new() } else { read(&super::small()).unwrap().properties }
}

/// A checkpoint with every kind of handle that Flink has.
pub(super) fn every_kind(version: u32) -> CheckpointMetadata {
    let merging = |empty| {
        let (task_owned, shared) = ("file:/t".to_owned(), "file:/s".to_owned());
        Some(MergingDirectories { task_owned, shared, empty })
    };
    let nested = StreamHandle::KeyGroups(Box::new(by_group(file("file:/nested", 1))));
    let keyed = [
        KeyedHandle::KeyGroups { state: by_group(nested), handle_id: None },
        KeyedHandle::KeyGroups { state: by_group(StreamHandle::EmptySegment), handle_id: Some("ä🙂\0".to_owned()) },
        KeyedHandle::Savepoint(by_group(relative("savepoint", 7))),
        incremental(false),
        incremental(true),
        changelog(false),
        changelog(true),
        in_memory(),
        changelog_files(false),
        changelog_files(true),
    ];
    let mut subtasks: Vec<Subtask> = (0..)
        .zip(keyed)
        .map(|(index, handle)| Subtask {
            index,
            duration: (version == 2).then_some(-1),
            managed_operator: None,
            raw_operator: None,
            managed_keyed: Some(Box::new(handle.clone())),
            raw_keyed: (index == 3).then(|| Box::new(handle)),
            input_channels: channels(version, "file:/in"),
            result_subpartitions: channels(version, "file:/out"),
            finished: false,
        })
        .collect();
    subtasks[0].managed_operator =
        Some(Box::new(operator_handle(segment("file:/p", Scope::Exclusive), merging(false))));
    subtasks[0].raw_operator = Some(Box::new(operator_handle(file("file:/o", 3), None)));
    subtasks[1].managed_operator = Some(Box::new(operator_handle(StreamHandle::EmptySegment, merging(true))));
    if version >= 3 {
        subtasks.push(Subtask { index: 0, finished: true, ..Subtask::default() });
        subtasks.push(Subtask { index: 99, finished: true, ..Subtask::default() });
    }
    let bare = |id: u8| Operator {
        name: (version >= 5).then(|| "an operator".to_owned()),
        uid: None,
        id: [id; 16],
        parallelism: 100,
        max_parallelism: 128,
        coordinator: StreamHandle::Null,
        fully_finished: false,
        subtasks: Vec::new(),
    };
    let coordinator = if version < 3 { StreamHandle::Null } else { inline("coordinator", b"splits") };
    let uid = (version >= 5).then(|| "a uid".to_owned());
    let operators = vec![
        Operator { subtasks, coordinator, uid, ..bare(0xAB) },
        Operator { fully_finished: version >= 3, ..bare(0x0C) },
    ];
    let hook = |bytes: &[u8]| MasterState { version: -3, name: "hook".to_owned(), bytes: bytes.to_vec() };
    CheckpointMetadata {
        version,
        checkpoint_id: 12,
        master_states: vec![hook(b"state"), hook(b"")],
        operators,
        properties: properties(version),
    }
}

#[test]
fn every_kind_of_handle_is_read_as_it_was_written() {
    for version in 2..=6 {
        let value = every_kind(version);
        let bytes = write(&value).unwrap();
        let again = read(&bytes).unwrap();
        assert!(again == value, "version {version}: {again:#?}");
        assert_eq!(again.operators[0].hex(), "ab".repeat(16));
    }
}

#[test]
fn sizes_are_those_of_the_handles() {
    let nested = StreamHandle::KeyGroups(Box::new(by_group(inline("x", b"four"))));
    let sizes =
        [file("a", 7), file("a", -1), relative("a", 8), segment("a", Scope::Shared), StreamHandle::EmptySegment];
    assert_eq!(sizes.map(|handle| handle.size()), [Some(7), None, Some(8), Some(32), Some(0)]);
    assert_eq!((nested.size(), StreamHandle::Null.size()), (Some(4), None));
}

#[test]
fn what_a_version_has_no_place_for_is_not_written() {
    type Change = fn(&mut CheckpointMetadata);
    let refused = |version, change: Change| {
        let mut value = every_kind(version);
        change(&mut value);
        write(&value).unwrap_err()
    };
    let not_in: [(u32, Change); 6] = [
        (4, |value| value.operators[0].name = Some("a".to_owned())),
        (4, |value| value.operators[0].uid = Some("a".to_owned())),
        (2, |value| value.operators[0].coordinator = StreamHandle::EmptySegment),
        (2, |value| value.operators[1].fully_finished = true),
        (2, |value| value.operators[0].subtasks[0].finished = true),
        (5, |value| value.operators[0].subtasks[0].input_channels = channels(6, "a")),
    ];
    for (version, change) in not_in {
        assert!(matches!(refused(version, change), WriteError::NotInVersion { .. }), "{version}");
    }
    let wrong: [Change; 5] = [
        |value| value.version = 7,
        |value| value.version = 1,
        |value| value.operators[0].fully_finished = true,
        |value| value.operators[0].subtasks[0].finished = true,
        |value| {
            let Some(handle) = &mut value.operators[0].subtasks[4].managed_keyed else { panic!() };
            let KeyedHandle::Incremental { handle_id, .. } = &mut **handle else { panic!() };
            *handle_id = None;
        },
    ];
    for change in wrong {
        assert!(matches!(refused(6, change), WriteError::Contradiction(_)));
    }
    let long = refused(6, |value| value.operators[0].coordinator = file(&"ä".repeat(32_768), 1));
    assert_eq!(long, WriteError::TextTooLong { what: "the path of a file", length: 65_536 });
    let large = refused(6, |value| value.operators[0].parallelism = u32::MAX);
    assert!(matches!(large, WriteError::TooLarge { number: 0xFFFF_FFFF, .. }));
    assert!(large.to_string().contains("parallelism"));
}
