//! What hosts do all day: checkpoints, their ends, sweeps, restores. Whatever they are told is written down, and held against what
//! comes later.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use ckptfs::cache::Session;
use ckptfs::engine::gc::{self, GcOptions};
use ckptfs::engine::{self, SnapshotRequest, life};
use ckptfs::error::{Error, Kind};
use ckptfs::format::records::PinHolder;
use ckptfs::format::{CheckpointKind, ExpectedOperator, Labels};
use ckptfs::lifecycle::sweep::SweepOptions;
use ckptfs::lifecycle::takeover::TakeOver;
use ckptfs::lifecycle::{Checkpoint, PinRef, driver};
use ckptfs::restore::verify::{self, Options, Read, Scope};
use ckptfs::restore::{select, warm};
use ckptfs::types::{Name, Silent};

use super::random::{below, chance, pick};
use super::truth::{Content, digest};
use super::world::{World, number, uid};

/// Numbers of a job that are never given up by the workload.
const KEPT: usize = 3;

/// One host.
pub struct Host<'a> {
    pub world: &'a World,
    pub session: Session,
    /// The jobs that it may write.
    pub jobs: Vec<Name>,
    pins: Vec<PinRef>,
}

fn request(job: &Name, operator: &str, subtask: u32, directory: PathBuf) -> SnapshotRequest {
    let (job, operator, kind) = (job.clone(), operator.to_owned(), CheckpointKind::Checkpoint);
    SnapshotRequest { job, directory, operator, subtask, kind, number: None, labels: Labels::default() }
}

impl<'a> Host<'a> {
    pub fn new(world: &'a World, session: Session, jobs: Vec<Name>) -> Self {
        Self { world, session, jobs, pins: Vec::new() }
    }

    fn job(&self) -> Name {
        pick(&self.jobs).unwrap().clone()
    }

    /// Any job of the store: readers are everywhere.
    fn any(&self) -> Option<Name> {
        pick(&self.world.truth.jobs()).map(|j| Name::parse(j).unwrap())
    }

    pub fn step(&mut self) {
        match below(100) {
            0..24 => self.snapshot(),
            24..40 => self.several(),
            40..48 => self.expire(),
            48..54 => self.sweep(),
            54..66 => self.restore(chance(60)),
            66..74 => self.lazy(),
            74..78 => self.warm(),
            78..82 => self.verify(),
            82..90 => self.look(),
            90..93 => self.hide(),
            93..98 => self.pin(),
            _ => self.take_over(),
        }
    }

    /// One shot, one subtask.
    fn snapshot(&self) {
        let (world, job) = (self.world, self.job());
        let (directory, known) = world.databases.take(below(3), if chance(1) { world.large } else { 0 });
        let content = Arc::new(Content::from([(("db".to_owned(), 0), known)]));
        // It may be completed whatever is told: it is a candidate before it begins.
        world.truth.with(job.as_str(), |j| j.tried.push(Arc::clone(&content)));
        let told = world.tally.run("snapshot", &[Kind::Conflict, Kind::Fenced], || {
            engine::snapshot_directory(&self.session, &request(&job, "db", 0, directory.clone()), &Silent)
        });
        if let Ok(report) = told {
            self.completed(&job, report.number.get(), &content);
        }
        fs::remove_dir_all(directory).unwrap();
    }

    fn completed(&self, job: &Name, n: u64, content: &Arc<Content>) {
        self.world.truth.change(job.as_str(), n, |number| {
            assert!(!number.aborted, "{job}/{n} was told to be aborted, and then completed\n  {}", self.world.trace());
            assert!(!number.completed, "{job}/{n} was told to be completed by two\n  {}", self.world.trace());
            number.content = Arc::clone(content);
            number.completed = true;
        });
    }

    /// Several subtasks, as several processes do it.
    fn several(&self) {
        let (world, job) = (self.world, self.job());
        let parallelism = 1 + below(3) as u32;
        let expected = vec![ExpectedOperator { operator: Name::parse("count").unwrap(), parallelism }];
        let opened = world.tally.run("open", &[Kind::Conflict, Kind::Fenced], || {
            engine::open(&self.session, &job, None, expected, CheckpointKind::Checkpoint, true, Labels::default())
        });
        let Ok(opened) = opened else { return };
        let n = opened.number;
        let mut content = Content::new();
        let mut directories = Vec::new();
        for subtask in 0..parallelism {
            let (directory, known) = world.databases.take(u64::from(subtask), 0);
            content.insert(("count".to_owned(), subtask), known);
            directories.push(directory);
        }
        let content = Arc::new(content);
        world.truth.with(job.as_str(), |j| j.tried.push(Arc::clone(&content)));
        // Another host may abort it by a take-over, at any time.
        let may = [Kind::Conflict, Kind::Fenced];
        let acked = directories.iter().enumerate().try_for_each(|(subtask, directory)| {
            let request = request(&job, "count", subtask as u32, directory.clone());
            let acked =
                || world.tally.run("ack", &may, || engine::acknowledge(&self.session, &request, n, &Silent)).map(drop);
            // A task that heard of a fault tries once more, as a runtime does.
            acked().or_else(|_| acked())
        });
        if acked.is_ok() && chance(85) {
            let told = world.tally.run("complete", &may, || engine::complete(&self.session, &job, n));
            if told.is_ok() {
                self.completed(&job, n.get(), &content);
            }
        } else if chance(70) {
            self.abort(&job, n.get());
        }
        directories.into_iter().for_each(|d| fs::remove_dir_all(d).unwrap());
    }

    fn abort(&self, job: &Name, n: u64) {
        let told = self.world.tally.run("abort", &[Kind::Conflict, Kind::NotFound], || {
            engine::abort(&self.session, job, number(n), "the campaign gives it up")
        });
        if told.is_ok() {
            self.world.truth.change(job.as_str(), n, |number| {
                assert!(!number.completed, "{job}/{n} was completed, and then told to be aborted");
                number.aborted = true;
            });
        }
    }

    fn expire(&self) {
        let (truth, job) = (&self.world.truth, self.job());
        let oldest = truth.with(job.as_str(), |j| {
            let alive: Vec<u64> = j.numbers.iter().filter(|(_, n)| n.completed && !n.doomed).map(|(n, _)| *n).collect();
            let oldest = alive.first().copied().filter(|_| alive.len() > KEPT)?;
            j.numbers.get_mut(&oldest)?.doomed = true;
            Some(oldest)
        });
        let Some(n) = oldest else { return };
        let told = self
            .world
            .tally
            .run("expire", &[], || life::expire(&self.session, &job, number(n), "the campaign is done with it"));
        if told.is_ok() {
            truth.change(job.as_str(), n, |number| number.dead = true);
        }
    }

    fn sweep(&self) {
        // What another sweep forgot meanwhile makes a plan too old.
        let may = [Kind::Conflict, Kind::Other];
        let plan =
            self.world.tally.run("plan a sweep", &may, || gc::plan(&self.session, SweepOptions::default(), &Silent));
        let Ok(plan) = plan else { return };
        let options = GcOptions { every_number: chance(50), ..GcOptions::default() };
        let _ = self.world.tally.run("sweep", &may, || gc::execute(&self.session, &plan, options, &Silent));
    }

    /// A checkpoint that must be readable, as readers find it; nothing where the store did not say.
    fn find(&self, session: &Session) -> Option<(Name, u64, Checkpoint)> {
        let job = self.any()?;
        let n = *pick(&self.world.truth.living(job.as_str()))?;
        let found =
            self.world.tally.run("find", &[Kind::NotFound], || Ok(session.catalog.checkpoint(&job, number(n))?));
        match found {
            Ok(checkpoint) => Some((job, n, checkpoint)),
            Err(e) => {
                self.not_lost(&job, n, &e);
                None
            }
        }
    }

    /// What must be readable is never told not to exist.
    fn not_lost(&self, job: &Name, n: u64, e: &Error) {
        let lost = e.kind() == Kind::NotFound && self.world.truth.number(job.as_str(), n).must_live();
        assert!(!lost, "{job}/{n} is lost: {e:#}\n  {}", self.world.trace());
    }

    fn restore(&self, cold: bool) {
        let own;
        let session = if cold {
            own = self.world.cold(&self.session);
            &own
        } else {
            &self.session
        };
        if let Some((job, n, checkpoint)) = self.find(session) {
            let read = self.world.tally.run("restore", &[Kind::NotFound], || self.world.read(session, &checkpoint));
            match read {
                Ok(content) => self.same(&job, n, &content),
                Err(e) => self.not_lost(&job, n, &e),
            }
        }
        if cold {
            let _ = fs::remove_dir_all(session.cache.path());
        }
    }

    fn same(&self, job: &Name, n: u64, content: &Content) {
        let truth = self.world.truth.number(job.as_str(), n);
        assert!(*truth.content == *content, "{job}/{n}: wrong bytes\n  {}", self.world.trace());
    }

    /// Single reads of a cold host, each verified before it is answered.
    fn lazy(&self) {
        let session = self.world.cold(&self.session);
        if let Some((job, n, checkpoint)) = self.find(&session) {
            let read = self.world.tally.run("lazy reads", &[Kind::NotFound], || self.read_some(&session, &checkpoint));
            if let Err(e) = read {
                self.not_lost(&job, n, &e);
            }
        }
        let _ = fs::remove_dir_all(session.cache.path());
    }

    fn read_some(&self, session: &Session, checkpoint: &Checkpoint) -> Result<(), Error> {
        let (job, n) = (&checkpoint.job, checkpoint.number);
        let truth = self.world.truth.number(job.as_str(), n.get());
        let entry = pick(&checkpoint.manifest.subtasks).unwrap();
        let manifest = select::task_manifest(session, checkpoint, entry)?;
        let known = &truth.content[&(entry.operator.as_str().to_owned(), entry.subtask)];
        for file in &manifest.files {
            let name = file.path.as_str().rsplit('/').next().unwrap();
            assert_eq!(known[name], file.digest, "{job}/{n}: {name} is another file");
            match session.cache.open_lazy(&session.store, &manifest, file, || {})? {
                Some(lazy) => {
                    // The source of the bytes is a table that lies in a template: its digest says which.
                    let mut whole = vec![0; file.size as usize];
                    for _ in 0..3 {
                        let from = below(file.size) as usize;
                        let to = (from + 1 + below(100_000) as usize).min(whole.len());
                        let mut piece = vec![0xA5; to - from];
                        lazy.read(from as u64, &mut piece)?;
                        whole[from..to].copy_from_slice(&piece);
                        let again = self.world.databases.piece(&file.digest, from, to);
                        assert!(again.is_none_or(|bytes| bytes == piece), "{job}/{n}/{name}: wrong bytes at {from}");
                    }
                }
                None => {
                    let here = session.cache.fetch_file(&session.store, &manifest, file)?;
                    let path = self.world.fresh("fetched");
                    std::io::copy(&mut &here, &mut fs::File::create(&path).unwrap()).unwrap();
                    assert_eq!(digest(&path), file.digest, "{job}/{n}/{name}: wrong bytes");
                    fs::remove_file(path).unwrap();
                }
            }
        }
        Ok(())
    }

    fn warm(&self) {
        if let Some((job, n, checkpoint)) = self.find(&self.session) {
            let subtasks: Vec<_> = checkpoint.manifest.subtasks.iter().collect();
            let told = self
                .world
                .tally
                .run("warm", &[Kind::NotFound], || warm(&self.session, &checkpoint, &subtasks, &Silent).map(drop));
            if let Err(e) = told {
                self.not_lost(&job, n, &e);
            }
        }
    }

    /// What it finds under faults may be a fault's; it must come to an end.
    fn verify(&self) {
        let Some(job) = self.any() else { return };
        let scope = Scope { job: Some(job), number: None };
        let options = Options { read: chance(30).then(|| Read { percent: 20.0, ..Read::default() }), repair: false };
        let _ = self
            .world
            .tally
            .run("verify", &[Kind::NotFound], || verify::verify(&self.session, &scope, &options, &Silent));
    }

    /// A listing has all that was completed before it began, and nothing that died.
    fn look(&self) {
        let Some(job) = self.any() else { return };
        let before = self.world.truth.with(job.as_str(), |j| j.numbers.clone());
        let session = if chance(50) { self.world.fresh_catalog() } else { self.session.catalog.clone() };
        let told = self.world.tally.run("list a job", &[], || Ok(session.job(&job)?));
        let Ok(listing) = told else { return };
        for (n, was) in &before {
            let n = number(*n);
            let shown = listing.checkpoints.get(&n);
            let unreadable = listing.unreadable.iter().any(|(u, _)| *u == n);
            if was.must_live() && shown.is_none() && !unreadable {
                let now = self.world.truth.number(job.as_str(), n.get());
                assert!(!now.must_live(), "{job}/{n} is not listed\n  {}", self.world.trace());
            }
            assert!(!was.dead || shown.is_none_or(|c| c.expired), "{job}/{n} is back from the dead");
            assert!(!was.aborted || shown.is_none(), "{job}/{n} was aborted and is listed");
        }
    }

    fn hide(&self) {
        let job = self.job();
        let living = self.world.truth.living(job.as_str());
        let Some(n) = pick(&living).copied() else { return };
        self.world.truth.change(job.as_str(), n, |number| number.hidden = true);
        let may = [Kind::NotFound];
        let told = self.world.tally.run("hide", &may, || life::hide(&self.session, &job, number(n)));
        // What is dead is not hidden, whoever holds it.
        if let Some(e) = told.err().filter(|_| !self.world.truth.number(job.as_str(), n).doomed) {
            self.not_lost(&job, n, &e);
        }
        let _ = self.world.tally.run("unhide", &may, || life::unhide(&self.session, &job, number(n)));
    }

    fn pin(&mut self) {
        if self.pins.len() > 4 || (chance(40) && !self.pins.is_empty()) {
            let pin = self.pins.swap_remove(below(self.pins.len() as u64) as usize);
            self.world.truth.change(pin.job.as_str(), pin.number.get(), |number| number.pins -= 1);
            let _ = self.world.tally.run("unpin", &[], || life::unpin(&self.session, vec![pin]));
            return;
        }
        let Some(job) = self.any() else { return };
        let Some(n) = pick(&self.world.truth.living(job.as_str())).copied() else { return };
        let holder = PinHolder::Person { note: "the campaign".to_owned() };
        let told = self
            .world
            .tally
            .run("pin", &[Kind::NotFound, Kind::Conflict], || life::pin(&self.session, &job, number(n), holder));
        match told {
            Ok(pin) => {
                self.world.truth.change(job.as_str(), n, |number| number.pins += 1);
                self.pins.push(pin);
            }
            // What is dead and held by others is not to be held anew.
            Err(e) if !self.world.truth.number(job.as_str(), n).doomed => self.not_lost(&job, n, &e),
            Err(_) => {}
        }
    }

    fn take_over(&self) {
        let job = self.job();
        let machine = || TakeOver::new(job.clone(), uid(), self.session.cache.id(), "host".to_owned());
        let told = self
            .world
            .tally
            .run("take over", &[Kind::Conflict, Kind::Fenced], || Ok(driver::run(&self.session.store, machine())?));
        if let Ok(reign) = told {
            for n in reign.aborted {
                self.world.truth.change(job.as_str(), n.get(), |number| {
                    assert!(!number.completed, "{job}/{n} was completed, and then told to be aborted");
                    number.aborted = true;
                });
            }
        }
    }
}
