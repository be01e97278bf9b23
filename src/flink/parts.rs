//! The parts of streams that are shown as files of their own: partitions of operator state, key groups of savepoints and raw state.

use std::collections::BTreeMap;

use super::metadata::{KeyGroupStream, KeyedHandle, OperatorHandle, Subtask};
use super::place::impossible;
use super::plan::PlannedPart;
use crate::error::Result;
use crate::format::FilePath;
use crate::limits;
use crate::store::Piece;
use crate::types::Name;

/// The parts of a subtask's streams. A stream that is too large to be held in memory is shown as a whole only.
///
/// # Errors
/// When an offset lies outside of its stream.
pub(super) fn parts(subtask: &Subtask, files: &BTreeMap<FilePath, Piece>) -> Result<Vec<PlannedPart>> {
    let mut out = Vec::new();
    let operator = [(&subtask.managed_operator, "operator"), (&subtask.raw_operator, "raw-operator")];
    for (handle, kind) in operator {
        if let Some(handle) = handle
            && let Some((of, length)) = stream(files, kind)
        {
            partitions(handle, kind, &of, length, &mut out)?;
        }
    }
    let keyed = [(&subtask.managed_keyed, "keyed"), (&subtask.raw_keyed, "raw-keyed")];
    for (handle, kind) in keyed {
        if let Some(KeyedHandle::KeyGroups { state, .. } | KeyedHandle::Savepoint(state)) = handle.as_deref()
            && let Some((of, length)) = stream(files, kind)
        {
            key_groups(state, kind, &of, length, &mut out)?;
        }
    }
    Ok(out)
}

fn stream(files: &BTreeMap<FilePath, Piece>, kind: &str) -> Option<(FilePath, u64)> {
    let path = FilePath::parse(&format!("stream/{kind}")).ok()?;
    let length = files.get(&path)?.len();
    (length <= limits::FLINK_SHOWN_STREAM).then_some((path, length))
}

/// From each offset to the next one, or the end. Where several begin at one place, the last of them has the bytes.
fn lengths(offsets: &[u64], length: u64) -> Result<Vec<u64>> {
    let mut order: Vec<usize> = (0..offsets.len()).collect();
    order.sort_by_key(|i| offsets.get(*i).copied());
    let mut out = vec![0; offsets.len()];
    let mut end = length;
    for i in order.into_iter().rev() {
        let Some((offset, out)) = offsets.get(i).zip(out.get_mut(i)) else { continue };
        *out = end
            .checked_sub(*offset)
            .ok_or_else(|| impossible(format!("a part begins at byte {offset} of a stream of {length} bytes")))?;
        end = *offset;
    }
    Ok(out)
}

fn partitions(
    handle: &OperatorHandle,
    kind: &str,
    of: &FilePath,
    length: u64,
    out: &mut Vec<PlannedPart>,
) -> Result<()> {
    let offsets: Vec<u64> = handle.states.iter().flat_map(|state| state.offsets.iter().copied()).collect();
    if offsets.len() > limits::OPERATOR_PARTITIONS {
        return Ok(());
    }
    let mut lengths = lengths(&offsets, length)?.into_iter();
    let mut raw = 0;
    for state in &handle.states {
        for (n, (offset, length)) in state.offsets.iter().zip(lengths.by_ref()).enumerate() {
            let path = if kind == "operator" {
                format!("operator/{}/{n}", Name::encode(&state.name))
            } else {
                raw += 1;
                format!("raw-operator/{}", raw - 1)
            };
            let path = FilePath::parse(&path).map_err(impossible)?;
            out.push(PlannedPart { path, of: of.clone(), offset: *offset, length });
        }
    }
    Ok(())
}

fn key_groups(
    state: &KeyGroupStream,
    kind: &str,
    of: &FilePath,
    length: u64,
    out: &mut Vec<PlannedPart>,
) -> Result<()> {
    // In a canonical savepoint 0 stands for a group without keys: the stream begins with its description. In raw state -1 does.
    let least = i64::from(kind == "keyed");
    let there = (state.first..).zip(&state.offsets).filter(|(_, at)| **at >= least);
    let there: Vec<(u32, u64)> = there.filter_map(|(group, at)| Some((group, u64::try_from(*at).ok()?))).collect();
    let offsets: Vec<u64> = there.iter().map(|(_, at)| *at).collect();
    for ((group, offset), length) in there.iter().zip(lengths(&offsets, length)?) {
        let path = FilePath::parse(&format!("{kind}/{group}")).map_err(impossible)?;
        out.push(PlannedPart { path, of: of.clone(), offset: *offset, length });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_goes_to_the_next_one() {
        assert_eq!(lengths(&[10, 30, 20], 35).unwrap(), [10, 5, 10]);
        assert_eq!(lengths(&[10, 10, 20], 20).unwrap(), [0, 10, 0]);
        assert_eq!(lengths(&[], 20).unwrap(), [0; 0]);
        assert!(lengths(&[21], 20).is_err());
        assert!(lengths(&[5, u64::MAX], 20).is_err());
    }
}
