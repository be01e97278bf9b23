//! A set of states by their place in an arena: four bytes per state and little more.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are small numbers of our own.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;

/// A quick hash, good enough for numbers that nobody chooses.
#[derive(Default)]
pub struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u32(u32::from(*b));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }
}

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
    let mut hash = Quick::default();
    state.iter().for_each(|n| hash.write_u32(*n));
    hash.finish()
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
