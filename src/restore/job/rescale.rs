//! Other key groups than before: the best old directory is built on, what it has of others' key groups is deleted, and the rows that it
//! lacks are read from the other old directories and ingested as SSTs.
//!
//! Column-family export and import, which would take whole SSTs over, is not bound in rocksdb 0.25; a scan also leaves behind what a
//! directory has outside of its own range.

use std::path::{Path, PathBuf};

use super::RestoreOptions;
use super::assign::OldHandle;
use super::bring::{Old, Way};
use super::scratch::{Scratch, Unfinished};
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::state::{Database, KeyedDescriptor, SstWriter, StateDescriptor};
use crate::types::{KeyGroupRange, Uid};

/// Up to so many key groups a row's key begins with one byte of its key group, beyond it with two.
const ONE_BYTE_GROUPS: u32 = 128;

/// Follows the last key group of what is dropped by the table: few keys lie beyond it, and their tables go later.
const BEYOND: [u8; 8] = [u8::MAX; 8];

/// An old subtask's keyed state.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) handle: OldHandle,
    pub(super) descriptor: KeyedDescriptor,
    pub(super) old: Old<'a>,
}

/// What rows of a key group and of those after it begin with.
fn prefix(key_group: u32, max_parallelism: u32) -> Vec<u8> {
    // At most 2^15, which is the end of the last range: it fits two bytes.
    let [.., high, low] = key_group.to_be_bytes();
    if max_parallelism <= ONE_BYTE_GROUPS { vec![low] } else { vec![high, low] }
}

/// Makes the directory of a range.
///
/// # Errors
/// When bytes cannot be had or are not what they should be, or RocksDB fails. Nothing is left then.
pub(super) fn rescale(
    session: &Session,
    best: &Part<'_>,
    others: &[&Part<'_>],
    mine: KeyGroupRange,
    options: &RestoreOptions,
    directory: &Path,
) -> Result<(KeyedDescriptor, Way)> {
    let uid = Uid::random().map_err(|e| Error::with_source(Kind::Other, "the kernel gives no randomness", e))?;
    let descriptor = merged(best, others, mine, uid)?;
    let way = best.old.bring(options, directory)?;
    let unfinished = Unfinished::new(session, directory, way == Way::Clone);
    let families = Database::families(directory)?;
    let mut database = Database::open(directory, &names(&families), &options.database)?;
    if let Some(ours) = best.handle.range.intersect(&mine) {
        clip(&database, &families, ours, options.max_parallelism)?;
    }
    for other in others {
        if let Some(ours) = other.handle.range.intersect(&mine) {
            take_over(&mut database, other, ours, options, directory)?;
        }
    }
    database.flush()?;
    drop(database);
    unfinished.finish();
    Ok((descriptor, way))
}

/// The states of all parts. A column family is one state in all of them; a subtask that has not registered it since its author gave it
/// another time to live still has the old one.
fn merged(best: &Part<'_>, others: &[&Part<'_>], mine: KeyGroupRange, uid: Uid) -> Result<KeyedDescriptor> {
    let mut descriptor = best.descriptor.clone();
    for other in others {
        let differ = |what: String| {
            let (a, b) = (best.handle.subtask, other.handle.subtask);
            let operator = &best.old.entry.operator;
            Error::new(Kind::Damage, format!("subtasks {a} and {b} of {operator} disagree: {what}"))
        };
        let (a, b) = (&best.descriptor.key, &other.descriptor.key);
        if a != b {
            return Err(differ(format!("keys are of {a} and of {b}")));
        }
        for state in &other.descriptor.states {
            match descriptor.states.iter().find(|s| s.family() == state.family()) {
                None => descriptor.states.push(state.clone()),
                Some(same) => same.check(state).map_err(|e| differ(e.to_string()))?,
            }
        }
    }
    descriptor.states.sort_by_key(StateDescriptor::family);
    (descriptor.range, descriptor.backend) = (mine, uid);
    Ok(descriptor)
}

fn names(families: &[String]) -> Vec<&str> {
    families.iter().map(String::as_str).collect()
}

/// Deletes all rows of other key groups, in every column family.
fn clip(database: &Database, families: &[String], ours: KeyGroupRange, max_parallelism: u32) -> Result<()> {
    for (first, end) in [(0, ours.first), (ours.last.saturating_add(1), max_parallelism)] {
        let Some(last) = end.checked_sub(1).filter(|last| *last >= first) else { continue };
        let (from, to) = (prefix(first, max_parallelism), prefix(end, max_parallelism));
        // RocksDB takes the end of tables' ranges in: a row that is nothing but the next key group must not go with them.
        let mut inside = prefix(last, max_parallelism);
        inside.extend_from_slice(&BEYOND);
        for family in families {
            // Tables that have nothing else are dropped at once; the rest compaction takes away.
            database.delete_files_in_range(family, &from, &inside)?;
            database.delete_range(family, &from, &to)?;
        }
    }
    Ok(())
}

/// Adds the rows of these key groups from another old directory.
fn take_over(
    database: &mut Database,
    other: &Part<'_>,
    ours: KeyGroupRange,
    options: &RestoreOptions,
    directory: &Path,
) -> Result<()> {
    let scratch = Scratch::beside(directory)?;
    let readable = other.old.readable(options, &scratch)?;
    let families = Database::families(readable.path())?;
    let from = Database::open_read_only(readable.path(), &names(&families), &options.database)?;
    for family in &families {
        let tables = rows_as_tables(database, &from, family, ours, options, &scratch)?;
        if tables.is_empty() {
            continue;
        }
        if !database.has_family(family) {
            database.create_family(family)?;
        }
        database.ingest(family, &tables, true)?;
    }
    Ok(())
}

/// Writes the rows of these key groups as tables of a database.
fn rows_as_tables(
    database: &Database,
    from: &Database,
    family: &str,
    ours: KeyGroupRange,
    options: &RestoreOptions,
    scratch: &Scratch,
) -> Result<Vec<PathBuf>> {
    let first = prefix(ours.first, options.max_parallelism);
    let end = prefix(ours.last.saturating_add(1), options.max_parallelism);
    let mut tables = Vec::new();
    let mut open: Option<SstWriter<'_>> = None;
    for row in from.scan_range(family, &first, Some(&end))? {
        let (key, value) = row?;
        if let Some(full) = open.take_if(|w| w.size() >= options.database.table_size) {
            full.finish()?;
        }
        let writer = match &mut open {
            Some(writer) => writer,
            None => {
                // Of one family at a time: they are moved away before the next.
                let path = scratch.path().join(format!("{}.sst", tables.len()));
                tables.push(path.clone());
                open.insert(database.sst_writer(&path)?)
            }
        };
        writer.put(&key, &value)?;
    }
    if let Some(last) = open {
        last.finish()?;
    }
    Ok(tables)
}
