//! Bad luck: each has its exact outcome.

use super::*;

fn counted(host: &Host, local: bool) -> Subtask {
    let (backend, value) = host.keyed("db");
    // Three tables, each a blob of its own: from four on, RocksDB makes one of them.
    for i in 0..3 {
        fill(&backend, &value, (i, 200));
        if i < 2 {
            backend.clone().checkpoint(&host.path(&format!("flush-{i}"))).unwrap();
        }
    }
    let operator = Spoken { keyed: Some(backend), ..Spoken::new("count", &host.log) };
    host.subtask(vec![operator.chained()], local)
}

fn words(host: &Host) -> String {
    seen(&host.log).pop().unwrap()
}

#[test]
fn row2_a_failing_hook_names_the_operator_and_cancels_what_was_made() {
    let host = Host::new();
    let (backend, value) = host.keyed("db");
    fill(&backend, &value, (1, 10));
    let tail = Spoken { keyed: Some(backend), ..Spoken::new("tail", &host.log) };
    let head = Spoken::new("my head", &host.log).hook(|_| Err(Error::new(Kind::Other, "bad luck")));
    let mut subtask = host.subtask(vec![head.chained(), tail.chained()], true);
    let (_, taken) = host.round(&mut subtask, &["my head", "tail"], TriggerKind::Checkpoint);
    assert_eq!(taken, Taken::Declined);
    assert_eq!(words(&host), "declined chk-1 my%20head: Could not complete snapshot 1 for operator my head: bad luck");
    assert_eq!(entries(&host.path("local/job/0/chk_1")), [] as [&str; 0], "the tail's directory is gone");
    assert_eq!(host.memory.uploaded(), 0);
}

#[test]
fn an_operator_that_panics_in_its_hook_declines_and_the_task_goes_on() {
    let host = Host::new();
    let mut times = 0;
    let operator = Spoken::new("map", &host.log).hook(move |_| {
        times += 1;
        assert!(times > 1, "first time");
        Ok(())
    });
    let mut subtask = host.subtask(vec![operator.chained()], false);
    let (_, taken) = host.round(&mut subtask, &["map"], TriggerKind::Checkpoint);
    assert_eq!(taken, Taken::Declined);
    let said = words(&host);
    assert!(
        said.starts_with(
            "declined chk-1 map: Could not complete snapshot 1 for operator map: snapshot_state panicked: first"
        ),
        "{said}"
    );
    let (number, taken) = host.round(&mut subtask, &["map"], TriggerKind::Checkpoint);
    assert_eq!(taken, Taken::Running);
    host.abort(n(1));
    host.complete(number).unwrap();
}

#[test]
fn a_snapshot_in_a_closing_backend_is_refused() {
    let host = Host::new();
    let chained = Spoken::new("map", &host.log).chained();
    chained.registry.close();
    let mut subtask = host.subtask(vec![chained], false);
    let (_, taken) = host.round(&mut subtask, &["map"], TriggerKind::Checkpoint);
    assert_eq!(taken, Taken::Declined);
    assert_eq!(
        words(&host),
        "declined chk-1 map: Could not complete snapshot 1 for operator map: the state backend is closed: nothing of it can be snapshotted any more"
    );
}

#[test]
fn a_full_disk_in_the_sync_phase_declines_and_leaves_nothing() {
    let host = Host::new();
    let mut subtask = counted(&host, false);
    // A file where the directory should be made stands for a disk that refuses.
    std::fs::write(host.path("scratch"), "").unwrap();
    let (_, taken) = host.round(&mut subtask, &["count"], TriggerKind::Checkpoint);
    assert_eq!(taken, Taken::Declined);
    assert!(
        words(&host)
            .starts_with("declined chk-1 count: Could not complete snapshot 1 for operator count: cannot make ")
    );
    std::fs::remove_file(host.path("scratch")).unwrap();
    let (_, taken) = host.round(&mut subtask, &["count"], TriggerKind::Checkpoint);
    assert_eq!((taken, words(&host).as_str()), (Taken::Running, "acked chk-2 count/0"));
}

#[test]
fn row8_a_store_that_fails_at_the_third_file_declines_and_what_was_sent_is_adopted() {
    let host = Host::new();
    let mut subtask = counted(&host, true);
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    host.memory.fail_when(move |what, key| {
        what == "upload" && key.starts_with("blobs/") && count.fetch_add(1, Ordering::SeqCst) >= 2
    });
    let (number, taken) = host.round(&mut subtask, &["count"], TriggerKind::Checkpoint);
    assert_eq!(taken, Taken::Running);
    let said = words(&host);
    assert!(said.starts_with("declined chk-1 count: the async phase of chk-1 failed in operator count: "), "{said}");
    assert!(said.contains("it was told to fail"), "{said}");
    assert_eq!(entries(&host.path("local/job/0/chk_1")), [] as [&str; 0], "its local directory is gone");
    let already = host.memory.uploaded();
    assert!(already > 300 * 1024, "two of three tables: {already}");
    let blobs = host.session.store.blobs().unwrap().len();
    host.memory.fail_when(|_, _| false);
    host.abort(number);
    let (number, _) = host.round(&mut subtask, &["count"], TriggerKind::Checkpoint);
    host.complete(number).unwrap();
    let all = host.manifest(number, "count").logical_bytes;
    assert!(host.memory.uploaded() < all + all / 10, "{} of {all}", host.memory.uploaded());
    assert!(host.session.store.blobs().unwrap().len() > blobs, "nothing was deleted");
}

#[test]
fn row8_five_failed_attempts_send_no_more_than_one() {
    let host = Host::new();
    let mut subtask = counted(&host, false);
    for attempt in 0..5_usize {
        let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        host.memory.fail_when(move |what, key| {
            what == "upload" && key.starts_with("blobs/") && sent.fetch_add(1, Ordering::SeqCst) > attempt % 3
        });
        let (number, _) = host.round(&mut subtask, &["count"], TriggerKind::Checkpoint);
        if words(&host).starts_with("acked") {
            assert!(attempt > 1, "the first ones fail");
        }
        host.abort(number);
    }
    host.memory.fail_when(|_, _| false);
    let (number, _) = host.round(&mut subtask, &["count"], TriggerKind::Checkpoint);
    host.complete(number).unwrap();
    let all = host.manifest(number, "count").logical_bytes;
    assert!(host.memory.uploaded() * 10 < all * 11, "{} of {all}", host.memory.uploaded());
}

#[test]
fn row4_a_report_that_fails_discards_and_the_task_fails_when_even_that_cannot_be_told() {
    let host = Host::new();
    let mut subtask = counted(&host, true);
    host.told.fails.store(true, Ordering::SeqCst);
    let barrier = host.open(&["count"], TriggerKind::Checkpoint);
    subtask.checkpoint(&barrier, Arrival::default(), &mut host.below()).unwrap();
    let e = subtask.wait().unwrap_err();
    assert!(e.message().contains("the coordinator is away"), "{e}");
    assert_eq!(entries(&host.path("local/job/0/chk_1")), ["uid"], "the local copy is discarded");
}

#[test]
fn row4_the_local_copy_is_stored_before_the_ack() {
    let host = Host::new();
    let mut subtask = counted(&host, true);
    let (local, told) = (host.path("local/job/0/chk_1/uid"), Arc::new(AtomicBool::new(false)));
    let was_there = Arc::clone(&told);
    host.memory.fail_when(move |what, key| {
        if what == "create" && key.starts_with("task/") {
            was_there.store(local.exists(), Ordering::SeqCst);
        }
        false
    });
    let (number, _) = host.round(&mut subtask, &["count"], TriggerKind::Checkpoint);
    assert!(told.load(Ordering::SeqCst), "when the ack was created, the local copy was recorded");
    host.complete(number).unwrap();
}

#[test]
fn row4_an_abort_while_it_runs_discards_and_acknowledges_nothing() {
    let host = Host::new();
    let mut subtask = counted(&host, true);
    let (begun, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (here, wait) = (Arc::clone(&begun), Arc::clone(&go));
    host.memory.fail_when(move |what, key| {
        if what == "upload" && key.starts_with("blobs/") {
            here.store(true, Ordering::SeqCst);
            while !wait.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
        false
    });
    let barrier = host.open(&["count"], TriggerKind::Checkpoint);
    subtask.checkpoint(&barrier, Arrival::default(), &mut host.below()).unwrap();
    while !begun.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    seen(&host.log);
    subtask.notify(Notice::Aborted(barrier.number)).unwrap();
    go.store(true, Ordering::SeqCst);
    subtask.wait().unwrap();
    assert_eq!(seen(&host.log), ["count: aborted chk-1"], "neither acked nor declined");
    assert_eq!(entries(&host.path("local/job/0")), [] as [&str; 0]);
    assert_eq!(
        host.session.store.get(&Key::task(&job(), barrier.number, &Name::encode("count"), 0), 1 << 20).unwrap(),
        None
    );
}

#[test]
fn a_checkpoint_that_was_decided_meanwhile_is_declined() {
    let host = Host::new();
    let mut subtask = counted(&host, true);
    let barrier = host.open(&["count"], TriggerKind::Checkpoint);
    host.abort(barrier.number);
    subtask.checkpoint(&barrier, Arrival::default(), &mut host.below()).unwrap();
    subtask.wait().unwrap();
    let said = words(&host);
    assert!(said.starts_with("declined chk-1 count: the async phase of chk-1 failed in operator count: "), "{said}");
    assert_eq!(entries(&host.path("local/job/0/chk_1")), [] as [&str; 0]);
}

#[test]
fn a_lost_notification_costs_nothing() {
    let host = Host::new();
    let mut subtask = counted(&host, true);
    let (first, _) = host.round(&mut subtask, &["count"], TriggerKind::Checkpoint);
    host.complete(first).unwrap();
    let before = host.memory.uploaded();
    let (second, _) = host.round(&mut subtask, &["count"], TriggerKind::Checkpoint);
    host.complete(second).unwrap();
    assert!(host.memory.uploaded() - before < 64 * 1024);
    subtask.notify(Notice::Complete(second)).unwrap();
    assert_eq!(entries(&host.path("local/job/0")), ["chk_2"], "the next one prunes what the lost one would have");
}

#[test]
fn closing_the_subtask_ends_what_runs() {
    let host = Host::new();
    let mut subtask = counted(&host, false);
    let go = Arc::new(AtomicBool::new(false));
    let wait = Arc::clone(&go);
    host.memory.fail_when(move |what, key| {
        while what == "upload" && key.starts_with("blobs/") && !wait.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        false
    });
    let barrier = host.open(&["count"], TriggerKind::Checkpoint);
    subtask.checkpoint(&barrier, Arrival::default(), &mut host.below()).unwrap();
    let closer = std::thread::spawn(move || {
        subtask.close();
        subtask
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    go.store(true, Ordering::SeqCst);
    drop(closer.join().unwrap());
    assert_eq!(entries(&host.path("scratch")), [] as [&str; 0]);
    assert!(!seen(&host.log).iter().any(|s| s.starts_with("acked")));
}
