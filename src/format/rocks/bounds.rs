//! Cuts the boundary keys of a table outward, so that a manifest stays small and still bounds every key.
//!
//! Bytewise order only. Under a foreign comparator the cut keys mean nothing, as the whole ones would.

use crate::limits;

/// Boundary keys that were cut outward: everything in the table lies between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyBounds {
    /// Not above the table's smallest key.
    pub smallest: Vec<u8>,
    /// Not below the table's largest key; `None` is above every key.
    pub largest: Option<Vec<u8>>,
}

/// Cuts both keys to [`limits::KEY_BOUND`] bytes at most. A prefix sorts before what it was cut from; the upper
/// one is therefore raised to the next key of its length, or shorter.
#[must_use]
pub fn cut_outward(smallest: &[u8], largest: &[u8]) -> KeyBounds {
    let cut = |key| <[u8]>::get(key, ..limits::KEY_BOUND);
    KeyBounds {
        smallest: cut(smallest).unwrap_or(smallest).to_vec(),
        largest: match cut(largest) {
            None => Some(largest.to_vec()),
            Some(prefix) if prefix.len() == largest.len() => Some(largest.to_vec()),
            Some(prefix) => successor(prefix),
        },
    }
}

/// The shortest key above everything that starts with `prefix`.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut key = prefix.get(..=last)?.to_vec();
    *key.last_mut()? += 1;
    Some(key)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const LEN: usize = limits::KEY_BOUND;

    #[test]
    fn short_keys_stay_and_long_ones_are_cut_outward() {
        let exact = vec![b'k'; LEN];
        let cut = cut_outward(&exact, &exact);
        assert_eq!((cut.smallest, cut.largest), (exact.clone(), Some(exact.clone())));

        let long = vec![b'k'; LEN + 1];
        let mut above = exact.clone();
        above[LEN - 1] = b'l';
        let cut = cut_outward(&long, &long);
        assert_eq!((cut.smallest, cut.largest), (exact, Some(above)));

        let mut carry = vec![0xff; LEN + 9];
        carry[0] = 3;
        assert_eq!(cut_outward(&carry, &carry).largest, Some(vec![4]));
        assert_eq!(cut_outward(&[], &[0xff; LEN + 1]).largest, None);
        assert_eq!(cut_outward(&[], &[0xff; LEN]).largest, Some(vec![0xff; LEN]));
    }

    /// Long keys, with runs of 0xff around the cut.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        (vec(any::<u8>(), 0..LEN + 8), 0usize..80, vec(any::<u8>(), 0..8))
            .prop_map(|(head, ones, tail)| [head, vec![0xff; ones], tail].concat())
    }

    proptest! {
        #[test]
        fn cut_bounds_hold_everything_that_the_whole_ones_hold(a in key(), b in key(), keys in vec(key(), 0..20)) {
            let (smallest, largest) = if a <= b { (a, b) } else { (b, a) };
            let cut = cut_outward(&smallest, &largest);
            prop_assert!(cut.smallest.len() <= LEN && cut.smallest <= smallest);
            if let Some(upper) = &cut.largest {
                prop_assert!(upper.len() <= LEN && *upper >= largest);
            }
            for key in keys.iter().filter(|key| smallest <= **key && **key <= largest) {
                prop_assert!(cut.smallest <= *key && cut.largest.as_ref().is_none_or(|upper| key <= upper));
            }
            // Nothing is cut that fits.
            if largest.len() <= LEN {
                prop_assert_eq!(cut.largest, Some(largest));
            }
        }
    }
}
