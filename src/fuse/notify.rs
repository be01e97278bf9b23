//! What the kernel is told to forget, on a thread of its own: told from within a request, it could wait for that very request.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::mem;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fuser::{INodeNo, Notifier};

use crate::metrics::MountCounters;

/// A name is told twice, the second time after this long: the kernel may take in the answer of a lookup that was
/// on its way only after the first telling.
const AGAIN: Duration = Duration::from_secs(1);

/// Pages that read-ahead hints left behind are dropped in batches of this age: the hints come in bursts of hundreds per file.
const BATCH: Duration = Duration::from_millis(200);

enum Note {
    Name {
        parent: u64,
        name: String,
    },
    /// There are inodes whose pages to drop.
    Pages,
    /// The mount has ended.
    End,
}

/// Where to say what to forget.
#[derive(Clone)]
pub(super) struct Notes {
    to: Sender<Note>,
    pages: Arc<Mutex<HashSet<u64>>>,
}

impl Notes {
    /// A name in a directory.
    pub(super) fn name(&self, parent: u64, name: String) {
        let _ = self.to.send(Note::Name { parent, name });
    }

    /// An inode's pages. Wakes the thread once per batch: a wake-up per hint costs a scan more than the hint.
    pub(super) fn pages(&self, ino: u64) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let first = pages.is_empty();
        pages.insert(ino);
        drop(pages);
        if first {
            let _ = self.to.send(Note::Pages);
        }
    }

    /// The mount has ended.
    pub(super) fn end(&self) {
        let _ = self.to.send(Note::End);
    }
}

/// The other end, for [`start`].
pub(super) struct ToTell {
    notes: Receiver<Note>,
    pages: Arc<Mutex<HashSet<u64>>>,
}

/// What the kernel takes; tests have another one.
pub(super) trait Kernel: Send + 'static {
    fn forget_name(&self, parent: u64, name: &str) -> io::Result<()>;
    fn forget_pages(&self, ino: u64) -> io::Result<()>;
}

impl Kernel for Notifier {
    fn forget_name(&self, parent: u64, name: &str) -> io::Result<()> {
        self.inval_entry(INodeNo(parent), OsStr::new(name))
    }

    fn forget_pages(&self, ino: u64) -> io::Result<()> {
        self.inval_inode(INodeNo(ino), 0, 0)
    }
}

/// A channel for what to forget.
pub(super) fn notes() -> (Notes, ToTell) {
    let (to, notes) = channel();
    let pages = Arc::default();
    (Notes { to, pages: Arc::clone(&pages) }, ToTell { notes, pages })
}

/// Starts the thread.
///
/// # Errors
/// When no thread can be started.
pub(super) fn start(to_tell: ToTell, kernel: impl Kernel, counters: Arc<MountCounters>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("ckptfs-notify".to_owned()).spawn(move || run(&to_tell, &kernel, &counters))
}

fn run(ToTell { notes, pages }: &ToTell, kernel: &impl Kernel, counters: &MountCounters) {
    let mut again: BTreeMap<Instant, Vec<(u64, String)>> = BTreeMap::new();
    let mut flush: Option<Instant> = None;
    let told = |result: io::Result<()>| {
        counters.invalidations.inc();
        if let Err(e) = result {
            log::debug!("the kernel did not take an invalidation: {e}");
        }
    };
    loop {
        let now = Instant::now();
        while let Some(due) = again.first_entry().filter(|e| *e.key() <= now) {
            for (parent, name) in due.remove() {
                told(kernel.forget_name(parent, &name));
            }
        }
        if flush.is_some_and(|at| at <= now) {
            flush = None;
            let batch = mem::take(&mut *pages.lock().unwrap_or_else(PoisonError::into_inner));
            for ino in batch {
                told(kernel.forget_pages(ino));
            }
        }
        let next = again.first_key_value().map(|(at, _)| *at).into_iter().chain(flush).min();
        let note = match next {
            Some(at) => match notes.recv_timeout(at.saturating_duration_since(Instant::now())) {
                Ok(note) => note,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            },
            None => match notes.recv() {
                Ok(note) => note,
                Err(_) => return,
            },
        };
        match note {
            Note::End => return,
            Note::Pages => {
                flush.get_or_insert_with(|| Instant::now() + BATCH);
            }
            Note::Name { parent, name } => {
                told(kernel.forget_name(parent, &name));
                again.entry(Instant::now() + AGAIN).or_default().push((parent, name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Fake(Arc<Mutex<Vec<String>>>);

    impl Kernel for Fake {
        fn forget_name(&self, parent: u64, name: &str) -> io::Result<()> {
            self.0.lock().unwrap().push(format!("{parent}/{name}"));
            Ok(())
        }

        fn forget_pages(&self, ino: u64) -> io::Result<()> {
            self.0.lock().unwrap().push(format!("pages {ino}"));
            Err(io::Error::other("it does not matter"))
        }
    }

    #[test]
    fn names_are_told_twice_and_pages_in_one_batch() {
        let (to, from) = notes();
        let kernel = Fake::default();
        let counters = Arc::new(MountCounters::default());
        let thread = start(from, kernel.clone(), counters.clone()).unwrap();
        to.name(3, "a.sst".to_owned());
        for _ in 0..100 {
            to.pages(9);
        }
        thread::sleep(AGAIN + Duration::from_millis(500));
        to.pages(10);
        thread::sleep(2 * BATCH);
        to.end();
        thread.join().unwrap();
        let told = kernel.0.lock().unwrap().clone();
        assert_eq!(told, ["3/a.sst", "pages 9", "3/a.sst", "pages 10"]);
        assert_eq!(counters.invalidations.get(), 4);
    }
}
