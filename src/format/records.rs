//! The small records: the store's own, epochs, hidden, expired, pins, floors, heads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::header::Record;
use super::place::{Place, Role};
use crate::limits;
use crate::types::{CheckpointNumber, Uid};

/// `ckptfs.json`: this is a store, and whose id it has. `place.uid` is the store's id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRecord {
    /// Role and store id.
    pub place: Place,
    /// Version of ckptfs that created it, for people.
    pub created_by: String,
}

/// `epoch/<job>/<k>.json`: a coordinator took the job over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Job, epoch and the reign's own uid.
    pub place: Place,
    /// The coordinator's cache id.
    pub writer: Uid,
    /// The host's name, for people.
    pub host: String,
}

/// `hidden/<job>/<n>/<nonce>.json`: out of the view until the record is removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenRecord {
    /// Job, number, the checkpoint's uid and the nonce.
    pub place: Place,
    /// Milliseconds since 1970. Told to people; nothing is decided by it.
    pub hidden_ms: u64,
}

/// `expired/<job>/<n>.json`: dead for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiredRecord {
    /// Job, number and the checkpoint's uid.
    pub place: Place,
    /// Why, for people.
    pub reason: String,
}

/// What holds a pin.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PinHolder {
    /// A mount's daemon, by its cache's id.
    Mount {
        /// The host's name, for people.
        host: String,
    },
    /// A clone: the job that runs on it, its directory and the epoch it was made in.
    Clone {
        /// The host's name, for people.
        host: String,
        /// The clone's directory.
        directory: String,
        /// The job that runs on it, where one does.
        job: Option<crate::types::Name>,
        /// That job's epoch.
        epoch: crate::types::Epoch,
    },
    /// A writer, for the time of a snapshot with an expired base.
    Writer,
    /// A person.
    Person {
        /// What it is for, in the person's words.
        note: String,
    },
}

/// `pin/<job>/<n>/<holder>-<nonce>.json`: keeps a checkpoint's blobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinRecord {
    /// Job, number, the checkpoint's uid, holder and nonce.
    pub place: Place,
    /// Who holds it.
    pub holder: PinHolder,
    /// Milliseconds since 1970. Told to people; nothing is decided by it.
    pub pinned_ms: u64,
}

impl PinHolder {
    /// What is said of a pin whose record cannot be read.
    pub const UNREADABLE: &str = "it cannot be read, and holds";
}

impl std::fmt::Display for PinHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mount { host } => write!(f, "a mount on {host}"),
            Self::Clone { host, directory, job: Some(job), .. } => {
                write!(f, "job {job} on a clone in {directory} on {host}")
            }
            Self::Clone { host, directory, job: None, .. } => write!(f, "a clone in {directory} on {host}"),
            Self::Writer => f.write_str("a writer, for a snapshot"),
            Self::Person { note } if note.is_empty() => f.write_str("a person"),
            Self::Person { note } => write!(f, "a person: {note}"),
        }
    }
}

/// `floor/<job>/<f>.json`: the numbers below `place.number` are gone, except the survivors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloorRecord {
    /// Job, the floor's number and the record's own uid.
    pub place: Place,
    /// Numbers below the floor that live on, in order.
    pub survivors: Vec<CheckpointNumber>,
    /// Uids of numbers below the floor that still have blobs in the store.
    pub uids: Vec<Uid>,
}

/// `head/<job>.json`: a hint at the newest completed number. Never trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadRecord {
    /// Job and the record's own uid.
    pub place: Place,
    /// The newest completed number when it was written.
    pub newest: u64,
}

fn short(texts: &[&str]) -> Result<(), String> {
    if texts.iter().any(|t| t.len() > limits::PROPERTY_LEN) {
        return Err(format!("a text is longer than {} bytes", limits::PROPERTY_LEN));
    }
    Ok(())
}

macro_rules! record {
    ($type:ty, $what:literal, $role:expr, |$r:ident| $check:expr) => {
        impl Record for $type {
            const WHAT: &'static str = $what;
            const VERSION: u32 = 1;

            fn place(&self) -> &Place {
                &self.place
            }

            fn check(&self) -> Result<(), String> {
                self.place.check($role)?;
                let $r = self;
                $check
            }
        }
    };
}

record!(StoreRecord, "store", Role::Store, |r| short(&[&r.created_by]));
record!(EpochRecord, "epoch", Role::Epoch, |r| short(&[&r.host]));
record!(HiddenRecord, "hidden", Role::Hidden, |_r| Ok(()));
record!(ExpiredRecord, "expired", Role::Expired, |r| short(&[&r.reason]));
record!(PinRecord, "pin", Role::Pin, |r| match &r.holder {
    PinHolder::Mount { host } => short(&[host]),
    PinHolder::Clone { host, directory, .. } => short(&[host, directory]),
    PinHolder::Person { note } => short(&[note]),
    PinHolder::Writer => Ok(()),
});
record!(HeadRecord, "head", Role::Head, |_r| Ok(()));
record!(FloorRecord, "floor", Role::Floor, |r| r.check_lists());

impl FloorRecord {
    fn check_lists(&self) -> Result<(), String> {
        if self.survivors.len() > limits::FLOOR_ENTRIES || self.uids.len() > limits::FLOOR_ENTRIES {
            return Err(format!("more than {} survivors or uids", limits::FLOOR_ENTRIES));
        }
        let in_order = self.survivors.windows(2).all(|w| w[0] < w[1]);
        let below = self.survivors.last().is_none_or(|n| n.get() < self.place.number);
        if in_order && below { Ok(()) } else { Err("its survivors are not in order below the floor".to_owned()) }
    }
}

/// Free properties of a task manifest.
pub type Properties = BTreeMap<String, String>;
