//! A cold host: it opens a database that is nowhere but in the object store, reads what it asks for and little more, and never a
//! wrong byte over whatever link.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::link::Link;
use crate::s3::{Weed, Who};
use crate::tool::{Desk, copy_tree, database, load, scan, tool};

/// Reads over the bad link; the soak has more.
const READS: u64 = 5_000;

/// Longer than any deadline: the store's requests, and the mount's.
const DEADLINE: Duration = Duration::from_secs(120);

fn tables(db: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(db).unwrap().map(|e| e.unwrap().path()).collect();
    found.retain(|p| p.extension().is_some_and(|e| e == "sst"));
    found.sort();
    found
}

/// A database in the store that a cold host sees over the link. Its truth is a directory of this desk.
fn cold(weed: &Weed, link: &Link, rounds: u64, rows: u64) -> (Desk, PathBuf) {
    let mut desk = Desk::new();
    weed.serve(&mut desk, "lazy", Who::Writer);
    let db = desk.path("source");
    for round in 1..=rounds {
        load(&db, "default", round, rows);
        desk.snapshot(&db);
    }
    copy_tree(&db, &desk.path("truth"));
    fs::remove_dir_all(desk.path("cache")).unwrap();
    desk.env.insert("AWS_ENDPOINT_URL".into(), format!("http://127.0.0.1:{}", link.port));
    let truth = desk.path("truth");
    (desk, truth)
}

fn mount(desk: &Desk, options: &[&str]) -> PathBuf {
    let mut args = vec!["mount", "mnt", "--daemon"];
    args.extend(options);
    desk.ok(&args);
    desk.path("mnt")
}

#[test]
fn a_cold_database_opens_from_its_bundles_and_fetches_what_it_is_asked_for() {
    let weed = Weed::start();
    let link = Link::to(weed.port(), 1);
    let (desk, truth) = cold(&weed, &link, 6, 60_000);
    let bytes: u64 = tables(&truth).iter().map(|t| t.metadata().unwrap().len()).sum();
    assert!(bytes > 6 << 20, "{bytes}");
    mount(&desk, &["--no-fetch-behind"]);
    let db = desk.mounted_db("chk-6");
    fs::read_dir(&db).unwrap();
    link.counted();
    // RocksDB opens it, every table of it, and finds one row.
    let all = scan(&truth, "default");
    let row = all.lines().nth(77_777).unwrap();
    let (key, value) = row.split_once(" ==> ").or_else(|| row.split_once(" : ")).unwrap();
    let found = tool("ldb", &[&format!("--db={}", db.display()), "get", key]);
    assert_eq!(found.trim_end(), value);
    let (gets, fetched) = link.counted();
    println!("open and one get: {gets} GETs, {fetched} bytes of {bytes}");
    assert!(gets < 40 && fetched < bytes / 3, "{gets} GETs, {fetched} of {bytes} bytes");
    // A scan brings the rest, ahead of the reader, in few requests, and no group twice.
    assert!(scan(&db, "default") == all);
    let (gets, more) = link.counted();
    println!("scan: {gets} GETs, {more} bytes");
    assert!(fetched + more < bytes + bytes / 10 + (1 << 20), "{fetched} + {more} of {bytes}");
    assert!(database(&db) == database(&truth));
    // Everything is here: the store is not asked again, and from the next open on the kernel reads the files itself.
    let (_, again) = link.counted();
    assert!(again < 1 << 20, "{again}");
    desk.unmount();
    mount(&desk, &["--no-fetch-behind"]);
    assert!(database(&db) == database(&truth));
    desk.unmount();
}

#[test]
fn a_warmed_checkpoint_needs_no_store() {
    let weed = Weed::start();
    let link = Link::to(weed.port(), 2);
    let (desk, truth) = cold(&weed, &link, 2, 20_000);
    let said = desk.run(&["--json", "warm", "app/chk-2"]);
    let report: serde_json::Value = serde_json::from_str(&said.ok()).unwrap();
    assert_eq!(report["bytes"], report["fetched_bytes"]);
    let again = desk.run(&["--json", "warm", "app/chk-2/db/0"]);
    let again: serde_json::Value = serde_json::from_str(&again.ok()).unwrap();
    assert_eq!((&again["fetched_bytes"], &again["bytes"]), (&0.into(), &report["bytes"]));
    mount(&desk, &[]);
    let db = desk.mounted_db("chk-2");
    fs::metadata(db.join("CURRENT")).unwrap();
    link.counted();
    for table in tables(&db) {
        assert!(fs::read(&table).unwrap() == fs::read(truth.join(table.file_name().unwrap())).unwrap());
    }
    let (_, asked) = link.counted();
    assert!(asked < 20_000, "a pin, and no table: {asked} bytes");
    desk.unmount();
}

#[test]
fn over_a_bad_link_no_byte_is_wrong_nothing_hangs_and_what_can_be_read_is() {
    let reads = std::env::var("CKPTFS_FAULTY_READS").ok().and_then(|n| n.parse().ok()).unwrap_or(READS);
    let weed = Weed::start();
    let link = Link::to(weed.port(), 0x9e37_79b9_7f4a_7c15);
    let (desk, truth) = cold(&weed, &link, 3, 100_000);
    let truth: Vec<(PathBuf, Vec<u8>)> =
        tables(&truth).into_iter().map(|t| (PathBuf::from(t.file_name().unwrap()), fs::read(&t).unwrap())).collect();
    let groups: u64 = truth.iter().map(|(_, bytes)| bytes.len() as u64 >> 16).sum();
    let (done, failed, slowest) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(Duration::ZERO));
    let mut round = 0_u64;
    while done.load(Ordering::SeqCst) < reads {
        round += 1;
        // What is here once is not fetched again: so another cache for every round.
        desk.run(&["--quiet", "ls", "app"]).ok();
        mount(&desk, &["--no-fetch-behind"]);
        let db = desk.mounted_db("chk-3");
        for (name, _) in &truth {
            fs::metadata(db.join(name)).unwrap();
        }
        link.breaks(5);
        std::thread::scope(|scope| {
            for reader in 0..8 {
                let (truth, db, done, failed, slowest) = (&truth, &db, &done, &failed, &slowest);
                scope.spawn(move || {
                    let mut dice: u64 = round * 1_000 + reader + 1;
                    let mut roll = |n: u64| {
                        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        (dice >> 33) % n
                    };
                    for _ in 0..groups / 6 {
                        let (name, right) = &truth[roll(truth.len() as u64) as usize];
                        let length = 1 + roll(20_000) as usize;
                        let at = roll((right.len() - length) as u64) as usize;
                        let mut got = vec![0; length];
                        // One that fails may fail again, but not for ever.
                        for attempt in 0.. {
                            let begun = Instant::now();
                            let read = File::open(db.join(name)).and_then(|f| f.read_exact_at(&mut got, at as u64));
                            let mut slowest = slowest.lock().unwrap();
                            *slowest = (*slowest).max(begun.elapsed());
                            drop(slowest);
                            match read {
                                Ok(()) => {
                                    assert!(got == right[at..at + length], "wrong bytes in {name:?} at {at}");
                                    break;
                                }
                                Err(e) => {
                                    assert_eq!(e.raw_os_error(), Some(libc::EIO), "{e}");
                                    failed.fetch_add(1, Ordering::SeqCst);
                                    assert!(attempt < 20, "{name:?} at {at} cannot be read");
                                }
                            }
                        }
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        link.breaks(0);
        desk.unmount();
        fs::remove_dir_all(desk.path("cache")).unwrap();
    }
    let slowest = *slowest.lock().unwrap();
    println!(
        "{} reads in {round} rounds, {} failed and were tried again, the slowest took {slowest:?}; {:?}",
        done.load(Ordering::SeqCst),
        failed.load(Ordering::SeqCst),
        link.done()
    );
    assert!(slowest < DEADLINE, "{slowest:?}");
    let done = link.done();
    for (what, count) in [
        ("flipped", &done.flipped),
        ("cut", &done.cut),
        ("late", &done.late),
        ("swapped", &done.swapped),
        ("dropped", &done.dropped),
    ] {
        assert!(count.load(Ordering::SeqCst) > 0, "nothing was {what}: {done:?}");
    }
}
