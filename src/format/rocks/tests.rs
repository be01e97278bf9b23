//! Real MANIFESTs and table files with known answers, and what mutated ones may do.
//!
//! The committed ones lie in `mount-tests/fixtures/rocksdb` (its README says where they and their answers come from).
//! Those of whole Flink checkpoints are read from `CKPTFS_FIXTURES`, or `../shared/fixtures` beside the source tree.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;

use super::log::{Records, writing};
use super::*;
use crate::limits;

const DATABASES: [&str; 9] = [
    "atomic-flush",
    "blobs",
    "flink-1.20",
    "flink-2.3",
    "ldb-blobs",
    "ldb-families",
    "many-files",
    "paths",
    "wal-only-live",
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("mount-tests/fixtures/rocksdb")
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The MANIFEST that CURRENT names.
fn manifest(database: &str) -> Vec<u8> {
    let directory = fixtures().join(database);
    let number = parse_current(&fs::read(directory.join("CURRENT")).unwrap()).unwrap();
    fs::read(directory.join(manifest_name(number))).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What was read, in the shape of an `expected.json`.
fn as_expected(live: &LiveFiles) -> Value {
    let families = live.column_families.iter().map(|family| {
        serde_json::json!({
            "id": family.id, "name": &*family.name, "log_number": family.log_number, "comparator": family.comparator,
        })
    });
    let ssts = live.ssts.iter().map(|sst| {
        serde_json::json!({
            "number": sst.number, "size": sst.size, "column_family": sst.column_family, "level": sst.level,
            "smallest": hex(&sst.smallest), "largest": hex(&sst.largest), "path_id": sst.path_id,
        })
    });
    let blob_files = live.blob_files.iter().map(|blob| {
        serde_json::json!({
            "number": blob.number, "size": blob.size, "column_family": blob.column_family,
            "total_blob_count": blob.total_blob_count, "total_blob_bytes": blob.total_blob_bytes,
            "garbage_blob_count": blob.garbage_blob_count, "garbage_blob_bytes": blob.garbage_blob_bytes,
        })
    });
    serde_json::json!({
        "next_file_number": live.next_file_number,
        "last_sequence": live.last_sequence,
        "min_log_number_to_keep": live.min_log_number_to_keep,
        "column_families": families.collect::<Vec<_>>(),
        "ssts": ssts.collect::<Vec<_>>(),
        "blob_files": blob_files.collect::<Vec<_>>(),
    })
}

#[test]
fn live_files_are_what_rocksdb_says_they_are() {
    let (mut ssts, mut blobs, mut elsewhere) = (0, 0, 0);
    for database in DATABASES {
        let bytes = manifest(database);
        let live = read_manifest(&bytes).unwrap();
        assert_eq!(live.applied_len, bytes.len() as u64, "{database}");
        for (a, b) in live.ssts.iter().map(|sst| (sst.column_family, &sst.column_family_name)) {
            assert!(live.column_families.iter().any(|family| family.id == a && family.name == *b), "{database}");
        }
        ssts += live.ssts.len();
        blobs += live.blob_files.len();
        elsewhere += live.ssts.iter().filter(|sst| sst.path_id != 0).count();

        let mut found = as_expected(&live);
        let mut expected = json(&fixtures().join(database).join("expected.json"));
        assert!(expected.as_object_mut().unwrap().remove("source").is_some());
        if database == "paths" {
            // No tool tells these of a database with a second path.
            for field in ["next_file_number", "last_sequence", "min_log_number_to_keep"] {
                found.as_object_mut().unwrap().remove(field);
            }
            found["column_families"][0].as_object_mut().unwrap().remove("log_number");
        }
        assert_eq!(found, expected, "{database}");
    }
    // The fixtures have something of each.
    assert!(ssts > 100 && blobs > 5 && elsewhere == 6);
}

#[test]
fn the_long_manifest_has_fragments_and_the_flushed_one_atomic_groups() {
    assert!(manifest("many-files").len() > 32 * 1024);
    let records: Vec<_> = records(&manifest("atomic-flush"));
    let grouped = records.iter().filter_map(|record| edit::Edit::decode(record, 0).unwrap().remaining_in_group);
    assert!(grouped.count() >= 5);
}

#[test]
fn a_manifest_cut_anywhere_is_read_up_to_there() {
    for database in DATABASES {
        let bytes = manifest(database);
        let mut applied = 0;
        let step = if bytes.len() > 10_000 { 211 } else { 1 };
        for cut in (0..bytes.len()).step_by(step).chain([bytes.len()]) {
            match read_manifest(&bytes[..cut]) {
                Ok(live) => {
                    assert!(live.applied_len <= cut as u64 && live.applied_len >= applied, "{database} {cut}");
                    applied = live.applied_len;
                }
                // The first edits do not make a database yet.
                Err(RocksManifestError::Incomplete { .. }) => assert_eq!(applied, 0, "{database} {cut}"),
                Err(error) => panic!("{database} cut at {cut}: {error}"),
            }
        }
        assert_eq!(applied, bytes.len() as u64, "{database}");
    }
}

#[test]
fn a_flipped_bit_is_noticed_wherever_it_is() {
    for database in ["ldb-blobs", "blobs"] {
        let bytes = manifest(database);
        let whole = read_manifest(&bytes).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // A length that now reaches over the end looks like a torn write, as it does to RocksDB.
            if let Ok(live) = read_manifest(&bad) {
                assert!(live.applied_len < whole.applied_len, "{database} {bit}");
            }
        }
    }
}

#[test]
fn tails_begin_where_rocksdb_reads_first() {
    let answers = json(&fixtures().join("tails/expected.json"));
    let group = limits::GROUP;
    for answer in answers.as_array().unwrap() {
        let name = answer["name"].as_str().unwrap();
        let file_len = answer["file_len"].as_u64().unwrap();
        let lowest_read = answer["lowest_read"].as_u64().unwrap();
        let tail = fs::read(fixtures().join(format!("tails/{name}.tail"))).unwrap();
        // Filters are read at the first lookup: they lie between the data and what is read at once.
        let start = answer["data_len"].as_u64().unwrap().min(lowest_read);
        let plan = tail_start(file_len, &tail);
        assert_eq!(plan, TailPlan::From(start - start % group), "{name}");
        // None of them would be found by the default.
        assert_ne!(plan, TailPlan::From((file_len - group) / group * group), "{name}");
        for len in [0, 47, 53, 60] {
            let short = &tail[tail.len() - len..];
            let TailPlan::NeedMore(from) = tail_start(file_len, short) else { panic!("{name} {len}") };
            assert!(from < file_len - len as u64 && from % group == 0, "{name} {len}");
        }
    }
    assert_eq!(answers.as_array().unwrap().len(), 12);
}

/// Where whole Flink checkpoints with known answers lie, if they do.
fn flink() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures");
    let root = std::env::var_os("CKPTFS_FIXTURES").map_or_else(beside, PathBuf::from).join("flink");
    root.is_dir().then_some(root)
}

/// The bytes of a file of a handle: of its own, or a segment of a larger one. `None` if the tree lacks it.
fn stored(tree: &Path, file: &Value) -> Option<Vec<u8>> {
    let bytes = fs::read(tree.join(file["in_tree"].as_str()?)).ok()?;
    let start = usize::try_from(file["start"].as_u64().unwrap_or(0)).ok()?;
    let size = usize::try_from(file["size"].as_u64()?).ok()?;
    Some(bytes[start..start + size].to_vec())
}

#[test]
fn every_flink_handle_lists_the_files_that_its_manifest_says() {
    let Some(root) = flink() else {
        println!("no Flink fixtures here: set CKPTFS_FIXTURES");
        return;
    };
    let (mut handles, mut tables) = (0, 0);
    for fixture in fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let truth = json(&fixture.join("TRUTH.json"));
        let tree = fixture.join("tree");
        for handle in keyed_handles(&truth) {
            let lists = ["shared_state", "private_state"].map(|list| handle[list].as_array());
            let files: BTreeMap<&str, &Value> = (lists.into_iter().flatten().flatten())
                .filter_map(|file| Some((file["local_path"].as_str()?, file)))
                .collect();
            let manifest = files.iter().find(|(name, _)| matches!(file_kind(name), FileKind::Manifest(_)));
            let Some(bytes) = manifest.and_then(|(_, file)| stored(&tree, file)) else { continue };
            let live = read_manifest(&bytes).unwrap();
            let found: BTreeMap<String, u64> = live.ssts.iter().map(|sst| (sst_name(sst.number), sst.size)).collect();
            let expected: BTreeMap<String, u64> = files
                .iter()
                .filter(|(name, _)| matches!(file_kind(name), FileKind::Sst(_)))
                .map(|(name, file)| ((*name).to_owned(), file["size"].as_u64().unwrap()))
                .collect();
            assert_eq!(found, expected, "{}", fixture.display());
            let mut names: Vec<&str> = live.column_families.iter().map(|family| &*family.name).collect();
            names.sort_unstable();
            // A handle whose files were deleted under it did not open; its MANIFEST is whole all the same.
            if let Some(states) = handle["rocksdb"].as_object().filter(|states| !states.contains_key("error")) {
                let mut states: Vec<&str> = states.keys().map(String::as_str).collect();
                states.sort_unstable();
                assert_eq!(names, states, "{}", fixture.display());
            }
            let number = parse_current(&stored(&tree, files["CURRENT"]).unwrap()).unwrap();
            assert!(files.contains_key(manifest_name(number).as_str()));
            handles += 1;
            for (name, file) in &files {
                if let (FileKind::Sst(_), Some(bytes)) = (file_kind(name), stored(&tree, file)) {
                    tables += 1;
                    assert_eq!(tail_start(bytes.len() as u64, &bytes), TailPlan::From(0), "{name}");
                }
            }
        }
    }
    assert!(handles > 50 && tables > 500, "{handles} {tables}");
}

fn keyed_handles(truth: &Value) -> Vec<&Value> {
    fn items<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        value[name].as_array().into_iter().flatten()
    }
    items(truth, "checkpoints")
        .flat_map(|checkpoint| items(checkpoint, "operators"))
        .flat_map(|operator| items(operator, "subtasks"))
        .flat_map(|subtask| items(subtask, "managed_keyed"))
        .collect()
}

fn records(manifest: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = Records::new(manifest);
    std::iter::from_fn(|| reader.next().unwrap().map(|record| record.bytes.into_owned())).collect()
}

/// Everything that an answer holds was in the input.
fn bounded(input: usize, live: &LiveFiles) -> bool {
    let keys: usize = live.ssts.iter().map(|sst| sst.smallest.len() + sst.largest.len()).sum();
    keys <= input && live.ssts.len() <= input && live.blob_files.len() <= input && live.applied_len <= input as u64
}

#[derive(Debug, Clone)]
enum Change {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Cut(Index, usize),
    Swap(Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    prop_oneof![
        4 => (index(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        1 => (index(), vec(any::<u8>(), 1..12)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (index(), 1usize..40).prop_map(|(at, len)| Change::Cut(at, len)),
        1 => (index(), index()).prop_map(|(a, b)| Change::Swap(a, b)),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    if bytes.is_empty() {
        return;
    }
    let len = bytes.len();
    match change {
        Change::Set(at, byte) => bytes[at.index(len)] = *byte,
        Change::Insert(at, new) => drop(bytes.splice(at.index(len)..at.index(len), new.iter().copied())),
        Change::Cut(at, count) => drop(bytes.drain(at.index(len)..(at.index(len) + count).min(len))),
        Change::Swap(a, b) => bytes.swap(a.index(len), b.index(len)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arbitrary_bytes_are_only_refused(bytes in vec(any::<u8>(), 0..3_000), file_len in any::<u64>()) {
        if let Ok(live) = read_manifest(&bytes) {
            prop_assert!(bounded(bytes.len(), &live));
        }
        let _ = parse_current(&bytes);
        let _ = file_kind(&String::from_utf8_lossy(&bytes));
        let _ = tail_start(file_len, &bytes);
    }

    #[test]
    fn arbitrary_records_are_only_refused(records in vec(vec(any::<u8>(), 0..200), 0..10)) {
        let log = writing::log(&records);
        if let Ok(live) = read_manifest(&log) {
            prop_assert!(bounded(log.len(), &live));
        }
    }

    /// Changed inside the records and framed again, so that no checksum catches it.
    #[test]
    fn changed_edits_are_read_or_refused(
        database in select(&DATABASES[..]), changes in vec((any::<Index>(), change()), 1..6)
    ) {
        let mut records = records(&manifest(database));
        for (record, change) in &changes {
            let at = record.index(records.len());
            apply(&mut records[at], change);
        }
        let log = writing::log(&records);
        if let Ok(live) = read_manifest(&log) {
            prop_assert!(bounded(log.len(), &live));
        }
    }

    #[test]
    fn changed_manifests_are_read_or_refused(
        database in select(&DATABASES[..]), changes in vec(change(), 1..4), cut in any::<Index>()
    ) {
        let mut bytes = manifest(database);
        for change in &changes {
            apply(&mut bytes, change);
        }
        bytes.truncate(cut.index(bytes.len().max(1)) * 2);
        if let Ok(live) = read_manifest(&bytes) {
            prop_assert!(bounded(bytes.len(), &live));
        }
    }

    #[test]
    fn changed_tails_give_a_tail_in_the_file(
        name in select(&["v2", "v5", "v5-hash", "v5-partitioned", "v6", "v6-dict", "v6-large"][..]),
        changes in vec(change(), 1..6), near_the_end in any::<bool>(), more in 0u64..20_000_000
    ) {
        let mut tail = fs::read(fixtures().join(format!("tails/{name}.tail"))).unwrap();
        let mut end = tail.split_off(if near_the_end { tail.len() - 200 } else { 0 });
        for change in &changes {
            apply(&mut end, change);
        }
        tail.extend_from_slice(&end);
        let file_len = tail.len() as u64 + more;
        let group = limits::GROUP;
        let start = match tail_start(file_len, &tail) {
            TailPlan::From(start) => start,
            TailPlan::NeedMore(from) => {
                prop_assert!(from < more);
                from
            }
        };
        prop_assert!(start % group == 0 && start <= file_len);
        prop_assert!(file_len - start <= limits::ROCKS_TAIL);
    }
}
