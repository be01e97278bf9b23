//! Lists operators, subtasks and states, with rows and bytes.

use std::collections::BTreeSet;

use ckptfs::error::{Kind, Result};
use ckptfs::flink::keyed::{BackendMeta, State};
use ckptfs::state::Count;
use ckptfs::types::{KeyGroupRange, Name};
use serde_json::{Value, json};

use super::super::words;
use super::Look;
use super::rows::short_name;
use super::subtask::{Form, Opened, Rows, Subtask};

/// An operator.
struct Operator {
    name: Name,
    display: String,
    id: Option<String>,
    max_parallelism: Option<u32>,
    key: Option<String>,
    subtasks: Vec<Found>,
    families: Vec<Family>,
    /// What people have to know of it.
    notes: BTreeSet<String>,
}

/// A subtask.
struct Found {
    index: u32,
    form: Form,
    key_groups: Option<KeyGroupRange>,
    /// By the place of the family in the operator; nothing for what could not be counted.
    counts: Vec<(usize, Option<Count>)>,
}

/// A state, or a column family without one.
struct Family {
    name: String,
    state: Option<State>,
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
    tables(&operators, each)
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

    /// Of these subtasks together; nothing when any of them could not be counted.
    fn sum<'a>(subtasks: impl Iterator<Item = &'a Found>, family: usize) -> Option<Count> {
        let mut sum = Count::default();
        for (_, count) in subtasks.flat_map(|s| &s.counts).filter(|(place, _)| *place == family) {
            sum.plus((*count)?);
        }
        Some(sum)
    }

    fn json(&self) -> Value {
        let counted = |count: Option<Count>| (count.map(|c| c.rows), count.map(|c| c.bytes));
        let families = self.families.iter().enumerate();
        let states: Vec<Value> = families
            .clone()
            .map(|(at, family)| {
                let (rows, bytes) = counted(Self::sum(self.subtasks.iter(), at));
                let mut value = family.json();
                if let Some(fields) = value.as_object_mut() {
                    fields.insert("rows".to_owned(), json!(rows));
                    fields.insert("bytes".to_owned(), json!(bytes));
                }
                value
            })
            .collect();
        let subtasks: Vec<Value> = self
            .subtasks
            .iter()
            .map(|subtask| {
                let has = families.clone().filter(|(at, _)| subtask.counts.iter().any(|(place, _)| place == at));
                let states = has.map(|(at, family)| {
                    let (rows, bytes) = counted(Self::sum(std::iter::once(subtask), at));
                    json!({"state": family.name, "rows": rows, "bytes": bytes})
                });
                json!({
                    "subtask": subtask.index,
                    "key_groups": subtask.key_groups.map(|g| [g.first, g.last]),
                    "form": subtask.form.name(),
                    "states": states.collect::<Vec<_>>(),
                })
            })
            .collect();
        json!({
            "operator": self.name.as_str(),
            "display_name": self.display,
            "id": self.id,
            "max_parallelism": self.max_parallelism,
            "key": self.key,
            "states": states,
            "subtasks": subtasks,
            "notes": self.notes,
        })
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

impl Form {
    fn name(self) -> Option<&'static str> {
        match self {
            Self::Database => Some("rocksdb"),
            Self::Savepoint => Some("canonical"),
            Self::None => None,
        }
    }
}

impl Family {
    fn kind(&self) -> Option<String> {
        let state = self.state.as_ref()?;
        Some(state.keyed_type().map_or_else(|| state.kind.name().to_owned(), str::to_owned))
    }

    fn namespace(&self) -> Option<String> {
        Some(self.state.as_ref()?.namespace()?.name())
    }

    fn value(&self) -> Option<String> {
        Some(self.state.as_ref()?.value()?.name())
    }

    fn json(&self) -> Value {
        json!({
            "state": self.name,
            "short": short_name(&self.name),
            "kind": self.kind(),
            "namespace": self.namespace(),
            "value": self.value(),
        })
    }

    /// Its name for people.
    fn names(&self) -> String {
        match short_name(&self.name) {
            Some(short) => format!("{short} ({})", self.name),
            None => self.name.clone(),
        }
    }
}

fn dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn tables(operators: &[Operator], each: bool) -> Result<()> {
    let mut rows = vec![["OPERATOR", ">SUBTASK", ">KEY GROUPS", "OF", "STATE AS"].map(str::to_owned).to_vec()];
    for operator in operators {
        for subtask in &operator.subtasks {
            rows.push(vec![
                operator.name.to_string(),
                subtask.index.to_string(),
                dash(subtask.key_groups.map(|g| g.to_string())),
                dash(operator.max_parallelism.map(|n| n.to_string())),
                subtask.form.name().unwrap_or("no keyed state").to_owned(),
            ]);
        }
    }
    words::table(&rows)?;
    let subtask = if each { ">SUBTASK" } else { ">SUBTASKS" };
    let head = ["OPERATOR", subtask, "STATE", "KIND", "KEY", "NAMESPACE", "VALUE", ">ROWS", ">BYTES"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for operator in operators {
        for (at, family) in operator.families.iter().enumerate() {
            let mut add = |subtask: String, of: Vec<&Found>| {
                let count = Operator::sum(of.into_iter(), at);
                // RocksDB always has it; Flink puts nothing there.
                if family.state.is_none() && family.name == "default" && count == Some(Count::default()) {
                    return;
                }
                rows.push(vec![
                    operator.name.to_string(),
                    subtask,
                    family.names(),
                    dash(family.kind()),
                    dash(operator.key.clone()),
                    dash(family.namespace()),
                    dash(family.value()),
                    dash(count.map(|c| c.rows.to_string())),
                    dash(count.map(|c| words::size(c.bytes))),
                ]);
            };
            let has: Vec<&Found> =
                operator.subtasks.iter().filter(|s| s.counts.iter().any(|(place, _)| *place == at)).collect();
            if each {
                has.into_iter().for_each(|subtask| add(subtask.index.to_string(), vec![subtask]));
            } else {
                add(has.len().to_string(), has);
            }
        }
    }
    if rows.len() > 1 {
        words::line("")?;
        words::table(&rows)?;
    }
    Ok(())
}
