//! How much of the disk a cache may take: by what its files really have there, and by what must stay free on the disk, in bytes and in
//! inodes.
//!
//! Whoever fills the cache keeps to it: the daemon all the time ([`Cache::keep_room`]), other verbs when they end
//! ([`Cache::make_room`]). The limits lie in the cache, so that all of them keep the same ones.

use std::io::Write;
use std::sync::{PoisonError, Weak};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::error::{CacheError, Result};
use super::open::FILE_MODE;
use super::{Cache, Evicted, Inner};
use crate::limits::{CACHE_FREE, CACHE_FREE_PART, CACHE_RECORD_LEN, CACHE_SLACK};
use crate::local::process::{self, Room};
use crate::local::{Durability, dir};
use crate::types::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

const LIMITS: &str = "limits.json";

/// Held by who makes room: two that measure the same excess would evict it twice.
const LOCK: &str = "room.lock";

/// How often the daemon looks at least: other processes fill the cache too, and a database that deletes its own name of a linked file
/// leaves it to us.
const ROUND: Duration = Duration::from_secs(60);

/// How soon the daemon looks again while the cache is over its limit.
const SOON: Duration = Duration::from_secs(1);

/// How often a process looks at most that only adds to the cache now and then: a look costs a system call per file.
const PAUSE: Duration = Duration::from_secs(5);

/// What a cache may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CacheLimits {
    /// Bytes on the disk of all its files that have no other name. Nothing: as much as there is.
    pub size: Option<u64>,
    /// Bytes that must stay free on the disk. Nothing: a twentieth of it, at most 10 GiB.
    pub free: Option<u64>,
}

/// What has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Over {
    pub(super) bytes: u64,
    pub(super) files: u64,
}

impl Over {
    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// What is known of the room that is taken.
#[derive(Debug)]
pub(super) struct Taken {
    limits: Mutex<CacheLimits>,
    /// When the files were last looked at: their bytes, and those of them that nobody used for a while.
    used: AtomicU64,
    stale: AtomicU64,
    /// Written since, and how much may be before one of the limits is reached.
    written: AtomicU64,
    headroom: AtomicU64,
    tidied: Mutex<Option<Instant>>,
    bell: Mutex<bool>,
    ring: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that must stay free on a disk.
fn free_floor(limits: CacheLimits, room: &Room) -> u64 {
    limits.free.unwrap_or_else(|| (room.total / CACHE_FREE_PART).min(CACHE_FREE))
}

/// What must go so that both limits hold.
pub(super) fn over(limits: CacheLimits, used: u64, room: &Room) -> Over {
    let size = limits.size.map_or(0, |size| used.saturating_sub(size));
    let free = free_floor(limits, room).saturating_sub(room.available).min(used);
    // A disk that counts no inodes has none to run out of.
    let files = (room.inodes / CACHE_FREE_PART).saturating_sub(room.free_inodes);
    Over { bytes: size.max(free), files }
}

impl Taken {
    pub(super) fn new(limits: CacheLimits) -> Self {
        Self {
            limits: Mutex::new(limits),
            used: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            written: AtomicU64::new(0),
            // Until somebody looked.
            headroom: AtomicU64::new(limits.size.unwrap_or(CACHE_SLACK).min(CACHE_SLACK)),
            tidied: Mutex::default(),
            bell: Mutex::default(),
            ring: Condvar::new(),
        }
    }

    fn limits(&self) -> CacheLimits {
        *lock(&self.limits)
    }

    fn now(&self) -> u64 {
        self.used.load(Ordering::Relaxed).saturating_add(self.written.load(Ordering::Relaxed))
    }

    /// Notes bytes that were written into the cache.
    pub(super) fn add(&self, bytes: u64) {
        let written = self.written.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if written > self.headroom.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Waits for the bell. Whether it rang, also long ago.
    fn wait(&self, most: Duration) -> bool {
        let (mut rung, _) =
            self.ring.wait_timeout_while(lock(&self.bell), most, |rung| !*rung).unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *rung)
    }

    fn is_over(&self) -> bool {
        self.limits().size.is_some_and(|size| self.now() > size)
    }

    fn wake(&self) {
        *lock(&self.bell) = true;
        self.ring.notify_all();
    }

    /// Whether what is read in parts may still be kept. Somewhat over its limit a cache keeps nothing more until room was made.
    pub(super) fn may_keep(&self) -> bool {
        self.limits().size.is_none_or(|size| self.now() <= size.saturating_add(CACHE_SLACK.max(size / 8)))
    }

    /// Notes what a look at all files found, before which so much had been written, and what is free beyond what must be.
    pub(super) fn saw(&self, used: u64, stale: u64, written: u64, free: u64) {
        self.used.store(used, Ordering::Relaxed);
        self.stale.store(stale, Ordering::Relaxed);
        let size = self.limits().size.map_or(u64::MAX, |size| size.saturating_sub(used));
        self.headroom.store(size.min(free), Ordering::Relaxed);
        // What came while files were looked at may be counted twice: that only makes us look again sooner.
        self.written.fetch_sub(written, Ordering::Relaxed);
    }
}

impl Cache {
    /// What it may take.
    #[must_use]
    pub fn limits(&self) -> CacheLimits {
        self.inner.taken.limits()
    }

    /// Sets what it may take, for this process and all after it. A daemon that serves it now learns of it within seconds.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn set_limits(&self, limits: CacheLimits) -> Result<()> {
        let inner = &*self.inner;
        let text = serde_json::to_vec(&limits).map_err(|e| CacheError::io(&inner.path, "note its limits", e.into()))?;
        let write = |file: &mut std::fs::File| {
            inner.adopt(file)?;
            file.write_all(&text)
        };
        // Told to a person once, and kept from then on: after a power cut too.
        let kept = inner.root.publish_replace(LIMITS, write, FILE_MODE, Durability::Full);
        kept.map_err(|e| inner.failed(LIMITS, 0, e))?;
        *lock(&inner.taken.limits) = limits;
        inner.taken.wake();
        Ok(())
    }

    /// Evicts what was not used for longest until the limits hold. What anybody has open stays; of files that are read in parts the bytes
    /// go, also while they are open. The disk's own state is looked at, not what was counted. Nothing: there is no limit of size, and
    /// the disk has what must stay free, so that no file was looked at; or another process is at it.
    ///
    /// # Errors
    /// When the cache cannot be listed or changed. What was evicted before stays so.
    pub fn make_room(&self) -> Result<Option<Evicted>> {
        self.inner.make_room()
    }

    /// [`Cache::make_room`] after work that stands whatever comes of it; not more often than every few seconds.
    pub fn tidy(&self) {
        // Who does it now does it for us.
        let Ok(mut last) = self.inner.taken.tidied.try_lock() else { return };
        if last.is_none_or(|last| last.elapsed() >= PAUSE) {
            self.inner.tidy();
            *last = Some(Instant::now());
        }
    }

    /// Makes room all the time from now on, by a thread that ends with the cache.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn keep_room(&self) -> std::io::Result<()> {
        let inner = std::sync::Arc::downgrade(&self.inner);
        std::thread::Builder::new().name("ckptfs-room".to_owned()).spawn(move || keep(&inner)).map(drop)
    }
}

fn keep(cache: &Weak<Inner>) {
    let mut again = Duration::ZERO;
    while let Some(inner) = cache.upgrade() {
        let began = Instant::now();
        inner.learn_limits();
        inner.tidy();
        if let Err(e) = inner.save_uses() {
            log::debug!("{e}");
        }
        // What was open may be closed soon; what stays open is not looked at all the time.
        again = if inner.taken.is_over() { again.saturating_mul(2).clamp(SOON, ROUND) } else { Duration::ZERO };
        let most = if again.is_zero() { ROUND } else { again };
        // However often the bell rings, looking takes at most a tenth of the time.
        let least = began.elapsed().saturating_mul(9).max(Duration::from_millis(20));
        drop(inner);
        let began = Instant::now();
        while began.elapsed() < most {
            // The cache must be able to end while we wait.
            let Some(inner) = cache.upgrade() else { return };
            if inner.taken.wait(SOON.min(most)) || inner.learn_limits() {
                drop(inner);
                std::thread::sleep(least.saturating_sub(began.elapsed()));
                break;
            }
        }
    }
}

/// The limits that lie in a cache.
pub(super) fn read_limits(root: &dir::Dir) -> std::io::Result<CacheLimits> {
    use std::io::Read;
    let file = match root.open_file(LIMITS) {
        Ok(file) => file,
        Err(e) if e.is_not_found() => return Ok(CacheLimits::default()),
        Err(e) => return Err(std::io::Error::other(e)),
    };
    let mut text = Vec::new();
    file.take(CACHE_RECORD_LEN as u64).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

impl Inner {
    pub(super) fn room(&self) -> Result<Room> {
        process::room_of(&self.root).map_err(|e| CacheError::io(&self.path, "look at its disk", e))
    }

    /// Whether a file can be fetched behind without driving out what is in use.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        let limits = self.taken.limits();
        let stale = self.taken.stale.load(Ordering::Relaxed);
        let size = limits.size.is_none_or(|size| self.taken.now().saturating_sub(stale).saturating_add(bytes) <= size);
        // A disk that cannot be asked will refuse by itself.
        let free = |room: Room| room.available.saturating_add(stale) >= free_floor(limits, &room).saturating_add(bytes);
        size && self.room().map_or(true, free)
    }

    /// Takes over what another process set. Whether that is anything new.
    fn learn_limits(&self) -> bool {
        match read_limits(&self.root) {
            Ok(limits) => std::mem::replace(&mut *lock(&self.taken.limits), limits) != limits,
            Err(e) => {
                log::debug!("{}: its limits cannot be read ({e}), those from before hold", self.path.display());
                false
            }
        }
    }

    fn tidy(&self) {
        match self.make_room() {
            Ok(Some(done)) if done.files > 0 => log::info!("{done}"),
            Ok(_) => {}
            Err(e) => log::warn!("no room could be made in the cache: {e}"),
        }
    }

    pub(super) fn make_room(&self) -> Result<Option<Evicted>> {
        let Some(_lock) = self.lock(&self.root, LOCK)? else { return Ok(None) };
        let written = self.taken.written.load(Ordering::Relaxed);
        let (limits, room) = (self.taken.limits(), self.room()?);
        let free = |room: &Room| room.available.saturating_sub(free_floor(limits, room));
        if limits.size.is_none() && over(limits, u64::MAX, &room).is_none() {
            self.taken.saw(0, 0, written, free(&room));
            return Ok(None);
        }
        let mut held = self.held()?;
        self.use_open(&mut held)?;
        let over = over(limits, held.bytes, &room);
        let done = self.evict(&mut held, over)?;
        self.taken.saw(done.left, held.stale(), written, free(&room).saturating_add(done.bytes));
        self.counters.evicted_files.add(done.files);
        self.save_uses()?;
        Ok(Some(done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_go_is_the_most_that_a_limit_asks_for() {
        let gib = 1 << 30;
        let room = |available, free_inodes| Room { total: 400 * gib, available, inodes: 1000, free_inodes };
        let limits = |size, free| CacheLimits { size, free };
        let over = |l, used, r: &Room| {
            let o = super::over(l, used, r);
            (o.bytes, o.files)
        };
        assert_eq!(over(limits(None, None), 50 * gib, &room(10 * gib, 900)), (0, 0));
        assert_eq!(over(limits(None, None), 50 * gib, &room(7 * gib, 900)), (3 * gib, 0));
        // What is not ours cannot be freed by us.
        assert_eq!(over(limits(None, None), gib, &room(0, 900)), (gib, 0));
        assert_eq!(over(limits(Some(20 * gib), Some(0)), 50 * gib, &room(0, 50)), (30 * gib, 0));
        assert_eq!(over(limits(Some(20 * gib), Some(gib)), 21 * gib, &room(gib / 2, 900)), (gib, 0));
        assert_eq!(over(limits(None, Some(0)), gib, &room(gib, 7)), (0, 43));
        assert_eq!(over(limits(None, Some(0)), gib, &Room { inodes: 0, free_inodes: 0, ..room(gib, 0) }), (0, 0));
    }
}
