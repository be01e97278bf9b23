//! What must be there, by what callers were told: nothing of it comes from the product's own records.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ckptfs::types::{Digest, Hasher};

/// The files of one subtask by name.
pub type Files = BTreeMap<String, Digest>;

/// Those of a whole checkpoint, by operator and subtask.
pub type Content = BTreeMap<(String, u32), Files>;

/// One number of a job.
#[derive(Debug, Clone, Default)]
pub struct Number {
    pub content: Arc<Content>,
    /// Somebody was told that it is completed.
    pub completed: bool,
    /// Somebody was told that it is aborted, before it was completed.
    pub aborted: bool,
    /// Somebody tried to expire it.
    pub doomed: bool,
    /// Somebody was told that it is expired.
    pub dead: bool,
    /// Pins that were granted and not yet taken back.
    pub pins: u32,
    /// Somebody tried to hide it.
    pub hidden: bool,
}

impl Number {
    /// Whether it must be readable, whatever happened.
    pub fn must_live(&self) -> bool {
        self.completed && (!self.doomed || self.pins > 0)
    }
}

/// A job.
#[derive(Debug, Default)]
pub struct Job {
    pub numbers: BTreeMap<u64, Number>,
    /// What attempts wanted to store that were told of no number: it may be there whole, or not at all.
    pub tried: Vec<Arc<Content>>,
}

/// All jobs.
#[derive(Debug, Default)]
pub struct Truth(Mutex<BTreeMap<String, Job>>);

impl Truth {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Job>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn with<T>(&self, job: &str, change: impl FnOnce(&mut Job) -> T) -> T {
        change(self.lock().entry(job.to_owned()).or_default())
    }

    pub fn number(&self, job: &str, n: u64) -> Number {
        self.with(job, |j| j.numbers.get(&n).cloned().unwrap_or_default())
    }

    pub fn change(&self, job: &str, n: u64, change: impl FnOnce(&mut Number)) {
        self.with(job, |j| change(j.numbers.entry(n).or_default()));
    }

    /// The numbers that must be readable now.
    pub fn living(&self, job: &str) -> Vec<u64> {
        self.with(job, |j| j.numbers.iter().filter(|(_, n)| n.must_live()).map(|(n, _)| *n).collect())
    }

    pub fn jobs(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }
}

pub fn digest(path: &Path) -> Digest {
    let mut hasher = Hasher::new();
    let mut file = File::open(path).unwrap();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer).unwrap() {
            0 => return hasher.finish(),
            n => drop(hasher.update(&buffer[..n])),
        }
    }
}

/// The files of a directory.
pub fn files(directory: &Path) -> Files {
    let entries = std::fs::read_dir(directory).unwrap().map(|e| e.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), digest(&e.path()))).collect()
}
