//! Plants the faults: one crate is generated that holds a copy of `src/lifecycle` per fault, each with its patch, beside the one search;
//! it is built once against the library and run. So the copies are the shipped code but for one place, and nothing is compiled twice.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::faults::{FAULTS, Fault};

/// Files of the explorer that the crate uses as they are.
const SHARED: [&str; 9] = ["configs", "faults", "judge", "program", "run", "script", "search", "table", "world"];
/// Modules of `lifecycle` that no machine needs.
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
fn moved(name: &str, text: &str, n: usize) -> String {
    let mut text = text
        .replace("crate::lifecycle::", &format!("crate::copies::c{n}::lifecycle::"))
        .replace("crate::error::into_public!(LifecycleError);", "");
    for module in ["format", "types", "store", "limits", "error", "local", "metrics"] {
        text = text.replace(&format!("crate::{module}::"), &format!("ckptfs::{module}::"));
        text = text.replace(&format!("use crate::{module};"), &format!("use ckptfs::{module};"));
    }
    if name == "mod.rs" {
        let keeps = |line: &&str| {
            let line = line.trim();
            !line.starts_with("pub use") && !LEFT_OUT.iter().any(|m| line == format!("pub mod {m};"))
        };
        text = text.lines().filter(keeps).collect::<Vec<_>>().join("\n");
    }
    text
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

/// Generates the crate and builds it; returns the program.
pub fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let place = target.join("tmp/planted");
    let files = sources(root);
    let actor = std::fs::read_to_string(root.join("mount-tests/explorer/actor.rs")).unwrap();
    let mut copies = String::new();
    let mut misfits = Vec::new();
    for (n, fault) in FAULTS.iter().enumerate() {
        writeln!(copies, "pub mod c{n} {{ pub mod lifecycle; pub mod actor; }}").unwrap();
        let home = place.join(format!("src/copies/c{n}"));
        for (name, text) in patched(fault, &files, &mut misfits) {
            if !LEFT_OUT.iter().any(|m| name == format!("{m}.rs")) {
                store(&home.join("lifecycle").join(&name), &moved(&name, &text, n));
            }
        }
        store(&home.join("actor.rs"), &actor.replace("ckptfs::lifecycle::", "super::lifecycle::"));
    }
    assert!(misfits.is_empty(), "{}", misfits.join("\n"));
    store(&place.join("src/copies/mod.rs"), &copies);
    let mut main = "#![allow(warnings)]\nmod copies;\n".to_owned();
    for name in SHARED {
        let path = root.join(format!("mount-tests/explorer/{name}.rs"));
        writeln!(main, "#[path = {:?}]\nmod {name};", path.to_str().unwrap()).unwrap();
    }
    main += "fn cast(copy: usize, role: script::Role) -> Box<dyn program::Program> {\n    match copy {\n";
    for n in 0..FAULTS.len() {
        writeln!(main, "        {n} => Box::new(copies::c{n}::actor::Actor::new(role)),").unwrap();
    }
    main += "        _ => unreachable!(),\n    }\n}\nfn main() {\n    faults::main(cast);\n}\n";
    store(&place.join("src/main.rs"), &main);
    let program = place.join("planted");
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.arg(place.join("src/main.rs")).args(["--edition", "2024", "--crate-name", "planted", "--cap-lints", "allow"]);
    // Compiled once and run for seconds.
    rustc.args(["-C", "opt-level=1", "-C", "codegen-units=16", "-C", "overflow-checks=yes"]);
    rustc.arg("-C").arg(format!("incremental={}", place.join("incremental").display()));
    rustc.arg("-L").arg(format!("dependency={}", target.join("release/deps").display()));
    for (name, file) in libraries(root) {
        rustc.arg("--extern").arg(format!("{name}={file}"));
    }
    let built = rustc.arg("-o").arg(&program).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
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
        let file = message["filenames"].as_array().into_iter().flatten().filter_map(|f| f.as_str());
        let file = file.filter(|f| f.ends_with(".rlib")).next_back();
        if let Some(file) = file.filter(|_| ["ckptfs", "bytes", "dashmap", "log", "thiserror"].contains(&name)) {
            found.push((name.to_owned(), file.to_owned()));
        }
    }
    found
}
