//! Copies what one subtask stored: decides per file by its digest, sends what is missing, and acknowledges.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Copying;
use crate::engine::SnapshotReport;
use crate::engine::base::{BaseFile, BaseIndex};
use crate::engine::cancel::Cancel;
use crate::engine::copied::{CopiedFile, Part, Verified, parts};
use crate::engine::input::Input;
use crate::engine::pack::{self, Content};
use crate::engine::transfer::{Rest, SentBlob, Transfer};
use crate::engine::upload::{self, Finished};
use crate::error::{Error, Kind, Result};
use crate::format::{FileEntry, TaskManifest, decode_at, phases, rocks};
use crate::lifecycle::driver;
use crate::limits;
use crate::store::BlobSource;
use crate::types::{BlobName, CheckpointNumber, Digest};

/// Whether a file is stored as a blob of its own.
pub(super) fn alone(file: &FileEntry) -> bool {
    if immutable(file) { file.size >= limits::OWN_BLOB_IMMUTABLE } else { file.size > limits::OWN_BLOB_OTHER }
}

fn immutable(file: &FileEntry) -> bool {
    file.path.rocks_file().is_some_and(|name| rocks::file_kind(name).is_immutable())
}

/// What is done with a file.
#[derive(Debug, Clone, Copy)]
enum Plan {
    /// The other store has it.
    Known(BaseFile),
    /// Another file of the subtask holds it, and is read.
    Part(Part),
    /// The file at that place has the same bytes.
    Same(usize),
    /// It goes into the bundle.
    Pack,
    /// It is a blob of its own.
    Send,
}

/// Copies a subtask. `siblings` are what others of the checkpoint stored.
pub(super) fn store(
    copying: &Copying<'_>,
    task: &Arc<TaskManifest>,
    siblings: &[Arc<TaskManifest>],
) -> Result<(SnapshotReport, Arc<TaskManifest>)> {
    let Some((operator, subtask)) = &task.place.subtask else {
        return Err(Error::new(Kind::Other, "internal: a task manifest without its subtask"));
    };
    let name = format!("{operator}/{subtask}");
    let whose = |e: Error| e.context(&name);
    if copying.acked.contains(&(operator.clone(), *subtask)) {
        return copying.stands(task).map_err(whose);
    }
    let to = copying.to;
    let mut base = BaseIndex::load(to, copying.bases, operator, *subtask)?;
    siblings.iter().for_each(|sibling| base.add(Arc::clone(sibling)));
    copying.look_elsewhere(task, &mut base)?;
    let lost = base.look(&to.store);
    if !lost.is_empty() {
        base = base.without(lost);
    }
    let uid = copying.intent.place.uid;
    if copying.resumed {
        // What an attempt before sent is found by HEAD, as an aborted one's is.
        base.aborted.push(uid);
    }
    let (links, cancel) = (to.cache.batch(), Cancel::default());
    let transfer = Transfer::new(to, None, &base, uid, &links, &cancel, copying.progress);
    let files: Vec<CopiedFile<'_>> =
        task.files.iter().map(|entry| CopiedFile { session: copying.from, manifest: task, entry }).collect();
    let plans = plan(task, &base);
    let mut held: HashMap<usize, Vec<(usize, u64)>> = HashMap::new();
    for (i, plan) in plans.iter().enumerate() {
        if let Plan::Part(part) = plan {
            held.entry(part.of).or_default().push((i, part.offset));
        }
    }
    let tails = AtomicU64::new(0);
    let (files_of, plans) = (&files[..], &plans[..]);
    let subtask_files =
        Files { copying, whose: &name, transfer: &transfer, base: &base, files: files_of, plans, held, tails };
    let contents = subtask_files.contents()?;
    let reused = contents.iter().zip(&task.files).map(|(content, file)| match content {
        Content::Base(_) => file.size,
        Content::Grown(at, ..) => base.entry(*at).map_or(0, |e| e.size),
        Content::Small(..) | Content::Blob(_) | Content::Within(..) => 0,
    });
    let reused_bytes = reused.sum();
    let inputs: Vec<Input<'_>> = files.iter().map(|file| Input::Copied(*file)).collect();
    let packed = pack::pack(to, &inputs, &base, contents, copying.sparse).map_err(whose)?;
    let bytes = packed.bundle.clone();
    let bundle = if bytes.is_empty() { None } else { Some(transfer.send_bundle(bytes)?) };
    let counts = transfer.finish()?;
    links.finish()?;
    // What an attempt before sent is this checkpoint's own.
    let (sent, adopted) = (counts.uploaded.into_inner(), counts.adopted.into_inner());
    let mut manifest = TaskManifest {
        place: copying.intent.place.clone(),
        blobs: Vec::new(),
        files: Vec::new(),
        logical_bytes: 0,
        new_bytes: sent.saturating_add(if copying.resumed { adopted } else { 0 }),
        ..TaskManifest::clone(task)
    };
    // How long the original took says nothing of the copy.
    manifest.properties.retain(|name, _| !phases::is_phase(name));
    manifest.place.role = task.place.role;
    manifest.place.subtask.clone_from(&task.place.subtask);
    packed.fill(&mut manifest, &inputs, bundle)?;
    let stands = Arc::new(manifest.clone());
    let finished = Finished { manifest, reused_bytes, adopted_bytes: adopted, degraded_links: 0 };
    let report = SnapshotReport { new_bytes: sent, ..upload::acknowledge(to, finished)? };
    Ok((report, stands))
}

/// Decides by digest, without reading.
fn plan(task: &TaskManifest, base: &BaseIndex) -> Vec<Plan> {
    let mut first: HashMap<(Digest, u64), usize> = HashMap::new();
    let mut room = limits::BUNDLE_LEN;
    let decide = |(i, file): (usize, &FileEntry)| {
        if let Some(at) = base.by_digest(&file.digest, file.size) {
            return Plan::Known(at);
        }
        let first = *first.entry((file.digest, file.size)).or_insert(i);
        if first != i {
            return Plan::Same(first);
        }
        if alone(file) || file.size > room {
            return Plan::Send;
        }
        room -= file.size;
        Plan::Pack
    };
    let mut plans: Vec<Plan> = task.files.iter().enumerate().map(decide).collect();
    for (i, part) in parts(task).into_iter().enumerate() {
        let Some(part) = part else { continue };
        let read = matches!(plans.get(part.of), Some(Plan::Pack | Plan::Send));
        if let Some(plan) = plans.get_mut(i).filter(|plan| read && matches!(plan, Plan::Pack | Plan::Send)) {
            *plan = Plan::Part(part);
        }
    }
    plans
}

/// The files of a subtask on their way.
struct Files<'a, 't> {
    copying: &'a Copying<'a>,
    whose: &'a str,
    transfer: &'a Transfer<'t>,
    base: &'a BaseIndex,
    files: &'a [CopiedFile<'a>],
    plans: &'a [Plan],
    /// Parts by the file that holds them: which file, and where it begins.
    held: HashMap<usize, Vec<(usize, u64)>>,
    /// Bytes of tails that are in memory.
    tails: AtomicU64,
}

impl Files<'_, '_> {
    fn contents(&self) -> Result<Vec<Content>> {
        let internal = || Error::new(Kind::Other, "internal: a file without its plan");
        let all: Vec<usize> = (0..self.files.len()).collect();
        let contents = driver::parallel(all, |i| {
            let (file, plan) = self.files.get(i).zip(self.plans.get(i)).ok_or_else(internal)?;
            self.copying.goes_on()?;
            let content = self.content(i, file, *plan).map_err(|e| self.copying.failed(e.context(self.whose)))?;
            self.copying.progress.advance(file.entry.size);
            Ok::<_, Error>(content)
        })?;
        let same = self.plans.iter().enumerate().filter_map(|(i, plan)| match plan {
            Plan::Same(of) => Some((i, *of)),
            _ => None,
        });
        let mut contents: Vec<Option<Content>> = contents;
        for (i, of) in same {
            let content = match contents.get(of).and_then(Option::as_ref).ok_or_else(internal)? {
                Content::Blob(sent) => Content::Blob(sent.clone()),
                Content::Small(bytes, digest) => Content::Small(bytes.clone(), *digest),
                Content::Within(of, offset, digest) => Content::Within(*of, *offset, *digest),
                // Of a file that grew, all runs.
                Content::Grown(_, digest, _) => Content::Within(of, 0, *digest),
                Content::Base(at) => Content::Base(*at),
            };
            if let Some(place) = contents.get_mut(i) {
                *place = Some(content);
            }
        }
        contents.into_iter().map(|content| content.ok_or_else(internal)).collect()
    }

    fn content(&self, i: usize, file: &CopiedFile<'_>, plan: Plan) -> Result<Option<Content>> {
        let entry = file.entry;
        Ok(Some(match plan {
            Plan::Known(at) => Content::Base(at),
            // The one that holds it checks it.
            Plan::Part(part) => Content::Within(part.of, part.offset, entry.digest),
            Plan::Same(_) => return Ok(None),
            Plan::Pack => {
                let bytes = file.bytes()?;
                self.check_parts(i, &bytes)?;
                match self.grown(entry, &bytes)? {
                    Some((at, front)) => {
                        let rest = bytes.read(front, entry.size - front)?;
                        Content::Grown(at, entry.digest, Rest::Bytes(rest))
                    }
                    None => Content::Small(bytes.read(0, entry.size)?, entry.digest),
                }
            }
            Plan::Send => self.send(i, file)?,
        }))
    }

    fn send(&self, i: usize, file: &CopiedFile<'_>) -> Result<Content> {
        let entry = file.entry;
        let _lane = self.copying.lanes.take(1);
        let _share = self.copying.memory.take(entry.size.min(limits::READ_ONCE));
        let bytes = file.bytes()?;
        self.check_parts(i, &bytes)?;
        if let Some((at, front)) = self.grown(entry, &bytes)? {
            let length = entry.size - front;
            // What is more than this is sent whole: it would have to be held in memory.
            if length <= limits::READ_ONCE {
                let rest = bytes.read(front, length)?;
                let rest = if length > limits::OWN_BLOB_OTHER {
                    let digest = Digest::of(&rest);
                    Rest::Blob(self.transfer.send(digest, BlobSource::Bytes(rest.into()))?, length)
                } else {
                    Rest::Bytes(rest)
                };
                return Ok(Content::Grown(at, entry.digest, rest));
            }
        }
        let name: BlobName = self.transfer.send(entry.digest, bytes.source())?;
        // A tail only saves requests: what an original says of it is not believed with memory.
        let worth = |length: u64| {
            length <= 2 * limits::ROCKS_TAIL
                && self.tails.fetch_add(length, Ordering::Relaxed).saturating_add(length) <= limits::BUNDLE_LEN
        };
        let tail = match entry.tail.filter(|tail| worth(tail.extent.length)) {
            Some(tail) => Some((tail.start, bytes.read(tail.start, tail.extent.length)?)),
            None => None,
        };
        Ok(Content::Blob(SentBlob { name, tree: bytes.tree, tail }))
    }

    /// A file that is shown in parts vouches for none of them: what the other store is told of a part is looked at.
    fn check_parts(&self, of: usize, bytes: &Verified) -> Result<()> {
        for (i, offset) in self.held.get(&of).into_iter().flatten() {
            let part = self.files.get(*i).map(|file| file.entry);
            let part = part.ok_or_else(|| Error::new(Kind::Other, "internal: a part that is no file"))?;
            if bytes.digest_of(*offset, part.size)? != part.digest {
                let why = format!("{}: its bytes are not those of its digest: the checkpoint is damaged", part.path);
                return Err(Error::new(Kind::Damage, why));
            }
        }
        Ok(())
    }

    /// The base's file at the same path, and its length, where it is a true prefix.
    fn grown(&self, entry: &FileEntry, bytes: &Verified) -> Result<Option<(BaseFile, u64)>> {
        let at = self.base.by_path(&entry.path).filter(|_| !immutable(entry));
        let Some((at, before)) = at.and_then(|at| Some((at, self.base.entry(at)?))) else { return Ok(None) };
        // One extent is left for the appended bytes.
        let fits = before.size > 0 && before.size < entry.size && before.extents.len() < limits::EXTENTS_PER_FILE;
        Ok((fits && bytes.digest_of(0, before.size)? == before.digest).then_some((at, before.size)))
    }
}

impl Copying<'_> {
    /// An attempt before has copied this subtask.
    fn stands(&self, task: &TaskManifest) -> Result<(SnapshotReport, Arc<TaskManifest>)> {
        let mut place = self.intent.place.clone();
        place.role = task.place.role;
        place.subtask.clone_from(&task.place.subtask);
        let internal = || Error::new(Kind::Other, "internal: an ack without its place");
        let key = place.key().ok_or_else(internal)?;
        let bytes = self.to.store.get(&key, limits::METADATA_LEN)?;
        let bytes = bytes.ok_or_else(|| Error::new(Kind::NotFound, format!("{key} was listed and is not there")))?;
        let stored = decode_at::<TaskManifest>(&key, &bytes)
            .map_err(|e| Error::with_source(e.kind(), format!("{key}: {e}"), e))?
            .record;
        let files = |m: &TaskManifest| m.files.iter().map(|f| (f.path.clone(), f.size, f.digest)).collect::<Vec<_>>();
        if stored.place != place || files(&stored) != files(task) {
            let why = format!(
                "{key} is the ack of another checkpoint: end it with `ckptfs abort`, and copy --as another job"
            );
            return Err(Error::new(Kind::Conflict, why));
        }
        self.progress.advance(stored.logical_bytes);
        let report = SnapshotReport {
            number: CheckpointNumber::new(place.number).map_err(|_| internal())?,
            uid: place.uid,
            files: stored.files.len() as u64,
            logical_bytes: stored.logical_bytes,
            new_bytes: 0,
            reused_bytes: stored.logical_bytes,
            adopted_bytes: 0,
            seconds: 0.0,
            degraded_links: 0,
            open_elsewhere: Vec::new(),
            aborted: Vec::new(),
        };
        Ok((report, Arc::new(stored)))
    }

    /// Adds what other subtasks of the bases have of a subtask's large files: after a rescaling they lie there. Only files that the original did
    /// not upload itself can.
    fn look_elsewhere(&self, task: &TaskManifest, base: &mut BaseIndex) -> Result<()> {
        let older = |file: &FileEntry| {
            let blob = |i: u32| usize::try_from(i).ok().and_then(|i| task.blobs.get(i));
            file.extents.first().and_then(|e| blob(e.blob)).is_some_and(|b| b.name.uid != task.place.uid)
        };
        let missing = task.files.iter().filter(|f| alone(f) && older(f) && base.by_digest(&f.digest, f.size).is_none());
        let missing: Vec<(Digest, u64)> = missing.map(|f| (f.digest, f.size)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let elsewhere = match self.elsewhere.get() {
            Some(known) => known,
            None => {
                let found = self.all_large()?;
                self.elsewhere.get_or_init(|| found)
            }
        };
        let mut places: Vec<(usize, usize)> = missing.iter().filter_map(|f| elsewhere.get(f).copied()).collect();
        places.sort_unstable();
        places.dedup();
        for (b, s) in places {
            let of = self.bases.get(b);
            let entry = of.and_then(|of| of.manifest.as_ref()).and_then(|m| m.subtasks.get(s));
            if let Some((of, entry)) = of.zip(entry) {
                base.add(self.to.cache.task_manifest(&self.to.store, &of.of.job, of.of.number, entry)?);
            }
        }
        Ok(())
    }

    /// Large files of all subtasks of the bases.
    fn all_large(&self) -> Result<HashMap<(Digest, u64), (usize, usize)>> {
        let mut all = HashMap::new();
        for (b, base) in self.bases.iter().enumerate() {
            let subtasks = base.manifest.iter().flat_map(|m| &m.subtasks).enumerate().collect();
            let found = driver::parallel(subtasks, |(s, entry)| {
                match self.to.cache.task_manifest(&self.to.store, &base.of.job, base.of.number, entry) {
                    Ok(task) => Ok((s, super::large(&task).collect::<Vec<_>>())),
                    // A damaged base helps nobody.
                    Err(e) if e.kind() == Kind::Damage => Ok((s, Vec::new())),
                    Err(e) => Err(Error::from(e)),
                }
            })?;
            for (s, files) in found {
                for file in files {
                    all.entry(file).or_insert((b, s));
                }
            }
        }
        Ok(all)
    }
}
