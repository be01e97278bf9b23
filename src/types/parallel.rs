//! A list worked off by several threads.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

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

/// A piece of work in a thread of its own, or done already where none could be made.
#[derive(Debug)]
pub enum Beside<'scope, T> {
    /// It runs.
    Runs(ScopedJoinHandle<'scope, Option<T>>),
    /// The caller did it itself.
    Done(Option<T>),
}

impl<T> Beside<'_, T> {
    /// Waits for it; its panic goes on here.
    pub fn join(self) -> T {
        let done = match self {
            Self::Runs(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Self::Done(value) => value,
        };
        // The work is taken once: by the thread that was made, or by the caller when none was.
        done.unwrap_or_else(|| unreachable!("work is taken once"))
    }
}

/// Does something beside the caller, and in its place where the system gives no more threads: [`Scope::spawn`] would panic. It must not wait
/// for what the caller does later.
pub fn beside<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Beside<'scope, T> {
    beside_by(std::thread::Builder::new(), scope, work)
}

fn beside_by<'scope, T: Send + 'scope>(
    builder: std::thread::Builder,
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Beside<'scope, T> {
    // A thread that cannot be made drops what it was to run: so it is lent to it only.
    let work = Arc::new(Mutex::new(Some(work)));
    let taken = Arc::clone(&work);
    let take = |work: &Mutex<Option<_>>| work.lock().unwrap_or_else(PoisonError::into_inner).take();
    match builder.spawn_scoped(scope, move || take(&taken).map(|work| work())) {
        Ok(thread) => Beside::Runs(thread),
        Err(_) => Beside::Done(take(&work).map(|work| work())),
    }
}

#[cfg(test)]
mod tests {
    use super::{Beside, beside, beside_by, parallel};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn work_beside_is_done_by_a_thread_or_without_one_by_the_caller() {
        let caller = std::thread::current().id();
        std::thread::scope(|scope| {
            let work = || std::thread::current().id();
            let other = beside(scope, work);
            assert!(matches!(other, Beside::Runs(_)) && other.join() != caller);
            // No system has room for such a stack.
            let huge = std::thread::Builder::new().stack_size(1 << 46);
            let own = beside_by(huge, scope, work);
            assert!(matches!(own, Beside::Done(_)) && own.join() == caller);
        });
    }

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
