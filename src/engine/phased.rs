//! Counts how long the phases of a piece of work took, and tells on whatever it is told.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::metrics::Work;
use crate::types::Progress;

/// A progress that is counted. What is under way ends when it is dropped.
pub(super) struct Phased<'a> {
    told: &'a dyn Progress,
    work: &'a Work,
    now: Mutex<Option<(&'static str, Instant)>>,
}

impl<'a> Phased<'a> {
    pub(super) fn new(work: &'a Work, told: &'a dyn Progress) -> Self {
        Self { told, work, now: Mutex::default() }
    }

    fn next(&self, name: Option<&'static str>) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        // A sweep says the same phase for each batch.
        if now.is_some_and(|(current, _)| Some(current) == name) {
            return;
        }
        let begun = Instant::now();
        if let Some((ended, since)) = std::mem::replace(&mut *now, name.map(|name| (name, begun))) {
            self.work.phase(ended, begun.saturating_duration_since(since));
        }
    }
}

impl Drop for Phased<'_> {
    fn drop(&mut self) {
        self.next(None);
    }
}

impl Progress for Phased<'_> {
    fn plan(&self, files: u64, bytes: u64) {
        self.told.plan(files, bytes);
    }

    fn phase(&self, name: &'static str) {
        self.next(Some(name));
        self.told.phase(name);
    }

    fn advance(&self, bytes: u64) {
        self.told.advance(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Silent;

    #[test]
    fn each_phase_is_counted_once_and_the_last_one_at_the_end() {
        let work = Work::default();
        let phased = Phased::new(&work, &Silent);
        for name in ["scan", "open", "open", "upload"] {
            phased.phase(name);
        }
        let counted = |work: &Work| work.phases().into_iter().map(|(name, t)| (name, t.count)).collect::<Vec<_>>();
        assert_eq!(counted(&work), [("open", 1), ("scan", 1)]);
        drop(phased);
        assert_eq!(counted(&work), [("open", 1), ("scan", 1), ("upload", 1)]);
    }
}
