//! The copy of the sources with the switches in it, and its build.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::list::Mutant;
use crate::weave::weave;

/// What a build of all mutants at once came to.
pub struct Built {
    pub unviable: BTreeSet<u32>,
    /// Those that no switch can turn on; each takes a build of its own.
    pub alone: BTreeSet<u32>,
    /// The programs, by the name of the target.
    pub programs: BTreeMap<String, PathBuf>,
}

/// Copies what git knows of `root` to `tree`; what is the same already is left alone, so that little is built again.
pub fn copy(root: &Path, tree: &Path) {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .expect("git");
    for name in String::from_utf8(listed.stdout).expect("names in UTF-8").split('\0').filter(|name| !name.is_empty()) {
        if let Ok(bytes) = std::fs::read(root.join(name)) {
            put(&tree.join(name), &bytes);
        }
    }
}

/// Writes a file unless it says this already.
pub fn put(path: &Path, bytes: &[u8]) {
    if std::fs::read(path).is_ok_and(|there| there == bytes) {
        return;
    }
    std::fs::create_dir_all(path.parent().expect("a file in a directory")).expect("a directory");
    std::fs::write(path, bytes).expect("a file of the tree");
}

/// Weaves and builds until only mutants are left that compile.
/// What an earlier build found is in `known`.
pub fn build(root: &Path, tree: &Path, known: &Path, mutants: &[Mutant], tests: &[String]) -> Built {
    let mut built = Built { unviable: BTreeSet::new(), alone: BTreeSet::new(), programs: BTreeMap::new() };
    let text = std::fs::read_to_string(known).unwrap_or_default();
    for (what, name) in text.lines().filter_map(|line| line.split_once('\t')) {
        let set = if what == "alone" { &mut built.alone } else { &mut built.unviable };
        set.extend(mutants.iter().filter(|mutant| mutant.name == name).map(|mutant| mutant.number));
    }
    copy(root, tree);
    put(&tree.join("src/mutant.rs"), include_bytes!("switch.rs.txt"));
    let library = std::fs::read_to_string(root.join("src/lib.rs")).expect("the library");
    put(&tree.join("src/lib.rs"), format!("{library}#[allow(missing_docs)]\npub mod mutant;\n").as_bytes());
    for mutant in mutants.iter().filter(|mutant| mutant.genre == "FnValue" && mutant.returns.contains("impl ")) {
        built.alone.insert(mutant.number);
    }
    for round in 1.. {
        let marks = weave_all(root, tree, mutants, &mut built);
        let (ok, messages) = cargo(tree, tests, &mut built.programs);
        let mut blamed = 0;
        for message in messages.iter().filter(|message| message["level"] == "error") {
            blamed += usize::from(blame(message, &marks, &mut built));
        }
        let (unviable, alone) = (built.unviable.len(), built.alone.len());
        eprintln!("build {round}: {} errors; {unviable} unviable, {alone} alone", messages.len());
        let name = |number: &u32| &mutants[*number as usize - 1].name;
        let lines = built.unviable.iter().map(|number| format!("unviable\t{}\n", name(number)));
        let lines = lines.chain(built.alone.iter().map(|number| format!("alone\t{}\n", name(number))));
        std::fs::write(known, lines.collect::<String>()).expect("what does not compile");
        if ok {
            break;
        }
        if blamed == 0 {
            for message in &messages {
                eprintln!("{}", message["rendered"].as_str().unwrap_or_default());
            }
            panic!("the tree does not build, and no mutant is to blame");
        }
    }
    built
}

type Marks = BTreeMap<String, Vec<(Range<usize>, u32)>>;

fn weave_all(root: &Path, tree: &Path, mutants: &[Mutant], built: &mut Built) -> Marks {
    let mut marks = BTreeMap::new();
    let files: BTreeSet<_> = mutants.iter().map(|mutant| &mutant.file).collect();
    for file in files {
        let left: Vec<_> = mutants
            .iter()
            .filter(|m| m.file == *file && !built.unviable.contains(&m.number) && !built.alone.contains(&m.number))
            .collect();
        let source = std::fs::read_to_string(root.join(file)).expect("a listed file");
        let woven = weave(&source, &left);
        put(&tree.join(file), woven.text.as_bytes());
        built.unviable.extend(&woven.unviable);
        built.alone.extend(&woven.unknown);
        marks.insert(file.clone(), woven.marks);
    }
    marks
}

/// Builds the tests; the compiler's messages, and whether it went well.
fn cargo(tree: &Path, tests: &[String], programs: &mut BTreeMap<String, PathBuf>) -> (bool, Vec<Value>) {
    let output = Command::new("cargo")
        .args(["test", "--release", "--locked", "--no-default-features", "--no-run", "--message-format=json"])
        .args(["--config", "profile.release.package.ckptfs.opt-level=0", "--lib"])
        .args(tests.iter().flat_map(|test| ["--test", test]))
        .current_dir(tree)
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo");
    let mut messages = Vec::new();
    for line in output.stdout.split(|byte| *byte == b'\n') {
        let Ok(value) = serde_json::from_slice::<Value>(line) else { continue };
        if value["reason"] == "compiler-message" && value["message"]["level"] == "error" {
            messages.push(value["message"].clone());
        } else if let (Some(path), true) = (value["executable"].as_str(), value["profile"]["test"] == true) {
            let name = value["target"]["name"].as_str().unwrap_or_default();
            programs.insert(name.to_owned(), path.into());
        }
    }
    (output.status.success(), messages)
}

/// Takes out the mutant that an error is in: the innermost at its place.
fn blame(message: &Value, marks: &Marks, built: &mut Built) -> bool {
    let code = message["code"]["code"].as_str().unwrap_or_default();
    let mut found = false;
    for span in message["spans"].as_array().into_iter().flatten().filter(|span| span["is_primary"] == true) {
        let byte = |field: &str| usize::try_from(span[field].as_u64().unwrap_or(0)).unwrap_or(0);
        let (start, end) = (byte("byte_start"), byte("byte_end"));
        let Some(marks) = span["file_name"].as_str().and_then(|name| marks.get(name)) else { continue };
        // Both forms of a place may hold the words that are wrong: who only encloses them is not to blame for more than itself.
        let around = marks.iter().filter(|(range, _)| range.start <= start && end <= range.end);
        let Some((innermost, _)) = around.clone().min_by_key(|(range, _)| range.len()) else { continue };
        for (_, number) in marks.iter().filter(|(range, _)| range == innermost) {
            found = true;
            // A switch cannot stand in a constant; the mutant can.
            if code == "E0015" {
                built.alone.insert(*number)
            } else {
                built.unviable.insert(*number)
            };
        }
    }
    if !found {
        eprintln!("{}", message["rendered"].as_str().unwrap_or_default());
    }
    found
}
