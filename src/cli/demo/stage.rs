//! Where the demo plays: its directory, the mount's process and the counting process. Whatever way the demo ends, they go.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ckptfs::error::{Error, Kind, Result};
use ckptfs::fuse;
use ckptfs::local::signal::Termination;
use ckptfs::local::{mounts, process};
use ckptfs::types::Uid;

use super::super::Context;
use super::worker::Line;

/// How long the mount may take to answer: a store's deadline and some more.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the mount's process may take to end after its mount is gone.
const FAREWELL: Duration = Duration::from_secs(10);

/// 128 and the number of SIGINT, as shells have it.
const INTERRUPTED: i32 = 130;

/// The running parts, shared with the thread that waits for signals.
#[derive(Debug, Default)]
struct Parts {
    mount: Option<Child>,
    worker: Option<Child>,
    cleaned: bool,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    keep: bool,
    /// A signal came.
    interrupted: AtomicBool,
    parts: Mutex<Parts>,
}

/// The demo's directory and processes; dropped, it ends and removes them all.
#[derive(Debug)]
pub(crate) struct Stage {
    shared: Arc<Shared>,
    /// Options that every child is started with.
    store: String,
    cache: PathBuf,
    key_file: Option<PathBuf>,
}

fn fail(what: impl std::fmt::Display, e: std::io::Error) -> Error {
    let kind = match e.kind() {
        std::io::ErrorKind::PermissionDenied => Kind::Permission,
        std::io::ErrorKind::NotFound => Kind::NotFound,
        _ => Kind::Other,
    };
    Error::with_source(kind, format!("cannot {what}: {e}"), e)
}

impl Stage {
    /// A fresh directory below `parent`. Store and cache are the given ones, else in it.
    pub(crate) fn new(context: &Context, parent: &Path, keep: bool) -> Result<Self> {
        let nonce = Uid::random().map_err(|e| fail("make a random name", e))?.to_string();
        let parent = std::path::absolute(parent).map_err(|e| fail("resolve a path", e))?;
        let directory = parent.join(format!("ckptfs-demo-{}", nonce.get(..12).unwrap_or_default()));
        let make = |d: &Path| {
            let made = std::fs::DirBuilder::new().mode(0o700).create(d);
            made.map_err(|e| fail(format!("make the directory {} (choose another place with --work)", d.display()), e))
        };
        make(&directory)?;
        let shared = Arc::new(Shared { directory, keep, interrupted: AtomicBool::new(false), parts: Mutex::default() });
        let below = |name: &str| shared.directory.join(name);
        let store = context.store.clone().unwrap_or_else(|| format!("file://{}", below("store").display()));
        let cache = context.cache.clone().unwrap_or_else(|| below("cache"));
        let stage = Self { store, cache, key_file: context.key_file.clone(), shared };
        make(&stage.mountpoint())?;
        let mut signals = Termination::catch().map_err(|e| fail("catch signals", e))?;
        let for_signals = stage.shared.clone();
        std::thread::Builder::new()
            .name("ckptfs-signals".to_owned())
            .spawn(move || {
                if signals.wait().is_ok() {
                    for_signals.interrupted.store(true, Ordering::SeqCst);
                    for_signals.clean();
                    std::process::exit(INTERRUPTED);
                }
            })
            .map_err(|e| fail("start a thread", e))?;
        Ok(stage)
    }

    pub(crate) fn store(&self) -> &str {
        &self.store
    }

    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.shared.directory.join(name)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.shared.directory
    }

    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.path("mnt")
    }

    fn command(&self) -> Result<Command> {
        let exe = std::env::current_exe().map_err(|e| fail("find the program itself", e))?;
        let mut command = Command::new(exe);
        command.arg("--store").arg(&self.store).arg("--cache").arg(&self.cache).stdin(Stdio::null());
        if let Some(file) = &self.key_file {
            command.arg("--key-file").arg(file);
        }
        Ok(command)
    }

    /// Starts `ckptfs mount` and waits until it answers.
    pub(crate) fn mount(&self) -> Result<()> {
        let point = self.mountpoint();
        let mut command = self.command()?;
        // Its own words of success are not the demo's.
        command.arg("--quiet").arg("mount").arg(&point).stdout(Stdio::null());
        let child = command.spawn().map_err(|e| fail("start `ckptfs mount`", e))?;
        self.shared.parts().mount = Some(child);
        let begun = Instant::now();
        while mounts::mounted_at(&point)?.is_empty() || std::fs::metadata(&point).is_err() {
            let ended = self.shared.parts().mount.as_mut().map(Child::try_wait);
            if let Some(Ok(Some(status))) = ended {
                let message = format!(
                    "`ckptfs mount` ended ({status}) and said why above: the demo needs /dev/fuse, and root or fusermount3"
                );
                return Err(Error::new(Kind::Unsupported, message));
            }
            if begun.elapsed() > PATIENCE {
                let message = format!("the mount on {} did not answer within {PATIENCE:?}", point.display());
                return Err(Error::new(Kind::Unavailable, message));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Starts a counting process; it is read line by line.
    pub(crate) fn work(&self, job: &str, list: &Path, database: &Path, corrupt: bool) -> Result<Lines> {
        let mut command = self.command()?;
        command.args(["demo", "--job", job, "--worker"]).arg(database).arg("--list").arg(list);
        if corrupt {
            command.arg("--corrupt-one-count");
        }
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| fail("start the counting process", e))?;
        let output = child.stdout.take().map(BufReader::new);
        self.shared.parts().worker = Some(child);
        output.map(Lines).ok_or_else(|| Error::new(Kind::Other, "the counting process has no output"))
    }

    /// SIGKILL, and nothing else.
    pub(crate) fn kill_worker(&self) -> Result<()> {
        match self.shared.parts().worker.take() {
            None => Err(Error::new(Kind::Other, "there is no counting process to kill")),
            Some(mut worker) => {
                worker.kill().map_err(|e| fail("kill the counting process", e))?;
                worker.wait().map(drop).map_err(|e| fail("wait for the counting process", e))
            }
        }
    }

    /// Waits for the counting process to end by itself.
    pub(crate) fn wait_worker(&self) -> Result<ExitStatus> {
        let worker = self.shared.parts().worker.take();
        let mut worker = worker.ok_or_else(|| Error::new(Kind::Other, "there is no counting process"))?;
        worker.wait().map_err(|e| fail("wait for the counting process", e))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.shared.clean();
        // What failed, failed because it was interrupted: the thread that heard the signal ends the process, and says so by its code.
        while self.shared.interrupted.load(Ordering::SeqCst) {
            std::thread::park();
        }
    }
}

impl Shared {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what runs, unmounts, removes the directory. Nothing here may end early: each step is tried.
    fn clean(&self) {
        let mut parts = self.parts();
        if std::mem::replace(&mut parts.cleaned, true) {
            return;
        }
        if let Some(mut worker) = parts.worker.take() {
            let _ = worker.kill();
            let _ = worker.wait();
        }
        let point = self.directory.join("mnt");
        if let Some(mut mount) = parts.mount.take() {
            if mounts::mounted_at(&point).is_ok_and(|m| !m.is_empty())
                && let Err(e) = fuse::umount(&point, true)
            {
                log::warn!("{e}");
            }
            let begun = Instant::now();
            let _ = process::terminate(mount.id());
            while matches!(mount.try_wait(), Ok(None)) && begun.elapsed() < FAREWELL {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = mount.kill();
            let _ = mount.wait();
        }
        if mounts::mounted_at(&point).is_ok_and(|m| !m.is_empty()) {
            log::error!("{} is still mounted: `ckptfs umount --lazy {}`", point.display(), point.display());
        } else if !self.keep
            && let Err(e) = std::fs::remove_dir_all(&self.directory)
        {
            log::error!("{} is left over: {e}", self.directory.display());
        }
    }
}

/// What a counting process says.
#[derive(Debug)]
pub(crate) struct Lines(BufReader<ChildStdout>);

impl Lines {
    /// The next line; nothing when the process ended.
    pub(crate) fn next(&mut self) -> Result<Option<Line>> {
        let mut text = String::new();
        match self.0.read_line(&mut text) {
            Ok(0) => Ok(None),
            Ok(_) => serde_json::from_str(&text).map(Some).map_err(|e| {
                Error::with_source(
                    Kind::Other,
                    format!("the counting process said {text:?}, which is no line of it"),
                    e,
                )
            }),
            Err(e) => Err(fail("hear from the counting process", e)),
        }
    }
}
