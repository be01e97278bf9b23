//! A coordinator and its tasks in one process: channels.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use super::gateway::{Gateway, Reporter, TaskSide};
use super::message::{AckReport, Notice, Order, TaskEvent, Trigger};
use crate::error::{Error, Kind, Result};
use crate::types::{CheckpointNumber, Name};

/// The coordinator's end.
#[derive(Debug)]
pub struct LocalGateway {
    orders: Vec<Sender<Order>>,
    events: Receiver<TaskEvent>,
}

/// A task's end. Once the coordinator is gone it is told to stop: another one restores the job before it goes on.
#[derive(Debug)]
pub struct LocalTask {
    orders: Receiver<Order>,
    reporter: Arc<LocalReporter>,
}

#[derive(Debug)]
struct LocalReporter(Sender<TaskEvent>);

impl LocalGateway {
    /// A gateway with this many tasks.
    #[must_use]
    pub fn new(tasks: usize) -> (Self, Vec<LocalTask>) {
        let (tell, events) = channel();
        let reporter = Arc::new(LocalReporter(tell));
        let pairs = (0..tasks).map(|_| {
            let (order, orders) = channel();
            (order, LocalTask { orders, reporter: Arc::clone(&reporter) })
        });
        let (orders, tasks) = pairs.unzip();
        (Self { orders, events }, tasks)
    }

    /// Tells all; says how many are gone.
    fn tell(&self, order: Order) -> usize {
        self.orders.iter().filter(|task| task.send(order).is_err()).count()
    }
}

impl Gateway for LocalGateway {
    fn trigger(&self, trigger: &Trigger) -> Result<()> {
        match self.tell(Order::Trigger(*trigger)) {
            0 => Ok(()),
            gone => {
                let of = self.orders.len();
                Err(Error::new(Kind::NotFound, format!("{gone} of the job's {of} tasks are gone")))
            }
        }
    }

    fn notify(&self, notice: &Notice) -> Result<()> {
        self.tell(Order::Notice(*notice));
        Ok(())
    }

    fn stop(&self) -> Result<()> {
        self.tell(Order::Stop);
        Ok(())
    }

    fn poll(&self, wait: Duration) -> Result<Vec<TaskEvent>> {
        let first = match self.events.recv_timeout(wait) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => return Ok(Vec::new()),
            Err(RecvTimeoutError::Disconnected) => {
                // Every task and every thread of theirs is gone: there is nothing to hear, and time must pass all the same.
                std::thread::sleep(wait);
                return Ok(Vec::new());
            }
        };
        Ok(std::iter::once(first).chain(self.events.try_iter()).collect())
    }
}

impl TaskSide for LocalTask {
    fn poll(&mut self) -> Result<Vec<Order>> {
        let mut orders = Vec::new();
        loop {
            match self.orders.try_recv() {
                Ok(order) => orders.push(order),
                Err(TryRecvError::Empty) => return Ok(orders),
                Err(TryRecvError::Disconnected) => {
                    orders.push(Order::Stop);
                    return Ok(orders);
                }
            }
        }
    }

    fn reporter(&self) -> Arc<dyn Reporter> {
        Arc::<LocalReporter>::clone(&self.reporter)
    }
}

impl LocalReporter {
    fn tell(&self, event: TaskEvent) -> Result<()> {
        self.0.send(event).map_err(|_| Error::new(Kind::NotFound, "the coordinator is gone"))
    }
}

impl Reporter for LocalReporter {
    fn acked(&self, number: CheckpointNumber, operator: &Name, subtask: u32, report: &AckReport) -> Result<()> {
        self.tell(TaskEvent::Acked { number, operator: operator.clone(), subtask, report: *report })
    }

    fn declined(&self, number: CheckpointNumber, operator: &Name, subtask: u32, reason: &str) -> Result<()> {
        self.tell(TaskEvent::Declined { number, operator: operator.clone(), subtask, reason: reason.to_owned() })
    }

    fn failed(&self, operator: &Name, subtask: u32, reason: &str) -> Result<()> {
        self.tell(TaskEvent::Failed { operator: operator.clone(), subtask, reason: reason.to_owned() })
    }

    fn finished(&self, operator: &Name, subtask: u32) -> Result<()> {
        self.tell(TaskEvent::Finished { operator: operator.clone(), subtask })
    }
}
