//! Mounting, unmounting, and dying.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use ckptfs::error::Kind;
use ckptfs::fuse::{MountRequest, Unmounted};
use ckptfs::local::mount as local_mount;

use crate::kit::{Bed, Kept, ls, noise, passthrough, soon};

#[test]
fn places_that_are_not_fit_are_refused_with_a_remedy() {
    let bed = Bed::new();
    let at = |path: &str| {
        let error = ckptfs::fuse::mount(&MountRequest::new(bed.root().join(path)), bed.view(&bed.cache)).unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, text) = at("missing");
    assert_eq!(kind, Kind::NotFound, "{text}");
    assert!(text.contains("missing"), "{text}");
    fs::write(bed.root().join("file"), b"x").unwrap();
    let (kind, text) = at("file");
    assert!(matches!(kind, Kind::NotFound | Kind::Invalid), "{text}");
    assert!(text.contains("irectory"), "{text}");
    fs::create_dir(bed.root().join("full")).unwrap();
    fs::write(bed.root().join("full/file"), b"x").unwrap();
    let (kind, text) = at("full");
    assert_eq!(kind, Kind::Conflict, "{text}");
    assert!(text.contains("empty"), "{text}");
    let mounted = bed.mount();
    let (kind, text) = at("mnt");
    assert_eq!(kind, Kind::Conflict, "{text}");
    assert!(text.contains("mounted"), "{text}");
    assert_eq!(ls(&bed.point), [""; 0], "the one that was there goes on");
    mounted.unmount().unwrap();
}

#[test]
fn several_mounts_of_one_store_go_together() {
    let bed = Bed::new();
    bed.publish("app", 1, &[("db/000001.sst", noise(1, 200_000))], &mut Kept::default());
    let other = bed.root().join("other");
    fs::create_dir(&other).unwrap();
    let mut request = bed.request();
    request.mountpoint.clone_from(&other);
    let first = bed.mount();
    let second = ckptfs::fuse::mount(&request, bed.view(&bed.cold())).unwrap();
    for point in [&bed.point, &other] {
        assert!(fs::read(point.join("app/latest/db/0/db/000001.sst")).unwrap() == noise(1, 200_000));
    }
    first.unmount().unwrap();
    assert_eq!(ls(&other), ["app"]);
    drop(second);
    assert_eq!(ls(&other), [""; 0], "a mount that is dropped is unmounted");
}

#[test]
fn a_mount_in_use_is_not_torn_away_unless_told() {
    let bed = Bed::new();
    let bytes = noise(1, 300_000);
    bed.publish("app", 1, &[("db/000001.sst", bytes.clone())], &mut Kept::default());
    let mounted = bed.mount();
    let file = File::open(bed.db("app", "chk-1").join("000001.sst")).unwrap();
    let error = ckptfs::fuse::umount(&bed.point, false).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    assert_eq!(ls(&bed.point), ["app"]);
    assert_eq!(ckptfs::fuse::umount(&bed.point, true).unwrap(), Unmounted::Lingers);
    assert_eq!(ls(&bed.point), [""; 0]);
    let mut got = vec![0; 1000];
    file.read_exact_at(&mut got, 299_000).unwrap();
    assert!(got == bytes[299_000..], "what is open goes on");
    drop(file);
    mounted.wait().unwrap();
    let error = ckptfs::fuse::umount(&bed.point, false).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
}

/// Says to the test that started us that the mount is there, and serves until a signal.
fn be_the_daemon(dir: &str) {
    let bed = Bed::at(dir.as_ref(), false);
    let mounted = bed.mount();
    // Past the harness, which swallows what tests print.
    std::os::unix::net::UnixStream::connect(bed.root().join("ready")).unwrap();
    mounted.wait_or_signal(None).unwrap();
}

const DAEMON: &str = "CKPTFS_TEST_DAEMON";

/// Starts this very test again as a process that mounts.
fn daemon(bed: &Bed, test: &str) -> std::process::Child {
    let socket = bed.root().join("ready");
    let _ = fs::remove_file(&socket);
    let ready = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(DAEMON, bed.root())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    ready.set_nonblocking(true).unwrap();
    if !soon(|| ready.accept().is_ok()) {
        child.kill().unwrap();
        let said: Vec<String> = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok).collect();
        panic!("the daemon did not start: {said:?}");
    }
    child
}

/// Bytes that a process has read by system calls, those of FUSE requests included.
fn bytes_read(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    io.lines().find_map(|l| l.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn a_killed_daemon_leaves_open_files_readable_and_its_place_mountable() {
    if let Ok(dir) = std::env::var(DAEMON) {
        return be_the_daemon(&dir);
    }
    let bed = Bed::new();
    let bytes = noise(1, 8_000_000);
    bed.publish("app", 1, &[("db/000001.sst", bytes.clone())], &mut Kept::default());
    bed.keep_local(&bytes);
    let test = "mount_life::a_killed_daemon_leaves_open_files_readable_and_its_place_mountable";
    let mut child = daemon(&bed, test);
    let file = File::open(bed.db("app", "chk-1").join("000001.sst")).unwrap();
    if passthrough() {
        let mut got = vec![0; bytes.len() / 2];
        let before = bytes_read(child.id());
        for _ in 0..3 {
            file.read_exact_at(&mut got, 0).unwrap();
        }
        assert_eq!(bytes_read(child.id()), before, "the kernel reads by itself");
        assert!(got == bytes[..got.len()]);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(local_mount::is_stale(&bed.point));
    if passthrough() {
        let mut got = vec![0; bytes.len()];
        file.read_exact_at(&mut got, 0).unwrap();
        assert!(got == bytes, "to its end, though no page of its second half was read before");
    }
    let mounted = bed.mount();
    assert!(fs::read(bed.db("app", "chk-1").join("000001.sst")).unwrap() == bytes);
    mounted.unmount().unwrap();
    drop(file);
    // The same by the other way out: umount heals too.
    let mut child = daemon(&bed, test);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(ckptfs::fuse::umount(&bed.point, false).unwrap(), Unmounted::Healed);
    assert_eq!(ls(&bed.point), [""; 0]);
}

#[test]
fn a_signal_unmounts_and_umount_waits_for_the_daemon() {
    if let Ok(dir) = std::env::var(DAEMON) {
        return be_the_daemon(&dir);
    }
    let bed = Bed::new();
    let test = "mount_life::a_signal_unmounts_and_umount_waits_for_the_daemon";
    let mut child = daemon(&bed, test);
    assert!(ckptfs::local::mounts::is_mount_point(&bed.point).unwrap());
    ckptfs::local::process::terminate(child.id()).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(!ckptfs::local::mounts::is_mount_point(&bed.point).unwrap());
    let mut child = daemon(&bed, test);
    let pid = child.id();
    // Its end is seen only once it is reaped, as a daemon's is by init.
    let reaper = std::thread::spawn(move || child.wait().unwrap());
    assert_eq!(ckptfs::fuse::umount(&bed.point, false).unwrap(), Unmounted::Ended);
    assert!(!ckptfs::local::process::alive(pid));
    assert!(reaper.join().unwrap().success());
}
