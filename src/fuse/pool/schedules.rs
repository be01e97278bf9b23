//! The pool in one order of steps after another: every request is answered once, also those that come with the end, and the threads end.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use crate::types::sync::thread;
use fuser::Errno;

use super::{MountCounters, Pool, Refuse};
use crate::types::sync::schedules::explore;

/// A reply and where it notes what it was told.
struct Reply(usize, Arc<Mutex<Vec<(usize, Option<u32>)>>>);

impl Refuse for Reply {
    fn refuse(self, _: Errno) {
        self.1.lock().unwrap().push((self.0, None));
    }
}

#[allow(clippy::needless_pass_by_value, reason = "a reply is used up by answering")]
fn say(reply: Reply, n: u32) {
    reply.1.lock().unwrap().push((reply.0, Some(n)));
}

#[test]
fn every_request_is_answered_once_and_a_shutdown_leaves_none() {
    let late = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = Arc::clone(&late);
    explore("requests and shutdown", move || {
        let said = Arc::new(Mutex::new(Vec::new()));
        let pool = Arc::new(Pool::new(Arc::new(MountCounters::default())));
        let shared = Arc::downgrade(&pool.0);
        let callers: Vec<_> = (0..2)
            .map(|caller| {
                let (pool, said) = (Arc::clone(&pool), Arc::clone(&said));
                thread::spawn(move || {
                    for n in 0..2 {
                        let id = caller * 2 + n;
                        // The last one's time is over when it comes.
                        let patience = if id == 3 { Duration::ZERO } else { Duration::from_secs(3600) };
                        let work = move || {
                            thread::yield_now();
                            u32::try_from(id).unwrap()
                        };
                        pool.run(patience, Reply(id, Arc::clone(&said)), work, say);
                    }
                })
            })
            .collect();
        drop(pool);
        for caller in callers {
            caller.join().unwrap();
        }
        // The last caller dropped the pool. Its threads end, and hold nothing.
        while shared.strong_count() > 0 {
            thread::yield_now();
        }
        let mut said = said.lock().unwrap().clone();
        said.sort_unstable();
        let ids: Vec<_> = said.iter().map(|s| s.0).collect();
        assert_eq!(ids, [0, 1, 2, 3], "each is answered once: {said:?}");
        for (id, answer) in said {
            assert!(answer.map_or(id == 3, |n| n as usize == id), "{id} got {answer:?}");
            late.fetch_add(u64::from(answer.is_none()), std::sync::atomic::Ordering::Relaxed);
        }
    });
    let late = counted.load(std::sync::atomic::Ordering::Relaxed);
    println!("{late} requests were late");
    assert!(late > 0);
}
