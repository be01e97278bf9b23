//! Runs a program and stops it, with all of its threads and children, at each call that changes files below given directories: the call
//! is let go, never made, made by half, made and followed by death, or answered with an error.
//!
//! A seccomp filter picks the calls inside the kernel, so that all others cost nothing; the rest is ptrace. x86_64 only.

#![allow(unsafe_code)]

mod calls;
mod sys;

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use calls::Traced;

/// Which calls are stopped at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// Those that change something.
    Changes,
    /// Those that give a descriptor: every open.
    Opens,
}

/// A call that is about to be made.
#[derive(Debug)]
pub struct Call {
    pub name: &'static str,
    /// What it changes.
    pub path: PathBuf,
    /// Whether it can be made by half.
    pub tearable: bool,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Go,
    /// The process dies, and the call is never made.
    KillBefore,
    /// The call is made, and the process dies before it hears of it.
    KillAfter,
    /// Half of the bytes are written, and the process dies.
    Torn,
    /// The call is not made, and the process is told this errno.
    Fail(i32),
}

/// How a run ended.
#[derive(Debug)]
pub struct Ran {
    /// Nothing: by a signal.
    pub code: Option<i32>,
    pub hung: bool,
    /// Killed by an [`Act`].
    pub killed: bool,
    pub out: String,
    pub err: String,
    /// Calls that were stopped at.
    pub calls: u64,
}

impl Ran {
    /// For messages.
    pub fn words(&self) -> String {
        let how = if self.hung { "it hung".to_owned() } else { format!("code {:?}", self.code) };
        format!("{how}, out {:?}, err {:?}", self.out.trim(), self.err.trim())
    }
}

/// Runs a command to its end, at most for so long.
///
/// Everything happens in the calling thread, which must have no other children that it still waits for.
pub fn run(
    command: &mut Command,
    roots: &[&Path],
    watch: Watch,
    limit: Duration,
    decide: &mut dyn FnMut(&Call) -> Act,
) -> Ran {
    // Not files: a limit of their sizes would hold for them as well.
    let ((out, to_out), (err, to_err)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    command.stdout(to_out).stderr(to_err);
    let filter = sys::filter(watch);
    // SAFETY: the closure makes system calls only; what it points to was made before the fork.
    unsafe {
        command.pre_exec(move || sys::traced_from_here(&filter));
    }
    let root = command.spawn().unwrap().id() as i32;
    // Ours go, so that the readers see an end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let listen = |mut from: std::io::PipeReader| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let (out, err) = (listen(out), listen(err));
    let (over, rest) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let late = rest.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
        if late {
            sys::kill(root);
        }
        late
    });
    let mut tracer = Tracer {
        root,
        roots,
        watch,
        calls: 0,
        killed: false,
        code: None,
        known: BTreeSet::new(),
        leaving: BTreeSet::new(),
    };
    tracer.follow(decide);
    let _ = over.send(());
    let hung = watchdog.join().unwrap();
    let (out, err) = (out.join().unwrap(), err.join().unwrap());
    Ran { code: tracer.code, hung, killed: tracer.killed, out, err, calls: tracer.calls }
}

/// Ends a process at once.
pub fn kill(pid: i32) {
    sys::kill(pid);
}

/// Whether it is the watcher of a mount: it is there for the moment after a daemon was killed, and whoever kills a daemon by its number
/// does not meet it. Without it a reader and the daemon may wait for each other for ever.
fn outlives(tid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{tid}/comm")).is_ok_and(|name| name.trim_end() == "ckptfs-watch")
}

struct Tracer<'a> {
    root: i32,
    roots: &'a [&'a Path],
    watch: Watch,
    calls: u64,
    killed: bool,
    code: Option<i32>,
    known: BTreeSet<i32>,
    /// Those that die at the end of the call that they are in.
    leaving: BTreeSet<i32>,
}

impl Tracer<'_> {
    fn follow(&mut self, decide: &mut dyn FnMut(&Call) -> Act) {
        let mut begun = false;
        while let Some((tid, status)) = sys::wait() {
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                self.known.remove(&tid);
                if tid == self.root {
                    self.code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
                }
                continue;
            }
            if !begun && tid == self.root {
                // It has just become the program.
                begun = true;
                self.known.insert(tid);
                sys::set_options(tid);
                sys::go_on(tid, 0);
                continue;
            }
            if self.killed {
                // Born just before.
                if !outlives(tid) {
                    sys::kill(tid);
                }
                sys::go_on(tid, 0);
                continue;
            }
            let signal = libc::WSTOPSIG(status);
            let event = status >> 16;
            if event == libc::PTRACE_EVENT_SECCOMP {
                self.at_call(tid, decide);
            } else if signal == (libc::SIGTRAP | 0x80) {
                if self.leaving.remove(&tid) {
                    self.kill_all();
                }
                sys::go_on(tid, 0);
            } else if event != 0 || signal == libc::SIGTRAP {
                sys::go_on(tid, 0);
            } else if signal == libc::SIGSTOP && self.known.insert(tid) {
                // A thread's first stop is ours.
                sys::go_on(tid, 0);
            } else {
                sys::go_on(tid, signal);
            }
        }
    }

    fn kill_all(&mut self) {
        self.killed = true;
        for tid in self.known.iter().filter(|tid| !outlives(**tid)) {
            sys::kill(*tid);
        }
        sys::kill(self.root);
    }

    fn at_call(&mut self, tid: i32, decide: &mut dyn FnMut(&Call) -> Act) {
        let Some(mut regs) = sys::registers(tid) else { return };
        let Some(traced) = Traced::of(regs.orig_rax) else { return sys::go_on(tid, 0) };
        let path = traced.path(tid, &regs).filter(|path| self.roots.iter().any(|root| path.starts_with(root)));
        let (Some(path), false) = (path, self.killed) else { return sys::go_on(tid, 0) };
        self.calls += 1;
        let length = traced.length(&mut regs).filter(|l| **l >= 2);
        let call = Call { name: traced.name, path, tearable: length.is_some() && self.watch == Watch::Changes };
        match decide(&call) {
            Act::Go => sys::go_on(tid, 0),
            Act::KillBefore => self.kill_all(),
            Act::KillAfter => {
                self.leaving.insert(tid);
                sys::go_to_the_end_of_the_call(tid);
            }
            Act::Torn => {
                if let Some(length) = traced.length(&mut regs) {
                    *length /= 2;
                }
                sys::set_registers(tid, &regs);
                self.leaving.insert(tid);
                sys::go_to_the_end_of_the_call(tid);
            }
            Act::Fail(errno) => {
                regs.orig_rax = u64::MAX;
                regs.rax = (-i64::from(errno)).cast_unsigned();
                sys::set_registers(tid, &regs);
                sys::go_on(tid, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests;
