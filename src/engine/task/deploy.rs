//! A job in one process: its subtasks as threads, with gates between them and one gateway to the coordinator.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::chain::Subtask;
use super::data::{Edge, Outputs, Partitioner};
use super::environment::Environment;
use super::gate::{Gate, GateSender, gate};
use super::local_state::LocalStateStore;
use super::operator::ChainedOperator;
use super::run::{Ending, Input, Run};
use crate::cache::Session;
use crate::engine::coordinator::{LocalGateway, Reporter, StoredTask, Task, TaskSide};
use crate::error::{Error, Kind, Result};
use crate::format::ExpectedOperator;
use crate::types::{Epoch, Name};

/// Elements that wait between two subtasks.
const QUEUE: usize = 256;

/// What is the same for all subtasks of a job.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Store and cache.
    pub session: Session,
    /// The job.
    pub job: Name,
    /// Where snapshots are made; on the device of the databases.
    pub scratch: PathBuf,
    /// Root of the local copies; nothing: none are kept.
    pub local: Option<PathBuf>,
}

/// Makes the chain of one subtask, with the state that it starts from.
pub type Make = Box<dyn FnMut(u32) -> Result<Vec<ChainedOperator>>>;

/// A chain of operators that runs in so many subtasks.
pub struct Vertex {
    /// Its operators, the head first.
    pub operators: Vec<String>,
    /// Number of its subtasks.
    pub parallelism: u32,
    /// Makes one.
    pub make: Make,
}

/// Records go from the subtasks of one vertex to those of another. Vertices are named by their index; a vertex that no link leads
/// to is a source.
pub struct Link {
    /// From.
    pub from: usize,
    /// To, which comes later in the list.
    pub to: usize,
    /// Makes the partitioner of a subtask.
    pub partition: Box<dyn Fn(u32) -> Partitioner>,
}

impl std::fmt::Debug for Vertex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {}", self.operators.join(" -> "), self.parallelism)
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} -> {}", self.from, self.to)
    }
}

/// Who must acknowledge a checkpoint of these.
#[must_use]
pub fn expected(vertices: &[Vertex]) -> Vec<ExpectedOperator> {
    let each = |v: &Vertex| {
        let parallelism = v.parallelism;
        v.operators.iter().map(move |o| ExpectedOperator { operator: Name::encode(o), parallelism }).collect::<Vec<_>>()
    };
    vertices.iter().flat_map(each).collect()
}

/// A running subtask.
#[derive(Debug)]
struct Running {
    vertex: usize,
    index: u32,
    killed: Arc<AtomicBool>,
    thread: JoinHandle<Result<Ending>>,
}

/// The running subtasks of a job.
#[derive(Debug)]
pub struct Deployment(Vec<Running>);

impl Deployment {
    /// Starts every subtask, for a coordinator in this process.
    ///
    /// # Errors
    /// When a chain cannot be made or a thread not be started; what runs already is killed then.
    pub fn start(around: &Surroundings, vertices: Vec<Vertex>, links: &[Link]) -> Result<(Self, LocalGateway)> {
        let count: usize = vertices.iter().map(|v| v.parallelism as usize).sum();
        let (gateway, sides) = LocalGateway::new(count);
        let mut sides = sides.into_iter();
        let side = |_| {
            let side = sides.next().ok_or_else(|| Error::new(Kind::Other, "internal: a task without its side"))?;
            Ok(Box::new(side) as Box<dyn TaskSide>)
        };
        Ok((Self::start_with(around, vertices, links, side)?, gateway))
    }

    /// Starts every subtask, for a coordinator in another process or on another host: the one of this epoch. Each looks for its words in the
    /// store once per period.
    ///
    /// # Errors
    /// As [`Deployment::start`].
    pub fn start_stored(
        around: &Surroundings,
        vertices: Vec<Vertex>,
        links: &[Link],
        (epoch, period): (Epoch, Duration),
    ) -> Result<Self> {
        let Surroundings { session, job, .. } = around;
        let side = |tasks| -> Result<Box<dyn TaskSide>> {
            Ok(Box::new(StoredTask::new(session.store.clone(), job.clone(), epoch, tasks, period)))
        };
        Self::start_with(around, vertices, links, side)
    }

    fn start_with(
        around: &Surroundings,
        mut vertices: Vec<Vertex>,
        links: &[Link],
        mut side: impl FnMut(Vec<Task>) -> Result<Box<dyn TaskSide>>,
    ) -> Result<Self> {
        let count: usize = vertices.iter().map(|v| v.parallelism as usize).sum();
        let mut wires = Wires::new(&vertices, links)?;
        let mut all = Self(Vec::with_capacity(count));
        // Downstream first: nobody sends to what is not there.
        for (at, vertex) in vertices.iter_mut().enumerate().rev() {
            for index in 0..vertex.parallelism {
                let tasks = vertex.operators.iter().map(|o| (Name::encode(o), index)).collect();
                let run = side(tasks).and_then(|side| one(around, vertex, index, side, wires.take(at, index, links)));
                match run.and_then(|(run, reporter)| spawn(run, reporter, (at, index))) {
                    Ok(running) => all.0.push(running),
                    Err(e) => {
                        all.kill();
                        drop(wires);
                        drop(all.join());
                        return Err(e.context(format!("subtask {index} of {vertex:?}")));
                    }
                }
            }
        }
        Ok(all)
    }

    /// Number of subtasks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Kills one, as if its process had died.
    pub fn kill_one(&self, which: usize) {
        if let Some(running) = self.0.get(which) {
            running.killed.store(true, Ordering::Release);
        }
    }

    /// Kills all.
    pub fn kill(&self) {
        self.0.iter().for_each(|r| r.killed.store(true, Ordering::Release));
    }

    /// Waits for all; says how each ended, by vertex and index.
    #[must_use = "an error says what broke"]
    pub fn join(self) -> Vec<(usize, u32, Result<Ending>)> {
        let ended = |running: Running| {
            let panicked = |_| Err(Error::new(Kind::Other, "internal: a task panicked"));
            (running.vertex, running.index, running.thread.join().unwrap_or_else(panicked))
        };
        self.0.into_iter().map(ended).collect()
    }
}

fn one(
    around: &Surroundings,
    vertex: &mut Vertex,
    index: u32,
    side: Box<dyn TaskSide>,
    (input, outputs): (Input, Outputs),
) -> Result<(Run, Arc<dyn Reporter>)> {
    let chain = (vertex.make)(index)?;
    let reporter = side.reporter();
    let head = vertex.operators.first().map_or_else(|| Name::encode("task"), |o| Name::encode(o));
    let local = around.local.as_ref().map(|root| LocalStateStore::new(&root.join(head.as_str()), &around.job, index));
    let environment = Environment {
        session: around.session.clone(),
        job: around.job.clone(),
        subtask: index,
        scratch: around.scratch.clone(),
        local,
        reporter: Arc::clone(&reporter),
    };
    let subtask = Subtask::new(Arc::new(environment), chain);
    let (killed, clock) = (Arc::new(AtomicBool::new(false)), crate::types::now_ms as fn() -> u64);
    Ok((Run { subtask, input, outputs, side, killed, clock }, reporter))
}

fn spawn(run: Run, reporter: Arc<dyn Reporter>, (vertex, index): (usize, u32)) -> Result<Running> {
    let killed = Arc::clone(&run.killed);
    let head = run.subtask.identities().into_iter().next();
    let name = head.as_ref().map_or_else(String::new, |(operator, _)| format!("{operator}/{index}"));
    let body = move || {
        let ended = run.run();
        if let (Err(e), Some((operator, index))) = (&ended, head)
            && let Err(untold) = reporter.failed(&operator, index, e.message())
        {
            log::debug!("{untold}");
        }
        ended
    };
    let thread = std::thread::Builder::new().name(name).spawn(body);
    let thread = thread.map_err(|e| Error::with_source(Kind::Resources, format!("no thread for a task: {e}"), e))?;
    Ok(Running { vertex, index, killed, thread })
}

/// The gates of all subtasks, and the senders into them that nobody has taken yet.
struct Wires {
    /// By vertex and index.
    gates: Vec<Vec<Option<Gate>>>,
    /// By link, then by subtask upstream, then by subtask downstream.
    senders: Vec<Vec<Vec<GateSender>>>,
}

impl Wires {
    fn new(vertices: &[Vertex], links: &[Link]) -> Result<Self> {
        let parallelism = |v: usize| vertices.get(v).map_or(0, |v| v.parallelism as usize);
        if let Some(link) = links.iter().find(|l| l.from >= l.to || l.to >= vertices.len()) {
            let what = format!("the link {link:?} does not lead from a vertex to a later one");
            return Err(Error::new(Kind::Invalid, what));
        }
        let mut senders: Vec<Vec<Vec<GateSender>>> =
            links.iter().map(|l| (0..parallelism(l.from)).map(|_| Vec::new()).collect()).collect();
        let mut gates = Vec::with_capacity(vertices.len());
        for to in 0..vertices.len() {
            let into: Vec<usize> = (0..links.len()).filter(|l| links.get(*l).is_some_and(|l| l.to == to)).collect();
            let inputs = into.iter().filter_map(|l| links.get(*l)).map(|l| parallelism(l.from)).sum();
            let mut of_vertex = Vec::new();
            for _ in 0..parallelism(to) {
                if inputs == 0 {
                    of_vertex.push(None);
                    continue;
                }
                let (reader, writers) = gate(inputs, QUEUE);
                let mut writers = writers.into_iter();
                for link in &into {
                    for upstream in senders.get_mut(*link).into_iter().flatten() {
                        upstream.extend(writers.next());
                    }
                }
                of_vertex.push(Some(reader));
            }
            gates.push(of_vertex);
        }
        Ok(Self { gates, senders })
    }

    fn take(&mut self, vertex: usize, index: u32, links: &[Link]) -> (Input, Outputs) {
        let slot = self.gates.get_mut(vertex).and_then(|g| g.get_mut(index as usize));
        let input = slot.and_then(Option::take).map_or(Input::Source, Input::Gate);
        let mut outputs = Outputs::default();
        for (link, senders) in links.iter().zip(&mut self.senders).filter(|(l, _)| l.from == vertex) {
            let senders = senders.get_mut(index as usize).map(std::mem::take).unwrap_or_default();
            outputs.0.push(Edge { senders, partition: (link.partition)(index) });
        }
        (input, outputs)
    }
}
