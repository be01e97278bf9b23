//! What is sent and what is not.

use super::*;

struct Counted {
    host: Host,
    subtask: Subtask,
    backend: KeyedBackend<LongSerializer>,
    value: ValueState<VoidNamespace, BytesSerializer>,
}

impl Counted {
    fn new(local: bool) -> Self {
        let host = Host::new();
        let (backend, value) = host.keyed("db");
        let operator = Spoken { keyed: Some(backend.clone()), ..Spoken::new("count", &host.log) };
        let subtask = host.subtask(vec![operator.chained()], local);
        Self { host, subtask, backend, value }
    }

    /// Adds some kilobytes and takes a checkpoint; returns what was sent for it.
    fn round(&mut self, seed: u64, kilobytes: u64, kind: TriggerKind) -> (CheckpointNumber, u64) {
        fill(&self.backend, &self.value, (seed, kilobytes));
        let before = self.host.memory.uploaded();
        let (number, _) = self.host.round(&mut self.subtask, &["count"], kind);
        (number, self.host.memory.uploaded() - before)
    }
}

const KB: u64 = 1024;

#[test]
fn row7_only_new_tables_are_sent_and_the_metadata_is_whole() {
    let mut c = Counted::new(false);
    let (first, sent) = c.round(1, 600, TriggerKind::Checkpoint);
    assert!(sent > 600 * KB);
    c.host.complete(first).unwrap();
    let (second, sent) = c.round(2, 200, TriggerKind::Checkpoint);
    assert!(sent > 200 * KB && sent < 300 * KB, "{sent}");
    c.host.complete(second).unwrap();
    let (one, two) = (c.host.manifest(first, "count"), c.host.manifest(second, "count"));
    assert_eq!(one.backend, two.backend);
    assert!(two.logical_bytes > one.logical_bytes && two.states == one.states);
    assert!(two.file("db/CURRENT").is_some());
    assert_eq!(entries(&c.host.path("scratch")), [] as [&str; 0], "temporary directories are gone");
}

#[test]
fn row7_the_base_needs_no_confirmation() {
    // The task is never told that the first completed: the second reuses it all the same, since its intent names it.
    let mut c = Counted::new(false);
    let (first, _) = c.round(1, 600, TriggerKind::Checkpoint);
    c.host.complete(first).unwrap();
    let (_, sent) = c.round(2, 0, TriggerKind::Checkpoint);
    assert!(sent < 64 * KB, "{sent}");
}

#[test]
fn row7_uploads_of_an_aborted_attempt_are_adopted() {
    let mut c = Counted::new(false);
    let (first, sent) = c.round(1, 600, TriggerKind::Checkpoint);
    assert!(sent > 600 * KB);
    c.host.abort(first);
    c.subtask.notify(Notice::Aborted(first)).unwrap();
    let (second, sent) = c.round(2, 0, TriggerKind::Checkpoint);
    assert!(sent < 64 * KB, "{sent}");
    c.host.complete(second).unwrap();
}

#[test]
fn row7_without_any_state_nothing_is_written() {
    let host = Host::new();
    let backend = host.bare("db");
    let operator = Spoken { keyed: Some(backend), ..Spoken::new("count", &host.log) };
    let mut subtask = host.subtask(vec![operator.chained()], true);
    let (number, taken) = host.round(&mut subtask, &["count"], TriggerKind::Checkpoint);
    assert_eq!((taken, host.memory.uploaded()), (Taken::Running, 0));
    assert_eq!(host.manifest(number, "count").files, []);
    assert_eq!(entries(&host.path("local")), [] as [&str; 0]);
    host.complete(number).unwrap();
}

#[test]
fn row9_a_full_checkpoint_uses_nothing_and_is_a_base_afterwards() {
    let mut c = Counted::new(false);
    let (first, _) = c.round(1, 600, TriggerKind::Checkpoint);
    c.host.complete(first).unwrap();
    let (full, sent) = c.round(2, 0, TriggerKind::Full);
    assert!(sent > 600 * KB, "{sent}");
    c.host.complete(full).unwrap();
    let uid = c.host.session.catalog.checkpoint(&job(), full).unwrap().uid;
    assert!(c.host.manifest(full, "count").blobs.iter().all(|b| b.name.uid == uid), "all its own");
    let (third, sent) = c.round(3, 0, TriggerKind::Checkpoint);
    assert!(sent < 64 * KB, "{sent}");
    c.host.complete(third).unwrap();
    assert!(c.host.manifest(third, "count").blobs.iter().any(|b| b.name.uid == uid));
}

#[test]
fn row9_a_savepoint_moves_nothing_else_and_keeps_no_local_copy() {
    let mut c = Counted::new(true);
    let (first, _) = c.round(1, 600, TriggerKind::Checkpoint);
    c.host.complete(first).unwrap();
    let (savepoint, sent) = c.round(2, 0, TriggerKind::Savepoint { stop: false });
    assert!(sent < 64 * KB, "{sent}");
    c.host.complete(savepoint).unwrap();
    assert_eq!(entries(&c.host.path("local/job/0")), ["chk_1"]);
    let kind = c.host.session.catalog.checkpoint(&job(), savepoint).unwrap().manifest.kind;
    assert_eq!(kind, CheckpointKind::Savepoint);
}

#[test]
fn row10_the_local_copy_is_hard_linked_and_whole() {
    use std::os::unix::fs::MetadataExt;
    let mut c = Counted::new(true);
    let (first, _) = c.round(1, 600, TriggerKind::Checkpoint);
    c.host.complete(first).unwrap();
    let checkpoint = c.host.session.catalog.checkpoint(&job(), first).unwrap();
    let local = LocalStateStore::new(&c.host.path("local"), &job(), 0);
    let copy = local.retrieve(first, checkpoint.uid, &Name::encode("count")).unwrap();
    let manifest = c.host.manifest(first, "count");
    for file in &manifest.files {
        let path = copy.join(file.path.db_file().unwrap());
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(crate::types::Digest::of(&bytes), file.digest, "{}", file.path);
        if file.path.as_str().ends_with(".sst") {
            assert!(std::fs::metadata(&path).unwrap().nlink() > 1, "{}", file.path);
        }
    }
}
