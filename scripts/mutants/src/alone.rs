//! Mutants that no switch can turn on (in constants, and where the type of the value is the function's own): a build for each.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::book::Verdicts;
use crate::list::Mutant;
use crate::tree;

pub fn judge(root: &Path, out: &Path, mutants: Vec<&Mutant>, verdicts: &mut Verdicts) {
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
        let what = if !cargo(&["--no-run"]).success() {
            "unviable"
        } else if cargo(&["--", &crate::near(&mutant.file)]).success() && cargo(&[]).success() {
            "survived"
        } else {
            "killed"
        };
        eprintln!("alone: {what} {}", mutant.name);
        verdicts.insert(mutant.name.clone(), (what.into(), "in a build of its own".into()));
    }
}
