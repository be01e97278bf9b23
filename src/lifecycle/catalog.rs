//! What readers see: the jobs of a store and their completed checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dashmap::DashMap;

use super::driver::parallel;
use super::error::LifecycleError;
use super::machine::{Reply, read};
use super::pin::PinRef;
use super::survey::{Floors, number_of};
use crate::error::Kind;
use crate::format::records::PinRecord;
use crate::format::{CheckpointManifest, Intent, Outcome, Verdict};
use crate::limits;
use crate::store::Store;
use crate::types::{CheckpointNumber, Key, KeyParts, Name, Prefix, RecordKind, Uid};

/// What is listed of a job after its outcomes.
const SECOND: [RecordKind; 3] = [RecordKind::Expired, RecordKind::Hidden, RecordKind::Intent];

/// The outcome of a number, if it is decided.
///
/// # Errors
/// When it cannot be read or believed.
pub fn outcome(store: &Store, job: &Name, number: CheckpointNumber) -> Result<Option<Outcome>, LifecycleError> {
    let key = Key::outcome(job, number);
    let bytes = store.get(&key, limits::METADATA_LEN)?;
    Ok(read::<Outcome>(&key, bytes.as_ref())?.map(|d| d.record))
}

/// The intent of a number, if it was begun.
///
/// # Errors
/// When it cannot be read or believed.
pub fn intent(store: &Store, job: &Name, number: CheckpointNumber) -> Result<Option<Intent>, LifecycleError> {
    let key = Key::intent(job, number);
    let bytes = store.get(&key, limits::METADATA_LEN)?;
    Ok(read::<Intent>(&key, bytes.as_ref())?.map(|d| d.record))
}

/// A completed checkpoint.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Its job.
    pub job: Name,
    /// Its number.
    pub number: CheckpointNumber,
    /// Its uid.
    pub uid: Uid,
    /// Its manifest.
    pub manifest: Arc<CheckpointManifest>,
    /// Out of the view, for now.
    pub hidden: bool,
    /// Dead for ever.
    pub expired: bool,
    /// It is dead and somebody pins it: then it can be read all the same. Of a living one nothing is said.
    pub pinned: bool,
}

/// A job's completed checkpoints, as one listing found them.
#[derive(Debug, Clone)]
pub struct JobListing {
    /// The job.
    pub job: Name,
    /// Completed ones that are not gone.
    pub checkpoints: BTreeMap<CheckpointNumber, Checkpoint>,
    /// Begun and not decided.
    pub open: BTreeSet<CheckpointNumber>,
    /// Given up and not dead yet, with the reason: those since the last completed one.
    pub aborted: BTreeMap<CheckpointNumber, String>,
    /// Decided, and the record cannot be believed.
    pub unreadable: Vec<(CheckpointNumber, String)>,
}

impl JobListing {
    /// Those in the view, oldest first.
    pub fn visible(&self) -> impl DoubleEndedIterator<Item = &Checkpoint> {
        self.checkpoints.values().filter(|c| !c.hidden && !c.expired)
    }

    /// The newest in the view.
    #[must_use]
    pub fn latest(&self) -> Option<&Checkpoint> {
        self.visible().next_back()
    }
}

/// Which outcomes a listing reads.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    All,
    One(CheckpointNumber),
    /// From the newest to the first that is completed and in the view.
    Latest,
}

#[derive(Debug, Clone)]
enum Seen {
    Completed(Uid, Arc<CheckpointManifest>),
    Aborted(Arc<str>),
}

/// What reading one outcome gave.
type Read = Result<Option<Seen>, LifecycleError>;

/// Reads a store's jobs and checkpoints. Outcomes never change, so each is read once in a catalog's life.
#[derive(Debug, Clone)]
pub struct Catalog {
    store: Store,
    seen: Arc<DashMap<Key, Seen>>,
}

impl Catalog {
    /// A catalog of this store.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store, seen: Arc::default() }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Jobs that have at least one decided checkpoint, in order.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn jobs(&self) -> Result<Vec<Name>, LifecycleError> {
        let listed = self.store.list(&Prefix::kind(RecordKind::Outcome))?;
        let jobs: BTreeSet<Name> = listed
            .into_iter()
            .filter_map(|l| if let KeyParts::Outcome(job, _) = l.key.parts() { Some(job.clone()) } else { None })
            .collect();
        Ok(jobs.into_iter().collect())
    }

    fn numbers(&self, kind: RecordKind, job: &Name) -> Result<BTreeSet<CheckpointNumber>, LifecycleError> {
        let listed = self.store.list(&Prefix::job(kind, job))?;
        Ok(listed.iter().filter_map(|l| number_of(&l.key)).collect())
    }

    /// A job's completed checkpoints. Lists anew at each call; a checkpoint that was complete before the call is in it.
    ///
    /// # Errors
    /// When the store cannot be listed, or a floor cannot be read.
    pub fn job(&self, job: &Name) -> Result<JobListing, LifecycleError> {
        self.listing(job, Wanted::All)
    }

    /// The lists of a job are few requests, whatever its size; each outcome is one more.
    fn listing(&self, job: &Name, wanted: Wanted) -> Result<JobListing, LifecycleError> {
        // Outcomes first: a checkpoint that expires between the lists is then shown as expired, never one that is not there as alive.
        let outcomes = self.numbers(RecordKind::Outcome, job)?;
        let second = parallel(SECOND.to_vec(), |kind| self.numbers(kind, job))?;
        let [expired, hidden, intents]: [BTreeSet<CheckpointNumber>; 3] =
            second.try_into().map_err(|_| LifecycleError::Confused)?;
        // After the tombstones: a floor is there before a tombstone is taken away, so that a dead number whose tombstone was not listed any
        // more is passed by a floor that is. And a pin that was granted was there before its checkpoint could die; where nothing is dead,
        // none is asked for.
        let dead = expired.iter().any(|n| outcomes.contains(n));
        let third = if dead { vec![RecordKind::Floor, RecordKind::Pin] } else { vec![RecordKind::Floor] };
        let mut third = parallel(third, |kind| self.numbers(kind, job))?.into_iter();
        let (floor_numbers, pinned) = (third.next().unwrap_or_default(), third.next().unwrap_or_default());
        let lowest = outcomes.iter().chain(&intents).min().copied();
        let floors = self.floors(job, &floor_numbers, lowest)?;
        let alive: Vec<CheckpointNumber> = outcomes.iter().copied().filter(|n| !floors.gone(*n)).collect();
        let read = self.outcomes(job, alive, wanted, |n| !hidden.contains(&n) && !expired.contains(&n))?;
        let mut listing = JobListing {
            job: job.clone(),
            checkpoints: BTreeMap::new(),
            open: intents.into_iter().filter(|n| !outcomes.contains(n) && !floors.gone(*n)).collect(),
            aborted: BTreeMap::new(),
            unreadable: Vec::new(),
        };
        for (number, seen) in read {
            match seen {
                Ok(Some(Seen::Completed(uid, manifest))) => {
                    let (hidden, expired) = (hidden.contains(&number), expired.contains(&number));
                    let (job, pinned) = (job.clone(), pinned.contains(&number));
                    listing
                        .checkpoints
                        .insert(number, Checkpoint { job, number, uid, manifest, hidden, expired, pinned });
                }
                Ok(Some(Seen::Aborted(reason))) => {
                    if !expired.contains(&number) {
                        listing.aborted.insert(number, reason.as_ref().to_owned());
                    }
                }
                Ok(None) => {}
                // One bad record, whoever wrote it, does not take the others out of sight.
                Err(e) if e.is_bad_record() => {
                    listing.unreadable.push((number, e.to_string()));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(listing)
    }

    /// The outcomes that are wanted, each with its number.
    fn outcomes(
        &self,
        job: &Name,
        mut alive: Vec<CheckpointNumber>,
        wanted: Wanted,
        visible: impl Fn(CheckpointNumber) -> bool,
    ) -> Result<Vec<(CheckpointNumber, Read)>, LifecycleError> {
        match wanted {
            Wanted::All => {}
            Wanted::One(number) => alive.retain(|n| *n == number),
            Wanted::Latest => {
                let mut read = Vec::new();
                for n in alive.into_iter().rev().filter(|n| visible(*n)) {
                    let outcome = self.outcome(job, n);
                    let goes_on = match &outcome {
                        Ok(Some(Seen::Completed(..))) => false,
                        Ok(_) => true,
                        // A store that is silent is so for the next one, too.
                        Err(e) => e.is_bad_record(),
                    };
                    read.push((n, outcome));
                    if !goes_on {
                        break;
                    }
                }
                return Ok(read);
            }
        }
        parallel(alive, |n| Ok::<_, LifecycleError>((n, self.outcome(job, n))))
    }

    /// Those that can say something of these numbers: a floor speaks of what is below it, so of a job's many floors few are read.
    fn floors(
        &self,
        job: &Name,
        numbers: &BTreeSet<CheckpointNumber>,
        lowest: Option<CheckpointNumber>,
    ) -> Result<Floors, LifecycleError> {
        let mut floors = Floors::default();
        let above = numbers.iter().filter(|f| lowest.is_some_and(|n| n < **f));
        let keys: Vec<Key> = above.map(|f| Key::floor(job, *f)).collect();
        floors.take_list(&keys);
        let bodies = parallel(keys, |key| self.store.get(&key, limits::METADATA_LEN).map(Reply::Got))?;
        floors.take(job, bodies)?;
        Ok(floors)
    }

    /// Whether a number lies below a floor that does not list it: it can never be used again.
    ///
    /// # Errors
    /// When the floors cannot be listed or read.
    pub fn is_gone(&self, job: &Name, number: CheckpointNumber) -> Result<bool, LifecycleError> {
        let floors = self.numbers(RecordKind::Floor, job)?;
        Ok(self.floors(job, &floors, Some(number))?.gone(number))
    }

    fn outcome(&self, job: &Name, n: CheckpointNumber) -> Result<Option<Seen>, LifecycleError> {
        let key = Key::outcome(job, n);
        if let Some(seen) = self.seen.get(&key) {
            return Ok(Some(seen.clone()));
        }
        let bytes = self.store.get(&key, limits::METADATA_LEN)?;
        let Some(decoded) = read::<Outcome>(&key, bytes.as_ref())? else { return Ok(None) };
        let seen = match decoded.record.verdict {
            Verdict::Completed(manifest) => Seen::Completed(decoded.record.place.uid, Arc::new(manifest)),
            Verdict::Aborted { reason } => Seen::Aborted(reason.into()),
        };
        self.seen.insert(key, seen.clone());
        Ok(Some(seen))
    }

    /// All pins of the store, or of one job, with what they say. One that cannot be read holds all the same.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub fn pins(&self, job: Option<&Name>) -> Result<Vec<(PinRef, Option<PinRecord>)>, LifecycleError> {
        let prefix = job.map_or_else(|| Prefix::kind(RecordKind::Pin), |job| Prefix::job(RecordKind::Pin, job));
        let pins: Vec<PinRef> = self.store.list(&prefix)?.iter().filter_map(|l| PinRef::of(&l.key)).collect();
        parallel(pins, |pin| {
            let key = pin.key();
            let bytes = match self.store.get(&key, limits::METADATA_LEN) {
                Err(e) if e.kind() == Kind::Damage => None,
                other => other?,
            };
            let record = read::<PinRecord>(&key, bytes.as_ref()).ok().flatten().map(|d| d.record);
            Ok((pin, record))
        })
    }

    /// One completed checkpoint by name; hidden ones are found, and expired ones that somebody pins.
    ///
    /// # Errors
    /// [`LifecycleError::NoSuchCheckpoint`] where there is none, and what reading it gave.
    pub fn checkpoint(&self, job: &Name, number: CheckpointNumber) -> Result<Checkpoint, LifecycleError> {
        let listing = self.listing(job, Wanted::One(number))?;
        if listing.unreadable.iter().any(|(n, _)| *n == number) {
            // Read again for the error itself.
            self.outcome(job, number)?;
        }
        let found = listing.checkpoints.get(&number).filter(|c| !c.expired || c.pinned).cloned();
        found.ok_or_else(|| LifecycleError::NoSuchCheckpoint { job: job.clone(), number })
    }

    /// The newest completed checkpoint in the view, if there is one.
    ///
    /// # Errors
    /// As [`Catalog::job`].
    pub fn latest(&self, job: &Name) -> Result<Option<Checkpoint>, LifecycleError> {
        Ok(self.listing(job, Wanted::Latest)?.latest().cloned())
    }
}
