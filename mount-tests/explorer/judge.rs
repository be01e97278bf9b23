//! What must hold in every state, written down a second time and independently of `lifecycle`: it reads the stored records itself.

use std::collections::HashMap;
use std::rc::Rc;

use ckptfs::format::records::FloorRecord;
use ckptfs::format::{Outcome, Record, TaskManifest, Verdict, decode_at};
use ckptfs::types::{BlobName, CheckpointNumber, Digest, Epoch, Key, KeyParts, Name, Uid};

use super::program::Claim;
use super::world::{Obj, Set, World};

struct Decided {
    job: Name,
    number: CheckpointNumber,
    uid: Uid,
    /// Nothing for an aborted one.
    completed: Option<Completed>,
}

struct Completed {
    epoch: Epoch,
    tasks: Vec<(Key, Digest)>,
}

struct Floor {
    job: Name,
    number: CheckpointNumber,
    survivors: Vec<CheckpointNumber>,
    uids: Vec<Uid>,
}

/// Judges states. Decoded records are kept, since the same ones are met in every state.
#[derive(Default)]
pub struct Judge {
    outcomes: HashMap<Obj, Rc<Decided>>,
    tasks: HashMap<Obj, Rc<Vec<(BlobName, u64)>>>,
    floors: HashMap<Obj, Rc<Floor>>,
}

fn decoded<R: Record>(world: &World, obj: Obj) -> R {
    let key = world.key_of(obj);
    decode_at::<R>(key, world.bytes_of(obj)).unwrap_or_else(|e| panic!("{key} was stored and is damaged: {e}")).record
}

/// The length that a blob's object stands for.
pub fn length_of(world: &World, obj: Obj) -> u64 {
    let bytes = world.bytes_of(obj);
    u64::from_le_bytes(bytes.as_ref().try_into().expect("a blob's object is its length"))
}

fn present(world: &World, set: &Set, key: &Key) -> Option<Obj> {
    world.known_key(key).and_then(|id| world.at(set, id))
}

fn has_been(world: &World, set: &Set, key: &Key) -> bool {
    world
        .known_key(key)
        .is_some_and(|id| set.present.iter().chain(&set.departed).any(|o| world.objects[*o as usize].key == id))
}

impl Judge {
    fn outcome(&mut self, world: &World, obj: Obj) -> Rc<Decided> {
        let decode = || {
            let outcome: Outcome = decoded(world, obj);
            let KeyParts::Outcome(job, number) = world.key_of(obj).parts() else { panic!("not an outcome") };
            let completed = match outcome.verdict {
                Verdict::Aborted { .. } => None,
                Verdict::Completed(m) => {
                    let key = |s: &ckptfs::format::SubtaskEntry| Key::task(job, *number, &s.operator, s.subtask);
                    Some(Completed { epoch: m.epoch, tasks: m.subtasks.iter().map(|s| (key(s), s.manifest)).collect() })
                }
            };
            Rc::new(Decided { job: job.clone(), number: *number, uid: outcome.place.uid, completed })
        };
        self.outcomes.entry(obj).or_insert_with(decode).clone()
    }

    fn blobs(&mut self, world: &World, obj: Obj) -> Rc<Vec<(BlobName, u64)>> {
        let decode = || Rc::new(decoded::<TaskManifest>(world, obj).blobs.iter().map(|b| (b.name, b.length)).collect());
        self.tasks.entry(obj).or_insert_with(decode).clone()
    }

    fn floors(&mut self, world: &World, set: &Set) -> Vec<Rc<Floor>> {
        let floors = set.present.iter().filter(|o| matches!(world.key_of(**o).parts(), KeyParts::Floor(..)));
        let decode = |obj: Obj| {
            let KeyParts::Floor(job, number) = world.key_of(obj).parts() else { panic!("not a floor") };
            let record: FloorRecord = decoded(world, obj);
            Rc::new(Floor { job: job.clone(), number: *number, survivors: record.survivors, uids: record.uids })
        };
        floors.map(|o| self.floors.entry(*o).or_insert_with(|| decode(*o)).clone()).collect()
    }

    fn gone(floors: &[Rc<Floor>], job: &Name, n: CheckpointNumber) -> bool {
        floors.iter().any(|f| f.job == *job && n < f.number && !f.survivors.contains(&n))
    }

    /// What a completed checkpoint misses.
    fn missing(&mut self, world: &World, set: &Set, checkpoint: &Completed) -> Option<String> {
        for (key, digest) in &checkpoint.tasks {
            let Some(obj) = present(world, set, key) else { return Some(format!("{key} is missing")) };
            if Digest::of(world.bytes_of(obj)) != *digest {
                return Some(format!("{key} is another one"));
            }
            for (name, length) in self.blobs(world, obj).iter() {
                match present(world, set, &Key::blob(name)) {
                    Some(blob) if length_of(world, blob) == *length => {}
                    Some(_) => return Some(format!("blob {name} has another length")),
                    None => return Some(format!("blob {name} is missing")),
                }
            }
        }
        None
    }

    /// What is wrong in the store, whoever looks.
    pub fn store(&mut self, world: &World, set: &Set) -> Option<String> {
        let floors = self.floors(world, set);
        let mut decided: HashMap<(Name, CheckpointNumber), Vec<Obj>> = HashMap::new();
        let mut outcomes = Vec::new();
        for obj in set.present.iter().chain(&set.departed) {
            if let KeyParts::Outcome(job, n) = world.key_of(*obj).parts() {
                let objs = decided.entry((job.clone(), *n)).or_default();
                if !objs.contains(obj) {
                    objs.push(*obj);
                    outcomes.push(*obj);
                }
            }
        }
        for ((job, n), objs) in &decided {
            let completed = objs.iter().filter(|o| self.outcome(world, **o).completed.is_some()).count();
            // A number that is gone may be begun and given up once more by somebody who has been asleep.
            if objs.len() > 1 && (completed > 1 || !Self::gone(&floors, job, *n)) {
                return Some(format!("{job}/{n} was decided twice"));
            }
        }
        for obj in outcomes {
            let outcome = self.outcome(world, obj);
            let Some(completed) = &outcome.completed else { continue };
            let (job, n) = (&outcome.job, outcome.number);
            let here = set.has(obj);
            let gone = Self::gone(&floors, job, n);
            let tombstone = Key::expired(job, n);
            if !has_been(world, set, &tombstone) {
                if !here {
                    return Some(format!(
                        "{job}/{n} is completed and not expired, and its outcome is not there any more"
                    ));
                }
                if gone {
                    return Some(format!("{job}/{n} is completed and not expired, and a floor passed it"));
                }
            }
            if here && !gone && present(world, set, &tombstone).is_none() {
                if let Some(what) = self.missing(world, set, completed) {
                    return Some(format!("{job}/{n} is completed and not expired: {what}"));
                }
                if let Some(what) = self.unknown_uploader(world, set, completed, &floors) {
                    return Some(format!("{job}/{n} is completed and not expired: {what}"));
                }
            }
        }
        None
    }

    /// A blob that is needed must be known as ours: else a later sweep takes it for foreign and never deletes it.
    fn unknown_uploader(
        &mut self,
        world: &World,
        set: &Set,
        completed: &Completed,
        floors: &[Rc<Floor>],
    ) -> Option<String> {
        for (key, _) in &completed.tasks {
            let obj = present(world, set, key)?;
            for (name, _) in self.blobs(world, obj).iter() {
                let intent = |o: &&Obj| {
                    matches!(world.key_of(**o).parts(), KeyParts::Intent(..))
                        && decoded::<ckptfs::format::Intent>(world, **o).place.uid == name.uid
                };
                if !floors.iter().any(|f| f.uids.contains(&name.uid)) && !set.present.iter().any(|o| intent(&o)) {
                    return Some(format!("the uploader of blob {name} is in no intent and no floor"));
                }
            }
        }
        None
    }

    /// A promise that is broken.
    pub fn claim(&mut self, world: &World, set: &Set, claim: &Claim) -> Option<String> {
        match claim {
            Claim::Reigns(..) => None,
            Claim::Pinned(job, n) => {
                let floors = self.floors(world, set);
                self.readable(world, set, &floors, job, *n, None).map(|why| format!("{job}/{n} is pinned, and {why}"))
            }
            Claim::Decided(job, n, completed) => {
                let key = Key::outcome(job, *n);
                let objs: Vec<Obj> = set.present.iter().chain(&set.departed).copied().collect();
                let mut outcomes = objs.into_iter().filter(|o| *world.key_of(*o) == key);
                let so = outcomes.any(|o| self.outcome(world, o).completed.is_some() == *completed);
                let what = if *completed { "completed" } else { "aborted" };
                (!so).then(|| format!("{job}/{n} was said to be {what}, and is not"))
            }
            Claim::Open(job, n, uid, bases) => {
                if self.decided(world, set, job, *n, *uid) {
                    return None;
                }
                let floors = self.floors(world, set);
                if Self::gone(&floors, job, *n) {
                    return Some(format!("{job}/{n} is open, and a floor passed it"));
                }
                let intent = present(world, set, &Key::intent(job, *n));
                if intent.is_none_or(|o| decoded::<ckptfs::format::Intent>(world, o).place.uid != *uid) {
                    return Some(format!("{job}/{n} is open, and its intent is not there"));
                }
                bases.iter().find_map(|(j, b, uid)| {
                    let why = self.readable(world, set, &floors, j, *b, Some(*uid))?;
                    Some(format!("{job}/{n} is open, and of its base {j}/{b} {why}"))
                })
            }
            Claim::Adopts(job, n, uid, blob) => {
                let lost = !self.decided(world, set, job, *n, *uid) && present(world, set, &Key::blob(blob)).is_none();
                lost.then(|| format!("{job}/{n} is open and has adopted blob {blob}, which is missing"))
            }
        }
    }

    /// Whether the attempt with this uid has ended.
    fn decided(&mut self, world: &World, set: &Set, job: &Name, n: CheckpointNumber, uid: Uid) -> bool {
        let Some(key) = world.known_key(&Key::outcome(job, n)) else { return false };
        let all = set.present.iter().chain(&set.departed);
        let objs: Vec<Obj> = all.copied().filter(|o| world.objects[*o as usize].key == key).collect();
        objs.into_iter().any(|o| self.outcome(world, o).uid == uid)
    }

    fn readable(
        &mut self,
        world: &World,
        set: &Set,
        floors: &[Rc<Floor>],
        job: &Name,
        n: CheckpointNumber,
        uid: Option<Uid>,
    ) -> Option<String> {
        let Some(obj) = present(world, set, &Key::outcome(job, n)) else {
            return Some("the outcome is not there".into());
        };
        let outcome = self.outcome(world, obj);
        if uid.is_some_and(|uid| uid != outcome.uid) {
            return Some("the outcome is another's".to_owned());
        }
        if Self::gone(floors, job, n) {
            return Some("a floor passed it".to_owned());
        }
        match &outcome.completed {
            Some(completed) => self.missing(world, set, completed),
            // An aborted base promises nothing by itself.
            None if uid.is_some() => None,
            None => Some("it was aborted".to_owned()),
        }
    }

    /// What is wrong with creating an object, in the eyes of those who reign.
    pub fn created(&mut self, world: &World, obj: Obj, claims: &[Claim]) -> Option<String> {
        if !matches!(world.key_of(obj).parts(), KeyParts::Outcome(..)) {
            return None;
        }
        let outcome = self.outcome(world, obj);
        let epoch = outcome.completed.as_ref()?.epoch;
        let fenced = claims.iter().find(|c| matches!(c, Claim::Reigns(job, k) if *job == outcome.job && epoch < *k));
        fenced.map(|_| {
            format!("{}/{} of epoch {epoch} was published after it was taken over", outcome.job, outcome.number)
        })
    }

    /// What is wrong with deleting an object.
    pub fn deleted(&mut self, world: &World, set: &Set, obj: Obj) -> Option<String> {
        let key = world.key_of(obj);
        match key.parts() {
            KeyParts::Blob(_) | KeyParts::Hidden(..) | KeyParts::Pin(..) | KeyParts::Head(_) => None,
            KeyParts::Store | KeyParts::Epoch(..) | KeyParts::Floor(..) => Some(format!("{key} must never be deleted")),
            KeyParts::Intent(job, n)
            | KeyParts::Task(job, n, _, _)
            | KeyParts::Outcome(job, n)
            | KeyParts::Expired(job, n) => {
                let floors = self.floors(world, set);
                (!Self::gone(&floors, job, *n)).then(|| format!("{key} was deleted, and no floor has passed it"))
            }
        }
    }
}
