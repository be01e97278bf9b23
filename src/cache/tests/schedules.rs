//! The cache in one order of its threads' steps after another: one fetch per key, right bytes whatever is given back meanwhile, and nothing
//! that is open leaves. A thread that waits for ever ends a schedule as a deadlock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::sync::thread;

use super::lazy::Table;
use super::*;
use crate::limits::GROUP;
use crate::types::sync::schedules::explore;

const G: usize = 1 << 16;

fn tight(size: u64) -> CacheLimits {
    CacheLimits { size: Some(size), free: Some(0) }
}

fn all(threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_file_that_several_want_is_fetched_once() {
    explore("one fetch per key", || {
        let dir = temp();
        let cache = cache_in(dir.path());
        let mut snapshot = Snapshot::new();
        let files = snapshot.bundled(&[("a", &bytes(1, 900)), ("b", &bytes(2, 800))]);
        let whole = snapshot.whole("c.sst", &bytes(3, 3000));
        let wanted = [files[0].clone(), files[1].clone(), whole];
        let snapshot = Arc::new(snapshot);
        let threads = (0..3).map(|first| {
            let (cache, snapshot, wanted) = (cache.clone(), Arc::clone(&snapshot), wanted.clone());
            thread::spawn(move || {
                for file in wanted.iter().cycle().skip(first).take(3) {
                    let got = cache.fetch_file(&snapshot.store, &snapshot.manifest, file).unwrap();
                    assert!(Digest::of(&read_all(&got)) == file.digest, "wrong bytes");
                }
            })
        });
        all(threads.collect());
        assert_eq!(snapshot.gets(), 2, "a bundle and a file of its own");
    });
}

#[test]
fn what_fails_for_one_fails_for_all_who_would_do_the_same_and_for_nobody_else() {
    explore("failures are shared", || {
        let dir = temp();
        let cache = cache_in(dir.path());
        let data = bytes(5, 2000);
        // Two uploads of the same bytes, one of them damaged.
        let (mut bad, mut good) = (Snapshot::new(), Snapshot::new());
        let entries = [bad.whole("a.sst", &data), good.whole("a.sst", &data)];
        bad.spoil(0, |data| data[7] ^= 1);
        let sources = [Arc::new(bad), Arc::new(good)];
        let threads = (0..4).map(|n| {
            let (cache, source, entry) = (cache.clone(), Arc::clone(&sources[n % 2]), entries[n % 2].clone());
            thread::spawn(move || match cache.fetch_file(&source.store, &source.manifest, &entry) {
                Ok(got) => assert!(Digest::of(&read_all(&got)) == entry.digest, "wrong bytes"),
                Err(e) => assert!(n % 2 == 0, "the whole upload is not read: {e}"),
            })
        });
        all(threads.collect());
        assert!(cache.open_complete(&entries[1].digest, 2000).unwrap().is_some());
        assert_eq!(sources[1].gets(), 1);
    });
}

#[test]
fn what_is_read_in_parts_is_right_while_it_is_given_back_and_sealed() {
    let (sealed, freed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counted = (Arc::clone(&sealed), Arc::clone(&freed));
    explore("lazy reads, give back, seal", move || {
        let dir = temp();
        let cache = cache_in(dir.path());
        let table = Arc::new(Table::new(3 * G + 100, 0));
        // Held to the end, so that it is one file all the time.
        let lazy = table.open(&cache).unwrap().unwrap();
        let reads = [vec![(0, 10), (2 * G, G + 100)], vec![(G - 1, 2), (0, 3 * G + 100)]];
        let mut threads: Vec<_> = reads
            .into_iter()
            .map(|reads| {
                let (cache, table) = (cache.clone(), Arc::clone(&table));
                thread::spawn(move || {
                    let lazy = table.open(&cache).unwrap().unwrap();
                    for (offset, length) in reads {
                        table.check(&lazy, offset, length).unwrap();
                    }
                })
            })
            .collect();
        threads.push({
            let (cache, freed) = (cache.clone(), Arc::clone(&freed));
            thread::spawn(move || {
                cache.set_limits(tight(0)).unwrap();
                let done = cache.make_room().unwrap().unwrap();
                freed.fetch_add(done.bytes, Ordering::SeqCst);
                cache.set_limits(CacheLimits::default()).unwrap();
            })
        });
        all(threads);
        // Whatever was given back comes again.
        table.check(&lazy, 0, 3 * G + 100).unwrap();
        if let Some(file) = cache.open_complete(&table.entry.digest, table.entry.size).unwrap() {
            assert!(read_all(&file) == table.data, "wrong bytes under a right name");
            assert_eq!(lazy.here(), 3 * GROUP + 100, "what is sealed is given back");
            sealed.fetch_add(1, Ordering::SeqCst);
        }
        assert!(table.whole.load(Ordering::SeqCst) <= 1, "sealed twice");
    });
    let (sealed, freed) = (counted.0.load(Ordering::SeqCst), counted.1.load(Ordering::SeqCst));
    println!("in {sealed} schedules it was sealed; {freed} bytes were given back");
    assert!(sealed > 0 && freed > 0);
}

#[test]
fn nothing_leaves_that_is_open_and_what_left_comes_back_right() {
    let evicted = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&evicted);
    explore("open and evict", move || {
        let dir = temp();
        let cache = cache_in(dir.path());
        let mut snapshot = Snapshot::new();
        let data = bytes(9, 20_000);
        let file = snapshot.whole("a.sst", &data);
        cache.fetch_file(&snapshot.store, &snapshot.manifest, &file).unwrap();
        cache.set_limits(tight(0)).unwrap();
        let snapshot = Arc::new(snapshot);
        let mut threads: Vec<_> = (0..2)
            .map(|_| {
                let (cache, snapshot, file) = (cache.clone(), Arc::clone(&snapshot), file.clone());
                thread::spawn(move || {
                    let open = match cache.open_complete(&file.digest, file.size).unwrap() {
                        Some(open) => open,
                        None => cache.fetch_file(&snapshot.store, &snapshot.manifest, &file).unwrap(),
                    };
                    let has_a_name = || open.metadata().unwrap().nlink() == 1;
                    let named = has_a_name();
                    thread::yield_now();
                    assert!(!named || has_a_name(), "an open file was evicted");
                    assert!(Digest::of(&read_all(&open)) == file.digest, "wrong bytes");
                })
            })
            .collect();
        let (sweeper, evicted) = (cache.clone(), Arc::clone(&evicted));
        threads.push(thread::spawn(move || {
            for _ in 0..2 {
                let done = sweeper.make_room().unwrap().unwrap();
                evicted.fetch_add(done.files, Ordering::SeqCst);
                thread::yield_now();
            }
        }));
        all(threads);
    });
    let evicted = counted.load(Ordering::SeqCst);
    println!("{evicted} files were evicted");
    assert!(evicted > 0);
}
