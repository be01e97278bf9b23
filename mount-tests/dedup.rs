//! Ten checkpoints of a growing database: what they share is one inode, uploaded once, read once.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ckptfs::types::Digest;

use crate::tool::{Desk, counted, database, load, stored_bytes, tool, walk};

const CHECKPOINTS: u64 = 10;
/// Keys of one increment: an SST of about 8 MiB.
const KEYS: u64 = 36_000;

/// Runs a snapshot to its end and says how many bytes it read by system calls.
fn snapshot_and_read(desk: &Desk, db: &Path) -> (String, u64) {
    let args = ["snapshot".as_ref(), "--job".as_ref(), "app".as_ref(), db.as_os_str()];
    let (said, read) = counted(&mut desk.command(&args));
    (said.ok().trim().to_owned(), read)
}

#[test]
fn ten_checkpoints_of_a_growing_database_share_inodes_uploads_and_reads() {
    let desk = Desk::new();
    let db = desk.path("growing");
    let mut known: BTreeMap<Digest, u64> = BTreeMap::new();
    let mut checkpoints = Vec::new();
    let mut first_sst = None;
    println!("checkpoint    new SSTs  small files   uploaded  ratio       read  ratio");
    for round in 1..=CHECKPOINTS {
        load(&db, "default", round, KEYS);
        let (mut new_ssts, mut small) = (0, 0);
        for (name, bytes) in database(&db) {
            let size = bytes.len() as u64;
            if !name.ends_with(".sst") {
                small += size;
            } else if known.insert(Digest::of(&bytes), size).is_none() {
                new_ssts += size;
                first_sst.get_or_insert(name);
            }
        }
        assert!(new_ssts > 4 << 20, "an increment of {new_ssts} bytes tells nothing");
        let before = stored_bytes(&desk);
        let (chk, read) = snapshot_and_read(&desk, &db);
        let uploaded = stored_bytes(&desk) - before;
        let upload_ratio = uploaded as f64 / (new_ssts + small) as f64;
        let new = new_ssts + small;
        println!(
            "{chk:10} {new_ssts:11} {small:12} {uploaded:10}  {upload_ratio:.3} {read:10}  {:.3}",
            read as f64 / new as f64
        );
        let bound = new_ssts + new_ssts / 20 + small;
        assert!(uploaded >= new_ssts, "the new SSTs must be in the store: {uploaded}");
        assert!(uploaded <= bound, "{chk}: {uploaded} bytes were uploaded, {bound} may be");
        let bound = new + new / 5 + (4 << 20);
        assert!(read >= new_ssts, "rchar misses what was hashed: {read}");
        assert!(read <= bound, "{chk}: the process read {read} bytes, {bound} may be");
        checkpoints.push(chk);
    }
    // Something that is not in the store would be seen: the same database again costs next to nothing.
    let before = stored_bytes(&desk);
    let (chk, read) = snapshot_and_read(&desk, &db);
    println!("{chk:10} again: {} uploaded, {read} read", stored_bytes(&desk) - before);
    assert!(stored_bytes(&desk) - before < 4096 && read < 4 << 20, "nothing is new");
    checkpoints.push(chk);

    desk.mount("cache");
    let first_sst = first_sst.unwrap();
    let inodes: Vec<(u64, u64)> = checkpoints
        .iter()
        .map(|c| fs::metadata(desk.mounted_db(c).join(&first_sst)).unwrap())
        .map(|m| (m.ino(), m.nlink()))
        .collect();
    assert!(inodes.iter().all(|i| i.0 == inodes[0].0 && i.1 >= 2), "{first_sst} is one inode: {inodes:?}");
    let dirs: Vec<PathBuf> = checkpoints.iter().map(|c| desk.mounted_db(c)).collect();
    let mut unique: BTreeMap<Digest, u64> = BTreeMap::new();
    let mut logical = 0;
    for path in dirs.iter().flat_map(|d| walk(d)) {
        let bytes = fs::read(&path).unwrap();
        logical += bytes.len() as u64;
        unique.insert(Digest::of(&bytes), bytes.len() as u64);
    }
    let unique: u64 = unique.values().sum();
    let shown: Vec<String> = dirs.iter().map(|d| d.display().to_string()).collect();
    let mut args = vec!["-s", "-c", "--apparent-size", "--block-size=1"];
    args.extend(shown.iter().map(String::as_str));
    let total: u64 = tool("du", &args).lines().last().unwrap().split('\t').next().unwrap().parse().unwrap();
    println!("du {total}, unique {unique}, logical {logical}");
    assert!(total.abs_diff(unique) * 100 <= unique, "du says {total}, unique are {unique}");
    assert!(logical > unique * 5, "the checkpoints share most: {logical} logical, {unique} unique");
    desk.unmount();
}
