//! Single flight: of all threads that want one digest, one fetches, and the others wait for it.

use std::sync::{Arc, PoisonError};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use super::error::CacheError;
use crate::types::sync::{Condvar, Mutex, MutexGuard, step};
use crate::types::{BlobName, Digest};

/// Everything that is being fetched by this process.
#[derive(Debug, Default)]
pub(super) struct Flights {
    running: DashMap<Digest, Arc<Flight>>,
}

#[derive(Debug)]
struct Flight {
    /// Where the leader gets the bytes. Another upload of the same bytes may be whole where this one is damaged.
    sources: Vec<BlobName>,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Clone)]
enum State {
    Running,
    Fetched,
    Failed(Arc<CacheError>),
    /// The leader panicked.
    Abandoned,
}

/// What a thread that wants a digest has to do.
pub(super) enum Joined<'a> {
    /// Fetch it.
    Lead(Leader<'a>),
    /// Look again: it was fetched, or somebody failed whose failure says nothing about us.
    LookAgain,
    /// Give up: what we would do has just failed.
    Failed(Arc<CacheError>),
}

impl Flight {
    fn state(&self) -> MutexGuard<'_, State> {
        // The state is one value: whole even if a thread died while it held the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) -> State {
        let mut state = self.state();
        while matches!(*state, State::Running) {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.clone()
    }
}

impl Flights {
    /// Takes the lead, or waits for who has it.
    pub(super) fn join(&self, digest: &Digest, sources: &[BlobName]) -> Joined<'_> {
        step();
        let flight = match self.running.entry(*digest) {
            Entry::Vacant(vacant) => {
                let flight = Arc::new(Flight {
                    sources: sources.to_vec(),
                    state: Mutex::new(State::Running),
                    ended: Condvar::new(),
                });
                vacant.insert(Arc::clone(&flight));
                return Joined::Lead(Leader { flights: self, digest: *digest, flight });
            }
            // The map's lock is given back before we wait.
            Entry::Occupied(running) => Arc::clone(running.get()),
        };
        match flight.wait() {
            State::Failed(e) if flight.sources == sources => Joined::Failed(e),
            _ => Joined::LookAgain,
        }
    }
}

/// The duty to fetch a digest.
pub(super) struct Leader<'a> {
    flights: &'a Flights,
    digest: Digest,
    flight: Arc<Flight>,
}

impl Leader<'_> {
    /// Tells those who wait how it ended.
    pub(super) fn end(self, failed: Option<&Arc<CacheError>>) {
        let state = failed.map_or(State::Fetched, |e| State::Failed(Arc::clone(e)));
        *self.flight.state() = state;
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        // Off the list first: who comes after the end begins anew.
        self.flights.running.remove(&self.digest);
        let mut state = self.flight.state();
        if matches!(*state, State::Running) {
            *state = State::Abandoned;
        }
        drop(state);
        self.flight.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Uid;

    fn name(n: u8) -> BlobName {
        BlobName { digest: Digest::of(b"x"), uid: Uid::from_bytes([n; 16]) }
    }

    #[test]
    fn a_failure_is_shared_only_by_those_who_would_do_the_same_and_a_panic_frees_the_digest() {
        let flights = Flights::default();
        let digest = Digest::of(b"x");
        let Joined::Lead(lead) = flights.join(&digest, &[name(1)]) else { panic!("nobody else is there") };
        let entered = std::sync::Barrier::new(3);
        std::thread::scope(|s| {
            let wait = |n: u8| {
                let (flights, entered) = (&flights, &entered);
                s.spawn(move || {
                    entered.wait();
                    match flights.join(&digest, &[name(n)]) {
                        Joined::Lead(_) => "lead",
                        Joined::LookAgain => "again",
                        Joined::Failed(_) => "failed",
                    }
                })
            };
            let (same, other) = (wait(1), wait(2));
            entered.wait();
            // Both are in join(): they hold the flight.
            while Arc::strong_count(&lead.flight) < 4 {
                std::thread::yield_now();
            }
            let e = CacheError::Mismatch { expected: digest, why: "test".to_owned() };
            lead.end(Some(&Arc::new(e)));
            assert_eq!(same.join().unwrap(), "failed");
            assert_eq!(other.join().unwrap(), "again");
        });
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let Joined::Lead(_lead) = flights.join(&digest, &[]) else { panic!("it was freed") };
            panic!("leader dies");
        }));
        assert!(panicked.is_err());
        assert!(matches!(flights.join(&digest, &[]), Joined::Lead(_)));
    }
}
