//! Reads a `_metadata` file.

use super::read_handle::{channels, keyed, operator as operator_handle, small, stream, text};
use super::types::{CheckpointMetadata, MasterState, Operator, Subtask};
use super::{java, tags};
use crate::flink::FlinkError;
use crate::flink::wire::{Cursor, gather};
use crate::limits;

const WHAT: &str = "_metadata";

/// Reads a `_metadata` file.
///
/// # Errors
/// When it is none, when it is of another version than 2 to 6, when it is damaged or cut off, or beyond a limit.
pub fn read(bytes: &[u8]) -> Result<CheckpointMetadata, FlinkError> {
    if bytes.len() > limits::FLINK_METADATA_LEN {
        let (count, most) = (bytes.len() as u64, limits::FLINK_METADATA_LEN as u64);
        return Err(FlinkError::Limit { what: WHAT, at: 0, of: "bytes", count, most });
    }
    let mut input = Cursor::new(WHAT, bytes);
    let magic = input.i32()?;
    if magic != tags::MAGIC {
        let why = format!("it starts with {magic:08x}, a checkpoint's metadata with {:08x}", tags::MAGIC);
        return Err(FlinkError::Damaged { what: WHAT, at: 0, why });
    }
    let version = version(&mut input)?;
    let checkpoint_id = input.i64()?;
    let count = input.count("master states", limits::FLINK_MASTER_STATES, 8)?;
    let master_states = gather(count, || master_state(&mut input))?;
    let count = input.count("operators", limits::OPERATORS, 29)?;
    let operators = gather(count, || operator(&mut input, version))?;
    if version >= 4 {
        java::complete(input.clone())?;
    }
    Ok(CheckpointMetadata { version, checkpoint_id, master_states, operators, properties: input.rest().to_vec() })
}

fn version(input: &mut Cursor<'_>) -> Result<u32, FlinkError> {
    let version = input.i32()?;
    let advice = match version {
        2..=6 => return Ok(version.unsigned_abs()),
        1 => "restore it with a Flink that still reads it (1.3 does), and take a savepoint there",
        7.. => "it is of a newer Flink than 2.3: take a newer ckptfs, or a savepoint with Flink 2.3",
        _ => return Err(input.damaged(format!("its format version is {version}"))),
    };
    Err(FlinkError::Version { what: WHAT, version: version.into(), known: "2 to 6", advice })
}

fn master_state(input: &mut Cursor<'_>) -> Result<MasterState, FlinkError> {
    if input.i32()? != tags::MASTER_STATE {
        return Err(input.damaged("a master state should start here"));
    }
    let at = input.at() + 4;
    let mut state = Cursor::new("a master state of _metadata", input.bytes("bytes of a master state")?);
    let (version, name) = (state.i32()?, text(&mut state)?);
    let bytes = state.bytes("bytes of a hook")?.to_vec();
    if state.left() > 0 {
        let why = format!("a master state has {} bytes too many", state.left());
        return Err(FlinkError::Damaged { what: WHAT, at, why });
    }
    Ok(MasterState { version, name, bytes })
}

fn operator(input: &mut Cursor<'_>, version: u32) -> Result<Operator, FlinkError> {
    let mut label =
        || if version < 5 { Ok(None) } else { text(input).map(|text| Some(text).filter(|t| !t.is_empty())) };
    let (name, uid) = (label()?, label()?);
    let mut id = [0; 16];
    id.copy_from_slice(input.take(16)?);
    let parallelism = small(input, "subtasks of an operator")?;
    let max_parallelism = small(input, "key groups of an operator")?;
    let coordinator = if version < 3 {
        let chain = input.i32()?;
        if chain != 1 {
            return Err(input.damaged(format!("an operator has a chain of {chain}, version 2 always writes 1")));
        }
        super::StreamHandle::Null
    } else {
        stream(input, 0)?
    };
    let mut operator = Operator {
        name,
        uid,
        id,
        parallelism,
        max_parallelism,
        coordinator,
        fully_finished: false,
        subtasks: Vec::new(),
    };
    if version >= 3 && input.clone().i32()? == -1 {
        input.i32()?;
        operator.fully_finished = true;
        return Ok(operator);
    }
    let count = input.count("subtasks of an operator", limits::PARALLELISM as usize, 4)?;
    operator.subtasks = gather(count, || subtask(input, version))?;
    Ok(operator)
}

fn subtask(input: &mut Cursor<'_>, version: u32) -> Result<Subtask, FlinkError> {
    let said = input.i32()?;
    // A finished one's index is written as its complement, which is negative for 0 as well.
    let (finished, index) = if version >= 3 && said < 0 { (true, !said) } else { (false, said) };
    let index = u32::try_from(index).ok().filter(|index| *index < limits::PARALLELISM);
    let index = index.ok_or_else(|| input.damaged(format!("a subtask's index is {said}")))?;
    if finished {
        return Ok(Subtask { index, finished, ..Subtask::default() });
    }
    let duration = if version < 3 { Some(legacy(input)?) } else { None };
    let mut operator_state = || match input.i32()? {
        0 => Ok(None),
        1 => operator_handle(input).map(|handle| Some(Box::new(handle))),
        other => Err(input.damaged(format!("a subtask has {other} handles of one operator state, not 0 or 1"))),
    };
    Ok(Subtask {
        index,
        finished,
        duration,
        managed_operator: operator_state()?,
        raw_operator: operator_state()?,
        managed_keyed: keyed(input, 0)?.map(Box::new),
        raw_keyed: keyed(input, 0)?.map(Box::new),
        input_channels: if version < 3 { Vec::new() } else { channels(input, version, 0)? },
        result_subpartitions: if version < 3 { Vec::new() } else { channels(input, version, 1)? },
    })
}

/// What version 2 has before a subtask's handles: a duration, and the number of states in Flink 1.1's way.
fn legacy(input: &mut Cursor<'_>) -> Result<i64, FlinkError> {
    let duration = input.i64()?;
    match input.i32()? {
        0 => Ok(duration),
        _ => Err(input.damaged("a subtask has state of Flink 1.1, which no later Flink reads either")),
    }
}
