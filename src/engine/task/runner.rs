//! The asynchronous part of one piece of a snapshot: work on resources that were prepared in the sync phase.
//!
//! Two may want to end it, whoever runs it and whoever cancels it. One atomic decides who releases the resources: whoever takes the
//! ownership first. Cancelling stops what is in flight first; then, if the work never began, it releases the resources itself.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use super::failure::guarded;
use crate::engine::cancel::Cancel;
use crate::error::{Error, Kind, Result};

/// Sizes in bytes of what a cancelled snapshot had come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// All of the state.
    pub state: u64,
    /// What was sent for it.
    pub sent: u64,
}

impl Sizes {
    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { state: self.state.saturating_add(other.state), sent: self.sent.saturating_add(other.sent) }
    }
}

/// State that a future has produced and that may come to nothing.
pub trait Produced: Send {
    /// How large it is.
    fn sizes(&self) -> Sizes;

    /// Removes what it holds on this host. Uploads are given up, never deleted: another attempt may have adopted them.
    ///
    /// # Errors
    /// When the disk refuses.
    fn discard(&mut self) -> Result<()>;
}

/// A future of a snapshot.
pub trait SnapshotFuture<T>: Send + Sync + fmt::Debug {
    /// Runs it in the caller's thread, unless it ran or was cancelled.
    fn run(&self);

    /// What it produced; waits for whoever runs it.
    ///
    /// # Errors
    /// What failed, or that it was cancelled or taken before.
    fn take(&self) -> Result<T>;

    /// Stops it. What it had produced already is discarded.
    ///
    /// # Errors
    /// When something local cannot be removed.
    fn cancel(&self) -> Result<Sizes>;
}

/// A future that is done.
#[derive(Debug)]
pub struct Ready<T>(Mutex<Option<T>>);

impl<T> Ready<T> {
    /// Done with this.
    #[must_use]
    pub fn new(value: T) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(value))))
    }
}

impl<T: Produced + fmt::Debug> SnapshotFuture<T> for Ready<T> {
    fn run(&self) {}

    fn take(&self) -> Result<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(taken)
    }

    fn cancel(&self) -> Result<Sizes> {
        discard(self.0.lock().unwrap_or_else(PoisonError::into_inner).take())
    }
}

fn taken() -> Error {
    Error::new(Kind::Conflict, "the snapshot was cancelled, or its result is taken")
}

fn discard<T: Produced>(produced: Option<T>) -> Result<Sizes> {
    let Some(mut produced) = produced else { return Ok(Sizes::default()) };
    let sizes = produced.sizes();
    produced.discard().map(|()| sizes)
}

/// Resources of the sync phase.
pub trait Resources: Send {
    /// Gives them back.
    ///
    /// # Errors
    /// When the disk refuses.
    fn release(&mut self) -> Result<()>;
}

type Work<R, T> = Box<dyn FnOnce(&mut R, &Cancel) -> Result<T> + Send>;

enum Outcome<T> {
    Waiting,
    Done(Result<T>),
    Gone,
}

/// The future of [`run`].
pub struct AsyncSnapshot<R, T> {
    what: String,
    owned: AtomicBool,
    cancel: Cancel,
    prepared: Mutex<Option<(R, Work<R, T>)>>,
    outcome: Mutex<Outcome<T>>,
    done: Condvar,
}

impl<R, T> fmt::Debug for AsyncSnapshot<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncSnapshot").field(&self.what).finish()
    }
}

/// What a backend's end cancels.
pub trait Cancellable: Send + Sync {
    /// Stops it.
    fn stop(&self);
}

/// The snapshots of a backend that are not done. Closing it cancels them.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Registered>>);

#[derive(Default)]
struct Registered {
    closed: bool,
    running: Vec<Weak<dyn Cancellable>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("closed", &self.lock().closed).finish_non_exhaustive()
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Registered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers what shall end with the backend.
    ///
    /// # Errors
    /// When the backend is closed.
    pub fn register(&self, running: Weak<dyn Cancellable>) -> Result<()> {
        let mut registered = self.lock();
        if registered.closed {
            return Err(Error::new(
                Kind::Conflict,
                "the state backend is closed: nothing of it can be snapshotted any more",
            ));
        }
        registered.running.retain(|r| r.strong_count() > 0);
        registered.running.push(running);
        Ok(())
    }

    /// Ends all that runs, and refuses what comes.
    pub fn close(&self) {
        let running = {
            let mut registered = self.lock();
            registered.closed = true;
            std::mem::take(&mut registered.running)
        };
        running.iter().filter_map(Weak::upgrade).for_each(|r| r.stop());
    }

    /// Whether it is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }
}

/// Makes the future of some work on resources, as one of the backend's.
///
/// # Errors
/// When the backend is closed: the resources are released then.
pub fn run<R, T>(
    what: &str,
    registry: &Registry,
    resources: R,
    work: impl FnOnce(&mut R, &Cancel) -> Result<T> + Send + 'static,
) -> Result<Arc<AsyncSnapshot<R, T>>>
where
    R: Resources + 'static,
    T: Produced + 'static,
{
    let work: Work<R, T> = Box::new(work);
    let future = Arc::new(AsyncSnapshot {
        what: what.to_owned(),
        owned: AtomicBool::new(false),
        cancel: Cancel::default(),
        prepared: Mutex::new(Some((resources, work))),
        outcome: Mutex::new(Outcome::Waiting),
        done: Condvar::new(),
    });
    let weak: Weak<AsyncSnapshot<R, T>> = Arc::downgrade(&future);
    if let Err(closed) = registry.register(weak) {
        // Nothing was produced, so nothing but the release can fail.
        if let Err(e) = future.cancel() {
            log::warn!("{what}: {e}");
        }
        return Err(closed);
    }
    Ok(future)
}

impl<R: Resources, T: Produced> AsyncSnapshot<R, T> {
    fn outcome(&self) -> MutexGuard<'_, Outcome<T>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_ownership(&self) -> bool {
        self.owned.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn end(&self, outcome: Outcome<T>) {
        *self.outcome() = outcome;
        self.done.notify_all();
    }
}

impl<R: Resources, T: Produced> SnapshotFuture<T> for AsyncSnapshot<R, T> {
    fn run(&self) {
        if !self.take_ownership() {
            return;
        }
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((mut resources, work)) = prepared else { return };
        let mut result = guarded(&self.what, || work(&mut resources, &self.cancel));
        if self.cancel.is_cancelled() {
            result = match result {
                // Nobody wants it any more.
                Ok(mut produced) => match produced.discard() {
                    Ok(()) => Err(taken()),
                    Err(e) => Err(e),
                },
                // Whatever failed, it failed because it was told to stop.
                Err(e) => Err(Error::with_source(Kind::Conflict, format!("{}: cancelled", self.what), e)),
            };
        }
        if let Err(e) = resources.release() {
            log::warn!("{}: {e}", self.what);
        }
        self.end(Outcome::Done(result));
    }

    fn take(&self) -> Result<T> {
        let waiting = |o: &mut Outcome<T>| matches!(o, Outcome::Waiting);
        let mut outcome = self.done.wait_while(self.outcome(), waiting).unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *outcome, Outcome::Gone) {
            Outcome::Done(result) => result,
            Outcome::Waiting | Outcome::Gone => Err(taken()),
        }
    }

    fn cancel(&self) -> Result<Sizes> {
        // What is in flight stops first: whoever holds the ownership is waited for by nobody here.
        self.cancel.cancel();
        if self.take_ownership() {
            let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).take();
            self.end(Outcome::Gone);
            return prepared.map_or(Ok(()), |(mut resources, _)| resources.release()).map(|()| Sizes::default());
        }
        let done = {
            let mut outcome = self.outcome();
            match &*outcome {
                Outcome::Done(_) => std::mem::replace(&mut *outcome, Outcome::Gone),
                Outcome::Waiting | Outcome::Gone => return Ok(Sizes::default()),
            }
        };
        match done {
            Outcome::Done(Ok(produced)) => discard(Some(produced)),
            _ => Ok(Sizes::default()),
        }
    }
}

impl<R: Resources, T: Produced> Cancellable for AsyncSnapshot<R, T> {
    fn stop(&self) {
        if let Err(e) = SnapshotFuture::cancel(self) {
            log::warn!("{}: {e}", self.what);
        }
    }
}

#[cfg(test)]
mod tests;
