//! Plants the faults: one crate is generated that holds a copy of `src/lifecycle` per fault, each with its patch, beside the one search;
//! it is built once against the library and run. So the copies are the shipped code but for one place, and nothing is compiled twice.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::faults::{FAULTS, Fault};

/// Files of the explorer that do not know `lifecycle`: compiled once, for speed.
const SHARED: [&str; 11] =
    ["configs", "faults", "future", "judge", "planted", "program", "run", "script", "search", "table", "world"];
/// Modules of `lifecycle` that no actor needs.
const LEFT_OUT: [&str; 4] = ["catalog", "hide", "identity", "retention"];

/// The sources of `lifecycle` without its tests: path below it, and text.
fn sources(root: &Path) -> Vec<(String, String)> {
    fn walk(dir: &Path, base: &Path, out: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(base).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && name != "tests" {
                walk(&path, base, out);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                out.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut out = Vec::new();
    walk(&root.join("src/lifecycle"), &root.join("src/lifecycle"), &mut out);
    out.sort();
    out
}

/// The text of a file of `lifecycle` at home in copy `n`.
fn moved(text: &str, n: usize) -> String {
    let mut text = text
        .replace("crate::lifecycle::", &format!("crate::c{n}::lifecycle::"))
        .replace("pub(super)", "pub(crate)")
        .replace("crate::error::into_public!(LifecycleError);", "");
    for module in ["format", "types", "store", "limits", "error", "local", "metrics"] {
        text = text.replace(&format!("crate::{module}::"), &format!("ckptfs::{module}::"));
        text = text.replace(&format!("use crate::{module};"), &format!("use ckptfs::{module};"));
    }
    text
}

/// The module of `lifecycle` that a file belongs to.
fn module(file: &str) -> &str {
    file.split('/').next().unwrap_or(file).trim_end_matches(".rs")
}

/// The modules that a copy has of its own: the patched ones, and those that use them. The others are the first copy's.
fn own<'a>(fault: &Fault, files: &'a [(String, String)], all: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
    if fault.edits.is_empty() {
        return all.clone();
    }
    let mut own: BTreeSet<&str> = fault.edits.iter().map(|e| module(e.file)).collect();
    loop {
        let uses = |text: &str| {
            own.iter().any(|m| {
                [format!("super::{m}"), format!("lifecycle::{m}")].iter().any(|path| text.contains(path.as_str()))
            })
        };
        let more: Vec<&str> = files
            .iter()
            .filter(|(name, text)| all.contains(module(name)) && !own.contains(module(name)) && uses(text))
            .map(|(name, _)| module(name))
            .collect();
        if more.is_empty() {
            return all.iter().copied().filter(|m| own.contains(m)).collect();
        }
        own.extend(more);
    }
}

/// A copy's text with its patch. What stands there not at all or more than once is told in `misfits`.
fn patched(fault: &Fault, files: &[(String, String)], misfits: &mut Vec<String>) -> Vec<(String, String)> {
    let mut files = files.to_vec();
    for edit in fault.edits {
        let Some((_, text)) = files.iter_mut().find(|(name, _)| name == edit.file) else {
            misfits.push(format!("{}: there is no {}", fault.name, edit.file));
            continue;
        };
        let times = text.matches(edit.old).count();
        if times != 1 {
            misfits.push(format!("{}: this stands {times} times in {}:\n{}", fault.name, edit.file, edit.old));
        }
        *text = text.replacen(edit.old, edit.new, 1);
    }
    files
}

/// Writes a file if it is another one, so that cargo builds only what changed.
fn store(path: &Path, text: &str) {
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Generates the crates and builds them; returns the program.
pub fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted");
    let files = sources(root);
    let all: BTreeSet<&str> =
        files.iter().map(|(n, _)| module(n)).filter(|m| *m != "mod" && !LEFT_OUT.contains(m)).collect();
    let actor = std::fs::read_to_string(root.join("mount-tests/explorer/actor.rs")).unwrap();
    let mut main = "#![allow(warnings)]\n".to_owned();
    let mut cast = String::new();
    let mut misfits = Vec::new();
    for (n, fault) in FAULTS.iter().enumerate() {
        writeln!(main, "mod c{n} {{ pub mod lifecycle; pub mod actor; }}").unwrap();
        writeln!(cast, "        {n} => Box::new(c{n}::actor::Actor::new(role)),").unwrap();
        let home = place.join(format!("src/c{n}"));
        let own = own(fault, &files, &all);
        let mut modules = String::new();
        for module in &all {
            if own.contains(module) {
                writeln!(modules, "pub mod {module};").unwrap();
            } else {
                writeln!(modules, "pub use crate::c0::lifecycle::{module};").unwrap();
            }
        }
        store(&home.join("lifecycle/mod.rs"), &modules);
        for (name, text) in patched(fault, &files, &mut misfits) {
            if own.contains(module(&name)) {
                store(&home.join("lifecycle").join(&name), &moved(&text, n));
            }
        }
        let actor = actor.replace("ckptfs::lifecycle::", "super::lifecycle::");
        store(&home.join("actor.rs"), &actor.replace("crate::", "search::"));
    }
    assert!(misfits.is_empty(), "{}", misfits.join("\n"));
    writeln!(
        main,
        "fn cast(copy: usize, role: search::script::Role) -> Box<dyn search::program::Program> {{
    match copy {{
{cast}        _ => unreachable!(),
    }}
}}
fn main() {{
    search::planted::main(cast);
}}"
    )
    .unwrap();
    store(&place.join("src/main.rs"), &main);
    let mut shared = "#![allow(warnings)]\n".to_owned();
    for name in SHARED {
        let here = root.join("mount-tests/explorer");
        let path = Some(here.join(format!("{name}.rs"))).filter(|p| p.exists());
        let path = path.unwrap_or_else(|| here.join(name).join("mod.rs"));
        writeln!(shared, "#[path = {:?}]\npub mod {name};", path.to_str().unwrap()).unwrap();
    }
    store(&place.join("src/search.rs"), &shared);
    let libraries = libraries(root);
    let search = place.join("libsearch.rlib");
    rustc(&place, "search", &["--crate-type", "rlib", "-C", "opt-level=3"], &libraries, &search);
    let mut with_search = libraries;
    with_search.push(("search".to_owned(), search.to_str().unwrap().to_owned()));
    let program = place.join("planted");
    // Most of the time would go into making this fast, and it is run for seconds.
    rustc(&place, "main", &["-C", "opt-level=0", "-C", "debuginfo=0"], &with_search, &program);
    program
}

fn rustc(place: &Path, source: &str, how: &[&str], libraries: &[(String, String)], out: &Path) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.arg(place.join(format!("src/{source}.rs"))).args(["--crate-name", source, "--edition", "2024"]).args(how);
    rustc.args(["--cap-lints", "allow", "-C", "codegen-units=16", "-C", "overflow-checks=yes"]);
    rustc.arg("-C").arg(format!("incremental={}", place.join("incremental").display()));
    rustc.arg("-L").arg(format!("dependency={}", target.join("release/deps").display()));
    for (name, file) in libraries {
        rustc.arg("--extern").arg(format!("{name}={file}"));
    }
    let built = rustc.arg("-o").arg(out).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// The libraries that this very test is built with: cargo says where they lie. (A crate of its own would have cargo build them again.)
fn libraries(root: &Path) -> Vec<(String, String)> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).args(["test", "--release", "--offline", "--no-run", "--test", "explorer"]);
    cargo.args(["--message-format", "json"]);
    if !cfg!(feature = "rocksdb") {
        cargo.arg("--no-default-features");
    }
    let out = cargo.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let name = message["target"]["name"].as_str().unwrap_or_default();
        let mut files = message["filenames"].as_array().into_iter().flatten().filter_map(|f| f.as_str());
        let file = files.rfind(|f| f.ends_with(".rlib"));
        if let Some(file) = file.filter(|_| ["ckptfs", "bytes", "dashmap", "log", "thiserror"].contains(&name)) {
            found.push((name.to_owned(), file.to_owned()));
        }
    }
    found
}
