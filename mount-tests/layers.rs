//! Holds the code to the house's table: who may import whom, where an outside crate has its home, where `unsafe` may stand, how
//! long a file may be. It reads the sources, tests included, as a lexer sees them: comments and strings do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Modules and their layer. A module imports from lower layers only.
const LAYERS: [(&str, u8); 18] = [
    ("main", 7),
    ("cli", 7),
    ("fuse", 6),
    ("status", 6),
    ("view", 5),
    ("engine", 5),
    ("restore", 5),
    ("flink", 5),
    ("state", 4),
    ("cache", 4),
    ("lifecycle", 3),
    ("store", 2),
    ("local", 2),
    ("format", 1),
    ("types", 0),
    ("error", 0),
    ("limits", 0),
    ("metrics", 0),
];

/// What may look sideways: the commands are the program's, a `file://` store is made of local files, ids have limits.
const SIDEWAYS: [(&str, &str); 3] = [("main", "cli"), ("store", "local"), ("types", "limits")];

/// Outside crates with one home.
const HOMES: [(&str, &[&str]); 23] = [
    ("clap", &["cli", "main"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("indicatif", &["cli"]),
    ("env_logger", &["cli", "main"]),
    ("fuser", &["fuse"]),
    ("rocksdb", &["state"]),
    ("postcard", &["state"]),
    ("bao_tree", &["cache"]),
    ("object_store", &["store"]),
    ("tokio", &["store", "status"]),
    ("hyper", &["status"]),
    ("hyper_util", &["status"]),
    ("http_body_util", &["status"]),
    ("maud", &["status"]),
    ("percent_encoding", &["status"]),
    ("prometheus_client", &["status"]),
    ("futures_util", &["store"]),
    ("url", &["store"]),
    ("libc", &["local"]),
    ("blake3", &["types"]),
    ("getrandom", &["types"]),
    ("shuttle", &["types"]),
];

/// Outside crates that may stand anywhere.
const ANYWHERE: [&str; 7] = ["bytes", "dashmap", "log", "rayon", "serde", "serde_json", "thiserror"];

/// Lines of a file without its tests.
const LONGEST: usize = 800;
/// Half of the files are shorter than this.
const MEDIAN: usize = 250;

/// A source file: its path below `src/` and its text.
struct Source {
    path: String,
    text: String,
}

/// What the lexer keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    /// `::`
    Path,
    Mark(char),
}

fn lex(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        let c = at(i);
        if c == '/' && at(i + 1) == '/' {
            while i < chars.len() && at(i) != '\n' {
                i += 1;
            }
        } else if c == '/' && at(i + 1) == '*' {
            let mut depth = 0;
            loop {
                match (at(i), at(i + 1)) {
                    ('/', '*') => (depth, i) = (depth + 1, i + 2),
                    ('*', '/') => (depth, i) = (depth - 1, i + 2),
                    _ => i += 1,
                }
                if depth == 0 || i >= chars.len() {
                    break;
                }
            }
        } else if c == '"' {
            i = after_string(&chars, i + 1);
        } else if c == '\'' {
            // 'a' and '\n' are characters, 'a alone is a lifetime.
            i = match (at(i + 1), at(i + 2)) {
                ('\\', _) => (i + 3..chars.len()).find(|&j| at(j) == '\'').map_or(chars.len(), |j| j + 1),
                (_, '\'') => i + 3,
                _ => i + 1,
            };
        } else if word(c) {
            let start = i;
            while word(at(i)) {
                i += 1;
            }
            let text: String = chars[start..i].iter().collect();
            if matches!(text.as_str(), "r" | "br" | "cr") && matches!(at(i), '"' | '#') {
                let hashes = (i..chars.len()).take_while(|&j| at(j) == '#').count();
                if at(i + hashes) == '"' {
                    let end: String = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
                    let rest: String = chars[i + hashes + 1..].iter().collect();
                    let skipped = rest.find(&end).map_or(rest.chars().count(), |b| rest[..b].chars().count());
                    i += hashes + 1 + skipped + end.len();
                    continue;
                }
                // r#word is a word.
                i += hashes;
                continue;
            }
            if matches!(text.as_str(), "b" | "c") && matches!(at(i), '"' | '\'') {
                continue;
            }
            tokens.push(Token::Word(text));
        } else if c == ':' && at(i + 1) == ':' {
            tokens.push(Token::Path);
            i += 2;
        } else {
            if !c.is_whitespace() {
                tokens.push(Token::Mark(c));
            }
            i += 1;
        }
    }
    tokens
}

fn after_string(chars: &[char], mut i: usize) -> usize {
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    i
}

/// The words of every path in a file that has more than one, or that a `use` names; groups are written out.
struct Paths {
    found: Vec<Vec<String>>,
    /// How many modules below the file's own each path stands.
    depth: Vec<usize>,
    unsafe_code: bool,
}

fn paths(tokens: &[Token]) -> Paths {
    let mut out = Paths { found: Vec::new(), depth: Vec::new(), unsafe_code: false };
    // Braces that opened an inline module.
    let mut open: Vec<bool> = Vec::new();
    let mut i = 0;
    while let Some(token) = tokens.get(i) {
        let word_at = |j: usize| match tokens.get(j) {
            Some(Token::Word(w)) => Some(w.as_str()),
            _ => None,
        };
        let depth = open.iter().filter(|m| **m).count();
        match token {
            Token::Mark('{') => {
                let module = i >= 2 && word_at(i - 2) == Some("mod") && word_at(i - 1).is_some();
                open.push(module);
            }
            Token::Mark('}') => drop(open.pop()),
            Token::Word(w) if w == "unsafe" => out.unsafe_code = true,
            Token::Word(w) if w == "use" && tokens.get(i + 1) != Some(&Token::Mark('<')) => {
                let mut next = i + 1;
                let mut flat = Vec::new();
                use_tree(tokens, &mut next, &[], &mut flat);
                for path in flat {
                    out.found.push(path);
                    out.depth.push(depth);
                }
                i = next;
                continue;
            }
            Token::Word(_) if begins_path(tokens, i) => {
                let mut path = Vec::new();
                let mut j = i;
                while let Some(w) = word_at(j) {
                    path.push(w.to_owned());
                    if tokens.get(j + 1) != Some(&Token::Path) {
                        break;
                    }
                    j += 2;
                }
                if path.len() > 1 || tokens.get(i + 1) == Some(&Token::Path) {
                    out.found.push(path);
                    out.depth.push(depth);
                }
            }
            _ => {}
        }
        i += 1;
    }
    out
}

/// `a` of `a::b` and of `::a::b`, not `b`.
fn begins_path(tokens: &[Token], i: usize) -> bool {
    let before = |n: usize| i.checked_sub(n).and_then(|j| tokens.get(j));
    before(1) != Some(&Token::Path) || !matches!(before(2), Some(Token::Word(_) | Token::Mark('>')))
}

/// Writes a `use` tree out; `i` ends behind it.
fn use_tree(tokens: &[Token], i: &mut usize, front: &[String], out: &mut Vec<Vec<String>>) {
    let mut path = front.to_vec();
    loop {
        match tokens.get(*i) {
            Some(Token::Word(w)) if w == "as" => *i += 2,
            Some(Token::Word(w)) => {
                path.push(w.clone());
                *i += 1;
            }
            Some(Token::Path | Token::Mark('*')) => *i += 1,
            Some(Token::Mark('{')) => {
                *i += 1;
                while !matches!(tokens.get(*i), Some(Token::Mark('}')) | None) {
                    use_tree(tokens, i, &path, out);
                    if tokens.get(*i) == Some(&Token::Mark(',')) {
                        *i += 1;
                    }
                }
                *i += 1;
                return;
            }
            _ => {
                out.push(path);
                return;
            }
        }
    }
}

/// Where a file stands: `cache/tree.rs` is `[cache, tree]`, `cache/mod.rs` is `[cache]`.
fn module_of(path: &str) -> Vec<String> {
    let mut parts: Vec<String> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.len() > 1 && parts.last().is_some_and(|p| p == "mod") {
        parts.pop();
    }
    if parts == ["lib"] { Vec::new() } else { parts }
}

/// The top module that a path leads to, if it leads to one of ours.
fn target<'a>(path: &'a [String], own: &'a [String], depth: usize) -> Option<&'a str> {
    let first = path.first()?.as_str();
    if first == "crate" || first == "ckptfs" {
        return path.get(1).map(String::as_str);
    }
    let mut below = path.iter().skip_while(|w| *w == "self");
    let supers = below.clone().take_while(|w| *w == "super").count();
    if supers == 0 || supers < depth + own.len() {
        return None;
    }
    below.nth(supers).map(String::as_str)
}

fn layer(module: &str) -> Option<u8> {
    LAYERS.iter().find(|(m, _)| *m == module).map(|(_, l)| *l)
}

fn lines_without_tests(text: &str) -> usize {
    text.lines().take_while(|l| !l.starts_with("#[cfg(test)]")).count()
}

/// Everything that breaks the rules, in words.
fn violations(sources: &[Source]) -> Vec<String> {
    let mut out = Vec::new();
    let mut say = |path: &str, what: String| out.push(format!("src/{path}: {what}"));
    for Source { path, text } in sources {
        let own = module_of(path);
        if !text.starts_with("//!") {
            say(path, "does not open with what it is for (//!)".to_owned());
        }
        let lines = lines_without_tests(text);
        if lines > LONGEST && !path.ends_with("tests.rs") {
            say(path, format!("has {lines} lines without its tests, at most {LONGEST} may be"));
        }
        // The crate's root names all its modules and imports nothing.
        let top = own.first().map_or("lib", String::as_str);
        let own_layer = match layer(top) {
            None if top != "lib" => {
                say(path, format!("module {top} has no layer"));
                continue;
            }
            l => l,
        };
        let seen = paths(&lex(text));
        if seen.unsafe_code && top != "local" {
            say(path, "has unsafe code, whose only home is local/".to_owned());
        }
        // `use bao_tree::blake3` makes a later `blake3::hash` another crate's word.
        let local: BTreeSet<&String> = seen.found.iter().filter(|p| p.len() > 1).filter_map(|p| p.last()).collect();
        let mut targets = BTreeSet::new();
        let mut crates = BTreeSet::new();
        for (words, depth) in seen.found.iter().zip(&seen.depth) {
            if let Some(to) = target(words, &own, *depth).filter(|to| layer(to).is_some()) {
                targets.insert(to.to_owned());
            } else if let Some(first) = words.first().filter(|first| !local.contains(first)) {
                crates.insert(first.clone());
            }
        }
        for to in targets.iter().filter(|to| *to != top) {
            let fits = match (own_layer, layer(to)) {
                (Some(own), Some(other)) => other < own || SIDEWAYS.contains(&(top, to.as_str())),
                _ => true,
            };
            if !fits {
                say(path, format!("imports from {to}, which is not below {top}"));
            }
        }
        for (name, homes) in HOMES.iter().filter(|(name, _)| crates.contains(*name)) {
            if !homes.contains(&top) {
                say(path, format!("uses the crate {name}, whose home is {}", homes.join(" and ")));
            }
        }
    }
    out
}

/// Names of `[dependencies]`, as code spells them.
fn dependencies(manifest: &str) -> Vec<String> {
    let section = manifest.split("\n[dependencies]\n").nth(1).expect("a section [dependencies]");
    let lines = section.lines().take_while(|l| !l.starts_with('['));
    lines.filter_map(|l| Some(l.split_once('=')?.0.trim().replace('-', "_"))).collect()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    fn walk(dir: &Path, base: &Path, out: &mut Vec<Source>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, base, out);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                out.push(Source { path: path.strip_prefix(base).unwrap().to_str().unwrap().to_owned(), text });
            }
        }
    }
    let mut out = Vec::new();
    walk(&root().join("src"), &root().join("src"), &mut out);
    out
}

#[test]
fn the_code_keeps_to_the_table() {
    let found = violations(&sources());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn files_are_short() {
    let mut lines: Vec<usize> = sources().iter().map(|s| lines_without_tests(&s.text)).collect();
    lines.sort_unstable();
    assert!(lines.len() > 30, "only {} files were read", lines.len());
    let median = lines[lines.len() / 2];
    assert!(median < MEDIAN, "half of the files have {median} lines or more");
}

#[test]
fn every_dependency_has_a_home() {
    let known: BTreeMap<&str, ()> = HOMES.iter().map(|(n, _)| *n).chain(ANYWHERE).map(|n| (n, ())).collect();
    let all = dependencies(&std::fs::read_to_string(root().join("Cargo.toml")).unwrap());
    assert!(all.len() > 10);
    for name in all {
        assert!(
            known.contains_key(name.as_str()),
            "{name} is a dependency without a home: add it to HOMES or ANYWHERE"
        );
    }
}

/// A target of fuzzing takes in the command line's source; it is built so seldom that a crate that it lacks would not be noticed.
#[test]
fn fuzzing_has_the_crates_of_the_command_line() {
    let of = |manifest: &str| dependencies(&std::fs::read_to_string(root().join(manifest)).unwrap());
    let (ours, fuzzing) = (of("Cargo.toml"), of("fuzz/Cargo.toml"));
    // The demo needs RocksDB, which fuzzing does without.
    let line: Vec<Source> = sources().into_iter().filter(|s| s.path.starts_with("cli/")).collect();
    let line: Vec<Source> = line.into_iter().filter(|s| !s.path.starts_with("cli/demo")).collect();
    let used = |krate: &String| line.iter().any(|s| s.text.contains(&format!("{krate}::")));
    let used: Vec<&String> = ours.iter().filter(|krate| used(krate)).collect();
    assert!(used.len() >= 5, "{used:?}");
    let lacking: Vec<_> = used.into_iter().filter(|krate| !fuzzing.contains(krate)).collect();
    assert!(lacking.is_empty(), "fuzz/Cargo.toml lacks {lacking:?}");
}

fn check(path: &str, text: &str) -> Vec<String> {
    violations(&[Source { path: path.to_owned(), text: format!("//! Test.\n{text}") }])
}

#[test]
fn planted_violations_are_found() {
    let bad = [
        ("store/mod.rs", "use crate::lifecycle::Catalog;", "imports from lifecycle"),
        ("store/a/b.rs", "use crate::{types::Key, cache::{Cache, tree}};", "imports from cache"),
        ("view/mod.rs", "use crate::engine;", "imports from engine"),
        ("view/mod.rs", "fn f() { crate::restore::copy() }", "imports from restore"),
        ("view/mod.rs", "use super::fuse::X;", "imports from fuse"),
        ("view/a.rs", "use super::super::fuse::X;", "imports from fuse"),
        ("view/a.rs", "mod tests { use super::super::super::fuse::X; }", "imports from fuse"),
        ("view/a.rs", "pub use self::super::super::fuse::X;", "imports from fuse"),
        ("local/mod.rs", "use crate::store::X;", "imports from store"),
        ("local/mod.rs", "use ckptfs::store::X;", "imports from store"),
        ("types/mod.rs", "use crate::error::Kind;", "imports from error"),
        ("cache/mod.rs", "macro_rules! m { () => { $crate::view::X } }", "imports from view"),
        ("format/mod.rs", "// crate::view\n/* use crate::fuse; */ use crate::cache;", "imports from cache"),
        ("cache/mod.rs", "fn f() -> libc::c_int { 0 }", "uses the crate libc"),
        ("cache/mod.rs", "use rocksdb::{DB, Options};", "uses the crate rocksdb"),
        ("cli/demo.rs", "use rocksdb as r;", "uses the crate rocksdb"),
        ("cli/demo.rs", "use {rocksdb::DB, std::fs};", "uses the crate rocksdb"),
        ("engine/mod.rs", "fn f() { let _ = ::tokio::spawn(x); }", "uses the crate tokio"),
        ("store/mod.rs", "fn f(h: blake3::Hasher) {}", "uses the crate blake3"),
        ("fuse/mod.rs", "fn f() { unsafe { g() } }", "has unsafe code"),
        ("other/mod.rs", "", "has no layer"),
    ];
    for (path, text, says) in bad {
        let found = check(path, text);
        assert!(found.len() == 1 && found[0].contains(says), "{path}: {text}: {found:?}");
    }
    let long = "fn f() {}\n".repeat(LONGEST);
    assert!(check("types/mod.rs", &long)[0].contains("801 lines"));
    assert!(violations(&[Source { path: "types/mod.rs".into(), text: "/// Not it.\n".into() }])[0].contains("//!"));
}

#[test]
fn what_is_allowed_is_not_blamed() {
    let good = [
        ("lib.rs", "pub mod fuse; pub mod types; use crate::fuse::X;"),
        ("main.rs", "use ckptfs::cli; fn main() { clap::Parser::parse(); }"),
        ("cli/mod.rs", "use crate::fuse::serve; use indicatif::ProgressBar; use crate::cli::table::Table;"),
        ("store/file.rs", "use crate::local::Dir; use object_store::X; use super::error::E;"),
        ("types/key.rs", "use super::{digest::Digest, number}; use crate::limits;"),
        ("view/a.rs", "mod tests { use super::super::tree::X; use super::fuse::Y; }"),
        ("view/a.rs", "use super::fuse::Y;"),
        ("cache/tree.rs", "use bao_tree::blake3::Hasher; fn f<'a>(x: &'a str) { x.log(); }"),
        ("format/a.rs", "const S: &str = \"crate::fuse::X unsafe\"; const R: &str = r#\"libc::x \"unsafe\" \"#;"),
        (
            "format/a.rs",
            "const C: [char; 3] = ['\"', '\\'', 'x']; // libc::x unsafe\nconst B: &[u8] = b\"\\\"libc::x\";",
        ),
        ("cache/tree.rs", "use bao_tree::{BaoTree, blake3}; fn f(h: blake3::Hash) {}"),
        ("local/sys.rs", "fn f() { unsafe { libc::close(0) }; }"),
        ("engine/mod.rs", "fn f() -> impl Fn() + use<'_> { crate::cache::g }"),
    ];
    for (path, text) in good {
        assert_eq!(check(path, text), Vec::<String>::new(), "{path}: {text}");
    }
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "fn f() {}\n".repeat(LONGEST));
    assert_eq!(check("types/mod.rs", &tests), Vec::<String>::new());
}

#[test]
fn dependencies_are_read_from_the_manifest() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\nbao-tree = { version = \"1\" }\nlog = \"1\"\n\n[dev-dependencies]\ny = \"1\"\n";
    assert_eq!(dependencies(manifest), ["bao_tree", "log"]);
}
