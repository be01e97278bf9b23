//! The inputs of a subtask: one bounded queue per subtask upstream. Barriers are aligned here: an input that brought the barrier of a
//! checkpoint waits until all others have, so that no record from behind the barrier is in the snapshot.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::chain::{Arrival, Barrier};
use super::data::Record;
use crate::error::{Error, Kind, Result};
use crate::types::CheckpointNumber;

/// What flows between subtasks.
#[derive(Debug, Clone, PartialEq)]
pub enum Element {
    /// A record.
    Record(Record),
    /// No record with an earlier timestamp (milliseconds) follows on this input.
    Watermark(i64),
    /// A checkpoint cuts the stream here.
    Barrier(Barrier),
    /// The barrier of this checkpoint will not come.
    Cancelled(CheckpointNumber),
    /// The input's end.
    End,
}

/// What the inputs come to.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrived {
    /// A record.
    Record(Record),
    /// The lowest watermark of all inputs rose to this.
    Watermark(i64),
    /// All inputs have brought this barrier.
    Barrier(Barrier, Arrival),
    /// This checkpoint will not come.
    Cancelled(CheckpointNumber),
    /// All inputs have ended.
    End,
    /// Nothing came for so long.
    Nothing,
}

impl PartialEq for Arrival {
    fn eq(&self, other: &Self) -> bool {
        (self.start_delay, self.alignment) == (other.start_delay, other.alignment)
    }
}

#[derive(Debug, Default)]
struct Channel {
    queue: VecDeque<Element>,
    /// It brought the barrier that the others have not.
    blocked: bool,
    ended: bool,
    watermark: Option<i64>,
    /// Its sender is gone without an end.
    broken: bool,
    /// Its sender was told to stop: nothing more comes, and that is no error.
    left: bool,
}

#[derive(Debug)]
struct State {
    channels: Vec<Channel>,
    /// Whose turn it is to be looked at first.
    turn: usize,
    /// The barrier that is being aligned, since when.
    aligning: Option<(Barrier, Instant)>,
    /// The newest checkpoint whose barrier or cancellation went through.
    last: Option<CheckpointNumber>,
    watermark: Option<i64>,
    ended: bool,
    closed: bool,
    /// The reader was told to stop: what is sent on is for nobody, and that is no error.
    left: bool,
}

#[derive(Debug)]
struct Shared {
    capacity: usize,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Gate(Arc<Shared>);

/// A writing end: one per subtask upstream.
#[derive(Debug)]
pub struct GateSender {
    shared: Arc<Shared>,
    channel: usize,
}

/// A gate of so many inputs, each of which holds so many elements before its sender waits.
#[must_use]
pub fn gate(inputs: usize, capacity: usize) -> (Gate, Vec<GateSender>) {
    let channels = (0..inputs).map(|_| Channel::default()).collect();
    let state = State {
        channels,
        turn: 0,
        aligning: None,
        last: None,
        watermark: None,
        ended: false,
        closed: false,
        left: false,
    };
    let shared = Arc::new(Shared { capacity: capacity.max(1), state: Mutex::new(state), changed: Condvar::new() });
    let senders = (0..inputs).map(|channel| GateSender { shared: Arc::clone(&shared), channel }).collect();
    (Gate(shared), senders)
}

fn gone(what: &str) -> Error {
    Error::new(Kind::Other, format!("the task {what} is gone"))
}

impl GateSender {
    /// Sends an element; waits while the queue is full.
    ///
    /// # Errors
    /// When the reader is gone.
    pub fn send(&self, element: Element) -> Result<()> {
        let shared = &self.shared;
        let full = |s: &mut State| {
            !s.closed && !s.left && s.channels.get(self.channel).is_some_and(|c| c.queue.len() >= shared.capacity)
        };
        let mut state = shared.changed.wait_while(shared.lock(), full).unwrap_or_else(PoisonError::into_inner);
        if state.left {
            return Ok(());
        }
        if state.closed {
            return Err(gone("downstream"));
        }
        if let Some(channel) = state.channels.get_mut(self.channel) {
            channel.queue.push_back(element);
        }
        drop(state);
        shared.changed.notify_all();
        Ok(())
    }
}

impl GateSender {
    /// Goes in order, without an end: the job is stopped, and the reader will be told so itself.
    pub fn leave(self) {
        if let Some(channel) = self.shared.lock().channels.get_mut(self.channel) {
            channel.left = true;
        }
    }
}

impl Drop for GateSender {
    fn drop(&mut self) {
        if let Some(channel) = self.shared.lock().channels.get_mut(self.channel) {
            channel.broken = !channel.left;
        }
        self.shared.changed.notify_all();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_all();
    }
}

impl Gate {
    /// Goes in order: the job is stopped, and those who send will be told so themselves. Until then what they send is dropped.
    pub fn leave(self) {
        self.0.lock().left = true;
    }

    /// What comes next; waits for it no longer than this.
    ///
    /// # Errors
    /// When a task upstream is gone without having ended.
    pub fn next(&self, wait: Duration) -> Result<Arrived> {
        let until = Instant::now() + wait;
        let mut state = self.0.lock();
        loop {
            if let Some(arrived) = state.step()? {
                drop(state);
                self.0.changed.notify_all();
                return Ok(arrived);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Arrived::Nothing);
            }
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    /// Takes elements until one of them means something to the task.
    fn step(&mut self) -> Result<Option<Arrived>> {
        loop {
            if self.ended {
                return Ok(Some(Arrived::End));
            }
            let count = self.channels.len();
            let ready = (0..count).map(|i| (self.turn + i) % count.max(1));
            let found =
                ready.into_iter().find(|i| self.channels.get(*i).is_some_and(|c| !c.blocked && !c.queue.is_empty()));
            let Some(at) = found else {
                if self.channels.iter().any(|c| c.broken && !c.ended && c.queue.is_empty()) {
                    return Err(gone("upstream"));
                }
                return Ok(None);
            };
            self.turn = (at + 1) % count.max(1);
            let Some(element) = self.channels.get_mut(at).and_then(|c| c.queue.pop_front()) else { continue };
            if let Some(arrived) = self.take(at, element) {
                return Ok(Some(arrived));
            }
        }
    }

    fn take(&mut self, at: usize, element: Element) -> Option<Arrived> {
        match element {
            Element::Record(record) => Some(Arrived::Record(record)),
            Element::Watermark(t) => {
                let channel = self.channels.get_mut(at)?;
                channel.watermark = channel.watermark.max(Some(t));
                self.lowest_watermark()
            }
            Element::Barrier(barrier) => self.barrier(at, barrier),
            Element::Cancelled(number) => self.cancelled(number),
            Element::End => {
                self.channels.get_mut(at)?.ended = true;
                self.ended = self.channels.iter().all(|c| c.ended);
                // What has ended has no barrier to bring, and holds no watermark back.
                self.aligned().or_else(|| self.lowest_watermark())
            }
        }
    }

    fn lowest_watermark(&mut self) -> Option<Arrived> {
        let mut all = self.channels.iter().filter(|c| !c.ended).map(|c| c.watermark);
        let lowest = all.try_fold(i64::MAX, |low, w| w.map(|w| low.min(w)))?;
        if self.channels.iter().all(|c| c.ended) || self.watermark.is_some_and(|w| w >= lowest) {
            return None;
        }
        self.watermark = Some(lowest);
        Some(Arrived::Watermark(lowest))
    }

    fn barrier(&mut self, at: usize, barrier: Barrier) -> Option<Arrived> {
        if self.last.is_some_and(|last| barrier.number <= last) {
            return None;
        }
        match &self.aligning {
            Some((now, _)) if now.number == barrier.number => {
                self.channels.get_mut(at)?.blocked = true;
                self.aligned()
            }
            Some((now, _)) if now.number > barrier.number => None,
            older => {
                // A newer one overtakes: the older will never be aligned, since this input will not bring it.
                let given_up = older.as_ref().map(|(b, _)| b.number);
                self.channels.iter_mut().for_each(|c| c.blocked = false);
                self.channels.get_mut(at)?.blocked = true;
                self.aligning = Some((barrier, Instant::now()));
                match given_up {
                    // The alignment that begins may be whole at once: it is looked at when the next element comes.
                    Some(number) => {
                        self.last = self.last.max(Some(number));
                        Some(Arrived::Cancelled(number))
                    }
                    None => self.aligned(),
                }
            }
        }
    }

    /// Whether all inputs have brought the barrier.
    fn aligned(&mut self) -> Option<Arrived> {
        let (barrier, since) = self.aligning?;
        if !self.channels.iter().all(|c| c.blocked || c.ended) {
            return None;
        }
        self.channels.iter_mut().for_each(|c| c.blocked = false);
        self.aligning = None;
        self.last = Some(barrier.number);
        let alignment = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        Some(Arrived::Barrier(barrier, Arrival { start_delay: 0, alignment }))
    }

    fn cancelled(&mut self, number: CheckpointNumber) -> Option<Arrived> {
        if self.last.is_some_and(|last| number <= last) {
            return None;
        }
        match &self.aligning {
            Some((now, _)) if now.number > number => return None,
            Some(_) => {
                self.channels.iter_mut().for_each(|c| c.blocked = false);
                self.aligning = None;
            }
            None => {}
        }
        self.last = Some(number);
        Some(Arrived::Cancelled(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::coordinator::TriggerKind;
    use crate::types::Uid;

    fn barrier(n: u64) -> Barrier {
        let (number, uid) = (CheckpointNumber::new(n).unwrap(), Uid::from_bytes([1; 16]));
        Barrier { number, uid, timestamp_ms: 0, kind: TriggerKind::Checkpoint }
    }

    fn record(b: u8) -> Element {
        Element::Record(Record { value: vec![b], timestamp: 0 })
    }

    fn drain(gate: &Gate) -> Vec<String> {
        let mut out = Vec::new();
        loop {
            out.push(match gate.next(Duration::ZERO).unwrap() {
                Arrived::Record(r) => r.value[0].to_string(),
                Arrived::Watermark(t) => format!("w{t}"),
                Arrived::Barrier(b, _) => format!("b{}", b.number.get()),
                Arrived::Cancelled(n) => format!("c{}", n.get()),
                Arrived::End => {
                    out.push("end".to_owned());
                    return out;
                }
                Arrived::Nothing => return out,
            });
        }
    }

    #[test]
    fn row1_nothing_from_behind_a_barrier_comes_before_it() {
        let (gate, senders) = gate(2, 16);
        for e in [record(1), Element::Barrier(barrier(1)), record(2)] {
            senders[0].send(e).unwrap();
        }
        assert_eq!(drain(&gate), ["1"], "the first input waits");
        for e in [record(3), record(4), Element::Barrier(barrier(1)), record(5)] {
            senders[1].send(e).unwrap();
        }
        let seen = drain(&gate);
        let at = |x: &str| seen.iter().position(|s| s == x).unwrap();
        assert!(at("3") < at("b1") && at("4") < at("b1") && at("b1") < at("2") && at("b1") < at("5"), "{seen:?}");
    }

    #[test]
    fn row1_a_newer_barrier_gives_the_older_up_and_a_cancellation_frees_the_inputs() {
        let (gate, senders) = gate(2, 16);
        senders[0].send(Element::Barrier(barrier(1))).unwrap();
        senders[1].send(Element::Barrier(barrier(2))).unwrap();
        assert_eq!(drain(&gate), ["c1"]);
        senders[0].send(Element::Barrier(barrier(2))).unwrap();
        assert_eq!(drain(&gate), ["b2"]);
        senders[0].send(Element::Barrier(barrier(3))).unwrap();
        senders[0].send(record(7)).unwrap();
        senders[1].send(Element::Cancelled(barrier(3).number)).unwrap();
        assert_eq!(drain(&gate), ["c3", "7"]);
        senders[1].send(Element::Barrier(barrier(3))).unwrap();
        senders[0].send(Element::Cancelled(barrier(2).number)).unwrap();
        assert_eq!(drain(&gate), [] as [&str; 0], "both are past");
    }

    #[test]
    fn row1_an_ended_input_holds_nothing_up() {
        let (gate, mut senders) = gate(2, 16);
        senders[0].send(Element::Watermark(5)).unwrap();
        senders[0].send(Element::Barrier(barrier(1))).unwrap();
        assert_eq!(drain(&gate), [] as [&str; 0]);
        senders[1].send(Element::End).unwrap();
        drop(senders.pop());
        assert_eq!(drain(&gate), ["b1"], "an end is no barrier of its own");
        senders[0].send(Element::Watermark(6)).unwrap();
        senders[0].send(Element::End).unwrap();
        assert_eq!(drain(&gate), ["w6", "end"]);
    }

    #[test]
    fn a_task_that_is_gone_is_an_error_on_both_sides() {
        let (gate_one, senders) = gate(1, 16);
        senders[0].send(record(1)).unwrap();
        drop(senders);
        assert!(matches!(gate_one.next(Duration::ZERO), Ok(Arrived::Record(_))));
        assert!(gate_one.next(Duration::ZERO).is_err());
        // One that was told to stop is none: the others hear it a moment later.
        let (gate_two, mut senders) = gate(1, 1);
        senders.pop().unwrap().leave();
        assert_eq!(gate_two.next(Duration::ZERO).unwrap(), Arrived::Nothing);
        let (gate_two, senders) = gate(1, 1);
        gate_two.leave();
        senders[0].send(record(1)).unwrap();
        senders[0].send(record(2)).unwrap();
        let (gate_two, senders) = gate(1, 1);
        drop(gate_two);
        assert!(senders[0].send(record(1)).is_err());
    }
}
