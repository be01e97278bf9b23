//! `copy`, with the real program: between directories and into a bucket, again, further, killed, damaged, signed, out of Flink.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ckptfs::types::Digest;
use serde_json::Value;

use crate::flink::truth;
use crate::s3::{Weed, Who};
use crate::tool::{Desk, Said, database, flip, load, scan, tree, walk};

/// A second store beside the desk's.
fn url(desk: &Desk, name: &str) -> String {
    format!("file://{}", desk.path(name).display())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Bytes of all blobs in a `file://` store; nothing where there is none.
fn blobs(desk: &Desk, store: &str) -> u64 {
    let blobs = desk.path(store).join("blobs");
    if blobs.exists() { walk(&blobs).iter().map(|p| fs::metadata(p).unwrap().len()).sum() } else { 0 }
}

/// Restores by copy out of a store, with an empty cache; the directory.
#[track_caller]
fn restored(desk: &Desk, store: &str, what: &str, name: &str) -> PathBuf {
    let to = desk.path(name);
    let mut command = desk.command(&["restore", "--copy", what, to.to_str().unwrap()]);
    let said: Said = command
        .env("CKPTFS_STORE", store)
        .env("CKPTFS_CACHE", desk.path(&format!("{name}-cache")))
        .output()
        .unwrap()
        .into();
    said.ok();
    to
}

/// Two checkpoints of a real database; their names.
fn two(desk: &Desk) -> [String; 2] {
    let db = desk.path("source");
    for round in 1..4 {
        load(&db, "default", round, 10_000);
    }
    let first = desk.snapshot(&db);
    load(&db, "default", 4, 10_000);
    [first, desk.snapshot(&db)]
}

#[test]
fn a_copy_restores_to_the_same_bytes_and_the_next_one_sends_the_difference() {
    let desk = Desk::new();
    let [one, two] = two(&desk);
    let (to, named) = (url(&desk, "backup"), format!("app/{one}"));
    let said = desk.run(&["copy", &named, "--to", &to]);
    assert!(said.err.contains("created the store") && said.err.contains("sent "), "{}", said.err);
    assert_eq!(said.ok().trim(), named);
    let sent = blobs(&desk, "backup");
    assert!(sent > 5_000_000, "{sent}");
    let again = json(&desk.ok(&["--json", "copy", &named, "--to", &to]));
    assert_eq!(again["checkpoints"][0]["state"], "there", "{again}");
    assert_eq!(blobs(&desk, "backup"), sent);
    // The whole job: what is there is there.
    let all = json(&desk.ok(&["--json", "copy", "app", "--to", &to]));
    let state = |i: usize| all["checkpoints"][i]["state"].as_str().unwrap().to_owned();
    assert_eq!((state(0), state(1)), ("there".to_owned(), "copied".to_owned()));
    let shown = json(&desk.ok(&["--json", "show", &format!("app/{two}")]));
    let (new, more) = (shown["new_bytes"].as_u64().unwrap(), blobs(&desk, "backup") - sent);
    assert_eq!(all["checkpoints"][1]["sent_bytes"].as_u64().unwrap(), more);
    assert!(more <= new + 10_000, "{more} of {new}");
    for chk in [&one, &two] {
        let what = format!("app/{chk}");
        let (a, b) = (
            restored(&desk, &desk.store, &what, &format!("a-{chk}")),
            restored(&desk, &to, &what, &format!("b-{chk}")),
        );
        assert!(database(&a) == database(&b) && database(&a).len() > 4, "{chk}");
        assert!(scan(&b, "default").lines().count() >= 30_000);
    }
    let there = |args: &[&str]| -> Said {
        desk.command(args).env("CKPTFS_STORE", &to).env("CKPTFS_CACHE", desk.path("there")).output().unwrap().into()
    };
    there(&["verify", "--read"]).ok();
    let before = blobs(&desk, "backup");
    there(&["gc", "--delete"]).ok();
    assert_eq!(blobs(&desk, "backup"), before, "all of it is needed");
    // The copy's history is incremental: its first one can go, and the second is whole.
    there(&["expire", &named]).ok();
    there(&["gc", "--delete"]).ok();
    assert!(blobs(&desk, "backup") <= before);
    let b = restored(&desk, &to, &format!("app/{two}"), "after");
    assert!(database(&b) == database(&desk.path(&format!("a-{two}"))));
    // A job's copy passes over what expired there; asked for by its number it is refused.
    let all = desk.run(&["copy", "app", "--to", &to]);
    assert!(all.err.contains("has expired"), "{}", all.err);
    assert_eq!(all.ok().trim(), format!("app/{two}"));
    desk.run(&["copy", &named, "--to", &to]).fails(1, &["has expired", "--as"]);
    desk.ok(&["copy", &named, "--to", &to, "--as", "app-east"]);
}

#[test]
fn wrong_places_are_refused_and_nothing_is_made() {
    let desk = Desk::new();
    let [one, _] = two(&desk);
    let named = format!("app/{one}");
    desk.run(&["copy", &named, "--to", &desk.store]).fails(1, &["is the store that", "--as"]);
    desk.run(&["copy", &named]).fails(2, &["--to"]);
    desk.run(&["copy", "--to", &url(&desk, "x")]).fails(2, &["CHECKPOINT"]);
    desk.run(&["copy", &named, "other/chk-1", "--to", &url(&desk, "x"), "--as", "y"]).fails(2, &["--as"]);
    desk.run(&["copy", "nobody", "--to", &url(&desk, "x")]).fails(1, &["no completed checkpoint"]);
    desk.run(&["copy", "app/chk-9", "--to", &url(&desk, "x")]).fails(1, &["app/chk-9", "does not exist"]);
    assert!(!desk.path("x").exists());
    // Another checkpoint under the number.
    let to = url(&desk, "backup");
    let said: Said =
        desk.command(&["snapshot", "--job", "app", "source"]).env("CKPTFS_STORE", &to).output().unwrap().into();
    said.ok();
    desk.run(&["copy", &named, "--to", &to]).fails(1, &["another checkpoint", "--as"]);
    let several = desk.run(&["copy", "app", "--to", &to]);
    several.fails(1, &["another checkpoint", "1 of 2 checkpoints were not copied"]);
    assert_eq!(several.out.trim(), "app/chk-2");
    // Within the store, as another job.
    let before = blobs(&desk, "store");
    desk.ok(&["copy", &named, "--to", &desk.store, "--as", "fork"]);
    assert_eq!(blobs(&desk, "store"), before);
}

#[test]
fn a_killed_copy_leaves_nothing_in_the_view_and_the_next_goes_on() {
    let desk = Desk::new();
    let db = desk.path("source");
    for round in 1..9 {
        load(&db, "default", round, 20_000);
    }
    let chk = desk.snapshot(&db);
    let named = format!("app/{chk}");
    let mut killed = 0;
    for round in 0..8 {
        let (name, cache) = (format!("backup-{round}"), format!("cold-{round}"));
        let to = url(&desk, &name);
        let args = ["--json", "copy", named.as_str(), "--to", to.as_str()];
        let command = || {
            let mut command = desk.command(&args);
            command.env("CKPTFS_CACHE", desk.path(&cache));
            command
        };
        let mut child =
            command().stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while blobs(&desk, &name) == 0
            && child.try_wait().unwrap().is_none()
            && begun.elapsed() < Duration::from_secs(60)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let (sent, done) = (blobs(&desk, &name), desk.path(&name).join("outcome").exists());
        if sent > 0 && !done {
            killed += 1;
            let shown: Said = desk.command(&["show", &named]).env("CKPTFS_STORE", &to).output().unwrap().into();
            shown.fails(1, &["does not exist"]);
        }
        let said: Said = command().output().unwrap().into();
        let report = json(&said.ok());
        if done {
            continue;
        }
        let again = report["checkpoints"][0]["sent_bytes"].as_u64().unwrap();
        assert_eq!(blobs(&desk, &name), sent + again, "nothing was sent twice");
        let b = restored(&desk, &to, &named, &format!("b-{round}"));
        assert!(database(&b) == database(&db));
        if killed == 2 {
            return;
        }
    }
    assert!(killed > 0, "no copy was killed in the middle");
}

#[test]
fn a_damaged_blob_of_the_original_is_told_and_not_copied() {
    let desk = Desk::new();
    let [one, two] = two(&desk);
    let largest = walk(&desk.path("store/blobs")).into_iter().max_by_key(|p| fs::metadata(p).unwrap().len()).unwrap();
    flip(&largest, 100_000, 3);
    let to = url(&desk, "backup");
    let copy = || -> Said {
        desk.command(&["copy", "app", "--to", &to]).env("CKPTFS_CACHE", desk.path("cold")).output().unwrap().into()
    };
    // Both have the table, or one of them.
    copy().fails(3, &["db/", ".sst", "damaged", "checkpoints were not copied"]);
    let listed = |chk: &str| -> bool {
        let said: Said =
            desk.command(&["show", &format!("app/{chk}")]).env("CKPTFS_STORE", &to).output().unwrap().into();
        said.code == 0
    };
    assert!(!(listed(&one) && listed(&two)));
    flip(&largest, 100_000, 3);
    copy().ok();
    assert!(listed(&one) && listed(&two));
    let b = restored(&desk, &to, &format!("app/{two}"), "b");
    assert!(database(&b) == database(&desk.path("source")));
}

#[test]
fn the_other_store_has_a_key_of_its_own() {
    let mut desk = Desk::new();
    let [one, _] = two(&desk);
    let key = desk.path("key");
    fs::write(&key, Digest::of(b"a key").to_hex()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let (to, named) = (url(&desk, "backup"), format!("app/{one}"));
    desk.ok(&["copy", &named, "--to", &to, "--to-key-file", key.to_str().unwrap()]);
    let with_key = |args: &[&str]| -> Said {
        let mut command = desk.command(args);
        command.env("CKPTFS_STORE", &to).env("CKPTFS_CACHE", desk.path("there")).env("CKPTFS_KEY_FILE", &key);
        command.output().unwrap().into()
    };
    with_key(&["verify", "--read"]).ok();
    desk.run(&["copy", "app", "--to", &to]).fails(1, &["the store is signed", "--to-key-file"]);
    desk.env.insert("CKPTFS_TO_KEY_FILE".to_owned(), key.display().to_string());
    desk.ok(&["copy", "app", "--to", &to]);
}

/// Every checkpoint of Flink's that is imported, then copied: all that the mount shows of it is the same.
#[test]
fn what_was_imported_from_flink_is_copied_with_all_that_flink_needs() {
    let (mut compared, mut subtasks) = (0, 0);
    for flink in truth::trees() {
        let desk = Desk::new();
        let mut jobs = Vec::new();
        for checkpoint in flink.checkpoints().into_iter().filter(|c| c.missing().is_empty()) {
            desk.ok(&["import", "flink", checkpoint.directory.to_str().unwrap(), "--job", &checkpoint.job]);
            jobs.push(checkpoint.job);
        }
        jobs.dedup();
        let to = url(&desk, "backup");
        for (i, job) in jobs.iter().enumerate() {
            let all = json(&desk.ok(&["--json", "copy", job, "--to", &to]));
            for one in all["checkpoints"].as_array().unwrap() {
                let what = format!("{job}/{}", one["checkpoint"].as_str().unwrap());
                let names = [format!("a-{i}-{compared}"), format!("b-{i}-{compared}")];
                let (a, b) = (restored(&desk, &desk.store, &what, &names[0]), restored(&desk, &to, &what, &names[1]));
                assert!(tree(&a) == tree(&b), "{}: {what}", flink.name);
                assert!(walk(&a).iter().any(|p| p.ends_with("flink/_metadata")), "{what}");
                subtasks += manifests_agree(&desk, &to, &what);
                compared += 1;
            }
        }
        let said: Said = desk.command(&["verify", "--read"]).env("CKPTFS_STORE", &to).output().unwrap().into();
        said.ok();
        // Neither is much more stored than was.
        let (original, copied) = (blobs(&desk, "store"), blobs(&desk, "backup"));
        println!("{}: {original} bytes in the original's store, {copied} in the copy's", flink.name);
        assert!(copied < original + original / 20, "{}: {copied} of {original}", flink.name);
        // The same import into the copy's store finds it there.
        let first = flink.checkpoints().into_iter().find(|c| c.missing().is_empty()).unwrap();
        let args = ["--json", "import", "flink", first.directory.to_str().unwrap(), "--job", &first.job];
        let said: Said = desk.command(&args).env("CKPTFS_STORE", &to).output().unwrap().into();
        assert_eq!(json(&said.ok())["checkpoints"][0]["imported"], false);
    }
    assert!(compared >= 4 && subtasks > compared, "{compared} checkpoints, {subtasks} subtasks");
}

/// What both stores say of each subtask, as text; how many there are.
fn manifests_agree(desk: &Desk, to: &str, what: &str) -> usize {
    let show = |store: &str| -> Value {
        let said: Said = desk.command(&["--json", "show", what]).env("CKPTFS_STORE", store).output().unwrap().into();
        json(&said.ok())
    };
    let (a, b) = (show(&desk.store), show(to));
    assert_eq!(a["kind"], b["kind"]);
    let (a, b) = (a["subtasks"].as_array().unwrap().clone(), b["subtasks"].as_array().unwrap().clone());
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(&b) {
        for field in ["operator", "display_name", "subtask", "files", "logical_bytes"] {
            assert_eq!(a[field], b[field], "{what}: {a}");
        }
    }
    a.len()
}

#[test]
fn into_a_bucket_and_back_with_settings_of_its_own() {
    let weed = Weed::start();
    let mut desk = Desk::new();
    let [one, two] = two(&desk);
    let mut bucket = Desk::new();
    weed.serve(&mut bucket, "copies/here", Who::Writer);
    // What the other bucket needs has a prefix, and the process's own settings would not do.
    desk.env.insert("AWS_ENDPOINT_URL".to_owned(), "http://127.0.0.1:1".to_owned());
    desk.env.insert("AWS_SESSION_TOKEN".to_owned(), "of another bucket".to_owned());
    for (name, value) in &bucket.env {
        desk.env.insert(format!("CKPTFS_TO_{name}"), value.clone());
    }
    let report = json(&desk.ok(&["--json", "copy", "app", "--to", &bucket.store]));
    assert_eq!(report["checkpoints"].as_array().unwrap().len(), 2);
    bucket.ok(&["verify", "--read"]);
    // Back to a new directory, by a host that has nothing.
    let back = format!("file://{}", bucket.path("back").display());
    bucket.ok(&["copy", &format!("app/{one}"), &format!("app/{two}"), "--to", &back]);
    let b = restored(&bucket, &back, &format!("app/{two}"), "b");
    assert!(database(&b) == database(&desk.path("source")));
    same_listing(&desk, &desk.store.clone(), &back);
}

fn same_listing(desk: &Desk, a: &str, b: &str) {
    let names = |store: &str| -> Vec<String> {
        let said: Said = desk.command(&["--json", "ls", "app"]).env("CKPTFS_STORE", store).output().unwrap().into();
        let all = json(&said.ok());
        all.as_array().unwrap().iter().map(|c| c["checkpoint"].to_string()).collect()
    };
    assert_eq!(names(a), names(b));
}
