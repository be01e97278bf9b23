//! Bytes for tests.

/// Bytes that repeat nowhere near, others for each seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}
