//! A subtask's keyed state, opened: databases, or the key groups of a savepoint, each with its description.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use ckptfs::error::{Error, Kind, Result};
use ckptfs::flink::keyed::{BackendMeta, State, read_meta};
use ckptfs::flink::plan::{MAX_PARALLELISM, OPERATOR_ID};
use ckptfs::format::rocks::{FileKind, file_kind};
use ckptfs::format::{FilePath, SubtaskEntry, TaskManifest};
use ckptfs::limits;
use ckptfs::restore::Brought;
use ckptfs::state::{Count, Foreign, Visitor};

use super::Look;
use super::groups::Groups;

/// A subtask, unopened.
pub(super) struct Subtask<'a> {
    pub(super) entry: &'a SubtaskEntry,
    pub(super) manifest: Arc<TaskManifest>,
}

/// How its keyed state lies there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Database,
    Savepoint,
    None,
}

/// It, opened.
pub(super) struct Opened {
    /// More than one where a changelog builds on several.
    pub(super) handles: Vec<Handle>,
    /// What the handles read. It goes after them.
    _brought: Brought,
}

/// A keyed handle.
pub(super) struct Handle {
    /// Nothing where none is stored, as of databases that Flink did not write.
    pub(super) meta: Option<BackendMeta>,
    pub(super) rows: Rows,
}

pub(super) enum Rows {
    Database(Foreign),
    Groups(Groups),
}

impl Subtask<'_> {
    /// Flink's id of the operator; nothing for checkpoints that were not imported from it.
    pub(super) fn operator_id(&self) -> Option<&str> {
        self.manifest.properties.get(OPERATOR_ID).map(String::as_str)
    }

    pub(super) fn max_parallelism(&self) -> Option<u32> {
        self.manifest.properties.get(MAX_PARALLELISM)?.parse().ok()
    }

    pub(super) fn form(&self) -> Form {
        if !self.databases().is_empty() {
            Form::Database
        } else if self.manifest.file("stream/keyed").is_some() {
            Form::Savepoint
        } else {
            Form::None
        }
    }

    /// Changes behind the databases lie in a changelog, which is not read.
    pub(super) fn has_changelog(&self) -> bool {
        self.manifest.files.iter().any(|f| f.path.as_str().starts_with("stream/changelog"))
    }

    /// Directories of databases.
    fn databases(&self) -> Vec<&str> {
        let current = self.manifest.files.iter().filter(|f| f.path.rocks_file() == Some("CURRENT"));
        current.filter_map(|f| f.path.as_str().split('/').next()).collect()
    }

    /// Bytes that opening it without a mount copies.
    pub(super) fn bytes(&self) -> u64 {
        ckptfs::restore::Reading::size(&self.manifest, &|path| needed(path, None))
    }

    /// The description of its states alone.
    pub(super) fn description(&self, look: &Look<'_>) -> Result<Option<BackendMeta>> {
        let is_one = |path: &FilePath| matches!(path.as_str(), "stream/meta" | "stream/keyed");
        if !self.manifest.files.iter().any(|f| is_one(&f.path)) {
            return Ok(None);
        }
        let brought = look.reading.bring(self.entry, &self.manifest, &is_one, &look.bar)?;
        let name = if self.form() == Form::Savepoint { "stream/keyed" } else { "stream/meta" };
        self.meta(brought.path(), name)
    }

    fn meta(&self, root: &Path, name: &str) -> Result<Option<BackendMeta>> {
        if self.manifest.file(name).is_none() {
            return Ok(None);
        }
        // Of a savepoint the key groups follow.
        let bytes = read_front(&root.join(name), limits::FLINK_DESCRIPTION_LEN)?;
        let meta = read_meta(&bytes).map_err(|e| Error::from(e).context(self.place()))?;
        Ok(Some(meta))
    }

    /// For messages.
    pub(super) fn place(&self) -> String {
        format!("{}/{}", self.entry.operator, self.entry.subtask)
    }

    /// Opens it; of a savepoint one key group alone, where one is named.
    pub(super) fn open(&self, look: &Look<'_>, group: Option<u32>) -> Result<Opened> {
        let brought = look.reading.bring(self.entry, &self.manifest, &|path| needed(path, group), &look.bar)?;
        let root = brought.path();
        let mut handles = Vec::new();
        if self.form() == Form::Savepoint {
            let meta = self.meta(root, "stream/keyed")?;
            let max = self.max_parallelism().unwrap_or_default();
            if let Some(meta) = &meta {
                let groups = Groups::new(root, &self.manifest, meta, max)?;
                handles.push(Handle { meta: Some(meta.clone()), rows: Rows::Groups(groups) });
            }
        }
        for database in self.databases() {
            let meta = match database.strip_prefix("db-") {
                Some(n) => self.meta(root, &format!("stream/meta-{n}"))?,
                None => self.meta(root, "stream/meta")?,
            };
            handles.push(Handle { meta, rows: Rows::Database(Foreign::open(&root.join(database))?) });
        }
        Ok(Opened { handles, _brought: brought })
    }
}

/// Whether a file is read. OPTIONS never are.
fn needed(path: &FilePath, group: Option<u32>) -> bool {
    if let Some(name) = path.rocks_file() {
        return !matches!(file_kind(name), FileKind::Options(_));
    }
    let text = path.as_str();
    match text.strip_prefix("keyed/") {
        Some(n) => group.is_none_or(|group| n.parse() == Ok(group)),
        None => text == "stream/keyed" || text.starts_with("stream/meta"),
    }
}

/// So many of a file's first bytes.
pub(super) fn read_front(path: &Path, most: u64) -> Result<Vec<u8>> {
    let fail = |e: std::io::Error| {
        let advice = "`ckptfs verify --read` tells whether its bytes are damaged";
        Error::with_source(Kind::Other, format!("cannot read {}: {e} ({advice})", path.display()), e)
    };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(fail)?;
    Ok(bytes)
}

impl Handle {
    /// Names of what has rows: the described states first, then column families that no description names.
    pub(super) fn families(&self) -> Vec<String> {
        let mut out: Vec<String> = self.meta.iter().flat_map(|m| &m.states).map(|state| state.name.clone()).collect();
        match &self.rows {
            Rows::Database(db) => {
                let stored = db.families();
                // Flink makes a column family at the state's first use.
                out.retain(|name| stored.contains(name));
                let rest: Vec<String> = stored.iter().filter(|name| !out.contains(name)).cloned().collect();
                out.extend(rest);
            }
            Rows::Groups(groups) => out.extend(groups.unnamed()),
        }
        out
    }

    /// Rows and bytes of each of them.
    pub(super) fn counts(&self) -> Result<Vec<(String, Count)>> {
        let families = self.families();
        match &self.rows {
            Rows::Database(db) => families.into_iter().map(|f| Ok((f.clone(), db.count(&f)?))).collect(),
            Rows::Groups(groups) => {
                let mut counts = vec![Count::default(); families.len()];
                groups.visit(None, &mut |state, key, value| {
                    if let Some(count) = groups.place(state).and_then(|at| counts.get_mut(at)) {
                        count.add(key, value);
                    }
                    Ok(true)
                })?;
                Ok(families.into_iter().zip(counts).collect())
            }
        }
    }

    /// Shows the rows of one of them whose keys begin so, until the visitor says false; whether it never did.
    pub(super) fn visit(&self, family: &str, prefix: &[u8], visitor: &mut Visitor<'_, Error>) -> Result<bool> {
        match &self.rows {
            Rows::Database(db) => db.visit(family, prefix, visitor),
            Rows::Groups(groups) => {
                let wanted = self.families().iter().position(|name| name == family);
                groups.visit(groups.of_prefix(prefix), &mut |state, key, value| {
                    if groups.place(state) == wanted && key.starts_with(prefix) {
                        visitor(key, value)
                    } else {
                        Ok(true)
                    }
                })
            }
        }
    }

    pub(super) fn state(&self, family: &str) -> Option<&State> {
        self.meta.as_ref()?.state(family)
    }
}
