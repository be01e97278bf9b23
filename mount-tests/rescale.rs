//! Another parallelism over a mount: what is fetched is what lies in the new subtask's key groups, not all that the old ones had.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ckptfs::cache::{Session, SessionOptions};
use ckptfs::engine::base::BaseIndex;
use ckptfs::engine::cancel::Cancel;
use ckptfs::engine::scan::scan;
use ckptfs::engine::upload::{self, Described, Task};
use ckptfs::format::{CheckpointKind, ExpectedOperator};
use ckptfs::lifecycle::complete::Complete;
use ckptfs::lifecycle::open::{Open, OpenPlan};
use ckptfs::lifecycle::{Checkpoint, driver};
use ckptfs::restore::job::{RestoreOptions, Way, restore_keyed};
use ckptfs::state::keyed::StateKind;
use ckptfs::state::serializer::SerializerDescriptor;
use ckptfs::state::{Database, DatabaseOptions, KeyedDescriptor, StateDescriptor};
use ckptfs::types::{KeyGroupRange, Name, Silent, Uid};

use crate::tool::{Desk, walk};

const MAX: u32 = 128;
/// Rows of a key group, and bytes of a row.
const ROWS: u64 = 250;
const ROW: usize = 1000;
const FAMILY: &str = "count";

fn options(create: bool) -> DatabaseOptions {
    // Many tables of a few key groups each.
    DatabaseOptions { create, table_size: 1 << 20, write_buffer: 1 << 20, ..DatabaseOptions::default() }
}

fn key(group: u32, row: u64) -> Vec<u8> {
    [&[u8::try_from(group).unwrap()][..], format!("row-{row:08}").as_bytes()].concat()
}

fn value(group: u32, row: u64) -> Vec<u8> {
    crate::kit::noise(u64::from(group) * ROWS + row + 1, ROW)
}

/// The sorted tables of a range of key groups.
fn old_database(path: &Path, range: KeyGroupRange) {
    let db = Database::open(path, &["default", FAMILY], &options(true)).unwrap();
    for group in range.first..=range.last {
        let mut batch = db.batch();
        for row in 0..ROWS {
            batch.put(FAMILY, &key(group, row), &value(group, row)).unwrap();
        }
        batch.commit().unwrap();
    }
    db.flush().unwrap();
    db.compact(FAMILY).unwrap();
}

fn described(range: KeyGroupRange) -> Described {
    let void = || SerializerDescriptor::basic("void");
    let state = StateDescriptor {
        name: FAMILY.to_owned(),
        kind: StateKind::Value,
        namespace: void(),
        value: SerializerDescriptor::basic("bytes"),
        user_key: None,
        version: 1,
        ttl: None,
    };
    let keyed = KeyedDescriptor {
        key: SerializerDescriptor::basic("string"),
        max_parallelism: MAX,
        range,
        backend: Uid::random().unwrap(),
        states: vec![state],
    };
    Described { key_groups: Some(range), states: vec![serde_json::json!({ "keyed": keyed })], ..Described::default() }
}

/// A completed checkpoint of two subtasks.
fn publish(desk: &Desk, session: &Session, operator: &Name) -> Checkpoint {
    let job = Name::encode("app");
    let plan = OpenPlan {
        job: job.clone(),
        uids: vec![Uid::random().unwrap()],
        writer: session.cache.id(),
        epoch: None,
        number: None,
        expected: vec![ExpectedOperator { operator: operator.clone(), parallelism: 2 }],
        kind: CheckpointKind::Checkpoint,
        detached: false,
        restored_from: None,
        pinned: Vec::new(),
        opened_ms: 0,
    };
    let opened = driver::run(&session.store, Open::new(plan)).unwrap();
    let uid = opened.intent.place.uid;
    for subtask in 0..2 {
        let range = KeyGroupRange::of_subtask(MAX, 2, subtask).unwrap();
        let path = desk.path(&format!("old-{subtask}"));
        old_database(&path, range);
        let cancel = Cancel::default();
        let base = BaseIndex::empty(session.store_id);
        let scanned = scan(&path).unwrap();
        let uploaded = upload::upload_directory(session, scanned, base, uid, &cancel, &Silent).unwrap();
        let task = Task { job: &job, number: opened.number, operator: operator.as_str(), subtask };
        let finished =
            upload::finish(session, Ok(uploaded), &[], (&task, uid), described(range), (&cancel, &Silent)).unwrap();
        upload::acknowledge(session, finished).unwrap();
    }
    driver::run(&session.store, Complete::new(job.clone(), opened.number, 0)).unwrap();
    session.catalog.checkpoint(&job, opened.number).unwrap()
}

/// Bytes on the disk of what a cache fetched; what is linked elsewhere was not.
fn fetched(cache: &Path) -> u64 {
    let files = ["files", "partial"].iter().flat_map(|sub| walk(&cache.join(sub)));
    files.filter_map(|p| fs::metadata(p).ok()).map(|m| m.blocks() * 512).sum()
}

#[test]
fn a_new_subtask_fetches_its_own_key_groups() {
    let desk = Desk::new();
    let open = |cache: &str, create| {
        let store = format!("file://{}", desk.path("store").display());
        let options =
            SessionOptions { store: Some(store), cache: Some(desk.path(cache)), create, ..SessionOptions::default() };
        Session::open(&options).unwrap()
    };
    let operator = Name::encode("count");
    let checkpoint = publish(&desk, &open("near", true), &operator);
    let one = checkpoint.manifest.subtasks[0].logical_bytes;
    assert!(one > 15_000_000, "{one}");
    // By the number of new subtasks: the percent of one old directory that is moved out of it; and of the other, into which it is moved,
    // what lies in the new range: RocksDB may compact the one with the other while this runs, or not yet.
    for (parallelism, index, moved, joined) in [(4, 1, 0, 0), (4, 2, 0, 0), (3, 1, 34, 34), (1, 0, 100, 100)] {
        let cache = format!("far-{parallelism}-{index}");
        let session = open(&cache, false);
        let mount = desk.mount(&cache);
        let options = RestoreOptions {
            mount: Some(mount),
            database: DatabaseOptions { table_size: 1 << 20, ..DatabaseOptions::default() },
            ..RestoreOptions::new(MAX)
        };
        let directory = desk.path(&format!("new-{parallelism}-{index}"));
        let restored =
            restore_keyed(&session, &checkpoint, &operator, index, parallelism, &options, &directory).unwrap().unwrap();
        assert_eq!(restored.way, Way::Clone);
        let got = fetched(&desk.path(&cache));
        println!("{index} of {parallelism}: {got} bytes fetched, {one} in each of the two old directories");
        // Beside it bundles, tables that straddle, and what is read ahead of a scan.
        let most = one / 100 * (moved + joined) + 3_000_000;
        assert!(got <= most, "{index} of {parallelism}: {got} bytes, at most {most}");

        let mine = KeyGroupRange::of_subtask(MAX, parallelism, index).unwrap();
        let db = Database::open(&directory, &["default", FAMILY], &options.database).unwrap();
        let rows: BTreeMap<Vec<u8>, Vec<u8>> =
            db.scan(FAMILY).unwrap().map(Result::unwrap).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        let wanted: BTreeMap<Vec<u8>, Vec<u8>> = (mine.first..=mine.last)
            .flat_map(|group| (0..ROWS).map(move |row| (key(group, row), value(group, row))))
            .collect();
        assert!(rows == wanted, "{} rows of {}", rows.len(), wanted.len());
        drop(db);
        // A clone of the engine's can be settled like any other.
        let report = ckptfs::restore::settle(&session, &directory, &Silent).unwrap();
        assert!(report.settled && report.foreign.is_empty(), "{report:?}");
        desk.unmount();
        let db = Database::open(&directory, &["default", FAMILY], &options.database).unwrap();
        assert_eq!(db.scan(FAMILY).unwrap().map(Result::unwrap).count(), wanted.len());
    }
}
