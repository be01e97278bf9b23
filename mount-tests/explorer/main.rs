//! The explorer: an exhaustive search over the real state machines of `lifecycle`, and planted faults that it must find.
#![allow(unreachable_pub)]

mod actor;
mod configs;
mod faults;
mod judge;
mod plant;
mod program;
mod run;
mod script;
mod search;
mod table;
mod world;

#[test]
fn all_configurations() {
    let only = std::env::var("CKPTFS_EXPLORE").unwrap_or_default();
    let mut all = configs::all();
    if std::env::var_os("CKPTFS_EXPLORE_LARGE").is_some() {
        all = configs::large();
    }
    for config in all {
        if !config.name.contains(&only) {
            continue;
        }
        let began = std::time::Instant::now();
        let report = run::run(&config, |role| Box::new(actor::Actor::new(role)), 150_000_000);
        println!(
            "{}: {} states, {} stores, {} places, {} programs, complete {} in {:?}",
            config.name,
            report.states,
            report.stores,
            report.places,
            report.programs,
            report.complete,
            began.elapsed()
        );
        if let Some(violation) = report.violation {
            println!("{}\n  {}", violation.what, violation.trace.join("\n  "));
        } else {
            for (said, times) in &report.said {
                println!("    {times:6} {said}");
            }
        }
    }
}

#[test]
fn planted_faults_are_found() {
    let began = std::time::Instant::now();
    let program = plant::build();
    println!("built in {:?}", began.elapsed());
    let dir = program.parent().unwrap().parent().unwrap().join("tmp/planted/traces");
    std::fs::create_dir_all(&dir).unwrap();
    let only = std::env::var("CKPTFS_FAULT").unwrap_or_default();
    let out = std::process::Command::new(&program).args([only.as_str(), dir.to_str().unwrap()]).output().unwrap();
    println!("{}", String::from_utf8_lossy(&out.stdout));
    println!("{} in {:?}", String::from_utf8_lossy(&out.stderr), began.elapsed());
}
