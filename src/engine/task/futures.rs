//! What the snapshot of one operator will be: four futures, and what each of them brings.

use std::sync::Arc;

use super::directory::SnapshotDirectory;
use super::environment::OpenCheckpoint;
use super::failure::{Collected, Failure};
use super::runner::{Produced, Ready, Sizes, SnapshotFuture};
use crate::engine::cancel::Cancel;
use crate::engine::coordinator::AckReport;
use crate::engine::input::StateFile;
use crate::engine::upload::{self, Described, Finished, Task, Uploaded};
use crate::error::Result;
use crate::state::keyed::KeyedDescriptor;
use crate::types::progress::Silent;
use crate::types::{KeyGroupRange, Name};

/// The keyed managed state of an operator.
#[derive(Debug, Default)]
pub struct KeyedPart(pub(super) Option<StoredKeyed>);

/// A database whose large files are sent.
#[derive(Debug)]
pub(super) struct StoredKeyed {
    pub(super) uploaded: Uploaded,
    pub(super) descriptor: KeyedDescriptor,
    pub(super) directory: Arc<SnapshotDirectory>,
}

impl Produced for KeyedPart {
    fn sizes(&self) -> Sizes {
        self.0.as_ref().map_or_else(Sizes::default, |s| {
            let (state, sent) = s.uploaded.sizes();
            Sizes { state, sent }
        })
    }

    fn discard(&mut self) -> Result<()> {
        self.0.take().map_or(Ok(()), |stored| stored.directory.clean_up())
    }
}

/// State that lies in memory: operator state, or what a user's hook wrote.
#[derive(Debug, Default)]
pub struct FilesPart {
    /// Its files.
    pub files: Vec<StateFile>,
    /// Descriptors for the task manifest.
    pub states: Vec<serde_json::Value>,
}

impl Produced for FilesPart {
    fn sizes(&self) -> Sizes {
        Sizes { state: self.files.iter().map(|f| f.bytes.len() as u64).sum(), sent: 0 }
    }

    fn discard(&mut self) -> Result<()> {
        self.files.clear();
        Ok(())
    }
}

/// A future that is shared by who runs and who cancels it.
pub type Shared<T> = Arc<dyn SnapshotFuture<T>>;

/// The four futures of one operator's snapshot. What an operator does not have is done and empty.
#[derive(Debug, Clone)]
pub struct OperatorSnapshotFutures {
    /// The keyed state backend's.
    pub keyed_managed: Shared<KeyedPart>,
    /// What the hook wrote by key group.
    pub keyed_raw: Shared<FilesPart>,
    /// The operator state backend's.
    pub operator_managed: Shared<FilesPart>,
    /// What the hook wrote by partition.
    pub operator_raw: Shared<FilesPart>,
}

impl Default for OperatorSnapshotFutures {
    fn default() -> Self {
        Self {
            keyed_managed: Ready::new(KeyedPart::default()),
            keyed_raw: Ready::new(FilesPart::default()),
            operator_managed: Ready::new(FilesPart::default()),
            operator_raw: Ready::new(FilesPart::default()),
        }
    }
}

/// An operator's snapshot with everything uploaded, before its ack.
#[derive(Debug)]
pub struct Finalised {
    /// What the ack will say.
    pub finished: Finished,
    /// The directory that local recovery keeps.
    pub local: Option<std::path::PathBuf>,
}

impl OperatorSnapshotFutures {
    /// Cancels all of them, the last one first. One that fails does not stop the others.
    ///
    /// # Errors
    /// The first failure with the later ones.
    pub fn cancel(&self) -> Result<Sizes, Failure> {
        let (mut sizes, mut failures) = (Sizes::default(), Collected::default());
        let mut one = |cancelled: Result<Sizes>| failures.take(cancelled.map(|s| sizes = sizes.and(s)));
        one(self.operator_raw.cancel());
        one(self.operator_managed.cancel());
        one(self.keyed_raw.cancel());
        one(self.keyed_managed.cancel());
        failures.finish().map(|()| sizes)
    }

    /// Runs what has not run, in the caller's thread, then sends the bundle: everything but the ack.
    ///
    /// # Errors
    /// The first that failed. Whoever called cancels the others.
    pub fn finalise(
        &self,
        checkpoint: &OpenCheckpoint,
        (operator, name): (&Name, &str),
        key_groups: Option<KeyGroupRange>,
        (report, cancel): (&dyn Fn() -> AckReport, &Cancel),
    ) -> Result<Finalised> {
        self.keyed_managed.run();
        let keyed = self.keyed_managed.take()?;
        let mut files = Vec::new();
        let mut described = Described { key_groups, ..Described::default() };
        for future in [&self.keyed_raw, &self.operator_managed, &self.operator_raw] {
            future.run();
            let part = future.take()?;
            files.extend(part.files);
            described.states.extend(part.states);
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let environment = checkpoint.environment();
        let (number, subtask) = (checkpoint.number, environment.subtask);
        let task = Task { job: &environment.job, number, operator: name, subtask };
        let (keyed, directory) = match keyed.0 {
            Some(StoredKeyed { uploaded, descriptor, directory }) => {
                described.backend = Some(descriptor.backend.to_string());
                described.states.insert(0, serde_json::json!({ "keyed": descriptor }));
                (Ok(uploaded), Some(directory))
            }
            None => (Err(checkpoint.base(operator)?), None),
        };
        described.properties = report().properties();
        let to = (&task, checkpoint.uid);
        let finished = upload::finish(&environment.session, keyed, &files, to, described, (cancel, &Silent))?;
        Ok(Finalised { finished, local: directory.and_then(|d| d.complete()) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::error::{Error, Kind};

    #[derive(Debug)]
    struct Watched(&'static str, Arc<Mutex<Vec<&'static str>>>, bool);

    impl<T> SnapshotFuture<T> for Watched {
        fn run(&self) {}

        fn take(&self) -> Result<T> {
            Err(Error::new(Kind::Other, "nothing"))
        }

        fn cancel(&self) -> Result<Sizes> {
            self.1.lock().unwrap().push(self.0);
            if self.2 { Err(Error::new(Kind::Other, self.0)) } else { Ok(Sizes { state: 2, sent: 1 }) }
        }
    }

    #[test]
    fn row2_cancel_visits_all_four_the_last_first_and_keeps_later_errors() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let watched = |name, fails| Arc::new(Watched(name, Arc::clone(&seen), fails));
        let futures = |fails: bool| OperatorSnapshotFutures {
            keyed_managed: watched("keyed managed", fails),
            keyed_raw: watched("keyed raw", false),
            operator_managed: watched("operator managed", fails),
            operator_raw: watched("operator raw", fails),
        };
        assert_eq!(futures(false).cancel().unwrap(), Sizes { state: 8, sent: 4 });
        let order = ["operator raw", "operator managed", "keyed raw", "keyed managed"];
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), order);
        let failure = futures(true).cancel().unwrap_err();
        assert_eq!(*seen.lock().unwrap(), order, "one that fails does not stop the others");
        assert_eq!(failure.first.message(), "operator raw");
        let later: Vec<&str> = failure.suppressed.iter().map(Error::message).collect();
        assert_eq!(later, ["operator managed", "keyed managed"]);
    }
}
