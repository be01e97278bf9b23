//! Where the demo plays: its directory, the mount's process, the worker and the coordinator. Whatever way the demo ends, they go.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ckptfs::engine::coordinator::Control;
use ckptfs::error::{Error, Kind, Result};
use ckptfs::fuse;
use ckptfs::local::signal::Signals;
use ckptfs::local::{mounts, process};
use ckptfs::types::Uid;

use super::super::Context;
use super::job::Setup;
use super::worker::Line;

/// How long the mount may take to answer: a store's deadline and some more.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the mount's process may take to end after its mount is gone.
const FAREWELL: Duration = Duration::from_secs(10);

/// How long the coordinator may take to end: longer than it needs where the store answers.
const HALT: Duration = Duration::from_secs(5);

/// Tries to remove the directory: what still runs in this process when it is interrupted may write into it for a moment.
const REMOVALS: u32 = 40;

/// 128 and the number of SIGINT, as shells have it.
const INTERRUPTED: i32 = 130;

/// The running parts, shared with the thread that waits for signals.
#[derive(Debug, Default)]
struct Parts {
    mount: Option<Child>,
    worker: Option<Child>,
    coordinator: Option<(Control, JoinHandle<()>)>,
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

fn make(directory: &Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(directory);
    made.map_err(|e| fail(format!("make the directory {} (choose another place with --work)", directory.display()), e))
}

impl Stage {
    /// A fresh directory below `parent`. Store and cache are the given ones, else in it.
    pub(crate) fn new(context: &Context, parent: &Path, keep: bool) -> Result<Self> {
        let nonce = Uid::random().map_err(|e| fail("make a random name", e))?.to_string();
        let parent = std::path::absolute(parent).map_err(|e| fail("resolve a path", e))?;
        let directory = parent.join(format!("ckptfs-demo-{}", nonce.get(..12).unwrap_or_default()));
        make(&directory)?;
        let shared = Arc::new(Shared { directory, keep, interrupted: AtomicBool::new(false), parts: Mutex::default() });
        let below = |name: &str| shared.directory.join(name);
        let store = context.store.clone().unwrap_or_else(|| format!("file://{}", below("store").display()));
        let cache = context.cache.clone().unwrap_or_else(|| below("cache"));
        let stage = Self { store, cache, key_file: context.key_file.clone(), shared };
        make(&stage.mountpoint())?;
        let mut signals = Signals::catch(false).map_err(|e| fail("catch signals", e))?;
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
        let mut parts = self.shared.open_parts()?;
        parts.mount = Some(command.spawn().map_err(|e| fail("start `ckptfs mount`", e))?);
        drop(parts);
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

    /// The list of files that are counted.
    pub(crate) fn list(&self) -> PathBuf {
        self.path("list")
    }

    /// Starts a worker, in a directory of its own; each of its lines is heard, and then its end.
    pub(crate) fn work(&self, setup: &Setup, mut hear: impl FnMut(Option<Line>) + Send + 'static) -> Result<()> {
        make(&setup.directory)?;
        let file = setup.directory.join("setup.json");
        let text = serde_json::to_vec(setup).map_err(|e| fail("write a setup", e.into()))?;
        std::fs::write(&file, text).map_err(|e| fail(format!("write {}", file.display()), e))?;
        let mut command = self.command()?;
        command.args(["demo", "--worker"]).arg(&file);
        let mut parts = self.shared.open_parts()?;
        let child = command.stdout(Stdio::piped()).spawn().map_err(|e| fail("start the worker process", e))?;
        let output = parts.worker.insert(child).stdout.take();
        drop(parts);
        let output = output.ok_or_else(|| Error::new(Kind::Other, "the worker process has no output"))?;
        let listen = move || {
            for text in BufReader::new(output).lines() {
                match text.ok().and_then(|text| serde_json::from_str(&text).ok()) {
                    Some(line) => hear(Some(line)),
                    None => break,
                }
            }
            hear(None);
        };
        let thread = std::thread::Builder::new().name("listen".to_owned()).spawn(listen);
        thread.map(drop).map_err(|e| fail("start a thread", e))
    }

    /// A coordinator runs: it is halted before the directory goes.
    pub(crate) fn coordinated(&self, control: Control, thread: JoinHandle<()>) {
        self.shared.parts().coordinator = Some((control, thread));
    }

    /// It has ended by itself.
    pub(crate) fn coordinator_gone(&self) {
        let ended = self.shared.parts().coordinator.take();
        if let Some((_, thread)) = ended
            && thread.join().is_err()
        {
            log::error!("internal: the coordinator panicked");
        }
    }

    /// SIGKILL, and nothing else.
    pub(crate) fn kill_worker(&self) -> Result<()> {
        match self.shared.parts().worker.take() {
            None => Err(Error::new(Kind::Other, "there is no worker process to kill")),
            Some(mut worker) => {
                worker.kill().map_err(|e| fail("kill the worker process", e))?;
                worker.wait().map(drop).map_err(|e| fail("wait for the worker process", e))
            }
        }
    }

    /// Waits for the worker to end by itself; one that does not is killed.
    pub(crate) fn wait_worker(&self, patience: Duration) -> Result<ExitStatus> {
        let begun = Instant::now();
        let gone = || Error::new(Kind::Other, "there is no worker process");
        loop {
            let ended = self.shared.parts().worker.as_mut().ok_or_else(gone)?.try_wait();
            if let Some(status) = ended.map_err(|e| fail("wait for the worker process", e))? {
                self.shared.parts().worker = None;
                return Ok(status);
            }
            if begun.elapsed() > patience {
                self.kill_worker()?;
                return Err(Error::new(Kind::Other, format!("the worker process did not end within {patience:?}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
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

    /// To start something: what starts after the clean-up would be left over.
    fn open_parts(&self) -> Result<MutexGuard<'_, Parts>> {
        let parts = self.parts();
        if parts.cleaned {
            return Err(Error::new(Kind::Other, "the demo was interrupted"));
        }
        Ok(parts)
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
        if let Some((control, thread)) = parts.coordinator.take() {
            control.halt();
            let begun = Instant::now();
            while !thread.is_finished() && begun.elapsed() < HALT {
                std::thread::sleep(Duration::from_millis(5));
            }
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
        } else if !self.keep {
            self.remove();
        }
    }

    fn remove(&self) {
        for _ in 0..REMOVALS {
            let removed = std::fs::remove_dir_all(&self.directory);
            if !self.directory.exists() {
                return;
            }
            if let Err(e) = removed {
                log::debug!("{} is still there: {e}", self.directory.display());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        log::error!("{} is left over", self.directory.display());
    }
}
