//! Files that the cache's disk has no room for: held in memory while somebody reads them, up to a bound, and given to all who want the same.

use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limits;
use crate::local::{lease, memory};
use crate::types::Digest;

#[derive(Debug, Default)]
pub(super) struct Unkept(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    held: Vec<Held>,
    /// Bytes that are on their way.
    coming: u64,
}

#[derive(Debug)]
struct Held {
    digest: Digest,
    size: u64,
    /// Nobody else has this descriptor: who reads has opened the file anew.
    file: File,
}

/// Leave to hold so many bytes. Dropped, it is given back.
pub(super) struct Coming<'a>(&'a Unkept, u64);

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.coming = state.coming.saturating_sub(self.1);
    }
}

impl State {
    /// Lets go of what nobody reads any more.
    fn prune(&mut self) {
        self.held.retain(|held| !matches!(lease::alone(&held.file), Ok(Some(_))));
    }
}

impl Unkept {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file, where it is held, opened anew.
    pub(super) fn get(&self, digest: &Digest, size: u64) -> io::Result<Option<File>> {
        let state = self.lock();
        let held = state.held.iter().find(|held| held.digest == *digest && held.size == size);
        held.map(|held| memory::open_again(&held.file)).transpose()
    }

    /// Leave to hold so many bytes more; nothing when that would be too many.
    pub(super) fn room(&self, bytes: u64) -> Option<Coming<'_>> {
        let mut state = self.lock();
        state.prune();
        let taken = state.held.iter().fold(state.coming, |sum, held| sum.saturating_add(held.size));
        (taken.saturating_add(bytes) <= limits::UNKEPT_TOTAL).then(|| {
            state.coming = state.coming.saturating_add(bytes);
            Coming(self, bytes)
        })
    }

    /// Holds a file for as long as the one that is given back, or another like it, is open.
    pub(super) fn hold(&self, digest: Digest, file: &File, coming: Coming<'_>) -> io::Result<File> {
        // Only who is open for reading alone is counted by the kernel, as a lease needs it.
        let (open, own) = (memory::open_again(file)?, memory::open_again(file)?);
        self.lock().held.push(Held { digest, size: coming.1, file: own });
        drop(coming);
        Ok(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_held_once_and_no_more_than_may_be() {
        let unkept = Unkept::default();
        let half = limits::UNKEPT_TOTAL / 2;
        let digest = |n: u8| Digest::of(&[n]);
        let hold = |n| unkept.hold(digest(n), &memory::file().unwrap(), unkept.room(half).unwrap()).unwrap();
        let first = hold(1);
        let coming = unkept.room(half).unwrap();
        assert!(unkept.room(1).is_none(), "what comes counts");
        drop(coming);
        let second = hold(2);
        assert!(unkept.room(1).is_none());
        let again = unkept.get(&digest(1), half).unwrap().unwrap();
        assert!(unkept.get(&digest(3), half).unwrap().is_none());
        drop(first);
        assert!(unkept.room(1).is_none(), "somebody else has it open");
        drop(again);
        assert!(unkept.room(half).is_some(), "nobody has it open any more");
        assert!(unkept.get(&digest(1), half).unwrap().is_none());
        drop(second);
    }
}
