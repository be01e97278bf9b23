//! What is known so far, on disk: so a run that ends early is taken up again, and new tests are tried on the survivors alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::evidence::{Test, Verdict};

/// The verdicts, by the mutant's name: (`killed`, `hung`, `survived`, `unreached` or `unviable`, what did it).
pub type Verdicts = BTreeMap<String, (String, String)>;

/// The words for a verdict.
pub fn words(verdict: &Verdict) -> (String, String) {
    match verdict {
        Verdict::Killed(by) => ("killed".into(), by.clone()),
        Verdict::Hung(by) => ("hung".into(), by.clone()),
        Verdict::Survived(tests) => ("survived".into(), format!("{tests} tests reach it")),
        Verdict::Unreached => ("unreached".into(), "no test reaches it".into()),
    }
}

pub fn read(path: &Path) -> Verdicts {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let fields = text.lines().filter_map(|line| line.split_once('\t'));
    fields
        .filter_map(|(name, rest)| {
            rest.split_once('\t').map(|(what, by)| (name.to_owned(), (what.to_owned(), by.to_owned())))
        })
        .collect()
}

pub fn write(path: &Path, verdicts: &Verdicts) {
    let mut text = String::new();
    for (name, (what, by)) in verdicts {
        let _ = writeln!(text, "{name}\t{what}\t{by}");
    }
    std::fs::write(path, text).expect("the verdicts");
}

/// The tests that were recorded: program, name, milliseconds, and the mutants that they reach.
pub fn read_tests(path: &Path) -> Vec<Test> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let test = |line: &str| {
        let mut fields = line.split('\t');
        let (program, name) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        let took = Duration::from_millis(fields.next()?.parse().ok()?);
        let reaches = fields.next()?.split(' ').filter_map(|number| number.parse().ok()).collect();
        Some(Test { program, name, took, reaches })
    };
    text.lines().filter_map(test).collect()
}

pub fn write_tests(path: &Path, tests: &[Test]) {
    let mut text = String::new();
    for test in tests {
        let reaches: Vec<String> = test.reaches.iter().map(u32::to_string).collect();
        let took = test.took.as_millis();
        let _ = writeln!(text, "{}\t{}\t{took}\t{}", test.program, test.name, reaches.join(" "));
    }
    std::fs::write(path, text).expect("what was recorded");
}

/// A table by module, and whether each reaches the bar.
pub fn report(verdicts: &Verdicts, bar: f64) -> bool {
    let mut modules: BTreeMap<String, [usize; 4]> = BTreeMap::new();
    for (name, (what, _)) in verdicts {
        let module = name.split('/').nth(1).unwrap_or_default();
        for module in [module, "together"] {
            let counts = modules.entry(module.to_owned()).or_default();
            counts[0] += 1;
            let kind = match what.as_str() {
                "unviable" => 1,
                "killed" | "hung" => 2,
                _ => 3,
            };
            counts[kind] += 1;
        }
    }
    let mut enough = !modules.is_empty();
    println!("{:<10} {:>8} {:>9} {:>7} {:>9} {:>8}", "module", "mutants", "unviable", "killed", "survived", "percent");
    for (module, [all, unviable, killed, survived]) in modules {
        let viable = u32::try_from(killed + survived).unwrap_or(u32::MAX);
        let percent = 100.0 * f64::from(u32::try_from(killed).unwrap_or(0)) / f64::from(viable.max(1));
        println!("{module:<10} {all:>8} {unviable:>9} {killed:>7} {survived:>9} {percent:>8.1}");
        enough &= viable > 0 && percent >= bar;
    }
    enough
}
