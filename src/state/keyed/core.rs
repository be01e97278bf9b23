//! What all handles of a backend share: the database, what it does not have yet, and the current key.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rocksdb::Options;
use rocksdb::compaction_filter::Decision;

use super::descriptor::{KeyedDescriptor, StateDescriptor, StateKind};
use super::encoding::EncodedKey;
use super::overlay::{Overlay, Write};
use super::{Clock, ttl};
use crate::limits;
use crate::state::database::Database;
use crate::state::error::StateError;
use crate::state::options::DatabaseOptions;
use crate::state::serializer::{Compatibility, SerializerDescriptor, compatible};

/// Bytes of writes that are kept back: enough to fold many writes of a hot key into one, little to write in the sync phase of a snapshot.
const WRITE_BATCH: usize = 512 << 10;

/// What column families of timers begin with.
const TIMERS: &str = "_timer_state/";

/// The part of a backend that does not depend on the type of its keys.
pub(super) struct Core {
    database: Option<Database>,
    options: DatabaseOptions,
    /// All but its states, which the slots have.
    pub(super) descriptor: KeyedDescriptor,
    slots: Vec<Slot>,
    pub(super) key: Option<EncodedKey>,
    pub(super) clock: Clock,
    /// Bytes in all overlays.
    pub(super) pending: usize,
}

/// A state.
struct Slot {
    family: String,
    descriptor: StateDescriptor,
    overlay: Overlay,
    /// Milliseconds that the compaction filter goes by.
    lifetime: Arc<AtomicU64>,
    /// Of timers: for each key group of the range a time before which it has none; nothing where it has none at all.
    bounds: Vec<Option<i64>>,
}

/// How a database is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// To read and write; a new one is made.
    Write { create: bool },
    /// To read it where it lies.
    Read,
}

/// Which state of a backend.
pub(super) type StateId = usize;

/// The core as the handles have it.
pub(super) type Shared = Arc<Mutex<Core>>;

/// A panic in an operator does not make its state unreadable: every change is one step.
pub(super) fn lock(core: &Shared) -> MutexGuard<'_, Core> {
    core.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// Opens the database with all states of the descriptor.
    pub(super) fn open(
        path: &Path,
        mut descriptor: KeyedDescriptor,
        options: &DatabaseOptions,
        clock: Clock,
        access: Access,
    ) -> Result<Self, StateError> {
        let options = &DatabaseOptions { create: access == Access::Write { create: true }, ..options.clone() };
        let there = if options.create { Vec::new() } else { Database::families(path)? };
        let range = descriptor.range;
        let slots = std::mem::take(&mut descriptor.states).into_iter();
        // Nothing is known of the timers of a database that others wrote.
        let slots: Vec<Slot> = slots.map(|state| Slot::new(state, range.count(), Some(i64::MIN))).collect();
        if let Some(slot) = slots.iter().find(|slot| !there.contains(&slot.family)) {
            let problem = format!("it has no column family {:?}, though its descriptor names it", slot.family);
            return Err(StateError::Backend { path: path.to_owned(), problem });
        }
        let with_options = |family: &str| match slots.iter().find(|slot| slot.family == family) {
            Some(slot) => slot.options(options, &clock),
            None => options.to_rocksdb(),
        };
        let families = there.iter().map(|family| (family.as_str(), with_options(family))).collect();
        let database = match access {
            Access::Write { .. } => Database::open_families(path, families, options)?,
            Access::Read => {
                let names: Vec<&str> = there.iter().map(String::as_str).collect();
                Database::open_read_only(path, &names, options)?
            }
        };
        // Later families are made, whatever this one was.
        let options = DatabaseOptions { create: true, ..options.clone() };
        Ok(Self { database: Some(database), options, descriptor, slots, key: None, clock, pending: 0 })
    }

    /// The database, while the backend is not closed.
    pub(super) fn database(&self) -> Result<&Database, StateError> {
        self.database.as_ref().ok_or(StateError::Closed)
    }

    /// Declares a state: makes it, or holds the declaration against what is stored.
    pub(super) fn register(&mut self, declared: StateDescriptor) -> Result<StateId, StateError> {
        let family = declared.family();
        check_name(&declared, &family)?;
        if let Some((id, slot)) = self.slots.iter_mut().enumerate().find(|(_, slot)| slot.family == family) {
            slot.descriptor.check(&declared)?;
            slot.lifetime.store(declared.ttl.map_or(u64::MAX, |ttl| ttl.ms), Ordering::Relaxed);
            slot.descriptor.ttl = declared.ttl;
            return Ok(id);
        }
        let database = self.database.as_mut().ok_or(StateError::Closed)?;
        if database.has_family(&family) {
            let problem = format!("it has a column family {family:?} that its descriptor does not name");
            return Err(StateError::Backend { path: database.path().to_owned(), problem });
        }
        let slot = Slot::new(declared, self.descriptor.range.count(), None);
        database.create_family_with(&family, slot.options(&self.options, &self.clock))?;
        self.slots.push(slot);
        Ok(self.slots.len() - 1)
    }

    pub(super) fn full_descriptor(&self) -> KeyedDescriptor {
        let mut states: Vec<StateDescriptor> = self.slots.iter().map(|slot| slot.descriptor.clone()).collect();
        states.sort_by_key(StateDescriptor::family);
        KeyedDescriptor { states, ..self.descriptor.clone() }
    }

    pub(super) fn has_states(&self) -> bool {
        !self.slots.is_empty()
    }

    /// A state that is not of timers, by its name.
    pub(super) fn find(&self, name: &str, namespace: &SerializerDescriptor) -> Result<StateId, StateError> {
        let problem = match self.slots.iter().position(|slot| slot.family == name) {
            Some(id) => match self.slots.get(id).map(|slot| compatible(&slot.descriptor.namespace, namespace)) {
                Some(Compatibility::Refused(words)) => format!("its namespace: {words}"),
                _ => return Ok(id),
            },
            None => "there is no such state".to_owned(),
        };
        Err(StateError::encode("query", problem).of_state(name))
    }

    fn slot(&self, id: StateId) -> Result<&Slot, StateError> {
        // Ids come from `register`, and slots are never removed.
        self.slots.get(id).ok_or(StateError::Closed)
    }

    /// The value of a row.
    pub(super) fn get(&self, id: StateId, row: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        let slot = self.slot(id)?;
        slot.overlay.get(self.database()?, &slot.family, row)
    }

    /// Sets the value of a row.
    pub(super) fn put(&mut self, id: StateId, row: Vec<u8>, value: Vec<u8>) -> Result<(), StateError> {
        self.write(id, |overlay| overlay.write(row, Write::Put(value)))
    }

    /// Removes a row.
    pub(super) fn delete(&mut self, id: StateId, row: Vec<u8>) -> Result<(), StateError> {
        self.write(id, |overlay| overlay.write(row, Write::Delete))
    }

    /// Appends an element, or several that are joined, to a row.
    pub(super) fn append(&mut self, id: StateId, row: Vec<u8>, element: &[u8]) -> Result<(), StateError> {
        self.write(id, |overlay| overlay.append(row, element))
    }

    fn write(&mut self, id: StateId, write: impl FnOnce(&mut Overlay) -> usize) -> Result<(), StateError> {
        self.database()?;
        let slot = self.slots.get_mut(id).ok_or(StateError::Closed)?;
        self.pending = self.pending.saturating_add(write(&mut slot.overlay));
        if self.pending >= WRITE_BATCH { self.flush() } else { Ok(()) }
    }

    /// Visits rows in order until the visitor says false.
    pub(super) fn scan(
        &self,
        id: StateId,
        bounds: (&[u8], Option<&[u8]>),
        visit: impl FnMut(&[u8], &[u8]) -> Result<bool, StateError>,
    ) -> Result<(), StateError> {
        let slot = self.slot(id)?;
        slot.overlay.scan(self.database()?, &slot.family, bounds, visit)
    }

    /// Hands all writes to RocksDB in one step. When that fails they stay.
    pub(super) fn flush(&mut self) -> Result<(), StateError> {
        let database = self.database.as_ref().ok_or(StateError::Closed)?;
        let mut batch = database.batch();
        for slot in self.slots.iter().filter(|slot| !slot.overlay.is_empty()) {
            slot.overlay.write_to(&mut batch, &slot.family)?;
        }
        batch.commit_unlogged()?;
        self.slots.iter_mut().for_each(|slot| slot.overlay.clear());
        self.pending = 0;
        Ok(())
    }

    /// For a key group of the range, the time before which it has no timer of a state; nothing where it has none.
    pub(super) fn timer_bound(&mut self, id: StateId, group: u32) -> Result<&mut Option<i64>, StateError> {
        let index = group.checked_sub(self.descriptor.range.first).map(|i| i as usize);
        let wrong = StateError::WrongSubtask { group, range: self.descriptor.range };
        let bounds = &mut self.slots.get_mut(id).ok_or(StateError::Closed)?.bounds;
        index.and_then(|i| bounds.get_mut(i)).ok_or(wrong)
    }

    #[cfg(test)]
    pub(super) fn compact(&self) -> Result<(), StateError> {
        self.slots.iter().try_for_each(|slot| self.database()?.compact(&slot.family))
    }

    pub(super) fn close(&mut self) {
        self.database = None;
        self.slots.iter_mut().for_each(|slot| slot.overlay.clear());
    }
}

impl Slot {
    fn new(descriptor: StateDescriptor, groups: u32, bound: Option<i64>) -> Self {
        let bounds = match descriptor.kind {
            StateKind::Timer(_) => vec![bound; groups as usize],
            _ => Vec::new(),
        };
        let lifetime = Arc::new(AtomicU64::new(descriptor.ttl.map_or(u64::MAX, |ttl| ttl.ms)));
        Self { family: descriptor.family(), descriptor, overlay: Overlay::default(), lifetime, bounds }
    }

    /// Options of its column family: with a time to live, compactions drop what is over it. Not in lists, whose elements have one each.
    fn options(&self, options: &DatabaseOptions, clock: &Clock) -> Options {
        let mut options = options.to_rocksdb();
        let skip = match self.descriptor.kind {
            StateKind::Map => super::map::NOT_NULL.len(),
            StateKind::Value | StateKind::Reducing | StateKind::Aggregating => 0,
            StateKind::List | StateKind::Timer(_) => return options,
        };
        if self.descriptor.ttl.is_some() {
            let (lifetime, clock) = (Arc::clone(&self.lifetime), Arc::clone(clock));
            options.set_compaction_filter("ckptfs.ttl", move |_, _, value| {
                let ttl = ttl::Ttl::after_write(lifetime.load(Ordering::Relaxed));
                match value.get(skip..).and_then(ttl::used_at) {
                    Some(used) if ttl.expired(used, clock()) => Decision::Remove,
                    _ => Decision::Keep,
                }
            });
        }
        options
    }
}

/// Checks that a name can be that of a column family, and only of this state's.
fn check_name(declared: &StateDescriptor, family: &str) -> Result<(), StateError> {
    let timer = matches!(declared.kind, StateKind::Timer(_));
    let problem = if declared.name.is_empty() {
        "its name is empty".to_owned()
    } else if family.len() > limits::ROCKS_NAME_LEN {
        format!("its name is longer than {} bytes", limits::ROCKS_NAME_LEN)
    } else if !timer && (family == "default" || family.starts_with(TIMERS)) {
        "RocksDB and the timers have names like this".to_owned()
    } else {
        return Ok(());
    };
    Err(StateError::encode("state's name", problem).of_state(&declared.name))
}
