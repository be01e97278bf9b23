//! Numbers from a seed, for the thread that asks.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

static SEED: AtomicU64 = AtomicU64::new(0);
static THREADS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// Threads draw from it from now on, each its own numbers, in the order in which they began to.
pub fn seed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
}

pub fn draw() -> u64 {
    STATE.with(|state| {
        let mut x = state.get();
        if x == 0 {
            let thread = THREADS.fetch_add(1, Ordering::Relaxed);
            x = (SEED.load(Ordering::Relaxed) ^ thread.wrapping_mul(0x9E37_79B9_7F4A_7C15)) | 1;
        }
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    })
}

pub fn below(n: u64) -> u64 {
    draw() % n.max(1)
}

pub fn chance(percent: u64) -> bool {
    below(100) < percent
}

pub fn pick<T>(from: &[T]) -> Option<&T> {
    from.get(below(from.len() as u64) as usize)
}
