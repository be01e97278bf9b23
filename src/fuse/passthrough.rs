//! How each inode is served while it is open. The kernel refuses to mix: one passthrough open makes every other kind of open of that
//! inode fail, and a second backing file too. So the first live open decides, and all passthrough opens share one backing file.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A file that the kernel reads itself, as long as anybody has it open.
pub(super) struct Backing<B> {
    /// The kernel's handle on it.
    pub(super) id: B,
    /// Our own, for read-ahead hints.
    pub(super) file: File,
}

enum Mode<B> {
    Passthrough(Arc<Backing<B>>),
    Served,
}

/// The inodes that are open.
pub(super) struct Modes<B> {
    open: Mutex<HashMap<u64, (Mode<B>, u64)>>,
    /// Whether passthrough is still tried.
    enabled: AtomicBool,
}

/// What an open was decided to be.
pub(super) enum Decided<B> {
    /// The kernel reads it.
    Passthrough(Arc<Backing<B>>),
    /// The daemon serves it.
    Served(File),
}

impl<B> Modes<B> {
    pub(super) fn new(enabled: bool) -> Self {
        Self { open: Mutex::default(), enabled: AtomicBool::new(enabled) }
    }

    /// No more passthrough for inodes that are not open yet.
    pub(super) fn disable(&self) -> bool {
        self.enabled.swap(false, Ordering::Relaxed)
    }

    pub(super) fn enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Counts an open, and decides how it is served. `register` gives a file to the kernel; when that fails, the inode is
    /// served until its last close, and `refused` learns why. Every call is matched by one [`Modes::closed`].
    pub(super) fn opened(
        &self,
        ino: u64,
        file: File,
        register: impl FnOnce(&File) -> io::Result<B>,
        refused: impl FnOnce(&io::Error),
    ) -> Decided<B> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((mode, count)) = open.get_mut(&ino) {
            *count += 1;
            return match mode {
                Mode::Passthrough(backing) => Decided::Passthrough(backing.clone()),
                Mode::Served => Decided::Served(file),
            };
        }
        if self.enabled() {
            match register(&file) {
                Ok(id) => {
                    let backing = Arc::new(Backing { id, file });
                    open.insert(ino, (Mode::Passthrough(backing.clone()), 1));
                    return Decided::Passthrough(backing);
                }
                Err(e) => refused(&e),
            }
        }
        open.insert(ino, (Mode::Served, 1));
        Decided::Served(file)
    }

    /// An open was closed. After the last one the inode is free to be served either way.
    pub(super) fn closed(&self, ino: u64) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let last = match open.get_mut(&ino) {
            Some((_, count)) => {
                *count = count.saturating_sub(1);
                *count == 0
            }
            None => false,
        };
        let gone = if last { open.remove(&ino) } else { None };
        // Dropping the backing file is a call into the kernel; it needs no lock.
        drop(open);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> File {
        File::open("/dev/null").unwrap()
    }

    #[test]
    fn the_first_live_open_decides_and_one_backing_is_shared() {
        let modes = Modes::new(true);
        let none = |_: &io::Error| panic!("nothing was refused");
        let Decided::Passthrough(a) = modes.opened(5, file(), |_| Ok(1), none) else { panic!("served") };
        let Decided::Passthrough(b) = modes.opened(5, file(), |_| panic!("registered twice"), none) else {
            panic!("served")
        };
        assert!(Arc::ptr_eq(&a, &b));
        drop((a, b));
        modes.closed(5);
        let Decided::Passthrough(_) = modes.opened(5, file(), |_| panic!("registered twice"), none) else {
            panic!("served")
        };
        modes.closed(5);
        modes.closed(5);
        let mut why = None;
        let refuse = |_: &File| Err(io::Error::from_raw_os_error(40));
        assert!(matches!(modes.opened(5, file(), refuse, |e| why = e.raw_os_error()), Decided::Served(_)));
        assert_eq!(why, Some(40));
        assert!(
            matches!(modes.opened(5, file(), |_| panic!("mixed"), none), Decided::Served(_)),
            "the first live open is served, so the second is"
        );
        modes.closed(5);
        modes.closed(5);
        assert!(modes.disable());
        assert!(matches!(modes.opened(5, file(), |_| Ok(2), none), Decided::Served(_)));
        modes.closed(5);
        modes.closed(5);
        assert!(modes.open.lock().unwrap().is_empty());
    }
}
