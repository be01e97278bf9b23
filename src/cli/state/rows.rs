//! Prints rows of a state: decoded as far as their serializers are known, the rest in hex.

use ckptfs::error::{Error, Kind, Result};
use ckptfs::flink::keyed::{BackendMeta, State, Value as Decoded, decode, decode_key, decode_value, encode_key_prefix};

use super::list::{MERGED, stopped};
use super::printed::{Printed, Row};
use super::subtask::{Handle, Rows, Subtask};
use super::{Look, none};

/// In front of the names of timers.
const TIMERS: &str = "_timer_state/";

/// What is asked for.
pub(super) struct Wanted<'a> {
    pub(super) state: &'a str,
    pub(super) key: Option<&'a str>,
    pub(super) limit: u64,
}

/// A key, as its rows begin.
struct Key {
    group: u32,
    /// Bytes of the group, which timers begin with, too.
    group_length: usize,
    prefix: Vec<u8>,
    value: Decoded,
}

/// How timers may be called for short.
pub(super) fn short_name(name: &str) -> Option<&str> {
    name.strip_prefix(TIMERS)
}

pub(super) fn run(look: &Look<'_>, subtasks: &[Subtask<'_>], wanted: &Wanted<'_>) -> Result<()> {
    let key = wanted.key.map(|text| key(look, subtasks, text)).transpose()?;
    let mut has: Vec<String> = Vec::new();
    let mut found = false;
    let mut printed = Printed::default();
    let mine = |s: &&Subtask<'_>| match (&key, s.manifest.key_groups) {
        (Some(key), Some(range)) => (range.first..=range.last).contains(&key.group),
        _ => true,
    };
    for subtask in subtasks.iter().filter(mine) {
        look.announce(std::slice::from_ref(subtask));
        let opened = subtask.open(look, key.as_ref().map(|key| key.group)).map_err(|e| e.context(subtask.place()))?;
        look.bar.finish();
        if subtask.has_changelog() {
            printed.note("changes in its changelog are not applied: rows are those of what was materialized last");
        }
        for handle in &opened.handles {
            let families = handle.families();
            let exact = families.iter().find(|name| *name == wanted.state);
            let short = || families.iter().find(|name| short_name(name) == Some(wanted.state));
            if let Some(family) = exact.or_else(short) {
                found = true;
                let rows = Reader { look, subtask, handle, family, key: key.as_ref(), limit: wanted.limit };
                rows.print(&mut printed).map_err(|e| e.context(subtask.place()))?;
            }
            has.extend(families.into_iter().filter(|name| !has.contains(name)).collect::<Vec<_>>());
        }
        if printed.more {
            break;
        }
    }
    if !subtasks.iter().any(|s| mine(&s)) {
        let group = key.map(|key| key.group).unwrap_or_default();
        printed.note(&format!("the key is of key group {group}, which another subtask has"));
    } else if !found {
        let operator = subtasks.first().map(|s| s.entry.operator.to_string()).unwrap_or_default();
        return Err(none("state", wanted.state, &operator, &has));
    }
    printed.end(look, wanted)
}

/// Finds out how the rows of a key begin.
fn key(look: &Look<'_>, subtasks: &[Subtask<'_>], text: &str) -> Result<Key> {
    let invalid = |why: String| Err(Error::new(Kind::Invalid, why));
    for subtask in subtasks {
        let Some(meta) = subtask.description(look)? else { continue };
        let Some((key, max)) = meta.key.zip(subtask.max_parallelism()) else { continue };
        let group_length = if max <= 128 { 1 } else { 2 };
        let prefix = encode_key_prefix(&key.serializer, text, max);
        let parts = prefix.as_deref().and_then(|p| p.split_at_checked(group_length));
        let Some((group, bytes)) = parts else {
            return invalid(format!(
                "{text:?} is no key of type {}, or keys of that type are not found by their text: list the rows without --key",
                key.serializer
            ));
        };
        let group = group.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        let Some(value) = decode(&key.serializer, bytes) else {
            return invalid(format!("{text:?} is no key of type {}", key.serializer));
        };
        return Ok(Key { group, group_length, prefix: prefix.unwrap_or_default(), value });
    }
    invalid("--key needs the key's serializer, and no description of keyed state names one that is known: list the rows without --key".to_owned())
}

/// The rows of one state in one handle.
struct Reader<'a> {
    look: &'a Look<'a>,
    subtask: &'a Subtask<'a>,
    handle: &'a Handle,
    family: &'a str,
    key: Option<&'a Key>,
    limit: u64,
}

impl Reader<'_> {
    fn print(&self, printed: &mut Printed) -> Result<()> {
        let state = self.handle.meta.as_ref().zip(self.handle.state(self.family));
        // The key stands behind the time in them: all of its key group are looked at.
        let timers = self.family.starts_with(TIMERS);
        let prefix = match self.key {
            Some(key) if timers => key.prefix.get(..key.group_length).unwrap_or_default(),
            Some(key) => &key.prefix,
            None => &[],
        };
        self.handle.visit(self.family, prefix, &mut |key, value| {
            let (row, hex, of) = self.row(state, key, value);
            if let (true, Some(wanted)) = (timers, self.key)
                && of.as_ref() != Some(&wanted.value)
            {
                return Ok(true);
            }
            if printed.rows >= self.limit {
                printed.more = true;
                return Ok(false);
            }
            printed.hex += u64::from(hex);
            printed.add(self.look.context.json, self.subtask.entry.subtask, &row)?;
            Ok(true)
        })?;
        match (&self.handle.meta, state) {
            (None, _) if self.subtask.operator_id().is_none() => {
                printed.note("decoding is for Flink's state: keys and values are shown in hex");
                if matches!(&self.handle.rows, Rows::Database(db) if db.merged()) {
                    printed.note(MERGED);
                }
            }
            (None, _) => printed.note("no description of this state was stored: it is shown in hex"),
            (Some(BackendMeta { stopped_at: Some(class), .. }), state)
                if state.is_none_or(|(_, state)| state.value().is_none()) =>
            {
                printed.note(&stopped(class));
            }
            _ => {}
        }
        Ok(())
    }

    /// What a row says by name, whether a part of it is in hex, and its key.
    fn row(&self, state: Option<(&BackendMeta, &State)>, key: &[u8], value: &[u8]) -> (Row, bool, Option<Decoded>) {
        let mut row = Row::new();
        let max = self.subtask.max_parallelism().unwrap_or_default();
        let found = state.and_then(|(meta, state)| decode_key(meta, state, max, key));
        let mut hex = found.is_none();
        let (mut of, mut timer) = (None, false);
        match found {
            Some(found) => {
                row.push(("key_group", Decoded::Int(found.key_group.into())));
                timer = found.timestamp.is_some();
                row.extend(found.timestamp.map(|time| ("timestamp", Decoded::Int(time))));
                of = Some(found.key.clone());
                row.push(("key", found.key));
                row.push(("namespace", found.namespace));
                row.extend(found.user_key.map(|key| ("user_key", key)));
            }
            None => row.push(("raw_key", Decoded::Bytes(key.to_vec()))),
        }
        match state.and_then(|(_, state)| decode_value(state, value)) {
            Some(_) if timer => {}
            Some(value) => row.push(("value", value)),
            None => {
                hex = true;
                row.push(("raw_value", Decoded::Bytes(value.to_vec())));
            }
        }
        (row, hex, of)
    }
}
