//! A set of states by their place in an arena: four bytes per state and little more.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// Open addressing; holds indexes, and asks the caller whether the state there is the same.
pub struct Table {
    slots: Vec<u32>,
    /// Part of each slot's hash, so that most others are told apart without a look at the arena.
    marks: Vec<u32>,
    used: usize,
}

const EMPTY: u32 = u32::MAX;

impl Default for Table {
    fn default() -> Self {
        Self { slots: vec![EMPTY; 1 << 12], marks: vec![0; 1 << 12], used: 0 }
    }
}

fn hash(state: &[u32]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(state)
}

impl Table {
    /// Adds a state that will lie at `index`; false when the same one is there.
    pub fn insert(&mut self, state: &[u32], index: u32, same: impl Fn(u32) -> bool) -> bool {
        if self.used * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let hash = hash(state);
        let mask = self.slots.len() - 1;
        // The low half places, and the growth needs no more than it: tables stay below 2^32 slots.
        let mark = (hash >> 32) as u32 ^ hash as u32;
        let mut at = mark as usize & mask;
        loop {
            match self.slots[at] {
                EMPTY => {
                    self.slots[at] = index;
                    self.marks[at] = mark;
                    self.used += 1;
                    return true;
                }
                there if self.marks[at] == mark && same(there) => return false,
                _ => at = (at + 1) & mask,
            }
        }
    }

    fn grow(&mut self) {
        let size = self.slots.len() * 2;
        let slots = std::mem::replace(&mut self.slots, vec![EMPTY; size]);
        let marks = std::mem::replace(&mut self.marks, vec![0; size]);
        for (slot, mark) in slots.into_iter().zip(marks).filter(|(s, _)| *s != EMPTY) {
            let mut at = mark as usize & (size - 1);
            while self.slots[at] != EMPTY {
                at = (at + 1) & (size - 1);
            }
            self.slots[at] = slot;
            self.marks[at] = mark;
        }
    }
}
