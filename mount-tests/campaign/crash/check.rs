//! The full check: what was completed is there and whole, what was decided stays, nothing is left over, nothing is uploaded twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ckptfs::cache::{Session, gone};
use ckptfs::engine::gc::{self, GcOptions};
use ckptfs::engine::{SnapshotRequest, snapshot_directory};
use ckptfs::format::{CheckpointKind, Labels};
use ckptfs::lifecycle::sweep::SweepOptions;
use ckptfs::restore::inspect::manifests;
use ckptfs::restore::verify::{FindingKind, Options, Read, Scope, verify};
use ckptfs::types::{Name, RecordKind, Silent};

use super::scenarios::{Scenario, difference};
use super::yard::{Files, Truth, Yard};
use crate::tool::walk;

type Checked = Result<(), String>;

/// Every completed checkpoint is whole, and is what was stored under its number; those that were completed before are among them. `dead`
/// may be missing.
pub fn whole(
    yard: &Yard,
    session: &Session,
    scenario: &Scenario,
    before: &Truth,
    dead: &[&str],
) -> Result<Option<String>, String> {
    let options = Options { read: Some(Read::default()), repair: false };
    let report = verify(session, &Scope::default(), &options, &Silent).map_err(|e| format!("verify fails: {e:#}"))?;
    // A dead clone's pin may dangle until the next sweep.
    let damage = |kind: FindingKind| kind.is_damage() && kind != FindingKind::DanglingPin;
    if let Some(finding) = report.findings.iter().find(|f| damage(f.kind)) {
        return Err(format!("{}: {} {}", finding.kind.as_str(), finding.object, finding.detail));
    }
    let mut there = BTreeSet::new();
    let mut newest = None;
    for job in session.catalog.jobs().map_err(|e| e.to_string())? {
        let listing = session.catalog.job(&job).map_err(|e| e.to_string())?;
        if let Some((n, why)) = listing.unreadable.first() {
            return Err(format!("{job}/{n} cannot be read: {why}"));
        }
        for checkpoint in listing.visible() {
            let name = format!("{job}/{}", checkpoint.number.get());
            let known = before.completed.get(&name).cloned();
            let wanted = known
                .unwrap_or_else(|| scenario.makes.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect());
            let mut found = BTreeMap::new();
            for manifest in manifests(session, checkpoint).map_err(|e| format!("{name}: {e:#}"))? {
                let (operator, subtask) = manifest.place.subtask.clone().unwrap();
                let of = |f: &ckptfs::format::FileEntry| {
                    let path = f.path.to_string();
                    (path.rsplit('/').next().unwrap().to_owned(), f.digest.to_hex())
                };
                found.insert(format!("{operator}/{subtask}"), manifest.files.iter().map(of).collect::<Files>());
            }
            if found.keys().ne(wanted.keys()) {
                return Err(format!("{name} has {:?} instead of {:?}", found.keys(), wanted.keys()));
            }
            for (subtask, files) in &found {
                let truth = &before.directories[&wanted[subtask]];
                if files != truth {
                    let differ = difference(files, truth);
                    return Err(format!("{name}/{subtask} is not {}: {differ}", wanted[subtask]));
                }
            }
            newest = wanted.get("db/0").cloned();
            there.insert(name);
        }
    }
    let _ = yard;
    match before.completed.keys().find(|n| !there.contains(*n) && !dead.contains(&n.as_str())) {
        Some(lost) => Err(format!("{lost} was completed and is not there")),
        None => Ok(newest),
    }
}

/// All that holds once what was cut off was done again.
pub fn after(yard: &Yard, scenario: &Scenario, before: &Truth, decided: &BTreeMap<String, Vec<u8>>) -> Checked {
    let session = yard.session(&yard.cache)?;
    let newest = whole(yard, &session, scenario, before, scenario.ends)?;
    let now = yard.decided();
    for (key, bytes) in decided {
        // A number that is forgotten was dead.
        if now.get(key).is_some_and(|b| b != bytes) || (!now.contains_key(key) && scenario.ends.is_empty()) {
            return Err(format!("{key} was decided, and is so no more"));
        }
    }
    (scenario.finally)(yard)?;
    twice(yard)?;
    if let Some(db) = newest {
        let request = SnapshotRequest {
            job: Name::encode("app"),
            directory: yard.path(&db),
            operator: "db".to_owned(),
            subtask: 0,
            kind: CheckpointKind::Checkpoint,
            number: None,
            labels: Labels::default(),
        };
        let report =
            snapshot_directory(&session, &request, &Silent).map_err(|e| format!("no further snapshot: {e:#}"))?;
        if report.new_bytes != 0 {
            return Err(format!("a further snapshot of what is stored uploads {} bytes", report.new_bytes));
        }
        let mut known = before.clone();
        let number = format!("app/{}", report.number.get());
        known.completed.insert(number, BTreeMap::from([("db/0".to_owned(), db)]));
        for end in scenario.ends {
            known.completed.remove(*end);
        }
        swept(yard, &session, scenario, &known)?;
    }
    leftovers(yard)
}

/// A sweep leaves what is needed and nothing else.
fn swept(yard: &Yard, session: &Session, scenario: &Scenario, known: &Truth) -> Checked {
    let fail = |e: ckptfs::error::Error| format!("the sweep fails: {e:#}");
    let clone = yard.path("clone");
    if clone.exists() {
        std::fs::remove_dir_all(clone).unwrap();
    }
    gone::drop_gone(session).map_err(fail)?;
    let options = GcOptions { every_number: true, ..GcOptions::default() };
    let plan = gc::plan(session, SweepOptions::default(), &Silent).map_err(fail)?;
    gc::execute(session, &plan, options, &Silent).map_err(fail)?;
    let plan = gc::plan(session, SweepOptions::default(), &Silent).map_err(fail)?;
    if !plan.doomed.is_empty() || !plan.foreign.is_empty() {
        return Err(format!("a sweep left {} blobs and {} foreign ones", plan.doomed.len(), plan.foreign.len()));
    }
    whole(yard, session, scenario, known, &[])?;
    let options = Options::default();
    let report = verify(session, &Scope::default(), &options, &Silent).map_err(fail)?;
    if let Some(f) = report.findings.first() {
        return Err(format!("after a sweep {}: {} {}", f.kind.as_str(), f.object, f.detail));
    }
    // Records of numbers that are dead: everything was to be forgotten.
    if let Some(left) = yard.keys(RecordKind::Expired).first() {
        return Err(format!("{left} is left although all that is dead was to be forgotten"));
    }
    Ok(())
}

/// Nothing is there twice: what a dead attempt had uploaded, the next one adopts.
fn twice(yard: &Yard) -> Checked {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for key in yard.keys(RecordKind::Blobs) {
        let digest = key.rsplit('/').next().unwrap().split('-').next().unwrap().to_owned();
        seen.entry(digest).or_default().push(key);
    }
    match seen.values().find(|keys| keys.len() > 1) {
        Some(keys) => Err(format!("uploaded twice: {keys:?}")),
        None => Ok(()),
    }
}

/// No unfinished file is left in the store or in a cache.
fn leftovers(yard: &Yard) -> Checked {
    let mut all = walk(&yard.path(&yard.cache));
    // Elsewhere nobody stages files: what is foreign there was asked for.
    if yard.remote.is_none() {
        all.extend(walk(&yard.path("store")));
    }
    if let Some(left) = all.iter().find(|p| ckptfs::local::publish::is_staging(p.file_name().unwrap())) {
        return Err(format!("{} is left behind", left.display()));
    }
    let part = |p: &Path| p.parent().unwrap().ends_with("partial") && p.file_name().unwrap().len() != 64;
    if let Some(left) = all.iter().find(|p| part(p)) {
        return Err(format!("{} is left behind", left.display()));
    }
    let clones = walk(&yard.path(&yard.cache).join("clones"));
    if let Some(left) = clones.first() {
        return Err(format!("{} is left of a clone that is gone", left.display()));
    }
    let beside = std::fs::read_dir(&yard.root).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    match beside.into_iter().find(|n| n.starts_with('.') || n.contains("ckptfs-")) {
        Some(left) => Err(format!("{left} is left beside the clone")),
        None => Ok(()),
    }
}
