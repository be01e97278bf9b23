//! Whether a job can be restored from a checkpoint, said before anything is made.

use std::collections::{BTreeMap, BTreeSet};

use super::states;
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::Verdict;
use crate::lifecycle::{Checkpoint, LifecycleError, catalog, driver};
use crate::limits;
use crate::restore::select::task_manifest;
use crate::types::{CheckpointNumber, Name};

/// An operator of the job that is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOperator {
    /// Its name.
    pub name: Name,
    /// Number of its key groups.
    pub max_parallelism: u32,
    /// Number of its subtasks.
    pub parallelism: u32,
    /// It takes state.
    pub stateful: bool,
}

/// An operator as the checkpoint has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldOperator {
    /// Its name.
    pub name: Name,
    /// Its name as its author wrote it.
    pub display_name: String,
    /// Number of its subtasks.
    pub parallelism: u32,
    /// Number of its key groups, where it has keyed state.
    pub max_parallelism: Option<u32>,
    /// It has any state at all.
    pub has_state: bool,
}

fn not_found(message: String) -> Error {
    Error::new(Kind::NotFound, message)
}

/// The checkpoint of that number, or the newest.
///
/// # Errors
/// [`Kind::NotFound`] when it was aborted, is not complete yet, is dead or never was. [`Kind::Damage`] when the newest cannot be told, since
/// a record cannot be believed: an older one may still be named.
pub fn find(session: &Session, job: &Name, number: Option<CheckpointNumber>) -> Result<Checkpoint> {
    let Some(number) = number else {
        let listing = session.catalog.job(job)?;
        let latest = listing.latest();
        if let Some((n, why)) = listing.unreadable.iter().find(|(n, _)| latest.is_none_or(|l| *n > l.number)) {
            let words = latest.map_or_else(String::new, |l| format!(": name an older one, say {job}/{}", l.number));
            return Err(Error::new(Kind::Damage, format!("{job}/{n} may be the newest and is damaged ({why}){words}")));
        }
        return latest.cloned().ok_or_else(|| {
            not_found(format!("job {job} has no completed checkpoint to restore: `ckptfs ls` lists the jobs"))
        });
    };
    if let Some(outcome) = catalog::outcome(&session.store, job, number)?
        && let Verdict::Aborted { reason } = outcome.verdict
    {
        return Err(not_found(format!(
            "{job}/{number} was aborted ({reason}) and holds nothing to restore: `ckptfs ls {job}` lists those that are complete"
        )));
    }
    match session.catalog.checkpoint(job, number) {
        Err(LifecycleError::NoSuchCheckpoint { .. }) if catalog::intent(&session.store, job, number)?.is_some() => {
            Err(not_found(format!(
                "{job}/{number} is not complete, or is dead: `ckptfs ls {job}` lists those that are complete"
            )))
        }
        other => Ok(other?),
    }
}

/// The operators of a checkpoint.
///
/// # Errors
/// When a task manifest cannot be read or believed, or subtasks of one operator do not agree on their number of key groups.
pub fn old_operators(session: &Session, checkpoint: &Checkpoint) -> Result<Vec<OldOperator>> {
    let entries = checkpoint.manifest.subtasks.iter().collect();
    let read = driver::parallel(entries, |entry| {
        let manifest = task_manifest(session, checkpoint, entry)?;
        let states = states::of(&manifest)?;
        Ok::<_, Error>((entry, states.keyed.map(|k| k.max_parallelism)))
    })?;
    let mut operators: BTreeMap<&Name, OldOperator> = BTreeMap::new();
    for (entry, max) in read {
        let operator = operators.entry(&entry.operator).or_insert_with(|| OldOperator {
            name: entry.operator.clone(),
            display_name: entry.display_name.clone(),
            parallelism: 0,
            max_parallelism: None,
            has_state: false,
        });
        operator.parallelism = operator.parallelism.max(entry.subtask.saturating_add(1));
        operator.has_state |= entry.files > 0 || max.is_some();
        match (operator.max_parallelism, max) {
            (Some(a), Some(b)) if a != b => {
                let place = format!("{}/{}/{}", checkpoint.job, checkpoint.number, entry.operator);
                return Err(Error::new(
                    Kind::Damage,
                    format!("{place}: its subtasks have {a} and {b} key groups, and must have one number"),
                ));
            }
            (None, Some(_)) => operator.max_parallelism = max,
            _ => {}
        }
    }
    Ok(operators.into_values().collect())
}

/// Refuses a job whose operators cannot take these. Pure.
///
/// # Errors
/// [`Kind::Invalid`] when a number of key groups changed, a parallelism is beyond it, an operator stands twice in the job, or one with
/// state is missing (or takes none) and is not in `allow_missing`.
pub fn check_operators(old: &[OldOperator], job: &[JobOperator], allow_missing: &BTreeSet<Name>) -> Result<()> {
    let invalid = |why: String| Err(Error::new(Kind::Invalid, why));
    let mut new: BTreeMap<&Name, &JobOperator> = BTreeMap::new();
    for operator in job {
        let JobOperator { name, max_parallelism: max, parallelism, .. } = operator;
        if new.insert(name, operator).is_some() {
            return invalid(format!("the job has two operators {name}: give each a name of its own"));
        }
        if *max == 0 || *max > limits::PARALLELISM || *parallelism == 0 || parallelism > max {
            return invalid(format!(
                "operator {name}: a parallelism of {parallelism} with a max_parallelism of {max} cannot be (1 to max_parallelism, and that up to {})",
                limits::PARALLELISM
            ));
        }
    }
    for operator in old.iter().filter(|o| o.has_state) {
        let OldOperator { name, display_name, .. } = operator;
        let taken = new.get(name).filter(|n| n.stateful);
        let Some(taken) = taken else {
            if allow_missing.contains(name) {
                continue;
            }
            let what = if new.contains_key(name) { "takes no state in the job" } else { "is not in the job" };
            return invalid(format!(
                "operator {name} ({display_name}) has state in the checkpoint and {what}: name the operator as it was, or allow its state to be left behind by naming {name}"
            ));
        };
        if let Some(was) = operator.max_parallelism.filter(|was| *was != taken.max_parallelism) {
            return invalid(format!(
                "operator {name} ({display_name}) was stored with a max_parallelism of {was} and cannot be restored with {}: its keys are spread over key groups by that number, so keep {was}",
                taken.max_parallelism
            ));
        }
    }
    Ok(())
}

/// Refuses a job that a checkpoint does not fit; else the checkpoint's operators.
///
/// # Errors
/// As [`old_operators`] and [`check_operators`].
pub fn check_job(
    session: &Session,
    checkpoint: &Checkpoint,
    job: &[JobOperator],
    allow_missing: &BTreeSet<Name>,
) -> Result<Vec<OldOperator>> {
    let old = old_operators(session, checkpoint)?;
    check_operators(&old, job, allow_missing)
        .map_err(|e| e.context(format!("the job cannot be restored from {}/{}", checkpoint.job, checkpoint.number)))?;
    Ok(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old(name: &str, max_parallelism: Option<u32>, has_state: bool) -> OldOperator {
        let (name, display_name) = (Name::encode(name), name.to_owned());
        OldOperator { name, display_name, parallelism: 2, max_parallelism, has_state }
    }

    fn new(name: &str, max_parallelism: u32, parallelism: u32, stateful: bool) -> JobOperator {
        JobOperator { name: Name::encode(name), max_parallelism, parallelism, stateful }
    }

    fn refused(old: &[OldOperator], job: &[JobOperator], allowed: &[&str]) -> String {
        let allowed = allowed.iter().map(|n| Name::encode(n)).collect();
        let e = check_operators(old, job, &allowed).unwrap_err();
        assert_eq!(e.kind(), Kind::Invalid);
        e.message().to_owned()
    }

    #[test]
    fn row12_another_max_parallelism_is_refused() {
        let count = [old("count", Some(128), true)];
        let none = BTreeSet::new();
        check_operators(&count, &[new("count", 128, 7, true)], &none).unwrap();
        for max in [64, 127, 129, 256] {
            let said = refused(&count, &[new("count", max, 2, true)], &["count"]);
            assert!(said.contains(&format!("a max_parallelism of 128 and cannot be restored with {max}:")), "{said}");
        }
        // Without keyed state the number means nothing.
        check_operators(&[old("source", None, true)], &[new("source", 64, 2, true)], &none).unwrap();
        let said = refused(&count, &[new("count", 128, 129, true)], &[]);
        assert!(said.contains("a parallelism of 129 with a max_parallelism of 128"), "{said}");
    }

    #[test]
    fn row12_a_missing_operator_is_refused_unless_it_is_allowed_by_name() {
        let both = [old("count", Some(128), true), old("my sink", None, true), old("map", None, false)];
        let job = [new("count", 128, 2, true)];
        let said = refused(&both, &job, &["count", "sink"]);
        assert!(
            said.contains("operator my%20sink (my sink) has state in the checkpoint and is not in the job"),
            "{said}"
        );
        let said = refused(&both, &[job[0].clone(), new("my sink", 128, 1, false)], &[]);
        assert!(said.contains("takes no state in the job"), "{said}");
        let allowed = BTreeSet::from([Name::encode("my sink")]);
        check_operators(&both, &job, &allowed).unwrap();
        // One that is new to the job begins empty, one without state is not missed.
        check_operators(&both[..1], &[job[0].clone(), new("window", 128, 1, true)], &BTreeSet::new()).unwrap();
        let said = refused(&[], &[job[0].clone(), job[0].clone()], &[]);
        assert!(said.contains("two operators count"), "{said}");
    }
}
