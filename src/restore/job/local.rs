//! A copy of a subtask's directory on this host: used when it is whole, file by file what the task manifest says, and not at all otherwise.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, Result};
use crate::format::clone::CLONE_MARK;
use crate::format::rocks::{FileKind, file_kind};
use crate::format::{FileEntry, TaskManifest};
use crate::local::dir::Dir;
use crate::local::identity::{self, FileStat};
use crate::local::link::link_from_fd;
use crate::local::{self, Linked};
use crate::restore::copy::copy_hashed;
use crate::types::{Digest, Name};

/// Where a copy lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalCopy {
    /// The operator that it is of.
    pub operator: Name,
    /// Index of the subtask that it is of.
    pub subtask: u32,
    /// The RocksDB directory.
    pub directory: PathBuf,
}

/// A copy whose files are all there, open, and what they should be.
#[derive(Debug)]
pub(super) struct Whole<'a> {
    files: Vec<(&'a str, &'a FileEntry, File)>,
}

/// Never written again once it is there, so that it can have two names.
fn is_immutable(name: &str) -> bool {
    matches!(file_kind(name), FileKind::Sst(_) | FileKind::BlobFile(_))
}

/// Opens a copy. What is not whole is said in the log and is nothing: the store has it all.
pub(super) fn whole<'a>(copy: &LocalCopy, manifest: &'a TaskManifest) -> Option<Whole<'a>> {
    let shown = copy.directory.display();
    match open(&copy.directory, manifest) {
        Ok(whole) => Some(whole),
        Err(why) => {
            log::warn!(
                "the local copy {shown} of {}/{} is not used, the store is read: {why}",
                copy.operator,
                copy.subtask
            );
            None
        }
    }
}

fn open<'a>(directory: &Path, manifest: &'a TaskManifest) -> Result<Whole<'a>, String> {
    let dir = Dir::open(directory).map_err(|e| e.to_string())?;
    let mut files = Vec::new();
    for entry in &manifest.files {
        let Some(name) = entry.path.db_file().filter(|n| *n != CLONE_MARK) else { continue };
        let file = dir.open_file(name).map_err(|e| e.to_string())?;
        let found = digest(&file, entry, is_immutable(name)).map_err(|e| format!("{name}: {e}"))?;
        if found != Some(entry.digest) {
            return Err(format!("{name} is not what the checkpoint has"));
        }
        files.push((name, entry, file));
    }
    Ok(Whole { files })
}

/// What a file holds, if it has the right size: by its inode's own record where it is immutable, else by its bytes.
fn digest(file: &File, entry: &FileEntry, immutable: bool) -> std::io::Result<Option<Digest>> {
    let before = FileStat::of(file)?;
    if before.kind() != local::FileKind::File || before.size != entry.size {
        return Ok(None);
    }
    if immutable && let Some(recorded) = identity::recorded(file)? {
        return Ok(Some(recorded));
    }
    let (digest, length) = identity::hash(file)?;
    Ok((length == entry.size && FileStat::of(file)?.unchanged(&before)).then_some(digest))
}

impl Whole<'_> {
    /// Fills a directory: immutable files get a second name there, where the disk lets them, the others are copied.
    ///
    /// # Errors
    /// When the disk refuses, or a file changed since it was looked at.
    pub(super) fn fill(&self, into: &Dir) -> Result<()> {
        for (name, entry, file) in &self.files {
            if is_immutable(name) && link_from_fd(file, into, name)? == Linked::Linked {
                continue;
            }
            let path = into.path().join(name);
            let out = into.create_file(name, 0o644)?;
            let fail =
                |e| Error::with_source(Kind::Other, format!("cannot copy a local file to {}: {e}", path.display()), e);
            let cloned = local::link::reflink(file, &out).map_err(fail)?;
            let found = if cloned { identity::hash(&out).map_err(fail)?.0 } else { copy_hashed(file, &out, &path)? };
            if found != entry.digest {
                return Err(Error::new(Kind::Conflict, format!("the local copy's {name} changed while it was read")));
            }
            out.sync_data().map_err(fail)?;
        }
        Ok(into.sync()?)
    }
}
