//! A list worked off by several threads.

use std::sync::{Mutex, PoisonError};

/// Maps a list with at most `threads` threads, the caller's among them; results keep the list's order. The first error in that
/// order wins; what comes after it may have been done or not.
///
/// # Errors
/// What `f` returned.
pub fn parallel<T: Send, R: Send, E: Send>(
    threads: usize,
    items: Vec<T>,
    f: impl Fn(T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let threads = items.len().min(threads);
    if threads <= 1 {
        return items.into_iter().map(f).collect();
    }
    let queue = Mutex::new(items.into_iter().enumerate());
    let work = || {
        let mut out = Vec::new();
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((i, item)) = next else { return out };
            out.push((i, f(item)));
        }
    };
    let mut done: Vec<(usize, Result<R, E>)> = std::thread::scope(|scope| {
        // This thread works as well: one that cannot be made is not missed.
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
        let workers: Vec<_> = (1..threads).filter_map(spawn).collect();
        let mut done = work();
        for worker in workers {
            done.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, r)| r).collect()
}

#[cfg(test)]
mod tests {
    use super::parallel;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_and_errors_come_in_the_lists_order() {
        for threads in [1, 2, 3, 100] {
            let doubled: Result<Vec<u32>, ()> = parallel(threads, (0..50).collect(), |n| Ok(2 * n));
            assert_eq!(doubled, Ok((0..50).map(|n| 2 * n).collect()));
        }
        let tried = AtomicUsize::new(0);
        let first = parallel(4, (0..50).collect(), |n: u32| {
            tried.fetch_add(1, Ordering::Relaxed);
            if n % 7 == 5 { Err(n) } else { Ok(()) }
        });
        assert_eq!((first, tried.into_inner()), (Err(5), 50));
        assert_eq!(parallel(1, vec![3, 4], Err::<(), u32>), Err(3));
    }
}
