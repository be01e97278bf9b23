//! Begins a checkpoint under a number that is not ours to choose, and goes on with it where an attempt before did: an import's, a copy's.
//! Such a number can be used only once, so that an attempt that fails leaves it open.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::origin::Origin;
use super::snapshot::{self, Begin};
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::{CheckpointKind, ExpectedOperator, Intent, Labels};
use crate::lifecycle::{self, Base};
use crate::types::{CheckpointNumber, Name, Uid};

/// A number that is to be begun.
pub(super) struct Numbered<'a> {
    pub(super) job: &'a Name,
    pub(super) number: CheckpointNumber,
    pub(super) kind: CheckpointKind,
    pub(super) expected: Vec<ExpectedOperator>,
    pub(super) labels: Labels,
    /// The uid that it must have; nothing for a random one.
    pub(super) uid: Option<Uid>,
    /// A checkpoint that may be reused beside the job's newest.
    pub(super) origin: Option<Origin>,
    /// What to do where the number is somebody else's.
    pub(super) remedy: &'static str,
}

/// It is open.
pub(super) struct Begun {
    pub(super) intent: Intent,
    pub(super) bases: Vec<Base>,
    /// An attempt before began it.
    pub(super) resumed: bool,
}

/// Begins the number, or goes on with it where an attempt before did.
pub(super) fn begin(session: &Session, wanted: &Numbered<'_>) -> Result<Begun> {
    let Numbered { job, number, .. } = *wanted;
    let conflict = |why: &str| Error::new(Kind::Conflict, format!("{job}/{number} {why}: {}", wanted.remedy));
    if lifecycle::catalog::outcome(&session.store, job, number)?.is_some() {
        return Err(conflict("is decided, and no number is used twice"));
    }
    if let Some(begun) = lifecycle::catalog::intent(&session.store, job, number)? {
        return resume(session, wanted, begun);
    }
    let uids = wanted.uid.map_or_else(Uid::random, Ok);
    let uids = vec![uids.map_err(|e| Error::with_source(Kind::Other, "the kernel gives no randomness", e))?];
    let expected = wanted.expected.clone();
    let kind = Begin { kind: wanted.kind, detached: true, labels: wanted.labels.clone() };
    let opened = match snapshot::open_as(session, job, (Some(number), uids), expected, kind, wanted.origin.clone()) {
        Ok(opened) => opened,
        Err(e) if e.kind() == Kind::Conflict => {
            // Somebody else may have begun the same in this moment; or it was given up at once, for a base that died.
            if lifecycle::catalog::outcome(&session.store, job, number)?.is_some() {
                return Err(e);
            }
            return match lifecycle::catalog::intent(&session.store, job, number)? {
                Some(begun) if wanted.uid == Some(begun.place.uid) => resume(session, wanted, begun),
                _ => Err(e),
            };
        }
        Err(e) => return Err(e),
    };
    Ok(Begun { intent: opened.intent, bases: opened.bases, resumed: false })
}

fn resume(session: &Session, wanted: &Numbered<'_>, begun: Intent) -> Result<Begun> {
    let other = wanted.uid.is_some_and(|uid| uid != begun.place.uid);
    if other || (begun.kind, &begun.expected) != (wanted.kind, &wanted.expected) {
        let (job, number) = (wanted.job, wanted.number);
        let why = format!("{job}/{number} was begun as something else (`ckptfs abort` ends it): {}", wanted.remedy);
        return Err(Error::new(Kind::Conflict, why));
    }
    if begun.labels != wanted.labels {
        // Other ones are no reason to lose the checkpoint: its number cannot be used twice.
        log::warn!("{}/{} was begun before, and keeps the labels that it was begun with", wanted.job, wanted.number);
    }
    session.ready_to_write()?;
    // Whoever began it may have died before it looked: what is dead by now, or gone, is no base. What was acknowledged before was so after
    // the look.
    let mut bases = snapshot::bases_of(session, &begun)?;
    bases.retain(|base| base.manifest.is_some());
    let mut listings = HashMap::new();
    for base in &bases {
        if let Entry::Vacant(new) = listings.entry(base.of.job.clone()) {
            new.insert(session.catalog.job(&base.of.job)?);
        }
    }
    bases.retain(|base| {
        let found = listings.get(&base.of.job).and_then(|listing| listing.checkpoints.get(&base.of.number));
        found.is_some_and(|found| !found.expired && found.uid == base.of.uid)
    });
    Ok(Begun { intent: begun, bases, resumed: true })
}
