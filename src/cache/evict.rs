//! Makes room: the files that were not used for longest go first. Counted are real blocks; a file that has another
//! name as well costs nothing here, and unlinking it would free nothing.

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::{MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::error::{CacheError, Result};
use super::open::FILE_MODE;
use super::{Cache, Inner};
use crate::limits;
use crate::local::{Dir, Durability, FileKind, FileStat};
use crate::types::Digest;

/// When files were last used, from one process to the next. A hint, so it is neither locked nor synced.
const USES: &str = "uses";

/// A digest and seconds since 1970, little-endian.
const USE_LEN: usize = 32 + 8;

/// Bytes of a block in a file's attributes.
const BLOCK: u64 = 512;

/// When files were last used, in seconds since 1970. Only eviction asks.
#[derive(Debug, Default)]
pub(super) struct Uses {
    last: HashMap<Digest, u64>,
}

/// What an eviction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evicted {
    /// Files that were unlinked.
    pub files: u64,
    /// Bytes on the disk that they had.
    pub bytes: u64,
    /// Bytes on the disk that what is left has, without files that have other names.
    pub left: u64,
}

/// A file that could go.
struct Candidate {
    digest: Digest,
    stat: FileStat,
    used: u64,
}

impl Cache {
    /// Unlinks files until those that are left take at most `limit` bytes on the disk, least recently used first. What `keep` says yes to
    /// stays, as do files that have other names (they count as nothing).
    ///
    /// # Errors
    /// When the cache cannot be listed or changed. What was unlinked before stays so.
    pub fn evict_to(&self, limit: u64, keep: &dyn Fn(&Digest) -> bool) -> Result<Evicted> {
        let inner = &*self.inner;
        let known = inner.load_uses()?;
        let mut candidates = Vec::new();
        let mut left = 0_u64;
        inner.for_each(|_, digest, stat| {
            if stat.nlink <= 1 {
                left = left.saturating_add(stat.blocks.saturating_mul(BLOCK));
                // Never used that anybody knows of: since it was made.
                let made = stat.btime.unwrap_or(stat.mtime).0;
                let used = known.get(&digest).copied().unwrap_or_else(|| u64::try_from(made).unwrap_or_default());
                candidates.push(Candidate { digest, stat, used });
            }
            Ok(())
        })?;
        candidates.sort_by_key(|c| (c.used, c.digest));
        let mut done = Evicted { left, ..Evicted::default() };
        for candidate in &candidates {
            if done.left <= limit {
                break;
            }
            if !keep(&candidate.digest) && inner.evict(candidate)? {
                let bytes = candidate.stat.blocks.saturating_mul(BLOCK);
                done.files = done.files.saturating_add(1);
                done.bytes = done.bytes.saturating_add(bytes);
                done.left = done.left.saturating_sub(bytes);
            }
        }
        inner.counters.evicted_files.add(done.files);
        self.save_uses()?;
        Ok(done)
    }

    /// Bytes on the disk that the complete files take, without those that have other names.
    ///
    /// # Errors
    /// When the cache cannot be listed.
    pub fn used_bytes(&self) -> Result<u64> {
        let mut sum = 0_u64;
        self.inner.for_each(|_, _, stat| {
            if stat.nlink <= 1 {
                sum = sum.saturating_add(stat.blocks.saturating_mul(BLOCK));
            }
            Ok(())
        })?;
        Ok(sum)
    }

    /// Writes down when files were last used, for the processes after this one.
    ///
    /// # Errors
    /// When the disk refuses. Nothing depends on it.
    pub fn save_uses(&self) -> Result<()> {
        let inner = &*self.inner;
        let mut uses: Vec<(Digest, u64)> = inner.load_uses()?.into_iter().collect();
        uses.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
        uses.truncate(limits::USES);
        let write = |file: &mut std::fs::File| {
            inner.adopt(file)?;
            let mut out = std::io::BufWriter::new(file);
            for (digest, at) in &uses {
                out.write_all(digest.as_bytes())?;
                out.write_all(&at.to_le_bytes())?;
            }
            out.flush()
        };
        inner.root.publish_replace(USES, write, FILE_MODE, Durability::None).map_err(|e| inner.failed(USES, 0, e))
    }
}

impl Inner {
    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a file is used now.
    pub(super) fn touch(&self, digest: &Digest) {
        // The clock decides nothing but which file goes first.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let mut uses = self.uses();
        if uses.last.len() >= limits::USES {
            uses.last.clear();
        }
        uses.last.insert(*digest, now);
    }

    /// What is written down and what this process saw, the later of both.
    fn load_uses(&self) -> Result<HashMap<Digest, u64>> {
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

    /// Calls `f` with every file that is named by a digest.
    fn for_each(&self, mut f: impl FnMut(&Dir, Digest, FileStat) -> Result<()>) -> Result<()> {
        for sub in self.files.list()?.iter().filter(|e| e.kind == FileKind::Dir) {
            let dir = self.files.sub(&sub.name)?;
            for entry in dir.list()? {
                let digest = entry.name.to_str().and_then(|n| n.parse::<Digest>().ok());
                let (Some(digest), FileKind::File) = (digest, entry.kind) else { continue };
                if let Some(stat) = dir.stat(&entry.name)? {
                    f(&dir, digest, stat)?;
                }
            }
        }
        Ok(())
    }

    /// Unlinks a file if it is still the one that was looked at, with no other name.
    fn evict(&self, candidate: &Candidate) -> Result<bool> {
        let Some(dir) = self.files_dir(&candidate.digest)? else { return Ok(false) };
        let name = candidate.digest.to_hex();
        match dir.stat(&name)? {
            Some(now) if now.same_inode(&candidate.stat) && now.nlink <= 1 => {}
            _ => return Ok(false),
        }
        let removed = dir.remove(&name)?;
        self.uses().last.remove(&candidate.digest);
        Ok(removed)
    }
}
