//! docs/ENGINE.md says which test holds which rule, and which change of the source it notices. The changes are tried by
//! `scripts/rules.sh`; here only that each still fits and that its test is there.

use std::path::Path;

/// Rule, test, file, old text, new text.
fn rows(text: &str) -> Vec<[String; 5]> {
    let unquoted = |cell: &str| cell.trim().trim_matches('`').replace("\\|", "|");
    let mut rows = Vec::new();
    for line in text.lines().filter(|l| l.contains("` -> ")) {
        let cells: Vec<&str> = line.trim_matches('|').splitn(4, " | ").collect();
        let [rule, test, file, change] = cells[..] else { panic!("{line}") };
        let (old, new) = change.trim().trim_end_matches(" |").split_once("` -> ").unwrap();
        rows.push([rule.trim().to_owned(), unquoted(test), unquoted(file), unquoted(old), unquoted(new)]);
    }
    rows
}

/// All tests by name, in all files below a directory.
fn tests(dir: &Path, found: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_rule_has_its_test_and_its_change_still_fits() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rows = rows(&std::fs::read_to_string(root.join("docs/ENGINE.md")).unwrap());
    assert!(rows.len() > 60, "{} rules", rows.len());
    let mut source = String::new();
    tests(&root.join("src"), &mut source);
    for [rule, test, file, old, new] in &rows {
        let name = test.rsplit("::").next().unwrap();
        assert_eq!(source.matches(&format!("fn {name}(")).count(), 1, "{rule}: {test}");
        let text = std::fs::read_to_string(root.join("src").join(file)).unwrap();
        assert_eq!(text.matches(old.as_str()).count(), 1, "{rule}: {old:?} stands not once in {file}");
        assert_ne!(old, new, "{rule}");
    }
    for n in (1..=12).filter(|n| *n != 9) {
        assert!(rows.iter().any(|r| r[0].starts_with(&format!("A{n} "))), "no rule of A{n}");
    }
}
