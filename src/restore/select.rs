//! Names of checkpoints and their parts, as people type them: `JOB/chk-N[/OPERATOR/SUBTASK]`, `latest` allowed for a number.

use std::fmt;

use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::SubtaskEntry;
use crate::lifecycle::{Catalog, Checkpoint, LifecycleError};
use crate::types::{CheckpointNumber, Name};

/// A checkpoint or one of its subtasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The job.
    pub job: Name,
    /// The number; nothing for `latest`.
    pub number: Option<CheckpointNumber>,
    /// The subtask, where one is named.
    pub subtask: Option<(Name, u32)>,
    /// What follows it.
    pub rest: Vec<String>,
}

fn invalid(text: &str, why: impl fmt::Display) -> Error {
    Error::new(
        Kind::Invalid,
        format!("{text:?}: {why}. Write JOB/chk-N or JOB/chk-N/OPERATOR/SUBTASK, say app/chk-42 or app/latest/db/0"),
    )
}

impl Selection {
    /// Reads the text. Names may be given as `ls` shows them, or as they were given to `--job`.
    ///
    /// # Errors
    /// [`Kind::Invalid`] says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parts = text.trim_end_matches('/').split('/');
        let job = parts.next().unwrap_or_default();
        let job = job_name(job).map_err(|e| invalid(text, e.message()))?;
        let number = match parts.next() {
            None => return Err(invalid(text, "it names no checkpoint")),
            Some("latest") => None,
            Some(n) => Some(n.parse().map_err(|e| invalid(text, e))?),
        };
        let subtask = match (parts.next(), parts.next()) {
            (None, _) => None,
            (Some(operator), Some(i)) => {
                let index = i.parse().map_err(|_| invalid(text, format!("{i:?} is not a subtask's index")))?;
                Some((existing_name(operator).map_err(|e| invalid(text, e.message()))?, index))
            }
            (Some(_), None) => return Err(invalid(text, "it names an operator and no subtask")),
        };
        Ok(Self { job, number, subtask, rest: parts.map(str::to_owned).collect() })
    }

    /// Refuses what follows a subtask: the verb takes subtasks, not single files.
    ///
    /// # Errors
    /// When something follows.
    pub fn exact(&self) -> Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let rest = self.rest.join("/");
        Err(Error::new(Kind::Invalid, format!("{rest:?} is too much: name JOB/chk-N or JOB/chk-N/OPERATOR/SUBTASK")))
    }

    /// Refuses a subtask: the verb takes whole checkpoints.
    ///
    /// # Errors
    /// When one is named.
    pub fn whole(&self) -> Result<()> {
        if self.subtask.is_none() {
            return Ok(());
        }
        Err(Error::new(Kind::Invalid, format!("name a whole checkpoint of job {}: JOB/chk-N", self.job)))
    }

    /// Finds the checkpoint.
    ///
    /// # Errors
    /// When there is none, or the store fails.
    pub fn resolve(&self, catalog: &Catalog) -> Result<Checkpoint> {
        if let Some(number) = self.number {
            return Ok(catalog.checkpoint(&self.job, number)?);
        }
        catalog.latest(&self.job)?.ok_or_else(|| {
            let why = format!("job {} has no completed checkpoint: `ckptfs ls` lists the jobs", self.job);
            Error::new(Kind::NotFound, why)
        })
    }

    /// The subtasks of the checkpoint that are meant.
    ///
    /// # Errors
    /// When the named one is not part of it.
    pub fn subtasks<'a>(&self, checkpoint: &'a Checkpoint) -> Result<Vec<&'a SubtaskEntry>> {
        let all = checkpoint.manifest.subtasks.iter();
        let Some((operator, index)) = &self.subtask else { return Ok(all.collect()) };
        let found: Vec<_> = all.filter(|s| s.operator == *operator && s.subtask == *index).collect();
        if found.is_empty() {
            let message = format!(
                "{}/{} has no subtask {operator}/{index}: `ckptfs show {}/{}` lists them",
                checkpoint.job, checkpoint.number, checkpoint.job, checkpoint.number
            );
            return Err(Error::new(Kind::NotFound, message));
        }
        Ok(found)
    }
}

/// A job's name as a person types it.
///
/// # Errors
/// When it cannot stand in a path.
pub fn job_name(text: &str) -> Result<Name> {
    let refuse = |why: &str| Err(Error::new(Kind::Invalid, format!("{text:?} cannot name a job: {why}")));
    if text.is_empty() {
        return refuse("it is empty");
    }
    if text == "." || text == ".." || text.contains('/') {
        return refuse("it must be one component of a path");
    }
    if text.chars().any(char::is_control) {
        return refuse("it contains a control character");
    }
    if matches!(text, "latest" | "manifest.json" | "flink") {
        return refuse("it has a meaning of its own on the mount");
    }
    if text.starts_with('-') {
        return refuse("it starts with a dash");
    }
    let name = existing_name(text)?;
    if name.as_str().starts_with("id-") && name.as_str() != text {
        return refuse("it is longer than 200 bytes");
    }
    Ok(name)
}

/// A name as the mount shows it, or the display name that it stands for.
fn existing_name(text: &str) -> Result<Name> {
    // An encoded name stands for itself; anything else is encoded.
    Ok(Name::parse(text).unwrap_or_else(|_| Name::encode(text)))
}

/// The task manifest of a subtask.
///
/// # Errors
/// When it cannot be read or believed.
pub fn task_manifest(
    session: &Session,
    checkpoint: &Checkpoint,
    entry: &SubtaskEntry,
) -> Result<std::sync::Arc<crate::format::TaskManifest>> {
    Ok(session.cache.task_manifest(&session.store, &checkpoint.job, checkpoint.number, entry)?)
}

/// The error for a number that does not exist.
#[must_use]
pub fn no_such(job: &Name, number: CheckpointNumber) -> Error {
    LifecycleError::NoSuchCheckpoint { job: job.clone(), number }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_type() {
        let s = Selection::parse("app/chk-42/db/0").unwrap();
        assert_eq!((s.job.as_str(), s.number.map(CheckpointNumber::get)), ("app", Some(42)));
        assert_eq!(s.subtask, Some((Name::encode("db"), 0)));
        assert_eq!(Selection::parse("my job/latest").unwrap().job, Selection::parse("my%20job/latest").unwrap().job);
        for bad in
            ["", "app", "app/42", "app/chk-0", "app/chk-1/db", "app/chk-1/db/x", "../chk-1", "a\0b/chk-1", "-x/chk-1"]
        {
            let e = Selection::parse(bad).unwrap_err();
            assert_eq!(e.kind(), Kind::Invalid, "{bad}");
        }
        for bad in ["", ".", "..", "a/b", "latest", "a\nb", "-v", &"x".repeat(201)] {
            assert!(job_name(bad).is_err(), "{bad:?}");
        }
    }
}
