//! The check is shown to see what it is for: after a run that nothing happened to, one thing is spoiled by hand.

use std::fs;

use super::check;
use super::point::{again, prepare, template};
use super::scenarios::SCENARIOS;
use super::yard::{Yard, copy};
use crate::tool::{flip, walk};

type Plant = (&'static str, fn(&Yard), &'static str);

const PLANTS: [Plant; 7] = [
    ("nothing", |_| {}, ""),
    ("a flipped bit", |y| flip(&own(y), 1000, 3), "damaged"),
    ("a lost checkpoint", |y| fs::remove_file(outcome(y, 1)).unwrap(), ""),
    ("a checkpoint decided anew", |y| fs::copy(outcome(y, 2), outcome(y, 1)).map(drop).unwrap(), ""),
    ("an upload that is there twice", twice, "uploaded twice"),
    ("a leftover in the cache", |y| fs::write(left(y), "half").unwrap(), "left behind"),
    ("another database's files", swap, "is not db-b"),
];

fn outcome(y: &Yard, n: u64) -> std::path::PathBuf {
    y.path(&format!("store/outcome/app/{n:020}.json"))
}

/// A blob, as a file of its own: it is shared with the template.
fn own(y: &Yard) -> std::path::PathBuf {
    let blob = walk(&y.path("store/blobs")).into_iter().max_by_key(|p| p.metadata().unwrap().len()).unwrap();
    let bytes = fs::read(&blob).unwrap();
    fs::remove_file(&blob).unwrap();
    fs::write(&blob, bytes).unwrap();
    blob
}

fn twice(y: &Yard) {
    let blob = own(y);
    let name = blob.file_name().unwrap().to_str().unwrap().to_owned();
    let digest = name.split('-').next().unwrap();
    fs::copy(&blob, blob.with_file_name(format!("{digest}-{}", "ab".repeat(16)))).unwrap();
}

/// In a directory that is not looked at when the cache is opened.
fn left(y: &Yard) -> std::path::PathBuf {
    y.path(&format!("cache/jobs/.tmp-{}", "ab".repeat(16)))
}

fn swap(y: &Yard) {
    let mut truth = y.truth();
    let other = truth.directories["db-a"].clone();
    truth.directories.insert("db-b".to_owned(), other);
    y.tell(&truth);
}

#[test]
fn the_check_sees_each_of_them() {
    let temp = tempfile::Builder::new().prefix("ckptfs-planted-").tempdir().unwrap();
    let scenario = &SCENARIOS[1];
    let templates = temp.path().join("templates");
    prepare(&templates, scenario, 0);
    for (name, plant, words) in PLANTS {
        let root = temp.path().join("yard");
        let _ = fs::remove_dir_all(&root);
        copy(&template(&templates, scenario, 0), &root);
        let yard = Yard::at(&root, scenario.cache);
        let decided = yard.decided();
        again(&yard, &scenario.steps[0], false).unwrap();
        plant(&yard);
        let found = check::after(&yard, scenario, &yard.truth(), &decided);
        println!("{name}: {found:?}");
        match found {
            Ok(()) => assert_eq!(name, "nothing"),
            Err(why) => assert!(name != "nothing" && why.contains(words), "{name}: {why}"),
        }
    }
}
