//! Files by hand, byte for byte after Flink's format, so that reader and writer cannot be wrong together.

use super::super::{
    Change, ChangelogStream, ChannelHandle, CheckpointMetadata, Distribution, KeyGroupRange, KeyGroupStream,
    KeyedHandle, MasterState, MergingDirectories, Operator, OperatorHandle, OperatorState, Scope, StreamHandle,
    Subtask, read, write,
};
use super::values::{file, inline, local, relative};

/// Bytes as hex, and text in quotes. What is behind a `;` is a remark.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in text.lines().flat_map(|line| line.split(';').next().unwrap().split_whitespace()) {
        match word.strip_prefix('\'') {
            Some(quoted) => bytes.extend(quoted.strip_suffix('\'').unwrap().bytes()),
            None => bytes.extend((0..word.len()).step_by(2).map(|i| u8::from_str_radix(&word[i..i + 2], 16).unwrap())),
        }
    }
    bytes
}

const ID: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

fn operator(subtasks: Vec<Subtask>) -> Operator {
    Operator {
        name: None,
        uid: None,
        id: ID,
        parallelism: 2,
        max_parallelism: 128,
        coordinator: StreamHandle::Null,
        fully_finished: false,
        subtasks,
    }
}

fn checkpoint(version: u32, operators: Vec<Operator>, properties: &[u8]) -> CheckpointMetadata {
    CheckpointMetadata { version, checkpoint_id: 7, master_states: vec![], operators, properties: properties.to_vec() }
}

#[track_caller]
fn same(text: &str, value: &CheckpointMetadata) {
    let bytes = bytes(text);
    assert_eq!(&read(&bytes).unwrap(), value);
    assert_eq!(write(value).unwrap(), bytes);
}

fn boxed<T>(value: T) -> Option<Box<T>> {
    Some(Box::new(value))
}

#[test]
fn version_2() {
    let text = "
        4960672d 00000002 0000000000000007
        00000001 c96b1696 00000012 00000003 0004 'hook' 00000004 01020304
        00000001
          000102030405060708090a0b0c0d0e0f 00000002 00000080 00000001 ; the chain's length
          00000002
            00000000 ffffffffffffffff 00000000 ; a duration and no state of Flink 1.1
              00000001 04 00000001 0003 'off' 01 00000002 0000000000000005 0000000000000009
                       02 0000000000000064 0007 'file:/a'
              00000000
              03 00000002 00000002 0000000000000000 000000000000000a 01 0001 'n' 00000002 beef
              00
            00000001 0000000000000000 00000000
              00000000
              00000000
              05 0000000000000006 0001 'b' 00000000 00000040
                 06 0001 'm' 0000000000000003
                 00000001 000a '000001.sst' 02 0000000000000064 0007 'file:/a'
                 00000001 0007 'CURRENT' 00
              00";
    let offsets = OperatorState { name: "off".to_owned(), distribution: Distribution::Union, offsets: vec![5, 9] };
    let stream = || file("file:/a", 100);
    let by_group = KeyGroupStream { first: 2, offsets: vec![0, 10], stream: inline("n", &[0xBE, 0xEF]) };
    let incremental = KeyedHandle::Incremental {
        checkpoint_id: 6,
        backend_id: "b".to_owned(),
        key_groups: KeyGroupRange { first: 0, count: 64 },
        checkpointed_size: None,
        meta: relative("m", 3),
        shared: vec![local("000001.sst", stream())],
        private: vec![local("CURRENT", StreamHandle::Null)],
        handle_id: None,
    };
    let subtasks = vec![
        Subtask {
            duration: Some(-1),
            managed_operator: boxed(OperatorHandle { states: vec![offsets], stream: stream(), merging: None }),
            managed_keyed: boxed(KeyedHandle::KeyGroups { state: by_group, handle_id: None }),
            ..Subtask::default()
        },
        Subtask { index: 1, duration: Some(0), managed_keyed: boxed(incremental), ..Subtask::default() },
    ];
    let mut value = checkpoint(2, vec![operator(subtasks)], &[]);
    value.master_states = vec![MasterState { version: 3, name: "hook".to_owned(), bytes: vec![1, 2, 3, 4] }];
    same(text, &value);
}

#[test]
fn version_3() {
    let text = "
        4960672d 00000003 0000000000000007 00000000 00000002
          000102030405060708090a0b0c0d0e0f 00000002 00000080 01 0001 'c' 00000001 2a ; the coordinator
          00000003
            ffffffff ; subtask 0 has finished
            fffffffe ; subtask 1 as well
            00000001 00000000 00000000 00
              07 00000001 00000001 0000000000000008 06 0001 's' 0000000000000009 ; raw keyed state
              00000001 00000001 00000002 00000003 00000002 0000000000000004 0000000000000005 0000000000000006
                       02 0000000000000064 0007 'file:/a'
              00000001 00000004 00000005 00000006 00000000 0000000000000007 10
          000102030405060708090a0b0c0d0e0f 00000002 00000080 00 ffffffff";
    let savepoint = KeyGroupStream { first: 1, offsets: vec![8], stream: relative("s", 9) };
    let (input, result) = (file("file:/a", 100), StreamHandle::EmptySegment);
    let channel = |subtask, group, channel, offsets, size, stream| {
        vec![ChannelHandle::Plain { subtask, group, channel, offsets, size, stream }]
    };
    let subtasks = vec![
        Subtask { finished: true, ..Subtask::default() },
        Subtask { index: 1, finished: true, ..Subtask::default() },
        Subtask {
            index: 1,
            raw_keyed: boxed(KeyedHandle::Savepoint(savepoint)),
            input_channels: channel(1, 2, 3, vec![4, 5], 6, input),
            result_subpartitions: channel(4, 5, 6, vec![], 7, result),
            ..Subtask::default()
        },
    ];
    let first = Operator { coordinator: inline("c", &[42]), ..operator(subtasks) };
    let second = Operator { fully_finished: true, ..operator(vec![]) };
    same(text, &checkpoint(3, vec![first, second], &[]));
}

#[test]
fn version_4() {
    let text = "
        4960672d 00000004 0000000000000007 00000000 00000001
          000102030405060708090a0b0c0d0e0f 00000002 00000080 00 00000001
            00000000 00000000 00000000
              08 00000000 00000040 0000000000000001
                 00000001 0e 00000000 00000040 0000000000000002 00000000 00000000 0000000000000003 0000000000000004 0001 'i'
                 00000001 09 00000000 00000040 0000000000000005 0000000000000006
                          00000002 ffffffff 00000001 aa 00000007 00000000 0001 'm'
                 0000000000000008 0001 'o'
              0d 00000000 00000040 00000001 0000000000000009 02 0000000000000064 0007 'file:/a'
                 000000000000000a 000000000000000b 0001 'f' 0003 'dfs'
              00000000 00000000
        aced0005 70 'tail'";
    let key_groups = KeyGroupRange { first: 0, count: 64 };
    let inner = KeyedHandle::Changelog {
        key_groups,
        checkpointed_size: 2,
        materialized: vec![],
        non_materialized: vec![],
        materialization_id: 3,
        checkpoint_id: Some(4),
        handle_id: "i".to_owned(),
    };
    let in_memory = KeyedHandle::ChangelogInMemory {
        key_groups,
        from: 5,
        to: 6,
        changes: vec![Change { key_group: -1, bytes: vec![0xAA] }, Change { key_group: 7, bytes: vec![] }],
        handle_id: "m".to_owned(),
    };
    let outer = KeyedHandle::Changelog {
        key_groups,
        checkpointed_size: 1,
        materialized: vec![inner],
        non_materialized: vec![in_memory],
        materialization_id: 8,
        checkpoint_id: None,
        handle_id: "o".to_owned(),
    };
    let files = KeyedHandle::ChangelogFiles {
        key_groups,
        streams: vec![ChangelogStream { offset: 9, stream: file("file:/a", 100) }],
        size: 10,
        checkpointed_size: 11,
        handle_id: "f".to_owned(),
        storage_id: Some("dfs".to_owned()),
    };
    let subtask = Subtask { managed_keyed: boxed(outer), raw_keyed: boxed(files), ..Subtask::default() };
    same(text, &checkpoint(4, vec![operator(vec![subtask])], b"\xAC\xED\0\x05\x70tail"));
}

#[test]
fn version_5() {
    let text = "
        4960672d 00000005 0000000000000007 00000000 00000001
          0002 'op' 0000 000102030405060708090a0b0c0d0e0f 00000002 00000080 00 00000001
            00000000 00000000 00000000
              0c 00000001 00000001 ffffffffffffffff
                 0f 0000000000000010 0000000000000020 00000001 0007 'file:/s' 0001 'l' 0002 'id'
              0a 00000000 00000040 00000001 0000000000000009 10 000000000000000a 000000000000000b 0001 'f'
              00000001 00000001 00000002 00000003 00000000 0000000000000006 00
              00000000
        aced0005 70";
    let stream = StreamHandle::Segment {
        start: 16,
        size: 32,
        scope: Scope::Shared,
        path: "file:/s".to_owned(),
        logical_id: "l".to_owned(),
    };
    let state = KeyGroupStream { first: 1, offsets: vec![-1], stream };
    let files = KeyedHandle::ChangelogFiles {
        key_groups: KeyGroupRange { first: 0, count: 64 },
        streams: vec![ChangelogStream { offset: 9, stream: StreamHandle::EmptySegment }],
        size: 10,
        checkpointed_size: 11,
        handle_id: "f".to_owned(),
        storage_id: None,
    };
    let channel =
        ChannelHandle::Plain { subtask: 1, group: 2, channel: 3, offsets: vec![], size: 6, stream: StreamHandle::Null };
    let subtask = Subtask {
        managed_keyed: boxed(KeyedHandle::KeyGroups { state, handle_id: Some("id".to_owned()) }),
        raw_keyed: boxed(files),
        input_channels: vec![channel],
        ..Subtask::default()
    };
    let named = Operator { name: Some("op".to_owned()), ..operator(vec![subtask]) };
    same(text, &checkpoint(5, vec![named], b"\xAC\xED\0\x05\x70"));
}

#[test]
fn version_6() {
    let text = "
        4960672d 00000006 0000000000000007 00000000 00000001
          0000 0002 'id' 000102030405060708090a0b0c0d0e0f 00000002 00000080 00 00000001
            00000000
              00000001 11 00000000 0007 'file:/t' 0007 'file:/s' 01 10
              00000000
              0b 0000000000000006 0001 'b' 00000000 00000040 ffffffffffffffff
                 00 00000000 00000000 0001 'h'
              00
              00000002
                01 00000001 00000002 00000003 00000001 0000000000000004 0000000000000006 00
                03 00000001 0000000000000006 10 00000002 cafe
              00000002
                04 00000002 0000000000000007 00 00000000
                02 00000004 00000005 00000006 00000000 0000000000000007 10
        aced0005 70";
    let merging = MergingDirectories { task_owned: "file:/t".to_owned(), shared: "file:/s".to_owned(), empty: true };
    let incremental = KeyedHandle::Incremental {
        checkpoint_id: 6,
        backend_id: "b".to_owned(),
        key_groups: KeyGroupRange { first: 0, count: 64 },
        checkpointed_size: Some(-1),
        meta: StreamHandle::Null,
        shared: vec![],
        private: vec![],
        handle_id: Some("h".to_owned()),
    };
    let plain = |subtask, group, channel, offsets, size, stream| ChannelHandle::Plain {
        subtask,
        group,
        channel,
        offsets,
        size,
        stream,
    };
    let merged = |subtask, size, stream, offsets| ChannelHandle::Merged { subtask, size, stream, offsets };
    let subtask = Subtask {
        managed_operator: boxed(OperatorHandle {
            states: vec![],
            stream: StreamHandle::EmptySegment,
            merging: Some(merging),
        }),
        managed_keyed: boxed(incremental),
        input_channels: vec![
            plain(1, 2, 3, vec![4], 6, StreamHandle::Null),
            merged(1, 6, StreamHandle::EmptySegment, vec![0xCA, 0xFE]),
        ],
        result_subpartitions: vec![
            merged(2, 7, StreamHandle::Null, vec![]),
            plain(4, 5, 6, vec![], 7, StreamHandle::EmptySegment),
        ],
        ..Subtask::default()
    };
    let named = Operator { uid: Some("id".to_owned()), ..operator(vec![subtask]) };
    same(text, &checkpoint(6, vec![named], b"\xAC\xED\0\x05\x70"));
}
