//! The mutants, as cargo-mutants lists them.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// One change of one place.
pub struct Mutant {
    pub number: u32,
    pub name: String,
    pub file: String,
    pub genre: String,
    pub replacement: String,
    pub returns: String,
    /// Bytes of the file that it replaces.
    pub start: usize,
    pub end: usize,
}

/// All of a list; the feature's code is not built, so it has none.
pub fn read(list: &str, root: &Path) -> Vec<Mutant> {
    let list: Vec<Value> = serde_json::from_str(list).expect("a list of mutants");
    let mut sources = BTreeMap::new();
    let mut mutants = Vec::new();
    for entry in &list {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let file = text(&entry["file"]);
        if file.starts_with("src/restore/job/") {
            continue;
        }
        let source = sources
            .entry(file.clone())
            .or_insert_with(|| std::fs::read_to_string(root.join(&file)).expect("a listed file"));
        let at = |which: &str| {
            let place = &entry["span"][which];
            let number = |field: &str| usize::try_from(place[field].as_u64().unwrap_or(1)).unwrap_or(1);
            offset(source, number("line"), number("column"))
        };
        mutants.push(Mutant {
            number: u32::try_from(mutants.len() + 1).expect("few mutants"),
            name: text(&entry["name"]),
            genre: text(&entry["genre"]),
            replacement: text(&entry["replacement"]),
            returns: text(&entry["function"]["return_type"]),
            start: at("start"),
            end: at("end"),
            file,
        });
    }
    mutants
}

/// Where a line and a column (both from one, in characters) are in the text.
fn offset(source: &str, line: usize, column: usize) -> usize {
    let start: usize = source.split_inclusive('\n').take(line - 1).map(str::len).sum();
    start + source[start..].chars().take(column - 1).map(char::len_utf8).sum::<usize>()
}
