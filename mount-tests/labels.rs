//! Labels by the real program: given once, kept for ever, found again, and nothing to whoever has none.

use serde_json::{Value, json};

use crate::tool::{Desk, Said, load};

fn desk() -> Desk {
    let desk = Desk::new();
    load(&desk.path("source"), "default", 1, 500);
    desk
}

fn listed(desk: &Desk, args: &[&str]) -> Vec<(String, Value)> {
    let all: Value = serde_json::from_str(&desk.ok(&[&["--json", "ls", "app"], args].concat())).unwrap();
    all.as_array()
        .unwrap()
        .iter()
        .map(|c| (c["checkpoint"].as_str().unwrap().to_owned(), c["labels"].clone()))
        .collect()
}

fn names(desk: &Desk, args: &[&str]) -> Vec<String> {
    listed(desk, args).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn labels_are_kept_shown_and_looked_for() {
    let desk = desk();
    let snapshot = |labels: &[&str]| {
        let given: Vec<&str> = labels.iter().flat_map(|label| ["--label", label]).collect();
        desk.ok(&[&["snapshot", "--job", "app", "source"], &given[..]].concat()).trim().to_owned()
    };
    assert_eq!(snapshot(&[]), "chk-1");
    let before = desk.ok(&["ls", "app"]);
    assert!(!before.contains("LABELS"), "{before}");
    assert!(
        !std::fs::read_to_string(desk.path("store/outcome/app/00000000000000000001.json")).unwrap().contains("labels")
    );
    let long = format!("note={}", "long ".repeat(40));
    assert_eq!(snapshot(&["release=1.4", "team=query = fast"]), "chk-2");
    assert_eq!(snapshot(&["release=1.5", &long]), "chk-3");
    // Another process opens, another cache stores the part, a third one completes.
    assert_eq!(desk.ok(&["open", "--job", "app", "--expect", "db=1", "--label", "release=1.4"]).trim(), "chk-4");
    for args in [
        &["ack", "--job", "app", "--checkpoint", "4", "--operator", "db", "--subtask", "0", "source"][..],
        &["complete", "--job", "app", "--checkpoint", "4"],
    ] {
        let said: Said = desk.command(args).env("CKPTFS_CACHE", desk.path(args[0])).output().unwrap().into();
        said.ok();
    }

    assert_eq!(
        listed(&desk, &[])[1..],
        [
            ("chk-2".to_owned(), json!({"release": "1.4", "team": "query = fast"})),
            ("chk-3".to_owned(), json!({"note": "long ".repeat(40), "release": "1.5"})),
            ("chk-4".to_owned(), json!({"release": "1.4"})),
        ]
    );
    assert_eq!(names(&desk, &["--label", "release"]), ["chk-2", "chk-3", "chk-4"]);
    assert_eq!(names(&desk, &["--label", "release=1.4"]), ["chk-2", "chk-4"]);
    assert_eq!(names(&desk, &["--label", "release=1.4", "--label", "team"]), ["chk-2"]);
    assert_eq!(names(&desk, &["--label", "release=1.4", "--since", "0s"]), [""; 0]);
    assert_eq!(names(&desk, &["--label", "release=2"]), [""; 0]);
    let table = desk.ok(&["ls", "app"]);
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].ends_with("LABELS") && rows[2].ends_with("release=1.4,team=query = fast"), "{table}");
    assert!(rows[3].ends_with('…') && rows.iter().all(|row| row.chars().count() < 150), "{table}");
    assert!(!desk.ok(&["ls", "app", "--label", "release=1.4"]).contains("chk-3"));
    // Jobs by their newest checkpoint.
    assert!(desk.ok(&["ls", "--label", "release=1.4"]).contains("chk-4"));
    assert!(!desk.ok(&["ls", "--label", "release=1.5"]).contains("chk-4"));

    let shown = desk.ok(&["show", "app/chk-2"]);
    assert!(shown.contains("label      release=1.4\n") && shown.contains("team=query = fast\n"), "{shown}");
    let shown: Value = serde_json::from_str(&desk.ok(&["--json", "show", "app/chk-4"])).unwrap();
    assert_eq!(shown["labels"], json!({"release": "1.4"}));
    let phases = shown["subtasks"][0]["phases"].as_object().unwrap();
    assert_eq!(
        phases.keys().collect::<Vec<_>>(),
        ["bundle_ms", "scan_ms", "upload_ms"],
        "others opened and completed it"
    );
    desk.mount("cache");
    let manifest = std::fs::read_to_string(desk.path("mnt/app/chk-4/manifest.json")).unwrap();
    assert!(manifest.contains("\"release\""), "{manifest}");
    desk.ok(&["verify"]);
}

#[test]
fn a_label_that_cannot_be_is_refused_before_anything_is_made() {
    let desk = desk();
    let snapshot = |labels: &[&str]| {
        let given: Vec<&str> = labels.iter().flat_map(|label| ["--label", label]).collect();
        desk.run(&[&["snapshot", "--job", "app", "source"], &given[..]].concat())
    };
    for (wrong, words) in [
        ("release", "write KEY=VALUE"),
        ("_x=1", "begins with a letter or digit"),
        ("a b=1", "a key is 1 to 63"),
        ("a=b\nc", "control character"),
        (&format!("a={}", "v".repeat(201)), "at most 200"),
    ] {
        snapshot(&[wrong]).fails(2, &[words]);
    }
    snapshot(&["a=1", "a=2"]).fails(1, &["label a is given twice"]);
    let many: Vec<String> = (0..17).map(|i| format!("k{i}=v")).collect();
    snapshot(&many.iter().map(String::as_str).collect::<Vec<_>>()).fails(1, &["17 labels, at most 16 may be"]);
    desk.run(&["ls", "--label", "=1"]).fails(2, &["a key is 1 to 63"]);
    assert!(!desk.path("store").exists());
}
