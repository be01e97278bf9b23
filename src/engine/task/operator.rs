//! An operator of a chain, and the sync phase of its snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::data::{Collector, Record};
use super::environment::OpenCheckpoint;
use super::failure::{Failure, guarded};
use super::futures::{FilesPart, OperatorSnapshotFutures};
use super::keyed;
use super::runner::{self, Ready, Registry, Resources};
use crate::engine::input::StateFile;
use crate::error::{Error, Kind, Result};
use crate::format::FilePath;
use crate::limits;
use crate::state::keyed::KeyedState;
use crate::state::operator::{OperatorStateBackend, OperatorStateSnapshot};
use crate::types::{CheckpointNumber, KeyGroupRange, Name};

/// What a source had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Produced {
    /// Records were sent, and more may be there.
    Some,
    /// There is nothing at the moment.
    Nothing,
    /// There will never be more.
    End,
}

/// What an author writes: the hooks around a checkpoint, and the backends that hold its managed state.
pub trait StreamOperator: Send {
    /// A record is here.
    ///
    /// # Errors
    /// The task fails then, and the job is restored.
    fn process(&mut self, record: Record, output: &mut dyn Collector) -> Result<()> {
        output.collect(record)
    }

    /// No record with an earlier timestamp follows.
    ///
    /// # Errors
    /// As [`StreamOperator::process`].
    fn watermark(&mut self, timestamp: i64, output: &mut dyn Collector) -> Result<()> {
        output.watermark(timestamp)
    }

    /// For the head of a chain without inputs: sends some records.
    ///
    /// # Errors
    /// As [`StreamOperator::process`].
    fn produce(&mut self, output: &mut dyn Collector) -> Result<Produced> {
        let _ = output;
        Ok(Produced::End)
    }

    /// The input ended: what is still held back is sent.
    ///
    /// # Errors
    /// As [`StreamOperator::process`].
    fn finish(&mut self, output: &mut dyn Collector) -> Result<()> {
        let _ = output;
        Ok(())
    }

    /// Called before the barrier goes on: what must be sent ahead of it is sent here.
    ///
    /// # Errors
    /// The snapshot of the whole task fails then.
    fn prepare_snapshot_pre_barrier(&mut self, number: CheckpointNumber) -> Result<()> {
        let _ = number;
        Ok(())
    }

    /// Called in the sync phase: writes raw state, or puts what is only in memory into a backend.
    ///
    /// # Errors
    /// The operator's snapshot fails then.
    fn snapshot_state(&mut self, context: &mut SnapshotContext) -> Result<()> {
        let _ = context;
        Ok(())
    }

    /// The keyed state backend, where there is one.
    fn keyed_state(&mut self) -> Option<&mut dyn KeyedState> {
        None
    }

    /// The operator state backend, where there is one.
    fn operator_state(&mut self) -> Option<&mut OperatorStateBackend> {
        None
    }

    /// A checkpoint is published. May be lost, and may come for a checkpoint that this operator never saw.
    ///
    /// # Errors
    /// Told to whoever passed it on; the other operators are told all the same.
    fn notify_complete(&mut self, number: CheckpointNumber) -> Result<()> {
        let _ = number;
        Ok(())
    }

    /// A checkpoint was given up.
    ///
    /// # Errors
    /// As [`StreamOperator::notify_complete`].
    fn notify_aborted(&mut self, number: CheckpointNumber) -> Result<()> {
        let _ = number;
        Ok(())
    }

    /// Newer checkpoints have taken this one's place.
    ///
    /// # Errors
    /// As [`StreamOperator::notify_complete`].
    fn notify_subsumed(&mut self, number: CheckpointNumber) -> Result<()> {
        let _ = number;
        Ok(())
    }

    /// Whether it came to its end: it is not snapshotted any more.
    fn is_closed(&self) -> bool {
        false
    }
}

/// An operator at its place in a chain.
pub struct ChainedOperator {
    /// Its name in the store.
    pub id: Name,
    /// Its name as its author writes it.
    pub name: String,
    /// The hooks.
    pub operator: Box<dyn StreamOperator>,
    /// Its running snapshots; closing it ends them.
    pub registry: Registry,
}

impl std::fmt::Debug for ChainedOperator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ChainedOperator").field(&self.name).finish()
    }
}

impl ChainedOperator {
    /// An operator by the name that its author gave it, which is also its identity.
    #[must_use]
    pub fn new(name: &str, operator: Box<dyn StreamOperator>) -> Self {
        Self { id: Name::encode(name), name: name.to_owned(), operator, registry: Registry::default() }
    }

    /// Ends its snapshots, then its backends.
    pub fn close(&mut self) {
        self.registry.close();
        if let Some(keyed) = self.operator.keyed_state() {
            keyed.close();
        }
    }

    /// The sync phase of its snapshot.
    ///
    /// # Errors
    /// `Could not complete snapshot {id} for operator {name}`, with what failed first and what failed while cleaning up. Every future
    /// that was made is cancelled.
    pub fn snapshot(&mut self, checkpoint: &Arc<OpenCheckpoint>, timestamp_ms: u64) -> Result<OperatorSnapshotFutures> {
        let key_groups = self.key_groups();
        let mut context = SnapshotContext::new(checkpoint.number, timestamp_ms, key_groups);
        let mut futures = OperatorSnapshotFutures::default();
        let result = self.fill(checkpoint, &mut context, &mut futures);
        let Err(e) = result else { return Ok(futures) };
        let mut failure = Failure::new(e);
        if let Err(cancelled) = futures.cancel() {
            failure.suppress(cancelled.first);
            cancelled.suppressed.into_iter().for_each(|e| failure.suppress(e));
        }
        context.close_exceptionally();
        let number = checkpoint.number.get();
        let failed = failure.into_error(format!("Could not complete snapshot {number} for operator {}", self.name));
        log::info!("{failed:#}");
        Err(failed)
    }

    /// Key groups of its keyed state.
    pub(super) fn key_groups(&mut self) -> Option<KeyGroupRange> {
        self.operator.keyed_state().map(|k| k.range())
    }

    fn fill(
        &mut self,
        checkpoint: &Arc<OpenCheckpoint>,
        context: &mut SnapshotContext,
        futures: &mut OperatorSnapshotFutures,
    ) -> Result<()> {
        if self.registry.is_closed() {
            return Err(Error::new(
                Kind::Conflict,
                "the state backend is closed: nothing of it can be snapshotted any more",
            ));
        }
        guarded("snapshot_state", || self.operator.snapshot_state(context))?;
        futures.keyed_raw = Ready::new(FilesPart { files: context.take_keyed()?, states: Vec::new() });
        futures.operator_raw = Ready::new(FilesPart { files: context.take_operator()?, states: Vec::new() });
        if let Some(state) = self.operator.operator_state() {
            let copy = Copied(Some(state.snapshot()));
            let what = format!("snapshot of the operator state of {}", self.name);
            futures.operator_managed = runner::run(&what, &self.registry, copy, |copy, _| copy.write())?;
        }
        if let Some(state) = self.operator.keyed_state() {
            futures.keyed_managed = keyed::snapshot(state, &self.id, checkpoint, &self.registry)?;
        }
        Ok(())
    }
}

/// A deep copy of the operator state, made in the sync phase and written in the async phase.
#[derive(Debug)]
struct Copied(Option<OperatorStateSnapshot>);

impl Resources for Copied {
    fn release(&mut self) -> Result<()> {
        self.0 = None;
        Ok(())
    }
}

impl Copied {
    fn write(&self) -> Result<FilesPart> {
        let Some(copy) = &self.0 else { return Ok(FilesPart::default()) };
        let mut part = FilesPart::default();
        for descriptor in copy.descriptors() {
            part.states.push(serde_json::json!({ "operator": descriptor }));
        }
        for (state, partition, bytes) in copy.files() {
            let path = format!("operator/{}/{partition}", Name::encode(&state));
            part.files.push(StateFile { path: file_path(&path)?, bytes: Bytes::from(bytes) });
        }
        Ok(part)
    }
}

fn file_path(path: &str) -> Result<FilePath> {
    FilePath::parse(path).map_err(|why| Error::new(Kind::Invalid, why))
}

/// What a hook is given: which checkpoint it is, and where raw state goes.
#[derive(Debug)]
pub struct SnapshotContext {
    number: CheckpointNumber,
    timestamp_ms: u64,
    key_groups: Option<KeyGroupRange>,
    keyed: BTreeMap<u32, Vec<u8>>,
    operator: Vec<Vec<u8>>,
    closed: bool,
}

impl SnapshotContext {
    fn new(number: CheckpointNumber, timestamp_ms: u64, key_groups: Option<KeyGroupRange>) -> Self {
        Self { number, timestamp_ms, key_groups, keyed: BTreeMap::new(), operator: Vec::new(), closed: false }
    }

    /// The checkpoint.
    #[must_use]
    pub fn number(&self) -> CheckpointNumber {
        self.number
    }

    /// Milliseconds since 1970 when it was triggered.
    #[must_use]
    pub fn timestamp_ms(&self) -> u64 {
        self.timestamp_ms
    }

    /// Key groups of this subtask; nothing for an operator without keyed state.
    #[must_use]
    pub fn key_groups(&self) -> Option<KeyGroupRange> {
        self.key_groups
    }

    fn open(&self) -> Result<()> {
        if self.closed { Err(Error::new(Kind::Conflict, "the snapshot's streams are closed")) } else { Ok(()) }
    }

    /// Begins the raw keyed state of a key group. Key groups may be left out, and come in ascending order.
    ///
    /// # Errors
    /// When the key group is not this subtask's, or not the next.
    pub fn start_key_group(&mut self, key_group: u32) -> Result<&mut Vec<u8>> {
        self.open()?;
        let range = self.key_groups;
        if !range.is_some_and(|r| r.first <= key_group && key_group <= r.last) {
            let range = range.map_or("none".to_owned(), |r| format!("{}..={}", r.first, r.last));
            let what = format!("key group {key_group} is not of this subtask, whose are {range}");
            return Err(Error::new(Kind::Invalid, what));
        }
        if self.keyed.last_key_value().is_some_and(|(last, _)| *last >= key_group) {
            let what =
                format!("key group {key_group} was begun before: key groups are written once, in ascending order");
            return Err(Error::new(Kind::Invalid, what));
        }
        Ok(self.keyed.entry(key_group).or_default())
    }

    /// Begins a partition of the raw operator state.
    ///
    /// # Errors
    /// When there are too many.
    pub fn start_partition(&mut self) -> Result<&mut Vec<u8>> {
        self.open()?;
        if self.operator.len() >= limits::FILES_PER_TASK / 2 {
            return Err(Error::new(
                Kind::Invalid,
                format!("{} partitions of raw state are too many", self.operator.len()),
            ));
        }
        self.operator.push(Vec::new());
        self.operator.last_mut().ok_or_else(|| Error::new(Kind::Other, "internal: a partition that is not there"))
    }

    fn take_keyed(&mut self) -> Result<Vec<StateFile>> {
        let groups = std::mem::take(&mut self.keyed).into_iter();
        groups.map(|(n, bytes)| state_file(&format!("raw-keyed/{n}"), bytes)).collect()
    }

    fn take_operator(&mut self) -> Result<Vec<StateFile>> {
        let partitions = std::mem::take(&mut self.operator).into_iter().enumerate();
        partitions.map(|(n, bytes)| state_file(&format!("raw-operator/{n}"), bytes)).collect()
    }

    /// Nothing of it will be used: what was written is dropped, and nothing more is taken.
    pub(super) fn close_exceptionally(&mut self) {
        self.closed = true;
        self.keyed.clear();
        self.operator.clear();
    }
}

fn state_file(path: &str, bytes: Vec<u8>) -> Result<StateFile> {
    Ok(StateFile { path: file_path(path)?, bytes: Bytes::from(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row2_raw_state_is_by_key_group_and_by_partition() {
        let n = CheckpointNumber::new(7).unwrap();
        let mut context = SnapshotContext::new(n, 5, Some(KeyGroupRange { first: 3, last: 6 }));
        context.start_key_group(3).unwrap().extend(b"three");
        context.start_key_group(6).unwrap().extend(b"six");
        for bad in [2, 7, 6, 5] {
            assert_eq!(context.start_key_group(bad).unwrap_err().kind(), Kind::Invalid, "{bad}");
        }
        context.start_partition().unwrap().extend(b"zero");
        context.start_partition().unwrap().extend(b"one");
        let of = |files: Vec<StateFile>| -> Vec<(String, Bytes)> {
            files.into_iter().map(|f| (f.path.to_string(), f.bytes)).collect()
        };
        let (three, six) =
            (("raw-keyed/3".to_owned(), Bytes::from("three")), ("raw-keyed/6".to_owned(), Bytes::from("six")));
        assert_eq!(of(context.take_keyed().unwrap()), [three, six]);
        assert_eq!(of(context.take_operator().unwrap()).len(), 2);
        context.close_exceptionally();
        assert_eq!(context.start_partition().unwrap_err().kind(), Kind::Conflict);
        assert_eq!(context.start_key_group(4).unwrap_err().kind(), Kind::Conflict);
        let mut unkeyed = SnapshotContext::new(n, 5, None);
        assert!(unkeyed.start_key_group(0).is_err());
    }
}
