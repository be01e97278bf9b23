//! Lists operators, subtasks and states, with rows and bytes.

use std::collections::BTreeSet;

use ckptfs::error::{Kind, Result};
use ckptfs::flink::keyed::{BackendMeta, State};
use ckptfs::state::Count;
use ckptfs::types::{KeyGroupRange, Name};
use serde_json::json;

use super::super::words;
use super::Look;
use super::listed;
use super::subtask::{Form, Opened, Rows, Subtask};

/// An operator.
pub(super) struct Operator {
    pub(super) name: Name,
    pub(super) display: String,
    pub(super) id: Option<String>,
    pub(super) max_parallelism: Option<u32>,
    pub(super) key: Option<String>,
    pub(super) subtasks: Vec<Found>,
    pub(super) families: Vec<Family>,
    /// What people have to know of it.
    pub(super) notes: BTreeSet<String>,
}

/// A subtask.
pub(super) struct Found {
    pub(super) index: u32,
    pub(super) form: Form,
    pub(super) key_groups: Option<KeyGroupRange>,
    /// By the place of the family in the operator; nothing for what could not be counted.
    pub(super) counts: Vec<(usize, Option<Count>)>,
}

/// A state, or a column family without one.
pub(super) struct Family {
    pub(super) name: String,
    pub(super) state: Option<State>,
}

pub(super) fn run(look: &Look<'_>, subtasks: &[Subtask<'_>], each: bool) -> Result<()> {
    look.announce(subtasks);
    let mut operators: Vec<Operator> = Vec::new();
    for subtask in subtasks {
        let name = &subtask.entry.operator;
        if operators.last().is_none_or(|o| o.name != *name) {
            operators.push(Operator {
                name: name.clone(),
                display: subtask.entry.display_name.clone(),
                id: subtask.operator_id().map(str::to_owned),
                max_parallelism: subtask.max_parallelism(),
                key: None,
                subtasks: Vec::new(),
                families: Vec::new(),
                notes: BTreeSet::new(),
            });
        }
        if let Some(operator) = operators.last_mut() {
            operator.add(look, subtask).map_err(|e| e.context(subtask.place()))?;
        }
    }
    look.bar.finish();
    for operator in &operators {
        operator.notes.iter().for_each(|note| look.tell(&format!("{}: {note}", operator.name)));
    }
    if look.context.json {
        let checkpoint = look.checkpoint;
        return words::json(&json!({
            "job": checkpoint.job.as_str(),
            "checkpoint": checkpoint.number.to_string(),
            "number": checkpoint.number.get(),
            "operators": operators.iter().map(Operator::json).collect::<Vec<_>>(),
        }));
    }
    listed::tables(&operators, each)
}

impl Operator {
    fn add(&mut self, look: &Look<'_>, subtask: &Subtask<'_>) -> Result<()> {
        let (index, form) = (subtask.entry.subtask, subtask.form());
        let key_groups = subtask.manifest.key_groups;
        let mut found = Found { index, form, key_groups, counts: Vec::new() };
        if subtask.has_changelog() {
            self.notes.insert(
                "changes in its changelog are not applied: rows are those of what was materialized last".to_owned(),
            );
        }
        let opened = match subtask.open(look, None) {
            Ok(opened) => opened,
            // Its rows are in a form that is not read; the states' names may be.
            Err(e) if e.kind() == Kind::Unsupported => {
                self.notes.insert(format!("rows are not counted: {}", e.message()));
                if let Some(meta) = subtask.description(look)? {
                    self.describe(&meta);
                    for state in &meta.states {
                        found.counts.push((self.place(&state.name, Some(state)), None));
                    }
                }
                self.subtasks.push(found);
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        self.count(&opened, &mut found)?;
        if self.id.is_none() && form == Form::Database {
            self.notes.insert("it is no state of Flink's: its rows are counted, and shown in hex".to_owned());
        }
        self.subtasks.push(found);
        Ok(())
    }

    fn count(&mut self, opened: &Opened, found: &mut Found) -> Result<()> {
        for handle in &opened.handles {
            if let Some(meta) = &handle.meta {
                self.describe(meta);
            }
            let counts = match handle.counts() {
                Ok(counts) => counts.into_iter().map(|(name, count)| (name, Some(count))).collect(),
                Err(e) if e.kind() == Kind::Unsupported => {
                    self.notes.insert(format!("rows are not counted: {}", e.message()));
                    handle.families().into_iter().map(|name| (name, None)).collect::<Vec<_>>()
                }
                Err(e) => return Err(e),
            };
            for (name, count) in counts {
                let place = self.place(&name, handle.state(&name));
                found.counts.push((place, count));
            }
            if let Rows::Database(db) = &handle.rows
                && handle.meta.is_none()
                && db.merged()
            {
                self.notes.insert(MERGED.to_owned());
            }
        }
        Ok(())
    }

    /// What is the same for all subtasks.
    fn describe(&mut self, meta: &BackendMeta) {
        if let Some(key) = &meta.key {
            self.key.get_or_insert_with(|| key.serializer.name());
        }
        if let Some(class) = &meta.stopped_at {
            self.notes.insert(stopped(class));
        }
    }

    fn place(&mut self, name: &str, state: Option<&State>) -> usize {
        let known = self.families.iter().position(|family| family.name == name);
        let place = known.unwrap_or_else(|| {
            self.families.push(Family { name: name.to_owned(), state: None });
            self.families.len() - 1
        });
        if let Some(family) = self.families.get_mut(place)
            && family.state.is_none()
        {
            family.state = state.cloned();
        }
        place
    }
}

/// Of a description that is not read to its end.
pub(super) fn stopped(class: &str) -> String {
    format!(
        "its description is read up to the serializer {class}, which is not known here: states from there on are shown in hex"
    )
}

/// Of values that another program would merge in its own way.
pub(super) const MERGED: &str = "values of its own merge operator are shown as what is to be merged, joined by commas";
