//! The memory of an interrupted reading: a text file with one line per thing that was read and found right.
//!
//! ```text
//! ckptfs-verify/1 <store id>
//! <64 hex>          digest of what was proved: which object, of which length, with which claims on its bytes
//! ```
//!
//! It grows line by line and is removed when the reading comes to its end. What is not a whole line is not believed.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::error::{Error, Kind, Result};
use crate::limits;
use crate::types::{Digest, Uid};

const FORMAT: &str = "ckptfs-verify/1";

/// What was proved, and where that is written down.
#[derive(Debug)]
pub(super) struct Proved {
    known: HashSet<Digest>,
    file: Option<(PathBuf, Mutex<File>)>,
}

fn fail(path: &Path, what: &str, e: std::io::Error) -> Error {
    Error::with_source(Kind::Other, format!("cannot {what} {}: {e}", path.display()), e)
}

impl Proved {
    /// Opens the file, or makes it; without a path nothing is remembered.
    ///
    /// # Errors
    /// When it is of another store or something else altogether, or cannot be written.
    pub(super) fn open(path: Option<&Path>, store: Uid) -> Result<Self> {
        let Some(path) = path else { return Ok(Self { known: HashSet::new(), file: None }) };
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(|e| fail(path, "open the file of an interrupted verification,", e))?;
        let mut text = String::new();
        let read = (&file).take(limits::RESUME_LEN).read_to_string(&mut text);
        let read = read.map_err(|e| fail(path, "read", e))?;
        let head = format!("{FORMAT} {store}\n");
        // Cut off while its first line was written.
        let begun = head.starts_with(&text);
        if !begun && !text.starts_with(&head) || read as u64 == limits::RESUME_LEN {
            let why = if text.starts_with(FORMAT) { "it is of another store" } else { "it is something else" };
            return Err(Error::new(
                Kind::Invalid,
                format!("{} does not remember a verification of this store: {why}. Name a new file", path.display()),
            ));
        }
        if begun {
            file.set_len(0).and_then(|()| file.write_all(head.as_bytes())).map_err(|e| fail(path, "write", e))?;
        } else if !text.ends_with('\n') {
            file.write_all(b"\n").map_err(|e| fail(path, "write", e))?;
        }
        let known = text.lines().skip(1).filter_map(|line| line.parse().ok()).collect();
        Ok(Self { known, file: Some((path.to_owned(), Mutex::new(file))) })
    }

    /// Whether it was proved before the interruption.
    pub(super) fn knows(&self, mark: &Digest) -> bool {
        self.known.contains(mark)
    }

    /// Remembers it. One write per line: whatever ends this process, the lines before are whole.
    pub(super) fn note(&self, mark: &Digest) {
        let Some((path, file)) = &self.file else { return };
        let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Err(e) = file.write_all(format!("{mark}\n").as_bytes()) {
            log::warn!("{} does not remember what was read: {e}", path.display());
        }
    }

    /// The reading came to its end: the next one begins anew.
    pub(super) fn end(self) {
        if let Some((path, _)) = self.file
            && let Err(e) = std::fs::remove_file(&path)
        {
            log::warn!("{} stays, remove it: {e}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_proved_is_known_again_and_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("state");
        let (store, other) = (Uid::from_bytes([1; 16]), Uid::from_bytes([2; 16]));
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let proved = Proved::open(Some(&path), store).unwrap();
        proved.note(&a);
        drop(proved);
        // Cut off in the middle of a line.
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str(&b.to_hex()[..63]);
        std::fs::write(&path, &text).unwrap();
        let proved = Proved::open(Some(&path), store).unwrap();
        assert!(proved.knows(&a) && !proved.knows(&b));
        proved.note(&b);
        drop(proved);
        assert_eq!(Proved::open(Some(&path), other).unwrap_err().kind(), Kind::Invalid);
        let proved = Proved::open(Some(&path), store).unwrap();
        assert!(proved.knows(&a) && proved.knows(&b));
        proved.end();
        assert!(!path.exists());
        std::fs::write(&path, "ckptfs-ver").unwrap();
        assert!(!Proved::open(Some(&path), store).unwrap().knows(&a), "cut off in its first line");
        std::fs::write(&path, "somebody's diary\n").unwrap();
        assert_eq!(Proved::open(Some(&path), store).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody's diary\n");
        let proved = Proved::open(None, store).unwrap();
        proved.note(&a);
        assert!(!proved.knows(&a));
        proved.end();
    }
}
