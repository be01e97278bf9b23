//! What the living checkpoints name: blobs with their lengths, sections of bundles, files, and who is hurt when one of them is not
//! as it should be.

use std::collections::{BTreeMap, BTreeSet};

use super::Report;
use super::composed::Composed;
use super::finding::{Finding, FindingKind, Hurt, Object};
use super::records::{Records, Subject, failed, look, manifest_of};
use crate::cache::Session;
use crate::error::Result;
use crate::format::{BlobEntry, FileEntry, SubtaskEntry, TaskManifest};
use crate::lifecycle::driver;
use crate::limits;
use crate::store::StoreError;
use crate::types::{BlobName, Digest, Extent, Hasher, Key, Name};

/// A file of a subtask: both by their places in the lists.
pub(super) type User = (u32, u32);

/// Task manifests that are in memory at once, with [`limits::PARALLEL_REQUESTS`] being read.
const AT_ONCE: usize = 64;

/// Files of one subtask that a finding names: a bundle may hurt all of them.
const FILES_SHOWN: usize = 100;

/// What a run of bytes in a bundle must be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// A file's bytes.
    File(Digest),
    /// The hash tree of a file of this digest and size.
    Tree(Digest, u64),
    /// The end of a file of this digest and size, from this offset on; where its tree is, or, where it has none, its bytes.
    Tail(Digest, u64, u64, TailProof),
}

/// How a tail is compared with its file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TailProof {
    /// By the hash tree at this place.
    Tree(Part),
    /// With the file's own bytes at these places.
    Bytes(Vec<Part>),
}

/// Blob, its length, offset, length.
pub(super) type Part = (BlobName, u64, u64, u64);

/// A run of bytes in a bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) what: What,
}

/// A blob that is named.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub(super) users: Vec<User>,
    pub(super) sections: BTreeMap<Section, User>,
}

/// A file's bytes as the cache may have them.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) size: u64,
    pub(super) users: Vec<User>,
}

/// All that living checkpoints name.
#[derive(Debug, Default)]
pub(super) struct References<'a> {
    pub(super) subtasks: Vec<(&'a Subject, &'a SubtaskEntry)>,
    /// By name and length: manifests may lie about a length.
    pub(super) blobs: BTreeMap<(BlobName, u64), Named>,
    pub(super) kept: BTreeMap<Digest, Kept>,
    pub(super) composed: Composed,
    /// Jobs with a manifest that nobody has: what it names is not known.
    pub(super) incomplete: BTreeSet<Name>,
}

/// What came of one task manifest.
struct Fetched {
    manifest: Option<TaskManifest>,
    finding: Option<Finding>,
}

impl<'a> References<'a> {
    /// Reads the task manifests from the store itself: the cache's copies prove nothing about it. Where the store's is lost and the
    /// cache has the very bytes that the outcome names, those tell what it said.
    pub(super) fn of(session: &Session, subjects: &'a [Subject], report: &mut Report) -> Result<Self> {
        let mut all = Self::default();
        let subtasks = subjects.iter().flat_map(|s| s.manifest.subtasks.iter().map(move |entry| (s, entry)));
        all.subtasks = subtasks.collect();
        let mut first = 0_usize;
        for chunk in all.subtasks.clone().chunks(AT_ONCE) {
            let fetched = driver::parallel(chunk.to_vec(), |(subject, entry)| fetch(session, subject, entry))?;
            for (i, (fetched, (subject, _))) in fetched.into_iter().zip(chunk).enumerate() {
                report.findings.extend(fetched.finding);
                match fetched.manifest {
                    Some(manifest) => all.collect(index(first.saturating_add(i)), &manifest, report),
                    None => drop(all.incomplete.insert(subject.job.clone())),
                }
            }
            first = first.saturating_add(chunk.len());
        }
        Ok(all)
    }

    fn collect(&mut self, subtask: u32, manifest: &TaskManifest, report: &mut Report) {
        for blob in &manifest.blobs {
            self.blobs.entry((blob.name, blob.length)).or_default();
            if blob.bundle {
                let kept = self.kept.entry(blob.name.digest).or_default();
                kept.size = blob.length;
            }
        }
        for (i, file) in (0_u32..).zip(&manifest.files) {
            let user = (subtask, i);
            let kept = self.kept.entry(file.digest).or_default();
            kept.size = file.size;
            kept.users.push(user);
            self.composed.add(manifest, file, user);
            let extras = file.tree.iter().chain(file.tail.as_ref().map(|t| &t.extent));
            let blobs: BTreeSet<u32> = file.extents.iter().chain(extras).map(|e| e.blob).collect();
            for blob in blobs.into_iter().filter_map(|b| blob_of(manifest, b)) {
                if let Some(named) = self.blobs.get_mut(&(blob.name, blob.length)) {
                    named.users.push(user);
                }
                if blob.bundle {
                    self.kept.entry(blob.name.digest).or_default().users.push(user);
                }
            }
            self.sections(manifest, file, user, report);
        }
    }

    /// Notes which bytes of bundles are the file's, its tree's and its tail's.
    fn sections(&mut self, manifest: &TaskManifest, file: &FileEntry, user: User, report: &mut Report) {
        if let [extent] = file.extents.as_slice() {
            // Anything else is no lie: files lie in blobs as well.
            let _ = self.section(manifest, extent, What::File(file.digest), user);
        }
        let mut lies = Vec::new();
        if let Some(tree) = &file.tree
            && !self.section(manifest, tree, What::Tree(file.digest, file.size), user)
        {
            lies.push("hash tree");
        }
        if let Some(tail) = &file.tail {
            let part = |e: &Extent| blob_of(manifest, e.blob).map(|b| (b.name, b.length, e.offset, e.length));
            let proof = match file.tree.as_ref().and_then(part) {
                Some(tree) => TailProof::Tree(tree),
                None => TailProof::Bytes(file.extents.iter().filter_map(part).collect()),
            };
            if !self.section(manifest, &tail.extent, What::Tail(file.digest, file.size, tail.start, proof), user) {
                lies.push("tail");
            }
        }
        for what in lies {
            let detail = format!("it says that the {what} of {} lies in a blob that is no bundle", file.path);
            report.findings.extend(self.lie(user, detail));
        }
    }

    /// A task manifest whose own words cannot be true.
    pub(super) fn lie(&self, user: User, detail: impl Into<String>) -> Option<Finding> {
        let (subject, entry) = self.subtasks.get(user.0 as usize)?;
        let key = Key::task(&subject.job, subject.number, &entry.operator, entry.subtask);
        let hurts = vec![Hurt::manifest(&subject.job, subject.number, &entry.operator, entry.subtask)];
        Some(Finding { at: Object::Said, ..Finding::stored(FindingKind::Damaged, &key, hurts, detail) })
    }

    /// False where the extent is not one of a bundle.
    fn section(&mut self, manifest: &TaskManifest, extent: &Extent, what: What, user: User) -> bool {
        let Some(blob) = blob_of(manifest, extent.blob).filter(|b| b.bundle) else { return false };
        if let Some(named) = self.blobs.get_mut(&(blob.name, blob.length)) {
            let section = Section { offset: extent.offset, length: extent.length, what };
            named.sections.entry(section).or_insert(user);
        }
        true
    }

    /// Whom something hurts that these files use, in the order of the checkpoints.
    pub(super) fn hurts(&self, session: &Session, users: &[User]) -> Vec<Hurt> {
        let mut by_subtask: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (subtask, file) in users {
            by_subtask.entry(*subtask).or_default().insert(*file);
        }
        let hurt = |(subtask, files): (u32, BTreeSet<u32>)| {
            let (subject, entry) = self.subtasks.get(subtask as usize)?;
            let manifest = session.cache.task_manifest(&session.store, &subject.job, subject.number, entry);
            let path = |i: &u32| match &manifest {
                Ok(manifest) => manifest.files.get(*i as usize).map(|f| f.path.to_string()),
                Err(_) => None,
            };
            Some(Hurt {
                job: subject.job.clone(),
                number: subject.number,
                subtask: Some((entry.operator.clone(), entry.subtask)),
                files: files.iter().take(FILES_SHOWN).filter_map(path).collect(),
                more: files.len().saturating_sub(FILES_SHOWN),
            })
        };
        by_subtask.into_iter().filter_map(hurt).collect()
    }

    /// The manifest of a file's subtask, and the file in it.
    pub(super) fn file(&self, session: &Session, user: User) -> Result<Option<(std::sync::Arc<TaskManifest>, usize)>> {
        let Some((subject, entry)) = self.subtasks.get(user.0 as usize) else { return Ok(None) };
        let manifest = session.cache.task_manifest(&session.store, &subject.job, subject.number, entry)?;
        Ok(Some((manifest, user.1 as usize)))
    }

    /// Finds all blobs in the store, and those that are lost or have another length.
    pub(super) fn resolve(&self, session: &Session, records: &Records, report: &mut Report) -> Result<()> {
        report.blobs = self.blobs.len() as u64;
        let listed;
        let sizes = match &records.sizes {
            Some(sizes) => sizes,
            // A page of a listing has a thousand keys, of all blobs: as many looks are never dearer.
            None if self.blobs.len() > limits::LOOKS && !session.store.answers_at_once() => {
                listed = session.store.blobs()?.into_iter().collect();
                &listed
            }
            None => {
                listed = std::collections::HashMap::new();
                &listed
            }
        };
        let doubtful: Vec<_> =
            self.blobs.iter().filter(|((name, length), _)| sizes.get(name) != Some(length)).collect();
        let looked = driver::parallel(doubtful, |((name, length), named)| {
            look_at(session, name, *length).map(|why| why.map(|why| (*name, why, named)))
        })?;
        for (name, (kind, why), named) in looked.into_iter().flatten() {
            let hurts = self.hurts(session, &named.users);
            let expired = |hurt: &Hurt| records.expired.contains(&(hurt.job.clone(), hurt.number));
            let why = if !hurts.is_empty() && hurts.iter().all(expired) {
                format!("{why}; whom it hurts is expired, and only kept by pins (`ckptfs pins`)")
            } else {
                why
            };
            report.findings.push(Finding::stored(kind, &Key::blob(&name), hurts, why));
        }
        Ok(())
    }
}

/// A second look at a blob that a list did not have, or had with another length: it may be younger than the list.
pub(super) fn look_at(session: &Session, name: &BlobName, length: u64) -> Result<Option<super::records::Why>> {
    let key = Key::blob(name);
    match session.store.head(&key) {
        Ok(Some(found)) if found == length => Ok(None),
        Ok(Some(found)) => Ok(Some((FindingKind::Short, format!("it has {found} bytes instead of {length}")))),
        // No object has the key; what has it, if anything, only reading tells.
        Ok(None) => match session.store.get_range(&key, 0..1) {
            Err(StoreError::NotFound { .. }) | Ok(_) => {
                Ok(Some((FindingKind::Missing, format!("it should have {length} bytes"))))
            }
            Err(e) => failed(&session.store, &key, e).map(Some),
        },
        Err(e) => failed(&session.store, &key, e).map(Some),
    }
}

fn fetch(session: &Session, subject: &Subject, entry: &SubtaskEntry) -> Result<Fetched> {
    let key = Key::task(&subject.job, subject.number, &entry.operator, entry.subtask);
    let found = look(&session.store, &key, |key, bytes| manifest_of(key, bytes, &entry.manifest))?;
    let (kind, detail) = match found {
        Ok(Some(manifest)) => return Ok(Fetched { manifest: Some(manifest), finding: None }),
        Ok(None) => (FindingKind::Missing, "the checkpoint manifest names it".to_owned()),
        Err(why) => why,
    };
    let hurts = vec![Hurt::manifest(&subject.job, subject.number, &entry.operator, entry.subtask)];
    let mut finding = Finding::stored(kind, &key, hurts, detail);
    let cached = session.cache.manifest_bytes(&entry.manifest)?;
    let manifest = cached.and_then(|bytes| manifest_of(&key, &bytes, &entry.manifest).ok());
    if manifest.is_some() {
        finding.at = Object::Manifest(key, entry.manifest);
    }
    Ok(Fetched { manifest, finding: Some(finding) })
}

pub(super) fn blob_of(manifest: &TaskManifest, index: u32) -> Option<&BlobEntry> {
    usize::try_from(index).ok().and_then(|i| manifest.blobs.get(i))
}

/// A place in a list; lists that long do not fit the memory.
fn index(i: usize) -> u32 {
    u32::try_from(i).unwrap_or(u32::MAX)
}

impl What {
    /// Feeds a hash with what it is, so that a proof of it can be remembered.
    pub(super) fn mark(&self, hasher: &mut Hasher) {
        let mut part = |p: &Part| {
            hasher.update(p.0.to_string().as_bytes());
            for n in [p.1, p.2, p.3] {
                hasher.update(&n.to_le_bytes());
            }
        };
        match self {
            Self::File(_) | Self::Tree(..) => {}
            Self::Tail(_, _, _, TailProof::Tree(tree)) => part(tree),
            Self::Tail(_, _, _, TailProof::Bytes(parts)) => parts.iter().for_each(part),
        }
        let (kind, digest, numbers) = match self {
            Self::File(digest) => (1, digest, [0, 0]),
            Self::Tree(digest, size) => (2, digest, [*size, 0]),
            Self::Tail(digest, size, start, _) => (3, digest, [*size, *start]),
        };
        hasher.update(&[kind]).update(digest.as_bytes());
        for n in numbers {
            hasher.update(&n.to_le_bytes());
        }
    }
}
