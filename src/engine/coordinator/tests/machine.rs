//! Rules of the machine, each with the exact list of what follows.

use super::super::machine::{Action, Coordinator, Input, RETRY_MS, Verdict};
use super::super::message::{AckReport, Trigger, TriggerKind};
use super::super::retained::{Held, Retained, Which, can_subsume};
use super::super::settings::CoordinatorSettings;
use super::{n, settings, task, tasks};
use crate::types::{CheckpointNumber, Uid};

const CHECKPOINT: TriggerKind = TriggerKind::Checkpoint;
const SAVEPOINT: TriggerKind = TriggerKind::Savepoint { stop: false };
const STOP: TriggerKind = TriggerKind::Savepoint { stop: true };

fn uid(number: u64) -> Uid {
    Uid::from_bytes([u8::try_from(number).unwrap(); 16])
}

fn opened(number: u64) -> Input {
    Input::Opened { number: n(number), uid: uid(number), timestamp_ms: 1_000_000 + number }
}

fn trigger(number: u64, kind: TriggerKind) -> Action {
    Action::Trigger(Trigger { number: n(number), uid: uid(number), timestamp_ms: 1_000_000 + number, kind })
}

fn acked(number: u64, operator: &str, subtask: u32) -> Input {
    Input::Acked { number: n(number), task: task(operator, subtask), report: AckReport::default() }
}

fn declined(number: u64, operator: &str, subtask: u32) -> Input {
    Input::Declined { number: n(number), task: task(operator, subtask), reason: "disk full".to_owned() }
}

fn abort(number: u64, reason: &str) -> Action {
    Action::Abort { number: n(number), reason: reason.to_owned() }
}

fn own(number: u64) -> Held {
    Held { which: Which::Own(n(number)), kind: CHECKPOINT }
}

fn expire(number: u64) -> Action {
    Action::Expire(own(number))
}

fn fails(reason: &str) -> Action {
    Action::FailJob { reason: reason.to_owned() }
}

fn done(number: u64) -> Input {
    Input::CompleteDone { number: n(number) }
}

fn request(id: u64, kind: TriggerKind) -> Input {
    Input::Request { id, kind }
}

fn answer(id: u64, result: Result<u64, &str>) -> Action {
    Action::Answer { id, result: result.map(n).map_err(str::to_owned) }
}

fn coordinator(settings: CoordinatorSettings) -> Coordinator {
    let mut machine = Coordinator::new(settings, tasks());
    assert_eq!(machine.step(Input::Tick(0)), []);
    machine
}

/// Every 100 ms.
fn periodic() -> CoordinatorSettings {
    CoordinatorSettings { interval_ms: 100, ..settings() }
}

fn ack_all(machine: &mut Coordinator, number: u64) {
    assert_eq!(machine.step(acked(number, "source", 0)), []);
    assert_eq!(machine.step(acked(number, "count", 1)), []);
    assert_eq!(machine.step(acked(number, "count", 0)), [Action::Complete(n(number))]);
}

/// Triggered by hand and opened.
fn begun(machine: &mut Coordinator, number: u64, kind: TriggerKind) {
    assert_eq!(machine.step(request(number, kind)), [Action::Open(kind)]);
    assert_eq!(machine.step(opened(number)), [trigger(number, kind)]);
}

fn pending(machine: &Coordinator) -> Vec<CheckpointNumber> {
    machine.pending().collect()
}

#[test]
fn row11_triggers_at_the_intervals_own_rate() {
    let mut m = coordinator(CoordinatorSettings { max_concurrent: 9, ..periodic() });
    assert_eq!(m.next_tick(), Some(100));
    assert_eq!(m.step(Input::Tick(99)), []);
    assert_eq!(m.step(Input::Tick(130)), [Action::Open(CHECKPOINT)]);
    assert_eq!(m.step(Input::Tick(400)), [], "one after the other");
    assert_eq!(m.step(opened(1)), [trigger(1, CHECKPOINT), Action::Open(CHECKPOINT)]);
    assert_eq!(m.step(opened(2)), [trigger(2, CHECKPOINT)], "what was missed is not made up for");
    assert_eq!(m.next_tick(), Some(500));
    assert_eq!(m.step(Input::Tick(499)), []);
    assert_eq!(m.step(Input::Tick(500)), [Action::Open(CHECKPOINT)]);
    let mut late = coordinator(CoordinatorSettings { max_concurrent: 9, ..periodic() });
    late.step(Input::Tick(130));
    late.step(opened(1));
    assert_eq!(late.next_tick(), Some(200), "a late one does not move those after it");
    // A clock that goes back changes nothing.
    assert_eq!(m.step(Input::Tick(3)), []);
    assert_eq!(coordinator(settings()).next_tick(), None, "without an interval only when asked");
}

#[test]
fn row11_the_pause_counts_from_the_last_completion() {
    let mut m = coordinator(CoordinatorSettings { min_pause_ms: 60, ..periodic() });
    assert_eq!(m.step(Input::Tick(100)), [Action::Open(CHECKPOINT)]);
    assert_eq!(m.step(opened(1)), [trigger(1, CHECKPOINT)]);
    assert_eq!(m.step(Input::Tick(190)), []);
    ack_all(&mut m, 1);
    assert_eq!(m.step(done(1)), [Action::NotifyComplete(n(1))]);
    assert_eq!(m.step(Input::Tick(200)), [], "due, and the pause is not over");
    assert_eq!(m.next_tick(), Some(250));
    assert_eq!(m.step(Input::Tick(249)), []);
    assert_eq!(m.step(Input::Tick(250)), [Action::Open(CHECKPOINT)]);
    // One that was given up begins no pause.
    let mut m = coordinator(CoordinatorSettings { min_pause_ms: 60, tolerable_failures: 1, ..periodic() });
    m.step(Input::Tick(100));
    m.step(opened(1));
    m.step(Input::Tick(190));
    m.step(declined(1, "source", 0));
    m.step(Input::Aborted { number: n(1) });
    assert_eq!(m.step(Input::Tick(200)), [Action::Open(CHECKPOINT)]);
    // A pause longer than the interval is the interval.
    let mut m = coordinator(CoordinatorSettings { min_pause_ms: 300, ..periodic() });
    assert_eq!(m.step(Input::Tick(299)), []);
    assert_eq!(m.step(Input::Tick(300)), [Action::Open(CHECKPOINT)]);
}

#[test]
fn row11_what_is_not_acknowledged_in_time_is_given_up() {
    let mut m = coordinator(CoordinatorSettings { tolerable_failures: 1, ..settings() });
    begun(&mut m, 1, CHECKPOINT);
    m.step(acked(1, "count", 0));
    assert_eq!(m.next_tick(), Some(1000));
    assert_eq!(m.step(Input::Tick(999)), []);
    let words = "no ack from count/1, source/0 within 1000 ms";
    assert_eq!(m.step(Input::Tick(1000)), [abort(1, words)]);
    assert_eq!(m.failures(), 1);
    let end = [Action::NotifyAborted(n(1)), answer(1, Err(&format!("chk-1 was given up: {words}")))];
    assert_eq!(m.step(Input::Aborted { number: n(1) }), end);
    // What is about to be published has no deadline any more.
    let mut m = coordinator(settings());
    begun(&mut m, 1, CHECKPOINT);
    ack_all(&mut m, 1);
    assert_eq!(m.next_tick(), None);
    assert_eq!(m.step(Input::Tick(5000)), []);
    assert_eq!(m.step(done(1)), [Action::NotifyComplete(n(1)), answer(1, Ok(1))]);
}

#[test]
fn row11_failures_in_a_row_are_tolerated_up_to_a_number() {
    let mut m = coordinator(CoordinatorSettings { tolerable_failures: 2, ..settings() });
    let fail = |m: &mut Coordinator, number| {
        begun(m, number, CHECKPOINT);
        assert_eq!(m.step(declined(number, "source", 0)), [abort(number, "source/0: disk full")]);
        assert_eq!(m.step(declined(number, "count", 0)).len(), 1, "counted once");
        m.step(Input::Aborted { number: n(number) });
    };
    fail(&mut m, 1);
    fail(&mut m, 2);
    assert_eq!(m.failures(), 2);
    begun(&mut m, 3, CHECKPOINT);
    ack_all(&mut m, 3);
    m.step(done(3));
    assert_eq!(m.failures(), 0, "in a row");
    fail(&mut m, 4);
    // One that could not be opened is one.
    assert_eq!(m.step(request(5, CHECKPOINT)), [Action::Open(CHECKPOINT)]);
    let words = "no checkpoint could be opened: no store";
    assert_eq!(m.step(Input::OpenFailed { reason: "no store".to_owned() }), [answer(5, Err(words))]);
    assert_eq!(m.failures(), 2);
    // Savepoints are none.
    begun(&mut m, 6, SAVEPOINT);
    assert_eq!(m.step(declined(6, "source", 0)), [abort(6, "source/0: disk full")]);
    m.step(Input::Aborted { number: n(6) });
    assert_eq!(m.failures(), 2);
    begun(&mut m, 7, CHECKPOINT);
    let reason = "3 checkpoints failed in a row, the last one since chk-7: source/0: disk full";
    assert_eq!(m.step(declined(7, "source", 0)), [abort(7, "source/0: disk full"), fails(reason)]);
    let refused = answer(8, Err("the job takes no checkpoint now: it failed"));
    assert_eq!(m.step(request(8, CHECKPOINT)), [refused]);
    m.step(Input::Aborted { number: n(7) });
    assert_eq!(m.step(Input::Tick(9999)), []);
}

#[test]
fn row11_so_many_are_open_at_once_and_savepoints_besides() {
    let mut m = coordinator(CoordinatorSettings { max_concurrent: 2, min_pause_ms: 50, ..periodic() });
    m.step(Input::Tick(100));
    m.step(opened(1));
    assert_eq!(m.step(Input::Tick(200)), [Action::Open(CHECKPOINT)]);
    m.step(opened(2));
    assert_eq!(m.step(Input::Tick(300)), [], "two are open");
    assert_eq!(m.step(request(7, TriggerKind::Full)), [], "also by hand");
    assert_eq!(m.step(request(8, SAVEPOINT)), [Action::Open(SAVEPOINT)]);
    assert_eq!(m.step(opened(3)), [trigger(3, SAVEPOINT)]);
    assert_eq!(pending(&m), [n(1), n(2), n(3)]);
    ack_all(&mut m, 3);
    assert_eq!(
        m.step(done(3)),
        [Action::NotifyComplete(n(3)), answer(8, Ok(3))],
        "older ones go on beside a savepoint"
    );
    ack_all(&mut m, 1);
    let end = [Action::NotifyComplete(n(1)), Action::Open(TriggerKind::Full)];
    assert_eq!(m.step(done(1)), end, "by hand there is no pause");
}

#[test]
fn row11_acks_count_once_and_only_where_they_are_waited_for() {
    let mut m = coordinator(CoordinatorSettings { tolerable_failures: 9, ..settings() });
    let tell = |number, operator, subtask, verdict| {
        [Action::Tell { number: n(number), task: task(operator, subtask), verdict }]
    };
    begun(&mut m, 1, CHECKPOINT);
    assert_eq!(m.step(acked(1, "source", 0)), []);
    assert_eq!(m.step(acked(1, "source", 0)), tell(1, "source", 0, Verdict::Duplicate));
    assert_eq!(m.step(acked(1, "count", 2)), tell(1, "count", 2, Verdict::Unexpected));
    assert_eq!(m.step(acked(2, "count", 0)), tell(2, "count", 0, Verdict::Unknown));
    assert_eq!(m.step(declined(2, "count", 0)), tell(2, "count", 0, Verdict::Unknown));
    assert_eq!(m.step(acked(1, "count", 0)), []);
    assert_eq!(m.step(acked(1, "count", 1)), [Action::Complete(n(1))]);
    assert_eq!(m.step(acked(1, "count", 1)), tell(1, "count", 1, Verdict::Duplicate));
    assert_eq!(m.step(declined(1, "count", 1)), tell(1, "count", 1, Verdict::Late), "the store decides now");
    m.step(done(1));
    assert_eq!(m.step(acked(1, "count", 1)), tell(1, "count", 1, Verdict::Late));
    begun(&mut m, 2, CHECKPOINT);
    m.step(declined(2, "source", 0));
    assert_eq!(m.step(acked(2, "count", 0)), tell(2, "count", 0, Verdict::Late));
    assert_eq!(m.step(declined(2, "count", 0)), tell(2, "count", 0, Verdict::Late));
}

#[test]
fn row11_completion_expires_and_notifies_and_gives_older_ones_up() {
    let mut m = coordinator(CoordinatorSettings { max_concurrent: 3, retained: 2, ..settings() });
    assert_eq!(m.step(Input::Recovered { checkpoints: vec![own(3), own(4)] }), []);
    begun(&mut m, 5, CHECKPOINT);
    begun(&mut m, 6, SAVEPOINT);
    begun(&mut m, 7, CHECKPOINT);
    ack_all(&mut m, 7);
    let end = [
        expire(3),
        abort(5, "chk-7 completed before it"),
        Action::NotifyComplete(n(7)),
        Action::NotifySubsumed(n(3)),
        answer(7, Ok(7)),
    ];
    assert_eq!(m.step(done(7)), end);
    assert_eq!(m.failures(), 0, "to be overtaken is no failure");
    assert_eq!(m.step(Input::Aborted { number: n(5) })[0], Action::NotifyAborted(n(5)));
    assert_eq!(pending(&m), [n(6)]);
    assert_eq!(m.retained().copied().collect::<Vec<_>>(), [own(4), own(7)]);
    ack_all(&mut m, 6);
    assert_eq!(m.step(done(6)), [Action::NotifyComplete(n(6)), answer(6, Ok(6))], "a savepoint is none that stays");
    // What could not be expired is tried with the next.
    m.step(Input::ExpireFailed { held: own(3) });
    begun(&mut m, 8, CHECKPOINT);
    ack_all(&mut m, 8);
    assert_eq!(m.step(done(8))[..2], [expire(3), expire(4)]);
}

#[test]
fn row11_one_real_checkpoint_always_stays() {
    let held = |number, kind| Held { which: Which::Own(n(number)), kind };
    let (one, two, save, last) = (held(1, CHECKPOINT), held(2, CHECKPOINT), held(3, SAVEPOINT), held(4, STOP));
    assert!(!can_subsume(&two, &two, Some(&two)), "never the latest");
    assert!(!can_subsume(&save, &save, Some(&two)), "also where it is a savepoint");
    assert!(can_subsume(&one, &two, Some(&two)));
    assert!(can_subsume(&save, &last, Some(&two)), "a claimed savepoint");
    assert!(!can_subsume(&two, &save, Some(&two)), "the latest real one");
    assert!(can_subsume(&two, &last, Some(&two)), "not after the job's last savepoint");
    let mut retained = Retained::default();
    for held in [save, one, two, two] {
        retained.add(held);
    }
    assert_eq!(retained.subsume(1), [one], "the latest real one stays below a savepoint");
    assert_eq!(retained.iter().copied().collect::<Vec<_>>(), [two, save]);
    retained.add(Held { which: Which::Restored, kind: SAVEPOINT });
    assert_eq!(retained.subsume(2), [Held { which: Which::Restored, kind: SAVEPOINT }], "of another job: the oldest");
}

#[test]
fn row11_what_stays_after_the_end_is_said_by_the_settings() {
    for (retain_on_cancel, gone) in [(true, vec![]), (false, vec![expire(3)])] {
        let mut m = coordinator(CoordinatorSettings { retain_on_cancel, ..settings() });
        m.step(Input::Recovered { checkpoints: vec![own(3)] });
        begun(&mut m, 4, CHECKPOINT);
        let mut end = vec![abort(4, "the job was cancelled")];
        end.extend(gone);
        end.push(Action::Stop);
        assert_eq!(m.step(Input::Cancel), end);
        m.step(Input::Aborted { number: n(4) });
        assert_eq!(m.step(Input::Cancel), []);
        assert_eq!(m.step(Input::Tick(u64::MAX)), []);
        assert_eq!(m.failures(), 0);
    }
    // A job that failed keeps them.
    let mut m = coordinator(CoordinatorSettings { retain_on_cancel: false, ..settings() });
    m.step(Input::Recovered { checkpoints: vec![own(3)] });
    let failed = Input::TaskFailed { task: task("count", 1), reason: "no disk".to_owned() };
    assert_eq!(m.step(failed), [fails("count/1 failed: no disk")]);
    // One that is about to be published when the job is cancelled is expired with the others.
    let mut m = coordinator(CoordinatorSettings { retain_on_cancel: false, ..settings() });
    begun(&mut m, 4, CHECKPOINT);
    ack_all(&mut m, 4);
    assert_eq!(m.step(Input::Cancel), [Action::Stop]);
    assert_eq!(m.step(done(4)), [Action::NotifyComplete(n(4)), answer(4, Ok(4)), expire(4)]);
}

#[test]
fn row11_savepoints_go_before_others_in_the_order_they_were_asked_for() {
    let mut m = coordinator(settings());
    begun(&mut m, 1, CHECKPOINT);
    assert_eq!(m.step(request(2, CHECKPOINT)), []);
    assert_eq!(m.step(request(3, SAVEPOINT)), [Action::Open(SAVEPOINT)]);
    assert_eq!(m.step(request(4, SAVEPOINT)), []);
    assert_eq!(m.step(request(5, TriggerKind::Full)), []);
    assert_eq!(m.step(opened(2)), [trigger(2, SAVEPOINT), Action::Open(SAVEPOINT)]);
    assert_eq!(m.step(opened(3)), [trigger(3, SAVEPOINT)]);
    ack_all(&mut m, 3);
    assert_eq!(m.step(done(3)), [Action::NotifyComplete(n(3)), answer(4, Ok(3))]);
    ack_all(&mut m, 2);
    assert_eq!(m.step(done(2)), [Action::NotifyComplete(n(2)), answer(3, Ok(2))]);
    ack_all(&mut m, 1);
    assert_eq!(m.step(done(1)), [Action::NotifyComplete(n(1)), answer(1, Ok(1)), Action::Open(CHECKPOINT)]);
}

#[test]
fn row11_stop_with_savepoint_is_the_last_thing_that_happens() {
    let mut m = coordinator(CoordinatorSettings { max_concurrent: 2, ..periodic() });
    m.step(Input::Tick(100));
    m.step(opened(1));
    let begin = [abort(1, "the job is being stopped with a savepoint"), Action::Open(STOP)];
    assert_eq!(m.step(request(1, STOP)), begin);
    m.step(Input::Aborted { number: n(1) });
    assert_eq!(m.step(opened(2)), [trigger(2, STOP)]);
    assert_eq!(m.step(Input::Tick(500)), [], "nothing by the clock any more");
    let refused = "the job takes no checkpoint now: it is being stopped with a savepoint";
    assert_eq!(m.step(request(2, SAVEPOINT)), [answer(2, Err(refused))]);
    ack_all(&mut m, 2);
    assert_eq!(m.step(done(2)), [Action::NotifyComplete(n(2)), answer(1, Ok(2)), Action::Stop]);
    assert_eq!(m.step(request(3, SAVEPOINT)), [answer(3, Err("the job takes no checkpoint now: it has ended"))]);
}

#[test]
fn row11_a_job_whose_last_savepoint_fails_goes_on() {
    let mut m = coordinator(periodic());
    m.step(Input::Tick(50));
    begun(&mut m, 1, STOP);
    m.step(Input::Tick(500));
    m.step(declined(1, "count", 0));
    let end = [Action::NotifyAborted(n(1)), answer(1, Err("chk-1 was given up: count/0: disk full"))];
    assert_eq!(m.step(Input::Aborted { number: n(1) }), end);
    assert_eq!(m.step(Input::Tick(599)), []);
    assert_eq!(m.step(Input::Tick(600)), [Action::Open(CHECKPOINT)]);
    m.step(opened(2));
    // Also where it could not be opened.
    m.step(request(2, STOP));
    m.step(Input::Aborted { number: n(2) });
    let failed = answer(2, Err("no checkpoint could be opened: x"));
    assert_eq!(m.step(Input::OpenFailed { reason: "x".to_owned() }), [failed]);
    assert_eq!(m.step(Input::Tick(700)), [Action::Open(CHECKPOINT)]);
}

#[test]
fn row11_an_unclear_completion_is_settled_by_the_abort() {
    let mut m = coordinator(CoordinatorSettings { tolerable_failures: 9, ..settings() });
    let failed = |number| Input::CompleteFailed { number: n(number), reason: "no answer".to_owned() };
    begun(&mut m, 1, CHECKPOINT);
    ack_all(&mut m, 1);
    assert_eq!(m.step(failed(1)), [abort(1, "no answer")]);
    assert_eq!(m.failures(), 1);
    // The answer that was lost was a yes: the abort says so.
    assert_eq!(m.step(done(1)), [Action::NotifyComplete(n(1)), answer(1, Ok(1))]);
    assert_eq!(m.failures(), 0);
    assert_eq!(m.retained().copied().collect::<Vec<_>>(), [own(1)]);
    // While the abort has no answer either, tasks are told nothing, and it is tried again.
    begun(&mut m, 2, CHECKPOINT);
    ack_all(&mut m, 2);
    assert_eq!(m.step(failed(2)), [abort(2, "no answer")]);
    assert_eq!(m.step(Input::AbortFailed { number: n(2) }), []);
    assert_eq!(m.next_tick(), Some(RETRY_MS));
    assert_eq!(m.step(Input::Tick(RETRY_MS - 1)), []);
    assert_eq!(m.step(request(3, CHECKPOINT)), [], "it is still open");
    assert_eq!(m.step(Input::Tick(RETRY_MS)), [abort(2, "no answer")]);
    let end = m.step(Input::Aborted { number: n(2) });
    assert_eq!((&end[0], &end[2]), (&Action::NotifyAborted(n(2)), &Action::Open(CHECKPOINT)));
    assert_eq!(m.failures(), 1, "counted once");
}

#[test]
fn row11_what_somebody_else_gave_up_is_told_and_counts() {
    let mut m = coordinator(CoordinatorSettings { tolerable_failures: 1, ..settings() });
    begun(&mut m, 1, CHECKPOINT);
    let elsewhere = |number| Input::AbortedElsewhere { number: n(number), reason: "count/0: disk full".to_owned() };
    let end = [Action::NotifyAborted(n(1)), answer(1, Err("chk-1 was given up: count/0: disk full"))];
    assert_eq!(m.step(elsewhere(1)), end);
    assert_eq!(m.failures(), 1);
    assert_eq!(m.step(elsewhere(1)), []);
    // The outcome of what is about to be published says more than this.
    begun(&mut m, 2, CHECKPOINT);
    ack_all(&mut m, 2);
    assert_eq!(m.step(elsewhere(2)), []);
    m.step(done(2));
    // A task that cannot be told of a checkpoint will not acknowledge it.
    begun(&mut m, 3, CHECKPOINT);
    let gone = Input::TriggerFailed { number: n(3), reason: "a task is gone".to_owned() };
    assert_eq!(m.step(gone), [abort(3, "a task is gone")]);
}

#[test]
fn row11_a_task_that_dies_takes_what_is_open_with_it() {
    let mut m = coordinator(CoordinatorSettings { max_concurrent: 2, tolerable_failures: 9, ..settings() });
    begun(&mut m, 1, CHECKPOINT);
    begun(&mut m, 2, CHECKPOINT);
    m.step(request(3, CHECKPOINT));
    ack_all(&mut m, 1);
    let failed = Input::TaskFailed { task: task("count", 1), reason: "killed".to_owned() };
    let words = "count/1 failed: killed";
    let end = [answer(3, Err(words)), abort(2, words), fails(words)];
    assert_eq!(m.step(failed.clone()), end, "what is about to be published may be");
    assert_eq!(m.step(failed), [], "several die together");
    assert_eq!(m.step(done(1)), [Action::NotifyComplete(n(1)), answer(1, Ok(1))]);
    // What was being opened meanwhile has nobody to acknowledge it.
    let mut m = coordinator(settings());
    m.step(request(1, CHECKPOINT));
    m.step(Input::TaskFailed { task: task("count", 1), reason: "killed".to_owned() });
    assert_eq!(m.step(opened(1)), [abort(1, "nobody wants it any more")]);
}

#[test]
fn row11_a_job_ends_when_all_its_tasks_have_finished() {
    let mut m = coordinator(periodic());
    let finished = |operator, subtask| Input::TaskFinished { task: task(operator, subtask) };
    m.step(Input::Tick(100));
    m.step(opened(1));
    m.step(acked(1, "source", 0));
    assert_eq!(m.step(finished("source", 0)), [], "its snapshot is there");
    assert_eq!(m.step(finished("count", 0)), [abort(1, "count/0 finished before its snapshot")]);
    m.step(Input::Aborted { number: n(1) });
    assert_eq!(m.step(Input::Tick(999)), [], "nothing is triggered that cannot complete");
    let refused = "the job takes no checkpoint now: some of its tasks have finished";
    assert_eq!(m.step(request(2, SAVEPOINT)), [answer(2, Err(refused))]);
    assert_eq!(m.step(finished("count", 1)), [Action::Stop]);
    assert_eq!(m.failures(), 0);
    // A savepoint that was to stop the job and is still waiting is answered.
    let mut m = coordinator(settings());
    m.step(request(1, CHECKPOINT));
    m.step(request(2, STOP));
    let words = "some of the job's tasks have finished";
    assert_eq!(m.step(finished("source", 0)), [answer(2, Err(words))]);
    let end = m.step(opened(1));
    assert_eq!(end, [abort(1, "source/0 finished before it began")]);
}
