//! What was last listed of the store. A thread of its own lists, so that a scrape does not wait for a store that is slow or dead; and only when
//! somebody asks, since a listing costs requests for each job.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::troubles::{self, Told, Trouble};
use crate::cache::{Cache, Occupied};
use crate::lifecycle::{Catalog, Checkpoint, JobListing, driver};
use crate::types::Name;

/// A scrape is told what is at most so old, or what the one before it had asked for.
const INTERVAL: Duration = Duration::from_secs(10);

/// A page wants no older listing than this, where the store answers.
const FRESH: Duration = Duration::from_secs(1);

/// How long a page waits for a listing before it shows the last one.
const PATIENCE: Duration = Duration::from_secs(2);

/// One job.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) listing: JobListing,
    /// Completed ones in the view.
    pub(super) visible: usize,
}

impl Job {
    pub(super) fn latest(&self) -> Option<&Checkpoint> {
        self.listing.latest()
    }
}

/// What is known of the store.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) jobs: BTreeMap<Name, Arc<Job>>,
    /// When the listing began that this came of.
    pub(super) listed: Option<SystemTime>,
    /// Why the last one failed, if it did.
    pub(super) failure: Option<Told>,
    /// Disks with too little room.
    pub(super) disks: Vec<Told>,
    /// What the cache takes, where it could be looked at.
    pub(super) room: Option<Occupied>,
}

impl Known {
    /// All that is wrong.
    pub(super) fn troubles(&self) -> impl Iterator<Item = &Told> {
        self.failure.iter().chain(&self.disks)
    }

    pub(super) fn listed_seconds(&self) -> f64 {
        self.listed.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map_or(0.0, |d| d.as_secs_f64())
    }
}

#[derive(Debug, Default)]
struct State {
    known: Arc<Known>,
    /// When the last listing ended, well or not.
    ended: Option<Instant>,
    wanted: bool,
    stopped: bool,
}

/// The thread and what it found.
#[derive(Debug, Default)]
pub(super) struct Listings {
    state: Mutex<State>,
    changed: Condvar,
}

impl Listings {
    /// Starts the thread. It ends when [`Listings::stop`] is called.
    pub(super) fn start(catalog: Catalog, cache: Cache) -> std::io::Result<Arc<Self>> {
        let listings = Arc::new(Self::default());
        let own = Arc::clone(&listings);
        std::thread::Builder::new().name("ckptfs-listings".to_owned()).spawn(move || own.run(&catalog, &cache))?;
        Ok(listings)
    }

    fn run(&self, catalog: &Catalog, cache: &Cache) {
        let mut next_look = Instant::now();
        let mut room = None;
        loop {
            let begun = SystemTime::now();
            let found = list(catalog);
            let disks = disks(catalog, cache);
            let looking = Instant::now();
            if looking >= next_look {
                room = cache.occupied().ok();
                // However many files it has, looking at them takes at most a tenth of the time.
                next_look = Instant::now() + looking.elapsed().saturating_mul(9);
            }
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.known = Arc::new(match found {
                Ok(jobs) => Known { jobs, listed: Some(begun), failure: None, disks, room },
                Err(e) => {
                    Known { failure: Some(troubles::of_listing(&e.into())), disks, room, ..(*state.known).clone() }
                }
            });
            state.ended = Some(Instant::now());
            state.wanted = false;
            self.changed.notify_all();
            while !state.wanted {
                if state.stopped {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    pub(super) fn stop(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stopped = true;
        self.changed.notify_all();
    }

    /// What was found the last time. Never waits: what is too old is listed anew for whoever asks next.
    pub(super) fn known(&self) -> Arc<Known> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.ended.is_some_and(|ended| ended.elapsed() >= INTERVAL) {
            state.wanted = true;
            self.changed.notify_all();
        }
        Arc::clone(&state.known)
    }

    /// What is there now, or the last that was found when the store does not say at once.
    pub(super) fn fresh(&self) -> Arc<Known> {
        let asked = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |state: &State| state.ended.is_some_and(|ended| asked.saturating_duration_since(ended) < FRESH);
        while !is_fresh(&state) && state.ended.is_none_or(|ended| ended < asked) && !state.stopped {
            let left = PATIENCE.saturating_sub(asked.elapsed());
            if left.is_zero() {
                break;
            }
            state.wanted = true;
            self.changed.notify_all();
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Arc::clone(&state.known)
    }
}

fn disks(catalog: &Catalog, cache: &Cache) -> Vec<Told> {
    // What cannot be looked at is told by the listing.
    let store = catalog.store().disk().ok().flatten().map(|(path, room)| (Trouble::StoreDisk, path, room));
    let local = cache.disk().ok().map(|room| (Trouble::CacheDisk, cache.path().to_owned(), room));
    store.into_iter().chain(local).filter_map(|(trouble, path, room)| troubles::of_disk(trouble, &path, room)).collect()
}

fn list(catalog: &Catalog) -> Result<BTreeMap<Name, Arc<Job>>, crate::lifecycle::LifecycleError> {
    let listings = driver::parallel(catalog.jobs()?, |job| catalog.job(&job))?;
    let jobs = listings.into_iter().map(|listing| {
        let visible = listing.visible().count();
        (listing.job.clone(), Arc::new(Job { listing, visible }))
    });
    Ok(jobs.collect())
}
