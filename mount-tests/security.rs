//! The trust model, held from outside: keys and forged records, other users, hostile environments, secrets. `docs/SECURITY.md` has a table that names the
//! test of every requirement, and a test here reads it.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ckptfs::types::Digest;
use serde_json::Value;

use crate::kit::is_root;
use crate::s3::{Weed, Who};
use crate::tool::{Desk, Said, copy_program, copy_tree, database, load, walk};

const NOBODY: u32 = 65_534;

fn hex(seed: u8) -> String {
    Digest::of(&[seed]).to_hex()
}

/// Writes a key file that only we may read.
fn key_file(desk: &Desk, name: &str, seeds: &[u8]) -> String {
    let path = desk.path(name);
    fs::write(&path, seeds.iter().map(|s| hex(*s) + "\n").collect::<String>()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

/// A desk with a signed store of two checkpoints; its runs have the key.
fn signed() -> Desk {
    let mut desk = Desk::new();
    let key = key_file(&desk, "key", &[1]);
    desk.env.insert("CKPTFS_KEY_FILE".to_owned(), key);
    for round in 1..3 {
        load(&desk.path("good"), "default", round, 2_000);
        desk.snapshot(&desk.path("good"));
    }
    desk
}

fn with_key(desk: &Desk, key: Option<&str>, args: &[&str]) -> Said {
    let mut command = desk.command(args);
    match key {
        Some(key) => command.env("CKPTFS_KEY_FILE", key),
        None => command.env_remove("CKPTFS_KEY_FILE"),
    };
    command.output().unwrap().into()
}

/// A record's bytes without its signature: what somebody without the key can write.
fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let at = text.find(",\"mac\":\"").expect("it is signed");
    [&text[..at], &text[at + 73..]].concat().into_bytes()
}

fn rewrite(path: &Path, bytes: &[u8]) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_signed_store_is_written_with_the_key_and_read_with_and_without_it() {
    let desk = signed();
    for record in walk(&desk.path("store")).iter().filter(|p| p.extension().is_some_and(|e| e == "json")) {
        assert!(fs::read_to_string(record).unwrap().contains("\"mac\":\""), "{}", record.display());
    }
    let good = database(&desk.path("good"));
    desk.ok(&["verify", "--read"]);
    let mount = desk.mount("cold");
    assert!(database(&mount.join("app/chk-2/db/0/db")) == good);
    desk.unmount();
    // Readers without the key, and of any age, find the same; but nobody writes what the others would refuse.
    assert!(with_key(&desk, None, &["ls", "app"]).ok().contains("chk-2"));
    with_key(&desk, None, &["restore", "--copy", "app/chk-2", "copied"]).ok();
    assert!(database(&desk.path("copied")) == good);
    let store = crate::tool::tree(&desk.path("store"));
    let words = ["the store is signed", "--key-file", "CKPTFS_KEY_FILE"];
    with_key(&desk, None, &["snapshot", "--job", "app", "good"]).fails(1, &words);
    assert_eq!(crate::tool::tree(&desk.path("store")), store);
    // Nor does a key make an unsigned store a signed one.
    let plain = format!("file://{}", desk.path("plain").display());
    with_key(&desk, None, &["--store", &plain, "snapshot", "--job", "app", "good"]).ok();
    let key = desk.env["CKPTFS_KEY_FILE"].clone();
    for args in [&["--store", &plain, "ls"][..], &["--store", &plain, "snapshot", "--job", "app", "good"]] {
        with_key(&desk, Some(&key), args).fails(3, &["not signed", "a new store with the key"]);
    }
}

#[test]
fn records_that_nobody_with_the_key_wrote_are_refused() {
    let desk = signed();
    let outcome = desk.path("store/outcome/app/00000000000000000002.json");
    let task = desk.path("store/task/app/00000000000000000002/db/0.json");
    let (true_outcome, true_task) = (fs::read(&outcome).unwrap(), fs::read(&task).unwrap());
    // A forged checkpoint that is whole in itself: another database's task manifest, and an outcome that names its digest.
    let first = desk.path("store/task/app/00000000000000000001/db/0.json");
    let forged_task = {
        let text = String::from_utf8(unsigned(&fs::read(&first).unwrap())).unwrap();
        let body: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
        let two: Value =
            serde_json::from_str(String::from_utf8(true_task.clone()).unwrap().lines().nth(1).unwrap()).unwrap();
        let mut body = body;
        body["place"] = two["place"].clone();
        record("task-manifest/1", &body)
    };
    let forged_outcome = {
        let mut body: Value =
            serde_json::from_str(String::from_utf8(true_outcome.clone()).unwrap().lines().nth(1).unwrap()).unwrap();
        let task: Value =
            serde_json::from_str(String::from_utf8(forged_task.clone()).unwrap().lines().nth(1).unwrap()).unwrap();
        let completed = &mut body["verdict"]["completed"];
        let files = task["files"].as_array().unwrap().len();
        for at in ["", "/subtasks/0"] {
            let part = completed.pointer_mut(at).unwrap();
            for field in ["logical_bytes", "new_bytes"] {
                part[field] = task[field].clone();
            }
            part["files"] = files.into();
        }
        let subtask = &mut completed["subtasks"][0];
        subtask["manifest"] = Digest::of(&forged_task).to_hex().into();
        subtask["manifest_length"] = forged_task.len().into();
        record("outcome/1", &body)
    };
    let by_whom = |key: bool, args: &[&str]| {
        let mut command = desk.command(args);
        if !key {
            command.env_remove("CKPTFS_KEY_FILE");
        }
        Said::from(command.env("CKPTFS_CACHE", desk.path("fresh")).output().unwrap())
    };
    rewrite(&task, &forged_task);
    rewrite(&outcome, &forged_outcome);
    // Without a key it is believed: that is what write access to the bucket means.
    by_whom(false, &["restore", "--copy", "app/chk-2", "believed"]).ok();
    assert!(database(&desk.path("believed")) != database(&desk.path("good")));
    by_whom(true, &["restore", "--copy", "app/chk-2", "refused"]).fails(3, &["not signed", "key file"]);
    assert!(!desk.path("refused").exists());
    let said = by_whom(true, &["ls", "app"]);
    said.fails(3, &["app/chk-2 is left out", "not signed"]);
    assert!(said.out.contains("chk-1") && !said.out.contains("chk-2"), "{said:?}");
    assert_eq!(by_whom(true, &["path", "app/latest"]).ok().trim(), "app/chk-1");
    let said = by_whom(true, &["verify"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.out.contains("outcome/app/00000000000000000002.json") && said.out.contains("not signed"), "{said:?}");
    // Only one of the two forged.
    rewrite(&outcome, &true_outcome);
    by_whom(true, &["restore", "--copy", "app/chk-2", "refused"]).fails(3, &["task/app"]);
    rewrite(&task, &unsigned(&true_task));
    by_whom(true, &["restore", "--copy", "app/chk-2", "refused"]).fails(3, &["task/app"]);
    // One checkpoint's records in the place of another's.
    rewrite(&task, &true_task);
    rewrite(&outcome, &fs::read(desk.path("store/outcome/app/00000000000000000001.json")).unwrap());
    by_whom(true, &["restore", "--copy", "app/chk-2", "refused"]).fails(3, &["moved here from another place"]);
    rewrite(&outcome, &true_outcome);
    by_whom(true, &["restore", "--copy", "app/chk-2", "whole"]).ok();
    assert!(database(&desk.path("whole")) == database(&desk.path("good")));
}

/// A record as anybody can write it.
fn record(kind: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string().into_bytes();
    let header = serde_json::json!({"ckptfs": kind, "length": body.len(), "blake3": Digest::of(&body).to_hex(), "requires": [],
        "requires_write": [], "encoding": "plain"});
    [header.to_string().as_bytes(), b"\n", &body, b"\n"].concat()
}

#[test]
fn keys_are_rotated_and_key_files_must_be_private() {
    let desk = signed();
    let (both, new, old) =
        (key_file(&desk, "both", &[2, 1]), key_file(&desk, "new", &[2]), desk.env["CKPTFS_KEY_FILE"].clone());
    with_key(&desk, Some(&both), &["snapshot", "--job", "app", "good"]).ok();
    with_key(&desk, Some(&both), &["verify", "--read"]).ok();
    with_key(&desk, Some(&new), &["ls", "app"]).fails(3, &["not in the key file", "leave the old ones in the file"]);
    let said = with_key(&desk, Some(&old), &["ls", "app"]);
    said.fails(3, &["app/chk-3 is left out", "not in the key file"]);
    assert!(said.out.contains("chk-2") && !said.out.contains("chk-3"), "{said:?}");
    for (name, content, mode, words) in [
        ("open", hex(1), 0o644, &["key file", "mode 0644", "chmod 600"][..]),
        ("group", hex(1), 0o640, &["chmod 600"]),
        ("short", hex(1)[1..].to_owned(), 0o600, &["line 1", "64 hex digits", "openssl rand -hex 32"]),
        ("empty", String::new(), 0o600, &["holds no key"]),
        ("zeros", "0".repeat(64), 0o600, &["not random"]),
    ] {
        let path = desk.path(name);
        fs::write(&path, &content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let said = with_key(&desk, Some(path.to_str().unwrap()), &["-vvv", "ls"]);
        said.fails(1, words);
        assert!(content.is_empty() || !said.err.contains(&content[..content.len().min(16)]), "{said:?}");
    }
    with_key(&desk, Some("nowhere"), &["ls"]).fails(1, &["key file", "nowhere"]);
    if is_root() {
        // Another user's key file, as nobody sees it.
        let copy = desk.path("ckptfs");
        copy_program(&copy);
        let theirs = desk.path("theirs");
        fs::copy(&old, &theirs).unwrap();
        chown(&theirs, Some(1234), Some(1234)).unwrap();
        let said = as_nobody(&desk, &["--key-file", theirs.to_str().unwrap(), "ls"]);
        said.fails(1, &["theirs", "ermission denied"]);
    }
}

/// The program, copied to where every user can run it, as `nobody`.
fn nobody(desk: &Desk, args: &[&str]) -> Command {
    let program = desk.path("ckptfs");
    if !program.exists() {
        copy_program(&program);
    }
    let (program, nobody) = (program.display().to_string(), NOBODY.to_string());
    let wrapper = ["setpriv", "--reuid", &nobody, "--regid", &nobody, "--clear-groups", &program];
    let mut command = desk.wrapped(&wrapper, args);
    command.env("CKPTFS_CACHE", desk.path("public/cache"));
    command
}

fn as_nobody(desk: &Desk, args: &[&str]) -> Said {
    nobody(desk, args).output().unwrap().into()
}

/// A desk with a checkpoint, and a directory where anybody may write.
fn shared() -> Desk {
    let desk = Desk::new();
    load(&desk.path("good"), "default", 1, 2_000);
    desk.snapshot(&desk.path("good"));
    fs::create_dir(desk.path("public")).unwrap();
    fs::set_permissions(desk.path("public"), fs::Permissions::from_mode(0o777)).unwrap();
    desk
}

#[test]
fn other_users_are_kept_out_unless_told_and_nothing_but_checkpoints_is_in_the_mount() {
    if !is_root() {
        return;
    }
    let desk = shared();
    let user = NOBODY.to_string();
    let reads = |path: &Path| {
        let mut cat = Command::new("setpriv");
        cat.args(["--reuid", &user, "--regid", &user, "--clear-groups", "cat"]).arg(path);
        cat.output().unwrap().status.success()
    };
    let mount = desk.mount("cache");
    let current = mount.join("app/chk-1/db/0/db/CURRENT");
    assert!(fs::read(&current).is_ok() && !reads(&current));
    assert_eq!(crate::kit::ls(&mount), ["app"], "no control file");
    let sockets =
        |dir: &Path| walk(dir).iter().filter(|p| fs::symlink_metadata(p).unwrap().file_type().is_socket()).count();
    assert_eq!(sockets(&desk.path("cache")), 0, "no control socket");
    desk.unmount();
    desk.ok(&["mount", "mnt", "--daemon", "--allow-other"]);
    assert!(reads(&current), "asked for");
    desk.unmount();
    // As another owner, whose mode the kernel checks.
    desk.ok(&["mount", "mnt", "--daemon", "--uid", "4321", "--gid", "4321"]);
    assert_eq!((fs::metadata(&current).unwrap().uid(), fs::metadata(&current).unwrap().mode() & 0o222), (4321, 0));
    desk.unmount();
}

#[test]
fn no_environment_makes_a_mount_run_another_program() {
    if !is_root() {
        return;
    }
    let desk = shared();
    let evil = desk.path("public/fusermount3");
    fs::write(&evil, format!("#!/bin/sh\ntouch {}\n", desk.path("public/ran").display())).unwrap();
    fs::set_permissions(&evil, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", desk.path("public").display(), std::env::var("PATH").unwrap());
    let said: Said = desk.command(&["mount", "mnt"]).env("FUSERMOUNT_PATH", &evil).output().unwrap().into();
    said.fails(1, &["FUSERMOUNT_PATH", "privileged", "unset it"]);
    let point = desk.path("public/mnt");
    fs::create_dir(&point).unwrap();
    chown(&point, Some(NOBODY), Some(NOBODY)).unwrap();
    let point = point.display().to_string();
    for args in [&["mount", &point, "--daemon"][..], &["umount", &point]] {
        let mut command = nobody(&desk, args);
        let said: Said = command.env("FUSERMOUNT_PATH", &evil).env("PATH", &path).output().unwrap().into();
        // Where users may not open /dev/fuse, the true helper says so.
        let refused = said.err.contains("/usr/bin/fusermount3: failed to open /dev/fuse");
        assert!(
            said.code == 0 || refused || (args[0] == "umount" && said.err.contains("nothing is mounted")),
            "{said:?}"
        );
    }
    assert!(!desk.path("public/ran").exists());
    // Nor does it mount over a directory of somebody else.
    as_nobody(&desk, &["mount", "mnt"]).fails(1, &["mnt", "belongs to user 0", "of your own"]);
}

/// What holds credentials and keys in memory is nobody's to look into: the kernel gives the files of such a process to root.
#[test]
fn no_other_process_of_the_user_looks_into_ours() {
    if !is_root() {
        return;
    }
    let desk = shared();
    // A server that never answers keeps the program waiting.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut waiting = nobody(&desk, &["--store", "s3://bucket/x", "ls"])
        .env("AWS_ENDPOINT_URL", format!("http://{}", silent.local_addr().unwrap()))
        .envs([("AWS_ALLOW_HTTP", "true"), ("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let user = NOBODY.to_string();
    let mut other = Command::new("setpriv")
        .args(["--reuid", &user, "--regid", &user, "--clear-groups", "sleep", "60"])
        .spawn()
        .unwrap();
    let owner = |pid: u32, program: &str| {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let runs = fs::read(proc.join("cmdline")).is_ok_and(|c| c.starts_with(program.as_bytes()));
        runs.then(|| fs::metadata(proc.join("environ")).map(|m| m.uid()).ok()).flatten()
    };
    let ours = desk.path("ckptfs").display().to_string();
    let closed = crate::kit::soon(|| owner(waiting.id(), &ours) == Some(0));
    let open = crate::kit::soon(|| owner(other.id(), "sleep") == Some(NOBODY));
    for child in [&mut waiting, &mut other] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(closed && open, "ours is closed: {closed}, another is open: {open}");
}

#[test]
fn a_symlink_in_the_place_of_a_cache_is_not_followed() {
    let desk = shared();
    copy_tree(&desk.path("cache"), &desk.path("elsewhere"));
    std::os::unix::fs::symlink(desk.path("elsewhere"), desk.path("link")).unwrap();
    let before = crate::tool::tree(&desk.path("elsewhere"));
    let said: Said = desk
        .command(&["snapshot", "--job", "app", "good"])
        .env("CKPTFS_CACHE", desk.path("link"))
        .output()
        .unwrap()
        .into();
    said.fails(1, &["link", "symbolic link", "the directory that it points to"]);
    assert_eq!(crate::tool::tree(&desk.path("elsewhere")), before);
}

/// RocksDB itself reads no MANIFEST outside of the directory, whatever CURRENT says: a restored one cannot lead it elsewhere.
#[test]
fn a_current_that_leads_elsewhere_is_refused_by_rocksdb_and_by_a_snapshot() {
    let desk = Desk::new();
    load(&desk.path("good"), "default", 1, 200);
    copy_tree(&desk.path("good"), &desk.path("bad"));
    let manifest = database(&desk.path("good")).into_keys().find(|n| n.starts_with("MANIFEST-")).unwrap();
    for lead in [format!("../good/{manifest}\n"), format!("{}/{manifest}\n", desk.path("good").display())] {
        fs::write(desk.path("bad/CURRENT"), &lead).unwrap();
        let output =
            Command::new("ldb").arg(format!("--db={}", desk.path("bad").display())).arg("scan").output().unwrap();
        let said = Said::from(output);
        assert!(said.code != 0 && !said.out.contains("key-"), "{lead}: {said:?}");
        desk.run(&["snapshot", "--job", "app", "bad"]).fails(1, &["CURRENT"]);
    }
}

#[test]
fn doctor_looks_at_a_directory_and_says_what_to_do() {
    let desk = shared();
    let said = desk.run(&["doctor", "--dir", "good", "--json"]);
    let of = |said: &Said, check: &str| -> Value {
        let all: Value = serde_json::from_str(&said.out).unwrap();
        all["findings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|f| f["check"] == check)
            .unwrap_or_else(|| panic!("{check}: {said:?}"))
            .clone()
    };
    assert_eq!(said.code, 0, "{said:?}");
    for check in [
        "kernel",
        "/dev/fuse",
        "cache",
        "cache space",
        "hard links",
        "user xattrs and birth time",
        "store",
        "create-if-absent",
    ] {
        assert_eq!(of(&said, check)["severity"], "fine", "{check}: {said:?}");
    }
    assert_eq!(of(&said, "key file")["severity"], "note");
    assert!(!desk.path("store/probe").exists(), "the probe is removed");
    let text = desk.ok(&["doctor"]);
    assert!(text.lines().any(|l| l.starts_with("fine     store: file://")), "{text}");
    // Nothing is made where nothing is.
    let said = desk.run(&["--store", "file:///nonexistent/store", "--cache", "new", "doctor", "--json"]);
    assert_eq!((said.code, of(&said, "store")["severity"].as_str()), (0, Some("note")), "{said:?}");
    assert!(!desk.path("new").exists());
    let key = desk.path("key");
    fs::write(&key, hex(1)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let said = with_key(&desk, Some(key.to_str().unwrap()), &["doctor"]);
    said.fails(1, &["one thing would fail"]);
    assert!(said.out.contains("fails    key file") && said.out.contains("chmod 600"), "{said:?}");
    fs::write(desk.path("file"), "x").unwrap();
    fs::create_dir_all(desk.path("foreign/photos")).unwrap();
    fs::write(desk.path("foreign/photos/cat"), "meow").unwrap();
    let foreign = format!("file://{}", desk.path("foreign").display());
    let said = desk.run(&["--store", &foreign, "--cache", "file", "doctor", "--json"]);
    said.fails(1, &["2 things would fail"]);
    assert_eq!(
        (of(&said, "store")["severity"].as_str(), of(&said, "cache")["severity"].as_str()),
        (Some("fails"), Some("fails"))
    );
}

/// Whatever a run prints, logs or stores: none of its secrets, in no spelling.
#[test]
fn no_secret_is_printed_logged_or_stored_and_doctor_asks_the_bucket() {
    let server = Weed::start();
    let mut desk = Desk::new();
    server.serve(&mut desk, "signed/store", Who::Writer);
    let key = key_file(&desk, "key", &[7]);
    desk.env.insert("CKPTFS_KEY_FILE".to_owned(), key.clone());
    load(&desk.path("good"), "default", 1, 4_000);
    let mut said = Vec::new();
    let mut run = |desk: &Desk, args: &[&str]| {
        let output: Said = desk.command(args).output().unwrap().into();
        said.push(format!("{args:?}\n{}\n{}", output.out, output.err));
        output
    };
    run(&desk, &["-vvv", "snapshot", "--job", "app", "good"]).ok();
    run(&desk, &["-vvv", "mount", "mnt", "--daemon"]).ok();
    assert!(database(&desk.mounted_db("chk-1")) == database(&desk.path("good")));
    let commands: String = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|e| fs::read(e.ok()?.path().join("cmdline")).ok())
        .map(|c| String::from_utf8_lossy(&c).into_owned())
        .filter(|c| c.contains("ckptfs"))
        .collect();
    desk.unmount();
    run(&desk, &["-vvv", "verify", "--read", "--json"]).ok();
    let doctor = run(&desk, &["-vvv", "doctor", "--json"]);
    assert_eq!(doctor.code, 0, "{doctor:?}");
    let findings: Value = serde_json::from_str(&doctor.out).unwrap();
    let severity = |check: &str| {
        let of = findings["findings"].as_array().unwrap().iter().find(|f| f["check"] == check);
        of.unwrap_or_else(|| panic!("{check}: {doctor:?}"))["severity"].as_str().unwrap().to_owned()
    };
    assert_eq!((severity("store"), severity("create-if-absent")), ("fine".to_owned(), "fine".to_owned()));
    // A bucket without rules: nothing deletes, and nothing ends what was left half sent.
    assert_eq!((severity("bucket lifecycle"), severity("bucket versions")), ("fine".to_owned(), "fine".to_owned()));
    assert_eq!(severity("unfinished uploads"), "warning");
    // What goes wrong says more than what goes right.
    let mut wrong = desk.env.clone();
    wrong.insert("AWS_SECRET_ACCESS_KEY".to_owned(), "another-secret-altogether".to_owned());
    let right = std::mem::replace(&mut desk.env, wrong);
    for args in [&["-vvv", "ls"][..], &["-vvv", "doctor"], &["-vvv", "snapshot", "--job", "app", "good"]] {
        assert_ne!(run(&desk, args).code, 0);
    }
    desk.env = right;
    server.serve(&mut desk, "signed/store", Who::Reader);
    let reader = run(&desk, &["-vvv", "doctor"]);
    assert!(reader.code == 0 && reader.out.contains("a mount works, a snapshot does not"), "{reader:?}");
    assert!(run(&desk, &["-vvv", "snapshot", "--job", "app", "good"]).code != 0);

    let logged: String =
        walk(&desk.path("cache")).iter().map(|p| String::from_utf8_lossy(&fs::read(p).unwrap()).into_owned()).collect();
    let everything = said.join("\n") + &commands + &logged;
    assert!(desk.path("cache/daemon.log").exists() && commands.contains("--key-file"), "{commands}");
    for secret in ["writer-secret", "reader-secret", "another-secret-altogether", hex(7).as_str()] {
        for spelled in spellings(secret) {
            assert!(!everything.contains(&spelled), "{secret:?} as {spelled:?} in: {everything}");
        }
    }
    // The signature of a request is as good as the secret for a while.
    assert!(!everything.contains("X-Amz-Signature") && !everything.contains("Signature="));
}

/// A text as it is, in hex and in base64 at any of three offsets.
fn spellings(secret: &str) -> Vec<String> {
    let hexed: String = secret.bytes().map(|b| format!("{b:02x}")).collect();
    let mut out = vec![secret.to_owned(), hexed.to_uppercase(), hexed];
    for skip in 0..3 {
        out.push(base64(secret.as_bytes().get(skip..).unwrap()));
    }
    out
}

/// Whole groups only: what stands behind the secret changes the last one.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |g: &[u8]| u32::from(g[0]) << 16 | u32::from(g[1]) << 8 | u32::from(g[2]);
    let digits = bytes.chunks_exact(3).flat_map(|g| [18, 12, 6, 0].map(|shift| group(g) >> shift & 63));
    digits.map(|d| char::from(DIGITS[d as usize])).collect()
}

/// Versions with known holes, from the advisories of RustSec: name and first version without it.
const FIXED_IN: [(&str, [u64; 3]); 4] = [
    ("fuser", [0, 16, 0]),
    ("dashmap", [5, 1, 0]),
    ("rocksdb", [0, 19, 0]),
    // Also brings a quick-xml without RUSTSEC-2026-0194 and -0195.
    ("object_store", [0, 14, 1]),
];

#[test]
fn dependencies_with_known_holes_are_not_built() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lock = fs::read_to_string(root.join("Cargo.lock")).unwrap();
    let mut seen = BTreeSet::new();
    for package in lock.split("[[package]]") {
        let field =
            |name: &str| package.lines().find_map(|l| l.strip_prefix(&format!("{name} = \""))?.strip_suffix('"'));
        let (Some(name), Some(version)) = (field("name"), field("version")) else { continue };
        assert!(!["bincode", "fuse", "users"].contains(&name), "{name} is not maintained");
        let Some((_, fixed)) = FIXED_IN.iter().find(|(n, _)| *n == name) else { continue };
        let parts: Vec<u64> = version.split(['.', '-', '+']).take(3).map(|p| p.parse().unwrap()).collect();
        assert!(parts.as_slice() >= &fixed[..], "{name} {version} has a hole that {fixed:?} has not");
        seen.insert(name.to_owned());
    }
    assert!(seen.contains("fuser") && seen.contains("object_store") && seen.contains("dashmap"), "{seen:?}");
    // RUSTSEC-2021-0154 is about libfuse.
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let fuser = manifest.lines().find(|l| l.starts_with("fuser = ")).unwrap();
    assert!(fuser.contains("default-features = false") && !fuser.contains("libfuse"), "{fuser}");
    assert!(fs::read_to_string(root.join("scripts/test.sh")).unwrap().contains("cargo deny check"));
}

/// The requirements of a row, and the tests that it names.
fn rows(document: &str) -> Vec<(String, Vec<String>, String)> {
    let cells =
        |line: &str| -> Vec<String> { line.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect() };
    document
        .lines()
        .filter(|l| l.starts_with("| S"))
        .map(|line| {
            let cells = cells(line);
            assert_eq!(cells.len(), 4, "{line}");
            let named = |text: &str| -> Vec<String> {
                text.split('`').skip(1).step_by(2).filter(|t| t.contains("::")).map(str::to_owned).collect()
            };
            (cells[0].clone(), named(&cells[2]), cells[3].clone())
        })
        .collect()
}

/// `file::test` is a test, if a file of that name, or `tests/file`, has a function with this name behind `#[test]`.
fn is_a_test(named: &str, sources: &[(PathBuf, String)]) -> bool {
    let (file, test) = named.rsplit_once("::").unwrap();
    let file = file.rsplit("::").next().unwrap();
    sources.iter().any(|(path, text)| {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let parent = path.parent().and_then(Path::file_name).and_then(|n| n.to_str()).unwrap_or_default();
        let is_file = stem == file || (["mod", "tests"].contains(&stem) && parent == file);
        is_file && text.split("#[test]").skip(1).any(|after| after.trim_start().starts_with(&format!("fn {test}(")))
    })
}

#[test]
fn every_requirement_has_a_test_or_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("docs/SECURITY.md")).unwrap();
    let sources: Vec<(PathBuf, String)> = ["src", "mount-tests"]
        .iter()
        .flat_map(|dir| walk(&root.join(dir)))
        .filter(|p| p.extension().is_some_and(|e| e == "rs"))
        .map(|p| (p.clone(), fs::read_to_string(&p).unwrap()))
        .collect();
    let rows = rows(&document);
    let ids: Vec<String> = rows.iter().map(|(id, ..)| id.clone()).collect();
    assert_eq!(ids, (1..=20).map(|i| format!("S{i}")).collect::<Vec<_>>());
    for (id, tests, reason) in &rows {
        assert!(!tests.is_empty() || reason.len() > 40, "{id} has neither a test nor a reason");
        for test in tests {
            assert!(is_a_test(test, &sources), "{id}: there is no test {test}");
        }
    }
    // And the check can fail.
    assert!(
        !is_a_test("security::no_such_test", &sources)
            && !is_a_test("bad_place::every_requirement_has_a_test", &sources)
    );
    assert!(is_a_test("security::every_requirement_has_a_test_or_a_reason", &sources));
}
