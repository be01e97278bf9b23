//! The tracer is shown to do what it says, on the shell and coreutils.

use super::*;

fn shell(script: &str, dir: &Path, watch: Watch, decide: &mut dyn FnMut(&Call) -> Act) -> Ran {
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).current_dir(dir);
    run(&mut command, &[dir], watch, Duration::from_secs(20), decide)
}

#[test]
fn calls_are_let_go_prevented_made_torn_or_failed() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().canonicalize().unwrap();
    let mut seen = Vec::new();
    let script = "echo 12345678 > a; mkdir b; mv a b/c; cat b/c; (cd b; ln -s x y; echo no > /dev/null)";
    let ran = shell(script, &dir, Watch::Changes, &mut |call| {
        seen.push(format!("{} {}", call.name, call.path.strip_prefix(&dir).unwrap().display()));
        Act::Go
    });
    assert_eq!((ran.code, ran.killed, ran.hung, &*ran.out), (Some(0), false, false, "12345678\n"), "{ran:?}");
    for wanted in ["openat a", "write a", "mkdir b", "symlinkat b/y"] {
        assert!(seen.iter().any(|s| s == wanted), "{wanted}: {seen:?}");
    }
    assert!(seen.iter().any(|s| s.starts_with("rename") && s.ends_with("b/c")), "{seen:?}");
    assert_eq!(ran.calls, seen.len() as u64);
    // What the write of the second line comes to.
    for (act, left, code) in [
        (Act::KillBefore, "", None),
        (Act::KillAfter, "12345678\n", None),
        (Act::Torn, "1234", None),
        (Act::Fail(libc::ENOSPC), "", Some(1)),
        (Act::Go, "12345678\n", Some(0)),
    ] {
        let ran = shell("/bin/echo 12345678 > f || exit 1; exit 0", &dir, Watch::Changes, &mut |call| {
            if call.name == "write" { act } else { Act::Go }
        });
        assert_eq!(std::fs::read_to_string(dir.join("f")).unwrap(), left, "{act:?}");
        assert_eq!((ran.code, ran.killed), (code, code.is_none()), "{act:?} {ran:?}");
        assert_eq!(ran.err.contains("No space left"), act == Act::Fail(libc::ENOSPC), "{ran:?}");
    }
}

#[test]
fn children_die_with_it_reading_opens_can_be_failed_and_a_hang_ends() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().canonicalize().unwrap();
    let ran = shell("(sleep 100; echo > late) & mkdir x; wait", &dir, Watch::Changes, &mut |_| Act::KillBefore);
    assert!(ran.killed && !dir.join("x").exists(), "{ran:?}");
    std::fs::write(dir.join("r"), "text").unwrap();
    let ran = shell("cat r", &dir, Watch::Opens, &mut |_| Act::Fail(libc::EMFILE));
    assert!(ran.code == Some(1) && ran.err.contains("Too many open files"), "{ran:?}");
    let mut command = Command::new("sleep");
    let ran = run(command.arg("100"), &[&dir], Watch::Changes, Duration::from_millis(200), &mut |_| Act::Go);
    assert!(ran.hung && !ran.killed && ran.code.is_none(), "{ran:?}");
}
