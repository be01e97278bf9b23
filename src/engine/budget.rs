//! A bound on the memory that uploads hold at once.

use std::sync::{Condvar, Mutex, PoisonError};

/// Bytes that may be held; takers wait until there is room.
#[derive(Debug)]
pub struct Budget {
    total: u64,
    free: Mutex<u64>,
    freed: Condvar,
}

/// A share of the budget, given back when dropped.
#[derive(Debug)]
pub struct Share<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Budget {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(total: u64) -> Self {
        Self { total, free: Mutex::new(total), freed: Condvar::new() }
    }

    /// Waits until so many bytes are free and takes them. More than the whole budget counts as the whole.
    pub fn take(&self, bytes: u64) -> Share<'_> {
        let bytes = bytes.min(self.total);
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |f| *f < bytes).unwrap_or_else(PoisonError::into_inner);
        *free -= bytes;
        Share { budget: self, bytes }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *self.budget.free.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_the_budget_is_out() {
        let budget = Budget::new(10);
        let out = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|s| {
            for i in 0..8u64 {
                let (budget, out) = (&budget, &out);
                s.spawn(move || {
                    for _ in 0..200 {
                        let want = 1 + (i * 3) % 12;
                        let _share = budget.take(want);
                        let held = want.min(10);
                        let now = out.fetch_add(held, std::sync::atomic::Ordering::SeqCst) + held;
                        assert!(now <= 10, "{now}");
                        out.fetch_sub(held, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(*budget.free.lock().unwrap(), 10);
    }
}
