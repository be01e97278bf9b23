//! The two levels that change: the root with its jobs, and a job with its checkpoints. Nothing is polled. Whoever asks for
//! what may be new waits for a listing that began after the question; what is known is answered from memory.

use crate::types::now_ms;
use crate::types::sync::{
    Mutex, RwLock,
    atomic::{AtomicU64, Ordering},
};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::error::ViewError;
use super::flight::Flight;
use super::inode;
use super::node::{Directory, Entry, Latest, Node};
use super::source::{Listed, Listing};
use super::{Core, LATEST};
use crate::types::{CheckpointNumber, Name};

/// How long what was asked for by name is answered from memory: a listing would have taken it back when somebody lists.
const BELIEVED: Duration = Duration::from_secs(60);

/// So many checkpoints are asked for one by one before all are listed.
const NAMED: usize = 64;

/// All jobs that are known.
#[derive(Default)]
pub(super) struct Jobs {
    known: RwLock<BTreeMap<Name, Arc<Job>>>,
    listed_ms: RwLock<Option<u64>>,
    flight: Flight<Result<(), ViewError>>,
}

/// A job's directory.
pub(super) struct Job {
    pub(super) name: Name,
    pub(super) ino: u64,
    state: RwLock<Option<Arc<JobState>>>,
    flight: Flight<Result<Arc<JobState>, ViewError>>,
    /// Checkpoints that were asked for by name since the last listing.
    named: Mutex<BTreeMap<CheckpointNumber, (Listed, Instant)>>,
    /// How often it was listed.
    lists: AtomicU64,
    /// Checkpoints that were looked at. They stay while they are listed or in use.
    made: Mutex<BTreeMap<CheckpointNumber, Arc<Directory>>>,
}

/// What the last listing that succeeded found.
pub(super) struct JobState {
    pub(super) listing: Listing,
    pub(super) listed_ms: u64,
}

impl JobState {
    /// Whether a checkpoint lives, or somebody's pin keeps it.
    pub(super) fn can_be_read(&self, number: CheckpointNumber) -> bool {
        self.listing.checkpoints.get(&number).is_some_and(|c| !c.expired || c.pinned)
    }

    fn visible(&self) -> impl Iterator<Item = (CheckpointNumber, &Listed)> {
        self.listing.checkpoints.iter().filter(|(_, c)| !c.hidden && !c.expired).map(|(n, c)| (*n, c))
    }
}

impl Job {
    fn state(&self) -> Option<Arc<JobState>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn named(&self, number: CheckpointNumber) -> Option<Listed> {
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.get(&number).filter(|(_, asked)| asked.elapsed() < BELIEVED).map(|(listed, _)| listed.clone())
    }

    /// Whether a checkpoint is known, and not to be dead.
    pub(super) fn lives(&self, number: CheckpointNumber) -> bool {
        let listed = |state: Arc<JobState>| state.listing.checkpoints.get(&number).is_some_and(|c| !c.expired);
        self.named(number).map_or_else(|| self.state().is_some_and(listed), |c| !c.expired)
    }

    /// A checkpoint that was looked at.
    pub(super) fn made(&self, number: CheckpointNumber) -> Option<Arc<Directory>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    pub(super) fn listed_ms(&self) -> Option<u64> {
        self.state().map(|s| s.listed_ms)
    }

    pub(super) fn mtime_ms(&self) -> u64 {
        self.state().and_then(|s| s.visible().map(|(_, c)| c.manifest.completed_ms).max()).unwrap_or(0)
    }

    /// Bytes that its checkpoints uploaded, as far as they are known.
    pub(super) fn stored_bytes(&self) -> u64 {
        let state = self.state();
        let listed = state.as_ref().map(|s| &s.listing.checkpoints);
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let further = named.iter().filter(|(n, _)| listed.is_none_or(|l| !l.contains_key(n))).map(|(_, (c, _))| c);
        let all = listed.into_iter().flat_map(BTreeMap::values).chain(further);
        all.fold(0, |sum, c| sum.saturating_add(c.manifest.new_bytes))
    }
}

impl Core {
    /// Jobs by a listing that began after this call, or the last known ones while the store is unreachable.
    pub(super) fn fresh_jobs(&self) -> Result<(), ViewError> {
        self.jobs.flight.fresh(|| {
            let begun = now_ms();
            match self.source.jobs() {
                Ok(names) => {
                    self.store_answers();
                    let mut known = self.jobs.known.write().unwrap_or_else(PoisonError::into_inner);
                    *known = names.into_iter().filter_map(|name| Some((name.clone(), self.job_of(&name)?))).collect();
                    *self.jobs.listed_ms.write().unwrap_or_else(PoisonError::into_inner) = Some(begun);
                    Ok(())
                }
                Err(e) if self.jobs_listed_ms().is_some() => {
                    self.store_is_silent("the jobs", &e);
                    Ok(())
                }
                Err(e) => Err(e),
            }
        })
    }

    pub(super) fn jobs_listed_ms(&self) -> Option<u64> {
        *self.jobs.listed_ms.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing only if something else had the digest of the job's path.
    fn job_of(&self, name: &Name) -> Option<Arc<Job>> {
        let identity = inode::identity_of_path(&format!("/{name}"));
        let node = self.inodes.claim(identity, false, |ino| {
            Node::Job(Arc::new(Job {
                name: name.clone(),
                ino,
                state: RwLock::default(),
                flight: Flight::default(),
                named: Mutex::default(),
                lists: AtomicU64::new(0),
                made: Mutex::default(),
            }))
        });
        match node {
            Node::Job(job) => Some(job),
            _ => None,
        }
    }

    pub(super) fn known_jobs(&self) -> Vec<Arc<Job>> {
        self.jobs.known.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The job of this name, from memory.
    pub(super) fn known_job(&self, name: &str) -> Option<Arc<Job>> {
        let name = Name::parse(name).ok()?;
        self.jobs.known.read().unwrap_or_else(PoisonError::into_inner).get(&name).cloned()
    }

    pub(super) fn root_entries(&self) -> Vec<Entry> {
        self.known_jobs()
            .into_iter()
            .map(|job| Entry { name: job.name.as_str().into(), node: Node::Job(job) })
            .collect()
    }

    /// A job's checkpoints by a listing that began after this call, or the last known ones while the store is unreachable.
    pub(super) fn fresh_job(&self, job: &Job) -> Result<Arc<JobState>, ViewError> {
        job.flight.fresh(|| {
            let listed_ms = now_ms();
            match self.source.job(&job.name) {
                Ok(listing) => {
                    self.store_answers();
                    let state = Arc::new(JobState { listing, listed_ms });
                    *job.state.write().unwrap_or_else(PoisonError::into_inner) = Some(state.clone());
                    {
                        let mut named = job.named.lock().unwrap_or_else(PoisonError::into_inner);
                        named.clear();
                        job.lists.fetch_add(1, Ordering::SeqCst);
                    }
                    self.forget_gone(job, &state.listing);
                    self.newest_ms.fetch_max(job.mtime_ms(), Ordering::Relaxed);
                    Ok(state)
                }
                Err(e) => match job.state() {
                    Some(last) => {
                        self.store_is_silent(&format!("the checkpoints of {}", job.name), &e);
                        Ok(last)
                    }
                    None => Err(e),
                },
            }
        })
    }

    fn forget_gone(&self, job: &Job, listing: &Listing) {
        let mut made = job.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|n, directory| {
            let stays =
                listing.checkpoints.get(n).is_some_and(|c| !c.expired || c.pinned) || directory.checkpoint.in_use();
            if !stays {
                self.forget(directory);
                self.invalidate(job.ino, &n.to_string());
            }
            stays
        });
    }

    /// A name in a job's directory, where memory has the answer.
    pub(super) fn known_in_job(&self, job: &Arc<Job>, name: &str) -> Option<Result<Node, ViewError>> {
        if name == LATEST {
            return None;
        }
        // No other names can ever be there.
        let Ok(number) = name.parse::<CheckpointNumber>() else { return Some(Err(ViewError::NotFound)) };
        let named = job.named(number);
        let state = if named.is_some() { None } else { Some(job.state()?) };
        match named.as_ref().or_else(|| state.as_ref()?.listing.checkpoints.get(&number)) {
            Some(listed) if !listed.expired => Some(self.checkpoint(job, number, listed).ok_or(ViewError::NotFound)),
            // Unpinned at any moment: only who has just asked can tell.
            Some(listed) if listed.pinned => self.used_in_job(job, number).map(Ok),
            // Expired is for ever, so there is nothing to ask; but what is open goes on by name as well.
            Some(_) => Some(self.used_in_job(job, number).ok_or(ViewError::NotFound)),
            None => self.used_in_job(job, number).map(Ok),
        }
    }

    fn used_in_job(&self, job: &Job, number: CheckpointNumber) -> Option<Node> {
        let made = job.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.get(&number).filter(|d| d.checkpoint.in_use()).cloned().map(Node::Directory)
    }

    /// A name in a job's directory, after asking the store.
    pub(super) fn fresh_in_job(&self, job: &Arc<Job>, name: &str) -> Result<Node, ViewError> {
        if name == LATEST {
            let state = self.fresh_job(job)?;
            return self.latest(job, &state).ok_or(ViewError::NotFound);
        }
        let Ok(number) = name.parse::<CheckpointNumber>() else { return Err(ViewError::NotFound) };
        // One checkpoint of a thousand is no reason to read the other outcomes; many are, and a listing is what forgets the dead.
        let asked = Instant::now();
        let many = job.named.lock().unwrap_or_else(PoisonError::into_inner).len() >= NAMED;
        if many {
            self.fresh_job(job)?;
        }
        let lists = job.lists.load(Ordering::SeqCst);
        let found = match self.source.checkpoint(&job.name, number) {
            Ok(found) => {
                self.store_answers();
                found
            }
            Err(e) => match job.state() {
                Some(last) => {
                    self.store_is_silent(&format!("{}/{number}", job.name), &e);
                    last.listing.checkpoints.get(&number).cloned()
                }
                None => return Err(e),
            },
        };
        let used = || self.used_in_job(job, number).ok_or(ViewError::NotFound);
        let Some(listed) = found else { return used() };
        if listed.expired && !listed.pinned {
            return used();
        }
        let mut named = job.named.lock().unwrap_or_else(PoisonError::into_inner);
        if job.lists.load(Ordering::SeqCst) != lists {
            // What a listing said meanwhile is newer than our answer.
            drop(named);
            let state = self.fresh_job(job)?;
            let listed = state.listing.checkpoints.get(&number).filter(|c| !c.expired || c.pinned);
            return listed.and_then(|listed| self.checkpoint(job, number, listed)).ok_or(ViewError::NotFound);
        }
        let node = self.checkpoint(job, number, &listed);
        self.newest_ms.fetch_max(listed.manifest.completed_ms, Ordering::Relaxed);
        named.insert(number, (listed, asked));
        node.ok_or(ViewError::NotFound)
    }

    fn latest(&self, job: &Arc<Job>, state: &JobState) -> Option<Node> {
        let target = state.listing.latest?;
        let listed = state.listing.checkpoints.get(&target)?;
        let mtime_ms = listed.manifest.completed_ms;
        let identity = inode::identity_of_path(&format!("/{}/{LATEST} -> {target}", job.name));
        let link = self.inodes.claim(identity, false, |ino| Node::Latest(Arc::new(Latest { ino, target, mtime_ms })));
        if let (Node::Latest(link), Some(Node::Directory(to))) = (&link, self.checkpoint(job, target, listed)) {
            to.checkpoint.link.store(link.ino, Ordering::Relaxed);
        }
        Some(link)
    }

    /// All names of a job's directory, after asking the store.
    pub(super) fn job_entries(&self, job: &Arc<Job>) -> Result<Vec<Entry>, ViewError> {
        let state = self.fresh_job(job)?;
        let mut out: Vec<Entry> =
            self.latest(job, &state).map(|node| Entry { name: LATEST.into(), node }).into_iter().collect();
        for (number, listed) in state.visible() {
            if let Some(node) = self.checkpoint(job, number, listed) {
                out.push(Entry { name: number.to_string().into(), node });
            }
        }
        Ok(out)
    }

    fn checkpoint(&self, job: &Arc<Job>, number: CheckpointNumber, listed: &Listed) -> Option<Node> {
        let mut made = job.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(directory) = made.get(&number) {
            return Some(Node::Directory(directory.clone()));
        }
        let directory = self.checkpoint_directory(job, number, &listed.manifest)?;
        made.insert(number, directory.clone());
        Some(Node::Directory(directory))
    }
}
