//! What the snapshots of one subtask share.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::local_state::LocalStateStore;
use crate::cache::Session;
use crate::engine::base::BaseIndex;
use crate::engine::coordinator::{Reporter, TriggerKind};
use crate::engine::snapshot::{bases_of, open_intent};
use crate::error::{Error, Kind, Result};
use crate::format::Intent;
use crate::lifecycle::Base;
use crate::types::{CheckpointNumber, Name, Uid};

/// The surroundings of a subtask: the same for all its checkpoints.
pub struct Environment {
    /// Store and cache.
    pub session: Session,
    /// The job.
    pub job: Name,
    /// Index of the subtask, the same for all operators of a chain.
    pub subtask: u32,
    /// Where snapshots are made that are not kept for local recovery; on the device of the databases, so that SSTs can be linked.
    pub scratch: PathBuf,
    /// Keeps snapshots for local recovery; nothing: they are not kept.
    pub local: Option<LocalStateStore>,
    /// Whom the outcome is told.
    pub reporter: Arc<dyn Reporter>,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").field("job", &self.job).field("subtask", &self.subtask).finish_non_exhaustive()
    }
}

/// What the store says of an open checkpoint.
type Known = Arc<(Intent, Vec<Base>)>;

/// An open checkpoint as one subtask sees it. What the store says of it is read once, when the async phase first needs it.
#[derive(Debug)]
pub struct OpenCheckpoint {
    environment: Arc<Environment>,
    /// Its number.
    pub number: CheckpointNumber,
    /// Its uid, as the trigger said.
    pub uid: Uid,
    /// What is wanted.
    pub kind: TriggerKind,
    known: Mutex<Option<Known>>,
}

impl OpenCheckpoint {
    /// A checkpoint that was triggered.
    #[must_use]
    pub fn new(environment: Arc<Environment>, number: CheckpointNumber, uid: Uid, kind: TriggerKind) -> Self {
        Self { environment, number, uid, kind, known: Mutex::new(None) }
    }

    /// The surroundings.
    #[must_use]
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    fn known(&self) -> Result<Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*known {
            return Ok(Arc::clone(known));
        }
        let Environment { session, job, .. } = &*self.environment;
        let intent = open_intent(session, job, self.number)?;
        if intent.place.uid != self.uid {
            // The number was forgotten and begun again by somebody who slept.
            let what = format!("{job}/{} is not the checkpoint that was triggered", self.number);
            return Err(Error::new(Kind::Conflict, what));
        }
        let bases = bases_of(session, &intent)?;
        Ok(Arc::clone(known.insert(Arc::new((intent, bases)))))
    }

    /// What the bases have for an operator of this subtask. A full checkpoint uses nothing of any.
    ///
    /// # Errors
    /// When the checkpoint is decided already, or the store does not answer.
    pub fn base(&self, operator: &Name) -> Result<BaseIndex> {
        let known = self.known()?;
        let session = &self.environment.session;
        if self.kind == TriggerKind::Full {
            return Ok(BaseIndex::empty(session.store_id));
        }
        BaseIndex::load(session, &known.1, operator, self.environment.subtask)
    }
}
