//! Other people's programs that check what they read: fio's verify, RocksDB's `db_bench`, `ldb` and `sst_dump`, on mount and clone.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::kit::{Bed, Kept};
use crate::tool::{Desk, copy_tree, flip, scan, tool, walk};

/// Bytes of a file, and of the blocks that fio writes with a checksum each.
const SIZE: u64 = 8 << 20;
const BLOCK: u64 = 4096;

/// How fio reads: a word, and its options.
const WAYS: [(&str, &[&str]); 6] = [
    ("sequential", &["--rw=read", "--ioengine=psync"]),
    ("random", &["--rw=randread", "--ioengine=psync"]),
    ("random by mmap", &["--rw=randread", "--ioengine=mmap"]),
    ("random by io_uring, 16 deep", &["--rw=randread", "--ioengine=io_uring", "--iodepth=16"]),
    ("random by libaio, 16 deep", &["--rw=randread", "--ioengine=libaio", "--iodepth=16"]),
    ("random, direct", &["--rw=randread", "--ioengine=psync", "--direct=1"]),
];

fn fio(path: &Path, how: &[&str]) -> Result<(), String> {
    let mut command = Command::new("fio");
    command.args(["--name=verify", "--thread", &format!("--bs={BLOCK}"), &format!("--size={SIZE}")]);
    command.args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--allow_file_create=0"]);
    let output = command.arg(format!("--filename={}", path.display())).args(how).current_dir("/").output();
    let output = output.unwrap_or_else(|e| panic!("cannot run fio: {e}; install the package fio"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(said) }
}

#[test]
fn fio_verifies_every_block_that_it_wrote_in_every_way_that_it_reads() {
    let bed = Bed::new();
    let written = bed.root().join("written");
    let mut files = Vec::new();
    for n in 1..=2 {
        fs::write(&written, vec![0; SIZE as usize]).unwrap();
        fio(&written, &["--rw=write", "--do_verify=0", &format!("--randseed={n}")]).unwrap();
        files.push(fs::read(&written).unwrap());
        assert_eq!(files.last().unwrap().len() as u64, SIZE);
    }
    // One that is damaged before it is stored: fio would notice.
    flip(&written, 5 * BLOCK + 100, 3);
    files.push(fs::read(&written).unwrap());
    let names = ["db/000001.sst", "db/000002.sst", "db/000003.sst"];
    let all: Vec<(&str, Vec<u8>)> = names.into_iter().zip(files).collect();
    bed.publish("fio", 1, &all, &mut Kept::default());
    let mut read = 0;
    // A cold cache, whose bytes are fetched as they are read, and then what is local.
    for residency in ["lazy", "local"] {
        let mounted = bed.mount();
        let db = bed.db("fio", "chk-1");
        for (way, options) in WAYS {
            for name in ["000001.sst", "000002.sst"] {
                fio(&db.join(name), options).unwrap_or_else(|e| panic!("{residency}, {way}, {name}: {e}"));
                read += SIZE / BLOCK;
            }
            let damaged = fio(&db.join("000003.sst"), options);
            assert!(damaged.is_err_and(|e| e.contains("verify")), "{residency}, {way}: a flipped bit is not noticed");
        }
        mounted.unmount().unwrap();
    }
    println!("{read} blocks verified in {} ways", 2 * WAYS.len());
}

/// One of `db_bench`'s workloads on a directory; what it printed.
fn db_bench(directory: &Path, benchmarks: &str, more: &[&str]) -> String {
    let (db, which) = (format!("--db={}", directory.display()), format!("--benchmarks={benchmarks}"));
    let common = ["--num=20000", "--value_size=400", "--key_size=16", "--compression_type=none", "--format_version=5"];
    let args = [&[db.as_str(), which.as_str()], &common[..], more].concat();
    let said = sound("db_bench", &args);
    for benchmark in benchmarks.split(',') {
        assert!(said.contains(&format!("{benchmark} ")), "{benchmark} did not run: {said}");
    }
    said
}

/// What one of RocksDB's programs says; an error where it says that what it read is damaged. Some succeed all the same.
fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|e| panic!("cannot run {program}: {e}; install the package rocksdb-tools"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.success() && !said.contains("orruption") { Ok(said) } else { Err(said) }
}

#[track_caller]
fn sound(program: &str, args: &[&str]) -> String {
    run(program, args).unwrap_or_else(|said| panic!("{program} {args:?}: {said}"))
}

/// Without the second word it looks at no checksum.
const VERIFY: [&str; 2] = ["--command=verify", "--verify_checksum"];

/// A copy of a database with one bit of its largest table flipped.
fn damage(db: &Path, damaged: &Path) {
    copy_tree(db, damaged);
    let tables = walk(damaged).into_iter().filter(|p| p.extension().is_some_and(|e| e == "sst"));
    let table = tables.max_by_key(|p| p.metadata().unwrap().len()).unwrap();
    flip(&table, table.metadata().unwrap().len() / 2, 3);
}

#[test]
fn db_bench_and_ldb_find_no_fault_on_mount_and_clone() {
    let desk = Desk::new();
    let db = desk.path("bench");
    db_bench(&db, "fillrandom,overwrite,compact", &["--threads=1", "--write_buffer_size=1000000"]);
    let truth = scan(&db, "default");
    let chk = desk.snapshot(&db);
    fs::remove_dir_all(desk.path("cache")).unwrap();
    desk.mount("cache");
    let mounted = desk.mounted_db(&chk);
    let reads = "readrandom,readseq,readreverse,seekrandom,multireadrandom,verifychecksum";
    let existing = ["--use_existing_db=1", "--threads=4", "--verify_checksum=1", "--reads=5000"];
    db_bench(&mounted, reads, &[&existing[..], &["--readonly=1"]].concat());
    let said = sound("sst_dump", &[&[&*format!("--file={}", mounted.display())], &VERIFY[..]].concat());
    assert!(said.contains("The file is ok"), "{said}");
    assert!(scan(&mounted, "default") == truth);

    let clone = desk.path("clone");
    let from = format!("app/{chk}");
    let mount = desk.path("mnt");
    desk.ok(&["restore", &from, clone.to_str().unwrap(), "--mount", mount.to_str().unwrap()]);
    db_bench(&clone, reads, &existing);
    let changed = "readwhilewriting,overwrite,deleterandom,updaterandom,compact,verifychecksum,readrandom";
    db_bench(&clone, changed, &existing);
    let at = format!("--db={}", clone.display());
    assert!(tool("ldb", &[&at, "checkconsistency"]).contains("OK"));
    // What the clone did to itself is in the clone alone.
    assert!(scan(&mounted, "default") == truth);
    let of_clone = scan(&clone, "default");
    assert!(of_clone != truth);
    let again = desk.snapshot(&clone);
    assert!(scan(&desk.mounted_db(&again), "default") == of_clone);
    // One that is damaged before it is stored: each of them would notice.
    let damaged = desk.path("damaged");
    damage(&db, &damaged);
    let mounted = desk.mounted_db(&desk.snapshot(&damaged));
    let at = format!("--db={}", mounted.display());
    for (program, args) in [
        ("db_bench", &[&at, "--benchmarks=verifychecksum", "--use_existing_db=1", "--readonly=1"][..]),
        ("sst_dump", &[&format!("--file={}", mounted.display()), VERIFY[0], VERIFY[1]]),
        ("ldb", &[&at, "scan"]),
    ] {
        assert!(run(program, args).is_err_and(|e| e.contains("checksum mismatch")), "{program} does not notice it");
    }
    desk.unmount();
}
