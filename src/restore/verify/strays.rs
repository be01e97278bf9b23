//! What lies in the store and nobody needs, and what is named and nobody made: blobs without a checkpoint, strange objects, pins and
//! bases without one. Looks at the whole store, or it cannot tell.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::finding::{Finding, FindingKind, Hurt, Object};
use super::records::{At, Records, look};
use super::references::References;
use super::{Report, Scope};
use crate::cache::Session;
use crate::error::Result;
use crate::format::{Intent, Outcome, TaskManifest, decode_at};
use crate::lifecycle::driver;
use crate::limits;
use crate::store::StoreError;
use crate::types::{BlobName, Key, KeyParts, Name, Prefix, RecordKind, Uid};

/// Looks for pins whose checkpoint is not there.
pub(super) fn pins(session: &Session, records: &Records, report: &mut Report) -> Result<()> {
    for (key, pin) in &records.pins {
        let KeyParts::Pin(job, n, ..) = key.parts() else { continue };
        let at: At = (job.clone(), *n);
        let there = records.completed.get(&at).is_some_and(|(uid, _)| *uid == pin.place.uid);
        let outcome = Key::outcome(job, *n);
        if there && !records.gone(&at) || records.unreadable.contains(&outcome) {
            continue;
        }
        // The checkpoint may be younger than the list, or the pin be gone by now.
        let now = look(&session.store, &outcome, |k, b| decode_at::<Outcome>(k, b).map(|d| d.record))?;
        if !records.gone(&at) && matches!(&now, Ok(Some(o)) if o.place.uid == pin.place.uid && completed(o)) {
            continue;
        }
        if session.store.head(key)?.is_none() {
            continue;
        }
        let why = match now {
            _ if records.gone(&at) => "that number is gone",
            Ok(None) if records.decided.contains(&at) => "its outcome went away",
            Ok(None) => "it was never completed",
            Ok(Some(o)) if completed(&o) => "another checkpoint has that number",
            Ok(Some(_)) => "it was aborted",
            Err(_) => continue,
        };
        let detail = format!("it keeps nothing: {why}");
        report.findings.push(Finding::stored(FindingKind::DanglingPin, key, vec![Hurt::checkpoint(job, *n)], detail));
    }
    Ok(())
}

fn completed(outcome: &Outcome) -> bool {
    matches!(outcome.verdict, crate::format::Verdict::Completed(_))
}

/// Looks for bases without an outcome: a base was decided before anybody could name it, so its outcome was lost.
pub(super) fn bases(session: &Session, scope: &Scope, records: &Records, report: &mut Report) -> Result<()> {
    let mut lost: BTreeMap<At, BTreeSet<&At>> = BTreeMap::new();
    for (at, (uid, manifest)) in records.completed.iter().filter(|(at, _)| records.alive(at)) {
        for base in manifest.bases.iter().filter(|b| b.uid != *uid) {
            let base: At = (base.job.clone(), base.number);
            if scope.covers(&base.0, base.1) && !records.decided.contains(&base) && !records.gone(&base) {
                lost.entry(base).or_default().insert(at);
            }
        }
    }
    for ((job, n), by) in lost {
        let floors = session.store.list(&Prefix::job(RecordKind::Floor, &job))?;
        let key = Key::outcome(&job, n);
        // A floor that is younger than our lists took it away.
        if session.store.head(&key)?.is_some() || floors.len() != records.floors.get(&job).map_or(0, BTreeMap::len) {
            continue;
        }
        let by: Vec<String> = by.into_iter().map(|(job, n)| format!("{job}/{n}")).collect();
        let detail = format!("it was decided once: it is a base of {}", by.join(", "));
        let hurts = records.hurts(&key);
        report.findings.push(Finding::stored(FindingKind::Missing, &key, hurts, detail));
    }
    Ok(())
}

/// Who a blob's uid is.
struct Owner {
    job: Name,
    /// For people: `app/chk-3`.
    name: String,
    /// All its uploads stay: it is open or aborted, or the base of an open one.
    keeps: bool,
}

/// Looks for blobs that nothing names or keeps.
pub(super) fn blobs(
    session: &Session,
    records: &Records,
    references: &References<'_>,
    report: &mut Report,
) -> Result<()> {
    for stranger in records.strangers.iter().filter(|s| !s.is_probe()) {
        let detail = format!("{} bytes under a key that no version of this program makes", stranger.size);
        report.findings.push(Finding {
            kind: FindingKind::Foreign,
            object: stranger.key.clone(),
            at: Object::Strange,
            hurts: Vec::new(),
            detail,
            mended: None,
        });
    }
    let Some(sizes) = &records.sizes else { return Ok(()) };
    let named: HashSet<&BlobName> = references.blobs.keys().map(|(name, _)| name).collect();
    let mut spare: Vec<(&BlobName, u64)> =
        sizes.iter().filter(|(name, _)| !named.contains(name)).map(|(name, size)| (name, *size)).collect();
    if spare.is_empty() {
        return Ok(());
    }
    spare.sort_unstable();
    let mut owners = owners(records);
    younger_intents(session, records, &mut owners)?;
    let (kept, mut unsure) = named_by_dead_bases(session, records)?;
    unsure.extend(references.incomplete.iter().cloned());
    let unread = |kind: &dyn Fn(&KeyParts) -> Option<Name>| {
        records.unreadable.iter().filter_map(|k| kind(k.parts())).collect::<Vec<_>>()
    };
    unsure.extend(unread(&|p| match p {
        KeyParts::Outcome(job, _) | KeyParts::Floor(job, _) | KeyParts::Intent(job, _) => Some(job.clone()),
        _ => None,
    }));
    with_ancestors(records, &mut unsure);
    let nobody_knows =
        records.unreadable.iter().any(|k| matches!(k.parts(), KeyParts::Intent(..) | KeyParts::Floor(..)));
    let mut found = Vec::new();
    for (name, size) in spare {
        let (kind, detail) = match owners.get(&name.uid) {
            Some(owner) if owner.keeps || unsure.contains(&owner.job) || kept.contains(name) => continue,
            Some(owner) => {
                let by = &owner.name;
                (
                    FindingKind::Unreferenced,
                    format!("{size} bytes that {by} uploaded and nothing names: `ckptfs gc` frees them"),
                )
            }
            None if nobody_knows => continue,
            None => (FindingKind::Foreign, format!("{size} bytes that no checkpoint of this store uploaded")),
        };
        found.push(Finding::stored(kind, &Key::blob(name), Vec::new(), detail));
    }
    // Some may have been swept since they were listed; nobody is hurt by a name too much.
    if found.len() <= limits::LOOKS {
        let there = driver::parallel(found, |finding| {
            let Object::Stored(key) = &finding.at else { return Ok(None) };
            Ok::<_, StoreError>(session.store.head(key)?.map(|_| finding))
        })?;
        found = there.into_iter().flatten().collect();
    }
    report.findings.extend(found);
    for job in unsure {
        report.notes.push(format!(
            "blobs of job {job} that nothing names are not told: a record that may name them cannot be read"
        ));
    }
    Ok(())
}

/// A job may have begun with another's checkpoint, and names its blobs.
fn with_ancestors(records: &Records, jobs: &mut BTreeSet<Name>) {
    loop {
        let intents = records.intents.iter().map(|(at, intent)| (at, &intent.bases));
        let completed = records.completed.iter().map(|(at, (_, manifest))| (at, &manifest.bases));
        let of = intents.chain(completed).filter(|(at, _)| jobs.contains(&at.0));
        let bases: BTreeSet<Name> = of.flat_map(|(_, bases)| bases.iter().map(|b| b.job.clone())).collect();
        let before = jobs.len();
        jobs.extend(bases);
        if jobs.len() == before {
            return;
        }
    }
}

/// Whose uid is whose.
fn owners(records: &Records) -> BTreeMap<Uid, Owner> {
    let mut owners = BTreeMap::new();
    let mut add = |job: &Name, name: String, uid: Uid, keeps: bool| {
        let owner = owners.entry(uid).or_insert(Owner { job: job.clone(), name, keeps: false });
        owner.keeps |= keeps;
    };
    let name = |at: &At| format!("{}/{}", at.0, at.1);
    for (at, (uid, _)) in &records.completed {
        add(&at.0, name(at), *uid, false);
    }
    for (at, uid) in &records.aborted {
        add(&at.0, name(at), *uid, !records.expired.contains(at) && !records.gone(at));
    }
    for (at, intent) in &records.intents {
        let open = records.open(at);
        add(&at.0, name(at), intent.place.uid, open);
        for base in intent.bases.iter().filter(|_| open) {
            add(&base.job, format!("{}/{}", base.job, base.number), base.uid, true);
        }
    }
    for (at, uid) in &records.dead {
        add(&at.0, name(at), *uid, false);
    }
    for (job, floors) in &records.floors {
        for uid in floors.values().flat_map(|f| &f.uids) {
            add(job, format!("a number of job {job} that is gone"), *uid, false);
        }
    }
    owners
}

/// A blob of the list may be of a checkpoint that was begun behind it: intents are listed once more.
fn younger_intents(session: &Session, records: &Records, owners: &mut BTreeMap<Uid, Owner>) -> Result<()> {
    for listed in session.store.list(&Prefix::kind(RecordKind::Intent))? {
        let KeyParts::Intent(job, n) = listed.key.parts() else { continue };
        let at: At = (job.clone(), *n);
        if records.intents.contains_key(&at) || records.unreadable.contains(&listed.key) {
            continue;
        }
        let intent = look(&session.store, &listed.key, |k, b| decode_at::<Intent>(k, b).map(|d| d.record))?;
        if let Ok(Some(intent)) = intent {
            let name = format!("{job}/{n}");
            owners.insert(intent.place.uid, Owner { job: job.clone(), name, keeps: true });
        }
    }
    Ok(())
}

/// What the bases of open checkpoints name where nobody else reads them any more; and the jobs of which that cannot be told.
fn named_by_dead_bases(session: &Session, records: &Records) -> Result<(HashSet<BlobName>, BTreeSet<Name>)> {
    let (mut names, mut unsure) = (HashSet::new(), BTreeSet::new());
    let open = records.intents.iter().filter(|(at, _)| records.open(at));
    for base in open.flat_map(|(_, intent)| &intent.bases) {
        let at: At = (base.job.clone(), base.number);
        let Some((_, manifest)) = records.completed.get(&at).filter(|(uid, _)| *uid == base.uid) else { continue };
        if records.alive(&at) {
            continue;
        }
        for entry in &manifest.subtasks {
            let key = Key::task(&at.0, at.1, &entry.operator, entry.subtask);
            match look(&session.store, &key, |k, b| decode_at::<TaskManifest>(k, b).map(|d| d.record))? {
                Ok(Some(task)) => names.extend(task.blobs.iter().map(|b| b.name)),
                Ok(None) | Err(_) => drop(unsure.insert(at.0.clone())),
            }
        }
    }
    Ok((names, unsure))
}
