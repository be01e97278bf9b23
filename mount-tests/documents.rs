//! What README and `docs/` say is so: every command, flag, path, link, metric, variable and test that they name is there, every block of
//! commands is run as it stands or marked with what it needs, and every message of an error has its remedy.

mod check;
mod read;

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use check::World;
use read::{Block, Document};

use crate::clients::python;
use crate::tool::{Desk, PROGRAM, Said, copy_tree, load, walk};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<Document> {
    let mut names = vec!["README.md".to_owned()];
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            names.push(format!("docs/{name}"));
        }
    }
    names.sort();
    names.iter().map(|name| Document::markdown(name, &fs::read_to_string(root().join(name)).unwrap())).collect()
}

fn document(name: &str) -> Document {
    documents().into_iter().find(|d| d.name == name).unwrap_or_else(|| panic!("there is no {name}"))
}

#[test]
fn documents_name_only_what_is_there() {
    let world = World::new();
    assert!(world.verbs().len() > 20);
    let mut faults = Vec::new();
    for document in documents() {
        faults.extend(world.faults(&document).into_iter().map(|f| format!("{}: {f}", document.name)));
    }
    for file in walk(&root().join("packaging")) {
        let text = fs::read_to_string(&file).unwrap();
        faults.extend(world.packaged(&text).into_iter().map(|f| format!("{}: {f}", file.display())));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn planted_faults_are_found() {
    let world = World::new();
    let faults = |text: &str| world.faults(&Document::markdown("docs/PLANTED.md", text));
    let bad = [
        ("```sh\nckptfs snapshot --jobb app DIR\n```", "--jobb"),
        ("```sh\nx=1 ckptfs snapsot DIR\n```", "snapsot"),
        ("```sh\nn=$(ckptfs open --expekt a=1)\n```", "--expekt"),
        ("```sh\nldb --db=\"$(ckptfs path --bad x)\" scan\n```", "--bad"),
        ("```sh\nckptfs verify    # is all there?  --reed: every byte\n```", "--reed"),
        ("```sh\nckptfs ls    # jobs;  ckptfs ls --bad app  its checkpoints\n```", "--bad"),
        ("```sh\nckptfs mount \\\n  --demon MNT\n```", "--demon"),
        ("```sh\nckptfs import flnk s3://x/y --job a\n```", "import flnk"),
        ("```\nckptfs show --bad JOB\n```", "--bad"),
        ("as `ckptfs gc --delette` does", "--delette"),
        ("as `gc --delette` does", "--delette"),
        ("give `--cache-sise 1GiB`", "--cache-sise"),
        ("see `src/cache/nothing.rs`", "src/cache/nothing.rs"),
        ("see scripts/nothing.sh for it", "scripts/nothing.sh"),
        ("see `nothing_of_the_kind.rs`", "nothing_of_the_kind.rs"),
        ("[there](NOWHERE.md)", "NOWHERE.md"),
        ("[there](OPERATING.md#no-such-heading)", "no-such-heading"),
        ("[there](#no-such-heading)", "no-such-heading"),
        ("set `CKPTFS_NO_SUCH_VARIABLE`", "CKPTFS_NO_SUCH_VARIABLE"),
        ("set `CKPTFS_TO_OTHER_REGION`", "CKPTFS_TO_OTHER_REGION"),
        ("look at `ckptfs_cache_hitz_total`", "ckptfs_cache_hitz"),
        ("held by `layers::no_such_test_is_there_at_all`", "no_such_test_is_there_at_all"),
        ("run `scripts/bench.sh nosuchsection`", "nosuchsection"),
        ("```sh\ncargo test --test nothing\n```", "nothing"),
        ("`s3://b/p  /mnt/ckptfs  ckptfs  _netdev,alow_other,cache=/c,x-systemd.automount  0  0`", "alow_other"),
        ("held by `no_such_test_is_there_at_all`", "no_such_test_is_there_at_all"),
    ];
    for (text, says) in bad {
        let found = faults(text);
        assert!(!found.is_empty() && found.iter().all(|f| f.contains(says)), "{text}: {found:?}");
    }
    let good = [
        "# A heading, with marks\n[up](#a-heading-with-marks) and [there](OPERATING.md#metrics)",
        "`ckptfs`, `ckptfs VERB --help`, `ckptfs --version`, `restore --settle DIR`, `--cache-size 20GiB`, `-v`",
        "```sh\nexport CKPTFS_STORE=s3://b/ckptfs\nsudo ckptfs mount /mnt/ckptfs --daemon && ls --color\n```",
        "```sh\nldb --db=x --try_load_options=false scan  # older? --ignore_unknown_options\n```",
        "`scripts/bench.sh read`, `scripts/soak.sh PART`, `cargo test --release --test explorer -- --nocapture`",
        "`src/cache/*`, `cache/tree.rs`, docs/figures, `ckptfs_fuse_reads_total`, `planted_faults_are_found`",
        "```sh\nn=$(ckptfs open --job app --expect a=1)  # or: ckptfs abort --job app --checkpoint \"$n\"\n```",
    ];
    for text in good {
        assert_eq!(faults(text), Vec::<String>::new(), "{text}");
    }
    for (text, says) in [
        ("ExecStart=/usr/bin/ckptfs mount --bad $X ${Y}", "--bad"),
        ("#   CKPTFS_MOUNT_OPTIONS=--allow-other --bad 1", "--bad"),
        ("      args: [\"mount\", \"--bad\", \"/mnt\"]", "--bad"),
        ("    bad=*) set -- \"$@\" --bad \"$value\" ;;", "--bad"),
        ("          exec: { command: [\"ckptfs\", \"umonut\", \"/mnt\"] }", "umonut"),
        ("#   s3://b/p  /mnt  ckptfs  noauto,chache=/c  0  0", "chache"),
        ("exec ckptfs --store \"$store\" mount --demon \"$@\" \"$point\"", "--demon"),
    ] {
        let found = world.packaged(text);
        assert!(found.len() == 1 && found[0].contains(says), "{text}: {found:?}");
    }
}

/// A document whose blocks are run, one after the other, in a directory of its own.
struct Scene {
    document: &'static str,
    /// Places that a test must not use, and what stands for them, below the directory.
    instead: &'static [(&'static str, &'static str)],
    /// Other words that are not at hand here.
    words: &'static [(&'static str, &'static str)],
    /// What is done before the first block under a heading.
    before: &'static [(&'static str, &'static str)],
    /// What has to be there.
    prepare: fn(&Desk),
}

fn databases(desk: &Desk) {
    load(&desk.path("DIR"), "default", 1, 3_000);
    copy_tree(&desk.path("DIR"), &desk.path("DIR2"));
    load(&desk.path("DIR2"), "default", 2, 3_000);
    for subtask in 0..2 {
        load(&desk.path(&format!("DIR-OF-SUBTASK-{subtask}")), "default", 10 + subtask, 500);
    }
}

const SCENES: [Scene; 4] = [
    Scene {
        document: "README.md",
        instead: &[("/mnt/ckpt", "ckpt"), ("/srv/ckptfs", "srv"), ("/srv/backup", "backup")],
        words: &[],
        before: &[("Life and death of a checkpoint", "for n in 4 5 6 7 8 9; do ckptfs snapshot --job app DIR2; done")],
        prepare: databases,
    },
    Scene {
        document: "docs/SECURITY.md",
        instead: &[("/etc/ckptfs.key", "key")],
        words: &[],
        before: &[],
        prepare: databases,
    },
    Scene {
        document: "docs/OPERATING.md",
        instead: &[("/mnt/ckpt", "ckpt"), ("/srv/ckptfs", "srv")],
        words: &[],
        before: &[],
        prepare: databases,
    },
    Scene {
        document: "docs/FLINK.md",
        instead: &[("/mnt/ckptfs", "ckpt"), ("s3://backups/ckptfs", "srv"), ("s3://flink/checkpoints", "checkpoints")],
        // The checkpoint that is at hand has another job's id, another number and another operator.
        words: &[
            ("2bafe143a146c4be641daaa3ff685029", "a61c78b55d696e486e02c05da65bb59e"),
            ("chk-42", "chk-11"),
            ("/profile/", "/profile-op/"),
        ],
        before: &[],
        prepare: flinks,
    },
];

/// Where programs are looked for, with ours in front.
fn path_with_program() -> OsString {
    let program = Path::new(PROGRAM).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([program].into_iter().chain(std::env::split_paths(&path))).unwrap()
}

/// Flink's own checkpoint, as it lies in the sources.
fn flinks(desk: &Desk) {
    copy_tree(&root().join("mount-tests/fixtures/flink-trees/incr-p2/tree"), &desk.path("checkpoints"));
    fs::create_dir(desk.path("ckpt")).unwrap();
}

fn run_blocks(scene: &Scene, blocks: &[&Block]) -> Said {
    let desk = Desk::new();
    (scene.prepare)(&desk);
    let mut script = String::new();
    let mut heading = "";
    for block in blocks {
        if block.under != heading {
            heading = &block.under;
            for (_, first) in scene.before.iter().filter(|(under, _)| *under == heading) {
                script.push_str(&format!("{first}\n"));
            }
        }
        script.push_str(&format!(": {}:{}\n{}", scene.document, block.line, block.text));
    }
    for (from, to) in scene.instead {
        script = script.replace(from, desk.path(to).to_str().unwrap());
    }
    for (from, to) in scene.words {
        script = script.replace(from, to);
    }
    let mut command = desk.wrapped(&["sh", "-eux", "-c"], &[&script]);
    command.env("PATH", path_with_program()).env_remove("CKPTFS_CACHE").output().unwrap().into()
}

/// What is wrong with a document's blocks, and those that are marked.
fn blocks(document: &Document, scenes: &[Scene]) -> (Vec<String>, Vec<String>) {
    let shell = document.blocks.iter().filter(|b| b.is_shell());
    let (needing, plain): (Vec<&Block>, Vec<&Block>) = shell.partition(|b| b.needs().is_some());
    let place = |b: &Block| format!("{}:{}", document.name, b.line);
    let marked = needing.iter().map(|b| format!("{} needs {}", place(b), b.needs().unwrap())).collect();
    let faults = match scenes.iter().find(|s| s.document == document.name) {
        Some(scene) => {
            let said = run_blocks(scene, &plain);
            if said.code == 0 { vec![] } else { vec![format!("{}: {}{}", document.name, said.out, said.err)] }
        }
        None => plain.iter().map(|b| format!("{} is neither run nor marked", place(b))).collect(),
    };
    (faults, marked)
}

#[test]
fn every_block_of_commands_is_run_as_it_stands_or_says_what_it_needs() {
    let (faults, marked): (Vec<_>, Vec<_>) = documents().iter().map(|d| blocks(d, &SCENES)).unzip();
    let (faults, marked) = (faults.concat(), marked.concat());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    println!("{} blocks are marked:\n{}", marked.len(), marked.join("\n"));
    assert!(marked.len() < 20, "most should be run");
}

#[test]
fn a_block_that_fails_or_that_nobody_runs_is_found() {
    let scene = || Scene { document: "PLANTED.md", instead: &[], words: &[], before: &[], prepare: |_| {} };
    let of = |text: &str| blocks(&Document::markdown("PLANTED.md", text), &[scene()]);
    let (faults, marked) = of("```sh\nckptfs ls nobody\ntrue\n```\n```sh needs a person\nfalse\n```");
    assert!(faults.len() == 1 && faults[0].contains("there is no ckptfs.json"), "{faults:?}");
    assert_eq!(marked, ["PLANTED.md:5 needs a person"]);
    assert_eq!(of("```sh\ncd /\n```\n```sh\ntest \"$PWD\" = /\n```"), (vec![], vec![]));
    let (faults, _) = blocks(&Document::markdown("OTHER.md", "```sh\ntrue\n```"), &[scene()]);
    assert_eq!(faults, ["OTHER.md:1 is neither run nor marked"]);
}

/// The text of the first literal in Rust source, with its line breaks taken out; nothing if the source does not begin with one.
fn literal(source: &str) -> Option<String> {
    let mut chars = source.trim_start().strip_prefix('"')?.chars();
    let mut out = String::new();
    while let Some(c) = chars.next() {
        match c {
            '"' => return Some(out),
            '\\' => match chars.next()? {
                '\n' => chars = chars.as_str().trim_start().chars(),
                'n' => out.push(' '),
                c => out.push(c),
            },
            c => out.push(c),
        }
    }
    None
}

/// The longest piece of a message that is the same each time; nothing if it has none to speak of.
fn fixed(message: &str) -> Option<String> {
    let mut pieces = vec![String::new()];
    let mut depth = 0;
    for c in message.chars() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                pieces.push(String::new());
            }
            c if depth == 0 => pieces.last_mut().unwrap().push(c),
            _ => {}
        }
    }
    let longest = pieces.into_iter().map(|p| plain(&p)).max_by_key(String::len)?;
    (longest.len() > 5).then_some(longest)
}

/// Without the marks of code, and with single blanks.
fn plain(text: &str) -> String {
    let marks = text.replace("\\|", "|").replace('`', "");
    marks.split_whitespace().collect::<Vec<_>>().join(" ").trim_matches([' ', ':', ';', ',']).to_owned()
}

/// Messages that a source can end with: those of typed errors, and those that are made where they happen.
fn messages(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap();
    let typed = source.split("#[error(").skip(1).filter_map(literal);
    let made = ["Error::new(", "Error::with_source("].into_iter().flat_map(|call| source.split(call).skip(1));
    let made = made.filter_map(|rest| {
        let (kind, message) = rest.split_once(',')?;
        let message = message.trim_start();
        (!kind.contains('"')).then(|| literal(message.strip_prefix("format!(").unwrap_or(message)))?
    });
    // What is named before it is made an error of, or given to one as its reason.
    let named = ["why", "message"]
        .into_iter()
        .flat_map(|name| source.split(&format!("let {name} =")).skip(1).collect::<Vec<_>>());
    let named = named.filter_map(|rest| {
        let rest = rest.trim_start();
        literal(rest.strip_prefix("format!(").unwrap_or(rest))
    });
    typed.chain(made).chain(named).collect()
}

/// Messages of the sources that a text does not explain.
fn unexplained(explained: &str, sources: &[(String, String)]) -> Vec<String> {
    let explained = plain(explained);
    let mut out = Vec::new();
    for (name, source) in sources {
        for message in messages(source) {
            let known = message.starts_with("internal: ") || fixed(&message).is_none_or(|f| explained.contains(&f));
            if !known {
                out.push(format!("{name}: {message}"));
            }
        }
    }
    out
}

#[test]
fn every_message_of_an_error_has_its_remedy() {
    let sources: Vec<(String, String)> = walk(&root().join("src"))
        .into_iter()
        .map(|p| (p.strip_prefix(root()).unwrap().display().to_string(), fs::read_to_string(&p).unwrap()))
        // The demo's are about itself, and it is over in a minute.
        .filter(|(name, _)| name.ends_with(".rs") && !name.contains("tests") && !name.contains("cli/demo"))
        .collect();
    let count: usize = sources.iter().map(|(_, source)| messages(source).len()).sum();
    assert!(count > 200, "only {count} messages were found");
    let missing = unexplained(&document("docs/ERRORS.md").text, &sources);
    assert!(missing.is_empty(), "docs/ERRORS.md does not explain\n{}", missing.join("\n"));
    // And the check can fail.
    let planted = [
        "#[error(\n    \"{a} was never \\\n     heard of: {b}\"\n)]\nE,",
        "Error::new(Kind::Other, format!(\"nor was {this}\"));",
        "let why =\n    format!(\"and {a} thirdly\");",
    ];
    let planted = [(String::new(), planted.join("\n"))];
    assert_eq!(unexplained("nor was it", &planted), [": {a} was never heard of: {b}", ": and {a} thirdly"]);
    assert_eq!(unexplained("`A was never heard of: B`, nor was, thirdly", &planted), [""; 0]);
}

/// The one block of a language in a document.
fn program(document: &Document, language: &str) -> String {
    let mut blocks = document.blocks.iter().filter(|b| b.info == language);
    let block = blocks.next().unwrap_or_else(|| panic!("{} has no block of {language}", document.name));
    assert!(blocks.next().is_none(), "{} has several blocks of {language}", document.name);
    block.text.clone()
}

#[test]
fn the_program_in_python_runs_as_it_stands() {
    let text = program(&document("docs/EMBEDDING.md"), "python");
    let desk = Desk::new();
    let mut command = desk.wrapped(&[&python(), "-c"], &[&text]);
    let said: Said = command.env("PATH", path_with_program()).output().unwrap().into();
    let out = said.ok();
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("chk-1 ") && lines[1].starts_with("chk-2 "), "{out}");
    assert!(lines[0].ends_with(" 0 reused") && !lines[1].ends_with(" 0 reused"), "{out}");
}

#[test]
fn the_program_in_rust_is_short() {
    // `cargo test --doc` runs it.
    let lines = program(&document("docs/EMBEDDING.md"), "rust").lines().count();
    assert!(lines <= 60, "{lines} lines");
}
