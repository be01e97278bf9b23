//! Jobs of several owners on one mount: who gets into which, as the kernel says, though their files are one inode.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kit::{is_root, ls, passthrough, soon};
use crate::tool::{Desk, load, walk};

const ANN: u32 = 4321;
const BOB: u32 = 4322;

fn snapshot(desk: &Desk, job: &str, db: &str) {
    desk.ok(&["snapshot", "--job", job, db]);
}

/// What a program said as this user and group: its output, or its error.
fn run_as(uid: u32, gid: u32, program: &[&str], path: &Path) -> Result<Vec<u8>, String> {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &uid.to_string(), "--regid", &gid.to_string(), "--clear-groups"]);
    let output = command.args(program).arg(path).env("LC_ALL", "C").output().unwrap();
    if output.status.success() { Ok(output.stdout) } else { Err(String::from_utf8(output.stderr).unwrap()) }
}

fn reads(uid: u32, gid: u32, path: &Path) -> bool {
    match run_as(uid, gid, &["cat"], path) {
        Ok(bytes) => {
            assert_eq!(bytes, fs::read(path).unwrap(), "{}", path.display());
            true
        }
        Err(e) => {
            assert!(e.contains("Permission denied"), "{e}");
            false
        }
    }
}

/// Owner, group and mode as `ls -ldn` says.
fn listed(path: &Path) -> String {
    let output = Command::new("ls").arg("-ldn").arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    [words[0], words[2], words[3]].join(" ")
}

fn directories(below: &Path) -> Vec<PathBuf> {
    let mut all = vec![below.to_owned()];
    let mut at = 0;
    while let Some(directory) = all.get(at).cloned() {
        let entries = fs::read_dir(directory).unwrap().map(|e| e.unwrap());
        all.extend(entries.filter(|e| e.file_type().unwrap().is_dir()).map(|e| e.path()));
        at += 1;
    }
    all
}

#[test]
fn each_owner_gets_into_the_own_job_alone_though_files_are_shared() {
    if !is_root() {
        return;
    }
    for passed_through in [true, false] {
        let desk = Desk::new();
        load(&desk.path("same"), "default", 1, 4_000);
        for job in ["ann's", "bob", "open"] {
            snapshot(&desk, job, "same");
        }
        let mut args = vec!["mount", "mnt", "--daemon", "--job-owner", "ann's=4321:4321", "--job-owner", "bob=4322"];
        args.extend(["--job-mode", "bob=0700", "--job-mode", "ann's=0750", "--job-owner", "late=4322:4322"]);
        if !(passed_through && passthrough()) {
            args.push("--no-passthrough");
        }
        desk.ok(&args);
        let mount = desk.path("mnt");
        let (ann, bob, open) = (mount.join("ann%27s"), mount.join("bob"), mount.join("open"));

        for (job, says) in [(&ann, "drwxr-x--- 4321 4321"), (&bob, "drwx------ 4322 0"), (&open, "dr-xr-xr-x 0 0")] {
            let all = directories(job);
            assert!(all.len() >= 5, "{all:?}");
            for directory in all {
                assert_eq!(listed(&directory), says, "{}", directory.display());
            }
        }
        assert_eq!(listed(&mount), "dr-xr-xr-x 0 0", "everybody sees which jobs there are");
        let db = |job: &Path| job.join("chk-1/db/0/db");
        let sst = walk(&db(&ann)).into_iter().find(|p| p.extension().is_some_and(|e| e == "sst")).unwrap();
        let sst = sst.file_name().unwrap().to_owned();
        let ino = |job: &Path| fs::metadata(db(job).join(&sst)).unwrap().ino();
        assert_eq!((ino(&ann), ino(&bob)), (ino(&open), ino(&open)), "one file, one inode");
        assert_eq!(listed(&db(&ann).join(&sst)), "-r--r--r-- 0 0", "gated by the directory alone");

        // Bob has read the shared file, and the kernel knows all names and bytes of it, before anybody else comes.
        for file in [Path::new(&sst), Path::new("CURRENT"), Path::new("../../../manifest.json")] {
            assert!(reads(BOB, BOB, &db(&bob).join(file)) && reads(ANN, ANN, &db(&ann).join(file)));
            assert!(!reads(BOB, BOB, &db(&ann).join(file)) && !reads(ANN, ANN, &db(&bob).join(file)));
            for (uid, gid) in [(ANN, ANN), (BOB, BOB), (9999, 9999)] {
                assert!(reads(uid, gid, &db(&open).join(file)));
            }
            // The group of ann's gets in, bob's mode leaves it out; a stranger gets in nowhere.
            assert!(reads(9999, ANN, &db(&ann).join(file)) && !reads(9999, 0, &db(&bob).join(file)));
            assert!(!reads(9999, 9999, &db(&ann).join(file)) && !reads(9999, 9999, &db(&bob).join(file)));
        }
        for (job, theirs, others) in [(&ann, ANN, BOB), (&bob, BOB, ANN)] {
            for path in [job.join("latest/db/0/db/CURRENT"), job.join("chk-1/manifest.json")] {
                assert!(reads(theirs, theirs, &path) && !reads(others, others, &path));
            }
            assert_eq!(run_as(theirs, theirs, &["readlink"], &job.join("latest")).unwrap(), b"chk-1\n");
            for (program, path) in [("ls", job.clone()), ("ls", job.join("chk-1")), ("stat", job.join("chk-1/db"))] {
                let said = run_as(others, others, &[program], &path).unwrap_err();
                assert!(said.contains("Permission denied"), "{program}: {said}");
            }
        }
        // A job that comes later has what was asked for it from its first look on.
        snapshot(&desk, "late", "same");
        assert!(soon(|| ls(&mount).contains(&"late".to_owned())));
        let late = mount.join("late");
        assert_eq!(listed(&late), "dr-xr-x--- 4322 4322", "an owner alone keeps all others out");
        assert!(reads(BOB, BOB, &db(&late).join(&sst)) && !reads(ANN, ANN, &db(&late).join(&sst)));
        desk.unmount();
    }
}

#[test]
fn a_mode_alone_lets_nobody_else_onto_the_mount() {
    if !is_root() {
        return;
    }
    let desk = Desk::new();
    load(&desk.path("same"), "default", 1, 500);
    snapshot(&desk, "app", "same");
    desk.ok(&["mount", "mnt", "--daemon", "--no-passthrough", "--job-mode", "app=0777"]);
    let current = desk.mounted_db("chk-1").join("CURRENT");
    assert!(!reads(ANN, ANN, &current));
    assert_eq!(listed(&desk.path("mnt/app")), "drwxrwxrwx 0 0");
    let refused = fs::write(desk.path("mnt/app/new"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    desk.unmount();
    for (args, says) in [
        (["--job-owner", "app"], "write JOB=UID or JOB=UID:GID"),
        (["--job-mode", "app=4755"], "octal mode up to 0777"),
    ] {
        desk.run(&[&["mount", "mnt"], &args[..]].concat()).fails(2, &[says]);
    }
    let twice = ["mount", "mnt", "--daemon", "--job-mode", "app=0700", "--job-mode", "app=0750"];
    desk.run(&twice).fails(1, &["job app is given two modes"]);
}
