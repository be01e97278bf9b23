//! Other people's programs write and read: Debian's `ldb` and `sst_dump` (package rocksdb-tools), and `rocksdict` (PyPI).

use std::path::PathBuf;
use std::process::Command;

use crate::tool::{Desk, Said, copy_tree, database, load, scan, tool};

/// The limit from which an SST is a blob of its own, which the test's SSTs must pass.
const LARGE: usize = 128 << 10;

/// Two column families, several SSTs, one of them small, and a WAL that holds the last key.
fn written_by_ldb(desk: &Desk) -> PathBuf {
    let db = desk.path("source");
    let at = format!("--db={}", db.display());
    load(&db, "default", 1, 10_000);
    tool("ldb", &[&at, "create_column_family", "other"]);
    for round in 2..5 {
        load(&db, "default", round, 10_000);
        load(&db, "other", 10 + round, 5_000);
    }
    tool("ldb", &[&at, "--column_family=other", "put", "small", "sst"]);
    tool("ldb", &[&at, "put", "last", "in the WAL"]);
    let files = database(&db);
    let ssts: Vec<_> = files.iter().filter(|(name, _)| name.ends_with(".sst")).collect();
    assert!(ssts.iter().filter(|(_, bytes)| bytes.len() > LARGE).count() >= 6, "several large SSTs");
    assert!(ssts.iter().any(|(_, bytes)| bytes.len() < LARGE), "a small SST");
    assert!(files.iter().any(|(name, bytes)| name.ends_with(".log") && !bytes.is_empty()), "a WAL");
    db
}

#[test]
fn what_ldb_wrote_is_read_through_the_mount_by_ldb_sst_dump_and_cp() {
    let desk = Desk::new();
    let source = written_by_ldb(&desk);
    // `ldb scan` opens for reading only, and a copy proves that it changed nothing.
    copy_tree(&source, &desk.path("as-written"));
    let chk = desk.snapshot(&source);
    desk.mount("cache");
    let mounted = desk.mounted_db(&chk);
    for family in ["default", "other"] {
        let (want, got) = (scan(&desk.path("as-written"), family), scan(&mounted, family));
        assert!(want.lines().count() > 15_000, "{family} has {} keys", want.lines().count());
        assert!(want == got, "ldb scan of {family} differs");
    }
    let written = database(&desk.path("as-written"));
    for name in written.keys().filter(|n| n.ends_with(".sst")) {
        let file = format!("--file={}", mounted.join(name).display());
        // Without the second word it looks at no checksum.
        let said = tool("sst_dump", &["--command=verify", "--verify_checksum", &file]);
        assert!(said.contains("The file is ok"), "{name}: {said}");
    }
    let copied = desk.path("copied");
    assert!(Command::new("cp").arg("-r").arg(&mounted).arg(&copied).status().unwrap().success());
    assert!(database(&copied) == written, "cp -r is byte-identical");
    assert_eq!(std::fs::read_dir(&copied).unwrap().count(), written.len(), "and has no LOCK, LOG or other file");
    desk.unmount();
}

/// A Python that has rocksdict.
pub fn python() -> String {
    let python = std::env::var("CKPTFS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has = Command::new(&python).args(["-c", "import rocksdict"]).output();
    assert!(
        has.is_ok_and(|o| o.status.success()),
        "{python} has no rocksdict: python3 -m venv VENV && VENV/bin/pip install rocksdict, then set CKPTFS_TEST_PYTHON=VENV/bin/python"
    );
    python
}

/// Writes a checkpoint of 21,000 keys, then dies with 500 more in the WAL.
const WRITE: &str = r#"
import os, sys
from rocksdict import Checkpoint, Rdict
root = sys.argv[1]
db = Rdict(root + "/rocksdict")
for i in range(20000):
    db[f"k{i:06}"] = os.urandom(16).hex() + str(i)
db.flush()
for i in range(20000, 21000):
    db[f"k{i:06}"] = str(i)
Checkpoint(db).create_checkpoint(root + "/checkpoint")
for i in range(21000, 21500):
    db[f"k{i:06}"] = str(i)
db.flush_wal(True)
os._exit(0)
"#;

/// Prints how many keys there are and that every value ends with its number.
const READ: &str = r#"
import sys
from rocksdict import Rdict
db = Rdict(sys.argv[1])
n = 0
for k, v in db.items():
    assert k == f"k{n:06}" and v.endswith(str(n)), (k, v)
    n += 1
db.close()
print(n)
"#;

#[test]
fn what_rocksdict_wrote_opens_with_rocksdict_from_a_copy() {
    let desk = Desk::new();
    let python = python();
    let run = |script: &str, arg: PathBuf| -> String {
        let said: Said = Command::new(&python).args(["-c", script]).arg(arg).output().unwrap().into();
        said.ok().trim().to_owned()
    };
    run(WRITE, desk.root().to_owned());
    for (directory, keys) in [("checkpoint", "21000"), ("rocksdict", "21500")] {
        let source = desk.path(directory);
        let files = database(&source);
        assert!(files.contains_key("rocksdict-config.json"), "its own file: {:?}", files.keys());
        let logs: Vec<_> = files.iter().filter(|(name, _)| name.ends_with(".log")).collect();
        assert!(!logs.is_empty(), "a WAL");
        assert_eq!(logs.iter().any(|(_, bytes)| !bytes.is_empty()), directory == "rocksdict", "keys in the WAL");
        let chk = desk.snapshot(&source);
        let (from, to) = (format!("app/{chk}"), desk.path(&format!("restored-{chk}")));
        desk.ok(&["restore".as_ref(), "--copy".as_ref(), from.as_ref(), to.as_os_str()]);
        assert!(database(&to) == files, "every file is back, byte for byte");
        #[cfg(feature = "rocksdb")]
        iterate(&desk, &chk, keys);
        assert_eq!(run(READ, to), keys);
    }
}

/// Opens the mounted checkpoint with the `rocksdb` crate and reads all of it.
#[cfg(feature = "rocksdb")]
fn iterate(desk: &Desk, chk: &str, keys: &str) {
    desk.mount("cache");
    // Texts are ordered by their bytes there too, under a name of its own.
    let comparator = ckptfs::state::Comparator { name: "rocksdict", compare: |a, b| a.cmp(b) };
    let found = crate::tool::crate_scan_ordered(&desk.mounted_db(chk), "default", Some(comparator));
    assert_eq!(found.to_string(), keys);
    desk.unmount();
}
