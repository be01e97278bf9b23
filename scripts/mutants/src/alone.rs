//! Mutants that no switch can turn on (in constants, and where the type of the value is the function's own): a build for each.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::book::{self, Verdicts};
use crate::list::Mutant;
use crate::tree;

/// `tests` are those of the library that pass without a mutant; what is found is written to `known` as it comes.
pub fn judge(root: &Path, out: &Path, mutants: Vec<&Mutant>, tests: &[&str], verdicts: &mut Verdicts, known: &Path) {
    let tree = out.join("alone");
    for mutant in mutants {
        if verdicts.get(&mutant.name).is_some_and(|(what, _)| what != "survived") {
            continue;
        }
        tree::copy(root, &tree);
        let source = std::fs::read_to_string(root.join(&mutant.file)).expect("a listed file");
        let text = format!("{}{}{}", &source[..mutant.start], mutant.replacement, &source[mutant.end..]);
        tree::put(&tree.join(&mutant.file), text.as_bytes());
        let cargo = |more: &[&str]| {
            Command::new("timeout")
                .args(["1200", "cargo", "test", "--release", "--locked", "--no-default-features", "--lib", "--quiet"])
                .args(["--config", "profile.release.package.ckptfs.opt-level=0"])
                .args(more)
                .current_dir(&tree)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .expect("cargo")
        };
        // Most fall to the tests beside them.
        let near = crate::near(&mutant.file);
        let (beside, others): (Vec<&str>, Vec<&str>) = tests.iter().copied().partition(|test| test.starts_with(&near));
        let pass = |tests: &[&str]| tests.is_empty() || cargo(&[&["--", "--exact"], tests].concat()).success();
        let what = if !cargo(&["--no-run"]).success() {
            "unviable"
        } else if pass(&beside) && pass(&others) {
            "survived"
        } else {
            "killed"
        };
        eprintln!("alone: {what} {}", mutant.name);
        verdicts.insert(mutant.name.clone(), (what.into(), "in a build of its own".into()));
        book::write(known, verdicts);
    }
}
