//! What a user finds after the power cut: exactly the checkpoints that were told to be complete, every byte right, a cache that believes
//! nothing wrong, and a store that goes on.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use ckptfs::cache::{CacheError, Session};
use ckptfs::store::{Store, StoreOptions};
use ckptfs::types::{CheckpointNumber, Digest};

use super::image::Image;
use super::scenario::{Effect, Scenario, program};
use crate::tool::database;

/// What must be there after a cut, and what may be.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Expected {
    pub must: BTreeSet<u64>,
    pub may: BTreeSet<u64>,
    /// Directories that were restored, with their databases.
    pub restored: BTreeSet<(&'static str, &'static str)>,
    /// Files and what they hold.
    pub kept: BTreeSet<(&'static str, &'static str)>,
}

impl Expected {
    pub fn at(scenario: &Scenario, cut: u64) -> Self {
        let mut expected = Self::default();
        for ran in &scenario.ran {
            let (begun, said) = (ran.begun < cut, ran.said < cut);
            match &ran.effect {
                Effect::Completes(n, _) => {
                    if said {
                        expected.must.insert(*n);
                    }
                    if begun {
                        expected.may.insert(*n);
                    }
                }
                Effect::Ends(n) => {
                    if begun {
                        expected.must.remove(n);
                    }
                    if said {
                        expected.may.remove(n);
                    }
                }
                Effect::Shows(n) => {
                    if begun {
                        expected.may.insert(*n);
                    }
                    if said {
                        expected.must.insert(*n);
                    }
                }
                Effect::Keeps(file, text) if said => {
                    expected.kept.insert((file, text));
                }
                // A step that works in it again may leave it as it was or as it shall be.
                Effect::Restores(dir, db) if said => {
                    expected.restored.insert((dir, db));
                }
                _ => {}
            }
        }
        expected
    }
}

fn listed(root: &Path) -> Result<BTreeSet<u64>, String> {
    let said = program(root, "cache", &["ls", "app", "--json"]);
    if said.code != 0 {
        let nothing = ["no such", "no store", "does not exist", "not a store", "there is no"];
        let none = nothing.iter().any(|w| said.err.to_lowercase().contains(w));
        return if none { Ok(BTreeSet::new()) } else { Err(format!("ls fails: {}", said.err.trim())) };
    }
    let listed: serde_json::Value = serde_json::from_str(&said.out).map_err(|e| e.to_string())?;
    Ok(listed.as_array().into_iter().flatten().filter_map(|c| c["number"].as_u64()).collect())
}

/// Nothing is damaged in the store; and once a sweep and a repair were there, nothing is wrong at all, not in the cache either.
fn verified(root: &Path, all: bool, when: &str) -> Result<(), String> {
    let said = program(root, "cache", &["verify", "--read", "--json"]);
    let report: serde_json::Value =
        serde_json::from_str(&said.out).map_err(|e| format!("verify: {e}: {}", said.err))?;
    let cache = root.join("cache").display().to_string();
    let ours = |f: &&serde_json::Value| {
        let cached = f["object"].as_str().is_some_and(|o| o.starts_with(&cache));
        all || (f["damage"] != false && !cached)
    };
    match report["findings"].as_array().into_iter().flatten().find(ours) {
        None => Ok(()),
        Some(finding) => Err(format!("verify {when}: {finding}")),
    }
}

fn restored(scenario: &Scenario, root: &Path, cache: &str, n: u64) -> Result<(), String> {
    let parts = scenario.ran.iter().find_map(|r| match &r.effect {
        Effect::Completes(of, parts) if *of == n => Some(parts),
        _ => None,
    });
    let Some(parts) = parts else { return Err(format!("chk-{n} is listed, and nobody took it")) };
    for (part, db) in parts {
        let out = format!("restored-{cache}-{n}-{db}");
        let said = program(root, cache, &["restore", &format!("app/chk-{n}/{part}"), &out, "--copy"]);
        if said.code != 0 {
            return Err(format!("chk-{n}/{part} is not restored: {}", said.err.trim()));
        }
        if database(&root.join(&out)) != scenario.databases[db] {
            return Err(format!("chk-{n}/{part} has wrong bytes"));
        }
    }
    Ok(())
}

/// Reads what a cache has in parts to its end, as a mount does.
fn parts(scenario: &Scenario, root: &Path, cache: &str, n: u64) -> Result<(), String> {
    let begun = fs::read_dir(root.join(cache).join("partial")).is_ok_and(|dir| dir.count() > 0);
    if !begun {
        return Ok(());
    }
    let url = format!("file://{}", root.join("store").display());
    let store = Store::open(&url, StoreOptions::default()).map_err(|e| e.to_string())?;
    let session = Session::over(store.clone(), &root.join(cache), false).map_err(|e| e.to_string())?;
    let job = "app".parse().unwrap();
    let checkpoint = session.catalog.checkpoint(&job, CheckpointNumber::new(n).unwrap()).map_err(|e| e.to_string())?;
    let read = |subtask| {
        let manifest = session.cache.task_manifest(&store, &job, checkpoint.number, subtask)?;
        for file in &manifest.files {
            if let Some(lazy) = session.cache.open_lazy(&store, &manifest, file, || {})? {
                let mut bytes = vec![0; file.size as usize];
                lazy.read(0, &mut bytes)?;
                assert!(Digest::of(&bytes) == file.digest, "{}: {} is read in parts wrongly", scenario.name, file.path);
                PARTS.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    checkpoint.manifest.subtasks.iter().try_for_each(read).map_err(|e: CacheError| format!("chk-{n} in parts: {e}"))
}

/// Files that were read in parts after a cut.
pub static PARTS: AtomicU64 = AtomicU64::new(0);

/// Files of a directory that was restored: right, or links into a mount.
fn whole(scenario: &Scenario, root: &Path, dir: &str, db: &str) -> Result<(), String> {
    for (name, bytes) in &scenario.databases[db] {
        let path = root.join(dir).join(name);
        if path.is_symlink() {
            continue;
        }
        match fs::read(&path) {
            Ok(there) if &there == bytes => {}
            Ok(there) => {
                let lengths = (there.len(), bytes.len());
                return Err(format!("{dir}/{name}, which was restored, has wrong bytes: {lengths:?} long"));
            }
            Err(e) => return Err(format!("{dir}/{name}, which was restored, is lost: {e}")),
        }
    }
    Ok(())
}

/// What the cache would believe without reading.
fn vouched(image: &Image) -> Result<(), String> {
    for (path, at) in &image.names {
        if let Some((digest, true)) = &image.files[at].vouched
            && Digest::of(&image.files[at].bytes) != *digest
        {
            return Err(format!("the inode of {} vouches for bytes that it has not", path.display()));
        }
    }
    Ok(())
}

/// Brings the image back as a user would. What is wrong, if anything is.
pub fn judge(scenario: &Scenario, image: &Image, expected: &Expected, spare: &Path, root: &Path) -> Result<(), String> {
    vouched(image)?;
    image.lay(root);
    for (file, text) in &expected.kept {
        let there = fs::read_to_string(root.join(file)).unwrap_or_default();
        if there != *text {
            return Err(format!("{file} was told to be {text} and is {there:?}"));
        }
    }
    for (dir, db) in &expected.restored {
        whole(scenario, root, dir, db)?;
    }
    let found = listed(root)?;
    if !expected.must.is_subset(&found) || !found.is_subset(&expected.may) {
        return Err(format!("listed are {found:?}; {:?} must be, {:?} may be", expected.must, expected.may));
    }
    if !found.is_empty() {
        verified(root, false, "after the cut")?;
    }
    for n in &found {
        for cache in &scenario.caches {
            parts(scenario, root, cache, *n)?;
            restored(scenario, root, cache, *n)?;
        }
    }
    // It goes on: the next snapshot, and a sweep that leaves no garbage.
    let said = program(root, "cache", &["snapshot", "--job", "app", &spare.display().to_string()]);
    if said.code != 0 {
        return Err(format!("the next snapshot fails: {}", said.err.trim()));
    }
    let next: u64 = said.out.trim().trim_start_matches("chk-").parse().map_err(|e| format!("{e}: {}", said.out))?;
    let swept = program(root, "cache", &["gc", "--delete", "--forget-all"]);
    if swept.code != 0 {
        return Err(format!("the sweep fails: {}", swept.err.trim()));
    }
    let swept = program(root, "cache", &["gc", "--json"]);
    let plan: serde_json::Value = serde_json::from_str(&swept.out).map_err(|e| format!("{e}: {}", swept.err))?;
    if plan["doomed"]["blobs"] != 0 || plan["foreign"].as_array().is_none_or(|f| !f.is_empty()) {
        return Err(format!("a sweep leaves garbage: {plan}"));
    }
    // What nobody asked for since the cut may still lie there, unbelieved.
    program(root, "cache", &["verify", "--read", "--repair"]);
    verified(root, true, "after the sweep and a repair")?;
    let mut after = found;
    after.insert(next);
    if listed(root)? != after {
        return Err(format!("after a snapshot and a sweep {:?} are listed instead of {after:?}", listed(root)?));
    }
    let out = "restored-next";
    let said = program(root, "cache", &["restore", &format!("app/chk-{next}"), out, "--copy"]);
    if said.code != 0 || database(&root.join(out)) != database(spare) {
        return Err(format!("the next snapshot is not what was taken: {}", said.err.trim()));
    }
    Ok(())
}
