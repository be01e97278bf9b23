//! Row 5 of the engine: list, union and broadcast state.

use super::*;
use crate::error::Kind;
use crate::state::serializer::{LongSerializer, SerdeSerializer, StringSerializer};

/// Each subtask's snapshot as it would be read back from files.
fn stored(backend: &OperatorStateBackend) -> Vec<RestoredOperatorState> {
    let snapshot = backend.snapshot();
    let files = snapshot.files();
    let restored = |descriptor: OperatorStateDescriptor| {
        let of_state: Vec<_> = files.iter().filter(|(name, ..)| *name == descriptor.name).collect();
        assert_eq!(of_state.len(), descriptor.partitions as usize);
        assert!(of_state.iter().map(|(_, i, _)| *i).eq(0..descriptor.partitions));
        let partitions = of_state.into_iter().map(|(.., bytes)| bytes.clone()).collect();
        // As the task manifest has it.
        let text = serde_json::to_string(&descriptor).unwrap();
        RestoredOperatorState { descriptor: serde_json::from_str(&text).unwrap(), partitions }
    };
    snapshot.descriptors().into_iter().map(restored).collect()
}

/// Subtasks that hold these elements each.
fn subtasks(union: bool, elements: &[&[i64]]) -> Vec<Vec<RestoredOperatorState>> {
    let one = |elements: &&[i64]| {
        let backend = OperatorStateBackend::new();
        let list = if union { backend.union("l", LongSerializer) } else { backend.list("l", LongSerializer) }.unwrap();
        elements.iter().for_each(|e| list.add(e).unwrap());
        stored(&backend)
    };
    elements.iter().map(one).collect()
}

fn restored(old: &[Vec<RestoredOperatorState>], union: bool, parallelism: u32) -> Vec<Vec<i64>> {
    let one = |index| {
        let backend = OperatorStateBackend::restore(redistribute(old, parallelism, index).unwrap()).unwrap();
        let list = if union { backend.union("l", LongSerializer) } else { backend.list("l", LongSerializer) };
        list.unwrap().get().unwrap()
    };
    (0..parallelism).map(one).collect()
}

#[test]
fn row5_list_state_is_dealt_out_evenly_and_each_element_once() {
    let old = subtasks(false, &[&[1, 2, 3], &[], &[4, 5, 6, 7]]);
    assert_eq!(restored(&old, false, 2), [vec![1, 2, 3, 4], vec![5, 6, 7]]);
    assert_eq!(restored(&old, false, 5), [vec![1, 2], vec![3, 4], vec![5], vec![6], vec![7]]);
    assert_eq!(restored(&old, false, 1), [vec![1, 2, 3, 4, 5, 6, 7]]);
    assert_eq!(restored(&old, false, 8), [vec![1], vec![2], vec![3], vec![4], vec![5], vec![6], vec![7], vec![]]);
}

#[test]
fn row5_list_state_stays_where_it_is_at_the_same_parallelism() {
    let elements: [&[i64]; 3] = [&[1, 2, 3], &[], &[4, 5, 6, 7]];
    assert_eq!(restored(&subtasks(false, &elements), false, 3), elements);
}

#[test]
fn row5_the_longer_shares_go_on_from_state_to_state() {
    let backend = OperatorStateBackend::new();
    for name in ["a", "b", "c"] {
        backend.list(name, LongSerializer).unwrap().update(&[1, 2, 3, 4]).unwrap();
    }
    let old = [stored(&backend)];
    let lengths = |index| {
        let mine = redistribute(&old, 3, index).unwrap();
        mine.iter().map(|state| state.partitions.len()).collect::<Vec<_>>()
    };
    assert_eq!([lengths(0), lengths(1), lengths(2)], [[2, 1, 1], [1, 2, 1], [1, 1, 2]]);
    // All of them once, whatever the start.
    for (total, parallelism, start) in [(7, 3, 2), (0, 4, 1), (5, 5, 4), (2, 7, 6)] {
        let mut seen: Vec<usize> =
            (0..parallelism).flat_map(|i| share(total, parallelism, i, &mut start.clone())).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..total), "{total} to {parallelism} from {start}");
    }
}

#[test]
fn row5_union_state_goes_to_everyone() {
    let old = subtasks(true, &[&[1, 2], &[3]]);
    for parallelism in [1, 2, 3] {
        assert!(restored(&old, true, parallelism).iter().all(|list| *list == [1, 2, 3]), "{parallelism}");
    }
}

#[test]
fn row5_broadcast_state_is_one_copy_for_each() {
    let one = |limit: i64| {
        let backend = OperatorStateBackend::new();
        let rules = backend.broadcast("rules", StringSerializer, LongSerializer).unwrap();
        rules.put(&"limit".to_owned(), &limit).unwrap();
        rules.put(&"version".to_owned(), &7).unwrap();
        rules.put(&"gone".to_owned(), &7).unwrap();
        rules.remove(&"gone".to_owned()).unwrap();
        stored(&backend)
    };
    // They are equal in truth; here it shows whose was taken.
    let old = [one(10), one(11)];
    let limit = |parallelism, index| {
        let backend = OperatorStateBackend::restore(redistribute(&old, parallelism, index).unwrap()).unwrap();
        let rules = backend.broadcast("rules", StringSerializer, LongSerializer).unwrap();
        assert_eq!(rules.get(&"version".to_owned()).unwrap(), Some(7));
        assert_eq!(rules.entries().unwrap().len(), 2);
        rules.get(&"limit".to_owned()).unwrap().unwrap()
    };
    assert_eq!((0..3).map(|i| limit(3, i)).collect::<Vec<_>>(), [10, 11, 10]);
    assert_eq!(limit(1, 0), 10);
}

#[test]
fn row5_a_snapshot_is_a_deep_copy() {
    let backend = OperatorStateBackend::new();
    assert!(backend.is_empty() && backend.snapshot().is_empty());
    let list = backend.list("l", LongSerializer).unwrap();
    let rules = backend.broadcast("b", LongSerializer, LongSerializer).unwrap();
    list.update(&[1, 2]).unwrap();
    rules.put(&1, &1).unwrap();
    let snapshot = backend.snapshot();
    let before = snapshot.files();
    list.add(&3).unwrap();
    rules.put(&1, &2).unwrap();
    assert_eq!(snapshot.files(), before);
    assert_ne!(backend.snapshot().files(), before);
    list.clear().unwrap();
    assert_eq!(before.len(), 3);
    assert_eq!(backend.snapshot().descriptors().iter().map(|d| d.partitions).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn row5_state_that_is_not_declared_again_is_carried_on() {
    let backend = OperatorStateBackend::new();
    backend.list("l", LongSerializer).unwrap().update(&[1, 2]).unwrap();
    backend.broadcast("b", LongSerializer, LongSerializer).unwrap().put(&1, &2).unwrap();
    let first = stored(&backend);
    let again = OperatorStateBackend::restore(first.clone()).unwrap();
    assert_eq!(stored(&again), first);
}

#[test]
fn row5_state_of_another_type_or_mode_is_refused() {
    let old = subtasks(false, &[&[1]]);
    let backend = || OperatorStateBackend::restore(old[0].clone()).unwrap();
    let error = backend().list("l", StringSerializer).unwrap_err();
    assert_eq!(
        error.to_string(),
        "state \"l\" was stored as list state of long and is now declared as list state of string: value: long is another type than \
         string; declare it as it was, or give it another name"
    );
    assert_eq!(error.kind(), Kind::Invalid);
    let error = backend().union("l", LongSerializer).unwrap_err().to_string();
    assert!(error.contains("list state is not union list state"), "{error}");
    assert!(backend().broadcast("l", LongSerializer, LongSerializer).is_err());

    let versions = |version| {
        let backend = OperatorStateBackend::new();
        backend.list("l", SerdeSerializer::<(u8, String)>::new("event", version)).unwrap();
        stored(&backend)
    };
    let error = redistribute(&[versions(1), versions(2)], 1, 0).unwrap_err().to_string();
    assert!(error.contains("event version 1 has another schema than version 2"), "{error}");
}

#[test]
fn row5_damaged_partitions_are_told_with_the_state() {
    let mut old = subtasks(false, &[&[1]]).remove(0);
    old[0].partitions[0].pop();
    let error = OperatorStateBackend::restore(old).unwrap().list("l", LongSerializer).unwrap().get().unwrap_err();
    assert_eq!(error.kind(), Kind::Damage);
    assert!(error.to_string().starts_with("state \"l\": cannot read a long: "), "{error}");

    let backend = OperatorStateBackend::new();
    backend.broadcast("b", LongSerializer, LongSerializer).unwrap().put(&1, &2).unwrap();
    for cut in 1..24 {
        let mut old = stored(&backend);
        old[0].partitions[0].truncate(cut);
        assert_eq!(OperatorStateBackend::restore(old).unwrap_err().kind(), Kind::Damage, "{cut}");
    }
}

#[test]
fn row5_a_list_is_not_longer_than_a_checkpoint_takes() {
    let list = OperatorStateBackend::new().list("l", LongSerializer).unwrap();
    list.update(&vec![0; crate::limits::OPERATOR_PARTITIONS]).unwrap();
    assert_eq!(list.add(&1).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(list.get().unwrap().len(), crate::limits::OPERATOR_PARTITIONS);
}
