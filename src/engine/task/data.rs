//! Records on their way through a chain and on to the tasks downstream.

use super::chain::{Barrier, Downstream};
use super::failure::guarded;
use super::gate::{Element, GateSender};
use super::operator::ChainedOperator;
use crate::error::{Error, Kind, Result};
use crate::types::CheckpointNumber;

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its bytes; what they mean, operators agree on.
    pub value: Vec<u8>,
    /// Event time in milliseconds.
    pub timestamp: i64,
}

/// Where an operator's output goes.
pub trait Collector {
    /// Sends a record on.
    ///
    /// # Errors
    /// What the operators behind it or the tasks downstream say.
    fn collect(&mut self, record: Record) -> Result<()>;

    /// Sends a watermark on.
    ///
    /// # Errors
    /// As [`Collector::collect`].
    fn watermark(&mut self, timestamp: i64) -> Result<()>;
}

/// Which of the subtasks downstream a record goes to, of so many.
pub type Partitioner = Box<dyn FnMut(&Record, usize) -> Result<usize> + Send>;

/// An edge of the job: the subtasks downstream, and which of them a record goes to.
pub struct Edge {
    /// One per subtask downstream.
    pub senders: Vec<GateSender>,
    /// Chooses.
    pub partition: Partitioner,
}

impl std::fmt::Debug for Edge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edge").field("senders", &self.senders.len()).finish_non_exhaustive()
    }
}

/// All edges that leave a subtask. None: it is a sink.
#[derive(Debug, Default)]
pub struct Outputs(pub Vec<Edge>);

impl Outputs {
    fn everywhere(&mut self, element: &Element) -> Result<()> {
        self.0.iter().flat_map(|edge| &edge.senders).try_for_each(|sender| sender.send(element.clone()))
    }

    /// Goes in order, without an end: the job is stopped, and the tasks downstream will be told so themselves.
    pub fn leave(&mut self) {
        self.0.drain(..).flat_map(|edge| edge.senders).for_each(GateSender::leave);
    }

    /// Says that nothing follows.
    ///
    /// # Errors
    /// When a task downstream is gone.
    pub fn end(&mut self) -> Result<()> {
        self.everywhere(&Element::End)
    }
}

impl Downstream for Outputs {
    fn barrier(&mut self, barrier: &Barrier) -> Result<()> {
        self.everywhere(&Element::Barrier(*barrier))
    }

    fn cancelled(&mut self, number: CheckpointNumber) -> Result<()> {
        self.everywhere(&Element::Cancelled(number))
    }
}

impl Collector for Outputs {
    fn collect(&mut self, record: Record) -> Result<()> {
        let last = self.0.len().saturating_sub(1);
        let mut record = Some(record);
        for (i, edge) in self.0.iter_mut().enumerate() {
            let Some(record) = (if i == last { record.take() } else { record.clone() }) else { break };
            let to = (edge.partition)(&record, edge.senders.len())?;
            let sender = edge.senders.get(to);
            let no_such = || Error::new(Kind::Invalid, format!("there is no subtask {to} downstream"));
            sender.ok_or_else(no_such)?.send(Element::Record(record))?;
        }
        Ok(())
    }

    fn watermark(&mut self, timestamp: i64) -> Result<()> {
        self.everywhere(&Element::Watermark(timestamp))
    }
}

/// The operators behind one of a chain, and what comes after them.
pub(super) struct Rest<'a> {
    pub(super) chain: &'a mut [ChainedOperator],
    pub(super) outputs: &'a mut dyn Collector,
}

impl Collector for Rest<'_> {
    fn collect(&mut self, record: Record) -> Result<()> {
        let Some((next, chain)) = self.chain.split_first_mut() else { return self.outputs.collect(record) };
        let mut rest = Rest { chain, outputs: self.outputs };
        guarded("process", || next.operator.process(record, &mut rest)).map_err(|e| named(e, &next.name))
    }

    fn watermark(&mut self, timestamp: i64) -> Result<()> {
        let Some((next, chain)) = self.chain.split_first_mut() else { return self.outputs.watermark(timestamp) };
        let mut rest = Rest { chain, outputs: self.outputs };
        guarded("watermark", || next.operator.watermark(timestamp, &mut rest)).map_err(|e| named(e, &next.name))
    }
}

/// Says whose error it is, once.
fn named(e: Error, name: &str) -> Error {
    if e.message().starts_with("operator ") { e } else { e.context(format!("operator {name}")) }
}
