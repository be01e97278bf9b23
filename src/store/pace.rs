//! Limits of what a process sends to a bucket and fetches from it: whoever comes while others are ahead of the rate waits its turn, in the
//! order of coming, before its request is made. A request itself goes as fast as it can, so that no deadline is stretched.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A quarter of a second's worth goes in one request, but not so little that requests cost more than bytes.
const SMALLEST_PIECE: u64 = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct Pacer(Option<Pace>);

#[derive(Debug)]
struct Pace {
    /// Bytes a second.
    rate: u64,
    /// When the next one may go.
    free: Mutex<Option<Instant>>,
}

impl Pacer {
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self(rate.map(|rate| Pace { rate: rate.max(1), free: Mutex::new(None) }))
    }

    /// Waits until so many bytes may go; says how long.
    pub(super) fn take(&self, bytes: u64) -> Duration {
        let Some(pace) = &self.0 else { return Duration::ZERO };
        let wait = pace.reserve(bytes, Instant::now());
        if !wait.is_zero() {
            thread::sleep(wait);
        }
        wait
    }

    /// The most that goes in one request where it can be had in pieces.
    pub(super) fn piece(&self) -> u64 {
        self.0.as_ref().map_or(u64::MAX, |pace| (pace.rate / 4).max(SMALLEST_PIECE))
    }
}

impl Pace {
    fn reserve(&self, bytes: u64, now: Instant) -> Duration {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = free.map_or(now, |free| free.max(now));
        let takes = Duration::try_from_secs_f64(bytes as f64 / self.rate as f64).unwrap_or(Duration::MAX);
        // A time beyond all clocks: whatever comes then waits as long as anything can.
        *free = begins.checked_add(takes).or(Some(begins));
        begins.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_order_and_unused_time_is_not_saved_up() {
        let pace = Pace { rate: 1000, free: Mutex::new(None) };
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let wait = |bytes, ms| pace.reserve(bytes, at(ms)).as_millis();
        assert_eq!(wait(500, 0), 0, "the first goes at once");
        assert_eq!(wait(2000, 0), 500, "the next when the first is paid for");
        assert_eq!(wait(1, 100), 2400);
        assert_eq!(wait(1000, 60_000), 0);
        assert_eq!(wait(1000, 60_000), 1000, "a minute without requests is worth nothing");
    }

    #[test]
    fn without_a_rate_nobody_waits() {
        let pacer = Pacer::new(None);
        assert_eq!((pacer.take(u64::MAX), pacer.piece()), (Duration::ZERO, u64::MAX));
        assert_eq!(Pacer::new(Some(1 << 20)).piece(), 256 << 10);
        assert_eq!(Pacer::new(Some(1)).piece(), SMALLEST_PIECE);
    }
}
