//! A mount's life: made by our own mount(2), ended by a signal, by `umount`, or from inside.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fuser::{Config, Session, SessionACL};

use super::attr::{JobAccess, Owner, Owners};
use super::filesystem::Adapter;
use super::handles::Handles;
use super::inner::Inner;
use super::notify::{self, ToTell};
use super::passthrough::Modes;
use super::pool::Pool;
use super::watchdog;
use crate::error::{Error, Kind, Result};
use crate::local::error::remedied;
use crate::local::mount::{self as local_mount, MountOptions};
use crate::local::signal::{Asked, Signals};
use crate::local::watch::Watcher;
use crate::local::{mounts, process, xattr};
use crate::metrics::MountCounters;
use crate::types::Name;
use crate::view::View;

/// How long an unmount waits for the session to end. While files are open it cannot; they go on.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long [`umount`] waits for the other process to end.
const DAEMON_PATIENCE: Duration = Duration::from_secs(30);

/// Threads that take requests: as many as cores, within these.
const THREADS: (usize, usize) = (4, 16);

/// What to mount, and for whom.
#[derive(Debug, Clone)]
pub struct MountRequest {
    /// An empty directory.
    pub mountpoint: PathBuf,
    /// Lets other users in, who may then read everything.
    pub allow_other: bool,
    /// Owner of what is shown; ours where it is not given. Another one lets others in.
    pub uid: Option<u32>,
    /// Group of what is shown.
    pub gid: Option<u32>,
    /// Jobs whose directories have an owner or a mode of their own. An owner lets others in, as `uid` does.
    pub jobs: BTreeMap<Name, JobAccess>,
    /// Whether the kernel may read local files itself.
    pub passthrough: bool,
}

impl MountRequest {
    /// For us alone, with passthrough.
    #[must_use]
    pub fn new(mountpoint: impl Into<PathBuf>) -> Self {
        let (mountpoint, jobs) = (mountpoint.into(), BTreeMap::new());
        Self { mountpoint, allow_other: false, uid: None, gid: None, jobs, passthrough: true }
    }
}

struct Shared {
    point: PathBuf,
    /// Device of the mount, once it answers: tells it from another one at the same place.
    dev: OnceLock<u64>,
    counters: Arc<MountCounters>,
    /// Ends the connection should this process be killed.
    watcher: Mutex<Option<Watcher>>,
    ended: Mutex<Option<Result<(), String>>>,
    end: Condvar,
}

/// A living mount. Clones are the same mount; when the last one is dropped, it is unmounted.
#[derive(Clone)]
pub struct Mounted(Arc<Guard>);

impl std::fmt::Debug for Mounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mounted").field("point", &self.0.0.point).finish_non_exhaustive()
    }
}

struct Guard(Arc<Shared>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(e) = self.0.unmount() {
            log::error!("{e}");
        }
    }
}

/// Where a mount can be made, without links: a dead mount of ours is taken away, the place must be an empty directory.
///
/// # Errors
/// When the place is missing, no directory, not empty or mounted on. The message says what to do.
pub fn place(mountpoint: &Path) -> Result<PathBuf> {
    let healed = local_mount::heal(mountpoint)?;
    if healed > 0 {
        log::warn!("{} had a mount whose daemon had died: taken away", mountpoint.display());
    }
    // Before anything is mounted: afterwards the path leads into the mount.
    let point = mountpoint.canonicalize().map_err(|e| {
        let kind = if e.kind() == std::io::ErrorKind::NotFound { Kind::NotFound } else { Kind::Invalid };
        Error::with_source(
            kind,
            format!("cannot mount on {}: {e} (create an empty directory there)", mountpoint.display()),
            e,
        )
    })?;
    local_mount::check_point(&point)?;
    Ok(point)
}

/// Mounts a view. Returns when the mount answers. A dead mount of ours at the same place is taken away first.
///
/// # Errors
/// When the place is missing, no directory, not empty or mounted on; without `/dev/fuse` or permission. The message
/// says what to do.
pub fn mount(request: &MountRequest, view: View) -> Result<Mounted> {
    let point = place(&request.mountpoint)?;
    let failed = |what: &str, e: std::io::Error| {
        Error::with_source(Kind::Other, format!("cannot {what} for the mount on {}", request.mountpoint.display()), e)
    };
    let owned = request.jobs.values().any(|job| job.uid.is_some());
    let others = request.allow_other || request.uid.is_some() || owned;
    let options = MountOptions { allow_other: others, ..MountOptions::default() };
    let all = Owner {
        uid: request.uid.unwrap_or_else(process::euid),
        gid: request.gid.unwrap_or_else(process::egid),
        others,
    };
    let device = local_mount::mount_fuse(&point, &options)?;
    let counters = Arc::new(MountCounters::default());
    let (notes, to_tell) = notify::notes();
    let for_view = notes.clone();
    view.on_invalidation(move |i| {
        for_view.name(i.parent, i.name);
    });
    let inner = Inner {
        view,
        owners: Owners { all, jobs: request.jobs.clone() },
        names: Pool::new(counters.clone()),
        files: Pool::new(counters.clone()),
        handles: Handles::default(),
        modes: Modes::new(request.passthrough),
        notes: notes.clone(),
        counters: counters.clone(),
    };
    let shared = Arc::new(Shared {
        point,
        dev: OnceLock::new(),
        counters: counters.clone(),
        watcher: Mutex::new(None),
        ended: Mutex::new(None),
        end: Condvar::new(),
    });
    let begun = start(inner, device, to_tell, counters).and_then(|session| {
        let running = shared.clone();
        thread::Builder::new().name("ckptfs-session".to_owned()).spawn(move || running.run(session))?;
        // Through the kernel: then the mount works.
        std::fs::metadata(&shared.point)
    });
    match begun {
        Ok(root) => {
            let _ = shared.dev.set(root.dev());
            match Watcher::start(root.dev()) {
                Ok(watcher) => *shared.watcher.lock().unwrap_or_else(PoisonError::into_inner) = Some(watcher),
                Err(e) => {
                    log::info!("nobody ends the connection of {} should we be killed: {e}", shared.point.display());
                }
            }
            if let Err(e) = watchdog::start(&shared.point, &shared.counters) {
                log::info!("nobody looks whether {} still answers: {e}", shared.point.display());
            }
            Ok(Mounted(Arc::new(Guard(shared))))
        }
        Err(e) => {
            notes.end();
            let _ = local_mount::unmount(&shared.point, true);
            Err(failed("start the session", e))
        }
    }
}

fn start(
    inner: Inner,
    device: OwnedFd,
    to_tell: ToTell,
    counters: Arc<MountCounters>,
) -> std::io::Result<Session<Adapter>> {
    let mut config = Config::default();
    let cores = thread::available_parallelism().map_or(THREADS.0, std::num::NonZero::get);
    config.n_threads = Some(cores.clamp(THREADS.0, THREADS.1));
    config.clone_fd = true;
    // Who may do what, the kernel checks: by the mount's owner, and by `default_permissions`.
    config.acl = SessionACL::All;
    let session = Session::from_fd(Adapter(Arc::new(inner)), device, SessionACL::All, config)?;
    notify::start(to_tell, session.notifier(), counters)?;
    Ok(session)
}

impl Shared {
    fn run(&self, session: Session<Adapter>) {
        let result = match session.run() {
            // What a thread is told that was about to take a request (often the FORGET of an unmount) when the connection ended.
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionAborted => Ok(()),
            result => result.map_err(|e| e.to_string()),
        };
        if let Err(e) = &result {
            log::error!("the mount on {} ended: {e}", self.point.display());
        }
        drop(self.watcher.lock().unwrap_or_else(PoisonError::into_inner).take());
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.end.notify_all();
    }

    fn wait(&self, patience: Option<Duration>) -> Option<Result<(), String>> {
        let deadline = patience.map(|p| Instant::now() + p);
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = &*ended {
                return Some(result.clone());
            }
            ended = match deadline {
                None => self.end.wait(ended).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    self.end.wait_timeout(ended, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn is_mounted(&self) -> Result<bool> {
        Ok(mounts::mounted_at(&self.point)?.last().is_some_and(|top| self.dev.get() == Some(&top.dev)))
    }

    fn unmount(&self) -> Result<()> {
        if self.is_mounted()? {
            match local_mount::unmount(&self.point, false) {
                Ok(()) => {}
                Err(e) if e.kind() == Kind::Conflict => {
                    log::warn!(
                        "{} is in use: it is out of sight now, and gone when its last file is closed",
                        self.point.display()
                    );
                    local_mount::unmount(&self.point, true)?;
                }
                // Somebody else was faster.
                Err(_) if !self.is_mounted()? => {}
                Err(e) => return Err(e.into()),
            }
        }
        if self.wait(Some(FAREWELL)).is_none() {
            log::warn!("files of the mount on {} are still open", self.point.display());
        }
        Ok(())
    }
}

impl Mounted {
    /// Where it is mounted.
    #[must_use]
    pub fn point(&self) -> &Path {
        &self.0.0.point
    }

    /// What it counted so far.
    #[must_use]
    pub fn counters(&self) -> &Arc<MountCounters> {
        &self.0.0.counters
    }

    /// Waits until it was unmounted, by whomever.
    ///
    /// # Errors
    /// When the session broke instead.
    pub fn wait(&self) -> Result<()> {
        self.0.0.wait(None).unwrap_or(Ok(())).map_err(|e| {
            Error::new(Kind::Other, format!("the mount on {} broke: {e} (mount it again)", self.point().display()))
        })
    }

    /// Unmounts and waits a little for the session to end. While files are open, it is only taken out of sight; the
    /// kernel ends it after their last close, or when the process ends.
    ///
    /// # Errors
    /// When it cannot be unmounted.
    pub fn unmount(&self) -> Result<()> {
        self.0.0.unmount()
    }

    /// [`Mounted::wait`], and a SIGINT or SIGTERM unmounts. A second one ends the process at once. A SIGHUP does what `on_hangup` says; without
    /// it, it unmounts: the terminal is gone.
    ///
    /// # Errors
    /// As [`Mounted::wait`], or when signals cannot be caught.
    pub fn wait_or_signal(&self, on_hangup: Option<Box<dyn Fn() + Send>>) -> Result<()> {
        let failed = |e| {
            let point = self.point().display();
            let why = format!("cannot catch signals for the mount {point}: {}", remedied(&e));
            Error::with_source(Kind::Other, why, e)
        };
        let mut signals = Signals::catch(on_hangup.is_some()).map_err(failed)?;
        let shared = self.0.0.clone();
        thread::Builder::new()
            .name("ckptfs-signals".to_owned())
            .spawn(move || {
                loop {
                    match (signals.wait(), &on_hangup) {
                        (Ok(Asked::Hangup), Some(then)) => then(),
                        (Ok(_), _) => break,
                        (Err(e), _) => {
                            log::error!("cannot wait for signals: {e}");
                            return;
                        }
                    }
                }
                log::info!("asked to end: unmounting {}", shared.point.display());
                if let Err(e) = shared.unmount() {
                    log::error!("{e}");
                }
                // What still uses the mount goes on without us: open passthrough files can be read to their end.
                let mut ended = shared.ended.lock().unwrap_or_else(PoisonError::into_inner);
                ended.get_or_insert(Ok(()));
                shared.end.notify_all();
            })
            .map_err(failed)?;
        self.wait()
    }
}

/// What [`umount`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// A living mount ended, and its process with it.
    Ended,
    /// It was unmounted, but the process that served it goes on: files are open, or it does something else as well.
    Lingers,
    /// Only a dead mount was there.
    Healed,
}

/// How long a busy mount is tried again.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);

/// Unmounts what another process mounted, and waits for that process to end. `lazy`: also when files are open.
///
/// # Errors
/// When nothing of ours is mounted there, or it is in use.
pub fn umount(mountpoint: &Path, lazy: bool) -> Result<Unmounted> {
    if local_mount::heal(mountpoint)? > 0 {
        return Ok(Unmounted::Healed);
    }
    let shown = mountpoint.display();
    match mounts::mounted_at(mountpoint)?.last() {
        Some(top) if top.fs_type == local_mount::FS_TYPE => {}
        Some(top) => {
            let message =
                format!("cannot unmount {shown}: a {} is mounted there, not a ckptfs (use umount)", top.fs_type);
            return Err(Error::new(Kind::Invalid, message));
        }
        None => {
            let message = format!("cannot unmount {shown}: nothing is mounted there (see mount -t fuse.ckptfs)");
            return Err(Error::new(Kind::NotFound, message));
        }
    }
    let daemon = daemon_of(mountpoint);
    // Somebody who is just about to close is not worth an error.
    let begun = Instant::now();
    let unmounted = loop {
        match local_mount::unmount(mountpoint, lazy) {
            Err(e) if e.kind() == Kind::Conflict && begun.elapsed() < BUSY_PATIENCE => {
                thread::sleep(Duration::from_millis(20));
            }
            other => break other,
        }
    };
    unmounted.map_err(|e| {
        let in_use = e.kind() == Kind::Conflict;
        let e = Error::from(e);
        if in_use {
            e.context("files are open there (close them, fuser -vm shows by whom, or unmount lazily)")
        } else {
            e
        }
    })?;
    let Some(daemon) = daemon else { return Ok(Unmounted::Lingers) };
    let begun = Instant::now();
    while process::alive(daemon) {
        if daemon == std::process::id() || begun.elapsed() > DAEMON_PATIENCE {
            return Ok(Unmounted::Lingers);
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(Unmounted::Ended)
}

/// The process that serves a mount, as it says itself.
fn daemon_of(mountpoint: &Path) -> Option<u32> {
    let value = xattr::lget(mountpoint, "user.ckptfs.daemon").ok()??;
    std::str::from_utf8(&value).ok()?.parse().ok()
}
