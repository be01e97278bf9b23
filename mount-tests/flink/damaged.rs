//! Checkpoints with files missing, and trees that were moved.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::super::tool::{Desk, Said};
use super::truth::{Checkpoint, trees};

/// The refusal names exactly what is missing, and nothing was published.
pub fn is_refused(desk: &Desk, said: &Said, checkpoint: &Checkpoint) {
    let missing = checkpoint.missing();
    said.fails(3, &["nothing of it was imported", &format!("{} of its files", missing.len())]);
    let told: Vec<&str> = said.err.lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(told.len(), missing.len(), "{}", said.err);
    for (operator, subtask, path) in &missing {
        let whose = format!("  {operator}/{subtask}: ");
        assert!(
            told.iter().any(|line| line.starts_with(&whose) && line.contains(path.as_str())),
            "{path}: {}",
            said.err
        );
    }
    let number = format!("chk-{} ", checkpoint.number);
    let listed = desk.run(&["ls", &checkpoint.job]);
    assert!(!listed.out.contains(&number), "{}", listed.out);
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").args(["-r"]).args([from, to]).status().unwrap().success());
}

#[test]
fn a_file_that_is_missing_or_short_is_told_and_the_rest_can_be_taken() {
    let tree = trees().into_iter().find(|t| t.name == "incr-p2").unwrap();
    let desk = Desk::new();
    copy(&tree.root, &desk.path("moved"));
    let last = tree.checkpoints().pop().unwrap();
    let at = desk.path("moved").join(last.directory.strip_prefix(&tree.root).unwrap());
    let handles = last.handles();
    let tables = |operator: &str| {
        let handle = handles.iter().find(|h| h.operator == operator && h.subtask == 0).unwrap();
        let shared = handle.truth["shared_state"].as_array().unwrap();
        shared.iter().map(|f| f["in_tree"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let lost = tables("profile-op")[0].clone();
    fs::remove_file(desk.path("moved").join(&lost)).unwrap();
    let short = tables("profile-op")[1].clone();
    let short = desk.path("moved").join(&short);
    let length = short.metadata().unwrap().len();
    fs::File::options().write(true).open(&short).unwrap().set_len(length - 1).unwrap();
    let said = desk.run(&["import", "flink", at.to_str().unwrap(), "--job", "j"]);
    said.fails(
        3,
        &[
            "2 of its files",
            "profile-op/0: db/",
            "it is not there",
            &format!("has {} bytes instead of {length}", length - 1),
        ],
    );
    assert_eq!(desk.run(&["ls", "j"]).out.lines().filter(|l| l.starts_with("chk-")).count(), 0);
    // The rest, whole handles only; and not as something that Flink could restore.
    let said = desk.run(&["import", "flink", at.to_str().unwrap(), "--job", "j", "--partial"]);
    assert!(said.err.contains("left out: profile-op/0"), "{}", said.err);
    let path = said.ok().trim().to_owned();
    let mount = desk.mount("cache");
    assert!(desk.ok(&["show", &path]).contains("flink.left-out: 2"));
    assert!(!mount.join(&path).join("profile-op/0/db").exists());
    assert!(mount.join(&path).join("profile-op/1/db/CURRENT").exists());
    assert!(mount.join(&path).join("blob-op/0/db/CURRENT").exists());
    assert_eq!(fs::read_dir(mount.join(&path).join("flink")).unwrap().count(), 0);
    desk.ok(&["umount", "mnt"]);
    // It stays what it is, and says so, when the files are there again.
    fs::remove_dir_all(desk.path("moved")).unwrap();
    copy(&tree.root, &desk.path("moved"));
    desk.run(&["import", "flink", at.to_str().unwrap(), "--job", "j"]).fails(1, &["imported in part", "--job"]);
    assert_eq!(desk.ok(&["import", "flink", at.to_str().unwrap(), "--job", "k"]).trim(), path.replace("j/", "k/"));
}

#[test]
fn a_tree_that_was_moved_in_parts_is_found_with_rewrite() {
    let tree = trees().into_iter().find(|t| t.name == "incr-p2").unwrap();
    let desk = Desk::new();
    let last = tree.checkpoints().pop().unwrap();
    let job = last.directory.parent().unwrap();
    fs::create_dir_all(desk.path("here")).unwrap();
    copy(&last.directory, &desk.path("here/the-checkpoint"));
    fs::create_dir_all(desk.path("there")).unwrap();
    copy(&job.join("shared"), &desk.path("there/files"));
    let at = desk.path("here/the-checkpoint");
    let said = desk.run(&["import", "flink", at.to_str().unwrap(), "--job", "j"]);
    said.fails(3, &["--rewrite"]);
    let name = job.file_name().unwrap().to_str().unwrap();
    let from = format!("file:/opt/flink/run/incr-p2/checkpoints/{name}/shared={}", desk.path("there/files").display());
    desk.ok(&["import", "flink", at.to_str().unwrap(), "--job", "j", "--rewrite", &from]);
    desk.run(&["import", "flink", at.to_str().unwrap(), "--rewrite", "x"]).fails(1, &["FROM=TO"]);
    // A secret of a name, or of an argument, is not told.
    let said = desk.run(&["import", "flink", at.to_str().unwrap(), "--rewrite", "s3://key:topsecret@bucket"]);
    assert!(said.code == 1 && !said.err.contains("topsecret"), "{}", said.err);
}

#[test]
fn what_is_no_checkpoint_is_told() {
    let desk = Desk::new();
    fs::create_dir(desk.path("empty")).unwrap();
    desk.run(&["import", "flink", "empty"]).fails(1, &["nothing lies there", "chk-42"]);
    desk.run(&["import", "flink", "nowhere"]).fails(1, &["nothing lies there"]);
    desk.run(&["import", "flink", "."]).fails(1, &["no _metadata", "chk-42"]);
    fs::create_dir_all(desk.path("job/shared")).unwrap();
    desk.run(&["import", "flink", "job"]).fails(1, &["no completed checkpoint yet"]);
    fs::write(desk.path("empty/_metadata"), b"hello").unwrap();
    desk.run(&["import", "flink", "empty"]).fails(3, &["_metadata"]);
    assert!(!desk.path("store").exists(), "a store was made for nothing");
}
