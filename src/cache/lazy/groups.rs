//! Which groups of a file are here and verified, and which are on their way. Pure.

use std::ops::Range;

use crate::limits::GROUP;

/// A set of groups, one bit each.
#[derive(Debug, Clone)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(count: u64) -> Self {
        Self(vec![0; usize::try_from(count.div_ceil(64)).unwrap_or_default()])
    }

    fn place(group: u64) -> (usize, u64) {
        (usize::try_from(group / 64).unwrap_or(usize::MAX), 1 << (group % 64))
    }

    fn has(&self, group: u64) -> bool {
        let (word, bit) = Self::place(group);
        self.0.get(word).is_some_and(|w| w & bit != 0)
    }

    fn set(&mut self, group: u64, on: bool) {
        let (word, bit) = Self::place(group);
        if let Some(w) = self.0.get_mut(word) {
            if on {
                *w |= bit;
            } else {
                *w &= !bit;
            }
        }
    }
}

/// The groups of one file.
#[derive(Debug)]
pub(super) struct Groups {
    size: u64,
    count: u64,
    verified: Bits,
    flying: Bits,
    /// Written by a process before this one: to be verified before they are believed.
    found: Bits,
    missing: u64,
    on_their_way: u64,
}

/// What a reader has to do for some groups.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// Nothing: they are here.
    Here,
    /// Wait for others, who bring what is missing.
    Wait,
    /// Bring this run of groups, which is now on its way.
    Bring(Range<u64>),
}

impl Groups {
    pub(super) fn new(size: u64) -> Self {
        let count = size.div_ceil(GROUP);
        Self {
            size,
            count,
            verified: Bits::new(count),
            flying: Bits::new(count),
            found: Bits::new(count),
            missing: count,
            on_their_way: 0,
        }
    }

    /// The groups that a run of bytes lies in.
    pub(super) fn of(&self, offset: u64, length: u64) -> Range<u64> {
        let end = offset.saturating_add(length).min(self.size);
        if offset >= end {
            return self.count..self.count;
        }
        offset / GROUP..end.div_ceil(GROUP)
    }

    /// All groups.
    pub(super) fn all(&self) -> Range<u64> {
        0..self.count
    }

    /// The bytes of a run of groups.
    pub(super) fn bytes(&self, groups: &Range<u64>) -> Range<u64> {
        let end = groups.end.saturating_mul(GROUP).min(self.size);
        groups.start.saturating_mul(GROUP).min(end)..end
    }

    /// Whether every group is verified.
    pub(super) fn complete(&self) -> bool {
        self.missing == 0
    }

    pub(super) fn has(&self, group: u64) -> bool {
        self.verified.has(group)
    }

    /// Whether a run is verified.
    pub(super) fn have(&self, groups: &Range<u64>) -> bool {
        groups.clone().all(|g| self.verified.has(g))
    }

    /// Notes what the file had when it was opened.
    pub(super) fn find(&mut self, groups: Range<u64>) {
        for group in groups.start..groups.end.min(self.count) {
            self.found.set(group, true);
        }
    }

    /// Whether a group may be in the file already.
    pub(super) fn was_found(&self, group: u64) -> bool {
        self.found.has(group)
    }

    /// What to do for a run: the first missing part of it that nobody brings, and that the caller has not otherwise, is claimed, at most
    /// `most` groups of it.
    pub(super) fn claim(&mut self, groups: &Range<u64>, most: u64, has: impl Fn(u64) -> bool) -> Claim {
        let free = |g: &u64| !self.verified.has(*g) && !self.flying.has(*g) && !has(*g);
        let Some(start) = groups.clone().find(free) else {
            return if self.have(groups) { Claim::Here } else { Claim::Wait };
        };
        let end = (start..groups.end.min(start.saturating_add(most.max(1)))).find(|g| !free(g));
        let run = start..end.unwrap_or(groups.end.min(start.saturating_add(most.max(1))));
        for group in run.clone() {
            self.flying.set(group, true);
        }
        self.on_their_way = self.on_their_way.saturating_add(run.end - run.start);
        Claim::Bring(run)
    }

    /// Ends a claim, or a part of it. `here`: its bytes lie in the file, verified.
    pub(super) fn land(&mut self, groups: Range<u64>, here: bool) {
        for group in groups {
            if self.flying.has(group) {
                self.flying.set(group, false);
                self.on_their_way = self.on_their_way.saturating_sub(1);
            }
            // What was found was wrong, or is right and verified.
            self.found.set(group, false);
            if here && !self.verified.has(group) {
                self.verified.set(group, true);
                self.missing = self.missing.saturating_sub(1);
            }
        }
    }

    /// Nothing is here any more. What is on its way still is.
    pub(super) fn forget(&mut self) {
        self.verified = Bits::new(self.count);
        self.found = Bits::new(self.count);
        self.missing = self.count;
    }

    /// Bytes that are verified.
    pub(super) fn here(&self) -> u64 {
        let here = self.count.saturating_sub(self.missing).saturating_mul(GROUP);
        // The last group may be short.
        match self.count.checked_sub(1) {
            Some(last) if self.verified.has(last) => here.saturating_sub(self.count.saturating_mul(GROUP) - self.size),
            _ => here,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_claimed_once_and_in_parts() {
        let mut groups = Groups::new(10 * GROUP + 5);
        assert_eq!((groups.all(), groups.bytes(&(9..11))), (0..11, 9 * GROUP..10 * GROUP + 5));
        assert_eq!(groups.of(GROUP - 1, 2), 0..2);
        assert_eq!(groups.of(10 * GROUP, 100), 10..11);
        assert_eq!(groups.of(11 * GROUP, 100), 11..11);
        assert_eq!(groups.claim(&(2..9), 3, |_| false), Claim::Bring(2..5));
        assert_eq!(groups.claim(&(2..9), 3, |_| false), Claim::Bring(5..8));
        assert_eq!(groups.claim(&(2..8), 3, |_| false), Claim::Wait);
        assert_eq!(groups.claim(&(0..11), 100, |_| false), Claim::Bring(0..2));
        groups.land(2..4, true);
        assert!(groups.have(&(2..4)) && !groups.have(&(2..5)));
        assert_eq!(groups.claim(&(2..4), 1, |_| false), Claim::Here);
        // What failed is claimed anew.
        groups.land(4..8, false);
        assert_eq!(groups.claim(&(2..9), 100, |_| false), Claim::Bring(4..9));
        assert_eq!(groups.here(), 2 * GROUP);
    }

    #[test]
    fn it_is_complete_when_the_last_one_landed_however_often() {
        let mut groups = Groups::new(70 * GROUP + 1);
        assert_eq!(groups.claim(&(0..71), 1000, |_| false), Claim::Bring(0..71));
        groups.land(0..70, true);
        groups.land(3..9, true);
        assert!(!groups.complete());
        groups.land(70..71, true);
        assert!(groups.complete());
        assert_eq!(groups.here(), 70 * GROUP + 1);
        assert!(Groups::new(0).complete());
    }

    #[test]
    fn what_was_given_back_is_claimed_anew_and_what_is_on_its_way_is_not() {
        let mut groups = Groups::new(8 * GROUP);
        groups.find(6..7);
        assert_eq!(groups.claim(&(0..4), 9, |_| false), Claim::Bring(0..4));
        groups.land(0..4, true);
        assert_eq!(groups.claim(&(4..5), 9, |_| false), Claim::Bring(4..5));
        groups.forget();
        assert!(!groups.has(0) && !groups.was_found(6) && groups.here() == 0);
        assert_eq!(groups.claim(&(0..8), 99, |_| false), Claim::Bring(0..4));
        groups.land(4..5, true);
        assert_eq!(groups.here(), GROUP);
        groups.land(0..4, true);
        assert_eq!(groups.claim(&(0..8), 99, |_| false), Claim::Bring(5..8));
        groups.land(5..8, true);
        assert!(groups.complete());
    }

    #[test]
    fn what_was_found_is_not_believed() {
        let mut groups = Groups::new(4 * GROUP);
        groups.find(1..3);
        groups.find(3..99);
        assert!(groups.was_found(1) && groups.was_found(3) && !groups.was_found(0) && !groups.has(1));
        assert_eq!(groups.claim(&(0..4), 9, |_| false), Claim::Bring(0..4));
        groups.land(1..2, true);
        assert!(!groups.was_found(1) && groups.has(1));
    }
}
