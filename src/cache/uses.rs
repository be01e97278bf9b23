//! When files were last used: a hint for eviction, kept from one process to the next, neither locked nor synced.

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::PoisonError;
use std::time::{SystemTime, UNIX_EPOCH};

use super::error::{CacheError, Result};
use super::open::FILE_MODE;
use super::{Cache, Inner};
use crate::limits;
use crate::local::Durability;
use crate::types::Digest;
use crate::types::sync::MutexGuard;

const USES: &str = "uses";

/// A digest and seconds since 1970, little-endian.
const USE_LEN: usize = 32 + 8;

/// Last uses in seconds since 1970, as this process saw them.
#[derive(Debug, Default)]
pub(super) struct Uses {
    last: HashMap<Digest, u64>,
    /// Since they were written down.
    changed: bool,
}

/// Seconds since 1970. They decide nothing but which file goes first.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

impl Cache {
    /// Writes down when files were last used, for the processes after this one.
    ///
    /// # Errors
    /// When the disk refuses. Nothing depends on it.
    pub fn save_uses(&self) -> Result<()> {
        self.inner.save_uses()
    }
}

impl Inner {
    pub(super) fn save_uses(&self) -> Result<()> {
        if !std::mem::take(&mut self.uses().changed) {
            return Ok(());
        }
        let mut uses: Vec<(Digest, u64)> = self.load_uses()?.into_iter().collect();
        uses.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
        uses.truncate(limits::USES);
        let write = |file: &mut std::fs::File| {
            self.adopt(file)?;
            let mut out = std::io::BufWriter::new(file);
            for (digest, at) in &uses {
                out.write_all(digest.as_bytes())?;
                out.write_all(&at.to_le_bytes())?;
            }
            out.flush()
        };
        self.root.publish_replace(USES, write, FILE_MODE, Durability::None).map_err(|e| self.failed(USES, 0, e))
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a file is used now.
    pub(super) fn touch(&self, digest: &Digest) {
        let mut uses = self.uses();
        if uses.last.len() >= limits::USES {
            uses.last.clear();
        }
        uses.last.insert(*digest, now());
        uses.changed = true;
    }

    pub(super) fn forget_use(&self, digest: &Digest) {
        self.uses().last.remove(digest);
    }

    /// What is written down and what this process saw, the later of both.
    pub(super) fn load_uses(&self) -> Result<HashMap<Digest, u64>> {
        let mut known = self.uses().last.clone();
        let file = match self.root.open_file(USES) {
            Ok(file) => file,
            Err(e) if e.is_not_found() => return Ok(known),
            Err(e) => return Err(e.into()),
        };
        let mut offset = 0_u64;
        let mut buffer = vec![0; USE_LEN * 4096];
        for _ in 0..limits::USES.div_ceil(4096) {
            let n = file.read_at(&mut buffer, offset).map_err(|e| CacheError::io(&self.path, "read its uses", e))?;
            for entry in buffer.get(..n).unwrap_or_default().chunks_exact(USE_LEN) {
                let (Some(digest), Some(at)) = (entry.first_chunk::<32>(), entry.last_chunk::<8>()) else { continue };
                let at = u64::from_le_bytes(*at);
                let last = known.entry(Digest::from_bytes(*digest)).or_insert(at);
                *last = (*last).max(at);
            }
            if n < buffer.len() {
                break;
            }
            offset = offset.saturating_add(n as u64);
        }
        Ok(known)
    }
}
