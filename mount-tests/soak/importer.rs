//! Those who take Flink's checkpoints in, are killed on the way, and compare what the mount shows with what Flink wrote.

use super::Soak;
use crate::flink::{check_files, truth::trees};

impl Soak {
    pub(super) fn importer(&self) {
        let tree = trees().into_iter().find(|t| t.name == "incr-p2").unwrap();
        let checkpoints = tree.checkpoints();
        for round in 0.. {
            let job = format!("flink-{round}");
            for checkpoint in &checkpoints {
                if !self.goes_on() {
                    return;
                }
                let args = ["-q", "import", "flink", checkpoint.directory.to_str().unwrap(), "--job", &job];
                // Killed, it is gone on with.
                while self.risk("cache-importer", &args, 30, 150).is_none() {}
                self.counts.add("checkpoints of Flink imported", 1);
                let shown = self.desk.path("mnt").join(&job).join(format!("chk-{}", checkpoint.number));
                for handle in checkpoint.handles() {
                    let directory = shown.join(&handle.operator).join(handle.subtask.to_string());
                    check_files(&directory, &handle, &mut std::collections::BTreeMap::new());
                    self.counts.add("handles of Flink compared", 1);
                }
            }
            // What was imported goes again, so that the next round stores it anew.
            for checkpoint in &checkpoints {
                let path = format!("{job}/chk-{}", checkpoint.number);
                while self.risk("cache-importer", &["-q", "expire", &path], 20, 40).is_none() {}
            }
        }
    }
}
