//! How often everything happened.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// By what was done, in words.
#[derive(Default)]
pub struct Counts(Mutex<BTreeMap<String, u64>>);

impl Counts {
    pub fn add(&self, what: &str, times: u64) {
        *self.0.lock().unwrap().entry(what.to_owned()).or_default() += times;
    }

    pub fn of(&self, what: &str) -> u64 {
        self.0.lock().unwrap().get(what).copied().unwrap_or_default()
    }

    pub fn starting_with(&self, what: &str) -> u64 {
        self.0.lock().unwrap().iter().filter(|(word, _)| word.starts_with(what)).map(|(_, times)| times).sum()
    }

    pub fn print(&self) {
        for (what, times) in self.0.lock().unwrap().iter() {
            println!("{times:>9} {what}");
        }
    }
}
