//! What threads share and wait for: `std`'s. With the feature `schedules`, which only tests have, Shuttle's, which runs the same code in
//! one order of its steps after another.
//!
//! A lock of `dashmap` may be held where another thread is let in by none of these.

#[cfg(not(feature = "schedules"))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, atomic},
    thread,
};

#[cfg(feature = "schedules")]
pub(crate) use scheduled::{Condvar, Mutex, MutexGuard};
#[cfg(feature = "schedules")]
pub(crate) use shuttle::{
    sync::{RwLock, RwLockReadGuard, atomic},
    thread,
};

/// A step of a schedule where only the lock of a map is taken, which is none: here another thread may come first.
#[inline]
pub(crate) fn step() {
    #[cfg(feature = "schedules")]
    thread::yield_now();
}

/// Waits that may end by time, which Shuttle has none of.
#[cfg(feature = "schedules")]
mod scheduled {
    use std::ops::{Deref, DerefMut};
    use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
    use std::time::Duration;

    use super::thread;

    type Inner<'a, T> = shuttle::sync::MutexGuard<'a, T>;

    /// Shuttle's, with a guard that knows it.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    /// What is locked, and by what.
    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T> {
        guard: Inner<'a, T>,
        mutex: &'a Mutex<T>,
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.guard
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.guard
        }
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        fn with<'a>(&'a self, guard: LockResult<Inner<'a, T>>) -> LockResult<MutexGuard<'a, T>> {
            match guard {
                Ok(guard) => Ok(MutexGuard { guard, mutex: self }),
                Err(e) => Err(PoisonError::new(MutexGuard { guard: e.into_inner(), mutex: self })),
            }
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            self.with(self.0.lock())
        }

        pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
                Err(TryLockError::Poisoned(e)) => Ok(self.with(Err(e))?),
                Ok(guard) => Ok(self.with(Ok(guard))?),
            }
        }
    }

    /// A condition whose waits that may end by time end whenever the schedule lets them: sooner and later than anything else.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(shuttle::sync::Condvar);

    /// Whether time ended the wait.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct WaitTimeoutResult(bool);

    impl WaitTimeoutResult {
        pub(crate) fn timed_out(self) -> bool {
            self.0
        }
    }

    type TimedResult<'a, T> = LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>;

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
            guard.mutex.with(self.0.wait(guard.guard))
        }

        pub(crate) fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, _: Duration) -> TimedResult<'a, T> {
            let mutex = guard.mutex;
            drop(guard);
            thread::yield_now();
            match mutex.lock() {
                Ok(guard) => Ok((guard, WaitTimeoutResult(true))),
                Err(e) => Err(PoisonError::new((e.into_inner(), WaitTimeoutResult(true)))),
            }
        }

        pub(crate) fn wait_timeout_while<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            most: Duration,
            mut condition: impl FnMut(&mut T) -> bool,
        ) -> TimedResult<'a, T> {
            if condition(&mut guard) { self.wait_timeout(guard, most) } else { Ok((guard, WaitTimeoutResult(false))) }
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

/// How a schedule test is run.
#[cfg(all(test, feature = "schedules"))]
pub(crate) mod schedules {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Schedules of each kind in a CI run.
    const RUNS: u64 = 300;

    /// Changes of priority that one schedule may have: few find nearly all faults.
    const DEPTH: usize = 3;

    fn number(name: &str, default: u64) -> u64 {
        std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
    }

    fn config() -> shuttle::Config {
        let mut config = shuttle::Config::new();
        // A cache's steps hold a path or two of some kilobytes.
        config.stack_size = 1 << 20;
        config.max_steps = shuttle::MaxSteps::FailAfter(1_000_000);
        config
    }

    /// Runs a test in so many random orders of its steps, and in so many that change the priority of its threads a few times. Prints how
    /// many there were, and of which seed. A failure says its schedule too.
    pub(crate) fn explore(name: &str, test: impl Fn() + Send + Sync + 'static) {
        let runs = number("CKPTFS_SCHEDULES", RUNS);
        let seed = number("CKPTFS_TEST_SEED", crate::types::now_ms() % 1_000_000);
        let ran = Arc::new(AtomicU64::new(0));
        let test = Arc::new(test);
        println!("{name}: seed {seed}");
        let counted = || {
            let (ran, test) = (Arc::clone(&ran), Arc::clone(&test));
            move || {
                ran.fetch_add(1, Ordering::Relaxed);
                test();
            }
        };
        let iterations = usize::try_from(runs.div_ceil(2)).unwrap();
        let random = shuttle::scheduler::RandomScheduler::new_from_seed(seed, iterations);
        shuttle::Runner::new(random, config()).run(counted());
        let pct = shuttle::scheduler::PctScheduler::new_from_seed(seed, DEPTH, iterations);
        shuttle::Runner::new(pct, config()).run(counted());
        let ran = ran.load(Ordering::Relaxed);
        println!("{name}: {ran} schedules");
        assert!(ran >= runs, "only {ran} of {runs} schedules were run");
    }
}
