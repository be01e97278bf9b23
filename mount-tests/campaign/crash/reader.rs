//! Somebody who reads a whole database through a mount whose daemon is traced: right bytes or an error, never wrong bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use ckptfs::local::mount;
use ckptfs::types::Digest;

use super::scenarios::is_mounted;
use super::yard::{Files, Yard};

/// What a reader and the daemon's tracer know of each other.
#[derive(Default)]
pub struct Shared {
    /// The daemon is gone.
    pub over: AtomicBool,
    /// Nothing fails any more.
    pub healed: AtomicBool,
    /// The file that fills the disk until then.
    pub filler: Option<PathBuf>,
}

impl Shared {
    pub fn heal(&self) {
        self.healed.store(true, SeqCst);
        if let Some(filler) = &self.filler {
            let _ = fs::remove_file(filler);
        }
    }
}

/// What reading came to.
#[derive(Debug, Default)]
pub struct Seen {
    pub right: u64,
    pub errors: u64,
    pub wrong: Vec<String>,
    /// What could not be read although nothing failed any more.
    pub unread: Vec<String>,
}

const PATIENCE: Duration = Duration::from_secs(15);

/// Waits for the mount, reads everything twice, the second time with everything in order again, and unmounts.
pub fn read(yard: &Yard, shared: &Shared) -> Seen {
    let point = yard.path("mnt");
    let mut seen = Seen::default();
    let begun = Instant::now();
    while !is_mounted(&point) {
        if shared.over.load(SeqCst) || begun.elapsed() > PATIENCE {
            return seen;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let truth = yard.truth();
    let trees: Vec<(String, &Files)> = truth
        .completed
        .iter()
        .map(|(name, subtasks)| {
            let (job, number) = name.split_once('/').unwrap();
            (format!("{job}/chk-{number}/db/0/db"), &truth.directories[&subtasks["db/0"]])
        })
        .collect();
    for (tree, files) in trees.iter().rev() {
        pass(&point.join(tree), files, &mut seen);
    }
    shared.heal();
    if !shared.over.load(SeqCst) {
        let errors = seen.errors;
        // The one call that fails may come as late as in the second pass.
        for _ in 0..2 {
            seen.unread.clear();
            for (tree, files) in &trees {
                let unread = pass(&point.join(tree), files, &mut seen);
                seen.unread.extend(unread);
            }
            if seen.unread.is_empty() {
                break;
            }
        }
        seen.errors = errors;
    }
    // Busy while a kernel thread still closes a file.
    for _ in 0..200 {
        if mount::unmount(&point, false).is_ok() || shared.over.load(SeqCst) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    seen
}

fn pass(dir: &Path, files: &Files, seen: &mut Seen) -> Option<String> {
    let mut unread = None;
    for (name, digest) in files {
        let path = dir.join(name);
        match fs::read(&path) {
            Ok(bytes) if Digest::of(&bytes).to_hex() == *digest => seen.right += 1,
            Ok(bytes) => seen.wrong.push(format!("{} read with {} wrong bytes", path.display(), bytes.len())),
            Err(e) => {
                seen.errors += 1;
                unread = Some(format!("{}: {e}", path.display()));
            }
        }
    }
    unread
}
