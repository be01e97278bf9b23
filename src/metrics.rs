//! Plain counters that every layer may count in. What shows them is `status/`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that grows and shrinks.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// One more, until the guard is dropped.
    #[must_use]
    pub fn hold(self: &Arc<Self>) -> Held {
        self.0.fetch_add(1, Ordering::Relaxed);
        Held(Arc::clone(self))
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One of what a gauge counts.
#[derive(Debug)]
pub struct Held(Arc<Gauge>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Upper bounds of a histogram's buckets, in seconds: from what a request costs that is answered from memory to the longest deadline.
pub const BOUNDS: [f64; 9] = [0.000_01, 0.000_1, 0.001, 0.01, 0.1, 1.0, 10.0, 30.0, 90.0];

/// How long things took.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS.len()],
    beyond: AtomicU64,
    nanoseconds: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Times {
    /// How many took at most so long (in seconds), those of the lower bounds not counted. The last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// All of them.
    pub count: u64,
    /// Seconds, in all.
    pub sum: f64,
}

impl Histogram {
    /// One took so long.
    pub fn record(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.iter().zip(&self.buckets).find(|(bound, _)| seconds <= **bound);
        bucket.map_or(&self.beyond, |(_, bucket)| bucket).fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The values now.
    #[must_use]
    pub fn get(&self) -> Times {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let mut buckets: Vec<_> = BOUNDS.into_iter().zip(self.buckets.iter().map(of)).collect();
        buckets.push((f64::INFINITY, of(&self.beyond)));
        let count = buckets.iter().fold(0_u64, |sum, (_, n)| sum.saturating_add(*n));
        Times { buckets, count, sum: Duration::from_nanos(of(&self.nanoseconds)).as_secs_f64() }
    }
}

/// What a process wrote: snapshots and sweeps.
#[derive(Debug, Default)]
pub struct Work {
    /// Snapshots that were published or acknowledged.
    pub snapshots: Counter,
    /// Those that failed.
    pub failed_snapshots: Counter,
    /// Bytes that they hold.
    pub logical_bytes: Counter,
    /// Bytes that they sent.
    pub new_bytes: Counter,
    /// Bytes that a base had.
    pub reused_bytes: Counter,
    /// Sweeps that ended.
    pub sweeps: Counter,
    /// Blobs that they deleted.
    pub swept_blobs: Counter,
    /// Their bytes.
    pub swept_bytes: Counter,
    phases: Mutex<BTreeMap<&'static str, Histogram>>,
}

impl Work {
    /// A phase took so long.
    pub fn phase(&self, name: &'static str, took: Duration) {
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        phases.entry(name).or_default().record(took);
    }

    /// How long each phase took.
    #[must_use]
    pub fn phases(&self) -> Vec<(&'static str, Times)> {
        let phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        phases.iter().map(|(name, times)| (*name, times.get())).collect()
    }
}

/// What the kernel asks a mount for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A name.
    Lookup,
    /// Attributes.
    Getattr,
    /// Where a symbolic link leads.
    Readlink,
    /// A file is opened.
    Open,
    /// Bytes of a file that the kernel does not read itself.
    Read,
    /// A file or a directory is closed.
    Release,
    /// A directory is opened.
    Opendir,
    /// A directory's names.
    Readdir,
    /// Free space.
    Statfs,
    /// An extended attribute.
    Getxattr,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Lookup,
        Self::Getattr,
        Self::Readlink,
        Self::Open,
        Self::Read,
        Self::Release,
        Self::Opendir,
        Self::Readdir,
        Self::Statfs,
        Self::Getxattr,
    ];

    /// Its name in metrics and words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Getattr => "getattr",
            Self::Readlink => "readlink",
            Self::Open => "open",
            Self::Read => "read",
            Self::Release => "release",
            Self::Opendir => "opendir",
            Self::Readdir => "readdir",
            Self::Statfs => "statfs",
            Self::Getxattr => "getxattr",
        }
    }
}

/// A request that somebody waited for.
#[derive(Debug, Clone)]
pub struct Slow {
    /// What was asked.
    pub operation: Operation,
    /// Of which inode; 0 where none is known.
    pub ino: u64,
    /// How long it took.
    pub took: Duration,
    /// When it was answered.
    pub at: SystemTime,
}

/// How long a request takes before it is remembered as slow.
pub const SLOW: Duration = Duration::from_secs(1);

/// How many slow requests are remembered: as many as a person reads.
const SLOW_KEPT: usize = 32;

/// What a mount counts.
#[derive(Debug, Default)]
pub struct MountCounters {
    /// How long each kind of request took.
    pub requests: [Histogram; Operation::ALL.len()],
    /// Opens of files that the kernel reads itself.
    pub opens_passthrough: Counter,
    /// Opens of local files that the daemon reads, since the kernel does not take them.
    pub opens_fallback: Counter,
    /// Opens of files that are not all here.
    pub opens_lazy: Counter,
    /// Opens of what the daemon makes: manifests.
    pub opens_text: Counter,
    /// READs that were answered with data.
    pub reads: Counter,
    /// READs that waited for the store.
    pub lazy_reads: Counter,
    /// Bytes in READs.
    pub read_bytes: Counter,
    /// READs on passthrough files: hints, answered with no data.
    pub hints: Counter,
    /// Times that the kernel refused to take a file for passthrough.
    pub passthrough_refused: Counter,
    /// Requests that waited in the worker pool.
    pub waited: Counter,
    /// Requests that wait in it now.
    pub waiting: Arc<Gauge>,
    /// Requests that were given up at their deadline.
    pub deadlines: Counter,
    /// Handlers that panicked.
    pub panics: Counter,
    /// Names and inodes that the kernel was told to forget.
    pub invalidations: Counter,
    slow: Mutex<VecDeque<Slow>>,
}

impl MountCounters {
    /// How long requests of this kind took.
    #[must_use]
    pub fn of(&self, operation: Operation) -> &Histogram {
        &self.requests[operation as usize]
    }

    /// Begins a request: it took until the guard is dropped.
    #[must_use]
    pub fn begin(self: &Arc<Self>, operation: Operation, ino: u64) -> Timed {
        Timed { counters: Arc::clone(self), operation, ino, begun: Instant::now() }
    }

    /// The last slow requests, the newest first.
    #[must_use]
    pub fn slow(&self) -> Vec<Slow> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }
}

/// A request under way.
#[derive(Debug)]
pub struct Timed {
    counters: Arc<MountCounters>,
    operation: Operation,
    ino: u64,
    begun: Instant,
}

impl Drop for Timed {
    fn drop(&mut self) {
        let took = self.begun.elapsed();
        self.counters.of(self.operation).record(took);
        if took >= SLOW {
            let mut slow = self.counters.slow.lock().unwrap_or_else(PoisonError::into_inner);
            if slow.len() >= SLOW_KEPT {
                slow.pop_front();
            }
            slow.push_back(Slow { operation: self.operation, ino: self.ino, took, at: SystemTime::now() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_the_bucket_that_is_just_large_enough() {
        let times = Histogram::default();
        for micros in [10, 11, 1_000, 91_000_000] {
            times.record(Duration::from_micros(micros));
        }
        let got = times.get();
        let filled: Vec<(f64, u64)> = got.buckets.into_iter().filter(|(_, n)| *n > 0).collect();
        assert_eq!(filled, [(0.000_01, 1), (0.000_1, 1), (0.001, 1), (f64::INFINITY, 1)]);
        assert_eq!((got.count, got.sum), (4, 91.001_021));
    }

    #[test]
    fn each_operation_has_its_own_times_and_slow_ones_are_remembered() {
        let mount = Arc::new(MountCounters::default());
        for operation in Operation::ALL {
            drop(mount.begin(operation, 7));
        }
        assert!(Operation::ALL.iter().all(|o| mount.of(*o).get().count == 1));
        assert!(mount.slow().is_empty());
        for ino in 0..40 {
            let mut timed = mount.begin(Operation::Read, ino);
            timed.begun = Instant::now().checked_sub(SLOW).unwrap();
        }
        let slow: Vec<u64> = mount.slow().iter().map(|s| s.ino).collect();
        assert_eq!(slow, (8..40).rev().collect::<Vec<_>>());
    }

    #[test]
    fn a_gauge_counts_what_is_held() {
        let gauge = Arc::new(Gauge::default());
        let (one, two) = (gauge.hold(), gauge.hold());
        drop(one);
        assert_eq!(gauge.get(), 1);
        drop(two);
        assert_eq!(gauge.get(), 0);
    }
}
