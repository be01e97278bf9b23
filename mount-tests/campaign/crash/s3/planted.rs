//! The points are shown to be what they say, and the check to see what it is for: a request that was cut off is heard or not, and after a
//! run that nothing happened to, one thing in the bucket is spoiled by hand.

use std::cell::Cell;

use ckptfs::types::RecordKind;

use super::begin;
use super::bench::{Bench, Far, Point};
use crate::crash::mode::Mode;
use crate::crash::proxy::Plan;
use crate::crash::scenarios::SCENARIOS;
use crate::crash::yard::Yard;

type Plant = (&'static str, fn(&Yard, &Far<'_>), &'static str);

const PLANTS: [Plant; 7] = [
    ("nothing", |_, _| {}, ""),
    ("a flipped bit", |y, far| flip(far, &blobs(y)[0]), "damaged"),
    ("a blob that is gone", |y, far| far.weed.remove(&far.key(&blobs(y)[0])), "missing"),
    ("a lost checkpoint", |_, far| far.weed.remove(&far.key(&outcome(1))), ""),
    ("a checkpoint decided anew", |_, far| far.weed.place(&far.key(&outcome(1)), &far.bytes(&outcome(2))), ""),
    ("an upload that is there twice", twice, "uploaded twice"),
    ("another database's files", |y, _| swap(y), "is not db-b"),
];

const PUT: &str = "PUT outcome/app/N.json";

impl Far<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}/{key}", self.prefix)
    }

    fn bytes(&self, key: &str) -> Vec<u8> {
        self.weed.bytes(&self.key(key)).unwrap()
    }
}

fn outcome(n: u64) -> String {
    format!("outcome/app/{n:020}.json")
}

/// Those that the state before the run had; it lies beside.
fn blobs(y: &Yard) -> Vec<String> {
    Yard::at(&y.root, &y.cache).keys(RecordKind::Blobs)
}

fn flip(far: &Far<'_>, key: &str) {
    let mut bytes = far.bytes(key);
    bytes[1000] ^= 8;
    far.weed.place(&far.key(key), &bytes);
}

fn twice(y: &Yard, far: &Far<'_>) {
    let key = &blobs(y)[0];
    let digest = key.split('-').next().unwrap();
    far.weed.place(&far.key(&format!("{digest}-{}", "ab".repeat(16))), &far.bytes(key));
}

fn swap(y: &Yard) {
    let mut truth = y.truth();
    let other = truth.directories["db-a"].clone();
    truth.directories.insert("db-b".to_owned(), other);
    y.tell(&truth);
}

#[test]
fn the_check_sees_each_of_them() {
    let temp = tempfile::Builder::new().prefix("ckptfs-s3-planted-").tempdir().unwrap();
    let scenario = &SCENARIOS[1];
    let templates = temp.path().join("templates");
    let weed = begin(&templates, &[scenario.name]);
    let mut bench = Bench::new(&weed, &templates, "bench");
    let point = |mode, only: Option<&str>| Point {
        scenario,
        step: 0,
        plan: Plan { mode, k: 1, only: only.map(str::to_owned) },
    };
    for (name, plant, words) in PLANTS {
        let found = bench.visit(&point(Mode::Quiet, None), plant).verdict;
        println!("{name}: {found:?}");
        match found {
            Ok(()) => assert_eq!(name, "nothing"),
            Err(why) => assert!(name != "nothing" && why.contains(words), "{name}: {why}"),
        }
    }
    // What decides is heard of by the server only when all of it came.
    for (mode, heard) in [(Mode::Before, false), (Mode::After, true), (Mode::Torn, false)] {
        let there = Cell::new(None);
        let look = |_: &Yard, far: &Far<'_>| there.set(Some(far.weed.bytes(&far.key(&outcome(3))).is_some()));
        let visit = bench.visit(&point(mode, Some(PUT)), look);
        assert_eq!(visit.hit.as_deref(), Some(PUT));
        assert_eq!((there.get(), visit.verdict), (Some(heard), Ok(())), "{}", mode.name());
    }
}
