//! Reads every byte that is named, from the store and never from the cache: each blob against its name, each section of a bundle
//! against what it stands for, each composed file against its digest.
//!
//! Hash trees and tails have no digest of their own, and need none: what the tree of a digest holds is settled by the digest, and a
//! tail is whole groups of its file, which that tree proves.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use super::composed::Claim;
use super::finding::{Finding, FindingKind, Object};
use super::records::{Why, failed};
use super::references::{Named, Part, References, Section, TailProof, User, What};
use super::resume::Proved;
use super::{Read, Report};
use crate::cache::Session;
use crate::cache::tree::{self, TreeError};
use crate::error::{Error, Result};
use crate::format::bundle;
use crate::lifecycle::driver;
use crate::limits;
use crate::store::StoreError;
use crate::types::{BlobName, Digest, Hasher, Key, Progress};

/// Bytes of bundles that may be in memory: one that is larger than all of it goes alone.
#[derive(Debug)]
struct Room {
    left: Mutex<u64>,
    freed: Condvar,
}

impl Room {
    fn new() -> Self {
        Self { left: Mutex::new(limits::VERIFY_MEMORY), freed: Condvar::new() }
    }

    /// Runs `f` once there is room.
    fn with<T>(&self, bytes: u64, f: impl FnOnce() -> T) -> T {
        let wanted = bytes.min(limits::VERIFY_MEMORY);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        while *left < wanted {
            left = self.freed.wait(left).unwrap_or_else(PoisonError::into_inner);
        }
        *left -= wanted;
        drop(left);
        let result = f();
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) += wanted;
        self.freed.notify_all();
        result
    }
}

/// What reading shares.
pub(super) struct Reader<'a> {
    session: &'a Session,
    references: &'a References<'a>,
    progress: &'a dyn Progress,
    room: Room,
    bytes: AtomicU64,
}

/// Something to read.
enum Unit<'a> {
    Blob(&'a BlobName, u64, &'a Named),
    Composed(&'a Claim, User),
}

impl Unit<'_> {
    fn length(&self) -> u64 {
        match self {
            Self::Blob(_, length, _) => *length,
            Self::Composed(claim, _) => claim.length(),
        }
    }

    /// What a sample picks by.
    fn digest(&self) -> &Digest {
        match self {
            Self::Blob(name, ..) => &name.digest,
            Self::Composed(claim, _) => &claim.digest,
        }
    }

    /// What stands for it where it was proved before.
    fn mark(&self) -> Digest {
        match self {
            Self::Blob(name, length, named) => {
                let mut hasher = Hasher::new();
                hasher.update(b"blob\0").update(name.to_string().as_bytes()).update(&length.to_le_bytes());
                for section in named.sections.keys() {
                    hasher.update(&section.offset.to_le_bytes()).update(&section.length.to_le_bytes());
                    section.what.mark(&mut hasher);
                }
                hasher.finish()
            }
            Self::Composed(claim, _) => claim.mark(),
        }
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(session: &'a Session, references: &'a References<'a>, progress: &'a dyn Progress) -> Self {
        Self { session, references, progress, room: Room::new(), bytes: AtomicU64::new(0) }
    }

    /// Reads what `read` picks and no finding is about yet.
    pub(super) fn read(&self, read: &Read, proved: &Proved, report: &mut Report) -> Result<()> {
        let known: BTreeSet<String> = report.findings.iter().map(|f| f.object.clone()).collect();
        let known = |name: &BlobName| known.contains(Key::blob(name).as_str());
        let all = &self.references.blobs;
        let blobs = all.iter().map(|((name, length), named)| Unit::Blob(name, *length, named));
        let mut todo = Vec::new();
        for unit in blobs.chain(self.references.composed.0.iter().map(|(c, user)| Unit::Composed(c, *user))) {
            let (length, blob) = (unit.length(), matches!(unit, Unit::Blob(..)));
            report.reading.total_bytes = report.reading.total_bytes.saturating_add(length);
            let bad = match &unit {
                Unit::Blob(name, ..) => known(name),
                Unit::Composed(claim, _) => claim.parts.iter().any(|part| known(&part.0)),
            };
            if bad || !read.picks(unit.digest()) {
                continue;
            }
            let mark = unit.mark();
            if proved.knows(&mark) {
                report.reading.resumed_bytes = report.reading.resumed_bytes.saturating_add(length);
                continue;
            }
            report.reading.blobs += u64::from(blob);
            todo.push((unit, mark));
        }
        self.progress.plan(todo.len() as u64, todo.iter().fold(0, |sum, (unit, _)| sum.saturating_add(unit.length())));
        // Composed files last: what is wrong with a blob is said once.
        let (blobs, composed): (Vec<_>, Vec<_>) = todo.into_iter().partition(|(u, _)| matches!(u, Unit::Blob(..)));
        let prove = |unit: &Unit<'_>, mark: &Digest| {
            let found = self.prove(unit)?;
            if found.is_empty() {
                proved.note(mark);
            }
            Ok::<_, Error>(found)
        };
        let found = driver::parallel(blobs, |(unit, mark)| prove(&unit, &mark))?;
        let damaged: BTreeSet<String> = found.iter().flatten().map(|f| f.object.clone()).collect();
        report.findings.extend(found.into_iter().flatten());
        let whole = |(unit, _): &(Unit<'_>, Digest)| match unit {
            Unit::Composed(claim, _) => !claim.parts.iter().any(|p| damaged.contains(Key::blob(&p.0).as_str())),
            Unit::Blob(..) => true,
        };
        let found = driver::parallel(composed.into_iter().filter(whole).collect(), |(unit, mark)| prove(&unit, &mark))?;
        report.findings.extend(found.into_iter().flatten());
        report.reading.bytes = self.bytes.load(Ordering::Relaxed);
        Ok(())
    }

    fn prove(&self, unit: &Unit<'_>) -> Result<Vec<Finding>> {
        match unit {
            Unit::Blob(name, length, named) => self.blob(name, *length, named),
            Unit::Composed(claim, user) => self.composed(claim, *user),
        }
    }

    fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.progress.advance(bytes);
    }

    fn finding(&self, name: &BlobName, (kind, why): Why, users: &[User]) -> Finding {
        Finding::stored(kind, &Key::blob(name), self.references.hurts(self.session, users), why)
    }

    /// Reads a blob to its end, and says what is wrong with it.
    pub(super) fn blob(&self, name: &BlobName, length: u64, named: &Named) -> Result<Vec<Finding>> {
        // A bundle whose sections are looked at is kept, unless nobody builds ones that large.
        let keep = !named.sections.is_empty() && length <= limits::VERIFY_MEMORY;
        self.room.with(if keep { length } else { 0 }, || {
            let mut hasher = Hasher::new();
            let mut whole = Vec::new();
            let key = Key::blob(name);
            let read = self.session.store.read_to(&key, length, &mut |bytes| {
                hasher.update(bytes);
                if keep {
                    whole.extend_from_slice(bytes);
                }
                self.count(bytes.len() as u64);
                Ok(())
            });
            if let Err(e) = read {
                let why = failed(&self.session.store, &key, e)?;
                return Ok(vec![self.finding(name, why, &named.users)]);
            }
            let found = hasher.finish();
            if found != name.digest {
                let why = (FindingKind::Damaged, format!("its bytes have the digest {found}"));
                return Ok(vec![self.finding(name, why, &named.users)]);
            }
            let mut findings = Vec::new();
            for (section, user) in &named.sections {
                let source = Source { reader: self, blob: (name, length), whole: keep.then_some(&whole) };
                if let Some(why) = source.check(section)? {
                    let why = format!("it is whole, but [{}, {}] {why}", section.offset, section.length);
                    findings.push(self.lie(name, (FindingKind::Damaged, why), *user));
                }
            }
            Ok(findings)
        })
    }

    fn composed(&self, claim: &Claim, user: User) -> Result<Vec<Finding>> {
        let Some((name, ..)) = claim.parts.first() else {
            let lie = self.references.lie(user, "the file is empty, and has the digest of something else");
            return Ok(lie.filter(|_| claim.digest != Digest::of(b"")).into_iter().collect());
        };
        let why = match claim.found(&self.session.store, |bytes| self.count(bytes)) {
            Ok(found) if found == claim.digest => return Ok(Vec::new()),
            Ok(_) => {
                (FindingKind::Damaged, "the blobs are whole, but the file's extents do not hold its bytes".to_owned())
            }
            Err(e) => failed(&self.session.store, &Key::blob(name), e)?,
        };
        Ok(vec![self.lie(name, why, user)])
    }

    /// A blob that is whole, and not what a manifest says of it.
    fn lie(&self, name: &BlobName, why: Why, user: User) -> Finding {
        Finding { at: Object::Said, ..self.finding(name, why, &[user]) }
    }
}

/// A bundle whose sections are looked at.
struct Source<'a> {
    reader: &'a Reader<'a>,
    blob: (&'a BlobName, u64),
    /// Its bytes, where they are in memory.
    whole: Option<&'a Vec<u8>>,
}

impl Source<'_> {
    /// The bytes at a place, of this bundle or another one; or why they cannot be had.
    fn bytes(&self, (name, blob_length, offset, length): &Part) -> Result<Result<Vec<u8>, String>> {
        if (name, *blob_length) == self.blob
            && let Some(whole) = self.whole
        {
            let found = bundle::section(whole, *offset, *length);
            return Ok(found.map(<[u8]>::to_vec).ok_or_else(|| "lies outside of it, or it is no bundle".to_owned()));
        }
        let end = offset.saturating_add(*length);
        match self.reader.session.store.get_range(&Key::blob(name), *offset..end) {
            Ok(bytes) => {
                self.reader.count(bytes.len() as u64);
                Ok(Ok(bytes.to_vec()))
            }
            Err(e @ (StoreError::NotFound { .. } | StoreError::Damaged { .. } | StoreError::Invalid { .. })) => {
                Ok(Err(format!("cannot be compared: {e}")))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// What is wrong with a section, in words that follow its place.
    fn check(&self, section: &Section) -> Result<Option<String>> {
        let own = (*self.blob.0, self.blob.1, section.offset, section.length);
        let bytes = match self.bytes(&own)? {
            Ok(bytes) => bytes,
            Err(why) => return Ok(Some(why)),
        };
        Ok(match &section.what {
            What::File(digest) if Digest::of(&bytes) == *digest => None,
            What::File(_) => Some("is not the file's bytes".to_owned()),
            What::Tree(digest, size) => {
                tree::verify_tree(digest, *size, &bytes).err().map(|e| format!("is not the file's hash tree: {e}"))
            }
            What::Tail(digest, size, start, TailProof::Tree(tree)) => match self.bytes(tree)? {
                Err(why) => Some(why),
                Ok(tree) => match tree::verify_range(digest, *size, &tree, *start, &bytes) {
                    // The tree's own section says more about a wrong tree.
                    Ok(()) | Err(TreeError::Tree | TreeError::TreeLength { .. }) => None,
                    Err(e) => Some(format!("is not the file's tail: {e}")),
                },
            },
            What::Tail(digest, size, start, TailProof::Bytes(_)) if tree::tree_len(*size) == 0 => {
                let wrong = tree::verify_range(digest, *size, &[], *start, &bytes);
                wrong.err().map(|e| format!("is not the file's tail: {e}"))
            }
            What::Tail(_, _, start, TailProof::Bytes(parts)) => match self.file_from(*start, parts)? {
                Ok(tail) if tail == bytes => None,
                Ok(_) => Some("is not the file's tail".to_owned()),
                Err(why) => Some(why),
            },
        })
    }

    /// A file's bytes from an offset on, read from where its extents lie.
    fn file_from(&self, start: u64, parts: &[Part]) -> Result<Result<Vec<u8>, String>> {
        let (mut skip, mut out) = (start, Vec::new());
        for (name, blob_length, offset, length) in parts {
            let skipped = skip.min(*length);
            skip -= skipped;
            if skipped == *length {
                continue;
            }
            match self.bytes(&(*name, *blob_length, offset.saturating_add(skipped), length - skipped))? {
                Ok(bytes) => out.extend_from_slice(&bytes),
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(out))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    #[test]
    fn bundles_in_memory_have_room_and_give_it_back() {
        let room = Room::new();
        let left = || *room.left.lock().unwrap();
        let most = limits::VERIFY_MEMORY;
        for (bytes, taken) in [(0, 0), (1, 1), (most - 1, most - 1), (most, most), (most + 1, most), (u64::MAX, most)] {
            assert_eq!(room.with(bytes, left), most - taken, "{bytes}");
            assert_eq!(left(), most);
        }
        // Whoever finds no room waits for it.
        let (inside, freed) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                room.with(most, || {
                    inside.store(true, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(100));
                    freed.store(true, Ordering::SeqCst);
                });
            });
            while !inside.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            assert!(room.with(1, || freed.load(Ordering::SeqCst)));
        });
        // What just fits does not wait.
        room.with(most - 1, || room.with(1, || assert_eq!(left(), 0)));
    }
}
