//! Barriers, order, notifications.

use super::super::async_part::{AsyncPart, Durations};
use super::super::environment::OpenCheckpoint;
use super::*;

#[test]
fn row1_the_barrier_goes_on_first_and_snapshots_go_from_tail_to_head() {
    let host = Host::new();
    let chain = ["head", "middle", "tail"].map(|o| Spoken::new(o, &host.log).chained());
    let mut subtask = host.subtask(chain.into(), false);
    let (number, taken) = host.round(&mut subtask, &["head", "middle", "tail"], TriggerKind::Checkpoint);
    assert_eq!(taken, Taken::Running);
    assert_eq!(
        seen(&host.log),
        [
            "head: before chk-1",
            "middle: before chk-1",
            "tail: before chk-1",
            "barrier chk-1",
            "tail: snapshot chk-1",
            "middle: snapshot chk-1",
            "head: snapshot chk-1",
            "acked chk-1 tail/0",
            "acked chk-1 middle/0",
            "acked chk-1 head/0",
        ]
    );
    host.complete(number).unwrap();
}

#[test]
fn row1_a_barrier_out_of_order_takes_nothing() {
    let host = Host::new();
    let mut subtask = host.subtask(vec![Spoken::new("map", &host.log).chained()], false);
    let (first, second) = (host.open(&["map"], TriggerKind::Checkpoint), host.open(&["map"], TriggerKind::Checkpoint));
    let mut take = |b: &Barrier| subtask.checkpoint(b, Arrival::default(), &mut host.below()).unwrap();
    assert_eq!([take(&second), take(&first), take(&second)], [Taken::Running, Taken::Late, Taken::Late]);
    subtask.wait().unwrap();
    assert_eq!(seen(&host.log), ["map: before chk-2", "barrier chk-2", "map: snapshot chk-2", "acked chk-2 map/0"]);
}

#[test]
fn row1_a_number_is_registered_once() {
    let host = Host::new();
    let subtask = host.subtask(vec![Spoken::new("map", &host.log).chained()], false);
    let barrier = host.open(&["map"], TriggerKind::Checkpoint);
    let environment = Arc::new(Environment {
        session: host.session.clone(),
        job: job(),
        subtask: 0,
        scratch: host.path("scratch"),
        local: None,
        reporter: Arc::clone(&host.told) as _,
    });
    let checkpoint = OpenCheckpoint::new(environment, barrier.number, barrier.uid, barrier.kind);
    let part = AsyncPart::new(Arc::new(checkpoint), Vec::new(), Durations::default());
    subtask.register(barrier.number, &part).unwrap();
    assert_eq!(subtask.register(barrier.number, &part).unwrap_err().kind(), Kind::Conflict);
}

#[test]
fn row1_what_was_aborted_before_its_barrier_came_is_cancelled_downstream() {
    let host = Host::new();
    let mut subtask = host.subtask(vec![Spoken::new("map", &host.log).chained()], false);
    let barrier = host.open(&["map"], TriggerKind::Checkpoint);
    subtask.notify(Notice::Aborted(barrier.number)).unwrap();
    let taken = subtask.checkpoint(&barrier, Arrival::default(), &mut host.below()).unwrap();
    assert_eq!(taken, Taken::Aborted);
    assert_eq!(seen(&host.log), ["map: aborted chk-1", "cancelled chk-1"]);
}

#[test]
fn row1_more_aborts_than_are_remembered_still_count() {
    let host = Host::new();
    let mut subtask = host.subtask(vec![Spoken::new("map", &host.log).chained()], false);
    for i in 1..=crate::limits::ABORTED_REMEMBERED as u64 + 5 {
        subtask.notify(Notice::Aborted(n(i))).unwrap();
    }
    seen(&host.log);
    let barrier = host.open(&["map"], TriggerKind::Checkpoint);
    assert_eq!(barrier.number, n(1), "the oldest of them");
    let taken = subtask.checkpoint(&barrier, Arrival::default(), &mut host.below()).unwrap();
    assert_eq!((taken, seen(&host.log)), (Taken::Aborted, vec!["cancelled chk-1".to_owned()]));
}

#[test]
fn row1_closed_operators_are_skipped() {
    let host = Host::new();
    let mut closed = Spoken::new("closed", &host.log);
    closed.closed = true;
    let mut subtask = host.subtask(vec![Spoken::new("map", &host.log).chained(), closed.chained()], false);
    host.round(&mut subtask, &["map"], TriggerKind::Checkpoint);
    assert_eq!(seen(&host.log), ["map: before chk-1", "barrier chk-1", "map: snapshot chk-1", "acked chk-1 map/0"]);
}

#[test]
fn row1_every_operator_is_told_and_the_first_error_keeps_the_others() {
    let host = Host::new();
    let mut chain = Vec::new();
    for (name, fails) in [("a", true), ("b", false), ("c", true)] {
        chain.push(Spoken { notify_fails: fails, ..Spoken::new(name, &host.log) }.chained());
    }
    let mut subtask = host.subtask(chain, false);
    let failure = subtask.notify(Notice::Complete(n(9))).unwrap_err();
    assert_eq!(seen(&host.log), ["a: complete chk-9", "b: complete chk-9", "c: complete chk-9"]);
    assert_eq!(failure.first.message(), "operator a: a will not hear it");
    assert_eq!(failure.suppressed.iter().map(Error::message).collect::<Vec<_>>(), ["operator c: c will not hear it"]);
    subtask.notify(Notice::Subsumed(n(9))).unwrap_err();
    assert_eq!(seen(&host.log), ["a: subsumed chk-9", "b: subsumed chk-9", "c: subsumed chk-9"]);
}

#[test]
fn row1_the_local_copies_are_told_though_an_operator_fails() {
    let host = Host::new();
    let (backend, value) = host.keyed("db");
    fill(&backend, &value, (1, 4));
    let count = Spoken { keyed: Some(backend), notify_fails: true, ..Spoken::new("count", &host.log) };
    let mut subtask = host.subtask(vec![count.chained()], true);
    for _ in 0..3 {
        let (number, _) = host.round(&mut subtask, &["count"], TriggerKind::Checkpoint);
        host.complete(number).unwrap();
    }
    assert_eq!(entries(&host.path("local/job/0")), ["chk_1", "chk_2", "chk_3"]);
    subtask.notify(Notice::Complete(n(2))).unwrap_err();
    assert_eq!(entries(&host.path("local/job/0")), ["chk_2", "chk_3"]);
    subtask.notify(Notice::Aborted(n(3))).unwrap_err();
    assert_eq!(entries(&host.path("local/job/0")), ["chk_2"]);
    subtask.notify(Notice::Subsumed(n(2))).unwrap_err();
    assert_eq!(entries(&host.path("local/job/0")), [] as [&str; 0]);
}

#[test]
fn row2_raw_and_operator_state_lie_in_the_task_manifest() {
    let host = Host::new();
    let (backend, value) = host.keyed("db");
    fill(&backend, &value, (1, 1));
    let state = OperatorStateBackend::new();
    let offsets = state.list("offsets", StringSerializer).unwrap();
    offsets.add(&"one".to_owned()).unwrap();
    let operator = Spoken { keyed: Some(backend), state: Some(state), ..Spoken::new("my map", &host.log) };
    let late = offsets.clone();
    let operator = operator.hook(move |context| {
        assert_eq!((context.timestamp_ms(), context.key_groups()), (77, Some(KeyGroupRange { first: 0, last: 127 })));
        context.start_key_group(5)?.extend(b"five");
        context.start_partition()?.extend(b"part");
        // What the hook puts into a backend is in the snapshot.
        late.add(&"two".to_owned()).map_err(Error::from)
    });
    let mut subtask = host.subtask(vec![operator.chained()], false);
    let (number, _) = host.round(&mut subtask, &["my map"], TriggerKind::Checkpoint);
    let manifest = host.manifest(number, "my map");
    let others: Vec<&str> = manifest.files.iter().map(|f| f.path.as_str()).filter(|p| !p.starts_with("db/")).collect();
    assert_eq!(others, ["operator/offsets/0", "operator/offsets/1", "raw-keyed/5", "raw-operator/0"]);
    assert_eq!(manifest.display_name, "my map");
    assert_eq!(manifest.key_groups, Some(KeyGroupRange { first: 0, last: 127 }));
    let kinds: Vec<Vec<&String>> = manifest.states.iter().map(|s| s.as_object().unwrap().keys().collect()).collect();
    assert_eq!(kinds, [["keyed"], ["operator"]]);
    assert!(manifest.backend.is_some());
    host.complete(number).unwrap();
    let checkpoint = host.session.catalog.checkpoint(&job(), number).unwrap();
    let entry = &checkpoint.manifest.subtasks[0];
    let cache = &host.session.cache;
    let task = cache.task_manifest(&host.session.store, &job(), number, entry).unwrap();
    let read = |path: &str| {
        let file = task.file(path).unwrap();
        let bytes: Vec<Vec<u8>> = file
            .extents
            .iter()
            .map(|e| host.session.cache.read_extent(&host.session.store, &task, e).unwrap())
            .collect();
        bytes.concat()
    };
    assert_eq!((read("raw-keyed/5"), read("raw-operator/0")), (b"five".to_vec(), b"part".to_vec()));
}

#[test]
fn row4_durations_and_sizes_are_reported() {
    let host = Host::new();
    let (backend, value) = host.keyed("db");
    fill(&backend, &value, (1, 300));
    let operator = Spoken { keyed: Some(backend), ..Spoken::new("count", &host.log) };
    let slow = operator.hook(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        Ok(())
    });
    let mut subtask = host.subtask(vec![slow.chained()], false);
    let barrier = host.open(&["count"], TriggerKind::Checkpoint);
    let arrival = Arrival { start_delay: 11, alignment: 7 };
    subtask.checkpoint(&barrier, arrival, &mut host.below()).unwrap();
    subtask.wait().unwrap();
    let report = host.told.reports.lock().unwrap()[0];
    let manifest = host.manifest(barrier.number, "count");
    assert_eq!((report.start_delay_ms, report.alignment_ms), (11, 7));
    assert!(report.sync_ms >= 20, "{report:?}");
    assert_eq!((report.logical_bytes, report.new_bytes), (manifest.logical_bytes, manifest.new_bytes));
    assert!(report.new_bytes > 300 * 1024);
    let stored = AckReport::from_properties(0, 0, &manifest.properties);
    assert_eq!((stored.start_delay_ms, stored.alignment_ms, stored.sync_ms), (11, 7, report.sync_ms));
}
