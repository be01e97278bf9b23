//! What the cluster's tests look at is shown to see what it is for: a checkpoint that a store lost or spoiled, two winners of one key, and
//! a winner's object that is another's or gone. One server is enough for it.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use object_store::PutMode;

use super::check;
use super::races::{self, History};
use crate::s3::Weed;
use crate::tool::{Desk, load, walk};

/// What the check says, if it fails.
fn checked(desk: &Desk) -> Option<String> {
    let cold = desk.path("cold");
    let _ = fs::remove_dir_all(&cold);
    let panic = catch_unwind(AssertUnwindSafe(|| check(desk, cold.to_str().unwrap(), &[1, 2]))).err()?;
    Some(panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

#[test]
fn the_check_of_a_cluster_sees_a_lost_checkpoint_and_a_lost_object() {
    let desk = Desk::new();
    let db = desk.path("db");
    for round in 1..=2 {
        load(&db, "default", round, 2000);
        assert_eq!(desk.snapshot(&db), format!("chk-{round}"));
    }
    let store = desk.path("store");
    let outcome = store.join("outcome/app/00000000000000000002.json");
    let blob = walk(&store.join("blobs")).remove(0);
    assert_eq!(checked(&desk), None);
    for (path, words) in [(outcome, "chk-2 was completed and is not listed"), (blob, "missing")] {
        let aside = desk.path("aside");
        fs::rename(&path, &aside).unwrap();
        let said = checked(&desk).unwrap_or_default();
        assert!(said.contains(words), "without {}: {said}", path.display());
        fs::rename(&aside, &path).unwrap();
        assert_eq!(checked(&desk), None);
    }
}

/// A race for keys below a prefix, while something is done to the first of them, once it is there.
fn raced(weed: &Weed, prefix: &str, mode: &PutMode, act: impl FnOnce(&str)) -> History {
    let key = format!("{prefix}/0/{:08}", 0);
    let endpoints = vec![format!("http://127.0.0.1:{}", weed.port()); 2];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let racer = scope.spawn(|| races::race(&endpoints, prefix, mode, &over));
        let begun = Instant::now();
        // The second one is raced for: the first one has been looked at.
        while weed.bytes(&format!("{prefix}/0/{:08}", 1)).is_none() && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(20));
        }
        act(&key);
        over.store(true, SeqCst);
        racer.join().unwrap()
    })
}

#[test]
fn the_history_of_creates_sees_two_winners_and_what_a_winner_lost() {
    let weed = Weed::start();
    let sound = raced(&weed, "sound", &PutMode::Create, |_| ());
    assert!(sound.sound > 0 && sound.broken.is_empty() && sound.stale.is_empty(), "{sound:?}");
    let both = raced(&weed, "both", &PutMode::Overwrite, |_| ());
    assert!(both.broken.iter().any(|b| b.contains("were all told")), "{both:?}");
    let other = raced(&weed, "other", &PutMode::Create, |key| weed.place(key, b"0 by nobody"));
    assert!(other.broken.iter().any(|b| b.contains("0 by nobody is read")), "{other:?}");
    let gone = raced(&weed, "gone", &PutMode::Create, |key| weed.remove(key));
    assert!(gone.broken.iter().any(|b| b.contains("nothing is read")), "{gone:?}");
}
