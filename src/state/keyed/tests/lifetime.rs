//! Time to live, by a clock that the test sets.

use super::*;
use crate::state::serializer::{IntSerializer, StringSerializer};

#[test]
fn row6_values_are_gone_when_they_are_over_their_time() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    let value = backend.value(Declaration::new("v", IntSerializer).ttl(Ttl::after_write(100))).unwrap();
    backend.set_current_key(&8).unwrap();
    value.set(&(), &7).unwrap();
    // The time in front, 8 bytes.
    assert_eq!(
        stored(&bench, &backend, "v"),
        [("0f000000000000000800".to_owned(), "00000000000003e800000007".to_owned())]
    );
    bench.set_time(1099);
    assert_eq!(value.get(&()).unwrap(), Some(7));
    bench.set_time(1100);
    assert_eq!(value.get(&()).unwrap(), None);
    assert_eq!(stored(&bench, &backend, "v"), [], "it was removed by whoever found it");
}

#[test]
fn row6_reading_is_a_use_where_the_state_says_so() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    let value = backend.value(Declaration::new("v", IntSerializer).ttl(Ttl::after_use(100))).unwrap();
    backend.set_current_key(&8).unwrap();
    value.set(&(), &7).unwrap();
    for now in [1090, 1180, 1270] {
        bench.set_time(now);
        assert_eq!(value.get(&()).unwrap(), Some(7), "{now}");
    }
    bench.set_time(1370);
    assert_eq!(value.get(&()).unwrap(), None);
}

#[test]
fn row6_each_element_and_each_key_of_a_map_has_its_own_time() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    let list = backend.list(Declaration::new("l", IntSerializer).ttl(Ttl::after_write(100))).unwrap();
    let map = backend.map(Declaration::new("m", IntSerializer).ttl(Ttl::after_write(100)), StringSerializer).unwrap();
    backend.set_current_key(&8).unwrap();
    for (now, n) in [(1000, 1), (1050, 2)] {
        bench.set_time(now);
        list.add(&(), &n).unwrap();
        map.put(&(), &format!("k{n}"), &n).unwrap();
    }
    assert_eq!(list.get(&()).unwrap(), [1, 2]);
    assert_eq!(map.entries(&()).unwrap().len(), 2);
    bench.set_time(1100);
    assert_eq!(list.get(&()).unwrap(), [2]);
    assert_eq!(map.entries(&()).unwrap(), [("k2".to_owned(), 2)]);
    let row = "0f000000000000000800".to_owned();
    assert_eq!(stored(&bench, &backend, "l"), [(row.clone(), "000000000000041a00000002".to_owned())]);
    // In a map the time stands behind the byte that says that it is not null.
    assert_eq!(stored(&bench, &backend, "m"), [(format!("{row}036b32"), "00000000000000041a00000002".to_owned())]);
    bench.set_time(1150);
    assert_eq!(list.get(&()).unwrap(), [0; 0]);
    assert_eq!(map.get(&(), &"k2".to_owned()).unwrap(), None);
    assert_eq!((stored(&bench, &backend, "l"), stored(&bench, &backend, "m")), (vec![], vec![]));
}

#[test]
fn row6_uses_of_lists_and_maps_are_written_down() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    let list = backend.list(Declaration::new("l", IntSerializer).ttl(Ttl::after_use(100))).unwrap();
    let map = backend.map(Declaration::new("m", IntSerializer).ttl(Ttl::after_use(100)), StringSerializer).unwrap();
    backend.set_current_key(&8).unwrap();
    list.add_all(&(), &[1, 2]).unwrap();
    map.put(&(), &"k".to_owned(), &3).unwrap();
    for now in [1090, 1180] {
        bench.set_time(now);
        assert_eq!(list.get(&()).unwrap(), [1, 2], "{now}");
        assert_eq!(map.entries(&()).unwrap(), [("k".to_owned(), 3)], "{now}");
    }
}

#[test]
fn row6_compactions_drop_what_is_over_its_time_and_nothing_else() {
    let bench = Bench::new();
    let backend = bench.create("db", LongSerializer);
    let declare = |backend: &KeyedBackend<LongSerializer>, ms| {
        let ttl = Ttl::after_write(ms);
        let value = backend.value(Declaration::new("v", IntSerializer).ttl(ttl)).unwrap();
        let map = backend.map(Declaration::new("m", IntSerializer).ttl(ttl), StringSerializer).unwrap();
        (value, map)
    };
    let (value, map) = declare(&backend, 100);
    for (now, key) in [(1000, 4), (1050, 8)] {
        bench.set_time(now);
        backend.set_current_key(&key).unwrap();
        value.set(&(), &1).unwrap();
        map.put(&(), &"k".to_owned(), &1).unwrap();
    }
    let again = bench.reopen(&backend, "chk", LongSerializer);
    bench.set_time(1120);
    for backend in [&backend, &again] {
        backend.clone().flush().unwrap();
        assert_eq!((stored(&bench, backend, "v").len(), stored(&bench, backend, "m").len()), (2, 2));
        backend.compact();
        let left = [stored(&bench, backend, "v"), stored(&bench, backend, "m")]
            .map(|rows| rows.into_iter().map(|(row, _)| row.starts_with("0f")).collect::<Vec<_>>());
        assert_eq!(left, [[true], [true]]);
    }
    // A longer life that is declared later is the one that counts.
    declare(&again, 1000);
    bench.set_time(1500);
    again.compact();
    assert_eq!(stored(&bench, &again, "v").len(), 1);
}
