//! What the doctor says, finding by finding.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::cache::SessionOptions;
use crate::restore::doctor::{Finding, Question, Severity, examine};

fn question(world: &World, store: &str) -> Question {
    let session = SessionOptions {
        store: Some(format!("file://{}", world.path(store).display())),
        cache: Some(world.path("cache")),
        ..SessionOptions::default()
    };
    Question { session, directory: None }
}

/// The one finding of a check.
fn of(findings: &[Finding], check: &str) -> (Severity, String, String) {
    let mut found = findings.iter().filter(|f| f.check == check);
    let finding = found.next().unwrap_or_else(|| panic!("{check}: {findings:?}"));
    assert!(found.next().is_none(), "{findings:?}");
    (finding.severity, finding.says.clone(), finding.remedy.clone())
}

#[test]
fn severities_have_words_and_an_order() {
    use Severity::{Fails, Fine, Note, Warning};
    assert_eq!([Fine, Note, Warning, Fails].map(Severity::as_str), ["fine", "note", "warning", "fails"]);
    assert!(Fine < Note && Note < Warning && Warning < Fails);
}

#[test]
fn keys_are_counted_or_refused() {
    let world = World::new();
    let key_file = world.path("keys");
    let with = |text: &str| {
        std::fs::write(&key_file, text).unwrap();
        std::fs::set_permissions(&key_file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut question = question(&world, "store");
        question.session.key_file = Some(key_file.clone());
        examine(&question)
    };
    let none = of(&examine(&question(&world, "store")), "key file");
    assert_eq!(none.0, Severity::Note);
    assert!(none.1.starts_with("no key is set") && none.2.contains("SECURITY.md"));
    let (one, two) = (Digest::of(b"1").to_hex(), Digest::of(b"2").to_hex());
    let fine = |text: &str| (Severity::Fine, text.to_owned(), String::new());
    assert_eq!(of(&with(&one), "key file"), fine("one key, which signs and verifies"));
    assert_eq!(of(&with(&format!("{one}\n{two}\n")), "key file"), fine("2 keys: the first signs, all verify"));
    let bad = with("no key");
    assert_eq!(of(&bad, "key file").0, Severity::Fails);
    assert!(bad.iter().all(|f| f.check != "store"), "it is not opened without the key that was asked for");
}

#[test]
fn a_store_is_told_from_a_place_for_one() {
    let world = World::new();
    let new = examine(&question(&world, "new"));
    let (severity, says, remedy) = of(&new, "store");
    assert_eq!(severity, Severity::Note);
    assert!(says.ends_with("is no store yet") && remedy.contains("`ckptfs open` create it"));
    assert!(!world.path("new").exists() && new.iter().all(|f| f.check != "create-if-absent"));
    let url = format!("file://{}", world.path("store").display());
    let store = Store::open(&url, StoreOptions::default()).unwrap();
    let session = Session::over(store, &world.path("cache2"), true).unwrap();
    let found = examine(&question(&world, "store"));
    let (severity, says, _) = of(&found, "store");
    assert_eq!((severity, says), (Severity::Fine, format!("{url} has the id {}", session.store_id)));
    assert_eq!(of(&found, "create-if-absent").0, Severity::Fine);
    assert!(found.iter().all(|f| !f.check.starts_with("bucket")), "a directory has no rules");
    std::fs::create_dir_all(world.path("photos")).unwrap();
    std::fs::write(world.path("photos/cat"), b"meow").unwrap();
    let found = examine(&question(&world, "photos"));
    let (severity, says, remedy) = of(&found, "store");
    assert_eq!(severity, Severity::Fails);
    assert!(says.ends_with("holds other objects and no store") && remedy.contains("an empty place"));
    assert!(found.iter().all(|f| f.check != "create-if-absent"));
    let bad = Question {
        session: SessionOptions { store: Some("nothing://x".to_owned()), ..SessionOptions::default() },
        directory: None,
    };
    assert_eq!(of(&examine(&bad), "store").0, Severity::Fails);
}

#[test]
fn the_cache_says_what_it_may_take() {
    let world = World::new();
    let cache = &world.session.cache;
    let limits = crate::cache::CacheLimits { size: Some(3 << 20), free: Some(5 << 20) };
    cache.set_limits(limits).unwrap();
    let found = examine(&question(&world, "store"));
    let (severity, says, _) = of(&found, "cache");
    let path = world.path("cache");
    let words = format!("{}, which may take 3 MiB, and leaves 5 MiB free", path.display());
    assert_eq!((severity, says), (Severity::Fine, words));
    assert!(found.iter().all(|f| f.check != "hard links"), "no directory was named");
    let mut other = question(&world, "store");
    other.session.cache = Some(world.path("new"));
    let (severity, says, _) = of(&examine(&other), "cache");
    assert_eq!(
        (severity, says),
        (Severity::Note, format!("{} will be made at its first use", world.path("new").display()))
    );
    std::fs::write(world.path("file"), b"x").unwrap();
    other.session.cache = Some(world.path("file"));
    assert_eq!(of(&examine(&other), "cache").0, Severity::Fails);
    for check in ["kernel", "/dev/fuse", "passthrough", "fusermount3", "cache space", "user xattrs and birth time"] {
        of(&found, check);
    }
}
