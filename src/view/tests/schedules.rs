//! The tree in one order of steps after another: one inode for one content, no number that goes back, no mode that does not belong to its
//! number, and one pin for all who open.

use crate::types::sync::thread;

use super::*;
use crate::types::sync::schedules::explore;

/// A source that counts its pins, and lets others in wherever it is asked.
#[derive(Clone, Default)]
struct Slow {
    fake: Fake,
    pins: Arc<AtomicU64>,
    pinned: Arc<AtomicU64>,
}

impl Source for Slow {
    fn jobs(&self) -> Result<Vec<Name>, ViewError> {
        thread::yield_now();
        self.fake.jobs()
    }

    fn job(&self, job: &Name) -> Result<Listing, ViewError> {
        thread::yield_now();
        let listing = self.fake.job(job);
        thread::yield_now();
        listing
    }

    fn task(&self, job: &Name, n: CheckpointNumber, entry: &SubtaskEntry) -> Result<Arc<TaskManifest>, ViewError> {
        thread::yield_now();
        self.fake.task(job, n, entry)
    }

    fn open_local(&self, digest: &Digest, size: u64) -> Result<Option<File>, ViewError> {
        thread::yield_now();
        self.fake.open_local(digest, size)
    }

    fn fetch(&self, task: &TaskManifest, file: &FileEntry) -> Result<File, ViewError> {
        thread::yield_now();
        self.fake.fetch(task, file)
    }

    fn pin(&self, job: &Name, number: CheckpointNumber) -> Result<Option<crate::lifecycle::PinRef>, ViewError> {
        self.pins.fetch_add(1, Ordering::SeqCst);
        thread::yield_now();
        self.pinned.fetch_add(1, Ordering::SeqCst);
        Ok(Some(crate::lifecycle::PinRef { job: job.clone(), number, holder: UID, nonce: UID }))
    }

    fn unpin(&self, _: &crate::lifecycle::PinRef) -> Result<(), ViewError> {
        thread::yield_now();
        self.pinned.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn free(&self) -> Free {
        self.fake.free()
    }
}

fn all(threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_number_never_goes_back_and_says_how_its_file_is_served() {
    let flips = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&flips);
    explore("inodes and flips", move || {
        let slow = Slow::default();
        publish(&slow.fake, "app", 1, &[("db/000001.sst", b"one")]);
        publish(&slow.fake, "app", 2, &[("db/000001.sst", b"one")]);
        let view = View::new(slow.clone());
        let told = Arc::new(AtomicU64::new(0));
        let sink = Arc::clone(&told);
        view.on_invalidation(move |_| {
            sink.fetch_add(1, Ordering::SeqCst);
        });
        let numbers = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
        let mut threads: Vec<_> = (1..=2)
            .map(|n| {
                let (view, numbers, flips) = (view.clone(), Arc::clone(&numbers), Arc::clone(&flips));
                thread::spawn(move || {
                    let path = format!("app/chk-{n}/db/0/db/000001.sst");
                    let mut last = None;
                    for _ in 0..2 {
                        let ino = walk(&view, &path).unwrap().attr.ino;
                        numbers.lock().unwrap().insert(ino);
                        assert!(last.is_none_or(|last| View::is_lazy(last) || last == ino), "a local number went back");
                        let opened = view.open(ino).unwrap();
                        let served = matches!(opened.content, Content::Served(_));
                        assert_eq!(served, View::is_lazy(ino), "the wrong mode for {ino:x}");
                        assert_eq!(read(opened), b"one");
                        flips.fetch_add(u64::from(last.is_some_and(|last| last != ino)), Ordering::SeqCst);
                        last = Some(ino);
                    }
                })
            })
            .collect();
        let fake = slow.fake.clone();
        threads.push(thread::spawn(move || {
            thread::yield_now();
            fake.0.local.lock().unwrap().insert(Digest::of(b"one"), b"one".to_vec());
            thread::yield_now();
            // Evicted: its numbers stay.
            fake.0.local.lock().unwrap().clear();
        }));
        all(threads);
        let numbers = numbers.lock().unwrap();
        let local: std::collections::BTreeSet<u64> = numbers.iter().map(|n| n & !inode::lazy(0)).collect();
        assert_eq!(local.len(), 1, "one content is one inode: {numbers:?}");
        assert!(told.load(Ordering::SeqCst) <= 2, "a name is taken back once");
    });
    let flips = counted.load(Ordering::SeqCst);
    println!("{flips} numbers flipped under a reader");
    assert!(flips > 0);
}

#[test]
fn one_pin_is_there_before_any_file_of_a_checkpoint_is_read() {
    explore("pins", || {
        let slow = Slow::default();
        publish(&slow.fake, "app", 1, &[("db/CURRENT", b"c"), ("db/MANIFEST-1", b"m"), ("db/000001.sst", b"one")]);
        let view = View::new(slow.clone());
        let mut threads: Vec<_> = ["CURRENT", "MANIFEST-1", "CURRENT"]
            .into_iter()
            .map(|file| {
                let (view, slow) = (view.clone(), slow.clone());
                thread::spawn(move || {
                    let ino = walk(&view, &format!("app/chk-1/db/0/db/{file}")).unwrap().attr.ino;
                    let opened = view.open(ino).unwrap();
                    assert_eq!(slow.pinned.load(Ordering::SeqCst), 1, "open before it is pinned");
                    thread::yield_now();
                    drop(opened);
                })
            })
            .collect();
        // The keeper's round: nothing is idle for so long.
        let keeper = view.clone();
        threads.push(thread::spawn(move || keeper.0.tend_pins(std::time::Duration::from_secs(3600))));
        all(threads);
        assert_eq!(slow.pins.load(Ordering::SeqCst), 1, "one pin for all");
        view.release_pins();
        assert_eq!(slow.pinned.load(Ordering::SeqCst), 0, "the last round lets it go");
    });
}
