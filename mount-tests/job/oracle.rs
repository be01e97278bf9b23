//! What must come out, computed from the input alone, with maps. Nothing of the engine is imported here.

use std::collections::BTreeMap;

/// Partitions of the input, each an endless sequence of which the first so many are read.
pub const PARTITIONS: u32 = 6;
/// Milliseconds of a window.
pub const WINDOW: i64 = 100;

/// One input event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub key: i64,
    pub amount: i64,
    pub timestamp: i64,
}

/// The event of a partition at an offset, the same at every reading.
pub fn event(seed: u64, partition: u32, offset: i64) -> Event {
    let mut x = seed ^ (u64::from(partition) << 48) ^ offset.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..3 {
        x ^= x >> 30;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= x >> 27;
    }
    let (key, amount) = ((x % 40) as i64, ((x >> 20) % 100) as i64 - 30);
    Event { key, amount, timestamp: offset * 3 + (x >> 60) as i64 }
}

/// All that a key has at the end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OfKey {
    pub sum: i64,
    /// Amounts, sorted: the order in which partitions are merged is free.
    pub amounts: Vec<i64>,
    pub by_remainder: BTreeMap<i64, i64>,
    pub largest: Option<i64>,
    /// Count and total.
    pub mean: (i64, i64),
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expected {
    pub keys: BTreeMap<i64, OfKey>,
    /// Events by key and begin of the window.
    pub windows: BTreeMap<(i64, i64), i64>,
    pub offsets: BTreeMap<u32, i64>,
}

/// The answer for the first `length` events of each partition.
pub fn expected(seed: u64, length: i64) -> Expected {
    let mut all = Expected::default();
    for partition in 0..PARTITIONS {
        all.offsets.insert(partition, length);
        for offset in 0..length {
            let Event { key, amount, timestamp } = event(seed, partition, offset);
            let of = all.keys.entry(key).or_default();
            of.sum += amount;
            of.amounts.push(amount);
            *of.by_remainder.entry(amount.rem_euclid(4)).or_default() += 1;
            of.largest = of.largest.max(Some(amount));
            of.mean = (of.mean.0 + 1, of.mean.1 + amount);
            *all.windows.entry((key, timestamp.div_euclid(WINDOW) * WINDOW)).or_default() += 1;
        }
    }
    all.keys.values_mut().for_each(|k| k.amounts.sort_unstable());
    all
}
