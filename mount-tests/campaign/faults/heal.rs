//! After the faults: everything is there, whole, and works; what nobody needs goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ckptfs::cache::Session;
use ckptfs::engine::gc::{self, GcOptions};
use ckptfs::engine::{self, life};
use ckptfs::lifecycle::PinRef;
use ckptfs::lifecycle::sweep::SweepOptions;
use ckptfs::restore::verify::{self, FindingKind, Options, Read, Scope};
use ckptfs::types::{Name, Silent};

use super::random::below;
use super::truth::Content;
use super::world::World;

/// What was found to be right.
#[derive(Debug, Default)]
pub struct Healed {
    pub read: u64,
    /// Completed although nobody was told.
    pub untold: u64,
    pub dead: u64,
    pub swept: u64,
}

fn sweep(session: &Session) -> u64 {
    let plan = gc::plan(session, SweepOptions::default(), &Silent).unwrap();
    assert!(plan.foreign.is_empty(), "blobs of nobody: {:?}", plan.foreign);
    let options = GcOptions { every_number: true, ..GcOptions::default() };
    gc::execute(session, &plan, options, &Silent).unwrap().swept.blobs
}

fn verified(session: &Session) {
    let options = Options { read: Some(Read::default()), repair: false };
    let report = verify::verify(session, &Scope::default(), &options, &Silent).unwrap();
    assert!(!report.damaged(), "{:#?}", report.findings);
    assert!(report.findings.iter().all(|f| f.kind != FindingKind::Foreign), "{:#?}", report.findings);
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

/// Checks a world whose store is well again. The jobs that are only read are left alone.
pub fn heal(world: &World, jobs: &[Name]) -> Healed {
    while !world.layer.catch_up() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let session = world.patient();
    let mut healed = Healed::default();
    // Nothing that is needed is gone, whatever was swept in the middle of faults.
    verified(&session);
    for job in jobs {
        whole(world, &session, job, &mut healed);
    }
    // What was begun and never decided is given up, and goes with what was expired.
    for job in jobs {
        for n in session.catalog.job(job).unwrap().open {
            engine::abort(&session, job, n, "the campaign is over").unwrap();
        }
        let (n, content) = world.snapshot(&session, job, below(3));
        let n = n.get();
        let number = ckptfs::types::CheckpointNumber::new(n).unwrap();
        let checkpoint = session.catalog.checkpoint(job, number).unwrap();
        assert!(world.read(&world.patient(), &checkpoint).unwrap() == content, "{job}/{n}");
        let pins: Vec<PinRef> = session.catalog.pins(Some(job)).unwrap().into_iter().map(|(pin, _)| pin).collect();
        life::unpin(&session, pins).unwrap();
        for c in session.catalog.job(job).unwrap().checkpoints.keys().filter(|c| **c != number) {
            life::expire(&session, job, *c, "the campaign is over").unwrap();
        }
    }
    // The first floors make the second sweep's dead; the third finds nothing.
    for _ in 0..2 {
        healed.swept += sweep(&session);
    }
    assert_eq!(sweep(&session), 0, "a third sweep finds blobs that the second left");
    verified(&session);
    for job in jobs {
        let listing = session.catalog.job(job).unwrap();
        assert_eq!(listing.checkpoints.len(), 1, "{job}: {:?}", listing.checkpoints.keys());
        assert!(listing.open.is_empty() && listing.unreadable.is_empty());
        assert!(world.read(&world.patient(), listing.latest().unwrap()).is_ok());
    }
    healed
}

/// Every checkpoint of a job is what somebody stored, and all of it.
fn whole(world: &World, session: &Session, job: &Name, healed: &mut Healed) {
    let listing = session.catalog.job(job).unwrap();
    assert!(listing.unreadable.is_empty(), "{:?}", listing.unreadable);
    let (numbers, tried): (BTreeMap<_, _>, BTreeSet<Arc<Content>>) =
        world.truth.with(job.as_str(), |j| (j.numbers.clone(), j.tried.iter().cloned().collect()));
    for (n, known) in &numbers {
        let shown = listing.checkpoints.get(&super::world::number(*n));
        assert!(!known.must_live() || shown.is_some(), "{job}/{n} is lost\n  {}", world.trace());
        assert!(!known.dead || shown.is_none_or(|c| c.expired), "{job}/{n} is back from the dead");
        assert!(!known.aborted || shown.is_none(), "{job}/{n} was aborted and is there");
        healed.dead += u64::from(known.dead);
    }
    let cold = world.patient();
    for (n, checkpoint) in &listing.checkpoints {
        let known = numbers.get(&n.get());
        let needed = known.is_some_and(super::truth::Number::must_live);
        // Those that are dying may have lost their blobs.
        if checkpoint.expired && !needed {
            continue;
        }
        let content = world.read(&cold, checkpoint).unwrap_or_else(|e| panic!("{job}/{n}: {e:#}\n  {}", world.trace()));
        match known.filter(|k| k.completed) {
            Some(known) => assert!(*known.content == content, "{job}/{n}: wrong bytes"),
            None => {
                assert!(tried.contains(&content), "{job}/{n}: nobody stored this");
                healed.untold += 1;
            }
        }
        healed.read += 1;
    }
    let _ = std::fs::remove_dir_all(cold.cache.path());
}
