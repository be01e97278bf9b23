//! Rows on their way out: JSON at once, a table in the end, and what is to be said of them.

use ckptfs::error::Result;
use ckptfs::flink::keyed::Value as Decoded;
use serde_json::{Map, Value, json};

use super::super::words;
use super::Look;
use super::rows::Wanted;

/// Most characters of a cell of the table.
const CELL: usize = 80;

/// What is printed, and what is to be said of it.
#[derive(Default)]
pub(super) struct Printed {
    pub(super) rows: u64,
    /// Rows of which a part is in hex.
    pub(super) hex: u64,
    pub(super) more: bool,
    notes: Vec<String>,
    table: Vec<Vec<(&'static str, String)>>,
}

/// What a row says, by name.
pub(super) type Row = Vec<(&'static str, Decoded)>;

impl Printed {
    /// Says something once, in the end.
    pub(super) fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|note| note == text) {
            self.notes.push(text.to_owned());
        }
    }

    pub(super) fn add(&mut self, as_json: bool, subtask: u32, row: &Row) -> Result<()> {
        self.rows += 1;
        if as_json {
            let mut fields = Map::from_iter([("subtask".to_owned(), json!(subtask))]);
            fields.extend(row.iter().map(|(name, value)| ((*name).to_owned(), value.json())));
            let before = if self.rows == 1 { "[\n" } else { ",\n" };
            return words::part(&format!("{before}{}", Value::Object(fields)));
        }
        let mut cells = vec![("subtask", subtask.to_string())];
        cells.extend(row.iter().map(|(name, value)| (*name, value.short(CELL))));
        self.table.push(cells);
        Ok(())
    }

    pub(super) fn end(&mut self, look: &Look<'_>, wanted: &Wanted<'_>) -> Result<()> {
        if look.context.json {
            words::line(if self.rows == 0 { "[]" } else { "\n]" })?;
        } else if self.rows > 0 {
            self.print_table()?;
        }
        self.notes.iter().for_each(|note| look.tell(note));
        if self.hex > 0 && self.notes.is_empty() {
            look.tell(&format!(
                "{} of these rows are shown in hex, as far as their bytes are not what a serializer that is known here writes",
                self.hex
            ));
        }
        if self.more {
            look.tell(&format!("there are more than these {} rows: --limit N shows more", self.rows));
        } else if self.rows == 0 {
            look.tell(&match wanted.key {
                Some(key) => format!("{} has no row of the key {key}", wanted.state),
                None => format!("{} has no rows", wanted.state),
            });
        }
        Ok(())
    }

    /// One column for each name that any row has; none for namespaces that say nothing.
    fn print_table(&self) -> Result<()> {
        let columns = [
            ("subtask", ">SUBTASK"),
            ("key_group", ">KEY GROUP"),
            ("timestamp", ">TIME STAMP"),
            ("key", "KEY"),
            ("raw_key", "RAW KEY"),
            ("namespace", "NAMESPACE"),
            ("user_key", "USER KEY"),
            ("value", "VALUE"),
            ("raw_value", "RAW VALUE"),
        ];
        let says = |name: &str| {
            let mut cells = self.table.iter().flatten().filter(|(of, _)| *of == name);
            cells.any(|(_, text)| name != "namespace" || text != "null")
        };
        let shown: Vec<_> = columns.into_iter().filter(|(name, _)| says(name)).collect();
        let mut rows = vec![shown.iter().map(|(_, head)| (*head).to_owned()).collect()];
        for cells in &self.table {
            let cell = |name: &str| cells.iter().find(|(of, _)| *of == name).map_or("", |(_, text)| text);
            rows.push(shown.iter().map(|(name, _)| cell(name).to_owned()).collect());
        }
        words::table(&rows)
    }
}
