//! Threads for what may wait, so that the event threads never do, and a deadline for every request that waits: when it
//! passes, the caller gets an error at once, and the work that is still going on answers nobody.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use fuser::Errno;

use crate::metrics::MountCounters;
use crate::types::sync::{Condvar, Mutex, thread};

/// Most threads that wait at once. Each is one request to the store or one copy of a file; more would not make either faster.
const WORKERS: usize = 64;

/// A reply that can be refused.
pub(super) trait Refuse: Send + 'static {
    /// Answers with an error.
    fn refuse(self, errno: Errno);
}

macro_rules! refuse {
    ($($reply:ident),*) => { $(impl Refuse for fuser::$reply { fn refuse(self, errno: Errno) { self.error(errno); } })* };
}
refuse!(ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyXattr);

/// A reply that either the worker or the deadline takes.
struct Slot<R>(Arc<Mutex<Option<R>>>);

impl<R> Clone for Slot<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R> Slot<R> {
    fn take(&self) -> Option<R> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    deadlines: BTreeMap<(Instant, u64), Job>,
    threads: usize,
    idle: usize,
    next: u64,
    timer: bool,
    stopped: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    time: Condvar,
    counters: Arc<MountCounters>,
}

/// The threads. They end when the pool is dropped and their work is done.
pub(super) struct Pool(Arc<Shared>);

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).stopped = true;
        self.0.work.notify_all();
        self.0.time.notify_all();
    }
}

impl Pool {
    pub(super) fn new(counters: Arc<MountCounters>) -> Self {
        Self(Arc::new(Shared { counters, ..Shared::default() }))
    }

    /// Does `work` on some thread, and gives what comes out to `answer` together with the reply. When `patience` ends first,
    /// the reply is refused with EIO, and what comes out is dropped.
    pub(super) fn run<R: Refuse, T>(
        &self,
        patience: Duration,
        reply: R,
        work: impl FnOnce() -> T + Send + 'static,
        answer: impl FnOnce(R, T) + Send + 'static,
    ) {
        let shared = &self.0;
        shared.counters.waited.inc();
        let waiting = shared.counters.waiting.hold();
        let slot = Slot(Arc::new(Mutex::new(Some(reply))));
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = (Instant::now() + patience, state.next);
        state.next = state.next.wrapping_add(1);
        let late = slot.clone();
        let counters = shared.counters.clone();
        state.deadlines.insert(
            deadline,
            Box::new(move || {
                if let Some(reply) = late.take() {
                    counters.deadlines.inc();
                    log::warn!("a request was not answered within {} s: given up", patience.as_secs());
                    reply.refuse(Errno::EIO);
                }
            }),
        );
        let for_worker = Arc::downgrade(shared);
        let counters = shared.counters.clone();
        state.queue.push_back(Box::new(move || {
            let _waiting = waiting;
            // Nobody waits any more: then there is no reason to fetch anything either.
            if slot.0.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                let outcome = catch_unwind(AssertUnwindSafe(|| {
                    let result = work();
                    if let Some(reply) = slot.take() {
                        answer(reply, result);
                    }
                }));
                if outcome.is_err() {
                    counters.panics.inc();
                    log::error!("a request's handler panicked; the caller gets an I/O error");
                    if let Some(reply) = slot.take() {
                        reply.refuse(Errno::EIO);
                    }
                }
            }
            if let Some(shared) = for_worker.upgrade() {
                shared.state.lock().unwrap_or_else(PoisonError::into_inner).deadlines.remove(&deadline);
            }
        }));
        if !state.timer {
            state.timer = self.spawn("ckptfs-timer", Shared::keep_time);
        }
        if state.queue.len() > state.idle && state.threads < WORKERS && self.spawn("ckptfs-worker", Shared::serve) {
            state.threads += 1;
        }
        drop(state);
        shared.work.notify_one();
        shared.time.notify_one();
    }

    fn spawn(&self, name: &str, body: impl FnOnce(&Shared) + Send + 'static) -> bool {
        let shared = self.0.clone();
        match thread::Builder::new().name(name.to_owned()).spawn(move || body(&shared)) {
            Ok(_) => true,
            Err(e) => {
                // The threads that there are go on; without any, deadlines and callers would wait for the next try.
                log::error!("cannot start a thread: {e}");
                false
            }
        }
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                job();
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            } else if state.stopped {
                return;
            } else {
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }

    fn keep_time(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            match state.deadlines.first_key_value().map(|(at, _)| at.0) {
                Some(at) if at <= now => {
                    if let Some((_, job)) = state.deadlines.pop_first() {
                        drop(state);
                        if catch_unwind(AssertUnwindSafe(job)).is_err() {
                            self.counters.panics.inc();
                        }
                        state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                    }
                }
                Some(at) => {
                    let patience = at.saturating_duration_since(now);
                    state = self.time.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
                }
                None if state.stopped => return,
                None => state = self.time.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    #[derive(Debug, PartialEq)]
    enum Said {
        Answer(u32),
        Refused,
    }

    struct Reply(Sender<Said>);

    impl Refuse for Reply {
        fn refuse(self, _: Errno) {
            self.0.send(Said::Refused).unwrap();
        }
    }

    #[allow(clippy::needless_pass_by_value, reason = "a reply is used up by answering")]
    fn say(reply: Reply, n: u32) {
        reply.0.send(Said::Answer(n)).unwrap();
    }

    #[test]
    fn answers_panics_and_deadlines_each_reach_the_caller_once() {
        let counters = Arc::new(MountCounters::default());
        let pool = Pool::new(counters.clone());
        let long = Duration::from_secs(60);
        let (to, from) = channel();
        pool.run(long, Reply(to.clone()), || 7, say);
        assert_eq!(from.recv().unwrap(), Said::Answer(7));
        pool.run(long, Reply(to.clone()), || -> u32 { panic!("planted") }, say);
        assert_eq!(from.recv().unwrap(), Said::Refused);
        assert_eq!(counters.panics.get(), 1);
        let (go, may_go) = channel::<()>();
        let begun = Instant::now();
        pool.run(
            Duration::from_millis(50),
            Reply(to.clone()),
            move || {
                may_go.recv().unwrap();
                8
            },
            say,
        );
        assert_eq!(from.recv().unwrap(), Said::Refused);
        assert!(begun.elapsed() < Duration::from_secs(20));
        go.send(()).unwrap();
        // More requests than threads, all of them answered.
        for n in 0..500 {
            pool.run(long, Reply(to.clone()), move || n, say);
        }
        drop((to, pool));
        let mut got: Vec<_> = from.iter().collect();
        assert_eq!(got.len(), 500);
        got.retain(|s| *s == Said::Refused);
        assert_eq!(got, []);
        assert_eq!(counters.deadlines.get(), 1);
    }
}

#[cfg(all(test, feature = "schedules"))]
mod schedules;
