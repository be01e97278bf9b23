//! Where a record says that it belongs; compared with the key that it was found at, so that a moved or swapped
//! object is refused.

use serde::{Deserialize, Serialize};

use crate::types::{Key, Name, Uid};

/// What a record is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// `ckptfs.json`.
    Store,
    /// A reign's begin.
    Epoch,
    /// A checkpoint's begin.
    Intent,
    /// A subtask's ack.
    Task,
    /// A checkpoint's end.
    Outcome,
    /// Out of the view, for now.
    Hidden,
    /// Dead for ever.
    Expired,
    /// Kept for a reader or a clone.
    Pin,
    /// Numbers below are gone.
    Floor,
    /// A hint.
    Head,
}

/// A record's own statement of its place.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// What it is for.
    pub role: Role,
    /// The job; nothing for the store's own record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Name>,
    /// Checkpoint number, epoch or floor; 0 for the store's own record and for heads.
    pub number: u64,
    /// Uid of the checkpoint, of the reign, or of the record itself where it has no checkpoint.
    pub uid: Uid,
    /// Operator and subtask of a task manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subtask: Option<(Name, u32)>,
    /// Holder and nonce of a pin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Uid>,
    /// The nonce of pins and hidden records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<Uid>,
}

impl Place {
    /// A place without subtask, holder and nonce.
    #[must_use]
    pub fn new(role: Role, job: &Name, number: u64, uid: Uid) -> Self {
        Self { role, job: Some(job.clone()), number, uid, subtask: None, holder: None, nonce: None }
    }

    /// The key that this place stands for, where it is complete.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        let n = || self.number.try_into().ok();
        if self.role == Role::Store {
            return Some(Key::store());
        }
        let job = self.job.as_ref()?;
        Some(match self.role {
            Role::Store => return None,
            Role::Epoch => Key::epoch(job, crate::types::Epoch(self.number)),
            Role::Intent => Key::intent(job, n()?),
            Role::Task => {
                let (operator, subtask) = self.subtask.as_ref()?;
                Key::task(job, n()?, operator, *subtask)
            }
            Role::Outcome => Key::outcome(job, n()?),
            Role::Hidden => Key::hidden(job, n()?, self.nonce?),
            Role::Expired => Key::expired(job, n()?),
            Role::Pin => Key::pin(job, n()?, self.holder?, self.nonce?),
            Role::Floor => Key::floor(job, n()?),
            Role::Head => Key::head(job),
        })
    }

    /// Whether the object at `key` may say this of itself.
    ///
    /// # Errors
    /// What it says and where it lay, in words.
    pub fn belongs_at(&self, key: &Key) -> Result<(), String> {
        match self.key() {
            Some(own) if own == *key => Ok(()),
            Some(own) => Err(format!("it says that it belongs at {own}, and lies at {key}")),
            None => Err(format!("it does not say where it belongs, and lies at {key}")),
        }
    }

    /// Whether the place is complete and of this role.
    ///
    /// # Errors
    /// In words.
    pub fn check(&self, role: Role) -> Result<(), String> {
        if self.role != role {
            return Err(format!("its role is {:?}, not {role:?}", self.role));
        }
        self.key().map(|_| ()).ok_or_else(|| "its place is incomplete".to_owned())
    }
}
