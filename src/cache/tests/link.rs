//! Keeping local files: which inode it is afterwards, what is never touched, what is never believed.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;

use super::*;
use crate::error::Kind;
use crate::limits;
use crate::local::identity;

fn make(path: &Path, data: &[u8]) -> File {
    fs::write(path, data).unwrap();
    File::open(path).unwrap()
}

#[test]
fn an_own_file_is_linked_and_its_inode_left_alone() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let data = bytes(1, 300_000);
    let digest = Digest::of(&data);
    let path = dir.path().join("000001.sst");
    let file = make(&path, &data);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let before = fs::metadata(&path).unwrap();
    assert_eq!(cache.link_in(&file, &digest).unwrap(), LinkedIn::Linked);
    let entry = fs::metadata(entry_path(&cache, &digest)).unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((entry.dev(), entry.ino(), entry.nlink()), (before.dev(), before.ino(), 2));
    assert_eq!(
        (after.mode(), after.uid(), after.gid(), after.mtime_nsec()),
        (before.mode(), before.uid(), before.gid(), before.mtime_nsec())
    );
    assert_eq!(cache.link_in(&file, &digest).unwrap(), LinkedIn::Present);
    assert_eq!(cache.counters().degraded_links.get(), 0);
    // It stays when the database deletes it, and is believed by a process that never saw it.
    fs::remove_file(&path).unwrap();
    let later = Cache::open(cache.path(), CacheOptions { create: false }).unwrap();
    let found = later.open_complete(&digest, data.len() as u64).unwrap().unwrap();
    assert!(read_all(&found) == data);
    assert_eq!(identity::recorded(&found).unwrap(), Some(digest));
    // Read-only: nobody can change the cache through what it hands out.
    assert!(found.write_at(b"x", 0).is_err());
}

#[test]
fn a_file_that_holds_something_else_is_never_kept() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let file = make(&dir.path().join("a"), b"these bytes");
    let other = Digest::of(b"other bytes");
    for _ in 0..2 {
        let e = cache.link_in(&file, &other).unwrap_err();
        assert!(matches!(e, CacheError::Mismatch { .. }), "{e}");
        // The second time its inode has a record, of what it really holds.
        identity::record(&file, &Digest::of(b"these bytes")).unwrap();
    }
    // A copy is hashed while it is made.
    chown(dir.path().join("a"), Some(7), None).unwrap();
    assert!(matches!(cache.link_in(&file, &other), Err(CacheError::Mismatch { .. })));
    assert!(matches!(cache.link_in(&File::open(dir.path()).unwrap(), &other), Err(CacheError::Mismatch { .. })));
    assert!(matches!(
        cache.link_in(&File::open("/dev/null").unwrap(), &Digest::of(b"")),
        Err(CacheError::Mismatch { .. })
    ));
    assert!(matches!(cache.put_bytes(&other, b"x"), Err(CacheError::Mismatch { .. })));
    assert_eq!(files_in(&cache), Vec::<PathBuf>::new());
    // A record that outlived a write is no record.
    let path = dir.path().join("b");
    let file = make(&path, b"first");
    identity::record(&file, &Digest::of(b"first")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(&path, b"secnd").unwrap();
    assert!(cache.link_in(&File::open(&path).unwrap(), &Digest::of(b"first")).is_err());
}

#[test]
fn anothers_file_is_copied_and_said_so() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let data = bytes(2, 3_000_000);
    let digest = Digest::of(&data);
    let path = dir.path().join("x.sst");
    let file = make(&path, &data);
    chown(&path, Some(1234), Some(1234)).unwrap();
    let linked = cache.link_in(&file, &digest).unwrap();
    assert!(linked.is_degraded(), "{linked:?}");
    assert_eq!(cache.counters().degraded_links.get(), 1);
    let entry = fs::metadata(entry_path(&cache, &digest)).unwrap();
    assert_ne!(entry.ino(), fs::metadata(&path).unwrap().ino());
    assert_eq!((entry.uid(), entry.mode() & 0o777, entry.nlink()), (0, 0o600, 1));
    assert_eq!((fs::metadata(&path).unwrap().uid(), fs::metadata(&path).unwrap().nlink()), (1234, 1));
    assert!(read_all(&cache.open_complete(&digest, data.len() as u64).unwrap().unwrap()) == data);

    // One whose record says what it is may share its blocks, where the file system can.
    let path = dir.path().join("y.sst");
    let data = bytes(7, 300_000);
    let file = make(&path, &data);
    chown(&path, Some(1234), Some(1234)).unwrap();
    let digest = identity::digest(&file).unwrap();
    let linked = cache.link_in(&file, &digest).unwrap();
    println!("a recorded file of another owner was {linked:?}");
    assert!(linked.is_degraded());
    let entry = cache.open_complete(&digest, data.len() as u64).unwrap().unwrap();
    assert!(read_all(&entry) == data);
    assert_eq!(identity::recorded(&entry).unwrap(), Some(digest));
    assert_eq!(entry.metadata().unwrap().nlink(), 1);

    // One that everybody may write is not trusted with a name either.
    let path = dir.path().join("open.sst");
    let file = make(&path, b"open to all");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(cache.link_in(&file, &Digest::of(b"open to all")).unwrap().is_degraded());
}

#[test]
fn a_file_of_another_file_system_is_copied() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let other = Mounted::new("tmpfs", "size=16m,mode=0700");
    let data = bytes(3, 2_500_000);
    let file = make(&other.0.path().join("x.sst"), &data);
    assert_eq!(cache.link_in(&file, &Digest::of(&data)).unwrap(), LinkedIn::Copied);
    assert!(read_all(&cache.open_complete(&Digest::of(&data), data.len() as u64).unwrap().unwrap()) == data);
    // One whose record says what it is, so that a link is tried.
    let known = make(&other.0.path().join("y.sst"), b"known");
    identity::digest(&known).unwrap();
    assert_eq!(identity::recorded(&known).unwrap(), Some(Digest::of(b"known")));
    assert_eq!(cache.link_in(&known, &Digest::of(b"known")).unwrap(), LinkedIn::Copied);
    // An entry of the same device, no matter who asks: now it is there.
    assert_eq!(cache.link_in(&file, &Digest::of(&data)).unwrap(), LinkedIn::Present);
}

#[test]
fn a_file_with_as_many_names_as_can_be_is_copied() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let path = dir.path().join("x");
    let file = make(&path, b"many names");
    let names = dir.path().join("names");
    fs::create_dir(&names).unwrap();
    let mut n = 1;
    let full = loop {
        match fs::hard_link(&path, names.join(n.to_string())) {
            Ok(()) => n += 1,
            Err(e) => break e.raw_os_error(),
        }
        // Some file systems know no limit that one can reach.
        if n > 70_000 {
            break None;
        }
    };
    let linked = cache.link_in(&file, &Digest::of(b"many names")).unwrap();
    if full == Some(31) {
        assert!(linked.is_degraded(), "EMLINK after {n}");
    } else {
        assert_eq!((linked, full), (LinkedIn::Linked, None));
    }
}

#[test]
fn a_wrong_entry_is_unlinked_not_changed_and_replaced() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let data = bytes(4, 100_000);
    let (digest, size) = (Digest::of(&data), data.len() as u64);
    let path = dir.path().join("db.sst");
    let spoil: [fn(&Path); 4] = [
        |p| File::options().write(true).open(p).unwrap().write_all_at(b"wrong", 5000).unwrap(),
        |p| File::options().write(true).open(p).unwrap().set_len(99_999).unwrap(),
        |p| File::options().append(true).open(p).unwrap().write_all(b"!").unwrap(),
        |p| File::options().write(true).open(p).unwrap().set_len(0).unwrap(),
    ];
    for (n, how) in (1..).zip(spoil) {
        let file = make(&path, &data);
        assert_eq!(cache.link_in(&file, &digest).unwrap(), LinkedIn::Linked);
        std::thread::sleep(std::time::Duration::from_millis(20));
        how(&path);
        let spoilt = fs::read(&path).unwrap();
        assert!(cache.open_complete(&digest, size).unwrap().is_none());
        assert!(!entry_path(&cache, &digest).exists());
        // The database's own name and bytes are its own business.
        assert!(fs::read(&path).unwrap() == spoilt);
        assert_eq!(cache.counters().discarded.get(), n);
        fs::remove_file(&path).unwrap();
    }
    // A wrong entry does not count as present either.
    let file = make(&path, &data);
    fs::create_dir_all(entry_path(&cache, &digest).parent().unwrap()).unwrap();
    fs::write(entry_path(&cache, &digest), "planted").unwrap();
    assert_eq!(cache.link_in(&file, &digest).unwrap(), LinkedIn::Linked);
    assert_eq!(fs::metadata(entry_path(&cache, &digest)).unwrap().ino(), fs::metadata(&path).unwrap().ino());
    // A symlink is not followed: not even to the right bytes.
    fs::rename(entry_path(&cache, &digest), dir.path().join("moved")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("moved"), entry_path(&cache, &digest)).unwrap();
    assert!(cache.open_complete(&digest, size).unwrap().is_none());
    assert!(fs::symlink_metadata(entry_path(&cache, &digest)).is_err());
}

#[test]
fn a_wrong_promise_of_a_size_costs_no_right_entry() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let digest = Digest::of(b"four");
    cache.put_bytes(&digest, b"four").unwrap();
    let e = cache.open_complete(&digest, 5).unwrap_err();
    assert_eq!(e.kind(), Kind::Damage);
    assert!(cache.open_complete(&digest, 4).unwrap().is_some());
}

#[test]
fn an_entry_without_a_record_is_read_once_and_then_believed() {
    let dir = temp();
    let cache = cache_in(dir.path());
    // A small one by this process alone: its record would cost more than it saves.
    for (length, recorded) in [(5, false), (limits::VOUCHED_ONLY + 1, true)] {
        let data = bytes(3, usize::try_from(length).unwrap());
        let digest = Digest::of(&data);
        cache.put_bytes(&digest, &data).unwrap();
        let path = entry_path(&cache, &digest);
        let inode = File::open(&path).unwrap();
        identity::forget(&inode).unwrap();
        let later = Cache::open(cache.path(), CacheOptions { create: false }).unwrap();
        assert!(later.open_complete(&digest, length).unwrap().is_some());
        assert_eq!(identity::recorded(&inode).unwrap(), recorded.then_some(digest));
        let stat = crate::local::FileStat::of(&inode).unwrap();
        assert!(later.inner.believed(&inode, &stat, &digest).unwrap());
    }
}

/// ramfs keeps neither user xattrs nor birth times.
#[test]
fn without_records_this_process_believes_what_it_hashed_and_the_next_reads_again() {
    let ram = Mounted::new("ramfs", "mode=0700");
    let cache = cache_in(ram.0.path());
    let data = bytes(5, 400_000);
    let (digest, size) = (Digest::of(&data), data.len() as u64);
    let file = make(&ram.0.path().join("x.sst"), &data);
    assert_eq!(cache.link_in(&file, &digest).unwrap(), LinkedIn::Linked);
    assert_eq!(identity::recorded(&file).unwrap(), None, "this file system was to keep no records");
    let stat = crate::local::FileStat::of(&file).unwrap();
    assert!(cache.inner.believed(&file, &stat, &digest).unwrap());
    assert!(cache.open_complete(&digest, size).unwrap().is_some());
    let later = Cache::open(cache.path(), CacheOptions { create: false }).unwrap();
    assert!(!later.inner.believed(&file, &stat, &digest).unwrap());
    assert!(later.open_complete(&digest, size).unwrap().is_some());
    assert!(later.inner.believed(&file, &stat, &digest).unwrap());
    // What changed is not believed, whoever hashed it.
    std::thread::sleep(std::time::Duration::from_millis(20));
    File::options().write(true).open(ram.0.path().join("x.sst")).unwrap().write_all_at(b"!", 7).unwrap();
    assert!(later.open_complete(&digest, size).unwrap().is_none());
    assert!(cache.open_complete(&digest, size).unwrap().is_none());
}

#[test]
fn a_batch_keeps_from_many_threads_and_counts_when_it_is_finished() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let data: Vec<Vec<u8>> = (0..200).map(|n| bytes(n, 1000)).collect();
    let batch = cache.batch();
    std::thread::scope(|s| {
        for part in data.chunks(50) {
            let (batch, dir) = (&batch, dir.path());
            s.spawn(move || {
                for bytes in part {
                    let digest = Digest::of(bytes);
                    let file = make(&dir.join(digest.to_hex()), bytes);
                    assert_eq!(batch.link_in(&file, &digest).unwrap(), LinkedIn::Linked);
                }
            });
        }
    });
    batch.finish().unwrap();
    for bytes in &data {
        assert!(cache.open_complete(&Digest::of(bytes), 1000).unwrap().is_some());
    }
}

/// Without privilege, `fs.protected_hardlinks` and the owner rule both forbid linking another's file.
#[test]
fn an_unprivileged_writer_copies_anothers_file() {
    const DIR: &str = "CKPTFS_TEST_UNPRIVILEGED";
    if let Some(dir) = std::env::var_os(DIR) {
        let dir = Path::new(&dir);
        let cache = cache_in(&dir.join("home"));
        let own = make(&dir.join("home/own"), b"own");
        assert_eq!(cache.link_in(&own, &Digest::of(b"own")).unwrap(), LinkedIn::Linked);
        let foreign = File::open(dir.join("foreign")).unwrap();
        assert!(cache.link_in(&foreign, &Digest::of(b"foreign")).unwrap().is_degraded());
        println!("linked and copied");
        return;
    }
    let dir = temp();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(dir.path().join("home")).unwrap();
    chown(dir.path().join("home"), Some(65534), Some(65534)).unwrap();
    make(&dir.path().join("foreign"), b"foreign");
    let program = dir.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut child = Command::new(program);
    child.args(["--exact", "cache::tests::link::an_unprivileged_writer_copies_anothers_file", "--nocapture"]);
    let out = child.env(DIR, dir.path()).current_dir("/").uid(65534).gid(65534).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && said.contains("linked and copied"),
        "{said}{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn a_symlink_in_the_place_of_a_directory_is_neither_followed_nor_an_error_for_ever() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let data = bytes(5, 1_000);
    let (digest, size) = (Digest::of(&data), data.len() as u64);
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let home = entry_path(&cache, &digest).parent().unwrap().to_path_buf();
    std::os::unix::fs::symlink(&elsewhere, &home).unwrap();
    assert!(cache.open_complete(&digest, size).unwrap().is_none());
    std::os::unix::fs::symlink(&elsewhere, &home).unwrap();
    let file = make(&dir.path().join("db.sst"), &data);
    assert_eq!(cache.link_in(&file, &digest).unwrap(), LinkedIn::Linked);
    assert!(cache.open_complete(&digest, size).unwrap().is_some());
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}
