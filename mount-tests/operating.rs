//! What operators use around a mount: alerts without a daemon, the mount helper of `/etc/fstab`, a supervisor's signs of life, completions
//! and man pages.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::kit::{is_root, ls, soon};
use crate::tool::{Desk, PROGRAM, Said, load};

fn desk() -> Desk {
    desk_of(500)
}

fn desk_of(rows: u64) -> Desk {
    let desk = Desk::new();
    load(&desk.path("source"), "default", 1, rows);
    desk.snapshot(&desk.path("source"));
    desk
}

#[test]
fn a_job_that_has_taken_no_checkpoint_for_too_long_is_told_by_the_exit_code() {
    let desk = desk();
    assert!(desk.ok(&["check", "--max-age", "1h"]).starts_with("app: chk-1 is "));
    std::thread::sleep(Duration::from_millis(1200));
    desk.run(&["check", "--max-age", "1s"]).fails(1, &["older than 1 s: app"]);
    let said = desk.run(&["--json", "check", "app", "--max-age", "1s"]);
    let told: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(
        (said.code, &told["jobs"][0]["late"], &told["jobs"][0]["checkpoint"]),
        (1, &true.into(), &"chk-1".into())
    );
    desk.run(&["check", "nobody", "--max-age", "1h"]).fails(1, &["nobody"]);
    desk.run(&["check"]).fails(2, &["--max-age"]);
    assert!(desk.ok(&["ls", "app", "--since", "1h"]).contains("chk-1"));
    assert!(!desk.ok(&["ls", "app", "--since", "1s"]).contains("chk-1"));
}

#[test]
fn completions_and_man_pages_tell_of_every_verb() {
    let desk = desk();
    let help = desk.ok(&["--help"]);
    let verbs: Vec<&str> = help
        .split("Commands:\n")
        .nth(1)
        .unwrap()
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|word| !word.is_empty()))
        .filter(|verb| *verb != "help")
        .collect();
    assert!(verbs.len() > 20, "{verbs:?}");
    for shell in ["bash", "zsh", "fish"] {
        let text = desk.ok(&["completions", shell]);
        for verb in &verbs {
            assert!(text.contains(verb), "{shell}: {verb}");
        }
    }
    fs::create_dir(desk.path("man")).unwrap();
    desk.ok(&["man", "man"]);
    let pages = ls(&desk.path("man"));
    for verb in &verbs {
        assert!(pages.contains(&format!("ckptfs-{verb}.1")), "{verb} in {pages:?}");
    }
    desk.run(&["man", "nowhere"]).fails(1, &["does the directory exist"]);
}

fn helper(desk: &Desk, options: &str) -> Said {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/mount.ckptfs");
    let mut command = desk.wrapped(&[script.to_str().unwrap()], &[desk.store.as_str(), "mnt", "-o", options]);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let with: Vec<PathBuf> =
        [Path::new(PROGRAM).parent().unwrap().to_owned()].into_iter().chain(std::env::split_paths(&path)).collect();
    command.env("PATH", std::env::join_paths(with).unwrap()).output().unwrap().into()
}

#[test]
fn the_mount_helper_takes_what_stands_in_fstab() {
    let desk = desk();
    let cache = desk.path("other cache");
    fs::write(desk.path("env"), "# credentials\nAWS_REGION=nowhere\n").unwrap();
    let env = desk.path("env");
    let options =
        format!("ro,_netdev,x-systemd.automount,cache={},env_file={},pin_idle=5m", cache.display(), env.display());
    let options =
        if is_root() { options + ",job_owner=app=4321:4322,job_mode=app=0710,job_mode=b=0700" } else { options };
    helper(&desk, &options).ok();
    if is_root() {
        let app = fs::metadata(desk.path("mnt/app")).unwrap();
        assert_eq!((app.uid(), app.gid(), app.mode() & 0o7777), (4321, 4322, 0o710));
    }
    assert_eq!(ls(&desk.path("mnt/app")), ["chk-1", "latest"]);
    assert!(cache.join("cache.json").exists(), "the cache that was named is used");
    desk.unmount();
    for (wrong, says) in [
        ("rw", "read-only"),
        ("bogus", "bogus"),
        ("env_file=/nowhere", "/nowhere"),
        ("cache_size=x", "x"),
        ("job_mode=app", "JOB=MODE"),
    ] {
        let said = helper(&desk, wrong);
        assert!(said.code != 0 && said.err.contains(says), "{wrong}: {said:?}");
    }
    assert!(ls(&desk.path("mnt")).is_empty());
}

/// A supervisor that waits for signs of life, as systemd does for `Type=notify` with a watchdog.
#[test]
fn a_supervisor_hears_that_a_mount_is_ready_lives_and_ends() {
    let desk = desk();
    let socket = UnixDatagram::bind(desk.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let hear = || {
        let mut buffer = [0; 256];
        let n = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    };
    let mut command = desk.command(&["mount", "mnt"]);
    command.env("NOTIFY_SOCKET", desk.path("notify")).env("WATCHDOG_USEC", "400000").stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let first: Vec<String> = (0..4).map(|_| hear()).collect();
    assert!(first.iter().any(|said| said.starts_with("READY=1")), "{first:?}");
    assert!(first.iter().filter(|said| *said == "WATCHDOG=1").count() >= 2, "{first:?}");
    assert_eq!(ls(&desk.path("mnt/app")), ["chk-1", "latest"]);
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(child.wait().unwrap().success());
    let mut rest = Vec::new();
    while rest.last().is_none_or(|said: &String| said != "STOPPING=1") {
        rest.push(hear());
    }
}

fn hang_up(pid: &str) {
    assert!(Command::new("kill").args(["-HUP", pid]).status().unwrap().success());
}

#[test]
fn a_daemon_that_is_told_to_begins_a_new_log_and_a_closed_terminal_ends_a_mount() {
    let desk = desk();
    let said = desk.run(&["mount", "--daemon", "mnt"]);
    let pid = said.err.split("served by process ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let (log, moved) = (desk.path("cache/daemon.log"), desk.path("cache/daemon.log.1"));
    fs::rename(&log, &moved).unwrap();
    hang_up(&pid);
    let words = || fs::read_to_string(&log).unwrap_or_default();
    assert!(soon(|| words().contains("a new log")), "{}", words());
    // With the time, since nobody was there to see it said.
    assert!(words().starts_with(&format!("[{}", &said_now()[..10])), "{}", words());
    fs::remove_file(&log).unwrap();
    hang_up(&pid);
    assert!(soon(|| words().contains("a new log")), "again");
    assert_eq!(ls(&desk.path("mnt/app")), ["chk-1", "latest"]);
    desk.unmount();

    let mut child = desk.command(&["mount", "mnt"]).stderr(Stdio::null()).spawn().unwrap();
    assert!(soon(|| desk.path("mnt/app").exists()));
    hang_up(&child.id().to_string());
    assert!(child.wait().unwrap().success(), "it ends well");
    assert!(ls(&desk.path("mnt")).is_empty(), "and nothing is mounted");

    let mut child = desk.wrapped(&["nohup", PROGRAM], &["mount", "mnt"]).stderr(Stdio::null()).spawn().unwrap();
    assert!(soon(|| desk.path("mnt/app").exists()));
    hang_up(&child.id().to_string());
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(ls(&desk.path("mnt/app")), ["chk-1", "latest"], "who began it wants it to stay");
    desk.unmount();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_daemon_that_nohup_started_begins_a_new_log_too_and_writes_through_no_link() {
    let desk = desk();
    let said: Said = desk.wrapped(&["nohup", PROGRAM], &["mount", "--daemon", "mnt"]).output().unwrap().into();
    let pid = said.err.split("served by process ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let log = desk.path("cache/daemon.log");
    fs::remove_file(&log).unwrap();
    hang_up(&pid);
    assert!(soon(|| fs::read_to_string(&log).is_ok_and(|words| words.contains("a new log"))));
    // Whoever may write to the cache's directory cannot have the daemon write elsewhere, nor hold it.
    let victim = desk.path("victim");
    fs::write(&victim, "mine").unwrap();
    for trap in ["symlink", "link", "fifo"] {
        fs::remove_file(&log).unwrap();
        match trap {
            "symlink" => std::os::unix::fs::symlink(&victim, &log).unwrap(),
            "link" => fs::hard_link(&victim, &log).unwrap(),
            _ => assert!(Command::new("mkfifo").arg(&log).status().unwrap().success()),
        }
        hang_up(&pid);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine", "{trap}");
    }
    assert_eq!(ls(&desk.path("mnt/app")), ["chk-1", "latest"]);
    // It still hears signals.
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    assert!(soon(|| ls(&desk.path("mnt")).is_empty()));
}

fn said_now() -> String {
    crate::kit::run("date", &["-u", "+%Y-%m-%dT%H"])
}

/// What `Restart=always` does: the daemon is killed, and one second later begun anew at the same place.
#[test]
fn a_killed_daemon_that_is_begun_anew_heals_its_mount() {
    // Large enough for a blob of its own, which the kernel reads itself.
    let desk = desk_of(60_000);
    let begin = || {
        let mut command = desk.command(&["mount", "mnt"]);
        // No child of the test's group: what ends the group does not end it.
        command.process_group(0).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut first = begin();
    assert!(soon(|| desk.path("mnt/app/chk-1").exists()));
    let file = walk_first(&desk.path("mnt/app/chk-1/db/0/db"));
    let open = fs::File::open(&file).unwrap();
    let whole = fs::read(&file).unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    let mut second = begin();
    assert!(soon(|| fs::read(&file).is_ok_and(|bytes| bytes == whole)), "the mount is healed");
    // What the kernel reads itself goes on beyond the daemon's end.
    if is_root() && crate::kit::passthrough() {
        let mut again = vec![0; whole.len()];
        std::os::unix::fs::FileExt::read_exact_at(&open, &mut again, 0).unwrap();
        assert!(again == whole);
    }
    drop(open);
    desk.unmount();
    assert!(second.wait().unwrap().success());
}

fn walk_first(dir: &Path) -> PathBuf {
    let tables = crate::tool::walk(dir);
    tables.into_iter().find(|p| p.extension().is_some_and(|e| e == "sst")).unwrap()
}
