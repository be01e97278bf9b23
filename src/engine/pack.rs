//! Builds the task manifest and its bundle: what is new goes in, and what old bundles hold too little of is packed anew.
//!
//! A bundle of a base that is needed for less than half of its bytes is not named again, and a manifest names at most
//! [`limits::BUNDLES_PER_MANIFEST`]: so the store does not keep a large bundle for one small file, and a cold open stays cheap.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;

use super::base::{BaseFile, BaseIndex};
use super::input::Input;
use super::plan::unreadable;
use super::transfer::{Rest, SentBlob};
use crate::cache::Session;
use crate::cache::tree;
use crate::error::{Error, Kind, Result};
use crate::format::bundle::BundleBuilder;
use crate::format::{BlobEntry, FileEntry, Tail, TaskManifest};
use crate::limits;
use crate::types::{BlobName, Digest, Extent};

/// What is known of a file when the manifest is built.
#[derive(Debug)]
pub enum Content {
    /// A base has it.
    Base(BaseFile),
    /// Its bytes go into the bundle.
    Small(Vec<u8>, Digest),
    /// It is a blob of its own.
    Blob(SentBlob),
    /// A base has its front.
    Grown(BaseFile, Digest, Rest),
    /// Bytes of another file of the manifest, from there on.
    Within(usize, u64, Digest),
}

/// What becomes of bundles that little is needed of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sparse {
    /// Those under half of whose bytes are needed are packed anew: the sweep can then free them.
    Repack,
    /// They are named again, as long as there are not too many. For checkpoints of a program that uploads its small files anew each
    /// time: there nearly every bundle is half empty at the next one, and the same bytes would be stored again and again.
    Keep,
}

/// Where a run of bytes is, before blobs have indices.
#[derive(Debug, Clone, Copy)]
enum Run {
    /// In a blob that exists.
    In(BlobEntry, u64, u64),
    /// In the bundle that is being built.
    New(u64, u64),
}

/// The files of a manifest before blobs have indices.
#[derive(Debug)]
struct Draft {
    size: u64,
    digest: Digest,
    runs: Vec<Run>,
    tree: Option<Run>,
    tail: Option<(u64, Run)>,
}

/// A packed snapshot: everything but the manifest's place.
#[derive(Debug)]
pub struct Packed {
    /// The bundle's bytes; empty when there is nothing to pack.
    pub bundle: Bytes,
    files: Vec<Draft>,
}

/// Packs these files, which are in the order of their paths.
///
/// # Errors
/// When bytes that must be packed anew cannot be read.
pub fn pack(
    session: &Session,
    inputs: &[Input<'_>],
    base: &BaseIndex,
    contents: Vec<Content>,
    sparse: Sparse,
) -> Result<Packed> {
    let dropped = dropped_bundles(base, &contents, sparse);
    let mut builder = BundleBuilder::default();
    let mut room = limits::BUNDLE_LEN;
    let mut files = Vec::with_capacity(contents.len());
    let mut tails: Vec<(usize, u64, Vec<u8>)> = Vec::new();
    let mut parts = Vec::new();
    // A section that two files share is packed once.
    let mut placed: HashMap<Digest, (u64, u64)> = HashMap::new();
    let mut add = |builder: &mut BundleBuilder, bytes: &[u8]| {
        let (offset, length) = *placed.entry(Digest::of(bytes)).or_insert_with(|| builder.add(bytes));
        Run::New(offset, length)
    };
    for (i, (&file, content)) in inputs.iter().zip(contents).enumerate() {
        let draft = match content {
            Content::Small(bytes, digest) => {
                let runs = if bytes.is_empty() { Vec::new() } else { vec![add(&mut builder, &bytes)] };
                Draft { size: bytes.len() as u64, digest, runs, tree: None, tail: None }
            }
            Content::Blob(sent) => {
                let length = file.size();
                let entry = BlobEntry { name: sent.name, length, bundle: false };
                let tree = (!sent.tree.is_empty()).then(|| add(&mut builder, &sent.tree));
                if let Some((start, bytes)) = sent.tail {
                    tails.push((i, start, bytes));
                }
                let runs = vec![Run::In(entry, 0, length)];
                Draft { size: length, digest: sent.name.digest, runs, tree, tail: None }
            }
            Content::Base(at) => {
                let mut keep = Keeper { session, base, dropped: &dropped, file, at };
                let mut draft = keep.front(&mut builder, &mut add)?;
                let entry = keep.entry()?;
                if let Some(tree) = entry.tree {
                    draft.tree = Some(keep.tree(&mut builder, &mut add, tree)?);
                }
                if let Some(tail) = entry.tail {
                    match keep.kept(tail.extent)? {
                        Some(run) => draft.tail = Some((tail.start, run)),
                        None => tails.push((i, tail.start, keep.again(tail.start, tail.extent)?)),
                    }
                }
                draft
            }
            Content::Within(of, offset, digest) => {
                let size = file.size();
                parts.push((i, of, offset));
                Draft { size, digest, runs: Vec::new(), tree: None, tail: None }
            }
            Content::Grown(at, digest, rest) => {
                let mut keep = Keeper { session, base, dropped: &dropped, file, at };
                let mut draft = keep.front(&mut builder, &mut add)?;
                draft.runs.push(match rest {
                    Rest::Bytes(bytes) => add(&mut builder, &bytes),
                    Rest::Blob(name, length) => Run::In(BlobEntry { name, length, bundle: false }, 0, length),
                });
                Draft { size: file.size(), digest, tree: None, tail: None, ..draft }
            }
        };
        files.push(draft);
    }
    for (i, of, offset) in parts {
        let internal = || Error::new(Kind::Other, "internal: a part of a file that is not there");
        let whole = files.get(of).ok_or_else(internal)?;
        let runs = cut(&whole.runs, offset, files.get(i).ok_or_else(internal)?.size).ok_or_else(internal)?;
        if let Some(draft) = files.get_mut(i) {
            draft.runs = runs;
        }
    }
    // Tails last: they only save requests, so they take what room is left.
    tails.sort_by_key(|(_, _, bytes)| bytes.len());
    for (i, start, bytes) in tails {
        let length = bytes.len() as u64;
        if length <= room
            && let Some(draft) = files.get_mut(i)
        {
            room -= length;
            draft.tail = Some((start, add(&mut builder, &bytes)));
        }
    }
    let bundle = if builder.is_empty() { Bytes::new() } else { Bytes::from(builder.finish()) };
    Ok(Packed { bundle, files })
}

/// The runs that hold these bytes of a file.
fn cut(runs: &[Run], offset: u64, length: u64) -> Option<Vec<Run>> {
    let (mut out, mut skip, mut left) = (Vec::new(), offset, length);
    for run in runs {
        let (Run::In(_, from, size) | Run::New(from, size)) = *run;
        let passed = skip.min(size);
        let taken = left.min(size - passed);
        if taken > 0 {
            let from = from.checked_add(passed)?;
            out.push(match *run {
                Run::In(blob, ..) => Run::In(blob, from, taken),
                Run::New(..) => Run::New(from, taken),
            });
        }
        (skip, left) = (skip - passed, left - taken);
    }
    (left == 0).then_some(out)
}

/// How many bytes of each bundle of the bases the new manifest would need.
fn needed_bytes(base: &BaseIndex, contents: &[Content]) -> BTreeMap<BlobName, (u64, u64)> {
    let mut needed: BTreeMap<BlobName, (u64, u64)> = BTreeMap::new();
    let mut seen: HashSet<(BlobName, u64)> = HashSet::new();
    for content in contents {
        let (at, front_only) = match content {
            Content::Base(at) => (*at, false),
            Content::Grown(at, ..) => (*at, true),
            Content::Small(..) | Content::Blob(_) | Content::Within(..) => continue,
        };
        let (Some(manifest), Some(entry)) = (base.manifest(at), base.entry(at)) else { continue };
        let extras = entry.tree.iter().chain(entry.tail.iter().map(|t| &t.extent)).filter(|_| !front_only);
        for extent in entry.extents.iter().chain(extras) {
            if let Some(blob) = manifest.blobs.get(extent.blob as usize).filter(|b| b.bundle)
                && seen.insert((blob.name, extent.offset))
            {
                let (bytes, _) = needed.entry(blob.name).or_insert((0, blob.length));
                *bytes = bytes.saturating_add(extent.length);
            }
        }
    }
    needed
}

/// The bundles of the bases that are not named again.
fn dropped_bundles(base: &BaseIndex, contents: &[Content], sparse: Sparse) -> HashSet<BlobName> {
    let needed = needed_bytes(base, contents);
    let half_empty = |(bytes, length): (u64, u64)| sparse == Sparse::Repack && bytes.saturating_mul(2) < length;
    let (mut dropped, mut kept) = (HashSet::new(), Vec::new());
    for (name, use_of) in needed {
        if half_empty(use_of) || base.lost.contains(&name) {
            dropped.insert(name);
        } else {
            kept.push((use_of.0, name));
        }
    }
    // One place is for the new bundle.
    kept.sort_unstable();
    dropped.extend(kept.iter().take(merged(&kept)).map(|(_, name)| *name));
    dropped
}

/// How many of the bundles, the smallest first, are packed into the new one. Where one must be, others of its size go with it, so that the
/// next snapshots need not: over a thousand snapshots of a growing database each byte is packed about three times, where one at a time
/// would pack it thirty times.
fn merged(kept: &[(u64, BlobName)]) -> usize {
    let excess = kept.len().saturating_sub(limits::BUNDLES_PER_MANIFEST - 1);
    let mut sum: u64 = kept.iter().take(excess).map(|(bytes, _)| bytes).sum();
    let mut count = excess;
    while (1..limits::BUNDLES_MERGED).contains(&count)
        && let Some((bytes, _)) = kept.get(count).filter(|(bytes, _)| *bytes <= sum)
        && sum.saturating_add(*bytes) <= limits::BUNDLE_LEN / 4
    {
        sum = sum.saturating_add(*bytes);
        count += 1;
    }
    count
}

/// Carries a base's file over: runs of kept blobs as they are, the rest into the new bundle.
struct Keeper<'a> {
    session: &'a Session,
    base: &'a BaseIndex,
    dropped: &'a HashSet<BlobName>,
    file: Input<'a>,
    at: BaseFile,
}

type Add<'f> = dyn FnMut(&mut BundleBuilder, &[u8]) -> Run + 'f;

impl Keeper<'_> {
    fn entry(&self) -> Result<FileEntry> {
        self.base
            .entry(self.at)
            .cloned()
            .ok_or_else(|| Error::new(Kind::Other, "internal: a base's file is not in its index"))
    }

    /// The run itself where its blob is named again.
    fn kept(&self, extent: Extent) -> Result<Option<Run>> {
        let blob = self.base.manifest(self.at).and_then(|m| m.blobs.get(extent.blob as usize));
        let blob = blob.ok_or_else(|| Error::new(Kind::Other, "internal: an extent without its blob"))?;
        Ok((!self.dropped.contains(&blob.name)).then_some(Run::In(*blob, extent.offset, extent.length)))
    }

    /// The base's own bytes.
    fn front(&mut self, builder: &mut BundleBuilder, add: &mut Add<'_>) -> Result<Draft> {
        let entry = self.entry()?;
        let mut runs = Vec::with_capacity(entry.extents.len() + 1);
        let mut offset = 0;
        for extent in &entry.extents {
            runs.push(match self.kept(*extent)? {
                Some(run) => run,
                None => add(builder, &self.again(offset, *extent)?),
            });
            offset += extent.length;
        }
        Ok(Draft { size: entry.size, digest: entry.digest, runs, tree: None, tail: None })
    }

    /// Bytes that are packed anew. What lies elsewhere may be gone there by now.
    fn again(&self, offset: u64, extent: Extent) -> Result<Vec<u8>> {
        if let (Input::Foreign(..) | Input::Copied(_), Some(manifest)) = (self.file, self.base.manifest(self.at)) {
            match self.session.cache.read_extent(&self.session.store, manifest, &extent) {
                Ok(bytes) => return Ok(bytes),
                Err(e) => log::warn!("{} is read from where it came from: {e}", self.file.path()),
            }
        }
        if let Input::Foreign(..) = self.file {
            // What it was known by is not proof enough to stand under another's digest.
            let whole = self.file.read(0, self.file.size())?;
            if Digest::of(&whole) != self.entry()?.digest {
                let path = self.file.path();
                let why = format!("{path}: the store has lost it, and the file that it came from is another one now");
                return Err(Error::new(Kind::Damage, why));
            }
        }
        self.file.read(offset, extent.length)
    }

    /// The hash tree: from the old bundle where it can be had, else from the file.
    fn tree(&mut self, builder: &mut BundleBuilder, add: &mut Add<'_>, extent: Extent) -> Result<Run> {
        if let Some(run) = self.kept(extent)? {
            return Ok(run);
        }
        let old = self.base.manifest(self.at).map(|m| self.session.cache.read_extent(&self.session.store, m, &extent));
        let bytes = match old {
            Some(Ok(bytes)) => bytes,
            failed => {
                if let Some(Err(e)) = failed {
                    log::warn!("the hash tree of {} is computed anew: {e}", self.file.path());
                }
                match self.file {
                    Input::File(scan, file) => {
                        let computed = tree::hash_and_tree_of(scan.open(file)?, file.stat.size);
                        computed.map_err(|e| unreadable(file, &e))?.1
                    }
                    Input::State(state) => tree::hash_and_tree(&state.bytes).1,
                    foreign @ Input::Foreign(..) => tree::hash_and_tree(&foreign.read(0, foreign.size())?).1,
                    Input::Copied(file) => file.bytes()?.tree,
                }
            }
        };
        Ok(add(builder, &bytes))
    }
}

impl Packed {
    /// Fills a manifest in: blobs, files and sums. `bundle` is the name of the uploaded bundle.
    ///
    /// # Errors
    /// When there are more blobs than a manifest may name.
    pub fn fill(self, manifest: &mut TaskManifest, inputs: &[Input<'_>], bundle: Option<BlobName>) -> Result<()> {
        let own = bundle.map(|name| BlobEntry { name, length: self.bundle.len() as u64, bundle: true });
        let mut table = Table { blobs: Vec::new(), index: HashMap::new(), own };
        let mut logical = 0u64;
        for (file, draft) in inputs.iter().zip(self.files) {
            let extents = draft.runs.into_iter().map(|r| table.extent(r)).collect::<Result<_>>()?;
            let tree = draft.tree.map(|r| table.extent(r)).transpose()?;
            let tail = match draft.tail {
                Some((start, run)) => Some(Tail { start, extent: table.extent(run)? }),
                None => None,
            };
            logical = logical.saturating_add(draft.size);
            manifest.files.push(FileEntry {
                path: file.path().clone(),
                size: draft.size,
                digest: draft.digest,
                extents,
                tree,
                tail,
                sst: file.sst(),
            });
        }
        manifest.blobs = table.blobs;
        manifest.logical_bytes = logical;
        Ok(())
    }
}

struct Table {
    blobs: Vec<BlobEntry>,
    index: HashMap<BlobName, u32>,
    own: Option<BlobEntry>,
}

impl Table {
    fn extent(&mut self, run: Run) -> Result<Extent> {
        let internal = |what: &str| Error::new(Kind::Other, format!("internal: {what}"));
        let (entry, offset, length) = match run {
            Run::In(entry, offset, length) => (entry, offset, length),
            Run::New(offset, length) => {
                (self.own.ok_or_else(|| internal("a section without a bundle"))?, offset, length)
            }
        };
        let next = u32::try_from(self.blobs.len()).map_err(|_| internal("too many blobs"))?;
        let blob = *self.index.entry(entry.name).or_insert(next);
        if blob == next {
            self.blobs.push(entry);
        }
        Ok(Extent { blob, offset, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Uid;

    /// What a database that only grows packs anew at each of so many snapshots, in units of what each adds.
    fn packed_again(snapshots: u64) -> Vec<u64> {
        const UNIT: u64 = 100_000;
        let mut kept: Vec<(u64, BlobName)> = Vec::new();
        let mut costs = Vec::new();
        for n in 0..snapshots {
            kept.sort_unstable();
            let count = merged(&kept);
            let again: u64 = kept.drain(..count).map(|(bytes, _)| bytes).sum();
            assert!(kept.len() < limits::BUNDLES_PER_MANIFEST, "one place is for the new bundle");
            costs.push(again / UNIT);
            let digest = Digest::of(&n.to_le_bytes());
            kept.push((again + UNIT, BlobName { digest, uid: Uid::from_bytes([1; 16]) }));
        }
        costs
    }

    #[test]
    fn a_growing_database_packs_little_anew() {
        let costs = packed_again(1000);
        assert_eq!(costs[..14].iter().sum::<u64>(), 0);
        assert!(costs.iter().sum::<u64>() < 3 * 1000, "{}", costs.iter().sum::<u64>());
        // Most snapshots pack nothing anew at all.
        let mut sorted = costs[..300].to_vec();
        sorted.sort_unstable();
        assert!(sorted[150] == 0 && sorted[299] < 60, "{sorted:?}");
        // One in twenty packs more than six times what it adds.
        let many = costs.iter().filter(|cost| **cost > 6).count();
        assert!((20..70).contains(&many), "{many}");
    }

    #[test]
    fn what_is_large_is_left_alone() {
        let bundle =
            |n: u64, bytes| (bytes, BlobName { digest: Digest::of(&n.to_le_bytes()), uid: Uid::from_bytes([1; 16]) });
        let large: Vec<_> = (0..16).map(|n| bundle(n, limits::BUNDLE_LEN / 5)).collect();
        assert_eq!(merged(&large), 1);
        assert_eq!(merged(&large[..15]), 0);
        let mut mixed = large;
        mixed[0].0 = 10;
        assert_eq!(merged(&mixed), 1);
    }
}
