//! The coordinator's end: looks for acks and for numbers that somebody gave up.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::decided;
use crate::engine::coordinator::gateway::Gateway;
use crate::engine::coordinator::machine::Task;
use crate::engine::coordinator::message::{AckReport, Notice, TaskEvent, Trigger};
use crate::engine::coordinator::reign::Reign;
use crate::error::{Error, Kind, Result};
use crate::format::records::EpochRecord;
use crate::format::{Place, Role, TaskManifest, Verdict, decode_at, encode};
use crate::limits;
use crate::local::process;
use crate::store::Store;
use crate::types::{CheckpointNumber, Epoch, Key, KeyParts, Name, Prefix, RecordKind, Uid};

#[derive(Debug)]
struct Watched {
    uid: Uid,
    seen: BTreeSet<Task>,
}

/// A gateway over the store alone.
#[derive(Debug)]
pub struct StoredGateway {
    store: Store,
    job: Name,
    epoch: Epoch,
    writer: Uid,
    period: Duration,
    looked: Cell<Option<Instant>>,
    watched: RefCell<BTreeMap<CheckpointNumber, Watched>>,
}

impl StoredGateway {
    /// A gateway for the tasks of this reign, which looks once per period, however often it is asked.
    #[must_use]
    pub fn new(reign: &Reign, period: Duration) -> Self {
        Self {
            store: reign.store().clone(),
            job: reign.job().clone(),
            epoch: reign.epoch(),
            writer: reign.writer(),
            period,
            looked: Cell::new(None),
            watched: RefCell::default(),
        }
    }

    fn look(&self) -> Result<Vec<TaskEvent>> {
        let mut events = Vec::new();
        let mut failed = None;
        self.watched.borrow_mut().retain(|number, watched| match self.look_at(*number, watched, &mut events) {
            Ok(open) => open,
            Err(e) => {
                failed = Some(e);
                true
            }
        });
        match failed {
            // What was found is told once, so it must not be lost with the error.
            Some(e) if events.is_empty() => Err(e),
            _ => Ok(events),
        }
    }

    /// Whether there is more to come of this number.
    fn look_at(&self, number: CheckpointNumber, watched: &mut Watched, events: &mut Vec<TaskEvent>) -> Result<bool> {
        for listed in self.store.list(&Prefix::checkpoint(RecordKind::Task, &self.job, number))? {
            let KeyParts::Task(_, _, operator, subtask) = listed.key.parts() else { continue };
            let task = (operator.clone(), *subtask);
            if !watched.seen.contains(&task) {
                events.push(self.ack(number, watched.uid, &task, &listed.key)?);
                watched.seen.insert(task);
            }
        }
        if let Some(Verdict::Aborted { reason }) = decided(&self.store, &self.job, number)? {
            events.push(TaskEvent::Aborted { number, reason });
            return Ok(false);
        }
        Ok(true)
    }

    /// One that cannot be believed is no ack: the checkpoint could not be published with it.
    fn ack(&self, number: CheckpointNumber, uid: Uid, (operator, subtask): &Task, key: &Key) -> Result<TaskEvent> {
        let (operator, subtask) = (operator.clone(), *subtask);
        let why = match self.store.get(key, limits::METADATA_LEN) {
            Ok(Some(bytes)) => match decode_at::<TaskManifest>(key, &bytes) {
                Ok(d) if d.record.place.uid == uid => {
                    let m = d.record;
                    let report = AckReport::from_properties(m.logical_bytes, m.new_bytes, &m.properties);
                    return Ok(TaskEvent::Acked { number, operator, subtask, report });
                }
                Ok(d) => format!("its ack is for another attempt ({})", d.record.place.uid),
                Err(e) => format!("its ack cannot be believed: {e}"),
            },
            Ok(None) => "its ack was listed and is not there".to_owned(),
            Err(e) => match Error::from(e) {
                e if e.kind() == Kind::Damage => format!("its ack cannot be believed: {e}"),
                e => return Err(e),
            },
        };
        Ok(TaskEvent::Declined { number, operator, subtask, reason: why })
    }
}

impl Gateway for StoredGateway {
    fn trigger(&self, trigger: &Trigger) -> Result<()> {
        // The intent is there: that is the trigger.
        let watched = Watched { uid: trigger.uid, seen: BTreeSet::new() };
        self.watched.borrow_mut().insert(trigger.number, watched);
        Ok(())
    }

    fn notify(&self, notice: &Notice) -> Result<()> {
        self.watched.borrow_mut().remove(&notice.number());
        Ok(())
    }

    /// Ends the reign: tasks stop when a higher epoch is there. Exactly the next one is created, so that a successor is never fenced by it.
    fn stop(&self) -> Result<()> {
        let Some(next) = self.epoch.0.checked_add(1) else { return Ok(()) };
        let uid = Uid::random().map_err(|e| Error::with_source(Kind::Other, "the kernel gives no randomness", e))?;
        let record = EpochRecord {
            place: Place::new(Role::Epoch, &self.job, next, uid),
            writer: self.writer,
            host: process::hostname(),
        };
        let bytes = encode(&record).map_err(crate::lifecycle::LifecycleError::Unwritable)?;
        self.store.create(&Key::epoch(&self.job, Epoch(next)), bytes.into())?;
        Ok(())
    }

    fn poll(&self, wait: Duration) -> Result<Vec<TaskEvent>> {
        let until = Instant::now().checked_add(wait);
        let due = || self.looked.get().map_or(Duration::ZERO, |at| self.period.saturating_sub(at.elapsed()));
        loop {
            if due().is_zero() {
                self.looked.set(Some(Instant::now()));
                let events = self.look()?;
                if !events.is_empty() {
                    return Ok(events);
                }
            }
            let left = until.map_or(wait, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(Vec::new());
            }
            std::thread::sleep(left.min(due()));
        }
    }
}
