//! The coordinator: what it decides, and what comes of it in a store.

mod gateways;
mod histories;
mod machine;
mod reign;
mod run;
mod stalled;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::machine::Task;
use super::reign::{ClaimMode, Reign, ReignPlan, RestoreFrom};
use super::settings::CoordinatorSettings;
use crate::format::{
    BlobEntry, ExpectedOperator, FileEntry, FilePath, Intent, Place, Role, TaskManifest, Verdict as Decided,
};
use crate::lifecycle::ack::Ack;
use crate::lifecycle::{LifecycleError, catalog, driver};
use crate::store::{BlobSource, Store};
use crate::types::{BlobName, CheckpointNumber, Digest, Extent, Name, Uid};

const WRITER: Uid = Uid::from_bytes([1; 16]);
const RIVAL: Uid = Uid::from_bytes([2; 16]);

fn n(number: u64) -> CheckpointNumber {
    CheckpointNumber::new(number).unwrap()
}

fn job() -> Name {
    Name::encode("words")
}

fn task(operator: &str, subtask: u32) -> Task {
    (Name::encode(operator), subtask)
}

/// A source of one subtask and a count of two.
fn tasks() -> BTreeSet<Task> {
    [task("source", 0), task("count", 0), task("count", 1)].into()
}

fn expected() -> Vec<ExpectedOperator> {
    [("count", 2), ("source", 1)]
        .map(|(operator, parallelism)| ExpectedOperator { operator: Name::encode(operator), parallelism })
        .into()
}

/// Nothing but what a test asks for.
fn settings() -> CoordinatorSettings {
    CoordinatorSettings {
        interval_ms: 0,
        min_pause_ms: 0,
        timeout_ms: 1000,
        max_concurrent: 1,
        tolerable_failures: 0,
        retained: 1,
        retain_on_cancel: true,
    }
}

fn plan(restore: RestoreFrom) -> ReignPlan {
    ReignPlan { job: job(), expected: expected(), restore, claim: ClaimMode::NoClaim, pinned: Vec::new() }
}

fn begin(store: &Store, writer: Uid) -> Reign {
    Reign::begin_in(store.clone(), writer, plan(RestoreFrom::Latest)).unwrap()
}

fn intent(store: &Store, number: CheckpointNumber) -> Intent {
    catalog::intent(store, &job(), number).unwrap().unwrap()
}

/// What became of a number: `None` while it is open.
fn completed(store: &Store, number: CheckpointNumber) -> Option<bool> {
    let outcome = catalog::outcome(store, &job(), number).unwrap();
    outcome.map(|o| matches!(o.verdict, Decided::Completed(_)))
}

fn reason(store: &Store, number: CheckpointNumber) -> String {
    match catalog::outcome(store, &job(), number).unwrap().unwrap().verdict {
        Decided::Aborted { reason } => reason,
        Decided::Completed(_) => panic!("{number} is completed"),
    }
}

/// Stores one file as a task's snapshot, and acknowledges.
fn store_ack(
    store: &Store,
    (operator, subtask): &Task,
    number: CheckpointNumber,
    content: &[u8],
) -> Result<(), LifecycleError> {
    let uid = intent(store, number).place.uid;
    let name = BlobName { digest: Digest::of(content), uid };
    store.upload_blob(&name, BlobSource::Bytes(Bytes::copy_from_slice(content))).map_err(LifecycleError::Store)?;
    let mut place = Place::new(Role::Task, &job(), number.get(), uid);
    place.subtask = Some((operator.clone(), *subtask));
    let length = content.len() as u64;
    let file = FileEntry {
        path: FilePath::db("000001.sst").unwrap(),
        size: length,
        digest: name.digest,
        extents: vec![Extent { blob: 0, offset: 0, length }],
        tree: None,
        tail: None,
        sst: None,
    };
    let manifest = TaskManifest {
        place,
        display_name: operator.to_string(),
        blobs: vec![BlobEntry { name, length, bundle: false }],
        files: vec![file],
        logical_bytes: length,
        new_bytes: length,
        backend: None,
        key_groups: None,
        states: Vec::new(),
        properties: BTreeMap::from([("sync_ms".to_owned(), "7".to_owned())]),
        other_state: BTreeMap::new(),
        origins: BTreeMap::new(),
    };
    driver::run(store, Ack::new(manifest)?).map(drop)
}

fn ack_all(store: &Store, number: CheckpointNumber) {
    for task in tasks() {
        store_ack(store, &task, number, format!("{task:?} at {number}").as_bytes()).unwrap();
    }
}
