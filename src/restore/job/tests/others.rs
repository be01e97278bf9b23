//! Operator state and raw state.

use super::kit::{Task, World, operator};
use crate::error::Kind;
use crate::restore::job::{RawPart, restore_operator_state, restore_raw_keyed, restore_raw_operator};
use crate::state::operator::OperatorStateMode;
use crate::state::serializer::SerializerDescriptor;
use crate::state::{OperatorStateDescriptor, RestoredOperatorState};

fn state(name: &str, mode: OperatorStateMode, partitions: u32) -> OperatorStateDescriptor {
    let key = (mode == OperatorStateMode::Broadcast).then(|| SerializerDescriptor::basic("string"));
    OperatorStateDescriptor { name: name.to_owned(), mode, partitions, value: SerializerDescriptor::basic("long"), key }
}

fn task(states: &[(OperatorStateDescriptor, &[&str])]) -> Task {
    let mut task = Task::default();
    for (descriptor, partitions) in states {
        task.states.push(serde_json::json!({ "operator": descriptor }));
        let name = crate::types::Name::encode(&descriptor.name);
        let files = partitions.iter().enumerate();
        task.files.extend(files.map(|(i, bytes)| (format!("operator/{name}/{i}"), bytes.as_bytes().to_vec())));
    }
    task
}

fn texts(restored: &[RestoredOperatorState], name: &str) -> Vec<String> {
    let of = restored.iter().filter(|s| s.descriptor.name == name);
    of.flat_map(|s| &s.partitions).map(|p| String::from_utf8(p.clone()).unwrap()).collect()
}

#[test]
fn row5_operator_state_is_dealt_out_anew() {
    use OperatorStateMode::{Broadcast, Split, Union};
    let world = World::new();
    let both = |i: usize, offsets: &[&str], seen: &[&str]| {
        let n = |l: &[&str]| u32::try_from(l.len()).unwrap();
        let rules = format!("rules of {i}");
        task(&[
            (state("my offsets", Split, n(offsets)), offsets),
            (state("seen", Union, n(seen)), seen),
            (state("rules", Broadcast, 1), &[&rules]),
        ])
    };
    let tasks = [both(0, &["a", "b", "c"], &["x"]), both(1, &["d", ""], &[])];
    let checkpoint = world.checkpoint(&tasks);
    for q in 1..=6 {
        let all: Vec<Vec<RestoredOperatorState>> =
            (0..q).map(|i| restore_operator_state(&world.session, &checkpoint, &operator(), i, q).unwrap()).collect();
        let mut offsets: Vec<String> = all.iter().flat_map(|r| texts(r, "my offsets")).collect();
        offsets.sort();
        assert_eq!(offsets, ["", "a", "b", "c", "d"], "each element to one of {q} subtasks");
        let most = all.iter().map(|r| texts(r, "my offsets").len()).max().unwrap();
        if q != 2 {
            assert_eq!(most, 5_usize.div_ceil(q as usize), "{q}");
        }
        for restored in &all {
            assert_eq!(texts(restored, "seen"), ["x"], "all elements to everybody");
            let rules = texts(restored, "rules");
            assert!(rules.len() == 1 && rules[0].starts_with("rules of "), "{rules:?}");
        }
    }
    let same: Vec<_> = (0..2)
        .map(|i| restore_operator_state(&world.session, &checkpoint, &operator(), i, 2).unwrap())
        .map(|r| texts(&r, "my offsets"))
        .collect();
    assert_eq!(same, [vec!["a", "b", "c"], vec!["d", ""]], "the same parallelism: each its own");
}

#[test]
fn row5_a_partition_that_is_missing_or_of_no_state_is_damage() {
    let world = World::new();
    let two = state("offsets", OperatorStateMode::Split, 2);
    let refused = |task: Task| {
        let checkpoint = world.checkpoint(&[task]);
        let e = restore_operator_state(&world.session, &checkpoint, &operator(), 0, 1).unwrap_err();
        assert_eq!(e.kind(), Kind::Damage, "{e}");
        e.message().to_owned()
    };
    let said = refused(task(&[(two.clone(), &["a"])]));
    assert!(said.ends_with("\"offsets\" has 2 partitions, and operator/offsets/1 is not there"), "{said}");
    let said = refused(task(&[(two.clone(), &["a", "b", "c"])]));
    assert!(said.ends_with("operator/offsets/2 belongs to no operator state that is described"), "{said}");
    let said = refused(Task { states: vec![serde_json::json!({ "operator": {} })], ..Task::default() });
    assert!(said.contains("the description of a state cannot be read"), "{said}");
}

fn raw(front: &str, parts: &[(u32, &str)]) -> Task {
    let files = parts.iter().map(|(n, bytes)| (format!("{front}/{n}"), bytes.as_bytes().to_vec()));
    Task { files: files.collect(), ..Task::default() }
}

fn told(parts: &[RawPart]) -> Vec<(u32, &str)> {
    parts.iter().map(|p| (p.number, std::str::from_utf8(&p.bytes).unwrap())).collect()
}

#[test]
fn row12_raw_keyed_state_goes_by_key_group() {
    let world = World::new();
    // 12 key groups: [0, 5] and [6, 11]; not every group has some.
    let tasks =
        [raw("raw-keyed", &[(0, "zero"), (3, "three"), (4, "four")]), raw("raw-keyed", &[(6, ""), (10, "ten")])];
    let checkpoint = world.checkpoint(&tasks);
    let get = |i, p| restore_raw_keyed(&world.session, &checkpoint, &operator(), i, p, 12).unwrap();
    assert_eq!(told(&get(0, 1)), [(0, "zero"), (3, "three"), (4, "four"), (6, ""), (10, "ten")]);
    // Ten comes after six, not after one.
    assert_eq!(told(&get(0, 3)), [(0, "zero"), (3, "three")]);
    assert_eq!(told(&get(1, 3)), [(4, "four"), (6, "")]);
    assert_eq!(told(&get(2, 3)), [(10, "ten")]);
    let e = restore_raw_keyed(&world.session, &checkpoint, &operator(), 3, 3, 12).unwrap_err();
    assert_eq!(e.kind(), Kind::Invalid);
}

#[test]
fn row12_raw_operator_partitions_are_dealt_out_as_lists_are() {
    let world = World::new();
    let many: Vec<(u32, String)> = (0..12).map(|i| (i, format!("p{i}"))).collect();
    let many: Vec<(u32, &str)> = many.iter().map(|(i, t)| (*i, t.as_str())).collect();
    let checkpoint = world.checkpoint(&[raw("raw-operator", &many), raw("raw-operator", &[(0, "q0")])]);
    let get = |i, p| restore_raw_operator(&world.session, &checkpoint, &operator(), i, p).unwrap();
    assert_eq!(told(&get(1, 2)), [(0, "q0")], "the same parallelism: each its own");
    assert_eq!(told(&get(0, 2)), many);
    let e = restore_raw_operator(&world.session, &checkpoint, &operator(), 3, 3).unwrap_err();
    assert_eq!(e.kind(), Kind::Invalid);
    assert_eq!(told(&get(0, 3)), [(0, "p0"), (1, "p1"), (2, "p2"), (3, "p3"), (4, "p4")]);
    assert_eq!(told(&get(2, 3)), [(0, "p9"), (1, "p10"), (2, "p11"), (3, "q0")]);
}
