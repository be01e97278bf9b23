//! What people and policies do to completed checkpoints: out of the view and back, dead, kept for somebody.

use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::records::{HiddenRecord, PinHolder, PinRecord};
use crate::format::{Record, decode_at};
use crate::lifecycle::expire::Expire;
use crate::lifecycle::hide::{Hide, Unhide};
use crate::lifecycle::pin::{Pin, Unpin};
use crate::lifecycle::retention::Retention;
use crate::lifecycle::{LifecycleError, PinRef, driver};
use crate::limits;
use crate::types::now_ms;
use crate::types::{CheckpointNumber, Key, Name, Prefix, RecordKind, Uid};

fn fresh() -> Result<Uid> {
    Uid::random().map_err(|e| Error::with_source(Kind::Other, "the kernel gives no randomness", e))
}

/// Takes a checkpoint out of the view; [`unhide`] brings it back.
///
/// # Errors
/// When there is no such checkpoint or it is dead.
pub fn hide(session: &Session, job: &Name, number: CheckpointNumber) -> Result<()> {
    session.may_write()?;
    driver::run(&session.store, Hide::new(job.clone(), number, fresh()?, now_ms()))?;
    Ok(())
}

/// Brings a hidden checkpoint back. Says whether it was hidden.
///
/// # Errors
/// When the store fails.
pub fn unhide(session: &Session, job: &Name, number: CheckpointNumber) -> Result<bool> {
    session.may_write()?;
    session.catalog.checkpoint(job, number)?;
    Ok(driver::run(&session.store, Unhide::new(job.clone(), number))?)
}

/// Ends a checkpoint's life, for ever. Says whether it was this call that did.
///
/// # Errors
/// When it is open, or never was.
pub fn expire(session: &Session, job: &Name, number: CheckpointNumber, reason: &str) -> Result<bool> {
    session.ready_to_write()?;
    Ok(driver::run(&session.store, Expire::new(job.clone(), number, reason.to_owned()))?)
}

/// What a policy would expire of a job, oldest first.
///
/// # Errors
/// When the job cannot be listed, or nothing would stay.
pub fn not_kept(session: &Session, job: &Name, retention: Retention) -> Result<Vec<CheckpointNumber>> {
    let listing = session.catalog.job(job)?;
    if let Some((n, why)) = listing.unreadable.first() {
        // It may be the newest: a policy that does not see it would keep the wrong ones.
        return Err(Error::new(
            Kind::Damage,
            format!("{job}/{n} cannot be believed ({why}): expire checkpoints of this job one by one"),
        ));
    }
    Ok(retention.goes(&listing))
}

/// Checkpoints of a job that were hidden at least so many milliseconds ago, by the clocks of the hosts that hid them.
///
/// # Errors
/// When the job cannot be listed, or a record cannot be read.
pub fn hidden_for(session: &Session, job: &Name, at_least_ms: u64) -> Result<Vec<CheckpointNumber>> {
    let listing = session.catalog.job(job)?;
    let now = now_ms();
    let mut out = Vec::new();
    for c in listing.checkpoints.values().filter(|c| c.hidden && !c.expired) {
        let mut newest = 0;
        for listed in session.store.list(&Prefix::checkpoint(RecordKind::Hidden, job, c.number))? {
            let Some(bytes) = session.store.get(&listed.key, limits::METADATA_LEN)? else { continue };
            let decoded = decode_at::<HiddenRecord>(&listed.key, &bytes)
                .map_err(|source| LifecycleError::Format { key: listed.key.clone(), source })?;
            newest = newest.max(decoded.record.hidden_ms);
        }
        if newest > 0 && now.saturating_sub(newest) >= at_least_ms {
            out.push(c.number);
        }
    }
    Ok(out)
}

/// Keeps a checkpoint's blobs, whatever becomes of it.
///
/// # Errors
/// When there is no such checkpoint or it is dead.
pub fn pin(session: &Session, job: &Name, number: CheckpointNumber, holder: PinHolder) -> Result<PinRef> {
    session.may_write()?;
    let pin = PinRef { job: job.clone(), number, holder: session.cache.id(), nonce: fresh()? };
    driver::run(&session.store, Pin::new(pin.clone(), holder, now_ms()))?;
    Ok(pin)
}

/// Takes pins away.
///
/// # Errors
/// When the store fails.
pub fn unpin(session: &Session, pins: Vec<PinRef>) -> Result<()> {
    session.may_write()?;
    Ok(driver::run(&session.store, Unpin::new(pins))?)
}

/// What a pin says of itself.
///
/// # Errors
/// When it is not there or cannot be believed.
pub fn pin_record(session: &Session, pin: &PinRef) -> Result<PinRecord> {
    let key: Key = pin.key();
    let Some(bytes) = session.store.get(&key, limits::METADATA_LEN)? else {
        return Err(Error::new(Kind::NotFound, format!("there is no {} {key}", PinRecord::WHAT)));
    };
    let decoded = decode_at::<PinRecord>(&key, &bytes).map_err(|source| LifecycleError::Format { key, source })?;
    Ok(decoded.record)
}
