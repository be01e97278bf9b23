//! Counts how long the phases of a piece of work took, and tells on whatever it is told.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::format::phases;
use crate::metrics::Work;
use crate::types::Progress;

/// A progress that is counted. What is under way ends when it is dropped.
pub(super) struct Phased<'a> {
    told: &'a dyn Progress,
    work: &'a Work,
    now: Mutex<Option<(&'static str, Instant)>>,
    /// Those of [`KEPT`] that have ended, in any order; one may come again.
    ended: Mutex<Vec<(&'static str, Duration)>>,
}

/// Phases that a task manifest tells of, by the names that they have there.
const KEPT: [(&str, &str); 3] =
    [("open", phases::OPEN), ("hash and upload", phases::UPLOAD), ("bundle", phases::BUNDLE)];

fn kept(name: &str) -> Option<&'static str> {
    KEPT.iter().find(|(phase, _)| *phase == name).map(|(_, property)| *property)
}

impl<'a> Phased<'a> {
    pub(super) fn new(work: &'a Work, told: &'a dyn Progress) -> Self {
        Self { told, work, now: Mutex::default(), ended: Mutex::default() }
    }

    /// How long those took that a task manifest tells of, the one that is under way included.
    pub(super) fn so_far(&self) -> Vec<(&'static str, Duration)> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let running = now.and_then(|(name, since)| Some((kept(name)?, since.elapsed())));
        let mut sums: Vec<(&'static str, Duration)> = Vec::new();
        for (name, took) in ended.into_iter().chain(running) {
            match sums.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum = sum.saturating_add(took),
                None => sums.push((name, took)),
            }
        }
        sums
    }

    fn next(&self, name: Option<&'static str>) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        // A sweep says the same phase for each batch.
        if now.is_some_and(|(current, _)| Some(current) == name) {
            return;
        }
        let begun = Instant::now();
        if let Some((ended, since)) = std::mem::replace(&mut *now, name.map(|name| (name, begun))) {
            let took = begun.saturating_duration_since(since);
            self.work.phase(ended, took);
            if let Some(name) = kept(ended) {
                self.ended.lock().unwrap_or_else(PoisonError::into_inner).push((name, took));
            }
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

    #[test]
    fn what_a_manifest_tells_of_is_summed_with_what_is_under_way() {
        let work = Work::default();
        let phased = Phased::new(&work, &Silent);
        assert!(phased.so_far().is_empty());
        let pause = || std::thread::sleep(Duration::from_millis(20));
        // A base that lost something: its snapshot uploads and packs twice.
        for name in ["open", "hash and upload", "bundle", "hash and upload", "bundle"] {
            phased.phase(name);
            pause();
        }
        let told = phased.so_far();
        assert_eq!(
            told.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            [phases::OPEN, phases::UPLOAD, phases::BUNDLE]
        );
        let least = [20, 40, 40].map(Duration::from_millis);
        assert!(told.iter().zip(least).all(|((_, took), least)| *took >= least), "{told:?}");
        phased.phase("ack");
        pause();
        let later = phased.so_far();
        assert!(later[2].1 >= told[2].1 && later.len() == 3, "{later:?}");
        pause();
        assert_eq!(phased.so_far(), later, "what is not told of does not count");
    }
}
