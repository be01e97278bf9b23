//! Key groups: the units that keyed state is cut into when a job changes its parallelism. The arithmetic is Flink's, bit for bit, so
//! that both put a key into the same group and give a group to the same subtask.

use serde::{Deserialize, Serialize};

use super::number::NumberError;
use crate::limits;

/// A range of key groups; both ends are inclusive, as in Flink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyGroupRange {
    /// First key group.
    pub first: u32,
    /// Last key group.
    pub last: u32,
}

impl KeyGroupRange {
    /// Checks that the range is in order and below the largest parallelism.
    ///
    /// # Errors
    /// When `first > last` or `last` is out of bounds.
    pub fn new(first: u32, last: u32) -> Result<Self, NumberError> {
        if first <= last && last < limits::PARALLELISM {
            Ok(Self { first, last })
        } else {
            Err(NumberError(format!("[{first}, {last}] is not a key-group range within 0..{}", limits::PARALLELISM)))
        }
    }

    /// The key groups of one subtask: from `ceil(index * max / parallelism)` to `((index + 1) * max - 1) / parallelism`. The ranges of
    /// all subtasks are in order, touch, and cover every group.
    ///
    /// # Errors
    /// When `max_parallelism` is not within 1 to 32,768, `parallelism` not within 1 to it, or `index` not below `parallelism`.
    pub fn of_subtask(max_parallelism: u32, parallelism: u32, index: u32) -> Result<Self, NumberError> {
        check(max_parallelism, parallelism)?;
        if index >= parallelism {
            return Err(NumberError(format!("there is no subtask {index} of {parallelism}: they count from 0")));
        }
        // All are at most 2^15, so the products fit.
        let first = (index * max_parallelism).div_ceil(parallelism);
        let last = ((index + 1) * max_parallelism - 1) / parallelism;
        Self::new(first, last)
    }

    /// The subtask that has a key group: `key_group * parallelism / max_parallelism`.
    ///
    /// # Errors
    /// As [`KeyGroupRange::of_subtask`], and when the key group is not below `max_parallelism`.
    pub fn subtask_of(max_parallelism: u32, parallelism: u32, key_group: u32) -> Result<u32, NumberError> {
        check(max_parallelism, parallelism)?;
        if key_group >= max_parallelism {
            return Err(NumberError(format!(
                "there is no key group {key_group}: the largest parallelism is {max_parallelism}"
            )));
        }
        Ok(key_group * parallelism / max_parallelism)
    }

    /// Whether a key group is in it.
    #[must_use]
    pub const fn contains(&self, key_group: u32) -> bool {
        self.first <= key_group && key_group <= self.last
    }

    /// What two ranges share.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(Self { first, last })
    }

    /// How many key groups it has, at least 1.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.last.saturating_sub(self.first).saturating_add(1)
    }

    /// Its key groups in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        self.first..=self.last
    }
}

impl std::fmt::Display for KeyGroupRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}, {}]", self.first, self.last)
    }
}

/// Checks a largest parallelism and a parallelism under it.
fn check(max_parallelism: u32, parallelism: u32) -> Result<(), NumberError> {
    if max_parallelism == 0 || max_parallelism > limits::PARALLELISM {
        let most = limits::PARALLELISM;
        return Err(NumberError(format!("{max_parallelism} is not a largest parallelism (1 to {most})")));
    }
    if parallelism == 0 || parallelism > max_parallelism {
        let what = format!("{parallelism} is not a parallelism under the largest parallelism {max_parallelism}");
        return Err(NumberError(format!("{what} (1 to {max_parallelism})")));
    }
    Ok(())
}

/// The key group of a key with this hash code: the hash is mixed first, since Java's are often small numbers. A largest parallelism of
/// 0, which nobody has, counts as 1.
#[must_use]
pub fn key_group_of(hash: i32, max_parallelism: u32) -> u32 {
    mix(hash) % max_parallelism.max(1)
}

/// `MathUtils.murmurHash` of Flink: one round of MurmurHash3, its absolute value, and 0 for the value that has none.
fn mix(hash: i32) -> u32 {
    let mut h = hash.cast_unsigned();
    h = h.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    h = h.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    h ^= 4;
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    h ^= h >> 16;
    match h.cast_signed() {
        i32::MIN => 0,
        signed => signed.unsigned_abs(),
    }
}

/// The largest parallelism of an operator that names none: one and a half times its parallelism, rounded up to a power of two, within
/// 128 to 32,768.
#[must_use]
pub fn default_max_parallelism(parallelism: u32) -> u32 {
    let wanted = parallelism.saturating_add(parallelism / 2).min(limits::PARALLELISM);
    wanted.next_power_of_two().clamp(128, limits::PARALLELISM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row6_the_ranges_of_all_subtasks_touch_and_cover_every_group() {
        for (max, largest) in [(1, 1), (7, 7), (128, 128), (200, 60), (32_768, 9)] {
            for parallelism in 1..=largest {
                let mut next = 0;
                for index in 0..parallelism {
                    let range = KeyGroupRange::of_subtask(max, parallelism, index).unwrap();
                    assert_eq!(range.first, next, "{max} {parallelism} {index}");
                    for group in [range.first, range.last] {
                        assert_eq!(KeyGroupRange::subtask_of(max, parallelism, group).unwrap(), index);
                        assert!(range.contains(group));
                    }
                    next = range.last + 1;
                }
                assert_eq!(next, max);
            }
        }
        let range = |index| KeyGroupRange::of_subtask(128, 3, index).unwrap();
        assert_eq!([range(0), range(1), range(2)].map(|r| (r.first, r.last)), [(0, 42), (43, 85), (86, 127)]);
    }

    #[test]
    fn row6_ranges_are_refused_out_of_bounds() {
        for (max, parallelism, index) in
            [(0, 1, 0), (32_769, 1, 0), (128, 0, 0), (128, 129, 0), (128, 2, 2), (1, 1, u32::MAX)]
        {
            assert!(KeyGroupRange::of_subtask(max, parallelism, index).is_err(), "{max} {parallelism} {index}");
        }
        assert!(KeyGroupRange::subtask_of(128, 2, 128).is_err());
        assert!(KeyGroupRange::of_subtask(32_768, 32_768, 32_767).is_ok());
        assert!(KeyGroupRange::new(3, 2).is_err() && KeyGroupRange::new(0, 32_768).is_err());
    }

    #[test]
    fn ranges_share_what_both_have() {
        let range = |first, last| KeyGroupRange { first, last };
        assert_eq!(range(0, 63).intersect(&range(43, 85)), Some(range(43, 63)));
        assert_eq!(range(0, 63).intersect(&range(63, 63)), Some(range(63, 63)));
        assert_eq!(range(0, 63).intersect(&range(64, 127)), None);
        assert_eq!((range(43, 85).count(), range(5, 5).count()), (43, 1));
        assert!(!range(43, 85).contains(42) && !range(43, 85).contains(86));
        assert_eq!(range(3, 5).iter().collect::<Vec<_>>(), [3, 4, 5]);
    }

    #[test]
    fn row6_key_groups_are_those_of_flink() {
        // From checkpoints of Flink 2.3 with a largest parallelism of 128: keys of type `Long`, whose hash code is their value.
        for (key, group) in [(4, 7), (6, 18), (8, 15), (9, 51), (1_000_008, 0), (2_000_028, 0), (3_000_013, 0)] {
            assert_eq!(key_group_of(key, 128), group, "{key}");
        }
        for (hash, max) in [(i32::MIN, 128), (i32::MAX, 200), (-1, 1), (0, 0)] {
            assert!(key_group_of(hash, max) < max.max(1), "{hash} {max}");
        }
    }

    #[test]
    fn row6_the_default_largest_parallelism_is_that_of_flink() {
        let of =
            [(1, 128), (85, 128), (86, 256), (170, 256), (171, 256), (172, 512), (20_000, 32_768), (u32::MAX, 32_768)];
        for (parallelism, expected) in of {
            assert_eq!(default_max_parallelism(parallelism), expected, "{parallelism}");
        }
    }
}
