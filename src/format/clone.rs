//! What a clone says of itself, in a file of its own directory that RocksDB passes over, and in the cache that it was made with: which
//! checkpoint it was made from, and which pin keeps that. It is local and never stored.

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::types::{CheckpointNumber, Name, Uid};

/// Its name in the directory. No kind of file of RocksDB has it.
pub const CLONE_MARK: &str = ".ckptfs-clone.json";

/// What the names of files begin with that are about to take the place of a clone's links.
pub const SETTLING: &str = ".ckptfs-settle-";

const FORMAT: u32 = 1;

/// A directory as it is known again: its inode's number, and when that was made where the file system tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Inode number.
    pub ino: u64,
    /// Seconds since 1970 and nanoseconds.
    pub born: Option<(i64, u32)>,
}

/// A clone's own record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneMark {
    format: u32,
    /// The store that the checkpoint is in.
    pub store: Uid,
    /// The checkpoint's job.
    pub job: Name,
    /// Its number.
    pub number: CheckpointNumber,
    /// Its uid.
    pub uid: Uid,
    /// Holder of the pin: the id of the cache that the clone was made with.
    pub holder: Uid,
    /// Nonce of the pin.
    pub nonce: Uid,
    /// The clone's directory, absolute.
    pub directory: String,
    /// The directory itself.
    pub place: Place,
    /// The directory that it was made in.
    pub parent: Place,
    /// The job that runs on it, where one was named.
    pub runs: Option<Name>,
    /// RocksDB directories of the clone, below it; an empty text for the directory itself.
    pub databases: Vec<String>,
    /// RocksDB's ids of these databases, as far as they are known: a native checkpoint of a clone has the same.
    pub backends: Vec<String>,
}

/// What a new mark holds, but for its format.
#[derive(Debug, Clone)]
pub struct CloneOf {
    /// The store.
    pub store: Uid,
    /// Job, number and uid of the checkpoint.
    pub checkpoint: (Name, CheckpointNumber, Uid),
    /// Holder and nonce of the pin.
    pub pin: (Uid, Uid),
    /// The clone's directory, absolute.
    pub directory: String,
    /// The directory itself, and the one that it lies in.
    pub places: (Place, Place),
}

impl CloneMark {
    /// A mark without databases.
    #[must_use]
    pub fn new(of: CloneOf) -> Self {
        let (job, number, uid) = of.checkpoint;
        let (holder, nonce) = of.pin;
        let (place, parent) = of.places;
        Self {
            format: FORMAT,
            store: of.store,
            job,
            number,
            uid,
            holder,
            nonce,
            directory: of.directory,
            place,
            parent,
            runs: None,
            databases: Vec::new(),
            backends: Vec::new(),
        }
    }

    /// As text, with a newline.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Numbers, texts and lists of them: there is nothing that could fail.
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text
    }

    /// Reads one back.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > limits::CLONE_MARK_LEN {
            return Err(format!("it has more than {} bytes", limits::CLONE_MARK_LEN));
        }
        let mark: Self = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        if mark.format != FORMAT {
            return Err(format!("it has format {}, this version knows {FORMAT}", mark.format));
        }
        Ok(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::rocks;

    fn mark() -> CloneMark {
        let uid = |n| Uid::from_bytes([n; 16]);
        let place = Place { ino: 7, born: Some((1, 2)) };
        let mut mark = CloneMark::new(CloneOf {
            store: uid(1),
            checkpoint: (Name::encode("app"), CheckpointNumber::new(3).unwrap(), uid(2)),
            pin: (uid(3), uid(4)),
            directory: "/data/clone".to_owned(),
            places: (place, Place { ino: 8, born: None }),
        });
        mark.databases.push(String::new());
        mark
    }

    #[test]
    fn read_back() {
        let mark = mark();
        assert_eq!(CloneMark::decode(&mark.encode()).unwrap(), mark);
        let text = String::from_utf8(mark.encode()).unwrap();
        for bad in
            [text.replace("\"format\":1", "\"format\":2"), text.replace("\"number\":3", "\"number\":0"), String::new()]
        {
            assert!(CloneMark::decode(bad.as_bytes()).is_err(), "{bad}");
        }
        let long = [text.into_bytes(), vec![b' '; limits::CLONE_MARK_LEN]].concat();
        assert!(CloneMark::decode(&long).unwrap_err().contains("bytes"));
    }

    #[test]
    fn rocksdb_passes_over_its_name() {
        assert_eq!(rocks::file_kind(CLONE_MARK), rocks::FileKind::Other);
    }
}
