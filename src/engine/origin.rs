//! Which checkpoint a directory was cloned from. A clone says so itself; a native RocksDB checkpoint of a clone does not, but the cache knows
//! the clones that were made with it, by the job that runs on them or by RocksDB's id of the database, and links say where they lead.

use std::collections::BTreeSet;
use std::path::Component;

use super::scan::Scan;
use crate::cache::Session;
use crate::error::Result;
use crate::format::clone::CloneMark;
use crate::format::records::PinHolder;
use crate::format::{BaseRef, Verdict};
use crate::lifecycle;
use crate::lifecycle::pin::PinRef;
use crate::limits;
use crate::local::clone_mark;
use crate::store::StoreError;
use crate::types::{CheckpointNumber, Key, Name};

/// A checkpoint that a directory's files came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The checkpoint.
    pub base: BaseRef,
    /// The clone's pin, under which it may be a base although it is expired.
    pub pin: Option<PinRef>,
}

impl From<CloneMark> for Origin {
    fn from(mark: CloneMark) -> Self {
        let base = BaseRef { job: mark.job.clone(), number: mark.number, uid: mark.uid };
        Self { base, pin: Some(PinRef::from(&mark)) }
    }
}

/// The origin of a directory that is snapshotted for a job; of the job alone where no directory is known yet.
///
/// # Errors
/// When the cache or the store cannot be read. What only concerns the clone is not one: then more is uploaded.
pub fn of(session: &Session, job: &Name, scan: Option<&Scan>) -> Result<Option<Origin>> {
    if let Some(scan) = scan {
        match clone_mark::of(&scan.dir) {
            Ok(Some(mark)) if mark.store == session.store_id => return usable(session, mark.into()),
            Ok(_) => {}
            Err(e) => log::warn!("it is not known what the directory was cloned from: {e}"),
        }
    }
    let linked = scan.map(|s| linked_to(s, session)).unwrap_or_default();
    let rank = |mark: &CloneMark| {
        let links = linked.contains(&(mark.job.clone(), mark.number));
        let database = scan.and_then(|s| s.db_id.as_ref()).is_some_and(|id| mark.backends.contains(id));
        (links, mark.runs.as_ref() == Some(job), database)
    };
    let ours = session.cache.clones()?.into_iter().filter(|m| m.store == session.store_id);
    let best = ours.map(|m| (rank(&m), m)).filter(|(rank, _)| *rank != (false, false, false));
    if let Some((_, mark)) = best.max_by_key(|(rank, mark)| (*rank, mark.number)) {
        return usable(session, mark.into());
    }
    // Of another cache, or of one that was emptied. The clone's pin is found in the store; without one the checkpoint is a base as long
    // as it is not expired.
    for (of, number) in linked {
        let outcome = lifecycle::catalog::outcome(&session.store, &of, number)?;
        if let Some(outcome) = outcome.filter(|o| matches!(o.verdict, Verdict::Completed(_))) {
            let pin = pin_of_clone(session, job, &of, number)?;
            return usable(session, Origin { base: BaseRef { job: of, number, uid: outcome.place.uid }, pin });
        }
    }
    Ok(None)
}

/// Somebody may have ended the pin. A base that is sure to be refused would cost a number at every snapshot; what happens from here on,
/// the look after the intent sees.
fn usable(session: &Session, mut origin: Origin) -> Result<Option<Origin>> {
    let there = |key: &Key| Ok::<_, StoreError>(session.store.get(key, limits::METADATA_LEN)?.is_some());
    if let Some(pin) = &origin.pin
        && !there(&pin.key())?
    {
        origin.pin = None;
    }
    let dead = origin.pin.is_none() && there(&Key::expired(&origin.base.job, origin.base.number))?;
    Ok((!dead).then_some(origin))
}

/// A pin by which a clone holds a checkpoint, rather one of a clone that this job runs on. Whose it is does not matter: it is looked at
/// again after the intent, which from then on keeps the base itself.
fn pin_of_clone(session: &Session, job: &Name, of: &Name, number: CheckpointNumber) -> Result<Option<PinRef>> {
    let held = session.catalog.pins(Some(of))?.into_iter().filter(|(pin, _)| pin.number == number);
    let clones = held.filter_map(|(pin, record)| match record?.holder {
        PinHolder::Clone { job: runs, .. } => Some((runs.as_ref() == Some(job), pin)),
        _ => None,
    });
    Ok(clones.max_by_key(|(same, _)| *same).map(|(_, pin)| pin))
}

/// The checkpoints that links lead into, in mounts of this store: `<mount>/<job>/chk-N/...`.
fn linked_to(scan: &Scan, session: &Session) -> BTreeSet<(Name, CheckpointNumber)> {
    let links = scan.files.iter().filter_map(|f| f.link.as_ref()).filter(|l| l.store == Some(session.store_id));
    links
        .filter_map(|link| {
            let below = link.target.strip_prefix(&link.mount).ok()?;
            let mut parts = below.components().map(|c| if let Component::Normal(n) = c { n.to_str() } else { None });
            Some((Name::parse(parts.next()??).ok()?, parts.next()??.parse().ok()?))
        })
        .collect()
}
