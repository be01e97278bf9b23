//! Pins: while a file of a checkpoint is open here, and some minutes more, no sweep takes its blobs.
//!
//! The first open of a file that is a checkpoint's own waits for the pin (RocksDB always opens CURRENT first); a blob that is opened
//! without that gets the newest checkpoint that names it pinned behind it. One pin per checkpoint, however many files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::error::ViewError;
use super::node::{Blob, Checkpoint};
use super::{Core, View};
use crate::error::Kind;
use crate::lifecycle::PinRef;
use crate::types::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};
use crate::types::{CheckpointNumber, Name};

/// How long an answer other than an own pin is believed: another's pin may end, a store that was silent may answer.
const BELIEVED: Duration = Duration::from_secs(60);

/// How often idle pins are looked for at least.
const ROUND: Duration = Duration::from_secs(30);

type At = (Name, CheckpointNumber);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
enum State {
    #[default]
    Unknown,
    /// By a pin of this mount.
    Held(PinRef),
    /// Not by us: it is dead and another one's pin holds it, or we may not pin, or could not.
    Admitted,
}

struct Slot {
    state: State,
    used: Instant,
}

impl Default for Slot {
    fn default() -> Self {
        Self { state: State::Unknown, used: Instant::now() }
    }
}

/// Wakes the keeper.
#[derive(Default)]
struct Bell {
    rung: Mutex<(bool, bool)>,
    condvar: Condvar,
}

impl Bell {
    fn ring(&self, end: bool) {
        let mut rung = lock(&self.rung);
        (rung.0, rung.1) = (true, rung.1 || end);
        self.condvar.notify_all();
    }

    /// False at the end.
    fn wait(&self, most: Duration) -> bool {
        let (mut rung, _) = self
            .condvar
            .wait_timeout_while(lock(&self.rung), most, |(rung, end)| !*rung && !*end)
            .unwrap_or_else(PoisonError::into_inner);
        rung.0 = false;
        !rung.1
    }
}

/// The pins of a view.
#[derive(Default)]
pub(super) struct Pins {
    slots: Mutex<BTreeMap<At, Arc<Mutex<Slot>>>>,
    wanted: Mutex<BTreeSet<At>>,
    bell: Arc<Bell>,
    told: AtomicBool,
    missed: AtomicU64,
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.bell.ring(true);
    }
}

impl Pins {
    fn slot(&self, at: &At) -> Arc<Mutex<Slot>> {
        lock(&self.slots).entry(at.clone()).or_default().clone()
    }
}

impl Core {
    /// Whether a checkpoint needs no pin before it is read. Never waits.
    pub(super) fn is_pinned(&self, checkpoint: &Checkpoint) -> bool {
        let slot = lock(&self.pins.slots).get(&(checkpoint.job.clone(), checkpoint.number)).cloned();
        slot.is_some_and(|slot| slot.try_lock().is_ok_and(|slot| !slot.is_due()))
    }

    /// Pins a checkpoint before it is read. Those who come at once wait for the same pin.
    pub(super) fn pin(&self, job: &Name, number: CheckpointNumber) -> Result<(), ViewError> {
        let slot = self.pins.slot(&(job.clone(), number));
        let mut slot = lock(&slot);
        if !slot.is_due() {
            return Ok(());
        }
        slot.used = Instant::now();
        slot.state = match self.source.pin(job, number) {
            Ok(Some(pin)) => State::Held(pin),
            Ok(None) => State::Admitted,
            // Dead. What another one's pin keeps can be read all the same.
            Err(e) if e.kind() == Kind::NotFound => {
                let listed = self.known_job(job.as_str()).map(|job| self.fresh_job(&job)).transpose();
                match listed.map(|state| state.is_some_and(|s| s.can_be_read(number))) {
                    Ok(false) => return Err(ViewError::NotFound),
                    Ok(true) => State::Admitted,
                    Err(e) => self.admit(job, number, &e),
                }
            }
            Err(e) => self.admit(job, number, &e),
        };
        slot.used = Instant::now();
        Ok(())
    }

    /// A store that is silent or takes no pin is no reason not to read what is here.
    fn admit(&self, job: &Name, number: CheckpointNumber, e: &ViewError) -> State {
        self.pins.missed.fetch_add(1, Ordering::Relaxed);
        if !self.pins.told.swap(true, Ordering::Relaxed) {
            log::warn!(
                "{job}/{number} is read without a pin: if it expires meanwhile, a sweep takes what is not local yet ({e}). Further ones are only counted"
            );
        }
        State::Admitted
    }

    /// A file by content was opened: somebody should hold what it is of.
    pub(super) fn want_pin(&self, blob: &Blob) {
        let names = blob.names();
        if names.iter().any(|name| self.is_pinned(&name.task.checkpoint)) {
            return;
        }
        if let Some(newest) = names.iter().map(|n| &n.task.checkpoint).max_by_key(|c| c.manifest.completed_ms) {
            lock(&self.pins.wanted).insert((newest.job.clone(), newest.number));
            self.pins.bell.ring(false);
        }
    }

    fn in_use(&self, (job, number): &At) -> bool {
        self.known_job(job.as_str()).is_some_and(|job| job.made(*number).is_some_and(|d| d.checkpoint.in_use()))
    }

    /// One round: pins what is wanted, lets go what was idle for so long.
    pub(super) fn tend_pins(&self, idle: Duration) {
        for (job, number) in std::mem::take(&mut *lock(&self.pins.wanted)) {
            if let Err(e) = self.pin(&job, number) {
                log::debug!("{job}/{number} is not pinned: {e}");
            }
        }
        let slots: Vec<_> = lock(&self.pins.slots).iter().map(|(at, slot)| (at.clone(), slot.clone())).collect();
        for (at, slot) in slots {
            let mut slot = lock(&slot);
            if self.in_use(&at) {
                slot.used = Instant::now();
            } else if slot.used.elapsed() >= idle && !self.let_go(&at, &mut slot) {
                // Each try may last as long as a deadline.
                break;
            }
        }
    }

    fn let_go(&self, (job, number): &At, slot: &mut Slot) -> bool {
        if let State::Held(pin) = &slot.state
            && let Err(e) = self.source.unpin(pin)
        {
            log::info!("the pin of {job}/{number} stays for now: {e}");
            return false;
        }
        slot.state = State::Unknown;
        true
    }

    /// What a daemon before left: as if its last file had just been closed.
    fn adopt_pins(&self) -> Result<(), ViewError> {
        for pin in self.source.own_pins()? {
            let slot = self.pins.slot(&(pin.job.clone(), pin.number));
            let mut slot = lock(&slot);
            match &slot.state {
                State::Held(held) if *held == pin => {}
                State::Held(_) => self.source.unpin(&pin)?,
                State::Unknown | State::Admitted => *slot = Slot { state: State::Held(pin), used: Instant::now() },
            }
        }
        Ok(())
    }
}

impl Slot {
    /// Whether the store must be asked.
    fn is_due(&self) -> bool {
        match self.state {
            State::Held(_) => false,
            State::Admitted => self.used.elapsed() >= BELIEVED,
            State::Unknown => true,
        }
    }
}

fn keep(core: &Weak<Core>, bell: &Bell, idle: Duration) {
    let mut adopted = false;
    loop {
        if let Some(core) = core.upgrade() {
            if !adopted {
                match core.adopt_pins() {
                    Ok(()) => adopted = true,
                    Err(e) => log::info!("pins of an earlier mount with this cache stay for now: {e}"),
                }
            }
            core.tend_pins(idle);
        } else {
            return;
        }
        if !bell.wait(ROUND.min(idle.max(Duration::from_millis(50)))) {
            return;
        }
    }
}

impl View {
    /// Takes over the pins that an earlier mount with the same cache left, and from now on lets pins go that were idle for so long.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn keep_pins(&self, idle: Duration) -> std::io::Result<()> {
        let (core, bell) = (Arc::downgrade(&self.0), self.0.pins.bell.clone());
        thread::Builder::new().name("ckptfs-pins".to_owned()).spawn(move || keep(&core, &bell, idle)).map(drop)
    }

    /// Lets all pins go whose files are closed: at the end of a mount.
    pub fn release_pins(&self) {
        self.0.tend_pins(Duration::ZERO);
    }

    /// Checkpoints that were read without a pin, since the store did not take one.
    #[must_use]
    pub fn pins_missed(&self) -> u64 {
        self.0.pins.missed.load(Ordering::Relaxed)
    }
}
