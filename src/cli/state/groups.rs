//! The key groups of a savepoint in the canonical form, each a file of its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ckptfs::error::{Error, Kind, Result};
use ckptfs::flink::keyed::{BackendMeta, KeyGroupRows};
use ckptfs::format::TaskManifest;
use ckptfs::limits;

use super::subtask::read_front;

/// Is shown states, keys and values; says whether to go on.
type OfState<'a> = dyn FnMut(u16, &[u8], &[u8]) -> Result<bool> + 'a;

/// Key groups of one handle.
pub(super) struct Groups {
    meta: BackendMeta,
    /// Number and file of each that has rows.
    files: Vec<(u32, PathBuf)>,
    /// Bytes of a key that say its group.
    length: usize,
    /// States that the description has no names of.
    unnamed: BTreeSet<u16>,
}

impl Groups {
    /// Finds them.
    pub(super) fn new(root: &Path, manifest: &TaskManifest, meta: &BackendMeta, max_parallelism: u32) -> Result<Self> {
        let mut files = Vec::new();
        for file in manifest.files.iter().filter(|f| f.size > 0) {
            if let Some(number) = file.path.as_str().strip_prefix("keyed/").and_then(|n| n.parse().ok()) {
                files.push((number, root.join(file.path.as_str())));
            }
        }
        // By their numbers: paths are in the order of text.
        files.sort();
        if let Some(whole) = manifest.file("stream/keyed").filter(|f| f.size > limits::FLINK_SHOWN_STREAM) {
            return Err(Error::new(
                Kind::Unsupported,
                format!(
                    "a savepoint of {} bytes in one subtask is not looked into, at most {} are: take it in the native form",
                    whole.size,
                    limits::FLINK_SHOWN_STREAM
                ),
            ));
        }
        let length = if max_parallelism <= 128 { 1 } else { 2 };
        let mut groups = Self { meta: meta.clone(), files, length, unnamed: BTreeSet::new() };
        match meta.declared {
            Some(declared) => {
                groups.unnamed = (meta.states.len()..declared).filter_map(|at| u16::try_from(at).ok()).collect();
            }
            // Not even their number is known.
            None => {
                let mut unnamed = BTreeSet::new();
                groups.visit(None, &mut |state, _, _| {
                    unnamed.insert(state);
                    Ok(true)
                })?;
                groups.unnamed = unnamed;
            }
        }
        Ok(groups)
    }

    /// What states are called whose names stand behind the point where the description stops.
    pub(super) fn unnamed(&self) -> impl Iterator<Item = String> {
        self.unnamed.iter().map(|state| format!("#{state}"))
    }

    /// The place of a state among those with names and those without.
    pub(super) fn place(&self, state: u16) -> Option<usize> {
        let named = self.meta.states.len();
        if usize::from(state) < named {
            return Some(state.into());
        }
        Some(named + self.unnamed.iter().position(|other| *other == state)?)
    }

    /// The key group that a key's first bytes say; nothing for none.
    pub(super) fn of_prefix(&self, prefix: &[u8]) -> Option<u32> {
        let group = prefix.get(..self.length)?;
        Some(group.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
    }

    /// Shows the rows of one group or all, until the visitor says false; whether it never did.
    pub(super) fn visit(&self, only: Option<u32>, visitor: &mut OfState<'_>) -> Result<bool> {
        for (number, path) in self.files.iter().filter(|(number, _)| only.is_none_or(|only| only == *number)) {
            let bytes = read_front(path, limits::FLINK_SHOWN_STREAM)?;
            let fail = |e: Error| match of_another_form(*number, &bytes) {
                Some(other) if e.kind() == Kind::Damage => other,
                _ => e.context(path.display()),
            };
            let damaged = |why: String| {
                Error::new(Kind::Damage, format!("{why} (`ckptfs verify --read` tells whether the store damaged it)"))
            };
            for row in KeyGroupRows::new(&self.meta, &bytes).map_err(|e| fail(e.into()))? {
                let row = row.map_err(|e| fail(e.into()))?;
                if self.of_prefix(&row.key) != Some(*number) {
                    return Err(fail(damaged("a key of another key group".to_owned())));
                }
                if let Some(declared) = self.meta.declared.filter(|declared| usize::from(row.state) >= *declared) {
                    return Err(fail(damaged(format!("a row of state {} of {declared}", row.state))));
                }
                if !visitor(row.state, &row.key, row.value)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// Checkpoints of state in memory lie in key groups, too: there each begins with its own number in four bytes, which no canonical one that
/// can be read does.
fn of_another_form(number: u32, bytes: &[u8]) -> Option<Error> {
    let begin = number.to_be_bytes();
    // Of group 0, the state's number behind it tells them apart: there a canonical one has the length of a key, which is never 0.
    let heap = bytes.starts_with(&begin) && (number > 0 || bytes.get(4..6) == Some(&[0, 0]));
    heap.then(|| {
        Error::new(
            Kind::Unsupported,
            "this is a checkpoint of Flink's heap state backend, whose rows are not read: take a savepoint in the canonical form",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: [u8; 22] = [0, 0, 0, 0, 0, 2, 7, 1, 0, 0, 0, 1, 9, 0, 0, 0, 1, 0x87, 0, 0, 0, 0];

    /// The rows that are shown of key group 7 when its file has these bytes.
    fn shown(bytes: &[u8], declared: Option<usize>) -> Result<usize> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("7");
        std::fs::write(&path, bytes).unwrap();
        let (key, states, stopped_at) = (None, Vec::new(), Some("com.acme.Lost".to_owned()));
        let meta = BackendMeta { compressed: false, key, states, declared, stopped_at, length: 0 };
        let groups = Groups { meta, files: vec![(7, path)], length: 1, unnamed: BTreeSet::new() };
        let mut rows = 0;
        groups.visit(None, &mut |_, _, _| {
            rows += 1;
            Ok(true)
        })?;
        Ok(rows)
    }

    #[test]
    fn what_is_no_canonical_group_is_refused() {
        let whole = [&GROUP[..], &[0xFF, 0xFF]].concat();
        assert_eq!(shown(&whole, Some(1)).unwrap(), 2);
        assert_eq!(shown(&whole, None).unwrap(), 2);
        let kind = |bytes: &[u8]| shown(bytes, Some(1)).unwrap_err().kind();
        for cut in 0..whole.len() {
            assert_eq!(kind(&whole[..cut]), Kind::Damage, "{cut}");
        }
        let mut other = whole.clone();
        other[6] = 8;
        assert_eq!(kind(&other), Kind::Damage, "a key of group 8");
        other[6] = 7;
        other[1] = 1;
        assert_eq!(kind(&other), Kind::Damage, "a state beyond the last");
        // The heap backend's: the group, a state, how many rows.
        assert_eq!(kind(&[0, 0, 0, 7, 0, 0, 0, 0, 0, 1, 1, 2, 3]), Kind::Unsupported);
        assert!(of_another_form(0, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]).is_some());
        assert!(of_another_form(0, &[0, 0, 0, 0, 0, 2, 0, 1]).is_none());
    }
}
