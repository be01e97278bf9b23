//! What is listed, as JSON and as tables.

use ckptfs::error::Result;
use ckptfs::state::Count;
use serde_json::{Value, json};

use super::super::words;
use super::list::{Family, Found, Operator};
use super::rows::short_name;
use super::subtask::Form;

impl Operator {
    /// Of these subtasks together; nothing when any of them could not be counted.
    fn sum<'a>(subtasks: impl Iterator<Item = &'a Found>, family: usize) -> Option<Count> {
        let mut sum = Count::default();
        for (_, count) in subtasks.flat_map(|s| &s.counts).filter(|(place, _)| *place == family) {
            sum.plus((*count)?);
        }
        Some(sum)
    }

    pub(super) fn json(&self) -> Value {
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

/// For people.
pub(super) fn tables(operators: &[Operator], each: bool) -> Result<()> {
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
