//! The kernel's side of the tracer: ptrace, the filter, waiting.

use std::io;

use libc::user_regs_struct as Registers;

use super::Watch;
use super::calls::{CHANGES, CLONE, OPENS};

/// `AUDIT_ARCH_X86_64`.
const X86_64: u32 = 0xC000_003E;
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

/// The bit by which `O_TMPFILE` differs from `O_DIRECTORY`.
const UNNAMED: u32 = 0o20_000_000;
const FICLONE: u32 = 0x4004_9409;
const FICLONERANGE: u32 = 0x4020_940D;

fn load(at: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: at }
}

fn jump(how: u32, k: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | how | libc::BPF_K) as u16, jt: yes, jf: no, k }
}

fn answer(k: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k }
}

/// The program that picks the calls.
pub(super) fn filter(watch: Watch) -> Vec<libc::sock_filter> {
    let (stop, pass) = (answer(libc::SECCOMP_RET_TRACE), answer(libc::SECCOMP_RET_ALLOW));
    let (equal, bits) = (libc::BPF_JEQ, libc::BPF_JSET);
    let mut program = vec![load(ARCH), jump(equal, X86_64, 1, 0), pass, load(NUMBER)];
    if watch == Watch::Opens {
        for call in OPENS {
            program.extend([jump(equal, call.number(), 0, 1), stop]);
        }
        program.push(pass);
        return program;
    }
    for call in CHANGES {
        program.extend([jump(equal, call.number(), 0, 1), stop]);
    }
    for (call, flags) in OPENS.iter().zip([2, 2, 1]) {
        // openat2 has its flags in memory, where no filter can look: this program creates nothing by it.
        if call.name != "openat2" {
            let creates = jump(bits, libc::O_CREAT.cast_unsigned() | UNNAMED, 0, 1);
            program.extend([jump(equal, call.number(), 0, 4), load(ARGUMENTS + 8 * flags), creates, stop, pass]);
        }
    }
    program.extend([jump(equal, CLONE.number(), 0, 4), load(ARGUMENTS + 8)]);
    program.extend([jump(equal, FICLONE, 1, 0), jump(equal, FICLONERANGE, 0, 1), stop, pass]);
    program
}

/// In the child, before it becomes the program.
pub(super) fn traced_from_here(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: system calls with constant arguments, and a filter that outlives the call and is only read.
    unsafe {
        if libc::ptrace(libc::PTRACE_TRACEME) != 0 {
            return Err(io::Error::last_os_error());
        }
        // Only an unprivileged one has to give up setuid programs for it.
        let set = || libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program);
        if set() != 0 && (libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || set() != 0) {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The next of this thread's children, or what they begot, that stops or ends. Nothing: there is none any more.
pub(super) fn wait() -> Option<(i32, i32)> {
    let mut status = 0;
    loop {
        // SAFETY: the number outlives the call.
        let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if tid > 0 {
            return Some((tid, status));
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

fn ptrace(request: libc::c_uint, tid: i32, data: i32) {
    // SAFETY: the request takes a number, not a pointer. A tracee that was killed meanwhile is no error.
    unsafe { libc::ptrace(request, tid, 0_usize, i64::from(data)) };
}

pub(super) fn set_options(tid: i32) {
    let options = libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_EXITKILL;
    ptrace(libc::PTRACE_SETOPTIONS, tid, options);
}

pub(super) fn go_on(tid: i32, signal: i32) {
    ptrace(libc::PTRACE_CONT, tid, signal);
}

pub(super) fn go_to_the_end_of_the_call(tid: i32) {
    ptrace(libc::PTRACE_SYSCALL, tid, 0);
}

pub(super) fn registers(tid: i32) -> Option<Registers> {
    // SAFETY: zeroed numbers are a valid set of registers, which outlives the call.
    unsafe {
        let mut regs: Registers = std::mem::zeroed();
        (libc::ptrace(libc::PTRACE_GETREGS, tid, 0_usize, &raw mut regs) == 0).then_some(regs)
    }
}

pub(super) fn set_registers(tid: i32, regs: &Registers) {
    // SAFETY: the registers are only read.
    unsafe { libc::ptrace(libc::PTRACE_SETREGS, tid, 0_usize, std::ptr::from_ref(regs)) };
}

pub(super) fn kill(tid: i32) {
    // SAFETY: plain numbers. A thread's id names its process as well; one that ended is no error, and is ours until it was waited for.
    unsafe { libc::kill(tid, libc::SIGKILL) };
}

/// A NUL-terminated text in the memory of a process that is stopped.
pub(super) fn text(tid: i32, at: u64) -> Option<Vec<u8>> {
    const PAGE: u64 = 4096;
    let mut found = Vec::new();
    let mut at = at;
    while at != 0 && found.len() < libc::PATH_MAX as usize {
        // Never beyond a page: the next one may not be there.
        let mut piece = vec![0_u8; (PAGE - at % PAGE) as usize];
        let local = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() };
        let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: piece.len() };
        // SAFETY: the local piece is ours and as long as it says; the other address space is the kernel's to check.
        let n = unsafe { libc::process_vm_readv(tid, &raw const local, 1, &raw const remote, 1, 0) };
        let n = usize::try_from(n).ok()?;
        let read = piece.get(..n)?;
        if let Some(end) = read.iter().position(|b| *b == 0) {
            found.extend_from_slice(&read[..end]);
            return Some(found);
        }
        found.extend_from_slice(read);
        at += n as u64;
    }
    None
}
