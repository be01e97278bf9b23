//! Opening: who may, what is refused and with which words, what is made and whose it is.

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;

use super::*;
use crate::error::Kind;

const OPEN: CacheOptions = CacheOptions { create: false };
const CREATE: CacheOptions = CacheOptions { create: true };

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_cache_is_made_once_with_narrow_modes_and_keeps_its_id() {
    let dir = temp();
    let path = dir.path().join("a/b/cache");
    assert_eq!(Cache::open(&path, OPEN).unwrap_err().kind(), Kind::NotFound);
    assert!(!dir.path().join("a").exists());
    let cache = Cache::open(&path, CREATE).unwrap();
    cache.put_bytes(&Digest::of(b"x"), b"x").unwrap();
    cache.put_manifest(&Digest::of(b"m"), b"m").unwrap();
    let _daemon = cache.daemon_lock().unwrap();
    let _job = cache.job_lock(&"app".parse().unwrap()).unwrap().unwrap();
    cache.save_uses().unwrap();
    let mut todo = vec![path.clone()];
    let mut seen = 0;
    while let Some(at) = todo.pop() {
        seen += 1;
        if at.is_dir() {
            assert_eq!(mode(&at), 0o700, "{}", at.display());
            todo.extend(fs::read_dir(&at).unwrap().map(|e| e.unwrap().path()));
        } else {
            assert_eq!(mode(&at), 0o600, "{}", at.display());
        }
    }
    assert!(seen >= 12, "{seen}");
    let again = Cache::open(&path, OPEN).unwrap();
    assert_eq!((again.id(), again.uid()), (cache.id(), cache.uid()));
    assert_eq!(again.device(), fs::metadata(&path).unwrap().dev());
    assert!(again.open_complete(&Digest::of(b"x"), 1).unwrap().is_some());
}

#[test]
fn many_who_make_one_cache_at_once_agree_on_its_id() {
    let dir = temp();
    let path = dir.path().join("cache");
    let barrier = std::sync::Barrier::new(8);
    let ids: Vec<Uid> = std::thread::scope(|s| {
        let open = || {
            barrier.wait();
            Cache::open(&path, CREATE).unwrap().id()
        };
        let threads: Vec<_> = (0..8).map(|_| s.spawn(open)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn what_is_not_fit_to_be_a_cache_is_refused_with_a_remedy() {
    let dir = temp();
    let at = |name: &str| dir.path().join(name);

    fs::create_dir(at("full")).unwrap();
    fs::write(at("full/thesis.txt"), "years").unwrap();
    let e = Cache::open(&at("full"), CREATE).unwrap_err();
    assert!(e.to_string().contains("not a ckptfs cache"), "{e}");
    assert_eq!(e.kind(), Kind::Invalid);
    assert_eq!(fs::read_dir(at("full")).unwrap().count(), 1);

    fs::create_dir(at("empty")).unwrap();
    assert_eq!(Cache::open(&at("empty"), OPEN).unwrap_err().kind(), Kind::NotFound);
    fs::set_permissions(at("empty"), fs::Permissions::from_mode(0o700)).unwrap();
    Cache::open(&at("empty"), CREATE).unwrap();

    symlink(at("empty"), at("link")).unwrap();
    for spelled in ["link", "link/"] {
        let e = Cache::open(&at(spelled), OPEN).unwrap_err();
        assert!(e.to_string().contains("symbolic link"), "{e}");
    }
    fs::write(at("file"), "x").unwrap();
    assert_eq!(Cache::open(&at("file"), CREATE).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(Cache::open(Path::new("/"), CREATE).unwrap_err().kind(), Kind::Invalid);

    for bits in [0o770, 0o707, 0o702, 0o1777] {
        fs::set_permissions(at("empty"), fs::Permissions::from_mode(bits)).unwrap();
        let e = Cache::open(&at("empty"), OPEN);
        if bits & 0o022 == 0 {
            e.unwrap();
        } else {
            let e = e.unwrap_err();
            assert!(e.to_string().contains("chmod go-rwx"), "{e}");
            assert_eq!(e.kind(), Kind::Permission);
        }
    }
    fs::set_permissions(at("empty"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(at("empty/files"), fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(Cache::open(&at("empty"), OPEN).unwrap_err().kind(), Kind::Permission);
    fs::set_permissions(at("empty/files"), fs::Permissions::from_mode(0o700)).unwrap();
    Cache::open(&at("empty"), OPEN).unwrap();

    let record = fs::read_to_string(at("empty/cache.json")).unwrap();
    fs::write(at("empty/cache.json"), record.replace("\"format\":1", "\"format\":2")).unwrap();
    assert_eq!(Cache::open(&at("empty"), OPEN).unwrap_err().kind(), Kind::Newer);
    fs::write(at("empty/cache.json"), record.replace("\"uid\":0", "\"uid\":7")).unwrap();
    let e = Cache::open(&at("empty"), OPEN).unwrap_err();
    assert!(e.to_string().contains("uid 7"), "{e}");
    for broken in ["", "{}", &record[..record.len() / 2]] {
        fs::write(at("empty/cache.json"), broken).unwrap();
        assert_eq!(Cache::open(&at("empty"), CREATE).unwrap_err().kind(), Kind::Damage);
    }
}

/// Runs this same test as another user, in a child that finds the cache's path in its environment.
#[test]
fn another_users_cache_is_refused() {
    const PATH: &str = "CKPTFS_TEST_FOREIGN_CACHE";
    if let Some(path) = std::env::var_os(PATH) {
        for options in [OPEN, CREATE] {
            let e = Cache::open(Path::new(&path), options).unwrap_err();
            assert!(e.to_string().contains("belongs to uid 0, and this process runs as uid 65534"), "{e}");
            assert_eq!(e.kind(), Kind::Permission);
        }
        println!("refused twice");
        return;
    }
    let dir = temp();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let cache = cache_in(dir.path());
    // Readable, so that it is the owner that is refused and not the mode.
    fs::set_permissions(cache.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut child = Command::new(program);
    child.args(["--exact", "cache::tests::open::another_users_cache_is_refused", "--nocapture"]);
    let out = child.env(PATH, cache.path()).current_dir("/").uid(65534).gid(65534).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains("refused twice"), "{said}{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn root_serves_anothers_cache_and_gives_away_all_that_it_makes() {
    let dir = temp();
    let path = dir.path().join("cache");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    chown(&path, Some(4321), Some(8765)).unwrap();
    let cache = Cache::open(&path, CREATE).unwrap();
    assert_eq!(cache.uid(), 4321);

    let mut snapshot = Snapshot::new();
    let file = snapshot.whole("1.sst", &bytes(1, 200_000));
    snapshot.bundled(&[("CURRENT", b"MANIFEST-000005\n")]);
    cache.fetch_file(&snapshot.store, &snapshot.manifest, &file).unwrap();
    cache.fetch_bundles(&snapshot.store, &snapshot.manifest).unwrap();
    cache.put_bytes(&Digest::of(b"x"), b"x").unwrap();
    cache.put_manifest(&Digest::of(b"m"), b"m").unwrap();
    // Root's own file is not linked into it.
    fs::write(dir.path().join("roots"), "roots").unwrap();
    let roots = File::open(dir.path().join("roots")).unwrap();
    assert_eq!(cache.link_in(&roots, &Digest::of(b"roots")).unwrap(), LinkedIn::Copied);
    let _daemon = cache.daemon_lock().unwrap();
    let _job = cache.job_lock(&"app".parse().unwrap()).unwrap();
    cache.set_limits(CacheLimits { size: Some(u64::MAX), free: None }).unwrap();
    cache.make_room().unwrap();

    let mut todo = vec![path];
    let mut seen = 0;
    while let Some(at) = todo.pop() {
        seen += 1;
        let meta = fs::symlink_metadata(&at).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (4321, 8765), "{}", at.display());
        if meta.is_dir() {
            todo.extend(fs::read_dir(&at).unwrap().map(|e| e.unwrap().path()));
        }
    }
    assert!(seen >= 19, "{seen}");
    assert_eq!(fs::metadata(dir.path().join("roots")).unwrap().uid(), 0);
}

#[test]
fn leftovers_of_dead_writers_go_and_those_of_living_ones_stay() {
    let dir = temp();
    let cache = cache_in(dir.path());
    // Wherever something is made under a staging name.
    for place in ["partial", "clones", "."] {
        let place = cache.path().join(place);
        let dead = place.join(format!(".tmp-{}", Uid::random().unwrap()));
        let alive = place.join(format!(".tmp-{}", Uid::random().unwrap()));
        for path in [&dead, &alive] {
            fs::write(path, "half of it").unwrap();
        }
        // The lock of another open file of the inode is as good as another process's.
        let held = File::open(&alive).unwrap();
        held.lock().unwrap();
        let again = Cache::open(cache.path(), OPEN).unwrap();
        assert!(!dead.exists() && alive.exists(), "{}", place.display());
        drop(held);
        Cache::open(again.path(), OPEN).unwrap();
        assert!(!alive.exists());
    }
}

#[test]
fn one_daemon_and_one_writer_per_job() {
    let dir = temp();
    let cache = cache_in(dir.path());
    let other = Cache::open(cache.path(), OPEN).unwrap();
    let daemon = cache.daemon_lock().unwrap();
    let e = other.daemon_lock().unwrap_err();
    assert!(matches!(e, CacheError::Busy { .. }) && e.kind() == Kind::Conflict);
    assert!(e.to_string().contains(&format!("process {}", std::process::id())), "{e}");
    drop(daemon);
    other.daemon_lock().unwrap();

    let (a, b): (Name, Name) = ("a".parse().unwrap(), "b".parse().unwrap());
    let held = cache.job_lock(&a).unwrap().unwrap();
    assert!(other.job_lock(&a).unwrap().is_none());
    assert!(other.job_lock(&b).unwrap().is_some());
    drop(held);
    assert!(other.job_lock(&a).unwrap().is_some());
}
