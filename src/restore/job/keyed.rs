//! The keyed state of one new subtask: the old directory where its key groups are the same, else one that is put together.

use std::path::{Path, PathBuf};

use super::assign::{OldHandle, assign};
use super::bring::{Old, Way, in_place};
use super::rescale::{Part, rescale};
use super::{RestoreOptions, states};
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::BaseRef;
use crate::lifecycle::{Checkpoint, driver};
use crate::restore::select::task_manifest;
use crate::state::KeyedDescriptor;
use crate::types::{KeyGroupRange, Name, Uid};

/// A directory that the subtask's backend opens.
#[derive(Debug, Clone)]
pub struct RestoredKeyed {
    /// Where it is.
    pub directory: PathBuf,
    /// Its states, with the new range and uid.
    pub descriptor: KeyedDescriptor,
    /// Identity of the backend: the old one's where it goes on, else a new one.
    pub backend_uid: Uid,
    /// It is one old subtask's, of the same key groups.
    pub inherits: bool,
    /// Where the directory that it is built on came from.
    pub way: Way,
    /// The checkpoint that the next one may be based on: what is unchanged need not be uploaded again.
    pub base: BaseRef,
}

/// Makes the RocksDB directory of a new subtask. `directory` must not exist, or be empty. Nothing where no old subtask has keyed state
/// for its key groups: then the backend begins empty.
///
/// # Errors
/// When the parallelism or the number of key groups does not fit, bytes cannot be had or are not what they should be, or RocksDB fails.
/// Then nothing is left, neither `directory` nor anything beside it.
pub fn restore_keyed(
    session: &Session,
    checkpoint: &Checkpoint,
    operator: &Name,
    index: u32,
    parallelism: u32,
    options: &RestoreOptions,
    directory: &Path,
) -> Result<Option<RestoredKeyed>> {
    let parts = parts(session, checkpoint, operator, options)?;
    let handles: Vec<OldHandle> = parts.iter().map(|p| p.handle).collect();
    let words = || format!("{}/{}/{operator}", checkpoint.job, checkpoint.number);
    let assigned = assign(&handles, options.max_parallelism, parallelism, index).map_err(|e| e.context(words()))?;
    let part = |handle: OldHandle| parts.iter().find(|p| p.handle == handle);
    let base = BaseRef { job: checkpoint.job.clone(), number: checkpoint.number, uid: checkpoint.uid };
    let directory_of = |descriptor: KeyedDescriptor, inherits, way| RestoredKeyed {
        directory: directory.to_owned(),
        backend_uid: descriptor.backend,
        descriptor,
        inherits,
        way,
        base: base.clone(),
    };
    if let Some(one) = assigned.unchanged().and_then(part) {
        let way = one.old.bring(options, directory)?;
        return Ok(Some(directory_of(one.descriptor.clone(), true, way)));
    }
    let Some(best) = assigned.best().and_then(part) else { return Ok(None) };
    let others: Vec<&Part<'_>> = assigned.others().filter_map(part).collect();
    let (descriptor, way) = rescale(session, best, &others, assigned.mine, options, directory)?;
    Ok(Some(directory_of(descriptor, false, way)))
}

/// Keyed state as it lies under a mount, to be opened read-only.
#[derive(Debug, Clone)]
pub struct KeyedInPlace {
    /// The subtask whose it was.
    pub subtask: u32,
    /// Its RocksDB directory.
    pub directory: PathBuf,
    /// Its states.
    pub descriptor: KeyedDescriptor,
}

/// The keyed state of an operator where it lies: nothing is copied, and only what is read is fetched.
///
/// # Errors
/// When `mount` is no mount of this store that answers, or a task manifest cannot be read or believed.
pub fn keyed_in_place(
    session: &Session,
    checkpoint: &Checkpoint,
    operator: &Name,
    mount: &Path,
) -> Result<Vec<KeyedInPlace>> {
    let tasks = states::tasks(session, checkpoint, operator)?;
    let entries = checkpoint.manifest.subtasks.iter().filter(|s| s.operator == *operator);
    let found = entries.zip(tasks).filter_map(|(entry, task)| Some((entry, task.states.keyed?)));
    let in_place = found.map(|(entry, descriptor)| {
        let directory = in_place(session, checkpoint, entry, mount)?;
        Ok(KeyedInPlace { subtask: entry.subtask, directory, descriptor })
    });
    in_place.collect()
}

/// What the old subtasks of an operator have of keyed state.
fn parts<'a>(
    session: &'a Session,
    checkpoint: &'a Checkpoint,
    operator: &Name,
    options: &RestoreOptions,
) -> Result<Vec<Part<'a>>> {
    let entries = checkpoint.manifest.subtasks.iter().filter(|s| s.operator == *operator).collect();
    let parts = driver::parallel(entries, |entry| {
        let manifest = task_manifest(session, checkpoint, entry)?;
        let Some(descriptor) = states::of(&manifest)?.keyed else { return Ok(None) };
        let words = format!("{}/{}/{operator}/{}", checkpoint.job, checkpoint.number, entry.subtask);
        if descriptor.max_parallelism != options.max_parallelism {
            return Err(Error::new(
                Kind::Invalid,
                format!(
                    "{words} was stored with a max_parallelism of {} and cannot be restored with {}: keep the old number",
                    descriptor.max_parallelism, options.max_parallelism
                ),
            ));
        }
        let range: KeyGroupRange = descriptor.range;
        if manifest.key_groups.is_some_and(|r| r != range) {
            let why = "its task manifest names two different key-group ranges";
            return Err(Error::new(Kind::Damage, format!("{words}: {why}")));
        }
        let handle = OldHandle { subtask: entry.subtask, range };
        Ok(Some(Part { handle, descriptor, old: Old { session, checkpoint, entry, manifest } }))
    })?;
    Ok(parts.into_iter().flatten().collect())
}
