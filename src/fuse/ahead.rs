//! Whether a reader goes from front to back, and how far ahead of it to fetch.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::view::Parts;

/// What a reader that was just found to be sequential gets.
const FIRST: u64 = 1 << 20;

/// The most: twice what a link of 1 Gbit/s carries in 50 ms, several times over.
const MOST: u64 = 32 << 20;

#[derive(Debug, Default)]
struct Run {
    /// Where the reader's last read ended.
    at: u64,
    /// How many reads in a row began about there.
    reads: u32,
    /// Up to where was asked for.
    asked: u64,
    window: u64,
}

/// One open file that is not all local.
pub(super) struct Reader {
    pub(super) parts: Arc<dyn Parts>,
    run: Mutex<Run>,
}

impl Reader {
    pub(super) fn new(parts: Arc<dyn Parts>) -> Self {
        Self { parts, run: Mutex::default() }
    }

    /// Notes a read. What comes back should be fetched ahead.
    pub(super) fn read(&self, offset: u64, length: u64) -> Option<Range<u64>> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner).read(offset, length)
    }
}

impl Run {
    fn read(&mut self, offset: u64, length: u64) -> Option<Range<u64>> {
        let end = offset.saturating_add(length);
        // The kernel sends the reads of one reader side by side: a little out of order is still in order.
        let near = offset >= self.at.saturating_sub(FIRST) && offset <= self.at.saturating_add(FIRST);
        if !near || length == 0 {
            *self = Self { at: end, ..Self::default() };
            return None;
        }
        self.at = self.at.max(end);
        self.reads = self.reads.saturating_add(1);
        // Two small reads near each other are no scan.
        if self.reads < 3 {
            return None;
        }
        self.window = self.window.saturating_mul(2).clamp(FIRST, MOST);
        let start = self.asked.max(self.at);
        let until = self.at.saturating_add(self.window);
        // Half a window at least, so that few requests are made.
        if until < start.saturating_add(self.window / 2) {
            return None;
        }
        self.asked = until;
        Some(start..until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequential_reader_gets_a_growing_window_and_each_byte_is_asked_for_once() {
        let mut run = Run::default();
        let (mut next, mut asked) = (0, 0);
        for i in 0..4000u64 {
            if let Some(range) = run.read(i << 17, 1 << 17) {
                assert!(range.start >= next && range.start >= (i + 1) << 17, "{range:?}");
                next = range.end;
                asked += 1;
            }
            assert!(i < 3 || next > (i + 1) << 17, "it is always ahead: {i}");
        }
        assert!(asked < 60, "{asked}");
        assert!(next - (4000 << 17) <= MOST);
    }

    #[test]
    fn a_random_reader_gets_nothing() {
        let mut run = Run::default();
        let mut at = 12345u64;
        for _ in 0..1000 {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            assert_eq!(run.read((at >> 20) << 12, 4096), None);
        }
    }

    #[test]
    fn a_jump_begins_anew() {
        let mut run = Run::default();
        for i in 0..10 {
            run.read(i << 17, 1 << 17);
        }
        assert_eq!(run.read(1 << 40, 1 << 17), None);
        assert_eq!(run.read((1 << 40) + (1 << 17), 1 << 17), None);
        assert_eq!(run.read((1 << 40) + (2 << 17), 1 << 17), None);
        assert!(run.read((1 << 40) + (3 << 17), 1 << 17).is_some());
    }
}
