//! A fresh answer in one order of steps after another: never of a run that began before it was asked for, and nobody waits for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::sync::thread;

use super::Flight;
use crate::types::sync::schedules::explore;

#[test]
fn an_answer_is_of_a_run_that_began_after_the_question() {
    let shared = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&shared);
    explore("fresh answers", move || {
        let (flight, begun) = (Arc::new(Flight::default()), Arc::new(AtomicU64::new(0)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (flight, begun) = (Arc::clone(&flight), Arc::clone(&begun));
                thread::spawn(move || {
                    for _ in 0..2 {
                        let before = begun.load(Ordering::SeqCst);
                        let run = flight.fresh(|| {
                            let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
                            thread::yield_now();
                            assert_eq!(begun.load(Ordering::SeqCst), number, "two runs at once");
                            number
                        });
                        assert!(run > before, "run {run} had begun when {before} had");
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        shared.fetch_add(8 - begun.load(Ordering::SeqCst), Ordering::SeqCst);
    });
    let shared = counted.load(Ordering::SeqCst);
    println!("{shared} answers were shared");
    assert!(shared > 0);
}
