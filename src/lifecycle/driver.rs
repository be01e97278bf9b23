//! Runs a machine against a store. All the protocol's I/O is here.

use super::error::LifecycleError;
use super::machine::{Machine, Reply, Request, Step};
use crate::limits;
use crate::store::{Store, StoreError};

/// Runs a machine to its end. A store error ends it: what was created stays, and the next run finds it.
///
/// # Errors
/// The machine's own, or the store's.
pub fn run<M: Machine>(store: &Store, mut machine: M) -> Result<M::Output, LifecycleError> {
    let mut replies = Vec::new();
    loop {
        match machine.step(replies) {
            Step::Done(result) => return result,
            Step::Ask(requests) => replies = answer(store, requests)?,
        }
    }
}

fn answer(store: &Store, requests: Vec<Request>) -> Result<Vec<Reply>, LifecycleError> {
    if store.answers_at_once() {
        // Threads would cost more than they save.
        return requests.into_iter().map(|request| Ok(perform(store, request)?)).collect();
    }
    parallel(requests, |request| Ok(perform(store, request)?))
}

fn perform(store: &Store, request: Request) -> Result<Reply, StoreError> {
    Ok(match request {
        Request::List(prefix) => Reply::Listed(store.list(&prefix)?.into_iter().map(|l| l.key).collect()),
        Request::Get(key) => Reply::Got(store.get(&key, limits::METADATA_LEN)?),
        Request::Create(key, bytes) => Reply::Created(store.create(&key, bytes)?),
        Request::Head(key) => Reply::Headed(store.head(&key)?),
    })
}

/// Maps a list with at most [`limits::PARALLEL_REQUESTS`] threads; results keep the list's order. The first error in that order wins.
///
/// # Errors
/// What `f` returned.
pub fn parallel<T: Send, R: Send, E: Send>(items: Vec<T>, f: impl Fn(T) -> Result<R, E> + Sync) -> Result<Vec<R>, E> {
    if items.len() <= 1 {
        return items.into_iter().map(f).collect();
    }
    let threads = items.len().min(limits::PARALLEL_REQUESTS);
    let queue = std::sync::Mutex::new(items.into_iter().enumerate());
    let (f, queue) = (&f, &queue);
    let mut done: Vec<(usize, Result<R, E>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || {
                    let mut out = Vec::new();
                    loop {
                        let next = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
                        let Some((i, item)) = next else { return out };
                        out.push((i, f(item)));
                    }
                })
            })
            .collect();
        workers.into_iter().flat_map(|w| w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, r)| r).collect()
}
