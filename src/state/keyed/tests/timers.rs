//! Timers: in order, each once, through checkpoints.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::state::serializer::{IntSerializer, StringSerializer, VoidNamespace};

fn times<K, N>(timers: Vec<Timer<K, N>>) -> Vec<(i64, K)> {
    timers.into_iter().map(|timer| (timer.timestamp, timer.key)).collect()
}

#[test]
fn row6_timers_fire_in_order_each_once() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    let timers = backend.timers(TimeDomain::Event, "t", VoidNamespace).unwrap();
    assert_eq!(timers.earliest().unwrap(), None);
    for (key, time) in [(4, 30), (6, 10), (8, -5), (4, 20), (6, 10), (9, 31)] {
        backend.set_current_key(&key).unwrap();
        timers.register(&(), time).unwrap();
    }
    assert_eq!(timers.earliest().unwrap(), Some(-5));
    assert_eq!(times(timers.pop_until(-6).unwrap()), []);
    assert_eq!(times(timers.pop_until(30).unwrap()), [(-5, 8), (10, 6), (20, 4), (30, 4)]);
    assert_eq!(times(timers.pop_until(30).unwrap()), []);
    assert_eq!(timers.earliest().unwrap(), Some(31));
    // One that is set late fires all the same, and one that is removed does not.
    backend.set_current_key(&4).unwrap();
    timers.register(&(), 1).unwrap();
    backend.set_current_key(&9).unwrap();
    timers.delete(&(), 31).unwrap();
    timers.register(&(), i64::MAX).unwrap();
    assert_eq!(timers.earliest().unwrap(), Some(1));
    assert_eq!(times(timers.pop_until(i64::MAX - 1).unwrap()), [(1, 4)]);
    assert_eq!(timers.earliest().unwrap(), Some(i64::MAX));
    assert_eq!(times(timers.pop_until(i64::MAX).unwrap()), [(i64::MAX, 9)]);
    assert_eq!(timers.earliest().unwrap(), None);
}

#[test]
fn row6_timers_of_both_clocks_have_families_of_their_own() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    let event = backend.timers(TimeDomain::Event, "user-timers", VoidNamespace).unwrap();
    let processing = backend.timers(TimeDomain::Processing, "user-timers", VoidNamespace).unwrap();
    backend.set_current_key(&3_000_013).unwrap();
    processing.register(&(), 0x1a2_29b2_6d65).unwrap();
    assert_eq!(event.pop_until(i64::MAX).unwrap(), []);
    // As a database of Flink has it.
    let row = ("00800001a229b26d6500000000002dc6cd00".to_owned(), String::new());
    assert_eq!(stored(&bench, &backend, "_timer_state/processing_user-timers"), [row]);
    assert_eq!(stored(&bench, &backend, "_timer_state/event_user-timers"), []);
    let families: Vec<String> = backend.descriptor().states.iter().map(StateDescriptor::family).collect();
    assert_eq!(families, ["_timer_state/event_user-timers", "_timer_state/processing_user-timers"]);

    let again = bench.reopen(&backend, "chk", LongSerializer);
    let restored = again.timers(TimeDomain::Processing, "user-timers", VoidNamespace).unwrap();
    assert_eq!(times(restored.pop_until(i64::MAX).unwrap()), [(0x1a2_29b2_6d65, 3_000_013)]);
    let error = again.timers(TimeDomain::Event, "user-timers", IntSerializer).unwrap_err().to_string();
    assert!(error.contains("namespace: void is another type than int"), "{error}");
}

#[test]
fn row6_timers_of_other_key_groups_are_not_fired() {
    // What a database still has of groups that went elsewhere.
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    let timers = backend.timers(TimeDomain::Event, "t", VoidNamespace).unwrap();
    // Group 7 and group 81.
    for key in [4, 1_000_002] {
        backend.set_current_key(&key).unwrap();
        timers.register(&(), 1).unwrap();
    }
    backend.checkpoint(&bench.path("chk")).unwrap();
    let descriptor = KeyedDescriptor { range: KeyGroupRange { first: 64, last: 127 }, ..backend.descriptor() };
    let half =
        KeyedBackend::open(&bench.path("chk"), &descriptor, bench.config(LongSerializer, (64, 127), 128)).unwrap();
    let timers = half.timers(TimeDomain::Event, "t", VoidNamespace).unwrap();
    assert_eq!(timers.earliest().unwrap(), Some(1));
    assert_eq!(times(timers.pop_until(5).unwrap()), [(1, 1_000_002)]);
}

/// What may happen to timers.
#[derive(Debug, Clone)]
enum Step {
    Register(i64, String, i32),
    Delete(i64, String, i32),
    Pop(i64),
    Flush,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let timer = || (-20i64..20, "[a-d]", 0i32..2);
    prop_oneof![
        4 => timer().prop_map(|(t, k, n)| Step::Register(t, k, n)),
        2 => timer().prop_map(|(t, k, n)| Step::Delete(t, k, n)),
        2 => (-25i64..25).prop_map(Step::Pop),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn row6_timers_are_a_set_in_order_of_time(steps in prop::collection::vec(step(), 1..50)) {
        let bench = Bench::new();
        let mut backend = bench.create("db", StringSerializer);
        let declare = |backend: &KeyedBackend<_>| backend.timers(TimeDomain::Event, "t", IntSerializer).unwrap();
        let mut timers = declare(&backend);
        let mut model: BTreeSet<(i64, String, i32)> = BTreeSet::new();
        for (i, step) in steps.into_iter().enumerate() {
            match step {
                Step::Register(time, key, ns) => {
                    backend.set_current_key(&key).unwrap();
                    timers.register(&ns, time).unwrap();
                    model.insert((time, key, ns));
                }
                Step::Delete(time, key, ns) => {
                    backend.set_current_key(&key).unwrap();
                    timers.delete(&ns, time).unwrap();
                    model.remove(&(time, key, ns));
                }
                Step::Pop(time) => {
                    let popped = timers.pop_until(time).unwrap();
                    prop_assert!(popped.is_sorted_by_key(|timer| timer.timestamp));
                    let mut popped: Vec<_> = popped.into_iter().map(|t| (t.timestamp, t.key, t.namespace)).collect();
                    popped.sort();
                    let later = model.split_off(&(time + 1, String::new(), 0));
                    let expected: Vec<_> = std::mem::replace(&mut model, later).into_iter().collect();
                    prop_assert_eq!(popped, expected);
                }
                Step::Flush => backend.clone().flush().unwrap(),
                Step::Reopen => {
                    backend = bench.reopen(&backend, &format!("chk-{i}"), StringSerializer);
                    timers = declare(&backend);
                }
            }
            prop_assert_eq!(timers.earliest().unwrap(), model.first().map(|(time, ..)| *time));
        }
    }
}
