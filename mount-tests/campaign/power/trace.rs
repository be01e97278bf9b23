//! What a process asked of the file system, as `strace` wrote it down: every call with its data, and when it began and ended.

use std::path::Path;
use std::process::Command;

/// What changes files or makes them durable, and what says which descriptor is which.
const CALLS: &str = "trace=open,openat,openat2,creat,close,dup,dup2,dup3,fcntl,lseek,write,pwrite64,writev,pwritev,pwritev2,copy_file_range,\
sendfile,ioctl,ftruncate,truncate,fallocate,link,linkat,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,symlink,symlinkat,\
setxattr,lsetxattr,fsetxattr,removexattr,lremovexattr,fremovexattr,fsync,fdatasync,syncfs,sync,sync_file_range,mmap,io_uring_setup,fork,vfork";

/// A call that ended. Moments are numbered over a whole scenario.
#[derive(Debug)]
pub struct Call {
    pub name: String,
    pub args: Vec<String>,
    /// Its result, or minus one.
    pub result: i64,
    pub begun: u64,
    pub ended: u64,
}

/// The same command under `strace`, which writes to `log`.
pub fn traced(command: &Command, log: &Path) -> Command {
    let mut traced = Command::new("strace");
    traced
        .args(["-f", "--seccomp-bpf", "-qq", "-s", "1000000000", "-xx", "-e", "signal=none", "-e", CALLS, "-o"])
        .arg(log);
    traced.arg("--").arg(command.get_program()).args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        traced.current_dir(dir);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => traced.env(name, value),
            None => traced.env_remove(name),
        };
    }
    traced
}

/// The calls of a log in the order in which they ended; `clock` is the last moment so far.
pub fn read(log: &str, clock: &mut u64) -> Vec<Call> {
    let mut open: Vec<(&str, &str, u64)> = Vec::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        *clock += 1;
        let (thread, rest) = line.split_once(' ').unwrap_or_else(|| panic!("no line of strace: {line:.200}"));
        let rest = rest.trim_start();
        if rest.starts_with("+++") || rest.starts_with("---") {
            continue;
        }
        let whole;
        let (text, begun) = if let Some(begins) = rest.strip_suffix(" <unfinished ...>") {
            open.push((thread, begins, *clock));
            continue;
        } else if let Some(resumed) = rest.strip_prefix("<... ") {
            let at = open.iter().position(|o| o.0 == thread);
            let (_, begins, begun) = open.remove(at.unwrap_or_else(|| panic!("nothing to resume: {line:.200}")));
            let (_, ends) = resumed.split_once(" resumed>").unwrap();
            whole = format!("{begins}{ends}");
            (whole.as_str(), begun)
        } else {
            (rest, *clock)
        };
        *clock += 1;
        calls.extend(call(text, begun, *clock));
    }
    calls
}

fn call(text: &str, begun: u64, ended: u64) -> Option<Call> {
    let (name, rest) = text.split_once('(')?;
    let (args, result) = rest.rsplit_once(" = ")?;
    let args = args.trim_end().strip_suffix(')')?;
    let result = result.split(' ').next()?;
    let result = match result.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).unwrap_or(i64::MAX),
        None => result.parse().unwrap_or(-1),
    };
    Some(Call { name: name.to_owned(), args: split(args), result, begun, ended })
}

/// Arguments, parted at the commas that stand in no text and in no brackets.
fn split(args: &str) -> Vec<String> {
    let (mut depth, mut quoted, mut from) = (0, false, 0);
    let mut out = Vec::new();
    for (at, byte) in args.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'{' | b'(' => depth += 1,
            b']' | b'}' | b')' => depth -= 1,
            b',' if depth == 0 => {
                out.push(args[from..at].trim().to_owned());
                from = at + 1;
            }
            _ => {}
        }
    }
    out.push(args[from..].trim().to_owned());
    out
}

/// The bytes of a text, which is all `\x..`.
pub fn bytes(text: &str) -> Vec<u8> {
    let text = text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
    let text = text.unwrap_or_else(|| panic!("strace cut a text short"));
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    text.as_bytes().chunks_exact(4).map(|c| digit(c[2]) << 4 | digit(c[3])).collect()
}

#[test]
fn a_call_that_others_come_between_has_its_beginning_and_its_end() {
    let log = "7 write(3, \"\\x61\\x2c\\x62\", 3 <unfinished ...>\n8 fsync(4) = 0\n7 <... write resumed>) = 3\n\
               7 openat(AT_FDCWD, \"\\x61\", O_RDONLY) = -1 ENOENT (No such file or directory)\n7 +++ exited with 0 +++\n";
    let calls = read(log, &mut 0);
    let names: Vec<_> = calls.iter().map(|c| (c.name.as_str(), c.result)).collect();
    assert_eq!(names, [("fsync", 0), ("write", 3), ("openat", -1)]);
    assert!(calls[1].begun < calls[0].begun && calls[0].ended < calls[1].ended);
    assert_eq!(bytes(&calls[1].args[1]), b"a,b");
    assert_eq!(calls[2].args.len(), 3);
}
