//! Stores files of another program's checkpoint as one subtask's part of an open one: what was imported from the same place before, and
//! did not change there, is not read again.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::base::{BaseFile, BaseIndex};
use super::cancel::Cancel;
use super::input::{ForeignContent, ForeignFile, Input};
use super::pack::{self, Content, Sparse};
use super::transfer::{Rest, Stored, Transfer, grown_from};
use super::upload::{self, Described, Finished, Task};
use super::{SnapshotReport, foreign_db};
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::rocks::{self, FileKind};
use crate::format::{FilePath, Intent, TaskManifest, phases};
use crate::lifecycle::{Base, driver};
use crate::limits;
use crate::store::{Piece, Sources};
use crate::types::{Digest, Name, Progress};

/// What is to be stored of one subtask.
#[derive(Debug)]
pub struct ForeignTask<'a> {
    /// Whose it is.
    pub task: Task<'a>,
    /// The operator's name on the mount.
    pub operator: Name,
    /// Its files, by path.
    pub files: Vec<ForeignFile>,
    /// What the manifest says beside them.
    pub described: Described,
}

/// What the checkpoint's other subtasks need to know.
#[derive(Debug, Clone, Copy)]
pub struct Import<'a> {
    /// Store and cache.
    pub session: &'a Session,
    /// Where the files are read.
    pub sources: &'a Sources,
    /// The open checkpoint.
    pub intent: &'a Intent,
    /// What it may reuse.
    pub bases: &'a [Base],
}

/// What is known of a file before its bytes are.
enum Plan {
    /// A base has it, from the same origin.
    Known(BaseFile),
    /// It is read into memory.
    Read,
    /// It goes through the cache.
    Take,
    /// It is a part of another file.
    Part,
}

/// Stores the files and acknowledges them. `siblings` are what other subtasks of the checkpoint stored.
///
/// # Errors
/// When a RocksDB directory is not whole, a file cannot be read, or the store fails.
pub fn store(
    import: &Import<'_>,
    mut foreign: ForeignTask<'_>,
    siblings: &[Arc<TaskManifest>],
    progress: &dyn Progress,
) -> Result<(SnapshotReport, Arc<TaskManifest>)> {
    let begun = Instant::now();
    let Import { session, sources, intent, bases } = *import;
    let whose = format!("{}/{}", foreign.operator, foreign.task.subtask);
    let seen = foreign_db::check(sources, &mut foreign.files)
        .map_err(|e| Error::new(e.kind(), format!("{whose}: {}", e.message())))?;
    let mut base = BaseIndex::load(session, bases, &foreign.operator, foreign.task.subtask)?;
    siblings.iter().for_each(|sibling| base.add(Arc::clone(sibling)));
    let lost = base.look(&session.store);
    if !lost.is_empty() {
        base = base.without(lost);
    }
    let links = session.cache.batch();
    let cancel = Cancel::default();
    let uid = intent.place.uid;
    let transfer = Transfer::new(session, None, &base, uid, &links, &cancel, progress);
    let plans = plan(&foreign.files, &base);
    let to_take = plans.iter().zip(&foreign.files).filter(|(plan, _)| matches!(plan, Plan::Take));
    progress.plan(to_take.clone().count() as u64, to_take.map(|(_, file)| file.size()).sum());
    let work: Vec<(usize, Plan)> = plans.into_iter().enumerate().collect();
    let contents = driver::parallel(work, |(i, plan)| match foreign.files.get(i) {
        Some(file) => content(import, &transfer, &base, (file, seen.get(&i)), plan),
        None => Err(Error::new(Kind::Other, "internal: a plan without its file")),
    })?;
    let reused = contents.iter().zip(&foreign.files).filter(|(c, _)| matches!(c, Content::Base(_)));
    let reused_bytes = reused.map(|(_, file)| file.size()).sum();
    let inputs: Vec<Input<'_>> = foreign.files.iter().map(|file| Input::Foreign(sources, file)).collect();
    let packed = pack::pack(session, &inputs, &base, contents, Sparse::Keep)?;
    let bytes = packed.bundle.clone();
    let bundle = if bytes.is_empty() { None } else { Some(transfer.send_bundle(bytes)?) };
    let counts = transfer.finish()?;
    links.finish()?;
    foreign.described.properties.extend(phases::properties([(phases::UPLOAD, begun.elapsed())]));
    let mut manifest = upload::draft(&foreign.task, uid, foreign.described);
    manifest.place.subtask = Some((foreign.operator, foreign.task.subtask));
    manifest.new_bytes = counts.uploaded.into_inner();
    packed.fill(&mut manifest, &inputs, bundle)?;
    manifest.origins = foreign.files.iter().filter_map(origin_of).collect();
    let stands = Arc::new(manifest.clone());
    let finished = Finished { manifest, reused_bytes, adopted_bytes: counts.adopted.into_inner(), degraded_links: 0 };
    Ok((upload::acknowledge(session, finished)?, stands))
}

fn origin_of(file: &ForeignFile) -> Option<(FilePath, Digest)> {
    match &file.content {
        ForeignContent::Piece(piece) => piece.origin().map(|origin| (file.path.clone(), origin)),
        ForeignContent::Within { .. } => None,
    }
}

/// Decides by what is known without reading.
fn plan(files: &[ForeignFile], base: &BaseIndex) -> Vec<Plan> {
    let mut room = limits::BUNDLE_LEN;
    let decide = |file: &ForeignFile| {
        let ForeignContent::Piece(piece) = &file.content else { return Plan::Part };
        let size = piece.len();
        if let Some(known) = piece.origin().and_then(|origin| base.by_origin(&origin, size)) {
            return Plan::Known(known);
        }
        let immutable = kind_of(file).is_some_and(FileKind::is_immutable);
        let large = if immutable { size >= limits::OWN_BLOB_IMMUTABLE } else { size > limits::OWN_BLOB_OTHER };
        if large || size > room {
            return Plan::Take;
        }
        room -= size;
        Plan::Read
    };
    files.iter().map(decide).collect()
}

fn kind_of(file: &ForeignFile) -> Option<FileKind> {
    file.path.rocks_file().map(rocks::file_kind)
}

fn content(
    import: &Import<'_>,
    transfer: &Transfer<'_>,
    base: &BaseIndex,
    (file, seen): (&ForeignFile, Option<&Bytes>),
    plan: Plan,
) -> Result<Content> {
    let piece = match (&file.content, plan) {
        (_, Plan::Known(at)) => return Ok(Content::Base(at)),
        (ForeignContent::Within { of, offset, bytes }, _) => {
            return Ok(Content::Within(*of, *offset, Digest::of(bytes)));
        }
        (ForeignContent::Piece(piece), Plan::Take) => return take(import, transfer, file, piece),
        (ForeignContent::Piece(piece), _) => piece,
    };
    let bytes = seen.map_or_else(|| piece.read(import.sources), |bytes| Ok(bytes.clone()))?;
    let digest = Digest::of(&bytes);
    if let Some(at) = base.by_digest(&digest, file.size()) {
        return Ok(Content::Base(at));
    }
    Ok(match grown_from(base, &file.path, &bytes) {
        Some((at, front)) => Content::Grown(at, digest, Rest::Bytes(bytes.get(front..).unwrap_or_default().to_vec())),
        None => Content::Small(bytes.to_vec(), digest),
    })
}

/// A large file goes through the cache: it is on a disk when it is hashed and sent, and there for the mount afterwards.
fn take(import: &Import<'_>, transfer: &Transfer<'_>, file: &ForeignFile, piece: &Piece) -> Result<Content> {
    let size = file.size();
    let cache = &import.session.cache;
    let take_in = || {
        cache.take_in::<Error>(size, |receiver| match piece {
            Piece::There { file, offset, length } => Ok(import.sources.read_into(file, *offset, *length, receiver)?),
            Piece::Here(bytes) => receiver(bytes).map_err(|e| {
                Error::with_source(Kind::Other, format!("cannot write {} into the cache: {e}", file.path), e)
            }),
        })
    };
    let (digest, tree, opened) = match take_in() {
        // What was taken in before is in the store by now, and can go.
        Err(e) if e.kind() == Kind::Resources && cache.make_room()?.is_some_and(|gone| gone.files > 0) => take_in()?,
        taken => taken?,
    };
    cache.tidy();
    let is_sst = matches!(kind_of(file), Some(FileKind::Sst(_)));
    match transfer.store_taken(size, is_sst, (digest, tree, &opened))? {
        Stored::Base(at) => Ok(Content::Base(at)),
        Stored::Blob(sent) => Ok(Content::Blob(sent)),
        Stored::Grown { .. } => Err(Error::new(Kind::Other, "internal: a file of a checkpoint grew")),
    }
}
