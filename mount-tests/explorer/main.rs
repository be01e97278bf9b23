//! The explorer: an exhaustive search over the real state machines of `lifecycle`, and planted faults that it must find.

#![allow(unreachable_pub)]

mod actor;
mod configs;
mod judge;
mod program;
mod run;
mod script;
mod search;
mod table;
mod world;

#[test]
fn all_configurations() {
    for config in configs::all() {
        let began = std::time::Instant::now();
        let report = run::run(&config, |role| Box::new(actor::Actor::new(role)), 50_000_000);
        println!(
            "{}: {} states, {} stores, {} places, {} programs, complete {} in {:?}",
            config.name, report.states, report.stores, report.places, report.programs, report.complete, began.elapsed()
        );
        for (said, times) in &report.said {
            println!("    {times:6} {said}");
        }
        if let Some(violation) = report.violation {
            panic!("{}\n  {}", violation.what, violation.trace.join("\n  "));
        }
    }
}
