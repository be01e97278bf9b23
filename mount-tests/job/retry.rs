//! Checkpoints that fail do not make the next one dearer: what five attempts sent is not sent again by the sixth.
//!
//! `CKPTFS_RETRY_MIB=1024` takes a database of a gigabyte.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ckptfs::cache::Session;
use ckptfs::engine::coordinator::{
    ClaimMode, Coordinator, CoordinatorSettings, Input, Reign, ReignPlan, RestoreFrom, RunEnd, TriggerKind, control,
    run,
};
use ckptfs::engine::task::{
    ChainedOperator, Collector, Deployment, Produced, StreamOperator, Surroundings, Vertex, expected,
};
use ckptfs::error::Result;
use ckptfs::format::TaskManifest;
use ckptfs::state::DatabaseOptions;
use ckptfs::state::keyed::{Declaration, KeyedBackend, KeyedConfig, KeyedState, ValueState};
use ckptfs::state::serializer::{BytesSerializer, LongSerializer, VoidNamespace};
use ckptfs::store::memory::Memory;
use ckptfs::store::{Store, StoreOptions};
use ckptfs::types::{CheckpointNumber, Key, KeyGroupRange, Name};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Attempts that fail.
const FAILURES: u64 = 5;
const PATIENCE: Duration = Duration::from_secs(600);

/// What the operator is to write, and has written, in values of a KiB.
#[derive(Default)]
struct Wanted {
    kib: AtomicU64,
    written: AtomicU64,
}

/// Writes new keys as it is told: values that do not compress.
struct Writer {
    backend: KeyedBackend<LongSerializer>,
    value: ValueState<VoidNamespace, BytesSerializer>,
    wanted: Arc<Wanted>,
    noise: u64,
}

impl StreamOperator for Writer {
    fn produce(&mut self, _: &mut dyn Collector) -> Result<Produced> {
        let at = self.wanted.written.load(Ordering::SeqCst);
        if at >= self.wanted.kib.load(Ordering::SeqCst) {
            return Ok(Produced::Nothing);
        }
        let mut bytes = Vec::with_capacity(1024);
        while bytes.len() < 1024 {
            self.noise ^= self.noise << 13;
            self.noise ^= self.noise >> 7;
            self.noise ^= self.noise << 17;
            bytes.extend(self.noise.to_le_bytes());
        }
        self.backend.set_current_key(&i64::try_from(at).unwrap())?;
        self.value.set(&(), &bytes)?;
        self.wanted.written.store(at + 1, Ordering::SeqCst);
        Ok(Produced::Some)
    }

    fn keyed_state(&mut self) -> Option<&mut dyn KeyedState> {
        Some(&mut self.backend)
    }
}

fn write(wanted: &Wanted, kib: u64) {
    let all = wanted.kib.fetch_add(kib, Ordering::SeqCst) + kib;
    let begun = Instant::now();
    while wanted.written.load(Ordering::SeqCst) < all {
        assert!(begun.elapsed() < PATIENCE, "the operator stands still");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until no compaction changes the tables any more.
fn settle(database: &Path) {
    let tables = || {
        let names = std::fs::read_dir(database).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|n| n.ends_with(".sst")).collect();
        names.sort();
        names
    };
    let (mut seen, mut since) = (tables(), Instant::now());
    while since.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(50));
        let now = tables();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
}

fn manifest(session: &Session, job: &Name, number: CheckpointNumber) -> TaskManifest {
    let key = Key::task(job, number, &Name::encode("writer"), 0);
    ckptfs::format::decode::<TaskManifest>(&session.store.get(&key, 1 << 30).unwrap().unwrap()).unwrap().record
}

#[test]
fn six_attempts_send_what_one_would() {
    let mib = std::env::var("CKPTFS_RETRY_MIB").ok().and_then(|s| s.parse().ok()).unwrap_or(48_u64);
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new());
    let options = StoreOptions { attempts: 1, ..StoreOptions::default() };
    let store = Store::from_backend(Arc::clone(&memory) as _, "memory://", options);
    let session = Session::over(store, &dir.path().join("cache"), true).unwrap();
    let (job, database) = (Name::encode("job"), dir.path().join("db"));

    let table = (mib * MIB / 64).max(256 * KIB);
    let config = KeyedConfig {
        serializer: LongSerializer,
        range: KeyGroupRange { first: 0, last: 127 },
        max_parallelism: 128,
        options: DatabaseOptions {
            create: true,
            write_buffer: usize::try_from(table).unwrap(),
            table_size: table,
            ..DatabaseOptions::default()
        },
        clock: Arc::new(|| 0),
    };
    let backend = KeyedBackend::create(&database, config).unwrap();
    let value = backend.value(Declaration::new("value", BytesSerializer)).unwrap();
    let wanted = Arc::new(Wanted::default());
    let mut writer = Some(Writer { backend, value, wanted: Arc::clone(&wanted), noise: 0x9e37_79b9_7f4a_7c15 });
    let make = Box::new(move |_| {
        Ok(vec![ChainedOperator::new("writer", Box::new(writer.take().expect("one subtask is made once")))])
    });
    let vertices = vec![Vertex { operators: vec!["writer".to_owned()], parallelism: 1, make }];

    let plan = ReignPlan {
        job: job.clone(),
        expected: expected(&vertices),
        restore: RestoreFrom::Latest,
        claim: ClaimMode::Claim,
        pinned: Vec::new(),
    };
    let reign = Reign::begin(&session, plan).unwrap();
    let around =
        Surroundings { session: session.clone(), job: job.clone(), scratch: dir.path().join("scratch"), local: None };
    let (deployment, gateway) = Deployment::start(&around, vertices, &[]).unwrap();
    let settings = CoordinatorSettings { interval_ms: 0, tolerable_failures: 100, ..CoordinatorSettings::default() };
    let mut coordinator = Coordinator::new(settings, reign.tasks());
    let (control, commands) = control();
    let ended = std::thread::spawn(move || {
        let begun = Instant::now();
        let clock = || u64::try_from(begun.elapsed().as_millis()).unwrap();
        run(&reign, &mut coordinator, &gateway, &clock, commands, &mut |_: &Input| {})
    });

    write(&wanted, mib * KIB);
    settle(&database);
    let first = control.take(TriggerKind::Checkpoint).wait(PATIENCE).unwrap();
    let base = memory.uploaded();
    assert!(base > mib * MIB, "{base}");

    write(&wanted, mib * KIB / 4);
    settle(&database);
    for attempt in 0..FAILURES {
        // At another place each time: the first blob, the third, ... and in the end the ack itself, when all was sent.
        let seen = AtomicU64::new(0);
        memory.fail_when(move |what, key| match what {
            "upload" => {
                key.starts_with("blobs/")
                    && attempt + 1 < FAILURES
                    && seen.fetch_add(1, Ordering::SeqCst) >= 2 * attempt
            }
            "create" => key.starts_with("task/") && attempt + 1 == FAILURES,
            _ => false,
        });
        let refused = control.take(TriggerKind::Checkpoint).wait(PATIENCE).unwrap_err();
        println!("attempt {}: {} bytes sent in all; {refused}", attempt + 1, memory.uploaded() - base);
        assert!(refused.message().contains("it was told to fail"), "{refused}");
    }
    let before = memory.uploaded();
    assert!(before > base, "the attempts sent something");
    memory.fail_when(|_, _| false);
    let last = control.take(TriggerKind::Checkpoint).wait(PATIENCE).unwrap();

    let sent = memory.uploaded() - base;
    let known: std::collections::BTreeSet<_> = manifest(&session, &job, first).files.iter().map(|f| f.digest).collect();
    let new: u64 =
        manifest(&session, &job, last).files.iter().filter(|f| !known.contains(&f.digest)).map(|f| f.size).sum();
    println!(
        "{mib} MiB; new since {first}: {new} bytes; all {} attempts sent {sent} bytes, {:.3} times that, {} of it the last one",
        FAILURES + 1,
        sent as f64 / new as f64,
        memory.uploaded() - before,
    );
    assert!(new > mib * MIB / 4, "{new}");
    assert!(sent * 10 <= new * 11, "{sent} of {new}");

    control.cancel();
    let ended = ended.join().unwrap();
    assert!(matches!(ended, RunEnd::Stopped), "{ended:?}");
    for (_, subtask, ended) in deployment.join() {
        ended.unwrap_or_else(|e| panic!("subtask {subtask}: {e}"));
    }
}
