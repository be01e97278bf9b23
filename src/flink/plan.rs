//! What an import stores of a checkpoint: which files each subtask gets on the mount, and where their bytes are now. Nothing is read yet.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::metadata::{
    CheckpointMetadata, KeyedHandle, Operator, OperatorHandle, Part, Place, Role, StreamHandle, Subtask, Within,
    streams,
};
use super::place::{Lookup, Resolver, impossible};
use crate::error::{Error, Kind, Result};
use crate::format::{FilePath, rocks};
use crate::limits;
use crate::store::Piece;
use crate::types::{Digest, KeyGroupRange, Name};

/// The property of a subtask that names its operator's id.
pub const OPERATOR_ID: &str = "flink.operator-id";

/// The property of a subtask that says how many key groups its operator has.
pub const MAX_PARALLELISM: &str = "flink.max-parallelism";

/// A file, or a part of one, that a checkpoint needs and that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The operator's name on the mount.
    pub operator: Name,
    /// The subtask; nothing for what belongs to the operator as a whole.
    pub subtask: Option<u32>,
    /// What it is to the subtask.
    pub path: String,
    /// Its name in the `_metadata`.
    pub name: String,
    /// What is wrong.
    pub why: String,
}

/// A subtask of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedTask {
    /// Its index.
    pub subtask: u32,
    /// Its files, by path.
    pub files: BTreeMap<FilePath, Piece>,
    /// Which bytes of those are shown as files of their own, too.
    pub parts: Vec<PlannedPart>,
    /// The RocksDB instance, where there is one.
    pub backend: Option<String>,
    /// Its key groups.
    pub key_groups: Option<KeyGroupRange>,
}

/// A part of a file that is shown as a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedPart {
    /// Its path.
    pub path: FilePath,
    /// The file that it is a part of.
    pub of: FilePath,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// An operator of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedOperator {
    /// Its name for people.
    pub display: String,
    /// Its name on the mount.
    pub name: Name,
    /// Its id in hex.
    pub id: String,
    /// Its subtasks that have state.
    pub tasks: BTreeMap<u32, PlannedTask>,
    /// How many subtasks it had.
    pub parallelism: u32,
    /// How many key groups.
    pub max_parallelism: u32,
}

/// Where a stream of the `_metadata` is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAt {
    /// The operator's name on the mount; nothing for what belongs to no subtask.
    pub task: Option<(Name, u32)>,
    /// The file.
    pub path: FilePath,
}

/// All that an import stores.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The operators that have state.
    pub operators: Vec<PlannedOperator>,
    /// Files that belong to no subtask.
    pub own: BTreeMap<FilePath, Piece>,
    /// Where each stream that [`streams`] shows is stored, in that order; nothing for those that hold nothing.
    pub stored: Vec<Option<StoredAt>>,
    /// What is not there.
    pub missing: Vec<Missing>,
}

/// Makes the plan. Every file is looked for.
///
/// # Errors
/// When the `_metadata` contradicts itself, or a directory cannot be listed. What is missing is in the plan.
pub fn plan(metadata: &CheckpointMetadata, resolver: &Resolver<'_>) -> Result<Plan> {
    let names = names(&metadata.operators);
    let mut plan = Plan::default();
    for (operator, (display, name)) in metadata.operators.iter().zip(names) {
        plan.operators.push(PlannedOperator {
            display,
            name,
            id: operator.hex(),
            tasks: BTreeMap::new(),
            parallelism: operator.parallelism,
            max_parallelism: operator.max_parallelism,
        });
    }
    let mut databases: HashMap<(usize, usize), Vec<Vec<Within>>> = HashMap::new();
    let mut changes: HashMap<(usize, usize), usize> = HashMap::new();
    let mut channels: HashMap<(usize, Option<usize>, Digest), FilePath> = HashMap::new();
    streams::<Error>(metadata, |place, handle| {
        let Some((operator, planned)) =
            metadata.operators.get(place.operator).zip(plan.operators.get_mut(place.operator))
        else {
            return Err(Error::new(Kind::Other, "internal: a place without its operator"));
        };
        let subtask = place.subtask.and_then(|at| operator.subtasks.get(at));
        let path = match place.subtask {
            Some(at) => {
                let key = (place.operator, at);
                path_of(place, databases.entry(key).or_default(), changes.entry(key).or_default())?
            }
            None => parse(&format!("flink/coordinator-{}", planned.id))?,
        };
        if matches!((place.subtask, handle), (None, StreamHandle::Inline { .. })) {
            // What belongs to no subtask stays where it is.
            plan.stored.push(None);
            return Ok(());
        }
        let missing = |name: String, why: String| Missing {
            operator: planned.name.clone(),
            subtask: subtask.map(|s| s.index),
            path: path.to_string(),
            name,
            why,
        };
        let grows = matches!(place.part, Part::Changes(_));
        let piece = match (handle, resolver.find(handle, grows)?) {
            (_, Some(Lookup::Missing { name, why })) => {
                plan.missing.push(missing(name, why));
                plan.stored.push(None);
                return Ok(());
            }
            (StreamHandle::Segment { start, size, .. }, Some(Lookup::Found(file))) => {
                Piece::There { file, offset: *start, length: *size }
            }
            (_, Some(Lookup::Found(file))) => {
                let length = file.size;
                Piece::There { file, offset: 0, length }
            }
            (StreamHandle::Inline { bytes, .. }, None) => Piece::Here(bytes.clone().into()),
            (_, None) => {
                plan.stored.push(None);
                return Ok(());
            }
        };
        // The channels of a subtask have a handle each, and one file.
        let path = match (place.role, piece.origin()) {
            (Role::InputChannel(_) | Role::ResultSubpartition(_), Some(origin)) => {
                channels.entry((place.operator, place.subtask, origin)).or_insert(path).clone()
            }
            _ => path,
        };
        let files = match subtask {
            Some(subtask) => &mut planned.tasks.entry(subtask.index).or_insert_with(|| task_of(subtask)).files,
            None => &mut plan.own,
        };
        if let Some(before) = files.get(&path)
            && *before != piece
        {
            return Err(impossible(format!("{}/{path} stands for two different files", planned.name)).into());
        }
        files.insert(path.clone(), piece);
        plan.stored.push(Some(StoredAt { task: subtask.map(|s| (planned.name.clone(), s.index)), path }));
        Ok(())
    })?;
    for (operator, planned) in metadata.operators.iter().zip(&mut plan.operators) {
        let mut indices = BTreeSet::new();
        if let Some(twice) = operator.subtasks.iter().find(|subtask| !indices.insert(subtask.index)) {
            return Err(impossible(format!("{} has subtask {} twice", planned.name, twice.index)).into());
        }
        for subtask in &operator.subtasks {
            if let Some(task) = planned.tasks.get_mut(&subtask.index) {
                task.parts = super::parts::parts(subtask, &task.files)?;
            }
        }
        if let Some(highest) = planned.tasks.keys().next_back().filter(|i| **i >= planned.parallelism) {
            return Err(
                impossible(format!("{} of {} has a subtask {highest}", planned.name, planned.parallelism)).into()
            );
        }
    }
    plan.operators.retain(|operator| !operator.tasks.is_empty());
    Ok(plan)
}

fn task_of(subtask: &Subtask) -> PlannedTask {
    let (mut backend, mut key_groups) = (None, None);
    if let Some(keyed) = &subtask.managed_keyed {
        let (groups, id) = described(keyed);
        (backend, key_groups) = (id, groups);
    }
    PlannedTask { subtask: subtask.index, files: BTreeMap::new(), parts: Vec::new(), backend, key_groups }
}

/// Key groups and backend of a keyed handle.
fn described(handle: &KeyedHandle) -> (Option<KeyGroupRange>, Option<String>) {
    let range = |first: u32, count: u32| {
        let last = first.checked_add(count)?.checked_sub(1)?;
        KeyGroupRange::new(first, last).ok()
    };
    match handle {
        KeyedHandle::KeyGroups { state, .. } | KeyedHandle::Savepoint(state) => {
            (u32::try_from(state.offsets.len()).ok().and_then(|n| range(state.first, n)), None)
        }
        KeyedHandle::Incremental { key_groups, backend_id, .. } => {
            (range(key_groups.first, key_groups.count), Some(backend_id.clone()))
        }
        KeyedHandle::Changelog { key_groups, materialized, .. } => {
            let backend = materialized.iter().find_map(|handle| described(handle).1);
            (range(key_groups.first, key_groups.count), backend)
        }
        KeyedHandle::ChangelogInMemory { key_groups, .. } | KeyedHandle::ChangelogFiles { key_groups, .. } => {
            (range(key_groups.first, key_groups.count), None)
        }
    }
}

fn parse(path: &str) -> Result<FilePath> {
    FilePath::parse(path).map_err(|why| impossible(why).into())
}

/// The path of a subtask's stream. `databases` are the incremental handles that were met, `changes` counts changelog files.
fn path_of(place: &Place<'_>, databases: &mut Vec<Vec<Within>>, changes: &mut usize) -> Result<FilePath> {
    let database = || {
        let known = databases.iter().position(|within| within == place.within);
        known.unwrap_or_else(|| {
            databases.push(place.within.to_vec());
            databases.len() - 1
        })
    };
    let numbered = |name: &str, n: usize| if n == 0 { name.to_owned() } else { format!("{name}-{n}") };
    let path = match (place.role, place.part) {
        (Role::ManagedKeyed, Part::Meta) => format!("stream/{}", numbered("meta", { database }())),
        (Role::ManagedKeyed, Part::Shared(file) | Part::Private(file)) => {
            if matches!(rocks::file_kind(file), rocks::FileKind::Lock | rocks::FileKind::InfoLog) {
                return Err(impossible(format!("{file} is no file of a checkpoint")).into());
            }
            format!("{}/{file}", numbered("db", { database }()))
        }
        (Role::ManagedKeyed, Part::Whole) if place.within.is_empty() => "stream/keyed".to_owned(),
        (Role::ManagedKeyed, Part::Whole | Part::Changes(_)) => {
            *changes += 1;
            format!("stream/changelog-{}", *changes - 1)
        }
        (Role::RawKeyed, _) => "stream/raw-keyed".to_owned(),
        (Role::ManagedOperator, _) => "stream/operator".to_owned(),
        (Role::RawOperator, _) => "stream/raw-operator".to_owned(),
        (Role::InputChannel(n), _) => format!("stream/input-{n}"),
        (Role::ResultSubpartition(n), _) => format!("stream/output-{n}"),
        (Role::Coordinator, _) => return Err(Error::new(Kind::Other, "internal: a coordinator is no subtask")),
    };
    parse(&path)
}

/// What people call each operator, and its name on the mount: the uid, else the name where it is the only one, else the id.
fn names(operators: &[Operator]) -> Vec<(String, Name)> {
    let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let mut counts: HashMap<String, u32> = HashMap::new();
    for operator in operators {
        for text in [said(&operator.uid), said(&operator.name)].into_iter().flatten().collect::<BTreeSet<_>>() {
            *counts.entry(text).or_default() += 1;
        }
    }
    let alone = |text: &String| counts.get(text) == Some(&1);
    let mut taken = BTreeSet::new();
    let mut out = Vec::with_capacity(operators.len());
    for operator in operators {
        let uid = said(&operator.uid).filter(alone);
        let display = uid.or_else(|| said(&operator.name).filter(alone)).unwrap_or_else(|| operator.hex());
        let again = (2..).map(|n| Name::encode(&format!("{}-{n}", operator.hex())));
        let mut names = [Name::encode(&display), Name::encode(&operator.hex())].into_iter().chain(again);
        let Some(name) = names.find(|name| taken.insert(name.clone())) else { continue };
        let end = (0..=limits::DISPLAY_NAME_LEN).rev().find(|end| display.is_char_boundary(*end));
        let cut = display.get(..end.unwrap_or_default()).unwrap_or(&display);
        out.push((cut.to_owned(), name));
    }
    out
}

/// Whether an operator handle is there for the directories of file merging alone.
pub(super) fn is_empty(handle: &OperatorHandle) -> bool {
    handle.merging.as_ref().is_some_and(|merging| merging.empty)
}

impl Plan {
    /// Takes out every handle that misses something; returns what was missing.
    pub fn leave_out_what_is_broken(&mut self) -> Vec<Missing> {
        let missing = std::mem::take(&mut self.missing);
        for lost in &missing {
            let Some(subtask) = lost.subtask else { continue };
            let task =
                self.operators.iter_mut().find(|o| o.name == lost.operator).and_then(|o| o.tasks.get_mut(&subtask));
            let Some(task) = task else { continue };
            let handle = handle_of(&lost.path);
            task.files.retain(|path, _| handle_of(path.as_str()) != handle);
            let files = &task.files;
            task.parts.retain(|part| files.contains_key(&part.of));
        }
        for operator in &mut self.operators {
            operator.tasks.retain(|_, task| !task.files.is_empty());
        }
        self.operators.retain(|operator| !operator.tasks.is_empty());
        missing
    }
}

/// What all files of one handle have in common.
fn handle_of(path: &str) -> &str {
    let keyed = ["db/", "db-", "stream/meta", "stream/changelog", "stream/keyed"];
    if keyed.iter().any(|prefix| path.starts_with(prefix)) { "keyed" } else { path }
}

/// The last components of all names of files in a `_metadata`.
#[must_use]
pub fn names_in(metadata: &CheckpointMetadata) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let walked = streams::<std::convert::Infallible>(metadata, |_, handle| {
        if let StreamHandle::File { path, .. }
        | StreamHandle::Relative { path, .. }
        | StreamHandle::Segment { path, .. } = handle
        {
            names.insert(path.rsplit('/').next().unwrap_or_default().to_owned());
        }
        Ok(())
    });
    match walked {
        Ok(()) => names,
        Err(never) => match never {},
    }
}
