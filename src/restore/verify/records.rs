//! Lists the store and reads its metadata objects, all but the task manifests of living checkpoints.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::finding::{Finding, FindingKind, Hurt};
use super::{Report, Scope};
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::records::{
    EpochRecord, ExpiredRecord, FloorRecord, HeadRecord, HiddenRecord, PinRecord, StoreRecord,
};
use crate::format::{CheckpointManifest, FormatError, Intent, Outcome, Record, TaskManifest, Verdict, decode_at};
use crate::lifecycle::driver;
use crate::limits;
use crate::store::{Foreign, Store, StoreError};
use crate::types::{BlobName, CheckpointNumber, Digest, Key, KeyParts, Name, Prefix, RecordKind, Uid};

/// A checkpoint by name.
pub(super) type At = (Name, CheckpointNumber);

/// A completed checkpoint that somebody may read: alive, hidden, or expired and pinned.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) job: Name,
    pub(super) number: CheckpointNumber,
    pub(super) manifest: Arc<CheckpointManifest>,
}

/// What the store's metadata says.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Lengths of all blobs, where the whole store was listed.
    pub(super) sizes: Option<HashMap<BlobName, u64>>,
    /// Objects whose keys are none of ours, where the whole store was listed.
    pub(super) strangers: Vec<Foreign>,
    pub(super) intents: BTreeMap<At, Intent>,
    pub(super) completed: BTreeMap<At, (Uid, Arc<CheckpointManifest>)>,
    pub(super) aborted: BTreeMap<At, Uid>,
    /// Numbers with an outcome, readable or not.
    pub(super) decided: BTreeSet<At>,
    pub(super) expired: BTreeSet<At>,
    /// Who uploaded for a dead number, as its tombstone says.
    pub(super) dead: BTreeMap<At, Uid>,
    /// Numbers that have a pin, readable or not.
    pub(super) pinned: BTreeSet<At>,
    pub(super) pins: Vec<(Key, PinRecord)>,
    pub(super) floors: BTreeMap<Name, BTreeMap<CheckpointNumber, FloorRecord>>,
    /// Task manifests, by checkpoint.
    pub(super) tasks: BTreeMap<At, BTreeSet<(Name, u32)>>,
    /// Objects that cannot be believed.
    pub(super) unreadable: BTreeSet<Key>,
    /// What writers must know and this version does not.
    pub(super) blocks_writing: BTreeMap<Key, String>,
}

/// A record that was read.
enum Read {
    Intent(Intent),
    Outcome(Outcome),
    Expired(ExpiredRecord),
    Floor(FloorRecord),
    Pin(PinRecord),
    Other,
}

impl Records {
    pub(super) fn read(session: &Session, scope: &Scope, report: &mut Report) -> Result<Self> {
        let mut records = Self::default();
        let mut keys = records.list(session, scope)?;
        keys.retain(|key| in_scope(key, scope));
        for key in &keys {
            records.note(key);
        }
        report.records = keys.len() as u64;
        let to_read = keys.into_iter().filter(|key| !matches!(key.parts(), KeyParts::Task(..))).collect();
        let read = driver::parallel(to_read, |key| look(&session.store, &key, parse).map(|found| (key, found)))?;
        let mut bad = Vec::new();
        for (key, found) in read {
            match found {
                Ok(Some((record, blocks))) => records.take(&key, record, &blocks),
                // Deleted since it was listed.
                Ok(None) => {}
                Err((kind, why)) => bad.push((key, kind, why)),
            }
        }
        records.spare_tasks(session, &mut bad)?;
        for (key, kind, why) in bad {
            report.findings.push(Finding::stored(kind, &key, records.hurts(&key), why));
            records.unreadable.insert(key);
        }
        Ok(records)
    }

    /// Lists what is in the scope; the whole store where that is everything.
    fn list(&mut self, session: &Session, scope: &Scope) -> Result<Vec<Key>> {
        let store = &session.store;
        let Some(job) = &scope.job else {
            let all = store.list_all(&Prefix::all())?;
            let mut sizes = HashMap::new();
            let mut keys = Vec::new();
            for listed in all.ours {
                match listed.key.parts() {
                    KeyParts::Blob(name) => drop(sizes.insert(*name, listed.size)),
                    _ => keys.push(listed.key),
                }
            }
            self.sizes = Some(sizes);
            self.strangers = all.foreign;
            return Ok(keys);
        };
        let kinds = [
            RecordKind::Epoch,
            RecordKind::Intent,
            RecordKind::Task,
            RecordKind::Outcome,
            RecordKind::Hidden,
            RecordKind::Expired,
            RecordKind::Pin,
            RecordKind::Floor,
        ];
        let lists = driver::parallel(kinds.to_vec(), |kind| store.list(&Prefix::job(kind, job)))?;
        let keys: Vec<Key> = lists.into_iter().flatten().map(|listed| listed.key).collect();
        let decided = |key: &Key| matches!(key.parts(), KeyParts::Intent(..) | KeyParts::Outcome(..));
        if !keys.iter().any(decided) {
            return Err(Error::new(Kind::NotFound, format!("there is no job {job}: `ckptfs ls` lists the jobs")));
        }
        Ok(keys.into_iter().chain([Key::store(), Key::head(job)]).collect())
    }

    /// Notes what a key itself says.
    fn note(&mut self, key: &Key) {
        match key.parts() {
            KeyParts::Task(job, n, operator, subtask) => {
                self.tasks.entry((job.clone(), *n)).or_default().insert((operator.clone(), *subtask));
            }
            KeyParts::Outcome(job, n) => drop(self.decided.insert((job.clone(), *n))),
            KeyParts::Expired(job, n) => drop(self.expired.insert((job.clone(), *n))),
            KeyParts::Pin(job, n, ..) => drop(self.pinned.insert((job.clone(), *n))),
            _ => {}
        }
    }

    fn take(&mut self, key: &Key, record: Read, blocks: &[String]) {
        if !blocks.is_empty() {
            self.blocks_writing.insert(key.clone(), blocks.join(", "));
        }
        match (key.parts(), record) {
            (KeyParts::Intent(job, n), Read::Intent(intent)) => drop(self.intents.insert((job.clone(), *n), intent)),
            (KeyParts::Outcome(job, n), Read::Outcome(outcome)) => match outcome.verdict {
                Verdict::Completed(manifest) => {
                    self.completed.insert((job.clone(), *n), (outcome.place.uid, Arc::new(manifest)));
                }
                Verdict::Aborted { .. } => drop(self.aborted.insert((job.clone(), *n), outcome.place.uid)),
            },
            (KeyParts::Expired(job, n), Read::Expired(expired)) => {
                self.dead.insert((job.clone(), *n), expired.place.uid);
            }
            (KeyParts::Floor(job, f), Read::Floor(floor)) => {
                self.floors.entry(job.clone()).or_default().insert(*f, floor);
            }
            (KeyParts::Pin(..), Read::Pin(pin)) => self.pins.push((key.clone(), pin)),
            _ => {}
        }
    }

    /// Reads the task manifests that no living checkpoint names, and that are not dead: of open and aborted numbers, and of outcomes
    /// that cannot be read.
    fn spare_tasks(&self, session: &Session, bad: &mut Vec<(Key, FindingKind, String)>) -> Result<()> {
        let mut keys = Vec::new();
        for (at, subtasks) in &self.tasks {
            if self.expired.contains(at) || self.gone(at) {
                continue;
            }
            let named = self.completed.get(at).map(|(_, manifest)| &manifest.subtasks);
            for (operator, subtask) in subtasks {
                if !named.is_some_and(|all| all.iter().any(|s| s.operator == *operator && s.subtask == *subtask)) {
                    keys.push(Key::task(&at.0, at.1, operator, *subtask));
                }
            }
        }
        let check = |key: &Key, bytes: &[u8]| decode_at::<TaskManifest>(key, bytes).map(drop);
        let read = driver::parallel(keys, |key| look(&session.store, &key, check).map(|found| (key, found)))?;
        bad.extend(read.into_iter().filter_map(|(key, found)| found.err().map(|(kind, why)| (key, kind, why))));
        Ok(())
    }

    /// Whether a number is gone: some floor above it does not list it.
    pub(super) fn gone(&self, at: &At) -> bool {
        let floors = self.floors.get(&at.0).into_iter().flatten();
        floors.into_iter().any(|(f, floor)| at.1 < *f && !floor.survivors.contains(&at.1))
    }

    /// Whether a floor that cannot be read may have taken the number away.
    fn unsure(&self, at: &At) -> bool {
        self.unreadable.iter().any(|key| matches!(key.parts(), KeyParts::Floor(job, f) if *job == at.0 && at.1 < *f))
    }

    /// Whether it was begun and not decided, and may still be.
    pub(super) fn open(&self, at: &At) -> bool {
        !self.decided.contains(at) && !self.gone(at)
    }

    /// Whether somebody may read it.
    pub(super) fn alive(&self, at: &At) -> bool {
        !self.gone(at) && !self.unsure(at) && (!self.expired.contains(at) || self.pinned.contains(at))
    }

    /// The completed checkpoints that somebody may read, in order.
    pub(super) fn subjects(&self, scope: &Scope) -> Vec<Subject> {
        let alive = self.completed.iter().filter(|(at, _)| scope.covers(&at.0, at.1) && self.alive(at));
        alive
            .map(|((job, number), (_, manifest))| Subject {
                job: job.clone(),
                number: *number,
                manifest: Arc::clone(manifest),
            })
            .collect()
    }

    /// Whom an object hurts that cannot be read, as far as its key tells.
    pub(super) fn hurts(&self, key: &Key) -> Vec<Hurt> {
        match key.parts() {
            KeyParts::Task(job, n, operator, subtask) => vec![Hurt::manifest(job, *n, operator, *subtask)],
            KeyParts::Outcome(job, n) => {
                let tasks = self.tasks.get(&(job.clone(), *n)).into_iter().flatten();
                let all: Vec<Hurt> =
                    tasks.map(|(operator, subtask)| Hurt::manifest(job, *n, operator, *subtask)).collect();
                if all.is_empty() { vec![Hurt::checkpoint(job, *n)] } else { all }
            }
            KeyParts::Intent(job, n)
            | KeyParts::Hidden(job, n, _)
            | KeyParts::Expired(job, n)
            | KeyParts::Pin(job, n, ..) => {
                vec![Hurt::checkpoint(job, *n)]
            }
            KeyParts::Store | KeyParts::Blob(_) | KeyParts::Epoch(..) | KeyParts::Head(_) | KeyParts::Floor(..) => {
                Vec::new()
            }
        }
    }
}

fn in_scope(key: &Key, scope: &Scope) -> bool {
    match key.parts() {
        KeyParts::Store | KeyParts::Blob(_) => true,
        // What a floor says, decides about every number of its job.
        KeyParts::Epoch(job, _) | KeyParts::Head(job) | KeyParts::Floor(job, _) => {
            scope.job.as_ref().is_none_or(|j| j == job)
        }
        KeyParts::Intent(job, n)
        | KeyParts::Task(job, n, ..)
        | KeyParts::Outcome(job, n)
        | KeyParts::Hidden(job, n, _)
        | KeyParts::Expired(job, n)
        | KeyParts::Pin(job, n, ..) => scope.covers(job, *n),
    }
}

/// Why an object cannot be believed.
pub(super) type Why = (FindingKind, String);

/// Reads an object and makes something of it: nothing where there is none, or why it cannot be believed. Only a store that does not
/// answer is an error.
pub(super) fn look<T>(
    store: &Store,
    key: &Key,
    parse: impl FnOnce(&Key, &[u8]) -> Result<T, FormatError>,
) -> Result<Result<Option<T>, Why>> {
    match store.get(key, limits::METADATA_LEN) {
        Ok(None) => Ok(Ok(None)),
        Ok(Some(bytes)) => Ok(parse(key, &bytes).map(Some).map_err(|e| match e.kind() {
            Kind::Newer => (FindingKind::Unreadable, e.to_string()),
            _ => (FindingKind::Damaged, e.to_string()),
        })),
        Err(e) => failed(store, key, e).map(Err),
    }
}

/// What an error about one object says of it. One that says something of the store, or of this machine, ends the verification.
pub(super) fn failed(store: &Store, key: &Key, e: StoreError) -> Result<Why> {
    match e.kind() {
        Kind::Unavailable | Kind::Resources | Kind::Unsupported => Err(e.into()),
        Kind::NotFound => Ok((FindingKind::Missing, e.to_string())),
        // Something that is no object has its name: only then there is nothing to look at.
        Kind::Damage if matches!(store.head(key), Ok(Some(_))) => Ok((FindingKind::Damaged, e.to_string())),
        _ => Ok((FindingKind::Unreadable, e.to_string())),
    }
}

fn parse(key: &Key, bytes: &[u8]) -> Result<(Read, Vec<String>), FormatError> {
    fn other<R: Record>(key: &Key, bytes: &[u8]) -> Result<(Read, Vec<String>), FormatError> {
        decode_at::<R>(key, bytes).map(|d| (Read::Other, d.blocks_writing))
    }
    match key.parts() {
        KeyParts::Store => other::<StoreRecord>(key, bytes),
        KeyParts::Epoch(..) => other::<EpochRecord>(key, bytes),
        KeyParts::Intent(..) => decode_at::<Intent>(key, bytes).map(|d| (Read::Intent(d.record), d.blocks_writing)),
        KeyParts::Task(..) => other::<TaskManifest>(key, bytes),
        KeyParts::Outcome(..) => decode_at::<Outcome>(key, bytes).map(|d| (Read::Outcome(d.record), d.blocks_writing)),
        KeyParts::Hidden(..) => other::<HiddenRecord>(key, bytes),
        KeyParts::Expired(..) => {
            decode_at::<ExpiredRecord>(key, bytes).map(|d| (Read::Expired(d.record), d.blocks_writing))
        }
        KeyParts::Pin(..) => decode_at::<PinRecord>(key, bytes).map(|d| (Read::Pin(d.record), d.blocks_writing)),
        KeyParts::Floor(..) => decode_at::<FloorRecord>(key, bytes).map(|d| (Read::Floor(d.record), d.blocks_writing)),
        KeyParts::Head(_) => other::<HeadRecord>(key, bytes),
        KeyParts::Blob(_) => Ok((Read::Other, Vec::new())),
    }
}

/// A task manifest as an outcome names it.
pub(super) fn manifest_of(key: &Key, bytes: &[u8], digest: &Digest) -> Result<TaskManifest, FormatError> {
    if Digest::of(bytes) != *digest {
        let why = "its digest is not the one in the checkpoint manifest".to_owned();
        return Err(FormatError::Damaged { what: TaskManifest::WHAT, why });
    }
    Ok(decode_at::<TaskManifest>(key, bytes)?.record)
}
