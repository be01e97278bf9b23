//! Whether what a document names is there: commands and flags are asked of the program, the rest of the sources.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::documents::read::{Document, sentences, shell};
use crate::tool::{PROGRAM, walk};

/// The top directories that a path in a text may begin with.
const TOPS: [&str; 8] = ["src", "scripts", "docs", "mount-tests", "packaging", "benches", "fuzz", "examples"];
/// Flags that stand alone in a text and are other programs'.
const OTHERS: [&str; 2] = ["--try_load_options", "--ignore_unknown_options"];
/// Verbs that are built with the feature `rocksdb` alone, and flags that only they have.
const WITH_ROCKSDB: [&str; 2] = ["demo", "state"];
const FLAGS_WITH_ROCKSDB: [&str; 4] = ["--key", "--limit", "--subtask", "--subtasks"];
/// Names in code that are other people's.
const FOREIGN_NAMES: [&str; 2] = ["Checkpoint::create_checkpoint", "rocksdb::DB"];

/// What a verb takes.
#[derive(Debug)]
struct Help {
    /// Flags, and whether a value follows.
    flags: BTreeMap<String, bool>,
    verbs: BTreeSet<String>,
}

impl Help {
    fn read(text: &str) -> Self {
        let (mut flags, mut verbs) = (BTreeMap::new(), BTreeSet::new());
        let mut of_verbs = false;
        for line in text.lines() {
            let told = line.trim_start();
            match line.len() - told.len() {
                0 => of_verbs = told == "Commands:",
                2 if of_verbs => drop(told.split(' ').next().map(|v| verbs.insert(v.to_owned()))),
                // Deeper lines are what is said of a flag.
                2..=6 if told.starts_with('-') => {
                    let names = told.split("  ").next().unwrap_or_default();
                    let value = names.contains('<');
                    for name in names.split([',', ' ']).filter(|w| w.starts_with('-')) {
                        flags.insert(name.trim_end_matches("...").to_owned(), value);
                    }
                }
                _ => {}
            }
        }
        Self { flags, verbs }
    }
}

/// All that documents may name.
pub struct World {
    root: PathBuf,
    helps: RefCell<BTreeMap<Vec<String>, Option<&'static Help>>>,
    /// All files, from the top of the sources.
    files: Vec<String>,
    /// Every word of sources and scripts.
    words: BTreeSet<String>,
    functions: BTreeSet<String>,
    metrics: BTreeSet<String>,
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_word(c)).filter(|w| !w.is_empty())
}

impl World {
    pub fn new() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).to_owned();
        let mut paths: Vec<PathBuf> =
            TOPS.iter().map(|top| root.join(top)).filter(|top| top.exists()).flat_map(|top| walk(&top)).collect();
        let tops = std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().path());
        paths.extend(tops.filter(|p| p.is_file()));
        let (mut all, mut functions, mut files) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for path in paths {
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            // A document is not its own witness, nor are the faults that are planted below.
            let witness = !name.starts_with("docs/") && !name.ends_with(".md") && !name.contains("documents");
            if let Some(text) = std::fs::read_to_string(&path).ok().filter(|_| witness) {
                if name.starts_with("packaging") {
                    all.extend(text.split('$').skip(1).filter_map(|rest| words(rest).next()).map(str::to_owned));
                } else {
                    all.extend(words(&text).map(str::to_owned));
                }
                functions.extend(text.split("fn ").skip(1).filter_map(|rest| words(rest).next()).map(str::to_owned));
            }
            files.push(name);
        }
        let operating = std::fs::read_to_string(root.join("docs/OPERATING.md")).unwrap();
        let metrics = words(&operating).filter(|w| w.starts_with("ckptfs_")).map(str::to_owned).collect();
        let helps = RefCell::default();
        Self { root, helps, files, words: all, functions, metrics }
    }

    /// What the program says that a verb takes; nothing if there is none.
    fn help(&self, verb: &[&str]) -> Option<&'static Help> {
        let key: Vec<String> = verb.iter().map(|v| (*v).to_owned()).collect();
        *self.helps.borrow_mut().entry(key).or_insert_with(|| {
            let said = Command::new(PROGRAM).args(verb).arg("--help").output().unwrap();
            let text = String::from_utf8(said.stdout).unwrap();
            said.status.success().then(|| &*Box::leak(Box::new(Help::read(&text))))
        })
    }

    /// Every verb that help tells of.
    pub fn verbs(&self) -> Vec<&'static str> {
        let help = self.help(&[]).unwrap();
        help.verbs.iter().map(String::as_str).filter(|v| *v != "help").collect()
    }

    /// Whether any verb has a flag.
    fn has_flag(&self, flag: &str) -> bool {
        let mut all = self.verbs().into_iter().map(|v| vec![v]).chain([vec![], vec!["import", "flink"]]);
        all.any(|verb| self.help(&verb).is_some_and(|h| h.flags.contains_key(flag)))
    }

    /// What is wrong with the words behind `ckptfs`.
    fn command(&self, words: &[String]) -> Option<String> {
        let mut verb: Vec<&str> = Vec::new();
        let mut help = self.help(&[])?;
        let mut any_verb = false;
        let mut rest = words.iter();
        let mut ended = false;
        while let Some(word) = rest.next().filter(|_| !ended) {
            if word == "--" {
                break;
            }
            // No command has a comma there, and a sentence goes on behind it.
            ended = word.ends_with(',');
            if word.starts_with('-') && word.len() > 1 {
                let (flag, value) = word.split_once('=').map_or((word.as_str(), false), |(f, _)| (f, true));
                let flag = flag.trim_end_matches([',', '.', ':']);
                match help.flags.get(flag) {
                    Some(takes) => drop((*takes && !value).then(|| rest.next())),
                    None => return Some(format!("ckptfs {}: there is no {flag}", verb.join(" "))),
                }
            } else if !help.verbs.is_empty() && !any_verb {
                // VERB stands for any.
                any_verb = word.chars().all(|c| c.is_ascii_uppercase()) || word == "...";
                if any_verb {
                    continue;
                }
                verb.push(word);
                if !cfg!(feature = "rocksdb") && WITH_ROCKSDB.contains(&word.as_str()) {
                    return None;
                }
                match self.help(&verb) {
                    Some(found) => help = found,
                    None => return Some(format!("there is no command ckptfs {}", verb.join(" "))),
                }
            }
        }
        (verb.is_empty() && !any_verb && !words.iter().any(|w| w.starts_with('-')))
            .then(|| format!("ckptfs {}: no command", words.join(" ")))
    }

    /// The commands of a line: each that is ckptfs', and the flags that its comment tells of.
    fn line(&self, line: &str, out: &mut Vec<String>) {
        const BEFORE: [&str; 7] = ["exec", "sudo", "if", "then", "do", "!", "while"];
        let (commands, comment) = shell(line);
        let mut first: Option<Vec<String>> = None;
        let mut ours = false;
        for (n, words) in commands.iter().enumerate() {
            let program = |w: &String| w == "ckptfs" || w.ends_with("/bin/ckptfs") || w.ends_with("/release/ckptfs");
            let Some(at) = words.iter().position(program) else { continue };
            let begins = words[..at].iter().all(|w| BEFORE.contains(&w.as_str()) || w.contains('='));
            let next = words.get(at + 1).map(String::as_str).unwrap_or_default();
            if begins || next.starts_with("--") || self.help(&[next]).is_some() {
                out.extend(self.command(&words[at + 1..]));
                ours |= n == 0 && begins;
                first.get_or_insert_with(|| {
                    words[at + 1..].iter().take_while(|w| !w.starts_with('-')).cloned().collect()
                });
            }
        }
        for said in sentences(&comment) {
            if let Some(at) = said.iter().position(|w| w == "ckptfs").filter(|at| at + 1 < said.len()) {
                let verb = said[at + 1].as_str();
                if self.help(&[verb]).is_some() {
                    out.extend(self.command(&said[at + 1..]));
                }
            } else if let Some(verb) = first.as_ref().filter(|_| ours) {
                for flag in said.into_iter().filter(|w| w.starts_with("--") && w.len() > 2) {
                    out.extend(self.command(&[verb.clone(), vec![flag]].concat()));
                }
            } else {
                out.extend(said.into_iter().filter_map(|w| self.lone_flag(&w)));
            }
        }
    }

    /// A flag that stands alone is some verb's, or another program's.
    fn lone_flag(&self, word: &str) -> Option<String> {
        let flag = word.split('=').next().filter(|f| f.starts_with("--") && f.len() > 2)?;
        let elsewhere = !cfg!(feature = "rocksdb") && FLAGS_WITH_ROCKSDB.contains(&flag);
        (!OTHERS.contains(&flag) && !elsewhere && !self.has_flag(flag)).then(|| format!("no command has {flag}"))
    }

    fn span(&self, span: &str, out: &mut Vec<String>) {
        self.scripts(span, out);
        let first = span.split([' ', '\n']).next().unwrap_or_default();
        let flags = span.split_whitespace().any(|w| w.starts_with("--"));
        if first.starts_with("--") {
            out.extend(span.split_whitespace().filter_map(|w| self.lone_flag(w)));
        } else if flags && (self.verbs().contains(&first) || WITH_ROCKSDB.contains(&first)) {
            self.line(&format!("ckptfs {span}"), out);
        } else if span != "ckptfs" {
            self.line(span, out);
        }
        let path = span.chars().all(|c| is_word(c) || "./-@".contains(c));
        if path && [".rs", ".sh", ".md", ".yml"].iter().any(|end| span.ends_with(end)) {
            let end = format!("/{}", span.trim_start_matches("../"));
            if !self.files.iter().any(|f| format!("/{f}").ends_with(&end)) {
                out.push(format!("there is no file {span}"));
            }
        }
        let name = !span.is_empty() && span.chars().all(|c| is_word(c) || c == ':');
        if name && span.contains("::") && !FOREIGN_NAMES.contains(&span) {
            let known = |w: &str| self.words.contains(w) || self.files.iter().any(|f| f.contains(&format!("/{w}.rs")));
            out.extend(words(span).filter(|w| !known(w)).map(|w| format!("{span}: there is no {w}")));
        }
        let last = span.rsplit("::").next().unwrap_or_default();
        let test =
            last.matches('_').count() > 2 && last.chars().all(|c| c.is_ascii_lowercase() || "_0123456789".contains(c));
        if name && test && !["_", "ckptfs_"].iter().any(|p| last.starts_with(p)) && !self.functions.contains(last) {
            out.push(format!("there is no test {span}"));
        }
    }

    /// Paths from the top of the sources that stand anywhere in a text.
    fn paths(&self, text: &str, out: &mut Vec<String>) {
        for top in TOPS {
            for (at, _) in text.match_indices(&format!("{top}/")) {
                if text[..at].chars().next_back().is_some_and(|c| is_word(c) || "/.-%".contains(c)) {
                    continue;
                }
                let path: String = text[at..].chars().take_while(|c| is_word(*c) || "/.-@".contains(*c)).collect();
                let path = path.trim_end_matches(['.', '-']);
                if !self.root.join(path).exists() {
                    out.push(format!("there is no {path}"));
                }
            }
        }
    }

    fn links(&self, document: &Document, out: &mut Vec<String>) {
        let directory = self.root.join(&document.name).parent().unwrap().to_owned();
        for link in document.links().into_iter().filter(|l| !l.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { self.root.join(&document.name) } else { directory.join(path) };
            if !path.is_empty() && !target.exists() {
                out.push(format!("the link {link} leads nowhere"));
            } else if !anchor.is_empty() {
                let other = std::fs::read_to_string(&target).map(|text| Document::markdown(path, &text)).ok();
                let there = if path.is_empty() { Some(document) } else { other.as_ref() };
                if !there.is_some_and(|d| d.anchors().iter().any(|a| a == anchor)) {
                    out.push(format!("the link {link} names no heading"));
                }
            }
        }
    }

    /// Names that the program or its tests must know: variables of the environment, metrics.
    fn names(&self, text: &str, out: &mut Vec<String>) {
        for word in words(text) {
            let variable = ["CKPTFS_", "BENCH_"].iter().any(|p| word.len() > p.len() && word.starts_with(p));
            // The other bucket's: any that a cloud has.
            let other = word.strip_prefix("CKPTFS_TO_").filter(|_| self.words.contains("CKPTFS_TO_"));
            let other = other.is_some_and(|rest| ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|c| rest.starts_with(c)));
            if variable && !other && !self.words.contains(word) {
                out.push(format!("nothing reads the variable {word}"));
            }
            if word.starts_with("ckptfs_") {
                let family = ["_total", "_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end));
                if ![Some(word), family].iter().flatten().any(|w| self.metrics.contains(*w)) {
                    out.push(format!("there is no metric {word}"));
                }
            }
        }
    }

    /// What a script is told to do, and the test programs that cargo is told to run.
    fn scripts(&self, text: &str, out: &mut Vec<String>) {
        let words: Vec<&str> = text.split_whitespace().collect();
        let cargo = std::fs::read_to_string(self.root.join("Cargo.toml")).unwrap();
        for pair in words.windows(2).filter(|pair| pair[1].chars().all(|c| c.is_ascii_lowercase())) {
            let script = pair[0].starts_with("scripts/") && pair[0].ends_with(".sh");
            let known = match pair[0] {
                "--test" => cargo.contains(&format!("name = {:?}", pair[1])),
                _ if script => std::fs::read_to_string(self.root.join(pair[0]))
                    .is_ok_and(|text| text.split(|c| !is_word(c)).any(|w| w == pair[1])),
                _ => true,
            };
            if !known {
                out.push(format!("{} knows no {}", pair[0], pair[1]));
            }
        }
    }

    /// Options in lines of `/etc/fstab`: the helper of mount(8) knows each.
    fn fstab(&self, text: &str, out: &mut Vec<String>) {
        let helper = std::fs::read_to_string(self.root.join("packaging/mount.ckptfs")).unwrap();
        let patterns = helper.lines().filter_map(|l| l.trim().split_once(')')).map(|(pattern, _)| pattern);
        let known: Vec<&str> = patterns.flat_map(|p| p.split('|')).map(|p| p.trim().trim_end_matches('*')).collect();
        let is_known =
            |option: &str| known.iter().any(|k| option == *k || (k.ends_with(['=', '-']) && option.starts_with(k)));
        for line in text.lines() {
            let words: Vec<&str> = line.trim_matches(['#', '`', ' ', '.']).split_whitespace().collect();
            for fields in words.windows(3).filter(|w| w[0] == "ckptfs" && w[1].contains(',') && w[2] == "0") {
                let unknown = fields[1].split(',').filter(|option| !option.is_empty() && !is_known(option));
                out.extend(unknown.map(|option| format!("mount.ckptfs knows no option {option}")));
            }
        }
    }

    /// Everything that a document of Markdown names and that is not there.
    pub fn faults(&self, document: &Document) -> Vec<String> {
        let mut out = Vec::new();
        for block in document.blocks.iter().filter(|b| b.is_shell() || b.info.is_empty()) {
            // Drawings and lists of a block without a language are no shell, but for the commands in them.
            let joined = block.text.replace("\\\n", " ");
            let lines = joined.lines().filter(|l| block.is_shell() || l.starts_with("ckptfs "));
            lines.for_each(|line| self.line(line, &mut out));
            for line in joined.lines() {
                self.scripts(line.split(" #").next().unwrap_or_default(), &mut out);
            }
        }
        document.spans().iter().for_each(|span| self.span(span, &mut out));
        self.paths(&document.text, &mut out);
        self.links(document, &mut out);
        self.fstab(&document.text, &mut out);
        self.names(&document.text, &mut out);
        out
    }

    /// The same of a service file or a script, where a mount's flags also stand alone.
    pub fn packaged(&self, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        let continued = text.replace("\\\n#", " ").replace("\\\n", " ");
        for line in continued.lines() {
            let line = line.trim_start_matches(['#', ' ']);
            let list = line.split_once(": [").map(|(_, rest)| rest.replace(['"', ',', ']', '}'], " "));
            let (whole, mount) = match (&list, line.split_once("CKPTFS_MOUNT_OPTIONS=")) {
                (Some(list), _) => (list.as_str(), line.starts_with("args:")),
                (_, Some((_, options))) => (options, true),
                _ => (line, line.contains("set -- \"$@\" --")),
            };
            let whole = whole.split("ExecStart=").last().and_then(|l| l.split("ExecStop=").last()).unwrap_or_default();
            if mount && list.is_none() {
                let (commands, _) = shell(whole.split_once("\"$@\"").map_or(whole, |(_, rest)| rest));
                let flags = commands.into_iter().next().unwrap_or_default();
                out.extend(self.command(&[vec!["mount".to_owned()], flags].concat()));
            } else if mount {
                self.line(&format!("ckptfs {whole}"), &mut out);
            } else {
                self.line(whole, &mut out);
            }
        }
        self.paths(text, &mut out);
        self.fstab(text, &mut out);
        self.names(text, &mut out);
        out
    }
}
