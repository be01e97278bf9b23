//! Mount points and caches that cannot be used, and missing permission: a clear error that says what to do, and nothing left behind.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::kit::is_root;
use crate::tool::{Desk, PROGRAM, Said, copy_program, copy_tree, database, load, tool, tree};

const NOBODY: u32 = 65_534;

/// A desk with one checkpoint of `good`.
fn desk() -> Desk {
    let desk = Desk::new();
    for round in 1..4 {
        load(&desk.path("good"), "default", round, 4_000);
    }
    desk.snapshot(&desk.path("good"));
    desk
}

fn with_cache(desk: &Desk, cache: &str, args: &[&str]) -> Said {
    desk.command(args).env("CKPTFS_CACHE", desk.path(cache)).output().unwrap().into()
}

/// The program, copied to where every user can run it, as `nobody`.
fn as_nobody(desk: &Desk, cache: &str, args: &[&str]) -> Said {
    let program = desk.path("ckptfs");
    if !program.exists() {
        copy_program(&program);
    }
    let (program, nobody) = (program.display().to_string(), NOBODY.to_string());
    let wrapper = ["setpriv", "--reuid", &nobody, "--regid", &nobody, "--clear-groups", &program];
    desk.wrapped(&wrapper, args).env("CKPTFS_CACHE", desk.path(cache)).output().unwrap().into()
}

#[test]
fn mount_points_that_cannot_be_used_are_refused_and_no_cache_is_made() {
    let desk = desk();
    fs::create_dir(desk.path("full")).unwrap();
    fs::write(desk.path("full/file"), "").unwrap();
    fs::write(desk.path("a-file"), "").unwrap();
    let store = tree(&desk.path("store"));
    for (point, words) in [
        ("nowhere", &["nowhere", "create an empty directory"][..]),
        ("full", &["full", "not empty", "choose an empty directory"]),
        ("a-file", &["a-file", "ot a directory", "name a directory"]),
    ] {
        with_cache(&desk, "new", &["mount", point]).fails(1, words);
        with_cache(&desk, "new", &["mount", point, "--daemon"]).fails(1, words);
        assert!(!desk.path("new").exists(), "a cache was made for {point}");
    }
    desk.mount("cache");
    let mounted = database(&desk.mounted_db("chk-1"));
    for cache in ["cache", "new"] {
        with_cache(&desk, cache, &["mount", "mnt"]).fails(1, &["mnt", "mounted there already", "ckptfs umount"]);
    }
    assert!(database(&desk.mounted_db("chk-1")) == mounted, "the mount goes on");
    fs::create_dir(desk.path("mnt2")).unwrap();
    with_cache(&desk, "cache", &["mount", "mnt2"]).fails(1, &["daemon's lock", "held", "--cache"]);
    desk.unmount();
    desk.run(&["umount", "mnt"]).fails(1, &["mnt", "nothing is mounted there"]);
    desk.run(&["umount", "nowhere"]).fails(1, &["nowhere", "nothing is mounted there"]);
    // The pins of what was read are gone; their directories may stay.
    let without_pins: Vec<_> =
        tree(&desk.path("store")).lines().filter(|l| !l.starts_with("pin")).map(str::to_owned).collect();
    assert_eq!(without_pins.join("\n"), store.trim_end());
}

#[test]
fn without_the_fuse_device_a_mount_says_so() {
    let desk = desk();
    let run = |hide: &str| -> Said {
        let script = format!("{hide} && exec \"$0\" mount mnt");
        let wrapper = ["unshare", "--map-root-user", "--mount", "sh", "-c", &script, PROGRAM];
        // Root needs no user namespace, in which another user's caches could not be used.
        let wrapper = if is_root() { [&wrapper[..1], &wrapper[2..]].concat() } else { wrapper.to_vec() };
        desk.wrapped::<&str>(&wrapper, &[]).output().unwrap().into()
    };
    run("mount -t tmpfs none /dev").fails(1, &["/dev/fuse", "modprobe fuse", "--device /dev/fuse"]);
    run("mount --bind /dev/null /dev/fuse").fails(1, &["mnt", "/dev/fuse"]);
    assert!(fs::read_dir(desk.path("mnt")).unwrap().next().is_none());
}

/// A file system of its own, of this size.
fn tmpfs(desk: &Desk, name: &str, size: &str) {
    fs::create_dir(desk.path(name)).unwrap();
    tool(
        "mount",
        &["-t", "tmpfs", "-o", &format!("size={size},mode=0755"), "none", &desk.path(name).display().to_string()],
    );
}

#[test]
fn a_cache_on_another_file_system_works_and_says_so_once() {
    if !is_root() {
        return not_root();
    }
    let desk = desk();
    tmpfs(&desk, "elsewhere", "64m");
    let said = with_cache(&desk, "elsewhere/cache", &["snapshot", "--job", "app", "good"]);
    assert_eq!((said.code, said.out.as_str()), (0, "chk-2\n"), "{said:?}");
    assert!(!said.err.contains("copied"), "the base has all of it, nothing is put into the cache: {said:?}");
    let said = with_cache(&desk, "elsewhere/cache", &["snapshot", "--job", "other", "good"]);
    assert_eq!((said.code, said.out.as_str()), (0, "chk-1\n"), "{said:?}");
    let told = said.err.lines().filter(|l| l.contains("another file system")).count();
    assert_eq!(told, 1, "{said:?}");
    assert!(said.err.contains("copied into the cache") && said.err.contains("elsewhere/cache"), "{said:?}");
    // What was copied serves like what is linked.
    fs::rename(desk.path("store/blobs"), desk.path("blobs-away")).unwrap();
    desk.mount("elsewhere/cache");
    let mounted = desk.path("mnt/other/chk-1/db/0/db");
    for (name, bytes) in database(&desk.path("good")).iter().filter(|(n, _)| n.ends_with(".sst")) {
        assert!(fs::read(mounted.join(name)).unwrap() == *bytes, "{name}");
    }
    desk.unmount();
    fs::rename(desk.path("blobs-away"), desk.path("store/blobs")).unwrap();
    with_cache(&desk, "elsewhere/cache", &["verify", "--read"]).ok();
}

#[test]
fn a_full_cache_hinders_what_needs_room_and_nothing_else() {
    if !is_root() {
        return not_root();
    }
    let desk = desk();
    let good = database(&desk.path("good"));
    tmpfs(&desk, "small", "256k");
    // Every byte goes to the store all the same.
    let said = with_cache(&desk, "small/a", &["snapshot", "--job", "other", "good"]);
    assert_eq!((said.code, said.out.as_str()), (0, "chk-1\n"), "{said:?}");
    assert!(said.err.contains("not kept in the cache") && said.err.contains("--cache"), "{said:?}");
    desk.ok(&["verify", "--read", "other"]);
    fs::remove_dir_all(desk.path("small/a")).unwrap();
    // A copy needs no room there.
    with_cache(&desk, "small/b", &["restore", "--copy", "app/chk-1", "copied"]).ok();
    assert!(database(&desk.path("copied")) == good);
    fs::remove_dir_all(desk.path("small/b")).unwrap();
    // A mount serves what it cannot keep: verified, from memory. Its log lies on the full disk as well.
    desk.mount("small/c");
    for (name, bytes) in &good {
        match fs::read(desk.mounted_db("chk-1").join(name)) {
            Ok(read) => assert!(read == *bytes, "{name}"),
            Err(e) => assert!(matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EIO)), "{name}: {e}"),
        }
    }
    desk.unmount();
    let from_good_cache = desk.mount("cache");
    assert!(database(&from_good_cache.join("app/chk-1/db/0/db")) == good);
    desk.unmount();
}

#[test]
fn anothers_cache_and_anothers_files_are_refused() {
    if !is_root() {
        return not_root();
    }
    let desk = desk();
    let public = desk.path("public");
    fs::create_dir(&public).unwrap();
    fs::set_permissions(&public, fs::Permissions::from_mode(0o777)).unwrap();
    let new_store = format!("file://{}", public.join("store").display());
    let before = [tree(&desk.path("store")), tree(&desk.path("cache"))];
    // Root's cache is not nobody's; the store that would have been made is not.
    let words = ["cache", "ermission denied", "owner"];
    as_nobody(&desk, "cache", &["--store", &new_store, "snapshot", "--job", "app", "good"]).fails(1, &words);
    assert_eq!(fs::read_dir(&public).unwrap().count(), 0);
    // Nor may a cache change hands.
    copy_tree(&desk.path("cache"), &desk.path("given"));
    fn give(path: &Path) {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        if path.is_dir() {
            fs::read_dir(path).unwrap().for_each(|e| give(&e.unwrap().path()));
        }
    }
    give(&desk.path("given"));
    let words = ["given", "made for uid 0", "belongs to uid 65534", "chown"];
    as_nobody(&desk, "given", &["--store", &new_store, "snapshot", "--job", "app", "good"]).fails(1, &words);
    with_cache(&desk, "given", &["snapshot", "--job", "app", "good"]).fails(1, &words);
    // A cache that others may write to is nobody's.
    copy_tree(&desk.path("cache"), &desk.path("open"));
    fs::set_permissions(desk.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    with_cache(&desk, "open", &["snapshot", "--job", "app", "good"]).fails(1, &["open", "others may write", "chmod"]);
    // Something else is no cache.
    with_cache(&desk, "good", &["snapshot", "--job", "app", "good"])
        .fails(1, &["good", "not a ckptfs cache", "--cache"]);
    // Files and directories that may not be read.
    copy_tree(&desk.path("good"), &desk.path("secret"));
    fs::set_permissions(desk.path("secret/CURRENT"), fs::Permissions::from_mode(0o600)).unwrap();
    as_nobody(&desk, "public/cache", &["snapshot", "--job", "app", "secret"])
        .fails(1, &["secret/CURRENT", "ermission denied"]);
    fs::set_permissions(desk.path("secret"), fs::Permissions::from_mode(0o700)).unwrap();
    as_nobody(&desk, "public/cache", &["snapshot", "--job", "app", "secret"])
        .fails(1, &["secret", "ermission denied", "owner"]);
    // A store that may only be read is read.
    let said = as_nobody(&desk, "public/cache", &["snapshot", "--job", "app", "good"]);
    said.fails(1, &["store", "ermission denied"]);
    assert!(as_nobody(&desk, "public/cache", &["ls", "app"]).ok().contains("chk-1"));
    as_nobody(&desk, "public/cache", &["mount", "mnt"]).fails(1, &["mnt", "belongs to user 0", "of your own"]);
    assert_eq!([tree(&desk.path("store")), tree(&desk.path("cache"))], before);
}

/// These need mounts of their own and other users, which only root can have; the run as root covers them.
fn not_root() {
    let id = Command::new("id").arg("-u").stdout(Stdio::piped()).output().unwrap();
    assert_ne!(id.stdout, b"0\n");
}
