//! Exactly once: random histories of a whole job, against an oracle that knows nothing of the engine.
//!
//! `CKPTFS_HISTORIES=300` runs more of them, `CKPTFS_SEED=n` one of them again.
#![cfg(feature = "rocksdb")]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::print_stdout, missing_docs, unreachable_pub)]

mod history;
mod operators;
mod oracle;
mod retry;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;

/// In every run of the tests; enough that each kind of event happens many times.
const HISTORIES: u64 = 60;

#[test]
fn random_histories_end_as_the_oracle_says() {
    let only: Option<u64> = std::env::var("CKPTFS_SEED").ok().and_then(|s| s.parse().ok());
    let count = std::env::var("CKPTFS_HISTORIES").ok().and_then(|s| s.parse().ok()).unwrap_or(HISTORIES);
    let seeds: Vec<u64> = only.map_or_else(|| (1..=count).collect(), |seed| vec![seed]);
    let (queue, events) = (Mutex::new(seeds.into_iter()), Mutex::new(BTreeMap::<&'static str, u64>::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().next();
                    let Some(seed) = next else { return };
                    println!("history {seed}");
                    let counts = history::run(seed);
                    let mut events = events.lock().unwrap();
                    for (what, n) in counts {
                        *events.entry(what).or_default() += n;
                    }
                }
            });
        }
    });
    let events = events.into_inner().unwrap();
    println!("{events:?}");
    if only.is_none() {
        for what in history::KINDS {
            assert!(events.get(what).copied().unwrap_or_default() > 0, "{what} never happened: {events:?}");
        }
    }
}
