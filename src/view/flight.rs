//! An answer that is at least as new as the question: everybody who asks waits for a run that began after they came, and all
//! who wait for the same run share its result.

use std::sync::PoisonError;

use crate::types::sync::{Condvar, Mutex};

/// Runs of one question.
pub(super) struct Flight<T> {
    state: Mutex<State<T>>,
    done: Condvar,
}

struct State<T> {
    /// How many runs have begun.
    begun: u64,
    running: bool,
    /// The run that ended last, and what came out.
    last: Option<(u64, T)>,
}

impl<T> Default for Flight<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { begun: 0, running: false, last: None }), done: Condvar::new() }
    }
}

/// Ends a run whatever happens, so that a panic leaves nobody waiting.
struct Landing<'a, T>(&'a Flight<T>);

impl<T> Drop for Landing<'_, T> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).running = false;
        self.0.done.notify_all();
    }
}

impl<T: Clone> Flight<T> {
    /// The result of a run that began after this call.
    pub(super) fn fresh(&self, run: impl FnOnce() -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = state.begun.saturating_add(1);
        loop {
            if let Some((number, result)) = &state.last
                && *number >= needed
            {
                return result.clone();
            }
            if !state.running {
                break;
            }
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.running = true;
        state.begun = state.begun.saturating_add(1);
        let number = state.begun;
        drop(state);
        let landing = Landing(self);
        let result = run();
        self.state.lock().unwrap_or_else(PoisonError::into_inner).last = Some((number, result.clone()));
        drop(landing);
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_run_that_began_before_is_not_believed_and_later_ones_are_shared() {
        let flight = Flight::default();
        let runs = AtomicU64::new(0);
        let (entered, has_entered) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        thread::scope(|s| {
            let (flight, runs) = (&flight, &runs);
            let first = s.spawn(move || {
                flight.fresh(|| {
                    entered.send(()).unwrap();
                    may_go.recv().unwrap();
                    runs.fetch_add(1, Ordering::SeqCst) + 1
                })
            });
            has_entered.recv().unwrap();
            let others: Vec<_> = (0..8)
                .map(|_| {
                    s.spawn(|| {
                        flight.fresh(|| {
                            thread::sleep(Duration::from_millis(20));
                            runs.fetch_add(1, Ordering::SeqCst) + 1
                        })
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(100));
            go.send(()).unwrap();
            assert_eq!(first.join().unwrap(), 1);
            for other in others {
                assert_eq!(other.join().unwrap(), 2, "all eight came during run 1 and share run 2");
            }
        });
    }

    #[test]
    fn a_panic_leaves_nobody_waiting() {
        let flight = Flight::<u32>::default();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| flight.fresh(|| panic!("planted"))));
        assert!(caught.is_err());
        assert_eq!(flight.fresh(|| 7), 7);
    }
}

#[cfg(all(test, feature = "schedules"))]
mod schedules;
