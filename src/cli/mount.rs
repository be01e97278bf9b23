//! `mount`: shows a store's checkpoints as a read-only directory, in the foreground or as a daemon.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ckptfs::engine::Session;
use ckptfs::error::{Error, Kind, Result};
use ckptfs::fuse::{self, MountRequest, Mounted};
use ckptfs::local::no_thread;
use ckptfs::local::process::{self, ReadyPipe, Started};
use ckptfs::local::supervisor;
use ckptfs::status::{self, Server, Status};
use ckptfs::view::View;

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// An empty directory
    mountpoint: PathBuf,
    /// Go into the background once the mount answers
    #[arg(long)]
    daemon: bool,
    /// Let other users read everything
    #[arg(long)]
    allow_other: bool,
    /// Show everything as owned by this user; implies --allow-other
    #[arg(long)]
    uid: Option<u32>,
    /// Show everything as owned by this group
    #[arg(long)]
    gid: Option<u32>,
    #[command(flatten)]
    owners: super::owners::Args,
    /// Serve every read by the daemon instead of the kernel
    #[arg(long)]
    no_passthrough: bool,
    /// Fetch only what is read, and what lies ahead of a sequential reader; not the whole file behind it
    #[arg(long)]
    no_fetch_behind: bool,
    /// Show metrics and a status page here: a port of 127.0.0.1, or an address with a port
    #[arg(long, value_name = "ADDR", value_parser = words::listen)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    room: super::room::Args,
    /// Keep a checkpoint pinned so long after its last file was closed, against a sweep between two opens: 90s, 10m, 1h
    #[arg(long, value_name = "DURATION", value_parser = words::duration_ms, default_value = "10m")]
    pin_idle: u64,
}

/// How long a daemon may take to answer: a store's deadline and some more.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let ready = ReadyPipe::inherited();
    if args.daemon && ready.is_none() {
        return daemon(context, args);
    }
    match serve(context, args) {
        Ok(Serving { mounted, view, log, _status, _lock }) => {
            let is_daemon = ready.is_some();
            if let Some(ready) = ready {
                // A parent that went away does not matter to the mount.
                let _ = ready.ready();
            } else {
                words::tell(
                    context.quiet,
                    &format!("mounted at {}; Ctrl-C or `ckptfs umount` ends it", args.mountpoint.display()),
                );
            }
            supervised("READY=1\nSTATUS=mounted");
            // Logs that were moved away are begun anew.
            let on_hangup: Box<dyn Fn() + Send> = Box::new(move || match process::move_stderr(&log) {
                Ok(()) => log::warn!("told to begin a new log"),
                Err(e) => log::error!("the log goes on where it was: {e}"),
            });
            let ended = mounted.wait_or_signal(is_daemon.then_some(on_hangup));
            supervised("STOPPING=1");
            view.release_pins();
            ended?;
            Ok(Exit::Done)
        }
        Err(e) => {
            if let Some(ready) = ready {
                let _ = ready.failed(&format!("{e:#}"));
            }
            Err(e)
        }
    }
}

/// Tells a supervisor, where there is one. The mount does not depend on it.
fn supervised(words: &str) {
    if let Err(e) = supervisor::tell(words) {
        log::warn!("the supervisor is not told: {e}");
    }
}

/// What lives as long as the mount.
struct Serving {
    mounted: Mounted,
    view: View,
    /// Where a daemon's words go.
    log: PathBuf,
    _status: Option<Server>,
    _lock: ckptfs::local::lock::FileLock,
}

fn serve(context: &Context, args: &Args) -> Result<Serving> {
    let jobs = args.owners.access()?;
    // Before a cache is made for a mount that cannot be.
    fuse::place(&args.mountpoint)?;
    let session = Session::open(&context.options())?;
    let lock = session.cache.daemon_lock()?;
    if let Err(e) = process::raise_open_files(1 << 20) {
        log::info!("the limit on open files stays as it is: {e}");
    }
    let request = MountRequest {
        mountpoint: args.mountpoint.clone(),
        allow_other: args.allow_other,
        uid: args.uid,
        gid: args.gid,
        jobs,
        passthrough: !args.no_passthrough,
    };
    if args.no_fetch_behind {
        session.cache.no_fetch_behind();
    }
    args.room.apply(&session.cache)?;
    session.cache.keep_room().map_err(no_thread)?;
    let view = View::of_session(&session);
    let mounted = fuse::mount(&request, view.clone())?;
    view.keep_pins(Duration::from_millis(args.pin_idle)).map_err(no_thread)?;
    let shown = status::Mount { point: mounted.point().to_owned(), counters: Arc::clone(mounted.counters()) };
    let listen = |at| Server::start(at, Status::new(&session, Some(shown))?);
    let status = args.listen.map(listen).transpose()?;
    if let Some(server) = &status {
        words::tell(context.quiet, &format!("status page at http://{}/", server.address()));
    }
    let log = session.cache.path().join(LOG);
    Ok(Serving { mounted, view, log, _status: status, _lock: lock })
}

/// Starts this program anew, detached, and waits for its word.
fn daemon(context: &Context, args: &Args) -> Result<Exit> {
    let fail = |what: &str, e: std::io::Error| Error::with_source(Kind::Other, format!("cannot {what}: {e}"), e);
    let exe = std::env::current_exe().map_err(|e| fail("find the program itself", e))?;
    let absolute = |p: &Path| std::path::absolute(p).map_err(|e| fail("resolve a path", e));
    args.owners.access()?;
    // The child runs in `/`: every path must be absolute.
    let mut command: Vec<OsString> = Vec::new();
    let mut push = |items: &[OsString]| command.extend_from_slice(items);
    if let Some(store) = &context.store {
        let store =
            if store.contains("://") { store.clone().into() } else { absolute(Path::new(store))?.into_os_string() };
        push(&["--store".into(), store]);
    }
    if let Some(cache) = &context.cache {
        push(&["--cache".into(), absolute(cache)?.into_os_string()]);
    }
    if let Some(file) = &context.key_file {
        push(&["--key-file".into(), absolute(file)?.into_os_string()]);
    }
    for _ in 0..context.verbose {
        push(&["--verbose".into()]);
    }
    if context.allow_unsafe_file_system {
        push(&["--allow-unsafe-file-system".into()]);
    }
    push(&context.rates.again().into_iter().map(OsString::from).collect::<Vec<_>>());
    push(&["mount".into(), "--daemon".into()]);
    if let Some(at) = args.listen {
        push(&["--listen".into(), at.to_string().into()]);
    }
    if args.allow_other {
        push(&["--allow-other".into()]);
    }
    if args.no_passthrough {
        push(&["--no-passthrough".into()]);
    }
    if args.no_fetch_behind {
        push(&["--no-fetch-behind".into()]);
    }
    for (flag, value) in [("--uid", args.uid), ("--gid", args.gid)] {
        if let Some(value) = value {
            push(&[flag.into(), value.to_string().into()]);
        }
    }
    push(&args.owners.again().into_iter().map(OsString::from).collect::<Vec<_>>());
    push(&args.room.again().into_iter().map(OsString::from).collect::<Vec<_>>());
    push(&["--pin-idle".into(), format!("{}ms", args.pin_idle).into()]);
    push(&[absolute(&args.mountpoint)?.into_os_string()]);
    fuse::place(&args.mountpoint)?;
    let session_log = log_file(context)?;
    let child = process::spawn_detached(&exe, &command, session_log.as_ref().map(|(f, _)| f))?;
    let pid = child.pid;
    let log = session_log.map(|(_, path)| path);
    let see = log.as_ref().map(|p| format!(" (its words are in {})", p.display())).unwrap_or_default();
    match child.wait(PATIENCE).map_err(|e| fail("hear from the daemon", e))? {
        Started::Ready => {
            words::tell(
                context.quiet,
                &format!("mounted at {}, served by process {pid}{see}", args.mountpoint.display()),
            );
            if let Some(at) = args.listen.filter(|at| at.port() != 0) {
                words::tell(context.quiet, &format!("status page at http://{at}/"));
            }
            Ok(Exit::Done)
        }
        Started::Failed(message) => Err(Error::new(Kind::Other, message)),
        Started::Died => Err(Error::new(Kind::Other, format!("the daemon ended without a word{see}"))),
        Started::Silent => {
            let _ = process::terminate(pid);
            Err(Error::new(Kind::Unavailable, format!("the mount did not answer within {} s{see}", PATIENCE.as_secs())))
        }
    }
}

/// A daemon's words, in the cache.
const LOG: &str = "daemon.log";

/// The daemon's words go there.
fn log_file(context: &Context) -> Result<Option<(std::fs::File, PathBuf)>> {
    let session = Session::open(&context.options())?;
    let path = session.cache.path().join(LOG);
    match process::open_log(&path) {
        Ok(file) => Ok(Some((file, path))),
        Err(e) => {
            log::warn!("the daemon's words are lost: {e}");
            Ok(None)
        }
    }
}
