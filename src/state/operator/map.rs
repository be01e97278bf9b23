//! A broadcast map as one partition: for each entry the length of its key in 4 bytes, the key, and its value likewise. The lengths are
//! there so that a map whose state is not declared any more can be carried on.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::state::error::StateError;

const WHAT: &str = "broadcast map";

pub(super) fn write(entries: &BTreeMap<Vec<u8>, Arc<[u8]>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in entries {
        for part in [key.as_slice(), value] {
            // Whoever puts an entry has checked that it is not longer.
            bytes.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend_from_slice(part);
        }
    }
    bytes
}

/// Checks that an entry's part can be written.
pub(super) fn check_length(part: &[u8]) -> Result<(), StateError> {
    u32::try_from(part.len()).map(drop).map_err(|_| StateError::encode(WHAT, "an entry of 4 GiB or more"))
}

pub(super) fn read(mut bytes: &[u8]) -> Result<BTreeMap<Vec<u8>, Arc<[u8]>>, StateError> {
    let mut entries = BTreeMap::new();
    while !bytes.is_empty() {
        let key = part(&mut bytes)?.to_vec();
        let value = Arc::from(part(&mut bytes)?);
        if entries.insert(key, value).is_some() {
            return Err(StateError::decode(WHAT, "a key that is there twice"));
        }
    }
    Ok(entries)
}

fn part<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], StateError> {
    let found = bytes.split_first_chunk::<4>().and_then(|(length, rest)| {
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        rest.split_at_checked(length)
    });
    let Some((part, rest)) = found else {
        return Err(StateError::decode(WHAT, format!("its last {} bytes are no entry", bytes.len())));
    };
    *bytes = rest;
    Ok(part)
}
