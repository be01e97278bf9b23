//! A whole job over a store alone, as it runs in a process without its coordinator.

use std::time::{Duration, Instant};

use super::{Host, job};
use crate::engine::coordinator::{
    ClaimMode, Coordinator, CoordinatorSettings, Reign, ReignPlan, RestoreFrom, RunEnd, StoredGateway, TriggerKind,
    control, run,
};
use crate::engine::task::{
    ChainedOperator, Collector, Deployment, Ending, Link, Make, Produced, Record, StreamOperator, Surroundings, Vertex,
    expected,
};
use crate::error::Result;
use crate::types::Name;

const PERIOD: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(60);

/// Each of its records takes long.
struct Slow;

impl StreamOperator for Slow {
    fn produce(&mut self, output: &mut dyn Collector) -> Result<Produced> {
        std::thread::sleep(Duration::from_millis(20));
        output.collect(Record { value: b"x".to_vec(), timestamp: 0 })?;
        Ok(Produced::Some)
    }
}

struct End;

impl StreamOperator for End {
    fn process(&mut self, _: Record, _: &mut dyn Collector) -> Result<()> {
        Ok(())
    }
}

fn vertices() -> Vec<Vertex> {
    let slow: Make = Box::new(|_| Ok(vec![ChainedOperator::new("slow", Box::new(Slow))]));
    let pass: Make = Box::new(|_| Ok(vec![ChainedOperator::new("pass", Box::new(Pass))]));
    let end: Make = Box::new(|_| Ok(vec![ChainedOperator::new("end", Box::new(End))]));
    let of = |name: &str, make| Vertex { operators: vec![name.to_owned()], parallelism: 2, make };
    vec![of("slow", slow), of("pass", pass), of("end", end)]
}

struct Pass;

impl StreamOperator for Pass {}

/// Runs it until people end it; how its coordinator ended, and its tasks.
fn lead(host: &Host, people: impl FnOnce(&crate::engine::coordinator::Control)) -> (RunEnd, Vec<Result<Ending>>) {
    let plan = ReignPlan {
        job: job(),
        expected: expected(&vertices()),
        restore: RestoreFrom::Latest,
        claim: ClaimMode::Claim,
        pinned: Vec::new(),
    };
    let reign = Reign::begin(&host.session, plan).unwrap();
    let first =
        |from| Link { from, to: from + 1, partition: Box::new(|i| Box::new(move |_: &Record, _| Ok(i as usize))) };
    let around = Surroundings { session: host.session.clone(), job: job(), scratch: host.path("scratch"), local: None };
    let links = [first(0), first(1)];
    let deployment = Deployment::start_stored(&around, vertices(), &links, (reign.epoch(), PERIOD)).unwrap();
    let (control, commands) = control();
    let end = std::thread::scope(|scope| {
        let coordinator = scope.spawn(move || {
            let settings = CoordinatorSettings { interval_ms: 0, timeout_ms: 60_000, ..CoordinatorSettings::default() };
            let mut coordinator = Coordinator::new(settings, reign.tasks());
            let begun = Instant::now();
            let clock = || u64::try_from(begun.elapsed().as_millis()).unwrap();
            let gateway = StoredGateway::new(&reign, PERIOD);
            run(&reign, &mut coordinator, &gateway, &clock, commands, &mut |_| {})
        });
        people(&control);
        coordinator.join().unwrap()
    });
    (end, deployment.join().into_iter().map(|(.., ended)| ended).collect())
}

#[test]
fn row13_tasks_of_another_process_stop_in_order_and_are_quick_to_hear() {
    let host = Host::new();
    let (end, tasks) = lead(&host, |control| {
        let begun = Instant::now();
        control.take(TriggerKind::Savepoint { stop: true }).wait(PATIENCE).unwrap();
        // 256 records of a slow source would be five seconds.
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    });
    assert!(matches!(end, RunEnd::Stopped), "{end:?}");
    assert!(tasks.len() == 6 && tasks.iter().all(Result::is_ok), "{tasks:?}");
}

#[test]
fn row13_who_sees_a_process_die_says_so_and_the_others_are_stopped() {
    let host = Host::new();
    let (end, tasks) = lead(&host, |control| {
        control.take(TriggerKind::Checkpoint).wait(PATIENCE).unwrap();
        control.failed((Name::encode("pass"), 1), "its process was killed");
    });
    let RunEnd::Failed { reason } = end else { panic!("{end:?}") };
    assert_eq!(reason, "pass/1 failed: its process was killed");
    assert!(tasks.iter().all(|t| matches!(t, Ok(Ending::Stopped))), "{tasks:?}");
}
