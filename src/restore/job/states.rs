//! What task manifests say of states, and the small files that hold them.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::{FileEntry, TaskManifest};
use crate::lifecycle::{Checkpoint, driver};
use crate::limits;
use crate::restore::select::task_manifest;
use crate::state::{KeyedDescriptor, OperatorStateDescriptor};
use crate::types::Name;

/// The entry of a task manifest's list that describes the keyed state, and those of the operator states.
const KEYED: &str = "keyed";
const OPERATOR: &str = "operator";

/// What a task manifest describes.
#[derive(Debug, Clone, Default)]
pub(super) struct States {
    pub(super) keyed: Option<KeyedDescriptor>,
    pub(super) operator: Vec<OperatorStateDescriptor>,
}

/// Reads the descriptors. Entries of other kinds are somebody else's.
///
/// # Errors
/// [`Kind::Damage`] when one cannot be read, or keyed state is described twice.
pub(super) fn of(manifest: &TaskManifest) -> Result<States> {
    let place = &manifest.place;
    let damaged = |why: String| {
        let (operator, subtask) = place.subtask.as_ref().map_or(("", 0), |(o, i)| (o.as_str(), *i));
        let job = place.job.as_ref().map_or("", Name::as_str);
        Error::new(Kind::Damage, format!("{job}/chk-{}/{operator}/{subtask}: {why}", place.number))
    };
    let mut states = States::default();
    for value in &manifest.states {
        let unreadable = |e: serde_json::Error| damaged(format!("the description of a state cannot be read: {e}"));
        if let Some(keyed) = value.get(KEYED) {
            let keyed = serde_json::from_value(keyed.clone()).map_err(unreadable)?;
            if states.keyed.replace(keyed).is_some() {
                return Err(damaged("its keyed state is described twice".to_owned()));
            }
        } else if let Some(operator) = value.get(OPERATOR) {
            states.operator.push(serde_json::from_value(operator.clone()).map_err(unreadable)?);
        }
    }
    Ok(states)
}

/// An old subtask.
#[derive(Debug, Clone)]
pub(super) struct OldTask {
    pub(super) manifest: Arc<TaskManifest>,
    pub(super) states: States,
}

/// The old subtasks of an operator, in order.
///
/// # Errors
/// When a task manifest cannot be read or believed.
pub(super) fn tasks(session: &Session, checkpoint: &Checkpoint, operator: &Name) -> Result<Vec<OldTask>> {
    let entries = checkpoint.manifest.subtasks.iter().filter(|s| s.operator == *operator).collect();
    driver::parallel(entries, |entry| {
        let manifest = task_manifest(session, checkpoint, entry)?;
        let states = of(&manifest)?;
        Ok::<_, Error>(OldTask { manifest, states })
    })
}

impl OldTask {
    /// The files `<front><number>`, by number.
    pub(super) fn numbered<'a>(&'a self, front: &'a str) -> impl Iterator<Item = (u32, &'a FileEntry)> {
        let files = self.manifest.files.iter();
        let numbered = files.filter_map(move |f| Some((f.path.as_str().strip_prefix(front)?.parse().ok()?, f)));
        let mut numbered: Vec<(u32, &FileEntry)> = numbered.collect();
        numbered.sort_by_key(|(n, _)| *n);
        numbered.into_iter()
    }
}

/// The bytes of a file, verified.
///
/// # Errors
/// When they cannot be had, are not what they should be, or are too many for memory.
pub(super) fn read(session: &Session, manifest: &TaskManifest, file: &FileEntry) -> Result<Vec<u8>> {
    let too_long =
        || Error::new(Kind::Invalid, format!("{} has {} bytes, too many to be held in memory", file.path, file.size));
    if file.size > limits::MUTABLE_FILE {
        return Err(too_long());
    }
    if file.size == 0 {
        return Ok(Vec::new());
    }
    let local = session.cache.fetch_file(&session.store, manifest, file)?;
    // The cache has hashed so many bytes: the size is no longer a mere claim.
    let mut bytes = vec![0; usize::try_from(file.size).map_err(|_| too_long())?];
    let fail = |e| Error::with_source(Kind::Other, format!("cannot read the cache's copy of {}: {e}", file.path), e);
    local.read_exact_at(&mut bytes, 0).map_err(fail)?;
    Ok(bytes)
}
