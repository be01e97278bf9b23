//! A live RocksDB in a temporary directory.

use super::super::Comparator;
use super::*;
use crate::error::Kind;

/// A directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ckptfs-state-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn sub(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn create() -> DatabaseOptions {
    DatabaseOptions { create: true, ..DatabaseOptions::default() }
}

fn all(db: &Database, family: &str) -> Vec<Pair> {
    db.scan(family).unwrap().collect::<Result<_, _>>().unwrap()
}

/// What a count is stored as.
fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

fn raise(db: &Database, words: &[&str]) {
    let mut batch = db.batch();
    for word in words.iter().collect::<std::collections::BTreeSet<_>>() {
        let before = db.get("words", word.as_bytes()).unwrap().map_or(0, |v| number(&v));
        let more = words.iter().filter(|w| w == &word).count() as u64;
        batch.put("words", word.as_bytes(), &(before + more).to_be_bytes()).unwrap();
    }
    batch.put("place", b"at", &u64::to_be_bytes(words.len() as u64)).unwrap();
    batch.commit().unwrap();
}

#[test]
fn counts_survive_a_checkpoint_a_copy_and_a_read_only_open() {
    let scratch = Scratch::new("counts");
    let db = Database::open(&scratch.sub("live"), &["words", "place"], &create()).unwrap();
    raise(&db, &["b", "a", "b"]);
    raise(&db, &["b", "c"]);
    let chk = scratch.sub("chk");
    db.checkpoint(&chk).unwrap();
    raise(&db, &["b", "late"]);

    let names: Vec<String> =
        std::fs::read_dir(&chk).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().any(|n| n.ends_with(".sst")), "{names:?}");
    let mut families = Database::families(&chk).unwrap();
    families.sort();
    assert_eq!(families, ["default", "place", "words"]);

    // A copy without OPTIONS: they are not needed, and never loaded.
    let copy = scratch.sub("copy");
    std::fs::create_dir(&copy).unwrap();
    for n in names.iter().filter(|n| !n.starts_with("OPTIONS")) {
        std::fs::copy(chk.join(n), copy.join(n)).unwrap();
    }
    let before = std::fs::read_dir(&chk).unwrap().count();
    let read_only = Database::open_read_only(&chk, &["words", "place"], &DatabaseOptions::default()).unwrap();
    let copied = Database::open(&copy, &["words", "place"], &DatabaseOptions::default()).unwrap();
    for db in [&read_only, &copied] {
        let counts: Vec<(Vec<u8>, u64)> = all(db, "words").iter().map(|(k, v)| (k.to_vec(), number(v))).collect();
        assert_eq!(counts, [(b"a".to_vec(), 1), (b"b".to_vec(), 3), (b"c".to_vec(), 1)]);
        assert_eq!(db.get("place", b"at").unwrap(), Some(2u64.to_be_bytes().to_vec()));
        assert_eq!(db.get("words", b"late").unwrap(), None);
    }
    drop(read_only);
    assert_eq!(std::fs::read_dir(&chk).unwrap().count(), before, "a read-only open wrote something");
}

#[test]
fn a_batch_is_written_whole_or_not_at_all() {
    let scratch = Scratch::new("batch");
    let db = Database::open(&scratch.sub("live"), &["words", "place"], &create()).unwrap();
    let mut batch = db.batch();
    batch.put("words", b"x", b"one").unwrap();
    batch.put("place", b"gone", b"1").unwrap();
    batch.commit().unwrap();

    // Given up: nothing of it is there.
    let mut batch = db.batch();
    batch.put("words", b"x", b"other").unwrap();
    batch.delete("place", b"gone").unwrap();
    drop(batch);
    assert_eq!(db.get("words", b"x").unwrap(), Some(b"one".to_vec()));
    assert_eq!(all(&db, "place").len(), 1);
    let mut batch = db.batch();
    batch.put("words", b"x", b"other").unwrap();
    batch.delete("place", b"gone").unwrap();
    batch.commit().unwrap();
    assert_eq!(db.get("words", b"x").unwrap(), Some(b"other".to_vec()));
    assert_eq!(all(&db, "place"), []);
}

#[test]
fn errors_name_the_directory_and_their_kind() {
    let scratch = Scratch::new("errors");
    let options = DatabaseOptions::default();
    let missing = scratch.sub("missing");
    for result in [Database::open(&missing, &[], &options), Database::open_read_only(&missing, &[], &options)] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound, "{error}");
        assert!(error.to_string().contains("missing"), "{error}");
    }
    assert!(!missing.exists(), "opening to read made a directory");

    let live = scratch.sub("live");
    let db = Database::open(&live, &["words"], &create()).unwrap();
    assert_eq!(Database::open(&live, &["words"], &options).unwrap_err().kind(), Kind::Conflict);
    assert_eq!(db.get("other", b"k").unwrap_err().kind(), Kind::Invalid);
    assert_eq!(db.scan("other").err().unwrap().kind(), Kind::Invalid);
    assert_eq!(db.batch().put("other", b"k", b"v").unwrap_err().kind(), Kind::Invalid);
    let taken = scratch.sub("taken");
    std::fs::create_dir(&taken).unwrap();
    assert!(db.checkpoint(&taken).is_err());
    raise_default(&db);
    db.checkpoint(&scratch.sub("chk")).unwrap();
    drop(db);
    assert_eq!(Database::open_read_only(&live, &["words", "place"], &options).unwrap_err().kind(), Kind::Invalid);

    // One flipped bit in an SST is damage, and RocksDB says so.
    let chk = scratch.sub("chk");
    let mut flipped = 0;
    for entry in std::fs::read_dir(&chk).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "sst") {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[0] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1);
    let error = Database::open_read_only(&chk, &["words"], &options)
        .and_then(|db| db.scan("words")?.collect::<Result<Vec<_>, _>>().map(|_| ()))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Damage, "{error}");
}

#[test]
fn a_database_opens_only_under_its_own_order() {
    let scratch = Scratch::new("order");
    let path = scratch.sub("live");
    let backwards = Comparator { name: "backwards", compare: |a, b| b.cmp(a) };
    let options = DatabaseOptions { comparator: Some(backwards), ..create() };
    let db = Database::open(&path, &["words"], &options).unwrap();
    raise_default(&db);
    drop(db);
    assert_eq!(Database::open_read_only(&path, &["words"], &create()).unwrap_err().kind(), Kind::Invalid);
    let db = Database::open_read_only(&path, &["words"], &options).unwrap();
    let keys: Vec<_> = all(&db, "words").into_iter().map(|(k, _)| k).collect();
    assert_eq!((keys.len(), &*keys[0], &*keys[99]), (100, &99u32.to_be_bytes()[..], &0u32.to_be_bytes()[..]));
}

fn raise_default(db: &Database) {
    let mut batch = db.batch();
    for i in 0..100u32 {
        batch.put("words", &i.to_be_bytes(), &[7; 100]).unwrap();
    }
    batch.commit().unwrap();
}

fn keys(pairs: Vec<Pair>) -> Vec<Vec<u8>> {
    pairs.into_iter().map(|(key, _)| key.into_vec()).collect()
}

#[test]
fn ranges_are_read_and_removed_from_one_key_to_before_another() {
    let scratch = Scratch::new("ranges");
    let mut db = Database::open(&scratch.sub("live"), &["a"], &create()).unwrap();
    db.create_family("b").unwrap();
    assert!(db.has_family("b") && db.has_family("default") && !db.has_family("c"));
    assert!(db.create_family("b").is_err(), "it is there");
    for family in ["a", "b"] {
        let mut batch = db.batch();
        (0..10u8).for_each(|n| batch.put(family, &[n, 1], &[n]).unwrap());
        batch.commit_unlogged().unwrap();
    }
    let range = |db: &Database, from: &[u8], to: Option<&[u8]>| {
        keys(db.scan_range("a", from, to).unwrap().collect::<Result<_, _>>().unwrap())
    };
    assert_eq!(range(&db, &[2], Some(&[4])), [[2, 1], [3, 1]]);
    assert_eq!(range(&db, &[2, 1], Some(&[3, 1])), [[2, 1]]);
    assert_eq!(range(&db, &[8], None), [[8, 1], [9, 1]]);
    db.delete_range("a", &[0], &[3]).unwrap();
    db.delete_range("a", &[7], &[10]).unwrap();
    assert_eq!(keys(all(&db, "a")), [[3, 1], [4, 1], [5, 1], [6, 1]]);
    assert_eq!(all(&db, "b").len(), 10, "another family is not touched");
    // Tables that lie wholly in the range go at once.
    db.flush().unwrap();
    db.compact("b").unwrap();
    db.delete_files_in_range("b", &[0], &[5]).unwrap();
    assert_eq!(all(&db, "b").len(), 10, "the table has keys outside of it");
    db.delete_files_in_range("b", &[0], &[10]).unwrap();
    assert_eq!(all(&db, "b").len(), 0);
    assert!(matches!(db.delete_range("c", &[0], &[1]), Err(StateError::NoFamily { .. })));
}

#[test]
fn tables_written_outside_are_taken_in() {
    let scratch = Scratch::new("ingest");
    let db = Database::open(&scratch.sub("live"), &["a"], &create()).unwrap();
    let mut batch = db.batch();
    batch.put("a", b"k1", b"old").unwrap();
    batch.append("a", b"k2", b"1").unwrap();
    batch.append("a", b"k2", b"2").unwrap();
    batch.commit().unwrap();
    let write = |name: &str, rows: &[(&[u8], &[u8])]| {
        let mut table = db.sst_writer(&scratch.sub(name)).unwrap();
        rows.iter().for_each(|(key, value)| table.put(key, value).unwrap());
        assert!(table.put(b"", b"").is_err(), "it is not in order");
        (table.finish().unwrap(), scratch.sub(name))
    };
    let (rows, first) = write("first.sst", &[(b"k1", b"new"), (b"k15", b"x")]);
    let (_, second) = write("second.sst", &[(b"k3", b"y")]);
    assert_eq!(rows, 2);
    db.ingest("a", &[first.clone(), second.clone()], true).unwrap();
    assert!(!first.exists() && !second.exists(), "moved");
    let expected: [(&[u8], &[u8]); 4] = [(b"k1", b"new"), (b"k15", b"x"), (b"k2", b"1,2"), (b"k3", b"y")];
    assert!(all(&db, "a").iter().map(|(k, v)| (&**k, &**v)).eq(expected));
    let (_, third) = write("third.sst", &[(b"k4", b"z")]);
    db.ingest("a", std::slice::from_ref(&third), false).unwrap();
    assert!(third.exists(), "not moved");
    assert_eq!(db.sst_writer(&scratch.sub("empty.sst")).unwrap().finish().unwrap(), 0);
    db.ingest("a", &[], true).unwrap();
    std::fs::write(scratch.sub("no.sst"), b"no table").unwrap();
    assert!(db.ingest("a", &[scratch.sub("no.sst")], false).is_err());
    assert_eq!(all(&db, "a").len(), 5);
}

#[test]
fn appended_elements_are_joined_wherever_they_lie() {
    let scratch = Scratch::new("append");
    let db = Database::open(&scratch.sub("live"), &["l"], &create()).unwrap();
    for element in [&b"a"[..], b"b,b", b"c"] {
        let mut batch = db.batch();
        batch.append("l", b"k", element).unwrap();
        batch.commit_unlogged().unwrap();
        db.flush().unwrap();
    }
    assert_eq!(db.get("l", b"k").unwrap().unwrap(), b"a,b,b,c");
    db.compact("l").unwrap();
    assert_eq!(db.get("l", b"k").unwrap().unwrap(), b"a,b,b,c");
    drop(db);
    // Whoever opens it needs not know that it is a list.
    let db = Database::open_read_only(&scratch.sub("live"), &["l"], &DatabaseOptions::default()).unwrap();
    assert_eq!(all(&db, "l").len(), 1);
    drop(db);
    // To a value as well, which a list is once it was set as a whole.
    let db = Database::open(&scratch.sub("live"), &["l"], &create()).unwrap();
    let mut batch = db.batch();
    batch.put("l", b"v", b"x,y").unwrap();
    batch.append("l", b"v", b"z").unwrap();
    batch.commit_unlogged().unwrap();
    assert_eq!(db.get("l", b"v").unwrap().unwrap(), b"x,y,z");
}
