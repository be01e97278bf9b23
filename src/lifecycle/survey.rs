//! What is known of a job's numbers: the lists that `open`, `takeover` and the catalog begin with.

use std::collections::BTreeSet;

use super::error::LifecycleError;
use super::machine::{Reply, Request, got, listed, read};
use crate::format::FormatError;
use crate::format::records::FloorRecord;
use crate::types::{CheckpointNumber, Epoch, Key, KeyParts, Name, Prefix, RecordKind};

/// A job's numbers, by what is listed of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Survey {
    /// The highest epoch; 0 when nobody ever took over.
    pub epoch: Epoch,
    /// Numbers with an intent.
    pub intents: BTreeSet<CheckpointNumber>,
    /// Numbers with an outcome.
    pub outcomes: BTreeSet<CheckpointNumber>,
    /// Numbers that are dead.
    pub expired: BTreeSet<CheckpointNumber>,
    /// Floors that were listed, and then what they say.
    pub floors: Floors,
}

/// A job's floors.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Floors {
    numbers: Vec<CheckpointNumber>,
    survivors: Vec<BTreeSet<CheckpointNumber>>,
}

impl Floors {
    /// The request that lists them.
    #[must_use]
    pub fn list(job: &Name) -> Request {
        Request::List(Prefix::job(RecordKind::Floor, job))
    }

    /// Takes the listing.
    pub fn take_list(&mut self, keys: &[Key]) {
        self.numbers = keys.iter().filter_map(number_of).collect();
        self.survivors.clear();
    }

    /// The requests that read them.
    pub(super) fn gets(&self, job: &Name) -> Vec<Request> {
        self.numbers.iter().map(|f| Request::Get(Key::floor(job, *f))).collect()
    }

    /// Takes their bodies. A floor that was listed and cannot be read is an error: nobody can say what it took away.
    pub(super) fn take(&mut self, job: &Name, replies: Vec<Reply>) -> Result<(), LifecycleError> {
        self.survivors.clear();
        for (f, bytes) in self.numbers.iter().zip(got(replies)?) {
            let key = Key::floor(job, *f);
            let Some(decoded) = read::<FloorRecord>(&key, bytes.as_ref())? else {
                // Floors are never deleted: the store contradicts itself.
                let why = "it was listed and is not there".to_owned();
                return Err(LifecycleError::Format { key, source: FormatError::Damaged { what: "floor", why } });
            };
            self.survivors.push(decoded.record.survivors.into_iter().collect());
        }
        Ok(())
    }

    /// Whether a number is gone: some floor above it does not list it.
    #[must_use]
    pub fn gone(&self, n: CheckpointNumber) -> bool {
        self.numbers.iter().zip(&self.survivors).any(|(f, survivors)| n < *f && !survivors.contains(&n))
    }

    /// The highest floor.
    #[must_use]
    pub fn highest(&self) -> Option<CheckpointNumber> {
        self.numbers.iter().max().copied()
    }

    /// Whether a floor has this number.
    #[must_use]
    pub fn has(&self, floor: CheckpointNumber) -> bool {
        self.numbers.contains(&floor)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The numbers below the highest floor that live on.
    #[must_use]
    pub fn alive_below_highest(&self) -> BTreeSet<CheckpointNumber> {
        let highest = self.numbers.iter().zip(&self.survivors).max_by_key(|(f, _)| **f);
        let listed = highest.into_iter().flat_map(|(_, survivors)| survivors);
        listed.copied().filter(|n| !self.gone(*n)).collect()
    }

    /// Whether there are any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

impl Survey {
    /// The lists that a survey begins with.
    #[must_use]
    pub fn lists(job: &Name) -> Vec<Request> {
        [RecordKind::Epoch, RecordKind::Floor, RecordKind::Intent, RecordKind::Outcome, RecordKind::Expired]
            .into_iter()
            .map(|kind| Request::List(Prefix::job(kind, job)))
            .collect()
    }

    /// Takes the replies to [`Survey::lists`].
    pub(super) fn from_lists(replies: Vec<Reply>) -> Result<Self, LifecycleError> {
        let lists: [Vec<Key>; 5] = listed(replies)?.try_into().map_err(|_| LifecycleError::Confused)?;
        let [epochs, floors, intents, outcomes, expired] = lists;
        let numbers = |keys: &[Key]| keys.iter().filter_map(number_of).collect::<BTreeSet<_>>();
        let mut survey = Self {
            epoch: highest_epoch(&epochs),
            intents: numbers(&intents),
            outcomes: numbers(&outcomes),
            expired: numbers(&expired),
            floors: Floors::default(),
        };
        survey.floors.take_list(&floors);
        Ok(survey)
    }

    /// The lowest number above everything that is known.
    #[must_use]
    pub fn next_number(&self) -> Option<CheckpointNumber> {
        let last = [&self.intents, &self.outcomes, &self.expired].into_iter().filter_map(|s| s.last().copied());
        // A floor's number itself was never passed by it, but may have been used before: stay above.
        match last.chain(self.floors.highest()).max() {
            Some(n) => n.next(),
            None => Some(CheckpointNumber::FIRST),
        }
    }

    /// Numbers that were begun and not decided.
    pub fn undecided(&self) -> impl DoubleEndedIterator<Item = CheckpointNumber> + '_ {
        self.intents
            .iter()
            .copied()
            .filter(|n| !self.outcomes.contains(n) && !self.expired.contains(n) && !self.floors.gone(*n))
    }

    /// Decided numbers that are alive, newest first.
    pub fn decided(&self) -> impl Iterator<Item = CheckpointNumber> + '_ {
        self.outcomes.iter().rev().copied().filter(|n| !self.expired.contains(n) && !self.floors.gone(*n))
    }
}

/// The highest epoch of a listing.
pub(super) fn highest_epoch(keys: &[Key]) -> Epoch {
    let epochs = keys.iter().filter_map(|k| if let KeyParts::Epoch(_, e) = k.parts() { Some(*e) } else { None });
    epochs.max().unwrap_or_default()
}

/// The checkpoint number (or floor) that a key is about.
#[must_use]
pub fn number_of(key: &Key) -> Option<CheckpointNumber> {
    match key.parts() {
        KeyParts::Intent(_, n)
        | KeyParts::Task(_, n, _, _)
        | KeyParts::Outcome(_, n)
        | KeyParts::Hidden(_, n, _)
        | KeyParts::Expired(_, n)
        | KeyParts::Pin(_, n, _, _)
        | KeyParts::Floor(_, n) => Some(*n),
        KeyParts::Store | KeyParts::Blob(_) | KeyParts::Epoch(..) | KeyParts::Head(_) => None,
    }
}
