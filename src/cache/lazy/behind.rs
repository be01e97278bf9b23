//! What is fetched without anybody waiting for it: runs ahead of sequential readers, then whole files that were read.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use super::{LazyFile, lock};
use crate::limits;
use crate::types::sync::{
    Condvar, Mutex,
    atomic::{AtomicBool, Ordering},
    thread,
};

/// A thread without work ends after this long.
const IDLE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct State {
    /// Files whose last group landed: they are kept although their reader closes them.
    complete: VecDeque<Arc<LazyFile>>,
    soon: VecDeque<(Weak<LazyFile>, Range<u64>)>,
    files: VecDeque<Weak<LazyFile>>,
    threads: usize,
    idle: usize,
    /// Requests that are on their way: of readers, and of nobody.
    first: usize,
    others: usize,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    turns: Condvar,
    off: AtomicBool,
    full: AtomicBool,
}

/// The threads that fetch behind, and the turns of all that fetch.
#[derive(Debug, Default)]
pub(in crate::cache) struct Behind(Arc<Shared>);

/// Leave to make one request.
pub(super) struct Turn<'a>(&'a Shared, bool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        if self.1 {
            state.first = state.first.saturating_sub(1);
        } else {
            state.others = state.others.saturating_sub(1);
        }
        drop(state);
        self.0.turns.notify_all();
    }
}

/// What a thread does next.
enum Work {
    Seal(Arc<LazyFile>),
    Soon(Arc<LazyFile>, Range<u64>),
    Fill(Arc<LazyFile>),
}

impl Behind {
    /// Whole files are not fetched behind any more; what is ahead of a reader still is.
    pub(in crate::cache) fn turn_off(&self) {
        self.0.off.store(true, Ordering::Relaxed);
    }

    /// Waits for leave to make a request. Those that somebody waits for (`first`) take turns among themselves only. Where the store is
    /// `paced`, one of the others at a time: each has its share of the rate reserved, and readers wait for that.
    pub(super) fn turn(&self, first: bool, paced: bool) -> Turn<'_> {
        let behind = if paced { 1 } else { limits::LAZY_BEHIND };
        let shared = &*self.0;
        let mut state = lock(&shared.state);
        loop {
            let room = if first {
                state.first < limits::LAZY_REQUESTS
            } else {
                state.others < behind && state.first + state.others < limits::LAZY_REQUESTS
            };
            if room {
                break;
            }
            state = shared.turns.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if first {
            state.first += 1;
        } else {
            state.others += 1;
        }
        Turn(shared, first)
    }

    /// Says once that the disk does not take what is fetched.
    pub(super) fn cannot_write(&self, cache: &Path, e: &std::io::Error) {
        if !self.0.full.swap(true, Ordering::Relaxed) {
            log::warn!(
                "what is read cannot be kept in the cache {} ({e}): it is fetched again each time; free space there",
                cache.display()
            );
        }
    }

    pub(super) fn complete(&self, file: &Arc<LazyFile>) {
        self.add(|state| state.complete.push_back(Arc::clone(file)));
    }

    pub(super) fn soon(&self, file: &Arc<LazyFile>, groups: Range<u64>) {
        self.add(|state| {
            // A reader that is far ahead of the link has nothing from more of this.
            if state.soon.len() < limits::LAZY_SOON {
                state.soon.push_back((Arc::downgrade(file), groups));
            }
        });
    }

    pub(super) fn fill(&self, file: &Arc<LazyFile>) {
        if !self.0.off.load(Ordering::Relaxed) {
            self.add(|state| state.files.push_back(Arc::downgrade(file)));
        }
    }

    fn add(&self, add: impl FnOnce(&mut State)) {
        let mut state = lock(&self.0.state);
        add(&mut state);
        if state.idle == 0 && state.threads < limits::LAZY_BEHIND {
            let shared = Arc::clone(&self.0);
            let started = thread::Builder::new().name("ckptfs-behind".to_owned()).spawn(move || shared.serve());
            match started {
                Ok(_) => state.threads += 1,
                // The next one that comes tries again.
                Err(e) => log::error!("cannot start a thread: {e}"),
            }
        }
        drop(state);
        self.0.work.notify_one();
    }
}

impl Shared {
    fn next(state: &mut State) -> Option<Work> {
        if let Some(file) = state.complete.pop_front() {
            return Some(Work::Seal(file));
        }
        while let Some((file, groups)) = state.soon.front() {
            if let Some(file) = file.upgrade() {
                return Some(Work::Soon(file, groups.clone()));
            }
            state.soon.pop_front();
        }
        while let Some(file) = state.files.front() {
            if let Some(file) = file.upgrade() {
                return Some(Work::Fill(file));
            }
            state.files.pop_front();
        }
        None
    }

    fn serve(&self) {
        let mut state = lock(&self.state);
        loop {
            let Some(work) = Self::next(&mut state) else {
                state.idle += 1;
                let (woken, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
                state = woken;
                state.idle -= 1;
                let nothing = state.complete.is_empty() && state.soon.is_empty() && state.files.is_empty();
                if waited.timed_out() && nothing {
                    state.threads -= 1;
                    return;
                }
                continue;
            };
            drop(state);
            self.work_on(work);
            state = lock(&self.state);
        }
    }

    fn work_on(&self, work: Work) {
        match work {
            Work::Seal(file) => {
                if let Err(e) = file.seal() {
                    log::warn!("{} is whole, and cannot be kept: {e}", file.digest);
                }
            }
            Work::Soon(file, groups) => {
                let more = file.work(&groups, false).unwrap_or_else(|e| {
                    log::debug!("not read ahead: {e}");
                    false
                });
                if !more {
                    let mut state = lock(&self.state);
                    state.soon.retain(|(f, g)| !(std::ptr::eq(f.as_ptr(), Arc::as_ptr(&file)) && *g == groups));
                }
            }
            Work::Fill(file) => {
                // Where it does not fit, it is read in parts on.
                let all = lock(&file.groups).all();
                let more = file.fits()
                    && file.work(&all, false).unwrap_or_else(|e| {
                        // A reader will meet the same, and is told.
                        log::info!("{} is not fetched whole: {e}", file.digest);
                        false
                    });
                // One whose sealing failed, on a disk that was full.
                if !more && file.unsealed() {
                    self.work_on(Work::Seal(Arc::clone(&file)));
                }
                if !more {
                    let mut state = lock(&self.state);
                    // Where it failed, the next one who reads it has it tried again.
                    file.queued.store(false, Ordering::Release);
                    state.files.retain(|f| !std::ptr::eq(f.as_ptr(), Arc::as_ptr(&file)));
                }
            }
        }
    }
}
