//! Every stream is shown with its place, and can be changed there.

use std::convert::Infallible;

use super::super::{Part, Place, Role, StreamHandle, Within, map_streams, read, streams, write};
use super::values::every_kind;
use super::{committed, small};

fn name(handle: &StreamHandle) -> &str {
    match handle {
        StreamHandle::Inline { name, .. } => name,
        StreamHandle::File { path, .. } | StreamHandle::Relative { path, .. } | StreamHandle::Segment { path, .. } => {
            path
        }
        StreamHandle::EmptySegment => "empty",
        StreamHandle::Null | StreamHandle::KeyGroups(_) => panic!("not to be shown"),
    }
}

#[test]
fn every_stream_has_its_place() {
    let value = every_kind(6);
    let mut shown = Vec::new();
    let all = streams(&value, |place, handle| {
        let Place { subtask, role, within, part, operator: 0 } = place else { panic!("{place:?}") };
        shown.push(format!("{subtask:?} {role:?} {within:?} {part:?} {}", name(handle)));
        Ok::<(), Infallible>(())
    });
    assert_eq!(all, Ok(()));
    let of_subtask = |subtask: usize| {
        let start = format!("Some({subtask}) ");
        shown.iter().filter_map(|line| Some(line.strip_prefix(&start)?.to_owned())).collect::<Vec<_>>()
    };
    let channels = [
        "InputChannel(0) [] Whole file:/in",
        "InputChannel(1) [] Whole file:/in",
        "ResultSubpartition(0) [] Whole file:/out",
        "ResultSubpartition(1) [] Whole file:/out",
    ];
    assert_eq!(shown[0], "None Coordinator [] Whole coordinator");
    let first =
        ["ManagedOperator [] Whole file:/p", "RawOperator [] Whole file:/o", "ManagedKeyed [] Whole file:/nested"];
    assert_eq!(of_subtask(0), [&first[..], &channels].concat());
    assert_eq!(of_subtask(2), [&["ManagedKeyed [] Whole savepoint"][..], &channels].concat());
    let incremental = |role: &str, within: &str| {
        let parts = [
            "Meta meta",
            "Shared(\"000001.sst\") file:/s/1",
            "Shared(\"000002.sst\") file:/s/2",
            "Private(\"CURRENT\") in",
        ];
        parts.map(|part| format!("{role} {within} {part}"))
    };
    let both = [incremental("ManagedKeyed", "[]"), incremental("RawKeyed", "[]")].concat();
    assert_eq!(of_subtask(3), [&both[..], &channels.map(str::to_owned)].concat());
    let changes =
        |within: &str| ["Changes(0) file:/log/1", "Changes(1) log"].map(|part| format!("ManagedKeyed {within} {part}"));
    let changelog = [
        &incremental("ManagedKeyed", "[Materialized(0)]")[..],
        &changes("[NonMaterialized(0)]"),
        &changes("[NonMaterialized(1)]"),
    ];
    assert_eq!(of_subtask(5), [&changelog.concat()[..], &channels.map(str::to_owned)].concat());
    // Changes in memory are no stream; a subtask that has finished has none.
    assert_eq!(of_subtask(7), channels);
    assert!(of_subtask(10).is_empty());
}

#[test]
fn every_stream_can_be_changed() {
    let mut value = every_kind(6);
    let mut count = 0;
    let changed = map_streams(&mut value, |place, handle| {
        assert!(matches!(place.within, [] | [Within::Materialized(0) | Within::NonMaterialized(0 | 1)]));
        count += 1;
        *handle = StreamHandle::Relative { path: count.to_string(), size: count };
        Ok::<(), Infallible>(())
    });
    assert_eq!(changed, Ok(()));
    let mut seen = 0;
    let all = streams(&read(&write(&value).unwrap()).unwrap(), |_, handle| {
        seen += 1;
        assert_eq!(*handle, StreamHandle::Relative { path: seen.to_string(), size: seen });
        Ok::<(), Infallible>(())
    });
    assert_eq!((all, seen), (Ok(()), count));
    assert_eq!(map_streams(&mut value, |_, _| Err("no")), Err("no"));
}

#[test]
fn a_real_checkpoint_can_be_moved_and_moved_back() {
    let path = "incr-p2/tree/a61c78b55d696e486e02c05da65bb59e/chk-6/_metadata";
    let bytes = std::fs::read(committed().join(path)).unwrap();
    let mut value = read(&bytes).unwrap();
    let mut shared = 0;
    for (from, to) in [("file:/opt/", "s3://somewhere/else/"), ("s3://somewhere/else/", "file:/opt/")] {
        let moved = map_streams(&mut value, |place, handle| {
            if let StreamHandle::File { path, .. } = handle {
                assert_eq!(place.role, Role::ManagedKeyed);
                shared += usize::from(matches!(place.part, Part::Shared(_)));
                *path = path.strip_prefix(from).map(|rest| format!("{to}{rest}")).ok_or("a path elsewhere")?;
            }
            Ok::<(), &str>(())
        });
        assert_eq!(moved, Ok(()));
        assert_eq!(write(&value).unwrap() == bytes, from.starts_with("s3"));
    }
    assert!(shared > 100, "{shared}");
    let mut relative = 0;
    let all = streams(&read(&small()).unwrap(), |_, handle| {
        relative += usize::from(matches!(handle, StreamHandle::Relative { .. }));
        Ok::<(), Infallible>(())
    });
    assert_eq!(all, Ok(()));
    assert_eq!(relative, 10);
}
