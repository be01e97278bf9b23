//! Flink's own checkpoints: imported with the real program, looked at through a real mount, compared with what Flink's classes and FRocksDB
//! said of them (`TRUTH.json`). Some trees lie in `fixtures/flink-trees`; all are used where `CKPTFS_FIXTURES` or `../shared/fixtures` is.

mod damaged;
mod follow;
mod s3;

#[cfg(feature = "rocksdb")]
mod rows;
#[cfg(feature = "rocksdb")]
mod state;
pub mod truth;

use std::collections::BTreeMap;
use std::path::Path;

use ckptfs::flink::metadata::{self, StreamHandle, streams};

use super::tool::Desk;
use truth::{Checkpoint, Handle, Tree, sha256, trees};

/// Imports every checkpoint of a tree whose files are all there, in order; those that were not refused.
fn import(desk: &Desk, tree: &Tree) -> Vec<(String, Checkpoint)> {
    let mut taken = Vec::new();
    for checkpoint in tree.checkpoints() {
        let args = ["import", "flink", checkpoint.directory.to_str().unwrap(), "--job", &checkpoint.job];
        let said = desk.run(&args);
        if checkpoint.missing().is_empty() {
            taken.push((said.ok().trim().to_owned(), checkpoint));
        } else {
            damaged::is_refused(desk, &said, &checkpoint);
        }
    }
    taken
}

/// The digests of the files that a handle has, as they are on the mount.
pub fn check_files(directory: &Path, handle: &Handle, digests: &mut BTreeMap<(String, u64, String), u64>) {
    for (path, sha, size) in handle.files() {
        let bytes =
            std::fs::read(directory.join(&path)).unwrap_or_else(|e| panic!("{}/{path}: {e}", directory.display()));
        assert_eq!((sha256(&bytes), bytes.len() as u64), (sha.clone(), size), "{}/{path}", directory.display());
        digests.insert((handle.operator.clone(), handle.subtask, sha), size);
    }
}

/// Every file that the restorable directory's `_metadata` names is beside it, with its size; nothing leads out of it.
fn check_restorable(directory: &Path) {
    let read = metadata::read(&std::fs::read(directory.join("_metadata")).unwrap()).unwrap();
    let mut named = 0;
    streams::<String>(&read, |place, handle| match handle {
        StreamHandle::Relative { path, size } => {
            let found = std::fs::metadata(directory.join(path)).map_err(|e| format!("{place:?} {path}: {e}"))?;
            assert!(!path.contains('/'), "{path}");
            assert_eq!(found.len(), u64::try_from(*size).unwrap(), "{place:?}");
            named += 1;
            Ok(())
        }
        StreamHandle::Inline { .. } if place.subtask.is_none() => Ok(()),
        other => Err(format!("{place:?} is {other:?}")),
    })
    .unwrap();
    assert!(named > 0, "{} names nothing", directory.display());
}

#[test]
fn every_checkpoint_is_on_the_mount_as_flink_wrote_it() {
    let mut handles = 0;
    for tree in trees() {
        let desk = Desk::new();
        let taken = import(&desk, &tree);
        assert!(!taken.is_empty(), "{} has no whole checkpoint", tree.name);
        let mount = desk.mount("cache");
        let mut unique = BTreeMap::new();
        for (path, checkpoint) in &taken {
            for handle in checkpoint.handles() {
                let directory = mount.join(path).join(&handle.operator).join(handle.subtask.to_string());
                check_files(&directory, &handle, &mut unique);
                for (path, bytes) in handle.parts() {
                    assert_eq!(std::fs::read(directory.join(&path)).unwrap(), bytes, "{path}");
                }
                #[cfg(feature = "rocksdb")]
                rows::check(&directory, &handle);
                handles += 1;
            }
            check_restorable(&mount.join(path).join("flink"));
        }
        desk.ok(&["umount", "mnt"]);
        // What is stored is each subtask's content, once: beside it only the `_metadata` that Flink restores from, and what packs small files.
        let stored = truth::bytes_below(&desk.path("store/blobs"));
        let content: u64 = unique.values().sum();
        let metadata: u64 = taken.iter().map(|(_, c)| c.metadata_length()).sum();
        println!(
            "{}: {} checkpoints, unique content {content}, stored {stored}, Flink stored {}",
            tree.name,
            taken.len(),
            truth::bytes_below(&tree.root),
        );
        assert!(stored < content + metadata + content / 20, "{}: {stored} of {content}", tree.name);
        desk.ok(&["verify", "--read"]);
    }
    assert!(handles > 40, "only {handles} handles were looked at");
}

#[test]
fn the_same_again_is_not_read_again() {
    let tree = trees().into_iter().find(|t| t.name == "incr-p2").unwrap();
    let desk = Desk::new();
    let checkpoints = tree.checkpoints();
    let job = checkpoints[0].directory.parent().unwrap().to_str().unwrap().to_owned();
    let first: serde_json::Value =
        serde_json::from_str(&desk.ok(&["--json", "import", "flink", &job, "--job", "j"])).unwrap();
    assert_eq!(first["checkpoints"].as_array().unwrap().len(), checkpoints.len());
    assert_eq!(first["orphans"]["count"], 0, "{}", first["orphans"]);
    for (n, one) in first["checkpoints"].as_array().unwrap().iter().enumerate() {
        let number = |key: &str| one[key].as_u64().unwrap();
        // Files that Flink uploaded before are not read again, but its own new ones are.
        let most = checkpoints[n].new_bytes(&checkpoints[..n]);
        assert!(number("read_bytes") <= most, "{n}: {} of at most {most}", number("read_bytes"));
        assert!(n == 0 || number("reused_bytes") > 0, "{one}");
    }
    let again: serde_json::Value =
        serde_json::from_str(&desk.ok(&["--json", "import", "flink", &job, "--job", "j"])).unwrap();
    for one in again["checkpoints"].as_array().unwrap() {
        assert_eq!((&one["imported"], &one["read_bytes"]), (&false.into(), &0.into()));
    }
    // An expired one does not come back under its number.
    let oldest = &checkpoints[0];
    desk.ok(&["expire", &format!("j/chk-{}", oldest.number)]);
    let at = oldest.directory.to_str().unwrap();
    desk.run(&["import", "flink", at, "--job", "j"]).fails(1, &["has expired", "--job"]);
    // The same number of another job is not the same checkpoint.
    let other = trees().into_iter().find(|t| t.name == "incr-p2-savepoint-native").unwrap();
    let savepoint = &other.checkpoints()[0];
    let at = savepoint.directory.to_str().unwrap().to_owned();
    desk.ok(&["import", "flink", &at, "--job", "j"]);
    assert!(desk.ok(&["ls", "j"]).contains("savepoint"));
    let clash = trees().into_iter().find(|t| t.name == "flink120-p2-savepoint-native").unwrap();
    let clash = &clash.checkpoints()[0];
    if clash.number == savepoint.number {
        desk.run(&["import", "flink", clash.directory.to_str().unwrap(), "--job", "j"])
            .fails(1, &["another checkpoint"]);
    }
}
