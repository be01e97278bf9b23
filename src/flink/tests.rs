//! Names, places and the `_metadata` that Flink restores from, on values made by hand; whole checkpoints are in `mount-tests/flink`.

use std::fs;

use super::metadata::{
    CheckpointMetadata, Distribution, KeyGroupRange, KeyedHandle, LocalFile, MergingDirectories, Operator,
    OperatorHandle, OperatorState, Scope, StreamHandle, Subtask, read,
};
use super::place::{Lookup, Resolver, Rewrite};
use super::plan::plan;
use super::relative::relative;
use crate::store::{SourceUrl, Sources};
use crate::types::Digest;

fn file(path: &str, size: i64) -> StreamHandle {
    StreamHandle::File { size, path: path.to_owned() }
}

fn operator(id: u8, name: &str, uid: &str, subtasks: Vec<Subtask>) -> Operator {
    Operator {
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        id: [id; 16],
        parallelism: 2,
        max_parallelism: 128,
        coordinator: StreamHandle::Null,
        fully_finished: false,
        subtasks,
    }
}

fn checkpoint(operators: Vec<Operator>) -> CheckpointMetadata {
    // A null of Java's.
    let properties = b"\xAC\xED\0\x05p".to_vec();
    CheckpointMetadata { version: 6, checkpoint_id: 7, master_states: Vec::new(), operators, properties }
}

fn keyed(path: &str) -> Subtask {
    let handle = KeyedHandle::Incremental {
        checkpoint_id: 7,
        backend_id: "b".to_owned(),
        key_groups: KeyGroupRange { first: 0, count: 64 },
        checkpointed_size: Some(1),
        meta: StreamHandle::Inline { name: "meta".to_owned(), bytes: b"meta".to_vec() },
        shared: vec![LocalFile { path: "000009.sst".to_owned(), stream: file(path, 5) }],
        private: vec![LocalFile {
            path: "CURRENT".to_owned(),
            stream: StreamHandle::Segment {
                start: 1,
                size: 3,
                scope: Scope::Exclusive,
                path: path.to_owned(),
                logical_id: "l".to_owned(),
            },
        }],
        handle_id: Some("h".to_owned()),
    };
    Subtask { index: 0, managed_keyed: Some(Box::new(handle)), ..Subtask::default() }
}

/// A job's tree, which was written below `/old`.
fn tree() -> (tempfile::TempDir, SourceUrl) {
    let dir = tempfile::tempdir().unwrap();
    for (path, bytes) in [("job/shared/f", "12345"), ("other/shared/g", "12345"), ("job/chk-7/_metadata", "")] {
        let path = dir.path().join("new").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::write(dir.path().join("secret"), "12345").unwrap();
    let url = SourceUrl::parse(dir.path().to_str().unwrap()).unwrap();
    (dir, url)
}

#[test]
fn operators_are_called_by_what_tells_them_apart() {
    let (_dir, root) = tree();
    let with = |id, name, uid| operator(id, name, uid, vec![keyed("file:/old/job/shared/f")]);
    let metadata = checkpoint(vec![
        with(1, "map", "u1"),
        with(2, "map", ""),
        with(3, "filter", ""),
        with(4, "x", "flink"),
        with(5, "y", "latest"),
        with(6, "same", "same"),
        with(7, "z", "same"),
        operator(8, "stateless", "", vec![Subtask::default()]),
    ]);
    let sources = Sources::default();
    let resolver = Resolver::new(&sources, root.join("new/job/chk-7"), &[]);
    let plan = plan(&metadata, &resolver).unwrap();
    let names: Vec<&str> = plan.operators.iter().map(|o| o.name.as_str()).collect();
    let id = |n: u8| format!("{n:02x}").repeat(16);
    assert_eq!(names, ["u1", &id(2), "filter", "%66link", "%6Catest", &id(6), "z"]);
    assert!(plan.missing.is_empty(), "{:?}", plan.missing);
}

#[test]
fn files_are_found_where_they_are_now_and_nowhere_else() {
    let (dir, root) = tree();
    let sources = Sources::default();
    let at = root.join("new/job/chk-7");
    let found = |resolver: &Resolver<'_>, handle: &StreamHandle| resolver.find(handle, false).unwrap().unwrap();
    let resolver = Resolver::new(&sources, at.clone(), &[]);
    let is = |lookup: Lookup, path: &str| match lookup {
        Lookup::Found(file) => assert_eq!(file.url, root.join(path)),
        Lookup::Missing { name, why } => panic!("{name}: {why}"),
    };
    // Another job's directory before anything said what was moved where, and after.
    is(found(&resolver, &file("file:/old/other/shared/g", 5)), "new/other/shared/g");
    is(found(&resolver, &file("file:/old/job/shared/f", 5)), "new/job/shared/f");
    is(found(&resolver, &file("s3a://bucket/old/other/shared/g", -1)), "new/other/shared/g");
    let why = |lookup: Lookup| match lookup {
        Lookup::Missing { why, .. } => why,
        Lookup::Found(file) => panic!("{file:?}"),
    };
    assert!(why(found(&resolver, &file("file:/old/job/shared/f", 6))).contains("has 5 bytes instead of 6"));
    assert!(why(found(&resolver, &file("file:/old/job/shared/h", 5))).contains("not there"));
    assert!(why(found(&resolver, &file("hdfs://nn/job/shared/h", 5))).len() > 3);
    // Grown since, as a changelog's file may be.
    assert!(matches!(resolver.find(&file("file:/old/job/shared/f", 4), true).unwrap(), Some(Lookup::Found(_))));
    // Nothing outside is read unless a person says so: neither by name, nor by dots, nor by a link.
    let secret = dir.path().join("secret").to_str().unwrap().to_owned();
    assert!(why(found(&resolver, &file(&format!("file:{secret}"), 5))).contains("lies outside of"));
    let up = StreamHandle::Relative { path: "../../../secret".to_owned(), size: 5 };
    assert!(why(found(&resolver, &up)).contains("lies outside of"));
    std::os::unix::fs::symlink(&secret, dir.path().join("new/job/shared/link")).unwrap();
    why(found(&resolver, &file("file:/old/job/shared/link", 5)));
    std::os::unix::fs::symlink(dir.path(), dir.path().join("new/job/shared/up")).unwrap();
    why(found(&resolver, &file("file:/old/job/shared/up/secret", 5)));
    let rewrites = [Rewrite::parse(&format!("file:{secret}=file:{secret}")).unwrap()];
    let told = Resolver::new(&sources, at, &rewrites);
    is(found(&told, &file(&format!("file:{secret}"), 5)), "secret");
    for bad in ["", "x", "=x", "x="] {
        assert!(Rewrite::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_flink_restores_from_names_what_lies_beside_it() {
    let (_dir, root) = tree();
    let state = OperatorState { name: "s".to_owned(), distribution: Distribution::Split, offsets: vec![0] };
    let merging =
        |empty| MergingDirectories { task_owned: "file:/old/t".to_owned(), shared: "file:/old/s".to_owned(), empty };
    let merged = OperatorHandle {
        states: vec![state],
        stream: StreamHandle::Segment {
            start: 0,
            size: 2,
            scope: Scope::Shared,
            path: "file:/old/job/shared/f".to_owned(),
            logical_id: "x".to_owned(),
        },
        merging: Some(merging(false)),
    };
    let empty = OperatorHandle { states: Vec::new(), stream: StreamHandle::EmptySegment, merging: Some(merging(true)) };
    let subtask = Subtask { managed_operator: Some(Box::new(merged)), ..keyed("file:/old/job/shared/f") };
    let second = Subtask { index: 1, managed_operator: Some(Box::new(empty)), ..Subtask::default() };
    let metadata = checkpoint(vec![operator(1, "map", "u", vec![subtask, second])]);
    let sources = Sources::default();
    let resolver = Resolver::new(&sources, root.join("new/job/chk-7"), &[]);
    let plan = plan(&metadata, &resolver).unwrap();
    let digest = |path: &str| Digest::of(path.as_bytes());
    let bytes = relative(&metadata, &plan, |at| Some((digest(at.path.as_str()), 1))).unwrap();
    let written = read(&bytes).unwrap();
    let subtask = &written.operators[0].subtasks[0];
    let beside = |path: &str| StreamHandle::Relative { path: digest(path).to_hex(), size: 1 };
    let Some(KeyedHandle::Incremental { meta, shared, private, backend_id, .. }) = subtask.managed_keyed.as_deref()
    else {
        panic!("{subtask:?}")
    };
    assert_eq!((meta, backend_id.as_str()), (&beside("stream/meta"), "b"));
    assert_eq!((&shared[0].stream, &private[0].stream), (&beside("db/000009.sst"), &beside("db/CURRENT")));
    let operator = subtask.managed_operator.as_deref().unwrap();
    assert_eq!((&operator.stream, &operator.merging), (&beside("stream/operator"), &None));
    assert_eq!(written.operators[0].subtasks[1].managed_operator, None);
    // Nothing that was not stored is named.
    assert!(relative(&metadata, &plan, |_| None).is_err());
}

#[test]
fn a_metadata_that_contradicts_itself_is_refused() {
    let (_dir, root) = tree();
    let sources = Sources::default();
    let resolver = Resolver::new(&sources, root.join("new/job/chk-7"), &[]);
    let refused = |subtask: Subtask| {
        let error = plan(&checkpoint(vec![operator(1, "map", "u", vec![subtask])]), &resolver).unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::Damage, "{error}");
    };
    refused(Subtask { index: 2, ..keyed("file:/old/job/shared/f") });
    for bad in ["../x", "", "a/b", "LOCK", "CURRENT"] {
        let mut subtask = keyed("file:/old/job/shared/f");
        if let Some(KeyedHandle::Incremental { shared, .. }) = subtask.managed_keyed.as_deref_mut() {
            shared[0].path = bad.to_owned();
        }
        refused(subtask);
    }
}
