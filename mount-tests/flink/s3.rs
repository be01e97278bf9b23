//! Flink's checkpoints in a bucket, imported into a store in the same bucket: another place that is read and never written.

use super::super::s3::{Weed, Who};
use super::super::tool::Desk;
use super::check_files;
use super::truth::trees;

#[test]
fn checkpoints_in_a_bucket_are_imported_and_nothing_is_read_twice() {
    let weed = Weed::start();
    let mut desk = Desk::new();
    weed.serve(&mut desk, "ckptfs", Who::Writer);
    let tree = trees().into_iter().find(|t| t.name == "incr-p2").unwrap();
    let checkpoints = tree.checkpoints();
    let directory = checkpoints[0].directory.parent().unwrap();
    let job = format!("flink/{}", directory.file_name().unwrap().to_str().unwrap());
    weed.put(directory, &job);
    let from = weed.url(&job);
    let told: serde_json::Value =
        serde_json::from_str(&desk.ok(&["--json", "import", "flink", &from, "--job", "j"])).unwrap();
    for (n, one) in told["checkpoints"].as_array().unwrap().iter().enumerate() {
        let most = checkpoints[n].new_bytes(&checkpoints[..n]);
        assert!(one["read_bytes"].as_u64().unwrap() <= most, "{one}: at most {most}");
    }
    let mount = desk.mount("another-cache");
    let last = checkpoints.last().unwrap();
    for handle in last.handles() {
        let directory =
            mount.join(format!("j/chk-{}", last.number)).join(&handle.operator).join(handle.subtask.to_string());
        check_files(&directory, &handle, &mut Default::default());
    }
    desk.ok(&["umount", "mnt"]);
    desk.run(&["import", "flink", &weed.url("flink/nowhere"), "--job", "k"]).fails(1, &["nothing lies there"]);
}
