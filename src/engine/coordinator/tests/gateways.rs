//! The two ends of both gateways, word by word.

use std::time::Duration;

use super::super::gateway::{Gateway, TaskSide};
use super::super::local::LocalGateway;
use super::super::message::{AckReport, Notice, Order, TaskEvent, Trigger, TriggerKind};
use super::super::reign::{Reign, RestoreFrom};
use super::super::retained::{Held, Which};
use super::super::stored::{StoredGateway, StoredTask};
use super::{RIVAL, WRITER, ack_all, begin, completed, job, n, plan, reason, store_ack, task, tasks};
use crate::error::Kind;
use crate::store::Store;
use crate::store::memory::Memory;
use crate::types::{CheckpointNumber, Epoch, Key, Name, Uid};

const NOW: Duration = Duration::ZERO;
const CHECKPOINT: TriggerKind = TriggerKind::Checkpoint;

fn event(number: u64, operator: &str, subtask: u32) -> TaskEvent {
    let report = AckReport { logical_bytes: 3, new_bytes: 3, sync_ms: 7, ..AckReport::default() };
    TaskEvent::Acked { number: n(number), operator: Name::encode(operator), subtask, report }
}

fn complete(number: u64) -> Order {
    Order::Notice(Notice::Complete(n(number)))
}

fn aborted(number: u64) -> Order {
    Order::Notice(Notice::Aborted(n(number)))
}

fn subsumed(number: u64) -> Order {
    Order::Notice(Notice::Subsumed(n(number)))
}

#[test]
fn row13_words_pass_between_threads() {
    let (gateway, mut sides) = LocalGateway::new(2);
    let trigger = Trigger { number: n(1), uid: Uid::from_bytes([7; 16]), timestamp_ms: 5, kind: CHECKPOINT };
    gateway.trigger(&trigger).unwrap();
    gateway.notify(&Notice::Complete(n(1))).unwrap();
    for side in &mut sides {
        assert_eq!(side.poll().unwrap(), [Order::Trigger(trigger), complete(1)]);
        assert_eq!(side.poll().unwrap(), []);
    }
    let (reporter, name) = (sides[0].reporter(), Name::encode("count"));
    assert_eq!(gateway.poll(NOW).unwrap(), []);
    let report = AckReport { logical_bytes: 3, new_bytes: 3, sync_ms: 7, ..AckReport::default() };
    reporter.acked(n(1), &name, 1, &report).unwrap();
    reporter.declined(n(2), &name, 1, "disk full").unwrap();
    reporter.failed(&name, 0, "killed").unwrap();
    reporter.finished(&name, 1).unwrap();
    let (operator, text) = (|| name.clone(), str::to_owned);
    let said = [
        event(1, "count", 1),
        TaskEvent::Declined { number: n(2), operator: operator(), subtask: 1, reason: text("disk full") },
        TaskEvent::Failed { operator: operator(), subtask: 0, reason: text("killed") },
        TaskEvent::Finished { operator: operator(), subtask: 1 },
    ];
    assert_eq!(gateway.poll(NOW).unwrap(), said);
    // A task that is gone: the checkpoint cannot complete. Notices reach the others.
    let mut left = sides.pop().unwrap();
    drop(sides);
    assert_eq!(gateway.trigger(&trigger).unwrap_err().kind(), Kind::NotFound);
    gateway.stop().unwrap();
    assert_eq!(left.poll().unwrap(), [Order::Trigger(trigger), Order::Stop]);
    // The coordinator is gone: nobody goes on without one.
    drop(gateway);
    assert_eq!(left.poll().unwrap(), [Order::Stop]);
    assert_eq!(left.reporter().acked(n(1), &name, 1, &report).unwrap_err().kind(), Kind::NotFound);
}

/// A reign with its gateway and the tasks' ends, which know nothing but the store.
struct Hosts {
    store: Store,
    reign: Reign,
    gateway: StoredGateway,
    sides: Vec<StoredTask>,
}

fn side(store: &Store, epoch: u64) -> StoredTask {
    StoredTask::new(store.clone(), job(), Epoch(epoch), tasks().into_iter().collect(), NOW)
}

fn hosts() -> Hosts {
    let store = Memory::store();
    let reign = begin(&store, WRITER);
    let gateway = StoredGateway::new(&reign, NOW);
    let sides = vec![side(&store, 1), side(&store, 1)];
    Hosts { store, reign, gateway, sides }
}

impl Hosts {
    fn open(&self, kind: TriggerKind) -> Trigger {
        let opened = self.reign.open(kind).unwrap();
        let (number, intent) = (opened.number, opened.intent);
        let trigger = Trigger { number, uid: intent.place.uid, timestamp_ms: intent.opened_ms, kind };
        self.gateway.trigger(&trigger).unwrap();
        trigger
    }

    fn taken(&self, kind: TriggerKind) -> CheckpointNumber {
        let number = self.open(kind).number;
        ack_all(&self.store, number);
        self.reign.complete(number).unwrap();
        number
    }

    fn orders(&mut self) -> Vec<Order> {
        let heard: Vec<Vec<Order>> = self.sides.iter_mut().map(|side| side.poll().unwrap()).collect();
        assert!(heard.windows(2).all(|w| w[0] == w[1]), "{heard:?}");
        heard.into_iter().next().unwrap()
    }
}

#[test]
fn row13_the_store_alone_carries_triggers_acks_and_notices() {
    let mut hosts = hosts();
    assert_eq!(hosts.orders(), []);
    // The first one of a job has no base: it is a full one.
    let first = hosts.open(TriggerKind::Full);
    assert_eq!(hosts.orders(), [Order::Trigger(first)]);
    assert_eq!(hosts.orders(), [], "once");
    assert_eq!(hosts.gateway.poll(NOW).unwrap(), []);
    store_ack(&hosts.store, &task("count", 1), n(1), b"abc").unwrap();
    assert_eq!(hosts.gateway.poll(Duration::from_secs(9)).unwrap(), [event(1, "count", 1)]);
    store_ack(&hosts.store, &task("source", 0), n(1), b"abc").unwrap();
    store_ack(&hosts.store, &task("count", 0), n(1), b"abc").unwrap();
    assert_eq!(hosts.gateway.poll(NOW).unwrap(), [event(1, "count", 0), event(1, "source", 0)]);
    assert_eq!(hosts.gateway.poll(NOW).unwrap(), [], "once");
    assert_eq!(hosts.orders(), []);
    hosts.reign.complete(n(1)).unwrap();
    assert_eq!(hosts.orders(), [complete(1)]);
    // Several at once, of all kinds.
    let two = hosts.open(CHECKPOINT);
    let three = hosts.open(TriggerKind::Savepoint { stop: true });
    let four = hosts.open(TriggerKind::Savepoint { stop: false });
    assert_eq!(hosts.orders(), [two, three, four].map(Order::Trigger));
    ack_all(&hosts.store, n(3));
    hosts.reign.complete(n(3)).unwrap();
    ack_all(&hosts.store, n(2));
    hosts.reign.complete(n(2)).unwrap();
    hosts.reign.abort(n(4), "enough").unwrap();
    assert_eq!(hosts.orders(), [complete(2), complete(3), aborted(4)]);
    hosts.reign.expire(&Held { which: Which::Own(n(1)), kind: CHECKPOINT }).unwrap();
    assert_eq!(hosts.orders(), [subsumed(1)]);
    assert_eq!(hosts.orders(), []);
}

#[test]
fn row13_a_task_on_another_host_declines_by_giving_up() {
    let mut hosts = hosts();
    hosts.open(CHECKPOINT);
    hosts.orders();
    let reporter = hosts.sides[0].reporter();
    reporter.declined(n(1), &Name::encode("count"), 1, "disk full").unwrap();
    let words = "count/1: disk full";
    assert_eq!(reason(&hosts.store, n(1)), words);
    let event = TaskEvent::Aborted { number: n(1), reason: words.to_owned() };
    assert_eq!(hosts.gateway.poll(NOW).unwrap(), [event]);
    assert_eq!(hosts.gateway.poll(NOW).unwrap(), []);
    assert_eq!(hosts.orders(), [aborted(1)]);
    // Too late, whatever it came to.
    reporter.declined(n(1), &Name::encode("count"), 0, "x").unwrap();
    let two = hosts.taken(CHECKPOINT);
    reporter.declined(two, &Name::encode("count"), 0, "x").unwrap();
    assert_eq!(completed(&hosts.store, two), Some(true));
    // One that dies with a word gives up what waits for it, and nothing else.
    let (three, four) = (hosts.open(CHECKPOINT).number, hosts.open(CHECKPOINT).number);
    store_ack(&hosts.store, &task("count", 0), three, b"abc").unwrap();
    reporter.failed(&Name::encode("count"), 0, "killed").unwrap();
    assert_eq!((completed(&hosts.store, three), completed(&hosts.store, four)), (None, Some(false)));
    assert_eq!(reason(&hosts.store, four), "count/0: it failed: killed");
}

#[test]
fn row13_an_ack_that_cannot_be_believed_is_none() {
    let hosts = hosts();
    let number = hosts.open(CHECKPOINT).number;
    let (operator, subtask) = task("count", 0);
    let key = Key::task(&job(), number, &operator, subtask);
    hosts.store.create(&key, "nonsense".into()).unwrap();
    let events = hosts.gateway.poll(NOW).unwrap();
    let [TaskEvent::Declined { number: of, operator: who, subtask: 0, reason }] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((*of, who), (number, &operator));
    assert!(reason.starts_with("its ack cannot be believed: "), "{reason}");
}

#[test]
fn row13_a_task_works_for_its_own_reign_and_no_other() {
    let mut hosts = hosts();
    hosts.open(CHECKPOINT);
    hosts.orders();
    hosts.open(CHECKPOINT);
    let next = Reign::begin_in(hosts.store.clone(), RIVAL, plan(RestoreFrom::Latest)).unwrap();
    assert_eq!(next.aborted(), [n(1), n(2)]);
    // What became of its snapshots, then the end; no trigger of a fenced coordinator.
    assert_eq!(hosts.orders(), [aborted(1), Order::Stop]);
    assert_eq!(hosts.orders(), [], "said once");
    // One of the new reign takes no part in what is decided, nor in what is none of its own.
    let mut new = side(&hosts.store, 2);
    assert_eq!(new.poll().unwrap(), []);
    let three = next.open(CHECKPOINT).unwrap();
    let heard = new.poll().unwrap();
    let [Order::Trigger(trigger)] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!((trigger.number, trigger.uid), (n(3), three.intent.place.uid));
    // One that starts late still hears of what is open, and not of what it has no part in.
    assert_eq!(side(&hosts.store, 2).poll().unwrap(), heard);
    let stranger = vec![task("sink", 0)];
    let mut stranger = StoredTask::new(hosts.store.clone(), job(), Epoch(2), stranger, NOW);
    assert_eq!(stranger.poll().unwrap(), []);
}

#[test]
fn row13_the_end_of_a_reign_is_heard_and_fences_no_successor() {
    let mut hosts = hosts();
    let save = hosts.taken(TriggerKind::Savepoint { stop: true });
    hosts.orders();
    let last = hosts.open(CHECKPOINT);
    assert_eq!(hosts.orders(), [Order::Trigger(last)]);
    ack_all(&hosts.store, last.number);
    hosts.reign.complete(last.number).unwrap();
    let left_open = hosts.reign.open(CHECKPOINT).unwrap().number;
    hosts.gateway.stop().unwrap();
    // Nobody has given it up yet, and it is nothing for a task of a later reign.
    assert_eq!((completed(&hosts.store, left_open), side(&hosts.store, 2).poll().unwrap()), (None, vec![]));
    assert_eq!(hosts.orders(), [complete(last.number.get()), Order::Stop], "the notice is not lost in the end");
    assert_eq!(hosts.reign.look().unwrap_err().kind(), Kind::Fenced);
    let next = begin(&hosts.store, RIVAL);
    assert_eq!(next.epoch(), Epoch(3));
    hosts.gateway.stop().unwrap();
    next.look().unwrap();
    assert_eq!((save, last.number), (n(1), n(2)));
}

#[test]
fn row13_a_coordinator_looks_no_more_often_than_its_period() {
    let store = Memory::store();
    let reign = begin(&store, WRITER);
    let (rarely, often) = (StoredGateway::new(&reign, Duration::from_secs(3600)), StoredGateway::new(&reign, NOW));
    let opened = reign.open(CHECKPOINT).unwrap();
    let (number, uid) = (opened.number, opened.intent.place.uid);
    let asked = |gateway: &StoredGateway| {
        gateway.trigger(&Trigger { number, uid, timestamp_ms: 0, kind: CHECKPOINT }).unwrap();
        let before = store.counters().lists.get();
        (0..3).for_each(|_| assert_eq!(gateway.poll(NOW).unwrap(), []));
        store.counters().lists.get() - before
    };
    assert_eq!((asked(&rarely), asked(&often)), (1, 3));
}

#[test]
fn row13_a_task_looks_no_more_often_than_its_period() {
    let store = Memory::store();
    begin(&store, WRITER);
    let every = |period| StoredTask::new(store.clone(), job(), Epoch(1), vec![task("count", 0)], period);
    let (mut rarely, mut often) = (every(Duration::from_secs(3600)), every(NOW));
    let asked = |task: &mut StoredTask| {
        let before = store.counters().lists.get();
        task.poll().unwrap();
        store.counters().lists.get() - before
    };
    assert_eq!([asked(&mut rarely), asked(&mut rarely)], [3, 0]);
    assert_eq!([asked(&mut often), asked(&mut often)], [3, 3], "epochs, intents, outcomes");
}
