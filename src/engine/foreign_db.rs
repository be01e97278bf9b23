//! Whether the RocksDB directories among foreign files are whole: CURRENT names a MANIFEST, and all that it names is there.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use super::input::{ForeignContent, ForeignFile};
use super::scan::missing;
use crate::error::{Error, Kind, Result};
use crate::format::rocks::{self, FileKind};
use crate::limits;
use crate::store::Sources;

/// Checks every directory, and notes at the tables what its MANIFEST says of them. Returns what was read for it, by the file's place.
///
/// # Errors
/// When one is not whole: nothing of it could be opened.
pub(super) fn check(sources: &Sources, files: &mut [ForeignFile]) -> Result<HashMap<usize, Bytes>> {
    let mut seen = HashMap::new();
    let mut databases: BTreeMap<String, HashMap<FileKind, usize>> = BTreeMap::new();
    for (i, file) in files.iter().enumerate() {
        if let Some(name) = file.path.rocks_file() {
            let directory = file.path.as_str().split('/').next().unwrap_or_default().to_owned();
            databases.entry(directory).or_default().insert(rocks::file_kind(name), i);
        }
    }
    for (directory, places) in databases {
        let invalid = |why: String| Error::new(Kind::Damage, format!("{directory}: {why}"));
        let mut read = |kind: FileKind, most: u64| -> Result<Option<Bytes>> {
            let Some((at, file)) = places.get(&kind).and_then(|at| Some((*at, files.get(*at)?))) else {
                return Ok(None);
            };
            let ForeignContent::Piece(piece) = &file.content else { return Ok(None) };
            if piece.len() > most {
                return Err(invalid(format!("{} has {} bytes, at most {most} may be", file.path, piece.len())));
            }
            let bytes = piece.read(sources)?;
            seen.insert(at, bytes.clone());
            Ok(Some(bytes))
        };
        let current = read(FileKind::Current, limits::FILE_NAME_LEN as u64 + 2)?;
        let current = current.ok_or_else(|| invalid("there is no CURRENT".to_owned()))?;
        let number = rocks::parse_current(&current).map_err(|e| invalid(format!("CURRENT names no MANIFEST ({e})")))?;
        let manifest = read(FileKind::Manifest(number), limits::ROCKS_MANIFEST as u64)?;
        let manifest =
            manifest.ok_or_else(|| invalid(format!("CURRENT names MANIFEST-{number:06}, which is not there")))?;
        let live = rocks::read_manifest(&manifest).map_err(|e| invalid(format!("MANIFEST-{number:06}: {e}")))?;
        let size = |kind: FileKind| places.get(&kind).and_then(|i| files.get(*i)).map(ForeignFile::size);
        if let Some(missing) = missing(&live, size) {
            return Err(invalid(format!("it is not whole: {missing}")));
        }
        for sst in live.ssts {
            if let Some(file) = places.get(&FileKind::Sst(sst.number)).and_then(|i| files.get_mut(*i)) {
                file.sst = Some(sst);
            }
        }
    }
    Ok(seen)
}
