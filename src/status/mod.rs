//! What an operator looks at: metrics for machines, pages for people. Read-only, and apart from the requests that the kernel waits for.
//!
//! ```text
//! /metrics          OpenMetrics: what this process counted, and what it knows of the store's jobs
//! /healthz          200 while the mount answers, 503 and the reason when not
//! /                 the jobs
//! /job/JOB          a job's checkpoints over time
//! /job/JOB/chk-N    one checkpoint
//! /store            unique bytes, what a sweep would free, pins
//! /mount            residency, cache, slow requests
//! ```

mod families;
mod known;
mod page;
mod server;
mod troubles;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

pub use server::Server;

use crate::cache::{Occupied, Session};
use crate::engine::gc;
use crate::error::Result;
use crate::lifecycle::sweep::{At, SweepOptions, SweepPlan};
use crate::local;
use crate::metrics;
use crate::restore::inspect::{self, UsageReport};
use crate::types::{Digest, Silent};

/// A mount that this process serves.
#[derive(Debug, Clone)]
pub struct Mount {
    /// Where.
    pub point: PathBuf,
    /// What it counts.
    pub counters: Arc<metrics::MountCounters>,
}

/// How long what costs a look at the whole store is shown again before it is found anew.
const WHOLE_STORE: Duration = Duration::from_secs(30);

/// Something that costs, with when it was found.
type Kept<T> = Mutex<Option<(Instant, Arc<T>)>>;

/// Which checkpoints have which files, by content.
#[derive(Debug, Default)]
struct Sharing {
    usage: UsageReport,
    /// Those that have a file, oldest first.
    files: HashMap<Digest, Vec<At>>,
    /// A checkpoint's files, with their sizes.
    of: HashMap<At, HashMap<Digest, u64>>,
}

#[derive(Debug)]
struct Inner {
    session: Session,
    mount: Option<Mount>,
    begun: SystemTime,
    listings: Arc<known::Listings>,
    sharing: Kept<Sharing>,
    sweep: Kept<SweepPlan>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.listings.stop();
    }
}

/// What there is to be shown. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Status(Arc<Inner>);

/// What was kept, or what is found now. Those who come at once wait for the same search.
fn kept<T>(kept: &Kept<T>, find: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((found, value)) = &*kept
        && found.elapsed() < WHOLE_STORE
    {
        return Ok(Arc::clone(value));
    }
    let value = Arc::new(find()?);
    *kept = Some((Instant::now(), Arc::clone(&value)));
    Ok(value)
}

impl Status {
    /// Begins to look at the store from time to time.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn new(session: &Session, mount: Option<Mount>) -> Result<Self> {
        let listings =
            known::Listings::start(session.catalog.clone(), session.cache.clone()).map_err(local::no_thread)?;
        Ok(Self(Arc::new(Inner {
            session: session.clone(),
            mount,
            begun: SystemTime::now(),
            listings,
            sharing: Mutex::default(),
            sweep: Mutex::default(),
        })))
    }

    fn session(&self) -> &Session {
        &self.0.session
    }

    fn mount(&self) -> Option<&Mount> {
        self.0.mount.as_ref()
    }

    fn known(&self) -> Arc<known::Known> {
        self.0.listings.known()
    }

    fn fresh(&self) -> Arc<known::Known> {
        self.0.listings.fresh()
    }

    fn room(&self) -> Option<Occupied> {
        self.known().room
    }

    fn begun(&self) -> SystemTime {
        self.0.begun
    }

    /// What each checkpoint holds and shares.
    fn sharing(&self) -> Result<Arc<Sharing>> {
        kept(&self.0.sharing, || {
            let known = self.fresh();
            let listings: Vec<_> = known.jobs.values().map(|job| job.listing.clone()).collect();
            let mut sharing = Sharing::default();
            sharing.usage = inspect::usage_of(self.session(), &listings, |checkpoint, manifests| {
                let at = (checkpoint.job.clone(), checkpoint.number);
                let all = manifests.iter().flat_map(|m| &m.files);
                let own: HashMap<Digest, u64> = all.map(|f| (f.digest, f.size)).collect();
                for digest in own.keys() {
                    sharing.files.entry(*digest).or_default().push(at.clone());
                }
                sharing.of.insert(at, own);
            })?;
            Ok(sharing)
        })
    }

    /// What a sweep would delete.
    fn sweep(&self) -> Result<Arc<SweepPlan>> {
        kept(&self.0.sweep, || gc::plan(self.session(), SweepOptions::default(), &Silent))
    }

    /// Why the mount does not answer, where it does not.
    fn illness(&self) -> Option<String> {
        let mount = self.mount()?;
        std::fs::metadata(&mount.point).err().map(|e| format!("{} does not answer: {e}", mount.point.display()))
    }
}
