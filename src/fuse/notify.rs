//! What the kernel is told to forget, on a thread of its own: told from within a request, it could wait for that very request.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fuser::{INodeNo, Notifier};

use super::counters::Counters;

/// A name is told twice, the second time after this long: the kernel may take in the answer of a lookup that was
/// on its way only after the first telling.
const AGAIN: Duration = Duration::from_secs(1);

/// Pages that read-ahead hints left behind are dropped in batches of this age: the hints come in bursts of hundreds per file.
const BATCH: Duration = Duration::from_millis(200);

/// What to forget.
pub(super) enum Note {
    /// A name in a directory.
    Name {
        /// The directory.
        parent: u64,
        /// The name.
        name: String,
    },
    /// An inode's pages.
    Pages(u64),
    /// The mount has ended.
    End,
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

/// A channel for notes.
pub(super) fn notes() -> (Sender<Note>, Receiver<Note>) {
    channel()
}

/// Starts the thread.
///
/// # Errors
/// When no thread can be started.
pub(super) fn start(notes: Receiver<Note>, kernel: impl Kernel, counters: Arc<Counters>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("ckptfs-notify".to_owned()).spawn(move || run(&notes, &kernel, &counters))
}

fn run(notes: &Receiver<Note>, kernel: &impl Kernel, counters: &Counters) {
    let mut again: BTreeMap<Instant, Vec<(u64, String)>> = BTreeMap::new();
    let mut pages: HashSet<u64> = HashSet::new();
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
            for ino in pages.drain() {
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
            Note::Pages(ino) => {
                pages.insert(ino);
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
        let counters = Arc::new(Counters::default());
        let thread = start(from, kernel.clone(), counters.clone()).unwrap();
        to.send(Note::Name { parent: 3, name: "a.sst".to_owned() }).unwrap();
        for _ in 0..100 {
            to.send(Note::Pages(9)).unwrap();
        }
        thread::sleep(AGAIN + Duration::from_millis(500));
        to.send(Note::End).unwrap();
        thread.join().unwrap();
        let told = kernel.0.lock().unwrap().clone();
        assert_eq!(told, ["3/a.sst", "pages 9", "3/a.sst"]);
        assert_eq!(counters.invalidations.get(), 3);
    }
}
