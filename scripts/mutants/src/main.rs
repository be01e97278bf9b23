//! Mutation testing in one build: all mutants of cargo-mutants' list are compiled into one set of test programs, each behind a switch.
//! A mutant then costs a run of the tests that reach it, until the first that fails; one that no test reaches costs nothing.
//! usage: ckptfs-mutants ROOT LIST OUT [SHARD/OF]   (CKPTFS_MUTANTS_AGAIN=1: only what survived the last time, with new tests;
//! CKPTFS_MUTANTS_WITH: the test programs besides the library's own, each tried on what survived those before it;
//! CKPTFS_MUTANTS_OF: the modules whose mutants are tried now, the others keep their verdicts;
//! CKPTFS_MUTANTS_ALONE=no: not those that take a build each)

mod alone;
mod book;
mod evidence;
mod list;
mod tree;
mod weave;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use evidence::{Evidence, Verdict};
use list::Mutant;

/// Percent of the mutants that compile.
const BAR: f64 = 95.0;
/// The layer under the three modules: its tests reach none of their code.
const BELOW: &str = "types::";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [root, list, out, shard @ ..] = arguments.as_slice() else { panic!("usage: ROOT LIST OUT [SHARD/OF]") };
    let (root, out) = (Path::new(root), Path::new(out));
    let (shard, of) = shard.first().map_or((1, 1), |text| {
        let (shard, of) = text.split_once('/').expect("SHARD/OF");
        (shard.parse::<u32>().expect("a shard"), of.parse::<u32>().expect("how many"))
    });
    let again = std::env::var_os("CKPTFS_MUTANTS_AGAIN").is_some();
    let with = std::env::var("CKPTFS_MUTANTS_WITH").unwrap_or_else(|_| "explorer mount".to_owned());
    let programs: Vec<String> = with.split_whitespace().map(str::to_owned).collect();
    let of_all = std::env::var("CKPTFS_MUTANTS_OF").unwrap_or_default();
    let modules: Vec<&str> = of_all.split_whitespace().collect();
    let mutants = list::read(&std::fs::read_to_string(list).expect("the list"), root);

    let tree = out.join("tree");
    let unviable = out.join("unviable.tsv");
    if !again {
        let _ = std::fs::remove_file(&unviable);
    }
    let built = tree::build(root, &tree, &unviable, &mutants, &programs);
    let (book, recorded) = (out.join("verdicts.tsv"), out.join("tests.tsv"));
    let mut verdicts = if again { book::read(&book) } else { book::Verdicts::new() };
    // Mutants of code that has changed since are not those of the list.
    let known: BTreeSet<&String> = mutants.iter().map(|mutant| &mutant.name).collect();
    verdicts.retain(|name, _| known.contains(name));
    let mine = |mutant: &&Mutant| {
        let module = mutant.file.split('/').nth(1).unwrap_or_default();
        mutant.number % of == shard - 1 && (modules.is_empty() || modules.contains(&module))
    };
    for mutant in mutants.iter().filter(mine).filter(|mutant| built.unviable.contains(&mutant.number)) {
        verdicts.insert(mutant.name.clone(), ("unviable".into(), String::new()));
    }

    let scratch = std::env::var_os("CKPTFS_MUTANTS_TMP").map_or_else(|| out.join("tmp"), PathBuf::from).join("m");
    // What a test reaches is told by numbers: they are those of this list alone.
    let numbered: String = mutants.iter().map(|mutant| format!("{}\n", mutant.name)).collect();
    let numbers = out.join("numbered.txt");
    let same = std::fs::read_to_string(&numbers).is_ok_and(|there| there == numbered);
    std::fs::write(&numbers, numbered).expect("the numbers");
    let tests = if again && same { book::read_tests(&recorded) } else { Vec::new() };
    let mut evidence = Evidence { tree: &tree, scratch, programs: &built.programs, tests };
    for program in std::iter::once("ckptfs").chain(programs.iter().map(String::as_str)) {
        let done: BTreeSet<String> =
            evidence.tests.iter().filter(|test| test.program == program).map(|test| test.name.clone()).collect();
        for name in evidence.names(program) {
            if done.contains(&name) || name.starts_with(BELOW) {
                continue;
            }
            if !evidence.record(program, &name) {
                eprintln!("{program} {name} fails without a mutant: it is no evidence");
            }
            book::write_tests(&recorded, &evidence.tests);
        }
        let reached: usize = evidence.tests.iter().filter(|t| t.program == program && !t.reaches.is_empty()).count();
        eprintln!("{program}: {reached} tests reach mutants");
        let left: Vec<&Mutant> = mutants
            .iter()
            .filter(mine)
            .filter(|mutant| !built.unviable.contains(&mutant.number) && !built.alone.contains(&mutant.number))
            .filter(|mutant| {
                verdicts.get(&mutant.name).is_none_or(|(what, _)| what == "survived" || what == "unreached")
            })
            .collect();
        for (index, mutant) in left.iter().enumerate() {
            let verdict = evidence.judge(mutant.number, program, &near(&mutant.file));
            let words = book::words(&verdict);
            // What an earlier program's tests reached and did not notice stays so.
            if !(matches!(verdict, Verdict::Unreached) && verdicts.contains_key(&mutant.name)) {
                eprintln!("{}/{} {} {} {}", index + 1, left.len(), words.0, words.1, mutant.name);
                verdicts.insert(mutant.name.clone(), words);
                book::write(&book, &verdicts);
            }
        }
    }
    let alone = std::env::var("CKPTFS_MUTANTS_ALONE").unwrap_or_default() != "no";
    let left = mutants.iter().filter(mine).filter(|mutant| alone && built.alone.contains(&mutant.number));
    let own = evidence.tests.iter().filter(|test| test.program == "ckptfs");
    let own: Vec<&str> = own.map(|test| test.name.as_str()).collect();
    alone::judge(root, out, left.collect(), &own, &mut verdicts, &book);
    book::write(&book, &verdicts);

    for (name, (what, by)) in verdicts.iter().filter(|(_, (what, _))| what == "survived" || what == "unreached") {
        println!("{what}: {name} ({by})");
    }
    if !book::report(&verdicts, BAR) {
        eprintln!("fewer than {BAR} percent are killed somewhere");
        std::process::exit(1);
    }
}

/// How the names of the tests nearest to a file begin.
fn near(file: &str) -> String {
    let path = file.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').take(2).collect::<Vec<_>>().join("::")
}
