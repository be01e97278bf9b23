//! Random histories of the machine against a world that answers as a store and tasks may: whatever comes in whatever order, its promises hold.

use std::collections::{BTreeMap, BTreeSet};

use super::super::machine::{Action, Coordinator, Input};
use super::super::message::{AckReport, TriggerKind};
use super::super::retained::{Held, Which};
use super::super::settings::CoordinatorSettings;
use super::{Task, n, tasks};
use crate::types::{CheckpointNumber, Uid};

const HISTORIES: u64 = 400;
const STEPS: usize = 400;

/// Xorshift: the same seed gives the same history.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Completed,
    Aborted,
}

/// What was seen, so that a run that exercised nothing fails.
type Counts = BTreeMap<&'static str, usize>;

struct World {
    random: Random,
    machine: Coordinator,
    settings: CoordinatorSettings,
    now: u64,
    next: u64,
    state: BTreeMap<CheckpointNumber, State>,
    kinds: BTreeMap<CheckpointNumber, TriggerKind>,
    acked: BTreeMap<CheckpointNumber, BTreeSet<Task>>,
    told: BTreeMap<CheckpointNumber, State>,
    alive: BTreeSet<CheckpointNumber>,
    asked: BTreeSet<u64>,
    ended: bool,
    counts: Counts,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let settings = CoordinatorSettings {
            interval_ms: random.below(3) * 50,
            min_pause_ms: random.below(2) * 30,
            timeout_ms: 200 + random.below(200),
            max_concurrent: usize::try_from(1 + random.below(3)).unwrap(),
            tolerable_failures: u32::try_from(random.below(4) * 4).unwrap(),
            retained: usize::try_from(1 + random.below(3)).unwrap(),
            retain_on_cancel: random.one_in(2),
        };
        let machine = Coordinator::new(settings.clone(), tasks());
        Self {
            random,
            machine,
            settings,
            now: 0,
            next: 1,
            state: BTreeMap::new(),
            kinds: BTreeMap::new(),
            acked: BTreeMap::new(),
            told: BTreeMap::new(),
            alive: BTreeSet::new(),
            asked: BTreeSet::new(),
            ended: false,
            counts: Counts::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn real(&self) -> BTreeSet<CheckpointNumber> {
        self.alive.iter().copied().filter(|n| !self.kinds[n].is_savepoint()).collect()
    }

    fn happens(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let actions = self.machine.step(input);
            for action in actions {
                inputs.extend(self.perform(action));
            }
        }
    }

    fn tell(&mut self, number: CheckpointNumber, what: State) {
        assert_eq!(self.state[&number], what, "tasks are told what the store says");
        assert_eq!(self.told.insert(number, what), None, "{number} is told of twice");
    }

    fn perform(&mut self, action: Action) -> Option<Input> {
        match action {
            Action::Open(kind) => {
                assert!(!self.ended, "nothing begins after the end");
                if self.random.one_in(12) {
                    self.count("open failed");
                    return Some(Input::OpenFailed { reason: "no store".to_owned() });
                }
                let number = n(self.next);
                self.next += 1 + self.random.below(2);
                let open = self.state.values().filter(|s| **s == State::Open).count();
                assert!(kind.is_savepoint() || open < self.settings.max_concurrent, "{open} are open");
                self.state.insert(number, State::Open);
                self.kinds.insert(number, kind);
                Some(Input::Opened { number, uid: Uid::from_bytes([3; 16]), timestamp_ms: self.now })
            }
            Action::Trigger(trigger) => {
                assert_eq!(trigger.kind, self.kinds[&trigger.number]);
                self.acked.insert(trigger.number, BTreeSet::new());
                (self.random.one_in(20)).then(|| {
                    self.count("trigger failed");
                    Input::TriggerFailed { number: trigger.number, reason: "gone".to_owned() }
                })
            }
            Action::Complete(number) => {
                assert_eq!(self.acked[&number], tasks(), "all have acknowledged {number}");
                match self.random.below(8) {
                    // The answer is lost; the store said yes or no.
                    0 => {
                        if self.state[&number] == State::Open {
                            self.publish(number);
                        }
                        self.count("answer lost");
                        Some(Input::CompleteFailed { number, reason: "no answer".to_owned() })
                    }
                    1 => {
                        self.count("complete failed");
                        Some(Input::CompleteFailed { number, reason: "dangling".to_owned() })
                    }
                    _ if self.state[&number] == State::Aborted => {
                        Some(Input::CompleteFailed { number, reason: "it was aborted".to_owned() })
                    }
                    _ => {
                        self.publish(number);
                        self.count("completed");
                        Some(Input::CompleteDone { number })
                    }
                }
            }
            Action::Abort { number, .. } => {
                if self.random.one_in(6) {
                    self.count("abort failed");
                    return Some(Input::AbortFailed { number });
                }
                let state = self.state.get_mut(&number).unwrap();
                if *state == State::Completed {
                    self.count("abort met a completion");
                    return Some(Input::CompleteDone { number });
                }
                *state = State::Aborted;
                self.count("aborted");
                Some(Input::Aborted { number })
            }
            Action::NotifyComplete(number) => {
                self.tell(number, State::Completed);
                None
            }
            Action::NotifyAborted(number) => {
                self.tell(number, State::Aborted);
                None
            }
            Action::NotifySubsumed(number) => {
                assert_eq!(self.told[&number], State::Completed);
                self.count("subsumed");
                None
            }
            Action::Expire(held) => self.expire(held),
            Action::Tell { .. } => {
                self.count("told");
                None
            }
            Action::Answer { id, result } => {
                assert!(self.asked.remove(&id), "{id} is answered twice");
                if let Ok(number) = result {
                    assert_eq!(self.state[&number], State::Completed);
                }
                self.count(if result.is_ok() { "answered yes" } else { "answered no" });
                None
            }
            Action::FailJob { .. } | Action::Stop => {
                assert!(!self.ended, "it ends once");
                self.ended = true;
                self.count("ended");
                None
            }
        }
    }

    fn publish(&mut self, number: CheckpointNumber) {
        self.state.insert(number, State::Completed);
        self.alive.insert(number);
    }

    fn expire(&mut self, held: Held) -> Option<Input> {
        let Which::Own(number) = held.which else { panic!("{held:?}") };
        assert_eq!(self.state[&number], State::Completed);
        assert!(!self.kinds[&number].is_savepoint(), "a savepoint is its user's");
        let real = self.real();
        assert!(real.contains(&number), "it dies once");
        let at_the_end = !self.settings.retain_on_cancel;
        assert!(at_the_end || real.last() != Some(&number), "the newest stays");
        if self.random.one_in(8) {
            self.count("expire failed");
            return Some(Input::ExpireFailed { held });
        }
        self.alive.remove(&number);
        None
    }

    fn something(&mut self) {
        let pending: Vec<_> = self.machine.pending().collect();
        let number = match u64::try_from(pending.len()).unwrap() {
            // Mostly what is waited for; else any number, also one that never was.
            open if open > 0 && !self.random.one_in(8) => pending[usize::try_from(self.random.below(open)).unwrap()],
            _ => n(1 + self.random.below(self.next + 1)),
        };
        let all: Vec<Task> = tasks().into_iter().chain([super::task("sink", 0)]).collect();
        let of = |random: &mut Random| all[usize::try_from(random.below(4)).unwrap()].clone();
        match self.random.below(40) {
            0 if self.random.one_in(2) => {
                let task = of(&mut self.random);
                self.happens(Input::Declined { number, task, reason: "disk full".to_owned() });
            }
            1 if self.random.one_in(2) && self.state.get(&number) == Some(&State::Open) => {
                self.state.insert(number, State::Aborted);
                self.count("aborted elsewhere");
                self.happens(Input::AbortedElsewhere { number, reason: "a person".to_owned() });
            }
            2..=4 => {
                let kind = match self.random.below(12) {
                    0 => TriggerKind::Savepoint { stop: true },
                    1..=3 => TriggerKind::Full,
                    4..=7 => TriggerKind::Checkpoint,
                    _ => TriggerKind::Savepoint { stop: false },
                };
                let id = u64::try_from(self.counts.values().sum::<usize>()).unwrap() + 1_000_000 * self.now;
                if self.asked.insert(id) {
                    self.happens(Input::Request { id, kind });
                }
            }
            5 if self.random.one_in(30) => {
                let task = of(&mut self.random);
                self.happens(Input::TaskFinished { task });
            }
            6 if self.random.one_in(40) => {
                let task = of(&mut self.random);
                self.happens(Input::TaskFailed { task, reason: "killed".to_owned() });
            }
            7 if self.random.one_in(40) => self.happens(Input::Cancel),
            8..=19 => {
                self.now += self.random.below(40);
                self.happens(Input::Tick(self.now));
            }
            _ => {
                let task = of(&mut self.random);
                if let Some(acked) = self.acked.get_mut(&number).filter(|_| tasks().contains(&task)) {
                    acked.insert(task.clone());
                }
                self.happens(Input::Acked { number, task, report: AckReport::default() });
            }
        }
        let open = self.state.iter().filter(|(_, s)| **s == State::Open).map(|(n, _)| *n);
        let pending: BTreeSet<_> = self.machine.pending().collect();
        assert!(open.into_iter().all(|n| pending.contains(&n)), "nothing open is forgotten");
    }

    /// The store answers again, and time passes.
    fn settle(&mut self) {
        self.happens(Input::Cancel);
        for _ in 0..200 {
            self.now += 5_000;
            self.happens(Input::Tick(self.now));
        }
        assert_eq!(self.machine.pending().count(), 0, "everything is decided in the end");
        assert!(self.state.iter().all(|(n, s)| self.told.get(n) == Some(s)), "and told");
        assert!(self.asked.is_empty(), "and answered");
        let published = self.state.iter().any(|(n, s)| *s == State::Completed && !self.kinds[n].is_savepoint());
        if self.settings.retain_on_cancel && published {
            assert!(!self.real().is_empty(), "one real checkpoint stays");
        }
    }
}

#[test]
fn row11_random_histories_keep_every_promise() {
    let mut counts = Counts::new();
    for seed in 1..=HISTORIES {
        let mut world = World::new(seed);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                world.something();
                if world.ended {
                    break;
                }
            }
            world.settle();
        }));
        if let Err(panic) = result {
            panic!("seed {seed}: {:?}", panic.downcast_ref::<String>());
        }
        for (what, count) in world.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    let all = [
        "open failed",
        "trigger failed",
        "answer lost",
        "complete failed",
        "completed",
        "abort failed",
        "abort met a completion",
        "aborted",
        "aborted elsewhere",
        "subsumed",
        "expire failed",
        "told",
        "answered yes",
        "answered no",
        "ended",
    ];
    for what in all {
        assert!(counts.get(what).copied().unwrap_or_default() >= 20, "{what}: {counts:?}");
    }
}
