//! What each kind of state does, seen by its user and in the database.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::error::Kind;
use crate::state::serializer::{
    BytesSerializer, IntSerializer, SerdeSerializer, StringSerializer, TimeWindow, TimeWindowSerializer, VoidNamespace,
};

fn s(text: &str) -> String {
    text.to_owned()
}

#[test]
fn row6_a_checkpoint_is_read_where_it_lies() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    let count = backend.value(Declaration::new("count", LongSerializer)).unwrap();
    backend.set_current_key(&5).unwrap();
    count.set(&(), &7).unwrap();
    let (chk, descriptor) = (bench.path("chk"), backend.descriptor());
    backend.checkpoint(&chk).unwrap();
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(&chk).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let open = |range| KeyedBackend::open_read_only(&chk, &descriptor, bench.config(LongSerializer, range, 128));
    // Two at once: nobody takes a lock.
    let both = [open((0, 127)).unwrap(), open((0, 127)).unwrap()];
    for read in &both {
        let count = read.value(Declaration::new("count", LongSerializer)).unwrap();
        assert_eq!(read.keys("count", &VoidNamespace, &()).unwrap(), [5]);
        read.set_current_key(&5).unwrap();
        assert_eq!(count.get(&()).unwrap(), Some(7));
        count.set(&(), &8).unwrap();
        assert!(read.clone().flush().is_err());
        assert!(read.value(Declaration::new("another", LongSerializer)).is_err());
    }
    drop(both);
    assert_eq!(names(), before);
    assert!(open((0, 63)).is_err(), "other key groups");
}

#[test]
fn row6_values_are_of_key_and_namespace_and_seen_at_once() {
    let bench = Bench::new();
    let backend = bench.create("db", StringSerializer);
    let count = backend.value(Declaration::with_namespace("count", TimeWindowSerializer, LongSerializer)).unwrap();
    let (early, late) = (TimeWindow { start: 0, end: 10 }, TimeWindow { start: 10, end: 20 });
    backend.set_current_key(&s("a")).unwrap();
    assert_eq!(count.get(&early).unwrap(), None);
    count.set(&early, &1).unwrap();
    count.set(&late, &2).unwrap();
    backend.set_current_key(&s("b")).unwrap();
    assert_eq!(count.get(&early).unwrap(), None);
    count.set(&early, &3).unwrap();
    let look = |backend: &KeyedBackend<StringSerializer>, count: &ValueState<_, LongSerializer>| {
        ["a", "b"].map(|key| {
            backend.set_current_key(&s(key)).unwrap();
            (count.get(&early).unwrap(), count.get(&late).unwrap())
        })
    };
    let expected = [(Some(1), Some(2)), (Some(3), None)];
    assert_eq!(look(&backend, &count), expected, "before it is flushed");
    backend.clone().flush().unwrap();
    assert_eq!(look(&backend, &count), expected, "after it is flushed");
    let again = bench.reopen(&backend, "chk", StringSerializer);
    let restored = again.value(Declaration::with_namespace("count", TimeWindowSerializer, LongSerializer)).unwrap();
    assert_eq!(look(&again, &restored), expected, "in the checkpoint");
    assert_eq!(again.uid(), backend.uid());
    backend.set_current_key(&s("a")).unwrap();
    count.clear(&early).unwrap();
    assert_eq!(look(&backend, &count), [(None, Some(2)), (Some(3), None)]);
    assert_eq!(backend.keys("count", &TimeWindowSerializer, &early).unwrap(), ["b"]);
    assert_eq!(backend.keys("count", &TimeWindowSerializer, &late).unwrap(), ["a"]);
}

#[test]
fn row6_lists_are_joined_by_commas() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    let list = backend.list(Declaration::new("l", IntSerializer)).unwrap();
    backend.set_current_key(&8).unwrap();
    assert_eq!(list.get(&()).unwrap(), [0; 0]);
    // One element is in the database, one in the way to it.
    list.add(&(), &1).unwrap();
    backend.clone().flush().unwrap();
    list.add(&(), &2).unwrap();
    assert_eq!(list.get(&()).unwrap(), [1, 2]);
    backend.clone().flush().unwrap();
    list.add_all(&(), &[3, 0x2c2c_2c2c]).unwrap();
    list.add_all(&(), &[]).unwrap();
    assert_eq!(list.get(&()).unwrap(), [1, 2, 3, 0x2c2c_2c2c]);
    let row = (s("0f000000000000000800"), s("000000012c000000022c000000032c2c2c2c2c"));
    assert_eq!(stored(&bench, &backend, "l"), [row]);
    let again = bench.reopen(&backend, "chk", LongSerializer);
    again.set_current_key(&8).unwrap();
    let restored = again.list(Declaration::new("l", IntSerializer)).unwrap();
    assert_eq!(restored.get(&()).unwrap(), [1, 2, 3, 0x2c2c_2c2c]);
    // What is added after it was emptied follows nothing.
    list.clear(&()).unwrap();
    list.add(&(), &5).unwrap();
    assert_eq!(list.get(&()).unwrap(), [5]);
    list.update(&(), &[6, 7]).unwrap();
    list.add(&(), &8).unwrap();
    backend.clone().flush().unwrap();
    assert_eq!(list.get(&()).unwrap(), [6, 7, 8]);
    list.update(&(), &[]).unwrap();
    assert_eq!(stored(&bench, &backend, "l"), []);
}

#[test]
fn row6_elements_without_bytes_are_refused() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    let list = backend.list(Declaration::new("l", SerdeSerializer::<()>::new("unit", 1))).unwrap();
    backend.set_current_key(&8).unwrap();
    let error = list.add(&(), &()).unwrap_err();
    assert_eq!(error.to_string(), "state \"l\": cannot write a list's element: it has no bytes");
    assert_eq!(list.get(&()).unwrap().len(), 0);
}

#[test]
fn row6_maps_have_a_row_for_each_key() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    let map = backend.map(Declaration::new("m", LongSerializer), StringSerializer).unwrap();
    backend.set_current_key(&84).unwrap();
    map.put(&(), &s("k0"), &7).unwrap();
    backend.clone().flush().unwrap();
    map.put(&(), &s("k1"), &8).unwrap();
    assert_eq!(map.entries(&()).unwrap(), [(s("k0"), 7), (s("k1"), 8)]);
    backend.set_current_key(&85).unwrap();
    assert_eq!(map.entries(&()).unwrap(), []);
    map.put(&(), &s("k0"), &1).unwrap();
    backend.set_current_key(&84).unwrap();
    map.remove(&(), &s("k1")).unwrap();
    assert_eq!((map.get(&(), &s("k0")).unwrap(), map.get(&(), &s("k1")).unwrap()), (Some(7), None));
    // As a database of Flink has it.
    let rows = stored(&bench, &backend, "m");
    assert!(rows.contains(&(s("40000000000000005400036b30"), s("000000000000000007"))), "{rows:?}");
    let mut keys = backend.keys("m", &crate::state::serializer::VoidNamespace, &()).unwrap();
    keys.sort_unstable();
    assert_eq!(keys, [84, 85]);
    map.clear(&()).unwrap();
    assert_eq!(map.entries(&()).unwrap(), []);
    backend.set_current_key(&85).unwrap();
    assert_eq!(map.entries(&()).unwrap(), [(s("k0"), 1)]);
}

/// Counts and sums.
struct Mean;

impl Aggregate for Mean {
    type Input = i64;
    type Accumulator = (i64, i64);
    type Output = i64;

    fn create(&self) -> (i64, i64) {
        (0, 0)
    }

    fn add(&self, accumulator: &mut (i64, i64), input: &i64) {
        *accumulator = (accumulator.0 + 1, accumulator.1 + input);
    }

    fn result(&self, accumulator: &(i64, i64)) -> i64 {
        accumulator.1 / accumulator.0
    }
}

#[test]
fn row6_reducing_and_aggregating_states_fold() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    let sum = backend.reducing(Declaration::new("sum", LongSerializer), |a, b| a + b).unwrap();
    let pair = crate::state::serializer::Tuple2(LongSerializer, LongSerializer);
    let mean = backend.aggregating(Declaration::new("mean", pair), Mean).unwrap();
    backend.set_current_key(&1).unwrap();
    assert_eq!((sum.get(&()).unwrap(), mean.get(&()).unwrap()), (None, None));
    for n in [3, 4, 8] {
        sum.add(&(), &n).unwrap();
        mean.add(&(), &n).unwrap();
        backend.clone().flush().unwrap();
    }
    assert_eq!((sum.get(&()).unwrap(), mean.get(&()).unwrap()), (Some(15), Some(5)));
    sum.clear(&()).unwrap();
    mean.clear(&()).unwrap();
    assert_eq!((sum.get(&()).unwrap(), mean.get(&()).unwrap()), (None, None));
}

#[test]
fn row6_a_changed_type_is_refused_with_both() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    backend.value(Declaration::new("count", LongSerializer)).unwrap();
    let again = bench.reopen(&backend, "chk", LongSerializer);
    for backend in [&backend, &again] {
        let error = backend.value(Declaration::new("count", StringSerializer)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "state \"count\" was stored as value state of long and is now declared as value state of string: value: long is another \
             type than string; declare it as it was, or give it another name"
        );
        assert_eq!(error.kind(), Kind::Invalid);
        let error = backend.list(Declaration::new("count", LongSerializer)).unwrap_err().to_string();
        assert!(error.contains("value state is not list state"), "{error}");
        let windows = Declaration::with_namespace("count", TimeWindowSerializer, LongSerializer);
        let error = backend.value(windows).unwrap_err().to_string();
        assert!(error.contains("namespace: void is another type than window"), "{error}");
        let error = backend.value(Declaration::new("count", LongSerializer).version(2)).unwrap_err().to_string();
        assert!(error.contains("its version was 1 and is 2"), "{error}");
        let error =
            backend.value(Declaration::new("count", LongSerializer).ttl(Ttl::after_write(5))).unwrap_err().to_string();
        assert!(error.contains("time to live"), "{error}");
        backend.value(Declaration::new("count", LongSerializer)).unwrap();
    }
    let map = |backend: &KeyedBackend<LongSerializer>, bytes| {
        let declared = Declaration::new("m", LongSerializer);
        if bytes {
            backend.map(declared, BytesSerializer).map(drop)
        } else {
            backend.map(declared, LongSerializer).map(drop)
        }
    };
    map(&backend, false).unwrap();
    assert!(map(&backend, true).unwrap_err().to_string().contains("key of the map: long is another type than bytes"));
}

#[test]
fn row6_states_that_are_not_declared_again_are_carried_on() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    let old = backend.value(Declaration::new("old", LongSerializer)).unwrap();
    backend.set_current_key(&1).unwrap();
    old.set(&(), &7).unwrap();
    let second = bench.reopen(&backend, "chk-1", LongSerializer);
    second.value(Declaration::new("new", LongSerializer)).unwrap();
    assert_eq!(second.descriptor().states.iter().map(|state| state.name.as_str()).collect::<Vec<_>>(), ["new", "old"]);
    let third = bench.reopen(&second, "chk-2", LongSerializer);
    third.set_current_key(&1).unwrap();
    assert_eq!(third.value(Declaration::new("old", LongSerializer)).unwrap().get(&()).unwrap(), Some(7));
}

#[test]
fn row6_a_backend_opens_as_it_was_made_or_not_at_all() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    backend.value(Declaration::new("count", LongSerializer)).unwrap();
    let chk = bench.path("chk");
    backend.checkpoint(&chk).unwrap();
    let descriptor = backend.descriptor();
    let words = |e: StateError| {
        assert_eq!(e.kind(), Kind::Invalid);
        e.to_string().split_once(": ").unwrap().1.to_owned()
    };
    let error = KeyedBackend::open(&chk, &descriptor, bench.config(IntSerializer, (0, 127), 128)).unwrap_err();
    assert_eq!(words(error), "keys cannot change their type: long is another type than int");
    let error = KeyedBackend::open(&chk, &descriptor, bench.config(LongSerializer, (0, 127), 256)).unwrap_err();
    assert_eq!(words(error), "its largest parallelism is 128 for its whole life, and 256 is asked for");
    let error = KeyedBackend::open(&chk, &descriptor, bench.config(LongSerializer, (0, 63), 128)).unwrap_err();
    assert_eq!(words(error), "it has the key groups [0, 127], and [0, 63] are asked for: rescale it first");
    let mut more = descriptor.clone();
    more.states.push(StateDescriptor { name: s("lost"), ..more.states[0].clone() });
    let error = KeyedBackend::open(&chk, &more, bench.config(LongSerializer, (0, 127), 128)).unwrap_err();
    assert_eq!(words(error), "it has no column family \"lost\", though its descriptor names it");
    let nowhere = KeyedBackend::open(&bench.path("no"), &descriptor, bench.config(LongSerializer, (0, 127), 128));
    assert_eq!(nowhere.unwrap_err().kind(), Kind::NotFound);
    let there = KeyedBackend::create(&chk, bench.config(LongSerializer, (0, 127), 128)).unwrap_err();
    assert_eq!(there.kind(), Kind::Conflict);
    for (range, max) in [((0, 128), 128), ((3, 2), 128), ((0, 0), 0), ((0, 0), 32_769)] {
        let config = bench.config(LongSerializer, range, max);
        assert_eq!(
            KeyedBackend::create(&bench.path("bad"), config).unwrap_err().kind(),
            Kind::Invalid,
            "{range:?} {max}"
        );
    }
    // A family that no descriptor names would give its rows to whoever declares it.
    let mut less = descriptor;
    less.states.clear();
    let opened = KeyedBackend::open(&chk, &less, bench.config(LongSerializer, (0, 127), 128)).unwrap();
    let error = opened.value(Declaration::new("count", LongSerializer)).unwrap_err();
    assert_eq!(words(error), "it has a column family \"count\" that its descriptor does not name");
}

#[test]
fn row6_names_that_cannot_be_are_refused() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    for name in ["", "default", "_timer_state/event_x", &"x".repeat(crate::limits::ROCKS_NAME_LEN + 1)] {
        assert_eq!(backend.value(Declaration::new(name, LongSerializer)).unwrap_err().kind(), Kind::Invalid, "{name}");
    }
    assert!(backend.is_empty());
    backend.value(Declaration::new("ümläut/.. name", LongSerializer)).unwrap();
    assert!(!backend.is_empty());
}

#[test]
fn row6_keys_of_other_subtasks_and_no_key_are_refused() {
    let bench = Bench::new();
    let backend = KeyedBackend::create(&bench.path("db"), bench.config(LongSerializer, (0, 63), 128)).unwrap();
    let count = backend.value(Declaration::new("count", LongSerializer)).unwrap();
    let error = count.get(&()).unwrap_err();
    assert_eq!(error.to_string(), "state \"count\" has no current key: set_current_key comes first");
    backend.set_current_key(&4).unwrap();
    count.set(&(), &1).unwrap();
    // Group 81.
    let error = backend.set_current_key(&1_000_002).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the key belongs to key group 81, and this backend has [0, 63]: it was sent to the wrong subtask"
    );
    assert!(matches!(count.get(&()), Err(StateError::NoKey { .. })), "no other key's value is given instead");
}

#[test]
fn row6_a_closed_backend_refuses_everything() {
    let bench = Bench::new();
    let mut backend = bench.create("db", LongSerializer);
    let count = backend.value(Declaration::new("count", LongSerializer)).unwrap();
    backend.set_current_key(&1).unwrap();
    count.set(&(), &1).unwrap();
    backend.close();
    backend.close();
    assert!(matches!(count.get(&()), Err(StateError::Closed)));
    assert!(matches!(count.set(&(), &2), Err(StateError::Closed)));
    assert!(matches!(backend.flush(), Err(StateError::Closed)));
    assert!(matches!(backend.checkpoint(&bench.path("chk")), Err(StateError::Closed)));
    assert!(!bench.path("chk").exists());
    assert!(matches!(backend.list(Declaration::new("l", LongSerializer)), Err(StateError::Closed)));
}

#[test]
fn row6_writes_are_flushed_by_themselves_before_they_are_many() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    let value = backend.value(Declaration::new("v", BytesSerializer)).unwrap();
    for key in 0..100 {
        backend.set_current_key(&key).unwrap();
        value.set(&(), &vec![7; 32 << 10]).unwrap();
    }
    // No more than half a MiB of 3 MiB is kept back.
    let kept = backend.pending();
    assert!(kept < 512 << 10, "{kept}");
    for key in 0..100 {
        backend.set_current_key(&key).unwrap();
        assert_eq!(value.get(&()).unwrap().unwrap().len(), 32 << 10);
    }
}

/// List, value and map of a key.
type Model = (Vec<i32>, Option<i32>, BTreeMap<i64, i32>);

/// What a user may do with a list, a value and a map of a few keys.
#[derive(Debug, Clone)]
enum Step {
    Key(i64),
    Flush,
    Add(i32),
    Update(Vec<i32>),
    Set(Option<i32>),
    Put(i64, Option<i32>),
    ClearMap,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0i64..3).prop_map(Step::Key),
        Just(Step::Flush),
        any::<i32>().prop_map(Step::Add),
        prop::collection::vec(any::<i32>(), 0..3).prop_map(Step::Update),
        prop::option::of(any::<i32>()).prop_map(Step::Set),
        (0i64..4, prop::option::of(any::<i32>())).prop_map(|(k, v)| Step::Put(k, v)),
        Just(Step::ClearMap),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn row6_whatever_is_flushed_when_states_are_what_was_written(steps in prop::collection::vec(step(), 1..60)) {
        let bench = Bench::new();
        let backend = bench.create("db", LongSerializer);
        let declare = |backend: &KeyedBackend<LongSerializer>| (
            backend.list(Declaration::new("l", IntSerializer)).unwrap(),
            backend.value(Declaration::new("v", IntSerializer)).unwrap(),
            backend.map(Declaration::new("m", IntSerializer), LongSerializer).unwrap(),
        );
        let (list, value, map) = declare(&backend);
        let mut model: BTreeMap<i64, Model> = BTreeMap::new();
        let mut key = 0;
        for step in steps {
            backend.set_current_key(&key).unwrap();
            let of_key = model.entry(key).or_default();
            match step {
                Step::Key(next) => key = next,
                Step::Flush => backend.clone().flush().unwrap(),
                Step::Add(n) => { list.add(&(), &n).unwrap(); of_key.0.push(n); }
                Step::Update(all) => { list.update(&(), &all).unwrap(); of_key.0 = all; }
                Step::Set(Some(n)) => { value.set(&(), &n).unwrap(); of_key.1 = Some(n); }
                Step::Set(None) => { value.clear(&()).unwrap(); of_key.1 = None; }
                Step::Put(k, Some(n)) => { map.put(&(), &k, &n).unwrap(); of_key.2.insert(k, n); }
                Step::Put(k, None) => { map.remove(&(), &k).unwrap(); of_key.2.remove(&k); }
                Step::ClearMap => { map.clear(&()).unwrap(); of_key.2.clear(); }
            }
        }
        let again = bench.reopen(&backend, "chk", LongSerializer);
        for backend in [&backend, &again] {
            let (list, value, map) = declare(backend);
            for (key, expected) in &model {
                backend.set_current_key(key).unwrap();
                prop_assert_eq!(&list.get(&()).unwrap(), &expected.0);
                prop_assert_eq!(value.get(&()).unwrap(), expected.1);
                prop_assert_eq!(map.entries(&()).unwrap().into_iter().collect::<BTreeMap<_, _>>(), expected.2.clone());
            }
        }
    }
}
