//! Looks whether the mount still answers, through the kernel as any reader does, and says why not. A supervisor that wants signs of life
//! gets them only while it does: then a mount that hangs is begun anew.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::local::supervisor;
use crate::metrics::MountCounters;

/// Time between two looks where no supervisor wants them more often.
const ROUND: Duration = Duration::from_secs(10);

/// A look that takes longer is worth a line in the log: attributes of the root never wait for the store.
const SOON: Duration = Duration::from_secs(5);

/// Begins to look. Ends with the mount.
pub(super) fn start(point: &Path, counters: &Arc<MountCounters>) -> std::io::Result<()> {
    let (point, counters) = (point.to_owned(), Arc::downgrade(counters));
    let wanted = supervisor::sign_of_life();
    // Twice as often as is wanted, as sd_watchdog_enabled(3) advises.
    let round = wanted.map_or(ROUND, |every| (every / 2).clamp(Duration::from_millis(10), ROUND));
    thread::Builder::new()
        .name("ckptfs-watchdog".to_owned())
        .spawn(move || run(&point, &counters, round, wanted.is_some()))
        .map(drop)
}

fn run(point: &Path, counters: &Weak<MountCounters>, round: Duration, tells: bool) {
    let mut silent_since: Option<Instant> = None;
    // One look at a time: one that hangs stays, and is waited for on.
    let mut looking: Option<mpsc::Receiver<std::io::Result<()>>> = None;
    while let Some(mount) = counters.upgrade() {
        let answer = match looking.take().map_or_else(|| look(point.to_owned()), Ok) {
            Ok(answer) => answer,
            Err(e) => {
                log::warn!("the mount is not looked at: no thread can be started ({e})");
                thread::sleep(round);
                continue;
            }
        };
        match answer.recv_timeout(SOON.min(round)) {
            Err(RecvTimeoutError::Timeout) => {
                let since = *silent_since.get_or_insert_with(Instant::now);
                let (waiting, deadlines) = (mount.waiting.get(), mount.deadlines.get());
                log::error!(
                    "{} has not answered for {} s: {waiting} requests wait for the store, {deadlines} were given up so far. \
                     `ckptfs umount` ends it whatever it waits for",
                    point.display(),
                    since.elapsed().saturating_add(SOON.min(round)).as_secs()
                );
                looking = Some(answer);
                continue;
            }
            Ok(Ok(())) => {
                if let Some(since) = silent_since.take() {
                    log::warn!("{} answers again, after {} s", point.display(), since.elapsed().as_secs());
                }
                if tells && let Err(e) = supervisor::tell("WATCHDOG=1") {
                    log::warn!("the supervisor gets no sign of life: {e}");
                }
            }
            // It was unmounted, or its connection ended: whoever waits for the mount knows by now.
            Ok(Err(e)) => log::debug!("{}: {e}", point.display()),
            Err(RecvTimeoutError::Disconnected) => {}
        }
        drop(mount);
        thread::sleep(round);
    }
}

/// Asks for what never waits for the store, in a thread of its own: it may hang for ever.
fn look(point: PathBuf) -> std::io::Result<mpsc::Receiver<std::io::Result<()>>> {
    let (answer, answered) = mpsc::channel();
    let look = move || drop(answer.send(std::fs::metadata(&point).map(drop)));
    thread::Builder::new().name("ckptfs-look".to_owned()).spawn(look)?;
    Ok(answered)
}
