//! What an import stores of each subtask, and of the checkpoint as a whole.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ckptfs::engine::foreign::ForeignTask;
use ckptfs::engine::import::{IMPORTED_FROM, LEFT_OUT};
use ckptfs::engine::input::{ForeignContent, ForeignFile};
use ckptfs::engine::upload::{Described, Task};
use ckptfs::error::{Error, Kind, Result};
use ckptfs::flink::found::Read;
use ckptfs::flink::plan::{MAX_PARALLELISM, OPERATOR_ID, Plan, PlannedOperator, PlannedTask};
use ckptfs::flink::relative::relative;
use ckptfs::format::{ExpectedOperator, FilePath, TaskManifest};
use ckptfs::store::{Piece, Sources};
use ckptfs::types::{Digest, Name};

use super::Importer;

/// The subtasks of one checkpoint.
pub(super) struct Tasks<'a> {
    pub(super) importer: &'a Importer<'a>,
    pub(super) read: &'a Read,
    pub(super) plan: &'a Plan,
    /// Files that were missing.
    pub(super) left_out: usize,
}

impl<'a> Tasks<'a> {
    fn of(&self, display: &'a str, subtask: u32) -> Task<'a> {
        Task { job: &self.importer.job, number: self.read.number, operator: display, subtask }
    }

    /// What one subtask had; nothing, if it had finished or never had state.
    pub(super) fn task(&self, operator: &ExpectedOperator, subtask: u32) -> Result<ForeignTask<'a>> {
        let planned = self.plan.operators.iter().find(|o| o.name == operator.operator);
        let planned = planned.ok_or_else(|| Error::new(Kind::Other, "internal: an operator that is not planned"))?;
        let mut described = Described { properties: properties(planned), ..Described::default() };
        let mut files = Vec::new();
        if let Some(task) = planned.tasks.get(&subtask) {
            described.backend.clone_from(&task.backend);
            described.key_groups = task.key_groups;
            files = contents(task, &self.importer.sources)?;
        }
        Ok(ForeignTask { task: self.of(&planned.display, subtask), operator: planned.name.clone(), files, described })
    }

    /// The `_metadata` that Flink restores from, and what no subtask owns.
    pub(super) fn last(&self, stored: &[Arc<TaskManifest>]) -> Result<ForeignTask<'a>> {
        let mut places: HashMap<(&Name, u32), &TaskManifest> = HashMap::new();
        for manifest in stored {
            if let Some((operator, subtask)) = &manifest.place.subtask {
                places.insert((operator, *subtask), manifest);
            }
        }
        let mut files = self.plan.own.clone();
        if self.left_out == 0 {
            let bytes = relative(&self.read.metadata, self.plan, |at| match &at.task {
                Some((operator, subtask)) => {
                    let entry = places.get(&(operator, *subtask))?.file(at.path.as_str())?;
                    Some((entry.digest, entry.size))
                }
                // It keeps its own name: what lies there is not looked at.
                None => self.plan.own.get(&at.path).map(|piece| (Digest::of(&[]), piece.len())),
            })?;
            let path = FilePath::parse("flink/_metadata").map_err(|why| Error::new(Kind::Other, why))?;
            files.insert(path, Piece::Here(bytes.into()));
        }
        let mut properties = BTreeMap::from([
            (IMPORTED_FROM.to_owned(), self.read.digest.to_hex()),
            ("flink.version".to_owned(), self.read.metadata.version.to_string()),
            ("flink.directory".to_owned(), self.read.directory.to_string()),
        ]);
        if self.left_out > 0 {
            properties.insert(LEFT_OUT.to_owned(), self.left_out.to_string());
        }
        Ok(ForeignTask {
            task: self.of("flink", 0),
            operator: Name::flink(),
            files: files.into_iter().map(|(path, piece)| file(path, ForeignContent::Piece(piece))).collect(),
            described: Described { properties, ..Described::default() },
        })
    }
}

fn properties(operator: &PlannedOperator) -> BTreeMap<String, String> {
    BTreeMap::from([
        (OPERATOR_ID.to_owned(), operator.id.clone()),
        (MAX_PARALLELISM.to_owned(), operator.max_parallelism.to_string()),
    ])
}

fn file(path: FilePath, content: ForeignContent) -> ForeignFile {
    ForeignFile { path, content, sst: None }
}

/// A subtask's files by path, with the parts of those that are shown in parts.
fn contents(task: &PlannedTask, sources: &Sources) -> Result<Vec<ForeignFile>> {
    let mut wholes: BTreeMap<&FilePath, Piece> = task.files.iter().map(|(path, piece)| (path, piece.clone())).collect();
    for part in &task.parts {
        if let Some(piece @ Piece::There { .. }) = wholes.get_mut(&part.of) {
            *piece = Piece::Here(piece.read(sources)?);
        }
    }
    let parts: BTreeMap<&FilePath, _> = task.parts.iter().map(|part| (&part.path, part)).collect();
    let mut paths: Vec<&FilePath> = wholes.keys().chain(parts.keys()).copied().collect();
    paths.sort();
    paths.dedup();
    let at: HashMap<&FilePath, usize> = paths.iter().enumerate().map(|(i, path)| (*path, i)).collect();
    let content = |path: &FilePath| {
        if let Some(piece) = wholes.get(path) {
            return Some(ForeignContent::Piece(piece.clone()));
        }
        let part = parts.get(path)?;
        let Some(Piece::Here(bytes)) = wholes.get(&part.of) else { return None };
        let from = usize::try_from(part.offset).ok()?;
        let to = from.checked_add(usize::try_from(part.length).ok()?).filter(|to| *to <= bytes.len())?;
        Some(ForeignContent::Within { of: *at.get(&part.of)?, offset: part.offset, bytes: bytes.slice(from..to) })
    };
    let files = paths.iter().map(|path| {
        let content = content(path).ok_or_else(|| Error::new(Kind::Other, "internal: a part without its whole"))?;
        Ok(file((*path).clone(), content))
    });
    files.collect()
}
