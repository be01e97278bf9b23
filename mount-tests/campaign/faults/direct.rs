//! One cell after the other: a request of one kind meets a fault of one kind, and what the caller is told is held against what lies in the
//! bucket. Only over the bucket in memory, into which the harness looks past every fault.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ckptfs::cache::Session;
use ckptfs::error::{Error, Kind as ErrorKind};
use ckptfs::lifecycle::Catalog;
use ckptfs::store::{BlobSource, Created};
use ckptfs::types::{BlobName, CheckpointNumber, Digest, Key, Name};

use crate::kit::noise;

use super::cells::{Ask, Kind, impossible};
use super::layer::MEMORY;
use super::random::{below, chance, draw};
use super::truth::Content;
use super::world::{DEADLINE, PART, World, kind_name, uid};

/// Checkpoints of the job that is only read: more than a page of a list has.
const STILL: u64 = 9;

/// Two parts and a little.
const LARGE: usize = 2 * PART as usize + 1000;

/// Tries of a cell before it is given up, for each hit that it owes.
const TRIES: u64 = 6;

/// A request with all its attempts. A create looks at what is there after each, and a large blob has many.
const LONGEST: Duration = DEADLINE.saturating_mul(4);

/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(8);

/// A lane: a job of its own, so that its requests are told from those of the others.
pub struct Lane<'a> {
    world: &'a World,
    session: Session,
    job: Name,
    numbers: Vec<CheckpointNumber>,
    content: Content,
}

/// How calls ended, and the slowest.
#[derive(Debug, Default)]
pub struct Ends {
    pub ok: AtomicU64,
    pub failed: AtomicU64,
    slowest_ms: AtomicU64,
}

impl Ends {
    pub fn slowest(&self) -> Duration {
        Duration::from_millis(self.slowest_ms.load(Ordering::Relaxed))
    }
}

impl<'a> Lane<'a> {
    pub fn new(world: &'a World, lane: usize) -> Self {
        let session = world.session();
        let job = Name::parse(&format!("still-{lane:02}x")).unwrap();
        let mut numbers = Vec::new();
        let mut content = Content::new();
        for _ in 0..STILL {
            let (number, known) = world.snapshot(&session, &job, lane as u64);
            numbers.push(number);
            content = known;
        }
        Self { world, session, job, numbers, content }
    }

    /// Hits a cell so often. Says how often it could not.
    pub fn drive(&self, kind: Kind, ask: Ask, least: u64, ends: &Ends) -> u64 {
        assert!(impossible(kind, ask).is_none());
        let matrix = &self.world.layer.matrix;
        let mut tries = 0;
        while matrix.get(kind, ask) < least && tries < least * TRIES + 20 {
            tries += 1;
            let begun = Instant::now();
            let told = self.once(kind, ask);
            let took = begun.elapsed();
            if took > DEADLINE * 6 {
                println!("faults: {kind:?} at {ask:?}: {took:.1?}");
            }
            ends.slowest_ms.fetch_max(took.as_millis() as u64, Ordering::Relaxed);
            let many = matches!(ask, Ask::Begin | Ask::Part | Ask::Complete | Ask::Abort) || ask == Ask::GetRange;
            let longest = if many { LONGEST * 8 } else { LONGEST } + SLACK;
            assert!(took < longest, "{kind:?} at {ask:?}: {took:?} is beyond {longest:?}");
            match told {
                Ok(()) => ends.ok.fetch_add(1, Ordering::Relaxed),
                Err(e) => {
                    self.judge(kind, ask, &e);
                    ends.failed.fetch_add(1, Ordering::Relaxed)
                }
            };
        }
        tries
    }

    /// Whether an error is one that the fault explains.
    fn judge(&self, kind: Kind, ask: Ask, e: &Error) {
        let spoils = matches!(kind, Kind::Truncated | Kind::Flipped | Kind::Swapped | Kind::WrongLength | Kind::Page);
        let fits = match e.kind() {
            ErrorKind::Unavailable => true,
            ErrorKind::Damage => spoils,
            // Refused for good: a body or a token that came wrongly.
            ErrorKind::Invalid => kind == Kind::Flipped || (ask == Ask::Complete && spoils) || ask == Ask::Abort,

            _ => false,
        };
        assert!(fits, "{kind:?} at {ask:?}: {} is no kind for it: {e:#}", kind_name(e.kind()));
    }

    fn wrong(&self, kind: Kind, ask: Ask, what: &str) -> ! {
        panic!("{kind:?} at {ask:?}: {what}\n  {}", self.world.trace())
    }

    fn once(&self, kind: Kind, ask: Ask) -> Result<(), Error> {
        let times = 1 + below(3) as u32;
        match ask {
            Ask::GetWhole | Ask::List => self.aimed(self.job.as_str(), ask, kind, times, || self.look(kind, ask)),
            Ask::Head => self.head(kind, times),
            Ask::GetRange => self.restore(kind, times),
            Ask::Create => self.create(kind, times),
            Ask::Put => self.put(kind, times, 1 + below(40_000) as usize, ask),
            Ask::Begin | Ask::Part | Ask::Complete => self.put(kind, times, LARGE, ask),
            Ask::Abort => self.put(kind, 1, LARGE, ask),
            Ask::Delete | Ask::Bulk => self.delete(kind, ask, times),
        }
    }

    fn aimed<T>(&self, token: &str, ask: Ask, kind: Kind, times: u32, run: impl FnOnce() -> T) -> T {
        self.world.layer.aim(token, ask, kind, times);
        let out = run();
        self.world.layer.unaim(token);
        out
    }

    /// The job as it is, all of it, and nothing else.
    fn look(&self, kind: Kind, ask: Ask) -> Result<(), Error> {
        let catalog = Catalog::new(self.session.store.clone());
        if chance(50) {
            let newest = catalog.latest(&self.job)?.map(|c| c.number);
            if newest != self.numbers.last().copied() {
                self.wrong(kind, ask, &format!("the newest is {newest:?}"));
            }
            return Ok(());
        }
        let listing = catalog.job(&self.job)?;
        let shown: Vec<CheckpointNumber> = listing.visible().map(|c| c.number).collect();
        if shown != self.numbers && listing.unreadable.is_empty() {
            self.wrong(kind, ask, &format!("it lists {shown:?}"));
        }
        Ok(())
    }

    fn head(&self, kind: Kind, times: u32) -> Result<(), Error> {
        let keys = self.world.layer.memory.keys(MEMORY, &format!("cells/outcome/{}", self.job));
        let key = keys[below(keys.len() as u64) as usize].clone();
        let known = self.world.layer.memory.peek(MEMORY, &key).unwrap().len() as u64;
        let key = Key::parse(key.strip_prefix("cells/").unwrap()).unwrap();
        let told = self.aimed(key.as_str(), Ask::Head, kind, times, || self.session.store.head(&key))?;
        let lies = matches!(kind, Kind::WrongLength | Kind::Swapped);
        if told != Some(known) && !lies {
            self.wrong(kind, Ask::Head, &format!("it says {told:?} instead of {known}"));
        }
        Ok(())
    }

    /// A host with nothing reads it all.
    fn restore(&self, kind: Kind, times: u32) -> Result<(), Error> {
        let session = self.world.cold(&self.session);
        let newest = session.catalog.latest(&self.job)?.unwrap();
        let token = newest.uid.to_string();
        let told = self.aimed(&token, Ask::GetRange, kind, times, || self.world.read(&session, &newest));
        let _ = fs::remove_dir_all(session.cache.path());
        if told? != self.content {
            self.wrong(kind, Ask::GetRange, "wrong bytes");
        }
        Ok(())
    }

    fn create(&self, kind: Kind, times: u32) -> Result<(), Error> {
        // Of a pin nothing that reads this job takes note.
        let key = Key::pin(&self.job, self.numbers[0], uid(), uid());
        let full = format!("cells/{key}");
        let (ours, others) = (Bytes::from(noise(draw(), 300)), Bytes::from(noise(draw(), 300)));
        // In a third, somebody else was first.
        let late = chance(33);
        if late {
            assert_eq!(self.session.store.create(&key, others.clone())?, Created::New);
        }
        let told = self.aimed(key.as_str(), Ask::Create, kind, times, || self.session.store.create(&key, ours.clone()));
        let there = self.world.layer.memory.peek(MEMORY, &full);
        match &told {
            Ok(created) if created.is_ours() && there.as_ref() != Some(&ours) => {
                self.wrong(kind, Ask::Create, "it was told to be created, and is not there");
            }
            Ok(Created::Other(bytes)) if !late || *bytes != others => {
                self.wrong(kind, Ask::Create, "another's was seen where there was none");
            }
            Ok(_) => {}
            Err(_) if there.as_ref().is_some_and(|b| *b != ours && *b != others) => {
                self.wrong(kind, Ask::Create, "half an object lies there");
            }
            Err(_) => {}
        }
        // Whoever comes later sees what was decided.
        if !late {
            let second = self.session.store.create(&key, others.clone())?;
            match (&told, second) {
                (Ok(_), Created::Other(bytes)) if bytes == ours => {}
                // Its own answer may have been late, too, on a busy machine.
                (Err(_), Created::New | Created::Ours) => {}
                (Err(_), Created::Other(bytes)) if bytes == ours => {}
                (_, second) => self.wrong(kind, Ask::Create, &format!("the second creator was told {second:?}")),
            }
        }
        self.session.store.delete(&key)?;
        told.map(drop).map_err(Into::into)
    }

    fn put(&self, kind: Kind, times: u32, length: usize, ask: Ask) -> Result<(), Error> {
        let bytes = self.world.databases.bytes(length);
        let name = BlobName { digest: Digest::of(&bytes), uid: uid() };
        let key = Key::blob(&name);
        let token = name.uid.to_string();
        let layer = &self.world.layer;
        if ask == Ask::Abort {
            // Only an upload that is refused is aborted.
            layer.aim(&token, Ask::Part, Kind::Flipped, 1);
        }
        let upload = || self.session.store.upload_blob(&name, BlobSource::Bytes(bytes.clone()));
        let told = self.aimed(&token, ask, kind, times, upload);
        let full = format!("cells/{key}");
        let there = layer.memory.peek(MEMORY, &full);
        match (&told, &there) {
            (Ok(()), Some(there)) if *there == bytes => {}
            (Ok(()), _) => self.wrong(kind, ask, "a blob was told to be stored, and is not there"),
            (Err(_), Some(there)) if *there != bytes => self.wrong(kind, ask, "half a blob lies there"),
            (Err(_), _) => {}
        }
        self.session.store.delete(&key)?;
        told.map_err(Into::into)
    }

    fn delete(&self, kind: Kind, ask: Ask, times: u32) -> Result<(), Error> {
        let keys: Vec<Key> = (0..1 + below(4)).map(|_| Key::pin(&self.job, self.numbers[0], uid(), uid())).collect();
        for key in &keys {
            self.session.store.create(key, Bytes::from(noise(draw(), 100)))?;
        }
        let token = keys[0].as_str();
        let told = self.aimed(token, ask, kind, times, || self.session.store.delete_many(&keys));
        let left = keys.iter().any(|k| self.world.layer.memory.peek(MEMORY, &format!("cells/{k}")).is_some());
        // One that is done later than it is answered cannot be told from one that is done.
        if told.is_ok() && left && kind != Kind::Late {
            self.wrong(kind, ask, "what was told to be deleted is there");
        }
        self.session.store.delete_many(&keys)?;
        told.map_err(Into::into)
    }
}
