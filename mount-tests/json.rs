//! `docs/JSON.md` against what `--json` prints: a field that is printed is explained, and one that is explained is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::kit::run;
use crate::tool::{Desk, load};

/// Where values stand: `files[].path`. A list without elements ends in `[]`, what is null in its own name.
fn fields(value: &Value, at: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, value) in map {
                let dot = if at.is_empty() { "" } else { "." };
                fields(value, &format!("{at}{dot}{name}"), out);
            }
        }
        Value::Array(all) if !all.is_empty() => all.iter().for_each(|value| fields(value, &format!("{at}[]"), out)),
        Value::Array(_) => drop(out.insert(format!("{at}[]"))),
        _ => drop(out.insert(at.to_owned())),
    }
}

/// The fields that a document explains, by the verb of their heading. A star stands for any name.
fn explained(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut verb = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            verb = heading.replace('`', "");
        } else if let Some(cell) = line.strip_prefix("| `").and_then(|rest| rest.split(" |").next()) {
            let names = cell.split(", ").map(|name| name.trim_matches('`').to_owned());
            all.entry(verb.clone()).or_default().extend(names);
        }
    }
    all
}

fn matches(explained: &str, seen: &str) -> bool {
    match explained.split_once('*') {
        None => explained == seen,
        Some((before, after)) => seen.starts_with(before) && seen.ends_with(after) && seen.len() > before.len(),
    }
}

/// What is wrong with what is explained of a verb.
fn faults(verb: &str, explained: &BTreeSet<String>, seen: &BTreeSet<String>) -> Vec<String> {
    let empty = |seen: &str, explained: &str| explained.starts_with(&format!("{seen}.")) || explained == seen;
    let known = |s: &String| explained.iter().any(|e| matches(e, s) || empty(s, e));
    let new = seen.iter().filter(|s| !known(s)).map(|s| format!("{verb}: {s} is not explained"));
    let gone = explained.iter().filter(|e| !seen.iter().any(|s| matches(e, s)));
    new.chain(gone.map(|e| format!("{verb}: {e} was not printed"))).collect()
}

struct Verbs<'a> {
    desk: &'a Desk,
    seen: BTreeMap<String, BTreeSet<String>>,
}

impl Verbs<'_> {
    /// Runs a verb; what it printed is noted under the heading.
    fn say(&mut self, heading: &str, args: &[&str]) -> Value {
        let mut all = vec!["--json"];
        all.extend_from_slice(args);
        let said = self.desk.run(&all);
        assert!(said.code == 0 || said.code == 3 || args[0] == "check" || args[0] == "doctor", "{args:?}: {said:?}");
        let value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{args:?}: {e}: {said:?}"));
        fields(&value, "", self.seen.entry(heading.to_owned()).or_default());
        value
    }
}

#[test]
fn each_field_of_json_is_explained_and_each_that_is_explained_is_printed() {
    let desk = Desk::new();
    load(&desk.path("one"), "default", 1, 20_000);
    run("cp", &["-r", desk.path("one").to_str().unwrap(), desk.path("two").to_str().unwrap()]);
    load(&desk.path("two"), "default", 2, 2_000);
    let mut verbs = Verbs { desk: &desk, seen: BTreeMap::new() };
    let task = ["--job", "two", "--checkpoint"];
    verbs.say("snapshot, ack", &["snapshot", "--job", "app", "--label", "team=search", "one"]);
    verbs.say("snapshot, ack", &["snapshot", "--job", "app", "two"]);
    for _ in 0..2 {
        verbs.say("open", &["open", "--job", "two", "--expect", "a=1"]);
    }
    verbs.say("snapshot, ack", &[&["ack"], &task[..], &["chk-1", "--operator", "a", "--subtask", "0", "one"]].concat());
    verbs.say("complete", &[&["complete"], &task[..], &["chk-1"]].concat());
    verbs.say("abort", &[&["abort"], &task[..], &["chk-2"]].concat());
    verbs.say("open", &["open", "--job", "two", "--expect", "a=1"]);
    verbs.say("ls", &["ls"]);
    verbs.say("ls JOB", &["ls", "app"]);
    verbs.say("show JOB/chk-N", &["show", "app/chk-2"]);
    verbs.say("show JOB/chk-N", &["show", "app/chk-1"]);
    verbs.say("diff", &["diff", "app/chk-1", "app/chk-2"]);
    verbs.say("du", &["du"]);
    verbs.say("path", &["path", "app/latest"]);
    verbs.say("check", &["check", "--max-age", "1h"]);
    verbs.say("doctor", &["doctor"]);
    verbs.say("verify", &["verify", "--read"]);
    verbs.say("warm", &["warm", "app/chk-2"]);
    verbs.say("restore --plan", &["restore", "--plan", "app/chk-2", "planned"]);
    verbs.say("restore --copy", &["restore", "--copy", "app/chk-2", "copied"]);
    verbs.say("restore", &["restore", "app/chk-2", "cloned"]);
    verbs.say("restore --settle", &["restore", "--settle", "cloned"]);
    let other = format!("file://{}", desk.path("other").display());
    verbs.say("copy", &["copy", "app", "--to", &other]);
    verbs.say("copy", &["copy", "app", "--to", &other]);
    let flink = Path::new(env!("CARGO_MANIFEST_DIR")).join("mount-tests/fixtures/flink-trees/incr-p2/tree");
    let job = fs::read_dir(&flink).unwrap().flatten().map(|e| e.path()).find(|p| p.is_dir()).unwrap();
    let newest = fs::read_dir(&job).unwrap().flatten().map(|e| e.path());
    let newest = newest.filter(|p| p.join("_metadata").exists()).max().unwrap();
    verbs.say("import flink", &["import", "flink", newest.to_str().unwrap(), "--job", "orders"]);
    verbs.say("pin", &["pin", "app/chk-1", "--note", "audit"]);
    verbs.say("pins", &["pins"]);
    verbs.say("hide, unhide", &["hide", "app/chk-1"]);
    verbs.say("hide, unhide", &["unhide", "app/chk-1"]);
    verbs.say("expire", &["expire", "app/chk-1"]);
    verbs.say("gc", &["gc"]);
    verbs.say("unpin", &["unpin", "app/chk-1"]);
    verbs.say("gc", &["gc"]);
    verbs.say("gc", &["gc", "--delete"]);
    // Damage: a blob that is missing.
    let blob = crate::tool::walk(&desk.path("store/blobs")).pop().unwrap();
    fs::remove_file(blob).unwrap();
    verbs.say("verify", &["verify"]);

    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/JSON.md")).unwrap();
    let explained = explained(&text);
    let nothing = BTreeSet::new();
    let names: BTreeSet<&String> = verbs.seen.keys().chain(explained.keys()).collect();
    let of = |all: &BTreeMap<String, BTreeSet<String>>, verb: &String| all.get(verb).unwrap_or(&nothing).clone();
    let wrong: Vec<String> =
        names.into_iter().flat_map(|v| faults(v, &of(&explained, v), &of(&verbs.seen, v))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_missing_on_either_side_is_found() {
    let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
    let doc =
        explained("## `ls`\n| field | is |\n| --- | --- |\n| `[].job`, `[].latest.number` | x |\n| `labels.*` | y |\n");
    let ls = &doc["ls"];
    assert_eq!(ls, &set(&["[].job", "[].latest.number", "labels.*"]));
    assert_eq!(faults("ls", ls, &set(&["[].job", "[].latest.number", "labels.team"])), Vec::<String>::new());
    // What is null or empty in one row, and there in another.
    assert_eq!(faults("ls", ls, &set(&["[].job", "[].latest", "[].latest.number", "labels.a"])), Vec::<String>::new());
    assert_eq!(faults("ls", ls, &set(&["[].job", "[].latest.number"])), ["ls: labels.* was not printed"]);
    assert_eq!(
        faults("ls", ls, &set(&["[].job", "[].latest.number", "labels.a", "new"])),
        ["ls: new is not explained"]
    );
}
