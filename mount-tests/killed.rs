//! A daemon that is killed in the one moment in which the kernel cannot end its connection by itself: somebody lists a directory and waits
//! for the answer, and a thread of the daemon tells the kernel to forget a name in it. Another process ends the connection.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use ckptfs::local::mount::{MountOptions, mount_fuse};
use ckptfs::local::mounts::mounted_at;
use ckptfs::local::watch::Watcher;
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, Notifier, OpenFlags,
    ReplyAttr, ReplyDirectory, ReplyEntry, ReplyOpen, Request, Session, SessionACL,
};

use crate::kit::{is_root, soon};

/// A root directory that is never listed to its end.
struct Silent(Arc<OnceLock<Notifier>>);

/// This test, and the variable by which the daemon that it starts knows where to mount.
const NAME: &str = "killed::the_reader_of_a_killed_daemon_is_let_go_though_a_notice_waits_for_it";
const POINT: &str = "CKPTFS_TEST_POINT";
const MEMORY: usize = 64 << 20;
const LONG: Duration = Duration::from_secs(60);

fn root() -> FileAttr {
    let time = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(1),
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: FileType::Directory,
        perm: 0o555,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Silent {
    fn lookup(&self, _: &Request, _: INodeNo, name: &std::ffi::OsStr, reply: ReplyEntry) {
        if name == "known" {
            reply.entry(&LONG, &FileAttr { ino: INodeNo(2), ..root() }, Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&LONG, &root());
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(1), FopenFlags::empty());
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: u64, reply: ReplyDirectory) {
        // Unanswered, and not dropped, which would be an answer.
        std::mem::forget(reply);
        let notifier = self.0.get().unwrap().clone();
        std::thread::Builder::new()
            .name("notice".to_owned())
            .spawn(move || notifier.inval_entry(ino, std::ffi::OsStr::new("known")))
            .unwrap();
    }
}

/// The daemon: a process of its own.
fn daemon(point: &Path) {
    // As if a database were open in it.
    let memory = vec![1_u8; MEMORY];
    let device = mount_fuse(point, &MountOptions::default()).unwrap();
    let mut config = Config::default();
    config.n_threads = Some(2);
    config.clone_fd = true;
    config.acl = SessionACL::All;
    let notifier = Arc::default();
    let session = Session::from_fd(Silent(Arc::clone(&notifier)), device, SessionACL::All, config).unwrap();
    notifier.set(session.notifier()).ok();
    let watcher = std::env::var_os("CKPTFS_TEST_WATCHED").map(|_| {
        let dev = mounted_at(point).unwrap().last().unwrap().dev;
        Watcher::start(dev).unwrap()
    });
    let _ = session.run();
    drop((watcher, memory));
}

/// Whether a thread of that name waits where no signal reaches it.
fn is_stuck(daemon: &Child) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", daemon.id())) else { return false };
    tasks.filter_map(|t| fs::read_to_string(t.ok()?.path().join("stat")).ok()).any(|s| s.contains("(notice) D"))
}

/// Memory of the watcher of a mount, in bytes, when it has one.
fn memory_of_watcher(point: &Path) -> Option<u64> {
    let is_it = |process: &Path| {
        let comm = fs::read_to_string(process.join("comm")).unwrap_or_default();
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        let wanted = format!("{POINT}={}", point.display());
        comm.trim() == "ckptfs-watch" && environment.split(|b| *b == 0).any(|v| v == wanted.as_bytes())
    };
    let process = fs::read_dir("/proc").unwrap().filter_map(|e| Some(e.ok()?.path())).find(|p| is_it(p))?;
    let status = fs::read_to_string(process.join("status")).unwrap();
    let kib = status.lines().find_map(|l| l.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Some(kib.unwrap() << 10)
}

/// However a test ends, its daemon and its mount go.
struct Cleared<'a> {
    daemon: Child,
    point: &'a Path,
}

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        // By force: an abort, for the case in which nobody else asked for it.
        for how in ["-f", "-l"] {
            let _ = Command::new("umount").arg(how).arg(self.point).stderr(Stdio::null()).status();
        }
        let _ = self.daemon.wait();
    }
}

/// Kills a daemon in that moment. How long its reader waits then, if it does not wait too long, and whether the daemon has ended.
fn kill(point: &Path, watched: bool) -> (Option<Duration>, bool) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([NAME, "--exact", "--nocapture"]).env(POINT, point);
    if watched {
        command.env("CKPTFS_TEST_WATCHED", "1");
    }
    let daemon = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut cleared = Cleared { daemon, point };
    let daemon = &mut cleared.daemon;
    assert!(soon(|| point.join("known").exists()), "the daemon does not answer");
    let (to, told) = channel();
    let listed = point.to_owned();
    let reader = std::thread::spawn(move || {
        let count = fs::read_dir(listed).map(|all| all.filter(Result::is_ok).count());
        to.send(count.unwrap_or_default()).unwrap();
    });
    assert!(soon(|| is_stuck(daemon)), "no thread waits for the directory");
    if watched {
        let small = || memory_of_watcher(point).is_some_and(|bytes| bytes < MEMORY as u64 / 4);
        assert!(soon(small), "the watcher keeps {:?} bytes of its process", memory_of_watcher(point));
    }
    let begun = Instant::now();
    daemon.kill().unwrap();
    let waited = told.recv_timeout(Duration::from_secs(4)).ok().map(|entries| {
        assert_eq!(entries, 0);
        begun.elapsed()
    });
    let ended = waited.is_some() && soon(|| daemon.try_wait().unwrap().is_some());
    drop(cleared);
    reader.join().unwrap();
    (waited, ended)
}

#[test]
fn the_reader_of_a_killed_daemon_is_let_go_though_a_notice_waits_for_it() {
    if let Some(point) = std::env::var_os(POINT) {
        return daemon(Path::new(&point));
    }
    assert!(is_root(), "run it as root");
    let point = tempfile::tempdir().unwrap();
    let (waited, _) = kill(point.path(), false);
    assert_eq!(waited, None, "nobody ended the connection, and nobody waited: this does not test what it should");
    let (waited, ended) = kill(point.path(), true);
    assert!(waited.is_some_and(|w| w < Duration::from_secs(2)), "the reader waited {waited:?}");
    assert!(ended, "the daemon does not end");
}
